//! Runs in two halves through the C interface.

mod plain;

use std::ptr::{null, null_mut};

use plain::{initial, made, message, ok, source};
use tiled_capi::*;

const SHAPE: [i64; 4] = [2, 3, 9, 7];
const COUNT: usize = 378;

const NETWORK: &[u8] = br#"{"inputs": [{"name": "x", "channels": 3}],
    "nodes": [{"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 3, "kernel_size": 3, "padding": 1},
        {"name": "bn", "op": "batch_norm", "inputs": ["c"]},
        {"name": "d", "op": "dropout", "inputs": ["bn"]}],
    "outputs": ["d"]}"#;

/// A network with its plan and weights.
struct Bed {
    engine: *mut tiled_engine,
    graph: *mut tiled_graph,
    plan: *mut tiled_plan,
    weights: *mut tiled_weights,
    executor: *mut tiled_executor,
}

impl Bed {
    fn new(loss: i32) -> Self {
        let objective = tiled_objective {
            mode: TILED_MODE_TRAIN,
            loss,
            outputs: 1,
            grad_inputs: 1,
            grad_params: 1,
            ..initial(tiled_objective_init)
        };
        let options = tiled_engine_options { threads: 2, ..initial(tiled_engine_options_init) };
        let tiles =
            tiled_plan_options { tile: [2, 7], hold: TILED_HOLD_SLIDE, ..initial(tiled_plan_options_init) };
        // SAFETY: every pointer is to a live value of its type
        unsafe {
            let engine = made(|out| tiled_engine_new(&raw const options, out));
            let graph = made(|out| tiled_graph_from_json(NETWORK.as_ptr().cast(), NETWORK.len(), out));
            let (shape, objective, tiles) = (SHAPE.as_ptr(), &raw const objective, &raw const tiles);
            let plan =
                made(|out| tiled_plan_new(engine, graph, TILED_DTYPE_F32, shape, 1, objective, tiles, out));
            let weights = made(|out| tiled_weights_new(graph, TILED_DTYPE_F32, 1, out));
            let executor = made(|out| tiled_executor_new(engine, plan, out));
            Self { engine, graph, plan, weights, executor }
        }
    }

    fn gradient(&self) -> Vec<f32> {
        let mut values = vec![0.0_f32; 81];
        let to = values.as_mut_ptr().cast();
        // SAFETY: there is room for as many
        ok(unsafe { tiled_executor_gradient(self.executor, 0, TILED_DTYPE_F32, to, 81) });
        values
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        ok(tiled_executor_free(self.executor));
        ok(tiled_weights_free(self.weights));
        ok(tiled_plan_free(self.plan));
        ok(tiled_graph_free(self.graph));
        ok(tiled_engine_free(self.engine));
    }
}

/// Input, gradient of the output, output and gradient of the input.
struct Tensors {
    input: Vec<f32>,
    grad_output: Vec<f32>,
    output: Vec<f32>,
    grad_input: Vec<f32>,
}

impl Tensors {
    fn new() -> Self {
        let values = |step: usize| (0..COUNT).map(|i| (i * step % 17) as f32 / 8.0 - 1.0).collect();
        let (input, grad_output) = (values(5), values(7));
        Self { input, grad_output, output: vec![0.0; COUNT], grad_input: vec![0.0; COUNT] }
    }

    /// Calls `run` with what these halves read and write.
    fn with<R>(&mut self, halves: [bool; 2], run: impl FnOnce(*const tiled_io) -> R) -> R {
        let input = source(&mut self.input, SHAPE);
        let grad_output = source(&mut self.grad_output, SHAPE);
        let sink =
            |data: &mut [f32]| tiled_sink { tensor: source(data, SHAPE).tensor, ..initial(tiled_sink_init) };
        let (output, grad_input) = (sink(&mut self.output), sink(&mut self.grad_input));
        let [first, second] = halves.map(usize::from);
        let io = tiled_io {
            inputs: &raw const input,
            input_count: 1,
            outputs: &raw const output,
            output_count: first,
            grad_outputs: &raw const grad_output,
            grad_output_count: second,
            grad_inputs: &raw const grad_input,
            grad_input_count: second,
            ..initial(tiled_io_init)
        };
        run(&raw const io)
    }
}

#[test]
fn two_halves_have_the_bits_of_one_run_and_each_is_used_once() {
    let (bed, mut whole) = (Bed::new(TILED_LOSS_GRAD_OUTPUT_LATER), Tensors::new());
    // SAFETY: every pointer is to a live value of its type
    unsafe {
        whole.with([true, true], |io| ok(tiled_executor_run(bed.executor, bed.weights, io, null_mut())));
        let gradient = bed.gradient();
        let (other, mut parts) = (Bed::new(TILED_LOSS_GRAD_OUTPUT_LATER), Tensors::new());
        let mut forward = || {
            parts.with([true, false], |io| {
                made(|out| tiled_executor_forward(other.executor, other.weights, io, out, null_mut()))
            })
        };
        let first = forward();
        let mut bytes = 0;
        ok(tiled_pending_bytes(first, &raw mut bytes));
        assert!(bytes > 0);
        let backward = |run, parts: &mut Tensors| {
            parts.with([false, true], |io| {
                tiled_executor_backward(other.executor, run, other.weights, io, null_mut())
            })
        };
        ok(backward(first, &mut parts));
        assert_eq!(parts.output, whole.output);
        assert_eq!(parts.grad_input, whole.grad_input);
        assert_eq!(other.gradient(), gradient);
        ok(tiled_pending_bytes(first, &raw mut bytes));
        assert_eq!(bytes, 0);
        assert_eq!(backward(first, &mut parts), TILED_STATUS_INVALID_ARGUMENT);
        assert_eq!(message(), "pending: its gradients have been computed");
        ok(tiled_pending_free(first));
        assert_eq!(tiled_pending_free(first), TILED_STATUS_INVALID_HANDLE);
        assert_eq!(backward(null_mut(), &mut parts), TILED_STATUS_NULL_POINTER);
    }
}

#[test]
fn a_plan_in_one_piece_has_no_halves() {
    let (bed, mut tensors) = (Bed::new(TILED_LOSS_GRAD_OUTPUT), Tensors::new());
    let mut pending = null_mut();
    // SAFETY: every pointer is to a live value of its type
    let status = tensors.with([true, false], |io| unsafe {
        tiled_executor_forward(bed.executor, bed.weights, io, &raw mut pending, null_mut())
    });
    assert_eq!((status, pending.cast_const()), (TILED_STATUS_INVALID_ARGUMENT, null()));
    assert_eq!(message(), "plan has no second half: its objective is not `GradOutputLater`");
}
