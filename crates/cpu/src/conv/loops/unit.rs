//! A unit of a call: a part of the output channels for a strip of tiles, of a row or of some.

use std::ops::Range;

use super::super::activated;
use super::super::class::{index, signed};
use super::super::columns::ColumnPart;
use super::super::cut;
use super::super::dense::{self, Sharing};
use super::super::dot;
use super::super::limits::Limits;
use super::super::planar;
use super::super::problem::Path;
use super::super::source::{
    AHEAD_ROWS, Ahead, EDGE_COLUMNS, MAX_SPAN, Reading, Source, Target, WeightsAhead,
};
use super::super::tail::{self, At, Written};
use super::ahead::Fresh;
use super::deep::Terms;
use super::{Call, Group, OTHERS, Units};
use crate::vector::{Lane, Simd};

impl<T: Lane> Call<'_, T> {
    /// Computes a range of units; the strips of a row side by side are one, as far as their inputs stay in a near cache.
    pub(super) fn some_units<S: Simd<E = T>>(&self, simd: S, units: &Units<'_, T>, range: Range<usize>) {
        let mut unit = range.start;
        while unit < range.end {
            let strip = unit % units.strips;
            let strips =
                if units.at_once.is_all() { (units.strips - strip).min(range.end - unit) } else { 1 };
            let [first, end] = [strip, strip + strips].map(|strip| units.cut.tiles * strip / units.strips);
            let parts = if units.at_once.is_all() { (end - first).div_ceil(units.most_tiles) } else { 1 };
            let at = |part: usize| first + (end - first) * part / parts;
            for part in 0..parts {
                self.unit(simd, units, unit / units.strips, [at(part), at(part + 1)]);
            }
            unit += strips;
        }
    }

    /// Computes some tiles of a row of units.
    fn unit<S: Simd<E = T>>(&self, simd: S, units: &Units<'_, T>, rest: usize, tiles: [usize; 2]) {
        let rows = index(units.members[0].len());
        let blocks = rows.div_ceil(units.height);
        let (rest, block) = (rest / blocks, rest % blocks);
        let batch = self.input.layout().batch();
        let (chunk, n) = (rest / batch, rest % batch);
        let rows = rows * block / blocks..rows * (block + 1) / blocks;
        let items = chunk * units.chunk..((chunk + 1) * units.chunk).min(units.items);
        if units.at_once.is_all() {
            for row in rows {
                let line = self.line(units, n, row);
                let fresh = self.fresh(units, tiles, row, &line.source);
                for item in items.clone() {
                    let fresh = fresh.as_ref().map(|fresh| (fresh, [item - items.start, items.len()]));
                    self.tiles(simd, units, &line, tiles, item, fresh);
                }
            }
            return;
        }
        let of_row = tiles[1] - tiles[0];
        for terms in units.at_once.turns(units.classes[0].taps, self.problem.in_group) {
            for item in items.clone() {
                for (done, row) in rows.clone().enumerate() {
                    if let Some(mut line) = self.line(units, n, row).with_terms(&terms) {
                        if item + 1 < items.end {
                            line.fetches = Some([done * of_row, rows.len() * of_row]);
                        }
                        self.tiles(simd, units, &line, tiles, item, None);
                    }
                }
            }
        }
    }

    /// A row of outputs of an image.
    fn line(&self, units: &Units<'_, T>, n: usize, row: usize) -> Line<T> {
        let [row_class, col_class] = &units.classes;
        let m = units.members[0].begin() + signed(row);
        let (taps_begin, taps_end) = row_class.taps_inside(m, self.problem.extents[0]);
        let source = self.source(n, row_class, &units.part, m, [taps_begin, taps_end]);
        let to = self.output.layout();
        let y = row_class.first + m * row_class.step;
        let target = Target {
            start: self.output.at(to.row_offset(n, 0, y)),
            step: index(col_class.step) * to.block(),
            block_stride: to.block_stride(),
            block: to.block(),
            channel: 0,
            channels: 0,
            whole: false,
            limits: self.tail.limits(),
            goes_on: false,
            beside: None,
        };
        let tail = self.tail.at(n, [y, to.cols().begin()]);
        let beside = tail.as_ref().and_then(|tail| tail.beside(target.start));
        let target = Target { beside, ..target };
        Line {
            source,
            target,
            tail,
            taps_begin,
            channels: [0, self.problem.in_group],
            is_last: true,
            fetches: None,
        }
    }

    /// Computes the tiles from one to another of a row, of one item; what is fetched meanwhile is known by the number of the item and how
    /// many there are.
    fn tiles<S: Simd<E = T>>(
        &self,
        simd: S,
        units: &Units<'_, T>,
        line: &Line<T>,
        tiles: [usize; 2],
        item: usize,
        fresh: Option<(&Fresh<T>, [usize; 2])>,
    ) {
        let (problem, to) = (self.problem, self.output.layout());
        let col_class = &units.classes[1];
        let mut done = 0;
        for group in self.groups(units, tiles) {
            let x = col_class.first + group.first * col_class.step;
            let offset = index(x - to.cols().begin()) * to.block();
            let place = Place {
                source: Source {
                    col: col_class.input(group.first),
                    reading: group.reading,
                    ahead: fresh.map_or([Ahead::NOTHING; AHEAD_ROWS], |(fresh, item)| {
                        self.ahead(units, fresh, &group, item, line.source.rows)
                    }),
                    ..line.source
                },
                target: Target { start: line.target.start.wrapping_add(offset), ..line.target },
                taps_begin: line.taps_begin,
                channels: line.channels,
                terms: problem.terms(&units.classes),
                pixels: group.pixels,
                count: group.count,
                fetches: line.fetches.map(|[before, of_unit]| [before + done, of_unit]),
            };
            done += group.count;
            let target = match problem.path {
                Path::Dense => self.dense(simd, units, &place, item),
                Path::Dot => self.dot(simd, units, &place, item),
                Path::Planar => self.planar(simd, units, &place, item),
                Path::Lanes => unreachable!("{OTHERS}"),
            };
            if !line.is_last {
                continue;
            }
            if let Some(tail) = &line.tail {
                let written = Written {
                    start: place.target.start,
                    block_stride: target.block_stride,
                    step: target.step,
                    pixels: group.pixels * group.count,
                    channel: target.channel,
                    vectors: target.channels.div_ceil(S::LANES),
                };
                // SAFETY: this unit has just written them; `Tail::check` holds the tensors that follow.
                unsafe { tail::follow(simd, &tail.after(offset), written) };
            }
            if let Some(activation) = self.tail.last() {
                // SAFETY: the target is what this unit has just written.
                unsafe { activated::tiles(self.isa, activation, &target, group.pixels * group.count) };
            }
        }
    }

    /// The tiles of a strip, and how each is read. [`Path::Dense`] cuts the rest of the last one into widths that it is built
    /// for.
    fn groups(&self, units: &Units<'_, T>, [first, end]: [usize; 2]) -> impl Iterator<Item = Group> {
        let exact = self.problem.path == Path::Dense;
        let cols = units.members[1].begin();
        // pixels of the tile that are in a group
        let (mut tile, mut done) = (first, 0);
        std::iter::from_fn(move || {
            if tile == end {
                return None;
            }
            let first = cols + units.cut.begin(tile) + signed(done);
            let left = index(cols + units.cut.begin(tile + 1) - first);
            let pixels = if exact { cut::fitting(units.widths, left) } else { left };
            let reading = |skipped: usize, count: usize| {
                self.reading(units, first + signed(skipped * pixels), [pixels, count])
            };
            let one = reading(0, 1);
            if pixels < left {
                done += pixels;
                return Some(Group { first, pixels, count: 1, reading: one });
            }
            let same = if done == 0 { units.cut.same(tile, end) } else { 1 };
            let count = if reading(0, same) == Reading::Direct {
                same
            } else {
                1 + (1..same).take_while(|&skipped| reading(skipped, 1) == one).count()
            };
            (tile, done) = (tile + count, 0);
            Some(Group { first, pixels, count, reading: one })
        })
    }

    /// How `count` neighbouring tiles of as many outputs of a class, from `a` on, read their inputs.
    fn reading(&self, units: &Units<'_, T>, a: i64, [pixels, count]: [usize; 2]) -> Reading {
        let class = &units.classes[1];
        let ColumnPart { apart, width: extent, taps, .. } = units.part;
        let blocked = self.input.layout().block() > 1;
        let b = a + signed(pixels * count);
        let inside = class.reads_inside([a, b], taps, extent);
        let whole = pixels == units.cut.wide;
        let direct = match self.problem.path {
            Path::Dense => inside && class.input_step <= 2 && (apart == 1 || blocked),
            Path::Dot => inside && whole && blocked,
            Path::Planar => inside && whole && class.input_step == 1,
            Path::Lanes => unreachable!("{OTHERS}"),
        };
        if direct {
            return Reading::Direct;
        }
        if units.sharing == Sharing::Triple && blocked && b - a >= signed(EDGE_COLUMNS) {
            let before = -class.input(a);
            let after = class.input(b - 1) + signed(class.taps) - extent;
            if before.max(after) <= signed(EDGE_COLUMNS) {
                return Reading::Edge;
            }
        }
        let span =
            (units.cut.wide - 1) * index(class.input_step) + (class.taps - 1) * index(class.offset_step) + 1;
        let spans = span <= MAX_SPAN && (class.input_step <= 2 || self.problem.path == Path::Dot);
        if spans { Reading::Span } else { Reading::Tap }
    }

    fn dense<S: Simd<E = T>>(
        &self,
        simd: S,
        units: &Units<'_, T>,
        place: &Place<T>,
        item: usize,
    ) -> Target<T> {
        let problem = self.problem;
        let parts = problem.vectors().div_ceil(units.tile_vectors);
        let (group, first) = (item / parts, item % parts * units.tile_vectors);
        let vectors = (problem.vectors() - first).min(units.tile_vectors);
        let first_input = group * problem.in_group;
        let [begin, end] = place.channels;
        let channel = group * problem.out_group + first * S::LANES;
        let block = place.target.block;
        let channels = (problem.out_group - first * S::LANES).min(vectors * S::LANES);
        let target = Target {
            channel,
            channels,
            whole: block == S::LANES
                && channel.is_multiple_of(block)
                && (channels == vectors * block || problem.groups == group + 1),
            ..place.target
        };
        let vector = group * problem.vectors() + first;
        let skipped = (place.taps_begin * problem.in_group + begin) * units.classes[1].taps * vectors;
        let weights = &units.weights[(vector * place.terms + skipped) * S::LANES..];
        let bias = &self.packed[vector * S::LANES..];
        let taps = place.source.rows * units.classes[1].taps;
        let weights_ahead = place.fetches.map_or(WeightsAhead::NOTHING, |fetches| {
            let next = weights.as_ptr().wrapping_add(vectors * place.terms * S::LANES);
            WeightsAhead::new(next, taps * (end - begin) * vectors * S::LANES, fetches)
        });
        let channels_read = (first_input + begin, first_input + end);
        let source = Source { channels: channels_read, weights_ahead, ..place.source };
        let blocked = self.input.layout().block() > 1;
        // SAFETY: `check` holds the windows; the weights of the vectors begin where `Problem::visit` packs them; no
        // other unit has these output channels of these pixels.
        unsafe {
            dense::run(
                simd,
                &source,
                &target,
                weights.as_ptr(),
                bias.as_ptr(),
                dense::Shape {
                    pixels: place.pixels,
                    vectors,
                    blocked,
                    sharing: if place.source.reading == Reading::Edge {
                        if units.part.apart == 1 { Sharing::Edge } else { Sharing::ApartEdge }
                    } else if place.source.reading == Reading::Direct && units.part.apart > 1 {
                        Sharing::Apart
                    } else if blocked && units.sharing == Sharing::None && source.is_point::<S>() {
                        Sharing::Point
                    } else {
                        units.sharing
                    },
                    count: place.count,
                },
            );
        }
        target
    }

    fn planar<S: Simd<E = T>>(
        &self,
        simd: S,
        units: &Units<'_, T>,
        place: &Place<T>,
        item: usize,
    ) -> Target<T> {
        let problem = self.problem;
        let parts = problem.out_group.div_ceil(planar::MAX_OUTPUTS);
        let (group, first) = (item / parts, item % parts * planar::MAX_OUTPUTS);
        let first_input = group * problem.in_group;
        let source = Source { channels: (first_input, first_input + problem.in_group), ..place.source };
        let channel = group * problem.out_group + first;
        let channels = (problem.out_group - first).min(planar::MAX_OUTPUTS);
        let target = Target { channel, channels, ..place.target };
        let skipped = place.taps_begin * problem.in_group * units.classes[1].taps;
        let weights = &units.weights[channel * place.terms + skipped..];
        let bias = &self.packed[channel..];
        // SAFETY: as in `dense`.
        unsafe {
            planar::run(
                simd,
                &source,
                &target,
                (weights.as_ptr(), place.terms),
                bias.as_ptr(),
                [place.pixels, channels, place.count],
            );
        }
        target
    }

    fn dot<S: Simd<E = T>>(&self, simd: S, units: &Units<'_, T>, place: &Place<T>, item: usize) -> Target<T> {
        let problem = self.problem;
        let channel = item * dot::MAX_OUTPUTS;
        let channels = (problem.outputs() - channel).min(dot::MAX_OUTPUTS);
        let target = Target { channel, channels, ..place.target };
        let blocks = problem.in_group.div_ceil(S::LANES);
        let skipped = place.taps_begin * blocks * units.classes[1].taps * channels;
        let weights = &units.weights[(channel * problem.dot_terms(&units.classes) + skipped) * S::LANES..];
        let bias = &self.packed[channel..];
        // SAFETY: as in `dense`.
        unsafe {
            dot::run(
                simd,
                &place.source,
                &target,
                weights.as_ptr(),
                bias.as_ptr(),
                dot::Shape {
                    pixels: place.pixels,
                    outputs: channels,
                    blocked: self.input.layout().block() > 1,
                    count: place.count,
                },
            );
        }
        target
    }
}

/// A row of outputs, and the terms of it that are taken.
#[derive(Clone, Copy)]
struct Line<E> {
    source: Source<E>,
    target: Target<E>,
    tail: Option<At<E>>,
    /// The first kernel row inside the image.
    taps_begin: usize,
    /// The input channels of a group that dense tiles sum: first and end.
    channels: [usize; 2],
    /// Whether no terms follow.
    is_last: bool,
    /// Where the weights of the next item are fetched meanwhile: the tiles of the unit that came before, and how many there are.
    fetches: Option<[usize; 2]>,
}

impl<E> Line<E> {
    /// The same with some terms alone, where it has any of them. The first ones of a row without any write its bias.
    fn with_terms(self, terms: &Terms) -> Option<Self> {
        let all = self.taps_begin..self.taps_begin + self.source.rows;
        let rows = terms.kernel_rows.start.max(all.start)..terms.kernel_rows.end.min(all.end);
        if all.is_empty() {
            return terms.is_first.then_some(self);
        }
        if rows.is_empty() {
            return None;
        }
        let [begin, end] = terms.channels;
        let goes_on = rows.start > all.start || begin > 0;
        let is_last = rows.end == all.end && end == self.channels[1];
        let row =
            (self.source.row + (rows.start - all.start) * self.source.row_step) % self.source.ring.max(1);
        Some(Self {
            source: Source { row, rows: rows.len(), ..self.source },
            target: Target {
                limits: if is_last { self.target.limits } else { Limits::None },
                goes_on,
                ..self.target
            },
            taps_begin: rows.start,
            channels: [begin, end],
            is_last,
            ..self
        })
    }
}

/// What a unit's items share.
struct Place<E> {
    source: Source<E>,
    target: Target<E>,
    /// The first kernel row inside the image.
    taps_begin: usize,
    /// The input channels of a group that dense tiles sum: first and end.
    channels: [usize; 2],
    terms: usize,
    /// Pixels of a tile, and how many tiles.
    pixels: usize,
    count: usize,
    fetches: Option<[usize; 2]>,
}
