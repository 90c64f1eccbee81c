//! Modules, with PyTorch's names, defaults, initial distributions and names of parameters.
//!
//! A module is a struct whose fields are tensors, modules, or lists of them; [`parts!`](crate::parts) lists the fields once, and with them
//! names of parameters, training mode, and files of weights.

mod attention;
mod image;
mod layers;
mod norm;
mod parts;
mod state;

pub use attention::{
    AttentionCall, AttentionMask, EncoderLayerOptions, MultiheadAttention, MultiheadAttentionOptions,
    TransformerEncoderLayer,
};
pub use image::{AdaptiveAvgPool2d, AvgPool2d, Conv2d, ConvTranspose2d, MaxPool2d, Upsample};
pub use layers::{
    Dropout, Embedding, Flatten, Function1, Identity, Linear, LogSoftmax, ModuleList, Sequential, Softmax,
};
pub use norm::{BatchNorm, GroupNorm, InstanceNorm2d, LayerNorm};
#[doc(hidden)]
pub use parts::joined;
pub use parts::{Entry, Parts, Training};
pub use state::{load_state, save_state, set_state};

use std::collections::BTreeSet;

use tiled_tensor::Element;

use crate::error::Result;
use crate::tensor::Tensor;

/// A function of one tensor with parameters of its own.
pub trait Module<T: Element>: Parts<T> + std::fmt::Debug {
    /// The result.
    ///
    /// # Errors
    /// Where the input does not fit, and where memory is refused.
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>>;

    /// Whose parameters an optimiser moves, with their names: [`parameters`].
    fn parameters(&self) -> Vec<(String, Tensor<T>)> {
        parameters(self)
    }
}

/// Whose parameters an optimiser moves, with their names; also of what is no [`Module`], as it reads indices or several tensors. One
/// that is shared is there once, under its first name.
pub fn parameters<T: Element>(parts: &(impl Parts<T> + ?Sized)) -> Vec<(String, Tensor<T>)> {
    let mut parameters: Vec<(String, Tensor<T>)> = Vec::new();
    let mut seen = BTreeSet::new();
    parts.visit("", &mut |entry: Entry<'_, T>| {
        if entry.tensor.is_leaf() && seen.insert(entry.tensor.history().key()) {
            parameters.push((entry.name, entry.tensor.clone()));
        }
    });
    parameters
}

/// A weight and a bias as PyTorch begins with them: uniform within `1/√fan_in`.
fn uniform<T: Element>(
    context: &crate::Context<T>,
    shape: &[usize],
    fan_in: usize,
    bias: Option<usize>,
) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
    #[expect(clippy::cast_precision_loss, reason = "fan-in is far below 2^53")]
    let bound = if fan_in == 0 { 0.0 } else { 1.0 / (fan_in as f64).sqrt() };
    let weight = context.uniform(shape, -bound, bound)?.with_gradient()?;
    let bias = bias.map(|len| context.uniform(&[len], -bound, bound).and_then(Tensor::with_gradient));
    Ok((weight, bias.transpose()?))
}

/// γ of ones and β of zeros, where they are wanted.
fn affine<T: Element>(
    context: &crate::Context<T>,
    shape: &[usize],
    wanted: bool,
) -> Result<[Option<Tensor<T>>; 2]> {
    if !wanted {
        return Ok([None, None]);
    }
    Ok([Some(context.ones(shape)?.with_gradient()?), Some(context.zeros(shape)?.with_gradient()?)])
}
