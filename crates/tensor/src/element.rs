//! The element types of tensors.

use std::fmt::{Debug, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// The type of the elements of a tensor.
///
/// ```
/// use tiled_tensor::{DType, Element};
/// assert_eq!((f32::DTYPE, f64::DTYPE), (DType::F32, DType::F64));
/// assert_eq!((DType::F32.size_bytes(), DType::F64.name()), (4, "float64"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl DType {
    /// The size of an element in bytes.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// The name, as in NumPy.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }
}

/// A floating-point type that tensors hold: `f32` or `f64`.
pub trait Element:
    Copy
    + Default
    + Send
    + Sync
    + Debug
    + Display
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + Sum
    + 'static
{
    /// Its tag.
    const DTYPE: DType;
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Negative infinity, the identity of the maximum.
    const NEG_INFINITY: Self;
    /// The distance from one to the next larger value.
    const EPSILON: Self;

    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
    /// The value as `f64`, exact.
    fn to_f64(self) -> f64;
    /// The bits, zero-extended: equal bits are equal values, signed zeros and NaN payloads told apart.
    fn to_bits_u64(self) -> u64;
    /// `self·a + b` with one rounding.
    #[must_use]
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// e to this power.
    #[must_use]
    fn exp(self) -> Self;
    /// The natural logarithm.
    #[must_use]
    fn ln(self) -> Self;
    /// The hyperbolic tangent.
    #[must_use]
    fn tanh(self) -> Self;
    /// The square root.
    #[must_use]
    fn sqrt(self) -> Self;
    /// The absolute value.
    #[must_use]
    fn abs(self) -> Self;
    /// Whether it is not a number.
    fn is_nan(self) -> bool;
    /// Little-endian bytes of a slice appended to `bytes`.
    fn extend_le_bytes(values: &[Self], bytes: &mut Vec<u8>);
    /// The value at the start of little-endian `bytes`, whose length is the size of the type.
    ///
    /// # Panics
    /// Where `bytes` is shorter.
    fn from_le_bytes(bytes: &[u8]) -> Self;
    /// Runs the code of `C` for this type.
    fn call<C: ByElement>(given: C::Given<Self>) -> C::Result;
}

/// Code for each element type by itself, which generic code reaches through [`Element::call`].
///
/// So a crate compiles what it has for each type once; were it generic up to its surface, every crate that calls it would
/// compile it again.
///
/// ```
/// use tiled_tensor::{ByElement, Element};
/// struct SizeOfEach;
/// impl ByElement for SizeOfEach {
///     type Given<T: Element> = Vec<T>;
///     type Result = (usize, usize);
///     fn single(given: Vec<f32>) -> (usize, usize) {
///         (4, given.len())
///     }
///     fn double(given: Vec<f64>) -> (usize, usize) {
///         (8, given.len())
///     }
/// }
/// assert_eq!(f64::call::<SizeOfEach>(vec![1.0, 2.0, 3.0]), (8, 3));
/// ```
pub trait ByElement {
    /// What it is given.
    type Given<T: Element>;
    /// What it gives back.
    type Result;
    /// The code for `f32`.
    fn single(given: Self::Given<f32>) -> Self::Result;
    /// The code for `f64`.
    fn double(given: Self::Given<f64>) -> Self::Result;
}

macro_rules! element {
    ($type:ident, $dtype:ident, $own:ident, $nearest:expr) => {
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = $type::NEG_INFINITY;
            const EPSILON: Self = $type::EPSILON;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                $nearest(value)
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn to_bits_u64(self) -> u64 {
                u64::from(self.to_bits())
            }
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                $type::mul_add(self, a, b)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $type::exp(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                $type::ln(self)
            }
            #[inline(always)]
            fn tanh(self) -> Self {
                $type::tanh(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $type::abs(self)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                $type::is_nan(self)
            }
            fn extend_le_bytes(values: &[Self], bytes: &mut Vec<u8>) {
                bytes.reserve(size_of_val(values));
                for value in values {
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
            }
            fn from_le_bytes(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$type>()];
                array.copy_from_slice(&bytes[..size_of::<$type>()]);
                $type::from_le_bytes(array)
            }
            #[inline]
            fn call<C: ByElement>(given: C::Given<Self>) -> C::Result {
                C::$own(given)
            }
        }
    };
}

element!(f32, F32, single, nearest_f32);
element!(f64, F64, double, std::convert::identity);

#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest value is the purpose")]
#[inline(always)]
const fn nearest_f32(value: f64) -> f32 {
    value as f32
}
