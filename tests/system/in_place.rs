//! What is read and written where the caller's tensors lie has the bits of what goes through windows.

use std::sync::atomic::{AtomicUsize, Ordering};

use tiled::exec::{
    ExecError, Executor, FnSource, Io, IoError, MemorySink, MemorySource, SinkInMemory, SliceSink,
};
use tiled::geometry::Region;
use tiled::graph::{Graph, Hold, InMemory, Objective, PlanOptions, Planner, Tiling};
use tiled::prelude::{CpuBackend, Isa, NoProgress, Sink, Source};
use tiled::tensor::{Element, PartMut, Tensor, View, ViewMut};
use tiled_tests::{Job, differing, recompute, slide, whole};

/// A tensor in memory that says so or does not, and counts how it is written.
#[derive(Debug)]
struct Counted<I> {
    inner: I,
    in_place: bool,
    regions: [AtomicUsize; 2],
}

impl<I> Counted<I> {
    fn new(inner: I, in_place: bool) -> Self {
        Self { inner, in_place, regions: Default::default() }
    }

    /// The regions copied, and those computed in place.
    fn counts(&self) -> [usize; 2] {
        [0, 1].map(|how| self.regions[how].load(Ordering::Relaxed))
    }
}

impl<T: Element, S: Source<T>> Source<T> for Counted<S> {
    fn shape(&self) -> [usize; 4] {
        self.inner.shape()
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        self.regions[0].fetch_add(1, Ordering::Relaxed);
        self.inner.read(region, output)
    }

    fn in_memory(&self) -> Option<&[T]> {
        self.inner.in_memory().filter(|_| self.in_place)
    }
}

impl<T: Element, S: Sink<T>> Sink<T> for Counted<S> {
    fn shape(&self) -> [usize; 4] {
        self.inner.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.regions[0].fetch_add(1, Ordering::Relaxed);
        self.inner.write(region, input)
    }

    fn in_memory(&self) -> Option<&dyn SinkInMemory<T>> {
        self.inner.in_memory().filter(|_| self.in_place).map(|_| self as &dyn SinkInMemory<T>)
    }

    fn finish(&self) -> Result<(), IoError> {
        self.inner.finish()
    }

    fn abort(&self) {
        self.inner.abort();
    }
}

impl<T: Element, S: Sink<T>> SinkInMemory<T> for Counted<S> {
    fn write_in_place(
        &self,
        region: Region<2>,
        compute: &mut dyn FnMut(PartMut<'_, T>),
    ) -> Result<(), IoError> {
        self.regions[1].fetch_add(1, Ordering::Relaxed);
        self.inner.in_memory().expect("it said so").write_in_place(region, compute)
    }
}

/// How often tensors went through windows and how often not.
#[derive(Debug, Default)]
struct Counts {
    input: [usize; 2],
    result: [usize; 2],
    steps: u64,
    /// What the sums of weight gradients depend on.
    shares: String,
    windows_bytes: u64,
}

/// The output, or the gradient of the input and those of the parameters.
fn run<T: Element>(
    job: &Job<T>,
    backend: &CpuBackend,
    options: &PlanOptions,
    in_place: bool,
) -> (Vec<Vec<T>>, Counts) {
    let source = |tensor| Counted::new(MemorySource::try_from(tensor).expect("contiguous"), in_place);
    let (input, grad_output) = (source(&job.inputs[0]), source(&job.grad_outputs[0]));
    let is_forward = job.objective.outputs;
    let shape = if is_forward { job.grad_outputs[0].shape() } else { job.inputs[0].shape() };
    let mut result = vec![T::ZERO; shape.iter().product()];
    let sink = Counted::new(SliceSink::new(&mut result, shape).expect("long enough"), in_place);
    let mut io = Io { inputs: vec![&input], ..Io::default() };
    if is_forward {
        io.outputs = vec![&sink];
    } else {
        io.grad_outputs = vec![&grad_output];
        io.grad_inputs = vec![&sink];
    }
    let in_memory = if in_place { InMemory::ALL } else { InMemory::default() };
    let plan = job.plan(backend, &PlanOptions { in_memory, ..options.clone() });
    let (steps, windows_bytes) = (plan.tiles(), plan.memory.windows_bytes);
    let tilings: Vec<_> = plan.sweeps.iter().map(|sweep| (sweep.grid.len(), sweep.band)).collect();
    let shares = format!("{tilings:?} {}", plan.lanes());
    let mut executor = Executor::new(plan, backend, 2).expect("starts");
    executor.run(&mut job.parameters.clone(), &io, &NoProgress).expect("runs");
    drop(io);
    let counts = Counts { input: input.counts(), result: sink.counts(), steps, shares, windows_bytes };
    drop(sink);
    let gradients = (0..job.parameters.tensors().len()).filter_map(|place| executor.gradient(place));
    let results = std::iter::once(result.clone()).chain(gradients.map(<[T]>::to_vec)).collect();
    (results, counts)
}

/// A network of one operator of its input.
fn operator(channels: usize, node: &str) -> Graph {
    let text = format!(
        r#"{{"inputs":[{{"name":"x","channels":{channels}}}],"outputs":["y"],"nodes":[{{"name":"y",{node}}}]}}"#
    );
    Graph::from_json(&text).expect("a network")
}

/// A network of one convolution of 3×3.
fn convolution([inputs, outputs]: [usize; 2], options: &str) -> Graph {
    let node = format!(r#""op":"conv2d","inputs":["x"],"out_channels":{outputs},"kernel_size":3{options}"#);
    operator(inputs, &node)
}

fn all_options() -> [PlanOptions; 5] {
    let one_lane = |options| PlanOptions { lanes: Some(1), ..options };
    let two_lanes = |options| PlanOptions { lanes: Some(2), ..options };
    [
        one_lane(whole()),
        one_lane(slide(3)),
        two_lanes(recompute([3, 2])),
        two_lanes(PlanOptions { tiling: Tiling::Grid([2, 1]), ..slide(2) }),
        PlanOptions { parallelism: 2, ..PlanOptions::default() },
    ]
}

fn check<T: Element>(graph: &Graph, extents: [usize; 2], name: &str) {
    for objective in [Objective::inference(), Objective::gradients()] {
        let job = Job::<T>::random(graph.clone(), 3, extents, objective, 5);
        for backend in Isa::ALL.into_iter().filter_map(|isa| CpuBackend::with_isa(isa).ok()) {
            for options in all_options() {
                let (in_place, counts) = run(&job, &backend, &options, true);
                let (copied, others) = run(&job, &backend, &options, false);
                // where the planner is free, a plan of less memory may be another one, with other sums of weight gradients
                let same = counts.shares == others.shares;
                assert!(same || options.hold == Hold::Auto, "{counts:?}, {others:?}");
                let count = if same { copied.len() } else { 1 };
                for (a, b) in in_place.iter().zip(&copied[..count]) {
                    assert_eq!(differing(a, b), 0, "{name} on {backend:?} under {options:?}");
                }
                assert_eq!(others.result[1], 0, "{name}: {others:?}");
                assert!(counts.result[0] == 0 || counts.result[1] == 0, "{name}: {counts:?}");
            }
        }
    }
}

#[test]
fn results_in_place_have_the_bits_of_copied_ones() {
    for (channels, options) in [
        ([32, 40], ""),
        ([20, 24], r#","padding":1"#),
        ([16, 16], r#","stride":2"#),
        ([16, 33], r#","groups":1,"bias":false,"padding":1,"dilation":2"#),
        ([32, 32], r#","groups":2"#),
        ([32, 32], r#","groups":32,"padding":1"#),
        ([3, 16], ""),
        ([24, 2], ""),
        ([2, 3], ""),
    ] {
        let graph = convolution(channels, options);
        let name = format!("{channels:?}{options}");
        check::<f32>(&graph, [13, 37], &name);
        check::<f64>(&graph, [14, 19], &name);
    }
}

/// Operators other than convolution.
const OTHERS: &[&str] = &[
    r#""op":"max_pool2d","inputs":["x"],"kernel_size":2"#,
    r#""op":"max_pool2d","inputs":["x"],"kernel_size":3,"stride":2,"padding":1,"ceil_mode":true"#,
    r#""op":"avg_pool2d","inputs":["x"],"kernel_size":[3,2],"padding":1"#,
    r#""op":"sigmoid","inputs":["x"]"#,
    r#""op":"batch_norm","inputs":["x"]"#,
    r#""op":"add","inputs":["x","x"]"#,
    r#""op":"concat","inputs":["x","x"]"#,
    r#""op":"upsample","inputs":["x"],"mode":"bilinear","scale_factor":2"#,
    r#""op":"global_avg_pool","inputs":["x"]"#,
    r#""op":"global_max_pool","inputs":["x"]"#,
];

#[test]
fn operators_of_few_channels_in_place_have_the_bits_of_copied_ones() {
    for node in OTHERS {
        for channels in [1, 3, 16] {
            let graph = operator(channels, node);
            let name = format!("{channels} {node}");
            check::<f32>(&graph, [14, 37], &name);
            check::<f64>(&graph, [13, 18], &name);
            if channels < 4 {
                let job = Job::<f32>::random(graph, 2, [14, 37], Objective::inference(), 5);
                let (_, counts) = run(&job, &CpuBackend::new().expect("an instruction set"), &slide(3), true);
                assert_eq!(counts.input[0], 0, "{name}: {counts:?}");
            }
        }
    }
}

#[test]
fn large_tensors_are_shared_by_threads_in_place_and_in_windows() {
    // of many channels, so that windows have blocks with gaps between them, and of few
    for (channels, extents) in [(64, [48, 1024]), (3, [600, 1000])] {
        let graph = operator(channels, r#""op":"relu","inputs":["x"]"#);
        let job = Job::<f32>::random(graph, 2, extents, Objective::inference(), 9);
        let expected: Vec<f32> = job.inputs[0].data().iter().map(|value| value.max(0.0)).collect();
        for backend in Isa::ALL.into_iter().filter_map(|isa| CpuBackend::with_isa(isa).ok()) {
            for options in all_options().into_iter().chain([slide(16), recompute([2, 2])]) {
                for in_place in [true, false] {
                    let (results, _) = run(&job, &backend, &options, in_place);
                    let wrong = results[0].iter().zip(&expected).filter(|(a, b)| a != b).count();
                    assert_eq!(wrong, 0, "{channels} channels on {backend:?} under {options:?}");
                }
            }
        }
    }
}

#[test]
fn an_operator_between_tensors_in_memory_copies_neither() {
    let pool = operator(3, r#""op":"max_pool2d","inputs":["x"],"kernel_size":3,"stride":2,"padding":1"#);
    for graph in [convolution([32, 48], ""), pool] {
        for options in all_options() {
            let job = Job::<f32>::random(graph.clone(), 2, [21, 34], Objective::inference(), 7);
            let (_, counts) = run(&job, &CpuBackend::new().expect("an instruction set"), &options, true);
            assert_eq!((counts.input[0], counts.result[0]), (0, 0), "{options:?}: {counts:?}");
            assert!(counts.result[1] > 0, "{options:?}: {counts:?}");
            assert_eq!(counts.windows_bytes, 0, "{options:?}: windows that nobody uses");
            assert!(options.hold == Hold::Materialise || options.hold == Hold::Auto || counts.steps > 1);
        }
    }
}

#[test]
fn a_memory_sink_is_written_in_place_by_lanes_at_once() {
    let graph = convolution([32, 48], "");
    let job = Job::<f32>::random(graph, 2, [40, 34], Objective::inference(), 7);
    let backend = CpuBackend::new().expect("an instruction set");
    let (expected, _) = run(&job, &backend, &whole(), false);
    for options in all_options() {
        let options = PlanOptions { in_memory: InMemory::ALL, ..options };
        let done = job.run(&backend, job.plan(&backend, &options), 2, &NoProgress);
        assert_eq!(differing(done.outputs[0].data(), &expected[0]), 0, "{options:?}");
    }
}

#[test]
fn a_tensor_that_does_not_lie_where_the_plan_has_it_is_an_error_before_the_work() {
    let job = Job::<f32>::random(convolution([32, 48], ""), 2, [21, 34], Objective::inference(), 7);
    let backend = CpuBackend::new().expect("an instruction set");
    let plan = job.plan(&backend, &PlanOptions { in_memory: InMemory::ALL, ..slide(3) });
    let mut executor = Executor::new(plan, &backend, 1).expect("starts");
    let source =
        |in_place| Counted::new(MemorySource::try_from(&job.inputs[0]).expect("contiguous"), in_place);
    let sink = |in_place| {
        Counted::new(MemorySink::<f32>::new(job.grad_outputs[0].shape()).expect("small"), in_place)
    };
    for (source, sink, name) in [(source(false), sink(true), "x"), (source(true), sink(false), "y.output")] {
        let io = Io { inputs: vec![&source], outputs: vec![&sink], ..Io::default() };
        let error = executor.run(&mut job.parameters.clone(), &io, &NoProgress).expect_err("elsewhere");
        let message = format!("plan has `{name}` in memory as NCHW without gaps, where it does not lie");
        assert_eq!(error.to_string(), message);
        assert_eq!((source.counts(), sink.counts()), ([0; 2], [0; 2]), "nothing was read or written");
    }
}

#[test]
fn a_source_that_fails_midway_leaves_a_closed_sink() {
    let graph = convolution([32, 48], "");
    let job = Job::<f32>::random(graph, 2, [21, 34], Objective::inference(), 7);
    let backend = CpuBackend::new().expect("an instruction set");
    let shape = job.inputs[0].shape();
    let source = FnSource::new("<broken>", shape, |region: Region<2>, window: &mut ViewMut<'_, f32>| {
        if region.rows().end() > 12 {
            return Err(IoError::Closed { path: "<broken>".into() });
        }
        window.data_mut().fill(1.0);
        Ok(())
    })
    .expect("small");
    let sink = Counted::new(MemorySink::new(job.grad_outputs[0].shape()).expect("small"), true);
    let io = Io { inputs: vec![&source], outputs: vec![&sink], ..Io::default() };
    let plan = Planner::<f32>::new(&job.graph, &job.shapes, &job.objective, &backend)
        .plan(&PlanOptions { in_memory: InMemory { outputs: true, ..InMemory::default() }, ..slide(3) })
        .expect("plans");
    let result =
        Executor::new(plan, &backend, 1).expect("starts").run(&mut job.parameters.clone(), &io, &NoProgress);
    assert!(matches!(result, Err(ExecError::Io(IoError::Closed { .. }))), "{result:?}");
    assert!(sink.counts()[1] > 0 && sink.counts()[0] == 0);
    let tensor = Tensor::<f32>::zeros(sink.shape()).expect("small");
    assert!(sink.write(tensor.view().region(), &tensor.view()).is_err());
    let in_memory = sink.in_memory().expect("it says so");
    assert!(in_memory.write_in_place(tensor.view().region(), &mut |_| panic!("it is closed")).is_err());
}

#[test]
fn a_slice_takes_regions_in_place_and_copies_in_any_order() {
    let tensor =
        Tensor::<f32>::from_fn([2, 3, 4, 5], |place| place.iter().sum::<usize>() as f32).expect("small");
    let [top, bottom] = [[0, 2], [2, 4]].map(|[begin, end]| {
        let region = tensor.view().region();
        region.with_axis(0, tiled::geometry::Interval::new(begin, end))
    });
    for in_place_first in [true, false] {
        let mut data = vec![0.0; 120];
        let sink = SliceSink::new(&mut data, tensor.shape()).expect("long enough");
        let mut compute = |mut part: PartMut<'_, f32>| {
            for plane in 0..6 {
                part.write(plane * 20, &tensor.data()[plane * 20..plane * 20 + 10]);
            }
        };
        if in_place_first {
            sink.write_in_place(top, &mut compute).expect("open");
            sink.write(bottom, &tensor.view()).expect("open");
        } else {
            sink.write(bottom, &tensor.view()).expect("open");
            sink.write_in_place(top, &mut compute).expect("open");
        }
        sink.finish().expect("complete");
        drop(sink);
        assert_eq!(data, tensor.data());
    }
}
