//! Operations as data: how they are drawn, and how the tape carries them out.

use ndarray::{Array1, ArrayD};
use tiled_autograd::{AttentionOptions, Result, Tensor, concat, scaled_dot_product_attention};
use tiled_kernel::Activation;
use tiled_kernel::dense::{Binary, Unary};

use super::Leaf;

/// The largest element that is compared: beyond, roundings and bends say nothing.
pub(super) const LARGEST: f64 = 100.0;

/// Bytes that decide; zeros when they are used up.
#[derive(Debug)]
pub(super) struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl<'a> Bytes<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    pub(super) fn next(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.next()) % bound.max(1)
    }

    fn real(&mut self) -> f64 {
        f64::from(self.next()) / 128.0 - 1.0
    }

    fn is_true(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// One to three tensors of up to three axes; rarely an axis has no elements.
pub(super) fn leaves(bytes: &mut Bytes<'_>) -> Vec<Leaf> {
    let count = 1 + bytes.below(3);
    (0..count)
        .map(|leaf| {
            let axes = bytes.below(4);
            let shape: Vec<usize> = (0..axes).map(|_| [1, 2, 3, 4, 2, 3, 1, 0][bytes.below(8)]).collect();
            let values = ArrayD::from_shape_simple_fn(shape, || bytes.real());
            Leaf { values, is_trained: leaf == 0 || bytes.is_true() }
        })
        .collect()
}

/// An operation on tensors by their numbers.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Map(usize, Unary),
    Zip(usize, usize, Binary),
    MapInPlace(usize, Unary),
    ZipInPlace(usize, usize, Binary),
    Where(usize, usize, ArrayD<bool>),
    Sum { of: usize, axes: Vec<isize>, keepdim: bool },
    Mean { of: usize, axes: Vec<isize>, keepdim: bool },
    Extreme { of: usize, axis: isize, is_max: bool },
    CumSum(usize, isize),
    Softmax { of: usize, axis: isize, is_log: bool },
    LayerNorm(usize),
    Matmul(usize, usize),
    Linear(usize, usize),
    Attention(usize, usize),
    Concat(usize, usize, isize),
    IndexSelect(usize, isize, Vec<i64>),
    Gather(usize, isize, ArrayD<i64>),
    ScatterAdd(usize, usize, isize, ArrayD<i64>),
    Pad(usize, Vec<[usize; 2]>),
    Reshape(usize, Vec<usize>),
    Permute(usize, Vec<isize>),
    Expand(usize, Vec<usize>),
    Slice { of: usize, axis: isize, begin: usize, end: usize, step: usize },
    Flip(usize, isize),
    Contiguous(usize),
    Clone(usize),
}

/// Functions without places where they are steep.
const FUNCTIONS: [Unary; 16] = [
    Unary::Affine { factor: -1.5, summand: 0.25 },
    Unary::Affine { factor: 0.5, summand: 0.0 },
    Unary::Activation(Activation::Tanh),
    Unary::Activation(Activation::Sigmoid),
    Unary::Activation(Activation::Silu),
    Unary::Activation(Activation::Gelu),
    Unary::Activation(Activation::Mish),
    Unary::Activation(Activation::Exp),
    Unary::Activation(Activation::Neg),
    Unary::Activation(Activation::Softplus { beta: 1.5, threshold: 20.0 }),
    Unary::Activation(Activation::Softsign),
    // with kinks
    Unary::Activation(Activation::Relu),
    Unary::Activation(Activation::Abs),
    Unary::Activation(Activation::LeakyRelu { slope: 0.1 }),
    Unary::Activation(Activation::Clamp { min: -0.5, max: 0.6 }),
    Unary::Activation(Activation::HardSwish),
];

const OF_TWO: [Binary; 6] =
    [Binary::Add, Binary::Sub, Binary::Mul, Binary::Mul, Binary::Maximum, Binary::Minimum];

impl Step {
    /// The next operation on some of the tensors, which have these shapes; it need not be possible.
    pub(super) fn draw(bytes: &mut Bytes<'_>, shapes: &[&[usize]]) -> Self {
        // late tensors are likelier, so that programs are deep
        let pick = |bytes: &mut Bytes<'_>| {
            let back = bytes.below(shapes.len()).min(bytes.below(shapes.len()));
            shapes.len() - 1 - back
        };
        let kind = bytes.below(30);
        let of = pick(bytes);
        let shape = shapes[of];
        let axes = shape.len();
        let signed = |axis: usize| axis.cast_signed();
        // now and then one that is not there
        let axis = |bytes: &mut Bytes<'_>| match bytes.next() {
            250.. => signed(axes),
            drawn => {
                signed(usize::from(drawn) % axes.max(1)) - if drawn > 128 { signed(axes.max(1)) } else { 0 }
            }
        };
        let extent = |axis: isize| {
            let at = if axis < 0 { axis + signed(axes) } else { axis };
            shape.get(at.unsigned_abs()).copied().unwrap_or(1)
        };
        let function = |bytes: &mut Bytes<'_>| FUNCTIONS[bytes.below(FUNCTIONS.len())];
        let of_two = |bytes: &mut Bytes<'_>| OF_TWO[bytes.below(OF_TWO.len())];
        let places = |bytes: &mut Bytes<'_>, shape: Vec<usize>, extent: usize| {
            ArrayD::from_shape_simple_fn(shape, || {
                let drawn = bytes.next();
                let place = i64::from(drawn) % i64::try_from(extent.max(1)).unwrap_or(1);
                if drawn > 250 { i64::MAX } else { place }
            })
        };
        match kind {
            0 | 1 => Self::Map(of, function(bytes)),
            2..=4 => Self::Zip(of, pick(bytes), of_two(bytes)),
            5 | 6 => Self::MapInPlace(of, function(bytes)),
            7 | 8 => Self::ZipInPlace(of, pick(bytes), of_two(bytes)),
            9 => {
                let mask = ArrayD::from_shape_simple_fn(shape.to_vec(), || bytes.is_true());
                Self::Where(of, pick(bytes), mask)
            }
            10 => Self::Sum { of, axes: vec![axis(bytes)], keepdim: bytes.is_true() },
            11 => Self::Mean { of, axes: Vec::new(), keepdim: bytes.is_true() },
            12 => Self::Extreme { of, axis: axis(bytes), is_max: bytes.is_true() },
            13 => Self::CumSum(of, axis(bytes)),
            14 => Self::Softmax { of, axis: axis(bytes), is_log: bytes.is_true() },
            15 => Self::LayerNorm(of),
            16 => Self::Matmul(of, pick(bytes)),
            17 => Self::Linear(of, pick(bytes)),
            18 => Self::Attention(of, pick(bytes)),
            19 => Self::Concat(of, pick(bytes), axis(bytes)),
            20 => {
                let axis = axis(bytes);
                let len = bytes.below(5);
                Self::IndexSelect(of, axis, places(bytes, vec![len], extent(axis)).into_iter().collect())
            }
            21 => {
                let axis = axis(bytes);
                Self::Gather(of, axis, places(bytes, shape.to_vec(), extent(axis)))
            }
            22 => {
                let (other, axis) = (pick(bytes), axis(bytes));
                let index = places(bytes, shapes[other].to_vec(), extent(axis));
                Self::ScatterAdd(of, other, axis, index)
            }
            23 => {
                Self::Pad(of, (0..bytes.below(axes + 2)).map(|_| [bytes.below(2), bytes.below(3)]).collect())
            }
            24 => {
                // factors of the number of elements, and what is left
                let mut left: usize = shape.iter().product();
                let mut new = Vec::new();
                for _ in 0..bytes.below(4) {
                    let factor = 1 + bytes.below(4);
                    if left.is_multiple_of(factor) {
                        new.push(factor);
                        left /= factor;
                    }
                }
                new.push(if bytes.next() > 245 { left + 1 } else { left });
                Self::Reshape(of, new)
            }
            25 => {
                let mut order: Vec<isize> = (0..axes).map(signed).collect();
                for last in (1..axes).rev() {
                    order.swap(last, bytes.below(last + 1));
                }
                Self::Permute(of, order)
            }
            26 => {
                let more = bytes.below(2);
                let kept = shape.iter().map(|extent| if *extent == 1 { 1 + bytes.below(3) } else { *extent });
                let mut new: Vec<usize> = kept.collect();
                new.splice(0..0, std::iter::repeat_n(2, more));
                Self::Expand(of, new)
            }
            27 => {
                let axis = axis(bytes);
                let (begin, len) = (bytes.below(3), bytes.below(4));
                Self::Slice { of, axis, begin, end: begin + len, step: bytes.below(3) + usize::from(len < 3) }
            }
            28 => Self::Flip(of, axis(bytes)),
            _ if bytes.is_true() => Self::Contiguous(of),
            _ => Self::Clone(of),
        }
    }

    /// The first operand, which views are of and changes happen to.
    pub(super) const fn operand(&self) -> usize {
        match self {
            Self::Map(of, _)
            | Self::Zip(of, ..)
            | Self::MapInPlace(of, _)
            | Self::ZipInPlace(of, ..)
            | Self::Where(of, ..)
            | Self::Sum { of, .. }
            | Self::Mean { of, .. }
            | Self::Extreme { of, .. }
            | Self::CumSum(of, _)
            | Self::Softmax { of, .. }
            | Self::LayerNorm(of)
            | Self::Matmul(of, _)
            | Self::Linear(of, _)
            | Self::Attention(of, _)
            | Self::Concat(of, ..)
            | Self::IndexSelect(of, ..)
            | Self::Gather(of, ..)
            | Self::ScatterAdd(of, ..)
            | Self::Pad(of, _)
            | Self::Reshape(of, _)
            | Self::Permute(of, _)
            | Self::Expand(of, _)
            | Self::Slice { of, .. }
            | Self::Flip(of, _)
            | Self::Contiguous(of)
            | Self::Clone(of) => *of,
        }
    }

    pub(super) const fn is_in_place(&self) -> bool {
        matches!(self, Self::MapInPlace(..) | Self::ZipInPlace(..))
    }

    /// The tape's result; `None` of a change in place.
    pub(super) fn carry_out(&self, x: &mut [Tensor<f64>]) -> Result<Option<Tensor<f64>>> {
        let result = match self {
            Self::MapInPlace(of, f) => return x[*of].map_in_place(*f).map(|()| None),
            Self::ZipInPlace(of, other, f) => {
                let other = x[*other].clone();
                return x[*of].zip_in_place(*f, &other).map(|()| None);
            }
            Self::Map(of, f) => x[*of].map(*f),
            Self::Zip(of, other, f) => x[*of].zip(*f, &x[*other]),
            Self::Where(of, other, mask) => x[*of].where_mask(mask, &x[*other]),
            Self::Sum { of, axes, keepdim } => x[*of].sum(axes, *keepdim),
            Self::Mean { of, axes, keepdim } => x[*of].mean(axes, *keepdim),
            Self::Extreme { of, axis, is_max: true } => x[*of].max(&[*axis], true),
            Self::Extreme { of, axis, is_max: false } => x[*of].min(&[*axis], true),
            Self::CumSum(of, axis) => x[*of].cumsum(*axis),
            Self::Softmax { of, axis, is_log: false } => x[*of].softmax(*axis),
            Self::Softmax { of, axis, is_log: true } => x[*of].log_softmax(*axis),
            Self::LayerNorm(of) => {
                let last = x[*of].shape().last().copied().unwrap_or(1);
                x[*of].layer_norm(&[last], None, None, EPS)
            }
            Self::Matmul(of, other) => x[*of].matmul(&x[*other]),
            Self::Linear(of, weight) => x[*of].linear(&x[*weight], None),
            Self::Attention(of, keys) => {
                let options = AttentionOptions::default();
                scaled_dot_product_attention([&x[*of], &x[*keys], &x[*keys]], &options)
            }
            Self::Concat(of, other, axis) => concat(&[&x[*of], &x[*other]], *axis),
            Self::IndexSelect(of, axis, index) => x[*of].index_select(*axis, &Array1::from(index.clone())),
            Self::Gather(of, axis, index) => x[*of].gather(*axis, index),
            Self::ScatterAdd(of, other, axis, index) => x[*of].scatter_add(*axis, index, &x[*other]),
            Self::Pad(of, padding) => x[*of].pad(padding, 0.5),
            Self::Reshape(of, shape) => x[*of].reshape(shape),
            Self::Permute(of, order) => x[*of].permute(order),
            Self::Expand(of, shape) => x[*of].expand(shape),
            Self::Slice { of, axis, begin, end, step } => x[*of].slice_step(*axis, *begin, *end, *step),
            Self::Flip(of, axis) => x[*of].flip(&[*axis]),
            Self::Contiguous(of) => x[*of].contiguous(),
            Self::Clone(of) => Ok(x[*of].clone()),
        };
        result.map(Some)
    }
}

/// What layer norm adds to the variance: enough that it is not steep.
pub(super) const EPS: f64 = 0.1;
