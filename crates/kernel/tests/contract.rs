//! Corners of the contract: windows that hold too little, foreign states, borders, and values that mean nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tiled_geometry::{Interval, Region, Window};
use tiled_kernel::{
    Conv, Dropped, Epilogue, ExactSum, Extremum, Host, Kernel, Params, Partial, Pool, Reduction, Reference,
    Workspace,
};
use tiled_tensor::{AlignedBuffer, Layout, Tensor, View, ViewMut};
use tiled_testkit::conformance::Case;

fn window(kernel: i64, stride: i64, padding: i64) -> Window {
    Window::new(kernel, stride, 1, padding).expect("positive sizes")
}

fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

fn tensor(shape: [usize; 4], values: &[f32]) -> Tensor<f32> {
    let mut values = values.iter();
    Tensor::from_fn(shape, |_| *values.next().expect("enough values")).expect("a small tensor")
}

fn compute(kernel: Kernel, inputs: Vec<Tensor<f32>>, output: [usize; 4]) -> Vec<f32> {
    Case { kernel, params: Vec::new(), inputs, output }.whole(&Reference).data().to_vec()
}

#[test]
fn windows_that_hold_too_little_are_refused() {
    let conv = Conv {
        in_channels: 1,
        out_channels: 1,
        groups: 1,
        windows: [window(3, 1, 1); 2],
        input: [8, 8],
        output: [8, 8],
    };
    let kernel = Kernel::conv2d(conv, Epilogue::NONE);
    let (weights, data) = ([1.0_f32; 9], [1.0_f32; 64]);
    let run = |rows: Interval| {
        let held = Layout::new(1, 1, 1, Region::new([rows, Interval::whole(8)]), 8).expect("small");
        let (input, mut output) = (View::new(&data, held), Tensor::zeros([1, 1, 8, 8]).expect("small"));
        let region = Region::new([Interval::new(2, 4), Interval::whole(8)]);
        Reference.compute(
            &kernel,
            Params::Packed(&weights),
            &[input],
            output.view_mut(),
            region,
            &Workspace::NONE,
        );
    };
    assert!(!panics(|| run(Interval::new(1, 5))), "rows 1 to 4 are what rows 2 and 3 read");
    assert!(panics(|| run(Interval::new(2, 5))));
    assert!(panics(|| run(Interval::new(1, 4))));
}

#[test]
fn region_outside_the_output_window_is_refused() {
    let held =
        Layout::new(1, 1, 1, Region::new([Interval::new(0, 2), Interval::whole(4)]), 2).expect("small");
    let mut data = [0.0_f32; 8];
    let region = Region::new([Interval::new(1, 3), Interval::whole(4)]);
    assert!(panics(|| {
        Reference.compute(
            &Kernel::Fill { value: 1.0 },
            Params::Packed(&[]),
            &[],
            ViewMut::new(&mut data, held),
            region,
            &Workspace::NONE,
        );
    }));
}

#[test]
fn states_of_other_reductions_are_refused() {
    let x = tensor([1, 1, 1, 2], &[1.0, 2.0]);
    let region = x.view().region();
    let mut maxima = Partial::Extrema(vec![Extremum::default()]);
    assert!(panics(|| Reference.reduce(&Reduction::Sum, &[], &[x.view()], region, &mut maxima)));
    let mut sums = Partial::<f32>::Exact(vec![ExactSum::default()]);
    assert!(panics(|| Reference.reduce(&Reduction::ImageMax, &[], &[x.view()], region, &mut sums)));
    assert!(panics(|| sums.merge(&maxima)));
    assert!(panics(|| sums.merge(&Partial::Exact(vec![ExactSum::default(); 2]))));
}

#[test]
fn cleared_states_have_forgotten() {
    let x = tensor([1, 1, 1, 2], &[1.0, 2.0]);
    for reduction in [Reduction::Sum, Reduction::ImageMax] {
        let mut partial = (&Reference as &dyn Host<f32>).partial(&reduction, 1, 1).unwrap();
        let fresh = format!("{partial:?}");
        Reference.reduce(&reduction, &[], &[x.view()], x.view().region(), &mut partial);
        assert_ne!(format!("{partial:?}"), fresh);
        partial.clear(1);
        assert_eq!(format!("{partial:?}"), fresh);
        assert!(partial.size_bytes() > 0);
    }
}

#[test]
fn a_state_serves_reductions_that_take_no_more() {
    let zeros = |len| Partial::<f32>::Values(AlignedBuffer::new(len));
    let states = [
        (zeros(8), zeros(3)),
        (Partial::Exact(vec![ExactSum::default(); 8]), Partial::Exact(vec![ExactSum::default(); 3])),
        (Partial::Extrema(vec![Extremum::default(); 8]), Partial::Extrema(vec![Extremum::default(); 3])),
    ];
    for (mut state, shorter) in states {
        let fresh = format!("{state:?}");
        state.clear(3);
        assert_eq!(format!("{state:?}"), format!("{shorter:?}"));
        state.clear(8);
        assert_eq!(format!("{state:?}"), fresh);
        assert!(panics(move || state.clear(9)), "it was made for less");
    }
}

#[test]
fn extremum_does_not_depend_on_order() {
    let candidates = [(1.0, [0, 3]), (2.0, [1, 0]), (f32::NAN, [2, 2]), (2.0, [0, 5]), (f32::NAN, [1, 7])];
    for start in 0..candidates.len() {
        for without_nan in [false, true] {
            let mut extremum = Extremum::<f32>::default();
            for (value, position) in candidates[start..].iter().chain(&candidates[..start]) {
                if !(without_nan && value.is_nan()) {
                    extremum.offer(*value, *position);
                }
            }
            let expected = if without_nan { [0, 5] } else { [1, 7] };
            assert_eq!(extremum.position, Some(expected));
            assert_eq!(extremum.value.is_nan(), !without_nan);
        }
    }
}

#[test]
fn windows_of_padding_alone_have_no_maximum_and_a_mean_of_zero() {
    // padding of three around one pixel: the corner windows of two do not reach it
    let pool = Pool {
        windows: [window(2, 2, 3); 2],
        padding_after: [3; 2],
        input: [1, 1],
        output: [3, 3],
        counts_padding: true,
    };
    let x = || vec![tensor([1, 1, 1, 1], &[8.0])];
    let mut expected = [f32::NEG_INFINITY; 9];
    expected[4] = 8.0;
    assert_eq!(compute(Kernel::MaxPool2d(pool), x(), [1, 1, 3, 3]), expected);
    let mut expected = [0.0; 9];
    expected[4] = 2.0;
    assert_eq!(compute(Kernel::AvgPool2d(pool), x(), [1, 1, 3, 3]), expected);
    let pool = Pool { counts_padding: false, ..pool };
    expected[4] = 8.0;
    assert_eq!(compute(Kernel::AvgPool2d(pool), x(), [1, 1, 3, 3]), expected);
}

#[test]
fn padding_is_never_the_maximum() {
    let pool = Pool {
        windows: [window(3, 1, 1); 2],
        padding_after: [1; 2],
        input: [1, 2],
        output: [1, 2],
        counts_padding: false,
    };
    let x = tensor([1, 1, 1, 2], &[-3.0, f32::NEG_INFINITY]);
    assert_eq!(compute(Kernel::MaxPool2d(pool), vec![x.clone()], [1, 1, 1, 2]), [-3.0, -3.0]);
    let gradient = vec![tensor([1, 1, 1, 2], &[1.0, 2.0]), x];
    assert_eq!(compute(Kernel::MaxPool2dBackward(pool), gradient, [1, 1, 1, 2]), [3.0, 0.0]);
}

#[test]
fn ignored_pixels_have_no_loss_and_foreign_classes_are_not_hidden() {
    let scores = tensor([1, 2, 1, 3], &[0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
    let run = |classes: [f32; 3]| {
        let target = tensor([1, 1, 1, 3], &classes);
        let mut partial = (&Reference as &dyn Host<f32>).partial(&Reduction::CrossEntropy, 1, 2).unwrap();
        let views = [scores.view(), target.view()];
        Reference.reduce(&Reduction::CrossEntropy, &[], &views, scores.view().region(), &mut partial);
        let Partial::Exact(sums) = partial else { panic!("exact sums expected") };
        let kernel = Kernel::CrossEntropyBackward { scale: 1.0 };
        let gradient = compute(kernel, vec![scores.clone(), target], [1, 2, 1, 3]);
        (sums[0].value(), sums[1].value(), gradient)
    };
    let (loss, count, gradient) = run([-1.0, 1.0, -100.0]);
    assert_eq!((loss, count), (std::f64::consts::LN_2, 1.0));
    assert_eq!(gradient, [0.0, 0.5, 0.0, 0.0, -0.5, 0.0]);
    for class in [2.0, 0.5, f32::NAN] {
        let (loss, count, gradient) = run([0.0, class, 1.0]);
        assert!(loss.is_nan() && gradient[1].is_nan() && gradient[4].is_nan(), "class {class}");
        assert_eq!(count, 3.0);
        assert!(gradient[0].is_finite(), "other pixels keep their gradient");
    }
}

#[test]
fn dropout_keeps_its_share_and_its_scale() {
    let ones = Tensor::from_fn([2, 8, 64, 64], |_| 1.0_f32).expect("a tensor");
    let kernel = Kernel::Dropout { probability: 0.25, seed: 7, dropped: Dropped::Elements };
    let output = compute(kernel, vec![ones], [2, 8, 64, 64]);
    let scale = 1.0 / 0.75;
    assert!(output.iter().all(|value| *value == 0.0 || *value == scale));
    let kept = output.iter().filter(|value| **value != 0.0).count();
    // 65536 draws with deviation √(n·p·(1−p)) = 111: six of them
    assert!(kept.abs_diff(49_152) < 670, "{kept} of 65536 kept");
}
