//! What an executor took is back when its drop returns, by an allocator that counts what is held.
//!
//! Nothing else in the process allocates meanwhile.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use tiled::cpu::CpuBackend;
use tiled::exec::{Executor, Io, MemorySink, MemorySource, NoProgress};
use tiled::graph::{Graph, Loss, Objective, PlanOptions};
use tiled_testkit::deferred::Deferred;
use tiled_tests::{Job, recompute, slide};

struct Counting;

/// The bytes held in blocks that no part of the standard library or of rayon keeps for itself.
static HELD: AtomicIsize = AtomicIsize::new(0);
const LEAST_BYTES: usize = 4096;

fn note(size: usize, sign: isize) {
    if size >= LEAST_BYTES {
        HELD.fetch_add(sign * size.cast_signed(), Ordering::SeqCst);
    }
}

// SAFETY: every method passes its arguments to the system's allocator unchanged and returns what that returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
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
        note(layout.size(), -1);
        note(size, 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test alone: where another ends, the harness takes memory at the same time.
#[test]
fn r05_memory_is_back_when_a_drop_returns_and_whichever_call_of_a_run_failed() {
    of_an_executor_when_its_drop_returns();
    of_a_run_whichever_of_its_calls_failed();
}

fn of_an_executor_when_its_drop_returns() {
    let backend = CpuBackend::new().expect("an instruction set");
    let graph = || Graph::builtin("unet").expect("built in");
    let job = Job::<f32>::random(graph(), 1, [96, 80], Objective::inference(), 1);
    let source = MemorySource::try_from(&job.inputs[0]).expect("contiguous");
    for parallelism in [1, 2, 4] {
        let options = PlanOptions { winograd: true, parallelism, ..slide(8) };
        let plan = std::sync::Arc::new(job.plan(&backend, &options));
        let scratch = plan.memory.scratch_bytes;
        assert!(scratch > 0, "the kernels of this plan keep scratch on their threads");
        for round in 0..25 {
            let label = format!("{parallelism} threads, round {round}");
            let held = HELD.load(Ordering::SeqCst);
            let mut executor = Executor::new(plan.clone(), &backend, parallelism).expect("starts");
            if round % 2 == 0 {
                let output = MemorySink::new(job.shapes.shape(job.graph.outputs()[0])).expect("small");
                let io = Io { inputs: vec![&source], outputs: vec![&output], ..Io::default() };
                executor.run(&mut job.parameters.clone(), &io, &NoProgress).expect("runs");
            }
            let taken = (HELD.load(Ordering::SeqCst) - held).cast_unsigned() as u64;
            assert!(taken >= scratch, "{label}: {taken} bytes, scratch alone takes {scratch}");
            drop(executor);
            assert_eq!(HELD.load(Ordering::SeqCst), held, "{label}: bytes held before and after");
        }
    }
}

fn of_a_run_whichever_of_its_calls_failed() {
    let backend = CpuBackend::new().expect("an instruction set");
    let graph = Graph::builtin("seed-002").expect("built in");
    let objective = Objective { outputs: true, ..Objective::training(Loss::MeanSquaredError) };
    let job = Job::<f32>::random(graph, 2, [67, 71], objective, 1);
    for options in [slide(4), PlanOptions { lanes: Some(2), parallelism: 2, ..recompute([2, 2]) }] {
        let plan = std::sync::Arc::new(job.plan(&backend, &options));
        let attempt = |deferred: &Deferred<'_, f32>| {
            let mut executor = Executor::new(plan.clone(), deferred, 2).expect("starts");
            job.attempt(&mut executor, &NoProgress).is_ok()
        };
        let counted = Deferred::new(&backend);
        assert!(attempt(&counted), "no call fails");
        let calls = counted.calls();
        for call in 0..calls {
            let held = HELD.load(Ordering::SeqCst);
            assert!(!attempt(&Deferred::failing(&backend, call)), "call {call} of {calls} fails");
            assert_eq!(HELD.load(Ordering::SeqCst), held, "after call {call} of {calls} failed");
        }
    }
}
