//! One suite for every backend: near the reference, and the same bits whatever the region and the windows.
//!
//! Each function draws `cases` random computations from `seed`, of one kind, and panics at the first that
//! fails, with the kernel, the shapes, the region and the element. What is checked of a kernel:
//!
//! - the whole output agrees with [`tiled_kernel::Reference`] within [`crate::tolerance`];
//! - every region of it (bands, tiles, single pixels, none) has the bits of the whole, from windows that hold
//!   just what is needed or more, at other origins, in rings of other sizes, with NaN in padding lanes and
//!   wherever nothing may be read;
//! - nothing outside the region is written.

pub(crate) mod case;
mod check;
mod generate;
mod opened;
mod reductions;
mod rng;
mod scatter;
mod window;

use tiled_kernel::Backend;
use tiled_tensor::Element;

pub use case::Case;
pub use generate::{ACTIVATIONS, FUNCTIONS};
pub use reductions::{check_conv2d_backward_weight, check_gradient_of_weights, check_reductions};
pub use rng::Rng;
pub use scatter::check_scatter;

/// The seed of a test's cases: its own, or that of `TILED_SEED`, for other cases than those that every run tries.
///
/// # Panics
/// Where `TILED_SEED` is no number.
#[must_use]
pub fn seed(own: u64) -> u64 {
    std::env::var("TILED_SEED").map_or(own, |seed| seed.parse().expect("TILED_SEED is a whole number"))
}

/// Checks every kernel and reduction of a backend, `cases` times each.
///
/// # Panics
/// Where a check fails.
pub fn check_backend<T: Element>(backend: &dyn Backend<T>, seed: u64, cases: usize) {
    check_conv2d(backend, seed, cases);
    check_conv2d_deep(backend, seed, cases.min(2));
    check_conv2d_spread(backend, seed, cases);
    check_conv2d_point(backend, seed, cases);
    check_conv2d_winograd(backend, seed, cases);
    check_conv2d_winograd_dilated(backend, seed, cases);
    check_conv2d_epilogue(backend, seed, cases);
    check_conv2d_backward_input(backend, seed, cases);
    check_conv2d_backward_weight(backend, seed, cases);
    check_pool(backend, seed, cases);
    check_activation(backend, seed, cases);
    check_elementwise(backend, seed, cases);
    check_arithmetic(backend, seed, cases);
    check_scatter(backend, seed, cases);
    check_norm(backend, seed, cases);
    check_pixel(backend, seed, cases.max(8));
    check_resize(backend, seed, cases);
    check_adaptive(backend, seed, cases.max(8));
    check_pad(backend, seed, cases);
    check_movement(backend, seed, cases);
    check_loss(backend, seed, cases);
    check_reductions(backend, seed, cases.max(22));
}

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident: $generate:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Panics
            /// Where a check fails.
            pub fn $name<T: Element>(backend: &dyn Backend<T>, seed: u64, cases: usize) {
                for index in 0..cases {
                    let mut rng = Rng::of_case(stringify!($name), seed, index);
                    generate::$generate(&mut rng, index).check(backend, &mut rng);
                }
            }
        )*
    };
}

checks! {
    /// Checks [`tiled_kernel::Kernel::Conv2d`].
    check_conv2d: conv2d;
    /// Checks convolutions that sum over thousands of channels, and gradients for their inputs.
    check_conv2d_deep: conv2d_deep;
    /// Checks convolutions whose taps are far apart, and gradients for their inputs.
    check_conv2d_spread: conv2d_spread;
    /// Checks convolutions of one column of taps, and of patches that are at least three pixels apart.
    check_conv2d_point: conv2d_point;
    /// Checks [`tiled_kernel::Algorithm::Winograd`].
    check_conv2d_winograd: conv2d_winograd;
    /// Checks the same of dilated convolutions, which not every backend carries out so.
    check_conv2d_winograd_dilated: conv2d_winograd_dilated;
    /// Checks [`tiled_kernel::Kernel::Conv2dBackwardInput`].
    check_conv2d_backward_input: conv2d_backward_input;
    /// Checks maximum and average pooling and their gradients.
    check_pool: pool;
    /// Checks activations and their gradients.
    check_activation: activation;
    /// Checks sums, products, moves between channels, broadcasts, dropout and fills.
    check_elementwise: elementwise;
    /// Checks [`tiled_kernel::Kernel::Arithmetic`].
    check_arithmetic: arithmetic;
    /// Checks [`tiled_kernel::Kernel::ChannelAffine`] and [`tiled_kernel::Kernel::ChannelCombine`].
    check_norm: norm;
    /// Checks what is computed of each pixel over its channels: softmax, its logarithm and norms, and their gradients.
    check_pixel: pixel;
    /// Checks resampling and its gradient.
    check_resize: resize;
    /// Checks adaptive pooling and its gradients.
    check_adaptive: adaptive;
    /// Checks padding and its gradient.
    check_pad: pad;
    /// Checks moves between channels and pixels, padding with a constant and the largest channel.
    check_movement: movement;
    /// Checks the gradients of losses.
    check_loss: loss;
}

/// Checks convolutions whose epilogue has operands of its own, where the backend carries them out: also the bits of the steps one
/// after another.
///
/// # Panics
/// Where a check fails.
pub fn check_conv2d_epilogue<T: Element>(backend: &dyn Backend<T>, seed: u64, cases: usize) {
    for index in 0..cases {
        let mut rng = Rng::of_case("check_conv2d_epilogue", seed, index);
        for draw in [generate::conv2d_epilogue, generate::conv2d_winograd_dilated_epilogue] {
            let case: Case<T> = draw(&mut rng, index);
            if case.is_supported(backend) {
                case.check_steps(backend);
                case.check(backend, &mut rng);
            }
        }
    }
}
