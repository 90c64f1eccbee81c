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

fn bits(tensor: &Tensor<f32>) -> Vec<u32> {
    tensor.to_vec().iter().map(|value| value.to_bits()).collect()
}

fn kernels() -> &'static CpuBackend {
    Box::leak(Box::new(CpuBackend::new().expect("the instruction set is known")))
}

fn value(channel: usize, y: usize, x: usize) -> f32 {
    ((channel * 7 + y * 3 + x * 5 + (x * y) % 11) % 23) as f32 / 12.0 - 0.9
}

/// A model in training, on an image that is a tensor with a gradient.
struct Training {
    model: Model<f32>,
    optimizer: Optimizer<f32>,
    x: Tensor<f32>,
}

impl Training {
    fn new(memory_bytes: Option<u64>, hold: Hold) -> Result<Self> {
        const SHAPE: [usize; 4] = [2, 3, 96, 160];
        let context = Context::<f32>::new(kernels(), 2)?;
        let model = Model::new(&context, memory_bytes, hold)?;
        let [_, channels, height, width] = SHAPE;
        let values: Vec<f32> = (0..SHAPE.iter().product())
            .map(|i: usize| value(i / (height * width) % channels, i / width % height, i % width))
            .collect();
        let sgd = SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() };
        let optimizer = Optimizer::new(parameters(&model), Method::Sgd(sgd))?;
        Ok(Self { model, optimizer, x: context.from_slice(&SHAPE, &values)?.with_gradient()? })
    }

    /// A step; what must have the same bits however the trunk is planned: its output, the gradient of its input, running statistics.
    fn step(&mut self) -> Result<Vec<Vec<u32>>> {
        self.optimizer.zero_grad();
        self.x.zero_grad();
        let features = self.model.trunk.forward(&[&self.x], Mode::Train)?.remove(0);
        let painted = self.model.head(&features)?;
        let target = painted.context().full(painted.shape(), 0.25)?;
        mse_loss(&painted, &target, Reduction::Mean)?.backward()?;
        self.optimizer.step()?;
        let gradient = self.x.grad().expect("it needs one");
        let statistics = self.model.trunk.parameters().filter(|(_, _, is_trained)| !is_trained);
        let statistics = statistics.map(|(_, tensor, _)| bits(tensor));
        Ok([bits(&features), bits(&gradient)].into_iter().chain(statistics).collect())
    }
}

#[test]
fn three_steps_in_a_budget_have_the_bits_of_the_untiled_trunk() -> Result<()> {
    const BUDGET_BYTES: u64 = 1 << 20;
    // n·ε for the terms of a weight's gradient, as many as pixels, and the rate of the step
    const BOUND: f32 = 2.0 * 96.0 * 160.0 * f32::EPSILON;
    let mut whole = Training::new(None, Hold::Materialise)?;
    let mut tiled = Training::new(Some(BUDGET_BYTES), Hold::Auto)?;
    let held = |of: &Training| of.x.context().peak_bytes();
    let mut worst = 0.0_f32;
    for step in 0..3 {
        let (expected, got) = (whole.step()?, tiled.step()?);
        assert_eq!((expected.len(), got.len()), (2 + 4, 2 + 4), "output, gradient and statistics");
        for (at, (expected, got)) in expected.iter().zip(&got).enumerate() {
            let differ = expected.iter().zip(got).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 0, "of {} values of tensor {at} in step {step}", expected.len());
        }
        for ((name, expected), (_, own)) in parameters(&whole.model).iter().zip(parameters(&tiled.model)) {
            let (expected, got) = (expected.to_vec(), own.to_vec());
            let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            for (got, expected) in got.iter().zip(&expected) {
                let apart = (got - expected).abs() / largest;
                worst = worst.max(apart);
                assert!(apart <= BOUND, "step {step}, {name}: {got} for {expected}");
            }
            // the next step begins from the same bits
            own.assign_slice(&expected)?;
        }
    }
    eprintln!("parameters after a step: at most {worst:.1e} of the largest apart, bound {BOUND:.1e}");
    let bytes = [held(&whole), held(&tiled)];
    assert!(bytes[1] * 2 < bytes[0], "the budget makes no difference: {bytes:?}");
    Ok(())
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
