//! Memory of other types than the computation's.

use tiled_exec::{Changes, ElementType, IoError, Numbers, Sink, Stored, StoredSink, StoredSource, bf16, f16};
use tiled_tensor::{Element, Tensor};

use crate::windows::{check_source, write_tiles};

const SHAPE: [usize; 4] = [2, 19, 11, 13];

/// Shapes of memory around the tensor: in order, channels last with a margin, upside down, and one row for all.
fn strides() -> [(usize, [isize; 4]); 4] {
    let [batch, channels, height, width] = SHAPE.map(usize::cast_signed);
    [
        (0, [channels * height * width, height * width, width, 1]),
        (5, [height * width * (channels + 2), 1, width * (channels + 2), channels + 2]),
        (
            ((batch * channels * height - 1) * width).cast_unsigned(),
            [-channels * height * width, -height * width, -width, 1],
        ),
        (0, [0, width, 0, 1]),
    ]
}

/// Every type holds whole numbers from 0 to 120 as they are.
fn every_stride_is_read<S: Stored + PartialEq>() {
    let data: Vec<S> = (0..12_000_u32)
        .map(|i| S::store::<f64>(f64::from(i * 7 % 121), &mut Changes::new(S::ELEMENT, Numbers::AsIs)))
        .collect();
    for (start, strides) in strides() {
        let expected = Tensor::<f32>::from_fn(SHAPE, |element| {
            let places = element.iter().zip(strides).map(|(index, stride)| index.cast_signed() * stride);
            data[start.wrapping_add_signed(places.sum())].load(Numbers::AsIs)
        })
        .unwrap();
        let source = StoredSource::with_strides(&data, SHAPE, start, strides).unwrap();
        check_source(&source.with_numbers(Numbers::AsIs), &expected, [4, 5]);
    }
}

#[test]
fn tensors_of_every_type_are_read_with_any_strides() {
    every_stride_is_read::<u8>();
    every_stride_is_read::<i8>();
    every_stride_is_read::<u16>();
    every_stride_is_read::<i16>();
    every_stride_is_read::<u32>();
    every_stride_is_read::<i32>();
    every_stride_is_read::<u64>();
    every_stride_is_read::<i64>();
    every_stride_is_read::<f16>();
    every_stride_is_read::<bf16>();
    every_stride_is_read::<f32>();
    every_stride_is_read::<f64>();
}

/// What is written in tiles lies where the strides say, and nothing else is touched.
fn every_stride_is_written<S: Stored + PartialEq + Default>() {
    let mut next = 0_u8;
    let tensor = Tensor::<f32>::from_fn(SHAPE, |_| {
        next = (next + 7) % 121;
        f32::from(next)
    })
    .unwrap();
    for (start, strides) in &strides()[..3] {
        let mut memory = vec![S::default(); 12_000];
        let mut expected = memory.clone();
        let mut values = tensor.data().iter();
        for n in 0..SHAPE[0] {
            for c in 0..SHAPE[1] {
                for y in 0..SHAPE[2] {
                    for x in 0..SHAPE[3] {
                        let element = [n, c, y, x];
                        let places = element.iter().zip(strides).map(|(i, stride)| i.cast_signed() * stride);
                        let mut changes = Changes::new(S::ELEMENT, Numbers::AsIs);
                        expected[start.wrapping_add_signed(places.sum())] =
                            S::store(*values.next().unwrap(), &mut changes);
                    }
                }
            }
        }
        let sink = StoredSink::with_strides(&mut memory, SHAPE, *start, *strides).unwrap();
        let sink = sink.with_numbers(Numbers::AsIs);
        write_tiles::<f32>(&sink, &tensor, [4, 5]);
        assert!(Sink::<f32>::changes(&sink).is_none_or(|changes| changes.is_none()));
        Sink::<f32>::finish(&sink).unwrap();
        assert!(memory == expected, "{}", S::ELEMENT.name());
    }
}

#[test]
fn tensors_of_every_type_are_written_with_any_strides() {
    every_stride_is_written::<u8>();
    every_stride_is_written::<i8>();
    every_stride_is_written::<u16>();
    every_stride_is_written::<i16>();
    every_stride_is_written::<u32>();
    every_stride_is_written::<i32>();
    every_stride_is_written::<u64>();
    every_stride_is_written::<i64>();
    every_stride_is_written::<f16>();
    every_stride_is_written::<bf16>();
    every_stride_is_written::<f32>();
    every_stride_is_written::<f64>();
}

#[test]
fn bytes_are_scaled_and_what_they_cut_is_counted() {
    let mut memory = [0_u8; 6];
    let tensor = Tensor::<f32>::from_fn([1, 1, 2, 3], |[_, _, y, x]| (y * 3 + x) as f32 / 3.0 - 0.5).unwrap();
    let sink = StoredSink::new(&mut memory, tensor.shape()).unwrap();
    write_tiles::<f32>(&sink, &tensor, [1, 2]);
    let changes = Sink::<f32>::changes(&sink).unwrap();
    assert_eq!((changes.element, changes.values, changes.cut), (ElementType::U8, 6, 3));
    Sink::<f32>::finish(&sink).unwrap();
    assert_eq!(memory, [0, 0, 43, 128, 213, 255]);
}

/// Halfway between any two neighbours of 16 bits the even one is stored, and a value beside it becomes the nearer one.
fn stored_is_nearest<S: Stored>(infinity: u16, of_bits: impl Fn(u16) -> S, bits: impl Fn(S) -> u16) {
    let mut changes = Changes::new(S::ELEMENT, Numbers::AsIs);
    for low in 0..infinity - 1 {
        let [below, above] = [low, low + 1].map(|bits| of_bits(bits).load::<f64>(Numbers::AsIs));
        let middle = below.midpoint(above);
        let even = low + low % 2;
        let cases = [(middle, even), (middle.next_up(), low + 1), (middle.next_down(), low), (below, low)];
        for (value, expected) in cases {
            assert_eq!(bits(S::store(value, &mut changes)), expected, "{value:e}");
            assert_eq!(bits(S::store(-value, &mut changes)), expected | 1 << 15, "{value:e}");
        }
        // the same of f32, where it has the bit more that the middle takes
        let middle = f32::from_f64(middle);
        if f64::from(middle) == below.midpoint(above) {
            for (value, expected) in [(middle, even), (middle.next_up(), low + 1), (middle.next_down(), low)]
            {
                assert_eq!(bits(S::store(value, &mut changes)), expected, "{value:e}");
            }
        }
    }
    assert_eq!((changes.cut, changes.nan), (0, 0));
}

#[test]
fn sixteen_bits_of_floating_point_are_the_nearest() {
    stored_is_nearest(f16::INFINITY.to_bits(), f16::from_bits, f16::to_bits);
    stored_is_nearest(bf16::INFINITY.to_bits(), bf16::from_bits, bf16::to_bits);
}

#[test]
fn memory_that_is_too_short_or_overlaps_is_refused() {
    let mut data = vec![0_u8; 12];
    let error = StoredSource::new(&data, [1, 1, 4, 4]).map(drop).unwrap_err();
    assert!(matches!(error, IoError::Elements { expected: 16, got: 12, .. }), "{error}");
    let error = StoredSink::with_strides(&mut data, [1, 1, 3, 4], 0, [12, 12, 2, 1]).map(drop).unwrap_err();
    assert!(matches!(error, IoError::Overlap { .. }), "{error}");
}
