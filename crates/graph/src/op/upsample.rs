//! `upsample`: `y[i, j] = Σ wᵢ[u]·wⱼ[v]·x[u, v]`, with one tap an axis for nearest and two for bilinear.

use serde_json::{Map, Value, json};
use tiled_geometry::{AxisMap, Resize, ResizeMode};
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
/// use tiled_graph::{Upsample, UpsampleMode, UpsampleTo};
/// let twice = Upsample { mode: UpsampleMode::Nearest, to: UpsampleTo::Scale([2, 2]) };
/// assert_eq!(twice.mode.name(), "nearest");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Upsample {
    /// Nearest or bilinear.
    pub mode: UpsampleMode,
    /// The extents after.
    pub to: UpsampleTo,
}

/// How upsampling interpolates.
///
/// ```
/// assert_eq!(tiled_graph::UpsampleMode::Bilinear { align_corners: true }.name(), "bilinear");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpsampleMode {
    /// `nearest`.
    Nearest,
    /// `bilinear`.
    Bilinear {
        /// Whether corner pixels are aligned.
        align_corners: bool,
    },
}

impl UpsampleMode {
    /// The name, as in the network format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Bilinear { .. } => "bilinear",
        }
    }
}

/// The extents after upsampling.
///
/// ```
/// use tiled_graph::{Graph, Op, Upsample, UpsampleMode, UpsampleTo, infer};
/// let mut graph = Graph::new();
/// let (x, skip) = (graph.add_input("x", 8)?, graph.add_input("skip", 4)?);
/// let like = Upsample { mode: UpsampleMode::Nearest, to: UpsampleTo::Like(skip) };
/// let up = graph.add_node("up", Op::Upsample(like), &[x])?;
/// graph.set_outputs(&[up])?;
/// assert_eq!(infer(&graph, 1, &[[337, 675], [675, 1350]])?.shape(up), [1, 8, 675, 1350]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpsampleTo {
    /// `size`: these extents.
    Size([i64; 2]),
    /// `scale_factor`: whole multiples of the input's extents.
    Scale([i64; 2]),
    /// `like`: the extents of this value, whose elements are not read.
    Like(ValueId),
}

pub(super) static FORMAT: Format = Format {
    name: "upsample",
    arity: Arity::Exactly(1),
    keys: &["size", "scale_factor", "like", "mode", "align_corners"],
};

pub(super) fn read(fields: &Fields<'_>, find: Find<'_>) -> Result<Upsample, GraphError> {
    const TARGETS: [&str; 3] = ["size", "scale_factor", "like"];
    let targets: Vec<&str> = TARGETS.into_iter().filter(|key| fields.get(key).is_some()).collect();
    let to = match targets.as_slice() {
        ["size"] => UpsampleTo::Size(fields.required_pair("size")?),
        ["scale_factor"] => UpsampleTo::Scale(fields.required_pair("scale_factor")?),
        ["like"] => UpsampleTo::Like(find(fields.text("like")?)?),
        _ => {
            let (place, keys) = (fields.place().clone(), TARGETS.map(str::to_owned).to_vec());
            let got = targets.into_iter().map(str::to_owned).collect();
            return Err(GraphError::ExclusiveKeys { place, keys, got });
        }
    };
    let bilinear = fields.choice(
        "mode",
        "\"nearest\" or \"bilinear\"",
        &[("nearest", false), ("bilinear", true)],
        false,
    )?;
    let align_corners = match fields.get("align_corners") {
        Some(Json::Null) => false,
        _ => fields.flag("align_corners", false)?,
    };
    let mode = match (bilinear, fields.get("align_corners")) {
        (true, _) => UpsampleMode::Bilinear { align_corners },
        (false, Some(json @ Json::Bool(true))) => {
            return Err(fields.wrong("align_corners", "mode \"bilinear\"", json));
        }
        (false, _) => UpsampleMode::Nearest,
    };
    Ok(Upsample { mode, to })
}

impl Operator for Upsample {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, values: &dyn Values) -> Value {
        let (key, target) = match self.to {
            UpsampleTo::Size(size) => ("size", json!(size)),
            UpsampleTo::Scale(scale) => ("scale_factor", json!(scale)),
            UpsampleTo::Like(value) => ("like", json!(values.name(value))),
        };
        let mut object = Map::new();
        object.insert(key.to_owned(), target);
        object.insert("mode".to_owned(), json!(self.mode.name()));
        if let UpsampleMode::Bilinear { align_corners } = self.mode {
            object.insert("align_corners".to_owned(), json!(align_corners));
        }
        Value::Object(object)
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        let (key, pair) = match self.to {
            UpsampleTo::Like(value) => return at.values.check(&at.place, value).map(|()| at.channels()),
            UpsampleTo::Size(size) => ("size", size),
            UpsampleTo::Scale(scale) => ("scale_factor", scale),
        };
        match pair.into_iter().find(|extent| *extent < 1) {
            None => Ok(at.channels()),
            Some(got) => Err(out_of_range(&at.place, key, "at least 1", got)),
        }
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        match self.to {
            UpsampleTo::Like(value) => Ok(known.extents(value)),
            UpsampleTo::Size(size) => at.per_axis(known, |axis, _| Ok(Some(size[axis]))),
            UpsampleTo::Scale(scale) => at.per_axis(known, |axis, input| Ok(input.checked_mul(scale[axis]))),
        }
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let mode = match self.mode {
            UpsampleMode::Nearest => ResizeMode::Nearest,
            UpsampleMode::Bilinear { align_corners: false } => ResizeMode::Linear,
            UpsampleMode::Bilinear { align_corners: true } => ResizeMode::LinearAlignCorners,
        };
        let (channels, from, _) = lowering.described(site.x());
        let axis = |axis: usize| Resize::new(mode, from[axis], site.extents[axis]);
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
