//! `upsample`: `y[i, j] = Σ wᵢ[u]·wⱼ[v]·x[u, v]`, with one tap an axis for nearest, two for bilinear and four for bicubic.

use serde_json::{Map, Value, json};
use tiled_geometry::{AxisMap, Coordinates, Cubic, Filter, Ratio, Resize, ResizeMode, Rounding};
use tiled_kernel::Kernel;

use super::check::out_of_range;
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::{Fields, Find};
use crate::format::json::Json;
use crate::index::ValueId;
use crate::lower::builder::{Lowering, Site};
use crate::lower::unary::Unary;
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `upsample`.
///
/// ```
/// use tiled_graph::{ResizeMode, Upsample, UpsampleTo};
/// let twice = Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Scale([2.0, 2.0]) };
/// assert_ne!(twice.mode, ResizeMode::LINEAR);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Upsample {
    /// How it interpolates: not over parts of the axes, which is adaptive pooling.
    pub mode: ResizeMode,
    /// The extents after.
    pub to: UpsampleTo,
}

/// The extents after upsampling.
///
/// ```
/// use tiled_graph::{Graph, Op, ResizeMode, Upsample, UpsampleTo, infer};
/// let mut graph = Graph::new();
/// let (x, skip) = (graph.add_input("x", 8)?, graph.add_input("skip", 4)?);
/// let like = Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Like(skip) };
/// let up = graph.add_node("up", Op::Upsample(like), &[x])?;
/// graph.set_outputs(&[up])?;
/// assert_eq!(infer(&graph, 1, &[[337, 675], [675, 1350]])?.shape(up), [1, 8, 675, 1350]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpsampleTo {
    /// `size`: these extents.
    Size([i64; 2]),
    /// `scale_factor`: the input's extents times these, rounded down, where outputs lie by the scale and not by the extents. Each is
    /// taken for the simplest fraction that it is the nearest number to: 1.3 is 13/10.
    Scale([f64; 2]),
    /// `like`: the extents of this value, whose elements are not read.
    Like(ValueId),
}

pub(super) static FORMAT: Format = Format {
    name: "upsample",
    arity: Arity::Exactly(1),
    keys: &[
        "size",
        "scale_factor",
        "like",
        "mode",
        "align_corners",
        "coordinates",
        "rounding",
        "cubic_slope",
        "drop_outside",
    ],
};

const COORDINATES: [(&str, Coordinates); 5] = [
    ("half_pixel", Coordinates::HalfPixel),
    ("half_pixel_of_several", Coordinates::HalfPixelOfSeveral),
    ("half_pixel_symmetric", Coordinates::HalfPixelSymmetric),
    ("align_corners", Coordinates::AlignCorners),
    ("asymmetric", Coordinates::Asymmetric),
];

const ROUNDINGS: [(&str, Rounding); 4] = [
    ("floor", Rounding::Floor),
    ("ceil", Rounding::Ceil),
    ("half_down", Rounding::HalfDown),
    ("half_up", Rounding::HalfUp),
];

/// The modes of PyTorch without its flags.
const MODES: [(&str, ResizeMode); 4] = [
    ("nearest", ResizeMode::NEAREST),
    ("nearest-exact", ResizeMode::NEAREST_EXACT),
    ("bilinear", ResizeMode::LINEAR),
    ("bicubic", ResizeMode::CUBIC),
];

pub(super) fn read(fields: &Fields<'_>, find: Find<'_>) -> Result<Upsample, GraphError> {
    const TARGETS: [&str; 3] = ["size", "scale_factor", "like"];
    let targets: Vec<&str> = TARGETS.into_iter().filter(|key| fields.get(key).is_some()).collect();
    let to = match targets.as_slice() {
        ["size"] => UpsampleTo::Size(fields.required_pair("size")?),
        ["scale_factor"] => UpsampleTo::Scale(scales(fields)?),
        ["like"] => UpsampleTo::Like(find(fields.text("like")?)?),
        _ => {
            let (place, keys) = (fields.place().clone(), TARGETS.map(str::to_owned).to_vec());
            let got = targets.into_iter().map(str::to_owned).collect();
            return Err(GraphError::ExclusiveKeys { place, keys, got });
        }
    };
    Ok(Upsample { mode: mode(fields)?, to })
}

/// A number for both axes, or a pair.
fn scales(fields: &Fields<'_>) -> Result<[f64; 2], GraphError> {
    let given = fields.require("scale_factor")?;
    let number = |json: &Json| if let Json::Number(number) = json { number.as_f64() } else { None };
    let scales = match given {
        Json::List(items) => match items.as_slice() {
            [height, width] => number(height).zip(number(width)).map(|(height, width)| [height, width]),
            _ => None,
        },
        both => number(both).map(|scale| [scale; 2]),
    };
    let expected = "a number or a pair [height, width] of them";
    scales.ok_or_else(|| fields.wrong("scale_factor", expected, given))
}

fn mode(fields: &Fields<'_>) -> Result<ResizeMode, GraphError> {
    let expected = "\"nearest\", \"nearest-exact\", \"bilinear\" or \"bicubic\"";
    let mut mode = fields.choice("mode", expected, &MODES, ResizeMode::NEAREST)?;
    let is_nearest = matches!(mode.filter, Filter::Nearest(_));
    let corners = match fields.get("align_corners") {
        None | Some(Json::Null) => None,
        Some(_) => Some(fields.flag("align_corners", false)?),
    };
    match (corners, fields.get("align_corners")) {
        (Some(true), Some(json)) if is_nearest => {
            return Err(fields.wrong("align_corners", "mode \"bilinear\" or \"bicubic\"", json));
        }
        (Some(true), _) => mode.coordinates = Coordinates::AlignCorners,
        _ => {}
    }
    if let (Some(_), Some(json)) = (corners, fields.get("coordinates")) {
        return Err(fields.wrong("coordinates", "no align_corners beside it", json));
    }
    let expected = "\"half_pixel\", \"half_pixel_of_several\", \"half_pixel_symmetric\", \"align_corners\" or \"asymmetric\"";
    mode.coordinates = fields.choice("coordinates", expected, &COORDINATES, mode.coordinates)?;
    let of = |key: &'static str, wanted: &'static str, is_of: bool| match fields.get(key) {
        Some(json) if !is_of => Err(fields.wrong(key, wanted, json)),
        _ => Ok(()),
    };
    of("rounding", "mode \"nearest\"", is_nearest)?;
    let is_cubic = matches!(mode.filter, Filter::Cubic(_));
    of("cubic_slope", "mode \"bicubic\"", is_cubic)?;
    of("drop_outside", "mode \"bicubic\"", is_cubic)?;
    match &mut mode.filter {
        Filter::Nearest(rounding) => {
            let expected = "\"floor\", \"ceil\", \"half_down\" or \"half_up\"";
            *rounding = fields.choice("rounding", expected, &ROUNDINGS, *rounding)?;
        }
        Filter::Cubic(cubic) => {
            let slope = fields.number("cubic_slope", -0.75)?;
            cubic.slope_thousandths = thousandths(slope).ok_or_else(|| {
                out_of_range(fields.place(), "cubic_slope", "thousandths from -8 to 8", slope)
            })?;
            cubic.drops_outside = fields.flag("drop_outside", false)?;
        }
        Filter::Linear | Filter::Area => {}
    }
    Ok(mode)
}

/// A slope in thousandths, where it is so many.
fn thousandths(slope: f64) -> Option<i32> {
    (-8000..=8000).find(|thousandths| f64::from(*thousandths) / 1000.0 == slope)
}

/// The simplest fraction that a number is the nearest one to; `None` where it is no fraction of numbers up to `2^30`.
fn ratio(scale: f64) -> Option<Ratio> {
    // convergents of the continued fraction
    let (mut before, mut now) = ([0_i64, 1], [1_i64, 0]);
    let mut rest = scale;
    for _ in 0..64 {
        let whole = rest.floor();
        if !(0.0..=f64::from(1 << 30)).contains(&whole) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a whole number up to 2^30")]
        let digit = whole as i64;
        let next = [0, 1].map(|part| digit * now[part] + before[part]);
        (before, now) = (now, next);
        let fraction = Ratio::new(now[0], now[1]).ok();
        #[expect(clippy::cast_precision_loss, reason = "numbers up to 2^30")]
        let is_it = fraction.is_some_and(|it| it.numerator() as f64 / it.denominator() as f64 == scale);
        if is_it {
            return fraction;
        }
        if now.into_iter().any(|part| part > 1 << 30) || rest == whole {
            return None;
        }
        rest = 1.0 / (rest - whole);
    }
    None
}

impl Operator for Upsample {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, values: &dyn Values) -> Value {
        let (key, target) = match self.to {
            UpsampleTo::Size(size) => ("size", json!(size)),
            UpsampleTo::Scale(scales) => ("scale_factor", Value::Array(scales.map(number).to_vec())),
            UpsampleTo::Like(value) => ("like", json!(values.name(value))),
        };
        let mut object = Map::new();
        object.insert(key.to_owned(), target);
        let named = MODES.iter().find(|(_, mode)| *mode == self.mode);
        let same = |(_, mode): &&(&str, ResizeMode)| {
            std::mem::discriminant(&mode.filter) == std::mem::discriminant(&self.mode.filter)
        };
        if let Some((name, _)) = named.or_else(|| MODES.iter().find(same)) {
            object.insert("mode".to_owned(), json!(name));
        }
        match self.mode.coordinates {
            Coordinates::HalfPixel | Coordinates::AlignCorners
                if !matches!(self.mode.filter, Filter::Nearest(_)) =>
            {
                let corners = self.mode.coordinates == Coordinates::AlignCorners;
                object.insert("align_corners".to_owned(), json!(corners));
            }
            coordinates if named.is_none() => {
                let name = COORDINATES.iter().find(|(_, other)| *other == coordinates);
                object.insert("coordinates".to_owned(), json!(name.map(|(name, _)| name)));
            }
            _ => {}
        }
        match self.mode.filter {
            Filter::Nearest(rounding) if named.is_none() => {
                let name = ROUNDINGS.iter().find(|(_, other)| *other == rounding);
                object.insert("rounding".to_owned(), json!(name.map(|(name, _)| name)));
            }
            Filter::Cubic(cubic) if cubic != Cubic::PYTORCH => {
                object.insert("cubic_slope".to_owned(), json!(f64::from(cubic.slope_thousandths) / 1000.0));
                object.insert("drop_outside".to_owned(), json!(cubic.drops_outside));
            }
            _ => {}
        }
        Value::Object(object)
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        if self.mode.filter == Filter::Area {
            return Err(out_of_range(&at.place, "mode", "an interpolation", "area"));
        }
        match self.to {
            UpsampleTo::Like(value) => at.values.check(&at.place, value)?,
            UpsampleTo::Size(size) => {
                if let Some(got) = size.into_iter().find(|extent| *extent < 1) {
                    return Err(out_of_range(&at.place, "size", "at least 1", got));
                }
            }
            UpsampleTo::Scale(scales) => {
                if let Some(got) = scales.into_iter().find(|scale| ratio(*scale).is_none()) {
                    let expected = "above 0 and a fraction of numbers up to 2^30";
                    return Err(out_of_range(&at.place, "scale_factor", expected, got));
                }
            }
        }
        Ok(at.channels())
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        match self.to {
            UpsampleTo::Like(value) => Ok(known.extents(value)),
            UpsampleTo::Size(size) => at.per_axis(known, |axis, _| Ok(Some(size[axis]))),
            UpsampleTo::Scale(scales) => {
                at.per_axis(known, |axis, input| Ok(ratio(scales[axis]).and_then(|scale| scale.of(input))))
            }
        }
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (channels, from, _) = lowering.described(site.x());
        let axis = |axis: usize| {
            let (from, to) = (from[axis], site.extents[axis]);
            match self.to {
                UpsampleTo::Scale(scales) => match ratio(scales[axis]) {
                    Some(scale) => Resize::with_scale(self.mode, from, to, scale),
                    None => Resize::new(self.mode, from, to),
                },
                UpsampleTo::Size(_) | UpsampleTo::Like(_) => Resize::new(self.mode, from, to),
            }
        };
        let resize = [axis(0)?, axis(1)?];
        let unary = Unary {
            kernel: Kernel::Resize(resize),
            gradient: Kernel::ResizeBackward(resize),
            saved: None,
            maps: resize.map(AxisMap::Resize),
        };
        Ok(lowering.unary(site.name, unary, site.x(), channels, site.extents)?)
    }
}

/// A whole number as such.
fn number(scale: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "a whole number up to 2^30")]
    let whole = scale as i64;
    if scale.fract() == 0.0 && scale.abs() <= f64::from(1 << 30) { json!(whole) } else { json!(scale) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_the_simplest_fractions_that_they_are_nearest_to() {
        let fraction = |scale| ratio(scale).map(|ratio| (ratio.numerator(), ratio.denominator()));
        assert_eq!(fraction(2.0), Some((2, 1)));
        assert_eq!(fraction(0.5), Some((1, 2)));
        assert_eq!(fraction(1.3), Some((13, 10)));
        assert_eq!(fraction(1.0 / 3.0), Some((1, 3)));
        assert_eq!(fraction(2.0 / 7.0), Some((2, 7)));
        assert_eq!(fraction(std::f64::consts::PI), Some((245_850_922, 78_256_779)));
        assert_eq!(fraction(f64::from(0.7_f32)).map(|(numerator, _)| numerator < 1 << 30), Some(true));
        for refused in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-12, 1e12] {
            assert_eq!(fraction(refused), None, "{refused}");
        }
    }
}
