//! A tiled trunk and a head on the tape, in a budget.

use std::sync::Arc;

use tiled_autograd::nn::{
    LayerNorm, Linear, Module, MultiheadAttention, MultiheadAttentionOptions, parameters,
};
use tiled_autograd::train::{Method, Optimizer};
use tiled_autograd::{
    Context, Element, Hold, Mode, Reduction, Result, SgdOptions, Tensor, Tiled, mse_loss, parts,
};
use tiled_cpu::CpuBackend;
use tiled_exec::{PointSource, Source, peak_rss_bytes};
use tiled_graph::Graph;

use crate::alone;

const TRUNK: &str = r#"{
    "inputs": [{"name": "x", "channels": 3}],
    "nodes": [
        {"name": "conv1", "op": "conv2d", "inputs": ["x"], "out_channels": 16, "kernel_size": 3, "padding": "same"},
        {"name": "norm1", "op": "batch_norm", "inputs": ["conv1"]},
        {"name": "relu1", "op": "relu", "inputs": ["norm1"]},
        {"name": "pool1", "op": "max_pool2d", "inputs": ["relu1"], "kernel_size": 2},
        {"name": "conv2", "op": "conv2d", "inputs": ["pool1"], "out_channels": 16, "kernel_size": 3, "padding": "same"},
        {"name": "norm2", "op": "batch_norm", "inputs": ["conv2"]},
        {"name": "relu2", "op": "relu", "inputs": ["norm2"]},
        {"name": "cells", "op": "avg_pool2d", "inputs": ["relu2"], "kernel_size": 16}
    ],
    "outputs": ["cells"]
}"#;

#[derive(Debug)]
struct Model<T: Element> {
    trunk: Tiled<T>,
    norm: LayerNorm<T>,
    attention: MultiheadAttention<T>,
    head: Linear<T>,
}
parts!(Model { trunk, norm, attention, head });

impl Model<f32> {
    fn new(context: &Context<f32>, memory_bytes: Option<u64>, hold: Hold) -> Result<Self> {
        context.seed(4);
        let graph = Graph::from_json(TRUNK).expect("it is a network");
        let options = MultiheadAttentionOptions { batch_first: true, ..MultiheadAttentionOptions::default() };
        Ok(Self {
            trunk: Tiled::new(context, graph, memory_bytes, 5)?.with_hold(hold),
            norm: LayerNorm::new(context, &[16], 1e-5, true)?,
            attention: MultiheadAttention::new(context, 16, 2, options)?,
            head: Linear::new(context, 16, 1, true)?,
        })
    }

    fn head(&self, features: &Tensor<f32>) -> Result<Tensor<f32>> {
        let tokens = features.flatten(2, -1)?.transpose(1, 2)?;
        self.head.forward(&self.attention.forward(&self.norm.forward(&tokens)?)?)
    }
}

fn kernels() -> &'static CpuBackend {
    Box::leak(Box::new(CpuBackend::new().expect("the instruction set is known")))
}

fn value(channel: usize, y: usize, x: usize) -> f32 {
    ((channel * 7 + y * 3 + x * 5 + (x * y) % 11) % 23) as f32 / 12.0 - 0.9
}

#[test]
fn a_process_that_trains_stays_within_budget_tape_and_64_mebibytes() {
    alone("budget::a_process_that_trains_stays_within_budget_tape_and_64_mebibytes", || {
        for threads in [1, 2] {
            within_the_budget(threads).expect("it trains");
        }
    });
}

/// Steps on an image of 32 MB whose activations would take 600, read from where it lies.
fn within_the_budget(threads: usize) -> Result<()> {
    const BUDGET_BYTES: u64 = 32 << 20;
    const OTHER_BYTES: u64 = 64 << 20;
    let context = Context::<f32>::new(kernels(), threads)?;
    let model = Model::new(&context, Some(BUDGET_BYTES), Hold::Auto)?;
    let source = PointSource::new("<pattern>", [1, 3, 1536, 1792], |[_, channel, y, x]| value(channel, y, x))
        .expect("the shape fits");
    let source: Arc<dyn Source<f32>> = Arc::new(source);
    let mut optimizer = Optimizer::new(parameters(&model), Method::Sgd(SgdOptions::default()))?;
    for _ in 0..3 {
        optimizer.zero_grad();
        let features = model.trunk.forward_from(vec![Arc::clone(&source)], Mode::Train)?.remove(0);
        let painted = model.head(&features)?;
        let target = context.full(painted.shape(), 0.25)?;
        mse_loss(&painted, &target, Reduction::Mean)?.backward()?;
        optimizer.step()?;
    }
    // the tape counts what the trunk holds between forward and backward, so that its peak has the budget in it
    let tape = context.peak_bytes();
    match peak_rss_bytes() {
        Some(peak) => {
            eprintln!("{threads} threads: the process held {peak} bytes, the tape with the trunk {tape}");
            assert!(peak <= BUDGET_BYTES.max(tape) + OTHER_BYTES, "{peak} bytes of {tape} and {OTHER_BYTES}");
        }
        None => eprintln!("skipped: the system does not say what was resident"),
    }
    Ok(())
}
