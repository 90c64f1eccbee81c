//! NaN and infinities: tiled equals untiled in every bit, signs of NaN too, on every instruction set.

use tiled::cpu::{CpuBackend, Isa};
use tiled::exec::NoProgress;
use tiled::graph::{Graph, Hold, Loss, Mode, Objective, PlanOptions, Tiling};
use tiled::tensor::{Element, Tensor};
use tiled_tests::{Job, differing, whole};

/// Every family of kernels: convolutions of many and few channels, strided, dilated, grouped and depthwise, transposed;
/// poolings, activations, norms, softmax, resizing, sums and products.
const NETWORKS: [(&str, &str); 5] = [
    (
        "convolutions",
        r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 20, "kernel_size": 3, "padding": 1},
            {"name": "c2", "op": "conv2d", "inputs": ["c1"], "out_channels": 17, "kernel_size": 3, "padding": 2, "dilation": 2},
            {"name": "c3", "op": "conv2d", "inputs": ["c1"], "out_channels": 20, "kernel_size": 5, "padding": 2, "groups": 20},
            {"name": "c4", "op": "conv2d", "inputs": ["c2"], "out_channels": 2, "kernel_size": 1},
            {"name": "c5", "op": "conv2d", "inputs": ["c3"], "out_channels": 8, "kernel_size": 3, "stride": 2, "groups": 4},
            {"name": "t1", "op": "conv_transpose2d", "inputs": ["c5"], "out_channels": 3, "kernel_size": 3, "stride": 2}],
  "outputs": ["c4", "t1"]}"#,
    ),
    (
        "poolings",
        r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 16, "kernel_size": 1},
            {"name": "m1", "op": "max_pool2d", "inputs": ["c1"], "kernel_size": 3, "stride": 1, "padding": 1},
            {"name": "a1", "op": "avg_pool2d", "inputs": ["m1"], "kernel_size": 3, "stride": 2, "padding": 1},
            {"name": "a2", "op": "avg_pool2d", "inputs": ["x"], "kernel_size": 2},
            {"name": "u1", "op": "upsample", "inputs": ["a1"], "mode": "bilinear", "scale_factor": 2}],
  "outputs": ["u1", "a2"]}"#,
    ),
    (
        "activations",
        r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "r", "op": "relu", "inputs": ["x"]},
            {"name": "l", "op": "leaky_relu", "inputs": ["x"], "negative_slope": 0.1},
            {"name": "s", "op": "sigmoid", "inputs": ["l"]},
            {"name": "t", "op": "tanh", "inputs": ["x"]},
            {"name": "g", "op": "gelu", "inputs": ["x"]},
            {"name": "e", "op": "add", "inputs": ["r", "g"]},
            {"name": "f", "op": "mul", "inputs": ["t", "l"]},
            {"name": "h", "op": "add", "inputs": ["e", "f"]}],
  "outputs": ["h", "s"]}"#,
    ),
    (
        "norms",
        r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 6, "kernel_size": 3, "padding": 1},
            {"name": "n1", "op": "batch_norm", "inputs": ["c1"]},
            {"name": "c2", "op": "conv2d", "inputs": ["n1"], "out_channels": 6, "kernel_size": 3, "padding": 1},
            {"name": "h", "op": "add", "inputs": ["c1", "c2"]}],
  "outputs": ["h"]}"#,
    ),
    (
        "norms of images and pixels",
        r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 6, "kernel_size": 3, "padding": 1},
            {"name": "n1", "op": "instance_norm", "inputs": ["c1"], "affine": true},
            {"name": "l1", "op": "layer_norm", "inputs": ["c1"]},
            {"name": "l2", "op": "local_response_norm", "inputs": ["l1"], "size": 3},
            {"name": "s1", "op": "softmax", "inputs": ["l2"]},
            {"name": "s2", "op": "log_softmax", "inputs": ["c1"]},
            {"name": "r1", "op": "rms_norm", "inputs": ["s2"]},
            {"name": "n2", "op": "group_norm", "inputs": ["x"], "num_groups": 1},
            {"name": "h", "op": "add", "inputs": ["n1", "s1", "r1"]}],
  "outputs": ["h", "n2"]}"#,
    ),
];

/// One in some elements of every tensor is NaN of either sign or an infinity.
fn spoil<T: Element>(tensor: &mut Tensor<T>, seed: usize) {
    let nan = T::from_f64(f64::NAN);
    let infinity = T::ZERO - T::NEG_INFINITY;
    let special = [nan, -nan, infinity, T::NEG_INFINITY, -nan, nan, infinity];
    for (place, value) in tensor.data_mut().iter_mut().enumerate() {
        let drawn = (place + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        if drawn.is_multiple_of(29) {
            *value = special[drawn / 29 % special.len()];
        }
    }
}

fn check<T: Element>(isa: Isa, name: &str, text: &str, objective: Objective) {
    let Ok(backend) = CpuBackend::with_isa(isa) else {
        eprintln!("skipped: this CPU has no {isa}");
        return;
    };
    let graph = Graph::from_json(text).expect("a network");
    let mut job = Job::<T>::random(graph, 1, [37, 43], objective, 3);
    let tensors = job.inputs.iter_mut().chain([&mut job.target]).chain(&mut job.grad_outputs);
    tensors.enumerate().for_each(|(seed, tensor)| spoil(tensor, seed));
    let untiled = job.run(&backend, job.plan(&backend, &whole()), 2, &NoProgress);
    let has_nan = untiled.outputs.iter().flat_map(Tensor::data).any(|value| value.is_nan());
    assert!(has_nan, "{name}: no NaN to compare");
    for (hold, tiling) in [
        (Hold::Slide, Tiling::Tile([1, 7])),
        (Hold::Slide, Tiling::Tile([3, 64])),
        (Hold::Recompute, Tiling::Tile([5, 6])),
        (Hold::Recompute, Tiling::Tile([9, 11])),
        (Hold::Recompute, Tiling::Grid([2, 2])),
    ] {
        let options = PlanOptions { hold, tiling, parallelism: 2, ..PlanOptions::default() };
        let tiled = job.run(&backend, job.plan(&backend, &options), 2, &NoProgress);
        let label = format!("{isa} {} {name} {hold:?} {tiling:?} {:?}", T::DTYPE.name(), job.objective);
        assert!(tiled.tiles > 1, "{label}: one tile");
        for (a, b) in untiled.outputs.iter().zip(&tiled.outputs) {
            assert_eq!(differing(a.data(), b.data()), 0, "{label}: output");
        }
        for (a, b) in untiled.grad_inputs.iter().zip(&tiled.grad_inputs) {
            assert_eq!(differing(a.data(), b.data()), 0, "{label}: input gradient");
        }
        assert_eq!(untiled.loss.map(f64::to_bits), tiled.loss.map(f64::to_bits), "{label}: loss");
    }
}

fn check_all(isa: Isa) {
    for (name, text) in NETWORKS {
        for objective in [
            Objective { mode: Mode::Eval, ..Objective::inference() },
            Objective { outputs: true, grad_inputs: true, ..Objective::gradients() },
            Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) },
            Objective { mode: Mode::Eval, outputs: true, grad_inputs: true, ..Objective::gradients() },
        ] {
            check::<f32>(isa, name, text, objective.clone());
            check::<f64>(isa, name, text, objective);
        }
    }
}

#[test]
fn r15_signs_of_nan_do_not_depend_on_tiles_in_portable_code() {
    check_all(Isa::Portable);
}

#[test]
fn r15_signs_of_nan_do_not_depend_on_tiles_on_avx2() {
    check_all(Isa::Avx2);
}

#[test]
fn r15_signs_of_nan_do_not_depend_on_tiles_on_avx512() {
    check_all(Isa::Avx512);
}
