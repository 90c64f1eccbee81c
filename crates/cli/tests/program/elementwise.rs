//! Functions of one element and arithmetic that a network refuses, by layer, as `tests/ui/<name>.txt` says.

use crate::bed::Bed;

/// Refuses a network of these nodes over `x` of three channels and `z` of two.
fn refused(name: &str, nodes: &str) {
    let bed = Bed::new();
    let network = format!(
        r#"{{"inputs": [{{"name": "x", "channels": 3}}, {{"name": "z", "channels": 2}}],
        "nodes": [{nodes}], "outputs": ["y"]}}"#
    );
    bed.write("net.json", network.as_bytes());
    bed.fails(name, &["plan", "--net", "net.json", "--input", "3x16x16", "--input", "2x16x16"], 2);
}

/// The same of one node `y` over `x`.
fn refused_over_x(name: &str, keys: &str) {
    refused(name, &format!(r#"{{"name": "y", "inputs": ["x"], {keys}}}"#));
}

#[test]
fn attributes_of_functions_out_of_range_are_refused_by_layer() {
    refused_over_x("celu_alpha", r#""op": "celu", "alpha": -1"#);
    refused_over_x("softplus_beta", r#""op": "softplus", "beta": 0"#);
    refused_over_x("threshold_without_value", r#""op": "threshold", "threshold": 1"#);
    refused_over_x("pow_without_exponent", r#""op": "pow""#);
    refused_over_x("clamp_of_text", r#""op": "clamp", "min": "0""#);
}

#[test]
fn as_many_slopes_as_neither_one_nor_the_channels_are_refused() {
    refused_over_x("prelu_parameters", r#""op": "prelu", "num_parameters": 2"#);
}

#[test]
fn operands_that_do_not_spread_are_refused_with_both_sizes() {
    refused("spread_channels", r#"{"name": "y", "op": "sub", "inputs": ["x", "z"]}"#);
    let pool = r#"{"name": "p", "op": "max_pool2d", "inputs": ["x"], "kernel_size": 2},"#;
    refused("spread_extents", &format!(r#"{pool} {{"name": "y", "op": "minimum", "inputs": ["x", "p"]}}"#));
}

#[test]
fn an_operand_too_many_or_too_few_is_refused() {
    refused_over_x("one_operand", r#""op": "div""#);
    refused("operands_and_scalar", r#"{"name": "y", "op": "add", "inputs": ["x", "x"], "scalar": 1}"#);
    refused_over_x("reversed_without_scalar", r#""op": "sub", "reversed": true"#);
    refused_over_x("scalar_and_weight", r#""op": "mul", "scalar": 2, "per_channel": true"#);
}

#[test]
fn probabilities_of_whole_channels_and_images_are_refused_from_one_on() {
    refused_over_x("dropout2d_p", r#""op": "dropout2d", "p": 1"#);
    refused_over_x("stochastic_depth_mode", r#""op": "stochastic_depth", "p": 0.5, "mode": "column""#);
}
