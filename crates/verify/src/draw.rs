//! Choices drawn from a seed.

use tiled::graph::Rng;

/// A sequence of choices, the same on every machine for one seed and name.
#[derive(Clone, Debug)]
pub(super) struct Draw(Rng);

impl Draw {
    pub(super) fn new(seed: u64, name: &str) -> Self {
        Self(Rng::named(seed, name))
    }

    pub(super) fn seed(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number of `[0, 1)`.
    pub(super) fn uniform(&mut self) -> f64 {
        self.0.uniform()
    }

    /// A number below `count`, zero where there is none.
    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.0.next_u64() % (count.max(1) as u64))
            .expect("invariant: a remainder is below a usize")
    }

    /// A number from `least` to `most`, both included.
    pub(super) fn between(&mut self, least: i64, most: i64) -> i64 {
        let span = usize::try_from(most - least + 1).unwrap_or(1);
        least + i64::try_from(self.below(span)).expect("invariant: a remainder is below the span")
    }

    /// True in so many of a hundred.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    ///
    /// # Panics
    /// Where there are none.
    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Two of these, drawn alike or apart: height and width.
    pub(super) fn pair(&mut self, of: &[i64]) -> [i64; 2] {
        let first = self.pick(of);
        [first, if self.chance(60) { first } else { self.pick(of) }]
    }
}
