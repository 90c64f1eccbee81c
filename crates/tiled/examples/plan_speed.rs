//! Measures plans of a network on an image in memory beside what the cost model predicts: each count of strips
//! with each height of bands. The constants of the model were fitted to what this prints.
//!
//! ```text
//! cargo run --release -p tiled --example plan_speed -- light 4096 inference 2 1,2,3,4,6,8 4,8,16,32
//! ```
//!
//! Arguments: network (its name or its file; an ONNX file with the feature `onnx`), extent of the square image, `inference` or `training`, threads, strips, rows of a band,
//! rows of tiles. A band of 0 is the untiled run.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::error::Error;

use tiled::prelude::{CpuBackend, Executor, Hold, PlanOptions, Planner, Tiling};

#[path = "network_run/mod.rs"]
mod network_run;
use network_run::NetworkRun;

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

    let mut run = NetworkRun::new(&network, extent, is_training)?;
    let backend = CpuBackend::new()?;
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
            let plan =
                Planner::<f32>::new(&run.network, &run.shapes, &run.objective, &backend).plan(&options)?;
            let predicted = plan.predicted_seconds;
            let lanes = plan.lanes();
            let windows = (plan.window_elements() * 4) as f64 / f64::from(1 << 20);
            let mut executor = Executor::new(plan, &backend, threads)?;
            let mut best = f64::INFINITY;
            for _ in 0..RUNS {
                best = best.min(run.seconds(&mut executor)?);
            }
            println!("{count:6} {band:6} {lanes:6} {windows:12.2} {predicted:12.4} {best:11.4}");
        }
    }
    Ok(())
}

fn numbers(list: &str) -> Result<Vec<i64>, Box<dyn Error>> {
    list.split(',').map(|number| Ok(number.parse()?)).collect()
}
