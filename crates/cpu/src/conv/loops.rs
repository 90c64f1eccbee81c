//! The loops around the kernels: classes, rows, tiles of pixels, output channels; and their sharing.

mod ahead;
mod deep;
mod joined;
mod lanes;

use tiled_geometry::{Interval, Region};
use tiled_kernel::Activation;
use tiled_tensor::{Element, Layout, PartMut, View};

use super::activated;
use super::class::{Class, index, signed};
use super::cut::{self, Cut, SEQUENCE_WIDTHS, SHARED_WIDTHS, WIDTHS};
use super::dense::{self, Sharing};
use super::dot;
use super::planar;
use super::problem::{Path, Problem};
use super::source::{AHEAD_ROWS, Ahead, EDGE_COLUMNS, MAX_SPAN, Reading, Source, Target};
use super::tail::{self, Tail, Written};
use super::tile::Tile;
use crate::Isa;
use crate::ops::elementwise::activate;
use crate::share::{self, SharedOutput};
use crate::vector::{self, Lane, MAX_LANES, Routine, Simd};

/// Computes `region` of the output of `problem`.
pub(super) fn compute<T: Lane>(
    isa: Isa,
    problem: &Problem,
    tail: Tail<'_, T>,
    packed: &[T],
    input: View<'_, T>,
    mut output: PartMut<'_, T>,
    region: Region<2>,
) {
    check(problem, input.layout(), &output, region);
    tail.check(output.layout(), problem.lanes, region);
    let output = SharedOutput::new(&mut output);
    if problem.leaves_gaps() {
        fill_bias(isa, problem, tail.activation, packed, &output, region);
    }
    let call = Call { isa, problem, tail, packed, input, output, region };
    match problem.path {
        Path::Lanes => vector::run::<T>(isa, lanes::Lanes(call)),
        Path::Dense | Path::Dot | Path::Planar => call.for_long_rows(|call| vector::run::<T>(isa, *call)),
    }
}

/// Asserts what the loads and stores of the kernels rely on.
fn check<T: Element>(problem: &Problem, input: &Layout, output: &PartMut<'_, T>, region: Region<2>) {
    let need: [Interval; 2] = std::array::from_fn(|i| {
        let window = problem.conv.windows[i];
        let axis = region.axis(i);
        let need = if problem.transposed { window.touched(axis) } else { window.receptive(axis) };
        need.intersect(Interval::whole(problem.extents[i]))
    });
    let need = Region::new(need);
    assert!(input.region().contains_region(need), "input window {} lacks part of {need}", input.region());
    assert!(
        output.region().contains_region(region),
        "output window {} lacks part of {region}",
        output.region()
    );
    let output = output.layout();
    let whole = Region::whole(problem.output_extents());
    assert!(whole.contains_region(region), "region {region} leaves the output {whole}");
    assert_eq!(input.channels(), problem.inputs(), "input channels");
    assert_eq!(output.channels(), problem.outputs(), "output channels");
    assert_eq!(input.batch(), output.batch(), "batch size");
    for layout in [input, output] {
        let block = super::problem::block(problem.lanes, layout.channels());
        assert!(
            layout.block() == 1 || layout.block() == block,
            "block {} of {} channels is neither 1 nor {block}",
            layout.block(),
            layout.channels()
        );
    }
}

/// Writes the bias, activated, to every output of the region: what no tap reaches.
fn fill_bias<T: Lane>(
    isa: Isa,
    problem: &Problem,
    activation: Option<Activation>,
    packed: &[T],
    output: &SharedOutput<'_, T>,
    region: Region<2>,
) {
    let layout = output.layout();
    let (rows, cols) = (region.rows(), region.cols());
    for block in 0..layout.blocks() {
        let mut values = [T::ZERO; MAX_LANES];
        let values = &mut values[..layout.block()];
        let channels = block * layout.block()..layout.channels().min((block + 1) * layout.block());
        for (value, channel) in values.iter_mut().zip(channels) {
            *value = packed[problem.bias_at(channel)];
        }
        if let Some(activation) = activation {
            activate(isa, activation, values);
        }
        for n in 0..layout.batch() {
            for y in rows.begin()..rows.end() {
                let start = output.at(layout.offset(n, block * layout.block(), y, cols.begin()));
                let len = index(cols.len()) * layout.block();
                // SAFETY: the columns of the region lie in the row; no other thread writes yet.
                let row = unsafe { std::slice::from_raw_parts_mut(start, len) };
                for pixel in row.chunks_exact_mut(values.len()) {
                    pixel.copy_from_slice(values);
                }
            }
        }
    }
}

/// One call.
#[derive(Clone, Copy)]
struct Call<'a, T> {
    isa: Isa,
    problem: &'a Problem,
    tail: Tail<'a, T>,
    packed: &'a [T],
    input: View<'a, T>,
    output: SharedOutput<'a, T>,
    region: Region<2>,
}

/// A class within the region, cut into units: a part of the output channels for a strip of tiles.
struct Units<'a, T> {
    classes: [Class; 2],
    weights: &'a [T],
    members: [Interval; 2],
    /// Items of output channels (see [`Call::items`]) and how many of them a unit has.
    items: usize,
    chunk: usize,
    /// The tiles of a row, of which widths, and how many strips of them there are.
    cut: Cut,
    widths: &'static [usize],
    strips: usize,
    /// How taps share broadcasts, but for edges.
    sharing: Sharing,
    /// The first unit among those of all classes, and how many there are.
    first: usize,
    len: usize,
}

/// Neighbouring tiles of the same width that are read the same way.
#[derive(Clone, Copy)]
struct Group {
    first: i64,
    pixels: usize,
    count: usize,
    reading: Reading,
}

/// The inputs of the tiles of a strip should stay in the second level cache while the output channels take turns.
const STRIP_BYTES: usize = 128 << 10;

/// The fewest and the most tiles of a strip of so many bytes, unless threads share them.
const STRIP_TILES: [usize; 2] = [8, 32];

/// Units for each thread that shares a call, where they are worth it: the last ones even out what threads took.
const UNITS_PER_THREAD: usize = 16;

/// The classes whose units a call keeps: those of a stride of two.
const LISTED_CLASSES: usize = 4;

/// Why these loops do not come to [`Path::Lanes`].
const OTHERS: &str = "invariant: channels of several groups have loops of their own";

/// The weights that a unit goes through should stay in the second level cache, beside the inputs.
const WEIGHTS_IN_CACHE_BYTES: usize = 512 << 10;

impl<T: Lane> Routine<T> for Call<'_, T> {
    fn run<S: Simd<E = T>>(self, simd: S) {
        let (threads, wanted) = self.sharing();
        if threads == 1 {
            for units in self.classes::<S>(1) {
                (0..units.len).for_each(|unit| self.unit(simd, &units, unit));
            }
            return;
        }
        let len = self.classes::<S>(wanted).map(|units| units.len).sum();
        // a list of all classes would be memory that nobody planned: those past the listed are found anew for each unit
        let mut classes = self.classes::<S>(wanted);
        let listed: [Option<Units<'_, T>>; LISTED_CLASSES] = std::array::from_fn(|_| classes.next());
        share::for_units(threads, len, |unit| {
            let holds = |units: &Units<'_, T>| unit < units.first + units.len;
            if let Some(units) = listed.iter().flatten().find(|units| holds(units)) {
                return self.unit(simd, units, unit - units.first);
            }
            let units = self.classes::<S>(wanted).find(holds);
            let units = units.expect("invariant: the last class ends with the last unit");
            self.unit(simd, &units, unit - units.first);
        });
    }
}

impl<T: Lane> Call<'_, T> {
    /// The threads that share the call, and how many units they want.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an estimate of the work, and at most the units of all threads"
    )]
    fn sharing(&self) -> (usize, usize) {
        let conv = &self.problem.conv;
        let operations = (self.region.volume() as f64)
            * (self.input.layout().batch() * 2 * conv.weight_len()) as f64
            / if self.problem.transposed {
                conv.windows.iter().map(|w| w.stride() as f64).product()
            } else {
                1.0
            };
        // those of several groups run at a third of the speed of the others
        let operations = if self.problem.path == Path::Lanes { 3.0 * operations } else { operations };
        let threads = share::threads(operations);
        if threads == 1 {
            return (1, 1);
        }
        let worth = (operations / share::of_a_unit(operations, threads))
            .min((UNITS_PER_THREAD * threads) as f64) as usize;
        (threads, worth.max(threads))
    }

    /// The units of each class, one after another; of one class about as many as `wanted`, or more.
    fn classes<S: Simd<E = T>>(&self, wanted: usize) -> impl Iterator<Item = Units<'_, T>> {
        let mut rest = &self.packed[self.problem.bias_len()..];
        let mut first = 0;
        self.problem.classes().map(move |classes| {
            let (weights, tail) = rest.split_at(self.problem.class_len(&classes));
            rest = tail;
            let units = self.units::<S>(classes, weights, wanted, first);
            first += units.len;
            units
        })
    }

    /// Parts of the output channels that one kernel call computes: one or two vectors, or channels.
    fn items(&self, cols: &Class) -> usize {
        let problem = self.problem;
        match problem.path {
            Path::Dense => problem.groups * problem.vectors().div_ceil(problem.tile_vectors(cols)),
            Path::Dot => problem.outputs().div_ceil(dot::MAX_OUTPUTS),
            Path::Planar => problem.groups * problem.out_group.div_ceil(planar::MAX_OUTPUTS),
            Path::Lanes => unreachable!("{OTHERS}"),
        }
    }

    fn units<'b, S: Simd<E = T>>(
        &self,
        classes: [Class; 2],
        weights: &'b [T],
        wanted: usize,
        first: usize,
    ) -> Units<'b, T> {
        let problem = self.problem;
        let members = [0, 1].map(|i| classes[i].members(self.region.axis(i)));
        let sharing = problem.sharing(&classes[1]);
        let pixels = index(members[1].len());
        let pairs = usize::from(problem.tile_vectors(&classes[1]) > 1);
        let widths = match sharing {
            Sharing::None | Sharing::Point => WIDTHS,
            Sharing::Sequences => SEQUENCE_WIDTHS[pairs],
            Sharing::Triple | Sharing::Edge => SHARED_WIDTHS[pairs],
        };
        let cut = match problem.path {
            Path::Dense if sharing != Sharing::None => Cut::even(pixels, widths, S::SHARED_TILES[pairs]),
            Path::Dense => Cut::even(pixels, widths, S::TILE),
            Path::Dot => Cut::of_width(pixels, dot::width::<S>()),
            Path::Planar => Cut::of_width(pixels, planar::vectors::<S>() * S::LANES),
            Path::Lanes => unreachable!("{OTHERS}"),
        };
        let rows = self.input.layout().batch() * index(members[0].len());
        let span = index(classes[1].input_step) * cut.wide;
        let tile_bytes = problem.inputs() * classes[0].taps * span * size_of::<T>();
        let most = (STRIP_BYTES / tile_bytes.max(1)).clamp(STRIP_TILES[0], STRIP_TILES[1]);
        let strip = (rows * cut.tiles / wanted).clamp(1, most);
        let strips = cut.tiles.div_ceil(strip);
        let items = self.items(&classes[1]);
        let fits = WEIGHTS_IN_CACHE_BYTES * items / size_of_val(weights).max(1);
        let spread = if rows * strips < wanted { items * rows * strips / wanted } else { items };
        let chunk = fits.min(spread).clamp(1, items);
        let len = items.div_ceil(chunk) * rows * strips;
        Units { classes, weights, members, items, chunk, cut, widths, strips, sharing, first, len }
    }

    fn unit<S: Simd<E = T>>(&self, simd: S, units: &Units<'_, T>, unit: usize) {
        let (rest, strip) = (unit / units.strips, unit % units.strips);
        let rows = index(units.members[0].len());
        let (rest, row) = (rest / rows, rest % rows);
        let batch = self.input.layout().batch();
        let (chunk, n) = (rest / batch, rest % batch);
        let [row_class, col_class] = &units.classes;
        let m = units.members[0].begin() + signed(row);
        let tiles = [strip, strip + 1].map(|strip| units.cut.tiles * strip / units.strips);
        let problem = self.problem;

        let layout = self.input.layout();
        let ring = signed(layout.ring().max(1));
        let (taps_begin, taps_end) = row_class.taps_inside(m, problem.extents[0]);
        let storage_row = row_class.reads(m, taps_begin).rem_euclid(ring);
        let from = Source {
            start: self.input.data()[n * layout.batch_stride()..].as_ptr(),
            row: index(storage_row),
            row_step: index(row_class.offset_step % ring),
            ring: layout.ring(),
            row_stride: layout.row_stride(),
            block_stride: layout.block_stride(),
            rows: taps_end - taps_begin,
            col: 0,
            pixel_step: col_class.input_step,
            tap_step: index(col_class.offset_step),
            cols: col_class.taps,
            width: problem.extents[1],
            first_col: layout.cols().begin(),
            channels: (0, problem.inputs()),
            run: problem.run,
            reading: Reading::Direct,
            ahead: [Ahead::NOTHING; AHEAD_ROWS],
        };
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
            relu: self.tail.is_relu(),
            goes_on: false,
        };
        let tail = self.tail.at(n, [y, to.cols().begin()]);
        let terms = problem.terms(&units.classes);
        let kernel_rows = from.rows;
        let at_once = self.at_once::<S>(col_class, tiles[1] - tiles[0]);
        let row_parts = kernel_rows.div_ceil(at_once.kernel_rows).max(1);
        let channel_parts = problem.in_group.div_ceil(at_once.channels.max(1)).max(1);
        let parts = row_parts * channel_parts;
        let fresh = if parts == 1 { self.fresh(units, [strip, row], &from) } else { None };
        let items = chunk * units.chunk..((chunk + 1) * units.chunk).min(units.items);
        let turns = items.clone().flat_map(|item| (0..parts).map(move |part| (item, part)));
        for (item, part) in turns {
            let begin = part / channel_parts * at_once.kernel_rows;
            let first_channel = part % channel_parts * at_once.channels;
            let is_last = part + 1 == parts;
            let from = Source {
                row: (from.row + begin * from.row_step) % from.ring.max(1),
                rows: (kernel_rows - begin).min(at_once.kernel_rows),
                ..from
            };
            let target = Target { relu: target.relu && is_last, goes_on: part > 0, ..target };
            for group in self.groups(units, tiles) {
                let x = col_class.first + group.first * col_class.step;
                let offset = index(x - to.cols().begin()) * to.block();
                let place = Place {
                    source: Source {
                        col: col_class.input(group.first),
                        reading: group.reading,
                        ahead: fresh.map_or([Ahead::NOTHING; AHEAD_ROWS], |fresh| {
                            self.ahead(units, &fresh, &group, [item - items.start, items.len()], from.rows)
                        }),
                        ..from
                    },
                    target: Target { start: target.start.wrapping_add(offset), ..target },
                    taps_begin: taps_begin + begin,
                    channels: [first_channel, (first_channel + at_once.channels).min(problem.in_group)],
                    terms,
                    pixels: group.pixels,
                    count: group.count,
                };
                let target = match problem.path {
                    Path::Dense => self.dense(simd, units, &place, item),
                    Path::Dot => self.dot(simd, units, &place, item),
                    Path::Planar => self.planar(simd, units, &place, item),
                    Path::Lanes => unreachable!("{OTHERS}"),
                };
                if !is_last {
                    continue;
                }
                if let Some(tail) = &tail {
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
        let extent = self.problem.extents[1];
        let blocked = self.input.layout().block() > 1;
        let b = a + signed(pixels * count);
        let inside = class.reads_inside(a, b, extent);
        let whole = pixels == units.cut.wide;
        let direct = match self.problem.path {
            Path::Dense => inside && class.input_step <= 2,
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
        let tile_vectors = problem.tile_vectors(&units.classes[1]);
        let parts = problem.vectors().div_ceil(tile_vectors);
        let (group, first) = (item / parts, item % parts * tile_vectors);
        let vectors = (problem.vectors() - first).min(tile_vectors);
        let first_input = group * problem.in_group;
        let [begin, end] = place.channels;
        let source = Source { channels: (first_input + begin, first_input + end), ..place.source };
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
                        Sharing::Edge
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
}
