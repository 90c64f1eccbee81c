//! The log of a training run: a JSON object a line, there to be read while the run goes on.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use tiled::exec::IoError;

/// A file that grows by a line with every step.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// There from the first line on.
    file: Option<File>,
}

impl Log {
    /// A log that begins the file anew with its first line: a run without a step leaves what there is.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), file: None }
    }

    /// Writes the line of a step, in one call: a reader sees it whole or not at all.
    pub(super) fn write(&mut self, step: u64, loss: f64, seconds: f64, lr: f64) -> Result<(), IoError> {
        let line = json!({"step": step, "loss": loss, "seconds": seconds, "learning_rate": lr});
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = File::create(&self.path);
                let file = file.map_err(|source| IoError::Create { path: self.path.clone(), source })?;
                self.file.insert(file)
            }
        };
        let written = file.write_all(format!("{line}\n").as_bytes());
        written.map_err(|source| IoError::Write { path: self.path.clone(), source })
    }
}
