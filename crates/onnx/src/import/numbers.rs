//! Sizes and what models compute of them: numbers where they are known, else multiples of an extent of a value.
//!
//! `Shape`, `Gather`, `Mul` and their like over sizes run here and leave no node, so that `2·H` of a value stays two times
//! its height whatever the image. Where an extent is neither a multiple nor known from the inputs, it is open.

/// A list of at most [`MAX_NUMBERS`], or one number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbers {
    pub(crate) items: Vec<Num>,
    /// Whether it has no axis.
    pub(crate) is_scalar: bool,
    /// Whether its type is one of whole numbers, which divide without remainder.
    pub(crate) is_integer: bool,
}

/// More numbers than any shape or padding has.
pub(crate) const MAX_NUMBERS: usize = 16;

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Num {
    /// It is known.
    Known(f64),
    /// A multiple of an extent.
    Extent(Extent),
    /// It depends on the image, and no multiple of an extent is it.
    Open,
}

/// A multiple of an extent of a value of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The value, by its number among what is planned.
    pub(crate) plan: usize,
    /// Its axis: 0, 2 or 3; the channels are known.
    pub(crate) axis: usize,
    pub(crate) times: i64,
}

/// What two numbers become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
}

/// What says more of extents than they do: which are the same, and which are known.
pub(crate) trait Extents {
    /// Whether both are multiples of one extent.
    fn are_same(&self, a: Extent, b: Extent) -> bool;
    /// The number, where it is known.
    fn known(&self, extent: Extent) -> Option<f64>;
}

impl Num {
    /// The number, where it is known.
    pub(crate) fn known(self, extents: &dyn Extents) -> Option<f64> {
        match self {
            Self::Known(value) => Some(value),
            Self::Extent(extent) => extents.known(extent),
            Self::Open => None,
        }
    }

    /// A sum, difference, product or quotient; whole numbers divide towards zero.
    pub(crate) fn combined(
        self,
        binary: Binary,
        other: Self,
        is_integer: bool,
        extents: &dyn Extents,
    ) -> Self {
        if let Some(exact) = self.multiple(binary, other, extents) {
            return exact;
        }
        let (Some(a), Some(b)) = (self.known(extents), other.known(extents)) else { return Self::Open };
        let value = match binary {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div if is_integer => (a / b).trunc(),
            Binary::Div => a / b,
        };
        if value.is_finite() { Self::Known(value) } else { Self::Open }
    }

    /// A product or quotient that is a multiple of an extent, or of two that are multiples of one.
    fn multiple(self, binary: Binary, other: Self, extents: &dyn Extents) -> Option<Self> {
        let of = |extent: Extent, times: Option<i64>| Some(Self::Extent(Extent { times: times?, ..extent }));
        match (binary, self, other) {
            (Binary::Mul, Self::Extent(extent), Self::Known(factor))
            | (Binary::Mul, Self::Known(factor), Self::Extent(extent)) => {
                of(extent, extent.times.checked_mul(whole(factor)?))
            }
            (Binary::Div, Self::Extent(extent), Self::Known(divisor)) => {
                let divisor = whole(divisor).filter(|divisor| *divisor > 0)?;
                of(extent, (extent.times % divisor == 0).then(|| extent.times / divisor))
            }
            (Binary::Div, Self::Extent(a), Self::Extent(b)) if extents.are_same(a, b) && b.times > 0 => {
                (a.times % b.times == 0).then(|| Self::Known((a.times / b.times) as f64))
            }
            _ => None,
        }
    }

    /// Its rounding by this rule; multiples of extents are whole.
    pub(crate) fn rounded(self, rule: fn(f64) -> f64) -> Self {
        match self {
            Self::Known(value) => Self::Known(rule(value)),
            other => other,
        }
    }
}

impl Numbers {
    /// A list of whole numbers.
    pub(crate) fn whole(items: Vec<Num>) -> Self {
        Self { items, is_scalar: false, is_integer: true }
    }

    /// All of them, where they are known and whole.
    pub(crate) fn all_whole(&self, extents: &dyn Extents) -> Option<Vec<i64>> {
        self.items.iter().map(|item| whole(item.known(extents)?)).collect()
    }

    /// Element by element; one number goes with each of a list.
    pub(crate) fn combined(&self, binary: Binary, other: &Self, extents: &dyn Extents) -> Option<Self> {
        let len = match (self.items.len(), other.items.len()) {
            (a, b) if a == b => a,
            (a, 1) => a,
            (1, b) => b,
            _ => return None,
        };
        let is_integer = self.is_integer && other.is_integer;
        let at = |list: &Self, place: usize| list.items[if list.items.len() == 1 { 0 } else { place }];
        let item = |place| at(self, place).combined(binary, at(other, place), is_integer, extents);
        let is_scalar = self.is_scalar && other.is_scalar;
        Some(Self { items: (0..len).map(item).collect(), is_scalar, is_integer })
    }
}

/// The whole number that this is; those of more than 63 bits, which stand for the end of an axis, become the largest.
#[expect(clippy::cast_possible_truncation, reason = "whole, and too large ones saturate on purpose")]
pub(crate) fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One value, whose height is open and whose width is 6.
    struct One;

    impl Extents for One {
        fn are_same(&self, a: Extent, b: Extent) -> bool {
            (a.plan, a.axis) == (b.plan, b.axis)
        }
        fn known(&self, extent: Extent) -> Option<f64> {
            (extent.axis == 3).then_some(6.0 * extent.times as f64)
        }
    }

    fn extent(axis: usize, times: i64) -> Num {
        Num::Extent(Extent { plan: 0, axis, times })
    }

    #[test]
    fn multiples_of_an_extent_stay_multiples() {
        let combine = |a: Num, binary, b: Num| a.combined(binary, b, true, &One);
        assert_eq!(combine(extent(2, 2), Binary::Mul, Num::Known(3.0)), extent(2, 6));
        assert_eq!(combine(extent(2, 6), Binary::Div, Num::Known(3.0)), extent(2, 2));
        assert_eq!(combine(extent(2, 6), Binary::Div, extent(2, 3)), Num::Known(2.0));
        assert_eq!(combine(extent(2, 1), Binary::Div, Num::Known(2.0)), Num::Open);
        assert_eq!(combine(extent(2, 1), Binary::Add, Num::Known(1.0)), Num::Open);
    }

    #[test]
    fn other_arithmetic_takes_the_number_where_it_is_known() {
        let half = extent(3, 1).combined(Binary::Div, Num::Known(4.0), true, &One);
        assert_eq!(half, Num::Known(1.0));
        let half = extent(3, 1).combined(Binary::Div, Num::Known(4.0), false, &One);
        assert_eq!(half, Num::Known(1.5));
        assert_eq!(Num::Known(1.0).combined(Binary::Div, Num::Known(0.0), true, &One), Num::Open);
    }

    #[test]
    fn the_end_of_an_axis_saturates() {
        assert_eq!((whole(1e30), whole(-2.0), whole(0.5)), (Some(i64::MAX), Some(-2), None));
    }
}
