//! Machine code of all kernels in one file, so that a run needs no compiler.
//!
//! ```text
//!   tiled kernels 1\n
//!   <unit> <architecture> <key> <bytes>\n      one line for each piece of code, in the order in which they follow
//!   \n
//!   code
//! ```
//!
//! The key is that of the cache: source, options and architecture. So a file of other sources is refused, whatever its name.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use crate::driver::DriverError;
use crate::nvrtc;
use crate::units::{UNITS, Unit};

/// The variable that names a file of kernels.
pub const VARIABLE: &str = "TILED_CUDA_KERNELS";

const HEAD: &str = "tiled kernels 1\n";

/// Machine code of kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    pieces: Vec<Piece>,
}

/// A file of kernels as machine code of one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    unit: String,
    architecture: String,
    key: u128,
    code: Vec<u8>,
}

impl Bundle {
    /// All kernels for some architectures, as `sm_90`.
    ///
    /// # Errors
    /// Where NVRTC is not found, or does not know an architecture.
    pub fn build(architectures: &[String]) -> Result<Self, DriverError> {
        let each =
            architectures.iter().flat_map(|architecture| UNITS.iter().map(move |unit| (unit, architecture)));
        let pieces = each.map(|(unit, architecture)| {
            Ok(Piece {
                unit: unit.name.to_owned(),
                architecture: architecture.clone(),
                key: nvrtc::key(unit, architecture),
                code: nvrtc::build(unit, architecture)?.code,
            })
        });
        Ok(Self { pieces: pieces.collect::<Result<_, DriverError>>()? })
    }

    /// The file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut head = HEAD.to_owned();
        for Piece { unit, architecture, key, code } in &self.pieces {
            let _ = writeln!(head, "{unit} {architecture} {key:032x} {}", code.len());
        }
        head.push('\n');
        self.pieces.iter().fold(head.into_bytes(), |mut bytes, piece| {
            bytes.extend(&piece.code);
            bytes
        })
    }

    /// What a file holds; `None` where it is no whole one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(HEAD.as_bytes())?;
        let mut pieces = Vec::new();
        loop {
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let line = std::str::from_utf8(&rest[..end]).ok()?;
            rest = &rest[end + 1..];
            if line.is_empty() {
                break;
            }
            let mut words = line.split(' ');
            let mut word = || words.next();
            let (unit, architecture) = (word()?.to_owned(), word()?.to_owned());
            let key = u128::from_str_radix(word()?, 16).ok()?;
            pieces
                .push((Piece { unit, architecture, key, code: Vec::new() }, word()?.parse::<usize>().ok()?));
        }
        let pieces = pieces.into_iter().map(|(piece, len)| {
            let (code, after) = rest.split_at_checked(len)?;
            rest = after;
            Some(Piece { code: code.to_vec(), ..piece })
        });
        let pieces = pieces.collect::<Option<_>>()?;
        rest.is_empty().then_some(Self { pieces })
    }

    /// The code of a file of kernels for an architecture, if it is that of this version's sources.
    #[must_use]
    pub fn code(&self, unit: &Unit, architecture: &str) -> Option<&[u8]> {
        let key = nvrtc::key(unit, architecture);
        let is_it = |piece: &&Piece| piece.key == key && piece.unit == unit.name;
        self.pieces.iter().find(is_it).map(|piece| piece.code.as_slice())
    }

    fn read(path: &Path) -> Result<Self, DriverError> {
        let failed = |message| DriverError::Failed { call: "read a file of kernels", message };
        let bytes = fs::read(path).map_err(|error| failed(format!("`{}`: {error}", path.display())))?;
        Self::from_bytes(&bytes)
            .ok_or_else(|| failed(format!("`{}`: not a whole file of kernels", path.display())))
    }
}

/// The code of a file of kernels: from the file that [`VARIABLE`] names, else by NVRTC.
///
/// # Errors
/// Where the file cannot be read or has other kernels, or NVRTC is wanted and not found.
pub(crate) fn code(unit: &Unit, architecture: &str) -> Result<Vec<u8>, DriverError> {
    let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) else {
        return nvrtc::cached(unit, architecture);
    };
    let path = Path::new(&path);
    let bundle = Bundle::read(path)?;
    bundle.code(unit, architecture).map(<[u8]>::to_vec).ok_or_else(|| DriverError::Failed {
        call: "read a file of kernels",
        message: format!("`{}`: no `{}` of this version for {architecture}", path.display(), unit.name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle() -> Bundle {
        let pieces = UNITS.iter().zip(0_u8..).flat_map(|(unit, number)| {
            ["sm_80", "sm_90"].map(|architecture| Piece {
                unit: unit.name.to_owned(),
                architecture: architecture.to_owned(),
                key: nvrtc::key(unit, architecture),
                code: vec![number; usize::from(number) * 7],
            })
        });
        Bundle { pieces: pieces.collect() }
    }

    #[test]
    fn what_is_written_is_read() {
        let bundle = bundle();
        assert_eq!(Bundle::from_bytes(&bundle.to_bytes()), Some(bundle.clone()));
        assert_eq!(bundle.code(&UNITS[3], "sm_90"), Some(&[3_u8; 21][..]));
        assert_eq!(bundle.code(&UNITS[3], "sm_120"), None);
    }

    #[test]
    fn a_file_that_is_cut_or_changed_is_refused() {
        let bytes = bundle().to_bytes();
        for len in (0..bytes.len()).step_by(5) {
            assert_eq!(Bundle::from_bytes(&bytes[..len]), None, "{len} of {} bytes", bytes.len());
        }
        assert_eq!(Bundle::from_bytes(&[&bytes[..], b"x"].concat()), None, "a byte more");
        assert_eq!(Bundle::from_bytes(b"another file\n\n"), None);
    }

    #[test]
    fn kernels_of_other_sources_are_not_taken() {
        let mut bundle = bundle();
        bundle.pieces.iter_mut().for_each(|piece| piece.key ^= 1);
        assert!(UNITS.iter().all(|unit| bundle.code(unit, "sm_90").is_none()));
    }
}
