//! Learns to paint the relief of the Earth from its photograph: a tiled trunk over a whole picture of 5400×2700 pixels in 256 MiB, and
//! attention over the 27×54 cells of 100×100 pixels that it is pooled to. Each cell's colours are compared with the means of the
//! relief in that cell; a fifth of the cells is held out.
//!
//!     cargo run --release -p tiled-autograd --example relief
//!
//! The pictures are those of the demo. The tape holds neither: the trunk reads its picture as it goes, forward and backward. The curve
//! of losses is drawn to `target/relief/`.

#[path = "shared/mod.rs"]
mod shared;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ndarray::Array1;
use tiled_autograd::nn::{
    EncoderLayerOptions, LayerNorm, Linear, Module, ModuleList, TransformerEncoderLayer, parameters,
};
use tiled_autograd::train::{Method, Optimizer, Schedule, clip_norm};
use tiled_autograd::{
    Activation, AdamWOptions, Context, Element, Kernels, Mode, Reduction, Result, TapeError, Tensor, Tiled,
    concat, l1_loss, mse_loss, no_grad, parts,
};
use tiled_exec::{Source, open_source, peak_rss_bytes};
use tiled_graph::Graph;

/// The most bytes that the trunk may hold, with the picture that it reads.
pub(crate) const BUDGET_BYTES: u64 = 256 << 20;
const STEPS: u64 = 80;
const RATE: f64 = 3e-3;

/// Four times fewer rows and columns by a pooling and a stride, then the mean of each cell.
const TRUNK: &str = r#"{
    "inputs": [{"name": "x", "channels": 3}],
    "nodes": [
        {"name": "conv1", "op": "conv2d", "inputs": ["x"], "out_channels": 16, "kernel_size": 3, "padding": "same"},
        {"name": "relu1", "op": "relu", "inputs": ["conv1"]},
        {"name": "pool1", "op": "max_pool2d", "inputs": ["relu1"], "kernel_size": 2},
        {"name": "conv2", "op": "conv2d", "inputs": ["pool1"], "out_channels": 32, "kernel_size": 3, "stride": 2, "padding": 1},
        {"name": "norm2", "op": "batch_norm", "inputs": ["conv2"]},
        {"name": "relu2", "op": "relu", "inputs": ["norm2"]},
        {"name": "cells", "op": "avg_pool2d", "inputs": ["relu2"], "kernel_size": 25}
    ],
    "outputs": ["cells"]
}"#;

const MEANS: &str = r#"{
    "inputs": [{"name": "x", "channels": 3}],
    "nodes": [{"name": "means", "op": "avg_pool2d", "inputs": ["x"], "kernel_size": 100}],
    "outputs": ["means"]
}"#;

/// A picture that is read where it is needed.
pub(crate) type Picture = Arc<dyn Source<f32>>;

fn network(text: &str) -> Result<Graph> {
    Graph::from_json(text).map_err(|error| TapeError::Network { operator: "relief", source: Box::new(error) })
}

/// The trunk and two layers of a transformer's encoder over its cells.
#[derive(Debug)]
struct Relief<T: Element> {
    trunk: Tiled<T>,
    token: Linear<T>,
    layers: ModuleList<TransformerEncoderLayer<T>>,
    norm: LayerNorm<T>,
    head: Linear<T>,
}
parts!(Relief { trunk, token, layers, norm, head });

impl Relief<f32> {
    fn new(context: &Context<f32>) -> Result<Self> {
        const WIDTH: usize = 64;
        let options = EncoderLayerOptions {
            dim_feedforward: 2 * WIDTH,
            dropout: 0.0,
            activation: Activation::Gelu,
            batch_first: true,
            norm_first: true,
            ..EncoderLayerOptions::default()
        };
        let layer = |_| TransformerEncoderLayer::new(context, WIDTH, 4, options);
        Ok(Self {
            trunk: Tiled::new(context, network(TRUNK)?, Some(BUDGET_BYTES), 2)?,
            token: Linear::new(context, 32 + PLACES, WIDTH, true)?,
            layers: (0..2).map(layer).collect::<Result<_>>()?,
            norm: LayerNorm::new(context, &[WIDTH], 1e-5, true)?,
            head: Linear::new(context, WIDTH, 3, true)?,
        })
    }

    /// The colours of all cells, a row each.
    fn paint(&self, picture: &Picture, mode: Mode) -> Result<Tensor<f32>> {
        let features = self.trunk.forward_from(vec![Arc::clone(picture)], mode)?.remove(0);
        let places = places(features.context(), [features.shape()[2], features.shape()[3]])?;
        let mut tokens = self.token.forward(&concat(&[&rows(&features)?, &places], 1)?)?.unsqueeze(0)?;
        for layer in &self.layers {
            tokens = layer.forward(&tokens)?;
        }
        self.head.forward(&self.norm.forward(&tokens)?.squeeze(&[0])?)?.sigmoid()
    }
}

/// What a token knows of its place: latitude, and a point on the circle of longitudes.
const PLACES: usize = 3;

fn places(context: &Context<f32>, [height, width]: [usize; 2]) -> Result<Tensor<f32>> {
    let mut places = Vec::with_capacity(height * width * PLACES);
    for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
        let latitude = 2.0 * (row as f32 + 0.5) / height as f32 - 1.0;
        let longitude = std::f32::consts::TAU * (column as f32 + 0.5) / width as f32;
        places.extend([latitude, longitude.sin(), longitude.cos()]);
    }
    context.from_slice(&[height * width, PLACES], &places)
}

/// One image of C×H×W as H·W rows of C.
fn rows(image: &Tensor<f32>) -> Result<Tensor<f32>> {
    let channels = image.shape()[1];
    image.reshape(&[channels, image.elements() / channels])?.transpose(0, 1)
}

/// What was learnt.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// Of every step.
    pub(crate) losses: Vec<f32>,
    /// The mean error of a colour of the cells held out, of 1.
    pub(crate) error: f32,
    /// The same of the mean colour of the cells that were trained on.
    pub(crate) error_of_mean: f32,
}

/// Trains for some steps on one pair of pictures of the same size; `tell` hears of each loss.
pub(crate) fn learn(
    context: &Context<f32>,
    photograph: &Picture,
    relief: Picture,
    steps: u64,
    mut tell: impl FnMut(u64, f32),
) -> Result<Learnt> {
    context.seed(3);
    let means = Tiled::new(context, network(MEANS)?, Some(BUDGET_BYTES), 0)?;
    let target = rows(&means.forward_from(vec![relief], Mode::Eval)?.remove(0))?.contiguous()?;
    let cells = target.shape()[0];
    let mut trained = context.permutation(cells);
    let held_out = trained.split_off(cells - cells / 5);
    let [trained, held_out] = [trained, held_out]
        .map(|cells| cells.into_iter().map(|cell| i64::try_from(cell).unwrap_or(0)).collect::<Array1<i64>>());
    let [target, target_held_out] = [target.index_select(0, &trained)?, target.index_select(0, &held_out)?];

    let model = Relief::new(context)?;
    let method = Method::AdamW(AdamWOptions { lr: RATE, ..AdamWOptions::default() });
    let mut optimizer = Optimizer::new(parameters(&model), method)?;
    let schedule = Schedule::OneCycle { steps };
    let mut losses = Vec::new();
    for step in 0..steps {
        optimizer.set_learning_rate(0, schedule.rate(RATE, step))?;
        optimizer.zero_grad();
        let painted = model.paint(photograph, Mode::Train)?.index_select(0, &trained)?;
        let loss = mse_loss(&painted, &target, Reduction::Mean)?;
        loss.backward()?;
        clip_norm(&optimizer.parameters(), 1.0)?;
        optimizer.step()?;
        losses.push(loss.item()?);
        tell(step + 1, losses[losses.len() - 1]);
    }
    let _guard = no_grad();
    let painted = model.paint(photograph, Mode::Eval)?.index_select(0, &held_out)?;
    let mean = target.mean(&[0], true)?.expand(target_held_out.shape())?;
    Ok(Learnt {
        losses,
        error: l1_loss(&painted, &target_held_out, Reduction::Mean)?.item()?,
        error_of_mean: l1_loss(&mean, &target_held_out, Reduction::Mean)?.item()?,
    })
}

/// One of the pictures that the program ships.
pub(crate) fn picture(name: &str) -> Result<Picture> {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/assets");
    Ok(Arc::from(open_source::<f32>(assets.join(name))?))
}

pub(crate) const PHOTOGRAPH: &str = "blue_marble_5400x2700.jpg";
pub(crate) const RELIEF: &str = "etopo1_relief_5400x2700.jpg";

fn main() -> shared::Outcome<()> {
    let kernels: &'static dyn Kernels<f32> = shared::kernels()?;
    let context = Context::new(kernels, std::thread::available_parallelism()?.get())?;
    let begin = Instant::now();
    let tell = |step, loss| eprintln!("step {step}: loss {loss:.5}, {:.1} s", begin.elapsed().as_secs_f64());
    let learnt = learn(&context, &picture(PHOTOGRAPH)?, picture(RELIEF)?, STEPS, tell)?;
    eprintln!(
        "a colour of the cells held out is off by {:.4} of 1 on average; their mean would be off by {:.4}",
        learnt.error, learnt.error_of_mean
    );
    let mebibytes = |bytes: u64| bytes >> 20;
    if let Some(peak) = peak_rss_bytes() {
        let (budget, tape) = (mebibytes(BUDGET_BYTES), mebibytes(context.peak_bytes()));
        eprintln!(
            "the process held {} MiB; the trunk may hold {budget}, the tape counted {tape} with it",
            mebibytes(peak)
        );
    }
    let path = Path::new("target/relief/losses.svg");
    shared::draw_losses(path, "relief: mean square of each step", &learnt.losses)?;
    eprintln!("losses: {}", path.display());
    Ok(())
}
