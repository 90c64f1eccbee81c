//! Files of elements beside a model: within its folder, and read at positions.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::TensorProblem;

/// The folder of a model, and the files in it that hold elements.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    /// Without links, where the model was read from a file.
    path: Option<PathBuf>,
    files: Vec<ElementFile>,
    places: HashMap<String, usize>,
}

impl Folder {
    pub(crate) fn new(path: Option<&Path>) -> io::Result<Self> {
        let here = |path: &Path| if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.into() };
        let path = path.map(|path| fs::canonicalize(here(path))).transpose()?;
        Ok(Self { path, ..Self::default() })
    }

    /// The file of this location, opened once.
    pub(crate) fn open(&mut self, location: &str) -> Result<usize, TensorProblem> {
        if let Some(place) = self.places.get(location) {
            return Ok(*place);
        }
        let failed = |source| TensorProblem::File { location: location.to_owned(), source };
        let outside = || TensorProblem::Outside { location: location.to_owned() };
        let Some(folder) = &self.path else {
            return Err(TensorProblem::NoFolder { location: location.to_owned() });
        };
        let given = Path::new(location);
        let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        // a backslash separates folders for those who wrote the file elsewhere
        if location.is_empty() || location.contains(['\\', '\0']) || !given.components().all(is_inside) {
            return Err(outside());
        }
        // the path without links is the one that is opened, so that no link is followed after it was looked at
        let path = fs::canonicalize(folder.join(given)).map_err(failed)?;
        if !path.starts_with(folder) {
            return Err(outside());
        }
        if !fs::metadata(&path).map_err(failed)?.is_file() {
            return Err(failed(io::Error::from(io::ErrorKind::InvalidInput)));
        }
        let file = File::open(&path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let place = self.add(location, file, len);
        self.places.insert(location.to_owned(), place);
        Ok(place)
    }

    /// A file that is open already, of so many bytes; the name is for messages.
    pub(crate) fn add(&mut self, name: &str, file: File, len: u64) -> usize {
        self.files.push(ElementFile::new(name, file, len));
        self.files.len() - 1
    }

    /// The bytes of all files that were opened, each once.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.len))
    }

    pub(crate) fn file(&self, place: usize) -> &ElementFile {
        &self.files[place]
    }
}

/// An open file of elements.
#[derive(Debug)]
pub(crate) struct ElementFile {
    location: String,
    len: u64,
    #[cfg(unix)]
    file: File,
    // Elsewhere a position is a state of the file.
    #[cfg(not(unix))]
    file: std::sync::Mutex<File>,
}

impl ElementFile {
    fn new(location: &str, file: File, len: u64) -> Self {
        #[cfg(not(unix))]
        let file = std::sync::Mutex::new(file);
        Self { location: location.to_owned(), len, file }
    }

    /// Checks that so many bytes lie at this offset.
    pub(crate) fn check(&self, offset: u64, bytes: u64) -> Result<(), TensorProblem> {
        let end = offset.saturating_add(bytes);
        if end <= self.len {
            return Ok(());
        }
        Err(TensorProblem::Range { location: self.location.clone(), offset, end, len: self.len })
    }

    /// Fills `bytes` from `position` on.
    pub(crate) fn read_at(&self, bytes: &mut [u8], position: u64) -> Result<(), TensorProblem> {
        self.fill(bytes, position)
            .map_err(|source| TensorProblem::File { location: self.location.clone(), source })
    }

    #[cfg(unix)]
    fn fill(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, bytes, position)
    }

    #[cfg(not(unix))]
    fn fill(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        use std::io::{Read, Seek};
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(io::SeekFrom::Start(position))?;
        file.read_exact(bytes)
    }
}
