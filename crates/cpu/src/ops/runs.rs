//! Lanes that lie side by side in two windows of different blocking.

use tiled_tensor::{Element, Layout, View};

use super::gather::Place;

/// Channels that are neighbours both in a block of an input and in a block of the output.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The channel block of the input.
    pub(crate) block: usize,
    /// The first lane in the input's block.
    pub(crate) from: usize,
    /// The first lane in the output's block.
    pub(crate) to: usize,
    /// The number of lanes.
    pub(crate) len: usize,
}

/// The runs that make up a block of the output; one run of all lanes where the blocks agree.
pub(crate) fn runs(input: &Layout, place: Place) -> impl Iterator<Item = Run> {
    let len = input.block().min(place.lanes);
    let (block, channels) = (input.block(), input.channels());
    (0..place.lanes / len).map(move |i| i * len).filter_map(move |to| {
        let channel = place.first + to;
        (channel < channels).then_some(Run { block: channel / block, from: channel % block, to, len })
    })
}

/// Pixels at equal distances: `len` lanes at every `step` elements.
#[derive(Clone, Copy)]
pub(crate) struct Pixels<'a, T> {
    values: &'a [T],
    step: usize,
}

impl<'a, T: Element> Pixels<'a, T> {
    /// The lanes of `run` of row `y` from column `x` on, every `stride` columns.
    ///
    /// # Panics
    /// Where the window does not hold them.
    pub(crate) fn of(view: &View<'a, T>, n: usize, run: Run, [y, x]: [i64; 2], stride: usize) -> Self {
        let layout = view.layout();
        let cols = tiled_geometry::Interval::new(x, layout.cols().end());
        let values = super::band::span(view, [n, run.block], y, cols);
        Self { values: &values[run.from..], step: stride * layout.block() }
    }

    /// Pixels of `values`, `step` elements apart.
    pub(crate) const fn new(values: &'a [T], step: usize) -> Self {
        Self { values, step }
    }

    /// The values from the first pixel on.
    #[inline(always)]
    pub(crate) const fn values(self) -> &'a [T] {
        self.values
    }

    /// The distance of pixels in elements.
    #[inline(always)]
    pub(crate) const fn step(self) -> usize {
        self.step
    }
}

/// Runs the body for each of `count` pixels; `$len` is a constant inside it for the usual blocks.
///
/// A macro, because a closure that the compiler does not inline would lose the instruction set.
macro_rules! for_pixels {
    ($count:expr, $lanes:expr, |$i:ident, $len:ident| $body:block) => {
        match $lanes {
            1 => $crate::ops::runs::for_pixels!(@loop $count, 1, $i, $len, $body),
            4 => $crate::ops::runs::for_pixels!(@loop $count, 4, $i, $len, $body),
            8 => $crate::ops::runs::for_pixels!(@loop $count, 8, $i, $len, $body),
            16 => $crate::ops::runs::for_pixels!(@loop $count, 16, $i, $len, $body),
            lanes => $crate::ops::runs::for_pixels!(@loop $count, lanes, $i, $len, $body),
        }
    };
    (@loop $count:expr, $lanes:expr, $i:ident, $len:ident, $body:block) => {{
        let $len: usize = $lanes;
        for $i in 0..$count {
            $body
        }
    }};
}
pub(crate) use for_pixels;
