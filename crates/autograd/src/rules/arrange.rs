//! Rules of what moves elements: their gradients are views of the gradient after them.

use ndarray::{Axis, Slice};
use tiled_kernel::dense::{Unary, Update};
use tiled_tensor::Element;

use super::fold::fold_into;
use crate::error::Result;
use crate::op::Op;
use crate::tape::flow::Flow;
use crate::views::reshaped;

pub(super) fn reshape<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let dy = flow.dy()?;
    let gradient = reshaped(dy, flow.shape(0))?;
    flow.pass(0, gradient)
}

pub(super) fn permute<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let Op::Permute(order) = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    let mut back = [0; crate::layout::MAX_AXES];
    for (axis, from) in order[..dy.axes()].iter().enumerate() {
        back[*from] = axis;
    }
    flow.pass(0, dy.seen_as(dy.layout().permuted(&back[..dy.axes()])))
}

pub(super) fn expand<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let dy = flow.dy()?;
    if flow.shape(0) == dy.shape() {
        return flow.pass(0, dy.clone());
    }
    flow.write(0, |dx, update| {
        fold_into(dy.context(), dy.values().view(), dx, update);
        Ok(())
    })
}

pub(super) fn slice<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Slice { axis, begin, end, step } = flow.op() else {
        unreachable!("invariant: the table pairs them")
    };
    let dy = flow.dy()?;
    let context = dy.context();
    let is_whole = (begin, step) == (0, 1) && end == flow.shape(0)[axis];
    if is_whole {
        return flow.pass(0, dy.clone());
    }
    // only its own part is touched, so that a value cut into many parts costs no more than one
    flow.write(0, |mut dx, update| {
        if update == Update::Replace {
            dx.fill(T::ZERO);
        }
        let part = Slice::new(begin.cast_signed(), Some(end.cast_signed()), step.cast_signed());
        dx.slice_axis_inplace(Axis(axis), part);
        let values = dy.values();
        let dy = values.view();
        context.share(dy.len(), || context.dense().map(Unary::Identity, dy, dx, update));
        Ok(())
    })
}

pub(super) fn flip<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Flip { axis } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    flow.pass(0, dy.seen_as(dy.layout().flipped(axis)))
}

pub(super) fn pad<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let Op::Pad { before } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    let mut layout = *dy.layout();
    for (axis, (before, extent)) in before.iter().zip(flow.shape(0)).enumerate() {
        layout = layout.sliced(axis, *before, before + extent, 1);
    }
    flow.pass(0, dy.seen_as(layout))
}

pub(super) fn concat<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Concat { axis } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    let mut begin = 0;
    for operand in 0..flow.operands() {
        let end = begin + flow.shape(operand)[axis];
        flow.pass(operand, dy.seen_as(dy.layout().sliced(axis, begin, end, 1)))?;
        begin = end;
    }
    Ok(())
}
