//! A plan as a table for people.

use std::fmt::{self, Write};

use tiled_geometry::Interval;
use tiled_graph::{Plan, SweepPlan};

use super::facts::{Facts, Holding, band_rows};
use super::number::{bytes, flops, grouped, mebibytes, percent, seconds};

pub(super) fn write(plan: &Plan) -> String {
    let mut out = String::new();
    write_plan(&mut out, plan).expect("invariant: writing to a string does not fail");
    out
}

fn write_plan(out: &mut String, plan: &Plan) -> fmt::Result {
    let count = plan.sweeps.len();
    let most = if plan.sweeps.iter().all(|sweep| sweep.lanes == plan.lanes()) { "" } else { "at most " };
    write!(
        out,
        "{}, {}, {most}{}",
        plan.dtype.name(),
        counted(count, "sweep"),
        counted(plan.lanes(), "lane")
    )?;
    if plan.in_flight() < plan.lanes() {
        write!(out, ", {} at a time", plan.in_flight())?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "peak {}; {}, of it redundant {}; predicted {}\n",
        bytes(plan.peak_bytes()),
        flops(plan.flops),
        percent(plan.redundant_flops, plan.flops),
        seconds(plan.predicted_seconds),
    )?;
    let mut rows = vec![["memory", "bytes", "MiB"].map(str::to_owned)];
    let parts = plan.memory.parts();
    for (name, part) in parts.into_iter().filter(|(_, bytes)| *bytes > 0).chain([("peak", plan.peak_bytes())])
    {
        rows.push([name.to_owned(), grouped(part), mebibytes(part)]);
    }
    table(out, &rows, &[Align::Left, Align::Right, Align::Right])?;
    if plan.stores_in_files && !plan.program.stores.is_empty() {
        let stores =
            plan.program.stores.iter().map(|store| store.name.as_str()).collect::<Vec<_>>().join(", ");
        writeln!(out, "\nkept between sweeps, in files: {stores}")?;
    }
    for (index, sweep) in plan.sweeps.iter().enumerate() {
        write_sweep(out, plan, sweep, index)?;
    }
    Ok(())
}

fn write_sweep(out: &mut String, plan: &Plan, sweep: &SweepPlan, index: usize) -> fmt::Result {
    let facts = Facts::all(plan, sweep);
    writeln!(out, "\nsweep {} of {}: {}", index + 1, plan.sweeps.len(), segment(&facts))?;
    let windows: usize = sweep.slot_elements.iter().sum::<usize>() * plan.dtype.size_bytes();
    // where all have the same, it stands above
    let lanes = if plan.sweeps.iter().all(|other| other.lanes == sweep.lanes) {
        String::new()
    } else {
        format!(", {}", counted(sweep.lanes, "lane"))
    };
    writeln!(
        out,
        "  {}{lanes}; {}, {}; windows {} a lane in {}",
        shape(plan, sweep),
        counted(sweep.steps, "step"),
        counted(sweep.calls, "call"),
        bytes(windows as u64),
        counted(sweep.slot_elements.len(), "slot"),
    )?;
    for cache in &sweep.chunks {
        let [rows, cols] = cache.chunks.shape();
        writeln!(
            out,
            "  `{}` in chunks of {rows}×{cols}: {} held, {} of {}",
            plan.program.nodes[sweep.nodes[cache.node].node].name,
            grouped(cache.slots as u64),
            counted(cache.reads, "read"),
            grouped(cache.count),
        )?;
    }
    let header =
        ["  node", "kernel", "channels", "height×width", "window", "bytes", "slot", "times", "flops"];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(facts.iter().map(row));
    let right = Align::Right;
    table(out, &rows, &[Align::Left, Align::Left, right, right, right, right, right, right, right])
}

/// The nodes of a sweep in few words.
fn segment(facts: &[Facts]) -> String {
    let [first, .., last] = facts else { return counted(facts.len(), "node") };
    let gradients = facts.iter().filter(|facts| facts.is_gradient()).count();
    let nodes = counted(facts.len(), "node");
    match gradients {
        0 => format!("{nodes}, {} to {}", first.name, last.name),
        _ => format!("{nodes}, {} to {}, {gradients} of them gradients", first.name, last.name),
    }
}

/// How a sweep cuts the image: `slide in bands of 8 rows, 4 strips of 32 of 128 columns`.
pub(super) fn shape(plan: &Plan, sweep: &SweepPlan) -> String {
    let hold = Holding::of(sweep);
    let [rows, cols] = sweep.grid.counts();
    let [height, width] = sweep.grid.tile([0, 0]).axes().map(Interval::len);
    let [full_height, full_width] = sweep.grid.extents();
    match hold {
        Holding::Materialise => format!("materialise whole tensors, {full_height}×{full_width}"),
        Holding::Recompute => {
            format!("recompute, {rows}×{cols} tiles of {height}×{width} over {full_height}×{full_width}")
        }
        Holding::Slide => {
            let mut band = counted(band_rows(plan, sweep), "row");
            if sweep.least_rows > 1 {
                band += &format!(", {} short ones at least where weights are read", sweep.least_rows);
            }
            let strips = match cols {
                1 => "the full width".to_owned(),
                _ => format!("{cols} strips of {width} of {full_width} columns"),
            };
            let tall = if rows > 1 { format!(", {rows} tall tiles of {height} rows") } else { String::new() };
            format!("slide in bands of {band}, {strips}{tall}")
        }
    }
}

fn row(facts: &Facts) -> [String; 9] {
    let [_, channels, height, width] = facts.shape;
    let absent = || "-".to_owned();
    let has_window = facts.ring_rows > 0 && facts.window_cols > 0;
    [
        format!("  {}", facts.name),
        facts.kernel.clone(),
        channels.to_string(),
        format!("{height}×{width}"),
        if has_window { format!("{}×{}", facts.ring_rows, facts.window_cols) } else { absent() },
        if has_window { grouped(facts.window_bytes) } else { absent() },
        facts.slot.map_or_else(absent, |slot| slot.to_string()),
        format!("{:.2}", facts.times),
        if facts.flops > 0.0 { flops(facts.flops) } else { absent() },
    ]
}

/// `1 sweep`, `3 sweeps`.
pub(super) fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count: u64 = count.try_into().unwrap_or(u64::MAX);
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

#[derive(Clone, Copy)]
enum Align {
    Left,
    Right,
}

/// Writes rows with columns as wide as their widest cell, two spaces apart.
fn table<const N: usize>(out: &mut String, rows: &[[String; N]], aligns: &[Align; N]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let mut line = String::new();
        for (cell, (align, width)) in row.iter().zip(aligns.iter().zip(widths)) {
            match align {
                Align::Left => write!(line, "{cell:<width$}  ")?,
                Align::Right => write!(line, "{cell:>width$}  ")?,
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
