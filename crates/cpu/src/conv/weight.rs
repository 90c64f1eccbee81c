//! The gradient for the weights, from a share of the output gradient.
//!
//! Sums are kept in the layout of packed weights ([`Problem::visit`]). Each takes the pixels of a share in one order
//! (image, row, column). Threads divide the weights, not the pixels, so the bits do not depend on them.

mod lanes;

use std::mem::MaybeUninit;

use tiled_geometry::{Interval, Region, div_ceil};
use tiled_tensor::{Element, View};

use super::class::{Class, index, signed};
use super::dense::Sequence;
use super::dot;
use super::problem::{Path, Problem};
use super::rows::{
    DOT_TAPS, DotRow, Line, PixelRow, Rows, SequenceRows, height, run_dot, run_rows, run_sequence,
    sequence_height,
};
use super::tile::Tile;
use crate::Isa;
use crate::share;
use crate::vector::{self, Lane, MAX_LANES, Routine, Simd};

/// Takes `share` of the domain of `gy` into `values`; inputs are `[x, gy]`.
pub(super) fn reduce<T: Lane>(
    isa: Isa,
    problem: &Problem,
    inputs: &[View<'_, T>],
    share: Region<2>,
    values: &mut [T],
) {
    let &[x, gy] = inputs else { panic!("conv2d_backward_weight wants two inputs, got {}", inputs.len()) };
    check(problem, x, gy, share);
    let values = Sums(values.as_mut_ptr());
    for classes in problem.classes() {
        vector::run::<T>(isa, Reduce { problem, classes, x, gy, share, values: &values });
    }
}

/// Asserts what the loads of the kernels rely on.
fn check<T: Element>(problem: &Problem, x: View<'_, T>, gy: View<'_, T>, share: Region<2>) {
    let conv = &problem.conv;
    let need = Region::new([0, 1].map(|axis| read_by(problem, share, axis)));
    assert!(x.region().contains_region(need), "input window {} lacks part of {need}", x.region());
    assert!(gy.region().contains_region(share), "gradient window {} lacks part of {share}", gy.region());
    assert_eq!(x.layout().channels(), conv.in_channels, "input channels");
    assert_eq!(gy.layout().channels(), conv.out_channels, "output channels");
    assert_eq!(x.layout().batch(), gy.layout().batch(), "batch size");
    for layout in [x.layout(), gy.layout()] {
        let block = super::problem::block(problem.lanes, layout.channels());
        assert!(
            layout.block() == 1 || layout.block() == block,
            "block {} of {} channels is neither 1 nor {block}",
            layout.block(),
            layout.channels()
        );
    }
}

/// The rows or columns of the image that a share reads.
fn read_by(problem: &Problem, share: Region<2>, axis: usize) -> Interval {
    let conv = &problem.conv;
    conv.windows[axis].receptive(share.axis(axis)).intersect(Interval::whole(conv.input[axis]))
}

/// The sums, written by several threads, each its own.
struct Sums<T>(*mut T);
// SAFETY: threads write disjoint weights, see `Reduce::run`.
unsafe impl<T: Element> Sync for Sums<T> {}

/// One call.
struct Reduce<'a, T> {
    problem: &'a Problem,
    classes: [Class; 2],
    x: View<'a, T>,
    gy: View<'a, T>,
    share: Region<2>,
    values: &'a Sums<T>,
}

/// Pixels of a row that are taken at once: their gradients should stay in the first level cache.
const SEGMENT: i64 = 128;

/// The most rows that are taken at once where they are short, so that the sums stay in registers for longer.
const MAX_LINES: usize = 4;

/// A part of a row of the share.
#[derive(Clone, Copy)]
struct Segment {
    n: usize,
    y: i64,
    cols: Interval,
}

/// Channels of a run of input channels, and where the sums of the kernel row begin.
struct Run {
    /// First and end, counted from the first of the run.
    channels: (usize, usize),
    /// All channels of the run.
    len: usize,
    sums: usize,
    vectors: usize,
}

/// Gradients of a segment, one or two vectors for a pixel.
#[derive(Clone, Copy)]
struct Gradients<E> {
    start: *const E,
    step: usize,
    vector_step: usize,
}

impl<T: Element> Routine<T> for Reduce<'_, T> {
    fn run<S: Simd<E = T>>(self, simd: S) {
        #[expect(clippy::cast_precision_loss, reason = "an estimate of the work")]
        let operations = self.share.volume() as f64
            * (self.gy.layout().batch() * 2 * self.problem.conv.weight_len()) as f64;
        let pieces = share::threads(operations);
        let rows = self.items() * self.classes[0].taps * self.inputs();
        share::for_pieces(pieces, |piece| {
            let part = rows * piece / pieces..rows * (piece + 1) / pieces;
            if self.problem.path == Path::Lanes {
                return self.lanes(simd, part);
            }
            let [height, width] = self.share.axes().map(|axis| axis.len());
            let count = index(height) * self.gy.layout().batch();
            let lines = self.lines();
            for first in (0..count).step_by(lines) {
                for begin in (0..width).step_by(index(SEGMENT)) {
                    let cols = Interval::new(begin, width.min(begin + SEGMENT));
                    let mut segments = [Segment { n: 0, y: 0, cols: Interval::EMPTY }; MAX_LINES];
                    let segments = &mut segments[..lines.min(count - first)];
                    for (line, segment) in (first..).zip(segments.iter_mut()) {
                        *segment = Segment {
                            n: line / index(height),
                            y: self.share.rows().begin() + signed(line % index(height)),
                            cols: Interval::new(
                                self.share.cols().begin() + cols.begin(),
                                self.share.cols().begin() + cols.end(),
                            ),
                        };
                    }
                    self.segments(simd, segments, part.clone());
                }
            }
        });
    }
}

impl<T: Element> Reduce<'_, T> {
    /// Parts of the output channels: pairs of vectors of a group, vectors, or channels.
    fn items(&self) -> usize {
        match self.problem.path {
            Path::Dense => self.problem.groups * self.problem.vectors().div_ceil(2),
            Path::Dot => self.problem.outputs().div_ceil(dot::MAX_OUTPUTS),
            Path::Lanes | Path::Planar => self.problem.vectors(),
        }
    }

    /// Parts of the inputs of an output channel: blocks or channels.
    fn inputs(&self) -> usize {
        match self.problem.path {
            Path::Dot => self.problem.in_group.div_ceil(self.problem.lanes),
            _ => self.problem.in_group,
        }
    }

    /// Rows that are taken at once: more than one only where each is one segment, which keeps the order of the sums.
    fn lines(&self) -> usize {
        match self.problem.path {
            Path::Dense => index(SEGMENT / self.share.cols().len()).clamp(1, MAX_LINES),
            Path::Lanes | Path::Dot | Path::Planar => 1,
        }
    }

    /// Takes segments of the same columns into the sums of the rows `(item, kernel row, part of the inputs)` in `part`.
    fn segments<S: Simd<E = T>>(&self, simd: S, segments: &[Segment], part: std::ops::Range<usize>) {
        let (taps, inputs) = (self.classes[0].taps, self.inputs());
        let mut at = part.start;
        while at < part.end {
            let (item, offset) = (at / (taps * inputs), at % (taps * inputs));
            let end = part.end.min((item + 1) * taps * inputs);
            let part = offset..offset + end - at;
            for &segment in segments {
                match self.problem.path {
                    Path::Dense => {
                        self.dense(simd, segments, item, part);
                        break;
                    }
                    Path::Dot => self.dot(simd, segment, item, part.clone()),
                    Path::Planar => self.planar(simd, segment, item, part.clone()),
                    Path::Lanes => unreachable!("invariant: it takes the whole share by itself"),
                }
            }
            at = end;
        }
    }

    /// The row of `x` that a kernel row reads, if it lies in the image.
    fn input_row(&self, segment: &Segment, tap: usize) -> Option<i64> {
        let row = self.classes[0].reads(segment.y, tap);
        (0 <= row && row < self.problem.extents[0]).then_some(row)
    }

    /// The columns of the segment for which kernel column `tap` reads inside the image.
    fn columns(&self, segment: &Segment, tap: usize) -> Interval {
        segment.cols.intersect(self.classes[1].outputs_inside(tap, self.problem.extents[1]))
    }

    /// The column that kernel column `tap` of pixel `x` reads.
    fn column(&self, tap: usize, x: i64) -> i64 {
        self.classes[1].reads(x, tap)
    }

    fn dense<S: Simd<E = T>>(
        &self,
        simd: S,
        segments: &[Segment],
        item: usize,
        part: std::ops::Range<usize>,
    ) {
        if self.x.layout().is_empty() {
            return; // all that the kernel reads is padding
        }
        let problem = self.problem;
        let pairs = problem.vectors().div_ceil(2);
        let (group, first) = (item / pairs, item % pairs * 2);
        let vectors = (problem.vectors() - first).min(2);
        let mut buffer = [MaybeUninit::uninit(); index(SEGMENT) * 2 * MAX_LANES];
        let channels = group * problem.out_group + first * S::LANES..(group + 1) * problem.out_group;
        let mut gradients = [Gradients { start: std::ptr::null(), step: 0, vector_step: 0 }; MAX_LINES];
        let room = buffer.len() / segments.len();
        for ((segment, buffer), gradients) in segments.iter().zip(buffer.chunks_mut(room)).zip(&mut gradients)
        {
            *gradients = self.gradients::<S>(segment, channels.clone(), vectors, buffer);
        }
        let layout = self.x.layout();
        let terms = problem.terms(&self.classes);
        let cols = self.classes[1].taps;
        for tap_row in part.start / problem.in_group..part.end.div_ceil(problem.in_group) {
            let before = tap_row * problem.in_group;
            let wanted = part.start.max(before) - before..part.end.min(before + problem.in_group) - before;
            for (begin, len) in problem.runs(group) {
                let run_begin = begin - group * problem.in_group;
                let (a, b) = (wanted.start.max(run_begin), wanted.end.min(run_begin + len));
                if a >= b {
                    continue;
                }
                let mut lines = [Line { x: std::ptr::null(), gradients: std::ptr::null() }; MAX_LINES];
                let mut count = 0;
                for (segment, gradients) in segments.iter().zip(gradients) {
                    if let Some(row) = self.input_row(segment, tap_row) {
                        let start = layout.offset(segment.n, begin, row, layout.cols().begin());
                        lines[count].x = self.x.data()[start..].as_ptr();
                        lines[count].gradients = gradients.start;
                        count += 1;
                    }
                }
                let run = Run {
                    channels: (a - run_begin, b - run_begin),
                    sums: (group * problem.vectors() + first) * S::LANES * terms
                        + (before + run_begin) * cols * vectors * S::LANES,
                    len,
                    vectors,
                };
                if count > 0 {
                    self.run_lines(simd, &segments[0], &lines[..count], &gradients[0], &run);
                }
            }
        }
    }

    /// Takes some channels of lines into the sums of the taps of a kernel row.
    fn run_lines<S: Simd<E = T>>(
        &self,
        simd: S,
        segment: &Segment,
        lines: &[Line<T>],
        gradients: &Gradients<T>,
        run: &Run,
    ) {
        let layout = self.x.layout();
        let blocked = layout.block() > 1;
        let channel_step = if blocked { 1 } else { layout.block_stride() };
        let cols = self.classes[1].taps;
        let (a, b) = run.channels;
        let vectors = run.vectors;
        let sums = self.values.0.wrapping_add(run.sums);
        // channels of a tap over some pixels, whose columns are inside the image
        let rows = |c: usize, tap: usize, pixels: Interval| Rows {
            lines,
            x_offset: c * channel_step
                + index(self.column(tap, pixels.begin()) - layout.cols().begin()) * layout.block(),
            row_step: layout.block_stride(),
            pixel_step: index(self.classes[1].input_step) * layout.block(),
            gradient_offset: index(pixels.begin() - segment.cols.begin()) * gradients.step,
            gradient_step: gradients.step,
            vector_step: gradients.vector_step,
            pixels: index(pixels.len()),
            sums: sums.wrapping_add((tap * run.len + c) * vectors * S::LANES),
        };
        let each = |tap: usize| {
            let pixels = self.columns(segment, tap);
            if !pixels.is_empty() {
                let mut c = a;
                while c < b {
                    let count = height::<S>(b - c, vectors);
                    // SAFETY: `check` holds the windows; the rows of sums are this thread's own.
                    unsafe { run_rows(simd, rows(c, tap, pixels), [count, vectors], blocked) };
                    c += count;
                }
            }
        };
        if self.classes[1].offset_step != 1 {
            return (0..cols).for_each(each);
        }
        let stride = self.classes[1].input_step;
        // the gradients of a pair for three taps are six registers: of sixteen they leave enough for one channel alone
        let tile_vectors = if S::SHARED_TILES[1] > 0 || b - a == 1 { vectors } else { 1 };
        // planes may lie so that they share a set of the first level cache
        let highest = if blocked { b - a } else { (b - a).min(4) };
        for sequence in Sequence::all(cols, index(stride)) {
            let Sequence { first, taps } = sequence;
            if taps == 1 || index(segment.cols.len()) < taps {
                (0..taps).for_each(|t| each(first + t * index(stride)));
                continue;
            }
            let pixels = index(segment.cols.len());
            let origin = self.column(first, segment.cols.begin());
            let columns = [0, self.problem.extents[1]]
                .map(|col| index(div_ceil(col - origin, stride).max(0)).min(pixels + taps - 1));
            if columns[0] >= columns[1] {
                continue;
            }
            let col = index(origin + signed(columns[0]) * stride - layout.cols().begin());
            for v in (0..vectors).step_by(tile_vectors) {
                let mut c = a;
                while c < b {
                    let count = sequence_height::<S>(highest.min(b - c), tile_vectors);
                    let rows = Rows {
                        lines,
                        x_offset: c * channel_step + col * layout.block(),
                        row_step: layout.block_stride(),
                        pixel_step: index(stride) * layout.block(),
                        gradient_offset: v * gradients.vector_step,
                        gradient_step: gradients.step,
                        vector_step: gradients.vector_step,
                        pixels,
                        sums: sums.wrapping_add(((first * run.len + c) * vectors + v) * S::LANES),
                    };
                    let rows_of_sequence = SequenceRows {
                        rows,
                        columns,
                        row_sums: vectors * S::LANES,
                        tap_sums: index(stride) * run.len * vectors * S::LANES,
                    };
                    // SAFETY: `check` holds the windows; the columns are inside the image; the sums are this thread's
                    // own.
                    unsafe { run_sequence(simd, rows_of_sequence, [count, tile_vectors, taps], blocked) };
                    c += count;
                }
            }
        }
    }

    /// The gradients of a segment as vectors of these output channels; from the buffer where they do not lie so.
    fn gradients<S: Simd<E = T>>(
        &self,
        segment: &Segment,
        channels: std::ops::Range<usize>,
        vectors: usize,
        buffer: &mut [MaybeUninit<T>],
    ) -> Gradients<T> {
        let layout = self.gy.layout();
        let first = channels.start;
        let direct = layout.block() == S::LANES && first.is_multiple_of(S::LANES);
        if direct {
            // lanes past the group take part and are dropped when the sums are unpacked
            let start = &self.gy.data()[layout.offset(segment.n, first, segment.y, segment.cols.begin())..];
            return Gradients { start: start.as_ptr(), step: S::LANES, vector_step: layout.block_stride() };
        }
        let width = vectors * S::LANES;
        let buffer = buffer.as_mut_ptr().cast::<T>();
        for (j, x) in (segment.cols.begin()..segment.cols.end()).enumerate() {
            for lane in 0..width {
                let channel = first + lane;
                let value = if channel < channels.end {
                    self.gy.get(segment.n, channel, segment.y, x)
                } else {
                    T::ZERO
                };
                // SAFETY: the buffer holds two vectors for each pixel of a segment.
                unsafe { buffer.add(j * width + lane).write(value) };
            }
        }
        Gradients { start: buffer, step: width, vector_step: S::LANES }
    }

    fn dot<S: Simd<E = T>>(&self, simd: S, segment: Segment, item: usize, part: std::ops::Range<usize>) {
        let problem = self.problem;
        let [_, col_class] = &self.classes;
        let mut copy = [MaybeUninit::uninit(); index(SEGMENT) * MAX_LANES];
        let first = item * dot::MAX_OUTPUTS;
        let outputs = (problem.outputs() - first).min(dot::MAX_OUTPUTS);
        let (x, gy) = (self.x.layout(), self.gy.layout());
        for at in part {
            let (tap_row, block) = (at / self.inputs(), at % self.inputs());
            let Some(row) = self.input_row(&segment, tap_row) else { continue };
            let sums = |tap: usize| {
                let term = at * col_class.taps + tap;
                let sums = first * problem.dot_terms(&self.classes) + term * outputs;
                self.values.0.wrapping_add(sums * S::LANES)
            };
            let gradients =
                |pixel: i64| self.gy.data()[gy.offset(segment.n, first, segment.y, pixel)..].as_ptr();
            let mut one = |tap: usize, pixels: Interval| {
                if pixels.is_empty() {
                    return;
                }
                let col = self.column(tap, pixels.begin());
                let mut step = index(col_class.input_step) * S::LANES;
                let vectors: *const T = if x.block() > 1 {
                    self.x.data()[x.offset(segment.n, block * S::LANES, row, col)..].as_ptr()
                } else {
                    step = S::LANES;
                    self.copy_lanes::<S>(&segment, (block, row, col), index(pixels.len()), &mut copy)
                };
                // the parts of inputs and gradients are swapped: gradients are broadcast
                let line = Line { x: gradients(pixels.begin()), gradients: vectors };
                let rows = Rows {
                    lines: &[line],
                    x_offset: 0,
                    row_step: gy.block_stride(),
                    pixel_step: 1,
                    gradient_offset: 0,
                    gradient_step: step,
                    vector_step: 0,
                    pixels: index(pixels.len()),
                    sums: sums(tap),
                };
                // SAFETY: `check` holds the windows; the sums are this thread's own.
                unsafe { run_rows(simd, rows, [outputs, 1], false) };
            };
            let mut tap = 0;
            while tap < col_class.taps {
                let taps = tap..col_class.taps.min(tap + DOT_TAPS);
                tap = taps.end;
                let all = taps.clone().map(|tap| self.columns(&segment, tap)).reduce(Interval::intersect);
                let all = all.unwrap_or(Interval::EMPTY);
                if taps.len() < DOT_TAPS || all.is_empty() || x.block() == 1 {
                    taps.for_each(|tap| one(tap, self.columns(&segment, tap)));
                    continue;
                }
                // pixels for which only some of the taps read inside the image, before the others and after
                for tap in taps.clone() {
                    one(tap, Interval::new(self.columns(&segment, tap).begin(), all.begin()));
                }
                let col = self.column(taps.start, all.begin());
                let dots = DotRow {
                    x: self.x.data()[x.offset(segment.n, block * S::LANES, row, col)..].as_ptr(),
                    pixel_step: index(col_class.input_step) * S::LANES,
                    tap_step: index(col_class.offset_step) * S::LANES,
                    gradients: gradients(all.begin()),
                    gradient_stride: gy.block_stride(),
                    pixels: index(all.len()),
                    sums: sums(taps.start),
                };
                // SAFETY: `check` holds the windows; the sums are this thread's own.
                unsafe { run_dot(simd, dots, outputs) };
                for tap in taps {
                    one(tap, Interval::new(all.end(), self.columns(&segment, tap).end()));
                }
            }
        }
    }

    /// The inputs of a block at the columns that a tap reads, copied from planes.
    fn copy_lanes<S: Simd<E = T>>(
        &self,
        segment: &Segment,
        (block, row, col): (usize, i64, i64),
        pixels: usize,
        copy: &mut [MaybeUninit<T>],
    ) -> *const T {
        let copy = copy.as_mut_ptr().cast::<T>();
        for j in 0..pixels {
            for lane in 0..S::LANES {
                let channel = block * S::LANES + lane;
                let col = col + signed(j) * self.classes[1].input_step;
                let value = if channel < self.problem.inputs() {
                    self.x.get(segment.n, channel, row, col)
                } else {
                    T::ZERO
                };
                // SAFETY: the copy holds a vector for each pixel of a segment.
                unsafe { copy.add(j * S::LANES + lane).write(value) };
            }
        }
        copy
    }

    fn planar<S: Simd<E = T>>(&self, simd: S, segment: Segment, item: usize, part: std::ops::Range<usize>) {
        let problem = self.problem;
        let cols = self.classes[1].taps;
        for at in part {
            let (tap_row, c) = (at / problem.in_group, at % problem.in_group);
            let Some(row) = self.input_row(&segment, tap_row) else { continue };
            let channel = item / problem.out_group * problem.in_group + c;
            let scalar = |tap: usize, pixels: Interval| -> T {
                let terms = (pixels.begin()..pixels.end()).map(|x| {
                    let col = self.column(tap, x);
                    self.x.get(segment.n, channel, row, col) * self.gy.get(segment.n, item, segment.y, x)
                });
                terms.sum()
            };
            for first in (0..cols).step_by(4) {
                let taps = (cols - first).min(4);
                // the kernel reads four taps, also where there are fewer: no further than any window of this share holds
                let held = read_by(problem, self.share, 1).end() - self.column(first + 3, 0);
                let mut shared = segment.cols.intersect(Interval::new(i64::MIN / 2, held));
                for tap in first..first + taps {
                    shared = shared.intersect(self.columns(&segment, tap));
                }
                let class = &self.classes[1];
                let vectors = index(shared.len()) / S::LANES;
                let mut sums = [T::ZERO; 4];
                if class.input_step == 1 && class.offset_step == 1 && vectors > 0 {
                    let (x, gy) = (self.x.layout(), self.gy.layout());
                    let col = self.column(first, shared.begin());
                    let x = &self.x.data()[x.offset(segment.n, channel, row, col)..];
                    let gradients = &self.gy.data()[gy.offset(segment.n, item, segment.y, shared.begin())..];
                    let gradients = gradients.as_ptr();
                    let row = PixelRow { x: x.as_ptr(), gradients, vectors, sums: &mut sums };
                    // SAFETY: the window holds what all four taps of the shared pixels read, the taps of the kernel
                    // inside the image.
                    unsafe { simd.call(row) };
                    shared = Interval::new(shared.begin(), shared.begin() + signed(vectors * S::LANES));
                } else {
                    shared = Interval::EMPTY;
                }
                for (tap, mut sum) in (first..first + taps).zip(sums) {
                    let own = self.columns(&segment, tap);
                    if shared.is_empty() {
                        sum += scalar(tap, own);
                    } else {
                        sum += scalar(tap, Interval::new(own.begin(), shared.begin()));
                        sum += scalar(tap, Interval::new(shared.end(), own.end()));
                    }
                    let term = item * problem.terms(&self.classes) + at * cols + tap;
                    // SAFETY: the sums of these rows are this thread's own.
                    unsafe { *self.values.0.add(term) += sum };
                }
            }
        }
    }
}
