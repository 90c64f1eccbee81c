//! Tiled against untiled on a crop, bit for bit.

use serde_json::{Value, json};
use tiled::exec::{Executor, Io, MemorySink, MemorySource, Sink, Source};
use tiled::geometry::{Interval, Region};
use tiled::graph::{Hold, Loss, Objective, Parameters, PlanOptions, Shapes, Tiling, infer_nchw};
use tiled::tensor::Tensor;

use super::Demo;
use super::picture::cut;
use crate::error::CliError;

/// What the comparison found.
#[derive(Debug)]
pub(super) struct Check {
    extents: [usize; 2],
    runs: Vec<Compared>,
    pub(super) compared: u64,
    pub(super) mismatches: u64,
}

/// One tiled run beside the untiled one.
#[derive(Debug)]
struct Compared {
    name: &'static str,
    tiles: u64,
    outputs: [u64; 2],
    grad_inputs: [u64; 2],
    /// The largest difference of a weight gradient, as a share of the largest gradient of its tensor.
    weights: f64,
}

/// What one run computes.
struct Outcome {
    tiles: u64,
    outputs: Vec<Tensor<f32>>,
    grad_inputs: Vec<Tensor<f32>>,
    gradients: Vec<Vec<f32>>,
}

/// Compares on the middle of the picture, at most 512×1024.
pub(super) fn crop(
    demo: &Demo<'_>,
    input: &dyn Source<f32>,
    target: &dyn Source<f32>,
    parameters: &Parameters<f32>,
) -> Result<Check, CliError> {
    let [.., height, width] = input.shape();
    let region = Region::from_rows_cols(middle(height, 512), middle(width, 1024));
    let quarter = Region::from_rows_cols(quarter(region.rows()), quarter(region.cols()));
    let (picture, wanted) = (cut(input, region)?, cut(target, quarter)?);
    let shapes = infer_nchw(&demo.graph, &[picture.shape()])?;
    let run = |name: &'static str, hold, tiling| {
        let options = PlanOptions { hold, tiling, parallelism: demo.threads, ..PlanOptions::default() };
        run(demo, name, &shapes, [&picture, &wanted], parameters, &options)
    };
    let whole = run("untiled", Hold::Materialise, Tiling::Auto)?;
    let mut runs = Vec::new();
    for (name, hold, tiling) in [
        ("sliding strips", Hold::Slide, Tiling::Tile([8, 64])),
        ("recomputed tiles", Hold::Recompute, Tiling::Tile([32, 32])),
    ] {
        runs.push(compare(name, &whole, &run(name, hold, tiling)?));
    }
    let total = |index: usize| runs.iter().map(|run| run.outputs[index] + run.grad_inputs[index]).sum();
    let [.., height, width] = picture.shape();
    Ok(Check { extents: [height, width], compared: total(1), mismatches: total(0), runs })
}

impl Check {
    pub(super) fn verdict(&self) -> Result<(), CliError> {
        match self.mismatches {
            0 => Ok(()),
            mismatches => Err(CliError::Mismatch { mismatches, compared: self.compared }),
        }
    }

    pub(super) fn text(&self) -> String {
        let [height, width] = self.extents;
        let mut text = format!("\ntiled against untiled on a crop of {width}×{height}, every bit:\n");
        for run in &self.runs {
            text.push_str(&format!(
                "  {} ({} tiles)\n    outputs          {}\n    input gradients  {}\n    \
                 weight gradients differ by at most {:.1e} of the largest\n",
                run.name,
                run.tiles,
                line(run.outputs),
                line(run.grad_inputs),
                run.weights,
            ));
        }
        text.push_str(&line([self.mismatches, self.compared]));
        text
    }

    pub(super) fn json(&self) -> Value {
        let run = |run: &Compared| {
            json!({
                "name": run.name,
                "tiles": run.tiles,
                "output_mismatches": run.outputs[0],
                "outputs_compared": run.outputs[1],
                "input_grad_mismatches": run.grad_inputs[0],
                "input_grads_compared": run.grad_inputs[1],
                "weight_grad_difference": run.weights,
            })
        };
        json!({"crop": self.extents, "runs": self.runs.iter().map(run).collect::<Vec<_>>()})
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share, shown with a few digits")]
fn line([mismatches, compared]: [u64; 2]) -> String {
    let share = if compared == 0 { 0.0 } else { mismatches as f64 / compared as f64 };
    format!("mismatches {mismatches} / {compared} = {share:?}")
}

fn run(
    demo: &Demo<'_>,
    name: &'static str,
    shapes: &Shapes,
    [picture, wanted]: [&Tensor<f32>; 2],
    parameters: &Parameters<f32>,
    options: &PlanOptions,
) -> Result<Outcome, CliError> {
    let objective =
        Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) };
    let plan = demo.planner(shapes, &objective).plan(options)?;
    let tiles = plan.tiles();
    let [input, target] = [MemorySource::try_from(picture)?, MemorySource::try_from(wanted)?];
    let sinks = |shapes: Vec<[usize; 4]>| {
        shapes.into_iter().map(MemorySink::<f32>::new).collect::<Result<Vec<_>, _>>()
    };
    let outputs = sinks(demo.graph.outputs().iter().map(|value| shapes.shape(*value)).collect())?;
    let grad_inputs = sinks(vec![picture.shape()])?;
    let io = Io {
        inputs: vec![&input],
        target: Some(&target),
        outputs: outputs.iter().map(|sink| sink as &dyn Sink<f32>).collect(),
        grad_inputs: grad_inputs.iter().map(|sink| sink as &dyn Sink<f32>).collect(),
        ..Io::default()
    };
    let mut executor = Executor::new(plan, demo.backend(), demo.threads)?;
    executor.run(&mut parameters.clone(), &io, &demo.session.bar(name))?;
    let gradients = (0..parameters.tensors().len())
        .filter_map(|place| executor.gradient(place).map(<[f32]>::to_vec))
        .collect();
    let tensors = |sinks: Vec<MemorySink<f32>>| sinks.into_iter().map(MemorySink::into_tensor).collect();
    Ok(Outcome { tiles, outputs: tensors(outputs), grad_inputs: tensors(grad_inputs), gradients })
}

fn compare(name: &'static str, whole: &Outcome, tiled: &Outcome) -> Compared {
    let count = |a: &[Tensor<f32>], b: &[Tensor<f32>]| {
        let pairs = || a.iter().zip(b).flat_map(|(a, b)| a.data().iter().zip(b.data()));
        let wrong = pairs().filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        [wrong as u64, pairs().count() as u64]
    };
    let difference = |(a, b): (&Vec<f32>, &Vec<f32>)| {
        let largest = a.iter().fold(f32::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
        let most = a.iter().zip(b).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
        f64::from(most) / f64::from(largest)
    };
    Compared {
        name,
        tiles: tiled.tiles,
        outputs: count(&whole.outputs, &tiled.outputs),
        grad_inputs: count(&whole.grad_inputs, &tiled.grad_inputs),
        weights: whole.gradients.iter().zip(&tiled.gradients).map(difference).fold(0.0, f64::max),
    }
}

/// The middle of an axis, in whole multiples of four.
fn middle(extent: usize, most: usize) -> Interval {
    let len = extent.min(most) / 4 * 4;
    let begin = (extent - len) / 8 * 4;
    let [begin, len] = [begin, len].map(|value| i64::try_from(value).unwrap_or(0));
    Interval::new(begin, begin + len)
}

fn quarter(interval: Interval) -> Interval {
    Interval::new(interval.begin() / 4, interval.end() / 4)
}
