//! Random numbers of our own, the same on every machine and in every version.

/// xoshiro256++, seeded by splitmix64.
///
/// Blackman, Vigna, "Scrambled linear pseudorandom number generators", 2021; the seeding is theirs.
///
/// ```
/// use tiled_graph::Rng;
/// let mut rng = Rng::new(0);
/// assert_eq!(rng.next_u64(), 0x53175d61490b23df);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        Self { state: [(); 4].map(|()| splitmix64(&mut counter)) }
    }

    /// The generator of this seed for what bears this name, so that a new layer leaves the others as they were.
    ///
    /// The seed is combined with the FNV-1a hash of the name (Fowler, Noll, Vo, 1991; 64 bits).
    ///
    /// ```
    /// use tiled_graph::Rng;
    /// assert_ne!(Rng::named(1, "a.weight").next_u64(), Rng::named(1, "b.weight").next_u64());
    /// ```
    #[must_use]
    pub fn named(seed: u64, name: &str) -> Self {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut counter = seed;
        Self::new(splitmix64(&mut counter) ^ hash)
    }

    /// What the numbers to come depend on, to be kept beside what they are drawn for.
    ///
    /// ```
    /// use tiled_graph::Rng;
    /// let mut rng = Rng::new(3);
    /// let mut again = Rng::from_state(rng.state());
    /// assert_eq!(rng.next_u64(), again.next_u64());
    /// ```
    #[must_use]
    pub const fn state(&self) -> [u64; 4] {
        self.state
    }

    /// The generator that goes on from a state. All zeros, from which only zeros follow, stand for the seed zero.
    #[must_use]
    pub fn from_state(state: [u64; 4]) -> Self {
        if state == [0; 4] { Self::new(0) } else { Self { state } }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// The next number of `[0, 1)`, a multiple of `2^−53`.
    ///
    /// ```
    /// use tiled_graph::Rng;
    /// let first = Rng::new(1).uniform();
    /// assert!((0.0..1.0).contains(&first));
    /// ```
    pub fn uniform(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in f64")]
        let bits = (self.next_u64() >> 11) as f64;
        bits / (1_u64 << 53) as f64
    }
}

fn splitmix64(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*counter ^ (*counter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
