//! Gradients that are too large.

use tiled_tensor::Element;

use crate::context::no_grad;
use crate::error::{Result, TapeError};
use crate::tensor::Tensor;

/// Scales all gradients so that the norm of them together is at most `most`, and gives what it was: PyTorch's `clip_grad_norm_`.
///
/// # Errors
/// Where `most` is not a number above zero, and where memory is refused.
pub fn clip_norm<T: Element>(parameters: &[Tensor<T>], most: f64) -> Result<f64> {
    check("clip_norm", most)?;
    let _guard = no_grad();
    let square = |gradient: &Tensor<T>| -> f64 {
        gradient.values().view().iter().map(|value| value.to_f64() * value.to_f64()).sum()
    };
    let norm =
        parameters.iter().filter_map(Tensor::grad).map(|gradient| square(&gradient)).sum::<f64>().sqrt();
    let factor = most / (norm + 1e-6);
    if factor < 1.0 {
        for parameter in parameters {
            if let Some(gradient) = parameter.grad() {
                parameter.set_grad(Some(&(&gradient * factor)?))?;
            }
        }
    }
    Ok(norm)
}

/// Bounds every element of all gradients: PyTorch's `clip_grad_value_`.
///
/// # Errors
/// As [`clip_norm`].
pub fn clip_value<T: Element>(parameters: &[Tensor<T>], most: f64) -> Result<()> {
    check("clip_value", most)?;
    let _guard = no_grad();
    for parameter in parameters {
        if let Some(gradient) = parameter.grad() {
            parameter.set_grad(Some(&gradient.clamp(-most, most)?))?;
        }
    }
    Ok(())
}

fn check(operator: &'static str, got: f64) -> Result<()> {
    if got > 0.0 {
        return Ok(());
    }
    Err(TapeError::Attribute { operator, attribute: "the bound", expected: "a number above 0", got })
}
