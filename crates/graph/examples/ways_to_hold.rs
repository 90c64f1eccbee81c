//! What the three ways to hold values take: `cargo run --release -p tiled-graph --example ways_to_hold`.
//!
//! The figures of the book come from here. They are those of the plan: nothing runs.

use std::error::Error;

use tiled_graph::{Graph, Hold, Loss, Mode, Objective, Plan, PlanOptions, Planner, Tiling, UNLIMITED, infer};
use tiled_kernel::Reference;

#[expect(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let (inference, training) = (Objective::inference(), Objective::training(Loss::Sum));
    for (title, net, extents, objective) in [
        ("light, 2048×2048, inference", "light", [2048, 2048], &inference),
        ("light, 2048×2048, training with a loss local to a pixel", "light", [2048, 2048], &training),
        ("vgg16, 4096×4096, inference", "vgg16", [4096, 4096], &inference),
        ("vgg16, 4096×4096, training with a loss local to a pixel", "vgg16", [4096, 4096], &training),
    ] {
        println!("{title}");
        row("materialise", &plan(net, extents, objective, Hold::Materialise, Tiling::Auto, None)?);
        for grid in [[2, 2], [8, 8], [32, 32]] {
            let name = format!("recompute, {}×{} tiles", grid[0], grid[1]);
            row(&name, &plan(net, extents, objective, Hold::Recompute, Tiling::Grid(grid), None)?);
        }
        // strips are given in columns of the output, bands in rows of the image
        let width = i64::try_from(extents[1])? / if net == "vgg16" { 32 } else { 4 };
        for (band, strips) in [(64, 1), (16, 1), (4, 1), (64, 8), (16, 8)] {
            let tiling = Tiling::Tile([1, width / strips]);
            let name = format!("slide, bands of {band} rows, {strips} strips");
            row(&name, &plan(net, extents, objective, Hold::Slide, tiling, Some(band))?);
        }
    }
    println!("sweeps of a training step that slides");
    let classes = Loss::CrossEntropy { target_channels: 1 };
    let evaluated = Objective { mode: Mode::Eval, ..Objective::training(classes) };
    for (name, net, objective) in [
        ("light", "light", &training),
        ("resnet18, running statistics", "resnet18", &evaluated),
        ("resnet18, statistics of the image", "resnet18", &Objective::training(classes)),
    ] {
        let plan = plan(net, [512, 512], objective, Hold::Slide, Tiling::Auto, None)?;
        println!("  {name:<34} {} sweeps, arithmetic ×{:.3}", plan.sweeps.len(), times(&plan));
    }
    Ok(())
}

fn plan(
    net: &str,
    extents: [usize; 2],
    objective: &Objective,
    hold: Hold,
    tiling: Tiling,
    band: Option<i64>,
) -> Result<Plan, Box<dyn Error>> {
    let graph = Graph::builtin(net).ok_or("no such network")?;
    let shapes = infer(&graph, 1, &[extents])?;
    let memory_bytes = Some(UNLIMITED); // nothing runs
    let options = PlanOptions { memory_bytes, hold, tiling, band, ..PlanOptions::default() };
    Ok(Planner::<f32>::new(&graph, &shapes, objective, &Reference).plan(&options)?)
}

#[expect(clippy::print_stdout, reason = "it is what the example is for")]
fn row(name: &str, plan: &Plan) {
    let mebibytes = plan.memory.windows_bytes as f64 / f64::from(1 << 20);
    let steps = plan.tiles();
    println!("  {name:<34} windows {mebibytes:>9.1} MiB  arithmetic ×{:.3}  {steps:>6} steps", times(plan));
}

/// The arithmetic of a plan for that of the untiled run.
fn times(plan: &Plan) -> f64 {
    plan.flops / (plan.flops - plan.redundant_flops)
}
