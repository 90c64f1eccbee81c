//! What a picture cannot hold is counted.

use tiled_exec::{PictureChanges, Sink, create_sink};
use tiled_geometry::{Interval, Region};
use tiled_tensor::Tensor;

/// The changes of a row of values, written in two regions.
fn changes(values: &[f64]) -> PictureChanges {
    let folder = tempfile::tempdir().unwrap();
    let tensor = Tensor::from_fn([1, 1, 1, values.len()], |[.., x]| values[x]).unwrap();
    let sink = create_sink::<f64>(folder.path().join("y.png"), tensor.shape()).unwrap();
    let end = i64::try_from(values.len()).unwrap();
    for cols in [Interval::new(0, 2), Interval::new(2, end)] {
        sink.write(Region::from_rows_cols(Interval::new(0, 1), cols), &tensor.view()).unwrap();
    }
    sink.finish().unwrap();
    sink.picture_changes().unwrap()
}

#[test]
fn r03_values_cut_rounded_and_not_a_number_are_counted() {
    let got = changes(&[-3.2, 0.0, 1.0, 7.9, f64::NAN, 0.3, 5.0 / 255.0, f64::NAN, 1.0 + 1e-9]);
    let expected = PictureChanges { values: 9, cut: 3, least: -3.2, largest: 7.9, nan: 2, rounded: 1 };
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
fn r03_only_pictures_change_values() {
    let folder = tempfile::tempdir().unwrap();
    let sink = create_sink::<f32>(folder.path().join("y.npy"), [1, 1, 2, 2]).unwrap();
    assert_eq!(sink.picture_changes(), None);
    sink.abort();
}
