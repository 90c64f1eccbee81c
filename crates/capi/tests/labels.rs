//! Class numbers through the C interface: what is ignored, and what is no class.

mod plain;

use std::ptr::null;

use plain::{initial, made, message, ok, source};
use tiled_capi::*;

const SCORES: [i64; 4] = [1, 3, 4, 4];
const TARGET: [i64; 4] = [1, 1, 4, 4];

/// The status of a run, and its loss; `struct_size` is that of the caller's objective.
fn run(target: &mut [f32; 16], ignore_index: i64, struct_size: Option<u32>) -> (tiled_status, f64) {
    let json = br#"{"inputs": [{"name": "x", "channels": 3}],
        "nodes": [{"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 3, "kernel_size": 1}],
        "outputs": ["c"]}"#;
    let mut objective = tiled_objective {
        loss: TILED_LOSS_CROSS_ENTROPY,
        outputs: 0,
        grad_params: 1,
        ignore_index,
        ..initial(tiled_objective_init)
    };
    objective.struct_size = struct_size.unwrap_or(objective.struct_size);
    let options = tiled_engine_options { threads: 1, ..initial(tiled_engine_options_init) };
    // inputs of zero and biases of zero: every class is as likely
    let (mut x, mut bias) = ([0.0_f32; 48], [0.0_f32; 3]);
    // SAFETY: every pointer is to a live value of its type
    unsafe {
        let engine = made(|out| tiled_engine_new(&raw const options, out));
        let graph = made(|out| tiled_graph_from_json(json.as_ptr().cast(), json.len(), out));
        let weights = made(|out| tiled_weights_new(graph, TILED_DTYPE_F32, 1, out));
        ok(tiled_weights_set(weights, 1, TILED_DTYPE_F32, bias.as_mut_ptr().cast(), 3));
        let plan = made(|out| {
            let (shape, objective) = (SCORES.as_ptr(), &raw const objective);
            tiled_plan_new(engine, graph, TILED_DTYPE_F32, shape, 1, objective, null(), out)
        });
        let executor = made(|out| tiled_executor_new(engine, plan, out));
        let (input, target) = (source(&mut x, SCORES), source(target, TARGET));
        let io = tiled_io {
            inputs: &raw const input,
            input_count: 1,
            target: &raw const target,
            ..initial(tiled_io_init)
        };
        let struct_size = u32::try_from(size_of::<tiled_report>()).expect("small");
        let mut report = tiled_report { struct_size, has_loss: 0, loss: 0.0, seconds: 0.0 };
        let status = tiled_executor_run(executor, weights, &raw const io, &raw mut report);
        ok(tiled_executor_free(executor));
        ok(tiled_plan_free(plan));
        ok(tiled_weights_free(weights));
        ok(tiled_graph_free(graph));
        ok(tiled_engine_free(engine));
        (status, report.loss)
    }
}

#[test]
fn r02_ignored_classes_count_for_nothing() {
    let third = 3.0_f64.ln();
    let mut target = [0.0, 1.0, 2.0, 255.0].repeat(4).try_into().expect("sixteen");
    let (status, loss) = run(&mut target, 255, None);
    ok(status);
    assert!((loss - third).abs() < 1e-6, "{loss}");
    let mut target = [-100.0, 1.0, 2.0, 2.0].repeat(4).try_into().expect("sixteen");
    let (status, loss) = run(&mut target, -100, None);
    ok(status);
    assert!((loss - third).abs() < 1e-6, "{loss}");
}

#[test]
fn r02_what_is_no_class_is_a_status() {
    let mut target = [0.0; 16];
    target[6] = 7.0;
    assert_eq!(run(&mut target, TILED_NO_IGNORE_INDEX, None).0, TILED_STATUS_OUT_OF_RANGE);
    let expected = "`<target>`: class 7 at row 1, column 2 of image 0 is none of the 3 classes from 0 on";
    assert_eq!(message(), expected);
    target[6] = -1.0;
    assert_eq!(run(&mut target, TILED_NO_IGNORE_INDEX, None).0, TILED_STATUS_OUT_OF_RANGE);
    assert_eq!(run(&mut [9.0; 16], 9, None).0, TILED_STATUS_OUT_OF_RANGE);
}

#[test]
fn r02_an_objective_of_the_first_version_ignores_no_class() {
    let first = u32::try_from(std::mem::offset_of!(tiled_objective, ignore_index)).expect("small");
    let mut target = [0.0; 16];
    ok(run(&mut target, 0, Some(first)).0);
    assert_eq!(run(&mut [0.0; 16], 0, None).0, TILED_STATUS_OUT_OF_RANGE, "class 0 is ignored");
}
