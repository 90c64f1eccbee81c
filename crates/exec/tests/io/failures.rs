//! A source or a sink that fails ends a run on all of its threads, and no output of it is published.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tiled_exec::{
    ChunkedSource, ConstantSource, ExecError, Executor, FnSink, FnSource, Io, IoError, MemorySink,
    NoProgress, Sink, Source, create_sink,
};
use tiled_geometry::Region;
use tiled_graph::program::SourceRole;
use tiled_graph::{Chunks, Graph, Hold, Objective, PlanOptions, Planner, Tiling, infer, initialise, params};
use tiled_kernel::Reference;
use tiled_tensor::{View, ViewMut};

const NETWORK: &str = r#"{"inputs": [{"name": "x", "channels": 1}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 16, "kernel_size": 3, "padding": 1},
            {"name": "c2", "op": "conv2d", "inputs": ["c1"], "out_channels": 1, "kernel_size": 3, "padding": 1}],
  "outputs": ["c2"]}"#;
const SHAPE: [usize; 4] = [1, 1, 1024, 64];
const TILES: usize = 256;
const THREADS: usize = 4;

/// Counts calls, one of which fails.
struct Calls {
    name: &'static str,
    count: AtomicUsize,
    fails: AtomicUsize,
}

impl Calls {
    const fn new(name: &'static str) -> Self {
        Self { name, count: AtomicUsize::new(0), fails: AtomicUsize::new(usize::MAX) }
    }

    fn call(&self) -> Result<(), IoError> {
        let (call, fails) = (self.count.fetch_add(1, Ordering::Relaxed), self.fails.load(Ordering::Relaxed));
        if call == fails {
            return Err(IoError::from_function(self.name, "it is broken"));
        }
        if call > fails {
            thread::yield_now(); // to the one that has to say so
        }
        Ok(())
    }
}

type Write<'a> = dyn Fn() -> Result<(), IoError> + Sync + 'a;

/// Runs once whole, once with a call that fails, and whole again; the calls after the one that failed.
fn calls_after(calls: &Calls, source: &dyn Source<f32>, write: &Write<'_>, chunks: Option<Chunks>) -> usize {
    let graph = Graph::from_json(NETWORK).unwrap();
    let shapes = infer(&graph, 1, &[[SHAPE[2], SHAPE[3]]]).unwrap();
    let options = PlanOptions {
        lanes: Some(THREADS),
        parallelism: THREADS,
        tiling: Tiling::Grid([i64::try_from(TILES).unwrap(), 1]),
        hold: Hold::Recompute,
        chunks: chunks.map(|chunks| (SourceRole::Input(0), chunks)).into_iter().collect(),
        ..PlanOptions::default()
    };
    let objective = Objective::inference();
    let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&options).unwrap();
    assert_eq!((plan.tiles(), plan.in_flight()), (TILES as u64, THREADS));
    let mut executor = Executor::new(plan, &Reference, THREADS).unwrap();
    let mut parameters = initialise(&params(&graph), 1);
    let mut run = || {
        let sink = FnSink::new::<f32>("y", SHAPE, |_, _: &View<'_, f32>| write()).unwrap();
        let io = Io { inputs: vec![source], outputs: vec![&sink], ..Io::default() };
        let result = executor.run(&mut parameters, &io, &NoProgress);
        assert!(
            result.is_ok() || matches!(Sink::<f32>::finish(&sink), Err(IoError::Closed { .. })),
            "it is aborted"
        );
        result.map(drop)
    };
    let fails = run().map(|()| calls.count.swap(0, Ordering::Relaxed) / 4).unwrap();
    calls.fails.store(fails, Ordering::Relaxed);
    let error = run().unwrap_err();
    assert!(matches!(&error, ExecError::Io(IoError::Function { .. })), "{error}");
    assert_eq!(error.to_string(), format!("`{}`: it is broken", calls.name));
    let after = calls.count.swap(0, Ordering::Relaxed) - fails - 1;
    calls.fails.store(usize::MAX, Ordering::Relaxed);
    run().unwrap();
    assert!(calls.count.load(Ordering::Relaxed) >= 4 * fails, "all of it again");
    after
}

/// What a lane may still call: more than the one at hand, as the thread that fails may be made to wait before it says so.
const FEW: usize = 8;

#[test]
fn a_source_that_fails_ends_all_lanes_within_a_few_calls() {
    let calls = Calls::new("x");
    let source = FnSource::new::<f32>("x", SHAPE, |_, _: &mut ViewMut<'_, f32>| calls.call()).unwrap();
    let after = calls_after(&calls, &source, &|| Ok(()), None);
    assert!(after <= FEW * (THREADS - 1), "{after} calls");
}

#[test]
fn chunks_are_not_read_for_long_after_one_that_fails() {
    let calls = Calls::new("x");
    let size = [4, 1]; // many in a row
    let source = ChunkedSource::new("x", SHAPE, size, |_, _: &mut [f32]| calls.call()).unwrap();
    let after = calls_after(&calls, &source, &|| Ok(()), Some(Chunks::new(size, 4).unwrap()));
    assert!(after <= FEW * (THREADS - 1), "{after} calls");
}

#[test]
fn a_sink_that_fails_ends_all_lanes_within_a_few_calls() {
    let calls = Calls::new("y");
    let source = FnSource::new::<f32>("x", SHAPE, |_, _: &mut ViewMut<'_, f32>| Ok(())).unwrap();
    let after = calls_after(&calls, &source, &|| calls.call(), None);
    assert!(after <= FEW * (THREADS - 1), "{after} calls");
}

/// A sink that cannot be prepared.
struct Unprepared<S>(S);

impl<S: Sink<f32>> Sink<f32> for Unprepared<S> {
    fn shape(&self) -> [usize; 4] {
        self.0.shape()
    }
    fn write(&self, region: Region<2>, input: &View<'_, f32>) -> Result<(), IoError> {
        self.0.write(region, input)
    }
    fn prepare(&self) -> Result<(), IoError> {
        Err(IoError::from_function("y", "it is broken"))
    }
    fn finish(&self) -> Result<(), IoError> {
        unreachable!("it was not prepared")
    }
    fn abort(&self) {
        self.0.abort();
    }
}

#[test]
fn no_output_has_its_name_where_another_cannot_be_prepared() {
    let graph = Graph::from_json(&NETWORK.replace(r#"["c2"]"#, r#"["c2", "c1"]"#)).unwrap();
    let shapes = infer(&graph, 1, &[[24, 16]]).unwrap();
    let objective = Objective::inference();
    let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&PlanOptions::default());
    let mut executor = Executor::new(plan.unwrap(), &Reference, 2).unwrap();
    let mut parameters = initialise(&params(&graph), 1);
    let source = ConstantSource::new([1, 1, 24, 16], 1.0).unwrap();
    let [first, second] = [0, 1].map(|place| shapes.shape(graph.outputs()[place]));
    for name in ["y.npy", "y.png"] {
        let folder = tempfile::tempdir().unwrap();
        let names = || folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut run = |second: &dyn Sink<f32>| {
            let first = create_sink::<f32>(folder.path().join(name), first).unwrap();
            let io = Io { inputs: vec![&source], outputs: vec![&*first, second], ..Io::default() };
            executor.run(&mut parameters, &io, &NoProgress).map(drop)
        };
        let memory = || MemorySink::<f32>::new(second).unwrap();
        let error = run(&Unprepared(memory())).unwrap_err();
        assert_eq!(error.to_string(), "`y`: it is broken");
        assert_eq!(names().count(), 0);
        run(&memory()).unwrap();
        assert!(names().eq([name]));
    }
}
