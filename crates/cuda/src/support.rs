//! How work is carried out, and what it takes.

use tiled_kernel::{Algorithm, Kernel, Load, Operands, Reduction, Support, Task, Work};
use tiled_tensor::{DType, Element};

use crate::device::Device;
use crate::lower::waves::{Waves, as_f64, reached};
use crate::lower::{EXTREMUM_BYTES, Gradient, Problem, SUM_WORDS, family};
use crate::memory::ALIGNMENT_BYTES;
use crate::precision::Precision;
use crate::staging::STAGING_BYTES;

/// Seconds from one small launch to the next.
const LAUNCH_SECONDS: f64 = 4e-6;
/// The share of the bandwidth by the data sheet that copies on an H200 reach, and kernels that do little else.
const SHARE_OF_BANDWIDTH: f64 = 0.87;

/// What [`tiled_kernel::Backend::support`] answers.
pub(crate) fn support<T: Element>(device: &Device, work: &Work, operands: &Operands<'_>) -> Option<Support> {
    let (facts, precision) = (device.facts(), device.precision());
    // every queue has pieces for what comes and goes beside its kernels
    let plain = Support { workspace_bytes: STAGING_BYTES, ..Support::PLAIN };
    match work {
        // tensor cores are faster than its multiply-adds
        Work::Map(Kernel::Conv2d { conv, algorithm: Algorithm::Winograd, .. })
            if !conv.suits_winograd()
                || conv.dilation() > 1
                || T::DTYPE == DType::F32 && precision != Precision::F32 =>
        {
            None
        }
        Work::Map(kernel) if family(kernel).is_none() => None,
        Work::Map(kernel) => Some(match Problem::of(kernel, precision) {
            Some(problem) => {
                let products = problem.products(T::DTYPE);
                Support {
                    packed_bytes: problem.packed_len() * size_of::<T>(),
                    flops_per_second: Some(reached(facts, T::DTYPE, products)),
                    factor_rounding: products.rounding(),
                    ..plain
                }
            }
            None => Support { packed_bytes: operands.params.iter().sum::<usize>() * size_of::<T>(), ..plain },
        }),
        Work::Reduce(Reduction::ConvWeight(conv)) => {
            let gradient = Gradient::new(conv, T::DTYPE, precision);
            let products = gradient.products();
            Some(Support {
                partial_bytes: conv.weight_len() * size_of::<T>(),
                workspace_bytes: gradient.scratch_bytes().next_multiple_of(ALIGNMENT_BYTES) + STAGING_BYTES,
                flops_per_second: Some(reached(facts, T::DTYPE, products)),
                factor_rounding: products.rounding(),
                ..plain
            })
        }
        Work::Reduce(reduction) => {
            let [batch, channels] = [operands.batch, operands.channels];
            Some(Support { partial_bytes: partial_bytes(reduction, batch, channels), ..plain })
        }
    }
}

/// The bytes of exact sums or maxima on the device.
pub(crate) const fn partial_bytes(reduction: &Reduction, batch: usize, channels: usize) -> usize {
    match reduction {
        Reduction::ImageMax => batch * channels * EXTREMUM_BYTES,
        _ => reduction.slots(batch, channels) * SUM_WORDS * 8,
    }
}

/// The seconds that a task takes: the larger of its arithmetic, in waves over the multiprocessors, and its bytes. Launches are counted with
/// the calls, and those that a call has beyond the first with its work.
pub(crate) fn seconds<T: Element>(device: &Device, task: Task<'_>, load: &Load) -> f64 {
    let (facts, precision) = (device.facts(), device.precision());
    let bandwidth = facts.memory_bandwidth * SHARE_OF_BANDWIDTH;
    let moved = load.values * load.bytes / bandwidth;
    let (work, support) = match task {
        Task::Call | Task::SharedCall => return load.calls * LAUNCH_SECONDS,
        Task::Exchange => return 0.0, // all queues have one memory
        Task::Transfer => return load.bytes / facts.host_bandwidth,
        Task::Keep => return 2.0 * load.bytes / bandwidth,
        Task::Work(work, support) => (work, support),
    };
    let Some(reached) = support.flops_per_second else { return moved };
    let calls = load.calls.max(1.0);
    let elements = load.bytes / as_f64(size_of::<T>()) / calls;
    let weights = load.weights_bytes * calls / bandwidth;
    let Some(waves) = waves(device, work, T::DTYPE, elements / as_f64(channels(work, precision))) else {
        return moved;
    };
    let (bytes, launches) = match work {
        Work::Map(kernel) => Problem::of(kernel, precision).map_or((0.0, 0.0), |problem| {
            let after = problem.passes_after();
            (2.0 * after * load.bytes, problem.classes_of_a_call() - 1.0 + after)
        }),
        Work::Reduce(Reduction::ConvWeight(conv)) => {
            (calls * Gradient::new(conv, T::DTYPE, precision).passed_bytes(), 1.0)
        }
        Work::Reduce(_) => (0.0, 0.0),
    };
    let arithmetic = (load.flops / reached).max(calls * waves.seconds);
    arithmetic.max(moved + weights) + bytes / bandwidth + calls * launches * LAUNCH_SECONDS
}

/// What a call over so many pixels, of all images, takes of the multiprocessors, where its arithmetic bounds it.
pub(crate) fn waves(device: &Device, work: &Work, dtype: DType, pixels: f64) -> Option<Waves> {
    let (facts, precision) = (device.facts(), device.precision());
    match work {
        Work::Map(kernel) => Some(Problem::of(kernel, precision)?.waves(facts, dtype, pixels)),
        Work::Reduce(Reduction::ConvWeight(conv)) => {
            Some(Gradient::new(conv, dtype, precision).waves(facts, pixels))
        }
        Work::Reduce(_) => None,
    }
}

/// The channels of what such work computes, or takes shares of.
fn channels(work: &Work, precision: Precision) -> usize {
    match work {
        Work::Map(kernel) => Problem::of(kernel, precision).map_or(1, |problem| problem.channels()),
        Work::Reduce(Reduction::ConvWeight(conv)) => conv.out_channels,
        Work::Reduce(_) => 1,
    }
}
