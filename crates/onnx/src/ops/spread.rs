//! Values of one row or one column, N×C×1×W and N×C×H×1, in arithmetic with values of all rows and columns, to which they are repeated.

use tiled_graph::{Op, PadTarget, PadTo, PadWith, Placement, ResizeMode, Upsample, UpsampleTo, ValueId};

use crate::Reason;
use crate::import::plan::Plans;
use crate::import::site::{Site, node_name};
use crate::import::value::Image;

/// Repeats values of one row or one column where others have more, so that each is as large as the others or of one pixel, which
/// operators of elements spread by themselves.
pub(super) fn spread(site: &mut Site<'_>, values: &mut [Image]) -> Result<(), Reason> {
    for place in 0..values.len() {
        if let Some(line) = expanded(site.plans, values, place) {
            values[place].plan = line;
        }
    }
    let ones: Vec<[bool; 2]> = values.iter().map(|value| ones(site.plans, value.plan)).collect();
    let first = |fits: &dyn Fn(&[bool; 2]) -> bool| Some(values[ones.iter().position(fits)?].plan);
    let whole = first(&|ones| *ones == [false; 2]);
    let large = [0, 1].map(|place| whole.or_else(|| first(&|ones| !ones[place])));
    for (value, ones) in values.iter_mut().zip(&ones) {
        let across = match ones {
            [true, false] => 0,
            [false, true] => 1,
            _ => continue,
        };
        if let Some(large) = large[across] {
            value.plan = repeated(site, value.plan, across, large)?;
        }
    }
    Ok(())
}

/// The value of one row or one column of which a value is made by repeating it to a size, where another value has that size of its own.
fn expanded(plans: &Plans, values: &[Image], place: usize) -> Option<usize> {
    let line = |plan: usize| match plans.get(plan).op.as_deref() {
        Some(Op::Upsample(Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Size(_) })) => {
            let line = plans.get(plan).inputs.first();
            let is_repeated = match ones(plans, line) {
                [true, false] => plans.are_as_long(line, plan, 3),
                [false, true] => plans.are_as_long(line, plan, 2),
                _ => false,
            };
            is_repeated.then_some(line)
        }
        _ => None,
    };
    let plan = values[place].plan;
    let is_whole = |value: &Image| line(value.plan).is_none() && plans.are_as_large(value.plan, plan);
    line(plan).filter(|_| values.iter().any(is_whole))
}

/// Whether a value has one row, and whether it has one column.
fn ones(plans: &Plans, plan: usize) -> [bool; 2] {
    [2, 3].map(|axis| plans.is_one(plan, axis))
}

/// A value of one row (0) or one column (1), repeated to as many as another value has.
fn repeated(site: &mut Site<'_>, plan: usize, across: usize, large: usize) -> Result<usize, Reason> {
    let of = if across == 0 { [large, plan] } else { [plan, large] };
    let wanted = [site.plans.extent(of[0], 2), site.plans.extent(of[1], 3)];
    let op = if !site.plans.is_always_one(plan, across + 2) {
        let Some(extents) = site.plans.get(large).extents else {
            return Err(Reason::OpenSize { what: "how often a row or a column is repeated" });
        };
        nearest(as_declared(across, extents[across] as f64))
    } else if site.plans.are_as_long(plan, large, 3 - across) {
        nearest(UpsampleTo::Like(ValueId(large)))
    } else if let Some(like) = site.plans.like(wanted) {
        nearest(UpsampleTo::Like(ValueId(like)))
    } else {
        // as large as no value that is known to be
        let (to, placement) = (PadTarget::Like(of.map(ValueId)), Placement::After);
        Op::PadTo(PadTo { to, placement, with: PadWith::Replicate })
    };
    let name = format!("{}.repeated", node_name(site.node));
    site.plans.node(&name, op, vec![plan], Vec::new())
}

fn nearest(to: UpsampleTo) -> Op {
    Op::Upsample(Upsample { mode: ResizeMode::NEAREST, to })
}

/// So many times the one row or column that a value has as the model declares it: at another size it has more, and what is made of
/// it is as large as no other value.
pub(super) const fn as_declared(across: usize, times: f64) -> UpsampleTo {
    UpsampleTo::Scale(if across == 0 { [times, 1.0] } else { [1.0, times] })
}
