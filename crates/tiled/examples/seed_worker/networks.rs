//! Models for pictures of 8×8 pixels.

use tiled::autograd::nn::{Conv2d, EncoderLayerOptions, LayerNorm, Linear, Module, TransformerEncoderLayer};
use tiled::autograd::{Context, Element, Result, Tensor, parts};
use tiled::graph;

/// Two convolutions, a pooling, two linear layers.
#[derive(Debug)]
pub(crate) struct Cnn<T: Element> {
    conv1: Conv2d<T>,
    conv2: Conv2d<T>,
    linear1: Linear<T>,
    linear2: Linear<T>,
}
parts!(Cnn { conv1, conv2, linear1, linear2 });

impl<T: Element> Cnn<T> {
    pub(crate) fn new(context: &Context<T>) -> Result<Self> {
        let conv = |inputs, outputs| {
            Conv2d::new(context, inputs, graph::Conv2d::new(outputs, [3, 3]).padded([1, 1]))
        };
        Ok(Self {
            conv1: conv(1, 16)?,
            conv2: conv(16, 32)?,
            linear1: Linear::new(context, 32 * 4 * 4, 64, true)?,
            linear2: Linear::new(context, 64, 10, true)?,
        })
    }
}

impl<T: Element> Module<T> for Cnn<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        let x = self.conv1.forward(x)?.relu()?;
        let x = self.conv2.forward(&x)?.relu()?;
        let x = x.max_pool2d(&graph::MaxPool2d::new([2, 2]))?.flatten(1, -1)?;
        self.linear2.forward(&self.linear1.forward(&x)?.relu()?)
    }
}

/// A vision transformer: pieces of 2×2 pixels, positions that are learnt, two layers, the mean over pieces.
#[derive(Debug)]
pub(crate) struct Vit<T: Element> {
    embed: Linear<T>,
    position: Tensor<T>,
    layers: Vec<TransformerEncoderLayer<T>>,
    norm: LayerNorm<T>,
    head: Linear<T>,
}
parts!(Vit { embed, position, layers, norm, head });

/// The width of a piece.
const WIDTH: usize = 64;

impl<T: Element> Vit<T> {
    pub(crate) fn new(context: &Context<T>) -> Result<Self> {
        let options = EncoderLayerOptions {
            dim_feedforward: 2 * WIDTH,
            dropout: 0.0,
            batch_first: true,
            norm_first: true,
            ..EncoderLayerOptions::default()
        };
        let layer = || TransformerEncoderLayer::new(context, WIDTH, 4, options);
        Ok(Self {
            embed: Linear::new(context, 4, WIDTH, true)?,
            position: context.zeros(&[1, 16, WIDTH])?.with_gradient()?,
            layers: vec![layer()?, layer()?],
            norm: LayerNorm::new(context, &[WIDTH], 1e-5, true)?,
            head: Linear::new(context, WIDTH, 10, true)?,
        })
    }
}

impl<T: Element> Module<T> for Vit<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        // N×1×8×8 as N×16×4: four rows and columns of pieces
        let pieces = x.reshape(&[x.shape()[0], 4, 2, 4, 2])?.permute(&[0, 1, 3, 2, 4])?;
        let pieces = pieces.reshape(&[x.shape()[0], 16, 4])?;
        let mut x = (&self.embed.forward(&pieces)? + &self.position)?;
        for layer in &self.layers {
            x = layer.forward(&x)?;
        }
        self.head.forward(&self.norm.forward(&x)?.mean(&[1], false)?)
    }
}
