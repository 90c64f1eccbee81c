//! Values beside each other along rows or columns.
//!
//! The last rows before all of them and the first behind them are circular padding, as exporters write it before version 19, and as
//! models of panoramas and of the globe write it by hand. Other values each get zeros where the others are, and are added.

use tiled_graph::{Elementwise, Op, Pad, PadWith};

use super::arithmetic::of_values;
use crate::Reason;
use crate::import::site::{Site, is_small, node_name};
use crate::import::value::{End, Image, Side, Value};

/// Values one after another along rows or columns; `None` of another axis, and of values of two axes.
pub(super) fn joined(site: &mut Site<'_>, axis: i64) -> Result<Option<Value>, Reason> {
    let axis = if axis < 0 { axis.saturating_add(4) } else { axis };
    let is_flat = matches!(site.value(0), Ok(Image { flat: true, .. }));
    if !matches!(axis, 2 | 3) || site.operands.is_empty() || is_flat {
        return Ok(None);
    }
    if let Some(pad) = circular(site, axis) {
        let (plan, padding) = pad;
        let plan = site.add(Op::Pad(Pad { padding, with: PadWith::Circular }), vec![plan])?;
        return Ok(Some(Value::Image(Image { plan, flat: false })));
    }
    let mut plans = Vec::new();
    for position in 0..site.operands.len() {
        let plan = site.image(position)?;
        plans.push(plan);
        let [first, this] = [plans[0], plan].map(|plan| site.plans.get(plan).channels);
        if first != this {
            let (expected, got) = ("as many channels as the first", format!("{this}, not {first}"));
            return Err(Reason::Operand { position, expected, got });
        }
    }
    match plans.as_slice() {
        [plan] => Ok(Some(Value::Image(Image { plan: *plan, flat: false }))),
        _ => added(site, axis, &plans).map(Some),
    }
}

/// The value whose ends these are, and how much of them is shown before and behind it; `None` of other operands.
fn circular(site: &Site<'_>, axis: i64) -> Option<(usize, [[i64; 2]; 2])> {
    let values: Vec<&Value> = site.operands.iter().map(Option::as_ref).collect::<Option<_>>()?;
    let of_whole = |value: &Value| match value {
        Value::Image(Image { plan, flat: false }) => Some(*plan),
        _ => None,
    };
    let pairs = |before: Option<&Value>, value: &Value, after: Option<&Value>| {
        let plan = of_whole(value)?;
        let shown = |end: Option<&Value>, side| end.map_or(Some(0), |end| shown(site, plan, axis, end, side));
        let sides = [shown(before, Side::Last)?, shown(after, Side::First)?];
        Some((plan, if axis == 2 { [sides, [0, 0]] } else { [[0, 0], sides] }))
    };
    match values.as_slice() {
        [before, value, after] => pairs(Some(before), value, Some(after)),
        [a, b] => pairs(Some(a), b, None).or_else(|| pairs(None, a, Some(b))),
        _ => None,
    }
}

/// How many rows or columns at this end of a value another one is; `None` where it is no such end.
fn shown(site: &Site<'_>, of: usize, axis: i64, value: &Value, side: Side) -> Option<i64> {
    let plan = match *value {
        Value::End(End { plan, axis: along, side: at, count }) => {
            return ((plan, along, at) == (of, axis, side)).then_some(count);
        }
        Value::Image(Image { plan, flat: false }) => plan,
        _ => return None,
    };
    let planned = site.plans.get(plan);
    let Op::Pad(Pad { padding, with: PadWith::Constant(_) }) = planned.op.as_deref()? else { return None };
    let place = usize::from(axis == 3);
    let extent = i64::try_from(site.plans.get(of).extents?[place]).ok()?;
    let [before, after] = padding[place];
    let (cut, kept) = match side {
        Side::First => (after, before),
        Side::Last => (before, after),
    };
    let is_end = planned.inputs.first() == of && padding[1 - place] == [0, 0] && kept == 0 && cut < 0;
    is_end.then(|| extent + cut)
}

/// Each value with zeros where the others are, in a sum: but for the sign of a zero what they are beside each other.
fn added(site: &mut Site<'_>, axis: i64, plans: &[usize]) -> Result<Value, Reason> {
    const OPEN: Reason = Reason::OpenSize { what: "where the values lie beside each other" };
    let (along, across) = if axis == 2 { (0, 1) } else { (1, 0) };
    let (mut sizes, mut wanted) = (Vec::new(), None);
    for (position, plan) in plans.iter().enumerate() {
        let extents = site.plans.get(*plan).extents.ok_or(OPEN)?;
        let first = *wanted.get_or_insert(extents[across]);
        if first != extents[across] {
            let expected =
                if across == 1 { "as many columns as the first" } else { "as many rows as the first" };
            let got = format!("{}, not {first}", extents[across]);
            return Err(Reason::Operand { position, expected, got });
        }
        sizes.push(i64::try_from(extents[along]).unwrap_or(i64::MAX));
    }
    let all = sizes.iter().fold(0_i64, |sum, size| sum.saturating_add(*size));
    if plans.len() > MOST || !is_small(all) {
        return site.wrong(0, "up to 64 values of fewer rows or columns");
    }
    let (mut before, mut values) = (0, Vec::new());
    for (place, (plan, size)) in plans.iter().zip(sizes).enumerate() {
        let mut padding = [[0; 2]; 2];
        padding[along] = [before, all - before - size];
        before += size;
        let (name, op) = (
            format!("{}.{place}", node_name(site.node)),
            Op::Pad(Pad { padding, with: PadWith::Constant(0.0) }),
        );
        values.push(Image { plan: site.plans.node(&name, op, vec![*plan], Vec::new())?, flat: false });
    }
    of_values(site, Elementwise::Add, &values).map(Value::Image)
}

/// The values that are added at most: each is as large as all of them.
const MOST: usize = 64;
