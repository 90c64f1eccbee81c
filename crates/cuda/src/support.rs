//! How work is carried out, and what it takes.

use tiled_kernel::{Algorithm, Kernel, Load, Operands, Reduction, Support, Task, Work};
use tiled_tensor::Element;

use crate::driver::Facts;
use crate::lower::{EXTREMUM_BYTES, Gradient, Problem, SUM_WORDS, knows};

/// The share of the multiply-adds that the convolutions are taken to reach: what is left goes to loads and addresses.
const SHARE_OF_PEAK: f64 = 0.6;
/// Seconds from one small launch to the next.
const LAUNCH_SECONDS: f64 = 4e-6;

/// What [`tiled_kernel::Backend::support`] answers.
pub(crate) fn support<T: Element>(facts: &Facts, work: &Work, operands: &Operands<'_>) -> Option<Support> {
    let reached = Some(flops::<T>(facts) * SHARE_OF_PEAK);
    match work {
        Work::Map(Kernel::Conv2d { algorithm: Algorithm::Winograd, .. }) => None,
        Work::Map(kernel) if !knows(kernel) => None,
        Work::Map(kernel) => Some(match Problem::of(kernel) {
            Some(problem) => Support {
                packed_bytes: problem.packed_len() * size_of::<T>(),
                flops_per_second: reached,
                ..Support::PLAIN
            },
            None => Support {
                packed_bytes: operands.params.iter().sum::<usize>() * size_of::<T>(),
                ..Support::PLAIN
            },
        }),
        Work::Reduce(Reduction::ConvWeight(conv)) => Some(Support {
            partial_bytes: conv.weight_len() * size_of::<T>(),
            workspace_bytes: Gradient::new(conv, T::DTYPE).scratch_bytes(),
            flops_per_second: reached,
            ..Support::PLAIN
        }),
        Work::Reduce(reduction) => {
            let [batch, channels] = [operands.batch, operands.channels];
            Some(Support { partial_bytes: partial_bytes(reduction, batch, channels), ..Support::PLAIN })
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

/// Floating-point operations a second: 128 multiply-adds of singles a cycle and multiprocessor, half as many of doubles.
fn flops<T: Element>(facts: &Facts) -> f64 {
    let lanes = if size_of::<T>() == 4 { 128.0 } else { 64.0 };
    2.0 * lanes * f64::from(facts.multiprocessors) * facts.clock
}

/// The seconds that a task takes: the larger of its arithmetic and its bytes. Launches are counted with the calls; multiprocessors that a
/// small call leaves idle are not.
pub(crate) fn seconds(facts: &Facts, task: Task<'_>, load: &Load) -> f64 {
    let launches = load.calls * LAUNCH_SECONDS;
    let moved = load.values * load.bytes / facts.memory_bandwidth;
    match task {
        Task::Call | Task::SharedCall => launches,
        Task::Transfer => load.bytes / facts.host_bandwidth,
        Task::Work(_, Support { flops_per_second: Some(reached), .. }) => {
            let arithmetic = load.flops / reached;
            let weights = load.weights_bytes * load.calls / facts.memory_bandwidth;
            arithmetic.max(moved) + weights
        }
        Task::Work(..) => moved,
    }
}
