//! What work costs: the figures that a planner compares plans by.

/// What work costs on one core of a backend. Only ratios steer the planner; the absolute figures make the
/// predicted seconds of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Floating-point operations a second where a convolution runs at its best.
    pub flops: f64,
    /// Bytes a second that every other kernel reads and writes, from and to a cache.
    pub bytes: f64,
    /// Bytes a second that a source or a sink moves.
    pub transfer: f64,
    /// Bytes a second that come from memory, of windows that the last cache does not hold.
    pub spilled: f64,
    /// Bytes a second of weights, which each call reads anew.
    pub weights: f64,
    /// The size in bytes of the largest cache that a core has for itself.
    pub core_cache_bytes: f64,
    /// The size of the last cache in bytes, of all cores together.
    pub cache_bytes: f64,
    /// Seconds that a call takes beside its work.
    pub call: f64,
    /// The same where the threads share the work of each call: they wake, and wait for the slowest.
    pub shared_call: f64,
    /// Seconds that a source or a sink takes for each row of each channel beside the bytes: a run of memory begins.
    pub run: f64,
}

impl Default for Costs {
    /// One core of a server CPU with AVX-512, measured by the example `plan_speed` of the crate `tiled`.
    fn default() -> Self {
        Self {
            flops: 260e9,
            bytes: 40e9,
            transfer: 30e9,
            spilled: 40e9,
            weights: 25e9,
            core_cache_bytes: 1024.0 * 1024.0,
            cache_bytes: 32.0 * 1024.0 * 1024.0,
            call: 0.5e-6,
            shared_call: 60e-6,
            run: 0.1e-6,
        }
    }
}

impl Costs {
    /// The share of windows of this many bytes that the cache of a core does not hold, taken as growing steadily
    /// from half of its size to the double.
    #[must_use]
    pub fn far_share(&self, bytes: f64) -> f64 {
        ((bytes / self.core_cache_bytes - 0.5) / 1.5).clamp(0.0, 1.0)
    }

    /// The share of windows of this many bytes that the last cache does not hold; a quarter of it always does.
    #[must_use]
    pub fn spilled_share(&self, bytes: f64) -> f64 {
        ((bytes / self.cache_bytes - 0.25) / 0.75).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_spill_gradually() {
        let costs = Costs { cache_bytes: 100.0, ..Costs::default() };
        assert_eq!(
            [0.0, 25.0, 62.5, 100.0, 1e9].map(|bytes| costs.spilled_share(bytes)),
            [0.0, 0.0, 0.5, 1.0, 1.0]
        );
    }
}
