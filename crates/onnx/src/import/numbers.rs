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
    /// Whether others have 64 bits; they have 32 where they are made of extents.
    pub(crate) is_double: bool,
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
    /// The sum of two, where the model leaves them open and no formula of one extent says it.
    Sum([Extent; 2]),
    /// An extent by another or by a number, which is one too: no whole number before it is rounded.
    Quotient(Extent, Extent),
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
    Max,
    Min,
}

/// How a number becomes a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Floor,
    Ceil,
    /// Towards zero.
    Trunc,
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
            Self::Sum([a, b]) => extents.known(a)?.checked_add(extents.known(b)?).map(|sum| sum as f64),
            Self::Quotient(dividend, divisor) => {
                let quotient = extents.known(dividend)? as f64 / extents.known(divisor)? as f64;
                quotient.is_finite().then_some(quotient)
            }
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
                (Binary::Add, Self::Extent(a), Self::Extent(b)) => Self::Sum([a, b]),
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
            Binary::Max => a.max(b),
            Binary::Min => a.min(b),
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
                    Some(divisor) => match extents.part(extent, divisor)? {
                        None if !is_integer => {
                            return Ok(Some(Self::Quotient(extent, extents.number(divisor)?)));
                        }
                        part => part,
                    },
                    None => None,
                }
            }
            (Binary::Div, Self::Known(number), Self::Extent(divisor)) if !is_integer => {
                return match whole(number) {
                    Some(number) => Ok(Some(Self::Quotient(extents.number(number)?, divisor))),
                    None => Ok(None),
                };
            }
            (Binary::Mod, Self::Extent(extent), Self::Known(number)) => {
                match whole(number).filter(|divisor| *divisor > 0) {
                    Some(divisor) => extents.rest(extent, divisor)?,
                    None => None,
                }
            }
            (Binary::Div, Self::Extent(a), Self::Extent(b)) => {
                return Ok(match extents.ratio(a, b) {
                    Some(ratio) => Some(Self::Known(ratio as f64)),
                    None => (!is_integer).then_some(Self::Quotient(a, b)),
                });
            }
            (Binary::Max, Self::Extent(extent), Self::Known(number))
            | (Binary::Max, Self::Known(number), Self::Extent(extent)) => match whole(number) {
                Some(number) => extents.held(extent, [number, i64::MAX])?,
                None => None,
            },
            (Binary::Min, Self::Extent(extent), Self::Known(number))
            | (Binary::Min, Self::Known(number), Self::Extent(extent)) => match whole(number) {
                Some(number) => extents.held(extent, [i64::MIN, number])?,
                None => None,
            },
            (Binary::Add, Self::Extent(a), Self::Extent(b)) => extents.sum(a, 1, b)?,
            (Binary::Sub, Self::Extent(a), Self::Extent(b)) => extents.sum(a, -1, b)?,
            _ => None,
        };
        Ok(made.map(|extent| Self::of(extent, extents)))
    }

    /// The whole number that it is rounded to; extents are whole.
    pub(crate) fn rounded(self, rounding: Rounding, extents: &mut Extents) -> Result<Self, OutOfMemory> {
        let value = match self {
            Self::Known(value) => Some(value),
            Self::Quotient(dividend, divisor) => {
                // what models work out in 32 bits is the same up to 2^24, and is meant so beyond
                let divisor = extents.constant(divisor).filter(|divisor| *divisor > 0);
                let plus = match rounding {
                    Rounding::Floor => Some(0),
                    Rounding::Ceil => divisor.map(|divisor| divisor - 1),
                    Rounding::Trunc => (extents.bounds(dividend).0 >= 0).then_some(0),
                };
                if let (Some(divisor), Some(plus)) = (divisor, plus)
                    && let Some(extent) = extents.linear(dividend, 1, plus, divisor)?
                {
                    return Ok(Self::of(extent, extents));
                }
                self.known(extents)
            }
            whole => return Ok(whole),
        };
        Ok(value.map_or(Self::Open, |value| {
            Self::Known(match rounding {
                Rounding::Floor => value.floor(),
                Rounding::Ceil => value.ceil(),
                Rounding::Trunc => value.trunc(),
            })
        }))
    }
}

impl Numbers {
    /// A list of whole numbers.
    pub(crate) fn whole(items: Vec<Num>) -> Self {
        Self { items, is_scalar: false, is_integer: true, is_double: false }
    }

    /// All of them, where they are known and whole.
    pub(crate) fn all_whole(&self, extents: &Extents) -> Option<Vec<i64>> {
        self.items.iter().map(|item| whole(item.known(extents)?)).collect()
    }

    /// Each as a whole number.
    pub(crate) fn rounded(&self, rounding: Rounding, extents: &mut Extents) -> Result<Self, OutOfMemory> {
        let items: Result<_, OutOfMemory> =
            self.items.iter().map(|item| item.rounded(rounding, extents)).collect();
        Ok(Self { items: items?, ..*self })
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
        let (is_integer, is_double) =
            (self.is_integer && other.is_integer, self.is_double || other.is_double);
        let rounded = |made: Num| match made {
            // 640·0.7 is 448 in 32 bits, and below that in 64
            Num::Known(value) if !is_integer && !is_double => Num::Known(single(value)),
            made => made,
        };
        let at = |list: &Self, place: usize, extents: &Extents| {
            match list.items[if list.items.len() == 1 { 0 } else { place }] {
                // 13/11·11 is below 13 in 32 bits
                quotient @ Num::Quotient(..) if !is_double => {
                    quotient.known(extents).map_or(quotient, |value| Num::Known(single(value)))
                }
                item => item,
            }
        };
        let items: Result<Vec<Num>, OutOfMemory> = (0..len)
            .map(|place| {
                let (a, b) = (at(self, place, extents), at(other, place, extents));
                a.combined(binary, b, is_integer, extents).map(rounded)
            })
            .collect();
        let is_scalar = self.is_scalar && other.is_scalar;
        Ok(Some(Self { items: items?, is_scalar, is_integer, is_double }))
    }
}

/// The number rounded to 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "rounded as the model rounds")]
fn single(value: f64) -> f64 {
    f64::from(value as f32)
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
        let mut combine = |a: Num, binary, b: f64| {
            let made = a.combined(binary, Num::Known(b), false, &mut extents).unwrap();
            (made, made.known(&extents))
        };
        assert_eq!(combine(width, Binary::Div, 4.0).1, Some(1.5));
        assert_eq!(combine(width, Binary::Mul, 1.25).1, Some(7.5));
        assert_eq!(combine(height, Binary::Div, 4.0).1, None);
        assert_eq!(combine(height, Binary::Mul, 1.25).0, Num::Open);
        assert_eq!(combine(Num::Known(1.0), Binary::Div, 0.0).0, Num::Open);
        let quarter = width.combined(Binary::Div, Num::Known(4.0), true, &mut extents).unwrap();
        assert_eq!(quarter.known(&extents), Some(1.0));
    }

    #[test]
    fn the_sum_of_two_extents_is_kept_where_one_is_open() {
        let (mut extents, [height, width]) = extents();
        let sum = height.combined(Binary::Add, width, true, &mut extents).unwrap();
        assert!(
            matches!((sum, height, width), (Num::Sum(both), Num::Extent(a), Num::Extent(b)) if both == [a, b])
        );
        assert_eq!(sum.known(&extents), None);
        assert_eq!(sum.combined(Binary::Sub, height, true, &mut extents), Ok(Num::Open));
        let twice = width.combined(Binary::Add, width, true, &mut extents).unwrap();
        assert_eq!(twice.known(&extents), Some(12.0));
    }

    #[test]
    fn quotients_wait_until_they_are_rounded() {
        let (mut extents, [height, width]) = extents();
        let number = |value: i64| Num::Known(value as f64);
        let half = height.combined(Binary::Div, number(2), false, &mut extents).unwrap();
        assert!(matches!(half, Num::Quotient(..)));
        let below = height.combined(Binary::Div, number(2), true, &mut extents).unwrap();
        let above = height.combined(Binary::Add, number(1), true, &mut extents).unwrap();
        let above = above.combined(Binary::Div, number(2), true, &mut extents).unwrap();
        for (rounding, wanted) in
            [(Rounding::Floor, below), (Rounding::Trunc, below), (Rounding::Ceil, above)]
        {
            assert_eq!(half.rounded(rounding, &mut extents), Ok(wanted));
        }
        // by another extent nothing is said of it, unless both are known
        let turned = height.combined(Binary::Div, width, false, &mut extents).unwrap();
        assert_eq!(turned.rounded(Rounding::Floor, &mut extents), Ok(Num::Open));
        let turned = number(20).combined(Binary::Div, width, false, &mut extents).unwrap();
        assert_eq!(turned.rounded(Rounding::Ceil, &mut extents), Ok(number(4)));
        // of what is below zero, towards it is up
        let less = height.combined(Binary::Sub, number(9), false, &mut extents).unwrap();
        let less = less.combined(Binary::Div, number(2), false, &mut extents).unwrap();
        assert_eq!(less.rounded(Rounding::Trunc, &mut extents), Ok(Num::Open));
        assert!(matches!(less.rounded(Rounding::Floor, &mut extents), Ok(Num::Extent(_))));
        // a divisor of zero
        let zero = extents.number(0).unwrap();
        let Num::Extent(height) = height else { panic!("an extent") };
        assert_eq!(Num::Quotient(height, zero).rounded(Rounding::Ceil, &mut extents), Ok(Num::Open));
    }

    #[test]
    fn what_does_not_grow_is_held_between_numbers() {
        let (mut extents, [height, _]) = extents();
        let Num::Extent(height) = height else { panic!("an extent") };
        let rest = extents.rest(height, 4).unwrap().unwrap();
        let held = extents.held(rest, [1, 2]).unwrap().unwrap();
        assert_eq!(extents.bounds(held), (1, Some(2)));
        assert_eq!(extents.held(height, [1, i64::MAX]), Ok(Some(height)));
        assert_eq!(extents.held(height, [2, i64::MAX]), Ok(None));
        let negative = extents.linear(height, -1, 0, 1).unwrap().unwrap();
        assert_eq!(extents.held(negative, [0, i64::MAX]), extents.number(0).map(Some));
        assert_eq!(extents.held(negative, [i64::MIN, 0]), Ok(Some(negative)));
        assert_eq!(extents.held(height, [i64::MIN, 1]), extents.number(1).map(Some));
        assert_eq!(extents.held(height, [i64::MIN, 7]), Ok(None));
    }

    #[test]
    fn windows_cover_as_many_rows_as_they_say() {
        let (mut extents, [_, width]) = extents();
        let Num::Extent(width) = width else { panic!("an extent") };
        for (rows, stride) in [(3, 1), (3, 2), (5, 2), (1, 2), (2, 3), (3, 3), (7, 4)] {
            let covered = extents.windows(width, rows, stride).unwrap().unwrap();
            let wanted = ((6 + stride - 1) / stride - 1) * stride + rows;
            assert_eq!(extents.known(covered), Some(wanted.max(6)), "{rows} {stride}");
        }
    }

    #[test]
    fn the_end_of_an_axis_saturates() {
        assert_eq!((whole(1e30), whole(-2.0), whole(0.5)), (Some(i64::MAX), Some(-2), None));
    }
}
