//! Norms and softmax that a network cannot have: the text on standard error is that of `tests/ui/<name>.txt`.

use crate::bed::refuses_node;

#[test]
fn groups_that_do_not_divide_the_channels_are_refused() {
    refuses_node("group_norm_groups", r#""op": "group_norm", "num_groups": 2"#);
}

#[test]
fn a_norm_of_other_channels_is_refused() {
    refuses_node("instance_norm_channels", r#""op": "instance_norm", "num_features": 4"#);
    refuses_node("layer_norm_channels", r#""op": "layer_norm", "normalized_shape": [4]"#);
    refuses_node("rms_norm_channels", r#""op": "rms_norm", "normalized_shape": 4"#);
}

#[test]
fn a_layer_norm_with_weights_of_pixels_is_refused() {
    refuses_node("layer_norm_of_pixels", r#""op": "layer_norm", "normalized_shape": [3, 16, 16]"#);
}

#[test]
fn a_softmax_along_the_width_is_refused() {
    refuses_node("softmax_along_the_width", r#""op": "softmax", "dim": -1"#);
    refuses_node("log_softmax_along_the_height", r#""op": "log_softmax", "dim": 2"#);
}

#[test]
fn a_local_response_whose_sums_may_be_zero_is_refused() {
    refuses_node("local_response_norm_of_zero", r#""op": "local_response_norm", "size": 5, "k": 0"#);
}
