//! Checks of attributes.

use crate::error::{GraphError, Place};

/// Checks a number of channels or features.
pub(crate) fn count(place: &Place, key: &'static str, got: usize) -> Result<(), GraphError> {
    const MAX: usize = 1 << 30;
    if (1..=MAX).contains(&got) {
        return Ok(());
    }
    let expected = if got == 0 { "at least 1" } else { "at most 2^30" };
    Err(GraphError::OutOfRange { place: place.clone(), key, expected, got: got.to_string() })
}

/// Checks the shape of a weight. What is computed of the sizes of all weights of a network, in bytes and with padding, then has room in 64 bits.
pub(crate) fn weight(place: &Place, shape: [usize; 4]) -> Result<(), GraphError> {
    const MAX: usize = 1 << 40;
    let elements = shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent));
    match elements {
        Some(elements) if elements <= MAX => Ok(()),
        _ => Err(GraphError::WeightTooLarge { place: place.clone(), shape, max: MAX }),
    }
}

pub(crate) fn out_of_range(
    place: &Place,
    key: &'static str,
    expected: &'static str,
    got: impl std::fmt::Display,
) -> GraphError {
    GraphError::OutOfRange { place: place.clone(), key, expected, got: got.to_string() }
}
