//! How a network is planned and run: `tiled._options.Options`.

use std::path::PathBuf;

use pyo3::prelude::*;
use tiled::exec::{Decision, ElementType, Normalization, Numbers, PICTURE_LIMIT_BYTES};
use tiled::tensor::DType;

use crate::error::Failure;
use crate::operand::{Reading, Writing};

/// What Python says of a plan and its runs.
#[derive(Clone, Debug, FromPyObject)]
pub(crate) struct Options {
    pub(crate) memory: Option<u64>,
    threads: Option<usize>,
    dtype: String,
    pub(crate) device: String,
    pub(crate) winograd: bool,
    pub(crate) folder: Option<PathBuf>,
    numbers: String,
    scale: f64,
    mean: Vec<f64>,
    std: Vec<f64>,
    output_element: Option<String>,
    output_numbers: String,
    argmax: bool,
    threshold: Option<f64>,
    /// Whether the plan is for one run with what is given to both.
    pub(crate) is_once: bool,
}

impl Options {
    /// The element type of the computation.
    pub(crate) fn dtype(&self) -> Result<DType, Failure> {
        dtype(&self.dtype)
    }

    /// The threads asked for, or all cores.
    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    pub(crate) fn reading(&self) -> Result<Reading, Failure> {
        let to = Normalization { scale: self.scale, mean: self.mean.clone(), std: self.std.clone() };
        let folder = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let (picture_bytes, limit_bytes) = (self.picture_bytes(), self.memory.unwrap_or(PICTURE_LIMIT_BYTES));
        let opening_bytes = limit_bytes;
        Ok(Reading {
            numbers: numbers(&self.numbers)?,
            to,
            picture_bytes,
            limit_bytes,
            opening_bytes,
            folder,
        })
    }

    pub(crate) fn writing(&self) -> Result<Writing, Failure> {
        let element = match &self.output_element {
            None => None,
            Some(name) => Some(element(name)?),
        };
        let decision = match (self.argmax, self.threshold) {
            (true, Some(_)) => {
                return Err(Failure::Argument("argmax and threshold exclude each other".to_owned()));
            }
            (true, None) => Some(Decision::ArgMax),
            (false, threshold) => threshold.map(Decision::Above),
        };
        let numbers = numbers(&self.output_numbers)?;
        Ok(Writing { element, numbers, decision, picture_bytes: self.picture_bytes() })
    }

    /// The memory that pictures may take, decoded: a quarter of the run's.
    fn picture_bytes(&self) -> u64 {
        self.memory.map_or(PICTURE_LIMIT_BYTES, |bytes| (bytes / 4).min(PICTURE_LIMIT_BYTES))
    }
}

/// The element type of computations of this name.
pub(crate) fn dtype(name: &str) -> Result<DType, Failure> {
    match name {
        "f32" => Ok(DType::F32),
        "f64" => Ok(DType::F64),
        got => Err(Failure::Argument(format!("dtype {got} is neither float32 nor float64"))),
    }
}

/// The element type of a name such as `u8` or `f32`.
pub(crate) fn element(name: &str) -> Result<ElementType, Failure> {
    let known = ElementType::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| Failure::Argument(format!("wants integers or floating-point numbers, not {name}")))
}

fn numbers(name: &str) -> Result<Numbers, Failure> {
    match name {
        "scaled" => Ok(Numbers::Scaled),
        "as-is" => Ok(Numbers::AsIs),
        got => Err(Failure::Argument(format!("numbers are \"scaled\" or \"as-is\", not \"{got}\""))),
    }
}
