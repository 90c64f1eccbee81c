//! Weights that a run lets go of, through the C interface.

mod plain;

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use plain::{initial, made, message, ok, source};
use tiled_capi::*;

const SHAPE: [i64; 4] = [2, 3, 13, 10];
const OUTPUT: [i64; 4] = [2, 5, 13, 10];

const NETWORK: &[u8] = br#"{"inputs": [{"name": "x", "channels": 3}],
    "nodes": [{"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 16, "kernel_size": 3, "padding": 1},
        {"name": "bn", "op": "batch_norm", "inputs": ["c"]},
        {"name": "d", "op": "conv2d", "inputs": ["bn"], "out_channels": 5, "kernel_size": 3, "padding": 1}],
    "outputs": ["d"]}"#;

/// Runs the network and gives its output.
///
/// # Safety
/// The handles are of their types.
unsafe fn run(executor: *mut tiled_executor, weights: *mut tiled_weights) -> Result<Vec<f32>, tiled_status> {
    let mut input: Vec<f32> = (0..780_u16).map(|i| f32::from(i * 5 % 17) / 8.0 - 1.0).collect();
    let mut output = vec![0.0_f32; 1300];
    let input = source(&mut input, SHAPE);
    let sink = tiled_sink { tensor: source(&mut output, OUTPUT).tensor, ..initial(tiled_sink_init) };
    let io = tiled_io {
        inputs: &raw const input,
        input_count: 1,
        outputs: &raw const sink,
        output_count: 1,
        ..initial(tiled_io_init)
    };
    // SAFETY: the caller's promise, and pointers to live values
    match unsafe { tiled_executor_run(executor, weights, &raw const io, null_mut()) } {
        TILED_STATUS_OK => Ok(output),
        status => Err(status),
    }
}

#[test]
fn a_plan_may_let_go_of_weights() {
    let threads = tiled_engine_options { threads: 2, ..initial(tiled_engine_options_init) };
    let of = |releases_weights| tiled_plan_options {
        tile: [4, 5],
        releases_weights,
        ..initial(tiled_plan_options_init)
    };
    // SAFETY: every pointer is to a live value of its type
    unsafe {
        let engine = made(|out| tiled_engine_new(&raw const threads, out));
        let graph = made(|out| tiled_graph_from_json(NETWORK.as_ptr().cast(), NETWORK.len(), out));
        let plan = |options: &tiled_plan_options| {
            made(|out| {
                let (shape, options) = (SHAPE.as_ptr(), &raw const *options);
                tiled_plan_new(engine, graph, TILED_DTYPE_F32, shape, 1, null(), options, out)
            })
        };
        let plans = [plan(&of(0)), plan(&of(1))];
        let executors = plans.map(|plan| made(|out| tiled_executor_new(engine, plan, out)));
        let mut bytes = [0; 2];
        for (plan, bytes) in plans.into_iter().zip(&mut bytes) {
            let mut summary = tiled_plan_summary {
                struct_size: u32::try_from(size_of::<tiled_plan_summary>()).expect("small"),
                ..std::mem::zeroed()
            };
            ok(tiled_plan_summarise(plan, &raw mut summary, summary.struct_size));
            *bytes = summary.parameters_bytes;
        }
        assert!(bytes[1] < bytes[0], "{bytes:?} bytes of parameters");
        let weights = made(|out| tiled_weights_new(graph, TILED_DTYPE_F32, 1, out));
        let copy = made(|out| tiled_weights_clone(weights, out));
        let expected = run(executors[0], weights).expect("runs");
        assert!(expected.iter().any(|value| *value != 0.0));
        let mut elements = vec![0.0_f32; 16 * 27];
        let to = elements.as_mut_ptr().cast::<c_void>();
        ok(tiled_weights_get(weights, 0, TILED_DTYPE_F32, to, elements.len()));

        for _ in 0..2 {
            assert_eq!(run(executors[1], weights).expect("runs"), expected);
        }
        let invalid = TILED_STATUS_INVALID_ARGUMENT;
        let gone = "a run has let go of the elements of `c.weight`";
        assert_eq!(tiled_weights_get(weights, 0, TILED_DTYPE_F32, to, elements.len()), invalid);
        assert_eq!(message(), gone);
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("w.safetensors");
        let name = std::ffi::CString::new(path.to_str().expect("plain")).expect("no NUL");
        assert_eq!(tiled_weights_save(weights, name.as_ptr()), invalid);
        assert_eq!(message(), gone);
        assert!(!path.exists(), "a file was written");
        // running statistics stay
        ok(tiled_weights_get(weights, 4, TILED_DTYPE_F32, to, 16));
        assert_eq!(run(executors[0], copy).expect("runs"), expected, "a copy has them still");
        let other = made(|out| tiled_executor_new(engine, plans[0], out));
        assert_eq!(run(other, weights), Err(invalid));
        assert!(
            message().starts_with("parameter `c.weight`: a run has let go of its elements"),
            "{}",
            message()
        );
        let fresh = made(|out| tiled_executor_new(engine, plans[1], out));
        assert_eq!(run(fresh, weights), Err(invalid), "it has not packed them");
        assert_eq!(run(fresh, copy).expect("runs"), expected);
        // given again, by the count that they always had
        assert_eq!(tiled_weights_set(weights, 0, TILED_DTYPE_F32, to, 431), TILED_STATUS_SHAPE);
        ok(tiled_weights_set(weights, 0, TILED_DTYPE_F32, to, elements.len()));
        ok(tiled_weights_get(weights, 0, TILED_DTYPE_F32, to, elements.len()));
        for executor in executors.into_iter().chain([other, fresh]) {
            ok(tiled_executor_free(executor));
        }
        for plan in plans {
            ok(tiled_plan_free(plan));
        }
        ok(tiled_weights_free(copy));
        ok(tiled_weights_free(weights));
        ok(tiled_graph_free(graph));
        ok(tiled_engine_free(engine));
    }
}
