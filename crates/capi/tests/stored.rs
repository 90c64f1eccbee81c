//! Memory as it lies, through the C interface: bytes with channels last, means and deviations, decisions, what is changed.

mod plain;

use std::ffi::c_void;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};

use plain::{initial, made, message, ok, source};
use tiled_capi::*;

const IMAGE: [i64; 4] = [1, 3, 21, 34];
const SCORES: [i64; 4] = [1, 5, 21, 34];
const CLASSES: [i64; 4] = [1, 1, 21, 34];
const PIXELS: usize = 21 * 34;
const CHANNELS_LAST: [i64; 4] = [21 * 34 * 3, 1, 34 * 3, 3];

/// Runs a convolution to five channels in tiles.
fn run(input: &tiled_source, output: &tiled_sink) -> tiled_status {
    run_planned(input, output, &[])
}

/// The same with a plan that knows of chunks.
fn run_planned(input: &tiled_source, output: &tiled_sink, chunks: &[tiled_chunks]) -> tiled_status {
    let json = br#"{"inputs": [{"name": "x", "channels": 3}],
        "nodes": [{"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 5, "kernel_size": 3, "padding": 1}],
        "outputs": ["c"]}"#;
    let options = tiled_engine_options { threads: 1, ..initial(tiled_engine_options_init) };
    let tiles = tiled_plan_options {
        tile: [8, 9],
        chunks: chunks.as_ptr(),
        chunk_count: chunks.len(),
        ..initial(tiled_plan_options_init)
    };
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

/// Stores a part of the class numbers, for the one thread of `run`.
unsafe extern "C" fn take(user: *mut c_void, region: tiled_region, window: *const tiled_tensor) -> i32 {
    // SAFETY: `user` is a vector of all pixels that nothing else refers to, the window has those of the region
    let (pixels, window) = unsafe { (&mut *user.cast::<Vec<f32>>(), &*window) };
    let index = |at: i64| usize::try_from(at).expect("no negative place");
    let [_, _, height, width] = window.shape.map(index);
    // SAFETY: as above; a window of the library is contiguous
    let values = unsafe { std::slice::from_raw_parts(window.data.cast::<f32>(), height * width) };
    for (y, row) in values.chunks(width).enumerate() {
        let start = (index(region.rows.begin) + y) * 34 + index(region.cols.begin);
        pixels[start..][..row.len()].copy_from_slice(row);
    }
    0
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
    // bytes hold them as they are, where values would be 0 to 1
    let (mut of_bytes, mut of_words) = (vec![9_u8; PIXELS], vec![9_u16; PIXELS]);
    for mut output in
        [sink(&mut of_bytes, TILED_DTYPE_U8, CLASSES), sink(&mut of_words, TILED_DTYPE_U16, CLASSES)]
    {
        (output.decision, output.channels) = (TILED_DECISION_ARGMAX, 5);
        ok(run(&input, &output));
    }
    assert!(of_bytes.iter().map(|class| i64::from(*class)).eq(classes.iter().copied()));
    assert!(of_words.iter().map(|class| i64::from(*class)).eq(classes.iter().copied()));
    // the same numbers go to a function
    let given = std::cell::UnsafeCell::new(vec![-1.0_f32; PIXELS]);
    let mut function = tiled_sink { write: Some(take), user: given.get().cast(), ..initial(tiled_sink_init) };
    function.tensor.shape = CLASSES;
    (function.decision, function.channels) = (TILED_DECISION_ARGMAX, 5);
    ok(run(&input, &function));
    let taken = given.into_inner();
    let numbers = classes.iter().map(|class| f32::from(u8::try_from(*class).expect("five classes")));
    assert!(taken.into_iter().eq(numbers));
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

/// What `read_chunk` reads from, and how often it did.
struct Chunked {
    bytes: Vec<u8>,
    reads: [AtomicUsize; 6],
    fails: bool,
}

/// Rows and columns of a chunk: three by two of them, of which the last ones reach beyond the image.
const CHUNK: [i64; 2] = [8, 20];

unsafe extern "C" fn read_chunk(user: *mut c_void, row: i64, column: i64, chunk: *const tiled_tensor) -> i32 {
    // SAFETY: `user` is what the source was given, and the view is of all of a chunk
    let (chunked, view) = unsafe { (&*user.cast::<Chunked>(), &*chunk) };
    assert_eq!((view.dtype, view.shape), (TILED_DTYPE_U8, [1, 3, CHUNK[0], CHUNK[1]]));
    let index = |number: i64| usize::try_from(number).expect("not negative");
    chunked.reads[index(2 * row + column)].fetch_add(1, Ordering::Relaxed);
    if chunked.fails {
        return 7;
    }
    let [rows, cols] = CHUNK.map(index);
    // SAFETY: as above
    let to = unsafe { std::slice::from_raw_parts_mut(view.data.cast::<u8>(), 3 * rows * cols) };
    for c in 0..3 {
        for y in 0..rows.min(21 - index(row) * rows) {
            for x in 0..cols.min(34 - index(column) * cols) {
                let pixel = (index(row) * rows + y) * 34 + index(column) * cols + x;
                to[(c * rows + y) * cols + x] = chunked.bytes[3 * pixel + c];
            }
        }
    }
    0
}

#[test]
fn a_source_in_chunks_reads_each_once_and_has_the_bits_of_memory() {
    let expected = scores();
    let mut chunked = Chunked { bytes: photo(), reads: Default::default(), fails: false };
    let mut input = initial(tiled_source_init);
    (input.tensor.dtype, input.tensor.shape) = (TILED_DTYPE_U8, IMAGE);
    input.read_chunk = Some(read_chunk);
    input.chunk_shape = CHUNK;
    (input.mean, input.mean_count, input.std, input.std_count) = (MEAN.as_ptr(), 3, STD.as_ptr(), 3);
    let chunks = tiled_chunks { source: TILED_CHUNKS_INPUT, dtype: TILED_DTYPE_U8, index: 0, shape: CHUNK };
    for is_serial in [0, 1] {
        (input.user, input.is_serial) = ((&raw mut chunked).cast(), is_serial);
        let mut got = vec![0.0_f32; 5 * PIXELS];
        ok(run_planned(&input, &sink(&mut got, TILED_DTYPE_F32, SCORES), &[chunks]));
        assert!(got == expected, "bits of chunks");
        let reads = chunked.reads.each_mut().map(|reads| std::mem::take(reads.get_mut()));
        assert_eq!(reads, [1; 6]);
    }
    // the plan has other chunks
    let other = tiled_chunks { shape: [8, 19], ..chunks };
    let mut got = vec![0.0_f32; 5 * PIXELS];
    let output = sink(&mut got, TILED_DTYPE_F32, SCORES);
    assert_eq!(run_planned(&input, &output, &[other]), TILED_STATUS_INVALID_ARGUMENT);
    assert!(message().contains("chunks of 8×20"), "{}", message());
    // the callback fails
    chunked.fails = true;
    input.user = (&raw mut chunked).cast();
    assert_eq!(run_planned(&input, &output, &[chunks]), TILED_STATUS_CALLBACK);
    // descriptions without a meaning
    input.chunk_shape = [8, 0];
    assert_eq!(run_planned(&input, &output, &[chunks]), TILED_STATUS_OUT_OF_RANGE);
    input.chunk_shape = CHUNK;
    input.read = Some(never);
    assert_eq!(run_planned(&input, &output, &[chunks]), TILED_STATUS_INVALID_ARGUMENT);
}

unsafe extern "C" fn never(_: *mut c_void, _: tiled_region, _: *const tiled_tensor) -> i32 {
    1
}
