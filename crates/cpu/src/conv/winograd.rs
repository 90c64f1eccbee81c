//! Winograd's minimal filtering F(4×4, 3×3): 36 products for 16 outputs where the sum has 144.
//!
//! With `G`, `B`, `A` of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), a tile of 4×4 outputs
//! is `Aᵀ[Σ_c (G g Gᵀ) ⊙ (Bᵀ d B)]A` over patches `d` of 6×6 inputs. For each of the 36 points of the transform the sum over
//! channels is a product of matrices, tiles by inputs by outputs, with the register tiles of the dense path.
//!
//! Tiles lie on one grid over the whole output, so that an output has the same bits whatever the region asked for. A
//! block of tiles goes through all three steps before the next: its transforms stay in the caches.
//!
//! Where taps lie `d` apart, so do the outputs and the inputs of a tile. A cell of `4·d` by `4·d` outputs is `d·d` tiles, one of each
//! remainder; tile `t` of an axis is that of remainder `t mod d` in cell `t div d`.

mod product;
mod transform;

use std::ops::Range;

use tiled_geometry::{Interval, Region, div_ceil};
use tiled_kernel::winograd::{self, PATCH, TILE};
use tiled_kernel::{Conv, Workspace};
use tiled_tensor::{Element, PartMut, View};

use super::class::{index, signed};
use super::cut::WIDTHS;
use super::tail::{self, Tail, Written};
use super::tile::Tile;
use crate::Isa;
use crate::ops::elementwise::activate;
use crate::share::{self, SharedOutput};
use crate::vector::{self, Lane, MAX_LANES, Routine, Simd};
use transform::{Blocks, Corner, Patch, Strides, Sums};

/// Points of the transform of a patch.
const POINTS: usize = PATCH * PATCH;

/// What a block of tiles should take of the second level cache, and the fewest and most tiles of a block: with few, the
/// weights are read too often.
const BLOCK_BYTES: usize = 768 << 10;
const BLOCK_TILES: [usize; 2] = [28, 112];

/// The most tiles that are transformed together.
const AT_ONCE: usize = 16;

/// The convolution and what follows from it and the instruction set.
#[derive(Clone, Copy)]
pub(super) struct Problem {
    conv: Conv,
    isa: Isa,
    lanes: usize,
}

impl Problem {
    pub(super) fn new<T: Element>(isa: Isa, conv: &Conv) -> Self {
        assert!(conv.suits_winograd(), "conv2d_winograd: {conv:?}");
        Self { conv: *conv, isa, lanes: vector::lanes::<T>(isa) }
    }

    /// The elements that a unit needs beside the windows.
    pub(super) fn workspace_len<T>(&self) -> usize {
        let tiles = self.most_tiles::<T>() + SPARE_TILES;
        let plane = |vectors| Plane::new::<T>(vectors, tiles, self.lanes).len();
        plane(self.blocks()) + plane(self.vectors()) + 2 * POINTS * MAX_LANES
    }

    /// How far apart the pixels of a tile lie.
    fn apart(&self) -> i64 {
        self.conv.dilation()
    }

    /// The first output of a tile along an axis.
    fn first(&self, tile: i64) -> i64 {
        let apart = self.apart();
        if apart == 1 {
            return tile * signed(TILE);
        }
        tile.div_euclid(apart) * apart * signed(TILE) + tile.rem_euclid(apart)
    }

    /// Of so many coordinates, the first at `first` and each as far from the next as the pixels of a tile, those that lie in an interval.
    fn within(&self, first: i64, count: usize, interval: Interval) -> Range<usize> {
        let apart = self.apart();
        let [begin, end] = [interval.begin(), interval.end()].map(|bound| match apart {
            1 => bound - first,
            _ => (bound - first + apart - 1).div_euclid(apart),
        });
        let [begin, end] = [begin, end].map(|place| index(place.clamp(0, signed(count))));
        begin..end.max(begin)
    }

    /// Vectors of output channels.
    fn vectors(&self) -> usize {
        self.conv.out_channels.div_ceil(self.lanes)
    }

    /// Pairs of vectors, the last of which may be one.
    fn pairs(&self) -> usize {
        self.vectors().div_ceil(2)
    }

    /// Blocks of input channels.
    fn blocks(&self) -> usize {
        self.conv.in_channels.div_ceil(self.lanes)
    }

    /// Where the weights of a point and a pair begin, after the bias: `[point][pair][input][1 or 2 vectors]`.
    fn weights_at(&self, point: usize, pair: usize) -> usize {
        (point * self.vectors() + 2 * pair) * self.conv.in_channels * self.lanes
    }

    fn packed_len(&self) -> usize {
        self.vectors() * self.lanes + self.weights_at(POINTS, 0)
    }

    /// The most tiles that a block has.
    fn most_tiles<T>(&self) -> usize {
        let each = POINTS * (self.blocks() + self.vectors()) * self.lanes * size_of::<T>();
        (BLOCK_BYTES / each).clamp(BLOCK_TILES[0], BLOCK_TILES[1])
    }
}

/// The transforms of a block of tiles in a workspace: `[point][vector of channels][tile][lane]`.
#[derive(Clone, Copy)]
struct Plane {
    tiles: usize,
    /// Elements from one point to the next.
    stride: usize,
}

impl Plane {
    /// For this many vectors of channels.
    fn new<T>(vectors: usize, tiles: usize, lanes: usize) -> Self {
        let len = vectors * tiles * lanes;
        // points that lie a multiple of a page apart would share the few lines of one set of the first cache
        let apart = if (len * size_of::<T>()).is_multiple_of(1024) { MAX_LANES } else { 0 };
        Self { tiles, stride: len + apart }
    }

    fn len(&self) -> usize {
        POINTS * self.stride
    }
}

/// Tiles of the widest register tile of any instruction set that may be computed beyond the last of a block.
const SPARE_TILES: usize = 14;

pub(super) fn packed_len<T: Element>(isa: Isa, conv: &Conv) -> usize {
    Problem::new::<T>(isa, conv).packed_len()
}

/// Of its own arithmetic: the products reach seven eighths, and the transforms of an input take as long as those with ten
/// outputs, the other way round as well.
#[expect(clippy::cast_precision_loss, reason = "channel counts are far below 2^53")]
pub(super) fn share_of_peak(conv: &Conv) -> f64 {
    // of tiles that go beyond the image, as far apart as their pixels lie, a part alone is wanted
    let cell = conv.dilation() * signed(TILE);
    let wanted = conv.output.map(|extent| extent as f64 / (div_ceil(extent, cell) * cell).max(1) as f64);
    wanted[0] * wanted[1] * 0.88 / (1.0 + 10.0 / conv.in_channels as f64 + 10.0 / conv.out_channels as f64)
}

/// Packs the bias, then the transformed weights, computed in `f64` and rounded once.
pub(super) fn pack<T: Element>(isa: Isa, conv: &Conv, params: &[&[T]], packed: &mut [T]) {
    let problem = Problem::new::<T>(isa, conv);
    assert_eq!(params[0].len(), conv.weight_len(), "conv2d_winograd: length of the weight");
    assert_eq!(packed.len(), problem.packed_len(), "conv2d_winograd: length of the packed weight");
    packed.fill(T::ZERO);
    let (bias, weights) = packed.split_at_mut(problem.vectors() * problem.lanes);
    if let Some(values) = params.get(1) {
        bias[..conv.out_channels].copy_from_slice(values);
    }
    for input in 0..conv.in_channels {
        for output in 0..conv.out_channels {
            let filter = &params[0][(output * conv.in_channels + input) * 9..][..9];
            let pair = output / (2 * problem.lanes);
            let width = (problem.vectors() - 2 * pair).min(2) * problem.lanes;
            let within = input * width + output % (2 * problem.lanes);
            for (point, value) in winograd::filter(filter).into_iter().flatten().enumerate() {
                weights[problem.weights_at(point, pair) + within] = T::from_f64(value);
            }
        }
    }
}

pub(super) fn compute<T: Lane>(
    problem: Problem,
    tail: Tail<'_, T>,
    packed: &[T],
    input: View<'_, T>,
    mut output: PartMut<'_, T>,
    region: Region<2>,
    workspace: &Workspace<T>,
) {
    check(&problem, packed, &input, &output, region);
    tail.check(output.layout(), problem.lanes, region);
    let output = SharedOutput::new(&mut output);
    vector::run::<T>(problem.isa, Call { problem, tail, packed, input, output, region, workspace });
}

/// Asserts what the loads and stores rely on.
fn check<T: Element>(
    problem: &Problem,
    packed: &[T],
    input: &View<'_, T>,
    output: &PartMut<'_, T>,
    region: Region<2>,
) {
    let conv = &problem.conv;
    assert_eq!(packed.len(), problem.packed_len(), "conv2d_winograd: length of the packed weight");
    let whole = Region::whole(conv.output);
    assert!(whole.contains_region(region), "region {region} leaves the output {whole}");
    // patches are read whole, but for what lies outside the image
    let cell = problem.apart() * signed(TILE);
    let need = Region::new(std::array::from_fn(|i| {
        let patches = conv.windows[i].receptive(region.axis(i).aligned(cell));
        patches.intersect(Interval::whole(conv.input[i]))
    }));
    assert!(input.region().contains_region(need), "input window {} lacks part of {need}", input.region());
    assert!(
        output.region().contains_region(region),
        "output window {} lacks part of {region}",
        output.region()
    );
    for (layout, channels) in [(input.layout(), conv.in_channels), (output.layout(), conv.out_channels)] {
        assert_eq!(layout.channels(), channels, "channels of a window");
        assert_eq!(layout.block(), problem.lanes, "channel block of a window");
    }
    assert_eq!(input.layout().batch(), output.layout().batch(), "batch size");
}

/// One call.
struct Call<'a, T: Element> {
    problem: Problem,
    tail: Tail<'a, T>,
    packed: &'a [T],
    input: View<'a, T>,
    output: SharedOutput<'a, T>,
    region: Region<2>,
    workspace: &'a Workspace<T>,
}

/// The tiles of a call, image by image and row by row, and how they are cut into units: a block of tiles for a part of
/// the output channels.
struct Units {
    rows: Interval,
    cols: Interval,
    tiles: usize,
    blocks: usize,
    parts: usize,
    threads: usize,
}

impl Units {
    /// The image, the row and the column of each of these tiles.
    fn places(&self, tiles: Range<usize>) -> impl Iterator<Item = (usize, i64, i64)> {
        let [rows, cols] = [self.rows, self.cols].map(|axis| index(axis.len()));
        let (mut n, mut row, mut col) =
            (tiles.start / cols / rows, tiles.start / cols % rows, tiles.start % cols);
        tiles.map(move |_| {
            let place = (n, self.rows.begin() + signed(row), self.cols.begin() + signed(col));
            col += 1;
            if col == cols {
                (col, row) = (0, row + 1);
            }
            if row == rows {
                (row, n) = (0, n + 1);
            }
            place
        })
    }
}

/// Tiles in parts that are transformed together, with the first one's place among them all.
fn in_parts(tiles: &Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let Range { start, end } = *tiles;
    (start..end).step_by(AT_ONCE).map(move |first| (first - start, first..end.min(first + AT_ONCE)))
}

impl<T: Lane> Routine<T> for Call<'_, T> {
    fn run<S: Simd<E = T>>(self, simd: S) {
        let units = self.units();
        if units.tiles == 0 {
            return;
        }
        share::for_units(units.threads, units.blocks * units.parts, |unit| {
            let thread = rayon::current_thread_index().unwrap_or(0);
            self.workspace.with(thread, self.problem.workspace_len::<T>(), |workspace| {
                self.unit(simd, &units, unit, workspace);
            });
        });
    }
}

impl<T: Lane> Call<'_, T> {
    fn units(&self) -> Units {
        let [rows, cols] = self.region.axes().map(|axis| {
            // of each cell as many tiles as the pixels of one lie apart
            let aligned = axis.aligned(self.problem.apart() * signed(TILE));
            Interval::new(aligned.begin() / signed(TILE), aligned.end() / signed(TILE))
        });
        let tiles = self.input.layout().batch() * index(rows.len()) * index(cols.len());
        let conv = &self.problem.conv;
        #[expect(clippy::cast_precision_loss, reason = "an estimate of the work")]
        let operations = (tiles * 2 * POINTS) as f64 * (conv.in_channels * conv.out_channels) as f64;
        let threads = share::threads(operations);
        // where tiles are few, threads share the weights rather than the tiles
        let parts = if tiles < threads * BLOCK_TILES[0] { threads.min(self.problem.pairs()) } else { 1 };
        let sharing = threads / parts;
        let rounds = tiles.div_ceil(sharing * self.problem.most_tiles::<T>());
        Units { rows, cols, tiles, blocks: (sharing * rounds).min(tiles), parts, threads }
    }

    fn unit<S: Simd<E = T>>(&self, simd: S, units: &Units, unit: usize, workspace: &mut [T]) {
        let problem = &self.problem;
        let (block, part) = (unit % units.blocks, unit / units.blocks);
        let tiles = units.tiles * block / units.blocks..units.tiles * (block + 1) / units.blocks;
        let pairs = problem.pairs() * part / units.parts..problem.pairs() * (part + 1) / units.parts;
        let vectors = 2 * pairs.start..(2 * pairs.end).min(problem.vectors());

        // register tiles of one width, the last of which may go beyond the block
        let groups = tiles.len().div_ceil(S::TILE);
        let even = tiles.len().div_ceil(groups);
        let width = WIDTHS.iter().copied().find(|&width| width >= even).unwrap_or(S::TILE);
        let patches = Plane::new::<T>(problem.blocks(), groups * width, S::LANES);
        let sums = Plane::new::<T>(vectors.len(), groups * width, S::LANES);
        let (from, to) = workspace.split_at_mut(patches.len());
        let to = &mut to[..sums.len()];

        for (place, some) in in_parts(&tiles) {
            self.transform_input(simd, units, some, &patches, &mut from[place * S::LANES..]);
        }
        for point in 0..POINTS {
            for pair in pairs.clone() {
                let pair_vectors = (problem.vectors() - 2 * pair).min(2);
                let weights = &self.weights()[problem.weights_at(point, pair)..];
                let from = &from[point * patches.stride..];
                let to = &mut to[point * sums.stride + 2 * (pair - pairs.start) * sums.tiles * S::LANES..];
                assert!(weights.len() >= problem.conv.in_channels * pair_vectors * S::LANES);
                assert!(from.len() >= problem.blocks() * patches.tiles * S::LANES);
                assert!(to.len() >= pair_vectors * sums.tiles * S::LANES);
                // SAFETY: the lengths were just asserted.
                unsafe {
                    product::run(
                        simd,
                        product::Operands {
                            patches: from.as_ptr(),
                            inputs: problem.conv.in_channels,
                            tiles: patches.tiles,
                            weights: weights.as_ptr(),
                            sums: to.as_mut_ptr(),
                        },
                        [width, pair_vectors],
                    );
                }
            }
        }
        for (place, some) in in_parts(&tiles) {
            self.transform_output(simd, units, some, vectors.clone(), &sums, &to[place * S::LANES..]);
        }
    }

    fn weights(&self) -> &[T] {
        &self.packed[self.problem.vectors() * self.problem.lanes..]
    }

    /// Transforms the patches of tiles, all input channels, to `to` and on.
    fn transform_input<S: Simd<E = T>>(
        &self,
        simd: S,
        units: &Units,
        tiles: Range<usize>,
        plane: &Plane,
        to: &mut [T],
    ) {
        let mut places = units.places(tiles.clone());
        let patches: [Patch<T>; AT_ONCE] =
            std::array::from_fn(|_| places.next().map_or_else(Patch::default, |place| self.patch(place)));
        let blocks = self.input_blocks();
        let strides = Strides { vector: plane.tiles * S::LANES, point: plane.stride };
        let last = strides.end(blocks.count, tiles.len(), S::LANES);
        assert!(to.len() >= last, "transforms of {last} elements in {}", to.len());
        // SAFETY: `check` holds the window over all inputs of the tiles that lie in the image; the length was just asserted.
        unsafe { transform::input(simd, &patches[..tiles.len()], blocks, to.as_mut_ptr(), strides) };
    }

    fn input_blocks(&self) -> Blocks {
        let count = self.problem.blocks();
        Blocks { count, stride: self.input.layout().block_stride(), col_step: self.col_step() }
    }

    fn output_blocks(&self, vectors: usize) -> Blocks {
        Blocks { count: vectors, stride: self.output.layout().block_stride(), col_step: self.col_step() }
    }

    /// Elements from a column of a tile to the next.
    fn col_step(&self) -> usize {
        index(self.problem.apart()) * self.problem.lanes
    }

    fn patch(&self, (n, row, col): (usize, i64, i64)) -> Patch<T> {
        let (problem, conv, layout) = (&self.problem, &self.problem.conv, self.input.layout());
        let firsts = [0, 1].map(|i| problem.first([row, col][i]) - conv.windows[i].padding());
        let [rows, cols] = [0, 1].map(|i| problem.within(firsts[i], PATCH, Interval::whole(conv.input[i])));
        let [first_row, first_col] = firsts;
        let mut starts = [std::ptr::null(); PATCH];
        if !cols.is_empty() {
            for i in rows.clone() {
                let row = layout.row_offset(n, 0, first_row + problem.apart() * signed(i));
                let col = signed(problem.lanes) * (first_col - layout.cols().begin());
                let start = self.input.data()[row..].as_ptr();
                starts[i] = start.wrapping_offset(isize::try_from(col).unwrap_or(0));
            }
        }
        Patch { starts, rows, cols }
    }

    /// Transforms the sums of tiles for some vectors of output channels back and writes those of the region.
    fn transform_output<S: Simd<E = T>>(
        &self,
        simd: S,
        units: &Units,
        tiles: Range<usize>,
        vectors: Range<usize>,
        plane: &Plane,
        from: &[T],
    ) {
        let mut places = units.places(tiles.clone());
        let corners: [Corner<T>; AT_ONCE] = std::array::from_fn(|_| {
            places.next().map_or_else(Corner::default, |place| self.corner(place, vectors.clone()))
        });
        let corners = &corners[..tiles.len()];
        let blocks = self.output_blocks(vectors.len());
        let strides = Strides { vector: plane.tiles * S::LANES, point: plane.stride };
        let last = strides.end(vectors.len(), tiles.len(), S::LANES);
        assert!(from.len() >= last, "sums of {last} elements in {}", from.len());
        let bias = &self.packed[vectors.start * S::LANES..vectors.end * S::LANES];
        let sums = Sums { from: from.as_ptr(), strides, bias: bias.as_ptr(), limits: self.tail.limits() };
        // SAFETY: the lengths were just asserted; the output holds the region, and no other unit has these channels of these
        // tiles.
        unsafe { transform::output(simd, sums, corners, blocks) };
        for (place, corner) in units.places(tiles).zip(corners) {
            self.follow(simd, place, vectors.clone(), corner, blocks);
        }
    }

    fn corner(&self, (n, row, col): (usize, i64, i64), vectors: Range<usize>) -> Corner<T> {
        let (problem, layout) = (&self.problem, self.output.layout());
        let lanes = problem.lanes;
        let first = [row, col].map(|tile| problem.first(tile));
        let [rows, cols] = [0, 1].map(|i| problem.within(first[i], TILE, self.region.axis(i)));
        let col_step = self.col_step();
        let mut starts = [std::ptr::null_mut(); TILE];
        if !cols.is_empty() {
            for i in rows.clone() {
                let x = first[1] + problem.apart() * signed(cols.start);
                let y = first[0] + problem.apart() * signed(i);
                // the last vector lies in the window as well
                let last =
                    layout.offset(n, (vectors.end - 1) * lanes, y, x) + (cols.len() - 1) * col_step + lanes;
                let _ = self.output.at(last);
                let start = self.output.at(layout.offset(n, vectors.start * lanes, y, x));
                starts[i] = start.wrapping_sub(cols.start * col_step);
            }
        }
        Corner { starts, rows, cols }
    }

    /// Applies what follows to the corner of a tile.
    fn follow<S: Simd<E = T>>(
        &self,
        simd: S,
        (n, row, col): (usize, i64, i64),
        vectors: Range<usize>,
        corner: &Corner<T>,
        blocks: Blocks,
    ) {
        if corner.cols.is_empty() {
            return;
        }
        let first = [row, col].map(|tile| self.problem.first(tile));
        let apart = self.problem.apart();
        let x = first[1] + apart * signed(corner.cols.start);
        for i in corner.rows.clone() {
            let start = corner.starts[i].wrapping_add(corner.cols.start * blocks.col_step);
            if let Some(at) = self.tail.at(n, [first[0] + apart * signed(i), x]) {
                let written = Written {
                    // block 0 of the row, whose block `vectors.start` is the first one written
                    start: start.wrapping_sub(vectors.start * blocks.stride),
                    block_stride: blocks.stride,
                    step: blocks.col_step,
                    pixels: corner.cols.len(),
                    channel: vectors.start * S::LANES,
                    vectors: vectors.len(),
                };
                // SAFETY: this unit has just written them; `Tail::check` holds the tensors that follow.
                unsafe { tail::follow(simd, &at, written) };
            }
            if let Some(activation) = self.tail.last() {
                // pixels side by side are one stretch
                let pixels = corner.cols.len();
                let (stretches, len) = if apart == 1 { (1, pixels) } else { (pixels, 1) };
                for vector in 0..vectors.len() {
                    for stretch in 0..stretches {
                        let offset = vector * blocks.stride + stretch * blocks.col_step;
                        // SAFETY: just written, by this unit.
                        let values = unsafe {
                            std::slice::from_raw_parts_mut(start.wrapping_add(offset), len * S::LANES)
                        };
                        activate(self.problem.isa, activation, values);
                    }
                }
            }
        }
    }
}
