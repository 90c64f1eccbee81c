//! What of a tensor is not stored as it is.

use std::fmt;

use tiled_tensor::Element;

use crate::file::share;
use crate::{ElementType, Numbers};

/// What of the values written so far a sink does not hold as they are, because its elements are integers or of 16 bits.
///
/// ```
/// use tiled_exec::{Changes, ElementType, Numbers};
///
/// let none = Changes::new(ElementType::U8, Numbers::Scaled);
/// let changes = Changes { values: 40, cut: 9, least: -3.2, largest: 7.9, nan: 3, ..none };
/// assert_eq!(changes.to_string(), "9 of 40 values cut to 0…1 (least -3.2, largest 7.9), 3 NaN written as 0");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Changes {
    /// The type that values are stored as.
    pub element: ElementType,
    /// What its integers stand for.
    pub numbers: Numbers,
    /// The values written so far.
    pub values: u64,
    /// Those outside [`Changes::range`], which became its nearer end.
    pub cut: u64,
    /// The least of all; infinity where there is none.
    pub least: f64,
    /// The largest of all; minus infinity where there is none.
    pub largest: f64,
    /// Those that are no number, written as 0; floating point holds them as they are.
    pub nan: u64,
    /// Those in range that integers round, so that they are read back as another number.
    pub rounded: u64,
}

impl Changes {
    /// Nothing written yet.
    #[must_use]
    pub const fn new(element: ElementType, numbers: Numbers) -> Self {
        let (least, largest) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { element, numbers, values: 0, cut: 0, least, largest, nan: 0, rounded: 0 }
    }

    /// The least and the largest value that can be stored.
    ///
    /// ```
    /// use tiled_exec::{Changes, ElementType, Numbers};
    /// assert_eq!(Changes::new(ElementType::U8, Numbers::Scaled).range(), [0.0, 1.0]);
    /// assert_eq!(Changes::new(ElementType::U8, Numbers::AsIs).range(), [0.0, 255.0]);
    /// ```
    #[must_use]
    pub const fn range(&self) -> [f64; 2] {
        if self.element.is_scaled(self.numbers) { [0.0, 1.0] } else { self.element.range() }
    }

    /// Whether every value is read back as it was written.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.cut == 0 && self.nan == 0 && self.rounded == 0
    }

    /// Takes a value, and gives the whole number that stands for it.
    pub(crate) fn whole<T: Element>(&mut self, value: T) -> f64 {
        let number = value.to_f64();
        let inside = self.inside(number);
        if number.is_nan() {
            self.nan += 1;
            return 0.0;
        }
        let full = self.element.full().filter(|_| self.element.is_scaled(self.numbers));
        let whole = (inside * full.map_or(1.0, f64::from)).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within the range of u16"
        )]
        let read = full.map_or(T::from_f64(whole), |full| share(whole as u16, full));
        self.rounded += u64::from(inside == number && read != value);
        whole
    }

    /// Takes a value, and gives the nearest one in range; infinities stay.
    pub(crate) fn half<T: Element>(&mut self, value: T) -> f64 {
        let number = value.to_f64();
        if number.is_finite() {
            return self.inside(number);
        }
        self.values += 1;
        number
    }

    /// Counts a value, and gives the nearest one in range.
    fn inside(&mut self, number: f64) -> f64 {
        let [low, high] = self.range();
        self.values += 1;
        self.least = self.least.min(number);
        self.largest = self.largest.max(number);
        self.cut += u64::from(number < low || number > high);
        number.clamp(low, high)
    }

    /// Adds what another part of the same tensor changed.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.values += other.values;
        self.cut += other.cut;
        self.least = self.least.min(other.least);
        self.largest = self.largest.max(other.largest);
        self.nan += other.nan;
        self.rounded += other.rounded;
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { values, cut, least, largest, nan, rounded, .. } = self;
        let [low, high] = self.range();
        let mut parts = Vec::new();
        if *cut > 0 {
            parts.push(format!(
                "{cut} of {values} values cut to {low}…{high} (least {least}, largest {largest})"
            ));
        }
        if *nan > 0 {
            parts.push(format!("{nan} NaN written as 0"));
        }
        if *rounded > 0 {
            let step = match self.element.full() {
                Some(255) if self.element.is_scaled(self.numbers) => "a 255th",
                Some(_) if self.element.is_scaled(self.numbers) => "a 65535th",
                _ => "whole numbers",
            };
            parts.push(format!("{rounded} of {values} values rounded to {step}"));
        }
        f.write_str(&if parts.is_empty() { "no value changed".to_owned() } else { parts.join(", ") })
    }
}
