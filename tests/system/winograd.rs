//! Winograd's filtering: the same bits for every plan, and near the sums.

use tiled::cpu::CpuBackend;
use tiled::exec::NoProgress;
use tiled::graph::{
    Activation, Conv2d, ConvTranspose2d, Graph, Hold, Loss, MaxPool2d, Objective, Op, PlanOptions, Tiling,
    ValueId,
};
use tiled::kernel::{Algorithm, Kernel};
use tiled::tensor::Tensor;
use tiled_tests::{Done, Job};

/// Convolutions that suit it and some that do not, at sizes that the grid of 4×4 does not divide.
fn network() -> Graph {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 5).expect("new");
    let conv = |outputs: usize, kernel: i64, pad: i64| {
        Op::Conv2d(Conv2d::new(outputs, [kernel; 2]).padded([pad; 2]))
    };
    let mut add = |name: &str, op: Op, from: &[ValueId]| graph.add_node(name, op, from).expect("fits");
    let a = add("a", conv(16, 3, 1), &[x]);
    let a = add("a_relu", Op::Activation(Activation::Relu), &[a]);
    let b = add("b", conv(33, 3, 1), &[a]);
    let b = add("b_relu", Op::Activation(Activation::Relu), &[b]);
    let c = add("c", conv(33, 3, 0), &[b]);
    let p = add("p", Op::MaxPool2d(MaxPool2d::new([2, 2])), &[c]);
    let d = add("d", conv(16, 3, 2), &[p]);
    let e = add("e", conv(16, 3, 1), &[d]);
    // taps three apart, whose tiles are cells of twelve
    let apart = Conv2d { dilation: [3, 3], ..Conv2d::new(16, [3, 3]).padded([3, 3]) };
    let h = add("h", Op::Conv2d(apart), &[e]);
    let h = add("h_gelu", Op::Activation(Activation::Gelu), &[h]);
    let f = add("f", Op::Add, &[d, h]);
    let g = add("g", conv(17, 5, 2), &[f]);
    graph.set_outputs(&[g, e]).expect("known");
    graph
}

fn run(job: &Job<f32>, options: &PlanOptions, threads: usize) -> Done<f32> {
    let backend = CpuBackend::new().expect("an instruction set");
    let plan = job.plan(&backend, options);
    assert_eq!(plan.memory.scratch_bytes > 0, options.winograd, "scratch memory is promised");
    job.run(&backend, plan, threads, &NoProgress)
}

fn job(extents: [usize; 2]) -> Job<f32> {
    let objective = Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::Sum) };
    Job::random(network(), 2, extents, objective, 3)
}

fn winograd() -> PlanOptions {
    PlanOptions { winograd: true, ..PlanOptions::default() }
}

fn bits(tensors: &[Tensor<f32>]) -> Vec<u32> {
    tensors.iter().flat_map(Tensor::data).map(|value| value.to_bits()).collect()
}

#[test]
fn every_plan_gives_the_bits_of_the_untiled_run() {
    for extents in [[37, 50], [21, 19], [7, 66]] {
        let job = job(extents);
        let whole = run(&job, &PlanOptions { hold: Hold::Materialise, ..winograd() }, 1);
        for (hold, tiling, lanes, threads) in [
            (Hold::Materialise, Tiling::Auto, None, 3),
            (Hold::Slide, Tiling::Tile([1, 100]), None, 1),
            (Hold::Slide, Tiling::Tile([3, 7]), Some(2), 2),
            (Hold::Slide, Tiling::Tile([6, 100]), None, 2),
            (Hold::Recompute, Tiling::Tile([5, 6]), Some(2), 2),
            (Hold::Recompute, Tiling::Tile([1, 1]), None, 1),
            (Hold::Recompute, Tiling::Grid([3, 2]), None, 2),
            (Hold::Auto, Tiling::Auto, None, 2),
        ] {
            let options = PlanOptions { hold, tiling, lanes, parallelism: threads, ..winograd() };
            let tiled = run(&job, &options, threads);
            assert!(bits(&tiled.outputs) == bits(&whole.outputs), "{extents:?}, {options:?}");
            assert!(bits(&tiled.grad_inputs) == bits(&whole.grad_inputs), "{extents:?}, {options:?}");
            let numbers =
                |done: &Done<f32>| done.gradients.iter().flatten().flatten().copied().collect::<Vec<f32>>();
            for (a, b) in numbers(&tiled).into_iter().zip(numbers(&whole)) {
                assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{extents:?}, {options:?}: {a} {b}");
            }
        }
    }
}

#[test]
fn outputs_are_near_the_sums_but_not_the_same() {
    let job = job([37, 50]);
    let sums = run(&job, &PlanOptions::default(), 1).outputs;
    let filtered = run(&job, &winograd(), 1).outputs;
    assert!(bits(&sums) != bits(&filtered));
    let numbers =
        |tensors: &[Tensor<f32>]| tensors.iter().flat_map(Tensor::data).copied().collect::<Vec<f32>>();
    let (sums, filtered) = (numbers(&sums), numbers(&filtered));
    let largest = sums.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    for (a, b) in sums.into_iter().zip(filtered) {
        assert!((a - b).abs() <= 1e-5 * largest, "{a} {b}");
    }
}

#[test]
fn taps_as_far_apart_along_both_axes_are_filtered_and_others_are_not() {
    let filtered = |(dilation, extents): ([i64; 2], [usize; 2])| {
        let mut graph = Graph::new();
        let x = graph.add_input("x", 16).expect("new");
        let conv = Conv2d { dilation, ..Conv2d::new(16, [3, 3]).padded(dilation) };
        let y = graph.add_node("c", Op::Conv2d(conv), &[x]).expect("fits");
        graph.set_outputs(&[y]).expect("known");
        let job = Job::<f32>::random(graph, 1, extents, Objective::inference(), 3);
        let plan = job.plan(&CpuBackend::new().expect("an instruction set"), &winograd());
        plan.program
            .nodes
            .iter()
            .any(|node| matches!(node.kernel(), Some(Kernel::Conv2d { algorithm: Algorithm::Winograd, .. })))
    };
    for (dilation, extents, expected) in [
        ([1, 1], [40, 40], true),
        ([2, 2], [40, 40], true),
        ([9, 9], [36, 70], true),
        ([1, 2], [40, 40], false),
        ([2, 1], [40, 40], false),
        // more products than the sums have: cells of 144 of which 40 rows are outputs
        ([36, 36], [40, 40], false),
        ([100_000, 100_000], [40, 40], false),
    ] {
        assert_eq!(filtered((dilation, extents)), expected, "{dilation:?} over {extents:?}");
    }
}

#[test]
fn kernels_of_gradients_stay_sums() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 16).expect("new");
    let up = Op::ConvTranspose2d(ConvTranspose2d::new(16, [3, 3]));
    let y = graph.add_node("up", up, &[x]).expect("fits");
    let y = graph.add_node("c", Op::Conv2d(Conv2d::new(16, [3, 3])), &[y]).expect("fits");
    graph.set_outputs(&[y]).expect("known");
    let objective = Objective { grad_inputs: true, ..Objective::training(Loss::Sum) };
    let job = Job::<f32>::random(graph, 1, [12, 12], objective, 3);
    let plan = job.plan(&CpuBackend::new().expect("an instruction set"), &winograd());
    let filtered: Vec<&str> = plan
        .program
        .nodes
        .iter()
        .filter(|node| matches!(node.kernel(), Some(Kernel::Conv2d { algorithm: Algorithm::Winograd, .. })))
        .map(|node| node.name.as_str())
        .collect();
    assert_eq!(filtered, ["c"]);
}
