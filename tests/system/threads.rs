//! Which threads a run works on.

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use tiled::cpu::CpuBackend;
use tiled::exec::{Executor, Io, MemorySource, Progress};
use tiled::graph::{Graph, Hold, Loss, Objective, PlanOptions, Tiling};
use tiled_tests::Job;

/// The threads that steps are told from.
#[derive(Debug, Default)]
struct Seen(Mutex<HashSet<ThreadId>>);

impl Progress for Seen {
    fn step(&self, _done: u64, _total: u64, _what: &str) {
        self.0.lock().expect("nobody panics").insert(thread::current().id());
    }
}

/// Whether a training step in two tiles is short, and whether the caller's thread and others worked on it.
fn worked(name: &str, extents: [usize; 2], lanes: usize) -> (bool, [bool; 2]) {
    let backend = CpuBackend::new().expect("an instruction set");
    let graph = Graph::builtin(name).expect("built in");
    let job = Job::<f32>::random(graph, 1, extents, Objective::training(Loss::Sum), 1);
    let options = PlanOptions {
        lanes: Some(lanes),
        parallelism: 2,
        tiling: Tiling::Grid([2, 1]),
        hold: Hold::Recompute,
        ..PlanOptions::default()
    };
    let plan = job.plan(&backend, &options);
    assert_eq!(plan.in_flight(), lanes, "{extents:?}, {} lanes", plan.lanes());
    let is_short = plan.stays_on_caller();
    let source = MemorySource::try_from(&job.inputs[0]).expect("contiguous");
    let io = Io { inputs: vec![&source], ..Io::default() };
    let seen = Seen::default();
    let mut executor = Executor::new(plan, &backend, 2).expect("memory");
    executor.run(&mut job.parameters.clone(), &io, &seen).expect("a run");
    let seen = seen.0.into_inner().expect("nobody panics");
    let caller = thread::current().id();
    (is_short, [seen.contains(&caller), seen.iter().any(|thread| *thread != caller)])
}

#[test]
fn short_runs_stay_on_the_thread_of_the_caller_whatever_the_lanes() {
    for lanes in [1, 2] {
        assert_eq!(worked("seed-001", [16, 16], lanes), (true, [true, false]), "{lanes} lanes");
        assert_eq!(worked("light", [256, 256], lanes), (false, [false, true]), "{lanes} lanes");
    }
}
