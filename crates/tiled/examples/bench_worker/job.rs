//! A network with its weights, its images and its executor.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use tiled::exec::{FnSink, FnSource, SliceSink, peak_rss_bytes, reset_peak_rss};
use tiled::geometry::Region;
use tiled::graph::{Op, Shapes};
use tiled::prelude::{
    CpuBackend, Executor, Graph, Hold, InMemory, Io, IoError, Loss, MemorySource, NoProgress, Objective,
    Parameters, PlanOptions, Planner, Sink, Source, infer_nchw, params,
};
use tiled::tensor::{AlignedBuffer, Element, View, ViewMut};

use crate::{Failure, arrays, network};

/// What to run, and how.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    /// See [`network::read`].
    network: Value,
    /// A `.safetensors` file; without one, see [`network::Network::parameters`].
    weights: Option<PathBuf>,
    /// An `.npy` file.
    input: Option<PathBuf>,
    /// Instead of an input: the extents of an image that is made where it is read, and whose output is only
    /// copied out of the windows.
    extents: Option<[usize; 2]>,
    /// An `.npy` file: for the task `backward`.
    grad_output: Option<PathBuf>,
    task: Task,
    hold: Held,
    /// The most bytes that the run may hold.
    memory_bytes: Option<u64>,
    threads: usize,
    /// Whether convolutions that suit it run by Winograd's filtering.
    #[serde(default)]
    winograd: bool,
    /// Whether it runs in f64. Files stay f32.
    #[serde(default)]
    double: bool,
}

/// What is asked of a network that is loaded, whatever its elements are.
pub(crate) trait Loaded {
    /// Plans, makes the executor and runs once; the memory is what all of that took beyond what was held before.
    fn first(&mut self) -> Result<Value, Failure>;

    /// Runs once and returns the seconds that it took.
    fn run(&mut self) -> Result<f64, Failure>;

    /// Writes what the last run gave.
    fn save(&self, folder: &Path) -> Result<Value, Failure>;
}

/// Reads everything that the run needs, and allocates what it writes.
pub(crate) fn load<'b>(
    backend: &'b CpuBackend,
    load: &Load,
) -> Result<(Box<dyn Loaded + 'b>, Value), Failure> {
    if load.double {
        let (job, answer) = Job::<f64>::load(backend, load)?;
        return Ok((Box::new(job), answer));
    }
    let (job, answer) = Job::<f32>::load(backend, load)?;
    Ok((Box::new(job), answer))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Task {
    /// The output.
    Inference,
    /// The output and the gradients of its sum with respect to the input and all parameters.
    Training,
    /// The gradients, given that of the output.
    Backward,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Held {
    Auto,
    Slide,
    Recompute,
    Materialise,
}

#[derive(Debug)]
struct Job<'b, T: Element> {
    backend: &'b CpuBackend,
    graph: Graph,
    shapes: Shapes,
    objective: Objective,
    options: PlanOptions,
    parameters: Parameters<T>,
    /// What the others call parameters.
    names: HashMap<String, String>,
    input: Image<T>,
    grad_output: AlignedBuffer<T>,
    output: AlignedBuffer<T>,
    grad_input: AlignedBuffer<T>,
    executor: Option<Executor<'b, T>>,
}

#[derive(Debug)]
enum Image<T: Element> {
    Held(AlignedBuffer<T>),
    Made([usize; 4]),
}

impl<'b, T: Element> Job<'b, T> {
    fn load(backend: &'b CpuBackend, load: &Load) -> Result<(Self, Value), Failure> {
        let network = network::read(&load.network)?;
        let (parameters, names) = (network.parameters(load.weights.as_deref())?, network.names());
        let graph = network.graph;
        let (input, shape) = match (&load.input, load.extents) {
            (Some(path), _) => {
                let (data, shape) = arrays::read(path)?;
                (Image::Held(data), shape)
            }
            (None, Some([height, width])) => {
                let shape = [1, graph.inputs()[0].channels, height, width];
                (Image::Made(shape), shape)
            }
            (None, None) => return Err("neither `input` nor `extents` is given".into()),
        };
        let shapes = infer_nchw(&graph, &[shape])?;
        let grad_output = match &load.grad_output {
            Some(path) => arrays::read(path)?.0,
            None => AlignedBuffer::default(),
        };
        let objective = match load.task {
            Task::Inference => Objective::inference(),
            Task::Training => {
                let evaluated = norms_of_one_value(&graph, &shapes);
                Objective { outputs: true, grad_inputs: true, evaluated, ..Objective::training(Loss::Sum) }
            }
            Task::Backward => Objective::gradients(),
        };
        let is_held = matches!(input, Image::Held(_));
        let held = |is_wanted: bool, shape: [usize; 4]| {
            let mut data = AlignedBuffer::new(if is_wanted && is_held { shape.iter().product() } else { 0 });
            data.fill(T::from_f64(f64::NAN)); // what is not written will show
            data
        };
        let times = match load.task {
            Task::Inference => 1.0,
            Task::Training => 3.0,
            Task::Backward => 2.0,
        };
        let answer = json!({
            "flops": times * convolution_flops(&graph, &shapes),
            "output_shape": shapes.shape(graph.outputs()[0]),
        });
        let job = Self {
            backend,
            output: held(objective.outputs, shapes.shape(graph.outputs()[0])),
            grad_input: held(objective.grad_inputs, shape),
            options: PlanOptions {
                memory_bytes: load.memory_bytes,
                parallelism: load.threads,
                releases_parameters: true, // nothing else reads them
                winograd: load.winograd,
                in_memory: InMemory { inputs: is_held, outputs: is_held, ..InMemory::ALL },
                hold: match load.hold {
                    Held::Auto => Hold::Auto,
                    Held::Slide => Hold::Slide,
                    Held::Recompute => Hold::Recompute,
                    Held::Materialise => Hold::Materialise,
                },
                ..PlanOptions::default()
            },
            graph,
            shapes,
            objective,
            parameters,
            names,
            input,
            grad_output,
            executor: None,
        };
        Ok((job, answer))
    }
}

impl<T: Element> Loaded for Job<'_, T> {
    fn first(&mut self) -> Result<Value, Failure> {
        self.executor = None;
        let can_measure = reset_peak_rss();
        let before = peak_rss_bytes();
        let planner = Planner::<T>::new(&self.graph, &self.shapes, &self.objective, self.backend);
        let plan = planner.plan(&self.options)?;
        let mut answer = json!({
            "planned_bytes": plan.peak_bytes(),
            "predicted_seconds": plan.predicted_seconds,
            "redundant": plan.redundant_flops / plan.flops.max(1.0),
            "plan": plan.sweeps.iter().map(|sweep| json!({
                "grid": sweep.grid.counts(),
                "band": sweep.band.min(i64::from(u32::MAX)),
                "steps": sweep.steps,
            })).collect::<Vec<Value>>(),
            "lanes": plan.lanes(),
        });
        self.executor = Some(Executor::new(plan, self.backend, self.options.parallelism)?);
        answer["seconds"] = json!(self.run()?);
        if let (true, Some(before), Some(after)) = (can_measure, before, peak_rss_bytes()) {
            answer["memory_bytes"] = json!(after.saturating_sub(before));
        }
        Ok(answer)
    }

    fn run(&mut self) -> Result<f64, Failure> {
        let executor = self.executor.as_mut().ok_or("`first` comes before `run`")?;
        let output_shape = self.shapes.shape(self.graph.outputs()[0]);
        let input_shape = self.shapes.shape(tiled::graph::ValueId(0));
        let source: Box<dyn Source<T> + '_> = match &self.input {
            Image::Held(data) => Box::new(MemorySource::new(data, input_shape)?),
            Image::Made(shape) => Box::new(made_image::<T>(*shape)?),
        };
        let mut grad_source = None;
        if !self.grad_output.is_empty() {
            grad_source = Some(MemorySource::new(&self.grad_output, output_shape)?);
        }
        let sink: Box<dyn Sink<T> + '_> = match &self.input {
            Image::Held(_) if self.objective.outputs => {
                Box::new(SliceSink::new(&mut self.output, output_shape)?)
            }
            _ => Box::new(copying_sink::<T>(output_shape)?),
        };
        let mut grad_sink = None;
        if self.objective.grad_inputs {
            grad_sink = Some(SliceSink::new(&mut self.grad_input, input_shape)?);
        }
        let io = Io {
            inputs: vec![&source],
            target: None,
            grad_outputs: grad_source.iter().map(|source| source as &dyn Source<T>).collect(),
            outputs: if self.objective.outputs { vec![&sink] } else { Vec::new() },
            grad_inputs: grad_sink.iter().map(|sink| sink as &dyn Sink<T>).collect(),
        };
        Ok(executor.run(&mut self.parameters, &io, &NoProgress)?.seconds)
    }

    fn save(&self, folder: &Path) -> Result<Value, Failure> {
        let executor = self.executor.as_ref().ok_or("`first` comes before `save`")?;
        std::fs::create_dir_all(folder)?;
        if !self.output.is_empty() {
            let shape = self.shapes.shape(self.graph.outputs()[0]);
            arrays::write(&folder.join("output.npy"), &shape, &self.output)?;
        }
        if !self.grad_input.is_empty() {
            let shape = self.shapes.shape(tiled::graph::ValueId(0));
            arrays::write(&folder.join("grad_input.npy"), &shape, &self.grad_input)?;
        }
        for (place, spec) in params(&self.graph).iter().enumerate() {
            if let Some(gradient) = executor.gradient(place) {
                let name = self.names.get(&spec.name).unwrap_or(&spec.name);
                arrays::write(&folder.join(format!("grad.{name}.npy")), &spec.shape, gradient)?;
            }
        }
        Ok(json!({}))
    }
}

/// The batch norms whose channels have one value: they evaluate, as such a value has no variance.
fn norms_of_one_value(graph: &Graph, shapes: &Shapes) -> Vec<String> {
    let nodes = graph.nodes().iter().enumerate();
    let of_one = nodes.filter(|(position, node)| {
        let [batch, _, height, width] = shapes.shape(graph.node_value(*position));
        matches!(node.op, Op::BatchNorm(_)) && batch * height * width == 1
    });
    of_one.map(|(_, node)| node.name.clone()).collect()
}

/// The multiply-adds of convolutions and linear layers, times two, of a run forward.
fn convolution_flops(graph: &Graph, shapes: &Shapes) -> f64 {
    let volume = |shape: [usize; 4]| shape.into_iter().product::<usize>() as f64;
    let place = |kernel: [i64; 2]| (kernel[0] * kernel[1]) as f64;
    let of_node = |(position, node): (usize, &tiled::graph::Node)| {
        let channels = graph.channels(node.inputs[0]);
        let (before, after) = (shapes.shape(node.inputs[0]), shapes.shape(graph.node_value(position)));
        match &node.op {
            Op::Conv2d(conv) => volume(after) * (channels / conv.groups) as f64 * place(conv.kernel_size),
            Op::ConvTranspose2d(conv) => {
                volume(before) * (conv.out_channels / conv.groups) as f64 * place(conv.kernel_size)
            }
            Op::Linear(_) => volume(after) * channels as f64,
            _ => 0.0,
        }
    };
    2.0 * graph.nodes().iter().enumerate().map(of_node).sum::<f64>()
}

/// An image without memory: rows out of one row of noise.
fn made_image<T: Element>(shape: [usize; 4]) -> Result<impl Source<T>, IoError> {
    const SHIFTS: usize = 256;
    let mut state = 1_u32;
    let noise: Vec<T> = (0..shape[3] + SHIFTS)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            T::from_f64(f64::from((state >> 16) as u16) / 32_768.0 - 1.0)
        })
        .collect();
    FnSource::new("<made>", shape, move |region: Region<2>, window: &mut ViewMut<'_, T>| {
        let layout = *window.layout();
        for_each_row(region, [layout.batch(), layout.channels()], |n, c, y, from, len| {
            let start = layout.offset(n, c, y, region.cols().begin());
            let shift = (31 * usize::try_from(y).unwrap_or(0) + 17 * c) % SHIFTS;
            let noise = &noise[from + shift..][..len];
            let places = &mut window.data_mut()[start..];
            if layout.block() == 1 {
                places[..len].copy_from_slice(noise);
            } else {
                for (place, value) in places.iter_mut().step_by(layout.block()).zip(noise) {
                    *place = *value;
                }
            }
        });
        Ok(())
    })
}

/// A sink that copies each row out of the window, as a file or memory would have it, and forgets it.
fn copying_sink<T: Element>(shape: [usize; 4]) -> Result<impl Sink<T>, IoError> {
    FnSink::new("<forgotten>", shape, |region: Region<2>, window: &View<'_, T>| {
        let layout = *window.layout();
        let mut row: Vec<T> = Vec::new();
        for_each_row(region, [layout.batch(), layout.channels()], |n, c, y, _, len| {
            let start = layout.offset(n, c, y, region.cols().begin());
            row.clear();
            row.extend(window.data()[start..].iter().step_by(layout.block()).take(len));
            std::hint::black_box(&row);
        });
        Ok(())
    })
}

/// Calls `visit(n, c, y, first column, columns)` for each row of each channel of a region.
fn for_each_row(
    region: Region<2>,
    [batch, channels]: [usize; 2],
    mut visit: impl FnMut(usize, usize, i64, usize, usize),
) {
    let from = usize::try_from(region.cols().begin()).unwrap_or(0);
    let len = usize::try_from(region.cols().len()).unwrap_or(0);
    for n in 0..batch {
        for c in 0..channels {
            for y in region.rows().begin()..region.rows().end() {
                visit(n, c, y, from, len);
            }
        }
    }
}
