//! Normalisation over the whole image between its two sweeps: a few numbers per channel, in `f64`.
//!
//! What stands here of a channel holds of the channel of each image as well, where statistics are of one image alone: then lists go
//! over images and channels, `[n][c]`, and M is the number of elements that share their statistics.
//!
//! What touches the image is work of a backend: [`crate::Reduction::Moments`] leaves `Σx` and `Σx²`,
//! [`crate::Reduction::CentredDot`] `Σg` and `Σg·(x − μ)`; [`crate::Kernel::ChannelAffine`] and
//! [`crate::Kernel::ChannelCombine`] apply what is derived here. M is the number of elements that a channel has in the
//! batch, N·H·W; x̂ is `(x − μ)/σ`.
//!
//! Source: Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
//! Shift" (2015), algorithm 1 and the gradients of section 3; PyTorch's `BatchNorm2d` for the running statistics. Wu and He, "Group
//! Normalization" (2018), for groups of channels.

use tiled_tensor::{OutOfMemory, collected};

/// `1/σ` of every channel, and the normalisation as `y = scale·x + shift`.
///
/// ```
/// use tiled_kernel::batch_norm::factors;
/// let factors = factors(&[3.0], &[4.0], 0.0, Some(&[10.0]), Some(&[1.0]))?;
/// assert_eq!((factors.inverse_std[0], factors.scale[0], factors.shift[0]), (0.5, 5.0, -14.0));
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Factors {
    /// `1/σ = 1/√(σ² + ε)`.
    pub inverse_std: Vec<f64>,
    /// `γ/σ`.
    pub scale: Vec<f64>,
    /// `β − μ·γ/σ`.
    pub shift: Vec<f64>,
}

/// The gradient for the input as `dx = a·g + b·x + d`, by channel.
///
/// ```
/// use tiled_kernel::batch_norm::input_gradient;
/// let gradient = input_gradient(&[8.0], &[16.0], 4.0, &[1.0], &[0.5], &[2.0], 1)?;
/// assert_eq!((gradient.a[0], gradient.b[0], gradient.d[0]), (2.0, -2.0, -2.0));
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct InputGradient {
    /// The factor of the gradient after, `γ/σ`.
    pub a: Vec<f64>,
    /// The factor of the input, `−Σ γ/σ³·Σg·(x − μ)/M`.
    pub b: Vec<f64>,
    /// What is added, `−Σ γ/σ·Σg/M − b·μ`.
    pub d: Vec<f64>,
}

/// Mean and biased variance of every channel, `μ = Σx/M` and `σ² = Σx²/M − μ²`; the variance is never negative, and no number where
/// an element is infinite or none.
///
/// The difference cancels where the mean is far above the deviation; of exact sums its error stays within a few
/// `ε·(μ² + σ²)` of `f64`.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// let [mean, variance] = tiled_kernel::batch_norm::moments(&[6.0], &[20.0], 2.0)?;
/// assert_eq!((mean[0], variance[0]), (3.0, 1.0)); // of 2 and 4
/// let infinite = f64::INFINITY;
/// assert!(tiled_kernel::batch_norm::moments(&[infinite], &[infinite], 2.0)?[1][0].is_nan());
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn moments(sums: &[f64], squares: &[f64], count: f64) -> Result<[Vec<f64>; 2], OutOfMemory> {
    let mean = collected(sums.iter().map(|sum| sum / count))?;
    let variance = squares.iter().zip(&mean);
    let variance = variance.map(|(square, mean)| (-mean).mul_add(*mean, square / count));
    // unlike the maximum with zero, this keeps what is no number
    let variance = collected(variance.map(|variance| if variance < 0.0 { 0.0 } else { variance }))?;
    Ok([mean, variance])
}

/// The normalisation of these statistics; without a weight γ is one, without a bias β is zero. Where there are statistics of
/// several images, each has the weights and biases from the first on.
///
/// # Errors
/// Where memory is refused.
///
/// # Panics
/// Where there are a weight or a bias of no channels.
///
/// ```
/// use tiled_kernel::batch_norm::factors;
/// let factors = factors(&[3.0], &[4.0], 0.0, None, None)?;
/// assert_eq!((factors.scale[0], factors.shift[0]), (0.5, -1.5)); // (x − 3)/2
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn factors(
    mean: &[f64],
    variance: &[f64],
    eps: f64,
    weight: Option<&[f64]>,
    bias: Option<&[f64]>,
) -> Result<Factors, OutOfMemory> {
    let of = |values: Option<&[f64]>, place: usize, default| {
        values.map_or(default, |values| values[place % values.len()])
    };
    let inverse_std = collected(variance.iter().map(|variance| 1.0 / (variance + eps).sqrt()))?;
    let scale = inverse_std.iter().enumerate().map(|(channel, inverse)| inverse * of(weight, channel, 1.0));
    let scale = collected(scale)?;
    let shift = mean.iter().zip(&scale).enumerate();
    let shift = collected(shift.map(|(channel, (mean, factor))| of(bias, channel, 0.0) - mean * factor))?;
    Ok(Factors { inverse_std, scale, shift })
}

/// The gradient of the weight, `dγ = Σg·(x − μ)/σ`; that of the bias is `Σg` itself.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// assert_eq!(tiled_kernel::batch_norm::weight_gradient(&[6.0], &[0.5])?, [3.0]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn weight_gradient(dots: &[f64], inverse_std: &[f64]) -> Result<Vec<f64>, OutOfMemory> {
    collected(dots.iter().zip(inverse_std).map(|(dot, inverse)| dot * inverse))
}

/// The gradient for the input, `dx = γ/σ·(g − Σg/M − x̂·Σg·x̂/M)`, as a factor of `g`, one of `x` and a
/// constant.
///
/// `sums` are `Σg`, `dots` are `Σg·(x − μ)`, `scale` is `γ/σ`; `group` consecutive channels share their statistics, and what
/// their elements sum up to.
///
/// # Errors
/// Where memory is refused.
///
/// # Panics
/// Where a list has fewer channels than `scale`, or `group` is zero.
///
/// ```
/// use tiled_kernel::batch_norm::input_gradient;
/// // a gradient that is the same everywhere moves nothing
/// let gradient = input_gradient(&[4.0], &[0.0], 4.0, &[7.0], &[0.5], &[0.5], 1)?;
/// assert_eq!(gradient.a[0] * 1.0 + gradient.b[0] * 9.0 + gradient.d[0], 0.0);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn input_gradient(
    sums: &[f64],
    dots: &[f64],
    count: f64,
    mean: &[f64],
    inverse_std: &[f64],
    scale: &[f64],
    group: usize,
) -> Result<InputGradient, OutOfMemory> {
    let channels = 0..scale.len();
    let b = channels.clone().map(|c| -scale[c] * inverse_std[c] * inverse_std[c] * dots[c]);
    let b = shared(&collected(b)?, group, count)?;
    let shift = shared(&collected(channels.clone().map(|c| -scale[c] * sums[c]))?, group, count)?;
    let d = collected(channels.map(|c| shift[c] - b[c] * mean[c]))?;
    let a = collected(scale.iter().copied())?;
    Ok(InputGradient { a, b, d })
}

/// For each channel the sum over its group, from the first on, divided by the count.
fn shared(values: &[f64], group: usize, count: f64) -> Result<Vec<f64>, OutOfMemory> {
    let sums = values.chunks(group).flat_map(|group| {
        let sum = group.iter().copied().reduce(|sum, value| sum + value).unwrap_or_default();
        std::iter::repeat_n(sum / count, group.len())
    });
    collected(sums)
}

/// Values of groups of channels as values of channels.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// assert_eq!(tiled_kernel::batch_norm::ungrouped(&[1.0, 2.0], 2)?, [1.0, 1.0, 2.0, 2.0]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn ungrouped(values: &[f64], group: usize) -> Result<Vec<f64>, OutOfMemory> {
    collected(values.iter().flat_map(|value| std::iter::repeat_n(*value, group)))
}

/// The sums over images of values of images and channels, `[n][c]`, from the first on.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// assert_eq!(tiled_kernel::batch_norm::over_images(&[1.0, 2.0, 3.0, 5.0], 2)?, [4.0, 7.0]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn over_images(values: &[f64], channels: usize) -> Result<Vec<f64>, OutOfMemory> {
    let mut images = values.chunks(channels.max(1));
    let mut sums = collected(images.next().unwrap_or_default().iter().copied())?;
    for image in images {
        sums.iter_mut().zip(image).for_each(|(sum, value)| *sum += value);
    }
    Ok(sums)
}

/// The variance without bias, `σ²·M/(M − 1)`, as running statistics take it; that of one element stays as it is.
///
/// PyTorch refuses to train on one element.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// assert_eq!(tiled_kernel::batch_norm::unbiased(&[1.0], 2.0)?, [2.0]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn unbiased(variance: &[f64], count: f64) -> Result<Vec<f64>, OutOfMemory> {
    collected(variance.iter().map(|value| value * count / (count - 1.0).max(1.0)))
}

/// A running statistic that has moved towards a new one, `(1 − m)·old + m·new`.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// assert_eq!(tiled_kernel::batch_norm::moved(&[4.0], &[8.0], 0.25)?, [5.0]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn moved(running: &[f64], new: &[f64], momentum: f64) -> Result<Vec<f64>, OutOfMemory> {
    collected(running.iter().zip(new).map(|(old, new)| (1.0 - momentum) * old + momentum * new))
}
