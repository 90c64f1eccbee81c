//! Measures plans of a network on an image in memory beside what the cost model predicts: each count of strips
//! with each height of bands. The constants of the model were fitted to what this prints.
//!
//! ```text
//! cargo run --release -p tiled --example plan_speed -- light 4096 inference 2 1,2,3,4,6,8 4,8,16,32
//! ```
//!
//! Arguments: network (its name or its file; an ONNX file with the feature `onnx`), extent of the square image, `inference` or `training`, threads, strips, rows of a band,
//! rows of tiles.
//! A band of 0 is the untiled run.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::error::Error;
use std::time::Instant;

use tiled::exec::SliceSink;
use tiled::prelude::{
    CpuBackend, Executor, Graph, Hold, Io, Loss, MemorySource, NoProgress, Objective, PlanOptions, Planner,
    Sink, Tiling, infer_nchw, initialise, params,
};

const RUNS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |otherwise: &str| arguments.next().unwrap_or_else(|| otherwise.to_owned());
    let network = next("light");
    let extent: usize = next("1024").parse()?;
    let is_training = next("inference") == "training";
    let threads: usize = next("1").parse()?;
    let strips = numbers(&next("1,2,3,4"))?;
    let bands = numbers(&next("4,8,16,32"))?;
    let rows: i64 = next("1").parse()?;

    let graph = read(&network)?;
    let shape = [1, graph.inputs()[0].channels, extent, extent];
    let shapes = infer_nchw(&graph, &[shape])?;
    let objective = if is_training {
        Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::Sum) }
    } else {
        Objective::inference()
    };
    let backend = CpuBackend::new()?;
    let mut parameters = initialise(&params(&graph), 1);
    let output_shape = shapes.shape(graph.outputs()[0]);
    let input: Vec<f32> =
        (0..shape.iter().product()).map(|i: usize| (i % 251) as f32 / 125.0 - 1.0).collect();
    let mut output = vec![0.0_f32; output_shape.iter().product()];
    let mut grad_input = vec![0.0_f32; if is_training { input.len() } else { 0 }];

    println!("strips   band  lanes  windows MiB  predicted s  measured s");
    for &count in &strips {
        for &band in &bands {
            let mut options = PlanOptions { parallelism: threads, ..PlanOptions::default() };
            if band == 0 {
                options.hold = Hold::Materialise;
            } else {
                options.hold = Hold::Slide;
                options.tiling = Tiling::Grid([rows, count]);
                options.band = Some(band);
            }
            let plan = Planner::<f32>::new(&graph, &shapes, &objective, &backend).plan(&options)?;
            let predicted = plan.predicted_seconds;
            let lanes = plan.lanes;
            let windows = (plan.window_elements() * 4) as f64 / f64::from(1 << 20);
            let mut executor = Executor::new(plan, &backend, threads)?;
            let mut best = f64::INFINITY;
            for _ in 0..RUNS {
                let source = MemorySource::new(&input, shape)?;
                let sink = SliceSink::new(&mut output, output_shape)?;
                let grad_sink;
                let mut grad_inputs: Vec<&dyn Sink<f32>> = Vec::new();
                if is_training {
                    grad_sink = SliceSink::new(&mut grad_input, shape)?;
                    grad_inputs.push(&grad_sink);
                }
                let io = Io {
                    inputs: vec![&source],
                    target: None,
                    grad_outputs: Vec::new(),
                    outputs: vec![&sink],
                    grad_inputs,
                };
                let start = Instant::now();
                executor.run(&mut parameters, &io, &NoProgress)?;
                best = best.min(start.elapsed().as_secs_f64());
            }
            println!("{count:6} {band:6} {lanes:6} {windows:12.2} {predicted:12.4} {best:11.4}");
        }
    }
    Ok(())
}

/// A built-in network, or the network of a file.
fn read(network: &str) -> Result<Graph, Box<dyn Error>> {
    if let Some(graph) = Graph::builtin(network) {
        return Ok(graph);
    }
    #[cfg(feature = "onnx")]
    if network.ends_with(".onnx") {
        return Ok(tiled::onnx::read(network)?.graph);
    }
    Ok(Graph::from_json(&std::fs::read_to_string(network)?)?)
}

fn numbers(list: &str) -> Result<Vec<i64>, Box<dyn Error>> {
    list.split(',').map(|number| Ok(number.parse()?)).collect()
}
