//! Sums, products and their inverses: of values of the network, of sizes, and of a value with numbers, where exporters write out
//! an activation.

use std::rc::Rc;

use tiled_graph::{Activation, Elementwise, Op, Operand, ParamKind, ResizeMode, Upsample, WithOperand};

use super::activation::{activation, formed, of_forms};
use super::spread::spread;
use super::{adaptive, elements, norm, norming, response};
use crate::Reason;
use crate::import::form::Form;
use crate::import::numbers::{Binary, Num, Numbers};
use crate::import::plan::Plans;
use crate::import::site::Site;
use crate::import::value::{Constant, Image, Value};

pub(super) fn add(site: &mut Site<'_>) -> Result<Value, Reason> {
    for rule in [with_bias, norm::shifted, norming::sum, response::sum, elements::sum, adaptive::sum] {
        if let Some(made) = rule(site)? {
            return Ok(made);
        }
    }
    binary(site, Binary::Add)
}

pub(super) fn sub(site: &mut Site<'_>) -> Result<Value, Reason> {
    match norming::difference(site)? {
        Some(made) => Ok(made),
        None => binary(site, Binary::Sub),
    }
}

pub(super) fn mul(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(made) = norming::product(site)? {
        return Ok(made);
    }
    for rule in [norm::scaled, response::product, elements::product] {
        if let Some(made) = rule(site)? {
            return Ok(made);
        }
    }
    binary(site, Binary::Mul)
}

/// Of sizes alone.
pub(super) fn modulo(site: &mut Site<'_>) -> Result<Value, Reason> {
    site.only("fmod", 0, 0, "0, of whole numbers")?;
    binary(site, Binary::Mod)
}

pub(super) fn div(site: &mut Site<'_>) -> Result<Value, Reason> {
    for rule in [norming::quotient, response::quotient, averaged, adaptive::quotient] {
        if let Some(made) = rule(site)? {
            return Ok(made);
        }
    }
    binary(site, Binary::Div)
}

/// The mean over an image that is written as a sum over it by its pixels, `x.sum(3).sum(2)/(h·w)`, also where the model
/// declares how many they are: the number is wrong at another size, the mean is not.
fn averaged(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Image(Image { plan: sum, flat }) = *site.operand(0)? else { return Ok(None) };
    let planned = site.plans.get(sum);
    if planned.op.as_deref() != Some(&Op::GlobalSumPool) {
        return Ok(None);
    }
    let summed = planned.inputs.first();
    let pixels = match site.operand(1)? {
        Value::Numbers(numbers) if numbers.items.len() == 1 => numbers.items.first().copied(),
        _ => site.scalar(1)?.map(Num::Known),
    };
    match pixels {
        Some(pixels) if site.plans.is_pixels(pixels, summed) => {
            let plan = site.add(Op::GlobalAvgPool, vec![summed])?;
            Ok(Some(Value::Image(Image { plan, flat })))
        }
        _ => Ok(None),
    }
}

/// A power by a number; `x²` and `x³` are forms too.
pub(super) fn pow(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(made) = norming::power(site)? {
        return Ok(made);
    }
    site.settle()?;
    let exponent = site.number(1)?;
    if let Some(made) = response::raised(site, exponent)? {
        return Ok(made);
    }
    site.multiples()?;
    let power = |form: &Form| match exponent {
        2.0 => form.times(form),
        3.0 => form.times(form).and_then(|square| square.times(form)),
        _ => None,
    };
    let forms: Vec<Form> =
        site.forms(0)?.iter().filter_map(power).filter(|form| form.x().is_some()).collect();
    match site.operand(0)? {
        Value::Image(_) => {
            let made = activation(site, Activation::Pow { exponent })?;
            Ok(formed(site, made, forms))
        }
        _ if forms.is_empty() => site.wrong(0, "a value of the network"),
        _ => of_forms(site, forms),
    }
}

/// A sum of several values; one alone is itself.
pub(super) fn sum(site: &mut Site<'_>) -> Result<Value, Reason> {
    several(site, Elementwise::Add)
}

pub(super) fn min(site: &mut Site<'_>) -> Result<Value, Reason> {
    match of_sizes(site, Binary::Min)? {
        Some(made) => Ok(made),
        None => several(site, Elementwise::Minimum),
    }
}

pub(super) fn max(site: &mut Site<'_>) -> Result<Value, Reason> {
    match of_sizes(site, Binary::Max)? {
        Some(made) => Ok(made),
        None => several(site, Elementwise::Maximum),
    }
}

/// The sum, divided by how many there are.
pub(super) fn mean(site: &mut Site<'_>) -> Result<Value, Reason> {
    let made = several(site, Elementwise::Add)?;
    match (made, site.operands.len()) {
        (made, 0 | 1) => Ok(made),
        (Value::Image(sum), count) => divided(site, sum, count).map(Value::Image),
        _ => site.wrong(0, "a value of the network"),
    }
}

/// The least or largest of sizes and numbers; `None` where none of them was worked out.
fn of_sizes(site: &mut Site<'_>, binary: Binary) -> Result<Option<Value>, Reason> {
    let is_computed = |operand: &Option<Value>| matches!(operand, Some(Value::Numbers(_)));
    let count = site.operands.len();
    if !site.operands.iter().any(is_computed) || !(0..count).all(|position| site.is_numbers(position)) {
        return Ok(None);
    }
    let mut made = Numbers::clone(&*site.numbers(0)?);
    for position in 1..count {
        let next = site.numbers(position)?;
        made = match made.combined(binary, &next, &mut site.plans.extents)? {
            Some(made) => made,
            None => return site.wrong(position, "as many numbers as the other"),
        };
    }
    Ok(Some(Value::Numbers(Rc::new(made))))
}

/// A sum of so many values, divided by how many there are.
pub(super) fn divided(site: &mut Site<'_>, sum: Image, count: usize) -> Result<Image, Reason> {
    let count = u32::try_from(count).map_or(f64::INFINITY, f64::from);
    of_number(site, Elementwise::Div, sum, count, false)
}

/// A function of values, numbers and a number for each channel, from the left.
fn several(site: &mut Site<'_>, function: Elementwise) -> Result<Value, Reason> {
    site.settle()?;
    site.multiples()?;
    let is_image = |operand: &Option<Value>| matches!(operand, Some(Value::Image(_)));
    if site.operands.len() > 1 && site.operands.iter().all(is_image) {
        let values: Vec<Image> =
            (0..site.operands.len()).map(|place| site.value(place)).collect::<Result<_, _>>()?;
        return of_values(site, function, &values).map(Value::Image);
    }
    let mut total = site.operand(0)?.clone();
    for position in 1..site.operands.len() {
        let next = site.operand(position)?.clone();
        total = match pair(site, function, [(0, &total), (position, &next)])? {
            Some(made) => made,
            None => return site.wrong(position, "a value of the network, a number or one for each channel"),
        };
    }
    Ok(total)
}

fn binary(site: &mut Site<'_>, binary: Binary) -> Result<Value, Reason> {
    site.settle()?;
    if site.is_numbers(0) && site.is_numbers(1) {
        let (a, b) = (site.numbers(0)?, site.numbers(1)?);
        return match a.combined(binary, &b, &mut site.plans.extents)? {
            Some(made) => Ok(Value::Numbers(Rc::new(made))),
            None => site.wrong(1, "as many numbers as the other"),
        };
    }
    let forms = combined(&site.forms(0)?, binary, &site.forms(1)?);
    if forms.iter().any(|form| form.recognised().is_some()) {
        return of_forms(site, forms);
    }
    let function = match binary {
        Binary::Add => Elementwise::Add,
        Binary::Sub => Elementwise::Sub,
        Binary::Mul => Elementwise::Mul,
        Binary::Div => Elementwise::Div,
        Binary::Mod | Binary::Max | Binary::Min => return site.wrong(0, "sizes"),
    };
    if !forms.iter().any(|form| form.multiple().is_some()) {
        site.multiples()?;
    }
    let (a, b) = (site.operand(0)?.clone(), site.operand(1)?.clone());
    match pair(site, function, [(0, &a), (1, &b)])? {
        Some(made) => Ok(formed(site, made, forms)),
        None if forms.is_empty() => {
            let position = usize::from(matches!(a, Value::Image(_)));
            site.wrong(position, "a value of the network, a number or one for each channel")
        }
        None => of_forms(site, forms),
    }
}

/// A function of a value and a value, a number or a number for each channel, by their positions; `None` of anything else.
fn pair(
    site: &mut Site<'_>,
    function: Elementwise,
    [(place, a), (other, b)]: [(usize, &Value); 2],
) -> Result<Option<Value>, Reason> {
    let (image, position, constant, reversed) = match (a, b) {
        (Value::Image(a), Value::Image(b)) => {
            return of_values(site, function, &[*a, *b]).map(|made| Some(Value::Image(made)));
        }
        (Value::Image(image), constant) => (*image, other, constant, false),
        (constant, Value::Image(image)) => (*image, place, constant, true),
        _ => return Ok(None),
    };
    let reversed = reversed && matches!(function, Elementwise::Sub | Elementwise::Div);
    if let Some(number) = site.scalar(position)? {
        return of_number(site, function, image, number, reversed).map(|made| Some(Value::Image(made)));
    }
    let Value::Constant(constant) = constant else { return Ok(None) };
    let channels = site.plans.get(image.plan).channels;
    if !constant.is_per_channel(channels, image.flat) {
        return Ok(None);
    }
    let Some(weight) = constant.reshaped(&[channels]) else { return Ok(None) };
    let op = Op::WithOperand(WithOperand { function, operand: Operand::Weight, reversed });
    let plan = site.add_with(op, image.plan, vec![(ParamKind::Weight, weight)])?;
    Ok(Some(Value::Image(Image { plan, ..image })))
}

fn of_number(
    site: &mut Site<'_>,
    function: Elementwise,
    image: Image,
    number: f64,
    reversed: bool,
) -> Result<Image, Reason> {
    let op = Op::WithOperand(WithOperand { function, operand: Operand::Number(number), reversed });
    let plan = site.add(op, vec![image.plan])?;
    Ok(Image { plan, ..image })
}

/// An operator over values that all have four axes, or all two.
pub(super) fn of_values(
    site: &mut Site<'_>,
    function: Elementwise,
    values: &[Image],
) -> Result<Image, Reason> {
    let op = match function {
        Elementwise::Add => Op::Add,
        Elementwise::Mul => Op::Mul,
        Elementwise::Sub => Op::Sub,
        Elementwise::Div => Op::Div,
        Elementwise::Minimum => Op::Minimum,
        Elementwise::Maximum => Op::Maximum,
    };
    let flat = values[0].flat;
    if let Some(position) = values.iter().position(|value| value.flat != flat) {
        return site.wrong(position, "of as many axes as the others");
    }
    // of one axis are all that an image has: as many, or one
    let features = |value: &Image| {
        let plan = site.plans.get(value.plan);
        (plan.channels, plan.extents)
    };
    let mut several = values.iter().filter(|value| features(value) != (1, Some([1, 1])));
    if flat && let Some(first) = several.next() {
        let is_other = |value: &&Image| features(value) != features(first);
        if let Some(other) = several.find(is_other) {
            let position = values.iter().position(|value| value.plan == other.plan).unwrap_or_default();
            return site.wrong(position, "of as many features as the others, which lie alike");
        }
    }
    let mut values = values.to_vec();
    of_planes(site.plans, &mut values);
    if !flat {
        spread(site, &mut values)?;
    }
    let plan = site.add(op, of_pixels(site.plans, &values))?;
    Ok(Image { plan, flat })
}

/// The values, of which those that are one channel in all places are that channel where another has all channels.
fn of_planes(plans: &Plans, values: &mut [Image]) {
    let plane = |plan: usize| match plans.get(plan).op.as_deref() {
        Some(Op::Concat) => plans.get(plan).inputs.repeated().filter(|one| plans.get(*one).channels == 1),
        _ => None,
    };
    let is_whole = |value: &&Image| plane(value.plan).is_none();
    let channels = values.iter().find(is_whole).map(|value| plans.get(value.plan).channels);
    for value in values {
        if let Some(plane) = plane(value.plan).filter(|_| channels == Some(plans.get(value.plan).channels)) {
            value.plan = plane;
        }
    }
}

/// The values, of which those that are one pixel everywhere are that pixel where another has all pixels.
fn of_pixels(plans: &Plans, values: &[Image]) -> Vec<usize> {
    let pixel = |plan: usize| match plans.get(plan).op.as_deref() {
        Some(Op::Upsample(Upsample { mode: ResizeMode::NEAREST, .. })) => {
            let pixel = plans.get(plan).inputs.first();
            (plans.get(pixel).extents == Some([1, 1])).then_some(pixel)
        }
        _ => None,
    };
    let whole = values
        .iter()
        .find(|value| pixel(value.plan).is_none() && plans.get(value.plan).extents != Some([1, 1]));
    let is_as_large = |plan: usize| whole.is_some_and(|whole| plans.are_as_large(plan, whole.plan));
    let of_pixel = |plan: usize| pixel(plan).filter(|_| is_as_large(plan)).unwrap_or(plan);
    values.iter().map(|value| of_pixel(value.plan)).collect()
}

/// The combinations of forms that are functions of one value.
fn combined(a: &[Form], binary: Binary, b: &[Form]) -> Vec<Form> {
    let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (a, b)));
    let made = pairs.filter_map(|(a, b)| match binary {
        Binary::Add => a.plus(b),
        Binary::Sub => a.plus(&b.scaled(-1.0)),
        Binary::Mul => a.times(b),
        Binary::Div => b.number().filter(|divisor| *divisor != 0.0).map(|divisor| a.scaled(1.0 / divisor)),
        Binary::Mod | Binary::Max | Binary::Min => None,
    });
    made.filter(|made| made.x().is_some()).collect()
}

/// The sum of a convolution or linear layer without bias and a number for each of its channels: its bias.
fn with_bias(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let (value, constant) = match (site.operand(0)?, site.operand(1)?) {
        (Value::Image(value), Value::Constant(constant))
        | (Value::Constant(constant), Value::Image(value)) => (*value, constant.clone()),
        _ => return Ok(None),
    };
    let planned = site.plans.get(value.plan);
    let channels = planned.channels;
    let is_bias = constant.is_per_channel(channels, value.flat);
    let op = match planned.op.as_deref() {
        Some(Op::Conv2d(conv)) if !conv.bias => {
            Op::Conv2d(tiled_graph::Conv2d { bias: true, ..conv.clone() })
        }
        Some(Op::ConvTranspose2d(conv)) if !conv.bias => {
            Op::ConvTranspose2d(tiled_graph::ConvTranspose2d { bias: true, ..conv.clone() })
        }
        Some(Op::Linear(linear)) if !linear.bias => {
            Op::Linear(tiled_graph::Linear { bias: true, ..linear.clone() })
        }
        _ => return Ok(None),
    };
    let Some(bias) = constant.reshaped(&[channels]).filter(|_| is_bias) else { return Ok(None) };
    let input = planned.inputs.first();
    let params: Vec<(ParamKind, Constant)> =
        planned.params.iter().cloned().chain([(ParamKind::Bias, bias)]).collect();
    let plan = site.add_with(op, input, params)?;
    // the layer without its bias is there for whoever else reads it
    site.plans.rename(plan, value.plan);
    Ok(Some(Value::Image(Image { plan, ..value })))
}
