//! Changes in place.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ndarray::array;
use tiled_autograd::{
    AttentionOptions, Context, CrossEntropyOptions, Result, TapeError, Target, cross_entropy, no_grad,
    scaled_dot_product_attention,
};
use tiled_kernel::Reference;

use crate::{context, leaf};

#[test]
fn a_recorded_change_has_the_gradient_of_the_operation() -> Result<()> {
    let context = context();
    let (x, b) = (leaf(&context, 1, &[2, 3]), leaf(&context, 2, &[3]));
    let mut y = (&x * 2.0)?;
    y.add_in_place(&b)?;
    y.affine_in_place(3.0, 1.0)?;
    y.sum(&[], false)?.backward()?;
    assert_eq!(x.grad().expect("it needs one").to_vec(), [6.0; 6]);
    assert_eq!(b.grad().expect("it needs one").to_vec(), [6.0; 3]);
    Ok(())
}

#[test]
fn a_view_and_what_it_shows_change_together() -> Result<()> {
    let context = context();
    let x = context.zeros(&[2, 3])?;
    let mut column = x.select(1, 1)?;
    column.affine_in_place(1.0, 5.0)?;
    assert_eq!(x.to_vec(), [0.0, 5.0, 0.0, 0.0, 5.0, 0.0]);
    let mut same = x.clone();
    same.add_in_place(&x.flip(&[1])?)?;
    assert_eq!(x.to_vec(), [0.0, 10.0, 0.0, 0.0, 10.0, 0.0]);
    assert_eq!(x.version(), 2);
    Ok(())
}

#[test]
fn what_a_rule_has_saved_may_not_change() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[3]);
    let mut y = (&x * 1.0)?;
    let z = y.exp()?;
    let kept = (&y * &z)?;
    y.affine_in_place(1.0, 1.0)?;
    let error = kept.sum(&[], false)?.backward().expect_err("its operand has changed");
    assert!(matches!(error, TapeError::Changed { operator: "mul", .. }), "{error}");
    assert!(x.grad().is_none(), "nothing is added where something has changed");
    z.sum(&[], false)?.backward()
}

#[test]
fn masks_weights_and_targets_that_a_rule_reads_may_not_change() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[3, 2]);
    let refused = |loss: tiled_autograd::Tensor<f64>, name: &str| {
        let error = loss.sum(&[], false).and_then(|sum| sum.backward()).expect_err("an operand has changed");
        assert!(matches!(error, TapeError::Changed { operator, .. } if operator == name), "{error}");
        assert!(x.grad().is_none(), "nothing is added where something has changed");
    };
    let mut mask = context.zeros(&[3, 3])?;
    let options = AttentionOptions { summands: Some(mask.clone()), ..AttentionOptions::default() };
    let y = scaled_dot_product_attention([&x; 3], &options)?;
    mask.affine_in_place(1.0, 1.0)?;
    refused(y, "scaled_dot_product_attention");
    let mut weight = context.ones(&[2])?;
    let options = CrossEntropyOptions { weight: Some(weight.clone()), ..CrossEntropyOptions::default() };
    let loss = cross_entropy(&x, &Target::Classes(&array![0_i64, 1, 1].into_dyn()), &options)?;
    weight.affine_in_place(2.0, 0.0)?;
    refused(loss, "cross_entropy");
    let mut target = context.full(&[3, 2], 0.5)?;
    let loss = cross_entropy(&x, &Target::Probabilities(&target), &CrossEntropyOptions::default())?;
    target.affine_in_place(0.5, 0.0)?;
    refused(loss, "cross_entropy");
    Ok(())
}

#[test]
fn masks_weights_and_targets_belong_to_the_context_of_the_input() -> Result<()> {
    let context = context();
    let other = Context::<f64>::new(&Reference, 1)?;
    let x = leaf(&context, 1, &[3, 2]);
    let options = AttentionOptions { summands: Some(other.zeros(&[3, 3])?), ..AttentionOptions::default() };
    let attention = scaled_dot_product_attention([&x; 3], &options);
    let classes = array![0_i64, 1, 1].into_dyn();
    let options = CrossEntropyOptions { weight: Some(other.ones(&[2])?), ..CrossEntropyOptions::default() };
    let weighted = cross_entropy(&x, &Target::Classes(&classes), &options);
    let target = other.full(&[3, 2], 0.5)?;
    let aimed = cross_entropy(&x, &Target::Probabilities(&target), &CrossEntropyOptions::default());
    for result in [attention, weighted, aimed] {
        let error = result.expect_err("two contexts");
        assert!(matches!(error, TapeError::Contexts { .. }), "{error}");
    }
    Ok(())
}

#[test]
fn a_stale_history_is_an_error_and_not_a_wrong_gradient() -> Result<()> {
    let context = context();
    let (x, w) = (context.ones(&[3])?, leaf(&context, 1, &[3]));
    let mut changed = x.clone();
    changed.add_in_place(&w)?;
    let error = (&x * 2.0).expect_err("its memory has another history now");
    assert!(matches!(error, TapeError::Changed { .. }), "{error}");
    (&changed * 2.0)?.sum(&[], false)?.backward()?;
    assert_eq!(w.grad().expect("it needs one").to_vec(), [2.0; 3]);
    Ok(())
}

#[test]
fn leaves_change_outside_the_tape_alone() -> Result<()> {
    let context = context();
    let mut x = leaf(&context, 1, &[3]);
    let error = x.affine_in_place(2.0, 0.0).expect_err("it is a leaf");
    assert!(matches!(error, TapeError::InPlace { .. }), "{error}");
    {
        let _guard = no_grad();
        x.affine_in_place(0.0, 4.0)?;
    }
    assert_eq!(x.to_vec(), [4.0; 3]);
    assert!(x.is_leaf());
    x.assign(&context.full(&[1], 2.0)?)?;
    (&x * &x)?.sum(&[], false)?.backward()?;
    assert_eq!(x.grad().expect("it needs one").to_vec(), [4.0; 3]);
    let mut repeated = context.ones(&[1])?.expand(&[3])?;
    let error = repeated.affine_in_place(2.0, 0.0).expect_err("one element stands for three");
    assert!(matches!(error, TapeError::InPlace { .. }), "{error}");
    Ok(())
}

#[test]
fn views_of_leaves_change_outside_the_tape_alone() -> Result<()> {
    let context = context();
    let x = context.from_slice(&[3], &[1.0, 2.0, 3.0])?.with_gradient()?;
    let w = leaf(&context, 1, &[2]);
    let refused = |result: Result<()>| {
        let error = result.expect_err("the leaf would be stale");
        assert!(matches!(error, TapeError::InPlace { .. }), "{error}");
        assert_eq!(x.to_vec(), [1.0, 2.0, 3.0]);
    };
    refused(x.slice(0, 0, 2)?.affine_in_place(10.0, 0.0));
    refused(x.slice(0, 0, 2)?.add_in_place(&w));
    refused(x.detach().slice(0, 0, 2)?.add_in_place(&w));
    // none of these is recorded
    x.detach().slice(0, 0, 1)?.affine_in_place(2.0, 0.0)?;
    {
        let _guard = no_grad();
        x.slice(0, 1, 2)?.affine_in_place(2.0, 0.0)?;
        x.slice(0, 2, 3)?.assign_slice(&[5.0])?;
    }
    (&x * &x)?.sum(&[], false)?.backward()?;
    assert_eq!(x.grad().expect("it needs one").to_vec(), [4.0, 8.0, 10.0]);
    Ok(())
}

#[test]
fn memory_with_a_leaf_in_it_is_changed_on_the_tape_once_the_leaf_is_gone() -> Result<()> {
    let context = context();
    let all = context.ones(&[4])?;
    let w = leaf(&context, 1, &[2]);
    let part = all.slice(0, 0, 2)?.with_gradient()?;
    let mut rest = all.slice(0, 2, 4)?;
    let error = rest.add_in_place(&w).expect_err("a leaf lies in the same memory");
    assert!(matches!(error, TapeError::InPlace { .. }), "{error}");
    drop(part);
    rest.add_in_place(&w)?;
    rest.sum(&[], false)?.backward()?;
    assert_eq!(w.grad().expect("it needs one").to_vec(), [1.0; 2]);
    // a copy is memory of its own
    let x = leaf(&context, 2, &[2, 3]);
    let mut copy = x.transpose(0, 1)?.reshape(&[6])?;
    copy.affine_in_place(3.0, 0.0)?;
    copy.sum(&[], false)?.backward()?;
    assert_eq!(x.grad().expect("it needs one").to_vec(), [3.0; 6]);
    Ok(())
}

#[test]
fn threads_that_change_tensors_by_one_another_come_to_an_end() -> Result<()> {
    let context = context();
    let (a, b) = (context.zeros(&[64])?, context.zeros(&[64])?);
    let (sender, receiver) = mpsc::channel();
    for (to, from) in [(&a, &b), (&b, &a)] {
        let (mut to, from, sender) = (to.clone(), from.clone(), sender.clone());
        thread::spawn(move || {
            let result = (0..50_000).try_for_each(|_| {
                to.add_in_place(&from)?;
                to.assign(&from)
            });
            sender.send(result).expect("the test waits");
        });
    }
    for _ in 0..2 {
        receiver.recv_timeout(Duration::from_secs(120)).expect("neither waits for the other")?;
    }
    assert_eq!(a.to_vec(), [0.0; 64]);
    assert_eq!(b.version() + a.version(), 200_000);
    Ok(())
}
