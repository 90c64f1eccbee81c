//! Exact sums and maxima.

use tiled_geometry::Region;
use tiled_kernel::{DeviceError, ExactSum, Extremum, Reduction};
use tiled_tensor::{DType, Element};

use super::grid::{count, extent, of_count};
use super::{Launches, Shape, Window, typed, weight};
use crate::args::{self, Part, int};

/// The 64-bit words of a sum on the device: `WORDS` in `kernels/reduce.cu`.
pub(crate) const SUM_WORDS: usize = 136;
/// The digits of a sum among them, and where the rest is told.
const DIGITS: usize = 132;
const SPECIALS: usize = 135;
/// The bytes of a maximum on the device.
pub(crate) const EXTREMUM_BYTES: usize = 32;

/// How many terms a word holds before carries are passed on: 2^31, with room for a call that goes beyond.
const MOST_TERMS: u64 = 1 << 30;
/// Elements that a block of threads takes, if there are enough rows: few cost it more at its end, and many leave multiprocessors idle.
const ELEMENTS_OF_A_BLOCK: [usize; 2] = [1 << 13, 1 << 18];
/// The blocks that a multiprocessor should get.
const BLOCKS_EACH: usize = 16;
/// What the threads of a block add to a sum when they end: five numbers each.
const TERMS_OF_A_BLOCK: usize = 5 * 256;

/// How many terms the sums of a reduction may hold by now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms(u64);

/// Takes a share into exact sums or maxima at an address; `mean` is that of the parameter, if there is one.
#[expect(clippy::too_many_arguments, reason = "as many as the call of a queue has")]
pub(crate) fn reduce(
    device: &impl Launches,
    reduction: &Reduction,
    dtype: DType,
    inputs: &[Window],
    share: Region<2>,
    mean: u64,
    state: u64,
    terms: &mut Terms,
) -> Result<(), DeviceError> {
    inputs.iter().for_each(|input| input.require(share));
    let layout = &inputs[0].layout;
    let (batch, channels) = (layout.batch(), layout.channels());
    if *reduction == Reduction::ImageMax {
        let args = args::Max { input: inputs[0].view(), share: Part::new(share, batch), extrema: state };
        let shape = Shape { grid: [count(batch * layout.blocks()), 1, 1], block: [256, 1, 1] };
        return device.launch(typed(dtype, ["image_max_f32", "image_max_f64"]), shape, &args);
    }
    // the numbers of `SumOf` and `SlotOf` in `kernels/reduce.cu`
    const ELEMENTS: i32 = 0;
    const PRODUCTS: i32 = 1;
    const SQUARED_ERRORS: i32 = 2;
    const ALL: i32 = 0;
    const CHANNEL: i32 = 1;
    const IMAGE: i32 = 2;
    let sums = ["sums_f32", "sums_f64"];
    let moments = ["moments_f32", "moments_f64"];
    let centred = ["centred_f32", "centred_f64"];
    let (names, sum_of, slot_of) = match reduction {
        Reduction::ChannelSum => (sums, ELEMENTS, CHANNEL),
        Reduction::ImageSum => (sums, ELEMENTS, IMAGE),
        Reduction::Sum => (sums, ELEMENTS, ALL),
        Reduction::ChannelDot => (sums, PRODUCTS, CHANNEL),
        Reduction::SquaredError => (sums, SQUARED_ERRORS, ALL),
        Reduction::Moments => (moments, ELEMENTS, CHANNEL),
        Reduction::ImageMoments => (moments, ELEMENTS, IMAGE),
        Reduction::CentredDot => (centred, ELEMENTS, CHANNEL),
        Reduction::ImageCentredDot => (centred, ELEMENTS, IMAGE),
        Reduction::CrossEntropy => (["losses_f32", "losses_f64"], ELEMENTS, ALL),
        _ => unreachable!("invariant: {} has no exact sums", reduction.name()),
    };
    let is_loss = *reduction == Reduction::CrossEntropy;
    let (rows, cols) = (extent(share.rows().len()), extent(share.cols().len()));
    let lanes = if is_loss { 1 } else { layout.block() };
    // of images with sums of their own each has blocks of threads of its own
    let [apart, together] = if slot_of == IMAGE { [batch, 1] } else { [1, batch] };
    let planes = apart * if is_loss { 1 } else { layout.blocks() };
    let rows_of_a_plane = together * rows;
    assert!(batch * rows <= 1 << 30, "{rows} rows of {batch} images are too many");
    let wanted_blocks = BLOCKS_EACH * device.facts().multiprocessors as usize;
    let [least, most] = ELEMENTS_OF_A_BLOCK;
    let elements = (planes * rows_of_a_plane * cols * lanes / wanted_blocks).clamp(least, most);
    let chunks = rows_of_a_plane.div_ceil((elements / (cols * lanes)).max(1)).min(65_535);
    let slots = match slot_of {
        ALL => 1,
        CHANNEL => channels,
        _ => batch * channels,
    };
    // no slot gets more than these: three numbers for each element at the worst
    let images = if slot_of == IMAGE { 1 } else { batch };
    let all_channels = if slot_of == ALL && !is_loss { channels } else { 1 };
    let added = 3 * (images * all_channels * rows * cols) + TERMS_OF_A_BLOCK * planes * chunks;
    if terms.0.saturating_add(added as u64) > MOST_TERMS {
        pass_carries(device, state, reduction.slots(batch, channels))?;
        terms.0 = 1;
    }
    terms.0 = terms.0.saturating_add(added as u64);
    let args = args::Reduce {
        inputs: [inputs[0].view(), inputs.get(1).unwrap_or(&inputs[0]).view()],
        share: Part::new(share, batch),
        mean,
        sums: state,
        sum_of,
        slot_of,
        slots: int(slots),
        unused: 0,
    };
    let shape = Shape { grid: [count(planes), count(chunks), 1], block: [256, 1, 1] };
    device.launch(typed(dtype, names), shape, &args)
}

fn pass_carries(device: &impl Launches, sums: u64, slots: usize) -> Result<(), DeviceError> {
    let count = i64::try_from(slots).expect("invariant: sums are in memory");
    device.launch("merge_sums", of_count(slots), &args::Merge { to: sums, from: 0, count })
}

/// Takes the state of a later lane into that of an earlier one.
pub(crate) fn merge(
    device: &impl Launches,
    reduction: &Reduction,
    dtype: DType,
    [to, from]: [u64; 2],
    [batch, channels]: [usize; 2],
) -> Result<(), DeviceError> {
    let slots = match reduction {
        Reduction::ConvWeight(conv) => return weight::add(device, dtype, [to, from], conv.weight_len()),
        Reduction::ImageMax => batch * channels,
        _ => reduction.slots(batch, channels),
    };
    let count = i64::try_from(slots).expect("invariant: sums are in memory");
    let kernel = if *reduction == Reduction::ImageMax { "merge_maxima" } else { "merge_sums" };
    device.launch(kernel, of_count(slots), &args::Merge { to, from, count })
}

/// The sums that words of the device stand for.
pub(crate) fn sums(words: &[u64], into: &mut [ExactSum]) {
    for (sum, words) in into.iter_mut().zip(words.chunks_exact(SUM_WORDS)) {
        *sum = ExactSum::default();
        sum.add_digits(words[..DIGITS].iter().map(|word| word.cast_signed()));
        if words[SPECIALS] & 1 != 0 {
            sum.add(f64::INFINITY);
        }
        if words[SPECIALS] & 2 != 0 {
            sum.add(f64::NEG_INFINITY);
        }
    }
}

/// The maxima that words of the device stand for.
pub(crate) fn extrema<T: Element>(words: &[u64], into: &mut [Extremum<T>]) {
    for (extremum, words) in into.iter_mut().zip(words.chunks_exact(EXTREMUM_BYTES / 8)) {
        let value = T::from_f64(f64::from_bits(words[0]));
        let position = [words[2].cast_signed(), words[3].cast_signed()];
        *extremum =
            if words[1] == 0 { Extremum::default() } else { Extremum { value, position: Some(position) } };
    }
}
