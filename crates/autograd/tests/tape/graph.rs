//! What backward does with a graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tiled_autograd::{BackwardOptions, Result, grad, grad_with, no_grad, records_gradients};

use crate::{context, leaf};

#[test]
fn gradients_are_added_over_calls_and_over_uses() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[3]);
    let y = (&(&x * &x)? + &x)?;
    y.sum(&[], false)?.backward()?;
    let once = x.grad().expect("it needs one").to_vec();
    // the sum comes last, so its gradient is there first
    let expected: Vec<f64> = x.to_vec().iter().map(|x| 1.0 + x + x).collect();
    assert_eq!(once, expected);
    (&(&x * &x)? + &x)?.sum(&[], false)?.backward()?;
    let twice: Vec<f64> = once.iter().zip(x.to_vec()).map(|(once, x)| once + 1.0 + x + x).collect();
    assert_eq!(x.grad().expect("it needs one").to_vec(), twice);
    x.zero_grad();
    assert!(x.grad().is_none());
    Ok(())
}

#[test]
fn a_gradient_that_was_given_out_does_not_change() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[3]);
    (&x * 2.0)?.sum(&[], false)?.backward()?;
    let held = x.grad().expect("it needs one");
    (&x * 3.0)?.sum(&[], false)?.backward()?;
    assert_eq!(held.to_vec(), [2.0; 3]);
    assert_eq!(x.grad().expect("it needs one").to_vec(), [5.0; 3]);
    // and may go back in as what backward begins with
    let upstream = x.grad().expect("it needs one");
    (&x * 1.0)?.backward_with(Some(&upstream), BackwardOptions::default())?;
    assert_eq!(x.grad().expect("it needs one").to_vec(), [10.0; 3]);
    Ok(())
}

#[test]
fn a_chain_of_300_000_nodes_neither_recurses_forward_back_nor_when_dropped() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[1]);
    let before = context.live_bytes();
    for runs_back in [true, false] {
        let mut y = (&x + 1.0)?;
        for _ in 0..300_000 {
            y = (&y + 0.5)?;
        }
        if runs_back {
            y.backward()?;
            assert_eq!(x.grad().expect("it needs one").to_vec(), [1.0]);
            x.zero_grad();
        }
        drop(y);
        assert_eq!(context.live_bytes(), before);
    }
    Ok(())
}

#[test]
fn gradients_of_inputs_leave_leaves_alone() -> Result<()> {
    let context = context();
    let (x, w) = (leaf(&context, 1, &[3]), leaf(&context, 2, &[3]));
    let y = (&x * &w)?;
    let z = y.exp()?;
    let found = grad_with(
        &[(&z, Some(&context.ones(&[3])?))],
        &[&y, &x, &leaf(&context, 3, &[2]), &x],
        BackwardOptions { retain_graph: true },
    )?;
    assert!(x.grad().is_none() && w.grad().is_none() && found[2].is_none());
    let of_y = found[0].as_ref().expect("z depends on it").to_vec();
    assert_eq!(of_y, z.to_vec());
    let expected: Vec<f64> = of_y.iter().zip(w.to_vec()).map(|(g, w)| g * w).collect();
    assert_eq!(found[1].as_ref().expect("z depends on it").to_vec(), expected);
    assert_eq!(found[3].as_ref().expect("z depends on it").to_vec(), expected);
    z.backward_with(Some(&context.ones(&[3])?), BackwardOptions::default())?;
    assert_eq!(x.grad().expect("it needs one").to_vec(), expected);
    let two = grad(&[&x.sum(&[], false)?], &[&x])?;
    assert_eq!(two[0].as_ref().expect("it does").to_vec(), [1.0; 3]);
    Ok(())
}

#[test]
fn hooks_see_the_whole_gradient_and_may_replace_it() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[2]);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let hook = x.register_hook(move |gradient| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Some((gradient * 10.0)?))
    })?;
    let y = (&x * 2.0)?;
    y.retain_grad()?;
    (&y + &x)?.sum(&[], false)?.backward()?;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(x.grad().expect("it needs one").to_vec(), [30.0; 2]);
    assert_eq!(y.grad().expect("it is kept").to_vec(), [1.0; 2]);
    assert!(x.remove_hook(hook) && !x.remove_hook(hook));
    Ok(())
}

#[test]
fn nothing_is_recorded_under_a_guard_however_nested() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[2]);
    {
        let _outer = no_grad();
        {
            let _inner = no_grad();
        }
        assert!(!records_gradients());
        assert!(!(&x * 2.0)?.requires_grad());
        assert!(!context.install(|| (&x * 2.0).map(|y| y.requires_grad()))?);
    }
    assert!((&x * 2.0)?.requires_grad());
    assert!(!x.detach().requires_grad());
    Ok(())
}

#[test]
fn values_cut_into_many_parts_get_one_gradient() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[64, 3]);
    let parts = x.chunks(0, 1)?;
    let mut sum = parts[0].sum(&[], false)?;
    for (at, part) in parts.iter().enumerate().skip(1) {
        sum = (&sum + &(&part.sum(&[], false)? * (at as f64))?)?;
    }
    sum.backward()?;
    let expected: Vec<f64> = (0..64).flat_map(|row| [if row == 0 { 1.0 } else { row as f64 }; 3]).collect();
    assert_eq!(x.grad().expect("it needs one").to_vec(), expected);
    Ok(())
}

#[test]
fn a_step_beyond_the_end_takes_one_element() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[5, 3]);
    let part = x.slice_step(0, 1, 5, usize::MAX)?;
    assert_eq!(part.to_vec(), x.to_vec()[3..6]);
    let same = part.slice_step(0, 0, 1, usize::MAX)?;
    assert_eq!(x.slice_step(0, 2, 2, usize::MAX)?.shape(), [0, 3]);
    same.sum(&[], false)?.backward()?;
    let expected: Vec<f64> = (0..15).map(|i| if (3..6).contains(&i) { 1.0 } else { 0.0 }).collect();
    assert_eq!(x.grad().expect("it needs one").to_vec(), expected);
    Ok(())
}

#[test]
fn the_logarithm_of_a_sum_of_no_exponentials_is_minus_infinity() -> Result<()> {
    let context = context();
    let cases = [
        (vec![2, 0, 3], vec![1], false, vec![2, 3]),
        (vec![2, 0, 3], vec![-2], true, vec![2, 1, 3]),
        (vec![2, 0, 3], vec![], false, vec![]),
        (vec![2, 0, 3], vec![1, 2], false, vec![2]),
        (vec![0], vec![0], false, vec![]),
        (vec![2, 0, 3], vec![0], false, vec![0, 3]),
    ];
    for (shape, axes, keepdim, expected) in cases {
        let x = leaf(&context, 1, &shape);
        let y = x.logsumexp(&axes, keepdim)?;
        assert_eq!(y.shape(), expected);
        assert!(y.to_vec().iter().all(|value| *value == f64::NEG_INFINITY), "{shape:?} {axes:?}: {y:?}");
        y.sum(&[], false)?.backward()?;
        assert_eq!(x.grad().expect("it needs one").shape(), shape);
    }
    Ok(())
}

#[test]
fn drawings_show_every_node() -> Result<()> {
    let context = context();
    let (x, w) = (leaf(&context, 1, &[2, 3]), leaf(&context, 2, &[4, 3]));
    let y = x.linear(&w, None)?.relu()?.mean(&[], false)?;
    let (dot, svg) = (y.to_dot(), y.to_svg());
    for name in ["leaf [2, 3]", "linear [2, 4]", "relu [2, 4]", "mean [1, 1]"] {
        assert!(dot.contains(name) && svg.contains(name), "{name}: {dot}");
    }
    assert_eq!(svg.matches("<rect").count(), 6);
    Ok(())
}
