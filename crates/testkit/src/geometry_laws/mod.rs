//! The laws of the geometry, each against an enumeration of taps or points.
//!
//! Every function asserts one law and panics where it does not hold. The words of a law are those of the
//! rustdoc of the item that it is about. Cases are made of small integers, so that a property test and a
//! fuzz target reach the same ones; [`wide_window`] and [`wide_interval`] reach the ends of the range.

mod chain;
mod grid;
mod map;
mod region;
mod window;

pub use chain::{
    clipping_at_the_border_changes_no_tap, composition_equals_folding, composition_is_associative,
    paths_bound_a_chain,
};
pub use grid::{
    even_sizes_differ_by_at_most_one, only_the_last_tile_is_ragged, rescaled_tiles_partition,
    tiles_partition_the_whole, what_tiles_need_is_what_the_whole_needs,
};
pub use map::{adjoint_is_the_transpose, map_is_monotone, reads, small_map};
pub use region::{
    aligned_is_a_closure, empty_is_one_value, excess_is_what_clipping_removes, regions_are_sets_of_points,
};
pub use window::{
    computable_outputs_have_all_taps_inside, galois_pair, outputs_count_the_windows,
    receptive_is_the_hull_of_the_taps, touched_outputs_meet_the_inputs, window_stays_in_64_bits,
};

use tiled_geometry::{Interval, MAX_COORDINATE, MAX_WINDOW, Region, Window};

/// A window of up to 6 taps, stride up to 5, dilation up to 4 and padding up to 7.
///
/// # Panics
/// Never: the sizes are in range.
#[must_use]
pub fn small_window(bytes: [u8; 4]) -> Window {
    let [kernel, stride, dilation, padding] = bytes.map(i64::from);
    Window::new(1 + kernel % 6, 1 + stride % 5, 1 + dilation % 4, padding % 8).expect("sizes are in range")
}

/// A window that keeps chains of four small: up to 3 taps, stride and dilation up to 2, padding up to 3.
///
/// # Panics
/// Never: the sizes are in range.
#[must_use]
pub fn small_chain_window(bytes: [u8; 4]) -> Window {
    let [kernel, stride, dilation, padding] = bytes.map(i64::from);
    Window::new(1 + kernel % 3, 1 + stride % 2, 1 + dilation % 2, padding % 4).expect("sizes are in range")
}

/// A window of any size in range, up to [`MAX_WINDOW`].
///
/// # Panics
/// Never: the sizes are in range.
#[must_use]
pub fn wide_window(words: [u32; 4]) -> Window {
    let [kernel, stride, dilation, padding] = words.map(i64::from);
    let positive = |size: i64| 1 + size % MAX_WINDOW;
    Window::new(positive(kernel), positive(stride), positive(dilation), padding % (MAX_WINDOW + 1))
        .expect("sizes are in range")
}

/// An interval that begins in `[−16, 16)` and has up to 15 coordinates; one in sixteen is empty.
#[must_use]
pub fn small_interval(bytes: [u8; 2]) -> Interval {
    let [begin, len] = bytes.map(i64::from);
    Interval::new(begin % 32 - 16, begin % 32 - 16 + len % 16)
}

/// An interval of coordinates anywhere within ±[`MAX_COORDINATE`].
#[must_use]
pub fn wide_interval(ends: [i64; 2]) -> Interval {
    let [a, b] = ends.map(|end| end.rem_euclid(2 * MAX_COORDINATE + 1) - MAX_COORDINATE);
    Interval::new(a.min(b), a.max(b))
}

/// A region with a [`small_interval`] on each axis.
#[must_use]
pub fn small_region<const N: usize>(bytes: [[u8; 2]; N]) -> Region<N> {
    Region::new(bytes.map(small_interval))
}

/// The smallest interval that holds all of these coordinates.
fn hull_of(coordinates: impl IntoIterator<Item = i64>) -> Interval {
    coordinates.into_iter().map(|x| Interval::new(x, x + 1)).fold(Interval::EMPTY, Interval::hull)
}

/// The coordinates of an interval.
fn each(interval: Interval) -> std::ops::Range<i64> {
    interval.begin()..interval.end()
}

/// The points of a region in row-major order.
fn points<const N: usize>(region: Region<N>) -> impl Iterator<Item = [i64; N]> {
    let mut next = (!region.is_empty()).then(|| region.axes().map(Interval::begin));
    std::iter::from_fn(move || {
        let point = next?;
        let mut following = point;
        next = (0..N).rev().find_map(|axis| {
            following[axis] += 1;
            if following[axis] < region.axis(axis).end() {
                return Some(following);
            }
            following[axis] = region.axis(axis).begin();
            None
        });
        Some(point)
    })
}
