//! Plans and their runs.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use tiled::device::DeviceBackend;
use tiled::exec::{Changes, Executor, Io, Sink, Source};
use tiled::explain::Explain;
use tiled::graph::{self, Parameters};
use tiled::tensor::{DType, Element};

use crate::error::Failure;
use crate::kept::Kept;
use crate::network::Loaded;
use crate::operand::Operand;
use crate::options::Options;
use crate::watch::{self, Watch};

/// A plan, with the memory of its runs from the first one on, where it is not for one alone.
#[pyclass(frozen, module = "tiled._tiled")]
pub(crate) struct Plan {
    loaded: Arc<Loaded>,
    plan: Arc<graph::Plan>,
    device: &'static DeviceBackend,
    threads: usize,
    folder: PathBuf,
    is_once: bool,
    shapes: [Vec<[usize; 4]>; 2],
    remarks: Vec<String>,
    ready: Kept<Ready>,
}

/// What runs.
enum Ready {
    F32(Executor<'static, f32>, Parameters<f32>),
    F64(Executor<'static, f64>, Parameters<f64>),
}

/// What an output did not store as it is: how many values, those out of range, those that are no number, those rounded, the least
/// and the largest of all.
type Told = Option<(u64, u64, u64, u64, f64, f64)>;

impl Plan {
    pub(crate) fn new(
        loaded: Arc<Loaded>,
        plan: graph::Plan,
        device: &'static DeviceBackend,
        options: &Options,
        shapes: [Vec<[usize; 4]>; 2],
        remarks: Vec<String>,
    ) -> Self {
        let folder = options.folder.clone().unwrap_or_else(std::env::temp_dir);
        let (threads, is_once, ready) = (options.threads(), options.is_once, Kept::new());
        Self { loaded, plan: Arc::new(plan), device, threads, folder, is_once, shapes, remarks, ready }
    }

    /// An executor with the weights.
    fn made<T: Element>(&self) -> Result<(Executor<'static, T>, Parameters<T>), Failure> {
        let parameters = self.loaded.parameters::<T>()?;
        Ok((
            Executor::with_folder(Arc::clone(&self.plan), self.device, self.threads, &self.folder)?,
            parameters,
        ))
    }
}

#[pymethods]
impl Plan {
    /// The most bytes that a run holds.
    fn peak_bytes(&self) -> u64 {
        self.plan.peak_bytes()
    }

    /// What holds them, part by part.
    fn memory(&self) -> Vec<(&'static str, u64)> {
        self.plan.memory.parts()
    }

    fn input_shapes(&self) -> Vec<[usize; 4]> {
        self.shapes[0].clone()
    }

    fn output_shapes(&self) -> Vec<[usize; 4]> {
        self.shapes[1].clone()
    }

    /// What a user should know of the network for these inputs.
    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }

    /// The plan as text.
    fn text(&self) -> String {
        self.plan.to_text()
    }

    /// Runs it: the seconds that it took, and for each output what is not stored as it is.
    #[pyo3(signature = (inputs, outputs, options, progress=None))]
    fn run(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Vec<Bound<'_, PyAny>>,
        options: Options,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(f64, Vec<Told>)> {
        let graph = &self.loaded.network.graph;
        let read = named(&inputs, graph.inputs().iter().map(|input| input.name.as_str()), "inputs")?;
        let written = named(&outputs, self.loaded.network.outputs.iter().map(String::as_str), "outputs")?;
        check_outputs(&written, &read)?;
        let mut ready = self.ready.lock()?;
        // the guard stays on this thread, what it guards does not
        let ready = &mut ready.value;
        let operands = Operands { read: &read, written: &written, options: &options };
        watch::run(py, progress.as_ref(), |watch| {
            let mut held = match (ready.take(), self.plan.dtype) {
                (Some(held), _) => held,
                (None, DType::F32) => self.made().map(|(executor, weights)| Ready::F32(executor, weights))?,
                (None, DType::F64) => self.made().map(|(executor, weights)| Ready::F64(executor, weights))?,
            };
            let done = match &mut held {
                Ready::F32(executor, parameters) => operands.run(executor, parameters, &self.shapes, watch),
                Ready::F64(executor, parameters) => operands.run(executor, parameters, &self.shapes, watch),
            };
            if !self.is_once {
                *ready = Some(held);
            }
            done
        })
    }
}

/// What a run reads and writes, by name.
struct Operands<'a> {
    read: &'a [(String, Operand)],
    written: &'a [(String, Operand)],
    options: &'a Options,
}

impl Operands<'_> {
    fn run<T: Element>(
        &self,
        executor: &mut Executor<'static, T>,
        parameters: &mut Parameters<T>,
        [_, shapes]: &[Vec<[usize; 4]>; 2],
        watch: &Watch,
    ) -> Result<(f64, Vec<Told>), Failure> {
        let (reading, writing) = (self.options.reading()?, self.options.writing()?);
        let sources = self.read.iter().map(|(name, input)| input.source::<T>(name, &reading, watch));
        let sources: Vec<Box<dyn Source<T> + '_>> = sources.collect::<Result<_, _>>()?;
        let sinks = self.written.iter().zip(shapes);
        let sinks = sinks.map(|((name, output), shape)| output.sink::<T>(name, *shape, writing, watch));
        let sinks: Vec<Box<dyn Sink<T> + '_>> = sinks.collect::<Result<_, _>>()?;
        let io = Io {
            inputs: sources.iter().map(AsRef::as_ref).collect(),
            outputs: sinks.iter().map(AsRef::as_ref).collect(),
            ..Io::default()
        };
        let report = executor.run(parameters, &io, watch)?;
        let told = self.written.iter().zip(&sinks).map(|((_, output), sink)| {
            let changes: Option<Changes> = output.changes().or_else(|| sink.changes());
            changes.map(|Changes { values, cut, nan, rounded, least, largest, .. }| {
                (values, cut, nan, rounded, least, largest)
            })
        });
        Ok((report.seconds, told.collect()))
    }
}

/// Operands with their names, as many as there are.
pub(crate) fn named<'n>(
    given: &[Bound<'_, PyAny>],
    names: impl ExactSizeIterator<Item = &'n str>,
    what: &str,
) -> Result<Vec<(String, Operand)>, Failure> {
    let (got, wanted) = (given.len(), names.len());
    if got != wanted {
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        return Err(Failure::Argument(format!(
            "{got} {what} are given, the network has {wanted}: {}",
            names.join(", ")
        )));
    }
    given.iter().zip(names).map(|(given, name)| Ok((name.to_owned(), Operand::new(name, given)?))).collect()
}

/// Checks that arrays can be written and share nothing with those that are read.
pub(crate) fn check_outputs(
    written: &[(String, Operand)],
    read: &[(String, Operand)],
) -> Result<(), Failure> {
    for (place, (_, output)) in written.iter().enumerate() {
        if let Some(array) = output.array() {
            let others = read.iter().chain(&written[..place]).filter_map(|(_, operand)| operand.array());
            array.check_output(others)?;
        }
    }
    Ok(())
}
