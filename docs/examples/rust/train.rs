//! Two training steps of a network that is built node by node.

#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::cast_possible_truncation, reason = "sizes here are small")]

use std::error::Error;

use tiled::graph::{Conv2d, Op};
use tiled::kernel::Activation;
use tiled::prelude::*;

const C: usize = 3;
const H: usize = 40;
const W: usize = 56;

fn numbers(count: usize, seed: u32) -> Vec<f64> {
    let number = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 8) / 16_777_216.0 - 0.5;
    (0..count as u32).map(|i| number(i + seed)).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let (x, t) = (numbers(C * H * W, 0), numbers(H * W, 500_000));

    let mut graph = Graph::new();
    let input = graph.add_input("x", C)?;
    let c1 = graph.add_node("c1", Op::Conv2d(Conv2d::new(4, [3, 3]).padded([1, 1])), &[input])?;
    let r1 = graph.add_node("r1", Op::Activation(Activation::Relu), &[c1])?;
    let c2 = graph.add_node("c2", Op::Conv2d(Conv2d::new(1, [3, 3]).padded([1, 1])), &[r1])?;
    graph.set_outputs(&[c2])?;

    let backend = CpuBackend::new()?;
    let mut parameters = initialise::<f64>(&params(&graph), 3);
    let shapes = infer(&graph, 1, &[[H, W]])?;
    let objective = Objective::training(Loss::MeanSquaredError);
    let options = PlanOptions {
        hold: Hold::Slide,
        tiling: Tiling::Tile([4, 16]),
        parallelism: 2,
        ..PlanOptions::default()
    };
    let plan = Planner::<f64>::new(&graph, &shapes, &objective, &backend).plan(&options)?;
    let sgd = Sgd::new(SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() })?;
    let mut trainer = Trainer::new(Executor::new(plan, &backend, 2)?, sgd);

    let (source, target) = (MemorySource::new(&x, [1, C, H, W])?, MemorySource::new(&t, [1, 1, H, W])?);
    let io = Io { inputs: vec![&source], target: Some(&target), ..Io::default() };
    for _ in 0..2 {
        let report = trainer.step(&mut parameters, &io, &NoProgress)?;
        println!("train loss {:016x}", report.loss.ok_or("it has a loss")?.to_bits());
    }
    for value in &parameters.get("c1.bias").ok_or("it has a bias")?.data {
        println!("train bias {:016x}", value.to_bits());
    }
    Ok(())
}
