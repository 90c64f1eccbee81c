//! What a backend must provide.

use std::fmt::Debug;

use tiled_tensor::Element;

use crate::{Context, DeviceError, Load, Needs, Operands, Support, Task, Work};

/// The most inputs that a kernel has.
pub const MAX_INPUTS: usize = 8;

/// Answers the questions of a planner, and opens the memory that runs work in.
///
/// No method has a default: what decorates a backend passes on every one of them, or does not compile.
///
/// The contract of the work itself, in full in `docs/`:
/// - An output element depends only on the values in its receptive field (that of its cell of the [`crate::Kernel::grain`]), in
///   an order of summation that does not depend on the region asked for. So a tiled run equals an untiled one bit for bit.
/// - Padding lanes (see [`tiled_tensor::Layout`]) never reach a real lane.
/// - A reduction gives the same bits for the same sequence of shares, whatever the number of threads.
pub trait Backend<T: Element>: Send + Sync + Debug {
    /// The name with the instruction set, as it stands in reports.
    fn name(&self) -> String;

    /// The channel block of windows with this many channels: a power of two, at most 64.
    fn block(&self, channels: usize) -> usize;

    /// How this work is carried out; `None` where it is not.
    fn support(&self, work: &Work, operands: &Operands<'_>) -> Option<Support>;

    /// The seconds that one worker takes for a task. Only ratios steer the planner; the sums are the predicted seconds of a plan. They never
    /// fall where a number of the load grows, and never below those of one call where calls do: the planner leaves out what cannot be
    /// better by such a bound.
    fn seconds(&self, task: Task<'_>, load: &Load) -> f64;

    /// Whether what sources bring and sinks take moves beside the work, each way by itself: then a sweep takes the longest of the three, else their sum.
    fn transfers_beside(&self) -> bool;

    /// How many queues work at a time where the host has this many threads: on a CPU one on each, on a device as many as keep it busy.
    fn workers(&self, threads: usize) -> usize;

    /// The memory of a run, and the queues that work in it.
    ///
    /// # Errors
    /// Where memory is refused or the device fails.
    fn open<'b>(&'b self, needs: &Needs<'_>) -> Result<Box<dyn Context<T> + 'b>, DeviceError>;
}
