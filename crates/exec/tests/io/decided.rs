//! Sinks of decisions, and sources that normalise.

use tiled_exec::{
    DecidedSink, Decision, IoError, MemorySink, MemorySource, Normalization, NormalizedSource, Sink,
};
use tiled_tensor::{Element, Tensor};

use crate::windows::{check_source, numbered, write_tiles};

/// Scores with ties and without an order.
fn scores(shape: [usize; 4]) -> Tensor<f32> {
    let mut state = 1_u32;
    Tensor::from_fn(shape, |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u8::try_from(state >> 29).unwrap()) - 3.5
    })
    .unwrap()
}

fn decided(scores: &Tensor<f32>, decision: Decision, tile: [i64; 2]) -> Tensor<f32> {
    let inner = MemorySink::new(decision.shape(scores.shape())).unwrap();
    let sink = DecidedSink::new::<f32>(&inner, scores.shape(), decision).unwrap();
    write_tiles(&sink, scores, tile);
    Sink::<f32>::finish(&sink).unwrap();
    inner.into_tensor()
}

#[test]
fn the_largest_channel_of_every_pixel_is_the_first_of_equal_ones() {
    // more pixels of a batch than are decided at a time, in pieces that do not divide
    for (shape, tile) in [([2, 5, 13, 11], [4, 3]), ([3, 21, 97, 61], [97, 61]), ([1, 2, 1, 9000], [1, 9000])]
    {
        let scores = scores(shape);
        let view = scores.view();
        let expected = Tensor::from_fn(Decision::ArgMax.shape(shape), |[n, _, y, x]| {
            let at = |c: usize| view.get(n, c, i64::try_from(y).unwrap(), i64::try_from(x).unwrap());
            let best = (1..shape[1]).fold(0, |best, c| if at(c) > at(best) { c } else { best });
            f32::from(u8::try_from(best).unwrap())
        })
        .unwrap();
        assert_eq!(decided(&scores, Decision::ArgMax, tile).data(), expected.data(), "{shape:?}");
    }
}

#[test]
fn nan_wins_as_the_largest_and_stays_below_and_above() {
    let mut scores = scores([1, 4, 3, 3]);
    scores.data_mut()[9] = f32::NAN; // channel 1 of the first pixel
    scores.data_mut()[27] = f32::NAN; // and channel 3
    assert_eq!(decided(&scores, Decision::ArgMax, [2, 2]).data()[0], 1.0);
    let above = decided(&scores, Decision::Above(0.5), [2, 2]);
    for (above, score) in above.data().iter().zip(scores.data()) {
        assert!(if score.is_nan() { above.is_nan() } else { *above == f32::from(u8::from(*score > 0.5)) });
    }
}

#[test]
fn decisions_that_cannot_be_taken_are_refused() {
    let sink = |shape| MemorySink::<f32>::new(shape).unwrap();
    let one = sink([1, 1, 4, 5]);
    let error = DecidedSink::new::<f32>(&one, [1, 1, 4, 5], Decision::ArgMax).unwrap_err();
    assert!(matches!(error, IoError::DecisionChannels { got: 1, .. }), "{error}");
    let error = DecidedSink::new::<f32>(&one, [1, 3, 4, 6], Decision::ArgMax).unwrap_err();
    assert!(matches!(error, IoError::DecisionShape { .. }), "{error}");
    let error = DecidedSink::new::<f32>(&one, [1, 1, 4, 5], Decision::Above(f64::NAN)).unwrap_err();
    assert!(matches!(error, IoError::Factor { what: "threshold", .. }), "{error}");
}

#[test]
fn normalised_values_are_those_of_three_rounded_steps_in_every_window() {
    let shape = [2, 19, 7, 9];
    let tensor = numbered::<f32>(shape);
    let numbers = |scale: f64| (0..19_u8).map(|c| 0.3 + scale * f64::from(c)).collect::<Vec<f64>>();
    let to = Normalization { scale: 1.0 / 3.0, mean: numbers(0.1), std: numbers(0.7) };
    let source = MemorySource::try_from(&tensor).unwrap();
    let normalised = NormalizedSource::new("x", source.clone(), &to).unwrap();
    let narrow = <f32 as Element>::from_f64;
    let view = tensor.view();
    let expected = Tensor::from_fn(shape, |[n, c, y, x]| {
        let value = view.get(n, c, i64::try_from(y).unwrap(), i64::try_from(x).unwrap());
        (value * narrow(to.scale) - narrow(to.mean[c])) / narrow(to.std[c])
    })
    .unwrap();
    check_source(&normalised, &expected, [3, 4]);

    let refused = |to: Normalization| NormalizedSource::new("x", source.clone(), &to).map(drop).unwrap_err();
    let none = Normalization::default;
    let error = refused(Normalization { mean: vec![0.5; 3], ..none() }).to_string();
    assert_eq!(error, "`x`: 3 values of mean for 19 channels");
    for (to, text) in [
        (Normalization { std: vec![0.0], ..none() }, "`x`: std is 0, wants a finite number other than 0"),
        (
            Normalization { scale: f64::NAN, ..none() },
            "`x`: scale is NaN, wants a finite number other than 0",
        ),
        (Normalization { mean: vec![1e300], ..none() }, "`x`: mean is 1000"),
    ] {
        assert!(refused(to).to_string().starts_with(text));
    }
}
