//! The tilings and bands that a search goes over.

use tiled_geometry::Grid;
use tiled_kernel::Backend;
use tiled_tensor::{Element, collected, refusable};

use super::lanes::cores;
use super::{Hold, PlanError, PlanOptions, Tiling};
use crate::program::Program;

/// A band as tall as any tile: every node in one call.
pub(super) const WHOLE: i64 = tiled_geometry::MAX_COORDINATE;

/// A tiling to try.
#[derive(Clone, Debug)]
pub(super) enum Counts {
    Given(Grid<2>),
    Of([i64; 2]),
}

pub(super) fn shapes_to_try<T: Element>(
    program: &Program,
    options: &PlanOptions,
    backend: &dyn Backend<T>,
) -> Result<Vec<(Counts, Vec<i64>)>, PlanError> {
    let anchor = program.anchor;
    // tiles are given in rows of the anchor, bands in rows of the tallest node
    let tallest = program.nodes.iter().map(|node| node.extents[0]).max().unwrap_or(1);
    let band = |rows: i64| {
        let scaled = tiled_geometry::div_ceil(rows.min(anchor[0]) * tallest, anchor[0].max(1));
        options.band.unwrap_or(scaled).max(1)
    };
    let clamp =
        |counts: [i64; 2]| [counts[0].clamp(1, anchor[0].max(1)), counts[1].clamp(1, anchor[1].max(1))];
    // more tiles than rows or columns would be empty ones
    let at_most = |counts: [i64; 2]| [counts[0].min(anchor[0].max(1)), counts[1].min(anchor[1].max(1))];
    let of_counts = |counts| refusable(|| Grid::from_counts(anchor, counts));
    let of_tile = |tile| refusable(|| Grid::from_tile(anchor, tile));
    let strips = |count: i64| Counts::Of(clamp([1, count]));
    // only where the planner chooses how to hold values may windows stand still
    let whole = (options.hold == Hold::Auto).then_some(WHOLE);
    let bands = whole.into_iter().chain([512, 256, 128, 64, 32, 16, 8, 4, 2, 1]).collect();
    let bands = options.band.map_or(bands, |band| vec![band.max(1)]);
    Ok(match (options.hold, options.tiling) {
        (Hold::Materialise, _) => vec![(Counts::Of([1, 1]), vec![WHOLE])],
        (Hold::Auto | Hold::Recompute, Tiling::Grid(counts)) => {
            vec![(Counts::Given(of_counts(at_most(counts))?), vec![WHOLE])]
        }
        (Hold::Auto | Hold::Recompute, Tiling::Tile(tile)) => {
            vec![(Counts::Given(of_tile(tile)?), vec![WHOLE])]
        }
        (Hold::Slide, Tiling::Grid(counts)) if options.band.is_some() => {
            vec![(Counts::Given(of_counts(at_most(counts))?), bands)]
        }
        (Hold::Slide, Tiling::Grid(counts)) => {
            let [rows, cols] = at_most(counts);
            let grid = of_counts([1, cols])?;
            of_counts([rows, cols])?;
            vec![(Counts::Given(grid), vec![band(tiled_geometry::div_ceil(anchor[0], rows))])]
        }
        (Hold::Slide, Tiling::Tile([height, width])) => {
            of_tile([height, width])?;
            vec![(Counts::Given(of_tile([anchor[0].max(1), width])?), vec![band(height)])]
        }
        (Hold::Recompute, Tiling::Auto) => {
            let counts = powers(anchor[0].max(anchor[1]));
            collected(counts.map(|count| (Counts::Of(clamp([count, count])), vec![WHOLE])))?
        }
        (Hold::Slide, Tiling::Auto) => {
            collected(powers(anchor[1]).map(|count| (strips(count), bands.clone())))?
        }
        (Hold::Auto, Tiling::Auto) => {
            // a part of the rows for each core: whole rows are read and written in one go
            let lanes = i64::try_from(options.lanes.unwrap_or(cores(program, options, backend))).unwrap_or(1);
            let parts = if lanes > 1 { vec![lanes, 1] } else { vec![1] };
            let counts = powers(anchor[1]).flat_map(|strips| parts.iter().map(move |parts| [*parts, strips]));
            collected(counts.map(|counts| (Counts::Of(clamp(counts)), bands.clone())))?
        }
    })
}

/// 1, 2, 3, 4, 6, 8, 12, 16, … up to the extent.
fn powers(extent: i64) -> impl Iterator<Item = i64> {
    let extent = extent.clamp(1, 4096);
    std::iter::successors(Some((1_i64, 2_i64)), |(a, b)| {
        Some((*b, if b.count_ones() == 1 { b / 2 * 3 } else { a * 2 }))
    })
    .map(|(count, _)| count)
    .take_while(move |count| *count <= extent)
}
