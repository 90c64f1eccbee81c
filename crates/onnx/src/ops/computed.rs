//! Nodes all of whose operands are constants, such as the standardisation of a weight: they are worked out when the model is read,
//! in doubles, and leave a constant.
//!
//! What only sees a constant in another shape, or a matrix by its columns, reads none of its elements, as before.

use std::sync::Arc;

use tiled_tensor::zeros;

use super::array::{Array, MAX_AXES, computed, room};
use super::broadcast::{self, Fold, larger, reduced, smaller};
use super::operator::Operator;
use super::rearranged;
use crate::Reason;
use crate::import::numbers::Num;
use crate::import::site::{Site, constant};
use crate::import::value::{Constant, Value};
use crate::tensor::is_float;

/// What a node's output stands for where all that it reads are constants; `None` where it is left to the rule of its operator.
pub(super) fn made(operator: &Operator, site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some(work) = Work::of(operator.name) else { return Ok(None) };
    let count = match work {
        Work::Pair(_) | Work::Product => 2,
        Work::Several(_) | Work::Mean | Work::Concat => site.operands.len(),
        Work::Clip if site.has(1) || site.has(2) => site.operands.len(),
        Work::BatchNorm => 5,
        _ => 1,
    };
    let mut is_of_sizes = false;
    for position in 0..count {
        let is_left_out = matches!(work, Work::Clip) && position > 0 && !site.has(position);
        // an exponent may be whole where the base is not
        let of_integers = operator.name == "Pow" && position == 1;
        match given(site, position, of_integers) {
            _ if is_left_out => {}
            Some(Given::Constant) => {}
            Some(Given::Numbers) => is_of_sizes = true,
            None => return Ok(None),
        }
    }
    is_of_sizes &= OF_SIZES.contains(&operator.name);
    if count == 0 || is_of_sizes && (0..count).all(|position| site.is_numbers(position)) {
        return Ok(None);
    }
    match work {
        Work::Each(function) => each(site, function).map(Some),
        Work::Pair(function) | Work::Several(function) => several(site, function).map(Some),
        Work::Mean => mean(site).map(Some),
        Work::Clip => clip(site).map(Some),
        Work::Reduce(fold) => reduce(site, fold).map(Some),
        Work::BatchNorm => batch_norm(site).map(Some),
        Work::Product => product(site),
        Work::Concat => rearranged::concat(site).map(Some),
        Work::Rearrange(rule) => rule(site),
    }
}

/// Makes tensors of the computed constants that a node of the network reads.
pub(super) fn settle(site: &mut Site<'_>) -> Result<(), Reason> {
    for operand in site.operands.iter_mut().flatten() {
        if let Value::Computed(computed) = operand {
            let tensor = site.tensors.push_computed(computed)?;
            constant(site.tensors, tensor)?;
            let shape = Arc::clone(&computed.shape);
            *operand = Value::Constant(Constant { tensor, shape, transposed: false });
        }
    }
    Ok(())
}

/// What an operator does with constants.
#[derive(Clone, Copy)]
enum Work {
    /// A function of each element.
    Each(fn(f64) -> f64),
    /// A function of the elements of two at one place.
    Pair(fn(f64, f64) -> f64),
    /// The same of one or more, from the left.
    Several(fn(f64, f64) -> f64),
    Mean,
    Clip,
    Reduce(Fold),
    BatchNorm,
    /// Of a vector and a matrix, or two vectors.
    Product,
    Concat,
    /// The same elements, or some of them, in another order or shape.
    Rearrange(fn(&mut Site<'_>) -> Result<Option<Value>, Reason>),
}

impl Work {
    fn of(operator: &str) -> Option<Self> {
        Some(match operator {
            "Abs" => Self::Each(f64::abs),
            "Exp" => Self::Each(f64::exp),
            "Log" => Self::Each(f64::ln),
            "Neg" => Self::Each(|x| -x),
            "Reciprocal" => Self::Each(f64::recip),
            "Relu" => Self::Each(|x| larger(x, 0.0)),
            "Sigmoid" => Self::Each(|x| 1.0 / (1.0 + (-x).exp())),
            "Softplus" => Self::Each(|x| larger(x, 0.0) + (-x.abs()).exp().ln_1p()),
            "Sqrt" => Self::Each(f64::sqrt),
            "Tanh" => Self::Each(f64::tanh),
            "Add" => Self::Pair(|a, b| a + b),
            "Sub" => Self::Pair(|a, b| a - b),
            "Mul" => Self::Pair(|a, b| a * b),
            "Div" => Self::Pair(|a, b| a / b),
            "Pow" => Self::Pair(f64::powf),
            "Sum" => Self::Several(|a, b| a + b),
            "Max" => Self::Several(larger),
            "Min" => Self::Several(smaller),
            "Mean" => Self::Mean,
            "Clip" => Self::Clip,
            "ReduceL1" => Self::Reduce(Fold::L1),
            "ReduceL2" => Self::Reduce(Fold::L2),
            "ReduceMax" => Self::Reduce(Fold::Max),
            "ReduceMean" => Self::Reduce(Fold::Mean),
            "ReduceMin" => Self::Reduce(Fold::Min),
            "ReduceSum" => Self::Reduce(Fold::Sum),
            "ReduceSumSquare" => Self::Reduce(Fold::SumSquare),
            "BatchNormalization" => Self::BatchNorm,
            "MatMul" => Self::Product,
            "Cast" => Self::Rearrange(cast),
            "Concat" => Self::Concat,
            "Expand" => Self::Rearrange(rearranged::expand),
            "Flatten" => Self::Rearrange(rearranged::flatten),
            "Identity" => Self::Rearrange(identity),
            "Reshape" => Self::Rearrange(rearranged::reshape),
            "Slice" => Self::Rearrange(rearranged::slice),
            "Squeeze" => Self::Rearrange(rearranged::squeeze),
            "Transpose" => Self::Rearrange(rearranged::transpose),
            "Unsqueeze" => Self::Rearrange(rearranged::unsqueeze),
            _ => return None,
        })
    }
}

/// Operators that are worked out over sizes too, with known numbers among them.
const OF_SIZES: [&str; 12] = [
    "Add",
    "Cast",
    "Concat",
    "Div",
    "Identity",
    "Mul",
    "Neg",
    "Reshape",
    "Slice",
    "Squeeze",
    "Sub",
    "Unsqueeze",
];

/// What a node may be worked out of.
enum Given {
    Constant,
    /// Numbers that were computed and are known.
    Numbers,
}

/// What the operand at this position is; `None` where nothing is worked out of it.
fn given(site: &mut Site<'_>, position: usize, of_integers: bool) -> Option<Given> {
    match site.operands.get(position)?.as_ref()? {
        Value::Computed(computed) => (!computed.elements.values.is_empty()).then_some(Given::Constant),
        Value::Constant(Constant { tensor, shape, transposed }) => {
            let is_of_axes = if *transposed { shape.len() == 2 } else { shape.len() <= MAX_AXES };
            let stored = site.tensors.check(*tensor).ok()?;
            let is_given = is_of_axes && stored.elements > 0 && (of_integers || !stored.is_integer());
            is_given.then_some(Given::Constant)
        }
        Value::Numbers(numbers) => {
            let is_known = numbers.items.iter().all(|item| matches!(item, Num::Known(_)));
            let is_given = is_known && !numbers.items.is_empty() && (of_integers || !numbers.is_integer);
            is_given.then_some(Given::Numbers)
        }
        _ => None,
    }
}

fn each(site: &mut Site<'_>, function: fn(f64) -> f64) -> Result<Value, Reason> {
    let array = Array::of(site, 0)?;
    let (shape, is_double) = (Arc::clone(&array.shape), array.is_double);
    let (mut values, room) = array.into_values(site)?;
    values.iter_mut().for_each(|value| *value = function(*value));
    Ok(computed(site, values, room, &shape, is_double))
}

fn several(site: &mut Site<'_>, function: fn(f64, f64) -> f64) -> Result<Value, Reason> {
    let mut total = Array::of(site, 0)?;
    for position in 1..site.operands.len() {
        let next = Array::of(site, position)?;
        let is_double = total.is_double || next.is_double;
        let Some(shape) = broadcast::shape(&total.shape, &next.shape) else {
            let got = format!("a constant of shape {:?} beside one of {:?}", next.shape, total.shape);
            let expected = "a constant whose axes, from the last one on, are as long as the other's, or one";
            return Err(Reason::Operand { position, expected, got });
        };
        let (mut values, room) = if *total.shape == *shape {
            total.into_values(site)?
        } else {
            let room = room(site, total.values().len() + next.values().len(), &shape)?;
            (broadcast::repeated(&total.view()?, &shape)?, room)
        };
        // each operand is work, in whatever room
        site.tensors.work(values.len())?;
        broadcast::combine(&mut values, &shape, &next.view()?, function);
        total = Array::new(&shape, values, room, is_double);
    }
    let shape = total.shape.to_vec();
    Ok(total.reshaped(site, shape))
}

fn mean(site: &mut Site<'_>) -> Result<Value, Reason> {
    let count = site.operands.len() as f64;
    let sum = several(site, |a, b| a + b)?;
    site.operands = vec![Some(sum)];
    let array = Array::of(site, 0)?;
    let (shape, is_double) = (Arc::clone(&array.shape), array.is_double);
    let (mut values, room) = array.into_values(site)?;
    values.iter_mut().for_each(|value| *value /= count);
    Ok(computed(site, values, room, &shape, is_double))
}

/// Bounds are attributes, then operands from version 11 on; a missing one is none.
fn clip(site: &mut Site<'_>) -> Result<Value, Reason> {
    let mut bound = |position: usize, name: &'static str, none: f64| {
        if site.has(position) {
            let array = Array::of(site, position)?;
            return match array.values() {
                [bound] => Ok(*bound),
                _ => site.wrong(position, "one number"),
            };
        }
        if site.attribute(name).is_some() { site.float(name, 0.0) } else { Ok(none) }
    };
    let min = bound(1, "min", f64::NEG_INFINITY)?;
    let max = bound(2, "max", f64::INFINITY)?;
    let array = Array::of(site, 0)?;
    let (shape, is_double) = (Arc::clone(&array.shape), array.is_double);
    let (mut values, room) = array.into_values(site)?;
    values.iter_mut().for_each(|value| *value = smaller(larger(*value, min), max));
    Ok(computed(site, values, room, &shape, is_double))
}

/// Axes are an attribute at first and an operand later; without any, all of them, or none where that is said.
fn reduce(site: &mut Site<'_>, fold: Fold) -> Result<Value, Reason> {
    let given = if site.has(1) { site.whole(1)? } else { site.ints("axes")?.unwrap_or_default() };
    let (keeps, is_none) = (site.flag("keepdims", true)?, site.flag("noop_with_empty_axes", false)?);
    let array = Array::of(site, 0)?;
    let rank = array.shape.len();
    let axes =
        if given.is_empty() && !is_none { (0..rank).collect() } else { rearranged::axes(&given, rank)? };
    let kept = |axis: &usize| keeps || !axes.contains(axis);
    let extent = |axis: usize| if axes.contains(&axis) { 1 } else { array.shape[axis] };
    let shape: Vec<usize> = (0..rank).filter(kept).map(extent).collect();
    let room = room(site, array.values().len(), &shape)?;
    let values = reduced(&array.view()?, &axes, fold)?;
    Ok(computed(site, values, room, &shape, array.is_double))
}

/// `γ·(x − mean)/√(var + ε) + β` along axis 1, with the statistics of the constant itself in training mode, which is how exporters
/// write the standardisation of a weight.
fn batch_norm(site: &mut Site<'_>) -> Result<Value, Reason> {
    let eps = site.float("epsilon", 1e-5)?;
    // before version 14 the statistics of the batch are further results
    let is_training = site.flag("training_mode", false)? || site.opset < 14 && site.node.output.len() > 1;
    let array = Array::of(site, 0)?;
    let &[_, channels, ..] = &*array.shape else {
        return site.wrong(0, "a constant of two axes or more");
    };
    let shape = Arc::clone(&array.shape);
    let mut vectors = Vec::new();
    for position in 1..5 {
        let vector = Array::of(site, position)?;
        if *vector.shape != [channels] {
            let (what, got) = (STATISTICS[position - 1], vector.shape.to_vec());
            return Err(Reason::Parameter { what, expected: vec![channels], got });
        }
        vectors.push(vector);
    }
    let mut is_double = array.is_double;
    is_double |= vectors.iter().any(|vector| vector.is_double);
    let pixels: usize = shape[2..].iter().product();
    let (mut values, room) = array.into_values(site)?;
    for channel in 0..channels {
        let [gamma, beta, mut mean, mut variance] =
            [0, 1, 2, 3].map(|place| vectors[place].values()[channel]);
        let of_channel = |values: &[f64], function: &dyn Fn(f64) -> f64| {
            let pieces = values.chunks_exact(pixels).skip(channel).step_by(channels);
            pieces.flatten().map(|value| function(*value)).sum::<f64>()
        };
        if is_training {
            let count = (values.len() / channels) as f64;
            mean = of_channel(&values, &|value| value) / count;
            variance = of_channel(&values, &|value| (value - mean) * (value - mean)) / count;
        }
        let deviation = (variance + eps).sqrt();
        for piece in values.chunks_exact_mut(pixels).skip(channel).step_by(channels) {
            piece.iter_mut().for_each(|value| *value = (*value - mean) / deviation * gamma + beta);
        }
    }
    Ok(computed(site, values, room, &shape, is_double))
}

/// The product of two matrices of which one is a vector, as in the norm of a weight by its largest singular value: it takes no more
/// steps than there are elements. Others are left to the rule.
fn product(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let [of_a, of_b] = [rearranged::seen(site, 0)?, rearranged::seen(site, 1)?];
    let ([rows, inner], kept_rows) = match *of_a {
        [inner] => ([1, inner], None),
        [rows, inner] => ([rows, inner], Some(rows)),
        _ => return Ok(None),
    };
    let ([terms, columns], kept_columns) = match *of_b {
        [terms] => ([terms, 1], None),
        [terms, columns] => ([terms, columns], Some(columns)),
        _ => return Ok(None),
    };
    if rows > 1 && columns > 1 {
        return Ok(None);
    }
    if inner != terms {
        let got = format!("a constant of shape {of_b:?} behind one of {of_a:?}");
        let expected = "a constant of as many rows as the other has columns";
        return Err(Reason::Operand { position: 1, expected, got });
    }
    let (a, b) = (Array::of(site, 0)?, Array::of(site, 1)?);
    let shape: Vec<usize> = kept_rows.into_iter().chain(kept_columns).collect();
    let room = room(site, a.values().len() + b.values().len(), &shape)?;
    let mut values = zeros::<f64>(rows * columns)?;
    for (place, value) in values.iter_mut().enumerate() {
        let row = &a.values()[place / columns * inner..][..inner];
        let column = b.values().iter().skip(place % columns).step_by(columns);
        *value = row.iter().zip(column).map(|(a, b)| a * b).sum();
    }
    Ok(Some(computed(site, values, room, &shape, a.is_double || b.is_double)))
}

/// Of what was computed; a constant of the file is left to the rule.
#[expect(clippy::unnecessary_wraps, reason = "as all of them")]
fn identity(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let is_computed = |value: &&Value| matches!(value, Value::Computed(_));
    Ok(site.operand(0).ok().filter(is_computed).cloned())
}

/// Types of elements are those of a run: casts between floats leave nothing.
fn cast(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let to = i32::try_from(site.int("to", 0)?).unwrap_or_default();
    if is_float(to) { identity(site) } else { Ok(None) }
}

/// What the vectors of a batch norm are.
const STATISTICS: [&str; 4] = ["weight", "bias", "running_mean", "running_var"];
