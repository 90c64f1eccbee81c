//! What a tile reads and writes, shared by the families of kernels.

use std::mem::MaybeUninit;

use tiled_tensor::Element;

use super::class::{index, signed};
use super::limits::Limits;
use crate::vector::{MAX_LANES, Micro, Simd, prefetch, prefetch_far};

/// The most pixels of input that a tile copies at once; enough for 10 taps under tiles of 24 pixels with stride two.
pub(super) const MAX_SPAN: usize = 56;

/// Room for the inputs of a tile: pixels of a block, or of as many planes as a block has channels.
pub(super) type Buffer<E> = [MaybeUninit<E>; MAX_LANES * MAX_SPAN];

/// Zeros of any type, as many as a [`Buffer`] holds: all of their bits are zero.
static ZEROS: [u64; MAX_LANES * MAX_SPAN] = [0; MAX_LANES * MAX_SPAN];

/// The most columns at each end of a tile that [`Reading::Edge`] takes for zeros.
pub(super) const EDGE_COLUMNS: usize = 2;

/// How a tile reads its inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// In place: every column is inside the image.
    Direct,
    /// In place but for at most [`EDGE_COLUMNS`] columns at each end, which are outside the image.
    Edge,
    /// All columns of a kernel row copied, zeros outside the image.
    Span,
    /// The columns of one tap copied next to each other, zeros outside the image.
    Tap,
}

/// The image that tiles read, and where.
#[derive(Clone, Copy)]
pub(super) struct Source<E> {
    /// Row 0 of storage of block 0 of the image.
    pub(super) start: *const E,
    /// The row of storage of the first kernel row inside the image, and the step to the next, modulo `ring`.
    pub(super) row: usize,
    pub(super) row_step: usize,
    pub(super) ring: usize,
    pub(super) row_stride: usize,
    pub(super) block_stride: usize,
    /// The columns of storage from one column to the next: more than one where it is those of a phase that are counted.
    pub(super) apart: usize,
    /// Kernel rows inside the image.
    pub(super) rows: usize,
    /// The input column of the first tap of the first pixel; columns between pixels and between taps.
    pub(super) col: i64,
    pub(super) pixel_step: i64,
    pub(super) tap_step: usize,
    /// Kernel columns, and the first and the end of those that are not left out: others than all only where taps take turns one by one.
    pub(super) cols: usize,
    pub(super) taps: [usize; 2],
    /// The columns of the image, and the first column held.
    pub(super) width: i64,
    pub(super) first_col: i64,
    /// The input channels: first, end, and how many are summed between two kernel columns, or two sequences of them.
    pub(super) channels: (usize, usize),
    pub(super) run: usize,
    pub(super) reading: Reading,
    /// What is fetched from far caches while a kernel row goes by.
    pub(super) ahead: [Ahead<E>; AHEAD_ROWS],
    pub(super) weights_ahead: WeightsAhead<E>,
}

/// The weights of the next output channels, of which each tile fetches some lines into the second level cache.
#[derive(Clone, Copy)]
pub(super) struct WeightsAhead<E> {
    /// For the first of some tiles.
    pub(super) start: *const E,
    /// Elements of a tile.
    pub(super) of_tile: usize,
}

impl<E> WeightsAhead<E> {
    pub(super) const NOTHING: Self = Self { start: std::ptr::null(), of_tile: 0 };

    /// So many elements in shares for some tiles, from the share of tile `done` on.
    pub(super) fn new(weights: *const E, len: usize, [done, tiles]: [usize; 2]) -> Self {
        let line = LINE_BYTES / size_of::<E>();
        let of_tile = len.div_ceil(tiles.max(1)).next_multiple_of(line);
        let of_tile = if done * of_tile < len { of_tile } else { 0 };
        Self { start: weights.wrapping_add(done * of_tile), of_tile }
    }

    #[inline(always)]
    pub(super) fn fetch(&self, tile: usize) {
        for at in (0..self.of_tile).step_by(LINE_BYTES / size_of::<E>()) {
            prefetch_far(self.start.wrapping_add(tile * self.of_tile + at));
        }
    }
}

/// The bytes of a cache line.
const LINE_BYTES: usize = 64;

/// The most kernel rows that fetch ahead.
pub(super) const AHEAD_ROWS: usize = 4;

/// Some pixels that the next strip will read, fetched into the second level cache while a kernel row goes by, of each
/// block of channels while the row is at that block. Fetched in one go they would hold up the loads of the sums.
#[derive(Clone, Copy)]
pub(super) struct Ahead<E> {
    /// The first pixel, in block 0 of the image, for the first of some tiles; for the next it lies a tile of inputs
    /// further on. It may lie outside of what is held: nothing but a hint goes there.
    pub(super) start: *const E,
    pub(super) pixels: usize,
}

impl<E> Ahead<E> {
    pub(super) const NOTHING: Self = Self { start: std::ptr::null(), pixels: 0 };
}

/// The outputs that tiles write.
#[derive(Clone, Copy)]
pub(super) struct Target<E> {
    /// The first pixel in block 0 of the image.
    pub(super) start: *mut E,
    /// Elements between pixels, and between blocks.
    pub(super) step: usize,
    pub(super) block_stride: usize,
    pub(super) block: usize,
    /// The first output channel, and how many there are from there that the call writes.
    pub(super) channel: usize,
    pub(super) channels: usize,
    /// Whether vectors are whole blocks.
    pub(super) whole: bool,
    /// What is applied to the sums.
    pub(super) limits: Limits<E>,
    /// Whether the sums go on from what is there, in place of the bias; only where vectors are whole blocks.
    pub(super) goes_on: bool,
    /// What is added to them afterwards, if anything: it is fetched while the sums are computed.
    pub(super) beside: Option<Beside>,
}

/// A tensor that lies like the outputs.
#[derive(Clone, Copy)]
pub(super) struct Beside {
    /// The elements from an output in block 0 to its own, in address space: the tensors are two.
    pub(super) distance: isize,
    pub(super) block_stride: usize,
}

/// Where the first tap of the first pixel of a run of channels is read, and the distance between channels.
#[derive(Clone, Copy)]
pub(super) struct Inputs<E> {
    pub(super) start: *const E,
    pub(super) channel_step: usize,
}

impl<E> Inputs<E> {
    /// A channel and those after it, in pixels that were copied to the buffer.
    #[inline(always)]
    fn copied<S: Simd<E = E>, const BLOCKED: bool>(channel: usize, buffer: *const E) -> Self {
        if BLOCKED {
            Self { start: buffer.wrapping_add(channel % S::LANES), channel_step: 1 }
        } else {
            Self { start: buffer, channel_step: MAX_SPAN }
        }
    }

    /// The same from `elements` on.
    #[inline(always)]
    pub(super) fn after(self, elements: usize) -> Self {
        Self { start: self.start.wrapping_add(elements), ..self }
    }
}

impl<E: Element> Source<E> {
    /// The row of storage after `row` that the next kernel row reads.
    #[inline(always)]
    pub(super) fn next_row(&self, row: usize) -> usize {
        let next = row + self.row_step;
        if next >= self.ring { next - self.ring } else { next }
    }

    /// The first column held of the block of a channel, or of its plane, in one storage row.
    #[inline(always)]
    fn plane<S: Simd<E = E>, const BLOCKED: bool>(&self, row: usize, channel: usize) -> *const E {
        let block = if BLOCKED { channel / S::LANES } else { channel };
        self.start.wrapping_add(row * self.row_stride + block * self.block_stride)
    }

    /// The inputs of channels from `channel` on, of pixels from `col`, in one storage row, where they lie.
    ///
    /// It is a place alone, which may lie outside of what is held: next to the last tile, or where a reading by taps or one
    /// that begins outside of the image does not read it.
    #[inline(always)]
    pub(super) fn direct<S: Simd<E = E>, const BLOCKED: bool>(
        &self,
        row: usize,
        channel: usize,
        col: i64,
    ) -> Inputs<E> {
        let plane = self.plane::<S, BLOCKED>(row, channel);
        let offset = (col - self.first_col) * signed(self.apart);
        let start = if BLOCKED { offset * signed(S::LANES) + signed(channel % S::LANES) } else { offset };
        let start = plane.wrapping_offset(isize::try_from(start).unwrap_or(0));
        Inputs { start, channel_step: if BLOCKED { 1 } else { self.block_stride } }
    }

    /// The inputs of `len` channels from `channel`, of `pixels` pixels from `col`, in one storage row, copied, with zeros
    /// outside the image.
    ///
    /// # Safety
    /// The row is one that the window holds; the span of the pixels is at most [`MAX_SPAN`]; the channels lie in one block
    /// where `BLOCKED`.
    #[inline(always)]
    pub(super) unsafe fn span<S: Simd<E = E>, const BLOCKED: bool>(
        &self,
        row: usize,
        (channel, len): (usize, usize),
        col: i64,
        pixels: usize,
        buffer: *mut E,
    ) -> Inputs<E> {
        let span = (pixels - 1) * index(self.pixel_step) + (self.cols - 1) * self.tap_step + 1;
        let (unit, planes) = if BLOCKED { (S::LANES, 1) } else { (1, len) };
        let plane = self.plane::<S, BLOCKED>(row, channel);
        // SAFETY: the row and the channel lie in the window; the span as asked.
        unsafe { self.copy_span(plane, unit, col, [span, planes], buffer) };
        Inputs::copied::<S, BLOCKED>(channel, buffer)
    }

    /// Where the first two and the last two of the columns that a tile of `P` pixels and three taps reads lie: zeros
    /// for those outside the image. `start` is the first of them, `col` its column.
    #[inline(always)]
    pub(super) fn ends<const P: usize>(
        &self,
        start: *const E,
        unit: usize,
        col: i64,
    ) -> [*const E; 2 * EDGE_COLUMNS] {
        [0, 1, P, P + 1].map(|column| {
            let inside = 0 <= col + signed(column) && col + signed(column) < self.width;
            if inside { start.wrapping_add(column * unit) } else { (&raw const ZEROS).cast() }
        })
    }

    /// Copies a span of columns into the buffer, zeros where they are outside the image.
    ///
    /// Out of line and cold, or the compiler keeps the accumulators of the caller in memory.
    ///
    /// # Safety
    /// `plane` is the first column held, `unit` the elements of a column; the span is at most [`MAX_SPAN`].
    #[cold]
    #[inline(never)]
    unsafe fn copy_span(
        &self,
        plane: *const E,
        unit: usize,
        col: i64,
        [span, channels]: [usize; 2],
        buffer: *mut E,
    ) {
        let begin = index((-col).clamp(0, signed(span)));
        let end = index((self.width - col).clamp(signed(begin), signed(span)));
        let first = if begin < end { index(col + signed(begin) - self.first_col) } else { 0 };
        let (copies, len) = if self.apart == 1 { (1, (end - begin) * unit) } else { (end - begin, unit) };
        for c in 0..channels {
            // SAFETY: columns from `begin` to `end` are inside the image and held; the buffer has room.
            unsafe {
                let to = buffer.add(c * MAX_SPAN);
                to.write_bytes(0, begin * unit);
                let from = plane.add(c * self.block_stride + first * unit * self.apart);
                for copy in 0..copies {
                    let to = to.add(begin * unit + copy * len);
                    to.copy_from_nonoverlapping(from.add(copy * unit * self.apart), len);
                }
                to.add(end * unit).write_bytes(0, (span - end) * unit);
            }
        }
    }

    /// The inputs of one tap of `pixels` pixels: in place where they lie next to each other and `in_place` says that no more than these
    /// are read, from a block of zeros where all of them are outside the image, else copied.
    ///
    /// # Safety
    /// As for [`Source::span`]; `pixels` is at most [`MAX_SPAN`].
    #[inline(always)]
    pub(super) unsafe fn tap<S: Simd<E = E>, const BLOCKED: bool>(
        &self,
        row: usize,
        (channel, len): (usize, usize),
        col: i64,
        (pixels, in_place): (usize, bool),
        buffer: *mut E,
    ) -> Inputs<E> {
        if in_place && self.pixel_step == 1 && self.holds(col, pixels) {
            return self.direct::<S, BLOCKED>(row, channel, col);
        }
        if col + self.pixel_step * signed(pixels - 1) < 0 || self.width <= col {
            return Inputs::copied::<S, BLOCKED>(channel, (&raw const ZEROS).cast());
        }
        // SAFETY: passed on to the caller.
        unsafe { self.copy_tap::<S, BLOCKED>(row, (channel, len), col, pixels, buffer) };
        Inputs::copied::<S, BLOCKED>(channel, buffer)
    }

    /// Whether the inputs of one tap of `pixels` pixels are inside the image.
    #[inline(always)]
    pub(super) fn holds(&self, col: i64, pixels: usize) -> bool {
        0 <= col && col + self.pixel_step * signed(pixels - 1) < self.width
    }

    /// Copies the inputs of one tap next to each other, zeros outside the image.
    ///
    /// # Safety
    /// As for [`Source::tap`].
    #[cold]
    #[inline(never)]
    unsafe fn copy_tap<S: Simd<E = E>, const BLOCKED: bool>(
        &self,
        row: usize,
        (channel, len): (usize, usize),
        col: i64,
        pixels: usize,
        buffer: *mut E,
    ) {
        let (unit, planes) = if BLOCKED { (S::LANES, 1) } else { (1, len) };
        let plane = self.plane::<S, BLOCKED>(row, channel);
        if self.pixel_step == 1 {
            // SAFETY: neighbouring columns are a span.
            return unsafe { self.copy_span(plane, unit, col, [pixels, planes], buffer) };
        }
        for p in 0..pixels {
            let col = col + self.pixel_step * signed(p);
            // SAFETY: one column, copied as a span.
            unsafe { self.copy_span(plane, unit, col, [1, planes], buffer.add(p * unit)) };
        }
    }
}

impl<E: Element> Target<E> {
    /// Fetches the lines that a tile of `pixels` by `vectors` from `start` on will read and write when its sums are done, which would
    /// otherwise wait for them; stores to as many planes at once also for each other.
    #[inline(always)]
    pub(super) fn prefetch<S: Simd<E = E>>(&self, start: *mut E, [pixels, vectors]: [usize; 2]) {
        let first = self.channel / S::LANES;
        let blocks = |start: *mut E, block_stride: usize| {
            for block in first..first + vectors {
                for pixel in 0..pixels {
                    prefetch(start.wrapping_add(block * block_stride + pixel * self.step));
                }
            }
        };
        if let Some(Beside { distance, block_stride }) = self.beside {
            blocks(start.wrapping_offset(distance), block_stride);
        }
        if self.whole {
            blocks(start, self.block_stride);
        }
        if self.block == 1 {
            for channel in self.channel..self.channel + self.channels {
                let first = start.wrapping_add(channel * self.block_stride);
                prefetch(first);
                prefetch(first.wrapping_add((pixels - 1) * self.step));
            }
        }
    }
}

impl<E: Element> Target<E> {
    /// What the sums of a tile begin with: the bias, or what the tile held where they go on.
    ///
    /// # Safety
    /// As for [`Target::held`]; the bias has the channels of the vectors.
    #[inline(always)]
    pub(super) unsafe fn first<S: Simd<E = E>, const P: usize, const V: usize>(
        &self,
        simd: S,
        start: *const E,
        bias: *const E,
    ) -> [[S::V; V]; P] {
        let mut sums = [[simd.splat(E::ZERO); V]; P];
        // SAFETY: passed on to the caller.
        unsafe {
            if self.goes_on {
                self.held(simd, start, &mut sums);
                return sums;
            }
            for v in 0..V {
                let bias = simd.load(bias.add(v * S::LANES));
                for pixel in &mut sums {
                    pixel[v] = bias;
                }
            }
        }
        sums
    }

    /// Reads a tile that was written before.
    ///
    /// # Safety
    /// The target is valid for `P` pixels of `V` vectors, which are whole blocks.
    #[inline(always)]
    pub(super) unsafe fn held<S: Simd<E = E>, const P: usize, const V: usize>(
        &self,
        simd: S,
        start: *const E,
        sums: &mut [[S::V; V]; P],
    ) {
        for v in 0..V {
            let block = (self.channel / S::LANES + v) * self.block_stride;
            for (p, pixel) in sums.iter_mut().enumerate() {
                // SAFETY: passed on to the caller.
                pixel[v] = unsafe { simd.load(start.add(block + p * self.step)) };
            }
        }
    }
}

/// Applies the activation and writes a tile.
///
/// # Safety
/// The target is valid for `P` pixels of `V` vectors; `buffer` holds `P` vectors.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd, const P: usize, const V: usize>(
    simd: S,
    target: &Target<S::E>,
    start: *mut S::E,
    sums: &mut [[S::V; V]; P],
    buffer: *mut S::E,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        target.limits.splat(simd).tile(simd, sums);
        for v in 0..V {
            let channel = target.channel + v * S::LANES;
            if target.whole {
                let start = start.add(channel / S::LANES * target.block_stride);
                for (p, pixel) in sums.iter().enumerate() {
                    simd.store(start.add(p * target.step), pixel[v]);
                }
            } else {
                for (p, pixel) in sums.iter().enumerate() {
                    simd.store(buffer.add(p * S::LANES), pixel[v]);
                }
                let first = v * S::LANES;
                if target.block == 1 && target.step == 1 {
                    let start = start.add((target.channel + first) * target.block_stride);
                    let channels = S::LANES.min(target.channels - first);
                    simd.call(Planes::<_, P> {
                        from: buffer,
                        to: start,
                        stride: target.block_stride,
                        channels,
                    });
                } else {
                    scatter(target, start, first, S::LANES, P, buffer);
                }
            }
        }
    }
}

/// The channels of `P` pixels, a vector each, written as rows of planes.
///
/// A kernel of its own, out of line: inlined it would be compiled for every tile, and take the tile's registers.
///
/// # Safety
/// `from` is valid for reading `P` vectors; `to` is valid for writing `P` elements at each of `channels` multiples
/// of `stride`.
struct Planes<E, const P: usize> {
    from: *const E,
    to: *mut E,
    stride: usize,
    channels: usize,
}

impl<E: Element, const P: usize> Micro<E> for Planes<E, P> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        for p in (0..P).step_by(S::LANES) {
            let square = [S::LANES.min(P - p), self.channels];
            // SAFETY: as the type asks.
            unsafe { simd.store_lanes(self.from.add(p * S::LANES), self.to.add(p), self.stride, square) };
        }
    }
}

/// Writes the lanes of `pixels` vectors one by one.
///
/// # Safety
/// As for the tile that calls it.
#[inline(never)]
unsafe fn scatter<E: Element>(
    target: &Target<E>,
    start: *mut E,
    first: usize,
    lanes: usize,
    pixels: usize,
    from: *const E,
) {
    for lane in 0..lanes.min(target.channels - first) {
        let channel = target.channel + first + lane;
        let offset = channel / target.block * target.block_stride + channel % target.block;
        for p in 0..pixels {
            // SAFETY: the channel is one of the target's, the pixel one of the tile's.
            unsafe { *start.add(offset + p * target.step) = *from.add(p * lanes + lane) };
        }
    }
}
