//! The files that tensors are read from: opened within the memory of the run, and told.

use std::path::PathBuf;

use serde_json::{Value, json};
use tiled::exec::{
    ElementType, IoError, Numbers, PICTURE_LIMIT_BYTES, RawFormat, Source, SourceFacts, SourceOptions,
    inspect_source, open_source_with,
};
use tiled::tensor::{DType, Element};

use crate::args::{DTypeArg, FileArg, PlanArgs};
use crate::error::CliError;
use crate::text::escape;

/// Files that were opened, in order.
#[derive(Debug)]
pub(crate) struct OpenedFiles {
    dtype: DTypeArg,
    /// The memory of the run.
    limit_bytes: u64,
    /// What pictures may take of it where they can lie in files.
    picture_bytes: u64,
    folder: PathBuf,
    resident_bytes: u64,
    opening_bytes: u64,
    opened: Vec<Opened>,
    /// What else is said of what they hold.
    remarks: Vec<String>,
}

#[derive(Debug)]
struct Opened {
    /// What it is for: `input x`, `target`.
    name: String,
    path: PathBuf,
    facts: SourceFacts,
    is_classes: bool,
}

impl OpenedFiles {
    /// No files yet, which may take as much memory as the run.
    pub(crate) fn new(plan: &PlanArgs) -> Self {
        Self {
            dtype: plan.dtype,
            limit_bytes: plan.memory.unwrap_or(PICTURE_LIMIT_BYTES),
            picture_bytes: plan.picture_bytes(),
            folder: plan.scratch.clone().unwrap_or_else(std::env::temp_dir),
            resident_bytes: 0,
            opening_bytes: 0,
            opened: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// What is said after the files.
    pub(crate) fn remark(&mut self, remarks: Vec<String>) {
        self.remarks.extend(remarks.iter().map(|remark| escape(remark).into_owned()));
    }

    /// What a file holds, from its header alone.
    pub(crate) fn inspect(&self, file: &FileArg, numbers: Numbers) -> Result<SourceFacts, CliError> {
        Ok(inspect_source(&file.path, &self.options(file, numbers)?)?)
    }

    /// Opens a file for `name`.
    pub(crate) fn open<T: Element>(
        &mut self,
        name: &str,
        file: &FileArg,
        numbers: Numbers,
    ) -> Result<Box<dyn Source<T>>, CliError> {
        let options = self.options(file, numbers)?;
        self.count(name, file, numbers)?;
        Ok(open_source_with(&file.path, &options)?)
    }

    /// Counts a file as if it were opened for `name`: a picture is not decoded.
    pub(crate) fn count(
        &mut self,
        name: &str,
        file: &FileArg,
        numbers: Numbers,
    ) -> Result<SourceFacts, CliError> {
        let facts = self.inspect(file, numbers)?;
        self.opening_bytes = self.opening_bytes.max(self.resident_bytes.saturating_add(facts.opening_bytes));
        self.resident_bytes = self.resident_bytes.saturating_add(facts.resident_bytes);
        let (name, path) = (name.to_owned(), file.path.clone());
        self.opened.push(Opened { name, path, facts, is_classes: numbers == Numbers::Classes });
        Ok(facts)
    }

    /// The bytes that the files keep as long as they are open: decoded pictures.
    pub(crate) const fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// The most bytes that were held while files were opened, decoded pictures and what decoding took.
    pub(crate) const fn opening_bytes(&self) -> u64 {
        self.opening_bytes
    }

    /// What is said beside the files.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// A line of text for each, `input x: photo.jpg, 3×2700×5400, u8 scaled to 0…1`, and for what else is said.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |file: &Opened| {
            let classes = if file.is_classes { " as class numbers" } else { "" };
            format!("{}: {}, {}{classes}", file.name, file.path.display(), file.facts)
        };
        self.opened.iter().map(line).chain(self.remarks.iter().cloned()).collect()
    }

    /// The same for JSON.
    pub(crate) fn json(&self) -> Value {
        let object = |file: &Opened| {
            json!({
                "name": file.name,
                "path": file.path.to_string_lossy(),
                "shape": file.facts.shape,
                "element": file.facts.element.name(),
                "scaled": file.facts.is_scaled,
                "temporary_bytes": file.facts.temporary_bytes,
            })
        };
        self.opened.iter().map(object).collect()
    }

    fn options(&self, file: &FileArg, numbers: Numbers) -> Result<SourceOptions, CliError> {
        let dtype = match self.dtype {
            DTypeArg::F32 => DType::F32,
            DTypeArg::F64 => DType::F64,
        };
        let is_raw = file
            .path
            .extension()
            .is_some_and(|kind| kind.eq_ignore_ascii_case("raw") || kind.eq_ignore_ascii_case("bin"));
        if is_raw && file.raw.is_none() {
            let dtype = ElementType::from(dtype).name();
            return Err(CliError::RawShape { path: file.path.clone(), dtype });
        }
        let raw =
            file.raw.map(|(shape, element)| RawFormat { shape, element: element.unwrap_or(dtype.into()) });
        let left = |bytes: u64| bytes.saturating_sub(self.resident_bytes);
        let options = |limit_bytes, folder| SourceOptions { numbers, limit_bytes, folder, raw };
        let filed = options(left(self.picture_bytes), Some(self.folder.clone()));
        // what can only be decoded in memory may take more of it
        Ok(match inspect_source(&file.path, &filed) {
            Err(IoError::PictureSize { .. }) => options(left(self.limit_bytes), None),
            _ => filed,
        })
    }
}
