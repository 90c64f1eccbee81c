//! The promise of a plan, by an allocator that counts: no allocation between steps, no byte above the peak.
//!
//! One test alone, so that nothing else in the process allocates meanwhile.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use tiled::cpu::CpuBackend;
use tiled::exec::{Executor, Io, MemorySink, MemorySource, NoProgress, Progress, SliceSink};
use tiled::graph::{Graph, Hold, Loss, Objective, Parameters, Plan, PlanOptions, Tiling, initialise, params};
use tiled::tensor::Tensor;
use tiled_tests::{Job, slide};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every method passes its arguments to the system's allocator unchanged and returns what that returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(start, layout, size) }
    }
}

fn count(bytes: usize) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let held = BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocations up to the first step and up to the last.
#[derive(Debug, Default)]
struct Steps {
    first: AtomicUsize,
    last: AtomicUsize,
}

impl Progress for Steps {
    fn step(&self, done: u64, total: u64, _what: &str) {
        let calls = CALLS.load(Ordering::Relaxed);
        if done == 1 {
            self.first.store(calls, Ordering::Relaxed);
        }
        if done == total {
            self.last.store(calls, Ordering::Relaxed);
        }
    }
}

/// What one run took: allocations between its first step and its last, and bytes at its peak.
struct Taken {
    calls: usize,
    bytes: usize,
    promised: usize,
    steps: u64,
    tiles: usize,
}

/// Runs a training step; images and results lie in memory of the caller, which the plan does not count.
fn taken(name: &str, extents: [usize; 2], options: &PlanOptions, threads: usize) -> Taken {
    let backend = CpuBackend::new().expect("an instruction set");
    let graph = Graph::builtin(name).expect("built in");
    let objective =
        Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) };
    let job = Job::<f32>::random(graph, 1, extents, objective, 1);
    let plan = job.plan(&backend, options);
    let (promised, steps) = (plan.peak_bytes(), plan.tiles());
    let tiles = plan.sweeps.iter().map(|sweep| sweep.grid.len()).sum();
    let source = |tensor| MemorySource::try_from(tensor).expect("contiguous");
    let inputs: Vec<_> = job.inputs.iter().map(source).collect();
    let target = source(&job.target);
    let output = MemorySink::new(job.shapes.shape(job.graph.outputs()[0])).expect("small");
    let grad_input = MemorySink::new(job.inputs[0].shape()).expect("small");
    let io = Io {
        inputs: vec![&inputs[0]],
        target: Some(&target),
        outputs: vec![&output],
        grad_inputs: vec![&grad_input],
        ..Io::default()
    };
    let progress = Steps::default();
    let before = BYTES.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mut parameters = job.parameters.clone();
    let mut executor = Executor::new(plan, &backend, threads).expect("starts");
    let report = executor.run(&mut parameters, &io, &progress).expect("runs");
    let bytes = PEAK.load(Ordering::Relaxed) - before;
    drop(executor);
    drop(io);
    assert!(report.loss.is_some_and(f64::is_finite));
    assert!(output.into_tensor().data().iter().any(|value| *value != 0.0), "something was computed");
    Taken {
        calls: progress.last.into_inner() - progress.first.into_inner(),
        bytes,
        promised: usize::try_from(promised).expect("small"),
        steps,
        tiles,
    }
}

/// Runs a network twice, with weights that the run lets go of: the bytes at the peak, and the plan.
fn taken_with_weights_once(name: &str, extents: [usize; 2], options: &PlanOptions) -> (usize, Plan) {
    let backend = CpuBackend::new().expect("an instruction set");
    let graph = Graph::builtin(name).expect("built in");
    let mut job = Job::<f32>::random(graph, 1, extents, Objective::inference(), 1);
    let plan = job.plan(&backend, &PlanOptions { releases_parameters: true, ..options.clone() });
    let specs = params(&job.graph);
    job.parameters = Parameters::zeros(&[]).expect("none"); // they are the run's
    let input = MemorySource::try_from(&job.inputs[0]).expect("contiguous");
    let shape = job.shapes.shape(job.graph.outputs()[0]);
    let mut output = vec![0.0_f32; shape.iter().product()];
    let mut run = |executor: &mut Executor<'_, f32>, parameters: &mut Parameters<f32>| {
        let sink = SliceSink::new(&mut output, shape).expect("small");
        let io = Io { inputs: vec![&input], outputs: vec![&sink], ..Io::default() };
        executor.run(parameters, &io, &NoProgress).expect("runs");
        drop(io);
        output.iter().map(|value| f64::from(*value)).sum::<f64>()
    };
    let before = BYTES.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mut parameters = initialise::<f32>(&specs, 1);
    let mut executor = Executor::new(plan.clone(), &backend, 2).expect("starts");
    let first = run(&mut executor, &mut parameters);
    assert!(first != 0.0, "something was computed");
    assert_eq!(run(&mut executor, &mut parameters).to_bits(), first.to_bits(), "{name}, again");
    let bytes = PEAK.load(Ordering::Relaxed) - before;
    // what is given anew counts beside the plan
    let other = run(&mut executor, &mut initialise::<f32>(&specs, 2));
    assert_ne!(other.to_bits(), first.to_bits(), "{name}, other weights");
    (bytes, plan)
}

/// What an executor holds beside the numbers: the nodes of the program with their names, threads, the report.
const BESIDE: usize = 256 << 10;

#[test]
fn a_run_keeps_the_promise_of_its_plan() {
    let before = CALLS.load(Ordering::Relaxed);
    let tensor = Tensor::<f32>::zeros([1, 1, 64, 64]).expect("small");
    assert!(CALLS.load(Ordering::Relaxed) > before, "the allocator counts {} elements", tensor.data().len());
    // the first run of a process also sets up what lives as long as the process does
    let _ = taken("light", [64, 64], &slide(4), 2);
    for name in ["light", "unet"] {
        for threads in [1, 2] {
            let run = taken(name, [300, 260], &slide(2), threads);
            let label = format!("{name}, {threads} threads");
            assert!(run.steps > 10, "{label}: {} steps", run.steps);
            assert_eq!(run.tiles, 1, "{label}: one strip");
            // between threads, rayon makes a few lists of its own the first time that one steals from another
            let most = if threads == 1 { 0 } else { 16 };
            assert!(run.calls <= most, "{label}: {} allocations in {} steps", run.calls, run.steps);
            assert!(
                run.bytes <= run.promised + BESIDE,
                "{label}: {} bytes, promised {}",
                run.bytes,
                run.promised
            );
        }
    }
    let winograd = taken("unet", [300, 260], &PlanOptions { winograd: true, parallelism: 2, ..slide(2) }, 2);
    assert!(winograd.calls <= 16, "{} allocations in {} steps", winograd.calls, winograd.steps);
    assert!(
        winograd.bytes <= winograd.promised + BESIDE,
        "{} bytes, promised {}",
        winograd.bytes,
        winograd.promised
    );
    let tiles = PlanOptions { hold: Hold::Recompute, tiling: Tiling::Grid([5, 4]), ..PlanOptions::default() };
    let strips = PlanOptions { lanes: Some(2), tiling: Tiling::Grid([20, 6]), ..slide(1) };
    let budget = PlanOptions { memory_bytes: Some(6 << 20), parallelism: 2, ..PlanOptions::default() };
    for options in [tiles, strips, budget] {
        let run = taken("light", [300, 260], &options, 2);
        let label = format!("{:?} {:?}", options.hold, options.tiling);
        assert!(run.steps > 1, "{label}");
        assert!(
            run.bytes <= run.promised + BESIDE,
            "{label}: {} bytes, promised {}",
            run.bytes,
            run.promised
        );
        // a tile sets up its layouts and its schedule before its first step: a few small lists
        assert!(run.calls <= 16 * run.tiles, "{label}: {} allocations for {} tiles", run.calls, run.tiles);
        // and the promise is no idle one
        assert!(2 * run.bytes >= run.promised, "{label}: {} bytes of {}", run.bytes, run.promised);
    }
    let winograd = PlanOptions { winograd: true, parallelism: 2, ..PlanOptions::default() };
    for (name, extents, options) in [
        ("vgg16", [32, 32], PlanOptions::default()),
        ("light", [300, 260], PlanOptions::default()),
        ("resnet18", [96, 70], PlanOptions { memory_bytes: Some(56 << 20), ..PlanOptions::default() }),
        ("resnet18", [64, 64], winograd),
    ] {
        let (bytes, plan) = taken_with_weights_once(name, extents, &options);
        let promised = usize::try_from(plan.peak_bytes()).expect("small");
        assert!(bytes <= promised + BESIDE, "{name}: {bytes} bytes, promised {promised}");
        assert!(2 * bytes >= promised, "{name}: {bytes} bytes of {promised}");
    }
}
