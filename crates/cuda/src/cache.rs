//! Built kernels, kept by content.

use std::env;
use std::path::PathBuf;

/// Where kernels of a kind are kept: in the folder that `TILED_CUDA_CACHE` names, else with the caches of the user.
pub(crate) fn folder(kind: &str) -> PathBuf {
    let of = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = of("TILED_CUDA_CACHE").unwrap_or_else(|| {
        let caches = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
        caches.unwrap_or_else(env::temp_dir).join("tiled")
    });
    own.join(kind)
}

/// The hash FNV-1a in 128 bits (Fowler, Noll, Vo).
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}
