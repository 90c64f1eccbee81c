//! `pad`: rows and columns added around the image, or removed where an amount is below zero.

use serde_json::{Map, Value, json};
use tiled_geometry::{AxisMap, MAX_WINDOW, PadMode, Padding, Window};
use tiled_kernel::Kernel;

use super::check::out_of_range;
use super::conv2d::padded;
use super::operator::{Applied, Format, Operator, Values};
use super::windowed::{located, read_padding, write_padding};
use crate::error::{Arity, Axis, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::lower::unary::Unary;
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `pad`. What amounts below zero remove goes first, then the rest is padded.
///
/// ```
/// use tiled_graph::{Graph, Op, Pad, PadWith, infer};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 3)?;
/// let pad = Pad { padding: [[2, -1], [0, 3]], with: PadWith::Reflect };
/// let y = graph.add_node("y", Op::Pad(pad), &[x])?;
/// graph.set_outputs(&[y])?;
/// assert_eq!(infer(&graph, 1, &[[10, 12]])?.extents(y), [11, 15]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pad {
    /// Padding as `[before, after]` of height and of width.
    pub padding: [[i64; 2]; 2],
    /// What it shows.
    pub with: PadWith,
}

/// What the padding of `pad` shows.
///
/// ```
/// assert_eq!(tiled_graph::PadWith::Constant(0.5).name(), "constant");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadWith {
    /// This number.
    Constant(f64),
    /// The mirrored tensor.
    Reflect,
    /// The border repeated.
    Replicate,
    /// The other end of the tensor.
    Circular,
}

impl PadWith {
    /// The name, as in the network format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant(_) => "constant",
            Self::Reflect => "reflect",
            Self::Replicate => "replicate",
            Self::Circular => "circular",
        }
    }

    /// Where the values come from; `None` of a constant.
    const fn mode(self) -> Option<PadMode> {
        match self {
            Self::Constant(_) => None,
            Self::Reflect => Some(PadMode::Reflect),
            Self::Replicate => Some(PadMode::Replicate),
            Self::Circular => Some(PadMode::Circular),
        }
    }
}

pub(super) static FORMAT: Format =
    Format { name: "pad", arity: Arity::Exactly(1), keys: &["padding", "mode", "value"] };

pub(super) fn read(fields: &Fields<'_>) -> Result<Pad, GraphError> {
    let expected = "a whole number, a pair [height, width] or [[top, bottom], [left, right]]";
    let json = fields.require("padding")?;
    let padding = read_padding(json).ok_or_else(|| fields.wrong("padding", expected, json))?;
    Ok(Pad { padding, with: read_with(fields)? })
}

/// What padding shows, by `mode` and `value`.
pub(super) fn read_with(fields: &Fields<'_>) -> Result<PadWith, GraphError> {
    let modes = [PadWith::Constant(0.0), PadWith::Reflect, PadWith::Replicate, PadWith::Circular];
    let expected = "\"constant\", \"reflect\", \"replicate\" or \"circular\"";
    let with = fields.choice("mode", expected, &modes.map(|mode| (mode.name(), mode)), modes[0])?;
    match (with, fields.get("value")) {
        (PadWith::Constant(zero), _) => Ok(PadWith::Constant(fields.number("value", zero)?)),
        (with, None) => Ok(with),
        (_, Some(json)) => Err(fields.wrong("value", "mode \"constant\"", json)),
    }
}

/// The same as attributes.
pub(super) fn write_with(with: PadWith, object: &mut Map<String, Value>) {
    object.insert("mode".to_owned(), json!(with.name()));
    if let PadWith::Constant(value) = with {
        object.insert("value".to_owned(), json!(value));
    }
}

impl Pad {
    /// What is removed, as numbers not above zero.
    fn removed(&self) -> [[i64; 2]; 2] {
        self.padding.map(|sides| sides.map(|side| side.min(0)))
    }

    /// What is added.
    fn added(&self) -> [[i64; 2]; 2] {
        self.padding.map(|sides| sides.map(|side| side.max(0)))
    }
}

impl Operator for Pad {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        let mut object = Map::new();
        object.insert("padding".to_owned(), write_padding(self.padding));
        write_with(self.with, &mut object);
        Value::Object(object)
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        for side in self.padding.into_iter().flatten() {
            if side.unsigned_abs() > MAX_WINDOW.unsigned_abs() {
                return Err(out_of_range(&at.place, "padding", "within ±2^20", side));
            }
        }
        match self.with {
            PadWith::Constant(value) if !value.is_finite() => {
                Err(out_of_range(&at.place, "value", "finite", value))
            }
            _ => Ok(at.channels()),
        }
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        at.per_axis(known, |axis, extent| {
            let left = extent + self.removed()[axis].iter().sum::<i64>();
            if left < 1 {
                let (place, axis) = (at.place.clone(), Axis::BOTH[axis]);
                return Err(GraphError::CroppedAway { place, axis, extent, removed: extent - left });
            }
            let [before, after] = self.added()[axis];
            if let Some(mode) = self.with.mode() {
                located(&at.place, Padding::new(mode, left, before, after))?;
            }
            Ok(Some(left + before + after))
        })
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let x = site.x();
        let mode = match (self.with, self.with.mode()) {
            (PadWith::Constant(value), _) => return moved(lowering, site.name, self.padding, value, x),
            (_, Some(mode)) if self.added() != [[0; 2]; 2] => mode,
            _ => return moved(lowering, site.name, self.padding, 0.0, x),
        };
        let x = match self.removed() {
            [[0, 0], [0, 0]] => x,
            removed => moved(lowering, &format!("{}.crop", site.name), removed, 0.0, x)?,
        };
        padded(lowering, site.name, mode, self.added(), x)
    }
}

/// The image moved by what is added before it, between as much of a constant as is added in all.
fn moved(
    lowering: &mut Lowering,
    name: &str,
    padding: [[i64; 2]; 2],
    value: f64,
    x: NodeId,
) -> Result<NodeId, PlanError> {
    let (channels, input, _) = lowering.described(x);
    let before = padding.map(|[before, _]| before);
    let output = [0, 1].map(|axis| input[axis] + padding[axis].iter().sum::<i64>());
    let axis = |axis: usize| -> Result<AxisMap, PlanError> {
        let window = Window::new(1, 1, 1, before[axis].abs())?;
        Ok(if before[axis] < 0 { AxisMap::Touched(window) } else { AxisMap::Window(window) })
    };
    let unary = Unary {
        kernel: Kernel::PadConstant { before, input, value },
        gradient: Kernel::PadConstant { before: before.map(|rows| -rows), input: output, value: 0.0 },
        saved: None,
        maps: [axis(0)?, axis(1)?],
    };
    Ok(lowering.unary(name, unary, x, channels, output)?)
}
