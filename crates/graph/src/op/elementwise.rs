//! `add`, `mul`, `sub`, `div`, `minimum`, `maximum`: `y = x₁ + x₂ + …` and so on, from the left, of values, of a value and a number,
//! or of a value and a parameter.
//!
//! A value of one pixel stands for all pixels of the others, one of one channel for all channels.

use serde_json::{Value, json};
use tiled_kernel::Arithmetic;

use super::check::out_of_range;
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::index::ValueId;
use crate::lower::arithmetic::Term;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::{Init, InputAxis, Own, ParamKind};
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// A function of two values; of more from the left, where the order does not matter.
///
/// ```
/// use tiled_graph::{Elementwise, Op, Operand, WithOperand};
/// let less_one = WithOperand { function: Elementwise::Sub, operand: Operand::Number(1.0), reversed: false };
/// assert_eq!(Op::WithOperand(less_one).name(), "sub");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elementwise {
    /// `a + b`.
    Add,
    /// `a·b`.
    Mul,
    /// `a − b`.
    Sub,
    /// `a/b`.
    Div,
    /// The smaller one.
    Minimum,
    /// The larger one.
    Maximum,
}

/// What stands beside the only value that an operator takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A number.
    Number(f64),
    /// A parameter `weight`, with a number for each channel.
    Weight,
}

/// A function of a value and what is no value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WithOperand {
    /// The function.
    pub function: Elementwise,
    /// The other operand.
    pub operand: Operand,
    /// Whether that comes first: `1 − x` instead of `x − 1`.
    pub reversed: bool,
}

const KEYS: &[&str] = &["scalar", "per_channel", "reversed", "weight"];

const fn several(name: &'static str) -> Format {
    Format { name, arity: Arity::AtLeast(2), keys: KEYS }
}

const fn two(name: &'static str) -> Format {
    Format { name, arity: Arity::Exactly(2), keys: KEYS }
}

const fn one(name: &'static str) -> Format {
    Format { name, arity: Arity::Exactly(1), keys: KEYS }
}

pub(super) static ADD: Format = several("add");
pub(super) static MUL: Format = several("mul");
pub(super) static SUB: Format = two("sub");
pub(super) static DIV: Format = two("div");
pub(super) static MINIMUM: Format = several("minimum");
pub(super) static MAXIMUM: Format = several("maximum");

/// What stands beside the value, where keys say so.
pub(super) fn read(fields: &Fields<'_>, function: Elementwise) -> Result<Option<WithOperand>, GraphError> {
    let per_channel = fields.flag("per_channel", fields.get("weight").is_some())?;
    let operand = match (fields.get("scalar"), per_channel) {
        (Some(scalar), true) => return Err(fields.wrong("scalar", "no number beside a weight", scalar)),
        (Some(_), false) => Operand::Number(fields.number("scalar", 0.0)?),
        (None, true) => Operand::Weight,
        (None, false) if fields.get("reversed").is_some() => {
            fields.require("scalar")?;
            return Ok(None);
        }
        (None, false) => return Ok(None),
    };
    Ok(Some(WithOperand { function, operand, reversed: fields.flag("reversed", false)? }))
}

impl Elementwise {
    pub(super) const fn arithmetic(self) -> Arithmetic {
        match self {
            Self::Add => Arithmetic::Add,
            Self::Mul => Arithmetic::Mul,
            Self::Sub => Arithmetic::Sub,
            Self::Div => Arithmetic::Div,
            Self::Minimum => Arithmetic::Minimum,
            Self::Maximum => Arithmetic::Maximum,
        }
    }
}

impl Operator for Elementwise {
    fn format(&self) -> &'static Format {
        match self {
            Self::Add => &ADD,
            Self::Mul => &MUL,
            Self::Sub => &SUB,
            Self::Div => &DIV,
            Self::Minimum => &MINIMUM,
            Self::Maximum => &MAXIMUM,
        }
    }

    fn write(&self, _: &dyn Values) -> Value {
        Value::Null
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        let (graph, first) = (at.values, most_channels(at));
        let expected = graph.channels(first);
        let fits = |channels: usize| channels == expected || channels == 1;
        match at.operands.iter().find(|other| !fits(graph.channels(**other))) {
            None => Ok(expected),
            Some(other) => Err(GraphError::OperandChannels {
                place: at.place.clone(),
                first: graph.name(first).into(),
                expected,
                other: graph.name(*other).into(),
                got: graph.channels(*other),
            }),
        }
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        let images = at.operands.iter().copied().find(|operand| known.extents(*operand) != [1, 1]);
        let first = images.unwrap_or(at.operands[0]);
        let expected = known.extents(first);
        let fits = |extents: [usize; 2]| extents == expected || extents == [1, 1];
        match at.operands.iter().find(|other| !fits(known.extents(**other))) {
            None => Ok(expected),
            Some(other) => Err(GraphError::OperandExtents {
                place: at.place.clone(),
                first: at.values.name(first).into(),
                expected,
                other: at.values.name(*other).into(),
                got: known.extents(*other),
            }),
        }
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let mut total = site.x();
        for (position, &next) in site.operands.iter().enumerate().skip(1) {
            let last = position + 1 == site.operands.len();
            let name = if last { site.name.to_owned() } else { format!("{}.{position}", site.name) };
            let [a, b] = [total, next].map(|operand| lowering.shape(operand));
            let extents = if a.1 == [1, 1] { b.1 } else { a.1 };
            let operands = [Term::Node(total), Term::Node(next)];
            total = lowering.arithmetic(&name, self.arithmetic(), operands, (a.0.max(b.0), extents))?;
        }
        Ok(total)
    }
}

impl Operator for WithOperand {
    fn format(&self) -> &'static Format {
        static FORMATS: [Format; 6] =
            [one("add"), one("mul"), one("sub"), one("div"), one("minimum"), one("maximum")];
        match self.function {
            Elementwise::Add => &FORMATS[0],
            Elementwise::Mul => &FORMATS[1],
            Elementwise::Sub => &FORMATS[2],
            Elementwise::Div => &FORMATS[3],
            Elementwise::Minimum => &FORMATS[4],
            Elementwise::Maximum => &FORMATS[5],
        }
    }

    fn write(&self, _: &dyn Values) -> Value {
        match self.operand {
            Operand::Number(scalar) => json!({"scalar": scalar, "reversed": self.reversed}),
            Operand::Weight => json!({"per_channel": true, "reversed": self.reversed}),
        }
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        match self.operand {
            Operand::Number(scalar) if !scalar.is_finite() => {
                Err(out_of_range(&at.place, "scalar", "a finite number", scalar))
            }
            _ => Ok(at.channels()),
        }
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    /// A weight begins as what changes nothing, where there is such a number.
    fn params(&self, channels: usize) -> Vec<Own> {
        if let Operand::Number(_) = self.operand {
            return Vec::new();
        }
        let neutral = match self.function {
            Elementwise::Mul | Elementwise::Div => 1.0,
            _ => 0.0,
        };
        vec![Own {
            kind: ParamKind::Weight,
            shape: vec![channels],
            init: Init::Constant(neutral),
            input: Some(InputAxis { axis: 0, groups: 1 }),
        }]
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let other = match self.operand {
            Operand::Number(number) => Term::Number(number),
            Operand::Weight => Term::Param(lowering.param(site.name, "weight")),
        };
        let x = Term::Node(site.x());
        let operands = if self.reversed { [other, x] } else { [x, other] };
        let shape = lowering.shape(site.x());
        Ok(lowering.arithmetic(site.name, self.function.arithmetic(), operands, shape)?)
    }
}

/// The first of the operands with the most channels.
fn most_channels(at: &Applied<'_>) -> ValueId {
    let channels = |value: &ValueId| at.values.channels(*value);
    let most = at.operands.iter().map(channels).max().unwrap_or_default();
    let first = at.operands.iter().copied().find(|value| channels(value) == most);
    first.unwrap_or(at.operands[0])
}

/// The extents of the first operand, which all others must have.
pub(super) fn equal_extents(at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
    let first = at.operands[0];
    match at.operands.iter().find(|other| known.extents(**other) != known.extents(first)) {
        None => Ok(known.extents(first)),
        Some(other) => Err(GraphError::OperandExtents {
            place: at.place.clone(),
            first: at.values.name(first).into(),
            expected: known.extents(first),
            other: at.values.name(*other).into(),
            got: known.extents(*other),
        }),
    }
}
