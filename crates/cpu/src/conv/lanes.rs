//! Lanes are output channels of several groups: depthwise and narrow groups.
//!
//! Lane l of an output vector reads, for each input c of its group, one lane of one input vector; so inputs are
//! loaded as vectors and permuted (depthwise: as they are). The order of the sum is input of the group, kernel
//! row, kernel column.
//!
//! The weights of a kernel row and the sums of a tile stay in registers, and an input is loaded once for all taps of its row that
//! read it: a 3×3 takes 3.9 loads for 9 multiply-adds. Pixels that are as far apart as taps share what they read as well, so a dilated
//! kernel takes every second pixel of a row, or every third, and then those between ([`phases`]). Where that leaves few pixels,
//! each tap loads its own.

mod shares;

use std::mem::MaybeUninit;

use tiled_tensor::Element;

use super::class::{Class, index, signed};
use super::limits::Limits;
use super::problem::Problem;
use super::source::{Source, Target, finish};
use crate::Isa;
use crate::vector::{MAX_LANES, Micro, Simd};

pub(super) use shares::{share_of_peak, weight_share_of_peak};

/// The most pixels of a tile, and the most columns that one at the image's edge reads.
const MOST_PIXELS: usize = 16;

/// Neighbouring outputs of some rows, of one vector of channels, in tiles of 16, 8, 4 pixels and of one.
///
/// `TAPS` is how many columns the kernel has, or [`ANY`]; `STRIDE` is then how many taps lie from a pixel to the next. `APART` says that
/// taps do not lie side by side. `PAIRS` says that there is another pixel before each, at half of the target's step, which reads the same
/// columns but the last: the phases of a gradient of stride two.
///
/// # Safety
/// As for [`super::dense::Tiles`]; `weights` is the start of the vector's weights. The pixels of the middle part read
/// inside the image alone, and there are none where the inputs are not blocked.
struct Stretch<
    'a,
    E,
    const TAPS: usize,
    const STRIDE: usize,
    const APART: bool,
    const PERMUTED: bool,
    const PAIRS: bool,
>(Outputs<'a, E>);

/// See [`Stretch`].
#[derive(Clone, Copy)]
pub(super) struct Outputs<'a, E> {
    pub(super) source: &'a Source<E>,
    pub(super) target: &'a Target<E>,
    pub(super) weights: *const E,
    /// Of the other pixels of pairs, or null.
    pub(super) others: *const E,
    pub(super) bias: *const E,
    pub(super) groups: &'a Groups,
    /// See [`parts`].
    pub(super) parts: [usize; 3],
    pub(super) rows: OutputRows<E>,
}

/// Rows of outputs that read as many kernel rows, from that of the source and the target.
#[derive(Clone, Copy)]
pub(super) struct OutputRows<E> {
    pub(super) count: usize,
    /// The rows of storage of the inputs from one to the next, modulo their ring.
    pub(super) input_step: usize,
    /// Row 0 of storage of the outputs at the first pixel, the row of storage of the first row and the step to the next, modulo
    /// `ring`.
    pub(super) start: *mut E,
    pub(super) row: usize,
    pub(super) row_step: usize,
    pub(super) ring: usize,
    pub(super) row_stride: usize,
}

/// Any number of columns, any steps between them and between pixels.
const ANY: usize = 0;

/// How output channels read input channels.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    pub(super) in_group: usize,
    pub(super) out_group: usize,
    /// All kernel rows, and the first one inside the image.
    pub(super) rows: usize,
    pub(super) first_row: usize,
    /// Whether a block of inputs is a vector, else one channel.
    pub(super) blocked: bool,
    /// All input channels.
    pub(super) inputs: usize,
}

impl Groups {
    /// Those of a problem with all kernel rows, over blocks.
    pub(super) fn new(problem: &Problem) -> Self {
        Self {
            in_group: problem.in_group,
            out_group: problem.out_group,
            rows: 0,
            first_row: 0,
            blocked: true,
            inputs: problem.inputs(),
        }
    }

    /// The first input channel of the group of an output channel.
    pub(super) fn source(&self, output: usize) -> usize {
        output / self.out_group * self.in_group
    }

    /// The lanes of an input vector that the output channels from `output` read as input `c` of their group.
    pub(super) fn permutation(&self, output: usize, c: usize, lanes: usize) -> [u8; MAX_LANES] {
        std::array::from_fn(|l| u8::try_from((self.source(output + l) + c) % lanes).unwrap_or(0))
    }
}

impl<
    E: Element,
    const TAPS: usize,
    const STRIDE: usize,
    const APART: bool,
    const PERMUTED: bool,
    const PAIRS: bool,
> Micro<E> for Stretch<'_, E, TAPS, STRIDE, APART, PERMUTED, PAIRS>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        // copies, or the compiler reads them anew after each store
        let (source, target, groups, rows) = (*self.0.source, *self.0.target, *self.0.groups, self.0.rows);
        let mut buffer = [MaybeUninit::<E>::uninit(); MAX_LANES * MOST_PIXELS];
        let buffer = buffer.as_mut_ptr().cast::<E>();
        // inputs of a group are fewer than lanes, see `Problem::new`
        let permutations: [S::Index; MAX_LANES] = std::array::from_fn(|c| {
            let lanes = if PERMUTED && c < groups.in_group {
                groups.permutation(target.channel, c, S::LANES)
            } else {
                [0; MAX_LANES]
            };
            simd.index(&lanes)
        });
        let block = groups.source(target.channel) / S::LANES;
        let this = Call {
            source,
            groups,
            simd,
            block,
            blocks: source.start.wrapping_add(block * source.block_stride),
            weights: self.0.weights.wrapping_add(groups.first_row * source.cols * S::LANES),
            others: self.0.others.wrapping_add(groups.first_row * source.cols.wrapping_sub(1) * S::LANES),
            // SAFETY: the bias has the channels of the vector.
            bias: unsafe { simd.load(self.0.bias) },
            // what is not written as whole vectors is written apart, from the start of all blocks
            first: if target.whole { target.channel / S::LANES * target.block_stride } else { 0 },
            whole: target.whole,
            limits: target.limits.splat(simd),
            step: target.step,
        };
        let (mut input_row, mut output_row) = (source.row, rows.row);
        let mut lines = [0; MOST_LINES];
        for _ in 0..rows.count {
            let mut row = input_row;
            for line in lines.iter_mut().take(source.rows) {
                *line = row * source.row_stride;
                row = source.next_row(row);
            }
            let mut col = source.col;
            let mut start = rows.start.wrapping_add(output_row * rows.row_stride + this.first);
            for (part, mut left) in self.0.parts.into_iter().enumerate() {
                macro_rules! tiles {
                    ($pixels:literal, $edge:literal) => {
                        while left >= $pixels {
                            let place = Place { row: input_row, lines: &lines, col, start };
                            // SAFETY: as the type asks.
                            unsafe { self.tile::<S, $pixels, $edge>(&this, &permutations, place, buffer) };
                            col += $pixels * source.pixel_step;
                            start = start.wrapping_add($pixels * target.step);
                            left -= $pixels;
                        }
                    };
                }
                if part == 1 {
                    if const { wide::<S>(TAPS, STRIDE, APART || PAIRS) == 16 } {
                        tiles!(16, false);
                    }
                    if const { wide::<S>(TAPS, STRIDE, APART || PAIRS) >= 8 } {
                        tiles!(8, false);
                    }
                    tiles!(4, false);
                    tiles!(1, false);
                } else {
                    if const { TAPS == ANY && wide::<S>(TAPS, STRIDE, APART || PAIRS) == 16 } {
                        tiles!(16, true);
                    }
                    if const { TAPS == ANY && wide::<S>(TAPS, STRIDE, APART || PAIRS) >= 8 } {
                        tiles!(8, true);
                    }
                    tiles!(4, true);
                    tiles!(1, true);
                }
            }
            input_row += rows.input_step;
            if input_row >= source.ring {
                input_row -= source.ring;
            }
            output_row += rows.row_step;
            if output_row >= rows.ring {
                output_row -= rows.ring;
            }
        }
    }
}

/// What the tiles of a call have in common.
struct Call<S: Simd> {
    simd: S,
    source: Source<S::E>,
    groups: Groups,
    /// The block of inputs of the vector, and row 0 of storage of it.
    block: usize,
    blocks: *const S::E,
    /// From the first kernel row inside the image on.
    weights: *const S::E,
    others: *const S::E,
    bias: S::V,
    /// Where the vector's block of outputs begins, if vectors are whole blocks.
    first: usize,
    whole: bool,
    limits: Limits<S::V>,
    step: usize,
}

/// Kernel rows whose places in storage are found once for a row of outputs.
const MOST_LINES: usize = 7;

/// Where a tile begins: the row of storage of its first kernel row, the input column of its first pixel's first tap, and its output.
#[derive(Clone, Copy)]
struct Place<'a, E> {
    row: usize,
    /// Where the rows of storage of the kernel rows begin, unless there may be more than [`MOST_LINES`].
    lines: &'a [usize; MOST_LINES],
    col: i64,
    start: *mut E,
}

/// The pixels, or pairs, of a wide tile: with two columns to a pixel, more save few loads; pairs, and columns that are reached through as
/// many addresses, leave registers for fewer.
const fn wide<S: Simd>(taps: usize, stride: usize, fewer: bool) -> usize {
    match (S::ISA, fewer) {
        (Isa::Avx512, false) if stride == 1 || taps == ANY => MOST_PIXELS,
        (Isa::Avx512, _) | (_, false) => 8,
        (_, true) => 4,
    }
}

impl<
    E: Element,
    const TAPS: usize,
    const STRIDE: usize,
    const APART: bool,
    const PERMUTED: bool,
    const PAIRS: bool,
> Stretch<'_, E, TAPS, STRIDE, APART, PERMUTED, PAIRS>
{
    /// Computes a tile; where `EDGE` columns may lie outside the image.
    ///
    /// # Safety
    /// As for the type; `buffer` holds [`MOST_PIXELS`] vectors.
    #[inline(always)]
    unsafe fn tile<S: Simd<E = E>, const P: usize, const EDGE: bool>(
        &self,
        this: &Call<S>,
        permutations: &[S::Index; MAX_LANES],
        Place { row: first_row, lines, col, start }: Place<'_, E>,
        buffer: *mut E,
    ) {
        // a tile that is too wide for the instruction set is never run
        const {
            let spelled_out = TAPS <= 7 && (P - 1) * STRIDE + TAPS <= 22;
            assert!(spelled_out || P > wide::<S>(TAPS, STRIDE, APART || PAIRS), "spelled out below");
        };
        let &Call { simd, source, groups, block, .. } = this;
        let blocked = !EDGE || groups.blocked;
        let (pixel_step, tap_step) = (source.pixel_step, signed(source.tap_step));
        // SAFETY: columns are read where they are inside the image, or from the buffer, which has room for what is copied.
        unsafe {
            let mut sums = [[this.bias; 1]; P];
            let mut other_sums = [[this.bias; 1]; P];
            let mut others = this.others;
            for c in 0..if PERMUTED { groups.in_group } else { 1 } {
                let lanes = permutations[c % MAX_LANES];
                let mut weights = this.weights.add(c * groups.rows * source.cols * S::LANES);
                let mut row = first_row;
                for kernel_row in 0..source.rows {
                    let line = if TAPS == ANY {
                        let line = row * source.row_stride;
                        row = source.next_row(row);
                        line
                    } else {
                        lines[kernel_row.min(MOST_LINES - 1)]
                    };
                    // the vector of the column `ahead` of the first that is read at `from`, or of the tap
                    let load = |inputs: *const E, from: i64, ahead: i64| {
                        let ahead = if APART && blocked { ahead * tap_step } else { ahead };
                        let inside = !EDGE || !blocked || (0 <= from + ahead && from + ahead < source.width);
                        let value = if inside {
                            simd.load(inputs.wrapping_offset(place(ahead) * S::LANES.cast_signed()))
                        } else {
                            simd.splat(E::ZERO)
                        };
                        if PERMUTED { simd.permute(value, lanes) } else { value }
                    };
                    if TAPS == ANY {
                        for tap in 0..signed(source.cols) {
                            let col = col + tap * tap_step;
                            let inputs = if blocked {
                                column::<S>(this, line, col)
                            } else {
                                let line = source.start.wrapping_add(line);
                                self.copy::<S>(line, block, (col, pixel_step), P, buffer);
                                buffer.cast_const()
                            };
                            let weight = simd.load(weights);
                            weights = weights.add(S::LANES);
                            let step = if STRIDE == 1 || !blocked { 1 } else { pixel_step };
                            let last = col + (signed(P) - 1) * step;
                            // spelled out, as below
                            macro_rules! multiply_add {
                                ($value:expr, $($p:literal)*) => {
                                    $(if $p < P {
                                        let value = $value(signed($p) * step);
                                        sums[$p % P][0] = simd.mul_add(value, weight, sums[$p % P][0]);
                                    })*
                                };
                            }
                            if !EDGE || !blocked || (0 <= col && last < source.width) {
                                let of_pixel = |ahead: i64| {
                                    let at = inputs.wrapping_offset(place(ahead) * S::LANES.cast_signed());
                                    let value = simd.load(at);
                                    if PERMUTED { simd.permute(value, lanes) } else { value }
                                };
                                multiply_add!(of_pixel, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
                            } else {
                                let of_pixel = |ahead: i64| load(inputs, col, ahead);
                                multiply_add!(of_pixel, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
                            }
                        }
                        continue;
                    }
                    let inputs = if blocked {
                        column::<S>(this, line, col)
                    } else {
                        let line = source.start.wrapping_add(line);
                        let step = if APART { tap_step } else { 1 };
                        self.copy::<S>(line, block, (col, step), (P - 1) * STRIDE + TAPS, buffer);
                        buffer.cast_const()
                    };
                    let mut taps = [simd.splat(E::ZERO); 7];
                    for (t, tap) in taps.iter_mut().enumerate().take(TAPS) {
                        *tap = simd.load(weights.add(t * S::LANES));
                    }
                    weights = weights.add(TAPS * S::LANES);
                    let mut other_taps = [simd.splat(E::ZERO); 7];
                    if PAIRS {
                        for (t, tap) in other_taps.iter_mut().enumerate().take(TAPS - 1) {
                            *tap = simd.load(others.add(t * S::LANES));
                        }
                        others = others.add((TAPS - 1) * S::LANES);
                    }
                    // spelled out, because the compiler does not unroll so long a loop, and then keeps the sums in memory
                    macro_rules! multiply_add {
                        ($value:ident, $q:literal, $($t:literal)*) => {
                            $(if $t < TAPS && $t <= $q && ($q - usize::min($t, $q)).is_multiple_of(STRIDE) {
                                let p = ($q - usize::min($t, $q)) / STRIDE;
                                if p < P {
                                    sums[p % P][0] = simd.mul_add($value, taps[$t], sums[p % P][0]);
                                    if PAIRS && $t + 1 < TAPS {
                                        let sum = &mut other_sums[p % P][0];
                                        *sum = simd.mul_add($value, other_taps[$t], *sum);
                                    }
                                }
                            })*
                        };
                    }
                    macro_rules! columns {
                        ($($q:literal)*) => {
                            $(if $q < (P - 1) * STRIDE + TAPS {
                                let value = load(inputs, col, $q);
                                multiply_add!(value, $q, 0 1 2 3 4 5 6);
                            })*
                        };
                    }
                    columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21);
                }
            }
            if !this.whole {
                if PAIRS {
                    finish::<S, P, 1>(simd, self.0.target, start, &mut other_sums, buffer);
                }
                let start = if PAIRS { start.wrapping_add(this.step / 2) } else { start };
                finish::<S, P, 1>(simd, self.0.target, start, &mut sums, buffer);
                return;
            }
            let between = if PAIRS { this.step / 2 } else { this.step };
            let mut to = start;
            for p in 0..P {
                if PAIRS {
                    simd.store(to, this.limits.vector(simd, other_sums[p][0]));
                    to = to.wrapping_add(between);
                }
                simd.store(to, this.limits.vector(simd, sums[p][0]));
                to = to.wrapping_add(between);
            }
        }
    }

    /// Copies `count` columns of planes into vectors, a step apart, zeros outside the image.
    ///
    /// # Safety
    /// As for the type; the buffer holds the vectors.
    #[cold]
    #[inline(never)]
    unsafe fn copy<S: Simd<E = E>>(
        &self,
        line: *const E,
        block: usize,
        (first, step): (i64, i64),
        count: usize,
        buffer: *mut E,
    ) {
        let source = self.0.source;
        let channel = block * S::LANES;
        for q in 0..count {
            let col = first + step * signed(q);
            // SAFETY: columns inside the image are held; the buffer has room.
            unsafe {
                let to = buffer.add(q * S::LANES);
                to.write_bytes(0, S::LANES);
                if col < 0 || source.width <= col {
                    continue;
                }
                let col = index(col - source.first_col);
                for l in 0..S::LANES.min(self.0.groups.inputs - channel) {
                    *to.add(l) = *line.add((channel + l) * source.block_stride + col);
                }
            }
        }
    }
}

/// The rows of a vector of channels that a row of outputs shares with the next should stay in the first level cache.
const STRIP_BYTES: usize = 24 << 10;

/// The fewest pixels of a strip: of fewer, what is done once for each row would count.
const LEAST_STRIP: usize = 96;

/// The strips that so many columns of outputs are cut into.
pub(super) fn strips<S: Simd>(problem: &Problem, cols: usize) -> usize {
    let [window, _] = problem.conv.windows;
    let rows = if problem.transposed { window.kernel() / window.stride() } else { window.kernel() };
    let pixel = S::LANES * size_of::<S::E>() * (index(rows).min(8) + 1);
    (cols * pixel).div_ceil(STRIP_BYTES).min(cols / LEAST_STRIP).max(1)
}

/// A number of columns as an offset.
#[inline(always)]
fn place(columns: i64) -> isize {
    isize::try_from(columns).unwrap_or(0)
}

/// The vector of a column in a row of storage that begins at `line`, which may lie outside of what is held.
#[inline(always)]
fn column<S: Simd>(this: &Call<S>, line: usize, col: i64) -> *const S::E {
    let offset = place(col - this.source.first_col) * S::LANES.cast_signed();
    this.blocks.wrapping_add(line).wrapping_offset(offset)
}

/// The parts of so many pixels, of which the `inner` read inside the image alone: pixels at an edge, inner ones, pixels at the other
/// edge. Edges take some inner ones, where that makes tiles of four.
pub(super) fn parts(pixels: usize, inner: std::ops::Range<usize>) -> [usize; 3] {
    if inner.is_empty() {
        return [pixels, 0, 0];
    }
    let mut left = inner.len();
    let mut edge = |pixels: usize| {
        let more = (pixels.next_multiple_of(4) - pixels).min(left);
        left -= more;
        pixels + more
    };
    let (before, after) = (edge(inner.start), edge(pixels - inner.end));
    [before, left, after]
}

/// Computes outputs.
///
/// # Safety
/// As for [`Stretch`].
pub(super) unsafe fn run<S: Simd>(simd: S, outputs: Outputs<'_, S::E>) {
    macro_rules! stretch {
        ($taps:expr, $stride:literal, $apart:literal, $permuted:literal, $pairs:literal) => {
            // SAFETY: passed on to the caller.
            unsafe { simd.call(Stretch::<_, { $taps }, $stride, $apart, $permuted, $pairs>(outputs)) }
        };
    }
    let (source, groups) = (outputs.source, outputs.groups);
    if !outputs.others.is_null() {
        return match source.cols {
            2 => stretch!(2, 1, false, false, true),
            3 => stretch!(3, 1, false, false, true),
            4 => stretch!(4, 1, false, false, true),
            taps => unreachable!("no pairs of {taps} taps"),
        };
    }
    let tap_step = if source.cols == 1 { 1 } else { signed(source.tap_step) };
    let apart = tap_step > 1;
    let stride = match source.pixel_step.checked_rem(tap_step) {
        Some(0) if source.rows <= MOST_LINES => source.pixel_step / tap_step,
        _ => 0,
    };
    // portable code has too few registers to gain from more
    let few = matches!(S::ISA, Isa::Portable);
    if groups.in_group > 1 || groups.out_group > 1 {
        match (source.cols, stride, apart) {
            (1, 1, _) => stretch!(1, 1, false, true, false),
            (2, 1, false) if !few => stretch!(2, 1, false, true, false),
            (3, 1, false) => stretch!(3, 1, false, true, false),
            (3, 1, true) if !few => stretch!(3, 1, true, true, false),
            (3, 2, false) if !few => stretch!(3, 2, false, true, false),
            _ if source.pixel_step == 1 => stretch!(ANY, 1, false, true, false),
            _ => stretch!(ANY, 0, false, true, false),
        }
        return;
    }
    match (source.cols, stride, apart) {
        (1, 1, _) if !few => stretch!(1, 1, false, false, false),
        (2, 1, false) if !few => stretch!(2, 1, false, false, false),
        (3, 1, false) => stretch!(3, 1, false, false, false),
        (4, 1, false) if !few => stretch!(4, 1, false, false, false),
        (5, 1, false) if !few => stretch!(5, 1, false, false, false),
        (7, 1, false) if !few => stretch!(7, 1, false, false, false),
        (3, 1, true) if !few => stretch!(3, 1, true, false, false),
        (5, 1, true) if !few => stretch!(5, 1, true, false, false),
        (7, 1, true) if !few => stretch!(7, 1, true, false, false),
        (3, 2, false) if !few => stretch!(3, 2, false, false, false),
        (5, 2, false) if !few => stretch!(5, 2, false, false, false),
        (7, 2, false) if !few => stretch!(7, 2, false, false, false),
        _ if source.pixel_step == 1 => stretch!(ANY, 1, false, false, false),
        _ => stretch!(ANY, 0, false, false, false),
    }
}

/// The phases that the outputs of a class, so many along its axis, are taken in: those whose neighbours read what the next tap does. Phases of fewer
/// outputs than `least` are none.
pub(super) fn phases(class: &Class, outputs: i64, least: i64) -> i64 {
    let phases = if class.taps > 1 && class.stride() == 1 { class.phases() } else { 1 };
    if outputs < least.saturating_mul(phases) { 1 } else { phases }
}

/// Whether the two classes of columns of a gradient for the input are computed in pairs: those of a stride of two, the first of which
/// reads one column more than the second.
pub(super) fn pairs(problem: &Problem) -> bool {
    let window = problem.conv.windows[1];
    let depthwise = problem.in_group == 1 && problem.out_group == 1;
    let near = window.stride() == 2 && window.dilation() == 1;
    problem.transposed
        && depthwise
        && near
        && matches!(window.kernel(), 3 | 5 | 7)
        && problem.conv.windows[0].kernel() <= 7
}
