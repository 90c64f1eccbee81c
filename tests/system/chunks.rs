//! Sources that are read in chunks: the bits of the same numbers in memory, and no more reads than the plan states.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tiled::exec::{
    ChunkedSource, ElementType, ExecError, Executor, Io, IoError, MemorySink, Normalization,
    NormalizedSource, Numbers, Stored, StoredSource, with_stored,
};
use tiled::graph::program::SourceRole;
use tiled::graph::{
    Chunks, Graph, Hold, Loss, Objective, Plan, PlanError, PlanOptions, Planner, Shapes, Tiling, UNLIMITED,
    infer, initialise, params,
};
use tiled::prelude::{CpuBackend, NoProgress, Progress, Sink, Source};
use tiled_tests::differing;

/// A tensor of bytes, and how often each of its chunks was read.
struct Bytes {
    data: Vec<u8>,
    shape: [usize; 4],
    chunk: [usize; 2],
    reads: Mutex<BTreeMap<[usize; 2], u64>>,
    /// The read that fails, if any.
    fails: AtomicUsize,
}

impl Bytes {
    fn new(shape: [usize; 4], chunk: [usize; 2]) -> Self {
        let number = |i: usize| u8::try_from((i * 7 + i / 251) % 256).expect("a byte");
        let data = (0..shape.iter().product()).map(number).collect();
        Self { data, shape, chunk, reads: Mutex::default(), fails: AtomicUsize::new(usize::MAX) }
    }

    fn in_memory(&self) -> StoredSource<'_, u8> {
        StoredSource::new(&self.data, self.shape).expect("long enough")
    }

    fn in_chunks(&self) -> impl Source<f32> {
        ChunkedSource::new("x", self.shape, self.chunk, |at, chunk: &mut [u8]| self.read(at, chunk))
            .expect("chunks")
    }

    fn chunks(&self) -> Chunks {
        Chunks::new(self.chunk, 1).expect("not empty")
    }

    /// Decodes a chunk; what is beyond the image is what nobody may look at.
    fn read(&self, at: [usize; 2], chunk: &mut [u8]) -> Result<(), IoError> {
        let mut reads = self.reads.lock().expect("no panic");
        *reads.entry(at).or_default() += 1;
        if reads.values().sum::<u64>() == self.fails.load(Ordering::Relaxed) as u64 {
            let source = std::io::Error::other("a damaged chunk");
            return Err(IoError::Read { path: "x".into(), source });
        }
        drop(reads);
        copy_chunk(&self.data, self.shape, self.chunk, at, chunk);
        Ok(())
    }

    /// The reads of all chunks, and those of the chunk that was read most.
    fn take_reads(&self) -> (u64, u64, u64) {
        let reads = std::mem::take(&mut *self.reads.lock().expect("no panic"));
        let most = reads.values().copied().max().unwrap_or(0);
        (reads.values().sum(), reads.len() as u64, most)
    }
}

fn copy_chunk<S: Copy>(data: &[S], shape: [usize; 4], size: [usize; 2], at: [usize; 2], chunk: &mut [S]) {
    let [_, _, height, width] = shape;
    let [top, left] = [at[0] * size[0], at[1] * size[1]];
    let (rows, cols) = (size[0].min(height - top), size[1].min(width - left));
    for plane in 0..shape[0] * shape[1] {
        for y in 0..rows {
            let from = (plane * height + top + y) * width + left;
            let to = (plane * size[0] + y) * size[1];
            chunk[to..to + cols].copy_from_slice(&data[from..from + cols]);
        }
    }
}

/// A network over one image of bytes.
struct Bed {
    graph: Graph,
    shapes: Shapes,
    objective: Objective,
    bytes: Bytes,
    backend: CpuBackend,
}

impl Bed {
    fn new(name: &str, batch: usize, extents: [usize; 2], objective: Objective, chunk: [usize; 2]) -> Self {
        let graph = Graph::builtin(name).expect("built in");
        let shapes = infer(&graph, batch, &[extents]).expect("fits");
        let bytes = Bytes::new(shapes.all()[0], chunk);
        Self { graph, shapes, objective, bytes, backend: CpuBackend::new().expect("an instruction set") }
    }

    fn plan(&self, options: &PlanOptions) -> Result<Plan, PlanError> {
        Planner::<f32>::new(&self.graph, &self.shapes, &self.objective, &self.backend).plan(options)
    }

    fn chunked(&self, options: PlanOptions) -> PlanOptions {
        PlanOptions { chunks: vec![(SourceRole::Input(0), self.bytes.chunks())], ..options }
    }

    /// Outputs and gradients of the inputs.
    fn run(&self, plan: Plan, source: &dyn Source<f32>) -> Result<Vec<Vec<f32>>, ExecError> {
        self.run_watched(plan, source, &NoProgress)
    }

    fn run_watched(
        &self,
        plan: Plan,
        source: &dyn Source<f32>,
        progress: &dyn Progress,
    ) -> Result<Vec<Vec<f32>>, ExecError> {
        let output_shape = self.shapes.shape(self.graph.outputs()[0]);
        let output = MemorySink::new(output_shape)?;
        let grad_input = MemorySink::new(self.bytes.shape)?;
        let target = vec![0.5_f32; output_shape.iter().product()];
        let target = tiled::exec::MemorySource::new(&target, output_shape)?;
        let io = Io {
            inputs: vec![source],
            target: Some(&target),
            outputs: vec![&output as &dyn Sink<f32>],
            grad_inputs: if self.objective.grad_inputs {
                vec![&grad_input as &dyn Sink<f32>]
            } else {
                Vec::new()
            },
            ..Io::default()
        };
        let mut parameters = initialise(&params(&self.graph), 3);
        Executor::new(plan, &self.backend, 2)?.run(&mut parameters, &io, progress)?;
        drop(io);
        let mut results = vec![output.into_tensor().data().to_vec()];
        if self.objective.grad_inputs {
            results.push(grad_input.into_tensor().data().to_vec());
        }
        Ok(results)
    }

    /// Runs a plan with chunks and one without, and gives the reads that were stated, those of each chunk once, and those that were.
    fn check(&self, options: PlanOptions, name: &str) -> [u64; 3] {
        let plan = self.plan(&self.chunked(options.clone())).expect("plans");
        if let Some(budget) = options.memory_bytes {
            assert!(plan.peak_bytes() <= budget, "{name}: {} of {budget} bytes", plan.peak_bytes());
        }
        let [stated, once] = plan.chunk_reads();
        let sweeps = plan.sweeps.iter().filter(|sweep| !sweep.chunks.is_empty()).count() as u64;
        let text =
            format!("{name} {:?} {} of {once} in {:?}", plan.sweeps[0].grid.counts(), stated, plan.memory);
        let held: u64 =
            plan.sweeps.iter().flat_map(|sweep| &sweep.chunks).map(|c| c.slots as u64).max().unwrap_or(0);
        let bytes = self.bytes.chunks().chunk_bytes(self.bytes.shape[0], self.bytes.shape[1]).expect("small");
        assert!(plan.memory.chunks_bytes >= held * bytes, "{text}");
        let results = self.run(plan, &self.bytes.in_chunks()).expect("runs");
        let (reads, chunks, most) = self.bytes.take_reads();
        assert!(reads <= stated, "{text}: {reads} reads");
        assert_eq!(chunks * sweeps, once, "{text}: chunks");
        if stated == once {
            assert_eq!((reads, most), (once, sweeps), "{text}: a chunk was read again");
        }
        let in_memory = self.plan(&PlanOptions { memory_bytes: Some(UNLIMITED), ..options }).expect("plans");
        let expected = self.run(in_memory, &self.bytes.in_memory()).expect("runs");
        for (a, b) in results.iter().zip(&expected) {
            assert_eq!(differing(a, b), 0, "{text}");
        }
        [stated, once, reads]
    }

    /// The smallest budget that works.
    fn smallest(&self) -> u64 {
        match self.plan(&self.chunked(of_memory(1))) {
            Err(PlanError::BudgetTooSmall { smallest, .. }) => smallest,
            other => panic!("one byte does: {other:?}"),
        }
    }
}

fn of_memory(bytes: u64) -> PlanOptions {
    PlanOptions { memory_bytes: Some(bytes), parallelism: 2, ..PlanOptions::default() }
}

#[test]
fn each_chunk_is_read_once_where_memory_allows_and_no_more_than_stated_elsewhere() {
    for (name, extents) in
        [("light", [700, 1100]), ("seed-002", [1111, 513]), ("vgg2", [270, 530]), ("seed-001", [300, 2100])]
    {
        let bed = Bed::new(name, 1, extents, Objective::inference(), [256, 256]);
        let smallest = bed.smallest();
        let [stated, once, _] = bed.check(of_memory(UNLIMITED), name);
        assert_eq!(stated, once, "{name} in any memory");
        let row = extents[1].div_ceil(256) as u64
            * bed.bytes.chunks().chunk_bytes(1, bed.bytes.shape[1]).expect("small");
        // what windows of whole rows take, and a row of chunks
        let slide =
            PlanOptions { hold: Hold::Slide, tiling: Tiling::Tile([1, i64::MAX]), ..of_memory(UNLIMITED) };
        let whole_rows = bed.plan(&slide).expect("plans").peak_bytes();
        let [stated, once, _] = bed.check(of_memory(whole_rows + 2 * row), &format!("{name} with a row"));
        assert_eq!(stated, once, "{name} in {} bytes", whole_rows + 2 * row);
        for budget in [smallest, smallest + smallest / 8, 2 * smallest] {
            bed.check(of_memory(budget), &format!("{name} in {budget}"));
        }
    }
}

#[test]
fn tiles_and_lanes_share_their_chunks() {
    let bed = Bed::new("light", 2, [150, 230], Objective::inference(), [32, 48]);
    for (hold, grid) in [
        (Hold::Slide, [1, 1]),
        (Hold::Slide, [1, 5]),
        (Hold::Recompute, [3, 1]),
        (Hold::Recompute, [3, 4]),
        (Hold::Recompute, [11, 17]),
        (Hold::Materialise, [1, 1]),
    ] {
        for lanes in [None, Some(1), Some(2), Some(3)] {
            let tiling = Tiling::Grid(grid);
            let options = PlanOptions { hold, tiling, lanes, band: Some(4), ..of_memory(UNLIMITED) };
            let [stated, once, _] = bed.check(options.clone(), &format!("{hold:?} {grid:?} {lanes:?}"));
            assert_eq!(stated, once, "{hold:?} {grid:?} {lanes:?}");
            // one byte less than that: chunks between tiles are read again
            let plan = bed.plan(&bed.chunked(options.clone())).expect("plans");
            let less = PlanOptions { memory_bytes: Some(plan.peak_bytes() - 1), ..options };
            match bed.plan(&bed.chunked(less.clone())) {
                Ok(plan) => {
                    let [stated, once] = plan.chunk_reads();
                    // where the planner may, it runs fewer lanes
                    assert!(stated > once || lanes.is_none(), "{hold:?} {grid:?} {lanes:?}");
                    bed.check(less, &format!("less {hold:?} {grid:?} {lanes:?}"));
                }
                Err(PlanError::BudgetTooSmall { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn each_sweep_of_a_training_step_reads_its_chunks_once() {
    let objective =
        Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) };
    for name in ["light", "unet"] {
        let bed = Bed::new(name, 2, [96, 160], objective.clone(), [32, 32]);
        let [stated, once, _] = bed.check(of_memory(UNLIMITED), name);
        assert_eq!(stated, once, "{name}");
        let smallest = bed.smallest();
        bed.check(of_memory(smallest), &format!("{name} in {smallest} bytes"));
    }
}

#[test]
fn strips_are_cut_where_few_chunks_lie_on_both_sides() {
    let bed = Bed::new("light", 1, [64, 16384], Objective::inference(), [64, 64]);
    let in_strips =
        |count| PlanOptions { tiling: Tiling::Grid([1, count]), hold: Hold::Slide, ..of_memory(UNLIMITED) };
    // less than what eight strips take that keep no chunks
    let without = bed.plan(&in_strips(8)).expect("plans").peak_bytes();
    let plan = bed.plan(&bed.chunked(of_memory(without))).expect("plans");
    let [_, strips] = plan.sweeps[0].grid.counts();
    let [stated, once] = plan.chunk_reads();
    assert!(strips > 4 && strips < 100, "{strips} strips");
    // one column of chunks for each cut
    assert!(stated < once + strips as u64, "{stated} of {once} in {strips} strips");
}

#[test]
fn every_element_type_has_the_bits_of_its_numbers_in_memory() {
    fn check<S: Stored>(element: ElementType) {
        let (shape, chunk) = ([2, 3, 37, 50], [16, 12]);
        let byte = |i: usize| u8::try_from(i % 251).expect("a byte");
        let bytes = |i: usize| [byte(i * 29), 3, byte(i % 7), 60, 1, 2, 180, 63];
        let data: Vec<S> =
            (0..shape.iter().product()).map(|i| S::from_le(&bytes(i)[8 - size_of::<S>()..])).collect();
        let to =
            Normalization { scale: 0.5, mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] };
        let graph = Graph::builtin("light").expect("built in");
        let shapes = infer(&graph, 2, &[[37, 50]]).expect("fits");
        let backend = CpuBackend::new().expect("an instruction set");
        for numbers in [Numbers::Scaled, Numbers::AsIs] {
            let in_memory = StoredSource::new(&data, shape).expect("long enough").with_numbers(numbers);
            let read = |at, to: &mut [S]| {
                copy_chunk(&data, shape, chunk, at, to);
                Ok(())
            };
            let in_chunks =
                ChunkedSource::new("x", shape, chunk, read).expect("chunks").with_numbers(numbers);
            let in_memory = NormalizedSource::<f32, _>::new("x", in_memory, &to).expect("factors");
            let in_chunks = NormalizedSource::<f32, _>::new("x", in_chunks, &to).expect("factors");
            let run = |source: &dyn Source<f32>, options: PlanOptions| {
                let plan =
                    Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &backend).plan(&options);
                let sink = MemorySink::new(shapes.shape(graph.outputs()[0])).expect("small");
                let io = Io { inputs: vec![source], outputs: vec![&sink], ..Io::default() };
                let mut executor = Executor::new(plan.expect("plans"), &backend, 2).expect("starts");
                executor.run(&mut initialise(&params(&graph), 3), &io, &NoProgress).expect("runs");
                drop(io);
                sink.into_tensor().data().to_vec()
            };
            let chunks = Chunks::new(chunk, size_of::<S>()).expect("not empty");
            let options = PlanOptions { parallelism: 2, ..PlanOptions::default() };
            let with_chunks = PlanOptions { chunks: vec![(SourceRole::Input(0), chunks)], ..options.clone() };
            let expected = run(&in_memory, options.clone());
            assert_eq!(differing(&run(&in_chunks, with_chunks), &expected), 0, "{element:?} {numbers:?}");
            // a plan that knows of no chunks has no more than its buffers for the source
            assert_eq!(differing(&run(&in_chunks, options), &expected), 0, "{element:?} {numbers:?}");
        }
    }
    use ElementType::{Bf16, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    for element in [U8, I8, U16, I16, U32, I32, U64, I64, F16, Bf16, F32, F64] {
        with_stored!(element, S => check::<S>(element));
    }
}

#[test]
fn a_chunk_that_cannot_be_read_ends_the_run_and_another_may_follow() {
    for (grid, lanes) in [([1, 1], 1), ([3, 2], 2), ([4, 1], 2)] {
        let bed = Bed::new("light", 1, [128, 160], Objective::inference(), [32, 32]);
        let options = PlanOptions {
            hold: Hold::Recompute,
            tiling: Tiling::Grid(grid),
            lanes: Some(lanes),
            ..of_memory(UNLIMITED)
        };
        for fails in [1, 2, 9, 20] {
            bed.bytes.fails.store(fails, Ordering::Relaxed);
            let plan = bed.plan(&bed.chunked(options.clone())).expect("plans");
            match bed.run(plan, &bed.bytes.in_chunks()) {
                Err(ExecError::Io(IoError::Read { .. })) => {}
                other => panic!("{grid:?}, read {fails}: {:?}", other.map(|_| ())),
            }
            bed.bytes.take_reads();
        }
        bed.bytes.fails.store(usize::MAX, Ordering::Relaxed);
        bed.check(options, "after an error");
    }
}

#[test]
fn a_run_that_is_cancelled_ends() {
    struct AfterSteps(AtomicUsize);
    impl Progress for AfterSteps {
        fn step(&self, _: u64, _: u64, _: &str) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn is_cancelled(&self) -> bool {
            self.0.load(Ordering::Relaxed) > 2
        }
    }
    let bed = Bed::new("light", 1, [128, 160], Objective::inference(), [32, 32]);
    let options = PlanOptions { hold: Hold::Recompute, tiling: Tiling::Grid([4, 4]), ..of_memory(UNLIMITED) };
    let plan = bed.plan(&bed.chunked(options)).expect("plans");
    let result = bed.run_watched(plan, &bed.bytes.in_chunks(), &AfterSteps(AtomicUsize::new(0)));
    assert!(matches!(result, Err(ExecError::Cancelled)));
}

#[test]
fn another_source_than_the_plan_has_chunks_for_is_refused() {
    let bed = Bed::new("light", 1, [128, 160], Objective::inference(), [32, 32]);
    let plan = || bed.plan(&bed.chunked(of_memory(UNLIMITED))).expect("plans");
    let error = bed.run(plan(), &bed.bytes.in_memory()).expect_err("no chunks");
    let text = error.to_string();
    assert!(
        text.ends_with("is read in no chunks, the plan has memory for chunks of 32×32 elements of 1 bytes"),
        "{text}"
    );
    let other = Bytes::new(bed.bytes.shape, [32, 16]);
    let error = bed.run(plan(), &other.in_chunks()).expect_err("other chunks");
    assert!(error.to_string().contains("is read in chunks of 32×16 elements of 1 bytes"), "{error}");
    // a chunk that the plan knows nothing of is more than its buffers hold
    let large = Bytes::new(bed.bytes.shape, [512, 512]);
    let error = bed.run(bed.plan(&of_memory(UNLIMITED)).expect("plans"), &large.in_chunks());
    assert!(matches!(error, Err(ExecError::Transfer { .. })));
}
