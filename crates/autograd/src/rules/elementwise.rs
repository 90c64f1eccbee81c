//! Rules of functions of elements and of reductions.

use ndarray::Axis;
use tiled_kernel::dense::{Binary, Direction, Saves, Side, Unary, Update};
use tiled_tensor::Element;

use super::fold::fold_into;
use crate::error::Result;
use crate::op::Op;
use crate::tape::flow::Flow;
use crate::tensor::Kept;
use crate::views::ReadAll;

pub(super) fn map<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Map(f) = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    if f == Unary::Identity {
        return flow.pass(0, dy.clone());
    }
    let saved = match f.saves() {
        Saves::Nothing => dy.clone(),
        Saves::Input => flow.operand(0)?,
        Saves::Output => flow.result()?,
    };
    let context = dy.context();
    flow.write(0, |dx, update| {
        let read = ReadAll::of([&saved, dy]);
        let (saved, dy) = (read.view(0), read.view(1));
        context.share(dy.len(), || context.dense().map_backward(f, saved, dy, dx, update));
        Ok(())
    })
}

pub(super) fn zip<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Zip(f) = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    let context = dy.context();
    for (operand, side) in [Side::First, Side::Second].into_iter().enumerate() {
        if !flow.wants(operand) {
            continue;
        }
        let passes = f == Binary::Add || f == Binary::Sub && side == Side::First;
        if passes && flow.shape(operand) == dy.shape() {
            flow.pass(operand, dy.clone())?;
            continue;
        }
        let needs = f.saves(side);
        let a = if needs[0] { flow.operand(0)? } else { dy.clone() };
        let b = if needs[1] { flow.operand(1)? } else { dy.clone() };
        flow.write(operand, |mut dx, update| {
            let read = ReadAll::of([&a, &b, dy]);
            let shape = dy.shape();
            while dx.ndim() < shape.len() {
                dx.insert_axis_inplace(Axis(0));
            }
            let operand = |at: usize| needs[at].then(|| read.expanded(at, shape));
            let (operands, dy) = ([operand(0), operand(1)], read.view(2));
            context.share(dy.len(), || context.dense().zip_backward(f, side, operands, dy, dx, update));
            Ok(())
        })?;
    }
    Ok(())
}

pub(super) fn choose<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let Op::Where(mask) = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    let context = dy.context();
    let zero = context.zeros(&[])?;
    for operand in 0..2 {
        if !flow.wants(operand) {
            continue;
        }
        let shape = dy.shape();
        // where the operand was repeated, its gradient is a sum of what was chosen
        let is_repeated = flow.shape(operand) != shape;
        let temporary = if is_repeated { Some(context.empty("where", shape)?) } else { None };
        let choose = |dx: ndarray::ArrayViewMutD<'_, T>, update| {
            let read = ReadAll::of([dy, &zero]);
            let (dy, zero) = (read.view(0), read.expanded(1, shape));
            let mask = mask.broadcast(shape).expect("invariant: the shapes were broadcast");
            let (a, b) = if operand == 0 { (dy, zero) } else { (zero, dy) };
            context.share(mask.len(), || context.dense().select(mask, a, b, dx, update));
        };
        match temporary {
            None => flow.write(operand, |dx, update| {
                choose(dx, update);
                Ok(())
            })?,
            Some(chosen) => {
                choose(chosen.layout().view_mut(&mut chosen.storage().write()), Update::Replace);
                let values = chosen.values();
                flow.write(operand, |dx, update| {
                    fold_into(context, values.view(), dx, update);
                    Ok(())
                })?;
            }
        }
    }
    Ok(())
}

pub(super) fn reduce<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Reduce { scale, .. } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    let context = dy.context();
    let shape = flow.shape(0);
    // the result keeps reduced axes with one element
    let repeated = dy.layout().expanded(shape).expect("invariant: a result of one element repeats");
    #[expect(clippy::float_cmp, reason = "a sum is scaled by exactly one")]
    if scale == 1.0 {
        return flow.pass(0, dy.seen_as(repeated));
    }
    // scaled before it is repeated
    let scaled = context.filled_by("mean", dy.shape(), |to| {
        let f = Unary::Affine { factor: scale, summand: 0.0 };
        context.dense().map(f, dy.values().view(), to, Update::Replace);
    })?;
    let repeated = scaled.layout().expanded(shape).expect("invariant: a result of one element repeats");
    flow.pass(0, scaled.seen_as(repeated))
}

pub(super) fn extreme<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Extreme { axis, .. } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    let context = dy.context();
    let Kept::Indices(places) = std::mem::replace(flow.kept(), Kept::Nothing) else {
        unreachable!("invariant: the operator keeps places")
    };
    let result = flow.add(0, |dx| {
        let values = dy.values();
        let scattered = context.dense().scatter_add(values.view(), axis, places.view(), dx);
        scattered.map_err(|source| crate::TapeError::Index { operator: "max", source })
    });
    *flow.kept() = Kept::Indices(places);
    result
}

pub(super) fn cumulate<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Cumulate { axis } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    let context = dy.context();
    flow.write(0, |dx, update| {
        let values = dy.values();
        let dy = values.view();
        let work = || context.dense().cumulate(dy.view(), axis, Direction::FromEnd, dx, update);
        context.share(dy.len(), work);
        Ok(())
    })
}
