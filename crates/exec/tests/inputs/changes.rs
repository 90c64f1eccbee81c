//! What integers and 16 bits cannot hold is counted, and what they hold is read back.

use std::path::Path;

use tiled_exec::{
    Changes, ElementType, Numbers, RawFormat, Sink, SinkOptions, SourceOptions, create_sink,
    create_sink_with, open_source_with,
};
use tiled_geometry::{Interval, Region};
use tiled_tensor::Tensor;

use crate::read;

/// Writes a row of values in two regions.
fn write(path: &Path, values: &[f64], options: &SinkOptions) -> Changes {
    let tensor = Tensor::from_fn([1, 1, 1, values.len()], |[.., x]| values[x]).unwrap();
    let sink = create_sink_with::<f64>(path, tensor.shape(), options).unwrap();
    let end = i64::try_from(values.len()).unwrap();
    for cols in [Interval::new(0, 2), Interval::new(2, end)] {
        sink.write(Region::from_rows_cols(Interval::new(0, 1), cols), &tensor.view()).unwrap();
    }
    sink.finish().unwrap();
    sink.changes().unwrap()
}

/// The changes of a row of values in a picture.
fn changes(values: &[f64]) -> Changes {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("y.png"), values, &SinkOptions::default())
}

#[test]
fn r03_values_cut_rounded_and_not_a_number_are_counted() {
    let got = changes(&[-3.2, 0.0, 1.0, 7.9, f64::NAN, 0.3, 5.0 / 255.0, f64::NAN, 1.0 + 1e-9]);
    let none = Changes::new(ElementType::U8, Numbers::Scaled);
    let expected = Changes { values: 9, cut: 3, least: -3.2, largest: 7.9, nan: 2, rounded: 1, ..none };
    assert_eq!(got, expected);
    let text = "3 of 9 values cut to 0…1 (least -3.2, largest 7.9), 2 NaN written as 0, \
                1 of 9 values rounded to a 255th";
    assert_eq!(got.to_string(), text);
}

#[test]
fn r03_every_value_of_eight_bits_stays_as_it_is() {
    let values: Vec<f64> = (0..=255_u8).map(|byte| f64::from(byte) / 255.0).collect();
    let got = changes(&values);
    assert!(got.is_none() && got.values == 256, "{got:?}");
}

#[test]
fn r03_only_integers_and_sixteen_bits_change_values() {
    let folder = tempfile::tempdir().unwrap();
    let sink = create_sink::<f32>(folder.path().join("y.npy"), [1, 1, 2, 2]).unwrap();
    assert_eq!(sink.changes(), None);
    sink.abort();
}

#[test]
fn whole_numbers_of_every_type_are_read_back_and_others_are_rounded_and_cut() {
    let folder = tempfile::tempdir().unwrap();
    let integers = [
        (ElementType::U8, [0.0, 255.0]),
        (ElementType::I8, [-128.0, 127.0]),
        (ElementType::U16, [0.0, 65_535.0]),
        (ElementType::I16, [-32_768.0, 32_767.0]),
        (ElementType::U32, [0.0, 4_294_967_295.0]),
        (ElementType::I32, [-2_147_483_648.0, 2_147_483_647.0]),
        (ElementType::U64, [0.0, 18_446_744_073_709_551_615.0]),
        (ElementType::I64, [-9_223_372_036_854_775_808.0, 9_223_372_036_854_775_807.0]),
    ];
    for (element, [least, most]) in integers {
        let options =
            SinkOptions { element: Some(element), numbers: Numbers::AsIs, ..SinkOptions::default() };
        for name in ["y.npy", "y.raw"] {
            let path = folder.path().join(name);
            let got = write(&path, &[least, most, 7.0, 2.4, 2.5, 1e30, -1e30, f64::NAN], &options);
            let counts = (got.values, got.cut, got.nan, got.rounded, got.range());
            assert_eq!(counts, (8, 2, 1, 2, [least, most]), "{}", element.name());
            let text = format!("2 of 8 values cut to {least}…{most} (least {}, largest {})", -1e30, 1e30);
            let text = format!("{text}, 1 NaN written as 0, 2 of 8 values rounded to whole numbers");
            assert_eq!(got.to_string(), text);
            let raw = Some(RawFormat { shape: [1, 1, 1, 8], element });
            let source = SourceOptions { numbers: Numbers::AsIs, raw, ..SourceOptions::default() };
            let back = read(&*open_source_with(&path, &source).unwrap());
            assert_eq!(back, [least, most, 7.0, 2.0, 3.0, most, least, 0.0], "{}", element.name());
        }
    }
}

#[test]
fn scaled_sixteen_bits_are_read_back_from_arrays_and_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<f64> = [0_u16, 1, 255, 256, 40_000, 65_535].map(|v| f64::from(v) / 65_535.0).to_vec();
    for name in ["y.npy", "y.png"] {
        let path = folder.path().join(name);
        let options = SinkOptions { element: Some(ElementType::U16), ..SinkOptions::default() };
        assert!(write(&path, &values, &options).is_none());
        assert_eq!(read(&*open_source_with(&path, &SourceOptions::default()).unwrap()), values);
    }
}

#[test]
fn sixteen_bits_of_floating_point_round_and_are_cut_to_what_is_finite() {
    let folder = tempfile::tempdir().unwrap();
    let values = [1.0, -0.1, 65_504.0, 70_000.0, 1e-9, f64::INFINITY];
    for (element, expected, cut) in [
        (ElementType::F16, [1.0, -0.099_975_585_937_5, 65_504.0, 65_504.0, 0.0, f64::INFINITY], 1),
        (
            ElementType::Bf16,
            [1.0, -0.100_097_656_25, 65_536.0, 70_144.0, 9.968_061_931_431_293e-10, f64::INFINITY],
            0,
        ),
    ] {
        let options = SinkOptions { element: Some(element), ..SinkOptions::default() };
        let path = folder.path().join("y.raw");
        let got = write(&path, &values, &options);
        assert_eq!((got.values, got.cut, got.nan, got.rounded), (6, cut, 0, 0), "{}", element.name());
        let raw = Some(RawFormat { shape: [1, 1, 1, 6], element });
        let source = SourceOptions { raw, ..SourceOptions::default() };
        assert_eq!(read(&*open_source_with(&path, &source).unwrap()), expected, "{}", element.name());
    }
}

#[test]
fn elements_that_a_format_does_not_hold_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, element| {
        let options = SinkOptions { element: Some(element), ..SinkOptions::default() };
        let path = folder.path().join(name);
        create_sink_with::<f32>(path, [1, 1, 2, 2], &options).map(drop).unwrap_err().to_string()
    };
    assert!(refused("y.npy", ElementType::Bf16).ends_with("npy has no type for bf16 elements"));
    assert!(refused("y.png", ElementType::F32).ends_with("a picture holds u8 or u16, not f32"));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing is left");
}
