//! How tiles are shared out: to how many lanes, how many of these run at a time, and on how many threads.
//!
//! Gradients of convolution weights are floating-point sums. Each lane has its own, and they are added in the order of the
//! lanes, so their last bits depend on the tiling and on the lanes. A plan with such sums is therefore chosen for the
//! same number of cores wherever it is made; the threads that there are decide how many of its lanes run at a time,
//! and nothing else.

use tiled_kernel::{Backend, Reduction};
use tiled_tensor::Element;

use super::{Hold, PlanOptions};
use crate::program::Program;

/// How tiles are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Shares of the tiles, each with partial sums of its own.
    pub(super) lanes: usize,
    /// Lanes that run at a time, each with windows of its own.
    pub(super) in_flight: usize,
    /// Threads that run them.
    pub(super) threads: usize,
}

impl Share {
    /// The lane of a tile, one of so many.
    pub(super) const fn lane_of(self, tile: usize, tiles: usize) -> usize {
        tile * self.lanes / tiles
    }
}

/// The cores that a plan is chosen for where its sums depend on its lanes.
const CORES: usize = 2;

/// The most lanes that such a plan gets beyond those that it was chosen for.
const MOST_LANES: usize = 16;

/// The part of a plan's memory that the sums of further lanes may take.
const SUMS_PART: u64 = 8;

/// Whether the bits of a result depend on how tiles are shared out: sums without rounding do not.
pub(super) fn has_ordered_sums(program: &Program) -> bool {
    program.reductions.iter().any(|reduction| matches!(reduction.reduction, Reduction::ConvWeight(_)))
}

/// The cores that a plan is chosen for.
pub(super) fn cores<T: Element>(program: &Program, options: &PlanOptions, backend: &dyn Backend<T>) -> usize {
    let threads = if has_ordered_sums(program) { CORES } else { options.parallelism.max(1) };
    backend.workers(threads).max(1)
}

/// The ways to share out so many tiles that are tried.
pub(super) fn shares_to_try(tiles: usize, options: &PlanOptions, cores: usize) -> Vec<Share> {
    let mut lanes = match (options.lanes, options.hold) {
        (Some(lanes), _) => vec![lanes],
        (None, Hold::Materialise) => vec![1],
        (None, _) => vec![cores, 1],
    };
    for count in &mut lanes {
        *count = (*count).clamp(1, tiles.max(1));
    }
    lanes.dedup();
    lanes.into_iter().map(|lanes| Share { lanes, in_flight: lanes.min(cores), threads: cores }).collect()
}

/// The lanes of a plan that was chosen with `lanes`, for machines of more cores: as many as share its tiles out as evenly, there
/// and on the cores that it was chosen for,
/// where their sums of `partial_bytes` each are a small part of the plan's memory and still fit the budget.
pub(super) fn further_lanes(
    lanes: usize,
    tiles: usize,
    partial_bytes: u64,
    plan_bytes: u64,
    budget: Option<u64>,
) -> usize {
    if lanes <= 1 {
        return lanes; // its calls are what threads share
    }
    let room =
        budget.map_or(u64::MAX, |budget| budget.saturating_sub(plan_bytes)).min(plan_bytes / SUMS_PART);
    let most = tiles.min(MOST_LANES);
    // the tiles of as many lanes as the busiest would fill, where so many run at a time
    let filled =
        |count: usize, at_a_time: usize| tiles.div_ceil(count) * count.div_ceil(at_a_time) * at_a_time;
    (lanes..=most)
        .filter(|count| partial_bytes.saturating_mul((count - lanes) as u64) <= room)
        .min_by_key(|count| (filled(*count, lanes), filled(*count, *count), std::cmp::Reverse(*count)))
        .unwrap_or(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_as_many_as_share_tiles_out_evenly() {
        let of = |tiles| further_lanes(2, tiles, 1, 1000, None);
        assert_eq!([2, 3, 4, 6, 8, 12, 16].map(of), [2, 3, 4, 6, 8, 12, 16]);
        assert_eq!(of(32), 16, "no more than sixteen");
        assert_eq!(of(34), 2, "seventeen tiles each");
        assert_eq!(of(9), 9, "ten tiles of two lanes, nine of nine");
        assert_eq!(further_lanes(2, 96, 100, 1600, None), 4, "three would leave a core idle");
        assert_eq!(further_lanes(1, 8, 1, 1000, None), 1, "threads share its calls");
    }

    #[test]
    fn further_lanes_take_a_small_part_of_the_memory_and_of_the_budget() {
        assert_eq!(further_lanes(2, 8, 100, 1600, None), 4, "two hundred bytes, an eighth");
        assert_eq!(
            further_lanes(2, 8, 100, 1600, Some(1700)),
            2,
            "three lanes do not share eight tiles evenly"
        );
        assert_eq!(further_lanes(2, 9, 100, 1600, Some(2300)), 2, "three lanes take four turns of two");
        assert_eq!(further_lanes(2, 8, 100, 1600, Some(1600)), 2);
    }
}
