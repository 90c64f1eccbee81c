//! Optimisers against PyTorch.

use tiled_exec::{AdamW, AdamWOptions, OptimError, Optimizer, Sgd, SgdOptions};
use tiled_tensor::Element;

const FIRST: [f64; 2] = [1.0, -2.0];
const SECOND: [f64; 3] = [0.5, 0.0, -0.25];

fn plain(lr: f64) -> SgdOptions {
    SgdOptions { lr, ..SgdOptions::default() }
}

fn sgd<T: Element>(options: SgdOptions) -> Box<dyn Optimizer<T>> {
    Box::new(Sgd::<T>::new(options).unwrap())
}

fn adamw<T: Element>(options: AdamWOptions) -> Box<dyn Optimizer<T>> {
    Box::new(AdamW::<T>::new(options).unwrap())
}

/// Each optimiser, and what torch 2.15 in float64 (`foreach=False`) makes of the parameters in five steps of `run`.
fn cases<T: Element>() -> Vec<(Box<dyn Optimizer<T>>, [f64; 5])> {
    let wide = AdamWOptions { lr: 0.05, betas: [0.8, 0.95], eps: 1e-3, weight_decay: 0.3 };
    vec![
        (
            sgd(plain(0.1)),
            [0.7284479687500001, -1.6382278124999998, 0.3415575, -0.09066593750000002, -0.329444140625],
        ),
        (
            sgd(SgdOptions { weight_decay: 0.05, ..plain(0.1) }),
            [
                0.7087298913875001,
                -1.5970662165874998,
                0.3319141414671875,
                -0.08980321690625,
                -0.32311270031953127,
            ],
        ),
        (
            sgd(SgdOptions { momentum: 0.9, ..plain(0.1) }),
            [0.30766984375, -1.0532840625, 0.09909187499999997, -0.21897218750000005, -0.432747265625],
        ),
        (
            sgd(SgdOptions { momentum: 0.9, dampening: 0.3, weight_decay: 0.01, ..plain(0.1) }),
            [
                0.40891070903915144,
                -1.2441029451083538,
                0.15117016364081934,
                -0.2131407635150255,
                -0.4485814179717043,
            ],
        ),
        (
            sgd(SgdOptions { momentum: 0.8, weight_decay: 0.01, nesterov: true, ..plain(0.1) }),
            [
                0.2958719414005443,
                -1.0299332926764597,
                0.09316229446585073,
                -0.2190947049376856,
                -0.4299968808738752,
            ],
        ),
        (
            adamw(AdamWOptions { lr: 0.01, ..AdamWOptions::default() }),
            [
                0.9517616212519951,
                -1.9521623311353373,
                0.4554801918455673,
                -0.025510514873926634,
                -0.268108919313397,
            ],
        ),
        (
            adamw(wide),
            [
                0.7006677262160348,
                -1.6293688133380533,
                0.2592674583856232,
                -0.11001510249189025,
                -0.3100742461464726,
            ],
        ),
    ]
}

/// Steps whose gradient is p/2 + (i + 1)/4 in even steps and p/2 − (i + 1)/8 in odd ones.
fn run<T: Element>(optimizer: &mut dyn Optimizer<T>, steps: usize) -> Vec<T> {
    let mut first = FIRST.map(T::from_f64);
    let mut second = SECOND.map(T::from_f64);
    for step in 0..steps {
        let push = if step % 2 == 0 { 0.25 } else { -0.125 };
        let grad = |(i, value): (usize, &T)| *value * T::from_f64(0.5) + T::from_f64((i + 1) as f64 * push);
        let grads = [&first[..], &second].map(|param| param.iter().enumerate().map(grad).collect::<Vec<T>>());
        optimizer.step(&mut [&mut first, &mut second], &[&grads[0], &grads[1]]).unwrap();
    }
    [&first[..], &second].concat()
}

/// Five steps of at most ten roundings each on values of at most 2.
fn check<T: Element>() {
    for (mut optimizer, expected) in cases::<T>() {
        for (got, want) in run(&mut *optimizer, 5).into_iter().zip(expected) {
            let error = (got.to_f64() - want).abs();
            assert!(error <= 5.0 * 10.0 * 2.0 * T::EPSILON.to_f64(), "{optimizer:?}: {got}, not {want}");
        }
    }
}

#[test]
fn five_steps_are_those_of_torch_in_float64() {
    check::<f64>();
}

#[test]
fn five_steps_are_those_of_torch_in_float32() {
    check::<f32>();
}

#[test]
fn the_same_steps_give_the_same_bits() {
    for ((mut a, _), (mut b, _)) in cases::<f32>().into_iter().zip(cases::<f32>()) {
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(run(&mut *a, 4)), bits(run(&mut *b, 4)));
    }
}

#[test]
fn dampening_leaves_the_first_step_whole() {
    // Step 1: b = g = 2, p = 1 − 0.5·2 = 0. Step 2: b = 0.5·2 + 0.25·4 = 2, p = 0 − 0.5·2 = −1.
    let mut sgd = sgd::<f64>(SgdOptions { momentum: 0.5, dampening: 0.75, ..plain(0.5) });
    let mut weight = [1.0];
    sgd.step(&mut [&mut weight], &[&[2.0]]).unwrap();
    assert_eq!(weight, [0.0]);
    sgd.step(&mut [&mut weight], &[&[4.0]]).unwrap();
    assert_eq!(weight, [-1.0]);
}

#[test]
fn the_learning_rate_of_the_next_step_is_set() {
    let mut sgd = sgd::<f64>(plain(0.5));
    let mut weight = [1.0];
    sgd.set_learning_rate(0.25).unwrap();
    assert_eq!(sgd.learning_rate(), 0.25);
    sgd.step(&mut [&mut weight], &[&[2.0]]).unwrap();
    assert_eq!(weight, [0.5]);
    assert!(sgd.set_learning_rate(f64::NAN).is_err());
    assert_eq!(sgd.learning_rate(), 0.25);
}

#[test]
fn state_is_accounted_before_the_first_step() {
    assert_eq!(sgd::<f32>(plain(0.1)).state_bytes(1000), 0);
    assert_eq!(sgd::<f32>(SgdOptions { momentum: 0.9, ..plain(0.1) }).state_bytes(1000), 4000);
    assert_eq!(adamw::<f32>(AdamWOptions::default()).state_bytes(1000), 8000);
    assert_eq!(adamw::<f64>(AdamWOptions::default()).state_bytes(1000), 16000);
}

#[test]
fn mismatched_gradients_change_nothing() {
    for (mut optimizer, _) in cases::<f64>() {
        let (mut a, mut b) = ([1.0, 2.0], [3.0]);
        let error = optimizer.step(&mut [&mut a, &mut b], &[&[1.0, 1.0]]).unwrap_err();
        assert_eq!(error.to_string(), "gradients of 1 parameters, 2 are trained");
        let error = optimizer.step(&mut [&mut a, &mut b], &[&[1.0, 1.0], &[1.0, 1.0]]).unwrap_err();
        assert_eq!(error.to_string(), "gradient of parameter 1 has 2 elements, the parameter has 1");
        assert_eq!((a, b), ([1.0, 2.0], [3.0]));
    }
}

#[test]
fn other_parameters_at_a_later_step_are_refused() {
    let mut optimizer = adamw::<f64>(AdamWOptions::default());
    let mut weight = [1.0, 2.0];
    optimizer.step(&mut [&mut weight], &[&[1.0, 1.0]]).unwrap();
    let after = weight;
    let error = optimizer.step(&mut [&mut weight[..1]], &[&[1.0]]).unwrap_err();
    assert_eq!(error.to_string(), "state of parameter 0 has 2 elements, the parameter has 1");
    assert_eq!(weight, after);
}

#[test]
fn options_out_of_range_are_refused() {
    let text = |result: Result<(), OptimError>| result.unwrap_err().to_string();
    let sgd = |options| Sgd::<f32>::new(options).map(drop);
    let adamw = |options| AdamW::<f32>::new(options).map(drop);
    assert_eq!(text(sgd(plain(-1.0))), "sgd: lr is -1, a finite number of at least 0 is wanted");
    assert_eq!(
        text(sgd(SgdOptions { dampening: f64::NAN, ..plain(0.1) })),
        "sgd: dampening is NaN, a finite number is wanted"
    );
    assert_eq!(
        text(sgd(SgdOptions { nesterov: true, ..plain(0.1) })),
        "sgd: nesterov wants momentum above 0 and dampening 0, got 0 and 0"
    );
    assert_eq!(
        text(adamw(AdamWOptions { betas: [0.9, 1.0], ..AdamWOptions::default() })),
        "adamw: beta 2 is 1, a number from 0 to below 1 is wanted"
    );
    assert_eq!(
        text(adamw(AdamWOptions { eps: f64::INFINITY, ..AdamWOptions::default() })),
        "adamw: eps is inf, a finite number of at least 0 is wanted"
    );
}
