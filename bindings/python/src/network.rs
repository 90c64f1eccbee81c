//! Networks with their weights.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tiled::bytes;
use tiled::device::{Device, DeviceBackend};
use tiled::exec::{ElementType, Progress};
use tiled::graph::program::SourceRole;
use tiled::graph::{
    self, Chunks, GraphError, InMemory, Loss, Mode, Objective, ParamSpec, ParamTensor, Parameters,
    PlanOptions, Planner, infer_nchw, match_params, try_params, wants_tensor,
};
use tiled::kernel::Backend;
use tiled::network::{self, NetworkError, WeightsFrom};
use tiled::tensor::{DType, Element, collected};

use crate::array::Array;
use crate::error::Failure;
use crate::operand::Operand;
use crate::options::{self, Options};
use crate::plan::Plan;
use crate::training::Training;
use crate::watch::{self, Watch};

/// A network with its weights.
#[pyclass(frozen, module = "tiled._tiled")]
pub(crate) struct Network {
    loaded: Arc<Loaded>,
}

/// What plans share of a network.
pub(crate) struct Loaded {
    /// Its name or its file.
    name: String,
    pub(crate) network: network::Network,
    weights: Weights,
}

/// Where weights come from whenever an executor is made.
enum Weights {
    /// The network's file, or nowhere.
    Own,
    From(WeightsFrom),
    /// Held as long as the network.
    F32(Parameters<f32>),
    F64(Parameters<f64>),
}

/// Weights as Python gives them: a name or a file, or entries with their shapes, each an array in one row.
#[derive(FromPyObject)]
enum Given<'py> {
    Name(PathBuf),
    Entries(Vec<(String, Vec<usize>, Bound<'py, PyAny>)>),
}

#[pymethods]
impl Network {
    #[new]
    #[pyo3(signature = (name, weights=None))]
    fn new(name: PathBuf, weights: Option<Given<'_>>) -> PyResult<Self> {
        let name = name.to_string_lossy().into_owned();
        let network = network::Network::load(&name).map_err(Failure::from)?;
        let weights = match weights {
            None => Weights::Own,
            Some(Given::Name(from)) => {
                let from = from.to_string_lossy().parse().map_err(Failure::Argument)?;
                Weights::From(from)
            }
            Some(Given::Entries(entries)) => {
                let entries = entries.iter().map(|(name, shape, array)| {
                    Ok(Entry { name, shape, array: Array::new(&format!("weight {name}"), array)? })
                });
                let entries: Vec<Entry<'_>> = entries.collect::<Result<_, Failure>>()?;
                let specs = try_params(&network.graph).map_err(Failure::from)?;
                if entries.iter().any(|entry| entry.array.element() == ElementType::F64) {
                    Weights::F64(parameters(&specs, &entries)?)
                } else {
                    Weights::F32(parameters(&specs, &entries)?)
                }
            }
        };
        Ok(Self { loaded: Arc::new(Loaded { name, network, weights }) })
    }

    /// The name and the channels of each input.
    fn inputs(&self) -> Vec<(String, usize)> {
        let inputs = self.loaded.network.graph.inputs().iter();
        inputs.map(|input| (input.name.clone(), input.channels)).collect()
    }

    fn outputs(&self) -> Vec<String> {
        self.loaded.network.outputs.clone()
    }

    /// The name and the shape of each parameter.
    fn parameters(&self) -> PyResult<Vec<(String, Vec<usize>)>> {
        let specs = try_params(&self.loaded.network.graph).map_err(Failure::from)?;
        Ok(specs.into_iter().map(|spec| (spec.name, spec.shape)).collect())
    }

    /// The number of nodes.
    fn nodes(&self) -> usize {
        self.loaded.network.graph.nodes().len()
    }

    /// Writes the weights into arrays in rows, of this type and in the order of `parameters`.
    fn weights(&self, element: &str, arrays: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        match options::dtype(element)? {
            DType::F32 => self.loaded.write::<f32>(&arrays)?,
            DType::F64 => self.loaded.write::<f64>(&arrays)?,
        }
        Ok(())
    }

    /// The network with one convolution for those of one value that are added.
    fn merged(&self, py: Python<'_>) -> PyResult<Self> {
        let Loaded { name, network, .. } = &*self.loaded;
        // in f64, so that the weights of a run of f32 are rounded once
        let (network, parameters) = py.detach(|| {
            let parameters = self.loaded.parameters::<f64>()?;
            network.merged(parameters).map_err(Failure::from)
        })?;
        let weights = Weights::F64(parameters);
        Ok(Self { loaded: Arc::new(Loaded { name: name.clone(), network, weights }) })
    }

    /// The network as text of JSON.
    fn to_json(&self) -> PyResult<String> {
        Ok(self.loaded.network.graph.try_to_json().map_err(Failure::from)?)
    }

    /// The shapes of inputs, arrays, files or tuples of four extents, and those of the outputs.
    fn shapes(&self, inputs: Vec<Bound<'_, PyAny>>, options: Options) -> PyResult<[Vec<[usize; 4]>; 2]> {
        let inputs = self.operands(&inputs, &options)?;
        let given: Vec<[usize; 4]> = inputs.iter().map(|input| input.shape).collect();
        let shapes = infer_nchw(&self.loaded.network.graph, &given).map_err(Failure::from)?;
        let outputs =
            self.loaded.network.graph.outputs().iter().map(|output| shapes.shape(*output)).collect();
        Ok([given, outputs])
    }

    /// A plan for inputs, and where it is for one run for the arrays and files that its outputs go to.
    #[pyo3(signature = (inputs, outputs, options, progress=None))]
    fn plan(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Vec<Bound<'_, PyAny>>,
        options: Options,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Plan> {
        let inputs = self.operands(&inputs, &options)?;
        let outputs =
            outputs.iter().zip(&self.loaded.network.outputs).map(|(output, name)| Operand::new(name, output));
        let outputs: Vec<Operand> = outputs.collect::<Result<_, _>>()?;
        let (device, objective) = (device(&options.device)?, Objective::inference());
        let request =
            Request { inputs: &inputs, outputs: &outputs, options: &options, device, objective: &objective };
        let Planned { plan, shapes, remarks } =
            watch::run(py, progress.as_ref(), |watch| self.planned(&request, watch))?;
        Ok(Plan::new(Arc::clone(&self.loaded), plan, device, &options, shapes, remarks))
    }

    /// A plan with gradients, in training or in evaluation, of the inputs and the parameters that are named; nodes of `evaluated` evaluate
    /// in training too. With it comes what a user should know.
    #[pyo3(signature = (inputs, options, is_training, wanted, evaluated, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "an objective by its parts, called from one place")]
    fn training(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        options: Options,
        is_training: bool,
        wanted: Vec<String>,
        evaluated: Vec<String>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Training, Vec<String>)> {
        let (inputs, device) = (self.operands(&inputs, &options)?, device(&options.device)?);
        let mode = if is_training { Mode::Train } else { Mode::Eval };
        let outputs = Objective { mode, evaluated, ..Objective::inference() };
        let objective = match wanted.as_slice() {
            [] => outputs,
            _ => Objective {
                loss: Some(Loss::GradOutputLater),
                grad_inputs: true,
                grad_params: true,
                wanted: Some(wanted),
                ..outputs
            },
        };
        let request =
            Request { inputs: &inputs, outputs: &[], options: &options, device, objective: &objective };
        let Planned { plan, shapes, remarks } =
            watch::run(py, progress.as_ref(), |watch| self.planned(&request, watch))?;
        let specs = try_params(&self.loaded.network.graph).map_err(Failure::from)?;
        let training = Training::new(Arc::clone(&self.loaded), plan, device, &options, specs, shapes);
        Ok((training, remarks))
    }
}

/// An input of a plan.
struct Input {
    shape: [usize; 4],
    /// What it holds as long as it is open.
    resident_bytes: u64,
    /// `None` where its shape alone is given.
    operand: Option<Operand>,
}

/// What a plan is wanted for.
struct Request<'a> {
    inputs: &'a [Input],
    outputs: &'a [Operand],
    options: &'a Options,
    device: &'static DeviceBackend,
    objective: &'a Objective,
}

/// A plan, the shapes of inputs and outputs, and what a user should know.
struct Planned {
    plan: graph::Plan,
    shapes: [Vec<[usize; 4]>; 2],
    remarks: Vec<String>,
}

impl Network {
    fn operands(&self, inputs: &[Bound<'_, PyAny>], options: &Options) -> Result<Vec<Input>, Failure> {
        let wanted = self.loaded.network.graph.inputs();
        if wanted.len() != inputs.len() {
            let names: Vec<String> = wanted.iter().map(|input| format!("`{}`", input.name)).collect();
            let (got, wanted) = (inputs.len(), names.len());
            return Err(Failure::Argument(format!(
                "{got} inputs are given, the network wants {wanted}: {}",
                names.join(", ")
            )));
        }
        let reading = options.reading()?;
        let mut held = 0_u64;
        let input = |(given, name): (&Bound<'_, PyAny>, &str)| {
            if given.is_instance_of::<PyTuple>() {
                return Ok(Input { shape: given.extract()?, resident_bytes: 0, operand: None });
            }
            let operand = Operand::new(name, given)?;
            let (shape, resident_bytes) = operand.facts(&reading.clone().beside(held))?;
            held = held.saturating_add(resident_bytes);
            Ok(Input { shape, resident_bytes, operand: Some(operand) })
        };
        inputs.iter().zip(wanted.iter().map(|input| input.name.as_str())).map(input).collect()
    }

    fn planned(&self, request: &Request<'_>, watch: &Watch) -> Result<Planned, Failure> {
        match request.options.dtype()? {
            DType::F32 => self.planned_as::<f32>(request, watch),
            DType::F64 => self.planned_as::<f64>(request, watch),
        }
    }

    fn planned_as<T: Element>(&self, request: &Request<'_>, watch: &Watch) -> Result<Planned, Failure> {
        let Request { inputs, outputs, options, device, objective } = *request;
        let network = &self.loaded.network;
        let given: Vec<[usize; 4]> = inputs.iter().map(|input| input.shape).collect();
        let remarks = network.remarks(&given)?;
        let shapes = infer_nchw(&network.graph, &given)?;
        device.check_budget(options.memory)?;
        let (reading, writing) = (options.reading()?, options.writing()?);
        let made: Vec<[usize; 4]> =
            network.graph.outputs().iter().map(|output| shapes.shape(*output)).collect();
        let decided = writing.decision.map_or(0, |decision| {
            made.iter().map(|shape| decision.buffer_bytes::<T>(*shape)).max().unwrap_or(0)
        });
        let chunked = inputs.iter().enumerate().filter_map(|(place, input)| match &input.operand {
            Some(Operand::Parts(parts)) => {
                let chunks = Chunks::new(parts.chunks?, parts.element.size_bytes())?;
                Some((SourceRole::Input(place), chunks))
            }
            _ => None,
        });
        let read = inputs.iter().map(|input| Ok(input.resident_bytes));
        let written = outputs.iter().zip(&made).map(|(output, shape)| output.written_bytes(*shape, writing));
        let held = read.chain(written).sum::<Result<u64, Failure>>()? + self.loaded.held_bytes();
        let is_plain =
            |operand: Option<&Operand>| operand.and_then(Operand::array).is_some_and(Array::is_plain::<T>);
        let defaults = PlanOptions::default();
        let plan_options = PlanOptions {
            memory_bytes: options.memory.or(device.memory_bytes()),
            parallelism: options.threads(),
            resident_bytes: held,
            releases_parameters: options.is_once,
            // what training reads and writes is made for it
            in_memory: if objective.loss.is_some() {
                InMemory::ALL
            } else {
                InMemory {
                    inputs: options.is_once
                        && reading.to.is_none()
                        && inputs.iter().all(|input| is_plain(input.operand.as_ref())),
                    outputs: options.is_once
                        && writing.decision.is_none()
                        && outputs.iter().all(|output| is_plain(Some(output))),
                    ..InMemory::default()
                }
            },
            transfer_bytes: defaults.transfer_bytes + decided,
            chunks: chunked.collect(),
            temporary_files: options.folder.is_some(),
            winograd: options.winograd,
            ..defaults
        };
        let backend: &dyn Backend<T> = device;
        let planner = Planner::new(&network.graph, &shapes, objective, backend);
        let plan = planner.plan_unless(&plan_options, &|| watch.is_cancelled())?;
        Ok(Planned { plan, shapes: [given, made], remarks })
    }
}

impl Loaded {
    /// The bytes of weights that are held beside those of a run.
    fn held_bytes(&self) -> u64 {
        fn of<S: Element>(held: &Parameters<S>) -> u64 {
            held.tensors().iter().map(|tensor| size_of_val(tensor.data.as_slice()) as u64).sum()
        }
        match &self.weights {
            Weights::Own | Weights::From(_) => 0,
            Weights::F32(held) => of(held),
            Weights::F64(held) => of(held),
        }
    }

    /// The weights, converted.
    pub(crate) fn parameters<T: Element>(&self) -> Result<Parameters<T>, Failure> {
        Ok(match (&self.weights, &self.network.weights) {
            (Weights::Own, Some(own)) => {
                own.parameters().map_err(|source| NetworkError::of_model(Path::new(&self.name), source))?
            }
            (Weights::Own, None) => {
                let name = &self.name;
                return Err(Failure::Argument(format!(
                    "network `{name}` has no weights of its own: give weights"
                )));
            }
            (Weights::From(from), _) => from.load(&self.network.graph)?,
            (Weights::F32(held), _) => self.converted(held)?,
            (Weights::F64(held), _) => self.converted(held)?,
        })
    }

    fn write<T: Element>(&self, arrays: &[Bound<'_, PyAny>]) -> Result<(), Failure> {
        let parameters = self.parameters::<T>()?;
        for (tensor, array) in parameters.tensors().iter().zip(arrays) {
            let array = Array::new(&tensor.name, array)?;
            array.check_output([])?;
            array.check_row::<T>(tensor.data.len())?;
            array.fill(&tensor.data);
        }
        Ok(())
    }

    fn converted<S: Element, T: Element>(&self, held: &Parameters<S>) -> Result<Parameters<T>, Failure> {
        let specs = try_params(&self.network.graph)?;
        let tensor = |tensor: &ParamTensor<S>| -> Result<ParamTensor<T>, Failure> {
            let is_beyond =
                |value: &&S| value.to_f64().is_finite() && !T::from_f64(value.to_f64()).to_f64().is_finite();
            let beyond = tensor.data.iter().filter(is_beyond).count();
            if beyond > 0 {
                let (name, elements) = (&tensor.name, tensor.data.len());
                let text =
                    format!("{beyond} of {elements} values of weight {name} are finite and beyond float32");
                return Err(Failure::Argument(text));
            }
            let data = collected(tensor.data.iter().map(|value| T::from_f64(value.to_f64())))
                .map_err(GraphError::from)?;
            Ok(ParamTensor::new(&tensor.name, tensor.shape.clone(), data)?)
        };
        Ok(Parameters::new(&specs, held.tensors().iter().map(tensor).collect::<Result<_, _>>()?)?)
    }
}

/// An entry of weights.
struct Entry<'a> {
    name: &'a str,
    shape: &'a [usize],
    array: Array,
}

/// Entries as parameters, by their names or those that PyTorch gives them.
fn parameters<T: Element>(specs: &[ParamSpec], entries: &[Entry<'_>]) -> Result<Parameters<T>, Failure> {
    let wants = wants_tensor(specs)?;
    let entries: Vec<&Entry<'_>> = entries.iter().filter(|entry| wants(entry.name)).collect();
    let matched = match_params(specs, entries.iter().map(|entry| (entry.name, entry.shape)))?;
    let tensor = |index: usize| -> Result<ParamTensor<T>, Failure> {
        let Entry { name, shape, array } = entries[index];
        Ok(ParamTensor::new(name, shape.to_vec(), array.values()?)?)
    };
    let tensors: Vec<ParamTensor<T>> = matched.indices.into_iter().map(tensor).collect::<Result<_, _>>()?;
    for (param, copy) in matched.copies {
        tensors[param].check_copy(&tensor(copy)?)?;
    }
    Ok(Parameters::new(specs, tensors)?)
}

/// The backend of a device, which stays open: executors refer to it for as long as Python keeps their plans.
fn device(name: &str) -> Result<&'static DeviceBackend, Failure> {
    static OPEN: Mutex<BTreeMap<String, &'static DeviceBackend>> = Mutex::new(BTreeMap::new());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = open.get(name) {
        return Ok(device);
    }
    let device: &'static DeviceBackend = Box::leak(Box::new(name.parse::<Device>()?.open()?));
    open.insert(name.to_owned(), device);
    Ok(device)
}

/// A size in bytes as people write it.
#[pyfunction]
pub(crate) fn parse_bytes(text: &str) -> PyResult<u64> {
    bytes::parse_budget(text).map_err(PyValueError::new_err)
}

/// The type of new arrays for outputs of so many channels: what is asked for, else that of what is decided, else of the computation.
#[pyfunction]
pub(crate) fn output_element(channels: usize, options: Options) -> PyResult<&'static str> {
    let own = options.dtype()?.into();
    Ok(options.writing()?.options(channels).element.unwrap_or(own).name())
}

/// The networks that are built in.
#[pyfunction]
pub(crate) fn builtin_names() -> Vec<&'static str> {
    graph::builtin_names().collect()
}
