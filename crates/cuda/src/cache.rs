//! Built kernels, kept by content.

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
#[cfg(any(feature = "device", test))]
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
};

/// Where kernels of a kind are kept: in the folder that `TILED_CUDA_CACHE` names, else with the caches of the user.
pub(crate) fn folder(kind: &str) -> PathBuf {
    let of = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = of("TILED_CUDA_CACHE").unwrap_or_else(|| {
        let caches = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
        caches.unwrap_or_else(env::temp_dir).join("tiled")
    });
    own.join(kind)
}

/// What was kept under a name: nothing where it is not what was written.
#[cfg(any(feature = "device", test))]
pub(crate) fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    // the hash stands behind it
    let of_code = bytes.split_off(bytes.len().checked_sub(size_of::<u128>())?);
    (of_code == hash(&bytes).to_le_bytes()).then_some(bytes)
}

/// Keeps bytes under a name, which nobody finds before they are whole.
#[cfg(any(feature = "device", test))]
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let own = own_name(path);
    let written = OpenOptions::new().write(true).create_new(true).open(&own).and_then(|mut file| {
        file.write_all(bytes)?;
        file.write_all(&hash(bytes).to_le_bytes())
    });
    let done = written.and_then(|()| fs::rename(&own, path));
    if done.is_err() {
        let _ = fs::remove_file(&own);
    }
    done
}

/// A name beside another that no other thread, process or container has.
pub(crate) fn own_name(path: &Path) -> PathBuf {
    path.with_extension(format!("{:016x}.tmp", RandomState::new().build_hasher().finish()))
}

/// The hash FNV-1a in 128 bits (Fowler, Noll, Vo).
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_written_whole_is_not_read() {
        let folder =
            env::temp_dir().join(format!("tiled-cache-{:016x}", RandomState::new().build_hasher().finish()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let path = folder.join("unit-sm_90.cubin");
        assert_eq!(read(&path), None);
        write(&path, b"code").expect("it can be written");
        write(&path, b"machine code").expect("it can be written over");
        assert_eq!(read(&path).as_deref(), Some(&b"machine code"[..]));
        let whole = fs::read(&path).expect("it is there");
        for damaged in [&whole[..0], &whole[..7], &whole[..whole.len() - 1], b"machine code"] {
            fs::write(&path, damaged).expect("it can be written");
            assert_eq!(read(&path), None, "{} bytes", damaged.len());
        }
        assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 1);
        fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
