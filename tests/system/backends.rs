//! A plan belongs to the backend that it was made for.

use tiled::exec::{ExecError, Executor};
use tiled::graph::{Graph, Objective, PlanOptions, Planner, infer};
use tiled::kernel::{Backend, Reference};
use tiled::prelude::{CpuBackend, Isa};

#[test]
fn a_plan_for_other_channel_blocks_is_refused() {
    let graph = Graph::builtin("light").expect("built in");
    let shapes = infer(&graph, 1, &[[16, 16]]).expect("fits");
    let plan = Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &Reference)
        .plan(&PlanOptions::default())
        .expect("plans");
    let backend = CpuBackend::with_isa(Isa::Portable).expect("everywhere");
    let block = Backend::<f32>::block(&backend, 16);
    assert_ne!(Backend::<f32>::block(&Reference, 16), block);
    match Executor::<f32>::new(plan, &backend, 1) {
        Err(ExecError::Backend { channels: 16, got, .. }) => assert_eq!(got, block),
        other => panic!("{other:?}"),
    }
}
