//! How far a backend may be from exact arithmetic, in ε of the element type.
//!
//! The oracle is the reference backend in `f64` on the same numbers. With unit roundoff `u = ε/2`, a sum of n
//! products in any order, with or without fused multiply-adds, errs by at most `γ_n·Σ|a·b|`,
//! `γ_n = n·u/(1 − n·u)` (Higham, *Accuracy and Stability of Numerical Algorithms*, 2002, section 3.1). Bounds
//! here allow `(n+2)·ε·Σ|a·b|`: twice as much, which covers the oracle's own error where the type is `f64`.
//! `Σ|a·b|` comes from the same kernel on absolute values.

mod pixel;
mod winograd;

use tiled_geometry::{Filter, Resize};
use tiled_kernel::{Activation, Algorithm, Conv, Epilogue, Kernel, Pool, Reference};
use tiled_tensor::{DType, Element, Tensor};

use crate::conformance::case::{Case, map_tensor};

/// How a result is compared.
#[derive(Clone, Debug)]
pub enum Tolerance {
    /// Every rounding is prescribed: equal to the reference in the same type (`−0` equals `+0`).
    Exact,
    /// The allowed difference of each element from exact arithmetic.
    Bound(Tensor<f64>),
}

/// The tolerance of a kernel on these operands, where each factor of a convolution is rounded by so much of itself before it is multiplied
/// ([`tiled_kernel::Support::factor_rounding`]).
///
/// # Panics
/// Where the operands do not fit the kernel.
#[must_use]
pub fn of<T: Element>(case: &Case<T>, factor_rounding: f64) -> Tolerance {
    let eps = T::EPSILON.to_f64();
    let wide = case.map(T::to_f64);
    let sum_of = |terms: usize, sizes: &Case<f64>| {
        let factor = count(terms + 2) * eps;
        map_tensor(&sizes.whole(&Reference), |size| factor * size)
    };
    // two factors, and a third of ten thousand for the product of their errors
    let rounded = |sums: Tensor<f64>, sizes: &Case<f64>| match factor_rounding {
        0.0 => sums,
        rounding => {
            let sizes = sizes.whole(&Reference);
            zip3(&sums, &sizes, &sizes, |sum, size, _| sum + 2.001 * rounding * size)
        }
    };
    let everywhere = |bound: f64| constant(case.output, bound);
    let bound = match &case.kernel {
        Kernel::Conv2d { conv, algorithm, epilogue } => {
            let sums = sums_alone(&wide, Kernel::conv2d(*conv, epilogue.bias_alone()), *epilogue);
            let bound = match algorithm {
                Algorithm::Direct => {
                    let sizes = absolute(&sums, sums.kernel);
                    rounded(sum_of(conv.weight_len() / conv.out_channels + 1, &sizes), &sizes)
                }
                Algorithm::Winograd => {
                    let biases = sums.params.get(1).map_or(&[][..], Vec::as_slice);
                    winograd::bound(conv, &sums.inputs[0], &sums.params[0], biases, eps)
                }
            };
            through_epilogue::<T>(*epilogue, bound, &sums, &wide)
        }
        Kernel::Conv2dBackwardInput { conv, epilogue } => {
            let sums = sums_alone(&wide, case.kernel.with_epilogue(epilogue.bias_alone()), *epilogue);
            let sizes = absolute(&sums, sums.kernel);
            let bound = rounded(sum_of(terms_of_input_gradient(conv) + 1, &sizes), &sizes);
            through_epilogue::<T>(*epilogue, bound, &sums, &wide)
        }
        // the division rounds once more
        Kernel::AvgPool2d(pool) => sum_of(taps(pool) + 1, &absolute(&wide, case.kernel)),
        Kernel::AvgPool2dBackward(pool) => sum_of(taps(pool) + 1, &absolute(&wide, case.kernel)),
        Kernel::MaxPool2dBackward(pool) => {
            // which element is the maximum does not change with the sign of the gradient
            let mut sizes = wide.clone();
            sizes.inputs[0] = map_tensor(&wide.inputs[0], f64::abs);
            sum_of(taps(pool), &sizes)
        }
        Kernel::Activation(activation) => {
            through_activation::<T>(Some(*activation), everywhere(0.0), || wide.inputs[0].clone())
        }
        Kernel::ActivationBackward(activation) => activation_gradient::<T>(*activation, &wide),
        Kernel::ChannelAffine { activation: Some(activation) } => {
            let plain = Kernel::ChannelAffine { activation: None };
            let sum = sum_of(1, &absolute(&wide, plain));
            through_activation::<T>(Some(*activation), sum, || {
                Case { kernel: plain, ..wide }.whole(&Reference)
            })
        }
        // λ and 1 − λ are each within ε of their exact values and the weights of an output sum to one; of a cubic mode four of
        // them, whose magnitudes sum to at most 5/3, and more where those outside are left out
        Kernel::Resize(resize) => {
            let roundings = if is_cubic(resize) { 100.0 } else { 8.0 };
            everywhere(roundings * eps * largest(&wide.inputs[0]))
        }
        Kernel::ResizeBackward(resize) => {
            let taps = if is_cubic(resize) { 4 } else { 2 };
            // as many outputs as lie in the span of the taps, and one more on either side
            let readers = |axis: &Resize| {
                let [step, unit] = axis.step();
                if step == 0 { axis.output() } else { (taps * unit / step + 2).min(axis.output()) + 2 }
            };
            let readers: i64 = resize.iter().map(readers).product();
            let readers = count(usize::try_from(readers).expect("positive"));
            everywhere(readers * (readers + 16.0) * eps * largest(&wide.inputs[0]))
        }
        // which element is the maximum does not change with the sign of the gradient
        Kernel::AdaptiveMaxPool2dBackward(parts) => {
            let readers: i64 = parts.iter().map(|part| part.output() / part.input() + 2).product();
            let mut sizes = wide.clone();
            sizes.inputs[0] = map_tensor(&wide.inputs[0], f64::abs);
            sum_of(usize::try_from(readers).expect("positive"), &sizes)
        }
        Kernel::SumChannels => sum_of(wide.inputs[0].shape()[1], &absolute(&wide, case.kernel)),
        Kernel::PadBackward(padding) => {
            let shown: i64 = padding.map(|axis| axis.before() + axis.after() + 1).iter().product();
            sum_of(usize::try_from(shown).expect("positive"), &absolute(&wide, case.kernel))
        }
        // the factor is rounded to the type, then the product
        Kernel::Broadcast { .. } | Kernel::Dropout { .. } => sum_of(0, &absolute(&wide, case.kernel)),
        Kernel::DifferenceScaled { .. } => {
            map_tensor(&wide.whole(&Reference), |value| 3.0 * eps * value.abs())
        }
        // e^(p − m) errs by the rounding of p − m, at most a few tens for scores here, and the sum by C terms
        Kernel::CrossEntropyBackward { scale } => {
            everywhere((count(wide.inputs[0].shape()[1]) + 64.0) * eps * scale.abs())
        }
        Kernel::Softmax { .. }
        | Kernel::SoftmaxBackward { .. }
        | Kernel::PixelNorm(_)
        | Kernel::PixelNormBackward(_)
        | Kernel::LocalResponse(_)
        | Kernel::LocalResponseBackward(_) => pixel::bound::<T>(&wide),
        _ => return Tolerance::Exact,
    };
    Tolerance::Bound(bound)
}

/// A few times the smallest normal number: what flushing subnormal numbers to zero may change.
fn tiny<T: Element>() -> f64 {
    match T::DTYPE {
        DType::F32 => 128.0 * f64::from(f32::MIN_POSITIVE),
        DType::F64 => 1024.0 * f64::MIN_POSITIVE,
    }
}

/// The sums of a convolution and their bias, without what follows.
fn sums_alone(case: &Case<f64>, kernel: Kernel, epilogue: Epilogue) -> Case<f64> {
    let params = case.params.len() - if epilogue.affine { 2 } else { 0 };
    Case {
        kernel,
        params: case.params[..params].to_vec(),
        inputs: vec![case.inputs[0].clone()],
        output: case.output,
    }
}

/// The bound after an epilogue: three roundings at most of values as large as those that are multiplied and added. The mask of a
/// ReLU takes each as it is or not at all.
fn through_epilogue<T: Element>(
    epilogue: Epilogue,
    bound: Tensor<f64>,
    sums: &Case<f64>,
    whole: &Case<f64>,
) -> Tensor<f64> {
    if !epilogue.has_operands() {
        return through_activation::<T>(epilogue.activation, bound, || sums.whole(&Reference));
    }
    let (eps, zero) = (T::EPSILON.to_f64(), constant(whole.output, 0.0));
    let other = if epilogue.sum { &whole.inputs[1] } else { &zero };
    let factors = |channel: usize| match whole.params.len() {
        len if epilogue.affine => [len - 2, len - 1].map(|place| whole.params[place][channel].abs()),
        _ => [1.0, 0.0],
    };
    let mut channels = channels_of(whole.output);
    let bound = zip3(&bound, &sums.whole(&Reference), other, |bound, value, other| {
        let [scale, shift] = factors(channels.next().expect("one for each element"));
        scale * bound + 3.0 * eps * (scale * value.abs() + shift + other.abs())
    });
    through_activation::<T>(epilogue.activation, bound, || {
        let kernel = whole.kernel.with_epilogue(Epilogue { activation: None, mask: None, ..epilogue });
        Case { kernel, ..whole.clone() }.whole(&Reference)
    })
}

/// The bound after a function: its Lipschitz constant times the bound before, and its own error.
fn through_activation<T: Element>(
    activation: Option<Activation>,
    before: Tensor<f64>,
    argument: impl FnOnce() -> Tensor<f64>,
) -> Tensor<f64> {
    let Some(activation) = activation else { return before };
    let argument = argument();
    let value = Case {
        kernel: Kernel::Activation(activation),
        params: Vec::new(),
        output: argument.shape(),
        inputs: vec![argument.clone()],
    }
    .whole(&Reference);
    let (eps, tiny) = (T::EPSILON.to_f64(), tiny::<T>());
    zip3(&before, &argument, &value, |before, x, y| {
        let lipschitz = match activation {
            Activation::LeakyRelu { slope } => slope.abs().max(1.0),
            Activation::Sigmoid => 0.25,
            Activation::Relu | Activation::Tanh => 1.0,
            // the largest slopes are 1.0998 and 1.1290
            Activation::Silu | Activation::Gelu | Activation::GeluTanh => 1.13,
            Activation::Clamp { .. } => 1.0,
            Activation::HardSigmoid => 1.0 / 6.0,
            Activation::HardSwish => 1.5,
            // these follow nothing that errs
            _ => 0.0,
        };
        let own = match activation {
            Activation::Relu => 0.0,
            // the slope is rounded to the type, then the product
            Activation::LeakyRelu { .. } => 2.0 * eps * y.abs(),
            // a few roundings, and an exponential good to two ulps
            Activation::Sigmoid | Activation::Tanh | Activation::Silu => 8.0 * eps * y.abs() + tiny,
            // 1 + erf and 1 + tanh may cancel: relative to x, not to the result
            Activation::Gelu | Activation::GeluTanh => 8.0 * eps * x.abs() + tiny,
            other => own_error::<T>(other, x, y),
        };
        lipschitz * before + own
    })
}

/// The error of a function of an exact argument.
fn own_error<T: Element>(activation: Activation, x: f64, y: f64) -> f64 {
    let (eps, tiny) = (T::EPSILON.to_f64(), tiny::<T>());
    match activation {
        // one of its constants or its argument
        Activation::Clamp { .. } | Activation::Threshold { .. } | Activation::Abs | Activation::Neg => {
            eps * y.abs()
        }
        // the sum with three is rounded: half an ε of at most six
        Activation::HardSigmoid => 4.0 * eps,
        Activation::HardSwish => 4.0 * eps * x.abs(),
        // the rounding of the rate changes the exponent by ε of itself, whose exponential is below one over it
        Activation::Elu { .. } | Activation::Selu | Activation::Celu { .. } => {
            let low = activation.exponential().map_or(1.0, |parts| parts.low.abs());
            8.0 * eps * (y.abs() + low * x.abs().min(1.0))
        }
        Activation::Pow { exponent } => power_error::<T>(exponent, x, y) + tiny,
        // a few roundings, and logarithms and exponentials good to three ulps
        _ => 8.0 * eps * y.abs() + tiny,
    }
}

/// A whole power n takes |n| roundings and one for the inverse, another y a logarithm whose error it multiplies.
fn power_error<T: Element>(exponent: f64, x: f64, y: f64) -> f64 {
    let logarithm = if x == 0.0 || x.is_infinite() { 0.0 } else { x.abs().ln().abs() };
    (8.0 + exponent.abs() * (2.0 + 2.0 * logarithm)) * T::EPSILON.to_f64() * y.abs()
}

/// `gy` times a derivative of order one, made of a few terms no larger than `1 + |saved|`.
fn activation_gradient<T: Element>(activation: Activation, wide: &Case<f64>) -> Tensor<f64> {
    let (eps, tiny) = (T::EPSILON.to_f64(), tiny::<T>());
    zip3(&wide.inputs[0], &wide.inputs[1], &wide.inputs[0], |gy, saved, _| {
        let size = match activation {
            Activation::Relu => 0.0,
            Activation::LeakyRelu { slope } => 2.0 * slope.abs(),
            Activation::Sigmoid => 4.0 * saved.abs() * (1.0 + saved.abs()),
            Activation::Tanh => 4.0 * (1.0 + saved * saved),
            Activation::Silu | Activation::Gelu | Activation::GeluTanh | Activation::Mish => {
                16.0 * (1.0 + saved.abs())
            }
            // nothing is rounded
            Activation::Clamp { .. } | Activation::Threshold { .. } => 0.0,
            Activation::HardSigmoid => 1.0,
            Activation::HardSwish => 8.0,
            Activation::Elu { .. } | Activation::Selu | Activation::Celu { .. } => {
                let parts = activation.exponential().expect("it is one");
                // of the exponential, whose exponent errs by ε of itself
                16.0 * (parts.high.abs() + (parts.low * parts.rate).abs())
            }
            Activation::Softplus { beta, .. } => 8.0 * (1.0 + (beta * saved).abs()),
            Activation::Softsign | Activation::LogSigmoid => 8.0,
            Activation::Exp => saved.abs(),
            Activation::Log => 2.0 / saved.abs(),
            Activation::Sqrt => 2.0 / saved.abs(),
            Activation::Abs | Activation::Neg => 1.0,
            Activation::Reciprocal => 4.0 * saved * saved,
            Activation::Pow { exponent } => {
                let slope = exponent * saved.powf(exponent - 1.0);
                return 2.0 * gy.abs() * power_error::<T>(exponent - 1.0, saved, slope) + tiny;
            }
        };
        if size == 0.0 { 0.0 } else { size * eps * gy.abs() + tiny }
    })
}

/// The same computation of absolute values.
fn absolute(case: &Case<f64>, kernel: Kernel) -> Case<f64> {
    Case { kernel, ..case.map(f64::abs) }
}

fn terms_of_input_gradient(conv: &Conv) -> usize {
    let [out_channels, _, kh, kw] = conv.weight_shape();
    out_channels / conv.groups * kh * kw
}

fn taps(pool: &Pool) -> usize {
    let taps: i64 = pool.windows.iter().map(|window| window.kernel()).product();
    usize::try_from(taps).expect("kernels are positive")
}

fn is_cubic(resize: &[Resize; 2]) -> bool {
    resize.iter().any(|axis| matches!(axis.mode().filter, Filter::Cubic(_)))
}

fn largest(tensor: &Tensor<f64>) -> f64 {
    tensor.data().iter().fold(0.0, |largest, value| value.abs().max(largest))
}

/// The channel of each element, in row-major order.
fn channels_of([batch, channels, height, width]: [usize; 4]) -> impl Iterator<Item = usize> {
    (0..batch).flat_map(move |_| (0..channels).flat_map(move |c| std::iter::repeat_n(c, height * width)))
}

fn constant(shape: [usize; 4], value: f64) -> Tensor<f64> {
    Tensor::from_fn(shape, |_| value).expect("a small tensor")
}

fn zip3(
    a: &Tensor<f64>,
    b: &Tensor<f64>,
    c: &Tensor<f64>,
    mut f: impl FnMut(f64, f64, f64) -> f64,
) -> Tensor<f64> {
    let mut values = a.data().iter().zip(b.data()).zip(c.data()).map(|((a, b), c)| f(*a, *b, *c));
    Tensor::from_fn(a.shape(), |_| values.next().expect("tensors of one shape")).expect("a small tensor")
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub(crate) fn count(terms: usize) -> f64 {
    terms as f64
}
