//! What work costs: the model of a CPU by which plans are compared.

use crate::{Support, Work};

/// Something that takes time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Task<'t> {
    /// Work, with what the backend said of it.
    Work(&'t Work, &'t Support),
    /// Values that a source brings into windows or a sink takes from them.
    Transfer,
    /// Values that are kept between sweeps, moved between windows and the memory in which they are kept.
    Keep,
    /// What threads that share calls write for each other, whatever they compute.
    Exchange,
    /// What a call takes beside its work.
    Call,
    /// The same where the workers share the work of each call: they wake, and wait for the slowest.
    SharedCall,
}

/// Work that takes one thread less than this stays on it: to wake another one takes about 20 µs.
pub const WORTH_SHARING_SECONDS: f64 = 50e-6;

/// How much of a task there is, in the tiles and bands of a plan; zeros where it does not matter.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// The calls.
    pub calls: f64,
    /// The floating-point operations.
    pub flops: f64,
    /// The bytes of the values that are computed, taken in or moved.
    pub bytes: f64,
    /// How many values of about these bytes are read and written.
    pub values: f64,
    /// The bytes of the windows that are read.
    pub read_bytes: f64,
    /// The bytes of the window that is written.
    pub written_bytes: f64,
    /// The bytes that are written and read again: none of what ends in a sink or a sum.
    pub passed_bytes: f64,
    /// The bytes of the windows that are read and written, of all lanes that run at a time: what lies in a cache between a value's being
    /// written and its being read is about as much.
    pub windows_bytes: f64,
    /// The bytes of weights that each call reads anew, for each worker that shares it.
    pub weights_bytes: f64,
    /// The stretches of memory that a source or a sink begins.
    pub stretches: f64,
}

/// What work costs on one core. Only ratios steer a planner; the absolute figures make the predicted seconds of a plan.
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
    /// Bytes a second that each of the threads that share calls writes for all of them: much of it goes from one core's cache to another's.
    pub exchanged: f64,
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
    /// Seconds that a source or a sink takes for each row of each channel beside the bytes: a stretch of memory begins.
    pub stretch: f64,
}

impl Default for Costs {
    /// One core of a server CPU with AVX-512, measured by the example `plan_speed` of the crate `tiled`.
    fn default() -> Self {
        Self {
            flops: 260e9,
            bytes: 40e9,
            transfer: 30e9,
            spilled: 20e9,
            exchanged: 15e9,
            weights: 25e9,
            core_cache_bytes: 1024.0 * 1024.0,
            cache_bytes: 32.0 * 1024.0 * 1024.0,
            call: 0.5e-6,
            shared_call: 5e-6,
            stretch: 0.1e-6,
        }
    }
}

/// How much longer a convolution takes where the cache of its core does not hold what it reads: taps come back to a row.
const FAR_TAPS: f64 = 0.08;

/// The part of what a convolution fetches from memory that its arithmetic does not hide.
const WAITING: f64 = 0.25;

impl Costs {
    /// The seconds that one core takes for a task.
    ///
    /// ```text
    /// arithmetic   flops / (flops a second) + spilled bytes / spilled / 4 + weights · calls / weight bandwidth
    /// other work   bytes / bandwidth + spilled bytes / spilled
    /// ```
    ///
    /// Both are slower where the cache of a core does not hold the windows. Where the last cache does not hold what a layer reads and
    /// writes, that comes back from memory: arithmetic fetches most of it ahead, the others wait for it.
    #[must_use]
    pub fn seconds(&self, task: Task<'_>, load: &Load) -> f64 {
        let spilling = load.passed_bytes * self.spilled_share(load.windows_bytes) / self.spilled;
        let far = || self.far_share(load.read_bytes + load.written_bytes);
        match task {
            Task::Call => load.calls * self.call,
            Task::SharedCall => load.calls * self.shared_call,
            Task::Transfer | Task::Keep => {
                load.bytes / self.transfer * (1.0 + far()) + load.stretches * self.stretch + spilling
            }
            Task::Exchange => 0.5 * load.passed_bytes / self.exchanged,
            Task::Work(_, Support { flops_per_second: Some(reached), .. }) => {
                let far_taps = 1.0 + FAR_TAPS * self.far_share(load.read_bytes);
                let arithmetic = load.flops / reached * far_taps;
                arithmetic + WAITING * spilling + load.weights_bytes * load.calls / self.weights
            }
            Task::Work(..) => load.values * load.bytes / self.bytes * (1.0 + far()) + spilling,
        }
    }

    /// The share of windows of this many bytes that the cache of a core does not hold, taken as growing steadily
    /// from half of its size to the double.
    fn far_share(&self, bytes: f64) -> f64 {
        ((bytes / self.core_cache_bytes - 0.5) / 1.5).clamp(0.0, 1.0)
    }

    /// The share of windows of this many bytes that the last cache does not hold; those of a quarter of its size always fit.
    fn spilled_share(&self, bytes: f64) -> f64 {
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
