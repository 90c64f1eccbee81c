//! The outputs of one residue along one axis, and the taps that reach them.
//!
//! A convolution has one class: output `o` reads `o·s − p + d·u` for every tap u. The gradient for its input
//! has one per residue: input `r + s·m` is reached by the taps u with `d·u ≡ r + p (mod s)`, from the output
//! `m + (r + p − d·u)/s`. Each class is a small dense convolution without wasted taps, and each tap belongs to
//! one class. So both directions are the same computation over classes.

use tiled_geometry::{Interval, Window, div_ceil};

/// Outputs `first + step·m`; tap t of output m reads input `m·input_step + offset + t·offset_step`.
///
/// Taps are in ascending order of what they read. Tap t is the weight at `first_tap + t·tap_step`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) first: i64,
    pub(super) step: i64,
    pub(super) input_step: i64,
    pub(super) offset: i64,
    pub(super) offset_step: i64,
    pub(super) taps: usize,
    first_tap: i64,
    tap_step: i64,
}

impl Class {
    /// The only class of a convolution.
    fn forward(window: Window) -> Self {
        Self {
            first: 0,
            step: 1,
            input_step: window.stride(),
            offset: -window.padding(),
            offset_step: window.dilation(),
            taps: index(window.kernel()),
            first_tap: 0,
            tap_step: 1,
        }
    }

    /// The class of the taps `u ≡ q (mod s/gcd(s,d))` of the gradient for the input.
    fn transposed(window: Window, q: i64) -> Self {
        let common = gcd(window.stride(), window.dilation());
        let apart = window.stride() / common;
        let taps = (window.kernel() - q - 1) / apart + 1;
        let last = q + (taps - 1) * apart;
        let first = (window.dilation() * q - window.padding()).rem_euclid(window.stride());
        Self {
            first,
            step: window.stride(),
            input_step: 1,
            offset: (first + window.padding() - window.dilation() * last) / window.stride(),
            offset_step: window.dilation() / common,
            taps: index(taps),
            first_tap: last,
            tap_step: -apart,
        }
    }

    /// The classes of an axis.
    pub(super) fn all(window: Window, transposed: bool) -> impl Iterator<Item = Self> + Clone {
        let count = if transposed { Self::residues(window).min(window.kernel()) } else { 1 };
        (0..count).map(move |q| if transposed { Self::transposed(window, q) } else { Self::forward(window) })
    }

    /// Whether the classes of an axis leave outputs that no tap reaches.
    pub(super) fn leaves_gaps(window: Window, transposed: bool) -> bool {
        transposed && Self::residues(window).min(window.kernel()) < window.stride()
    }

    fn residues(window: Window) -> i64 {
        window.stride() / gcd(window.stride(), window.dilation())
    }

    /// The kernel position of tap t.
    pub(super) fn tap(&self, t: usize) -> usize {
        index(self.first_tap + signed(t) * self.tap_step)
    }

    /// Every `count`-th output, from m = `first` on.
    pub(super) fn every(&self, count: i64, first: i64) -> Self {
        Self {
            first: self.first + first * self.step,
            step: self.step * count,
            input_step: self.input_step * count,
            offset: self.offset + first * self.input_step,
            ..*self
        }
    }

    /// The phases of the outputs whose taps meet in the same inputs: as many as lie between two taps of an output, in outputs.
    pub(super) fn phases(&self) -> i64 {
        self.offset_step / gcd(self.input_step, self.offset_step)
    }

    /// What the outputs of a phase lie apart, counted in what the taps of each do.
    pub(super) fn stride(&self) -> i64 {
        self.input_step / gcd(self.input_step, self.offset_step)
    }

    /// Phase `number`, which reads every `apart`-th input from `first` on, counted in these: `(phase, first, apart)`.
    pub(super) fn phase(&self, number: i64) -> (Self, i64, i64) {
        let (phase, apart) = (self.every(self.phases(), number), self.offset_step);
        let counted = Self {
            input_step: phase.input_step / apart,
            offset: phase.offset.div_euclid(apart),
            offset_step: 1,
            ..phase
        };
        (counted, phase.offset.rem_euclid(apart), apart)
    }

    /// The m of the outputs in `outputs`.
    pub(super) fn members(&self, outputs: Interval) -> Interval {
        let at = |o: i64| div_ceil(o - self.first, self.step);
        Interval::new(at(outputs.begin()), at(outputs.end()))
    }

    /// The input that the first tap of output m reads.
    pub(super) fn input(&self, m: i64) -> i64 {
        self.reads(m, 0)
    }

    /// The input that tap t of output m reads.
    pub(super) fn reads(&self, m: i64, t: usize) -> i64 {
        m * self.input_step + self.offset + signed(t) * self.offset_step
    }

    /// The taps of output m that read inside `[0, extent)`.
    pub(super) fn taps_inside(&self, m: i64, extent: i64) -> (usize, usize) {
        let taps = self.window().taps_inside(m, self.image(extent));
        (index(taps.begin()), index(taps.end()))
    }

    /// The m of the outputs whose tap t reads inside `[0, extent)`.
    pub(super) fn outputs_inside(&self, t: usize, extent: i64) -> Interval {
        self.window().outputs_inside(signed(t), self.image(extent))
    }

    /// The taps as a window without padding, over the inputs counted from the one that the first tap of output 0 reads:
    /// that may lie inside the image, where no padding would say so.
    fn window(&self) -> Window {
        let window = Window::new(signed(self.taps), self.input_step, self.offset_step, 0);
        window.expect("invariant: no step or count of taps is larger than the window's that it is of")
    }

    /// `[0, extent)`, counted so.
    fn image(&self, extent: i64) -> Interval {
        Interval::new(-self.offset, extent - self.offset)
    }

    /// The end of the outputs from m on that the same taps read inside `[0, extent)` for, or `end`.
    pub(super) fn same_taps(&self, m: i64, end: i64, extent: i64) -> i64 {
        let changes = (0..self.taps).flat_map(|t| {
            let inside = self.outputs_inside(t, extent);
            [inside.begin(), inside.end()]
        });
        changes.filter(|&at| at > m).fold(end, i64::min)
    }

    /// Whether the taps from one to another of the outputs `[a, b)` read inside `[0, extent)`.
    pub(super) fn reads_inside(&self, [a, b]: [i64; 2], [first, end]: [usize; 2], extent: i64) -> bool {
        first == end || (self.reads(a, first) >= 0 && self.reads(b - 1, end - 1) < extent)
    }
}

/// A size or coordinate that is not negative.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "callers pass values between zero and the size of a window in memory"
)]
pub(super) const fn index(value: i64) -> usize {
    debug_assert!(value >= 0);
    value as usize
}

/// A size as a coordinate.
#[inline(always)]
#[expect(clippy::cast_possible_wrap, reason = "sizes in memory are below 2^63")]
pub(super) const fn signed(value: usize) -> i64 {
    value as i64
}

const fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_a_gradient_pair_every_input_with_its_taps() {
        for (k, s, d, p) in
            [(3, 1, 1, 1), (3, 2, 1, 1), (4, 2, 1, 0), (3, 2, 2, 5), (2, 5, 3, 1), (5, 6, 4, 7)]
        {
            let window = Window::new(k, s, d, p).unwrap();
            let mut pairs: Vec<[i64; 3]> = Vec::new();
            for class in Class::all(window, true) {
                for m in
                    class.members(Interval::new(0, 40)).begin()..class.members(Interval::new(0, 40)).end()
                {
                    for t in 0..class.taps {
                        pairs.push([class.first + class.step * m, signed(class.tap(t)), class.reads(m, t)]);
                    }
                }
            }
            pairs.sort_unstable();
            let mut expected = Vec::new();
            for x in 0..40 {
                for u in 0..k {
                    if (x + p - d * u).rem_euclid(s) == 0 {
                        expected.push([x, u, (x + p - d * u).div_euclid(s)]);
                    }
                }
            }
            assert_eq!(pairs, expected, "kernel {k} stride {s} dilation {d} padding {p}");
        }
    }

    #[test]
    fn phases_read_what_their_class_reads() {
        for (s, d) in [(1, 1), (1, 2), (1, 5), (2, 2), (2, 4), (4, 6), (3, 1)] {
            let class = Class::all(Window::new(3, s, d, 7).unwrap(), false).next().unwrap();
            let mut seen = Vec::new();
            for number in 0..class.phases() {
                let (phase, first, apart) = class.phase(number);
                assert_eq!((phase.input_step, phase.offset_step), (class.stride(), 1));
                for m in -3..9 {
                    let output = phase.first + m * phase.step;
                    seen.push(output);
                    for t in 0..3 {
                        assert_eq!(first + apart * phase.reads(m, t), class.reads(output, t), "{s} {d}");
                    }
                }
            }
            seen.sort_unstable();
            let outputs = -3 * class.phases()..9 * class.phases();
            assert_eq!(seen, outputs.collect::<Vec<_>>(), "stride {s} dilation {d}");
        }
    }

    #[test]
    fn the_same_taps_are_inside_up_to_where_one_more_or_less_is() {
        let class = Class::all(Window::new(4, 1, 5, 9).unwrap(), false).next().unwrap();
        let mut m = -3;
        while m < 30 {
            let end = class.same_taps(m, 30, 14);
            assert!(
                (m..end).all(|other| class.taps_inside(other, 14) == class.taps_inside(m, 14)),
                "{m} {end}"
            );
            assert!(end == 30 || class.taps_inside(end, 14) != class.taps_inside(m, 14), "{m} {end}");
            m = end;
        }
    }

    #[test]
    fn taps_inside_are_those_that_read_the_image() {
        let class = Class::all(Window::new(5, 1, 3, 7).unwrap(), false).next().unwrap();
        for m in -3..20 {
            let inside: Vec<usize> =
                (0..5).filter(|&t| (0..9).contains(&(class.input(m) + signed(t) * 3))).collect();
            let (a, b) = class.taps_inside(m, 9);
            assert_eq!((a..b).collect::<Vec<_>>(), inside, "output {m}");
        }
    }
}
