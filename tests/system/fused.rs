//! What follows a convolution is carried out with it, and the bits stay.

use tiled::cpu::{CpuBackend, Isa};
use tiled::exec::NoProgress;
use tiled::geometry::Region;
use tiled::graph::program::NodeKind;
use tiled::graph::{Graph, Hold, Objective, Plan, PlanOptions, Tiling};
use tiled::kernel::{Backend, Kernel, Partial, Reduction};
use tiled::tensor::{Tensor, View, ViewMut};
use tiled_tests::Job;

/// The CPU backend without fusion.
#[derive(Debug)]
struct Apart(CpuBackend);

impl Backend<f32> for Apart {
    fn name(&self) -> String {
        Backend::<f32>::name(&self.0)
    }
    fn block(&self, channels: usize) -> usize {
        Backend::<f32>::block(&self.0, channels)
    }
    fn packed_len(&self, kernel: &Kernel, params: &[usize]) -> usize {
        Backend::<f32>::packed_len(&self.0, kernel, params)
    }
    fn pack(&self, kernel: &Kernel, params: &[&[f32]], packed: &mut [f32]) {
        self.0.pack(kernel, params, packed);
    }
    fn compute(
        &self,
        kernel: &Kernel,
        packed: &[f32],
        inputs: &[View<'_, f32>],
        output: ViewMut<'_, f32>,
        region: Region<2>,
    ) {
        assert!(!matches!(kernel, Kernel::ConvThen { .. }), "not asked for");
        self.0.compute(kernel, packed, inputs, output, region);
    }
    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[f32]],
        inputs: &[View<'_, f32>],
        share: Region<2>,
        partial: &mut Partial<f32>,
    ) {
        self.0.reduce(reduction, params, inputs, share, partial);
    }
}

/// The kernels that a plan runs, by whether a convolution has something that follows: affine, a sum, ReLU.
fn fused(plan: &Plan) -> Vec<[bool; 3]> {
    let running = plan.sweeps.iter().flat_map(|sweep| &sweep.sweep.nodes);
    let kinds = running.map(|node| &plan.program.nodes[node.node].kind);
    kinds
        .filter_map(|kind| match kind {
            NodeKind::Compute(Kernel::ConvThen { affine, sum, activation, .. }) => {
                Some([*affine, *sum, activation.is_some()])
            }
            _ => None,
        })
        .collect()
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
            let count = |kind: [bool; 3]| fused.iter().filter(|found| **found == kind).count();
            assert_eq!(count([true, false, true]), 9, "{fused:?}");
            assert_eq!(count([true, true, true]), 8, "{fused:?}");
            assert_eq!(count([true, false, false]), 3, "{fused:?}");
            assert!(
                bits(&job.run(&backend, plan, 2, &NoProgress).outputs) == expected,
                "{hold:?} {tiling:?}"
            );
        }
    }
}

#[test]
fn what_a_gradient_reads_stays_apart() {
    let backend = CpuBackend::new().expect("an instruction set");
    let graph = Graph::builtin("resnet18").expect("built in");
    let objective = Objective::training(tiled::graph::Loss::Sum);
    let job = Job::<f32>::random(graph, 1, [64, 64], objective, 4);
    assert!(fused(&job.plan(&backend, &PlanOptions::default())).is_empty());
}
