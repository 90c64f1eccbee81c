//! Memory as it lies, through the C interface: bytes with channels last, means and deviations, decisions, what is changed.

mod plain;

use std::ptr::null;

use plain::{initial, made, message, ok, source};
use tiled_capi::*;

const IMAGE: [i64; 4] = [1, 3, 21, 34];
const SCORES: [i64; 4] = [1, 5, 21, 34];
const CLASSES: [i64; 4] = [1, 1, 21, 34];
const PIXELS: usize = 21 * 34;
const CHANNELS_LAST: [i64; 4] = [21 * 34 * 3, 1, 34 * 3, 3];

/// Runs a convolution to five channels in tiles.
fn run(input: &tiled_source, output: &tiled_sink) -> tiled_status {
    let json = br#"{"inputs": [{"name": "x", "channels": 3}],
        "nodes": [{"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 5, "kernel_size": 3, "padding": 1}],
        "outputs": ["c"]}"#;
    let options = tiled_engine_options { threads: 1, ..initial(tiled_engine_options_init) };
    let tiles = tiled_plan_options { tile: [8, 9], ..initial(tiled_plan_options_init) };
    // SAFETY: every pointer is to a live value of its type
    unsafe {
        let engine = made(|out| tiled_engine_new(&raw const options, out));
        let graph = made(|out| tiled_graph_from_json(json.as_ptr().cast(), json.len(), out));
        let weights = made(|out| tiled_weights_new(graph, TILED_DTYPE_F32, 1, out));
        let plan = made(|out| {
            tiled_plan_new(engine, graph, TILED_DTYPE_F32, IMAGE.as_ptr(), 1, null(), &raw const tiles, out)
        });
        let executor = made(|out| tiled_executor_new(engine, plan, out));
        let io = tiled_io {
            inputs: input,
            input_count: 1,
            outputs: output,
            output_count: 1,
            ..initial(tiled_io_init)
        };
        let status = tiled_executor_run(executor, weights, &raw const io, std::ptr::null_mut());
        ok(tiled_executor_free(executor));
        ok(tiled_plan_free(plan));
        ok(tiled_weights_free(weights));
        ok(tiled_graph_free(graph));
        ok(tiled_engine_free(engine));
        status
    }
}

/// Memory that is written, without gaps.
fn sink<T>(memory: &mut [T], dtype: i32, shape: [i64; 4]) -> tiled_sink {
    let [_, channels, height, width] = shape;
    let mut sink = initial(tiled_sink_init);
    (sink.tensor.dtype, sink.tensor.data) = (dtype, memory.as_mut_ptr().cast());
    (sink.tensor.shape, sink.tensor.strides) = (shape, [channels * height * width, height * width, width, 1]);
    sink
}

/// Bytes with channels last.
fn pixels(bytes: &mut [u8]) -> tiled_source {
    let mut source = initial(tiled_source_init);
    (source.tensor.dtype, source.tensor.data) = (TILED_DTYPE_U8, bytes.as_mut_ptr().cast());
    (source.tensor.shape, source.tensor.strides) = (IMAGE, CHANNELS_LAST);
    source
}

fn photo() -> Vec<u8> {
    (0..3 * PIXELS).map(|i| u8::try_from(i * i % 251).expect("a byte")).collect()
}

const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const STD: [f64; 3] = [0.229, 0.224, 0.225];

/// The scores of the photo, normalised before the run.
fn scores() -> Vec<f32> {
    let bytes = photo();
    let [mean, std] = [MEAN.map(narrow), STD.map(narrow)];
    let value = |c: usize, pixel: usize| (f32::from(bytes[pixel * 3 + c]) / 255.0 - mean[c]) / std[c];
    let mut planes: Vec<f32> = (0..3)
        .flat_map(|c| (0..PIXELS).map(move |pixel| (c, pixel)))
        .map(|(c, pixel)| value(c, pixel))
        .collect();
    let mut scores = vec![0.0_f32; 5 * PIXELS];
    ok(run(&source(&mut planes, IMAGE), &sink(&mut scores, TILED_DTYPE_F32, SCORES)));
    scores
}

#[expect(clippy::cast_possible_truncation, reason = "as the library rounds it")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[test]
fn bytes_with_channels_last_are_normalised_as_they_are_read() {
    let (expected, mut bytes, mut got) = (scores(), photo(), vec![0.0_f32; 5 * PIXELS]);
    let mut input = pixels(&mut bytes);
    (input.mean, input.mean_count, input.std, input.std_count) = (MEAN.as_ptr(), 3, STD.as_ptr(), 3);
    ok(run(&input, &sink(&mut got, TILED_DTYPE_F32, SCORES)));
    assert!(got == expected, "normalised before and while they are read");
    input.mean_count = 2;
    assert_eq!(run(&input, &sink(&mut got, TILED_DTYPE_F32, SCORES)), TILED_STATUS_SHAPE);
    assert_eq!(message(), "`io: inputs`: 2 values of mean for 3 channels");
    (input.mean, input.mean_count) = (null(), 3);
    assert_eq!(run(&input, &sink(&mut got, TILED_DTYPE_F32, SCORES)), TILED_STATUS_NULL_POINTER);
    (input.mean_count, input.numbers) = (0, 7);
    assert_eq!(run(&input, &sink(&mut got, TILED_DTYPE_F32, SCORES)), TILED_STATUS_INVALID_ARGUMENT);
}

#[test]
fn class_numbers_are_decided_as_they_are_written() {
    let (expected, mut bytes, mut classes) = (scores(), photo(), vec![-1_i64; PIXELS]);
    let mut input = pixels(&mut bytes);
    (input.mean, input.mean_count, input.std, input.std_count) = (MEAN.as_ptr(), 3, STD.as_ptr(), 3);
    let mut output = sink(&mut classes, TILED_DTYPE_I64, CLASSES);
    (output.decision, output.channels) = (TILED_DECISION_ARGMAX, 5);
    ok(run(&input, &output));
    for (pixel, class) in classes.iter().enumerate() {
        let score = |c: usize| expected[c * PIXELS + pixel];
        let best = (1..5).fold(0, |best, c| if score(c) > score(best) { c } else { best });
        assert_eq!(usize::try_from(*class), Ok(best), "pixel {pixel}");
    }
    output.channels = 4;
    assert_eq!(run(&input, &output), TILED_STATUS_SHAPE, "the network has five");
    (output.channels, output.decision) = (5, 9);
    assert_eq!(run(&input, &output), TILED_STATUS_INVALID_ARGUMENT);
    assert_eq!(message(), "io: outputs: decision 9 is none of 0, 1 (argmax) and 2 (above)");
}

#[test]
fn what_bytes_cut_is_told() {
    let (expected, mut bytes, mut got) = (scores(), photo(), vec![7_u8; 5 * PIXELS]);
    let mut input = pixels(&mut bytes);
    (input.mean, input.mean_count, input.std, input.std_count) = (MEAN.as_ptr(), 3, STD.as_ptr(), 3);
    let mut changes = initial(tiled_changes_init);
    let mut output = sink(&mut got, TILED_DTYPE_U8, SCORES);
    output.changes = &raw mut changes;
    ok(run(&input, &output));
    let out_of_range = expected.iter().filter(|score| !(0.0..=1.0).contains(*score)).count();
    assert_eq!((changes.dtype, changes.values), (TILED_DTYPE_U8, 5 * PIXELS as u64));
    assert_eq!((changes.cut, changes.nan), (out_of_range as u64, 0));
    let least = expected.iter().copied().fold(f32::INFINITY, f32::min);
    assert!(changes.least.to_bits() == f64::from(least).to_bits() && out_of_range > 0);
    for (byte, score) in got.iter().zip(&expected) {
        let whole = (f64::from(*score).clamp(0.0, 1.0) * 255.0).round();
        assert!(f64::from(*byte).to_bits() == whole.to_bits(), "{byte} {score}");
    }
}

#[test]
fn operators_compute_on_floating_point_alone() {
    let (mut x, mut y) = ([0_u8; 16], [0_u8; 16]);
    let shape = [1, 1, 4, 4];
    let described = |memory: &mut [u8; 16]| {
        let mut tensor = initial(tiled_tensor_init);
        // SAFETY: four extents, and room for the struct
        ok(unsafe {
            let size = u32::try_from(size_of::<tiled_tensor>()).expect("small");
            tiled_tensor_contiguous(
                TILED_DTYPE_U8,
                memory.as_mut_ptr().cast(),
                shape.as_ptr(),
                &raw mut tensor,
                size,
            )
        });
        tensor
    };
    let (input, output) = (described(&mut x), described(&mut y));
    let pool = tiled_pool2d { kernel: [1, 1], stride: [1, 1], ..initial(tiled_pool2d_init) };
    let options = tiled_engine_options { threads: 1, ..initial(tiled_engine_options_init) };
    // SAFETY: every pointer is to a live value of its type
    unsafe {
        let engine = made(|out| tiled_engine_new(&raw const options, out));
        let (pool, input, output) = (&raw const pool, &raw const input, &raw const output);
        let status = tiled_max_pool2d_forward(engine, pool, null(), input, output);
        assert_eq!(status, TILED_STATUS_DTYPE);
        assert_eq!(message(), "output: elements are u8, wanted are f32 or f64");
        ok(tiled_engine_free(engine));
    }
}
