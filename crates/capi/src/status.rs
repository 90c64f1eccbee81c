//! Status codes, and the message of a thread's last failure.

use std::cell::RefCell;
use std::ffi::c_char;
use std::fmt::Display;

use tiled::cpu::IsaError;
use tiled::device::DeviceChoiceError;
use tiled::exec::{ExecError, IoError, OptimError};
use tiled::geometry::GeometryError;
use tiled::graph::{GraphError, PlanError};
use tiled::kernel::DeviceError;
use tiled::tensor::{DeviceTensorError, LayoutError, OutOfMemory};

/// What a call came to. Numbers are never reused; treat one that you do not know as a failure.
pub type tiled_status = i32;

/// The call did what it says.
pub const TILED_STATUS_OK: tiled_status = 0;
/// An argument has a value without a meaning.
pub const TILED_STATUS_INVALID_ARGUMENT: tiled_status = 1;
/// A pointer that must not be NULL is.
pub const TILED_STATUS_NULL_POINTER: tiled_status = 2;
/// A handle is not one: freed, never made, or no handle at all.
pub const TILED_STATUS_INVALID_HANDLE: tiled_status = 3;
/// A handle of another kind than the function takes.
pub const TILED_STATUS_WRONG_HANDLE: tiled_status = 4;
/// A size, coordinate or index outside its range.
pub const TILED_STATUS_OUT_OF_RANGE: tiled_status = 5;
/// Shapes that do not fit each other.
pub const TILED_STATUS_SHAPE: tiled_status = 6;
/// An element type other than the one wanted.
pub const TILED_STATUS_DTYPE: tiled_status = 7;
/// No plan fits the memory budget; the message names the smallest that works.
pub const TILED_STATUS_BUDGET: tiled_status = 8;
/// A file cannot be read or written.
pub const TILED_STATUS_IO: tiled_status = 9;
/// A callback of the caller returned something else than zero.
pub const TILED_STATUS_CALLBACK: tiled_status = 10;
/// The progress callback asked to stop.
pub const TILED_STATUS_CANCELLED: tiled_status = 11;
/// Another thread, or a call further up this thread's stack, is using the handle.
pub const TILED_STATUS_BUSY: tiled_status = 12;
/// An earlier call panicked while it changed the handle; it can only be freed.
pub const TILED_STATUS_POISONED: tiled_status = 13;
/// A defect of the library: it panicked, which was caught.
pub const TILED_STATUS_PANIC: tiled_status = 14;
/// What is asked is not supported by this build or this CPU.
pub const TILED_STATUS_UNSUPPORTED: tiled_status = 15;
/// The buffer is too small for the text; ask for its length with a capacity of zero.
pub const TILED_STATUS_BUFFER_TOO_SMALL: tiled_status = 16;
/// There is not enough memory.
pub const TILED_STATUS_OUT_OF_MEMORY: tiled_status = 17;
/// A network that cannot be built: an unknown operator, a missing operand, channels that do not fit.
pub const TILED_STATUS_NETWORK: tiled_status = 18;
/// There is nothing of this name.
pub const TILED_STATUS_NOT_FOUND: tiled_status = 19;
/// A training step whose loss, gradients or parameters would not be finite; the parameters are as before it.
pub const TILED_STATUS_NOT_FINITE: tiled_status = 20;
/// A device did not do what it was asked; the message has what it says.
pub const TILED_STATUS_DEVICE: tiled_status = 21;
/// The device is not there: no driver, none of this number, or no C++ compiler for a simulated one; the message says which.
pub const TILED_STATUS_NO_DEVICE: tiled_status = 22;
/// This build of the library was made without devices of this kind.
pub const TILED_STATUS_LEFT_OUT: tiled_status = 23;
/// A tensor lies on another device than the one that would have to read or write it.
pub const TILED_STATUS_OTHER_DEVICE: tiled_status = 24;

/// A status and the message that goes with it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: tiled_status,
    pub(crate) message: String,
}

pub(crate) type Fallible<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: tiled_status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(TILED_STATUS_INVALID_ARGUMENT, message)
    }

    pub(crate) fn range(message: impl Into<String>) -> Self {
        Self::new(TILED_STATUS_OUT_OF_RANGE, message)
    }

    pub(crate) fn shape(message: impl Into<String>) -> Self {
        Self::new(TILED_STATUS_SHAPE, message)
    }

    fn of(status: tiled_status, error: &impl Display) -> Self {
        Self::new(status, error.to_string())
    }
}

impl From<GeometryError> for Failure {
    fn from(error: GeometryError) -> Self {
        let status = match &error {
            GeometryError::OutOfMemory { .. } => TILED_STATUS_OUT_OF_MEMORY,
            _ => TILED_STATUS_OUT_OF_RANGE,
        };
        Self::of(status, &error)
    }
}

impl From<OutOfMemory> for Failure {
    fn from(error: OutOfMemory) -> Self {
        Self::of(TILED_STATUS_OUT_OF_MEMORY, &error)
    }
}

impl From<DeviceTensorError> for Failure {
    fn from(error: DeviceTensorError) -> Self {
        Self::of(TILED_STATUS_OUT_OF_RANGE, &error)
    }
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        Self::of(TILED_STATUS_OUT_OF_RANGE, &error)
    }
}

impl From<IsaError> for Failure {
    fn from(error: IsaError) -> Self {
        let status = match &error {
            IsaError::Unknown { .. } => TILED_STATUS_NOT_FOUND,
            _ => TILED_STATUS_UNSUPPORTED,
        };
        Self::of(status, &error)
    }
}

impl From<DeviceChoiceError> for Failure {
    fn from(error: DeviceChoiceError) -> Self {
        let status = match error {
            DeviceChoiceError::Isa(error) => return error.into(),
            DeviceChoiceError::Unknown { .. } => TILED_STATUS_NOT_FOUND,
            DeviceChoiceError::LeftOut { .. } => TILED_STATUS_LEFT_OUT,
            DeviceChoiceError::Budget { .. } => TILED_STATUS_BUDGET,
            _ => TILED_STATUS_NO_DEVICE,
        };
        Self::of(status, &error)
    }
}

impl From<OptimError> for Failure {
    fn from(error: OptimError) -> Self {
        let status = match &error {
            OptimError::OutOfMemory { .. } => TILED_STATUS_OUT_OF_MEMORY,
            _ => TILED_STATUS_INVALID_ARGUMENT,
        };
        Self::of(status, &error)
    }
}

impl From<GraphError> for Failure {
    fn from(error: GraphError) -> Self {
        let status = match &error {
            GraphError::OutOfMemory { .. } => TILED_STATUS_OUT_OF_MEMORY,
            _ => TILED_STATUS_NETWORK,
        };
        Self::of(status, &error)
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let status = match error {
            PlanError::Graph(error) => return error.into(),
            PlanError::BudgetTooSmall { .. } | PlanError::MemoryTooSmall { .. } => TILED_STATUS_BUDGET,
            PlanError::TargetChannels { .. } => TILED_STATUS_SHAPE,
            PlanError::Cancelled => TILED_STATUS_CANCELLED,
            PlanError::NoGradient { .. } | PlanError::UnknownNode { .. } => TILED_STATUS_NOT_FOUND,
            PlanError::NothingWanted => TILED_STATUS_INVALID_ARGUMENT,
            PlanError::Unsupported { .. } => TILED_STATUS_UNSUPPORTED,
            _ => TILED_STATUS_OUT_OF_RANGE,
        };
        Self::of(status, &error)
    }
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Self {
        let status = match &error {
            IoError::Function { .. } => TILED_STATUS_CALLBACK,
            IoError::OutOfMemory { .. } => TILED_STATUS_OUT_OF_MEMORY,
            IoError::Overflow { .. } | IoError::Class { .. } | IoError::AllIgnored { .. } => {
                TILED_STATUS_OUT_OF_RANGE
            }
            IoError::Elements { .. }
            | IoError::Chunk { .. }
            | IoError::Window { .. }
            | IoError::ClassChannels { .. }
            | IoError::Factors { .. }
            | IoError::DecisionChannels { .. }
            | IoError::DecisionShape { .. } => TILED_STATUS_SHAPE,
            IoError::Overlap { .. } | IoError::Factor { .. } => TILED_STATUS_INVALID_ARGUMENT,
            IoError::OnDevice { .. } => TILED_STATUS_OTHER_DEVICE,
            IoError::Parameters { .. } => TILED_STATUS_NETWORK,
            _ => TILED_STATUS_IO,
        };
        Self::of(status, &error)
    }
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        let status = match error {
            ExecError::Io(error) => return error.into(),
            ExecError::Plan(error) => return error.into(),
            ExecError::Graph(error) => return error.into(),
            ExecError::Optim(error) => return error.into(),
            ExecError::Layout(error) => return error.into(),
            ExecError::DType { .. } => TILED_STATUS_DTYPE,
            ExecError::Threads { .. } | ExecError::OutOfMemory { .. } => TILED_STATUS_OUT_OF_MEMORY,
            ExecError::Parameters { .. } | ExecError::Missing { .. } | ExecError::Shape { .. } => {
                TILED_STATUS_SHAPE
            }
            ExecError::NotInMemory { .. }
            | ExecError::Chunks { .. }
            | ExecError::NoSecondHalf
            | ExecError::OtherPlan
            | ExecError::ParameterChanged { .. }
            | ExecError::Released { .. } => TILED_STATUS_INVALID_ARGUMENT,
            ExecError::Device { source: DeviceError::OutOfMemory { .. } } => TILED_STATUS_OUT_OF_MEMORY,
            ExecError::Elsewhere { .. } | ExecError::Device { source: DeviceError::Elsewhere { .. } } => {
                TILED_STATUS_OTHER_DEVICE
            }
            ExecError::Device { .. } => TILED_STATUS_DEVICE,
            ExecError::NotFinite { .. } => TILED_STATUS_NOT_FINITE,
            ExecError::Cancelled => TILED_STATUS_CANCELLED,
            _ => TILED_STATUS_INVALID_ARGUMENT,
        };
        Self::of(status, &error)
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the message of this thread's last failure.
pub(crate) fn keep(message: String) {
    // a message is plain text: NUL would end it early for the caller
    LAST.with(|last| *last.borrow_mut() = message.replace('\0', "?"));
}

/// The message that is kept.
pub(crate) fn kept() -> String {
    LAST.with(|last| last.borrow().clone())
}

/// Copies the message of this thread's last failed call, in UTF-8 and ended by a NUL.
///
/// Copies at most `capacity - 1` bytes of it, never a part of a character, and nothing where `capacity` is 0 or
/// `buffer` is NULL. Returns the length of the whole message in bytes without the NUL; 0 where no call of this
/// thread has failed. The message stays until the next failed call of this thread.
///
/// Threads: any; each has a message of its own.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_last_error(buffer: *mut c_char, capacity: usize) -> usize {
    LAST.with(|last| {
        let message = last.borrow();
        if !buffer.is_null() && capacity > 0 {
            let mut len = message.len().min(capacity - 1);
            while !message.is_char_boundary(len) {
                len -= 1;
            }
            // SAFETY: the caller gives room for `capacity` bytes, and `len < capacity`; the message is ours, so
            // the two do not overlap
            unsafe {
                std::ptr::copy_nonoverlapping(message.as_ptr(), buffer.cast::<u8>(), len);
                buffer.add(len).write(0);
            }
        }
        message.len()
    })
}

/// The name of a status, `"TILED_STATUS_OK"` and so on; `"unknown"` for a number that this version does not know.
///
/// The text is static; do not free it. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_status_name(status: tiled_status) -> *const c_char {
    let name = match status {
        TILED_STATUS_OK => c"TILED_STATUS_OK",
        TILED_STATUS_INVALID_ARGUMENT => c"TILED_STATUS_INVALID_ARGUMENT",
        TILED_STATUS_NULL_POINTER => c"TILED_STATUS_NULL_POINTER",
        TILED_STATUS_INVALID_HANDLE => c"TILED_STATUS_INVALID_HANDLE",
        TILED_STATUS_WRONG_HANDLE => c"TILED_STATUS_WRONG_HANDLE",
        TILED_STATUS_OUT_OF_RANGE => c"TILED_STATUS_OUT_OF_RANGE",
        TILED_STATUS_SHAPE => c"TILED_STATUS_SHAPE",
        TILED_STATUS_DTYPE => c"TILED_STATUS_DTYPE",
        TILED_STATUS_BUDGET => c"TILED_STATUS_BUDGET",
        TILED_STATUS_IO => c"TILED_STATUS_IO",
        TILED_STATUS_CALLBACK => c"TILED_STATUS_CALLBACK",
        TILED_STATUS_CANCELLED => c"TILED_STATUS_CANCELLED",
        TILED_STATUS_BUSY => c"TILED_STATUS_BUSY",
        TILED_STATUS_POISONED => c"TILED_STATUS_POISONED",
        TILED_STATUS_PANIC => c"TILED_STATUS_PANIC",
        TILED_STATUS_UNSUPPORTED => c"TILED_STATUS_UNSUPPORTED",
        TILED_STATUS_BUFFER_TOO_SMALL => c"TILED_STATUS_BUFFER_TOO_SMALL",
        TILED_STATUS_OUT_OF_MEMORY => c"TILED_STATUS_OUT_OF_MEMORY",
        TILED_STATUS_NETWORK => c"TILED_STATUS_NETWORK",
        TILED_STATUS_NOT_FOUND => c"TILED_STATUS_NOT_FOUND",
        TILED_STATUS_NOT_FINITE => c"TILED_STATUS_NOT_FINITE",
        TILED_STATUS_DEVICE => c"TILED_STATUS_DEVICE",
        TILED_STATUS_NO_DEVICE => c"TILED_STATUS_NO_DEVICE",
        TILED_STATUS_LEFT_OUT => c"TILED_STATUS_LEFT_OUT",
        TILED_STATUS_OTHER_DEVICE => c"TILED_STATUS_OTHER_DEVICE",
        _ => c"unknown",
    };
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_fails_is_told_from_arguments_and_from_memory() {
        let failed = DeviceError::Failed { call: "launch".to_owned(), message: "it is gone".to_owned() };
        let failure = Failure::from(ExecError::from(failed));
        assert_eq!((failure.status, failure.message.as_str()), (TILED_STATUS_DEVICE, "launch: it is gone"));
        let refused = DeviceError::OutOfMemory { what: "the windows".to_owned(), bytes: 8 };
        let source = refused.clone();
        for error in [ExecError::from(refused), ExecError::Device { source }] {
            assert_eq!(Failure::from(error).status, TILED_STATUS_OUT_OF_MEMORY);
        }
    }
}
