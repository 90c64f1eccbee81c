//! A plan as a picture.

mod canvas;
mod memory;
mod moment;
mod panels;
mod profile;
mod style;

use super::facts::{Facts, Holding};
use super::number;
use super::text::{counted, shape};
use crate::program::{NodeKind, SourceRole};
use crate::{Plan, SweepPlan};
use canvas::{Anchor, Canvas, Rect};
use moment::Moment;
use style::{MARGIN, STYLE, WIDTH};

/// Kernels that compute each element from the same one of their operands: they look like their neighbours.
const ELEMENTWISE_FLOPS: f64 = 4.0;

pub(super) fn draw(plan: &Plan, budget: Option<u64>) -> String {
    let mut canvas = Canvas::default();
    // the paper is cut to length at the end, this is more than any picture takes
    canvas.rect(Rect::new(0.0, 0.0, WIDTH, 16_384.0), "paper");
    let mut y = 44.0;
    let title = title(plan);
    canvas.text([MARGIN, y], Anchor::Start, "title", &title);
    y += 22.0;
    canvas.text([MARGIN, y], Anchor::Start, "label", &subtitle(plan));
    y += 20.0;
    y += memory::draw(&mut canvas, y, plan, budget);
    for (index, sweep) in plan.sweeps.iter().enumerate() {
        y += draw_sweep(&mut canvas, y, plan, sweep, index, is_main(plan, index));
    }
    canvas.finish(WIDTH, y + MARGIN / 2.0, &title, STYLE)
}

/// Whether a sweep is drawn in full: the one with the most arithmetic.
fn is_main(plan: &Plan, index: usize) -> bool {
    let flops = |sweep: &SweepPlan| -> f64 {
        (0..sweep.sweep.nodes.len()).map(|place| Facts::of(plan, sweep, place).flops).sum()
    };
    let most = plan.sweeps.iter().map(flops).enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
    most.is_some_and(|(main, _)| main == index)
}

fn title(plan: &Plan) -> String {
    let has_gradients =
        plan.sweeps.iter().any(|sweep| facts(plan, sweep).iter().any(|(_, facts)| facts.is_gradient()));
    let what = if has_gradients { "Gradients" } else { "Inference" };
    format!("{what} in {}", counted(plan.sweeps.len(), "sweep"))
}

fn subtitle(plan: &Plan) -> String {
    format!(
        "{} · {} · {} · {} · {}, of it redundant {} · predicted {}",
        inputs(plan),
        plan.dtype.name(),
        counted(plan.lanes, "lane"),
        counted(plan.sweeps.iter().map(|sweep| sweep.steps).sum::<u64>(), "step"),
        number::flops(plan.flops),
        number::percent(plan.redundant_flops, plan.flops),
        number::seconds(plan.predicted_seconds),
    )
}

/// The inputs of the network with their shapes.
fn inputs(plan: &Plan) -> String {
    let inputs =
        plan.program.nodes.iter().filter(|node| matches!(node.kind, NodeKind::Source(SourceRole::Input(_))));
    let inputs: Vec<String> = inputs
        .map(|node| {
            let [height, width] = node.extents;
            format!("{} {}×{}×{height}×{width}", node.name, node.batch, node.channels)
        })
        .collect();
    inputs.join(", ")
}

fn draw_sweep(
    canvas: &mut Canvas,
    y: f64,
    plan: &Plan,
    sweep: &SweepPlan,
    index: usize,
    is_main: bool,
) -> f64 {
    let all = facts(plan, sweep);
    let names = match all.as_slice() {
        [(_, first), .., (_, last)] => format!("{} to {}", first.name, last.name),
        _ => String::new(),
    };
    let heading = format!("Sweep {} of {}", index + 1, plan.sweeps.len());
    canvas.text([MARGIN, y + 14.0], Anchor::Start, "heading", &heading);
    let text = format!("{}; {}, {names}", shape(plan, sweep), counted(all.len(), "node"));
    canvas.text([MARGIN + 120.0, y + 14.0], Anchor::Start, "label", &text);
    if !is_main {
        return 28.0;
    }
    let moment = Moment::of(plan, sweep);
    let slides = Holding::of(sweep) == Holding::Slide;
    let [row, col] = moment.tile;
    let tile = if slides {
        format!("Strip {col}, step {} of {}.", moment.step + 1, moment.steps)
    } else {
        format!("Tile ({row}, {col}), computed in one step.")
    };
    let mut height = 38.0;
    let has_gradients = all.iter().any(|(_, facts)| facts.is_gradient());
    let colours = if has_gradients { ", forward in blue, gradients in orange" } else { "" };
    let text = format!("{tile} Each node's whole tensor{colours}:");
    canvas.text([MARGIN, y + height], Anchor::Start, "label", &text);
    height += 14.0;
    height += style::draw_legend(canvas, y + height, slides, has_gradients) + 8.0;
    height += panels::draw(canvas, y + height, sweep, &telling(&all, panels::PANELS), &moment);
    let bars = telling(&all, profile::BARS);
    let words = if slides { "the windows that it holds" } else { "the pyramid of its halos" };
    let tallest = bars.iter().rev().max_by_key(|(_, facts)| facts.shape[2]);
    let rows = tallest.map_or("", |(_, facts)| facts.name.as_str());
    let caption = format!("Across the nodes, enlarged about this step: {words}, in rows of {rows}");
    canvas.text([MARGIN, y + height + 8.0], Anchor::Start, "label", &caption);
    height += 24.0;
    height + profile::draw(canvas, y + height, sweep, &bars, &moment) + 8.0
}

fn facts(plan: &Plan, sweep: &SweepPlan) -> Vec<(usize, Facts)> {
    (0..sweep.sweep.nodes.len()).map(|place| (place, Facts::of(plan, sweep, place))).collect()
}

/// At most `count` of the nodes with windows: what only copies or maps elements goes first, then every so many.
fn telling(nodes: &[(usize, Facts)], count: usize) -> Vec<(usize, Facts)> {
    let with_windows: Vec<(usize, Facts)> = nodes
        .iter()
        .filter(|(_, facts)| facts.ring_rows > 0 && facts.shape[2] * facts.shape[3] > 1)
        .cloned()
        .collect();
    if with_windows.len() <= count {
        return with_windows;
    }
    let is_elementwise = |facts: &Facts| {
        let [batch, channels, height, width] = facts.shape.map(|size| size as f64);
        let computed = facts.times * batch * channels * height * width;
        facts.does == "compute" && facts.flops < ELEMENTWISE_FLOPS * computed
    };
    let mut kept: Vec<(usize, Facts)> =
        with_windows.iter().filter(|(_, facts)| !is_elementwise(facts)).cloned().collect();
    if kept.is_empty() {
        kept = with_windows;
    }
    let drawn = kept.len().min(count);
    (0..drawn).map(|number| kept[number * (kept.len() - 1) / (drawn - 1).max(1)].clone()).collect()
}
