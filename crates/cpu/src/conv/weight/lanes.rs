//! The gradient for the weights where lanes are output channels of several groups: depthwise and narrow groups.
//!
//! The sums of a few kernel rows at all of their taps stay in registers while the pixels of a row go by: a gradient is loaded once
//! for all of them, inputs are operands of the multiply-adds. The pixels of a share take turns by strips of columns, in each by
//! rows: what a row of inputs is read for again lies in the first level cache then.

use std::mem::MaybeUninit;
use std::ops::Range;

use tiled_geometry::Interval;
use tiled_tensor::Element;

use super::super::class::{index, signed};
use super::super::lanes::{Groups, strips};
use super::{Gradients, Reduce, SEGMENT, Segment};
use crate::Isa;
use crate::vector::{MAX_LANES, Micro, Simd};

/// Some kernel rows, for the pixels of some rows that read all of them inside the image.
///
/// # Safety
/// In each row `x` is readable for a vector at `(j·stride + t·tap_step)·S::LANES`, for the taps t whose column
/// `col + j·stride + t·tap_step` is inside the image, `gradients` at `j·gradient_step`; no pixel of the middle part reads outside of it.
/// `sums` is valid for a vector at `r·row_sums + t·S::LANES` and nothing else uses it.
#[derive(Clone, Copy)]
struct TapRows<'a, E> {
    /// What the first tap reads for the first pixel.
    x: Lines<E>,
    /// The rows of storage from one kernel row to the next, modulo the ring.
    kernel_row_step: usize,
    /// The column of it, and the columns of the image.
    col: i64,
    width: i64,
    stride: usize,
    tap_step: usize,
    lanes: &'a [u8; MAX_LANES],
    gradients: Lines<E>,
    gradient_step: usize,
    /// The rows of gradients.
    count: usize,
    /// How many pixels read columns before the image, inside, and after it.
    parts: [usize; 3],
    sums: *mut E,
    row_sums: usize,
}

/// Rows in a ring of storage, a step apart.
#[derive(Clone, Copy)]
struct Lines<E> {
    /// Where row 0 of storage is read.
    start: *const E,
    row: usize,
    step: usize,
    ring: usize,
    row_stride: usize,
}

impl<E> Lines<E> {
    /// A row by itself.
    const fn one(start: *const E) -> Self {
        Self { start, row: 0, step: 0, ring: 1, row_stride: 0 }
    }

    /// The row of storage some steps after one.
    #[inline(always)]
    fn after(&self, row: usize, step: usize) -> usize {
        if row + step >= self.ring { row + step - self.ring } else { row + step }
    }

    #[inline(always)]
    fn at(&self, row: usize) -> *const E {
        self.start.wrapping_add(row * self.row_stride)
    }
}

/// The most kernel rows whose sums are kept at once.
const MOST_ROWS: usize = 5;

/// [`TapRows`] for `R` kernel rows by `T` taps, which do not lie side by side where `APART`; where `PAIRS`, pixels are taken in twos and
/// the stride is one: a column is loaded once for both.
struct TapTile<
    'a,
    E,
    const R: usize,
    const T: usize,
    const APART: bool,
    const PERMUTED: bool,
    const PAIRS: bool,
>(TapRows<'a, E>);

impl<E: Element, const R: usize, const T: usize, const APART: bool, const PERMUTED: bool, const PAIRS: bool>
    Micro<E> for TapTile<'_, E, R, T, APART, PERMUTED, PAIRS>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        const { assert!(R <= MOST_ROWS && T <= 7, "spelled out below") };
        let rows = self.0;
        let lanes = simd.index(rows.lanes);
        let tap_step = if APART { rows.tap_step } else { 1 };
        let (mut x_row, mut gradients_row) = (rows.x.row, rows.gradients.row);
        // SAFETY: as the type asks.
        unsafe {
            let mut sums = [[simd.splat(E::ZERO); T]; R];
            for (r, sums) in sums.iter_mut().enumerate() {
                for (t, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.load(rows.sums.add(r * rows.row_sums + t * S::LANES));
                }
            }
            for _ in 0..rows.count {
                let mut x = [rows.x.start; R];
                let mut row = x_row;
                for x in &mut x {
                    *x = rows.x.at(row);
                    row = rows.x.after(row, rows.kernel_row_step);
                }
                let mut gradients = rows.gradients.at(gradients_row);
                let mut col = rows.col;
                // spelled out, because the compiler does not unroll so long a loop, and then keeps the sums in memory
                macro_rules! column {
                    ($first:ident, $second:expr, $t:literal, $($r:literal)*) => {
                        $(if $r < R {
                            let mut value = simd.load(x[$r % R].wrapping_add($t * tap_step * S::LANES));
                            if PERMUTED {
                                value = simd.permute(value, lanes);
                            }
                            if $t < T {
                                sums[$r % R][$t % T] = simd.mul_add(value, $first, sums[$r % R][$t % T]);
                            }
                            if let Some(second) = $second && $t > 0 {
                                let sum = &mut sums[$r % R][($t + T - 1) % T];
                                *sum = simd.mul_add(value, second, *sum);
                            }
                        })*
                    };
                }
                macro_rules! columns {
                    ($second:expr, $inside:expr, $($t:literal)*) => {
                        let second: Option<S::V> = $second;
                        let first = simd.load(gradients);
                        $(if $t < T + usize::from(second.is_some()) && $inside($t) {
                            column!(first, second, $t, 0 1 2 3 4);
                        })*
                        let pixels = 1 + usize::from(second.is_some());
                        x = x.map(|x| x.wrapping_add(pixels * rows.stride * S::LANES));
                        gradients = gradients.wrapping_add(pixels * rows.gradient_step);
                        col += signed(pixels * rows.stride);
                    };
                }
                for (part, pixels) in rows.parts.into_iter().enumerate() {
                    let mut left = pixels;
                    if part == 1 {
                        while PAIRS && left >= 2 {
                            let second = simd.load(gradients.wrapping_add(rows.gradient_step));
                            columns!(Some(second), |_: i64| true, 0 1 2 3 4 5 6 7);
                            left -= 2;
                        }
                        for _ in 0..left {
                            columns!(None, |_: i64| true, 0 1 2 3 4 5 6);
                        }
                    } else {
                        for _ in 0..left {
                            columns!(None, |t: i64| (0..rows.width).contains(&(col + t * signed(tap_step))), 0 1 2 3 4 5 6);
                        }
                    }
                }
                x_row = rows.x.after(x_row, rows.x.step);
                gradients_row = rows.gradients.after(gradients_row, rows.gradients.step);
            }
            for (r, sums) in sums.iter().enumerate() {
                for (t, sum) in sums.iter().enumerate() {
                    simd.store(rows.sums.add(r * rows.row_sums + t * S::LANES), *sum);
                }
            }
        }
    }
}

/// The taps, so far apart, that are taken at once, of so many: all, or one.
fn together<S: Simd>(taps: usize, tap_step: i64, permuted: bool) -> usize {
    let built = match (S::ISA, permuted) {
        (Isa::Portable, _) => tap_step == 1 && taps == 3,
        (_, true) => taps == 3,
        _ if tap_step > 1 => matches!(taps, 3 | 5 | 7),
        _ => matches!(taps, 2 | 3 | 5 | 7),
    };
    if built { taps } else { 1 }
}

/// Runs as many of `left` kernel rows at once as registers hold; returns how many.
///
/// # Safety
/// As for [`TapRows`] with this many taps, of [`together`].
unsafe fn run<S: Simd>(simd: S, rows: TapRows<'_, S::E>, [left, taps]: [usize; 2], permuted: bool) -> usize {
    macro_rules! tile {
        ($rows:literal, $taps:literal, $permuted:literal) => {{
            // two gradients beside sixteen registers' sums are too many for seven taps
            const PAIRS: bool = $taps > 1;
            if PAIRS && rows.stride == 1 && ($taps < 7 || matches!(S::ISA, Isa::Avx512)) {
                // SAFETY: passed on to the caller.
                unsafe { simd.call(TapTile::<_, $rows, $taps, false, $permuted, PAIRS>(rows)) };
            } else {
                // SAFETY: as above.
                unsafe { simd.call(TapTile::<_, $rows, $taps, false, $permuted, false>(rows)) };
            }
            $rows
        }};
        ($rows:literal, $taps:literal, apart, $permuted:literal) => {{
            // SAFETY: as above.
            unsafe { simd.call(TapTile::<_, $rows, $taps, true, $permuted, false>(rows)) };
            $rows
        }};
    }
    let (wide, few) = (matches!(S::ISA, Isa::Avx512), matches!(S::ISA, Isa::Portable));
    let apart = taps > 1 && rows.tap_step > 1;
    if permuted {
        return match (taps, left) {
            (3, 3..) if apart => tile!(3, 3, apart, true),
            (3, _) if apart => tile!(1, 3, apart, true),
            (3, 3..) => tile!(3, 3, true),
            (3, _) => tile!(1, 3, true),
            (_, 4..) => tile!(4, 1, true),
            _ => tile!(1, 1, true),
        };
    }
    if apart {
        return match (taps, left) {
            (7, 4..) if wide => tile!(4, 7, apart, false),
            (7, 2..) => tile!(2, 7, apart, false),
            (7, _) => tile!(1, 7, apart, false),
            (5, 5..) if wide => tile!(5, 5, apart, false),
            (5, 2..) => tile!(2, 5, apart, false),
            (5, _) => tile!(1, 5, apart, false),
            (_, 3..) => tile!(3, 3, apart, false),
            _ => tile!(1, 3, apart, false),
        };
    }
    match (taps, left) {
        (7, 4..) if wide => tile!(4, 7, false),
        (7, 3..) if wide => tile!(3, 7, false),
        (7, 2..) if !wide && !few => tile!(2, 7, false),
        (7, _) if !few => tile!(1, 7, false),
        (5, 5..) if wide => tile!(5, 5, false),
        (5, 3..) if wide => tile!(3, 5, false),
        (5, 2..) if !wide && !few => tile!(2, 5, false),
        (5, _) if !few => tile!(1, 5, false),
        (3, 3..) => tile!(3, 3, false),
        (3, 2) if !few => tile!(2, 3, false),
        (3, _) => tile!(1, 3, false),
        (2, 2..) if !few => tile!(2, 2, false),
        (2, _) if !few => tile!(1, 2, false),
        (_, 4..) => tile!(4, 1, false),
        _ => tile!(1, 1, false),
    }
}

impl<T: Element> Reduce<'_, T> {
    /// Takes the share into the sums of the rows `(vector, input of the group, kernel row)` in `part`.
    pub(super) fn lanes<S: Simd<E = T>>(&self, simd: S, part: Range<usize>) {
        if self.x.layout().is_empty() {
            return; // all that the kernel reads is padding
        }
        let taps = self.classes[0].taps;
        let mut at = part.start;
        while at < part.end {
            let (line, first) = (at / taps, at % taps);
            let end = part.end.min((line + 1) * taps);
            self.lanes_of_input(simd, line, first..first + end - at);
            at = end;
        }
    }

    /// The same for some kernel rows of one input of a vector's groups.
    fn lanes_of_input<S: Simd<E = T>>(&self, simd: S, line: usize, kernel_rows: Range<usize>) {
        let cols = self.share.cols();
        let width = index(cols.len());
        let strips = strips::<S>(self.problem, width).max(width.div_ceil(index(SEGMENT)));
        let at = |strip: usize| cols.begin() + signed(width * strip / strips);
        let inside = |y: i64| {
            let (begin, end) = self.classes[0].taps_inside(y, self.problem.extents[0]);
            begin.max(kernel_rows.start)..end.min(kernel_rows.end)
        };
        // what is copied is copied row by row
        let blocked = self.x.layout().block() > 1 && self.gy.layout().block() > 1;
        for n in 0..self.gy.layout().batch() {
            for strip in 0..strips {
                let cols = Interval::new(at(strip), at(strip + 1));
                let mut y = self.share.rows().begin();
                while y < self.share.rows().end() {
                    let kernel_rows = inside(y);
                    let mut end = y + 1;
                    while blocked && end < self.share.rows().end() && inside(end) == kernel_rows {
                        end += 1;
                    }
                    if !kernel_rows.is_empty() {
                        self.lanes_of_rows(
                            simd,
                            &Segment { n, y, cols },
                            index(end - y),
                            (line, kernel_rows),
                        );
                    }
                    y = end;
                }
            }
        }
    }

    /// The same for a segment of each of `count` rows, which read these kernel rows inside the image.
    fn lanes_of_rows<S: Simd<E = T>>(
        &self,
        simd: S,
        segment: &Segment,
        count: usize,
        (line, kernel_rows): (usize, Range<usize>),
    ) {
        let problem = self.problem;
        let (item, c) = (line / problem.in_group, line % problem.in_group);
        let [row_class, col_class] = &self.classes;
        let first = item * S::LANES;
        let groups = Groups::new(problem);
        let permuted = problem.in_group > 1 || problem.out_group > 1;
        let lanes = if permuted { groups.permutation(first, c, S::LANES) } else { [0; MAX_LANES] };
        let block = groups.source(first) / S::LANES;
        let sums = first * problem.terms(&self.classes) + c * row_class.taps * col_class.taps * S::LANES;
        let sums = |kernel_row: usize, tap: usize| {
            self.values.0.wrapping_add(sums + (kernel_row * col_class.taps + tap) * S::LANES)
        };
        let mut buffer = [MaybeUninit::uninit(); index(SEGMENT) * 2 * MAX_LANES];
        let of_row = self.gradients::<S>(segment, first..problem.outputs(), 1, &mut buffer);
        let layout = self.x.layout();
        if layout.block() == 1 {
            self.lanes_of_planes(simd, segment, (block, kernel_rows), &of_row, (&lanes, permuted), sums);
            return;
        }
        let gy = self.gy.layout();
        let gradients = if count == 1 {
            Lines::one(of_row.start)
        } else {
            let columns = index(segment.cols.begin() - gy.cols().begin()) * gy.block();
            Lines {
                start: self.gy.data()[gy.row_offset(segment.n, item, 0) + columns..].as_ptr(),
                row: index(segment.y.rem_euclid(signed(gy.ring()))),
                step: 1 % gy.ring(),
                ring: gy.ring(),
                row_stride: gy.row_stride(),
            }
        };
        let ring = signed(layout.ring());
        let taps = together::<S>(col_class.taps, col_class.offset_step, permuted);
        for tap in (0..col_class.taps).step_by(taps) {
            let col = self.column(tap, segment.cols.begin());
            let all = (tap..tap + taps).map(|tap| self.columns(segment, tap));
            let all = all.reduce(Interval::intersect).unwrap_or(Interval::EMPTY);
            let parts = if all.is_empty() {
                [index(segment.cols.len()), 0, 0]
            } else {
                [all.begin() - segment.cols.begin(), all.len(), segment.cols.end() - all.end()].map(index)
            };
            let columns = (col - layout.cols().begin()) * signed(S::LANES);
            let start = self.x.data()[layout.row_offset(segment.n, block, 0)..].as_ptr();
            let mut kernel_row = kernel_rows.start;
            while kernel_row < kernel_rows.end {
                let x = Lines {
                    start: start.wrapping_offset(isize::try_from(columns).unwrap_or(0)),
                    row: index(row_class.reads(segment.y, kernel_row).rem_euclid(ring)),
                    step: index(row_class.input_step % ring),
                    ring: layout.ring(),
                    row_stride: layout.row_stride(),
                };
                let rows = TapRows {
                    x,
                    kernel_row_step: index(row_class.offset_step % ring),
                    col,
                    width: problem.extents[1],
                    stride: index(col_class.input_step),
                    tap_step: index(col_class.offset_step),
                    lanes: &lanes,
                    gradients,
                    gradient_step: of_row.step,
                    count,
                    parts,
                    sums: sums(kernel_row, tap),
                    row_sums: col_class.taps * S::LANES,
                };
                // SAFETY: `check` holds the windows; the sums are this thread's own.
                kernel_row += unsafe { run(simd, rows, [kernel_rows.end - kernel_row, taps], permuted) };
            }
        }
    }

    /// The same where channels lie apart: those that a tap reads are copied beside each other.
    fn lanes_of_planes<S: Simd<E = T>>(
        &self,
        simd: S,
        segment: &Segment,
        (block, kernel_rows): (usize, Range<usize>),
        gradients: &Gradients<T>,
        (lanes, permuted): (&[u8; MAX_LANES], bool),
        sums: impl Fn(usize, usize) -> *mut T,
    ) {
        let mut copy = [MaybeUninit::uninit(); index(SEGMENT) * MAX_LANES];
        for kernel_row in kernel_rows {
            let row = self.classes[0].reads(segment.y, kernel_row);
            for tap in 0..self.classes[1].taps {
                let pixels = self.columns(segment, tap);
                if pixels.is_empty() {
                    continue;
                }
                let (pixels_len, col) = (index(pixels.len()), self.column(tap, pixels.begin()));
                let skipped = index(pixels.begin() - segment.cols.begin()) * gradients.step;
                let x = self.copy_lanes::<S>(segment, (block, row, col), pixels_len, &mut copy);
                let rows = TapRows {
                    x: Lines::one(x),
                    kernel_row_step: 0,
                    col: 0,
                    width: i64::MAX,
                    stride: 1,
                    tap_step: 1,
                    lanes,
                    gradients: Lines::one(gradients.start.wrapping_add(skipped)),
                    gradient_step: gradients.step,
                    count: 1,
                    parts: [0, pixels_len, 0],
                    sums: sums(kernel_row, tap),
                    row_sums: 0,
                };
                // SAFETY: the copy holds the pixels; the sums are this thread's own.
                unsafe { run(simd, rows, [1, 1], permuted) };
            }
        }
    }
}
