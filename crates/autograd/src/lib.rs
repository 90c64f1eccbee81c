//! Reverse-mode differentiation over the kernels of tiled.
//!
//! A [`Tensor`] belongs to a [`Context`], which has kernels, threads, memory and random numbers; there is no global state. Operators
//! return `Result`, so that expressions chain as `(&a + &b)?`. What depends on a leaf ([`Tensor::with_gradient`]) is recorded, and
//! [`Tensor::backward`] adds gradients where they end up.
//!
//! It is not an array library: the algebra of views is that of `ndarray`, and arithmetic is that of the kernels. It does not
//! differentiate twice.
//!
//! ```text
//!   leaf ──► operator ──► operator ──► one element       forward: each checks, computes, is recorded
//!   grad ◄── rule     ◄── rule     ◄── 1                 backward: the table of rules, by falling number
//! ```
//!
//! ```
//! use tiled_autograd::Context;
//! use tiled_kernel::Reference;
//! let context = Context::<f64>::new(&Reference, 1)?;
//! let x = context.from_slice(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let w = context.from_slice(&[1, 3], &[0.5, -1.0, 2.0])?.with_gradient()?;
//! let y = x.linear(&w, None)?.tanh()?.sum(&[], false)?;
//! y.backward()?;
//! assert_eq!(w.grad().expect("it needs one").shape(), [1, 3]);
//! # Ok::<(), tiled_autograd::TapeError>(())
//! ```
//!
//! Only floating-point numbers have gradients: indices, classes and masks are arrays of `ndarray`, and tensors of integers do not compile.
//!
//! ```compile_fail
//! let context = tiled_autograd::Context::<i64>::new(&tiled_kernel::Reference, 1)?;
//! # Ok::<(), tiled_autograd::TapeError>(())
//! ```
#![forbid(unsafe_code)]

mod buffers;
mod context;
mod create;
mod error;
mod function;
mod layout;
mod network;
pub mod nn;
mod op;
mod ops;
mod rules;
mod storage;
mod tape;
mod tensor;
pub mod train;
mod values;
mod views;

pub use context::{Context, Kernels, NoGrad, no_grad, records_gradients};
pub use error::{Result, Shape, TapeError};
pub use function::{Function, Gradients, Saver, apply};
pub use layout::MAX_AXES;
pub use network::{BatchNormOptions, Interpolation, Padding, Tiled};
#[doc(hidden)]
pub use nn::joined;
pub use ops::{
    AttentionOptions, CrossEntropyOptions, Reduction, Target, bce_with_logits, concat, cross_entropy,
    embedding, l1_loss, mse_loss, nll_loss, scaled_dot_product_attention, smooth_l1_loss, stack,
};
pub use rules::{RULES, RuleText};
pub use tape::{BackwardOptions, grad, grad_with};
pub use tensor::{Hook, Tensor};
pub use tiled_exec::{AdamOptions, AdamWOptions, OptimError, SgdOptions};
pub use tiled_graph::{Hold, Mode};
pub use tiled_kernel::Activation;
pub use tiled_kernel::dense::{Binary, Unary};
pub use tiled_tensor::Element;
pub use values::Values;
