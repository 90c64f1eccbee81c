//! The memory of a process that trains.

use std::path::Path;

use tiled_autograd::nn::{BatchNorm, Conv2d, Dropout, Linear, Module};
use tiled_autograd::train::{Examples, Method, Optimizer, Rows};
use tiled_autograd::{
    AdamWOptions, Context, CrossEntropyOptions, Element, Result, Target, Tensor, cross_entropy, parts,
};
use tiled_cpu::CpuBackend;

use crate::alone;

#[derive(Debug)]
struct Net<T: Element> {
    conv: Conv2d<T>,
    norm: BatchNorm<T>,
    dropout: Dropout<T>,
    head: Linear<T>,
}
parts!(Net { conv, norm, dropout, head });

impl<T: Element> Module<T> for Net<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        let features = self.norm.forward(&self.conv.forward(x)?)?.relu()?;
        self.head.forward(&self.dropout.forward(&features.flatten(1, -1)?)?)
    }
}

/// The bytes that the process has resident, where the system says so.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// The most that the process may grow by after the first hundred steps: what an allocator moves about, and far less than a batch a step.
const GROWTH_BYTES: u64 = 1 << 20;

#[test]
fn a_thousand_steps_leave_the_memory_of_the_process_as_it_was() {
    alone("flat::a_thousand_steps_leave_the_memory_of_the_process_as_it_was", || {
        train().expect("it trains");
    });
}

fn train() -> Result<()> {
    let kernels: &'static CpuBackend =
        Box::leak(Box::new(CpuBackend::new().expect("the instruction set is known")));
    let context = Context::<f32>::new(kernels, 2)?;
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let digits = Rows::<f32>::npy(data.join("digits.npy"))?;
    let labels = Rows::<i64>::npy(data.join("digit_labels.npy"))?;
    let examples = Examples::new(digits, labels)?;
    let net = Net {
        conv: Conv2d::new(&context, 1, tiled_graph::Conv2d::new(8, [3, 3]))?,
        norm: BatchNorm::new(&context, 8, 1e-5, 0.1, true)?,
        dropout: Dropout::new(0.1),
        head: Linear::new(&context, 8 * 36, 10, true)?,
    };
    let adam = Method::AdamW(AdamWOptions::default());
    let mut optimizer = Optimizer::new(net.parameters(), adam)?;
    let live_before = context.live_bytes();
    let (mut steps, mut after_hundred) = (0, None);
    while steps < 1000 {
        for batch in examples.shuffled(&context, 32)? {
            let (x, labels) = batch?;
            optimizer.zero_grad();
            let x = context.from_array(&x)?;
            let logits = net.forward(&x)?;
            cross_entropy(&logits, &Target::Classes(&labels), &CrossEntropyOptions::default())?.backward()?;
            optimizer.step()?;
            steps += 1;
            if steps == 100 {
                after_hundred = resident_bytes();
            }
            if steps == 1000 {
                break;
            }
        }
    }
    optimizer.zero_grad();
    assert_eq!(context.live_bytes(), live_before, "only the parameters live on");
    match (after_hundred, resident_bytes()) {
        (Some(before), Some(after)) => {
            eprintln!("resident after 100 steps {before} bytes, after 1,000 {after}");
            assert!(after <= before + GROWTH_BYTES, "{after} bytes after {before}");
        }
        _ => eprintln!("skipped: the system does not say what is resident"),
    }
    Ok(())
}
