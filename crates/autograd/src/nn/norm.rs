//! Norms.

use tiled_tensor::Element;

use super::parts::Training;
use super::{Module, affine};
use crate::context::{Context, no_grad};
use crate::error::Result;
use crate::network::BatchNormOptions;
use crate::tensor::Tensor;

/// Batch norm over N×C, N×C×L or N×C×H×W: PyTorch's `BatchNorm1d` and `BatchNorm2d`.
#[derive(Debug)]
pub struct BatchNorm<T: Element> {
    /// γ.
    pub weight: Option<Tensor<T>>,
    /// β.
    pub bias: Option<Tensor<T>>,
    /// The mean that evaluation uses.
    pub running_mean: Tensor<T>,
    /// The variance that evaluation uses.
    pub running_var: Tensor<T>,
    /// How many batches were seen; nothing reads it.
    pub num_batches_tracked: Tensor<T>,
    eps: f64,
    momentum: f64,
    training: Training,
}
crate::parts!(BatchNorm { weight, bias, running_mean, running_var, num_batches_tracked, training });

impl<T: Element> BatchNorm<T> {
    /// PyTorch's defaults are ε 1e-5, momentum 0.1 and affine.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn new(
        context: &Context<T>,
        channels: usize,
        eps: f64,
        momentum: f64,
        is_affine: bool,
    ) -> Result<Self> {
        let [weight, bias] = affine(context, &[channels], is_affine)?;
        Ok(Self {
            weight,
            bias,
            running_mean: context.zeros(&[channels])?,
            running_var: context.ones(&[channels])?,
            num_batches_tracked: context.zeros(&[])?,
            eps,
            momentum,
            training: Training::default(),
        })
    }
}

impl<T: Element> Module<T> for BatchNorm<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        let training = self.training.is_on();
        let options = BatchNormOptions { eps: self.eps, momentum: self.momentum, training };
        let running = Some([&self.running_mean, &self.running_var]);
        let y = x.batch_norm(running, [self.weight.as_ref(), self.bias.as_ref()], &options)?;
        if training {
            let _guard = no_grad();
            let mut count = self.num_batches_tracked.clone();
            count.affine_in_place(1.0, 1.0)?;
        }
        Ok(y)
    }
}

/// Norm over the last axes.
#[derive(Debug)]
pub struct LayerNorm<T: Element> {
    /// γ.
    pub weight: Option<Tensor<T>>,
    /// β.
    pub bias: Option<Tensor<T>>,
    shape: Vec<usize>,
    eps: f64,
}
crate::parts!(LayerNorm { weight, bias });

impl<T: Element> LayerNorm<T> {
    /// PyTorch's defaults are ε 1e-5 and affine.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn new(context: &Context<T>, shape: &[usize], eps: f64, is_affine: bool) -> Result<Self> {
        let [weight, bias] = affine(context, shape, is_affine)?;
        Ok(Self { weight, bias, shape: shape.to_vec(), eps })
    }
}

impl<T: Element> Module<T> for LayerNorm<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        x.layer_norm(&self.shape, self.weight.as_ref(), self.bias.as_ref(), self.eps)
    }
}

/// Norm over groups of channels and all pixels.
#[derive(Debug)]
pub struct GroupNorm<T: Element> {
    /// γ.
    pub weight: Option<Tensor<T>>,
    /// β.
    pub bias: Option<Tensor<T>>,
    groups: usize,
    eps: f64,
}
crate::parts!(GroupNorm { weight, bias });

impl<T: Element> GroupNorm<T> {
    /// PyTorch's defaults are ε 1e-5 and affine.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn new(
        context: &Context<T>,
        groups: usize,
        channels: usize,
        eps: f64,
        is_affine: bool,
    ) -> Result<Self> {
        let [weight, bias] = affine(context, &[channels], is_affine)?;
        Ok(Self { weight, bias, groups, eps })
    }
}

impl<T: Element> Module<T> for GroupNorm<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        x.group_norm(self.groups, [self.weight.as_ref(), self.bias.as_ref()], self.eps)
    }
}

/// Norm of each channel of each image.
#[derive(Debug)]
pub struct InstanceNorm2d<T: Element> {
    /// γ.
    pub weight: Option<Tensor<T>>,
    /// β.
    pub bias: Option<Tensor<T>>,
    eps: f64,
}
crate::parts!(InstanceNorm2d { weight, bias });

impl<T: Element> InstanceNorm2d<T> {
    /// PyTorch's defaults are ε 1e-5 and not affine.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn new(context: &Context<T>, channels: usize, eps: f64, is_affine: bool) -> Result<Self> {
        let [weight, bias] = affine(context, &[channels], is_affine)?;
        Ok(Self { weight, bias, eps })
    }
}

impl<T: Element> Module<T> for InstanceNorm2d<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        x.instance_norm([self.weight.as_ref(), self.bias.as_ref()], self.eps)
    }
}
