//! A network with its weights, inputs and shapes: what `run`, `grad` and `train` begin with.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tiled::bytes;
use tiled::device::DeviceBackend;
use tiled::exec::{
    DecidedSink, Normalization, NormalizedSource, Reservation, Sink, SinkOptions, Source, create_sink_with,
};
use tiled::graph::{
    Graph, Objective, ParamSpec, Parameters, Plan, PlanOptions, Planner, Shapes, infer_nchw, try_params,
};
use tiled::kernel::Backend;
use tiled::network::{Network, WeightsFrom, own_parameters};
use tiled::onnx::Weights;
use tiled::tensor::Element;

use crate::args::{NetworkArgs, OutputArgs, PlanArgs};
use crate::error::CliError;
use crate::opened::OpenedFiles;
use crate::progress::Session;
use crate::text::escape;

/// A network with everything that a run of it reads but the weights, which training changes.
pub(crate) struct Job<T: Element> {
    pub(crate) graph: Graph,
    /// The weights that the network's file holds.
    own_weights: Option<Weights>,
    /// What the network's file calls the outputs.
    pub(crate) output_names: Vec<String>,
    pub(crate) shapes: Shapes,
    pub(crate) inputs: Vec<Box<dyn Source<T>>>,
    /// The files that were opened, and what opening them took.
    pub(crate) files: OpenedFiles,
    pub(crate) backend: DeviceBackend,
}

impl<T: Element> Job<T> {
    /// Opens the inputs; nothing is computed yet.
    pub(crate) fn open(args: &NetworkArgs, plan: &PlanArgs) -> Result<Self, CliError> {
        let backend = plan.device.choice()?.open()?;
        let network = Network::load(&args.net)?;
        let graph = &network.graph;
        check_names("input", graph.inputs().iter().map(|input| &input.name), args.input.len())?;
        let mut files = OpenedFiles::new(plan);
        let mut inputs: Vec<Box<dyn Source<T>>> = Vec::new();
        for (input, file) in graph.inputs().iter().zip(&args.input) {
            let source = files.open(&format!("input {}", input.name), file, args.numbers.into())?;
            inputs.push(normalized(source, &input.name, &(&args.normalization).into())?);
        }
        let given: Vec<[usize; 4]> = inputs.iter().map(Source::shape).collect();
        files.remark(network.remarks(&given)?);
        let shapes = infer_nchw(graph, &given)?;
        let Network { graph, weights: own_weights, outputs: output_names, .. } = network;
        Ok(Self { graph, own_weights, output_names, shapes, inputs, files, backend })
    }

    /// Whether the network's file holds weights.
    pub(crate) fn has_weights(&self) -> bool {
        self.own_weights.is_some()
    }

    /// The weights. They count in a plan, so that they are read when there is one: what can be had is what is free before.
    /// Those of the network's file go with this call.
    pub(crate) fn parameters(
        &mut self,
        args: &NetworkArgs,
        weights: Option<&WeightsFrom>,
    ) -> Result<Parameters<T>, CliError> {
        let own = self.own_weights.take();
        match (weights, own) {
            (Some(weights), own) => {
                drop(own);
                Ok(weights.load(&self.graph)?)
            }
            (None, Some(own)) => Ok(own_parameters(own, Path::new(&args.net))?),
            (None, None) if try_params(&self.graph)?.is_empty() => {
                Ok(WeightsFrom::Random(0).load(&self.graph)?)
            }
            (None, None) => Err(CliError::NoWeights { name: args.net.clone() }),
        }
    }

    /// The shapes of the outputs.
    pub(crate) fn outputs(&self) -> Vec<[usize; 4]> {
        self.graph.outputs().iter().map(|value| self.shapes.shape(*value)).collect()
    }

    /// The inputs, to be read.
    pub(crate) fn sources(&self) -> Vec<&dyn Source<T>> {
        self.inputs.iter().map(AsRef::as_ref).collect()
    }

    /// The bytes that the inputs hold: decoded pictures.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.resident_bytes()).sum()
    }

    /// Plans a run; Ctrl-C ends that too.
    pub(crate) fn plan(
        &self,
        objective: &Objective,
        options: &PlanOptions,
        session: &Session,
    ) -> Result<Plan, CliError> {
        let backend: &dyn Backend<T> = &self.backend;
        let planner = Planner::new(&self.graph, &self.shapes, objective, backend);
        let progress = session.planning();
        Ok(planner.plan_unless(options, &|| progress.wait())?)
    }
}

/// An input as the network wants it.
fn normalized<T: Element>(
    source: Box<dyn Source<T>>,
    name: &str,
    to: &Normalization,
) -> Result<Box<dyn Source<T>>, CliError> {
    if to.is_none() {
        return Ok(source);
    }
    Ok(Box::new(NormalizedSource::new(name, source, to)?))
}

/// Files that become the outputs of `run`, of these shapes.
pub(crate) fn output_sinks<T: Element>(
    (paths, names): (&[PathBuf], &[String]),
    shapes: &[[usize; 4]],
    args: &OutputArgs,
    limit_bytes: u64,
) -> Result<Vec<Box<dyn Sink<T>>>, CliError> {
    check_names("output", names, paths.len())?;
    let sinks = paths.iter().zip(shapes).map(|(path, shape)| -> Result<Box<dyn Sink<T>>, CliError> {
        let options = args.sink(shape[1], limit_bytes);
        let Some(decision) = args.decision() else { return Ok(create_sink_with(path, *shape, &options)?) };
        decision.check(&path.display().to_string(), *shape)?;
        let sink = create_sink_with(path, decision.shape(*shape), &options)?;
        Ok(Box::new(DecidedSink::new::<T>(sink, *shape, decision)?))
    });
    sinks.collect()
}

/// Files that become tensors of these shapes; pictures that are larger than the limit are not held in memory.
pub(crate) fn create_sinks<T: Element>(
    option: &'static str,
    paths: &[PathBuf],
    shapes: &[[usize; 4]],
    limit_bytes: u64,
) -> Result<Vec<Box<dyn Sink<T>>>, CliError> {
    check_count(option, shapes.len(), paths.len())?;
    let options = SinkOptions { limit_bytes, ..SinkOptions::default() };
    let sinks = paths.iter().zip(shapes).map(|(path, shape)| create_sink_with(path, *shape, &options));
    Ok(sinks.collect::<Result<_, _>>()?)
}

/// The places of files that become tensors of these shapes later, and the bytes that their sinks will hold: they could be made now, and their
/// room is taken.
pub(crate) fn reserve_sinks<T: Element>(
    option: &'static str,
    paths: &[PathBuf],
    shapes: &[[usize; 4]],
    limit_bytes: u64,
) -> Result<(Vec<Reservation>, u64), CliError> {
    if paths.is_empty() {
        return Ok((Vec::new(), 0));
    }
    // what a sink checks of the shape and the format
    let held = sink_bytes(&create_sinks::<T>(option, paths, shapes, limit_bytes)?);
    let room = |(path, shape): (&PathBuf, &[usize; 4])| {
        let is_picture = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
        let element_bytes = if is_picture { 1 } else { size_of::<T>() };
        Reservation::new(path, (shape.iter().product::<usize>() * element_bytes) as u64)
    };
    Ok((paths.iter().zip(shapes).map(room).collect::<Result<_, _>>()?, held))
}

/// The bytes that sinks hold: pictures before they are compressed.
pub(crate) fn sink_bytes<T: Element>(sinks: &[Box<dyn Sink<T>>]) -> u64 {
    sinks.iter().map(|sink| sink.resident_bytes()).sum()
}

/// What training holds beside the run where its weights are saved to a file: those of the last step whose loss was finite.
pub(crate) fn kept_bytes<T: Element>(save: Option<&Path>, specs: &[ParamSpec]) -> u64 {
    let elements: usize = if save.is_some() { specs.iter().map(ParamSpec::elements).sum() } else { 0 };
    (elements * size_of::<T>()) as u64
}

pub(crate) fn check_count(option: &'static str, expected: usize, got: usize) -> Result<(), CliError> {
    if expected == got { Ok(()) } else { Err(CliError::Count { option, expected, got }) }
}

/// The same of what has names.
pub(crate) fn check_names<'n>(
    option: &'static str,
    wanted: impl IntoIterator<Item = &'n String>,
    got: usize,
) -> Result<(), CliError> {
    let names: Vec<String> = wanted.into_iter().map(|name| format!("`{}`", escape(name))).collect();
    if names.len() == got { Ok(()) } else { Err(CliError::NamedCount { option, names, got }) }
}

/// What files do not hold as it was, a line of text for each that there is something to say of.
pub(crate) fn changed<T: Element>(paths: &[PathBuf], sinks: &[Box<dyn Sink<T>>]) -> Vec<String> {
    let changes = paths.iter().zip(sinks).filter_map(|(path, sink)| Some((path, sink.changes()?)));
    changes
        .filter(|(_, changes)| !changes.is_none())
        .map(|(path, changes)| format!("{}: {changes}", path.display()))
        .collect()
}

/// The same for JSON, for each picture and file of integers or 16 bits.
pub(crate) fn changed_json<T: Element>(paths: &[PathBuf], sinks: &[Box<dyn Sink<T>>]) -> Value {
    let changes = paths.iter().zip(sinks).filter_map(|(path, sink)| Some((path, sink.changes()?)));
    changes
        .map(|(path, changes)| {
            let mut object = Map::new();
            object.insert("path".into(), json!(path.to_string_lossy()));
            object.insert("element".into(), json!(changes.element.name()));
            object.insert("values".into(), json!(changes.values));
            object.insert("cut".into(), json!(changes.cut));
            object.insert("least".into(), json!(changes.least));
            object.insert("largest".into(), json!(changes.largest));
            object.insert("nan".into(), json!(changes.nan));
            object.insert("rounded".into(), json!(changes.rounded));
            Value::Object(object)
        })
        .collect()
}

/// What was written where, as a line of text.
pub(crate) fn wrote(path: &Path, shape: &[usize]) -> String {
    let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut facts = vec![shape.iter().map(usize::to_string).collect::<Vec<_>>().join("×"), bytes::show(size)];
    facts.retain(|fact| !fact.is_empty());
    format!("wrote {} ({})", escape(&path.display().to_string()), facts.join(", "))
}
