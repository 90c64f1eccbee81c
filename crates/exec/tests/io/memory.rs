//! Tensors in memory, with any strides.

use tiled_exec::{ConstantSource, IoError, MemorySink, MemorySource, Sink, SliceSink, Source};
use tiled_tensor::{Element, Tensor};

use crate::windows::{check_source, numbered, tiles, whole, write_tiles, write_tiles_from};

const SHAPE: [usize; 4] = [2, 3, 7, 5];

/// Some orders of storage: start and strides of `SHAPE`, and the length that they need.
const STRIDES: [(usize, [isize; 4], usize); 4] = [
    (0, [105, 35, 5, 1], 210),                         // NCHW
    (0, [105, 1, 15, 3], 210),                         // NHWC
    (9, [300, 99, 14, 2], 9 + 300 + 198 + 84 + 8 + 1), // gaps
    (209, [-105, -35, -5, -1], 210),                   // from the end
];

fn offset(start: usize, strides: [isize; 4], element: [usize; 4]) -> usize {
    let steps = element.iter().zip(strides).map(|(i, stride)| i.cast_signed() * stride);
    start.checked_add_signed(steps.sum()).unwrap()
}

#[test]
fn a_source_of_any_strides_gives_its_elements() {
    let tensor = numbered::<f32>(SHAPE);
    for (start, strides, len) in STRIDES {
        let mut data = vec![-1.0; len];
        for (i, value) in tensor.data().iter().enumerate() {
            data[offset(start, strides, [i / 105, i / 35 % 3, i / 5 % 7, i % 5])] = *value;
        }
        let source = MemorySource::with_strides(&data, SHAPE, start, strides).unwrap();
        check_source(&source, &tensor, [3, 2]);
        assert_eq!(source.resident_bytes(), 0);
        assert!(MemorySource::with_strides(&data[..len - 1], SHAPE, start, strides).is_err());
    }
}

#[test]
fn strides_along_one_element_leave_no_gap() {
    let data = [0.0_f32; 60];
    for (shape, strides) in
        [([1, 3, 4, 5], [0, 20, 5, 1]), ([1, 1, 12, 5], [7, -3, 5, 1]), ([3, 20, 1, 1], [20, 1, 9, 9])]
    {
        let source = MemorySource::with_strides(&data, shape, 0, strides).unwrap();
        assert_eq!(source.in_memory().map(<[f32]>::len), Some(60), "{shape:?}, {strides:?}");
    }
    let gaps = MemorySource::with_strides(&data, [2, 2, 2, 2], 0, [8, 4, 3, 1]).unwrap();
    assert!(gaps.in_memory().is_none());
}

#[test]
fn a_sink_of_any_strides_takes_its_elements_and_leaves_the_gaps() {
    let tensor = numbered::<f64>(SHAPE);
    for (start, strides, len) in STRIDES {
        let mut data = vec![-1.0; len];
        let sink = SliceSink::with_strides(&mut data, SHAPE, start, strides).unwrap();
        write_tiles(&sink, &tensor, [2, 4]);
        sink.finish().unwrap();
        for (i, value) in tensor.data().iter().enumerate() {
            let offset = offset(start, strides, [i / 105, i / 35 % 3, i / 5 % 7, i % 5]);
            assert_eq!(std::mem::replace(&mut data[offset], -1.0), *value);
        }
        assert!(data.iter().all(|value| *value == -1.0));
    }
}

#[test]
fn owned_and_borrowed_tensors_are_the_same_source() {
    let tensor = numbered::<f64>(SHAPE);
    check_source(&MemorySource::try_from(&tensor).unwrap(), &tensor, [4, 4]);
    check_source(&MemorySource::new(tensor.data(), SHAPE).unwrap(), &tensor, [4, 4]);
    let owned = MemorySource::from_tensor(tensor.clone()).unwrap();
    check_source(&owned, &tensor, [4, 4]);
    assert_eq!(owned.resident_bytes(), 8 * 210);
}

#[test]
fn a_memory_sink_hands_back_the_tensor() {
    let tensor = numbered::<f32>(SHAPE);
    let sink = MemorySink::new(SHAPE).unwrap();
    assert!(tiles(SHAPE, [2, 2]).len() > 1);
    write_tiles(&sink, &tensor, [2, 2]);
    sink.finish().unwrap();
    assert_eq!(sink.resident_bytes(), 4 * 210);
    assert_eq!(sink.into_tensor().data(), tensor.data());
}

#[test]
fn threads_share_the_copy_of_a_large_region() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    // few blocks and many rows, few rows, whole rows that follow one another, many planes of a few elements
    let cases = [
        ([1, 3, 330, 281], [329, 280]),
        ([2, 20, 11, 800], [10, 790]),
        ([2, 36, 120, 70], [60, 70]),
        ([9, 700, 7, 7], [7, 7]),
    ];
    for (shape, tile) in cases {
        let [_, channels, height, width] = shape;
        let tensor = numbered::<f32>(shape);
        // windows of all kinds
        for first in 0..9 {
            let sink = MemorySink::new(shape).unwrap();
            pool.install(|| write_tiles_from(&sink, &tensor, tile, first));
            assert!(sink.into_tensor().data() == tensor.data(), "{shape:?}, window {first}");
        }
        // contiguous, with gaps after the rows, and pixels apart
        for (row_stride, step) in [(width, 1), (width + 3, 1), (2 * width, 2)] {
            let plane = height * row_stride;
            let strides = [channels * plane, plane, row_stride, step].map(usize::cast_signed);
            let mut data = vec![-1.0; shape[0] * channels * plane];
            let sink = SliceSink::with_strides(&mut data, shape, 0, strides).unwrap();
            pool.install(|| write_tiles_from(&sink, &tensor, tile, 8));
            sink.finish().unwrap();
            let rows = data.chunks(row_stride).flat_map(|row| row.iter().step_by(step).take(width));
            assert!(rows.eq(tensor.data()), "{shape:?}, rows of {row_stride} by steps of {step}");
            let source = MemorySource::with_strides(&data, shape, 0, strides).unwrap();
            pool.install(|| check_source(&source, &tensor, tile));
        }
    }
}

#[test]
fn a_broadcast_axis_is_a_stride_of_zero() {
    let row = [1.0_f32, 2.0, 3.0];
    let source = MemorySource::with_strides(&row, [2, 2, 4, 3], 0, [0, 0, 0, 1]).unwrap();
    let expected = Tensor::from_fn([2, 2, 4, 3], |[.., x]| row[x]).unwrap();
    check_source(&source, &expected, [3, 2]);
}

#[test]
fn a_constant_fills_every_lane_of_the_region() {
    let ones = Tensor::<f32>::from_fn(SHAPE, |_| 1.0).unwrap();
    check_source(&ConstantSource::ones(SHAPE).unwrap(), &ones, [2, 3]);
    let source = ConstantSource::new(SHAPE, -2.5_f64).unwrap();
    check_source(&source, &Tensor::from_fn(SHAPE, |_| -2.5).unwrap(), [9, 9]);
}

#[test]
fn sinks_whose_elements_share_a_place_are_refused() {
    let mut data = [0.0_f32; 64];
    for strides in [[0, 0, 0, 1], [8, 8, 4, 1], [16, 8, 2, 1], [1, 8, 1, -1]] {
        let error = SliceSink::with_strides(&mut data, [2, 2, 2, 3], 8, strides).unwrap_err();
        assert!(matches!(error, IoError::Overlap { .. }), "{strides:?}: {error:?}");
        assert_eq!(error.to_string(), format!("`<memory>`: strides {strides:?} let elements overlap"));
    }
    // An axis of one element has no stride.
    SliceSink::with_strides(&mut data, [1, 2, 2, 3], 0, [0, 6, 3, 1]).unwrap();
}

#[test]
fn strides_that_leave_the_data_are_refused() {
    let data = [0.0_f32; 10];
    for (start, strides) in [
        (0, [1, 1, 1, isize::MAX]),
        (0, [isize::MIN, isize::MIN, isize::MIN, isize::MIN]),
        (usize::MAX, [isize::MAX; 4]),
        (0, [0, 0, 0, -1]),
        (8, [0, 0, 0, 1]),
    ] {
        let error = MemorySource::with_strides(&data, [2, 2, 2, 3], start, strides).unwrap_err();
        assert!(matches!(error, IoError::Elements { .. }), "{error:?}");
    }
    // No element, no place.
    MemorySource::with_strides(&data, [0, 2, 2, 3], 99, [isize::MAX; 4]).unwrap();
}

#[test]
fn sizes_that_overflow_are_refused() {
    let shape = [1 << 20, 1 << 20, 1 << 20, 1 << 20];
    let text = format!("`<memory>`: shape {shape:?} overflows");
    assert_eq!(MemorySource::<f32>::new(&[], shape).unwrap_err().to_string(), text);
    assert_eq!(MemorySink::<f32>::new(shape).unwrap_err().to_string(), text);
    assert!(ConstantSource::ones(shape).map(|source: ConstantSource<f32>| source).is_err());
}

#[test]
fn a_sink_is_incomplete_while_an_element_is_missing() {
    fn incomplete<T: Element>(sink: &dyn Sink<T>, tensor: &Tensor<T>) {
        let shape = tensor.shape();
        let tiles = tiles(shape, [3, 3]);
        for tile in &tiles[1..] {
            sink.write(*tile, &tensor.view()).unwrap();
        }
        let written = 210 - 6 * tiles[0].volume();
        let error = sink.finish().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("`<memory>`: incomplete: 210 elements expected, {written} written")
        );
        let error = sink.write(whole(shape), &tensor.view()).unwrap_err();
        assert_eq!(error.to_string(), "`<memory>`: already finished or aborted");
        assert!(matches!(sink.finish().unwrap_err(), IoError::Closed { .. }));
    }
    let tensor = numbered::<f32>(SHAPE);
    incomplete(&MemorySink::new(SHAPE).unwrap(), &tensor);
    incomplete(&SliceSink::new(&mut [0.0; 210], SHAPE).unwrap(), &tensor);
}
