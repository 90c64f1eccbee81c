//! The files of a command, checked before its work: that those to be written can be, and that no two are one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use tiled::exec::{IoError, Reservation};

use crate::error::CliError;

/// The files that a command reads and writes, by the options that name them.
#[derive(Debug, Default)]
pub(crate) struct Files<'a> {
    reads: Vec<(&'static str, &'a Path)>,
    writes: Vec<(&'static str, &'a Path)>,
    /// Pairs of options that may name one file: read first, replaced at the end.
    resumes: Vec<[&'static str; 2]>,
}

impl<'a> Files<'a> {
    /// Adds files that are read.
    pub(crate) fn reads(mut self, option: &'static str, paths: impl IntoIterator<Item = &'a Path>) -> Self {
        self.reads.extend(paths.into_iter().map(|path| (option, path)));
        self
    }

    /// Adds files that are written.
    pub(crate) fn writes<P: AsRef<Path> + ?Sized + 'a>(
        mut self,
        option: &'static str,
        paths: impl IntoIterator<Item = &'a P>,
    ) -> Self {
        self.writes.extend(paths.into_iter().map(|path| (option, path.as_ref())));
        self
    }

    /// Lets the file that the option `to` writes be the one that `from` read.
    pub(crate) fn resume(mut self, from: &'static str, to: &'static str) -> Self {
        self.resumes.push([from, to]);
        self
    }

    /// Checks that every file to be written could be created now, is of a kind that its option writes, and is neither
    /// read nor written by another option; by the files' identity, so through links and other spellings of a path.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        for (option, path) in &self.writes {
            check_extension(option, path)?;
            Reservation::new(path, 0)?;
        }
        let written = self.writes.iter().map(|(option, path)| Ok((*option, *path, Identity::of(path)?)));
        let written: Vec<_> = written.collect::<Result<_, IoError>>()?;
        // a file that cannot be looked at is told where it is read
        let read =
            self.reads.iter().filter_map(|(option, path)| Some((*option, *path, Identity::of(path).ok()?)));
        let read: Vec<_> = read.collect();
        for (place, (option, path, identity)) in written.iter().enumerate() {
            let others = written[..place].iter().chain(&read);
            let may = |other: &str| self.resumes.iter().any(|[from, to]| from == &other && to == option);
            if let Some((other, second, _)) =
                others.into_iter().find(|(other, _, of)| of == identity && !may(other))
            {
                return Err(CliError::SameFile {
                    option: other,
                    path: second.to_path_buf(),
                    second: option,
                    second_path: path.to_path_buf(),
                });
            }
        }
        Ok(())
    }
}

/// What a path means, however it is written.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// A file that there is: its device and number, the same for all its names.
    #[cfg(unix)]
    File(u64, u64),
    /// A file that is to come, or any where files have no numbers: its folder, and its name there.
    Name(PathBuf, OsString),
}

impl Identity {
    fn of(path: &Path) -> Result<Self, IoError> {
        #[cfg(unix)]
        if let Ok(metadata) = fs::metadata(path) {
            use std::os::unix::fs::MetadataExt;
            return Ok(Self::File(metadata.dev(), metadata.ino()));
        }
        let fail = |source| IoError::Open { path: path.to_path_buf(), source };
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().to_owned();
        Ok(Self::Name(fs::canonicalize(parent).map_err(fail)?, name))
    }
}

/// The formats that an extension names.
const FORMATS: [&[&str]; 8] = [
    &["onnx"],
    &["npy"],
    &["raw", "bin"],
    &["png"],
    &["jpg", "jpeg"],
    &["safetensors"],
    &["svg"],
    &["json", "jsonl"],
];

/// Refuses an extension that names another format than the option writes. Tensors are left to the library, which chooses
/// by it; elsewhere any name will do that names no format.
fn check_extension(option: &str, path: &Path) -> Result<(), IoError> {
    let expected = match option {
        "save" | "grad-weights" | "weights" => "safetensors",
        "net" => "json",
        "svg" | "loss-curve" => "svg",
        "log" => "jsonl",
        _ => return Ok(()),
    };
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let got = extension.unwrap_or_default();
    let format = FORMATS.iter().find(|names| names.contains(&got.as_str()));
    if format.is_none_or(|names| names.contains(&expected)) {
        return Ok(());
    }
    Err(IoError::Extension { path: path.to_path_buf(), expected, got })
}

/// About the bytes of a `.safetensors` file: the elements, and a line of header for each tensor.
pub(crate) fn weights_bytes<'a>(
    tensors: impl Iterator<Item = (&'a str, usize)>,
    element_bytes: usize,
) -> u64 {
    let header = |name: &str| name.len() as u64 + 96;
    tensors.map(|(name, elements)| header(name) + (elements * element_bytes) as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_an_extension_of_another_format_is_refused_and_none_will_do() {
        for (option, name) in
            [("save", "w"), ("save", "w.safetensors"), ("save", "w.best"), ("log", "l.txt"), ("svg", "p.SVG")]
        {
            check_extension(option, Path::new(name)).expect(name);
        }
        for (option, name, expected) in [
            ("save", "w.npy", "safetensors"),
            ("loss-curve", "l.png", "svg"),
            ("log", "l.safetensors", "jsonl"),
        ] {
            let error = check_extension(option, Path::new(name)).expect_err(name).to_string();
            assert!(error.ends_with(&format!("known are {expected}")), "{error}");
        }
    }
}
