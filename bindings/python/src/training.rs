//! Plans with gradients: a run in two halves, between which Python computes a loss.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use tiled::device::DeviceBackend;
use tiled::exec::{ExecError, Executor, Io, Pending, Sink, Source};
use tiled::explain::Explain;
use tiled::graph::{self, Id, ParamSpec, Parameters};
use tiled::tensor::{DType, Element};

use crate::array::Array;
use crate::error::Failure;
use crate::kept::{Kept, Ready};
use crate::network::Loaded;
use crate::operand::Operand;
use crate::options::Options;
use crate::plan::{check_outputs, named};
use crate::watch::{self, Watch};

/// A plan whose runs have a second half, with its memory and weights of its own.
#[pyclass(frozen, module = "tiled._tiled")]
pub(crate) struct Training {
    loaded: Arc<Loaded>,
    plan: Arc<graph::Plan>,
    device: &'static DeviceBackend,
    options: Options,
    specs: Vec<ParamSpec>,
    shapes: [Vec<[usize; 4]>; 2],
    kept: Kept,
}

/// A run whose outputs are written, with what its gradients need.
#[pyclass(frozen, weakref, module = "tiled._tiled")]
pub(crate) struct Half {
    held: Mutex<Option<Held>>,
}

enum Held {
    F32(Pending<'static, f32>),
    F64(Pending<'static, f64>),
}

/// An element of parameters or gradients: its position, and an array in one row.
type Entry<'py> = (usize, Bound<'py, PyAny>);

impl Training {
    pub(crate) fn new(
        loaded: Arc<Loaded>,
        plan: graph::Plan,
        device: &'static DeviceBackend,
        options: &Options,
        specs: Vec<ParamSpec>,
        shapes: [Vec<[usize; 4]>; 2],
    ) -> Self {
        let (plan, options, kept) = (Arc::new(plan), options.clone(), Kept::new());
        Self { loaded, plan, device, options, specs, shapes, kept }
    }

    /// What runs, made where there is none; parameters that Python does not give stay those of the network.
    fn ready<'r>(&self, kept: &'r mut Option<Ready>) -> Result<&'r mut Ready, Failure> {
        let ready = match kept.take() {
            Some(ready) => ready,
            None => {
                let folder = self.options.folder.clone().unwrap_or_else(std::env::temp_dir);
                Ready::new(&self.loaded, &self.plan, self.device, self.options.threads(), &folder)?
            }
        };
        Ok(kept.insert(ready))
    }
}

#[pymethods]
impl Training {
    fn peak_bytes(&self) -> u64 {
        self.plan.peak_bytes()
    }

    fn text(&self) -> String {
        self.plan.to_text()
    }

    fn output_shapes(&self) -> Vec<[usize; 4]> {
        self.shapes[1].clone()
    }

    /// The name and the position of each parameter.
    fn positions(&self) -> Vec<(String, usize)> {
        self.specs.iter().enumerate().map(|(position, spec)| (spec.name.clone(), position)).collect()
    }

    /// The name and the position of each parameter whose gradient a run gives.
    fn gradients(&self) -> Vec<(String, usize)> {
        let wanted = self.plan.program.param_grads.iter().map(|param| param.index());
        wanted.map(|position| (self.specs[position].name.clone(), position)).collect()
    }

    /// The positions of the inputs whose gradients a run gives.
    fn input_gradients(&self) -> Vec<usize> {
        self.plan.program.input_grads.clone()
    }

    /// The name and the position of what training moves beside parameters: running statistics.
    fn statistics(&self) -> Vec<(String, usize)> {
        let specs = self.specs.iter().enumerate().filter(|(_, spec)| !spec.kind.is_trained());
        specs.map(|(position, spec)| (spec.name.clone(), position)).collect()
    }

    /// Runs the first half with these parameters, or all of a plan without gradients.
    #[pyo3(signature = (parameters, inputs, outputs, progress=None))]
    fn forward(
        &self,
        py: Python<'_>,
        parameters: Vec<Entry<'_>>,
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Vec<Bound<'_, PyAny>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Option<Half>> {
        let changed = self.entries(&parameters)?;
        let network = &self.loaded.network;
        let read = named(&inputs, network.graph.inputs().iter().map(|input| input.name.as_str()), "inputs")?;
        let written = named(&outputs, network.outputs.iter().map(String::as_str), "outputs")?;
        check_outputs(&written, &read)?;
        let mut guard = self.kept.lock()?;
        let kept = &mut guard.ready;
        let held = watch::run(py, progress.as_ref(), |watch| match self.ready(kept)? {
            Ready::F32(executor, parameters) => {
                set(parameters, &changed)?;
                Ok(self.first(executor, parameters, &read, &written, watch)?.map(Held::F32))
            }
            Ready::F64(executor, parameters) => {
                set(parameters, &changed)?;
                Ok(self.first(executor, parameters, &read, &written, watch)?.map(Held::F64))
            }
        })?;
        Ok(held.map(|held| Half { held: Mutex::new(Some(held)) }))
    }

    /// Runs the second half: the gradients of the inputs that have one, and of these parameters.
    #[pyo3(signature = (half, inputs, grad_outputs, grad_inputs, grad_parameters, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "what a run reads and writes, called from one place")]
    fn backward(
        &self,
        py: Python<'_>,
        half: &Half,
        inputs: Vec<Bound<'_, PyAny>>,
        grad_outputs: Vec<Bound<'_, PyAny>>,
        grad_inputs: Vec<Bound<'_, PyAny>>,
        grad_parameters: Vec<Entry<'_>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let network = &self.loaded.network;
        let names: Vec<&str> = network.graph.inputs().iter().map(|input| input.name.as_str()).collect();
        let read = named(&inputs, names.iter().copied(), "inputs")?;
        let given = named(&grad_outputs, network.outputs.iter().map(String::as_str), "gradients of outputs")?;
        let of_inputs: Vec<&str> = self.plan.program.input_grads.iter().map(|input| names[*input]).collect();
        let written = named(&grad_inputs, of_inputs.into_iter(), "gradients of inputs")?;
        check_outputs(&written, &read)?;
        check_outputs(&written, &given)?;
        let results = self.entries(&grad_parameters)?;
        results.iter().try_for_each(|(_, array)| array.check_output([]))?;
        let lost = || Failure::Argument("the gradients of this run were computed already".to_owned());
        let held = half.held.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(lost)?;
        let mut guard = self.kept.lock()?;
        let kept = &mut guard.ready;
        watch::run(py, progress.as_ref(), |watch| match (self.ready(kept)?, held) {
            (Ready::F32(executor, parameters), Held::F32(pending)) => {
                self.second((executor, parameters), pending, [&read, &given, &written], watch)?;
                copy(executor, &results)
            }
            (Ready::F64(executor, parameters), Held::F64(pending)) => {
                self.second((executor, parameters), pending, [&read, &given, &written], watch)?;
                copy(executor, &results)
            }
            _ => Err(ExecError::OtherPlan.into()),
        })
    }

    /// Gives the memory of runs back; the next takes it anew, and wants all parameters.
    fn release(&self) {
        // a run of another thread keeps it
        if let Ok(mut guard) = self.kept.lock() {
            guard.ready = None;
        }
    }

    /// Copies parameters as a run has left them: statistics.
    fn parameters(&self, entries: Vec<Entry<'_>>) -> PyResult<()> {
        let entries = self.entries(&entries)?;
        entries.iter().try_for_each(|(_, array)| array.check_output([]))?;
        match &self.kept.lock()?.ready {
            Some(Ready::F32(_, parameters)) => read_out(parameters, &entries)?,
            Some(Ready::F64(_, parameters)) => read_out(parameters, &entries)?,
            None => {}
        }
        Ok(())
    }
}

impl Training {
    /// Arrays of as many elements as the parameters at these positions, of the type of the computation.
    fn entries(&self, given: &[Entry<'_>]) -> Result<Vec<(usize, Array)>, Failure> {
        let entry = |(position, array): &Entry<'_>| {
            let Some(spec) = self.specs.get(*position) else {
                return Err(Failure::Argument(format!("there is no parameter {position}")));
            };
            let array = Array::new(&spec.name, array)?;
            match self.plan.dtype {
                DType::F32 => array.check_row::<f32>(spec.elements())?,
                DType::F64 => array.check_row::<f64>(spec.elements())?,
            }
            Ok((*position, array))
        };
        given.iter().map(entry).collect()
    }

    fn first<T: Element>(
        &self,
        executor: &mut Executor<'static, T>,
        parameters: &mut Parameters<T>,
        read: &[(String, Operand)],
        written: &[(String, Operand)],
        watch: &Watch,
    ) -> Result<Option<Pending<'static, T>>, Failure> {
        let inputs = self.sources::<T>(read, watch)?;
        let writing = self.options.writing()?;
        let outputs = written.iter().zip(&self.shapes[1]);
        let outputs: Vec<Box<dyn Sink<T> + '_>> = outputs
            .map(|((name, output), shape)| output.sink::<T>(name, *shape, writing, watch))
            .collect::<Result<_, _>>()?;
        let io = Io {
            inputs: inputs.iter().map(AsRef::as_ref).collect(),
            outputs: outputs.iter().map(AsRef::as_ref).collect(),
            ..Io::default()
        };
        if self.plan.second_half().is_none() {
            executor.run(parameters, &io, watch)?;
            return Ok(None);
        }
        Ok(Some(executor.forward(parameters, &io, watch)?.0))
    }

    fn second<T: Element>(
        &self,
        (executor, parameters): (&mut Executor<'static, T>, &Parameters<T>),
        pending: Pending<'static, T>,
        [read, given, written]: [&[(String, Operand)]; 3],
        watch: &Watch,
    ) -> Result<(), Failure> {
        let (inputs, grad_outputs) = (self.sources::<T>(read, watch)?, self.sources::<T>(given, watch)?);
        let writing = self.options.writing()?;
        let shapes = self.plan.program.input_grads.iter().map(|input| self.shapes[0][*input]);
        let grad_inputs: Vec<Box<dyn Sink<T> + '_>> = written
            .iter()
            .zip(shapes)
            .map(|((name, gradient), shape)| gradient.sink::<T>(name, shape, writing, watch))
            .collect::<Result<_, _>>()?;
        let io = Io {
            inputs: inputs.iter().map(AsRef::as_ref).collect(),
            grad_outputs: grad_outputs.iter().map(AsRef::as_ref).collect(),
            grad_inputs: grad_inputs.iter().map(AsRef::as_ref).collect(),
            ..Io::default()
        };
        executor.backward(pending, parameters, &io, watch)?;
        Ok(())
    }

    fn sources<'a, T: Element>(
        &self,
        read: &'a [(String, Operand)],
        watch: &'a Watch,
    ) -> Result<Vec<Box<dyn Source<T> + 'a>>, Failure> {
        let reading = self.options.reading()?;
        read.iter().map(|(name, input)| input.source::<T>(name, &reading, watch)).collect()
    }
}

/// Gives parameters new values where they are not those that they have: what is packed of them holds, and a half that waits.
fn set<T: Element>(parameters: &mut Parameters<T>, given: &[(usize, Array)]) -> Result<(), Failure> {
    for (position, array) in given {
        let values = array.values()?;
        let held = &parameters.tensors()[*position].data;
        let bits = |value: &T| value.to_f64().to_bits();
        if held.len() != values.len() || held.iter().map(bits).ne(values.iter().map(bits)) {
            parameters.set(*position, &values)?;
        }
    }
    Ok(())
}

fn copy<T: Element>(executor: &Executor<'static, T>, results: &[(usize, Array)]) -> Result<(), Failure> {
    for (position, array) in results {
        let gradient = executor.gradient(*position);
        array.fill(
            gradient.ok_or_else(|| Failure::Argument(format!("parameter {position} has no gradient")))?,
        );
    }
    Ok(())
}

fn read_out<T: Element>(parameters: &Parameters<T>, entries: &[(usize, Array)]) -> Result<(), Failure> {
    entries.iter().for_each(|(position, array)| array.fill(&parameters.tensors()[*position].data));
    Ok(())
}
