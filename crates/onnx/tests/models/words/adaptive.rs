//! Steps of adaptive pooling that are no such steps.

use super::{Builder, OPEN, alone, declared, int, ints, start};
use crate::adaptive::{Fault, pooling};
use crate::build::int_tensor;

pub(super) fn of_windows() -> Vec<(&'static str, Builder)> {
    let turned = || start().node("Transpose", &["x"], "t", &[("perm", ints(&[2, 3, 0, 1]))]);
    let gathered = |pair: i64, batch_dims: i64| {
        let indices = int_tensor("i", &[1, 1, 1, 1, pair], &vec![0; usize::try_from(pair).unwrap()]);
        let model = turned().tensor(indices);
        model.node("GatherND", &["t", "i"], "y", &[("batch_dims", int(batch_dims))]).output("y")
    };
    let open = [OPEN[0], Some(2), None, None];
    vec![
        ("windows_by_batches", gathered(2, 1)),
        ("windows_by_three_numbers", gathered(3, 0)),
        ("windows_of_no_pixels", alone("GatherND", &[])),
        ("windows_of_a_pixel_twice", pooling([8, 11], [3, 3], Fault::Pixel)),
        ("windows_of_other_parts", pooling([8, 11], [3, 3], Fault::Index)),
        ("windows_of_open_size", declared(pooling([8, 11], [3, 3], Fault::None), &open)),
    ]
}
