//! The loops around the kernels whose lanes are channels of several groups: strips of columns, in each a few rows at a time for
//! one vector of channels after another.
//!
//! Such a call takes some microseconds, so what does not depend on the vector is found once for all of them.

use std::ops::Range;

use tiled_geometry::{Interval, Region};

use super::super::activated;
use super::super::class::{Class, index, signed};
use super::super::columns::ColumnPart;
use super::super::lanes::{self, Groups, OutputRows, Outputs};
use super::super::source::{Source, Target};
use super::super::tail::{self, Written};
use super::Call;
use crate::share;
use crate::vector::{Lane, Routine, Simd};

/// A call whose lanes are channels of several groups.
pub(super) struct Lanes<'a, T>(pub(super) Call<'a, T>);

/// The classes that a call keeps: those of a stride of two.
const LISTED_CLASSES: usize = 4;

/// A class, and where its weights begin.
#[derive(Clone, Copy)]
struct Phase {
    classes: [Class; 2],
    weights: usize,
}

/// Outputs of an image, and the vectors of channels.
struct Part {
    n: usize,
    region: Region<2>,
    items: Range<usize>,
}

impl<T: Lane> Routine<T> for Lanes<'_, T> {
    fn run<S: Simd<E = T>>(self, simd: S) {
        let call = self.0;
        let (threads, wanted) = call.sharing();
        let [rows, cols] = call.region.axes();
        let batch = call.input.layout().batch();
        let strips = lanes::strips::<S>(call.problem, index(cols.len()));
        let items = call.problem.vectors();
        let item_parts = wanted.div_ceil(batch * strips).clamp(1, items);
        let least = if threads > 1 { wanted * BANDS_OF_A_UNIT } else { wanted };
        let bands = least.div_ceil(batch * strips * item_parts).clamp(1, index(rows.len()));
        let mut phases = call.phases();
        let listed: [Option<Phase>; LISTED_CLASSES] = std::array::from_fn(|_| phases.next());
        let all_listed = phases.next().is_none();
        let at = |part: usize| items * part / item_parts;
        let compute = |unit: usize, bands_end: usize| {
            let (rest, band) = (unit / bands, unit % bands);
            let (rest, strip) = (rest / strips, rest % strips);
            let (item_part, n) = (rest / batch, rest % batch);
            let part = Part {
                n,
                region: Region::new([
                    cut(rows, [band, bands_end], bands),
                    cut(cols, [strip, strip + 1], strips),
                ]),
                items: at(item_part)..at(item_part + 1),
            };
            if all_listed {
                call.part(simd, &part, listed.into_iter().flatten());
            } else {
                // a list of all would be memory that nobody planned
                call.part(simd, &part, call.phases());
            }
        };
        share::for_ranges(threads, item_parts * batch * strips * bands, |ranges| {
            for Range { mut start, end } in ranges {
                while start < end {
                    // bands below one another are one
                    let bands_end = bands.min(start % bands + (end - start));
                    compute(start, bands_end);
                    start += bands_end - start % bands;
                }
            }
        });
    }
}

/// The parts from one to another of so many of an axis, which differ by one at most.
fn cut(axis: Interval, ends: [usize; 2], parts: usize) -> Interval {
    let [begin, end] = ends.map(|part| axis.begin() + signed(index(axis.len()) * part / parts));
    Interval::new(begin, end)
}

/// The bands that a unit is cut into, of which a thread computes several as one.
const BANDS_OF_A_UNIT: usize = 2;

/// Rows that are computed for one vector before the next: what they read of the rows before them lies in the second level cache.
const ROWS: usize = 8;

/// The fewest rows and columns of a phase of a dilated kernel: of fewer, little would be shared.
const LEAST_ROWS: i64 = 4;
const LEAST_COLUMNS: i64 = 12;

/// Pixels that are written before what follows them is applied.
const PIXELS: usize = 256;

/// Some columns of a class, or pairs of pixels, with the class of the one before each.
struct Columns {
    class: Class,
    /// Where the weights of the class begin, and of the pixels before, of a class with one tap less.
    weights: usize,
    others: Option<usize>,
    /// Pixels or pairs, and their parts ([`lanes::parts`]).
    count: usize,
    parts: [usize; 3],
    /// The input column of the first tap of the first pixel, and the first output.
    col: i64,
    x: i64,
}

impl<T: Lane> Call<'_, T> {
    /// All classes.
    fn phases(&self) -> impl Iterator<Item = Phase> {
        let mut weights = self.problem.bias_len();
        self.problem.classes().map(move |classes| {
            let phase = Phase { classes, weights };
            weights += self.problem.class_len(&classes);
            phase
        })
    }

    /// Computes a part.
    fn part<S: Simd<E = T>>(&self, simd: S, part: &Part, mut phases: impl Iterator<Item = Phase>) {
        let pairs = lanes::pairs(self.problem);
        let cols = part.region.cols();
        while let Some(phase) = phases.next() {
            let rows = &phase.classes[0];
            if !pairs {
                let phases = |axis: usize, least: i64| {
                    let class = phase.classes[axis];
                    let outputs = class.members(part.region.axes()[axis]);
                    let count = lanes::phases(&class, outputs.len(), least);
                    (0..count).map(move |first| class.every(count, first))
                };
                for rows in phases(0, LEAST_ROWS) {
                    for cols_class in phases(1, LEAST_COLUMNS) {
                        let phase = Phase { classes: [rows, cols_class], ..phase };
                        self.columns(simd, part, &rows, &self.of_class(&phase, cols));
                    }
                }
                continue;
            }
            let before = phases.next().expect("invariant: a stride of two has two classes");
            let mut paired = self.of_class(&phase, Interval::new(cols.begin() + 1, cols.end()));
            paired.others = Some(before.weights);
            paired.x -= 1;
            self.columns(simd, part, rows, &paired);
            // pixels whose other one is in no pair
            let first = Interval::new(cols.begin(), cols.begin() + 1);
            self.columns(simd, part, rows, &self.of_class(&phase, first));
            let last = Interval::new(cols.end() - 1, cols.end());
            self.columns(simd, part, rows, &self.of_class(&before, last));
        }
    }

    /// The columns of a class among some outputs.
    fn of_class(&self, phase: &Phase, cols: Interval) -> Columns {
        let class = phase.classes[1];
        let members = class.members(cols);
        let (count, width) = (index(members.len()), self.problem.extents[1]);
        let [first, last] = [0, class.taps - 1].map(|tap| class.outputs_inside(tap, width));
        let inner = first.intersect(last).intersect(members);
        let inner = if self.input.layout().block() == 1 || inner.is_empty() {
            0..0
        } else {
            index(inner.begin() - members.begin())..index(inner.end() - members.begin())
        };
        Columns {
            class,
            weights: phase.weights,
            others: None,
            count,
            parts: lanes::parts(count, inner),
            col: class.input(members.begin()),
            x: class.first + members.begin() * class.step,
        }
    }

    /// Computes some columns of a part, in batches of rows that read the same kernel rows.
    fn columns<S: Simd<E = T>>(&self, simd: S, part: &Part, class: &Class, columns: &Columns) {
        if columns.count == 0 {
            return;
        }
        let rows = class.members(part.region.rows());
        let taps = |m: i64| class.taps_inside(m, self.problem.extents[0]);
        let most = if self.follows() { (PIXELS / columns.count).clamp(1, ROWS) } else { ROWS };
        let mut m = rows.begin();
        while m < rows.end() {
            let (inside, last) = (taps(m), rows.end().min(m + signed(most)));
            let mut end = m + 1;
            while end < last && taps(end) == inside {
                end += 1;
            }
            self.rows(simd, part, columns, class, (Interval::new(m, end), inside));
            m = end;
        }
    }

    /// Whether anything follows that is not applied in registers.
    fn follows(&self) -> bool {
        self.tail.is_long() || self.tail.last().is_some()
    }

    /// Computes some columns of a few rows, which read the same kernel rows.
    fn rows<S: Simd<E = T>>(
        &self,
        simd: S,
        part: &Part,
        columns: &Columns,
        row_class: &Class,
        (rows, (taps_begin, taps_end)): (Interval, (usize, usize)),
    ) {
        let problem = self.problem;
        let class = columns.class;
        let whole = ColumnPart::whole(problem, class);
        let (layout, to) = (self.input.layout(), self.output.layout());
        let source = Source {
            col: columns.col,
            ..self.source(part.n, row_class, &whole, rows.begin(), [taps_begin, taps_end])
        };
        let y = |m: i64| row_class.first + m * row_class.step;
        let offset = index(columns.x - to.cols().begin()) * to.block();
        let output_ring = signed(to.ring().max(1));
        let output_rows = OutputRows {
            count: index(rows.len()),
            input_step: index(row_class.input_step % signed(layout.ring().max(1))),
            start: self.output.at(part.n * to.batch_stride()).wrapping_add(offset),
            row: index(y(rows.begin()).rem_euclid(output_ring)),
            row_step: index(row_class.step % output_ring),
            ring: to.ring(),
            row_stride: to.row_stride(),
        };
        let groups = Groups {
            rows: row_class.taps,
            first_row: taps_begin,
            blocked: layout.block() > 1,
            ..Groups::new(problem)
        };
        for channel in part.items.clone().map(|item| item * S::LANES) {
            let target = Target {
                start: output_rows.start,
                step: index(class.step) * to.block(),
                block_stride: to.block_stride(),
                block: to.block(),
                channel,
                channels: (problem.outputs() - channel).min(S::LANES),
                whole: to.block() > 1,
                limits: self.tail.limits(),
                goes_on: false,
                beside: None,
            };
            let of_vector = |weights: usize, cols: usize| {
                self.packed[weights + channel * row_class.taps * cols * problem.in_group..].as_ptr()
            };
            let outputs = Outputs {
                source: &source,
                target: &target,
                weights: of_vector(columns.weights, class.taps),
                others: columns.others.map_or(std::ptr::null(), |others| of_vector(others, class.taps - 1)),
                bias: self.packed[channel..].as_ptr(),
                groups: &groups,
                parts: columns.parts,
                rows: output_rows,
            };
            // SAFETY: `check` holds the windows; the weights of the vector begin where `Problem::visit` packs them; no other
            // unit has these channels of these pixels.
            unsafe { lanes::run(simd, outputs) };
            if self.follows() {
                let rows = (rows.begin()..rows.end()).map(y);
                self.follow(simd, part.n, columns, (rows, offset), target);
            }
        }
    }

    /// Applies what follows to rows of a vector that were just written, `offset` elements from the first column held.
    fn follow<S: Simd<E = T>>(
        &self,
        simd: S,
        n: usize,
        columns: &Columns,
        (rows, offset): (impl Iterator<Item = i64>, usize),
        target: Target<T>,
    ) {
        let to = self.output.layout();
        let paired = columns.others.is_some();
        let (pixels, step) =
            if paired { (2 * columns.count, to.block()) } else { (columns.count, target.step) };
        for y in rows {
            let start = self.output.at(to.row_offset(n, 0, y)).wrapping_add(offset);
            if let Some(tail) = self.tail.at(n, [y, to.cols().begin()]) {
                let (channel, block_stride) = (target.channel, target.block_stride);
                let written = Written { start, block_stride, step, pixels, channel, vectors: 1 };
                // SAFETY: this unit has just written them; `Tail::check` holds the tensors that follow.
                unsafe { tail::follow(simd, &tail.after(offset), written) };
            }
            if let Some(activation) = self.tail.last() {
                let target = Target { start, step, ..target };
                // SAFETY: the target is what this unit has just written.
                unsafe { activated::tiles(self.isa, activation, &target, pixels) };
            }
        }
    }
}
