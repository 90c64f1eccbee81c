//! Attention by blocks of keys.

use ndarray::{ArrayD, ArrayViewD, ArrayViewMut2, ArrayViewMutD, Ix2};
use tiled_kernel::dense;
use tiled_tensor::Element;

use crate::context::Context;
use crate::error::{Result, TapeError};
use crate::layout::broadcast;
use crate::op::{Attention, Op, Packed};
use crate::tape::record::Step;
use crate::tensor::Kept;
use crate::tensor::Tensor;
use crate::views::ReadAll;

/// What attention does with products of queries and keys. The default neither hides a key nor drops any.
#[derive(Clone, Debug, Default)]
pub struct AttentionOptions<T: Element> {
    /// Which keys a query sees: false hides one. It broadcasts to …×L×S.
    pub mask: Option<ArrayD<bool>>,
    /// Summands of the products, which broadcast to …×L×S; −∞ hides a key. They have no gradient.
    pub summands: Option<Tensor<T>>,
    /// Whether query i sees keys 0 to i alone.
    pub causal: bool,
    /// The factor of the products; `1/√E` where not given.
    pub scale: Option<f64>,
    /// The share of probabilities that are dropped.
    pub dropout: f64,
}

const OPERATOR: &str = "scaled_dot_product_attention";

/// `softmax(scale·q·kᵀ + mask)·v`: q is …×L×E, k …×S×E, v …×S×F, the result …×L×F. At most two axes before the last two. A query all
/// of whose keys are hidden has the result zero, and no gradient.
///
/// # Errors
/// Where shapes do not fit, where the mask needs a gradient, where the share that is dropped is not from 0 to 1, and where memory is
/// refused.
pub fn scaled_dot_product_attention<T: Element>(
    [q, k, v]: [&Tensor<T>; 3],
    options: &AttentionOptions<T>,
) -> Result<Tensor<T>> {
    attend([q, k, v], options, false).map(|(result, _)| result)
}

/// The same with the probabilities, the mean over the second axis of four, where they are wanted: N×L×S, without a gradient.
pub(crate) fn attend<T: Element>(
    qkv: [&Tensor<T>; 3],
    options: &AttentionOptions<T>,
    wants_weights: bool,
) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
    let [q, k, v] = qkv;
    let axes = q.axes();
    let fits = (2..=4).contains(&axes)
        && k.axes() == axes
        && v.axes() == axes
        && q.shape()[axes - 1] == k.shape()[axes - 1]
        && k.shape()[axes - 2] == v.shape()[axes - 2];
    if !fits {
        let first = if k.axes() == axes { k } else { q };
        let other = if std::ptr::eq(first, k) && k.axes() == v.axes() && q.axes() == axes { v } else { k };
        let (a, b) = (q.shape().last().copied().unwrap_or(0), other.shape().last().copied().unwrap_or(0));
        return Err(TapeError::Inner {
            operator: OPERATOR,
            a,
            b,
            first: q.shape().into(),
            second: other.shape().into(),
        });
    }
    let batch = |x: &Tensor<T>| x.shape()[..axes - 2].to_vec();
    let lead = broadcast(OPERATOR, &broadcast(OPERATOR, &batch(q), &batch(k))?, &batch(v))?;
    let four: Vec<usize> = std::iter::repeat_n(1, 2 - lead.len()).chain(lead.iter().copied()).collect();
    let lift = |x: &Tensor<T>| -> Result<Tensor<T>> {
        let shape = [four.as_slice(), &x.shape()[axes - 2..]].concat();
        let own = [vec![1; 4 - axes], x.shape().to_vec()].concat();
        let lifted = x.reshape(&own)?;
        if lifted.shape() == shape { Ok(lifted) } else { lifted.expand(&shape) }
    };
    let [q, k, v] = [lift(q)?, lift(k)?, lift(v)?];
    let (queries, keys, width) = (q.shape()[2], k.shape()[2], v.shape()[3]);
    let shape = [four[0], four[1], queries, keys];
    if !(0.0..=1.0).contains(&options.dropout) {
        let (operator, attribute, expected) = (OPERATOR, "dropout", "a number from 0 to 1");
        return Err(TapeError::Attribute { operator, attribute, expected, got: options.dropout });
    }
    let mask = summands(q.context(), options, &shape)?;
    #[expect(clippy::cast_precision_loss, reason = "heads are narrow")]
    let scale = options.scale.unwrap_or_else(|| 1.0 / (q.shape()[3] as f64).sqrt());
    let (y, weights) = if options.dropout > 0.0 {
        apart([&q, &k, &v], scale, options, mask.as_ref(), wants_weights)?
    } else {
        let spec = Attention { scale, causal: options.causal, has_mask: mask.is_some(), packed: None };
        fused([&q, &k, &v], mask.as_ref(), spec, wants_weights)?
    };
    Ok((y.reshape(&[lead.as_slice(), &[queries, width]].concat())?, weights))
}

/// Attention of a sequence to itself, of several heads, from queries, keys and values as one projection gives them, without gaps: A×B×3E. The
/// result is A×B×E, and gradients are written where the projection reads them: nothing is copied. Nothing is dropped.
///
/// # Errors
/// Where the mask needs a gradient, and where memory is refused.
pub(crate) fn attend_packed<T: Element>(
    all: &Tensor<T>,
    packed: Packed,
    options: &AttentionOptions<T>,
    wants_weights: bool,
) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
    let context = all.context();
    let parts = [0, 1, 2].map(|part| packed.part(all.layout(), part));
    let [n, h, l, depth] = *parts[0].shape() else { unreachable!("invariant: it has four axes") };
    let mask = summands(context, options, &[n, h, l, l])?;
    let (causal, has_mask) = (options.causal, mask.is_some());
    #[expect(clippy::cast_precision_loss, reason = "heads are narrow")]
    let scale = options.scale.unwrap_or_else(|| 1.0 / (depth as f64).sqrt());
    let operands: Vec<&Tensor<T>> = std::iter::once(all).chain(&mask).collect();
    let step = Step::begin(OPERATOR, &operands)?;
    let y = context.empty(OPERATOR, &[all.shape()[0], all.shape()[1], h * depth])?;
    let spec = Attention { scale, causal, has_mask, packed: Some(packed) };
    let (log_sums, weights) = {
        let read = ReadAll::of([all, mask.as_ref().unwrap_or(all)]);
        let spec = dense::Attention { scale, causal, mask: mask.as_ref().map(|_| read.view(1)) };
        let qkv = parts.each_ref().map(|part| read.view_as(0, part));
        compute(
            context,
            &spec,
            qkv,
            packed.by_heads(*y.layout()).view_mut(&mut y.storage().write()),
            wants_weights,
        )?
    };
    let y = step.finish_keeping(|| (Op::Attention(spec), Kept::Tensors(vec![log_sums])), y);
    Ok((y, weights))
}

/// Both masks as summands, repeated to the shape of the products.
fn summands<T: Element>(
    context: &Context<T>,
    options: &AttentionOptions<T>,
    shape: &[usize; 4],
) -> Result<Option<Tensor<T>>> {
    let mut sum = match &options.summands {
        Some(summands) if summands.requires_grad() => {
            return Err(TapeError::NoGradient { operator: OPERATOR, what: "the mask" });
        }
        summands => summands.clone(),
    };
    if let Some(mask) = &options.mask {
        let hidden = context.full(&[], f64::NEG_INFINITY)?;
        let other = if let Some(sum) = sum { sum } else { context.zeros(&[])? };
        sum = Some(other.where_mask(mask, &hidden)?);
    }
    sum.map(|sum| sum.expand(shape)).transpose()
}

fn fused<T: Element>(
    qkv: [&Tensor<T>; 3],
    mask: Option<&Tensor<T>>,
    attention: Attention,
    wants_weights: bool,
) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
    let operands: Vec<&Tensor<T>> = qkv.into_iter().chain(mask).collect();
    let step = Step::begin(OPERATOR, &operands)?;
    let [q, k, v] = qkv;
    let context = q.context();
    let [n, h, l, _] = *q.shape() else { unreachable!("invariant: it was lifted to four axes") };
    let y = context.empty(OPERATOR, &[n, h, l, v.shape()[3]])?;
    let (log_sums, weights) = {
        let read = ReadAll::of([q, k, v, mask.unwrap_or(q)]);
        let spec = dense::Attention {
            scale: attention.scale,
            causal: attention.causal,
            mask: mask.map(|_| read.view(3)),
        };
        let qkv = [read.view(0), read.view(1), read.view(2)];
        compute(context, &spec, qkv, y.layout().view_mut(&mut y.storage().write()), wants_weights)?
    };
    let y = step.finish_keeping(|| (Op::Attention(attention), Kept::Tensors(vec![log_sums])), y);
    Ok((y, weights))
}

/// Writes the result; returns the logarithm of each row's sum and, where they are wanted, the probabilities.
fn compute<T: Element>(
    context: &Context<T>,
    spec: &dense::Attention<'_, T>,
    [q, k, v]: [ArrayViewD<'_, T>; 3],
    mut y: ArrayViewMutD<'_, T>,
    wants_weights: bool,
) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
    let [n, h, l, width] = *y.shape() else { unreachable!("invariant: it has four axes") };
    let s = k.shape()[2];
    let log_sums = context.empty(OPERATOR, &[n * h, l])?;
    let weights = if wants_weights { Some(context.empty(OPERATOR, &[n, l, s])?) } else { None };
    {
        let mut memory = log_sums.storage().write();
        let two = "invariant: it has two axes";
        let mut sums = log_sums.layout().view_mut(&mut memory).into_dimensionality::<Ix2>().expect(two);
        let work = n.saturating_mul(h).saturating_mul(l).saturating_mul(s).saturating_mul(width) / 16;
        let qkv = [q.view(), k.view(), v];
        context.share(work, || context.dense().attention(spec, qkv, y.view_mut(), sums.view_mut()));
        clear_hidden(spec, s, y, sums.view_mut());
        if let Some(weights) = &weights {
            let mut memory = weights.storage().write();
            let to = weights.layout().view_mut(&mut memory);
            context.share(work, || context.dense().attention_weights(spec, [q, k], sums.view(), to));
        }
    }
    Ok((log_sums, weights))
}

/// Makes the results of queries zero all of whose keys are hidden. With a sum of ∞ their probabilities are zero as well, backward too.
fn clear_hidden<T: Element>(
    spec: &dense::Attention<'_, T>,
    keys: usize,
    mut y: ArrayViewMutD<'_, T>,
    mut log_sums: ArrayViewMut2<'_, T>,
) {
    let heads = y.shape()[1];
    for ((row, i), sum) in log_sums.indexed_iter_mut() {
        if sum.abs() < -T::NEG_INFINITY {
            continue;
        }
        let (n, h) = (row / heads, row % heads);
        let seen = if spec.causal { keys.min(i + 1) } else { keys };
        let is_hidden = |j: usize| {
            spec.mask.as_ref().is_some_and(|mask| mask[[n, h, i, j].as_slice()] == T::NEG_INFINITY)
        };
        if (0..seen).all(is_hidden) {
            *sum = -T::NEG_INFINITY;
            for f in 0..y.shape()[3] {
                y[[n, h, i, f].as_slice()] = T::ZERO;
            }
        }
    }
}

/// The same from its parts, whose probabilities can be dropped.
fn apart<T: Element>(
    [q, k, v]: [&Tensor<T>; 3],
    scale: f64,
    options: &AttentionOptions<T>,
    mask: Option<&Tensor<T>>,
    wants_weights: bool,
) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
    let mut scores = (q * scale)?.matmul(&k.transpose(-1, -2)?)?;
    if let Some(mask) = mask {
        scores = (&scores + mask)?;
    }
    if options.causal {
        let (l, s) = (q.shape()[2], k.shape()[2]);
        let hidden = ArrayD::from_shape_fn(vec![l, s], |at| at[1] > at[0]);
        scores = scores.masked_fill(&hidden, f64::NEG_INFINITY)?;
    }
    let probabilities = seen_softmax(&scores)?.dropout(options.dropout, true)?;
    let weights = if wants_weights { Some(probabilities.mean(&[1], false)?) } else { None };
    Ok((probabilities.matmul(v)?, weights))
}

/// Softmax over the last axis; a row of −∞ alone, all of whose keys are hidden, has probabilities of zero.
pub(crate) fn seen_softmax<T: Element>(scores: &Tensor<T>) -> Result<Tensor<T>> {
    if scores.elements() == 0 {
        return scores.softmax(-1);
    }
    let hidden = scores.detach().max(&[-1], true)?.mask(|largest| largest == T::NEG_INFINITY);
    if !hidden.iter().any(|hidden| *hidden) {
        return scores.softmax(-1);
    }
    // what softmax makes of such a row is not a number, and so is its gradient
    scores.masked_fill(&hidden, 0.0)?.softmax(-1)?.masked_fill(&hidden, 0.0)
}
