//! Plans and their runs.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use tiled::device::DeviceBackend;
use tiled::exec::{Changes, Io, Sink, Source};
use tiled::explain::Explain;
use tiled::graph;
use tiled::tensor::{DType, Element};

use crate::error::Failure;
use crate::kept::{Kept, OfReady, Ready};
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
    kept: Kept,
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
        let (threads, is_once, kept) = (options.threads(), options.is_once, Kept::new());
        Self { loaded, plan: Arc::new(plan), device, threads, folder, is_once, shapes, remarks, kept }
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
        let mut guard = self.kept.lock()?;
        // the guard stays on this thread, what it guards does not
        let kept = &mut guard.ready;
        let operands = Operands { read: &read, written: &written, options: &options };
        watch::run(py, progress.as_ref(), |watch| match self.plan.dtype {
            DType::F32 => self.run_as::<f32>(&operands, kept, watch),
            DType::F64 => self.run_as::<f64>(&operands, kept, watch),
        })
    }
}

impl Plan {
    fn run_as<T: OfReady>(
        &self,
        operands: &Operands<'_>,
        kept: &mut Option<Ready>,
        watch: &Watch,
    ) -> Result<(f64, Vec<Told>), Failure> {
        // what decoding takes is over before the memory of the plan is
        let resident = self.plan.memory.resident_bytes;
        let left = operands
            .options
            .memory
            .map_or(u64::MAX, |bytes| bytes.saturating_sub(self.plan.peak_bytes().saturating_sub(resident)));
        let [_, shapes] = &self.shapes;
        let (sources, sinks) = operands.opened::<T>(shapes, left, watch)?;
        let mut ready = match kept.take() {
            Some(ready) => ready,
            None => Ready::new(&self.loaded, &self.plan, self.device, self.threads, &self.folder)?,
        };
        let (executor, parameters) = T::of(&mut ready);
        let io = Io {
            inputs: sources.iter().map(AsRef::as_ref).collect(),
            outputs: sinks.iter().map(AsRef::as_ref).collect(),
            ..Io::default()
        };
        let done = executor.run(parameters, &io, watch);
        if !self.is_once {
            *kept = Some(ready);
        }
        Ok((done?.seconds, operands.told(&sinks)))
    }
}

/// What a run reads and writes, by name.
struct Operands<'a> {
    read: &'a [(String, Operand)],
    written: &'a [(String, Operand)],
    options: &'a Options,
}

/// The sources and sinks of a run.
type Ends<'a, T> = (Vec<Box<dyn Source<T> + 'a>>, Vec<Box<dyn Sink<T> + 'a>>);

impl<'a> Operands<'a> {
    /// Opens all of them; pictures, and objects in parts as far as they can, hold no more than the bytes that are left.
    fn opened<T: Element>(
        &self,
        shapes: &[[usize; 4]],
        left_bytes: u64,
        watch: &'a Watch,
    ) -> Result<Ends<'a, T>, Failure> {
        let (reading, mut writing) = (self.options.reading()?, self.options.writing()?);
        let mut held = 0;
        let (mut sources, mut sinks) =
            (Vec::with_capacity(self.read.len()), Vec::with_capacity(self.written.len()));
        for (name, input) in self.read {
            // as a plan sees them: one beside the other
            let reading = reading.clone().beside(held).within(left_bytes.saturating_sub(held));
            let source = input.source::<T>(name, &reading, watch)?;
            held = held.saturating_add(source.resident_bytes()).saturating_add(input.part_bytes());
            sources.push(source);
        }
        for ((name, output), shape) in self.written.iter().zip(shapes) {
            writing.picture_bytes = writing.picture_bytes.min(left_bytes.saturating_sub(held));
            let sink = output.sink::<T>(name, *shape, writing, watch)?;
            held = held.saturating_add(sink.resident_bytes()).saturating_add(output.part_bytes());
            sinks.push(sink);
        }
        Ok((sources, sinks))
    }

    /// What outputs did not store as it is.
    fn told<T: Element>(&self, sinks: &[Box<dyn Sink<T> + '_>]) -> Vec<Told> {
        let told = self.written.iter().zip(sinks).map(|((_, output), sink)| {
            let changes: Option<Changes> = output.changes().or_else(|| sink.changes());
            changes.map(|Changes { values, cut, nan, rounded, least, largest, .. }| {
                (values, cut, nan, rounded, least, largest)
            })
        });
        told.collect()
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
