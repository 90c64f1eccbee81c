//! Convolution and the gradient for its input.
//!
//! Both are one computation over classes of outputs: a convolution has one class, its gradient one for each residue of the stride, of
//! which each output has the same taps. Which kernel carries it out depends on the channels, its tile on the size of the call; the
//! bits depend on neither.

use tiled_geometry::{Interval, Region, Window};
use tiled_kernel::winograd::{self, PATCH, TILE};
use tiled_kernel::{Activation, Algorithm, Conv, DeviceError, Epilogue, Kernel};
use tiled_tensor::{DType, Element};

use super::grid::{LANES, count, extent, of_rows};
use super::maps::{self, Op};
use super::waves::{Blocks, Waves, as_f64};
use super::{Given, Launches, Shape, typed};
use crate::args::{self, ConvAxis, Function, Part, int, narrow};
use crate::block;
use crate::driver::Facts;
use crate::precision::{self, Precision};

/// The kernels for a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Path {
    /// Channels that are summed over lie in whole blocks.
    Dense,
    /// They are few, or groups cut blocks.
    Gather,
    /// Each output has one.
    Depthwise,
    /// [`Algorithm::Winograd`].
    Winograd,
}

/// A convolution, or the gradient for its input, seen alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem<'k> {
    conv: &'k Conv,
    epilogue: &'k Epilogue,
    is_backward: bool,
    pub(crate) path: Path,
    precision: Precision,
    /// Channels of a group that are summed over, and what their number is padded to.
    reduced: [usize; 2],
    /// Output channels of a group, and what their number is padded to.
    outputs: [usize; 2],
}

/// The channels of a step of the dense kernels, and of the blocks of windows.
const STEP: usize = 8;

impl<'k> Problem<'k> {
    /// The problem of a kernel, if it is one.
    pub(crate) fn of(kernel: &'k Kernel, precision: Precision) -> Option<Self> {
        let (conv, algorithm, epilogue, is_backward) = match kernel {
            Kernel::Conv2d { conv, algorithm, epilogue } => (conv, *algorithm, epilogue, false),
            Kernel::Conv2dBackwardInput { conv, epilogue } => (conv, Algorithm::Direct, epilogue, true),
            _ => return None,
        };
        let sides = [conv.in_channels, conv.out_channels];
        let [from, to] = if is_backward { [sides[1], sides[0]] } else { sides };
        let (reduced, outputs) = (from / conv.groups, to / conv.groups);
        let path = if algorithm == Algorithm::Winograd {
            assert!(conv.suits_winograd(), "conv2d_winograd: {conv:?}");
            Path::Winograd
        } else if reduced == 1 && conv.groups > 1 {
            Path::Depthwise
        } else if block(from) == STEP && (conv.groups == 1 || reduced.is_multiple_of(STEP)) {
            Path::Dense
        } else {
            Path::Gather
        };
        let reduced_padded = match path {
            Path::Dense | Path::Winograd => reduced.next_multiple_of(STEP),
            Path::Gather | Path::Depthwise => reduced,
        };
        let outputs_padded = if path == Path::Depthwise { to } else { outputs }.next_multiple_of(STEP);
        Some(Self {
            conv,
            epilogue,
            is_backward,
            path,
            precision,
            reduced: [reduced, reduced_padded],
            outputs: [outputs, outputs_padded],
        })
    }

    /// What carries it out: tensor cores where their narrowest tile is not mostly empty, by the channels alone.
    pub(crate) fn products(&self, dtype: DType) -> Precision {
        let is_wide = self.path == Path::Dense && self.outputs[0] > 8;
        if is_wide && dtype == DType::F32 { self.precision } else { Precision::F32 }
    }

    pub(crate) const fn channels(&self) -> usize {
        self.outputs[0] * self.conv.groups
    }

    /// The weights of a reduced channel and an output: one for each tap, or each point of a transformed filter.
    fn weights_of_pair(&self) -> usize {
        if self.path == Path::Winograd { PATCH * PATCH } else { self.conv.kernel().iter().product() }
    }

    fn weight_len(&self) -> usize {
        match self.path {
            Path::Depthwise => self.weights_of_pair() * self.outputs[1],
            _ => self.conv.groups * self.weights_of_pair() * self.reduced[1] * self.outputs[1],
        }
    }

    /// The multiply-adds of an output of a class that has so many taps.
    fn terms(&self, taps: f64) -> f64 {
        let of_channel =
            if self.path == Path::Winograd { as_f64(PATCH * PATCH) / as_f64(TILE * TILE) } else { taps };
        of_channel * as_f64(self.reduced[1])
    }

    /// The elements of its packed parameters: weights, then a bias, factors and what is added to their products, as many as there are.
    pub(crate) fn packed_len(&self) -> usize {
        let vectors = usize::from(self.epilogue.bias) + if self.epilogue.affine { 2 } else { 0 };
        self.weight_len() + vectors * self.channels()
    }

    /// Arranges the parameters: weights as `[group][tap][reduced channel][output]`, or `[tap][output]` where each has one; points of a
    /// transformed filter, computed in `f64` and rounded once, in place of taps. For tensor cores as `[group][tap][reduced channel / 4]
    /// [output][4]`, and rounded where they are rounded once.
    pub(crate) fn pack<T: Element>(&self, params: &[&[T]], packed: &mut [T]) {
        let (weights, mut rest) = packed.split_at_mut(self.weight_len());
        weights.fill(T::ZERO);
        let [out_channels, group_in, kh, kw] = self.conv.weight_shape();
        let (taps, group_out, numbers) = (kh * kw, out_channels / self.conv.groups, self.weights_of_pair());
        let products = self.products(T::DTYPE);
        // reduced channels that lie together
        let together = if products == Precision::F32 { 1 } else { LANES };
        for o in 0..out_channels {
            let (group, o_within) = (o / group_out, o % group_out);
            for c in 0..group_in {
                let (reduced, output) = if self.is_backward { (o_within, c) } else { (c, o_within) };
                let at = |number: usize| match self.path {
                    Path::Depthwise => number * self.outputs[1] + group * self.outputs[0] + output,
                    _ => {
                        let row = ((group * numbers + number) * self.reduced[1] + reduced) / together;
                        (row * self.outputs[1] + output) * together + reduced % together
                    }
                };
                let filter = &params[0][(o * group_in + c) * taps..][..taps];
                if self.path == Path::Winograd {
                    for (point, value) in winograd::filter(filter).into_iter().flatten().enumerate() {
                        weights[at(point)] = T::from_f64(value);
                    }
                } else if products == Precision::Tf32 {
                    for (tap, weight) in filter.iter().enumerate() {
                        weights[at(tap)] = T::from_f64(precision::to_tf32(weight.to_f64()));
                    }
                } else {
                    filter.iter().enumerate().for_each(|(tap, weight)| weights[at(tap)] = *weight);
                }
            }
        }
        for param in &params[1..] {
            let (head, tail) = rest.split_at_mut(param.len());
            head.copy_from_slice(param);
            rest = tail;
        }
    }

    /// The classes of the outputs along an axis.
    fn classes(&self, axis: usize, wanted: Interval) -> impl Iterator<Item = Class> + use<> {
        let window = self.conv.windows[axis];
        let count = if self.is_backward { window.stride() } else { 1 };
        let is_backward = self.is_backward;
        // tiles lie on one grid over the whole output
        let into_tile = if self.path == Path::Winograd { wanted.begin() % i64::from(int(TILE)) } else { 0 };
        (0..count).filter_map(move |residue| {
            let first = wanted.begin() + residue;
            let len = (wanted.end() - first + count - 1) / count;
            (len > 0).then(|| Class { first, len, taps: Taps::new(window, is_backward, first - into_tile) })
        })
    }
}

/// Outputs along an axis that have the same taps.
#[derive(Clone, Copy)]
struct Class {
    first: i64,
    len: i64,
    taps: Taps,
}

/// The taps of an output, and what they read: `source + j·step` through the weight `first + j·next`.
#[derive(Clone, Copy)]
struct Taps {
    source: i64,
    step: i64,
    count: i64,
    first: i64,
    next: i64,
    /// From an output of a class to the next one, in what is read.
    stride: i64,
}

impl Taps {
    fn new(window: Window, is_backward: bool, at: i64) -> Self {
        let (kernel, stride, dilation) = (window.kernel(), window.stride(), window.dilation());
        if !is_backward {
            let source = at * stride - window.padding();
            return Self { source, step: dilation, count: kernel, first: 0, next: 1, stride };
        }
        // those u with d·u ≡ at + p (mod s), of which each lies s/gcd(d, s) from the next
        let next = stride / gcd(dilation, stride);
        let reaches = |u: &i64| (at + window.padding() - dilation * u).rem_euclid(stride) == 0;
        let Some(first) = (0..kernel.min(next)).find(reaches) else {
            return Self { source: 0, step: 0, count: 0, first: 0, next: 0, stride: 1 };
        };
        Self {
            source: (at + window.padding() - dilation * first) / stride,
            step: -(dilation * next / stride),
            count: (kernel - first + next - 1) / next,
            first,
            next,
            stride: 1,
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(super) fn compute(device: &impl Launches, kernel: &Kernel, given: &Given<'_>) -> Result<(), DeviceError> {
    let problem = Problem::of(kernel, device.precision()).expect("invariant: it is a convolution");
    let (conv, epilogue) = (problem.conv, problem.epilogue);
    let bytes = given.dtype.size_bytes() as u64;
    let channels = problem.channels();
    let bias = given.params.0 + problem.weight_len() as u64 * bytes;
    let affine = bias + if epilogue.bias { channels as u64 * bytes } else { 0 };
    let input = given.input(0);
    let held = given.inputs[0].layout.region();
    let extents = if problem.is_backward { conv.output } else { conv.input };
    let fused = Fused::of(epilogue);
    let [mut added, mut saved] = [args::View::default(); 2];
    let mut others = 1;
    if epilogue.sum {
        added = given.input(others);
        others += 1;
    }
    if fused.mask != 0 {
        saved = given.input(others);
    }
    let mut args = args::Conv {
        input,
        out: given.output.view(),
        added,
        saved,
        kernel_cols: int(conv.kernel()[1]),
        kernel_taps: int(conv.kernel().iter().product()),
        groups: int(conv.groups),
        multiplier: int(problem.outputs[0]),
        reduced: int(problem.reduced[0]),
        reduced_padded: int(problem.reduced[1]),
        outputs: int(if problem.path == Path::Depthwise { channels } else { problem.outputs[0] }),
        outputs_padded: int(problem.outputs[1]),
        weights: given.params.0,
        bias: if epilogue.bias { bias } else { 0 },
        affine: if epilogue.affine { affine } else { 0 },
        affine_len: int(channels),
        sums: i32::from(epilogue.sum),
        activation: fused.activation,
        mask: fused.mask,
        slope: fused.slope,
        mask_slope: fused.mask_slope,
        ..args::Conv::default()
    };
    if problem.path == Path::Depthwise {
        args.groups = 1;
    }
    let begins = [input.row0(), input.col0()];
    for rows in problem.classes(0, given.region.rows()) {
        for cols in problem.classes(1, given.region.cols()) {
            let classes = [rows, cols];
            args.axes = [0, 1].map(|axis| {
                let Class { taps, .. } = classes[axis];
                // nothing is read of a window that holds nothing
                let whole = if held.is_empty() { 0 } else { extents[axis] };
                let relative = |at: i64| at - begins[axis];
                let clamped = |at: i64| narrow(relative(at).clamp(-(1 << 30), 1 << 30));
                ConvAxis {
                    base: if taps.count == 0 { 0 } else { narrow(relative(taps.source)) },
                    stride: narrow(taps.stride),
                    step: narrow(taps.step),
                    taps: narrow(taps.count),
                    low: clamped(0),
                    high: clamped(whole),
                    first: narrow(taps.first),
                    next: narrow(taps.next),
                }
            });
            let step = if problem.is_backward { conv.windows.map(|w| narrow(w.stride())) } else { [1, 1] };
            args.step = step;
            args.part = Part {
                row0: rows.first,
                col0: cols.first,
                rows: narrow(rows.len),
                cols: narrow(cols.len),
                images: int(given.images()),
                unused: 0,
            };
            launch(device, &problem, given, &args)?;
        }
    }
    if let Some(function) = fused.function_after {
        maps::apply(device, given, Op::Apply, function)?;
    }
    match fused.mask_after {
        Some(function) => maps::apply(device, given, Op::ApplyGradient, function),
        None => Ok(()),
    }
}

/// What a kernel does with its sums before it writes them, and what others do after it.
#[derive(Default)]
struct Fused {
    activation: i32,
    slope: f64,
    mask: i32,
    mask_slope: f64,
    function_after: Option<Function>,
    mask_after: Option<Function>,
}

impl Fused {
    fn of(epilogue: &Epilogue) -> Self {
        let mut fused = Self::default();
        match epilogue.activation {
            None => {}
            Some(Activation::Relu) => fused.activation = 1,
            Some(Activation::LeakyRelu { slope }) => (fused.activation, fused.slope) = (2, slope),
            Some(other) => fused.function_after = Some(Function::of(other)),
        }
        match epilogue.mask {
            None => {}
            Some(Activation::Relu) if fused.function_after.is_none() => fused.mask = 1,
            Some(Activation::LeakyRelu { slope }) if fused.function_after.is_none() => {
                (fused.mask, fused.mask_slope) = (2, slope);
            }
            Some(other) => fused.mask_after = Some(Function::gradient_of(other)),
        }
        fused
    }
}

/// A tile of a kernel: pixels by outputs, the threads of a block, and the share of what the largest tile reaches that this one is taken
/// to: the fewer sums a thread has, the more of its instructions are loads, as the machine code of their loops says.
#[derive(Clone, Copy, Debug)]
struct Tile {
    kernel: &'static str,
    pixels: usize,
    outputs: usize,
    threads: usize,
    share: f64,
    /// The rows of pixels that a thread has, where the pixels of a tile are a rectangle; none where they follow one another.
    own_rows: usize,
}

/// The tiles of a path, from the largest.
fn tiles(path: Path, dtype: DType, products: Precision) -> &'static [Tile] {
    macro_rules! tiles {
        ($($kernel:literal: $pixels:literal by $outputs:literal, $threads:literal, $share:literal $(, $rows:literal)?;)*) => {
            &[$(Tile {
                kernel: $kernel,
                pixels: $pixels,
                outputs: $outputs,
                threads: $threads,
                share: $share,
                own_rows: 0 $(+ $rows)?,
            }),*]
        };
    }
    match (path, dtype) {
        (Path::Dense, DType::F32) if products == Precision::Tf32 => tiles! {
            "dense_tf32_128": 128 by 128, 256, 1.0;
            "dense_tf32_64": 256 by 64, 256, 0.75;
            "dense_tf32_32": 256 by 32, 128, 0.8;
        },
        (Path::Dense, DType::F32) if products == Precision::F32x3 => tiles! {
            "dense_f32x3_128": 128 by 128, 128, 1.0;
            "dense_f32x3_64": 192 by 64, 128, 1.0;
            "dense_f32x3_32": 256 by 32, 128, 0.9;
        },
        (Path::Dense, DType::F32) => tiles! {
            "dense_f32_128": 128 by 128, 256, 1.0;
            "dense_f32_64": 128 by 64, 128, 0.98;
            "dense_f32_64_64": 64 by 64, 64, 0.98;
            "dense_f32_32": 256 by 32, 128, 0.85;
            "few_f32_8": 512 by 8, 128, 0.4, 4;
            "few_f32_4": 256 by 4, 128, 0.3, 2;
        },
        (Path::Dense, DType::F64) => tiles! {
            "dense_f64_64": 64 by 64, 128, 1.0;
            "dense_f64_32": 64 by 32, 64, 0.95;
            "dense_f64_8": 64 by 8, 64, 0.5;
        },
        (Path::Gather, DType::F32) => tiles! {
            "gather_f32_64": 128 by 64, 128, 0.5;
            "gather_f32_32": 256 by 32, 128, 0.45;
            "gather_f32_8": 256 by 8, 64, 0.25;
        },
        (Path::Gather, DType::F64) => tiles! {
            "gather_f64_32": 64 by 32, 64, 0.8;
            "gather_f64_8": 128 by 8, 64, 0.6;
        },
        (Path::Depthwise, _) => &[],
        (Path::Winograd, DType::F32) => tiles! { "winograd_f32": 512 by 32, 384, 0.4; },
        (Path::Winograd, DType::F64) => tiles! { "winograd_f64": 256 by 16, 384, 0.4; },
    }
}

/// The terms that a block of threads could have added up in the time that it takes to begin and to write its sums, on an H200.
const fn terms_of_ends(path: Path, products: Precision) -> f64 {
    match (path, products) {
        (Path::Dense, Precision::F32) => 80.0,
        (Path::Dense, _) => 150.0,
        (Path::Winograd, _) => 330.0,
        (Path::Gather | Path::Depthwise, _) => 0.0,
    }
}

/// The share of the multiply-adds that depthwise kernels reach: what they read and write takes longer.
const DEPTHWISE_SHARE: f64 = 0.1;

impl Problem<'_> {
    /// The tile in which so many pixels take the least time, with what they take; none where threads have a pixel each. No bit depends on it.
    fn tile(&self, facts: &Facts, dtype: DType, pixels: f64, terms: f64) -> Option<(Tile, Waves)> {
        let products = self.products(dtype);
        let ends = terms_of_ends(self.path, products);
        // many outputs would read their inputs as often
        let is_apt = |tile: &&Tile| tile.own_rows == 0 || self.outputs[0] <= 3 * tile.outputs;
        let tiles = || tiles(self.path, dtype, products).iter().filter(is_apt);
        let [outputs, groups] = [self.outputs[0], self.conv.groups].map(as_f64);
        // without raggedness over pixels, an output takes as long as the rows of the tile that are computed for it
        let reached = |tile: &Tile| {
            let rows = as_f64(tile.outputs);
            tile.share * outputs / ((outputs / rows).ceil() * rows)
        };
        let best = tiles().max_by(|one, other| reached(one).total_cmp(&reached(other)))?;
        let of = |tile: &Tile| {
            let [tile_pixels, tile_outputs] = [tile.pixels, tile.outputs].map(as_f64);
            let blocks = Blocks {
                count: (pixels / tile_pixels).ceil() * (outputs / tile_outputs).ceil() * groups,
                work: tile_pixels * tile_outputs * (terms + ends),
                share: tile.share,
                best_share: best.share,
                wanted: pixels * outputs * groups * (terms + ends),
            };
            (*tile, blocks.waves(facts, dtype, products))
        };
        tiles().map(of).min_by(|(_, one), (_, other)| one.seconds.total_cmp(&other.seconds))
    }

    /// What a call over so many pixels, of all images, takes.
    pub(crate) fn waves(&self, facts: &Facts, dtype: DType, pixels: f64) -> Waves {
        let taps: f64 = self.conv.kernel().iter().copied().map(as_f64).product();
        // a gradient has a launch for each class of pixels, and its taps are shared out to them
        let classes = self.classes_of_a_call();
        let terms = self.terms(taps / classes);
        if let Some((_, waves)) = self.tile(facts, dtype, (pixels / classes).max(1.0), terms) {
            return waves.times(classes);
        }
        let wanted = pixels * as_f64(self.channels()) * taps;
        let seconds = 2.0 * wanted / (facts.flops(dtype.size_bytes()) * DEPTHWISE_SHARE);
        Waves { seconds, full_seconds: seconds, ..Waves::default() }
    }

    /// The launches of a call: one for each class of pixels.
    pub(crate) fn classes_of_a_call(&self) -> f64 {
        let strides = self.conv.windows.map(|window| narrow(window.stride()));
        if self.is_backward { strides.into_iter().map(f64::from).product() } else { 1.0 }
    }

    /// The passes that follow a call for functions that it does not carry out.
    pub(crate) fn passes_after(&self) -> f64 {
        let Fused { function_after, mask_after, .. } = Fused::of(self.epilogue);
        f64::from(u8::from(function_after.is_some()) + u8::from(mask_after.is_some()))
    }
}

fn launch(
    device: &impl Launches,
    problem: &Problem<'_>,
    given: &Given<'_>,
    args: &args::Conv,
) -> Result<(), DeviceError> {
    let Part { rows, cols, .. } = args.part;
    let [rows, cols] = [rows, cols].map(|len| extent(len.into()));
    let (pixels, outputs) = (given.images() * rows * cols, problem.outputs[0]);
    let terms = problem.terms(as_f64(extent((args.axes[0].taps * args.axes[1].taps).into())));
    let best = problem.tile(device.facts(), given.dtype, as_f64(pixels), terms.max(1.0));
    let Some((tile, _)) = best else {
        return depthwise(device, given, args);
    };
    let mut args = *args;
    let across = match problem.path {
        _ if tile.own_rows > 0 => {
            let [tile_rows, tile_cols] = rectangle(&tile, [rows, cols]);
            args.tile_cols = int(tile_cols);
            given.images() * rows.div_ceil(tile_rows) * cols.div_ceil(tile_cols)
        }
        Path::Winograd => {
            let tiles_of = |axis: Interval| extent(axis.aligned(i64::from(int(TILE))).len()) / TILE;
            let tiles: usize = given.region.axes().map(tiles_of).iter().product();
            (given.images() * tiles).div_ceil(tile.pixels / (TILE * TILE))
        }
        _ => pixels.div_ceil(tile.pixels),
    };
    let grid = [count(across), count(outputs.div_ceil(tile.outputs)), count(problem.conv.groups)];
    device.launch(tile.kernel, Shape { grid, block: [count(tile.threads), 1, 1] }, &args)
}

/// The rectangle of a tile that covers a part with the fewest blocks of threads, of those the one as wide as a warp, else the widest.
fn rectangle(tile: &Tile, [rows, cols]: [usize; 2]) -> [usize; 2] {
    let sized = |width: usize| [tile.threads / width * tile.own_rows, width];
    let blocks = |[height, width]: &[usize; 2]| rows.div_ceil(*height) * cols.div_ceil(*width);
    [32, 128, 64, 16, 8].map(sized).into_iter().min_by_key(blocks).expect("invariant: there are some")
}

/// Where each output has one channel that is summed over.
fn depthwise(device: &impl Launches, given: &Given<'_>, args: &args::Conv) -> Result<(), DeviceError> {
    let layout = &given.output.layout;
    let planes = layout.batch() * layout.blocks();
    let part =
        |rows: i64| Region::from_rows_cols(Interval::new(0, rows), Interval::new(0, args.part.cols.into()));
    if let Some(Column { kernel, lanes, rows }) = Column::of(given, args) {
        let rows = (i64::from(args.part.rows) + rows - 1) / rows;
        return device.launch(kernel, of_rows(part(rows), layout.block() / lanes, planes), args);
    }
    let (lanes, names) = if layout.block() >= LANES {
        (LANES, ["depthwise_f32_4", "depthwise_f64_4"])
    } else {
        (1, ["depthwise_f32_1", "depthwise_f64_1"])
    };
    let shape = of_rows(part(args.part.rows.into()), layout.block() / lanes, planes);
    device.launch(typed(given.dtype, names), shape, args)
}

/// A depthwise kernel whose threads have some lanes of so many pixels, one below another.
#[derive(Clone, Copy, Debug)]
struct Column {
    kernel: &'static str,
    lanes: usize,
    rows: i64,
}

impl Column {
    /// The one for a call, if there is one.
    fn of(given: &Given<'_>, args: &args::Conv) -> Option<Self> {
        let [rows, cols] = args.axes;
        let is_square = [rows.taps, rows.step, rows.stride] == [cols.taps, cols.step, cols.stride];
        let is_whole = rows.taps * cols.taps == args.kernel_taps;
        let is_blocked = given.output.layout.block() == STEP && args.multiplier == 1;
        let input = &given.inputs[0].layout;
        // its threads do not go on to further rows, and it multiplies rows of 32 bits
        let is_small = given.region.rows().len() < 1 << 16 && i32::try_from(input.row_stride()).is_ok();
        if given.dtype != DType::F32 || !(is_square && is_whole && is_blocked && is_small) {
            return None;
        }
        let (kernel, lanes, rows) = match (rows.taps, rows.stride, rows.step) {
            (3, 1, 1) => ("depthwise_f32_3x3", 4, 4),
            (3, 2, 1) => ("depthwise_f32_3x3_2", 4, 4),
            (3, 1, -1) => ("depthwise_f32_3x3_back", 4, 4),
            (5, 1, 1) => ("depthwise_f32_5x5", 2, 8),
            (5, 2, 1) => ("depthwise_f32_5x5_2", 2, 8),
            (5, 1, -1) => ("depthwise_f32_5x5_back", 2, 8),
            (7, 1, 1) => ("depthwise_f32_7x7", 1, 16),
            (7, 2, 1) => ("depthwise_f32_7x7_2", 1, 8),
            (7, 1, -1) => ("depthwise_f32_7x7_back", 1, 16),
            _ => return None,
        };
        Some(Self { kernel, lanes, rows })
    }
}
