//! Sweeps with tilings of their own: the bits of the untiled run, whoever runs them.

use tiled::cpu::CpuBackend;
use tiled::exec::{Executor, NoProgress};
use tiled::graph::{Activation, Conv2d, Graph, Hold, InMemory, Objective, Op, Plan, PlanOptions, ValueId};
use tiled::kernel::{Backend, Costs, Load, Support, Task, forward};
use tiled::tensor::Tensor;
use tiled_tests::Job;

/// A CPU with caches so small, and threads so far apart, that early layers of small images are worth lanes of their own.
#[derive(Debug)]
struct SmallCaches {
    backend: CpuBackend,
    /// Bytes a second that each thread writes for all.
    exchanged: f64,
}

impl Backend<f32> for SmallCaches {
    forward!(f32, |small| &small.backend; name block support transfers_beside workers open);

    fn seconds(&self, task: Task<'_>, load: &Load) -> f64 {
        let costs = Costs {
            core_cache_bytes: 16_384.0,
            cache_bytes: 262_144.0,
            exchanged: self.exchanged,
            shared_call: 1e-7,
            ..Costs::default()
        };
        match task {
            // as fast whatever the instruction set
            Task::Work(work, support) => {
                let flops_per_second = support.flops_per_second.map(|_| 150e9);
                costs.seconds(Task::Work(work, &Support { flops_per_second, ..*support }), load)
            }
            other => costs.seconds(other, load),
        }
    }
}

/// Blocks as in MobileNet: a layer that widens, one for each channel, one that narrows, and a sum where the sizes fit; means of some as gates.
fn mobile(gates: bool) -> Graph {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 3).expect("an input");
    let mut add =
        |name: String, op: Op, inputs: &[ValueId]| graph.add_node(&name, op, inputs).expect("a node");
    let conv = |channels: usize, kernel: i64, stride: i64, groups: usize| {
        let conv = Conv2d::new(channels, [kernel, kernel]).padded([kernel / 2, kernel / 2]);
        Op::Conv2d(Conv2d { stride: [stride, stride], groups, ..conv })
    };
    let mut last = add("stem".into(), conv(16, 3, 2, 1), &[x]);
    for (block, (inner, channels, stride)) in
        [(48, 16, 1), (64, 24, 2), (72, 24, 1), (96, 40, 2), (160, 40, 1), (160, 64, 2), (256, 64, 1)]
            .into_iter()
            .enumerate()
    {
        let name = |part: &str| format!("{part}{block}");
        let mut y = add(name("widen"), conv(inner, 1, 1, 1), &[last]);
        y = add(name("relu"), Op::Activation(Activation::Relu), &[y]);
        y = add(name("each"), conv(inner, 3, stride, inner), &[y]);
        if gates && block % 3 == 1 {
            let mean = add(name("mean"), Op::GlobalAvgPool, &[y]);
            y = add(name("gate"), Op::Mul, &[y, mean]);
        }
        y = add(name("narrow"), conv(channels, 1, 1, 1), &[y]);
        last = if stride == 1 && block > 0 { add(name("sum"), Op::Add, &[y, last]) } else { y };
    }
    graph.set_outputs(&[last]).expect("an output");
    graph
}

fn bits(tensors: &[Tensor<f32>]) -> Vec<u32> {
    tensors.iter().flat_map(Tensor::data).map(|value| value.to_bits()).collect()
}

/// The lanes of all sweeps, without repetitions.
fn lanes(plan: &Plan) -> Vec<usize> {
    let mut lanes: Vec<usize> = plan.sweeps.iter().map(|sweep| sweep.lanes).collect();
    lanes.dedup();
    lanes
}

#[test]
fn they_give_the_bits_of_the_untiled_run_on_any_number_of_threads() {
    let backend = CpuBackend::new().expect("an instruction set");
    for (gates, batch, extents) in [(false, 1, [259, 302]), (false, 2, [130, 515]), (true, 1, [259, 302])] {
        let job = Job::<f32>::random(mobile(gates), batch, extents, Objective::inference(), 5);
        let whole = PlanOptions { hold: Hold::Materialise, ..PlanOptions::default() };
        let expected = bits(&job.run(&backend, job.plan(&backend, &whole), 1, &NoProgress).outputs);
        let (mut cuts, mut mixed) = (0, 0);
        for (parallelism, exchanged) in [(1, 1e12), (2, 1.5e10), (2, 1e10), (2, 5e9), (3, 7e9), (3, 3e9)] {
            let small = SmallCaches { backend, exchanged };
            // tensors of the caller are read and written where they lie in every other case
            let in_memory = if exchanged == 1e10 { InMemory::ALL } else { InMemory::default() };
            let plan = job.plan(&small, &PlanOptions { parallelism, in_memory, ..PlanOptions::default() });
            let label =
                format!("{extents:?}, gates: {gates}, for {parallelism} threads, lanes {:?}", lanes(&plan));
            cuts += plan.program.cuts.len();
            mixed += usize::from(lanes(&plan).len() > 1);
            assert!(plan.in_flight() <= parallelism && plan.lanes() <= parallelism, "{label}");
            assert_eq!(plan.memory.windows_bytes, 4 * plan.window_elements() as u64, "{label}");
            for threads in [1, 2, 3] {
                let mut executor = Executor::new(plan.clone(), &small, threads).expect("starts");
                for run in 0..2 {
                    let done = job.attempt(&mut executor, &NoProgress).expect("runs");
                    assert!(bits(&done.outputs) == expected, "{label}: {threads} threads, run {run}");
                }
            }
        }
        assert!(
            cuts > 0 && mixed > 0,
            "{extents:?}, gates: {gates}: {cuts} cuts, {mixed} plans of several kinds"
        );
    }
}
