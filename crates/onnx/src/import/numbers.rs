//! Numbers and what models compute of them: known ones, and extents of values with their formulas.
//!
//! `Shape`, `Gather`, `Mul` and their like over sizes run here and leave no node, so that `2·H` of a value stays two times
//! its height whatever the image. What is no formula of an extent is worked out where the inputs declare their sizes, else open.

use tiled_tensor::OutOfMemory;

use super::extents::{Extent, Extents};

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
    /// An extent of a value, or a formula of one.
    Extent(Extent),
    /// The product of two, where the model leaves them open: the pixels of a value, where they are its height and width.
    Area([Extent; 2]),
    /// It depends on the image, and is no formula of an extent.
    Open,
}

/// What two numbers become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    /// What is left by a divisor, of its sign.
    Mod,
}

impl Num {
    /// An extent as a model computes with it.
    pub(crate) fn of(extent: Extent, extents: &Extents) -> Self {
        extents.constant(extent).map_or(Self::Extent(extent), |number| Self::Known(number as f64))
    }

    /// The number, where it is known.
    pub(crate) fn known(self, extents: &Extents) -> Option<f64> {
        match self {
            Self::Known(value) => Some(value),
            Self::Extent(extent) => Some(extents.known(extent)? as f64),
            Self::Area([a, b]) => extents.known(a)?.checked_mul(extents.known(b)?).map(|area| area as f64),
            Self::Open => None,
        }
    }

    /// A sum, difference, product or quotient; whole numbers divide towards zero.
    pub(crate) fn combined(
        self,
        binary: Binary,
        other: Self,
        is_integer: bool,
        extents: &mut Extents,
    ) -> Result<Self, OutOfMemory> {
        if let Some(exact) = self.formula(binary, other, is_integer, extents)? {
            return Ok(exact);
        }
        let (Some(a), Some(b)) = (self.known(extents), other.known(extents)) else {
            return Ok(match (binary, self, other) {
                (Binary::Mul, Self::Extent(a), Self::Extent(b)) => Self::Area([a, b]),
                _ => Self::Open,
            });
        };
        let value = match binary {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div if is_integer => (a / b).trunc(),
            Binary::Div => a / b,
            Binary::Mod => a - b * (a / b).floor(),
        };
        Ok(if value.is_finite() { Self::Known(value) } else { Self::Open })
    }

    /// What is a formula of an extent.
    fn formula(
        self,
        binary: Binary,
        other: Self,
        is_integer: bool,
        extents: &mut Extents,
    ) -> Result<Option<Self>, OutOfMemory> {
        let made = match (binary, self, other) {
            (Binary::Add, Self::Extent(extent), Self::Known(number))
            | (Binary::Add, Self::Known(number), Self::Extent(extent)) => match whole(number) {
                Some(number) => extents.linear(extent, 1, number, 1)?,
                None => None,
            },
            (Binary::Sub, Self::Extent(extent), Self::Known(number)) => {
                match whole(number).and_then(i64::checked_neg) {
                    Some(number) => extents.linear(extent, 1, number, 1)?,
                    None => None,
                }
            }
            (Binary::Sub, Self::Known(number), Self::Extent(extent)) => match whole(number) {
                Some(number) => extents.linear(extent, -1, number, 1)?,
                None => None,
            },
            (Binary::Mul, Self::Extent(extent), Self::Known(number))
            | (Binary::Mul, Self::Known(number), Self::Extent(extent)) => match whole(number) {
                Some(number) => extents.linear(extent, number, 0, 1)?,
                None => None,
            },
            (Binary::Div, Self::Extent(extent), Self::Known(number)) => {
                match whole(number).filter(|divisor| *divisor > 0) {
                    // towards zero is down
                    Some(divisor) if is_integer && extents.bounds(extent).0 >= 0 => {
                        extents.linear(extent, 1, 0, divisor)?
                    }
                    Some(divisor) => extents.part(extent, divisor)?,
                    None => None,
                }
            }
            (Binary::Mod, Self::Extent(extent), Self::Known(number)) => {
                match whole(number).filter(|divisor| *divisor > 0) {
                    Some(divisor) => extents.rest(extent, divisor)?,
                    None => None,
                }
            }
            (Binary::Div, Self::Extent(a), Self::Extent(b)) => {
                return Ok(extents.ratio(a, b).map(|ratio| Self::Known(ratio as f64)));
            }
            (Binary::Add, Self::Extent(a), Self::Extent(b)) => extents.sum(a, 1, b)?,
            (Binary::Sub, Self::Extent(a), Self::Extent(b)) => extents.sum(a, -1, b)?,
            _ => None,
        };
        Ok(made.map(|extent| Self::of(extent, extents)))
    }

    /// Its rounding by this rule; extents are whole.
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
    pub(crate) fn all_whole(&self, extents: &Extents) -> Option<Vec<i64>> {
        self.items.iter().map(|item| whole(item.known(extents)?)).collect()
    }

    /// Element by element; one number goes with each of a list. `None` of lists that differ in length.
    pub(crate) fn combined(
        &self,
        binary: Binary,
        other: &Self,
        extents: &mut Extents,
    ) -> Result<Option<Self>, OutOfMemory> {
        let len = match (self.items.len(), other.items.len()) {
            (a, b) if a == b => a,
            (a, 1) => a,
            (1, b) => b,
            _ => return Ok(None),
        };
        let is_integer = self.is_integer && other.is_integer;
        let at = |list: &Self, place: usize| list.items[if list.items.len() == 1 { 0 } else { place }];
        let items: Result<Vec<Num>, OutOfMemory> = (0..len)
            .map(|place| at(self, place).combined(binary, at(other, place), is_integer, extents))
            .collect();
        let is_scalar = self.is_scalar && other.is_scalar;
        Ok(Some(Self { items: items?, is_scalar, is_integer }))
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

    /// An open height, and a width of 6.
    fn extents() -> (Extents, [Num; 2]) {
        let mut extents = Extents::default();
        let image = [None, Some(6)].map(|known| Num::Extent(extents.itself(known).unwrap()));
        (extents, image)
    }

    #[test]
    fn formulas_of_an_extent_are_one_formula() {
        let (mut extents, [height, _]) = extents();
        let mut combine = |a: Num, binary, b: Num| a.combined(binary, b, true, &mut extents).unwrap();
        let number = |value: i64| Num::Known(value as f64);
        let twice = combine(height, Binary::Mul, number(2));
        let six = combine(twice, Binary::Mul, number(3));
        assert_eq!(combine(six, Binary::Div, number(3)), twice);
        assert_eq!(combine(six, Binary::Div, twice), number(3));
        assert_eq!(combine(six, Binary::Div, number(6)), height);
        let odd = combine(twice, Binary::Add, number(1));
        assert_eq!(combine(odd, Binary::Sub, twice), number(1));
        // (h − 1)/2 + 1 is (h + 1)/2, rounded down, and half of it again a quarter
        let less = combine(height, Binary::Sub, number(1));
        let half = combine(less, Binary::Div, number(2));
        let half = combine(half, Binary::Add, number(1));
        let more = combine(height, Binary::Add, number(1));
        assert_eq!(half, combine(more, Binary::Div, number(2)));
        let less_than_half = combine(half, Binary::Sub, number(1));
        let quarter = combine(less_than_half, Binary::Div, number(2));
        let at_once = combine(less, Binary::Div, number(4));
        assert_eq!(quarter, at_once);
        // two times what was rounded is not what it was
        let doubled = combine(half, Binary::Mul, number(2));
        assert_ne!(doubled, more);
        assert_eq!(combine(doubled, Binary::Div, half), number(2));
        assert_eq!(combine(doubled, Binary::Div, number(2)), half);
    }

    #[test]
    fn a_multiple_is_one_however_it_is_worked_out() {
        let (mut extents, [height, _]) = extents();
        let mut combine = |a: Num, binary, b: Num| a.combined(binary, b, true, &mut extents).unwrap();
        let number = |value: i64| Num::Known(value as f64);
        let eight = number(8);
        // h + (8 − h % 8) % 8
        let rest = combine(height, Binary::Mod, eight);
        let missing = combine(eight, Binary::Sub, rest);
        let missing = combine(missing, Binary::Mod, eight);
        let padded = combine(height, Binary::Add, missing);
        // (h + 7)/8·8
        let above = combine(height, Binary::Add, number(7));
        let above = combine(above, Binary::Div, eight);
        assert_eq!(combine(above, Binary::Mul, eight), padded);
        // h − h/8·8
        let below = combine(height, Binary::Div, eight);
        let below = combine(below, Binary::Mul, eight);
        assert_eq!(combine(height, Binary::Sub, below), rest);
        assert_eq!(combine(padded, Binary::Sub, missing), height);
        // a whole number of blocks is left whole
        assert_eq!(combine(padded, Binary::Mod, number(4)), number(0));
        assert_eq!(combine(number(-3), Binary::Mod, eight), number(5));
    }

    #[test]
    fn both_roundings_of_a_half_are_the_whole() {
        let (mut extents, [height, width]) = extents();
        let Num::Extent(height) = height else { panic!("an extent") };
        let below = extents.linear(height, 1, 0, 2).unwrap().unwrap();
        let above = extents.linear(height, 1, 1, 2).unwrap().unwrap();
        assert_eq!(extents.sum(below, 1, above), Ok(Some(height)));
        assert_eq!(extents.bounds(below), (0, None));
        let less = extents.sum(below, -1, above).unwrap().unwrap();
        assert_eq!(extents.bounds(less), (-1, Some(0)));
        let Num::Extent(width) = width else { panic!("an extent") };
        assert_eq!(extents.sum(height, 1, width), Ok(None));
        assert_eq!(extents.linear(height, 1, 0, 1 << 13), Ok(None));
    }

    #[test]
    fn what_may_be_below_zero_is_not_rounded_down() {
        let (mut extents, [height, _]) = extents();
        let less = height.combined(Binary::Sub, Num::Known(2.0), true, &mut extents).unwrap();
        assert_eq!(less.combined(Binary::Div, Num::Known(2.0), true, &mut extents), Ok(Num::Open));
    }

    #[test]
    fn other_arithmetic_takes_the_number_where_it_is_known() {
        let (mut extents, [height, width]) = extents();
        let mut combine =
            |a: Num, b: f64| a.combined(Binary::Div, Num::Known(b), false, &mut extents).unwrap();
        assert_eq!(combine(width, 4.0), Num::Known(1.5));
        assert_eq!(combine(height, 4.0), Num::Open);
        assert_eq!(combine(Num::Known(1.0), 0.0), Num::Open);
        let quarter = width.combined(Binary::Div, Num::Known(4.0), true, &mut extents).unwrap();
        assert_eq!(quarter.known(&extents), Some(1.0));
    }

    #[test]
    fn the_end_of_an_axis_saturates() {
        assert_eq!((whole(1e30), whole(-2.0), whole(0.5)), (Some(i64::MAX), Some(-2), None));
    }
}
