//! Operators on images: networks of one node.

use tiled_graph::{
    AvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Dropout, GroupNorm, InstanceNorm, MaxPool2d, Mode, Op,
    Pad, PadWith, ResizeMode, Upsample, UpsampleTo,
};
use tiled_tensor::Element;

use super::calls::What;
use super::nothing::of_none;
use super::run::Network;
use crate::error::{Result, TapeError};
use crate::tensor::Tensor;

/// How an image is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest pixel.
    Nearest,
    /// Between four pixels.
    Bilinear {
        /// Whether corner pixels are aligned.
        align_corners: bool,
    },
}

/// What padding of an image shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// The mirrored image.
    Reflect,
    /// The border repeated.
    Replicate,
    /// The other end of the image.
    Circular,
}

/// What batch norm keeps and how it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormOptions {
    /// Added to the variance.
    pub eps: f64,
    /// The weight of a new statistic in the running one.
    pub momentum: f64,
    /// Whether statistics are those of the batch, and running ones move.
    pub training: bool,
}

impl Default for BatchNormOptions {
    fn default() -> Self {
        Self { eps: 1e-5, momentum: 0.1, training: true }
    }
}

impl<T: Element> Tensor<T> {
    /// The convolution with a weight of output channels × input channels of a group × height × width. Channels, kernel and bias are
    /// those of the tensors, whatever `conv` says.
    ///
    /// # Errors
    /// Where the shapes do not fit or an attribute has no meaning, and where memory is refused.
    pub fn conv2d(&self, conv: &Conv2d, weight: &Self, bias: Option<&Self>) -> Result<Self> {
        let (out_channels, kernel_size) = kernel("conv2d", weight, 0)?;
        let conv = Conv2d { out_channels, kernel_size, bias: bias.is_some(), ..conv.clone() };
        one("conv2d", Op::Conv2d(conv), self, &[Some(weight), bias])
    }

    /// The transposed convolution with a weight of input channels × output channels of a group × height × width.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`].
    pub fn conv_transpose2d(
        &self,
        conv: &ConvTranspose2d,
        weight: &Self,
        bias: Option<&Self>,
    ) -> Result<Self> {
        let (of_group, kernel_size) = kernel("conv_transpose2d", weight, 1)?;
        let out_channels = of_group.saturating_mul(conv.groups);
        let conv = ConvTranspose2d { out_channels, kernel_size, bias: bias.is_some(), ..conv.clone() };
        one("conv_transpose2d", Op::ConvTranspose2d(conv), self, &[Some(weight), bias])
    }

    /// The maximum of each window; its gradient goes to the first one.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`].
    pub fn max_pool2d(&self, pool: &MaxPool2d) -> Result<Self> {
        one("max_pool2d", Op::MaxPool2d(pool.clone()), self, &[])
    }

    /// The mean of each window.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`].
    pub fn avg_pool2d(&self, pool: &AvgPool2d) -> Result<Self> {
        one("avg_pool2d", Op::AvgPool2d(pool.clone()), self, &[])
    }

    /// Means of windows that share an image out to so many rows and columns.
    ///
    /// # Errors
    /// Where this has fewer than two axes, a size is zero, or memory is refused.
    pub fn adaptive_avg_pool2d(&self, size: [usize; 2]) -> Result<Self> {
        let operator = "adaptive_avg_pool2d";
        let Some(&[height, width]) = self.shape().last_chunk() else {
            let (what, expected) = ("the input", "at least 2");
            return Err(TapeError::Axes { operator, what, expected, got: self.shape().into() });
        };
        if size.contains(&0) || height == 0 || width == 0 {
            return Err(TapeError::Empty { operator, shape: self.shape().into() });
        }
        if size == [1, 1] {
            return self.mean(&[-2, -1], true);
        }
        let image = <[usize; 4]>::try_from(self.shape()).is_ok() && !self.shape().contains(&0);
        if image && height.is_multiple_of(size[0]) && width.is_multiple_of(size[1]) {
            let side = |extent: usize| i64::try_from(extent).unwrap_or(i64::MAX);
            return self.avg_pool2d(&AvgPool2d::new([side(height / size[0]), side(width / size[1])]));
        }
        // windows overlap: rows are averaged by one matrix, columns by another
        let rows = self.context().shares(height, size[0])?;
        let columns = self.context().shares(width, size[1])?;
        rows.matmul(self)?.matmul(&columns.transpose(0, 1)?)
    }

    /// The image in another size.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`].
    pub fn interpolate(&self, size: [usize; 2], mode: Interpolation) -> Result<Self> {
        let mode = match mode {
            Interpolation::Nearest => ResizeMode::NEAREST,
            Interpolation::Bilinear { align_corners: false } => ResizeMode::LINEAR,
            Interpolation::Bilinear { align_corners: true } => ResizeMode::LINEAR_ALIGNED,
        };
        let size = size.map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
        one("interpolate", Op::Upsample(Upsample { mode, to: UpsampleTo::Size(size) }), self, &[])
    }

    /// Rows and columns around an image, before and after.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`].
    pub fn pad2d(&self, padding: [[usize; 2]; 2], shows: Padding) -> Result<Self> {
        let with = match shows {
            Padding::Reflect => PadWith::Reflect,
            Padding::Replicate => PadWith::Replicate,
            Padding::Circular => PadWith::Circular,
        };
        let padding = padding.map(|pair| pair.map(|amount| i64::try_from(amount).unwrap_or(i64::MAX)));
        one("pad", Op::Pad(Pad { padding, with }), self, &[])
    }

    /// Batch norm over N×C, N×C×L or N×C×H×W: `(x − mean)/√(variance + ε)·γ + β` for each channel. In training the statistics are the
    /// batch's, and those that run, mean and variance, move towards them; in evaluation they are those that run.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`], and in evaluation without statistics that run.
    pub fn batch_norm(
        &self,
        running: Option<[&Self; 2]>,
        [weight, bias]: [Option<&Self>; 2],
        options: &BatchNormOptions,
    ) -> Result<Self> {
        let operator = "batch_norm";
        let parameters = affine([weight, bias])?;
        let norm = BatchNorm {
            eps: options.eps,
            momentum: Some(options.momentum),
            affine: parameters[0].is_some(),
            track_running_stats: running.is_some(),
        };
        let of_channel: usize = self
            .shape()
            .iter()
            .enumerate()
            .filter(|(axis, _)| *axis != 1)
            .map(|(_, extent)| extent)
            .product();
        if options.training && of_channel < 2 {
            // one value has no variance, which torch refuses as well, and none have no mean
            let (attribute, expected) = ("the number of values for each channel in training", "more than 1");
            let got = if of_channel == 0 { 0.0 } else { 1.0 };
            return Err(TapeError::Attribute { operator, attribute, expected, got });
        }
        let mode = if options.training { Mode::Train } else { Mode::Eval };
        let network = Network {
            mode,
            statistics: running.map(|running| running.map(Self::clone).to_vec()).unwrap_or_default(),
            ..Network::operator(operator, Op::BatchNorm(norm))
        };
        as_image(self, operator, |image| run(network, image, &parameters.each_ref().map(Option::as_ref)))
    }

    /// Norm over groups of channels and all pixels.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`].
    pub fn group_norm(&self, groups: usize, [weight, bias]: [Option<&Self>; 2], eps: f64) -> Result<Self> {
        let operator = "group_norm";
        let parameters = affine([weight, bias])?;
        let norm = GroupNorm { num_groups: groups, eps, affine: parameters[0].is_some() };
        as_image(self, operator, |image| {
            one(operator, Op::GroupNorm(norm), image, &parameters.each_ref().map(Option::as_ref))
        })
    }

    /// Norm of each channel of each image.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`].
    pub fn instance_norm(&self, [weight, bias]: [Option<&Self>; 2], eps: f64) -> Result<Self> {
        let operator = "instance_norm";
        let parameters = affine([weight, bias])?;
        let norm = InstanceNorm { eps, affine: parameters[0].is_some(), ..InstanceNorm::default() };
        as_image(self, operator, |image| {
            one(operator, Op::InstanceNorm(norm), image, &parameters.each_ref().map(Option::as_ref))
        })
    }

    /// In training each element is dropped with probability `p`, and the others are scaled by `1/(1 − p)`. The mask depends on the
    /// seed of the context, the number of the call and the place of the element.
    ///
    /// # Errors
    /// Where `p` is not from 0 to 1, and where memory is refused.
    pub fn dropout(&self, p: f64, training: bool) -> Result<Self> {
        let operator = "dropout";
        if !(0.0..=1.0).contains(&p) {
            let (attribute, expected) = ("p", "a number from 0 to 1");
            return Err(TapeError::Attribute { operator, attribute, expected, got: p });
        }
        if !training || p == 0.0 || self.elements() == 0 {
            return Ok(self.clone());
        }
        #[expect(clippy::float_cmp, reason = "all are dropped at exactly one")]
        if p == 1.0 {
            return self.affine(0.0, 0.0);
        }
        let width = self.shape().last().copied().unwrap_or(1);
        let image = self.reshape(&[1, 1, self.elements() / width, width])?;
        let context = self.context();
        let network = Network {
            mode: Mode::Train,
            seed: context.masks_seed(),
            mask: context.next_mask(),
            ..Network::operator(operator, Op::Dropout(Dropout { p }))
        };
        run(network, &image, &[])?.reshape(self.shape())
    }
}

impl<T: Element> crate::Context<T> {
    /// The matrix that averages an axis: row i has equal shares of the elements from ⌊i·n/m⌋ to ⌈(i + 1)·n/m⌉.
    fn shares(&self, extent: usize, parts: usize) -> Result<Tensor<T>> {
        self.filled_by("adaptive_avg_pool2d", &[parts, extent], |mut shares| {
            shares.fill(T::ZERO);
            for part in 0..parts {
                let (begin, end) = (part * extent / parts, ((part + 1) * extent).div_ceil(parts));
                #[expect(clippy::cast_precision_loss, reason = "extents are far below 2^53")]
                let share = T::from_f64(1.0 / (end - begin) as f64);
                for at in begin..end {
                    shares[[part, at].as_slice()] = share;
                }
            }
        })
    }
}

/// The channels on an axis of a weight, and its kernel.
fn kernel<T: Element>(operator: &'static str, weight: &Tensor<T>, axis: usize) -> Result<(usize, [i64; 2])> {
    let &[_, _, height, width] = weight.shape() else {
        let (what, expected) = ("the weight", "4");
        return Err(TapeError::Axes { operator, what, expected, got: weight.shape().into() });
    };
    let side = |extent: usize| i64::try_from(extent).unwrap_or(i64::MAX);
    Ok((weight.shape()[axis], [side(height), side(width)]))
}

/// A weight and a bias, or neither: beside a weight alone a bias of zeros, beside a bias alone a weight of ones.
fn affine<T: Element>([weight, bias]: [Option<&Tensor<T>>; 2]) -> Result<[Option<Tensor<T>>; 2]> {
    let constant = |like: &Tensor<T>, value: f64| like.context().full(like.shape(), value);
    Ok(match (weight, bias) {
        (Some(weight), None) => [Some(weight.clone()), Some(constant(weight, 0.0)?)],
        (None, Some(bias)) => [Some(constant(bias, 1.0)?), Some(bias.clone())],
        both => [both.0.cloned(), both.1.cloned()],
    })
}

fn one<T: Element>(
    operator: &'static str,
    op: Op,
    input: &Tensor<T>,
    parameters: &[Option<&Tensor<T>>],
) -> Result<Tensor<T>> {
    run(Network::operator(operator, op), input, parameters)
}

fn run<T: Element>(
    network: Network<T>,
    input: &Tensor<T>,
    parameters: &[Option<&Tensor<T>>],
) -> Result<Tensor<T>> {
    let operator = network.name;
    let operands: Vec<&Tensor<T>> =
        std::iter::once(input).chain(parameters.iter().copied().flatten()).collect();
    if let (What::Operator(op), &[0, channels, height, width]) = (&network.what, input.shape()) {
        return of_none(operator, op, [channels, height, width], &operands);
    }
    let result = network.apply(&operands)?.pop();
    result.ok_or_else(|| TapeError::Empty { operator, shape: input.shape().into() })
}

/// A value of two or three axes as an image, and the result in its shape.
fn as_image<T: Element>(
    x: &Tensor<T>,
    operator: &'static str,
    run: impl FnOnce(&Tensor<T>) -> Result<Tensor<T>>,
) -> Result<Tensor<T>> {
    match *x.shape() {
        [_, _, _, _] => run(x),
        [batch, channels, length] => run(&x.reshape(&[batch, channels, 1, length])?)?.reshape(x.shape()),
        [batch, channels] => run(&x.reshape(&[batch, channels, 1, 1])?)?.reshape(x.shape()),
        _ => {
            let (what, expected) = ("the input", "2, 3 or 4");
            Err(TapeError::Axes { operator, what, expected, got: x.shape().into() })
        }
    }
}
