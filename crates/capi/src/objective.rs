//! What a run is to compute.

use std::ffi::c_char;

use tiled::graph::{Loss, Mode, Objective};
use tiled::tensor::with_room;

use crate::guard::guard;
use crate::pointer::{Extensible, array, text, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};

/// Batch normalisation uses running statistics, dropout does nothing.
pub const TILED_MODE_EVAL: i32 = 0;
/// Batch normalisation uses the image's statistics, dropout drops.
pub const TILED_MODE_TRAIN: i32 = 1;

/// No gradients.
pub const TILED_LOSS_NONE: i32 = 0;
/// The caller gives the gradient with respect to each output.
pub const TILED_LOSS_GRAD_OUTPUT: i32 = 1;
/// The sum of all outputs.
pub const TILED_LOSS_SUM: i32 = 2;
/// Mean squared error of the first output against a target of its shape.
pub const TILED_LOSS_MEAN_SQUARED_ERROR: i32 = 3;
/// Mean over pixels of the cross-entropy of the first output against a target of `target_channels` channels: 1 for
/// class numbers, or the output's channels for probabilities. A class number is a whole number from 0 to one less than
/// the output's channels, or the objective's `ignore_index`, whose pixels have no loss and no gradient and are left out of the
/// mean. Before a run every class number is read once more than the run does itself; one that is neither fails with
/// `TILED_STATUS_OUT_OF_RANGE`, and so does a target whose pixels are all ignored.
pub const TILED_LOSS_CROSS_ENTROPY: i32 = 4;

/// The caller gives the gradient with respect to each output once it has seen the outputs: `tiled_executor_forward`, then
/// `tiled_executor_backward`.
pub const TILED_LOSS_GRAD_OUTPUT_LATER: i32 = 5;

/// As `ignore_index` of an objective: no class is ignored.
pub const TILED_NO_IGNORE_INDEX: i64 = 9_223_372_036_854_775_807;

/// What a run is to compute.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_objective {
    /// The size of the struct, as `tiled_objective_init` sets it.
    pub struct_size: u32,
    /// `TILED_MODE_EVAL` or `TILED_MODE_TRAIN`.
    pub mode: i32,
    /// One of `TILED_LOSS_…`.
    pub loss: i32,
    /// Not zero where the outputs are wanted.
    pub outputs: i32,
    /// Not zero where the gradients with respect to the inputs are wanted.
    pub grad_inputs: i32,
    /// Not zero where the gradients with respect to the parameters are wanted.
    pub grad_params: i32,
    /// The channels of the target of a cross-entropy.
    pub target_channels: i64,
    /// The seed of dropout.
    pub seed: u64,
    /// The class number that a cross-entropy ignores, negative or not, or `TILED_NO_IGNORE_INDEX`.
    pub ignore_index: i64,
    /// The names of the inputs, parameters (`fc.weight`) and nodes (`fc`: all its parameters) whose gradients are wanted, of those that
    /// `grad_inputs` and `grad_params` ask for; NULL for all. A name that ends with `*` stands for all that begin so. What no wanted gradient
    /// needs is not computed, and a run takes as many sinks in `grad_inputs` of its `tiled_io` as inputs are wanted.
    pub wanted: *const *const c_char,
    /// How many there are; not read where `wanted` is NULL.
    pub wanted_count: usize,
    /// The names of nodes, as above, that evaluate in `TILED_MODE_TRAIN`: batch norms use their running statistics and leave them as they
    /// are, dropouts do nothing. May be NULL.
    pub evaluated: *const *const c_char,
    /// How many there are; not read where `evaluated` is NULL.
    pub evaluated_count: usize,
}

// SAFETY: repr(C), the size first, then integers and pointers, for which all bits zero is a value
unsafe impl Extensible for tiled_objective {
    const NAME: &'static str = "tiled_objective";
    const FIRST_SIZE: usize = std::mem::offset_of!(Self, ignore_index);

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            mode: TILED_MODE_EVAL,
            loss: TILED_LOSS_NONE,
            outputs: 1,
            grad_inputs: 0,
            grad_params: 0,
            target_channels: 1,
            seed: 0,
            ignore_index: TILED_NO_IGNORE_INDEX,
            wanted: std::ptr::null(),
            wanted_count: 0,
            evaluated: std::ptr::null(),
            evaluated_count: 0,
        }
    }
}

/// Sets every field to its default: the outputs in evaluation. `struct_size` is `sizeof(tiled_objective)`.
///
/// # Safety
/// `objective` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_objective_init(
    objective: *mut tiled_objective,
    struct_size: u32,
) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(objective, struct_size, "objective", &tiled_objective::initial()) })
}

impl tiled_objective {
    /// # Safety
    /// Names are NULL or as many texts as their counts say.
    pub(crate) unsafe fn checked(&self) -> Fallible<Objective> {
        let mode = match self.mode {
            TILED_MODE_EVAL => Mode::Eval,
            TILED_MODE_TRAIN => Mode::Train,
            mode => return Err(Failure::invalid(format!("objective: mode {mode} is not one"))),
        };
        let loss = match self.loss {
            TILED_LOSS_NONE => None,
            TILED_LOSS_GRAD_OUTPUT => Some(Loss::GradOutput),
            TILED_LOSS_GRAD_OUTPUT_LATER => Some(Loss::GradOutputLater),
            TILED_LOSS_SUM => Some(Loss::Sum),
            TILED_LOSS_MEAN_SQUARED_ERROR => Some(Loss::MeanSquaredError),
            TILED_LOSS_CROSS_ENTROPY => {
                let target_channels = usize::try_from(self.target_channels).unwrap_or(0);
                if target_channels == 0 {
                    let got = self.target_channels;
                    return Err(Failure::range(format!(
                        "objective: target_channels is {got}, must be at least 1"
                    )));
                }
                Some(Loss::CrossEntropy { target_channels })
            }
            loss => return Err(Failure::invalid(format!("objective: loss {loss} is not one"))),
        };
        if loss.is_none() && (self.grad_inputs != 0 || self.grad_params != 0) {
            return Err(Failure::invalid("objective: gradients are wanted without a loss"));
        }
        if self.outputs == 0 && self.grad_inputs == 0 && self.grad_params == 0 && loss.is_none() {
            return Err(Failure::invalid("objective: nothing is wanted"));
        }
        // SAFETY: the caller's promise
        let (wanted, evaluated) = unsafe {
            (
                names(self.wanted, self.wanted_count, "objective: wanted")?,
                names(self.evaluated, self.evaluated_count, "objective: evaluated")?.unwrap_or_default(),
            )
        };
        Ok(Objective {
            mode,
            outputs: self.outputs != 0,
            loss,
            grad_inputs: self.grad_inputs != 0,
            grad_params: self.grad_params != 0,
            seed: self.seed,
            ignore_index: Some(self.ignore_index).filter(|class| *class != TILED_NO_IGNORE_INDEX),
            wanted,
            evaluated,
        })
    }
}

/// Copies of names; `None` where there is no list.
///
/// # Safety
/// `list` is NULL or `count` texts can be read from it.
unsafe fn names(list: *const *const c_char, count: usize, what: &str) -> Fallible<Option<Vec<String>>> {
    if list.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise
    let list = unsafe { array(list, count, what)? };
    let mut names = with_room(count)?;
    for name in list {
        // SAFETY: as above
        names.push(unsafe { text(*name, what)? }.to_owned());
    }
    Ok(Some(names))
}
