//! What is asked of a device: memory, streams, events, modules, launches.
//!
//! Handles are plain numbers of one driver. What is done on a stream runs in its order, and later than the call that asks for it; an
//! error may come with any later call.

mod facts;
#[cfg(feature = "device")]
pub mod gpu;
#[cfg(all(unix, feature = "simulated"))]
pub mod simulated;

use std::fmt::Debug;

use tiled_kernel::DeviceError;
use tiled_tensor::MemoryDevice;

pub use facts::{Facts, MODELS};

use crate::units::Unit;

/// A device under a queue.
///
/// Memory, streams, events and modules belong to the driver that made them; those of another one are errors or panics, never
/// undefined behaviour. Calls whose effect on memory the driver cannot judge are unsafe.
pub trait Driver: Send + Sync + Debug {
    /// What the device is.
    fn facts(&self) -> &Facts;

    /// What tensors name it by whose memory is its own.
    fn device(&self) -> MemoryDevice;

    /// Looks whether memory of a caller is the device's, as far as the driver knows.
    ///
    /// # Errors
    /// Where it is not.
    fn check_lent(&self, address: u64, bytes: usize) -> Result<(), DriverError>;

    /// Lets an event come when what was asked so far of a stream of the caller has run, which is named as the device itself does.
    ///
    /// # Safety
    /// `stream` is one of the device.
    ///
    /// # Errors
    /// Where the device fails.
    unsafe fn record_lent(&self, event: Event, stream: u64) -> Result<(), DriverError>;

    /// The bytes that are left free behind each part of memory because the device finds who touches them; 0 where it does not.
    fn gap_bytes(&self) -> usize;

    /// Says whether a stretch of memory may be touched from now on, where [`Driver::gap_bytes`] is not 0.
    fn set_closed(&self, address: u64, bytes: usize, is_closed: bool);

    /// Memory of the device, of which nothing is written.
    ///
    /// # Errors
    /// Where there is not so much of it.
    fn allocate(&self, bytes: usize) -> Result<Memory, DriverError>;

    /// Gives memory back, once all that was asked for before has run.
    fn free(&self, memory: Memory);

    /// Memory of the host that the device reads and writes by itself.
    ///
    /// # Errors
    /// Where there is not so much of it.
    fn allocate_pinned(&self, bytes: usize) -> Result<Pinned, DriverError>;

    /// Gives memory back, once all that was asked for before has run.
    fn free_pinned(&self, pinned: Pinned);

    /// A stream.
    ///
    /// # Errors
    /// Where the device fails.
    fn create_stream(&self) -> Result<Stream, DriverError>;

    /// Gives a stream back, once all that was asked of it has run.
    fn destroy_stream(&self, stream: Stream);

    /// An event, which counts as having come until it is recorded.
    ///
    /// # Errors
    /// Where the device fails.
    fn create_event(&self) -> Result<Event, DriverError>;

    /// Gives an event back.
    fn destroy_event(&self, event: Event);

    /// Lets an event come when what was asked of a stream so far has run.
    ///
    /// # Errors
    /// Where the device fails.
    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError>;

    /// Lets what is asked of a stream from now on wait for an event, as it was recorded last.
    ///
    /// # Errors
    /// Where the device fails.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError>;

    /// Returns when an event has come, as it was recorded last.
    ///
    /// # Errors
    /// Where the device fails.
    fn synchronise_event(&self, event: Event) -> Result<(), DriverError>;

    /// Returns when all that was asked of a stream has run.
    ///
    /// # Errors
    /// Where the device fails.
    fn synchronise(&self, stream: Stream) -> Result<(), DriverError>;

    /// A kernel, by its name in the table; what it lies in is built and loaded when it is first asked for.
    ///
    /// # Errors
    /// Where it cannot be built.
    fn function(&self, unit: &'static Unit, name: &str) -> Result<Function, DriverError>;

    /// Runs a kernel.
    ///
    /// # Safety
    /// - `args` are the bytes of the struct that the kernel takes.
    /// - Until it has run, the memory that it reads and writes by them stays allocated, and nothing beside this stream, or a stream that waits for
    ///   it or that it waits for, touches what it writes.
    ///
    /// # Errors
    /// Where the device fails.
    unsafe fn launch(&self, stream: Stream, launch: &Launch, args: &[u8]) -> Result<(), DriverError>;

    /// Copies rows.
    ///
    /// # Safety
    /// - Every row of both sides lies in memory of this device or in pinned memory, as [`Way`] says.
    /// - Until it has run, both stay allocated, and nobody touches what is written, nor writes what is read.
    ///
    /// # Errors
    /// Where the device fails.
    unsafe fn copy(&self, stream: Stream, copy: &Copy) -> Result<(), DriverError>;

    /// Writes one byte to all of a stretch of the device's memory.
    ///
    /// # Safety
    /// As [`Driver::copy`], of what is written.
    ///
    /// # Errors
    /// Where the device fails.
    unsafe fn fill(&self, stream: Stream, address: u64, bytes: usize, byte: u8) -> Result<(), DriverError>;
}

/// Memory of a device.
#[derive(Debug, PartialEq, Eq)]
pub struct Memory {
    /// Where it begins, a multiple of 256.
    pub address: u64,
    /// Its size.
    pub bytes: usize,
}

/// Memory of the host that the device can reach.
#[derive(Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Where it begins for the host, a multiple of 64.
    pub address: u64,
    /// Its size.
    pub bytes: usize,
}

/// A stream of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub u64);

/// An event of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub u64);

/// A kernel of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub u64);

/// A kernel and the threads that run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel.
    pub function: Function,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From pinned memory to the device.
    In,
    /// From the device to pinned memory.
    Out,
    /// On the device.
    Within,
}

/// One side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The address of the first row of the first plane.
    pub address: u64,
    /// The bytes from one row to the next.
    pub row_bytes: usize,
    /// The bytes from one plane to the next.
    pub plane_bytes: usize,
}

/// Rows of planes, from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Which memory each side lies in.
    pub way: Way,
    /// What is read.
    pub from: Rows,
    /// What is written.
    pub to: Rows,
    /// The bytes of a row.
    pub bytes: usize,
    /// The rows of a plane.
    pub rows: usize,
    /// The planes.
    pub planes: usize,
}

/// A call of a driver that failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// There is no driver, or one without a device.
    #[error("no CUDA driver")]
    NoDriver,
    /// There is no device of this number.
    #[error("device {index} of {count}, counted from zero")]
    NoDevice {
        /// What was asked for.
        index: u32,
        /// The devices that there are.
        count: u32,
    },
    /// Memory is refused.
    #[error("no memory for {bytes} bytes")]
    OutOfMemory {
        /// The size that was asked for.
        bytes: u64,
    },
    /// The device, the driver or a compiler says no.
    #[error("{call}: {message}")]
    Failed {
        /// What was called.
        call: &'static str,
        /// What it says.
        message: String,
    },
}

impl DriverError {
    /// The error of something that was done with the device.
    pub fn doing(what: impl Into<String>) -> impl FnOnce(Self) -> DeviceError {
        move |error| match error {
            Self::OutOfMemory { bytes } => DeviceError::OutOfMemory { what: what.into(), bytes },
            Self::Failed { call, message } => {
                DeviceError::Failed { call: format!("{}: {call}", what.into()), message }
            }
            error @ (Self::NoDriver | Self::NoDevice { .. }) => {
                DeviceError::Failed { call: what.into(), message: error.to_string() }
            }
        }
    }
}
