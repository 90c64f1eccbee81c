//! Learns 1,797 handwritten digits, 360 of them held out, by a convolutional network or a small vision transformer.
//!
//!     cargo run --release -p tiled-autograd --example digits
//!     cargo run --release -p tiled-autograd --example digits -- --vit
//!
//! `data/NOTICE.md` says where the digits come from. The curve of losses is drawn to `target/digits/`.

#[path = "shared/mod.rs"]
mod shared;

use std::path::Path;
use std::time::Instant;

use tiled_autograd::nn::{
    Conv2d, EncoderLayerOptions, LayerNorm, Linear, MaxPool2d, Module, ModuleList, TransformerEncoderLayer,
};
use tiled_autograd::train::{Examples, Method, Optimizer, Rows, Schedule};
use tiled_autograd::{
    Activation, AdamWOptions, Context, CrossEntropyOptions, Element, Kernels, Result, Target, Tensor,
    cross_entropy, no_grad, parts,
};
use tiled_graph as graph;

/// The digits that are not trained on.
pub(crate) const HELD_OUT: usize = 360;
const BATCH: usize = 64;

/// Two convolutions, pooled to 4×4, and two layers.
#[derive(Debug)]
pub(crate) struct Cnn<T: Element> {
    conv1: Conv2d<T>,
    conv2: Conv2d<T>,
    pool: MaxPool2d<T>,
    hidden: Linear<T>,
    head: Linear<T>,
}
parts!(Cnn { conv1, conv2, pool, hidden, head });

impl Cnn<f32> {
    pub(crate) fn new(context: &Context<f32>) -> Result<Self> {
        let conv = |channels| graph::Conv2d::new(channels, [3, 3]).padded([1, 1]);
        Ok(Self {
            conv1: Conv2d::new(context, 1, conv(16))?,
            conv2: Conv2d::new(context, 16, conv(32))?,
            pool: MaxPool2d::new(graph::MaxPool2d::new([2, 2])),
            hidden: Linear::new(context, 32 * 4 * 4, 64, true)?,
            head: Linear::new(context, 64, 10, true)?,
        })
    }
}

impl<T: Element> Module<T> for Cnn<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        let x = self.conv1.forward(x)?.relu()?;
        let x = self.pool.forward(&self.conv2.forward(&x)?.relu()?)?;
        self.head.forward(&self.hidden.forward(&x.flatten(1, -1)?)?.relu()?)
    }
}

/// Sixteen patches of 2×2 pixels, two layers of a transformer's encoder, and the mean of the tokens.
#[derive(Debug)]
pub(crate) struct Vit<T: Element> {
    patch: Linear<T>,
    position: Tensor<T>,
    layers: ModuleList<TransformerEncoderLayer<T>>,
    norm: LayerNorm<T>,
    head: Linear<T>,
}
parts!(Vit { patch, position, layers, norm, head });

impl Vit<f32> {
    const WIDTH: usize = 48;

    pub(crate) fn new(context: &Context<f32>) -> Result<Self> {
        let width = Self::WIDTH;
        let options = EncoderLayerOptions {
            dim_feedforward: 2 * width,
            dropout: 0.0,
            activation: Activation::Gelu,
            batch_first: true,
            norm_first: true,
            ..EncoderLayerOptions::default()
        };
        let layer = |_| TransformerEncoderLayer::new(context, width, 4, options);
        Ok(Self {
            patch: Linear::new(context, 4, width, true)?,
            position: context.normal(&[16, width], 0.0, 0.02)?.with_gradient()?,
            layers: (0..2).map(layer).collect::<Result<_>>()?,
            norm: LayerNorm::new(context, &[width], 1e-5, true)?,
            head: Linear::new(context, width, 10, true)?,
        })
    }
}

impl<T: Element> Module<T> for Vit<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        let batch = x.shape()[0];
        let patches = x.reshape(&[batch, 4, 2, 4, 2])?.permute(&[0, 1, 3, 2, 4])?.reshape(&[batch, 16, 4])?;
        let mut tokens = (&self.patch.forward(&patches)? + &self.position)?;
        for layer in &self.layers {
            tokens = layer.forward(&tokens)?;
        }
        self.head.forward(&self.norm.forward(&tokens)?.mean(&[1], false)?)
    }
}

/// What was learnt.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// Of every step.
    pub(crate) losses: Vec<f32>,
    /// How many of the digits held out are recognised.
    pub(crate) correct: usize,
}

/// Trains a model for some epochs; `tell` hears of each, with the mean of its losses.
pub(crate) fn learn<M: Module<f32> + Sync>(
    kernels: &'static dyn Kernels<f32>,
    threads: usize,
    epochs: u64,
    make: impl FnOnce(&Context<f32>) -> Result<M>,
    mut tell: impl FnMut(u64, f32),
) -> Result<Learnt> {
    const RATE: f64 = 4e-3;
    let context = Context::new(kernels, threads)?;
    context.seed(1);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let digits = Rows::<f32>::npy(data.join("digits.npy"))?;
    let labels = Rows::<i64>::npy(data.join("digit_labels.npy"))?;
    let [trained, held_out] = Examples::new(digits, labels)?.split(&context, HELD_OUT)?;
    let model = make(&context)?;
    let method = Method::AdamW(AdamWOptions { lr: RATE, ..AdamWOptions::default() });
    let mut optimizer = Optimizer::new(model.parameters(), method)?;
    let steps = epochs * trained.len().div_ceil(BATCH) as u64;
    let schedule = Schedule::OneCycle { steps };
    let options = CrossEntropyOptions::default();
    let mut losses = Vec::new();
    for epoch in 1..=epochs {
        let begin = losses.len();
        for batch in trained.shuffled(&context, BATCH)? {
            let (x, labels) = batch?;
            optimizer.set_learning_rate(0, schedule.rate(RATE, losses.len() as u64))?;
            optimizer.zero_grad();
            let loss = context.install(|| {
                let logits = model.forward(&scaled(&context, &x)?)?;
                let loss = cross_entropy(&logits, &Target::Classes(&labels), &options)?;
                loss.backward()?;
                loss.item()
            })?;
            optimizer.step()?;
            losses.push(loss);
        }
        tell(epoch, losses[begin..].iter().sum::<f32>() / (losses.len() - begin) as f32);
    }
    let _guard = no_grad();
    model.set_training(false);
    let mut correct = 0;
    for batch in held_out.in_order(BATCH)? {
        let (x, labels) = batch?;
        let found = model.forward(&scaled(&context, &x)?)?.argmax(Some(1), false)?;
        correct += found.iter().zip(&labels).filter(|(found, label)| found == label).count();
    }
    Ok(Learnt { losses, correct })
}

/// Pixels from −1 to 1.
fn scaled(context: &Context<f32>, x: &ndarray::ArrayD<f32>) -> Result<Tensor<f32>> {
    context.from_array(x)?.affine(1.0 / 8.0, -1.0)
}

fn main() -> shared::Outcome<()> {
    let is_vit = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--vit") => true,
        Some(other) => return Err(format!("unknown argument `{other}`, known is --vit").into()),
    };
    let (kernels, begin) = (shared::kernels()?, Instant::now());
    let threads = std::thread::available_parallelism()?.get();
    let tell =
        |epoch, loss| eprintln!("epoch {epoch}: loss {loss:.4}, {:.1} s", begin.elapsed().as_secs_f64());
    let (name, learnt) = match is_vit {
        false => ("cnn", learn(kernels, threads, CNN_EPOCHS, Cnn::new, tell)?),
        true => ("vit", learn(kernels, threads, VIT_EPOCHS, Vit::new, tell)?),
    };
    let share = 100.0 * learnt.correct as f64 / HELD_OUT as f64;
    eprintln!("{} of {HELD_OUT} digits held out are recognised: {share:.1} %", learnt.correct);
    let path = Path::new("target/digits").join(format!("losses-{name}.svg"));
    shared::draw_losses(&path, &format!("digits by a {name}: cross entropy of each batch"), &learnt.losses)?;
    eprintln!("losses: {}", path.display());
    Ok(())
}

/// Epochs of the convolutional network.
pub(crate) const CNN_EPOCHS: u64 = 20;
/// Epochs of the transformer.
pub(crate) const VIT_EPOCHS: u64 = 40;
