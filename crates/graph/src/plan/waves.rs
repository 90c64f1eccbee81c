//! Calls that fill the waves of a device.
//!
//! A call that has a device to itself is shared out to its multiprocessors in waves, and in the last one some may have nothing to do. Deep
//! values have few pixels a row and lose the most. So a step takes the driver on by a whole number of rows of the lowest convolution,
//! which asks each node for as much of the image, and a node computes that in calls whose waves are full:
//!
//! ```text
//! rows asked for   A(v) = height of a step · extent(v) / that of the tallest node
//! rows of a call   ceil(A / k), the same for all nodes as tall as one another: the k of the least time, fewer rows within a tolerance
//! ```
//!
//! Calls stay as they are cut, since a node that is asked for so many rows asks its operands for as many. Nothing is computed ahead: with
//! as many rows of a call ahead of each of the layers between, windows take more memory than taller steps do.

use std::collections::BTreeMap;

use tiled_geometry::{MAX_COORDINATE, div_ceil};
use tiled_kernel::{Backend, Load, Task};
use tiled_tensor::{Element, OutOfMemory, push, with_room};

use super::build::Prepared;
use super::cost::Width;
use crate::index::IndexVec;
use crate::schedule::Band;
use crate::sweep::SweepNodeId;

/// Whether a call has all of a backend to itself, however many threads the host has.
pub(super) fn works_in_waves<T: Element>(backend: &dyn Backend<T>) -> bool {
    backend.workers(usize::MAX) == 1
}

/// A node whose arithmetic bounds it.
pub(super) struct Heavy<'p> {
    node: SweepNodeId,
    task: Task<'p>,
    /// What a pixel of all its channels takes.
    pixel: Load,
}

/// The heavy nodes of a sweep by their heights.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
pub(super) fn heavy_nodes<'p, T: Element>(
    prepared: &Prepared<'p>,
    sweep: usize,
) -> Result<BTreeMap<i64, Vec<Heavy<'p>>>, OutOfMemory> {
    let readings = &prepared.readings[sweep];
    let element = size_of::<T>() as f64;
    let mut begin = 0;
    let mut levels: BTreeMap<i64, Vec<Heavy<'p>>> = BTreeMap::new();
    for (node, reading) in readings.nodes.entries() {
        let operands = reading.end - begin;
        begin = reading.end;
        let facts = &prepared.lowered.facts[reading.node];
        let Some((work, support)) = &facts.work else { continue };
        if reading.moves || reading.is_idle || support.flops_per_second.is_none() {
            continue;
        }
        let pixel = Load {
            flops: facts.flops,
            bytes: facts.planes * element,
            weights_bytes: facts.weights * element,
            values: if reading.is_terminal { 1.0 } else { 1.0 + as_f64(i64::from(operands)) },
            ..Load::default()
        };
        let extent = prepared.flows[sweep][0].nodes[node].extent;
        push(levels.entry(extent).or_default(), Heavy { node, task: Task::Work(work, support), pixel })?;
    }
    Ok(levels)
}

/// The bands of the nodes of a sweep in strips of these widths, where so many rows of the tallest node are one height.
pub(super) fn bands_in_waves<T: Element>(
    backend: &dyn Backend<T>,
    prepared: &Prepared<'_>,
    sweep: usize,
    widths: &[Width],
    tall: i64,
) -> Result<IndexVec<SweepNodeId, Band>, OutOfMemory> {
    let flow = &prepared.flows[sweep][0];
    let tallest = flow.nodes.iter().map(|node| node.extent).max().unwrap_or(1).max(1);
    let asked = |extent: i64| {
        let asked = i128::from(tall) * i128::from(extent) / i128::from(tallest);
        i64::try_from(asked).unwrap_or(MAX_COORDINATE).clamp(1, MAX_COORDINATE)
    };
    let mut rows: BTreeMap<i64, i64> = BTreeMap::new();
    for (extent, nodes) in heavy_nodes::<T>(prepared, sweep)? {
        rows.insert(extent, fullest(backend, &nodes, widths, asked(extent)));
    }
    let mut bands = with_room(flow.len())?;
    for node in &flow.nodes {
        let most = rows.get(&node.extent).copied().unwrap_or_else(|| asked(node.extent));
        bands.push(Band { most, least: 1, step: asked(node.extent), is_whole: true });
    }
    Ok(bands.into())
}

/// The rows of a call of these nodes where `asked` are wanted at a time: the fewest that take hardly more time than the best.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn fullest<T: Element>(backend: &dyn Backend<T>, nodes: &[Heavy<'_>], widths: &[Width], asked: i64) -> i64 {
    let seconds = |rows: i64, calls: i64| {
        let of = |heavy: &Heavy<'_>, width: &Width| {
            let pixels = as_f64(rows) * as_f64(width.cols[heavy.node]) * as_f64(calls);
            let Load { flops, bytes, .. } = heavy.pixel;
            let load =
                Load { calls: as_f64(calls), flops: flops * pixels, bytes: bytes * pixels, ..heavy.pixel };
            as_f64(width.strips) * backend.seconds(heavy.task, &load)
        };
        let calls = backend.seconds(Task::Call, &Load { calls: as_f64(calls), ..Load::default() });
        let work: f64 = nodes.iter().flat_map(|heavy| widths.iter().map(move |width| of(heavy, width))).sum();
        work + calls * nodes.len() as f64
    };
    let of_cut = |rows: i64| {
        let rest = asked % rows;
        seconds(rows, asked / rows) + if rest > 0 { seconds(rest, 1) } else { 0.0 }
    };
    let mut tried = [(asked, f64::INFINITY); MOST_CUTS];
    for (cuts, tried) in (1..=asked).zip(&mut tried) {
        let rows = div_ceil(asked, cuts);
        *tried = (rows, of_cut(rows));
    }
    let least = tried.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
    // the last of them has the fewest rows
    let enough = tried.iter().rfind(|(_, seconds)| *seconds <= least * TOLERANCE);
    enough.map_or(asked, |(rows, _)| *rows)
}

/// Into how many calls the rows that are asked for at a time are cut at most.
const MOST_CUTS: usize = 64;
/// Fewer rows, in smaller windows, are worth this much time.
const TOLERANCE: f64 = 1.003;

#[expect(clippy::cast_precision_loss, reason = "a model of time")]
const fn as_f64(number: i64) -> f64 {
    number as f64
}
