//! The loops around the kernels: classes, rows, tiles of pixels, output channels; and their sharing.

use tiled_geometry::{Interval, Region};
use tiled_kernel::Activation;
use tiled_tensor::{Element, Layout, View, ViewMut};

use super::activate;
use super::class::{Class, index, signed};
use super::dense::{self, Source, Target};
use super::lanes::{self, Groups};
use super::planar;
use super::problem::{Path, Problem};
use super::share::{self, SharedOutput};
use crate::Isa;
use crate::vector::{self, Routine, Simd};

/// Computes `region` of the output of `problem`.
pub(super) fn compute<T: Element>(
    isa: Isa,
    problem: &Problem,
    activation: Option<Activation>,
    packed: &[T],
    input: View<'_, T>,
    output: ViewMut<'_, T>,
    region: Region<2>,
) {
    check(problem, input.layout(), output.layout(), region);
    let output = SharedOutput::new(output);
    if problem.leaves_gaps() {
        fill_bias(problem, activation, packed, &output, region);
    }
    vector::run::<T>(isa, Engine { problem, activation, packed, input, output, region });
}

/// Asserts what the loads and stores of the kernels rely on.
fn check(problem: &Problem, input: &Layout, output: &Layout, region: Region<2>) {
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
fn fill_bias<T: Element>(
    problem: &Problem,
    activation: Option<Activation>,
    packed: &[T],
    output: &SharedOutput<'_, T>,
    region: Region<2>,
) {
    let layout = output.layout();
    for c in 0..problem.outputs() {
        let mut value = packed[problem.bias_at(c)];
        if let Some(activation) = activation {
            activate::apply(activation, &mut value);
        }
        for n in 0..layout.batch() {
            for y in region.rows().begin()..region.rows().end() {
                for x in region.cols().begin()..region.cols().end() {
                    // SAFETY: the region lies in the window; no other thread writes yet.
                    unsafe { output.at(layout.offset(n, c, y, x)).write(value) };
                }
            }
        }
    }
}

/// One call.
struct Engine<'a, T> {
    problem: &'a Problem,
    activation: Option<Activation>,
    packed: &'a [T],
    input: View<'a, T>,
    output: SharedOutput<'a, T>,
    region: Region<2>,
}

/// A class within the region, cut into units: a part of the output channels for a tile of pixels.
struct Units<'a, T> {
    classes: [Class; 2],
    weights: &'a [T],
    members: [Interval; 2],
    /// Items of output channels (see [`Engine::items`]) and how many of them a unit has.
    items: usize,
    chunk: usize,
    /// Tiles of a row.
    tiles: usize,
    len: usize,
}

/// The weights that a unit goes through should stay in the second level cache, beside the inputs.
const WEIGHTS_IN_CACHE_BYTES: usize = 512 << 10;

impl<T: Element> Routine for Engine<'_, T> {
    fn run<S: Simd>(self) {
        let problem = self.problem;
        #[expect(clippy::cast_precision_loss, reason = "an estimate of the work")]
        let operations = (self.region.volume() as f64)
            * (self.input.layout().batch() * 2 * self.problem.conv.weight_len()) as f64
            / if problem.transposed {
                self.problem.conv.windows.iter().map(|w| w.stride() as f64).product()
            } else {
                1.0
            };
        let pieces = share::pieces(operations);
        share::for_pieces(pieces, |piece| {
            let mut rest = &self.packed[problem.bias_len()..];
            for classes in problem.classes() {
                let (weights, tail) = rest.split_at(problem.class_len(&classes));
                rest = tail;
                let units = self.units::<S>(classes, weights, pieces);
                for unit in units.len * piece / pieces..units.len * (piece + 1) / pieces {
                    self.unit::<S>(&units, unit);
                }
            }
        });
    }
}

impl<T: Element> Engine<'_, T> {
    /// Parts of the output channels that one kernel call computes: pairs of vectors, vectors, or channels.
    fn items(&self) -> usize {
        let problem = self.problem;
        match problem.path {
            Path::Dense => problem.groups * problem.vectors().div_ceil(2),
            Path::Lanes => problem.vectors(),
            Path::Planar => problem.groups * problem.out_group.div_ceil(planar::MAX_OUTPUTS),
        }
    }

    fn units<'b, S: Simd>(&self, classes: [Class; 2], weights: &'b [T], pieces: usize) -> Units<'b, T> {
        let members = [0, 1].map(|i| classes[i].members(self.region.axis(i)));
        let widest = match self.problem.path {
            Path::Planar => planar::vectors::<S>() * S::LANES,
            _ => S::TILE,
        };
        let tiles = index(members[1].len()).div_ceil(widest);
        let pixels = self.input.layout().batch() * index(members[0].len()) * tiles;
        let items = self.items();
        let fits = WEIGHTS_IN_CACHE_BYTES * items / size_of_val(weights).max(1);
        let spread = if pixels < 2 * pieces { items * pixels / (2 * pieces) } else { items };
        let chunk = fits.min(spread).clamp(1, items);
        Units { classes, weights, members, items, chunk, tiles, len: items.div_ceil(chunk) * pixels }
    }

    fn unit<S: Simd>(&self, units: &Units<'_, T>, unit: usize) {
        let (rest, tile) = (unit / units.tiles, unit % units.tiles);
        let rows = index(units.members[0].len());
        let (rest, row) = (rest / rows, rest % rows);
        let batch = self.input.layout().batch();
        let (chunk, n) = (rest / batch, rest % batch);
        let [row_class, col_class] = &units.classes;
        let m = units.members[0].begin() + signed(row);
        let cols = units.members[1];
        let at = |tile: usize| cols.begin() + signed(index(cols.len()) * tile / units.tiles);
        let (a, b) = (at(tile), at(tile + 1));
        let problem = self.problem;

        let layout = self.input.layout();
        let ring = signed(layout.ring().max(1));
        let first_row = row_class.input(m);
        let (taps_begin, taps_end) = row_class.taps_inside(first_row, problem.extents[0]);
        let storage_row = (first_row + signed(taps_begin) * row_class.offset_step).rem_euclid(ring);
        let inside = col_class.reads_inside(a, b, problem.extents[1]);
        let pixel_step = col_class.input_step;
        let source = Source::<S::E> {
            start: self.input.data()[n * layout.batch_stride()..].as_ptr().cast(),
            row: index(storage_row),
            row_step: index(row_class.offset_step % ring),
            ring: layout.ring(),
            row_stride: layout.row_stride(),
            block_stride: layout.block_stride(),
            rows: taps_end - taps_begin,
            col: col_class.input(a),
            pixel_step,
            tap_step: col_class.offset_step,
            cols: col_class.taps,
            width: problem.extents[1],
            first_col: layout.cols().begin(),
            channels: (0, 0),
            run: problem.run,
            gathered: !inside || pixel_step > 2,
        };

        let to = self.output.layout();
        let y = row_class.first + m * row_class.step;
        let x = col_class.first + a * col_class.step;
        let target = Target::<S::E> {
            start: self.output.at(to.offset(n, 0, y, x)).cast(),
            step: index(col_class.step) * to.block(),
            block_stride: to.block_stride(),
            block: to.block(),
            channel: 0,
            channels: 0,
            whole: false,
            relu: self.activation == Some(Activation::Relu),
        };
        let place =
            Place { source, target, taps_begin, terms: problem.terms(&units.classes), pixels: index(b - a) };
        for item in chunk * units.chunk..((chunk + 1) * units.chunk).min(units.items) {
            let target = match problem.path {
                Path::Dense => self.dense::<S>(units, &place, item),
                Path::Lanes => self.lanes::<S>(units, &place, item),
                Path::Planar => self.planar::<S>(units, &place, item),
            };
            if let Some(activation) = self.activation.filter(|&activation| activation != Activation::Relu) {
                // SAFETY: the target is what this unit has just written.
                unsafe { activate::tile(activation, &target, place.pixels) };
            }
        }
    }

    fn dense<S: Simd>(&self, units: &Units<'_, T>, place: &Place<S::E>, item: usize) -> Target<S::E> {
        let problem = self.problem;
        let pairs = problem.vectors().div_ceil(2);
        let (group, first) = (item / pairs, item % pairs * 2);
        let vectors = (problem.vectors() - first).min(2);
        let first_input = group * problem.in_group;
        let source = Source { channels: (first_input, first_input + problem.in_group), ..place.source };
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
        let skipped = place.taps_begin * problem.in_group * units.classes[1].taps * vectors;
        let weights = &units.weights[(vector * place.terms + skipped) * S::LANES..];
        let bias = &self.packed[vector * S::LANES..];
        // SAFETY: `check` holds the windows; the weights of the pair begin where `Problem::visit` packs them; no
        // other unit has these output channels of these pixels.
        unsafe {
            dense::run::<S>(
                &source,
                &target,
                weights.as_ptr().cast(),
                bias.as_ptr().cast(),
                [place.pixels, vectors],
                self.input.layout().block() > 1,
            );
        }
        target
    }

    fn lanes<S: Simd>(&self, units: &Units<'_, T>, place: &Place<S::E>, item: usize) -> Target<S::E> {
        let problem = self.problem;
        let blocked = self.input.layout().block() > 1;
        let source = Source { gathered: place.source.gathered || !blocked, ..place.source };
        let channel = item * S::LANES;
        let target = Target {
            channel,
            channels: (problem.outputs() - channel).min(S::LANES),
            whole: place.target.block > 1,
            ..place.target
        };
        let groups = Groups {
            in_group: problem.in_group,
            out_group: problem.out_group,
            rows: units.classes[0].taps,
            first_row: place.taps_begin,
            blocked,
            inputs: problem.inputs(),
        };
        let weights = &units.weights[channel * place.terms..];
        let bias = &self.packed[channel..];
        // SAFETY: as in `dense`.
        unsafe {
            lanes::run::<S>(
                &source,
                &target,
                weights.as_ptr().cast(),
                bias.as_ptr().cast(),
                place.pixels,
                &groups,
            );
        }
        target
    }

    fn planar<S: Simd>(&self, units: &Units<'_, T>, place: &Place<S::E>, item: usize) -> Target<S::E> {
        let problem = self.problem;
        let parts = problem.out_group.div_ceil(planar::MAX_OUTPUTS);
        let (group, first) = (item / parts, item % parts * planar::MAX_OUTPUTS);
        let first_input = group * problem.in_group;
        let full = place.pixels == planar::vectors::<S>() * S::LANES;
        let source = Source {
            channels: (first_input, first_input + problem.in_group),
            gathered: place.source.gathered || !full || place.source.pixel_step > 1,
            ..place.source
        };
        let channel = group * problem.out_group + first;
        let channels = (problem.out_group - first).min(planar::MAX_OUTPUTS);
        let target = Target { channel, channels, ..place.target };
        let skipped = place.taps_begin * problem.in_group * units.classes[1].taps;
        let weights = &units.weights[channel * place.terms + skipped..];
        let bias = &self.packed[channel..];
        // SAFETY: as in `dense`.
        unsafe {
            planar::run::<S>(
                &source,
                &target,
                (weights.as_ptr().cast(), place.terms),
                bias.as_ptr().cast(),
                [place.pixels, channels],
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
    terms: usize,
    pixels: usize,
}
