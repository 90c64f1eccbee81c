//! Resampling: the ways to say how large and how to interpolate that upsampling reproduces exactly.
//!
//! | coordinates | nearest | linear |
//! |---|---|---|
//! | `asymmetric` | `floor`; `round_prefer_floor` up to twice | no |
//! | `half_pixel`, `pytorch_half_pixel`, `half_pixel_symmetric` | `round_prefer_…` by whole factors | yes |
//! | `tf_half_pixel_for_nn` | `floor` by whole factors | no |
//! | `align_corners` | no | yes |
//!
//! Whole factors s: `round((o + 1/2)/s − 1/2)` is `floor(o/s)`, as no half lies between two outputs of one input.
//! `pytorch_half_pixel` has another rule for one output row of several input rows: an extent of 1 that the model fixes is refused,
//! one that follows another value's is taken, as nobody upsamples to it.

use tiled_graph::{Op, Upsample, UpsampleMode, UpsampleTo, ValueId};

use crate::Reason;
use crate::import::numbers::{Extent, Extents, Num, whole};
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

/// How outputs find their inputs.
struct Rule {
    mode: String,
    coordinates: String,
    nearest: String,
}

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
    let rule = Rule {
        mode: site.text("mode", "nearest")?,
        coordinates: site.text(COORDINATES, coordinates)?,
        nearest: site.text("nearest_mode", nearest)?,
    };
    let plan = site.image(0)?;
    let (scales, sizes) = if before { (1, 3) } else { (2, 3) };
    let given = if has_numbers(site, sizes) { sizes } else { scales };
    let items = in_order(site, given)?;
    let to = if given == sizes { to_sizes(site, plan, items) } else { to_scales(site, plan, items, given) };
    upsampled(site, plan, to?, &rule)
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
    let to = to_scales(site, plan, items, 1)?;
    let mode = site.text("mode", "nearest")?;
    upsampled(site, plan, to, &Rule { mode, coordinates: "asymmetric".into(), nearest: "floor".into() })
}

/// Whether there is a list that is not empty: exporters leave others out by an empty one.
fn has_numbers(site: &mut Site<'_>, position: usize) -> bool {
    site.has(position) && site.numbers(position).is_ok_and(|numbers| !numbers.items.is_empty())
}

/// Numbers for batch, channels, height and width, whatever axes they are given for; those that stay are open.
fn in_order(site: &mut Site<'_>, position: usize) -> Result<[Num; 4], Reason> {
    let numbers = site.numbers(position)?;
    let axes = site.ints("axes")?.unwrap_or_else(|| vec![0, 1, 2, 3]);
    if axes.len() != numbers.items.len() {
        return site.wrong(position, "a number for each axis");
    }
    let mut items = [Num::Open; 4];
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

/// Extents by factors: whole ones, or such as give whole extents of an image whose size is known.
fn to_scales(site: &Site<'_>, plan: usize, items: [Num; 4], position: usize) -> Result<UpsampleTo, Reason> {
    let known = |item: &Num| item.known(site.plans);
    if items[..2].iter().any(|item| known(item).is_some_and(|scale| scale != 1.0)) {
        return wrong(position, "scales of 1 for batch and channels", &items);
    }
    let (Some(height), Some(width)) = (known(&items[2]), known(&items[3])) else {
        return Err(Reason::OpenSize { what: "its scale" });
    };
    let scales = [height, width];
    if let [Some(height @ 1..), Some(width @ 1..)] = scales.map(whole) {
        return Ok(UpsampleTo::Scale([height, width]));
    }
    let Some(extents) = site.plans.get(plan).extents else {
        return Err(Reason::OpenSize { what: "its result by a scale that is not whole" });
    };
    let sizes = [0, 1].map(|axis| whole(extents[axis] as f64 * scales[axis]));
    match sizes {
        [Some(height @ 1..), Some(width @ 1..)] => Ok(UpsampleTo::Size([height, width])),
        _ => wrong(position, "scales that give whole extents", &items),
    }
}

/// Extents by themselves: multiples of those of the value, those of another, or numbers.
fn to_sizes(site: &Site<'_>, plan: usize, items: [Num; 4]) -> Result<UpsampleTo, Reason> {
    let channels = site.plans.get(plan).channels as f64;
    if items[1].known(site.plans).is_some_and(|got| got != channels) {
        return wrong(3, "as many channels", &items);
    }
    if let [_, _, Num::Extent(height), Num::Extent(width)] = items
        && (height.axis, width.axis) == (2, 3)
    {
        let is_own = |extent: Extent| site.plans.are_same(extent, Extent { plan, ..extent });
        let of_one = site.plans.are_same(height, Extent { plan: width.plan, ..height });
        if is_own(height) && is_own(width) {
            return Ok(UpsampleTo::Scale([height.times, width.times]));
        }
        if of_one && (height.times, width.times) == (1, 1) {
            return Ok(UpsampleTo::Like(ValueId(height.plan)));
        }
    }
    match [items[2], items[3]].map(|item| item.known(site.plans).and_then(whole)) {
        [Some(height), Some(width)] => Ok(UpsampleTo::Size([height, width])),
        _ => Err(Reason::OpenSize { what: "its size" }),
    }
}

/// The operator, where its interpolation is that of the rule.
fn upsampled(site: &mut Site<'_>, plan: usize, to: UpsampleTo, rule: &Rule) -> Result<Value, Reason> {
    let factors = match to {
        UpsampleTo::Scale(factors) => Some(factors),
        UpsampleTo::Size(size) => site.plans.get(plan).extents.and_then(|extents| {
            let factor = |axis: usize| {
                let extent = i64::try_from(extents[axis]).ok()?;
                (size[axis] % extent == 0).then(|| size[axis] / extent)
            };
            Some([factor(0)?, factor(1)?])
        }),
        UpsampleTo::Like(_) => None,
    };
    if factors == Some([1, 1]) {
        return Ok(Value::Image(Image { plan, flat: false }));
    }
    let mode = rule.mode(factors)?;
    if let (UpsampleTo::Size([1, _] | [_, 1]), "pytorch_half_pixel") = (to, rule.coordinates.as_str()) {
        let got = rule.coordinates.clone();
        return Err(Reason::Attribute { name: COORDINATES, expected: "half_pixel, for an extent of 1", got });
    }
    let plan = site.add(Op::Upsample(Upsample { mode, to }), vec![plan])?;
    Ok(Value::Image(Image { plan, flat: false }))
}

impl Rule {
    /// The mode that interpolates the same, by these whole factors where there are such.
    fn mode(&self, factors: Option<[i64; 2]>) -> Result<UpsampleMode, Reason> {
        let most = factors.map(|factors| factors[0].max(factors[1]));
        let coordinates = self.coordinates.as_str();
        let is_half_pixel =
            matches!(coordinates, "half_pixel" | "pytorch_half_pixel" | "half_pixel_symmetric");
        let is_round = matches!(self.nearest.as_str(), "round_prefer_floor" | "round_prefer_ceil");
        let is_floor = self.nearest == "floor";
        match self.mode.as_str() {
            "nearest" => {
                let is_same = match coordinates {
                    "asymmetric" => {
                        is_floor
                            || (self.nearest == "round_prefer_floor" && most.is_some_and(|most| most <= 2))
                    }
                    "tf_half_pixel_for_nn" => is_floor && most.is_some(),
                    _ => is_half_pixel && is_round && most.is_some(),
                };
                if is_same {
                    return Ok(UpsampleMode::Nearest);
                }
                let got = format!("{} with {coordinates} coordinates", self.nearest);
                let expected = "floor with asymmetric coordinates, or a rule that gives the same by a known whole factor";
                Err(Reason::Attribute { name: "nearest_mode", expected, got })
            }
            "linear" if is_half_pixel => Ok(UpsampleMode::Bilinear { align_corners: false }),
            "linear" if coordinates == "align_corners" => Ok(UpsampleMode::Bilinear { align_corners: true }),
            "linear" => {
                let (expected, got) = ("half_pixel or align_corners", coordinates.to_owned());
                Err(Reason::Attribute { name: COORDINATES, expected, got })
            }
            got => {
                let expected = "nearest or linear";
                Err(Reason::Attribute { name: "mode", expected, got: got.to_owned() })
            }
        }
    }
}

fn wrong<V>(position: usize, expected: &'static str, items: &[Num; 4]) -> Result<V, Reason> {
    let shown = items.map(|item| match item {
        Num::Known(value) => value.to_string(),
        Num::Extent(_) | Num::Open => "?".to_owned(),
    });
    Err(Reason::Operand { position, expected, got: format!("[{}]", shown.join(", ")) })
}
