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

pub(crate) fn out_of_range(
    place: &Place,
    key: &'static str,
    expected: &'static str,
    got: impl std::fmt::Display,
) -> GraphError {
    GraphError::OutOfRange { place: place.clone(), key, expected, got: got.to_string() }
}
