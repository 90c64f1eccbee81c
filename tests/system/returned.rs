//! What an executor took is back when its drop returns, by an allocator that counts what is held.
//!
//! One test alone, so that nothing else in the process allocates meanwhile.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use tiled::cpu::CpuBackend;
use tiled::exec::{Executor, Io, MemorySink, MemorySource, NoProgress};
use tiled::graph::{Graph, Objective, PlanOptions};
use tiled_tests::{Job, slide};

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

#[test]
fn r05_the_memory_of_an_executor_is_back_when_its_drop_returns() {
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
