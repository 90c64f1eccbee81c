//! The numbers of batch normalisation against the naive formulas over the elements themselves.

use tiled_kernel::batch_norm::{factors, input_gradient, moments, moved, unbiased, weight_gradient};
use tiled_testkit::conformance::Rng;

/// Sums here are of at most 200 values of order one, and nothing cancels by more than a factor of 1000.
const TOLERANCE: f64 = 200.0 * 1000.0 * f64::EPSILON;
const EPS: f64 = 1e-3;
/// Channels and elements of each.
const SIZES: [[usize; 2]; 6] = [[1, 1], [3, 1], [1, 2], [5, 7], [17, 64], [2, 200]];

/// The elements of each channel.
type Values = Vec<Vec<f64>>;

fn random([channels, count]: [usize; 2], rng: &mut Rng) -> Values {
    (0..channels).map(|_| (0..count).map(|_| rng.uniform(-1.0, 2.0)).collect()).collect()
}

fn list(len: usize, rng: &mut Rng) -> Vec<f64> {
    (0..len).map(|_| rng.uniform(0.5, 1.5)).collect()
}

fn by_channel(values: &Values, of: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    values.iter().map(|channel| of(channel)).collect()
}

fn sums(values: &Values) -> Vec<f64> {
    by_channel(values, |channel| channel.iter().sum())
}

fn squares(values: &Values) -> Vec<f64> {
    by_channel(values, |channel| channel.iter().map(|value| value * value).sum())
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn float(count: usize) -> f64 {
    count as f64
}

fn assert_near(what: &str, size: [usize; 2], got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what} of {size:?}: channels");
    for (channel, (got, want)) in got.iter().zip(want).enumerate() {
        let bound = TOLERANCE * (1.0 + want.abs());
        assert!((got - want).abs() <= bound, "{what} of {size:?}, channel {channel}: {got}, want {want}");
    }
}

/// Mean and biased variance in two passes.
fn naive_moments(channel: &[f64]) -> [f64; 2] {
    let count = float(channel.len());
    let mean = channel.iter().sum::<f64>() / count;
    [mean, channel.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count]
}

#[test]
fn moments_are_those_of_two_passes() {
    let mut rng = Rng::new(1);
    for size in SIZES {
        let values = random(size, &mut rng);
        let [mean, variance] = moments(&sums(&values), &squares(&values), float(size[1])).expect("memory");
        assert_near("mean", size, &mean, &by_channel(&values, |channel| naive_moments(channel)[0]));
        assert_near("variance", size, &variance, &by_channel(&values, |channel| naive_moments(channel)[1]));
    }
}

#[test]
fn a_variance_that_cancels_is_not_negative() {
    // of one element 0.1, whose square is rounded down below the product of its mean
    let [mean, variance] = moments(&[0.1], &[0.1 * 0.1 - 1e-18], 1.0).expect("memory");
    assert_eq!((mean[0], variance[0]), (0.1, 0.0));
}

#[test]
fn factors_normalise_with_and_without_weight_and_bias() {
    let mut rng = Rng::new(2);
    for size in SIZES {
        let values = random(size, &mut rng);
        let (weight, bias) = (list(size[0], &mut rng), list(size[0], &mut rng));
        let mean = by_channel(&values, |channel| naive_moments(channel)[0]);
        let variance = by_channel(&values, |channel| naive_moments(channel)[1]);
        for (weight, bias) in
            [(Some(&weight), Some(&bias)), (None, Some(&bias)), (Some(&weight), None), (None, None)]
        {
            let got = factors(&mean, &variance, EPS, weight.map(Vec::as_slice), bias.map(Vec::as_slice));
            let got = got.expect("memory");
            let inverse: Vec<f64> = variance.iter().map(|variance| (variance + EPS).sqrt().recip()).collect();
            assert_near("1/σ", size, &got.inverse_std, &inverse);
            for c in 0..size[0] {
                let (gamma, beta) =
                    (weight.map_or(1.0, |weight| weight[c]), bias.map_or(0.0, |bias| bias[c]));
                let want =
                    values[c].iter().map(|x| gamma * (x - mean[c]) / (variance[c] + EPS).sqrt() + beta);
                let got: Vec<f64> = values[c].iter().map(|x| got.scale[c] * x + got.shift[c]).collect();
                assert_near("y", size, &got, &want.collect::<Vec<_>>());
            }
        }
    }
}

/// `dx` and `dγ` of one channel, by the chain rule through mean and variance as in the paper.
fn naive_gradients(x: &[f64], g: &[f64], gamma: f64) -> (Vec<f64>, f64) {
    let count = float(x.len());
    let [mean, variance] = naive_moments(x);
    let std = (variance + EPS).sqrt();
    let toward_variance: f64 =
        x.iter().zip(g).map(|(x, g)| g * gamma * (x - mean) * -0.5 * std.powi(-3)).sum();
    let through_variance: f64 = x.iter().map(|x| -2.0 * (x - mean)).sum::<f64>() / count;
    let toward_mean: f64 =
        g.iter().map(|g| -g * gamma / std).sum::<f64>() + toward_variance * through_variance;
    let dx = x
        .iter()
        .zip(g)
        .map(|(x, g)| g * gamma / std + toward_variance * 2.0 * (x - mean) / count + toward_mean / count);
    (dx.collect(), x.iter().zip(g).map(|(x, g)| g * (x - mean) / std).sum())
}

#[test]
fn gradients_are_those_of_the_chain_rule() {
    let mut rng = Rng::new(3);
    for size in SIZES {
        let (x, g, weight) = (random(size, &mut rng), random(size, &mut rng), list(size[0], &mut rng));
        let count = float(size[1]);
        let [mean, variance] = moments(&sums(&x), &squares(&x), count).expect("memory");
        let factors = factors(&mean, &variance, EPS, Some(&weight), None).expect("memory");
        let dots: Vec<f64> =
            (0..size[0]).map(|c| x[c].iter().zip(&g[c]).map(|(x, g)| g * (x - mean[c])).sum()).collect();
        let naive: Vec<_> = (0..size[0]).map(|c| naive_gradients(&x[c], &g[c], weight[c])).collect();

        let toward_weight = weight_gradient(&dots, &factors.inverse_std).expect("memory");
        let want: Vec<f64> = naive.iter().map(|(_, dot)| *dot).collect();
        assert_near("dγ", size, &toward_weight, &want);

        let got = input_gradient(&sums(&g), &dots, count, &mean, &factors.inverse_std, &factors.scale, 1);
        let got = got.expect("memory");
        for (c, (want, _)) in naive.iter().enumerate() {
            let dx = x[c].iter().zip(&g[c]).map(|(x, g)| got.a[c] * g + (got.b[c] * x + got.d[c]));
            assert_near("dx", size, &dx.collect::<Vec<_>>(), want);
        }
    }
}

#[test]
fn running_statistics_take_the_variance_without_bias() {
    let mut rng = Rng::new(4);
    for size in SIZES {
        let values = random(size, &mut rng);
        let variance = by_channel(&values, |channel| naive_moments(channel)[1]);
        let want = by_channel(&values, |channel| {
            let mean = naive_moments(channel)[0];
            let sum: f64 = channel.iter().map(|value| (value - mean).powi(2)).sum();
            if channel.len() == 1 { sum } else { sum / (float(channel.len()) - 1.0) }
        });
        let got = unbiased(&variance, float(size[1])).expect("memory");
        assert_near("unbiased variance", size, &got, &want);
    }
}

#[test]
fn a_running_statistic_moves_by_the_momentum() {
    assert_eq!(moved(&[1.0, -2.0], &[3.0, 6.0], 0.25).expect("memory"), [1.5, 0.0]);
    assert_eq!(moved(&[1.0], &[3.0], 0.0).expect("memory"), [1.0]);
    assert_eq!(moved(&[1.0], &[3.0], 1.0).expect("memory"), [3.0]);
    assert_eq!(moved(&[], &[], 0.5).expect("memory"), Vec::<f64>::new());
}
