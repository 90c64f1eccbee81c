//! What a run of Python reads and writes: files, arrays, and objects that are read or written in parts.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use tiled::exec::{
    Changes, DecidedSink, Decision, ElementType, IoError, Normalization, NormalizedSource, Numbers, Sink,
    SinkOptions, Source, SourceOptions, create_sink_with, inspect_source, open_source_with,
    sink_resident_bytes,
};
use tiled::tensor::Element;

use crate::array::Array;
use crate::error::Failure;
use crate::parts::{Given, Parts};
use crate::watch::Watch;

/// Where a tensor comes from or goes to; a run may use it on any thread.
pub(crate) enum Operand {
    Path(PathBuf),
    Parts(Parts),
    Array(Array),
}

/// An operand as Python gives it, the first of these that it is.
#[derive(FromPyObject)]
enum Any<'py> {
    Path(PathBuf),
    Parts(Given),
    Array(Bound<'py, PyAny>),
}

/// How operands are read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) numbers: Numbers,
    pub(crate) to: Normalization,
    /// What a picture may take, decoded; a larger one lies in a temporary file.
    pub(crate) picture_bytes: u64,
    /// What one may take that can only be decoded in memory.
    pub(crate) limit_bytes: u64,
    /// What decoding into a file may take.
    pub(crate) opening_bytes: u64,
    /// Where temporary files lie.
    pub(crate) folder: PathBuf,
}

/// How operands are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    /// The type of the elements of a file.
    pub(crate) element: Option<ElementType>,
    pub(crate) numbers: Numbers,
    pub(crate) decision: Option<Decision>,
    pub(crate) picture_bytes: u64,
}

impl Operand {
    /// The operand; `name` stands in errors.
    pub(crate) fn new(name: &str, given: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        Ok(match given.extract::<Any<'_>>()? {
            Any::Path(path) => Self::Path(path),
            Any::Parts(given) => Self::Parts(Parts::new(name, given)?),
            Any::Array(array) => Self::Array(Array::new(name, &array)?),
        })
    }

    /// The array, where it is one.
    pub(crate) const fn array(&self) -> Option<&Array> {
        match self {
            Self::Array(array) => Some(array),
            Self::Path(_) | Self::Parts(_) => None,
        }
    }

    /// The bytes that are held beside a plan while values of this shape are written to it: a picture, or an array of a part at a time.
    pub(crate) fn written_bytes(&self, shape: [usize; 4], writing: Writing) -> Result<u64, Failure> {
        Ok(match self {
            Self::Path(path) => sink_resident_bytes(path, writing.shape(shape), &writing.options(shape[1]))?,
            Self::Parts(parts) => parts.part_bytes(),
            Self::Array(_) => 0,
        })
    }

    /// The tensor, to be read.
    pub(crate) fn source<'a, T: Element>(
        &'a self,
        name: &str,
        reading: &Reading,
        watch: &'a Watch,
    ) -> Result<Box<dyn Source<T> + 'a>, Failure> {
        let source = match self {
            Self::Path(path) => open_source_with(path, &reading.options(path))?,
            Self::Parts(parts) => parts.source(reading.numbers, reading.picture_bytes, watch)?,
            Self::Array(array) => array.source(reading.numbers)?,
        };
        if reading.to.is_none() {
            return Ok(source);
        }
        Ok(Box::new(NormalizedSource::new(name, source, &reading.to)?))
    }

    /// The tensor, to be written with what becomes of values of this shape.
    pub(crate) fn sink<'a, T: Element>(
        &'a self,
        name: &str,
        shape: [usize; 4],
        writing: Writing,
        watch: &'a Watch,
    ) -> Result<Box<dyn Sink<T> + 'a>, Failure> {
        if let Some(decision) = writing.decision {
            decision.check(name, shape)?;
        }
        let (written, options) = (writing.shape(shape), writing.options(shape[1]));
        let sink = match self {
            Self::Path(path) => create_sink_with(path, written, &options)?,
            Self::Parts(parts) => parts.sink(options.numbers, writing.picture_bytes, watch)?,
            Self::Array(array) => array.sink(options.numbers)?,
        };
        let got = sink.shape();
        if got != written {
            let text = format!("{name}: has the shape {got:?}, the run writes {written:?}");
            return Err(Failure::Argument(text));
        }
        match writing.decision {
            Some(decision) => Ok(Box::new(DecidedSink::new::<T>(sink, shape, decision)?)),
            None => Ok(sink),
        }
    }

    /// The bytes of a part, of which there is one at a time.
    pub(crate) fn part_bytes(&self) -> u64 {
        match self {
            Self::Parts(parts) => parts.part_bytes(),
            Self::Path(_) | Self::Array(_) => 0,
        }
    }

    /// What parts did not store as it is; of others their sinks tell.
    pub(crate) fn changes(&self) -> Option<Changes> {
        match self {
            Self::Parts(parts) => parts.changes(),
            Self::Path(_) | Self::Array(_) => None,
        }
    }

    /// What a plan is made for: the shape, and the bytes that are held as long as a file is open.
    pub(crate) fn facts(&self, reading: &Reading) -> Result<([usize; 4], u64), Failure> {
        Ok(match self {
            Self::Path(path) => {
                let facts = inspect_source(path, &reading.options(path))?;
                (facts.shape, facts.resident_bytes)
            }
            Self::Parts(parts) => (parts.shape, parts.part_bytes()),
            Self::Array(array) => (array.shape(), 0),
        })
    }
}

impl Reading {
    /// The same beside so many bytes that others hold.
    pub(crate) fn beside(mut self, held_bytes: u64) -> Self {
        for bytes in [&mut self.picture_bytes, &mut self.limit_bytes] {
            *bytes = bytes.saturating_sub(held_bytes);
        }
        self
    }

    /// The same where no more than these bytes are left.
    pub(crate) fn within(mut self, left_bytes: u64) -> Self {
        for bytes in [&mut self.picture_bytes, &mut self.limit_bytes] {
            *bytes = left_bytes.min(*bytes);
        }
        self
    }

    fn options(&self, path: &Path) -> SourceOptions {
        let options =
            |limit_bytes, folder| SourceOptions { numbers: self.numbers, limit_bytes, folder, raw: None };
        let filed = options(self.picture_bytes, Some(self.folder.clone()));
        let Err(IoError::PictureSize { got, .. }) = inspect_source(path, &filed) else { return filed };
        // a few rows on the way to the file
        let by_rows = options(got.min(self.opening_bytes), Some(self.folder.clone()));
        match inspect_source(path, &by_rows) {
            Ok(facts) if facts.resident_bytes == 0 => by_rows,
            // what can only be decoded in memory may take more of it
            _ => options(self.limit_bytes, None),
        }
    }
}

impl Writing {
    /// The shape of what is written of values of this shape.
    pub(crate) fn shape(self, shape: [usize; 4]) -> [usize; 4] {
        self.decision.map_or(shape, |decision| decision.shape(shape))
    }

    /// How a file of so many channels of scores is written.
    pub(crate) fn options(self, channels: usize) -> SinkOptions {
        let Self { element, numbers, decision, picture_bytes: limit_bytes } = self;
        SinkOptions { element, numbers, limit_bytes }.of_decision(decision, channels)
    }
}
