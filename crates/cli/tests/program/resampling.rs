//! Resampling and adaptive pooling that a network cannot have: the text on standard error is that of `tests/ui/<name>.txt`.

use crate::bed::refuses_node;

#[test]
fn a_scale_that_is_no_fraction_is_refused() {
    refuses_node("upsample_scale", r#""op": "upsample", "scale_factor": [1.5, 0]"#);
}

#[test]
fn a_scale_that_leaves_nothing_is_refused() {
    refuses_node("upsample_to_nothing", r#""op": "upsample", "scale_factor": 0.05"#);
}

#[test]
fn attributes_of_another_mode_are_refused() {
    refuses_node("upsample_corners_of_nearest", r#""op": "upsample", "size": 8, "align_corners": true"#);
    refuses_node(
        "upsample_rounding_of_bilinear",
        r#""op": "upsample", "size": 8, "mode": "bilinear", "rounding": "ceil""#,
    );
    let both = r#""op": "upsample", "size": 8, "mode": "bilinear", "align_corners": true, "coordinates": "asymmetric""#;
    refuses_node("upsample_two_coordinates", both);
    refuses_node(
        "upsample_cubic_slope",
        r#""op": "upsample", "size": 8, "mode": "bicubic", "cubic_slope": 0.0001"#,
    );
}

#[test]
fn an_adaptive_pooling_to_nothing_is_refused() {
    refuses_node("adaptive_pool_size", r#""op": "adaptive_max_pool2d", "output_size": [7, 0]"#);
    refuses_node("adaptive_pool_of_text", r#""op": "adaptive_avg_pool2d", "output_size": "7x7""#);
}
