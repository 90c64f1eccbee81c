//! Kernels with parameters per channel, constants, and masks that depend on the position.

use tiled_geometry::Region;
use tiled_kernel::{Activation, Dropped, Extremum, Kernel};
use tiled_tensor::{Element, PartMut, View};

use super::band::{Band, extent, for_bands};
use super::elementwise::activate;
use super::function::Aligned;
use super::gather::{zip_row, zip_rows};
use super::stamp::per_isa;
use crate::Isa;

/// The largest channel block; a row starts at lane 0, so values per channel repeat with this period.
const PERIOD: usize = 64;

/// Elements computed before the activation follows, small enough to stay in the first cache.
const PIECE: usize = 16 * PERIOD;

/// The values per channel of a band, repeated to [`PERIOD`] lanes; zero for lanes that are no channel.
fn pattern<T: Element>(band: &Band<'_, T>, value: impl Fn(usize) -> T) -> Aligned<[T; PERIOD]> {
    let (first, lanes, real) = (band.first_channel(), band.lanes(), band.real_lanes());
    assert!(lanes <= PERIOD, "channel blocks have at most {PERIOD} lanes, got {lanes}");
    if lanes == 1 {
        return Aligned([value(first); PERIOD]);
    }
    let mut pattern = Aligned([T::ZERO; PERIOD]);
    for lane in 0..real {
        let value = value(first + lane);
        pattern.0[lane..].iter_mut().step_by(lanes).for_each(|slot| *slot = value);
    }
    pattern
}

/// Where the values of a band's image begin among so many: those of channels serve every image.
fn of_image<T: Element>(band: &Band<'_, T>, len: usize) -> usize {
    if len > band.channels() { band.n() * band.channels() } else { 0 }
}

per_isa! {
    /// `out = x·a + b` with one rounding.
    fn affine<T: Element>(a: &[T; PERIOD], b: &[T; PERIOD], x: &[T], out: &mut [T]) {
        let (periods, rest) = out.as_chunks_mut::<PERIOD>();
        let (of_periods, of_rest) = x.as_chunks::<PERIOD>();
        for (out, x) in periods.iter_mut().zip(of_periods) {
            for (((out, x), a), b) in out.iter_mut().zip(x).zip(a).zip(b) {
                *out = x.mul_add(*a, *b);
            }
        }
        for (((out, x), a), b) in rest.iter_mut().zip(of_rest).zip(a).zip(b) {
            *out = x.mul_add(*a, *b);
        }
    }
}

per_isa! {
    /// `out = g·a + (x·b + d)` with one rounding each.
    fn combine<T: Element>(factors: [&[T; PERIOD]; 3], g: &[T], x: &[T], out: &mut [T]) {
        let [a, b, d] = factors;
        let (periods, rest) = out.as_chunks_mut::<PERIOD>();
        let ((gs, g_rest), (xs, x_rest)) = (g.as_chunks::<PERIOD>(), x.as_chunks::<PERIOD>());
        for ((out, g), x) in periods.iter_mut().zip(gs).zip(xs) {
            for (((((out, g), x), a), b), d) in out.iter_mut().zip(g).zip(x).zip(a).zip(b).zip(d) {
                *out = g.mul_add(*a, x.mul_add(*b, *d));
            }
        }
        for (((((out, g), x), a), b), d) in rest.iter_mut().zip(g_rest).zip(x_rest).zip(a).zip(b).zip(d) {
            *out = g.mul_add(*a, x.mul_add(*b, *d));
        }
    }
}

per_isa! {
    /// Repeats the pattern over a row.
    fn tile<T: Element>(pattern: &[T; PERIOD], out: &mut [T]) {
        for out in out.chunks_mut(PERIOD) {
            out.copy_from_slice(&pattern[..out.len()]);
        }
    }
}

/// `x·a[c] + b[c]` of `[x]`, then the activation.
pub(crate) fn channel_affine<T: Element>(
    isa: Isa,
    activation: Option<Activation>,
    packed: &[T],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (a, b) = packed.split_at(packed.len() / 2);
    let x = &inputs[0];
    let weight = if activation.is_some_and(|activation| activation != Activation::Relu) { 8 } else { 1 };
    for_bands(output, region, weight, |band| {
        let image = of_image(band, a.len());
        let (a, b) =
            (pattern(band, |channel| a[image + channel]), pattern(band, |channel| b[image + channel]));
        zip_rows([x], band, |[x], out| {
            for (x, out) in x.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
                affine(isa, &a.0, &b.0, x, out);
                if let Some(activation) = activation {
                    activate(isa, activation, out);
                }
            }
        });
    });
}

/// `g·a[c] + (x·b[c] + d[c])` of `[g, x]`.
pub(crate) fn channel_combine<T: Element>(
    isa: Isa,
    packed: &[T],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let len = packed.len() / 3;
    let (g, x) = (&inputs[0], &inputs[1]);
    for_bands(output, region, 1, |band| {
        let image = of_image(band, len);
        let [a, b, d] = [0, 1, 2].map(|part| pattern(band, |channel| packed[part * len + image + channel]));
        zip_rows([g, x], band, |[g, x], out| combine(isa, [&a.0, &b.0, &d.0], g, x, out));
    });
}

/// `scale·v[n,c,0,0]` everywhere.
pub(crate) fn broadcast<T: Element>(
    isa: Isa,
    scale: f64,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (v, scale) = (&inputs[0], T::from_f64(scale));
    for_bands(output, region, 1, |band| {
        let n = band.n();
        let values = pattern(band, |channel| scale * v.get(n, channel, 0, 0));
        for y in band.rows().begin()..band.rows().end() {
            tile(isa, &values.0, band.row(y));
        }
    });
}

/// A constant everywhere.
pub(crate) fn fill<T: Element>(value: f64, output: PartMut<'_, T>, region: Region<2>) {
    let value = T::from_f64(value);
    for_bands(output, region, 1, |band| {
        for y in band.rows().begin()..band.rows().end() {
            band.row(y).fill(value);
        }
    });
}

/// `v[n,c,0,0]` at one position of each channel and zero elsewhere.
pub(crate) fn scatter<T: Element>(
    extrema: &[Extremum<T>],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let v = &inputs[0];
    for_bands(output, region, 1, |band| {
        for y in band.rows().begin()..band.rows().end() {
            band.row(y).fill(T::ZERO);
        }
        let (n, lanes) = (band.n(), band.lanes());
        for lane in 0..band.real_lanes() {
            let channel = band.first_channel() + lane;
            if let Some([y, x]) = extrema[n * band.channels() + channel].position
                && band.rows().contains(y)
                && band.cols().contains(x)
            {
                let col = extent(tiled_geometry::Interval::new(band.cols().begin(), x));
                band.row(y)[col * lanes + lane] = v.get(n, channel, 0, 0);
            }
        }
    });
}

/// What decides which elements of a row are kept.
struct Mask {
    /// The hash of image, channel and row for each lane.
    keys: [u64; PERIOD],
    /// The column of each lane, from that of the first.
    columns: [u64; PERIOD],
    /// Kept from here on, of `2^53`.
    threshold: u64,
}

per_isa! {
    /// `out = x·scale` where the hash of the column says so, else zero; `column` is that of the first element.
    fn mask<T: Element>(mask: &Mask, column: u64, scale: T, x: &[T], out: &mut [T]) {
        let keep = |column: u64, x: &[T; PERIOD]| -> [T; PERIOD] {
            std::array::from_fn(|i| {
                let bits = mix(mask.keys[i] ^ column.wrapping_add(mask.columns[i]));
                if bits >> 11 >= mask.threshold { x[i] * scale } else { T::ZERO }
            })
        };
        let step = mask.columns[PERIOD - 1] + 1;
        let mut column = column;
        let (x, x_rest) = x.as_chunks::<PERIOD>();
        let (out, out_rest) = out.as_chunks_mut::<PERIOD>();
        for (out, x) in out.iter_mut().zip(x) {
            *out = keep(column, x);
            column = column.wrapping_add(step);
        }
        let mut last = [T::ZERO; PERIOD];
        last[..x_rest.len()].copy_from_slice(x_rest);
        out_rest.copy_from_slice(&keep(column, &last)[..x_rest.len()]);
    }
}

/// The finaliser of [`Kernel::keeps`].
#[inline(always)]
const fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `[x]` with each element zeroed with the probability and scaled by `1/(1 − p)` otherwise.
///
/// The same elements as [`Kernel::keeps`], whose uniform number is a multiple of `2^−53`.
pub(crate) fn dropout<T: Element>(
    isa: Isa,
    probability: f64,
    seed: u64,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    let scale = T::from_f64(1.0 / (1.0 - probability));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a probability times 2^53, rounded up, is a whole number between 0 and 2^53"
    )]
    let threshold = (probability * (1_u64 << 53) as f64).ceil() as u64;
    for_bands(output, region, 4, |band| {
        let (n, lanes) = (band.n(), band.lanes());
        let image = mix(seed ^ n as u64);
        let mut kept = Mask { keys: [0; PERIOD], columns: [0; PERIOD], threshold };
        for (lane, column) in kept.columns.iter_mut().enumerate() {
            *column = (lane / lanes) as u64;
        }
        for y in band.rows().begin()..band.rows().end() {
            for (lane, key) in kept.keys.iter_mut().enumerate() {
                let channel = band.first_channel() + lane % lanes;
                *key = mix(mix(image ^ channel as u64) ^ y.cast_unsigned());
            }
            let mut column = band.cols().begin().cast_unsigned();
            zip_row([x], band, y, |[x], out| {
                mask(isa, &kept, column, scale, x, out);
                column = column.wrapping_add((out.len() / lanes) as u64);
            });
        }
    });
}

per_isa! {
    /// `out = x·scale` in the lanes that are kept, else zero.
    fn keep<T: Element>(kept: &[bool; PERIOD], scale: T, x: &[T], out: &mut [T]) {
        for (out, x) in out.chunks_mut(PERIOD).zip(x.chunks(PERIOD)) {
            for ((out, x), kept) in out.iter_mut().zip(x).zip(kept) {
                *out = if *kept { *x * scale } else { T::ZERO };
            }
        }
    }
}

/// [`dropout`] of whole channels, images or the batch.
pub(crate) fn dropout_channels<T: Element>(
    isa: Isa,
    probability: f64,
    seed: u64,
    dropped: Dropped,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    let scale = T::from_f64(1.0 / (1.0 - probability));
    for_bands(output, region, 1, |band| {
        let kept: [bool; PERIOD] = std::array::from_fn(|lane| {
            let channel = band.first_channel() + lane % band.lanes();
            let (plane, pixel) = dropped.decider([band.n(), channel], [0, 0]);
            Kernel::keeps(seed, probability, plane, pixel)
        });
        zip_rows([x], band, |[x], out| keep(isa, &kept, scale, x, out));
    });
}
