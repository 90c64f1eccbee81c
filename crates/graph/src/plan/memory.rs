//! The memory of a run, by what it is for.

/// Bytes of a run, by what they are for. Their sum is the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Memory {
    /// Windows of the lanes in flight: one arena, used again by every sweep.
    pub windows_bytes: u64,
    /// Values kept whole between sweeps.
    pub stores_bytes: u64,
    /// Parameters as the caller gave them and as the backend packs them; what the run lets go of ([`Release`](super::Release)) only as it
    /// is packed.
    pub parameters_bytes: u64,
    /// Gradients of parameters.
    pub gradients_bytes: u64,
    /// Partial sums of all lanes, and vectors derived from them.
    pub reductions_bytes: u64,
    /// Buffers of sources and sinks, of each lane in flight.
    pub transfer_bytes: u64,
    /// Decoded chunks of sources that are read in chunks.
    pub chunks_bytes: u64,
    /// What kernels need beside the windows, of each thread.
    pub scratch_bytes: u64,
    /// What the caller holds beside the run.
    pub resident_bytes: u64,
    /// What parameters take beside [`Memory::parameters_bytes`] while a run packs those that it lets go of. There are no windows and stores yet, so only
    /// the larger of the two counts.
    pub before_sweeps_bytes: u64,
}

impl Memory {
    /// The sum.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.windows_bytes
            .saturating_add(self.packing_beyond_values())
            .saturating_add(self.stores_bytes)
            .saturating_add(self.parameters_bytes)
            .saturating_add(self.gradients_bytes)
            .saturating_add(self.reductions_bytes)
            .saturating_add(self.transfer_bytes)
            .saturating_add(self.chunks_bytes)
            .saturating_add(self.scratch_bytes)
            .saturating_add(self.resident_bytes)
    }

    const fn packing_beyond_values(&self) -> u64 {
        self.before_sweeps_bytes.saturating_sub(self.windows_bytes).saturating_sub(self.stores_bytes)
    }

    /// The parts with their names, largest first; `packing` is what it takes beyond windows and stores.
    #[must_use]
    pub fn parts(&self) -> Vec<(&'static str, u64)> {
        let mut parts = vec![
            ("windows", self.windows_bytes),
            ("stores", self.stores_bytes),
            ("parameters", self.parameters_bytes),
            ("gradients", self.gradients_bytes),
            ("reductions", self.reductions_bytes),
            ("transfer", self.transfer_bytes),
            ("chunks", self.chunks_bytes),
            ("scratch", self.scratch_bytes),
            ("resident", self.resident_bytes),
            ("packing", self.packing_beyond_values()),
        ];
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_stores_come_after_packing() {
        let memory = Memory { parameters_bytes: 1000, reductions_bytes: 10, ..Memory::default() };
        let packed = Memory { before_sweeps_bytes: 100, ..memory };
        assert_eq!(packed.total_bytes(), 1110);
        assert_eq!(Memory { windows_bytes: 30, stores_bytes: 20, ..packed }.total_bytes(), 1110);
        assert_eq!(Memory { windows_bytes: 70, stores_bytes: 60, ..packed }.total_bytes(), 1140);
        for memory in [packed, Memory { windows_bytes: 30, stores_bytes: 20, ..packed }] {
            let parts: u64 = memory.parts().iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(parts, memory.total_bytes());
        }
    }
}
