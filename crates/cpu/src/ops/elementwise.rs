//! Kernels that treat every element alone.

use tiled_geometry::Region;
use tiled_kernel::Activation;
use tiled_tensor::{Element, PartMut, View};

use super::band::for_bands;
use super::gather::zip_row;
use super::math;
use super::stamp::per_isa;
use crate::Isa;

/// Cost of an element where a polynomial is evaluated, in copies of an element.
const POLYNOMIAL: usize = 6;

/// A function of one element.
pub(crate) trait Unary<T>: Copy + Sync {
    /// The value at `x`.
    fn apply<const FUSED: bool>(self, x: T) -> T;
}

/// A function of two elements.
pub(crate) trait Binary<T>: Copy + Sync {
    /// The value at `(a, b)`.
    fn apply<const FUSED: bool>(self, a: T, b: T) -> T;
}

per_isa! {
    /// `out[i] = f(x[i])`.
    fn map<T: Element, F: Unary<T>>(f: F, x: &[T], out: &mut [T]) {
        for (out, x) in out.iter_mut().zip(x) {
            *out = f.apply::<FUSED>(*x);
        }
    }
}

per_isa! {
    /// `x[i] = f(x[i])`.
    fn map_in_place<T: Element, F: Unary<T>>(f: F, x: &mut [T]) {
        for x in x {
            *x = f.apply::<FUSED>(*x);
        }
    }
}

per_isa! {
    /// `out[i] = f(a[i], b[i])`.
    fn map2<T: Element, F: Binary<T>>(f: F, a: &[T], b: &[T], out: &mut [T]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = f.apply::<FUSED>(*a, *b);
        }
    }
}

fn unary<T: Element, F: Unary<T>>(
    isa: Isa,
    f: F,
    weight: usize,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_bands(output, region, weight, |band| {
        for y in band.rows().begin()..band.rows().end() {
            zip_row([x], band, y, |[x], out| map(isa, f, x, out));
        }
    });
}

/// `out = f(a, b)` over two inputs.
pub(crate) fn binary<T: Element, F: Binary<T>>(
    isa: Isa,
    f: F,
    weight: usize,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (a, b) = (&inputs[0], &inputs[1]);
    for_bands(output, region, weight, |band| {
        for y in band.rows().begin()..band.rows().end() {
            zip_row([a, b], band, y, |[a, b], out| map2(isa, f, a, b, out));
        }
    });
}

/// Defines functions of one or two elements, with one parameter or none.
macro_rules! functions {
    ($($(#[$meta:meta])* $name:ident $(($field:ident))?: $trait:ident |$self:ident, $($arg:ident),+| $value:expr;)*) => {
        $(functions!(@one [$(#[$meta])*] $name $(($field))?: $trait |$self, $($arg),+| $value);)*
    };
    (@one [$($meta:tt)*] $name:ident: $trait:ident |$self:ident, $($arg:ident),+| $value:expr) => {
        $($meta)*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;
        impl<T: Element> $trait<T> for $name {
            #[inline(always)]
            fn apply<const FUSED: bool>($self, $($arg: T),+) -> T { $value }
        }
    };
    (@one [$($meta:tt)*] $name:ident($field:ident): $trait:ident |$self:ident, $($arg:ident),+| $value:expr) => {
        $($meta)*
        #[derive(Clone, Copy)]
        pub(crate) struct $name<T> {
            /// The factor.
            pub(crate) $field: T,
        }
        impl<T: Element> $trait<T> for $name<T> {
            #[inline(always)]
            fn apply<const FUSED: bool>($self, $($arg: T),+) -> T { $value }
        }
    };
}

functions! {
    Relu: Unary |self, x| if x <= T::ZERO { T::ZERO } else { x };
    LeakyRelu(slope): Unary |self, x| if x > T::ZERO { x } else { x * self.slope };
    Sigmoid: Unary |self, x| math::sigmoid::<T, FUSED>(x);
    Tanh: Unary |self, x| math::tanh::<T, FUSED>(x);
    Silu: Unary |self, x| math::silu::<T, FUSED>(x);
    Gelu: Unary |self, x| math::gelu::<T, FUSED>(x);
    GeluTanh: Unary |self, x| math::gelu_tanh::<T, FUSED>(x);

    /// NaN passes the gradient, as in PyTorch.
    ReluBackward: Binary |self, g, y| if y <= T::ZERO { T::ZERO } else { g };
    LeakyReluBackward(slope): Binary |self, g, x| if x > T::ZERO { g } else { g * self.slope };
    SigmoidBackward: Binary |self, g, y| g * (y * (T::ONE - y));
    TanhBackward: Binary |self, g, y| g * (T::ONE - y * y);
    SiluBackward: Binary |self, g, x| g * math::silu_slope::<T, FUSED>(x);
    GeluBackward: Binary |self, g, x| g * math::gelu_slope::<T, FUSED>(x);
    GeluTanhBackward: Binary |self, g, x| g * math::gelu_tanh_slope::<T, FUSED>(x);

    Sum: Binary |self, a, b| a + b;
    Product: Binary |self, a, b| a * b;
    DifferenceScaled(scale): Binary |self, a, b| (a - b) * self.scale;
}

/// Calls `$call!($function, weight)` with the function that an activation names.
macro_rules! with_activation {
    ($activation:expr, $T:ty, |$function:ident, $weight:ident| $body:expr) => {{
        macro_rules! each {
            ($value:expr, $cost:expr) => {{
                let ($function, $weight) = ($value, $cost);
                $body
            }};
        }
        match $activation {
            Activation::Relu => each!(Relu, 1),
            Activation::LeakyRelu { slope } => each!(LeakyRelu { slope: <$T>::from_f64(slope) }, 1),
            Activation::Sigmoid => each!(Sigmoid, POLYNOMIAL),
            Activation::Tanh => each!(Tanh, POLYNOMIAL),
            Activation::Silu => each!(Silu, POLYNOMIAL),
            Activation::Gelu => each!(Gelu, 4 * POLYNOMIAL),
            Activation::GeluTanh => each!(GeluTanh, 4 * POLYNOMIAL),
        }
    }};
}

/// The activation of `[x]`.
pub(crate) fn activation<T: Element>(
    isa: Isa,
    activation: Activation,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    with_activation!(activation, T, |function, weight| unary(isa, function, weight, inputs, output, region));
}

/// Applies the activation to elements in place.
pub(crate) fn activate<T: Element>(isa: Isa, activation: Activation, values: &mut [T]) {
    with_activation!(activation, T, |function, _weight| map_in_place(isa, function, values));
}

/// `gy` times the derivative, of `[gy, saved]`.
pub(crate) fn activation_backward<T: Element>(
    isa: Isa,
    activation: Activation,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    match activation {
        Activation::Relu => binary(isa, ReluBackward, 1, inputs, output, region),
        Activation::LeakyRelu { slope } => {
            let slope = T::from_f64(slope);
            binary(isa, LeakyReluBackward { slope }, 1, inputs, output, region);
        }
        Activation::Sigmoid => binary(isa, SigmoidBackward, 1, inputs, output, region),
        Activation::Tanh => binary(isa, TanhBackward, 1, inputs, output, region),
        Activation::Silu => binary(isa, SiluBackward, POLYNOMIAL, inputs, output, region),
        Activation::Gelu => binary(isa, GeluBackward, 4 * POLYNOMIAL, inputs, output, region),
        Activation::GeluTanh => binary(isa, GeluTanhBackward, 4 * POLYNOMIAL, inputs, output, region),
    }
}
