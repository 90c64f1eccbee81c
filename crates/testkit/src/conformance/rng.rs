//! Pseudorandom numbers that are the same everywhere.

/// The generator splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The generator of one case of a check, printed so that a failure names it.
    pub(crate) fn of_case(check: &str, seed: u64, index: usize) -> Self {
        eprintln!("{check}: seed {seed}, case {index}");
        let base = Self::new(seed).next_u64();
        Self::new(base ^ (index as u64).wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `[low, high]`.
    ///
    /// # Panics
    /// Where `high` is below `low`.
    pub fn range(&mut self, low: i64, high: i64) -> i64 {
        assert!(low <= high, "no number in [{low}, {high}]");
        let count = high.abs_diff(low) + 1;
        low + (self.next_u64() % count).cast_signed()
    }

    /// A number in `[low, high]`.
    ///
    /// # Panics
    /// Where `high` is below `low`.
    pub fn index(&mut self, low: usize, high: usize) -> usize {
        assert!(low <= high, "no number in [{low}, {high}]");
        let count = (high - low + 1) as u64;
        low + usize::try_from(self.next_u64() % count).expect("invariant: below a usize")
    }

    /// One of these.
    ///
    /// # Panics
    /// Where there are none.
    pub fn pick<V: Copy>(&mut self, values: &[V]) -> V {
        values[self.index(0, values.len() - 1)]
    }

    /// True with this many chances in a hundred.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.next_u64() % 100 < percent
    }

    /// A number in `[0, 1)`, a multiple of `2^-53`.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in f64")]
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number in `[low, high)`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
}
