//! Elements as they lie in files and in memory of other types than the computation's.

use half::{bf16, f16};
use tiled_tensor::{DType, Element};

use crate::{Changes, ElementType, Numbers};

mod sealed {
    pub trait Sealed {}
}

/// A type that elements are stored as: that of an [`ElementType`].
pub trait Stored: sealed::Sealed + Copy + Send + Sync + std::fmt::Debug + 'static {
    /// The name of the type.
    const ELEMENT: ElementType;

    /// The number that it stands for.
    fn load<T: Element>(self, numbers: Numbers) -> T;

    /// What stands for a number; `changes`, which are of this type, count what is not stored as it is.
    fn store<T: Element>(value: T, changes: &mut Changes) -> Self;

    /// The element whose little-endian bytes these are.
    ///
    /// # Panics
    /// Where they are not as many as it has.
    fn from_le(bytes: &[u8]) -> Self;

    /// Writes the little-endian bytes.
    ///
    /// # Panics
    /// Where there is not room for as many as it has.
    fn to_le(self, bytes: &mut [u8]);
}

macro_rules! bytes {
    ($type:ty) => {
        fn from_le(bytes: &[u8]) -> Self {
            Self::from_le_bytes(bytes.try_into().expect("invariant: as many bytes as an element has"))
        }

        fn to_le(self, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.to_le_bytes());
        }
    };
}

/// Integers; `$load` makes a number of one that is not scaled.
macro_rules! integers {
    ($($type:ty: $element:ident, |$value:ident| $load:expr;)*) => {$(
        impl sealed::Sealed for $type {}

        impl Stored for $type {
            const ELEMENT: ElementType = ElementType::$element;

            fn load<T: Element>(self, numbers: Numbers) -> T {
                let $value = self;
                match ElementType::$element.full() {
                    Some(full) if numbers == Numbers::Scaled => {
                        <T as Element>::from_f64($value as f64) / T::from_f64(f64::from(full))
                    }
                    _ => $load,
                }
            }

            fn store<T: Element>(value: T, changes: &mut Changes) -> Self {
                changes.whole(value) as Self
            }

            bytes!($type);
        }
    )*};
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_lossless,
    reason = "what is stored is a whole number within the range of the type, or at the ends of 64 bits, where casts \
              saturate; what is loaded is to be the nearest number"
)]
mod integers {
    use super::{Changes, DType, Element, ElementType, Numbers, Stored, sealed};

    integers! {
        u8: U8, |value| T::from_f64(value as f64);
        i8: I8, |value| T::from_f64(value as f64);
        u16: U16, |value| T::from_f64(value as f64);
        i16: I16, |value| T::from_f64(value as f64);
        u32: U32, |value| T::from_f64(value as f64);
        i32: I32, |value| T::from_f64(value as f64);
        // not by way of f64, which would round twice
        u64: U64, |value| match T::DTYPE {
            DType::F32 => T::from_f64(f64::from(value as f32)),
            DType::F64 => T::from_f64(value as f64),
        };
        i64: I64, |value| match T::DTYPE {
            DType::F32 => T::from_f64(f64::from(value as f32)),
            DType::F64 => T::from_f64(value as f64),
        };
    }
}

/// The number with 24 bits that rounds to 16 bits or fewer as this one does: where it is none itself, that of its neighbours whose last bit is
/// set (Boldo and Melquiond, Emulation of a FMA and correctly rounded sums, IEEE Transactions on Computers 57, 2008, theorem 2). Rounded to the nearest first, it would be rounded twice.
#[expect(clippy::cast_possible_truncation, reason = "that is what is made up for")]
fn to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    let rounded = f64::from(nearest);
    if rounded == number || number.is_nan() {
        return nearest;
    }
    let toward_zero = nearest.to_bits() - u32::from(rounded.abs() > number.abs());
    f32::from_bits(toward_zero | 1)
}

/// Floating point of 16 bits.
macro_rules! halves {
    ($($type:ty: $element:ident;)*) => {$(
        impl sealed::Sealed for $type {}

        impl Stored for $type {
            const ELEMENT: ElementType = ElementType::$element;

            fn load<T: Element>(self, _: Numbers) -> T {
                T::from_f64(self.to_f64())
            }

            fn store<T: Element>(value: T, changes: &mut Changes) -> Self {
                Self::from_f32(to_odd(changes.half(value)))
            }

            bytes!($type);
        }
    )*};
}

halves! {
    f16: F16;
    bf16: Bf16;
}

/// Floating point of the computation's types; of one type the bits are the same, so that signalling NaNs pass too.
macro_rules! floats {
    ($($type:ty: $element:ident;)*) => {$(
        impl sealed::Sealed for $type {}

        impl Stored for $type {
            const ELEMENT: ElementType = ElementType::$element;

            fn load<T: Element>(self, _: Numbers) -> T {
                match T::DTYPE {
                    DType::$element => T::from_le_bytes(&self.to_le_bytes()),
                    _ => T::from_f64(f64::from(self)),
                }
            }

            fn store<T: Element>(value: T, _: &mut Changes) -> Self {
                match T::DTYPE {
                    DType::$element => Self::from_bits(value.to_bits_u64() as _),
                    _ => <Self as Element>::from_f64(value.to_f64()),
                }
            }

            bytes!($type);
        }
    )*};
}

#[expect(clippy::cast_possible_truncation, reason = "the bits of an f32 are the low half")]
mod floats {
    use super::{Changes, DType, Element, ElementType, Numbers, Stored, sealed};

    floats! {
        f32: F32;
        f64: F64;
    }
}

/// Evaluates an expression for the type that an [`ElementType`] names.
///
/// ```
/// use tiled_exec::{ElementType, Stored, with_stored};
/// let bytes = with_stored!(ElementType::Bf16, S => { let _ = S::ELEMENT; size_of::<S>() });
/// assert_eq!(bytes, 2);
/// ```
#[macro_export]
macro_rules! with_stored {
    ($element:expr, $S:ident => $value:expr) => {{
        macro_rules! each {
            ($type:ty) => {{
                type $S = $type;
                $value
            }};
        }
        match $element {
            $crate::ElementType::U8 => each!(u8),
            $crate::ElementType::I8 => each!(i8),
            $crate::ElementType::U16 => each!(u16),
            $crate::ElementType::I16 => each!(i16),
            $crate::ElementType::U32 => each!(u32),
            $crate::ElementType::I32 => each!(i32),
            $crate::ElementType::U64 => each!(u64),
            $crate::ElementType::I64 => each!(i64),
            $crate::ElementType::F16 => each!($crate::f16),
            $crate::ElementType::Bf16 => each!($crate::bf16),
            $crate::ElementType::F32 => each!(f32),
            $crate::ElementType::F64 => each!(f64),
        }
    }};
}
