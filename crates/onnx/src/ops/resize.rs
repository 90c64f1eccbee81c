//! Resampling: nearest, linear and cubic, by scales or to sizes.
//!
//! | coordinates | of a network |
//! |---|---|
//! | `half_pixel`, `half_pixel_symmetric`, `align_corners`, `asymmetric` | the same |
//! | `pytorch_half_pixel` | `half_pixel`, and zero for a single output |
//! | `tf_half_pixel_for_nn` | of nearest rounded down: `half_pixel` rounded up in the middle, half a pixel back |
//!
//! Not read: antialiasing, sizes that keep the aspect ratio, and coordinates of a region.

use tiled_graph::{Coordinates, Cubic, Filter, Op, ResizeMode, Rounding, Upsample, UpsampleTo, ValueId};

use super::spread::as_declared;
use super::{filled, part, plane, repeated};
use crate::Reason;
use crate::import::numbers::{Binary, Num, whole};
use crate::import::site::Site;
use crate::import::value::{Image, Value};

pub(super) const RESIZE: &[&str] = &[
    "antialias",
    "axes",
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "extrapolation_value",
    "keep_aspect_ratio_policy",
    "mode",
    "nearest_mode",
];

const COORDINATES: &str = "coordinate_transformation_mode";

/// Version 10 has no more than scales; later ones have scales or sizes.
pub(super) fn resize(site: &mut Site<'_>) -> Result<Value, Reason> {
    site.only("antialias", 0, 0, "0")?;
    let policy = site.text("keep_aspect_ratio_policy", "stretch")?;
    if policy != "stretch" {
        return Err(Reason::Attribute { name: "keep_aspect_ratio_policy", expected: "stretch", got: policy });
    }
    let before = site.opset < 11;
    let coordinates = if before { "asymmetric" } else { "half_pixel" };
    let nearest = if before { "floor" } else { "round_prefer_floor" };
    let coordinates = site.text(COORDINATES, coordinates)?;
    let nearest = site.text("nearest_mode", nearest)?;
    let plan = site.image(0)?;
    let (scales, sizes) = if before { (1, 3) } else { (2, 3) };
    let given = if has_numbers(site, sizes) { sizes } else { scales };
    let kept =
        [2, 3].map(|axis| if given == sizes { site.plans.extent(plan, axis) } else { Num::Known(1.0) });
    let items = in_order(site, given, kept)?;
    let nearest = if before { nearest_before(&items)? } else { nearest };
    let mode = mode(site, &coordinates, &nearest)?;
    if given == sizes && items[0].known(&site.plans.extents).is_some() && !site.plans.is_batch(items[0]) {
        return wrong(sizes, "as many images", &items);
    }
    let to = if given == sizes { to_sizes(site, plan, items)? } else { by_scales(site, plan, items, given)? };
    upsampled(site, plan, to, mode)
}

/// What the nearest pixel is in version 10, whose text leaves it open, as in onnxruntime: the one after where an axis shrinks.
fn nearest_before(scales: &[Num; 4]) -> Result<String, Reason> {
    let is = |holds: fn(f64) -> bool| {
        scales[2..].iter().any(|scale| matches!(scale, Num::Known(scale) if holds(*scale)))
    };
    // by a whole factor a pixel is meant
    let shrinks = is(|scale| scale < 1.0 && (1.0 / scale).fract() != 0.0);
    if shrinks && is(|scale| scale > 1.0) {
        let expected = "one larger and one smaller, of which nearest pixels are two kinds";
        let known = |scale: &Num| if let Num::Known(scale) = scale { *scale } else { f64::NAN };
        let got = format!("{:?}", [known(&scales[2]), known(&scales[3])]);
        return Err(Reason::Attribute { name: "scales", expected, got });
    }
    Ok(if shrinks { "ceil" } else { "floor" }.to_owned())
}

pub(super) fn upsample(site: &mut Site<'_>) -> Result<Value, Reason> {
    let plan = site.image(0)?;
    let items = match site.attribute("scales") {
        Some(scales) => scales.floats.iter().map(|scale| Num::Known((*scale).into())).collect(),
        None => site.numbers(1)?.items.clone(),
    };
    let items = <[Num; 4]>::try_from(items.as_slice()).map_err(|_| {
        let (expected, got) = ("four numbers", format!("{} numbers", items.len()));
        Reason::Attribute { name: "scales", expected, got }
    })?;
    let to = by_scales(site, plan, items, 1)?;
    let mode = mode(site, "asymmetric", "floor")?;
    upsampled(site, plan, to, mode)
}

/// One pixel for every pixel of another value, one row or column for each of its rows or columns, one channel for every channel: where that
/// is combined with it by elements, the pixel or channel itself. What is one in the shape, or −1 as in PyTorch, stays.
pub(super) fn expand(site: &mut Site<'_>) -> Result<Value, Reason> {
    const EXPECTED: &str = "the shape of a value, of which it has all channels, rows and columns, or one";
    if let Some(made) = repeated::expanded(site)? {
        return Ok(made);
    }
    let is_number = matches!(site.operand(0)?, Value::Constant(_) | Value::Numbers(_) | Value::Empty(_));
    if is_number && let Some(empty) = Value::empty(&site.numbers(1)?.items) {
        return Ok(empty);
    }
    let shape = site.numbers(1)?;
    if let Some(made) = plane::expanded(site, &shape)? {
        return Ok(made);
    }
    // a number everywhere
    if matches!(site.operand(0)?, Value::Constant(_))
        && let Some(value) = site.scalar(0)?
        && let Some(made) = filled::of_shape(site, &shape, value)?
    {
        return Ok(made);
    }
    let mut plan = site.image(0)?;
    let Ok(items) = <[Num; 4]>::try_from(shape.items.as_slice()) else { return site.wrong(1, EXPECTED) };
    let one = Num::Known(1.0);
    let planned = site.plans.get(plan);
    let stays = |item: Num| item == one || item == Num::Known(-1.0);
    let keeps = |item: Num, axis| stays(item) || site.plans.is_extent(item, plan, axis);
    // 0 keeps nothing here
    let is_batch = stays(items[0]) || (items[0] != Num::Known(0.0) && site.plans.is_batch(items[0]));
    let channels = planned.channels;
    let count = match items[1].known(&site.plans.extents).and_then(whole) {
        _ if !is_batch => return site.wrong(1, EXPECTED),
        Some(1 | -1) => 1,
        Some(wanted) if usize::try_from(wanted) == Ok(channels) => 1,
        Some(wanted @ 2..=MOST_CHANNELS) if channels == 1 => wanted,
        _ => return site.wrong(1, EXPECTED),
    };
    let kept = [2, 3].map(|axis| keeps(items[axis], axis));
    let is_one = [2, 3].map(|axis| site.plans.is_one(plan, axis));
    if (0..2).any(|place| !kept[place] && !is_one[place]) {
        return site.wrong(1, EXPECTED);
    }
    if count > 1 {
        plan = repeated::copies(site, plan, usize::try_from(count).expect("invariant: above one"))?;
    }
    if kept == [true; 2] {
        return Ok(Value::Image(Image { plan, flat: false }));
    }
    let [height, width] =
        [2, 3].map(|axis| if stays(items[axis]) { site.plans.extent(plan, axis) } else { items[axis] });
    let across = usize::from(kept[0]);
    let is_line = kept != [false; 2] && !site.plans.is_always_one(plan, across + 2);
    let to = match items[across + 2].known(&site.plans.extents) {
        Some(times) if is_line && is_one != [true; 2] => as_declared(across, times),
        _ => to_sizes(site, plan, [items[0], Num::Open, height, width])?,
    };
    upsampled(site, plan, to, ResizeMode::NEAREST)
}

/// The channels that one channel is expanded to at most.
const MOST_CHANNELS: i64 = 1 << 12;

/// Whether there is a list that is not empty: exporters leave others out by an empty one.
fn has_numbers(site: &mut Site<'_>, position: usize) -> bool {
    site.has(position) && site.numbers(position).is_ok_and(|numbers| !numbers.items.is_empty())
}

/// Numbers for batch, channels, height and width, whatever axes they are given for; a batch and channels that stay are open, height
/// and width are as given here.
fn in_order(site: &mut Site<'_>, position: usize, [height, width]: [Num; 2]) -> Result<[Num; 4], Reason> {
    let numbers = site.numbers(position)?;
    let axes = site.ints("axes")?.unwrap_or_else(|| vec![0, 1, 2, 3]);
    if axes.len() != numbers.items.len() {
        return site.wrong(position, "a number for each axis");
    }
    part::check_once(&axes, 4)?;
    let mut items = [Num::Open, Num::Open, height, width];
    for (axis, item) in axes.into_iter().zip(&numbers.items) {
        match usize::try_from(if axis < 0 { axis + 4 } else { axis }) {
            Ok(place @ 0..4) => items[place] = *item,
            _ => {
                let (expected, got) = ("axes of four", axis.to_string());
                return Err(Reason::Attribute { name: "axes", expected, got });
            }
        }
    }
    match items {
        [_, _, Num::Open, _] | [_, _, _, Num::Open] => Err(Reason::OpenSize { what: "its result" }),
        items => Ok(items),
    }
}

/// Extents by factors. Where a model has divided the extents that it wants by those of the value, they are those that it wants: so
/// exporters of versions 9 and 10 write `F.interpolate(x, size=y.shape[2:])`.
fn by_scales(
    site: &mut Site<'_>,
    plan: usize,
    items: [Num; 4],
    position: usize,
) -> Result<UpsampleTo, Reason> {
    let mut wanted = [None; 2];
    for (axis, wanted) in (2..).zip(&mut wanted) {
        let own = site.plans.extent(plan, axis);
        *wanted = match items[axis] {
            Num::Quotient(dividend, divisor) if Num::of(divisor, &site.plans.extents) == own => {
                Some(Num::of(dividend, &site.plans.extents))
            }
            scale @ Num::Known(_) => {
                let extents = &mut site.plans.extents;
                Some(own.combined(Binary::Mul, scale, false, extents)?)
            }
            _ => None,
        };
    }
    let is_divided = items[2..].iter().any(|item| matches!(item, Num::Quotient(..)));
    match wanted {
        [Some(height), Some(width)] if is_divided => {
            check_whole_axes(site, &items, position)?;
            to_sizes(site, plan, [items[0], Num::Open, height, width])
        }
        _ => to_scales(site, items, position),
    }
}

/// Checks that batch and channels stay.
fn check_whole_axes(site: &Site<'_>, items: &[Num; 4], position: usize) -> Result<(), Reason> {
    let known = |item: &Num| item.known(&site.plans.extents);
    if items[..2].iter().any(|item| known(item).is_some_and(|scale| scale != 1.0)) {
        return wrong(position, "scales of 1 for batch and channels", items);
    }
    Ok(())
}

/// Extents by numbers.
fn to_scales(site: &Site<'_>, items: [Num; 4], position: usize) -> Result<UpsampleTo, Reason> {
    check_whole_axes(site, &items, position)?;
    let known = |item: &Num| item.known(&site.plans.extents);
    let (Some(height), Some(width)) = (known(&items[2]), known(&items[3])) else {
        return Err(Reason::OpenSize { what: "its scale" });
    };
    match [height, width].map(simplest) {
        [Some(height), Some(width)] => Ok(UpsampleTo::Scale([height, width])),
        _ => wrong(position, "scales above 0 that are fractions of numbers up to 2^30", &items),
    }
}

/// The simplest fraction that a scale of 32 bits is the nearest number to, as the nearest number of 64 bits.
fn simplest(scale: f64) -> Option<f64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "scales of files have 32 bits, or were worked out of extents"
    )]
    let narrow = scale as f32;
    if f64::from(narrow) != scale || narrow <= 0.0 {
        return (scale > 0.0).then_some(scale);
    }
    let (mut before, mut now, mut rest) = ([0.0, 1.0], [1.0, 0.0], scale);
    for _ in 0..40 {
        let digit = f64::floor(rest);
        let next = [0, 1].map(|part| digit * now[part] + before[part]);
        (before, now) = (now, next);
        if now.iter().any(|part| *part > f64::from(1 << 30)) {
            return None;
        }
        let fraction: f64 = now[0] / now[1];
        #[expect(clippy::cast_possible_truncation, reason = "rounded to 32 bits as the scale was")]
        if fraction as f32 == narrow {
            return Some(fraction);
        }
        rest = 1.0 / (rest - digit);
    }
    None
}

/// Extents by themselves: multiples of those of the value, those of another, or numbers.
fn to_sizes(site: &Site<'_>, plan: usize, items: [Num; 4]) -> Result<UpsampleTo, Reason> {
    let channels = site.plans.get(plan).channels as f64;
    if items[1].known(&site.plans.extents).is_some_and(|got| got != channels) {
        return wrong(3, "as many channels", &items);
    }
    let wanted = [items[2], items[3]];
    if let Some(ratios) = site.plans.ratios(wanted, plan) {
        return Ok(UpsampleTo::Scale(ratios.map(|ratio| ratio as f64)));
    }
    if let Some(like) = site.plans.like(wanted) {
        return Ok(UpsampleTo::Like(ValueId(like)));
    }
    match [items[2], items[3]].map(|item| item.known(&site.plans.extents).and_then(whole)) {
        [Some(height), Some(width)] => Ok(UpsampleTo::Size([height, width])),
        _ => Err(Reason::OpenSize { what: "its size" }),
    }
}

/// The operator; nothing where the extents stay as they are.
fn upsampled(site: &mut Site<'_>, plan: usize, to: UpsampleTo, mode: ResizeMode) -> Result<Value, Reason> {
    let stays =
        match to {
            UpsampleTo::Scale(scales) => scales == [1.0, 1.0],
            UpsampleTo::Size(size) => site.plans.get(plan).extents.is_some_and(|extents| {
                extents.map(|extent| i64::try_from(extent).unwrap_or(i64::MAX)) == size
            }),
            UpsampleTo::Like(_) => false,
        };
    // interpolation at its own pixels is the pixels, but for a rounding
    if stays {
        return Ok(Value::Image(Image { plan, flat: false }));
    }
    if mode.coordinates == Coordinates::AlignCorners && !is_whole(site, plan, to) {
        let (expected, got) = ("with scales that give whole extents", "align_corners".to_owned());
        return Err(Reason::Attribute { name: COORDINATES, expected, got });
    }
    let plan = site.add(Op::Upsample(Upsample { mode, to }), vec![plan])?;
    Ok(Value::Image(Image { plan, flat: false }))
}

/// Whether scales give whole extents: else the corners of ONNX lie between pixels.
fn is_whole(site: &Site<'_>, plan: usize, to: UpsampleTo) -> bool {
    let UpsampleTo::Scale(scales) = to else { return true };
    let extents = site.plans.get(plan).extents;
    (0..2).all(|axis| {
        let extent = extents.map_or(1.0, |extents| extents[axis] as f64);
        let product = extent * scales[axis];
        (product - product.round()).abs() < 1e-9 * product
    })
}

/// How outputs find their inputs.
fn mode(site: &Site<'_>, coordinates: &str, nearest: &str) -> Result<ResizeMode, Reason> {
    let mode = site.text("mode", "nearest")?;
    let filter = match mode.as_str() {
        "nearest" => Filter::Nearest(match (nearest, coordinates) {
            ("floor", "tf_half_pixel_for_nn") => Rounding::HalfUp,
            ("floor", _) => Rounding::Floor,
            ("ceil", _) => Rounding::Ceil,
            ("round_prefer_floor", _) => Rounding::HalfDown,
            ("round_prefer_ceil", _) => Rounding::HalfUp,
            _ => {
                let expected = "floor, ceil, round_prefer_floor or round_prefer_ceil";
                return Err(Reason::Attribute { name: "nearest_mode", expected, got: nearest.to_owned() });
            }
        }),
        "linear" => Filter::Linear,
        "cubic" => {
            let slope = site.float("cubic_coeff_a", -0.75)?;
            let thousandths = (slope * 1000.0).round();
            #[expect(clippy::cast_possible_truncation, reason = "checked to be a few thousand")]
            if thousandths.abs() <= 8000.0 && (thousandths - slope * 1000.0).abs() < 1e-6 {
                let drops_outside = site.flag("exclude_outside", false)?;
                Filter::Cubic(Cubic { slope_thousandths: thousandths as i32, drops_outside })
            } else {
                let (name, expected) = ("cubic_coeff_a", "thousandths from -8 to 8");
                return Err(Reason::Attribute { name, expected, got: slope.to_string() });
            }
        }
        got => {
            let expected = "nearest, linear or cubic";
            return Err(Reason::Attribute { name: "mode", expected, got: got.to_owned() });
        }
    };
    let coordinates = match coordinates {
        "half_pixel" => Coordinates::HalfPixel,
        "pytorch_half_pixel" => Coordinates::HalfPixelOfSeveral,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        // floor((o + 1/2)/s) is the position of half pixels, half a pixel on, rounded down
        "tf_half_pixel_for_nn" if mode == "nearest" && nearest == "floor" => Coordinates::HalfPixel,
        got => {
            let expected =
                "half_pixel, pytorch_half_pixel, half_pixel_symmetric, align_corners or asymmetric";
            return Err(Reason::Attribute { name: COORDINATES, expected, got: got.to_owned() });
        }
    };
    Ok(ResizeMode { filter, coordinates })
}

fn wrong<V>(position: usize, expected: &'static str, items: &[Num; 4]) -> Result<V, Reason> {
    let shown = items.map(|item| match item {
        Num::Known(value) => value.to_string(),
        Num::Extent(_) | Num::Area(_) | Num::Sum(_) | Num::Quotient(..) | Num::Open => "?".to_owned(),
    });
    Err(Reason::Operand { position, expected, got: format!("[{}]", shown.join(", ")) })
}
