//! Random sequences of valid and invalid calls, as the fuzz target makes them, from a fixed seed.

use std::time::{Duration, Instant};

/// A generator of bytes (splitmix64, Steele, Lea and Flood, 2014).
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn sequence(&mut self) -> Vec<u8> {
        let len = self.next() % 2048;
        (0..len).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// `TILED_CALLS_SECONDS` makes it run longer, `TILED_CALLS_SEED` begin elsewhere.
#[test]
fn random_sequences_of_calls_neither_panic_nor_write_on_failure_nor_leak() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (seed, seconds) = (number("TILED_CALLS_SEED", 1), number("TILED_CALLS_SECONDS", 2));
    let (mut bytes, begin, mut sequences, mut calls) = (Bytes(seed), Instant::now(), 0_u64, 0);
    // some in any case, however slow a busy machine is
    while sequences < 8 || begin.elapsed() < Duration::from_secs(seconds) {
        let sequence = bytes.sequence();
        match std::panic::catch_unwind(|| tiled_capi_oracle::calls(&sequence)) {
            Ok(made) => calls += made,
            Err(panic) => {
                eprintln!("seed {seed}, sequence {sequences}: {sequence:?}");
                std::panic::resume_unwind(panic);
            }
        }
        sequences += 1;
    }
    eprintln!("seed {seed}: {sequences} sequences, {calls} calls");
    assert!(calls > 100, "{calls} calls");
}
