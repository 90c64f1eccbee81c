//! What operators with windows share: a kernel k, a stride s, a dilation d and a padding p for each axis.

use serde_json::{Value, json};
use tiled_geometry::{GeometryError, MAX_WINDOW, Window};

use super::check::count;
use crate::error::{Axis, GraphError, Place};
use crate::format::fields::{both, pair};
use crate::format::json::Json;

/// The windows of height and width.
pub(super) fn windows(
    kernel: [i64; 2],
    stride: [i64; 2],
    dilation: [i64; 2],
    before: [i64; 2],
) -> Result<[Window; 2], GeometryError> {
    let axis = |a: usize| Window::new(kernel[a], stride[a], dilation[a], before[a]);
    Ok([axis(0)?, axis(1)?])
}

/// Padding as a number, a pair, or two pairs of before and after.
pub(super) fn read_padding(json: &Json) -> Option<[[i64; 2]; 2]> {
    if let Json::List(items) = json
        && let [Json::List(height), Json::List(width)] = items.as_slice()
    {
        return Some([both(height)?, both(width)?]);
    }
    pair(json).map(|sides| sides.map(|side| [side; 2]))
}

/// A pair where both sides are alike, as in PyTorch; else before and after of each axis.
pub(super) fn write_padding([height, width]: [[i64; 2]; 2]) -> Value {
    if height[0] == height[1] && width[0] == width[1] {
        json!([height[0], width[0]])
    } else {
        json!([height, width])
    }
}

pub(super) fn check_padding(place: &Place, what: &'static str, got: i64) -> Result<(), GraphError> {
    let expected = match got {
        ..0 => "at least 0",
        0..=MAX_WINDOW => return Ok(()),
        _ => "at most 2^20",
    };
    Err(GraphError::OutOfRange { place: place.clone(), key: what, expected, got: got.to_string() })
}

pub(super) fn check_groups(
    place: &Place,
    groups: usize,
    input: usize,
    output: usize,
) -> Result<(), GraphError> {
    count(place, "groups", groups)?;
    for (which, channels) in [("input", input), ("output", output)] {
        if !channels.is_multiple_of(groups) {
            return Err(GraphError::Groups { place: place.clone(), which, channels, groups });
        }
    }
    Ok(())
}

/// The outputs of a window over an axis of this extent.
pub(super) fn outputs(
    place: &Place,
    axis: usize,
    window: Window,
    extent: i64,
    after: i64,
    ceil: bool,
) -> Result<Option<i64>, GraphError> {
    match window.outputs(extent, after, ceil) {
        ..=0 => Err(GraphError::KernelTooLarge {
            place: place.clone(),
            axis: Axis::BOTH[axis],
            kernel: window.extent() + 1,
            padded: extent + window.padding() + after,
        }),
        count => Ok(Some(count)),
    }
}

/// What geometry answers, as an error of this place where it refuses.
pub(super) fn located<V>(place: &Place, result: Result<V, GeometryError>) -> Result<V, GraphError> {
    result.map_err(|reason| GraphError::Geometry { place: place.clone(), reason })
}
