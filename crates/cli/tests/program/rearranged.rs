//! Slices, shuffles, padding and heads that do not fit: each refusal names the layer and both numbers.

use crate::bed::Bed;

/// Plans a network of one node over eight channels of 6×9 pixels, and expects this text.
fn refused(text: &str, node: &str) {
    let bed = Bed::new();
    let net = format!(
        r#"{{"inputs": [{{"name": "x", "channels": 8}}], "outputs": ["n"],
            "nodes": [{{"name": "n", "inputs": ["x"], {node}}}]}}"#
    );
    bed.write("net.json", net.as_bytes());
    bed.fails(text, &["plan", "--net", "net.json", "--input", "8x6x9"], 2);
}

#[test]
fn channels_that_are_not_there_are_refused() {
    refused("slice_of_no_channels", r#""op": "slice", "begin": 3, "end": 9"#);
    refused("split_without_that_part", r#""op": "split", "split_size": 3, "index": 3"#);
    refused("split_of_other_channels", r#""op": "split", "split_size": [3, 4], "index": 0"#);
}

#[test]
fn shuffles_that_do_not_divide_are_refused() {
    refused("channel_shuffle_groups", r#""op": "channel_shuffle", "groups": 3"#);
    refused("pixel_shuffle_channels", r#""op": "pixel_shuffle", "upscale_factor": 3"#);
    refused("pixel_unshuffle_size", r#""op": "pixel_unshuffle", "downscale_factor": 2"#);
}

#[test]
fn padding_that_does_not_fit_is_refused() {
    refused("pad_removes_all", r#""op": "pad", "padding": [[-2, -4], [0, 0]]"#);
    refused("pad_reflects_too_far", r#""op": "pad", "padding": [6, 0], "mode": "reflect""#);
    refused("pad_goes_round_twice", r#""op": "pad", "padding": [[-1, 6], [0, 0]], "mode": "circular""#);
    refused("pad_to_two_targets", r#""op": "pad_to", "multiple": 4, "like": "x""#);
    refused("pad_to_a_multiple_of_nothing", r#""op": "pad_to", "multiple": [4, 0]"#);
    refused("pad_to_windows_without_a_stride", r#""op": "pad_to", "windows": 3"#);
    refused("pad_to_a_multiple_at_a_stride", r#""op": "pad_to", "multiple": 4, "stride": 2"#);
    refused("pad_to_windows_of_nothing", r#""op": "pad_to", "windows": [3, 0], "stride": 2"#);
    refused("pad_to_a_list_of_three", r#""op": "pad_to", "like": ["x", "x", "x"]"#);
    refused("pad_to_reflects_too_far", r#""op": "pad_to", "multiple": 16, "mode": "reflect""#);
    refused("pad_value_of_another_mode", r#""op": "pad", "padding": 1, "mode": "replicate", "value": 2"#);
}

#[test]
fn a_linear_layer_for_another_size_is_refused() {
    refused("linear_of_another_size", r#""op": "linear", "out_features": 2, "in_features": 400"#);
}

#[test]
fn a_gradient_through_class_numbers_is_refused() {
    let bed = Bed::new();
    bed.write(
        "net.json",
        br#"{"inputs": [{"name": "x", "channels": 8}], "outputs": ["n"],
            "nodes": [{"name": "n", "op": "argmax", "inputs": ["x"]}]}"#,
    );
    let arguments =
        ["plan", "--net", "net.json", "--input", "8x6x9", "--train", "--loss", "sum", "--grad-input"];
    bed.fails("argmax_without_gradient", &arguments, 2);
}
