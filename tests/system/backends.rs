//! A plan belongs to the backend that it was made for.

use tiled::exec::{ExecError, Executor};
use tiled::graph::{BatchNorm, Conv2d, Graph, Objective, Op, PlanOptions, Planner, infer};
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

#[test]
fn a_plan_whose_work_the_backend_does_otherwise_is_refused() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 3).expect("new");
    let c = graph.add_node("c", Op::Conv2d(Conv2d::new(4, [3, 3])), &[x]).expect("fits");
    let y = graph.add_node("bn", Op::BatchNorm(BatchNorm::default()), &[c]).expect("fits");
    graph.set_outputs(&[y]).expect("known");
    let shapes = infer(&graph, 1, &[[9, 9]]).expect("fits");
    let plan = Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &Reference)
        .plan(&PlanOptions::default())
        .expect("plans");
    let backend = CpuBackend::with_isa(Isa::Portable).expect("everywhere");
    match Executor::<f32>::new(plan, &backend, 1) {
        Err(ExecError::Unsupported { name, .. }) => assert_eq!(name, "bn"),
        other => panic!("{other:?}"),
    }
}
