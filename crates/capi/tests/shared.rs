//! Parameters that several nodes read, and names with dots, through the C interface.

#[expect(dead_code, reason = "plain calls that other tests make")]
mod plain;

use std::ffi::CStr;

use plain::{made, message, ok};
use tiled_capi::*;

const SIZES: &str = r#""out_channels": 3, "kernel_size": 3, "padding": 1"#;

/// Adds a convolution from three channels to three.
///
/// # Safety
/// The graph is one.
unsafe fn convolution(
    graph: *mut tiled_graph,
    name: &CStr,
    more: &str,
    x: tiled_value,
    value: &mut tiled_value,
) -> tiled_status {
    let attributes = std::ffi::CString::new(format!("{{{SIZES}{more}}}")).expect("no NUL");
    // SAFETY: every pointer is to a live value of its type
    unsafe {
        tiled_graph_add_node(
            graph,
            name.as_ptr(),
            c"conv2d".as_ptr(),
            attributes.as_ptr(),
            &raw const x,
            1,
            &raw mut *value,
        )
    }
}

#[test]
fn attributes_name_shared_parameters() {
    // SAFETY: every pointer is to a live value of its type
    unsafe {
        let graph = made(|out| tiled_graph_new(out));
        let (mut x, mut a, mut b) = Default::default();
        ok(tiled_graph_add_input(graph, c"x".as_ptr(), 3, &raw mut x));
        ok(convolution(graph, c"layer1.0.conv1", "", x, &mut a));
        let untouched = b;
        for (more, wanted) in [
            (
                r#", "weight": "layer1.0.conv1.wieght""#,
                "conv2d `layer1.0.conv2`: `weight` names `layer1.0.conv1.wieght`, no node before it has that \
                 parameter, nearest known: `layer1.0.conv1.weight`",
            ),
            (
                r#", "groups": 3, "weight": "layer1.0.conv1.weight""#,
                "conv2d `layer1.0.conv2`: `weight` has shape [3, 1, 3, 3], the shared `layer1.0.conv1.weight` has \
                 [3, 3, 3, 3]",
            ),
        ] {
            let status = convolution(graph, c"layer1.0.conv2", more, a, &mut b);
            assert_eq!(status, TILED_STATUS_NETWORK);
            assert!(message().contains(wanted), "{}", message());
            assert_eq!(b, untouched);
        }
        let shared = r#", "weight": "layer1.0.conv1.weight", "bias": "layer1.0.conv1.bias""#;
        ok(convolution(graph, c"layer1.0.conv2", shared, a, &mut b));
        let status = convolution(graph, c"layer1.0.conv1.weight", "", b, &mut b);
        assert_eq!(status, TILED_STATUS_NETWORK);
        let clash = "conv2d `layer1.0.conv1.weight`: its name is that of the parameter `weight` of conv2d \
                     `layer1.0.conv1`";
        assert!(message().contains(clash), "{}", message());
        ok(tiled_graph_set_outputs(graph, &raw const b, 1));
        let weights = made(|out| tiled_weights_new(graph, TILED_DTYPE_F32, 1, out));
        let (mut count, mut index) = (0, 9);
        ok(tiled_weights_count(weights, &raw mut count));
        ok(tiled_weights_find(weights, c"layer1.0.conv1.bias".as_ptr(), &raw mut index));
        assert_eq!((count, index), (2, 1));
        ok(tiled_weights_free(weights));
        ok(tiled_graph_free(graph));
    }
}

#[test]
fn a_counter_of_batches_is_a_parameter_without_axes() {
    let network: &[u8] = br#"{"inputs": [{"name": "x", "channels": 3}],
        "nodes": [{"name": "n", "op": "batch_norm", "inputs": ["x"], "momentum": null}], "outputs": ["n"]}"#;
    // SAFETY: every pointer is to a live value of its type
    unsafe {
        let graph = made(|out| tiled_graph_from_json(network.as_ptr().cast(), network.len(), out));
        let weights = made(|out| tiled_weights_new(graph, TILED_DTYPE_F64, 1, out));
        let (mut index, mut shape, mut rank, mut value) = (0, [0; 4], 9, 7.0_f64);
        ok(tiled_weights_find(weights, c"n.num_batches_tracked".as_ptr(), &raw mut index));
        ok(tiled_weights_shape(weights, index, shape.as_mut_ptr(), &raw mut rank));
        assert_eq!((index, rank, shape), (4, 0, [1; 4]));
        ok(tiled_weights_get(weights, index, TILED_DTYPE_F64, (&raw mut value).cast(), 1));
        assert_eq!(value, 0.0);
        ok(tiled_weights_free(weights));
        ok(tiled_graph_free(graph));
    }
}
