//! Rules of what is computed in one pass over rows: softmax, layer norm, attention, cross-entropy.

use ndarray::{Axis, Ix1, Ix2, IxDyn};
use tiled_kernel::dense;
use tiled_kernel::dense::Update;
use tiled_tensor::Element;

use crate::error::Result;
use crate::op::{Attention, CrossEntropy, Op, Packed};
use crate::tape::flow::Flow;
use crate::tensor::{Kept, Tensor};
use crate::views::{ReadAll, matrix, reshaped, vector};

pub(super) fn softmax<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Softmax { kind, axis } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let (y, dy) = (flow.result()?, flow.dy()?);
    let context = dy.context();
    let read = ReadAll::of([&y, dy]);
    flow.write(0, |dx, update| {
        let (y, dy) = (read.view(0), read.view(1));
        context.share(dy.len(), || context.dense().softmax_backward(kind, y, dy, axis, dx, update));
        Ok(())
    })
}

/// What an operator has kept.
fn kept<T: Element, const N: usize>(flow: &mut Flow<'_, T>) -> [Tensor<T>; N] {
    match flow.kept() {
        Kept::Tensors(tensors) => std::array::from_fn(|at| tensors[at].clone()),
        _ => unreachable!("invariant: the operator keeps them"),
    }
}

pub(super) fn layer_norm<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::LayerNorm { epsilon, has } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let context = flow.dy()?.context();
    let [mean, deviation] = kept(flow);
    let rows = mean.elements();
    // of no rows the parameters say how long one is
    let of_all = flow.shape(0).iter().product::<usize>().checked_div(rows);
    let columns =
        of_all.unwrap_or_else(|| if flow.operands() > 1 { flow.shape(1).iter().product() } else { 0 });
    let x = reshaped(&flow.operand(0)?, &[rows, columns])?;
    let dy = reshaped(flow.dy()?, &[rows, columns])?;
    let gamma = if has[0] { Some(reshaped(&flow.operand(1)?, &[columns])?) } else { None };
    // γ and β stand behind x, as far as there are any
    let places = [has[0].then_some(1), has[1].then(|| 1 + usize::from(has[0]))];
    let mut sums: [Option<Tensor<T>>; 2] = [None, None];
    for (sum, place) in sums.iter_mut().zip(places) {
        if place.is_some_and(|place| flow.wants(place)) {
            *sum = Some(context.zeros(&[columns])?);
        }
    }
    {
        let read = ReadAll::of([&x, &dy, &mean, &deviation]);
        let gamma_values = gamma.as_ref().map(Tensor::values);
        let norm = dense::LayerNorm { epsilon, gamma: gamma_values.as_ref().map(vector), beta: None };
        let mut guards = sums.each_ref().map(|sum| sum.as_ref().map(|sum| (sum, sum.storage().write())));
        let parameters = guards.each_mut().map(|guard| {
            guard.as_mut().map(|(sum, memory)| {
                let view = sum.layout().view_mut(memory);
                view.into_dimensionality::<Ix1>().expect("invariant: it has one axis")
            })
        });
        let statistics =
            [2, 3].map(|at| read.view(at).into_dimensionality::<Ix1>().expect("invariant: one axis"));
        let run = |dx: Option<(ndarray::ArrayViewMut2<'_, T>, Update)>, parameters| {
            let (x, dy) = (matrix(read.view(0)), matrix(read.view(1)));
            let work = || context.dense().layer_norm_backward(&norm, x, statistics, dy, dx, parameters);
            context.share(rows * columns, work);
        };
        if flow.wants(0) {
            flow.write(0, |dx, update| {
                let dx =
                    dx.into_shape_with_order((rows, columns)).expect("invariant: a gradient has no gaps");
                run(Some((dx, update)), parameters);
                Ok(())
            })?;
        } else {
            run(None, parameters);
        }
    }
    for (sum, place) in sums.into_iter().zip(places) {
        if let (Some(sum), Some(place)) = (sum, place) {
            let layout = sum
                .layout()
                .reshaped(flow.shape(place))
                .expect("invariant: without gaps any shape is a view");
            flow.pass(place, sum.into_seen_as(layout))?;
        }
    }
    Ok(())
}

pub(super) fn attention<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let &Op::Attention(attention) = flow.op() else { unreachable!("invariant: the table pairs them") };
    if let Some(packed) = attention.packed {
        return packed_attention(flow, attention, packed);
    }
    let dy = flow.dy()?;
    let context = dy.context();
    let [log_sums] = kept(flow);
    let (q, k, v, y) = (flow.operand(0)?, flow.operand(1)?, flow.operand(2)?, flow.result()?);
    let mask = attention.has_mask.then(|| flow.operand(3)).transpose()?;
    let destinations = [flow.destination(0)?, flow.destination(1)?, flow.destination(2)?];
    {
        let read = ReadAll::of([&q, &k, &v, &y, dy, &log_sums, mask.as_ref().unwrap_or(&q)]);
        let mut guards = destinations
            .each_ref()
            .map(|to| to.as_ref().map(|(to, update)| (to, to.storage().write(), *update)));
        let gradients = guards
            .each_mut()
            .map(|guard| guard.as_mut().map(|(to, memory, update)| (to.layout().view_mut(memory), *update)));
        let spec = dense::Attention {
            scale: attention.scale,
            causal: attention.causal,
            mask: mask.as_ref().map(|_| read.view(6)),
        };
        let log_sums = read.view(5).into_dimensionality::<Ix2>().expect("invariant: it has two axes");
        let qkv = [read.view(0), read.view(1), read.view(2)];
        let work = || {
            context.dense().attention_backward(&spec, qkv, read.view(3), log_sums, read.view(4), gradients)
        };
        context.share(usize::MAX, work);
    }
    for (operand, destination) in destinations.into_iter().enumerate() {
        flow.settle(operand, destination)?;
    }
    Ok(())
}

/// The gradients of queries, keys and values as parts of one.
fn packed_attention<T: Element>(flow: &mut Flow<'_, T>, attention: Attention, packed: Packed) -> Result<()> {
    let dy = flow.dy()?;
    let context = dy.context();
    let [log_sums] = kept(flow);
    let (all, y) = (flow.operand(0)?, flow.result()?);
    let mask = attention.has_mask.then(|| flow.operand(1)).transpose()?;
    let parts = [0, 1, 2].map(|part| packed.part(all.layout(), part));
    flow.write(0, |to, update| {
        let read = ReadAll::of([&all, &y, dy, &log_sums, mask.as_ref().unwrap_or(&all)]);
        let spec = dense::Attention {
            scale: attention.scale,
            causal: attention.causal,
            mask: mask.as_ref().map(|_| read.view(4)),
        };
        let [first, second, width] = *to.shape() else { unreachable!("invariant: it has three axes") };
        let split = [first, second, 3, packed.heads, width / 3 / packed.heads];
        let to = to.into_shape_with_order(IxDyn(&split)).expect("invariant: a gradient has no gaps");
        let (queries, others) = to.split_at(Axis(2), 1);
        let (keys, values) = others.split_at(Axis(2), 1);
        let gradients = [queries, keys, values].map(|part| {
            let part = part.index_axis_move(Axis(2), 0).permuted_axes(IxDyn(&packed.order()));
            Some((part, update))
        });
        let log_sums = read.view(3).into_dimensionality::<Ix2>().expect("invariant: it has two axes");
        let qkv = parts.each_ref().map(|part| read.view_as(0, part));
        let (y, dy) = (packed.by_heads(*y.layout()), packed.by_heads(*dy.layout()));
        let (y, dy) = (read.view_as(1, &y), read.view_as(2, &dy));
        let work = || context.dense().attention_backward(&spec, qkv, y, log_sums, dy, gradients);
        context.share(usize::MAX, work);
        Ok(())
    })
}

pub(super) fn cross_entropy<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let Op::CrossEntropy(of) = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    let context = dy.context();
    let [log_sums] = kept(flow);
    let x = flow.operand(0)?;
    let besides = (1..flow.operands()).map(|operand| flow.operand(operand)).collect::<Result<Vec<_>>>()?;
    let read = ReadAll::of([&x, &log_sums, dy]);
    flow.write(0, |dx, update| {
        let (rows, dx) = (read.view(0), dx.into_dimensionality::<Ix2>().expect("invariant: it has two axes"));
        let of_rows =
            [1, 2].map(|at| read.view(at).into_dimensionality::<Ix1>().expect("invariant: one axis"));
        with_targets(of, &besides, |spec, targets| {
            let x = matrix(rows);
            let work = || context.dense().cross_entropy_backward(spec, x, targets, of_rows, dx, update);
            context.share(dy.elements().saturating_mul(16), work);
        });
        Ok(())
    })
}

/// Runs something with weights and targets, which are the operands besides x, as the kernels read them.
pub(crate) fn with_targets<T: Element, R>(
    of: &CrossEntropy,
    besides: &[Tensor<T>],
    run: impl FnOnce(&dense::CrossEntropy<'_, T>, &dense::Targets<'_, T>) -> R,
) -> R {
    let weights = besides.first().filter(|_| of.has_weights).map(Tensor::values);
    let spec = dense::CrossEntropy {
        ignore: of.ignore,
        smoothing: of.smoothing,
        weights: weights.as_ref().map(vector),
    };
    match &of.classes {
        Some(classes) => run(&spec, &dense::Targets::Classes(classes.view())),
        None => {
            let probabilities = besides.last().expect("invariant: they are the last operand");
            let values = probabilities.values();
            run(&spec, &dense::Targets::Probabilities(matrix(values.view())))
        }
    }
}
