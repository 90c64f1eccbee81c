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
/// assert_ne!(tiled_graph::PadTarget::Multiple([8, 8]), tiled_graph::PadTarget::Multiple([8, 16]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadTarget {
    /// `multiple`: the least multiples of these that are not below the input's extents.
    Multiple([i64; 2]),
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
    keys: &["multiple", "like", "placement", "mode", "value"],
};

pub(super) fn read(fields: &Fields<'_>, find: Find<'_>) -> Result<PadTo, GraphError> {
    let to = match [fields.get("multiple"), fields.get("like")].map(|key| key.is_some()) {
        [true, false] => PadTarget::Multiple(fields.required_pair("multiple")?),
        [false, true] => PadTarget::Like(like(fields, find)?),
        [is_both, _] => {
            let keys = vec!["multiple".to_owned(), "like".to_owned()];
            let got = if is_both { keys.clone() } else { Vec::new() };
            return Err(GraphError::ExclusiveKeys { place: fields.place().clone(), keys, got });
        }
    };
    let placements = [Placement::After, Placement::Around].map(|placement| (placement.name(), placement));
    let placement = fields.choice("placement", "\"after\" or \"around\"", &placements, Placement::After)?;
    Ok(PadTo { to, placement, with: read_with(fields)? })
}

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
        }
    }
}

fn signed(extents: [usize; 2]) -> [i64; 2] {
    extents.map(|extent| i64::try_from(extent).expect("invariant: extents are at most 2^30"))
}

fn check_multiple(place: &Place, multiple: [i64; 2]) -> Result<(), GraphError> {
    match multiple.into_iter().find(|extent| !(1..=MAX_WINDOW).contains(extent)) {
        None => Ok(()),
        Some(got) => Err(out_of_range(place, "multiple", "from 1 to 2^20", got)),
    }
}

impl Operator for PadTo {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, values: &dyn Values) -> Value {
        let (key, target) = match self.to {
            PadTarget::Multiple(multiple) => ("multiple", json!(multiple)),
            PadTarget::Like([a, b]) if a == b => ("like", json!(values.name(a))),
            PadTarget::Like(like) => ("like", json!(like.map(|value| values.name(value)))),
        };
        let mut object = Map::new();
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
            PadTarget::Multiple(multiple) => check_multiple(&at.place, multiple)?,
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
