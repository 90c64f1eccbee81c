//! A plan as a picture.

mod canvas;
mod memory;
mod moment;
mod panels;
mod profile;
mod style;

use tiled_graph::program::{NodeKind, SourceRole};
use tiled_graph::{Plan, SweepNodeId, SweepPlan};

use super::facts::{Facts, Holding};
use super::number;
use super::text::{counted, shape};
use canvas::{Anchor, Canvas};
use moment::Moment;
use style::{MARGIN, STYLE, WIDTH};

/// Kernels that compute each element from the same one of their operands: they look like their neighbours.
const ELEMENTWISE_FLOPS: f64 = 4.0;

/// The nodes of a sweep.
type Nodes = Vec<(SweepNodeId, Facts)>;

pub(super) fn draw(plan: &Plan, budget: Option<u64>) -> String {
    let mut canvas = Canvas::default();
    let sweeps: Vec<Nodes> = plan.sweeps.iter().map(|sweep| nodes(plan, sweep)).collect();
    // the sweep with the most arithmetic is drawn in full
    let flops = |nodes: &Nodes| nodes.iter().map(|(_, facts)| facts.flops).sum::<f64>();
    let main = sweeps.iter().map(flops).enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(main, _)| main);
    let has_gradients = sweeps.iter().flatten().any(|(_, facts)| facts.is_gradient());
    let what = if has_gradients { "Gradients" } else { "Inference" };
    let title = format!("{what} in {}", counted(plan.sweeps.len(), "sweep"));
    let mut y = 44.0;
    canvas.text([MARGIN, y], Anchor::Start, "title", &title);
    y += 22.0;
    canvas.text([MARGIN, y], Anchor::Start, "label", &subtitle(plan));
    y += 20.0;
    y += memory::draw(&mut canvas, y, plan, budget);
    for (index, (sweep, nodes)) in plan.sweeps.iter().zip(&sweeps).enumerate() {
        y += draw_heading(&mut canvas, y, plan, index, nodes);
        if main == Some(index) {
            y += draw_main(&mut canvas, y, plan, sweep, nodes);
        }
    }
    canvas.finish(WIDTH, y + MARGIN / 2.0, &title, STYLE)
}

fn subtitle(plan: &Plan) -> String {
    format!(
        "{} · {} · {} · {} · {}, of it redundant {} · predicted {}",
        inputs(plan),
        plan.dtype.name(),
        counted(plan.lanes(), "lane"),
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

/// A line about a sweep; returns the height taken.
fn draw_heading(canvas: &mut Canvas, y: f64, plan: &Plan, index: usize, nodes: &Nodes) -> f64 {
    let names = match nodes.as_slice() {
        [(_, first), .., (_, last)] => format!("{} to {}", first.name, last.name),
        _ => String::new(),
    };
    let heading = format!("Sweep {} of {}", index + 1, plan.sweeps.len());
    canvas.text([MARGIN, y + 14.0], Anchor::Start, "heading", &heading);
    let text = format!("{}; {}, {names}", shape(plan, &plan.sweeps[index]), counted(nodes.len(), "node"));
    canvas.text([MARGIN + 140.0, y + 14.0], Anchor::Start, "label", &text);
    24.0
}

/// One typical step of a sweep; returns the height taken.
fn draw_main(canvas: &mut Canvas, y: f64, plan: &Plan, sweep: &SweepPlan, all: &Nodes) -> f64 {
    let moment = Moment::of(plan, sweep);
    let hold = Holding::of(sweep);
    let ([row, col], [rows, cols]) = (moment.tile, sweep.grid.counts());
    let step = format!("step {} of {}", moment.step + 1, moment.steps);
    let tile = match hold {
        Holding::Materialise => "The whole image in one step.".to_owned(),
        Holding::Recompute => format!("Tile [{row}, {col}] of {rows}×{cols}, computed in one step."),
        Holding::Slide if rows * cols == 1 => format!("In the middle: {step}."),
        Holding::Slide => format!("Strip [{row}, {col}] of {rows}×{cols}, {step}."),
    };
    let mut height = 14.0;
    let has_gradients = all.iter().any(|(_, facts)| facts.is_gradient());
    let colours = if has_gradients { ", forward in blue, gradients in orange" } else { "" };
    let text = format!("{tile} Each node's whole tensor{colours}:");
    canvas.text([MARGIN, y + height], Anchor::Start, "label", &text);
    height += 14.0;
    height += style::draw_legend(canvas, y + height, hold, has_gradients) + 8.0;
    height += panels::draw(canvas, y + height, sweep, &to_draw(all, panels::PANELS), &moment);
    let bars = to_draw(all, profile::BARS);
    let words = match hold {
        Holding::Materialise => return height,
        Holding::Recompute => "the pyramid of its halos",
        Holding::Slide => "the windows that it holds",
    };
    let tallest = bars.iter().rev().max_by_key(|(_, facts)| facts.shape[2]);
    let rows = tallest.map_or("", |(_, facts)| facts.name.as_str());
    let caption = format!("Across the nodes, enlarged about this step: {words}, in rows of {rows}");
    canvas.text([MARGIN, y + height + 8.0], Anchor::Start, "label", &caption);
    height += 24.0;
    height + profile::draw(canvas, y + height, sweep, &bars, &moment) + 8.0
}

fn nodes(plan: &Plan, sweep: &SweepPlan) -> Nodes {
    sweep.nodes.ids().zip(Facts::all(plan, sweep)).collect()
}

/// At most `count` of the nodes with windows: what only copies or maps elements goes first, then every so many.
fn to_draw(nodes: &Nodes, count: usize) -> Nodes {
    let with_windows: Nodes = nodes
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
    let mut kept: Nodes = with_windows.iter().filter(|(_, facts)| !is_elementwise(facts)).cloned().collect();
    if kept.is_empty() {
        kept = with_windows;
    }
    let drawn = kept.len().min(count);
    (0..drawn).map(|number| kept[number * (kept.len() - 1) / (drawn - 1).max(1)].clone()).collect()
}
