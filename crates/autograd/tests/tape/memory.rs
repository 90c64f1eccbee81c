//! Bytes: live, at most, and the limit.

use tiled_autograd::{Result, TapeError};

use crate::{context, leaf};

#[test]
fn what_was_live_is_given_back_and_used_again() -> Result<()> {
    let context = context();
    let w = leaf(&context, 1, &[64, 64]);
    let x = context.ones(&[32, 64])?;
    let step = || -> Result<()> {
        let loss = x.linear(&w, None)?.tanh()?.sum(&[], false)?;
        loss.backward()?;
        w.zero_grad();
        Ok(())
    };
    let before = context.live_bytes();
    step()?;
    let peak = context.peak_bytes();
    for _ in 0..1000 {
        step()?;
    }
    assert_eq!(context.live_bytes(), before);
    assert_eq!(context.peak_bytes(), peak);
    // 8 MiB are kept whatever was live
    assert!(context.kept_bytes() + before <= peak.max(8 << 20));
    context.clear();
    assert_eq!(context.kept_bytes(), 0);
    Ok(())
}

#[test]
fn the_limit_names_the_operator_and_changes_nothing() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[1000]);
    context.set_limit_bytes(Some(context.live_bytes() + 9000));
    let y = (&x * 2.0)?;
    let error = y.exp().expect_err("there is no room");
    assert!(matches!(error, TapeError::Limit { operator: "exp", bytes: 8064, .. }), "{error}");
    drop(y);
    context.set_limit_bytes(None);
    let y = x.exp()?;
    context.set_limit_bytes(Some(context.live_bytes()));
    assert!(y.sum(&[], false).is_err());
    assert!(x.grad().is_none());
    Ok(())
}
