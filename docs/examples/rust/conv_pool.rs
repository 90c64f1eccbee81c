//! A tiled convolution with ReLU and a 2x2 maximum pooling, on memory of the caller.

#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::cast_possible_truncation, reason = "sizes here are small")]

use std::error::Error;

use tiled::exec::SliceSink;
use tiled::graph::{Conv2d, MaxPool2d, Op, ParamTensor};
use tiled::kernel::Activation;
use tiled::prelude::*;

const C: usize = 3;
const O: usize = 8;
const H: usize = 61;
const W: usize = 53;

/// Numbers that are exact in float and the same in every language.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let number = |i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0 - 0.5;
    (0..count as u32).map(|i| number(i + seed)).collect()
}

/// FNV-1a over the bits, so that two runs can be compared.
fn hash(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.fold(14_695_981_039_346_656_037, |h, byte| (h ^ u64::from(byte)).wrapping_mul(1_099_511_628_211))
}

fn main() -> Result<(), Box<dyn Error>> {
    let x = numbers(C * H * W, 1);
    let mut pooled = vec![0.0; O * (H / 2) * (W / 2)];

    let mut graph = Graph::new();
    let input = graph.add_input("x", C)?;
    let conv = graph.add_node("conv", Op::Conv2d(Conv2d::new(O, [3, 3]).padded([1, 1])), &[input])?;
    let relu = graph.add_node("relu", Op::Activation(Activation::Relu), &[conv])?;
    let pool = graph.add_node("pool", Op::MaxPool2d(MaxPool2d::new([2, 2])), &[relu])?;
    graph.set_outputs(&[pool])?;
    let tensors = vec![
        ParamTensor::new("conv.weight", vec![O, C, 3, 3], numbers(O * C * 9, 100_000))?,
        ParamTensor::new("conv.bias", vec![O], numbers(O, 200_000))?,
    ];
    let mut parameters = Parameters::new(&params(&graph), tensors)?;

    let backend = CpuBackend::new()?;
    let shapes = infer(&graph, 1, &[[H, W]])?;
    let options =
        PlanOptions { hold: Hold::Recompute, tiling: Tiling::Tile([8, 8]), ..PlanOptions::default() };
    let plan = Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &backend).plan(&options)?;
    let mut executor = Executor::new(plan, &backend, 2)?;
    {
        let source = MemorySource::new(&x, [1, C, H, W])?;
        let sink = SliceSink::new(&mut pooled, [1, O, H / 2, W / 2])?;
        let io = Io { inputs: vec![&source], outputs: vec![&sink], ..Io::default() };
        executor.run(&mut parameters, &io, &NoProgress)?;
    }
    println!("conv_pool {:016x}", hash(&pooled));
    Ok(())
}
