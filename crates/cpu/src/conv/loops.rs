//! The loops around the kernels: classes, rows, tiles of pixels, output channels; and their sharing.

mod ahead;
mod deep;
mod joined;
mod lanes;
mod unit;

use std::ops::Range;

use deep::AtOnce;

use tiled_geometry::{Interval, Region, div_ceil};
use tiled_kernel::Activation;
use tiled_tensor::{Element, Layout, PartMut, View};

use super::class::{Class, index, signed};
use super::columns::ColumnPart;
use super::cut::{Cut, POINT_WIDTHS, SEQUENCE_WIDTHS, SHARED_WIDTHS, WIDTHS};
use super::dense::Sharing;
use super::dot;
use super::planar;
use super::problem::{Path, Problem};
use super::source::{AHEAD_ROWS, Ahead, Reading, Source, WeightsAhead};
use super::tail::Tail;
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
    /// Rows, and the part of the columns.
    classes: [Class; 2],
    part: ColumnPart,
    weights: &'a [T],
    members: [Interval; 2],
    /// Items of output channels (see [`Call::items`]), how many of them a unit has, and the vectors of one of [`Path::Dense`].
    items: usize,
    chunk: usize,
    tile_vectors: usize,
    /// The tiles of a row, of which widths, how many strips of them there are, and the most tiles of strips that are computed as one.
    cut: Cut,
    widths: &'static [usize],
    strips: usize,
    most_tiles: usize,
    /// The rows of a unit, and the terms that it takes at once.
    height: usize,
    at_once: AtOnce,
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

/// Units for each thread that shares a call, where they are worth it.
const UNITS_PER_THREAD: usize = 16;

/// The same where terms are taken in turns: each unit reads all weights.
const DEEP_UNITS: usize = 8;

/// The strips that a unit is cut into where terms are not, of which a thread computes several as one.
const STRIPS_OF_A_UNIT: usize = 4;

/// The classes and phases whose units a call keeps: more than those of a stride of two.
const LISTED_CLASSES: usize = 16;

/// Why these loops do not come to [`Path::Lanes`].
const OTHERS: &str = "invariant: channels of several groups have loops of their own";

/// The weights that a unit goes through should stay in the second level cache, beside the inputs.
const WEIGHTS_IN_CACHE_BYTES: usize = 512 << 10;

impl<T: Lane> Routine<T> for Call<'_, T> {
    fn run<S: Simd<E = T>>(self, simd: S) {
        let (threads, wanted) = self.sharing();
        if threads == 1 {
            for units in self.classes::<S>(1) {
                self.some_units(simd, &units, 0..units.len);
            }
            return;
        }
        let len = self.classes::<S>(wanted).map(|units| units.len).sum();
        // a list of all classes would be memory that nobody planned: those past the listed are found anew for each unit
        let mut classes = self.classes::<S>(wanted);
        let listed: [Option<Units<'_, T>>; LISTED_CLASSES] = std::array::from_fn(|_| classes.next());
        share::for_ranges(threads, len, |ranges| {
            for Range { mut start, end } in ranges {
                while start < end {
                    let holds = |units: &Units<'_, T>| start < units.first + units.len;
                    let of_class = |units: &Units<'_, T>| {
                        let range = start - units.first..(end - units.first).min(units.len);
                        self.some_units(simd, units, range.clone());
                        range.len()
                    };
                    start += if let Some(units) = listed.iter().flatten().find(|units| holds(units)) {
                        of_class(units)
                    } else {
                        let units = self.classes::<S>(wanted).find(holds);
                        of_class(&units.expect("invariant: the last class ends with the last unit"))
                    };
                }
            }
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

    /// The units of each part of each class, one after another; of one class about as many as `wanted`, or more.
    fn classes<S: Simd<E = T>>(&self, wanted: usize) -> impl Iterator<Item = Units<'_, T>> {
        let mut rest = &self.packed[self.problem.bias_len()..];
        let mut first = 0;
        let classes = self.problem.classes().flat_map(move |classes| {
            let (weights, tail) = rest.split_at(self.problem.class_len(&classes));
            rest = tail;
            let (parts, count) = ColumnPart::all(self.problem, classes[1]);
            parts.map(move |part| (classes[0], part, weights, wanted.div_ceil(count)))
        });
        classes.map(move |(rows, part, weights, wanted)| {
            let units = self.units::<S>(rows, part, weights, wanted, first);
            first += units.len;
            units
        })
    }

    /// Parts of the output channels that one kernel call computes: one or two vectors, or channels.
    fn items(&self, tile_vectors: usize) -> usize {
        let problem = self.problem;
        match problem.path {
            Path::Dense => problem.groups * problem.vectors().div_ceil(tile_vectors),
            Path::Dot => problem.outputs().div_ceil(dot::MAX_OUTPUTS),
            Path::Planar => problem.groups * problem.out_group.div_ceil(planar::MAX_OUTPUTS),
            Path::Lanes => unreachable!("{OTHERS}"),
        }
    }

    /// What row `m` of the outputs of a class reads of an image, by the taps from one to another, which lie within it; from column 0 of a part on.
    fn source(
        &self,
        n: usize,
        rows: &Class,
        part: &ColumnPart,
        m: i64,
        [begin, end]: [usize; 2],
    ) -> Source<T> {
        let layout = self.input.layout();
        let held = layout.cols().begin();
        let first_col = div_ceil(held - part.first, part.apart);
        let skipped = index(part.first + first_col * part.apart - held) * layout.block();
        let ring = signed(layout.ring().max(1));
        Source {
            start: self.input.data()[n * layout.batch_stride()..].as_ptr().wrapping_add(skipped),
            row: index(rows.reads(m, begin).rem_euclid(ring)),
            row_step: index(rows.offset_step % ring),
            ring: layout.ring(),
            row_stride: layout.row_stride(),
            block_stride: layout.block_stride(),
            apart: index(part.apart),
            rows: end - begin,
            col: 0,
            pixel_step: part.class.input_step,
            tap_step: index(part.class.offset_step),
            cols: part.class.taps,
            taps: part.taps,
            width: part.width,
            first_col,
            channels: (0, self.problem.inputs()),
            run: self.problem.run,
            reading: Reading::Direct,
            ahead: [Ahead::NOTHING; AHEAD_ROWS],
            weights_ahead: WeightsAhead::NOTHING,
        }
    }

    fn units<'b, S: Simd<E = T>>(
        &self,
        rows: Class,
        part: ColumnPart,
        weights: &'b [T],
        wanted: usize,
        first: usize,
    ) -> Units<'b, T> {
        let (problem, classes) = (self.problem, [rows, part.class]);
        let members = [0, 1].map(|i| classes[i].members(self.region.axis(i)));
        let members = [members[0], members[1].intersect(part.members)];
        let sharing = problem.sharing(&classes[1]);
        let pixels = index(members[1].len());
        let tile_vectors = problem.tile_vectors(&classes[1]);
        let pairs = usize::from(tile_vectors > 1);
        let in_blocks = self.input.layout().block() > 1;
        let are_points = problem.groups == 1 && problem.reads_one_pixel() && in_blocks && tile_vectors == 1;
        let widths = match sharing {
            Sharing::None | Sharing::Point if are_points => POINT_WIDTHS,
            Sharing::None | Sharing::Point => WIDTHS,
            Sharing::Sequences => SEQUENCE_WIDTHS[pairs],
            Sharing::Triple | Sharing::Edge | Sharing::Apart | Sharing::ApartEdge => SHARED_WIDTHS[pairs],
        };
        let cut = match problem.path {
            Path::Dense if sharing != Sharing::None => Cut::even(pixels, widths, S::SHARED_TILES[pairs]),
            Path::Dense if are_points => Cut::even(pixels, widths, S::POINT_TILE),
            Path::Dense => Cut::even(pixels, widths, S::TILE),
            Path::Dot => Cut::of_width(pixels, dot::width::<S>()),
            Path::Planar => Cut::of_width(pixels, planar::vectors::<S>() * S::LANES),
            Path::Lanes => unreachable!("{OTHERS}"),
        };
        let (batch, rows) = (self.input.layout().batch(), index(members[0].len()));
        let items = self.items(tile_vectors);
        let at_once = self.at_once::<S>(&classes);
        let span = index(classes[1].input_step) * cut.wide;
        let wanted = if at_once.is_all() { wanted } else { wanted.div_ceil(UNITS_PER_THREAD / DEEP_UNITS) };
        let most = if at_once.is_all() {
            let tile_bytes = problem.inputs() * classes[0].taps * span * size_of::<T>();
            (STRIP_BYTES / tile_bytes.max(1)).clamp(STRIP_TILES[0], STRIP_TILES[1])
        } else {
            at_once.tiles(span * size_of::<T>()).max(STRIP_TILES[0])
        };
        let tiles = (batch * rows * cut.tiles / wanted).clamp(1, most);
        let strips = cut.tiles.div_ceil(tiles);
        // several rows where all of a row is too little for terms that are taken at once
        let height = if at_once.is_all() || strips > 1 { 1 } else { (tiles / cut.tiles.max(1)).max(1) };
        let parts = batch * rows.div_ceil(height) * strips;
        let fits = if at_once.is_all() {
            WEIGHTS_IN_CACHE_BYTES * items / size_of_val(weights).max(1)
        } else {
            items
        };
        let spread = if parts < wanted { items * parts / wanted } else { items };
        let chunk = fits.min(spread).clamp(1, items);
        let chunks = items.div_ceil(chunk);
        let strips = if at_once.is_all() && wanted > 1 {
            // short enough that threads end together: a thread computes several as one
            let tiles = (batch * rows * cut.tiles * chunks / (wanted * STRIPS_OF_A_UNIT)).clamp(1, tiles);
            cut.tiles.div_ceil(tiles)
        } else {
            strips
        };
        let len = chunks * batch * rows.div_ceil(height) * strips;
        Units {
            classes,
            part,
            weights,
            members,
            items,
            chunk,
            tile_vectors,
            cut,
            widths,
            strips,
            most_tiles: most,
            height,
            at_once,
            sharing,
            first,
            len,
        }
    }
}
