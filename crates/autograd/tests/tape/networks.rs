//! Networks as functions on the tape.

use tiled_autograd::{BackwardOptions, BatchNormOptions, Mode, Result, Tensor, Tiled};
use tiled_graph::{Conv2d, Graph};

use crate::{context, leaf};

const NETWORK: &str = r#"{
    "inputs": [{"name": "x", "channels": 2}],
    "nodes": [
        {"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 3, "kernel_size": 3, "padding": "same"},
        {"name": "b1", "op": "batch_norm", "inputs": ["c1"]},
        {"name": "r1", "op": "relu", "inputs": ["b1"]},
        {"name": "d1", "op": "dropout", "inputs": ["r1"], "p": 0.25},
        {"name": "p1", "op": "max_pool2d", "inputs": ["d1"], "kernel_size": 2}
    ],
    "outputs": ["p1"]
}"#;

fn bits(tensor: &Tensor<f64>) -> Vec<u64> {
    tensor.to_vec().iter().map(|value| value.to_bits()).collect()
}

/// Gradients of parameters.
type Sums = Vec<Vec<f64>>;

/// Outputs, gradient of the input and running statistics of two steps; gradients of parameters.
fn steps(memory_bytes: Option<u64>) -> Result<(Vec<Vec<u64>>, Sums)> {
    let context = context();
    context.seed(3);
    let graph = Graph::from_json(NETWORK).expect("it is a network");
    let tiled = Tiled::new(&context, graph, memory_bytes, 5)?;
    let (mut exact, mut near) = (Vec::new(), Vec::new());
    for step in 0..2 {
        let x = leaf(&context, step, &[1, 2, 40, 36]);
        let y = tiled.forward(&[&x], Mode::Train)?.remove(0);
        (&y * &y)?.sum(&[], false)?.backward()?;
        exact.push(bits(&y));
        exact.push(bits(&x.grad().expect("it needs one")));
    }
    for (_, tensor, is_trained) in tiled.parameters() {
        match is_trained {
            true => near.push(tensor.grad().expect("it needs one").to_vec()),
            false => exact.push(bits(tensor)),
        }
    }
    Ok((exact, near))
}

#[test]
fn a_network_in_a_budget_has_the_bits_of_the_untiled_one() -> Result<()> {
    let (whole, whole_sums) = steps(None)?;
    let (tiled, tiled_sums) = steps(Some(48 << 10))?;
    assert_eq!(whole, tiled);
    for (a, b) in whole_sums.iter().flatten().zip(tiled_sums.iter().flatten()) {
        assert!((a - b).abs() <= 1e-10 * a.abs().max(1.0), "{a} for {b}");
    }
    Ok(())
}

#[test]
fn two_forwards_may_wait_and_run_back_in_any_order() -> Result<()> {
    let context = context();
    let (x, w) = (leaf(&context, 1, &[1, 2, 6, 6]), leaf(&context, 2, &[3, 2, 3, 3]));
    let conv = Conv2d::new(1, [1, 1]);
    let run = |x: &Tensor<f64>| x.conv2d(&conv, &w, None)?.tanh()?.sum(&[], false);
    run(&x)?.backward()?;
    let first = w.grad().expect("it needs one").to_vec();
    w.zero_grad();
    let double = (&x * 2.0)?;
    run(&double)?.backward()?;
    let second = w.grad().expect("it needs one").to_vec();
    w.zero_grad();
    let (a, b) = (run(&x)?, run(&(&x * 2.0)?)?);
    a.backward()?;
    assert_eq!(w.grad().expect("it needs one").to_vec(), first);
    w.zero_grad();
    b.backward()?;
    assert_eq!(w.grad().expect("it needs one").to_vec(), second);
    Ok(())
}

#[test]
fn a_graph_that_is_retained_runs_back_again() -> Result<()> {
    let context = context();
    let (x, w) = (leaf(&context, 1, &[1, 2, 6, 6]), leaf(&context, 2, &[3, 2, 3, 3]));
    let y = x.conv2d(&Conv2d::new(1, [1, 1]), &w, None)?.sum(&[], false)?;
    y.backward_with(None, BackwardOptions { retain_graph: true })?;
    let once = w.grad().expect("it needs one").to_vec();
    y.backward()?;
    let twice: Vec<f64> = once.iter().map(|value| value + value).collect();
    assert_eq!(w.grad().expect("it needs one").to_vec(), twice);
    assert!(y.backward().is_err());
    Ok(())
}

#[test]
fn running_statistics_move_in_training_alone() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[4, 2, 3, 3]);
    let (mean, variance) = (context.zeros(&[2])?, context.ones(&[2])?);
    let running = Some([&mean, &variance]);
    let eval = BatchNormOptions { training: false, ..BatchNormOptions::default() };
    x.batch_norm(running, [None, None], &eval)?.sum(&[], false)?.backward()?;
    assert_eq!(mean.to_vec(), [0.0; 2]);
    x.batch_norm(running, [None, None], &BatchNormOptions::default())?;
    let expected: Vec<f64> = x.mean(&[0, 2, 3], false)?.to_vec().iter().map(|value| value * 0.1).collect();
    for (got, expected) in mean.to_vec().iter().zip(expected) {
        assert!((got - expected).abs() < 1e-15);
    }
    assert_ne!(variance.to_vec(), [1.0; 2]);
    Ok(())
}

#[test]
fn masks_of_dropout_follow_the_seed_and_scale_what_is_left() -> Result<()> {
    let context = context();
    let draw = || context.ones(&[40, 50]).and_then(|x| x.dropout(0.25, true)).map(|y| y.to_vec());
    context.seed(7);
    let (first, second) = (draw()?, draw()?);
    context.seed(7);
    assert_eq!(draw()?, first);
    assert_ne!(first, second);
    let kept = first.iter().filter(|value| **value != 0.0).count();
    assert!((1400..1600).contains(&kept), "{kept} of 2000");
    assert!(first.iter().all(|value| *value == 0.0 || (value - 4.0 / 3.0).abs() < 1e-15));
    let x = leaf(&context, 1, &[40, 50]);
    let y = x.dropout(0.25, true)?;
    y.sum(&[], false)?.backward()?;
    for ((x, y), g) in x.to_vec().iter().zip(y.to_vec()).zip(x.grad().expect("it needs one").to_vec()) {
        assert!((x * g - y).abs() < 1e-15);
    }
    Ok(())
}
