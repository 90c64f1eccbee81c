//! The examples do what they say.

#[expect(dead_code, reason = "the test calls what `main` prints")]
#[path = "../examples/xor.rs"]
mod xor;

use tiled_autograd::Result;
use tiled_kernel::Reference;

#[test]
fn the_exclusive_or_is_learnt_and_the_same_each_time() -> Result<()> {
    let (losses, probabilities) = xor::learn(&Reference)?;
    for (got, expected) in probabilities.iter().zip([0.0, 1.0, 1.0, 0.0]) {
        assert!((got - expected).abs() < 0.05, "{probabilities:?}");
    }
    assert!(losses[losses.len() - 1] < 0.05 * losses[0]);
    let (again, _) = xor::learn(&Reference)?;
    assert!(losses.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()));
    Ok(())
}
