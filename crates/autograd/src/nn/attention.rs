//! Attention and the transformer's encoder.

use ndarray::ArrayD;
use tiled_kernel::Activation;
use tiled_tensor::Element;

use super::{Dropout, LayerNorm, Linear, Module, Training};
use crate::context::{Context, no_grad};
use crate::error::{Result, TapeError};
use crate::op::Packed;
use crate::ops::{AttentionOptions, attend, attend_packed, seen_softmax};
use crate::tensor::Tensor;

/// The options of [`MultiheadAttention`], with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MultiheadAttentionOptions {
    /// The share of probabilities that training drops.
    pub dropout: f64,
    /// Whether projections have a bias.
    pub bias: bool,
    /// The width of keys, where it is not that of queries.
    pub kdim: Option<usize>,
    /// The width of values, where it is not that of queries.
    pub vdim: Option<usize>,
    /// Whether inputs are N×L×E; else L×N×E.
    pub batch_first: bool,
}

impl Default for MultiheadAttentionOptions {
    fn default() -> Self {
        Self { dropout: 0.0, bias: true, kdim: None, vdim: None, batch_first: false }
    }
}

/// A mask as PyTorch's modules read it, L×S or N·heads×L×S.
#[derive(Clone, Debug)]
pub enum AttentionMask<T: Element> {
    /// True hides a key.
    Hidden(ArrayD<bool>),
    /// Summands of the products.
    Summands(Tensor<T>),
}

/// What a call of [`MultiheadAttention`] is given besides queries, keys and values.
#[derive(Clone, Debug, Default)]
pub struct AttentionCall<T: Element> {
    /// Keys of padding, N×S: true hides one.
    pub key_padding: Option<ArrayD<bool>>,
    /// What each query sees.
    pub mask: Option<AttentionMask<T>>,
    /// Whether probabilities are wanted, N×L×S, without a gradient.
    pub need_weights: bool,
    /// Whether they are those of each head, N×heads×L×S, and not their mean.
    pub weights_of_heads: bool,
}

/// Attention of several heads, as `torch.nn.MultiheadAttention`.
#[derive(Debug)]
pub struct MultiheadAttention<T: Element> {
    /// The projections of queries, keys and values, one above the other, where their widths are equal.
    pub in_proj_weight: Option<Tensor<T>>,
    /// That of queries, where they differ.
    pub q_proj_weight: Option<Tensor<T>>,
    /// That of keys.
    pub k_proj_weight: Option<Tensor<T>>,
    /// That of values.
    pub v_proj_weight: Option<Tensor<T>>,
    /// The bias of all three.
    pub in_proj_bias: Option<Tensor<T>>,
    /// The projection of the results.
    pub out_proj: Linear<T>,
    heads: usize,
    options: MultiheadAttentionOptions,
    training: Training,
}
crate::parts!(MultiheadAttention {
    in_proj_weight,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    in_proj_bias,
    out_proj,
    training
});

const OPERATOR: &str = "multihead_attention";

impl<T: Element> MultiheadAttention<T> {
    /// Projections of Glorot's uniform distribution, biases of zero.
    ///
    /// # Errors
    /// Where heads do not divide the width, and where memory is refused.
    pub fn new(
        context: &Context<T>,
        width: usize,
        heads: usize,
        options: MultiheadAttentionOptions,
    ) -> Result<Self> {
        if heads == 0 || !width.is_multiple_of(heads) {
            #[expect(clippy::cast_precision_loss, reason = "heads are few")]
            let got = heads as f64;
            let expected = "a divisor of the width";
            return Err(TapeError::Attribute { operator: OPERATOR, attribute: "heads", expected, got });
        }
        let glorot = |rows: usize, columns: usize| {
            #[expect(clippy::cast_precision_loss, reason = "widths are far below 2^53")]
            let bound = (6.0 / (rows + columns) as f64).sqrt();
            context.uniform(&[rows, columns], -bound, bound).and_then(Tensor::with_gradient)
        };
        let (keys, values) = (options.kdim.unwrap_or(width), options.vdim.unwrap_or(width));
        let is_one = keys == width && values == width;
        let of = |columns: usize| (!is_one).then(|| glorot(width, columns)).transpose();
        let zeros = |len: usize| context.zeros(&[len]).and_then(Tensor::with_gradient);
        let out = Linear::new(context, width, width, false)?;
        Ok(Self {
            in_proj_weight: is_one.then(|| glorot(3 * width, width)).transpose()?,
            q_proj_weight: of(width)?,
            k_proj_weight: of(keys)?,
            v_proj_weight: of(values)?,
            in_proj_bias: options.bias.then(|| zeros(3 * width)).transpose()?,
            out_proj: Linear { bias: options.bias.then(|| zeros(width)).transpose()?, ..out },
            heads,
            options,
            training: Training::default(),
        })
    }

    /// The results and, where they are wanted, the probabilities.
    ///
    /// # Errors
    /// Where shapes do not fit, and where memory is refused.
    pub fn attend(
        &self,
        query: &Tensor<T>,
        key: &Tensor<T>,
        value: &Tensor<T>,
        call: &AttentionCall<T>,
    ) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
        let axes = query.axes();
        if !(2..=3).contains(&axes) || key.axes() != axes || value.axes() != axes {
            let (what, expected) = ("the query", "2 or 3, as key and value");
            return Err(TapeError::Axes { operator: OPERATOR, what, expected, got: query.shape().into() });
        }
        let weights_of_heads = call.need_weights && call.weights_of_heads;
        if let Some(weight) = &self.in_proj_weight
            && query.is_one(key)
            && key.is_one(value)
            && axes == 3
            && !(weights_of_heads || self.drops())
        {
            let all = query.linear(weight, self.in_proj_bias.as_ref())?;
            let packed = Packed { heads: self.heads, batch_first: self.options.batch_first };
            let [first, second] = [query.shape()[0], query.shape()[1]];
            let (batch, places) = if packed.batch_first { (first, second) } else { (second, first) };
            let options = self.masks([batch, places, places], call)?;
            let (y, weights) = attend_packed(&all, packed, &options, call.need_weights)?;
            return Ok((self.out_proj.forward(&y)?, weights));
        }
        let projected = self.project(query, key, value)?;
        let mut heads = Vec::with_capacity(3);
        for x in &projected {
            heads.push(self.apart(x)?);
        }
        let [q, k, v] = [&heads[0], &heads[1], &heads[2]];
        let options = self.masks([q.shape()[0], q.shape()[2], k.shape()[2]], call)?;
        let (y, mut weights) = attend([q, k, v], &options, call.need_weights && !weights_of_heads)?;
        if weights_of_heads {
            weights = Some(probabilities(q, k, &options)?);
        }
        let [batch, _, queries, _] = *y.shape() else { unreachable!("invariant: it has four axes") };
        let width = self.out_proj.weight.shape()[1];
        let order: [isize; 4] =
            if self.options.batch_first || axes == 2 { [0, 2, 1, 3] } else { [2, 0, 1, 3] };
        let joined = match (axes, self.options.batch_first) {
            (2, _) => y.permute(&order)?.reshape(&[queries, width])?,
            (_, true) => y.permute(&order)?.reshape(&[batch, queries, width])?,
            (_, false) => y.permute(&order)?.reshape(&[queries, batch, width])?,
        };
        let weights = match weights {
            Some(weights) if axes == 2 => Some(weights.squeeze(&[0])?),
            weights => weights,
        };
        Ok((self.out_proj.forward(&joined)?, weights))
    }

    /// Queries, keys and values of all heads; one product where they come from one tensor.
    fn project(&self, query: &Tensor<T>, key: &Tensor<T>, value: &Tensor<T>) -> Result<Vec<Tensor<T>>> {
        let width = self.out_proj.weight.shape()[1];
        if let Some(weight) = &self.in_proj_weight
            && query.is_one(key)
            && key.is_one(value)
        {
            let all = query.linear(weight, self.in_proj_bias.as_ref())?;
            return all.split(-1, &[width; 3]);
        }
        let own = [&self.q_proj_weight, &self.k_proj_weight, &self.v_proj_weight];
        let mut projected = Vec::with_capacity(3);
        for (at, (x, own)) in [query, key, value].into_iter().zip(own).enumerate() {
            let part = |all: &Tensor<T>| all.slice(0, at * width, (at + 1) * width);
            let weight = match (own, &self.in_proj_weight) {
                (Some(own), _) => own.clone(),
                (None, Some(all)) => part(all)?,
                (None, None) => unreachable!("invariant: it has one or the other"),
            };
            let bias = self.in_proj_bias.as_ref().map(part).transpose()?;
            projected.push(x.linear(&weight, bias.as_ref())?);
        }
        Ok(projected)
    }

    /// Heads of their own: N×heads×L×width.
    fn apart(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        let batched = match (x.axes(), self.options.batch_first) {
            (2, true) => x.unsqueeze(0)?,
            (2, false) => x.unsqueeze(1)?,
            _ => x.clone(),
        };
        let &[first, second, width] = batched.shape() else { unreachable!("invariant: it has three axes") };
        let split = batched.reshape(&[first, second, self.heads, width / self.heads])?;
        split.permute(if self.options.batch_first { &[0, 2, 1, 3] } else { &[1, 2, 0, 3] })
    }

    /// Whether a share of probabilities is dropped, or one is named that has no meaning.
    fn drops(&self) -> bool {
        self.training.is_on() && self.options.dropout != 0.0
    }

    fn masks(
        &self,
        [batch, queries, keys]: [usize; 3],
        call: &AttentionCall<T>,
    ) -> Result<AttentionOptions<T>> {
        let fits = |what: &'static str, shape: &[usize], lead: usize, expected: [usize; 2]| {
            let whole = [batch * self.heads, expected[0], expected[1]];
            if shape == expected || lead == 1 && shape == whole {
                return Ok(());
            }
            let expected = expected.as_slice().into();
            Err(TapeError::Shape { operator: OPERATOR, what, expected, got: shape.into() })
        };
        let lift = |shape: &[usize]| match shape {
            [_, l, s] => vec![batch, self.heads, *l, *s],
            shape => shape.to_vec(),
        };
        let mut options = AttentionOptions::default();
        match &call.mask {
            Some(AttentionMask::Hidden(hidden)) => {
                fits("the mask", hidden.shape(), 1, [queries, keys])?;
                let seen = hidden.mapv(|hidden| !hidden);
                let lifted =
                    seen.to_shape(lift(hidden.shape())).expect("invariant: as many elements").to_owned();
                options.mask = Some(lifted);
            }
            Some(AttentionMask::Summands(summands)) => {
                fits("the mask", summands.shape(), 1, [queries, keys])?;
                options.summands = Some(summands.reshape(&lift(summands.shape()))?);
            }
            None => {}
        }
        if let Some(padding) = &call.key_padding {
            let own = match *padding.shape() {
                [keys] => vec![1, keys],
                _ => padding.shape().to_vec(),
            };
            fits("the padding of keys", &own, 0, [batch, keys])?;
            let seen = padding.mapv(|hidden| !hidden);
            let seen =
                seen.to_shape(vec![batch, 1, 1, keys]).expect("invariant: as many elements").to_owned();
            options.mask = Some(match options.mask {
                Some(mask) => {
                    let shape = vec![batch, if mask.ndim() == 4 { self.heads } else { 1 }, queries, keys];
                    let both = "invariant: the shapes broadcast";
                    let (a, b) =
                        (mask.broadcast(shape.clone()).expect(both), seen.broadcast(shape).expect(both));
                    ndarray::Zip::from(a).and(b).map_collect(|a, b| *a && *b)
                }
                None => seen,
            });
        }
        options.dropout = if self.drops() { self.options.dropout } else { 0.0 };
        Ok(options)
    }
}

/// The probabilities of each head, without a gradient.
fn probabilities<T: Element>(
    q: &Tensor<T>,
    k: &Tensor<T>,
    options: &AttentionOptions<T>,
) -> Result<Tensor<T>> {
    let _guard = no_grad();
    #[expect(clippy::cast_precision_loss, reason = "heads are narrow")]
    let scale = 1.0 / (q.shape()[3] as f64).sqrt();
    let mut scores = (q * scale)?.matmul(&k.transpose(-1, -2)?)?;
    if let Some(summands) = &options.summands {
        scores = (&scores + summands)?;
    }
    if let Some(mask) = &options.mask {
        scores = scores.masked_fill(&mask.mapv(|seen| !seen), f64::NEG_INFINITY)?;
    }
    seen_softmax(&scores)
}

/// Attention of a sequence to itself.
impl<T: Element> Module<T> for MultiheadAttention<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        self.attend(x, x, x, &AttentionCall::default()).map(|(result, _)| result)
    }
}

/// The options of [`TransformerEncoderLayer`], with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncoderLayerOptions {
    /// The width between the two linear layers.
    pub dim_feedforward: usize,
    /// What training drops.
    pub dropout: f64,
    /// What stands between them.
    pub activation: Activation,
    /// ε of the norms.
    pub layer_norm_eps: f64,
    /// Whether inputs are N×L×E; else L×N×E.
    pub batch_first: bool,
    /// Whether norms stand before attention and linear layers; else behind the sums.
    pub norm_first: bool,
}

impl Default for EncoderLayerOptions {
    fn default() -> Self {
        Self {
            dim_feedforward: 2048,
            dropout: 0.1,
            activation: Activation::Relu,
            layer_norm_eps: 1e-5,
            batch_first: false,
            norm_first: false,
        }
    }
}

/// A layer of a transformer's encoder, as `torch.nn.TransformerEncoderLayer`.
#[derive(Debug)]
pub struct TransformerEncoderLayer<T: Element> {
    /// Attention of the sequence to itself.
    pub self_attn: MultiheadAttention<T>,
    /// The first linear layer.
    pub linear1: Linear<T>,
    /// The second.
    pub linear2: Linear<T>,
    /// The norm of attention.
    pub norm1: LayerNorm<T>,
    /// The norm of the linear layers.
    pub norm2: LayerNorm<T>,
    dropout: Dropout<T>,
    activation: Activation,
    norm_first: bool,
}
crate::parts!(TransformerEncoderLayer { self_attn, linear1, linear2, norm1, norm2, dropout });

impl<T: Element> TransformerEncoderLayer<T> {
    /// A layer over sequences of this width.
    ///
    /// # Errors
    /// As [`MultiheadAttention::new`].
    pub fn new(
        context: &Context<T>,
        width: usize,
        heads: usize,
        options: EncoderLayerOptions,
    ) -> Result<Self> {
        let EncoderLayerOptions {
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
        } = options;
        let attention =
            MultiheadAttentionOptions { dropout, batch_first, ..MultiheadAttentionOptions::default() };
        Ok(Self {
            self_attn: MultiheadAttention::new(context, width, heads, attention)?,
            linear1: Linear::new(context, width, dim_feedforward, true)?,
            linear2: Linear::new(context, dim_feedforward, width, true)?,
            norm1: LayerNorm::new(context, &[width], layer_norm_eps, true)?,
            norm2: LayerNorm::new(context, &[width], layer_norm_eps, true)?,
            dropout: Dropout::new(dropout),
            activation,
            norm_first,
        })
    }

    /// The result, with masks.
    ///
    /// # Errors
    /// Where shapes do not fit, and where memory is refused.
    pub fn encode(&self, x: &Tensor<T>, call: &AttentionCall<T>) -> Result<Tensor<T>> {
        let attend = |x: &Tensor<T>| {
            let (y, _) = self.self_attn.attend(x, x, x, call)?;
            self.dropout.forward(&y)
        };
        let feed = |x: &Tensor<T>| {
            let wide =
                x.linear_then(&self.linear1.weight, self.linear1.bias.as_ref(), Some(self.activation))?;
            self.dropout.forward(&self.linear2.forward(&self.dropout.forward(&wide)?)?)
        };
        if self.norm_first {
            let x = (x + &attend(&self.norm1.forward(x)?)?)?;
            return &x + &feed(&self.norm2.forward(&x)?)?;
        }
        let x = self.norm1.forward(&(x + &attend(x)?)?)?;
        self.norm2.forward(&(&x + &feed(&x)?)?)
    }
}

impl<T: Element> Module<T> for TransformerEncoderLayer<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        self.encode(x, &AttentionCall::default())
    }
}
