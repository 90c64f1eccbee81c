//! Gradients of some inputs and parameters alone, through the C interface.

mod plain;

use std::ffi::{CString, c_char};
use std::ptr::null;

use plain::{initial, made, message, ok, source};
use tiled_capi::*;

const SHAPES: [i64; 8] = [2, 3, 5, 4, 2, 3, 5, 4];
const SHAPE: [i64; 4] = [2, 3, 5, 4];

const NETWORK: &[u8] = br#"{"inputs": [{"name": "a", "channels": 3}, {"name": "b", "channels": 3}],
    "nodes": [{"name": "sum", "op": "add", "inputs": ["a", "b"]},
        {"name": "c", "op": "conv2d", "inputs": ["sum"], "out_channels": 3, "kernel_size": 3, "padding": 1},
        {"name": "bn", "op": "batch_norm", "inputs": ["c"]}],
    "outputs": ["bn"]}"#;

/// The status of a plan that wants these names, and of the gradients of the convolution's weight, its bias and the norm's weight.
fn run(wanted: &[&str], evaluated: &[&str]) -> (tiled_status, [tiled_status; 3]) {
    let texts =
        |names: &[&str]| names.iter().map(|name| CString::new(*name).expect("a name")).collect::<Vec<_>>();
    let (wanted, evaluated) = (texts(wanted), texts(evaluated));
    let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
    let (wanted, evaluated) = (pointers(&wanted), pointers(&evaluated));
    let objective = tiled_objective {
        mode: TILED_MODE_TRAIN,
        loss: TILED_LOSS_SUM,
        outputs: 0,
        grad_inputs: 1,
        grad_params: 1,
        wanted: wanted.as_ptr(),
        wanted_count: wanted.len(),
        evaluated: evaluated.as_ptr(),
        evaluated_count: evaluated.len(),
        ..initial(tiled_objective_init)
    };
    let options = tiled_engine_options { threads: 1, ..initial(tiled_engine_options_init) };
    let (mut a, mut b) = ([0.5_f32; 120], [0.25_f32; 120]);
    // SAFETY: every pointer is to a live value of its type
    unsafe {
        let engine = made(|out| tiled_engine_new(&raw const options, out));
        let graph = made(|out| tiled_graph_from_json(NETWORK.as_ptr().cast(), NETWORK.len(), out));
        let mut plan = std::ptr::null_mut();
        let shapes = SHAPES.as_ptr();
        let objective = &raw const objective;
        let status =
            tiled_plan_new(engine, graph, TILED_DTYPE_F32, shapes, 2, objective, null(), &raw mut plan);
        let mut statuses = [TILED_STATUS_OK; 3];
        if status == TILED_STATUS_OK {
            let weights = made(|out| tiled_weights_new(graph, TILED_DTYPE_F32, 1, out));
            let executor = made(|out| tiled_executor_new(engine, plan, out));
            let inputs = [source(&mut a, SHAPE), source(&mut b, SHAPE)];
            // one input alone is wanted
            let mut gradient = [0.0_f32; 120];
            let tensor = source(&mut gradient, SHAPE).tensor;
            let sink = tiled_sink { tensor, ..initial(tiled_sink_init) };
            let io = tiled_io {
                inputs: inputs.as_ptr(),
                input_count: 2,
                grad_inputs: &raw const sink,
                grad_input_count: 1,
                ..initial(tiled_io_init)
            };
            ok(tiled_executor_run(executor, weights, &raw const io, std::ptr::null_mut()));
            let mut values = [0.0_f32; 81];
            for ((place, count), status) in [(0, 81), (1, 3), (2, 3)].into_iter().zip(&mut statuses) {
                let to = values.as_mut_ptr().cast();
                *status = tiled_executor_gradient(executor, place, TILED_DTYPE_F32, to, count);
            }
            ok(tiled_executor_free(executor));
            ok(tiled_weights_free(weights));
        }
        ok(tiled_plan_free(plan));
        ok(tiled_graph_free(graph));
        ok(tiled_engine_free(engine));
        (status, statuses)
    }
}

#[test]
fn gradients_of_names_alone_are_there() {
    let missing = TILED_STATUS_NOT_FOUND;
    assert_eq!(run(&["b", "c"], &[]), (TILED_STATUS_OK, [TILED_STATUS_OK, TILED_STATUS_OK, missing]));
    assert_eq!(run(&["b", "c.bias"], &["bn"]), (TILED_STATUS_OK, [missing, TILED_STATUS_OK, missing]));
    assert_eq!(run(&["a", "bn*"], &["*"]), (TILED_STATUS_OK, [missing, missing, TILED_STATUS_OK]));
}

#[test]
fn names_that_are_not_there_are_a_status() {
    assert_eq!(run(&["b", "d"], &[]).0, TILED_STATUS_NOT_FOUND);
    assert_eq!(message(), "`d` is no input, parameter with a gradient, or node that has one");
    assert_eq!(run(&[], &[]).0, TILED_STATUS_INVALID_ARGUMENT);
    assert_eq!(run(&["b"], &["a"]).0, TILED_STATUS_NOT_FOUND);
    assert_eq!(message(), "`a` is no node of the network");
}
