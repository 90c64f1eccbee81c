//! What follows a convolution is carried out with it, and the bits stay.

use tiled::cpu::{CpuBackend, Isa};
use tiled::exec::NoProgress;
use tiled::graph::program::NodeKind;
use tiled::graph::{Action, Graph, Hold, Loss, Mode, Objective, Plan, PlanOptions, Tiling, ValueId};
use tiled::kernel::{Backend, Epilogue, Operands, Support, Work, forward};
use tiled::tensor::Tensor;
use tiled_tests::Job;

/// The CPU backend without epilogues that have operands.
#[derive(Debug)]
struct Apart(CpuBackend);

impl Backend<f32> for Apart {
    forward!(f32, |apart| &apart.0; name block seconds transfers_beside workers open);

    fn support(&self, work: &Work, operands: &Operands<'_>) -> Option<Support> {
        match work {
            Work::Map(kernel) if kernel.epilogue().is_some_and(Epilogue::has_operands) => None,
            _ => Backend::<f32>::support(&self.0, work, operands),
        }
    }
}

/// The kernels that a plan runs, by whether a convolution has something that follows: affine, a sum, ReLU, the mask of one.
fn fused(plan: &Plan) -> Vec<[bool; 4]> {
    let running = plan.sweeps.iter().flat_map(|sweep| &sweep.nodes);
    let running = running.filter(|node| node.action == Action::Compute);
    let kinds = running.map(|node| &plan.program.nodes[node.node].kind);
    let epilogues = kinds.filter_map(|kind| match kind {
        NodeKind::Compute(kernel) => kernel.epilogue().filter(|epilogue| epilogue.has_operands()),
        _ => None,
    });
    epilogues.map(|of| [of.affine, of.sum, of.activation.is_some(), of.mask.is_some()]).collect()
}

fn bits(tensors: &[Tensor<f32>]) -> Vec<u32> {
    tensors.iter().flat_map(Tensor::data).map(|value| value.to_bits()).collect()
}

#[test]
fn batch_norm_sums_and_relu_are_carried_out_with_the_convolution() {
    let backend = CpuBackend::new().expect("an instruction set");
    if backend.isa() == Isa::Portable {
        return; // its multiply-add rounds twice
    }
    let graph = Graph::builtin("resnet18").expect("built in");
    let mut job = Job::<f32>::random(graph, 2, [75, 98], Objective::inference(), 4);
    // statistics and scales that a mistake would show with
    for (name, values) in job.parameters.iter_mut() {
        let is_variance = name.ends_with("running_var");
        for (place, value) in values.iter_mut().enumerate().filter(|_| name.contains("bn") || is_variance) {
            *value +=
                if is_variance { 0.5 } else { 0.01 } * f32::from(u8::try_from(place % 7).expect("small"));
        }
    }
    for winograd in [false, true] {
        let options = |hold, tiling| PlanOptions { hold, tiling, winograd, ..PlanOptions::default() };
        let apart = Apart(backend);
        let plan = job.plan(&apart, &options(Hold::Materialise, Tiling::Auto));
        assert!(fused(&plan).is_empty());
        let expected = bits(&job.run(&apart, plan, 1, &NoProgress).outputs);
        for (hold, tiling) in [
            (Hold::Materialise, Tiling::Auto),
            (Hold::Slide, Tiling::Tile([1, 2])),
            (Hold::Recompute, Tiling::Grid([2, 2])),
            (Hold::Auto, Tiling::Auto),
        ] {
            let plan = job.plan(&backend, &options(hold, tiling));
            let fused = fused(&plan);
            // the first of each block, the second with the sum, three shortcuts, the stem
            let count = |kind: [bool; 4]| fused.iter().filter(|found| **found == kind).count();
            assert_eq!(count([true, false, true, false]), 9, "{fused:?}");
            assert_eq!(count([true, true, true, false]), 8, "{fused:?}");
            assert_eq!(count([true, false, false, false]), 3, "{fused:?}");
            assert!(
                bits(&job.run(&backend, plan, 2, &NoProgress).outputs) == expected,
                "{hold:?} {tiling:?}"
            );
        }
    }
}

/// Gradients are added and masked where they are summed; what they read of the forward pass stays apart.
#[test]
fn sums_and_masks_of_gradients_are_carried_out_with_the_convolution() {
    let backend = CpuBackend::new().expect("an instruction set");
    let apart = Apart(backend);
    for (name, extents, sums, masks) in [("resnet18", [50, 66], 6, 8), ("light", [40, 36], 0, 2)] {
        let graph = Graph::builtin(name).expect("built in");
        let job = Job::<f32>::random(graph, 2, extents, Objective::training(Loss::Sum), 4);
        for (hold, tiling) in [
            (Hold::Materialise, Tiling::Auto),
            (Hold::Slide, Tiling::Tile([2, 1])),
            (Hold::Recompute, Tiling::Grid([2, 2])),
        ] {
            let options = PlanOptions { hold, tiling, lanes: Some(2), ..PlanOptions::default() };
            let run = |backend: &dyn Backend<f32>| {
                let plan = job.plan(backend, &options);
                (fused(&plan), job.run(backend, plan, 2, &NoProgress))
            };
            let ((none, expected), (fused, got)) = (run(&apart), run(&backend));
            assert!(none.is_empty());
            let count = |kind: fn(&[bool; 4]) -> bool| fused.iter().filter(|found| kind(found)).count();
            assert!(count(|[affine, _, relu, _]| *affine || *relu) == 0, "{fused:?}");
            assert!(count(|[_, sum, ..]| *sum) >= sums && count(|[.., mask]| *mask) >= masks, "{fused:?}");
            assert!(bits(&got.outputs) == bits(&expected.outputs), "{name} {hold:?}");
            assert!(bits(&got.grad_inputs) == bits(&expected.grad_inputs), "{name} {hold:?}");
            assert!(got.gradients == expected.gradients, "{name} {hold:?}");
        }
    }
}

/// A value that an operator leaves as it is lies in one node with its operand, and what follows it must not change that for others.
#[test]
fn what_follows_a_value_that_was_left_as_it_is_does_not_change_its_operand() {
    let network = |before: &str, left: &str| {
        let (first, read) = if left.is_empty() { (String::new(), "c") } else { (format!("{left},"), "d") };
        let text = format!(
            r#"{{"inputs": [{{"name": "x", "channels": 2}}],
                "nodes": [
                    {{"name": "c", {before}, "inputs": ["x"]}},
                    {first}
                    {{"name": "g", "op": "sigmoid", "inputs": ["c"]}},
                    {{"name": "r", "op": "relu", "inputs": ["{read}"]}},
                    {{"name": "s", "op": "add", "inputs": ["c", "r"]}},
                    {{"name": "t", "op": "add", "inputs": ["s", "g"]}}],
                "outputs": ["t", "c"]}}"#
        );
        Graph::from_json(&text).expect("a network")
    };
    let backend = CpuBackend::new().expect("an instruction set");
    let objective = Objective { mode: Mode::Eval, outputs: true, ..Objective::gradients() };
    let run = |graph: Graph, options: &PlanOptions| {
        let job = Job::<f64>::random(graph, 2, [7, 9], objective.clone(), 4);
        job.run(&backend, job.plan(&backend, options), 1, &NoProgress)
    };
    for before in [
        r#""op": "conv2d", "out_channels": 2, "kernel_size": 3, "padding": 1"#,
        r#""op": "conv_transpose2d", "out_channels": 2, "kernel_size": 3, "padding": 1"#,
        r#""op": "batch_norm""#,
    ] {
        for options in [tiled_tests::whole(), tiled_tests::recompute([2, 3])] {
            let wanted = run(network(before, ""), &options);
            assert!(wanted.outputs[1].data().iter().any(|value| *value < 0.0));
            for left in [
                r#""op": "dropout""#,
                r#""op": "dropout2d""#,
                r#""op": "stochastic_depth", "p": 0.3"#,
                r#""op": "pad_to", "like": "x""#,
            ] {
                let left = format!(r#"{{"name": "d", {left}, "inputs": ["c"]}}"#);
                let ends_behind = PlanOptions { checkpoints: Some(vec![ValueId(2)]), ..options.clone() };
                for options in [&options, &ends_behind] {
                    let got = run(network(before, &left), options);
                    for (got, wanted) in
                        [(&got.outputs, &wanted.outputs), (&got.grad_inputs, &wanted.grad_inputs)]
                    {
                        let are_same =
                            got.iter().zip(wanted).all(|(got, wanted)| got.data() == wanted.data());
                        assert!(are_same, "{before} {left} {options:?}");
                    }
                    assert!(got.gradients == wanted.gradients, "{before} {left} {options:?}");
                }
            }
        }
    }
}
