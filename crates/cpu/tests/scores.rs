//! Softmax, cross-entropy and the largest channel of scores and classes that are no ordinary numbers, against the reference: NaN
//! where that has it, else as near as exponentials are. Of few channels and of more than are kept of a run of pixels.

use tiled_cpu::{CpuBackend, Isa};
use tiled_geometry::Region;
use tiled_kernel::{Host, Kernel, Params, Partial, Reduction, Reference, Workspace};
use tiled_tensor::{Element, Tensor};

const ROWS: usize = 2;
/// A whole run of pixels and a short one.
const COLS: usize = 70;

/// Numbers up to 30, and every few pixels one of those that are not, in one channel or in all.
fn scores<T: Element>(channels: usize) -> Tensor<T> {
    let special = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -95.0, -120.0, 3e38, -3e38];
    let value = |[_, c, y, x]: [usize; 4]| {
        let pixel = y * COLS + x;
        let kind = special[pixel % special.len()];
        let is_here = match pixel % 9 {
            0 => c == pixel % channels,
            4 => true,
            _ => false,
        };
        let ordinary = ((c * 37 + pixel * 11) % 241) as f64 / 4.0 - 30.0;
        T::from_f64(if is_here { kind } else { ordinary })
    };
    made([1, channels, ROWS, COLS], value)
}

/// A class for each pixel: mostly one that there is, else an ignored one or none.
fn classes<T: Element>(channels: usize) -> Tensor<T> {
    let others = [-1.0, -100.0, f64::NEG_INFINITY, 0.5, f64::NAN, f64::INFINITY, channels as f64, -0.0];
    let value = |[_, _, y, x]: [usize; 4]| {
        let pixel = y * COLS + x;
        T::from_f64(if pixel.is_multiple_of(3) {
            others[pixel % others.len()]
        } else {
            (pixel % channels) as f64
        })
    };
    made([1, 1, ROWS, COLS], value)
}

fn made<T: Element>(shape: [usize; 4], value: impl Fn([usize; 4]) -> T) -> Tensor<T> {
    Tensor::from_fn(shape, value).expect("a small tensor")
}

fn compute<T: Element>(
    host: &dyn Host<T>,
    kernel: Kernel,
    inputs: &[&Tensor<T>],
    shape: [usize; 4],
) -> Tensor<T> {
    let mut output = made(shape, |_| T::ZERO);
    let views: Vec<_> = inputs.iter().map(|input| input.view()).collect();
    let region = Region::whole([ROWS, COLS].map(|extent| i64::try_from(extent).expect("small")));
    host.compute(&kernel, Params::Packed(&[]), &views, output.view_mut(), region, &Workspace::NONE);
    output
}

fn check<T: Element>(backend: &dyn Host<T>, what: &str)
where
    Reference: Host<T>,
{
    for channels in [1, 2, 5, 17, 300] {
        let (scores, classes) = (scores::<T>(channels), classes::<T>(channels));
        let shares =
            made([1, channels, ROWS, COLS], |[_, c, y, x]| T::from_f64(((c + 3 * y + x) % 7) as f64 / 7.0));
        let all = [1, channels, ROWS, COLS];
        let gradient = Kernel::CrossEntropyBackward { scale: 0.75 };
        let mut cases = vec![
            (Kernel::Softmax { log: false }, vec![&scores], all),
            (Kernel::Softmax { log: true }, vec![&scores], all),
            (gradient, vec![&scores, &classes], all),
            (Kernel::ArgMax, vec![&scores], [1, 1, ROWS, COLS]),
            (Kernel::MaxChannelsBackward, vec![&classes, &scores], all),
        ];
        if channels > 1 {
            cases.push((gradient, vec![&scores, &shares], all));
        }
        for (kernel, inputs, shape) in cases {
            let got = compute(backend, kernel, &inputs, shape);
            let wanted = compute(&Reference as &dyn Host<T>, kernel, &inputs, shape);
            for (place, (got, wanted)) in got.data().iter().zip(wanted.data()).enumerate() {
                let (got, wanted) = (got.to_f64(), wanted.to_f64());
                // the difference to a share that is given may be small; a sum of exponentials is rounded in double
                let of = wanted.abs()
                    + if inputs.iter().any(|input| std::ptr::eq(*input, &shares)) { 1.0 } else { 0.0 };
                let allowed = 8.0 * T::EPSILON.to_f64() * of + (channels + 8) as f64 * f64::EPSILON;
                let is_near = got == wanted || (wanted.is_finite() && (got - wanted).abs() <= allowed);
                assert!(
                    is_near || (got.is_nan() && wanted.is_nan()),
                    "{}, {channels} channels, {what}, element {place}: {got:e}, wanted {wanted:e}",
                    kernel.name()
                );
            }
        }
        let targets = if channels > 1 { vec![&classes, &shares] } else { vec![&classes] };
        for target in targets {
            let loss = |host: &dyn Host<T>, region: Region<2>| {
                let mut partial: Partial<T> =
                    host.partial(&Reduction::CrossEntropy, 1, channels).expect("room for two sums");
                let views = [scores.view(), target.view()];
                host.reduce(&Reduction::CrossEntropy, &[], &views, region, &mut partial);
                let Partial::Exact(sums) = partial else { panic!("exact sums") };
                [sums[0].value(), sums[1].value()]
            };
            // pixel by pixel, or one NaN hides the others
            for y in 0..2 {
                for x in 0..70 {
                    let pixel = Region::new(
                        [(y, y + 1), (x, x + 1)]
                            .map(|(begin, end)| tiled_geometry::Interval::new(begin, end)),
                    );
                    let (got, wanted) = (loss(backend, pixel), loss(&Reference, pixel));
                    let allowed = 8.0 * T::EPSILON.to_f64() * (1.0 + wanted[0].abs());
                    let is_near = got[0] == wanted[0] || (got[0] - wanted[0]).abs() <= allowed;
                    let is_same = is_near || (got[0].is_nan() && wanted[0].is_nan());
                    assert!(
                        is_same && got[1] == wanted[1],
                        "loss at {y}, {x}, {channels} channels, {what}: {got:?}, wanted {wanted:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn scores_and_classes_that_are_no_ordinary_numbers_give_what_the_reference_gives() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let backend = CpuBackend::with_isa(isa).expect("it is available");
        check::<f32>(&backend, &format!("{isa} in f32"));
        check::<f64>(&backend, &format!("{isa} in f64"));
    }
}
