//! Rules of products.

use ndarray::{ArrayViewD, ArrayViewMutD, Axis};
use tiled_kernel::dense::{Product, Update};
use tiled_tensor::Element;

use super::fold::{SUM, fold_into};
use crate::error::Result;
use crate::layout::Layout;
use crate::op::Op;
use crate::tape::flow::Flow;
use crate::tensor::Tensor;
use crate::views::{ReadAll, repeated, rows};

/// The layout with its last two axes exchanged.
fn transposed(layout: &Layout) -> Layout {
    let axes = layout.axes();
    let mut order = [0; crate::layout::MAX_AXES];
    for (axis, from) in order.iter_mut().enumerate() {
        *from = axis;
    }
    order.swap(axes - 1, axes - 2);
    layout.permuted(&order[..axes])
}

pub(super) fn matmul<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let dy = flow.dy()?;
    if flow.wants(0) {
        let b = flow.operand(1)?;
        let layout = transposed(&repeated("matmul", b.layout(), dy.shape())?);
        one(flow, 0, [dy, &b], [*dy.layout(), layout])?;
    }
    if flow.wants(1) {
        let a = flow.operand(0)?;
        let layout = transposed(&repeated("matmul", a.layout(), dy.shape())?);
        one(flow, 1, [&a, dy], [layout, *dy.layout()])?;
    }
    Ok(())
}

/// The gradient of one operand: a product, summed over the matrices that were repeated.
fn one<T: Element>(
    flow: &mut Flow<'_, T>,
    operand: usize,
    factors: [&Tensor<T>; 2],
    [first, second]: [Layout; 2],
) -> Result<()> {
    let context = factors[0].context();
    let axes = first.axes();
    let mut shape = first.shape().to_vec();
    shape[axes - 1] = second.shape()[axes - 1];
    let read = ReadAll::of(factors);
    let product = |c: ArrayViewMutD<'_, T>, update| {
        let product =
            Product { a: read.view_as(0, &first), b: read.view_as(1, &second), bias: None, activation: None };
        let work = product.a.len() + product.b.len();
        context.share(work.saturating_mul(shape[axes - 1].min(64)), || {
            context.dense().product(&product, c, update)
        });
    };
    if flow.shape(operand) == shape {
        return flow.write(operand, |dx, update| {
            product(dx, update);
            Ok(())
        });
    }
    let all = context.filled_by("matmul", &shape, |c| product(c, Update::Replace))?;
    flow.write(operand, |dx, update| {
        fold_into(context, all.values().view(), dx, update);
        Ok(())
    })
}

pub(super) fn linear<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Linear { has_bias } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = rows(flow.dy()?)?;
    let context = dy.context();
    let run = |a: ArrayViewD<'_, T>, b: ArrayViewD<'_, T>, c: ArrayViewMutD<'_, T>, update| {
        let work = a.len().saturating_mul(b.shape()[1].min(64));
        let product = Product { a, b, bias: None, activation: None };
        context.share(work, || context.dense().product(&product, c, update));
    };
    if flow.wants(0) {
        let weight = flow.operand(1)?;
        let read = ReadAll::of([&dy, &weight]);
        flow.write(0, |dx, update| {
            let shape = [dy.shape()[0], weight.shape()[1]];
            let dx = dx.into_shape_with_order(shape).expect("invariant: a gradient has no gaps");
            run(read.view(0), read.view(1), dx.into_dyn(), update);
            Ok(())
        })?;
    }
    if flow.wants(1) {
        let x = rows(&flow.operand(0)?)?;
        let read = ReadAll::of([&dy, &x]);
        flow.write(1, |dw, update| {
            run(read.view(0).reversed_axes(), read.view(1), dw, update);
            Ok(())
        })?;
    }
    if has_bias {
        let values = dy.values();
        flow.write(2, |db, update| {
            let db = db.insert_axis(Axis(0));
            context.share(values.view().len(), || {
                context.dense().reduce(SUM, values.view(), T::ONE, db, update)
            });
            Ok(())
        })?;
    }
    Ok(())
}
