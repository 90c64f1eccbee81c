//! Learns the exclusive or of two bits: the smallest function that no single layer has.
//!
//!     cargo run --release -p tiled-autograd --example xor

use tiled_autograd::nn::{Function1, Linear, Module, Sequential};
use tiled_autograd::train::{Method, Optimizer, Schedule};
use tiled_autograd::{Activation, AdamWOptions, Context, Kernels, Result, Unary, bce_with_logits, no_grad};
use tiled_kernel::Reference;

/// The steps of training.
const STEPS: u64 = 300;

/// The losses of all steps and the probabilities that are learnt, in the order 00, 01, 10, 11.
pub(crate) fn learn(kernels: &'static dyn Kernels<f32>) -> Result<(Vec<f32>, Vec<f32>)> {
    let context = Context::new(kernels, 1)?;
    context.seed(4);
    let tanh = Function1::new(Unary::Activation(Activation::Tanh));
    let net = Sequential::new()
        .with(Linear::new(&context, 2, 8, true)?)
        .with(tanh)
        .with(Linear::new(&context, 8, 1, true)?);
    let method = Method::AdamW(AdamWOptions { lr: 0.05, ..AdamWOptions::default() });
    let mut optimizer = Optimizer::new(net.parameters(), method)?;
    let x = context.from_slice(&[4, 2], &[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])?;
    let y = context.from_slice(&[4, 1], &[0.0, 1.0, 1.0, 0.0])?;
    let schedule = Schedule::Cosine { steps: STEPS, least: 0.001 };
    let mut losses = Vec::new();
    for step in 0..STEPS {
        optimizer.set_learning_rate(0, schedule.rate(0.05, step))?;
        optimizer.zero_grad();
        let loss = bce_with_logits(&net.forward(&x)?, &y, None, None, Default::default())?;
        loss.backward()?;
        optimizer.step()?;
        losses.push(loss.item()?);
    }
    let _guard = no_grad();
    Ok((losses, net.forward(&x)?.sigmoid()?.to_vec()))
}

fn main() -> Result<()> {
    let (losses, probabilities) = learn(&Reference)?;
    eprintln!("loss {:.4} after the first step, {:.6} after {STEPS}", losses[0], losses[losses.len() - 1]);
    for (bits, probability) in ["00", "01", "10", "11"].iter().zip(probabilities) {
        eprintln!("{bits}: {probability:.3}");
    }
    Ok(())
}
