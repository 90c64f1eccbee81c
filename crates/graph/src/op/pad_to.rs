//! `pad_to`: as many rows and columns added, or removed, as make the extents those that are wanted.

use serde_json::{Map, Value, json};
use tiled_geometry::MAX_WINDOW;

use super::check::out_of_range;
use super::operator::{Applied, Format, Operator, Values};
use super::pad::{Pad, PadWith, read_with, write_with};
use crate::error::{Arity, GraphError, Place};
use crate::format::fields::{Fields, Find};
use crate::format::json::Json;
use crate::index::ValueId;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `pad_to`: `pad` by amounts that follow from the size of the image.
///
/// ```
/// use tiled_graph::{Graph, Op, PadTo, PadTarget, PadWith, Placement, infer};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 3)?;
/// let (placement, with) = (Placement::After, PadWith::Reflect);
/// let whole = PadTo { to: PadTarget::Multiple([8, 8]), placement, with };
/// let padded = graph.add_node("padded", Op::PadTo(whole), &[x])?;
/// let back = PadTo { to: PadTarget::Like([x, x]), placement, with };
/// let y = graph.add_node("y", Op::PadTo(back), &[padded])?;
/// graph.set_outputs(&[padded, y])?;
/// let shapes = infer(&graph, 1, &[[21, 32]])?;
/// assert_eq!((shapes.extents(padded), shapes.extents(y)), ([24, 32], [21, 32]));
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PadTo {
    /// The extents after.
    pub to: PadTarget,
    /// Where rows and columns are added, or removed.
    pub placement: Placement,
    /// What those that are added show.
    pub with: PadWith,
}

/// The extents after `pad_to`.
///
/// ```
/// use tiled_graph::{Graph, Op, PadTarget, PadTo, PadWith, Placement, infer};
/// let to = PadTarget::Windows { size: [3, 3], stride: [2, 2] };
/// let same = PadTo { to, placement: Placement::Around, with: PadWith::Constant(0.0) };
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 3)?;
/// let y = graph.add_node("y", Op::PadTo(same), &[x])?;
/// graph.set_outputs(&[y])?;
/// // four windows of three rows, and five of three columns
/// assert_eq!(infer(&graph, 1, &[[8, 9]])?.extents(y), [9, 11]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
///
/// ```
/// assert_ne!(tiled_graph::PadTarget::Multiple([8, 8]), tiled_graph::PadTarget::Multiple([8, 16]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadTarget {
    /// `multiple`: the least multiples of these that are not below the input's extents.
    Multiple([i64; 2]),
    /// `windows` and `stride`: what `⌈n/stride⌉` windows cover, `(⌈n/stride⌉ − 1)·stride + size`, where that is more than the
    /// input's extent n, else n. With a placement around the image it is TensorFlow's "same" padding of a layer with such windows.
    Windows {
        /// The rows and columns of a window.
        size: [i64; 2],
        /// The distance from one to the next.
        stride: [i64; 2],
    },
    /// `like`: the height of the first value and the width of the second, whose elements are not read.
    Like([ValueId; 2]),
}

/// Where rows and columns are added, or removed.
///
/// ```
/// assert_eq!(tiled_graph::Placement::After.name(), "after");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All of them after the image.
    After,
    /// Half of them before, rounded down, and the others after.
    Around,
}

impl Placement {
    /// The name, as in the network format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::After => "after",
            Self::Around => "around",
        }
    }
}

pub(super) static FORMAT: Format = Format {
    name: "pad_to",
    arity: Arity::Exactly(1),
    keys: &["multiple", "windows", "stride", "like", "placement", "mode", "value"],
};

pub(super) fn read(fields: &Fields<'_>, find: Find<'_>) -> Result<PadTo, GraphError> {
    let targets: Vec<&str> = TARGETS.into_iter().filter(|key| fields.get(key).is_some()).collect();
    let to = match targets.as_slice() {
        ["multiple"] => PadTarget::Multiple(fields.required_pair("multiple")?),
        ["windows"] => PadTarget::Windows {
            size: fields.required_pair("windows")?,
            stride: fields.required_pair("stride")?,
        },
        ["like"] => PadTarget::Like(like(fields, find)?),
        _ => {
            let (place, keys) = (fields.place().clone(), TARGETS.map(str::to_owned).to_vec());
            let got = targets.into_iter().map(str::to_owned).collect();
            return Err(GraphError::ExclusiveKeys { place, keys, got });
        }
    };
    if let (PadTarget::Multiple(_) | PadTarget::Like(_), Some(json)) = (to, fields.get("stride")) {
        return Err(fields.wrong("stride", "`windows`", json));
    }
    let placements = [Placement::After, Placement::Around].map(|placement| (placement.name(), placement));
    let placement = fields.choice("placement", "\"after\" or \"around\"", &placements, Placement::After)?;
    Ok(PadTo { to, placement, with: read_with(fields)? })
}

const TARGETS: [&str; 3] = ["multiple", "windows", "like"];

/// A value for both axes, or one for each.
fn like(fields: &Fields<'_>, find: Find<'_>) -> Result<[ValueId; 2], GraphError> {
    let json = fields.require("like")?;
    match json {
        Json::Text(name) => find(name).map(|value| [value, value]),
        Json::List(items) => match items.as_slice() {
            [Json::Text(height), Json::Text(width)] => Ok([find(height)?, find(width)?]),
            _ => Err(fields.wrong("like", "the name of a value, or a pair [height, width] of them", json)),
        },
        _ => Err(fields.wrong("like", "the name of a value, or a pair [height, width] of them", json)),
    }
}

impl PadTo {
    /// The padding that turns these extents into those that are wanted.
    fn by(self, from: [i64; 2], wanted: [i64; 2]) -> Pad {
        let padding = std::array::from_fn(|axis| {
            let all = wanted[axis] - from[axis];
            let before = match self.placement {
                Placement::After => 0,
                Placement::Around => all.div_euclid(2),
            };
            [before, all - before]
        });
        Pad { padding, with: self.with }
    }

    /// The extents that are wanted of these.
    fn wanted(self, known: &Shapes, from: [i64; 2]) -> [i64; 2] {
        match self.to {
            PadTarget::Like(values) => std::array::from_fn(|axis| signed(known.extents(values[axis]))[axis]),
            // neither is more than 2^30
            PadTarget::Multiple(multiple) => std::array::from_fn(|axis| {
                let rest = from[axis].rem_euclid(multiple[axis]);
                from[axis] + if rest == 0 { 0 } else { multiple[axis] - rest }
            }),
            PadTarget::Windows { size, stride } => std::array::from_fn(|axis| {
                let last = (from[axis] - 1).div_euclid(stride[axis]) * stride[axis];
                from[axis].max(last + size[axis])
            }),
        }
    }
}

fn signed(extents: [usize; 2]) -> [i64; 2] {
    extents.map(|extent| i64::try_from(extent).expect("invariant: extents are at most 2^30"))
}

fn check_extents(place: &Place, key: &'static str, pair: [i64; 2]) -> Result<(), GraphError> {
    match pair.into_iter().find(|extent| !(1..=MAX_WINDOW).contains(extent)) {
        None => Ok(()),
        Some(got) => Err(out_of_range(place, key, "from 1 to 2^20", got)),
    }
}

impl Operator for PadTo {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, values: &dyn Values) -> Value {
        let mut object = Map::new();
        let (key, target) = match self.to {
            PadTarget::Multiple(multiple) => ("multiple", json!(multiple)),
            PadTarget::Windows { size, stride } => {
                object.insert("stride".to_owned(), json!(stride));
                ("windows", json!(size))
            }
            PadTarget::Like([a, b]) if a == b => ("like", json!(values.name(a))),
            PadTarget::Like(like) => ("like", json!(like.map(|value| values.name(value)))),
        };
        object.insert(key.to_owned(), target);
        object.insert("placement".to_owned(), json!(self.placement.name()));
        write_with(self.with, &mut object);
        Value::Object(object)
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        match self.to {
            PadTarget::Like(values) => {
                values.into_iter().try_for_each(|value| at.values.check(&at.place, value))?;
            }
            PadTarget::Multiple(multiple) => check_extents(&at.place, "multiple", multiple)?,
            PadTarget::Windows { size, stride } => {
                check_extents(&at.place, "windows", size)?;
                check_extents(&at.place, "stride", stride)?;
            }
        }
        Pad { padding: [[0; 2]; 2], with: self.with }.check(at)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        let from = signed(known.extents(at.operands[0]));
        let pad = self.by(from, self.wanted(known, from));
        pad.check(at)?;
        pad.extents(at, known)
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (_, from, _) = lowering.described(site.x());
        if from == site.extents {
            return Ok(site.x());
        }
        self.by(from, site.extents).lower(lowering, site)
    }
}
