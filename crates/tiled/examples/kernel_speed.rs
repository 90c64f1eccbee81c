//! Where the time of a run goes: seconds, calls, GFLOP/s and GB/s of each kind of work of a network, in a plan of its own choice or in bands of
//! a given height, in as many strips as are asked for.
//!
//! ```text
//! cargo run --release -p tiled --features onnx --example kernel_speed -- model.onnx 1024 inference 2 [band[x strips]] [least rows] [runs]
//! ```
//!
//! Arguments: network (its name or its file), extent of the square image, `inference` or `training`, threads, rows of a band (0: whole
//! tensors; `16x2`: of two strips; `auto`), least rows of a call that reads weights, runs, of which the fastest time of each kind counts. With several lanes, seconds are those of all threads together.

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a program that prints a table of estimates"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tiled::kernel::{
    Backend, Conv, Epilogue, Host, Kernel, Params, Partial, Reduction, Work, Workspace, forward,
};
use tiled::prelude::{CpuBackend, Executor, Hold, PlanOptions, Planner, Tiling};
use tiled::{
    geometry::Region,
    tensor::{View, ViewMut},
};

#[path = "network_run/mod.rs"]
mod network_run;
use network_run::NetworkRun;

/// What one kind of work took.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    seconds: f64,
    calls: u64,
    flops: f64,
    bytes: f64,
}

/// The CPU, with a clock around its calls.
#[derive(Debug)]
struct Timed {
    backend: CpuBackend,
    spent: Mutex<BTreeMap<String, Spent>>,
}

impl Timed {
    fn note(&self, start: Instant, what: String, flops: f64, bytes: f64) {
        let seconds = start.elapsed().as_secs_f64();
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = spent.entry(what).or_default();
        kind.seconds += seconds;
        kind.calls += 1;
        kind.flops += flops;
        kind.bytes += bytes;
    }

    fn take(&self) -> BTreeMap<String, Spent> {
        std::mem::take(&mut self.spent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Backend<f32> for Timed {
    forward!(f32, |timed| &timed.backend; name block support seconds transfers_beside workers open_own);
}

impl Host<f32> for Timed {
    forward!(f32, |timed| &timed.backend; pack compute_part unpack copy);

    fn compute(
        &self,
        kernel: &Kernel,
        params: Params<'_, f32>,
        inputs: &[View<'_, f32>],
        output: ViewMut<'_, f32>,
        region: Region<2>,
        workspace: &Workspace<f32>,
    ) {
        let (batch, channels) = (output.layout().batch(), output.layout().channels());
        let elements = (batch * channels) as f64 * region.volume() as f64;
        let what = name(kernel, channels, inputs);
        let start = Instant::now();
        self.backend.compute(kernel, params, inputs, output, region, workspace);
        let read: f64 = inputs
            .iter()
            .map(|input| (input.layout().batch() * input.layout().channels()) as f64)
            .sum::<f64>()
            * region.volume() as f64;
        self.note(start, what, kernel.flops_per_element() * elements, 4.0 * (elements + read));
    }

    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[f32]],
        inputs: &[View<'_, f32>],
        share: Region<2>,
        partial: &mut Partial<f32>,
    ) {
        let start = Instant::now();
        self.backend.reduce(reduction, params, inputs, share, partial);
        let what = match reduction {
            Reduction::ConvWeight(conv) => convolution("weights", conv),
            _ => format!("{} of {}", reduction.name(), inputs[0].layout().channels()),
        };
        let layout = inputs[0].layout();
        let channels = match reduction {
            Reduction::ConvWeight(conv) => conv.out_channels,
            _ => layout.channels(),
        };
        let elements = (layout.batch() * channels) as f64 * share.volume() as f64;
        self.note(start, what, Work::Reduce(*reduction).flops_per_element() * elements, 4.0 * elements);
    }
}

fn name(kernel: &Kernel, channels: usize, inputs: &[View<'_, f32>]) -> String {
    match kernel {
        Kernel::Conv2d { conv, epilogue, .. } => {
            let follows = if *epilogue == Epilogue::default() { "" } else { "+" };
            format!("{}{follows}", convolution(kernel.name(), conv))
        }
        Kernel::Conv2dBackwardInput { conv, .. } => convolution("input gradient", conv),
        _ => format!("{} {} from {}", kernel.name(), channels, inputs.len()),
    }
}

fn convolution(name: &str, conv: &Conv) -> String {
    let [kh, kw] = conv.kernel();
    let [window, _] = &conv.windows;
    let (stride, dilation) = (window.stride(), window.dilation());
    let Conv { in_channels, out_channels, groups, output, .. } = conv;
    format!(
        "{name} {in_channels}→{out_channels} {kh}×{kw} /{stride} d{dilation} g{groups} width {}",
        output[1]
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |otherwise: &str| arguments.next().unwrap_or_else(|| otherwise.to_owned());
    let network = next("light");
    let extent: usize = next("1024").parse()?;
    let is_training = next("inference") == "training";
    let threads: usize = next("1").parse()?;
    let band = next("auto");
    let least_rows: i64 = next("1").parse()?;
    let runs: usize = next("5").parse()?;

    let mut run = NetworkRun::new(&network, extent, is_training)?;
    let mut options = PlanOptions { parallelism: threads, ..PlanOptions::default() };
    let (rows, strips) = band.split_once('x').unwrap_or((&band, "1"));
    match rows.parse() {
        Ok(0) => options.hold = Hold::Materialise,
        Ok(rows) => {
            options.hold = Hold::Slide;
            options.tiling = Tiling::Grid([1, strips.parse()?]);
            options.band = Some(rows);
            options.least_rows = Some(least_rows);
        }
        Err(_) => {}
    }
    let timed = Timed { backend: CpuBackend::new()?, spent: Mutex::default() };
    let plan = Planner::<f32>::new(&run.network, &run.shapes, &run.objective, &timed).plan(&options)?;
    println!(
        "{} lanes, {:.1} MiB, predicted {:.4} s",
        plan.lanes(),
        plan.memory.total_bytes() as f64 / f64::from(1 << 20),
        plan.predicted_seconds
    );
    for sweep in &plan.sweeps {
        let last = sweep.nodes.iter().last().map(|node| plan.program.nodes[node.node].extents);
        println!(
            "  {} nodes to {:?}: tiles {:?}, bands of {}, least {}, {} lanes",
            sweep.nodes.len(),
            last.unwrap_or_default(),
            sweep.grid.counts(),
            sweep.band,
            sweep.least_rows,
            sweep.lanes
        );
    }
    let mut executor = Executor::new(plan, &timed, threads)?;
    let mut best: BTreeMap<String, Spent> = BTreeMap::new();
    let mut fastest = f64::INFINITY;
    for _ in 0..runs {
        fastest = fastest.min(run.seconds(&mut executor)?);
        for (kind, spent) in timed.take() {
            let best = best.entry(kind).or_insert(spent);
            if spent.seconds < best.seconds {
                *best = spent;
            }
        }
    }
    let mut kinds: Vec<_> = best.into_iter().collect();
    kinds.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
    let (all, flops) =
        kinds.iter().fold((0.0, 0.0), |(s, f), (_, spent)| (s + spent.seconds, f + spent.flops));
    println!("{fastest:.4} s a run, {all:.4} s in kernels, {:.1} GFLOP/s of theirs", flops / all / 1e9);
    println!("      ms   share  calls  us/call  GFLOP/s   GB/s  work");
    for (kind, Spent { seconds, calls, flops, bytes }) in kinds {
        println!(
            "{:8.3} {:6.1}% {calls:6} {:8.1} {:8.1} {:6.1}  {kind}",
            seconds * 1e3,
            100.0 * seconds / all,
            seconds / calls as f64 * 1e6,
            flops / seconds / 1e9,
            bytes / seconds / 1e9
        );
    }
    Ok(())
}
