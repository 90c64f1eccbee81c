//! Memory that is refused, by an allocator that fails at one call, or from one call on, for every call there is: an error that
//! names the bytes each time, nothing lost, and everything as usable as before.
//!
//! One test alone, so that nothing else in the process allocates meanwhile.

#[path = "refused/planning.rs"]
mod planning;

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

use tiled::cpu::CpuBackend;
use tiled::exec::{
    AdamW, AdamWOptions, Executor, FnSource, Io, Labels, MemorySink, MemorySource, NoProgress, Optimizer,
    Pool, Sgd, SgdOptions, Sink, Source, Trainer,
};
use tiled::graph::{
    Activation, Conv2d, Graph, Loss, MaxPool2d, Objective, Op, ParamSpec, Parameters, Plan, PlanOptions,
    Tiling, params,
};
use tiled::kernel::{Backend, Reference};
use tiled::tensor::{Element, Tensor, ViewMut};
use tiled_tests::{Job, differing, slide, whole};

/// Refuses blocks of so many bytes and more; smaller ones may end the process, as everywhere in Rust.
const LEAST_BYTES: usize = 4096;

struct Refusing;

static IS_ARMED: AtomicBool = AtomicBool::new(false);
/// Whether all calls are refused from the first one on that is.
static IS_LASTING: AtomicBool = AtomicBool::new(false);
/// The calls to come before one is refused.
static LEFT: AtomicIsize = AtomicIsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);
/// The blocks that are held, of those that may be refused.
static HELD: AtomicIsize = AtomicIsize::new(0);

fn is_refused(layout: Layout) -> bool {
    if layout.size() < LEAST_BYTES || !IS_ARMED.load(Ordering::SeqCst) {
        return false;
    }
    let left = LEFT.fetch_sub(1, Ordering::SeqCst);
    let is_refused = if IS_LASTING.load(Ordering::SeqCst) { left <= 0 } else { left == 0 };
    if is_refused {
        REFUSED.fetch_add(1, Ordering::SeqCst);
    }
    is_refused
}

fn note(size: usize, change: isize) {
    if size >= LEAST_BYTES {
        HELD.fetch_add(change, Ordering::SeqCst);
    }
}

// SAFETY: every method returns NULL, which it may, or passes its arguments to the system's allocator unchanged and returns what
// that returns.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout) {
            return std::ptr::null_mut();
        }
        note(layout.size(), 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout) {
            return std::ptr::null_mut();
        }
        note(layout.size(), 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        note(layout.size(), -1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: the size is valid for the alignment
        if is_refused(unsafe { Layout::from_size_align_unchecked(size, layout.align()) }) {
            return std::ptr::null_mut();
        }
        note(layout.size(), -1);
        note(size, 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

type Anything = Result<(), Box<dyn Error>>;
/// The output, and the gradient with respect to the input where it is wanted.
type Results<T> = (Tensor<T>, Option<Tensor<T>>);

/// Does `work` again and again, each time with another call refused, until none is; gives how many there were.
fn at_every_call(label: &str, work: impl FnMut() -> Anything) -> usize {
    refusing(label, 1, work)
}

/// The same for work of very many calls: of more than `most` every so many are refused, and it says so.
fn at_calls(label: &str, most: usize, mut work: impl FnMut() -> Anything) -> usize {
    LEFT.store(isize::MAX, Ordering::SeqCst);
    IS_LASTING.store(false, Ordering::SeqCst);
    IS_ARMED.store(true, Ordering::SeqCst);
    let result = work();
    IS_ARMED.store(false, Ordering::SeqCst);
    result.expect("there is memory");
    let calls = usize::try_from(isize::MAX - LEFT.load(Ordering::SeqCst)).expect("not negative");
    refusing(label, calls.div_ceil(most).max(1), work)
}

/// Does `work` with every call refused.
fn all_refused<R>(work: impl FnOnce() -> R) -> R {
    LEFT.store(0, Ordering::SeqCst);
    IS_LASTING.store(true, Ordering::SeqCst);
    IS_ARMED.store(true, Ordering::SeqCst);
    let result = work();
    IS_ARMED.store(false, Ordering::SeqCst);
    result
}

/// Does `work` with every call number `stride` refused.
fn refusing(label: &str, stride: usize, mut work: impl FnMut() -> Anything) -> usize {
    let stride = isize::try_from(stride).expect("few");
    let mut points = 0;
    for lasts in [false, true] {
        points = 0;
        loop {
            let held = HELD.load(Ordering::SeqCst);
            REFUSED.store(0, Ordering::SeqCst);
            LEFT.store(points, Ordering::SeqCst);
            IS_LASTING.store(lasts, Ordering::SeqCst);
            IS_ARMED.store(true, Ordering::SeqCst);
            let result = work();
            IS_ARMED.store(false, Ordering::SeqCst);
            let is_refused = REFUSED.load(Ordering::SeqCst) > 0;
            match &result {
                Ok(()) => assert!(!is_refused, "{label}: call {points} was refused and nobody said so"),
                Err(error) => {
                    assert!(is_refused, "{label}: {error}");
                    let text = error.to_string();
                    assert!(text.ends_with(" bytes could not be had"), "{label}, call {points}: {text}");
                }
            }
            drop(result);
            assert_eq!(HELD.load(Ordering::SeqCst), held, "{label}: blocks lost after call {points}");
            if !is_refused {
                break;
            }
            points += stride;
        }
    }
    match stride {
        1 => eprintln!("{label}: {points} calls, each refused"),
        _ => eprintln!("{label}: {points} calls, one of {stride} refused"),
    }
    usize::try_from(points / stride).expect("not negative")
}

/// What a network is run with: everything that the caller holds.
struct Bench<'b, T: Element> {
    job: Job<T>,
    specs: Vec<ParamSpec>,
    plan: std::sync::Arc<Plan>,
    backend: &'b dyn Backend<T>,
    threads: usize,
}

impl<'b, T: Element> Bench<'b, T> {
    fn new(
        graph: Graph,
        backend: &'b dyn Backend<T>,
        objective: Objective,
        options: &PlanOptions,
        threads: usize,
    ) -> Self {
        let job = Job::random(graph, 2, [48, 40], objective, 5);
        let plan = job.plan(backend, options).into();
        Self { specs: params(&job.graph), job, plan, backend, threads }
    }

    fn executor(&self) -> Result<Executor<'b, T>, Box<dyn Error>> {
        Ok(Executor::new(std::sync::Arc::clone(&self.plan), self.backend, self.threads)?)
    }

    /// Runs `body` with tensors in memory, and gives the output.
    fn with_io(&self, body: impl FnOnce(&Io<'_, T>) -> Anything) -> Result<Results<T>, Box<dyn Error>> {
        let job = &self.job;
        let inputs = [MemorySource::try_from(&job.inputs[0])?];
        let target = MemorySource::try_from(&job.target)?;
        let output = MemorySink::new(job.shapes.shape(job.graph.outputs()[0]))?;
        let grad_input = MemorySink::new(job.inputs[0].shape())?;
        let wants_grad = job.objective.grad_inputs;
        let grads: [&dyn Sink<T>; 1] = [&grad_input];
        body(&Io {
            inputs: vec![&inputs[0] as &dyn Source<T>],
            target: Some(&target),
            outputs: vec![&output],
            grad_inputs: grads[..usize::from(wants_grad)].to_vec(),
            ..Io::default()
        })?;
        Ok((output.into_tensor(), wants_grad.then(|| grad_input.into_tensor())))
    }

    /// Weights, an executor and two runs.
    fn runs(&self) -> Anything {
        let mut weights = Parameters::initialised(&self.specs, 3)?.try_clone()?;
        let mut executor = self.executor()?;
        for _ in 0..2 {
            self.with_io(|io| Ok(executor.run(&mut weights, io, &NoProgress).map(drop)?))?;
        }
        Ok(())
    }

    /// Weights, a trainer and two steps.
    fn trains<O: Optimizer<T>>(&self, optimizer: impl Fn() -> O) -> Anything {
        let mut weights = Parameters::initialised(&self.specs, 3)?;
        let mut trainer = Trainer::new(self.executor()?, optimizer());
        for _ in 0..2 {
            self.with_io(|io| Ok(trainer.step(&mut weights, io, &NoProgress).map(drop)?))?;
        }
        Ok(())
    }

    /// Refuses calls of a run alone; a run after it on the same executor and weights gives the bits of one before.
    fn goes_on(&self, label: &str) -> usize {
        let mut executor = self.executor().expect("there is memory");
        let run = |executor: &mut Executor<'b, T>| {
            let mut weights = self.job.parameters.try_clone()?;
            self.with_io(|io| Ok(executor.run(&mut weights, io, &NoProgress).map(drop)?))
        };
        let (expected, expected_grad) = run(&mut executor).expect("there is memory");
        let points = at_every_call(label, || run(&mut executor).map(drop));
        let (got, grad) = run(&mut executor).expect("there is memory again");
        assert_eq!(differing(got.data(), expected.data()), 0, "{label}");
        if let (Some(got), Some(expected)) = (grad, expected_grad) {
            assert_eq!(differing(got.data(), expected.data()), 0, "{label}");
        }
        points
    }
}

fn training() -> Objective {
    Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) }
}

/// One operator as a network.
fn single(channels: usize, op: Op) -> Graph {
    let mut graph = Graph::new();
    let input = graph.add_input("x", channels).expect("a name");
    let output = graph.add_node("op", op, &[input]).expect("it fits");
    graph.set_outputs(&[output]).expect("one output");
    graph
}

/// Sums over the whole image, of so many channels that lists of them are large.
const NORMED: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
"nodes": [{"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 560, "kernel_size": 1},
          {"name": "n", "op": "batch_norm", "inputs": ["c"]},
          {"name": "m", "op": "global_max_pool", "inputs": ["n"]},
          {"name": "a", "op": "global_avg_pool", "inputs": ["n"]},
          {"name": "y", "op": "add", "inputs": ["m", "a"]}],
"outputs": ["y"]}"#;

fn builtin(name: &str) -> Graph {
    Graph::builtin(name).expect("built in")
}

/// Class numbers that are counted on two threads, in memory and where they are read: nothing is held for each part of them.
fn class_numbers() -> usize {
    const SHAPE: [usize; 4] = [1, 1, 1024, 1024];
    let numbers = Tensor::<f32>::zeros(SHAPE).expect("there is memory");
    let in_memory = MemorySource::try_from(&numbers).expect("contiguous");
    let read = FnSource::new::<f32>("read", SHAPE, |_, window: &mut ViewMut<'_, f32>| {
        window.data_mut().fill(0.0);
        Ok(())
    });
    let read = read.expect("it fits");
    let pool = Pool::new(2).expect("there are threads");
    let count = |source: &dyn Source<f32>| -> Anything {
        let labels = pool.install(|| Labels::new("numbers", source, 3, None))?;
        assert_eq!(labels.census().counted, 1 << 20);
        Ok(())
    };
    assert_eq!(at_every_call("class numbers in memory", || count(&in_memory)), 0);
    at_calls("class numbers that are read", 20, || count(&read))
}

#[test]
fn r09_every_refused_call_is_an_error_and_nothing_is_lost() {
    let cpu = CpuBackend::new().expect("an instruction set");
    let momentum = || Sgd::new(SgdOptions { momentum: 0.9, ..SgdOptions::default() }).expect("fits");
    let adamw = || AdamW::new(AdamWOptions::default()).expect("fits");
    let auto = PlanOptions { parallelism: 2, ..PlanOptions::default() };
    let lanes = PlanOptions { lanes: Some(3), tiling: Tiling::Grid([3, 2]), ..slide(1) };
    let mut points = planning::networks();
    points += planning::plans_of_many_nodes(&cpu);
    points += planning::searches(&cpu);
    for name in ["light", "unet", "seed-002"] {
        for (options, threads) in [(&auto, 2), (&lanes, 3), (&whole(), 1)] {
            let label = format!("{name}, {threads} threads, {:?}", options.hold);
            let infers = Bench::<f32>::new(builtin(name), &cpu, Objective::inference(), options, threads);
            points += at_every_call(&label, || infers.runs());
            let trains = Bench::<f32>::new(builtin(name), &cpu, training(), options, threads);
            points += at_every_call(&format!("{label}, sgd"), || trains.trains(momentum));
            points += trains.goes_on(&format!("{label}, again"));
        }
    }
    let light = Bench::<f64>::new(builtin("light"), &cpu, training(), &auto, 2);
    points += at_every_call("light in f64, adamw", || light.trains(adamw));
    let reference = Bench::<f64>::new(builtin("seed-001"), &Reference, training(), &auto, 2);
    points += at_every_call("the reference", || reference.trains(adamw));
    let normed = Graph::from_json(NORMED).expect("a network");
    let normed = Bench::<f32>::new(normed, &cpu, training(), &auto, 2);
    points += at_every_call("whole-image sums", || normed.trains(momentum));
    let options = PlanOptions { winograd: true, ..auto.clone() };
    let winograd = Bench::<f32>::new(builtin("unet"), &cpu, Objective::inference(), &options, 2);
    assert!(winograd.plan.memory.scratch_bytes > 0, "this plan has scratch");
    points += at_every_call("winograd", || winograd.runs());
    points += winograd.goes_on("winograd, again");
    points += class_numbers();

    let conv = Op::Conv2d(Conv2d::new(64, [3, 3]).padded([1, 1]));
    let pool = Op::MaxPool2d(MaxPool2d::new([2, 2]));
    for (label, op) in [("conv2d", conv), ("max pooling", pool), ("relu", Op::Activation(Activation::Relu))] {
        let bench = Bench::<f32>::new(single(48, op), &cpu, training(), &auto, 2);
        points += at_every_call(label, || bench.runs());
    }
    assert!(points > 2000, "{points} calls");
}
