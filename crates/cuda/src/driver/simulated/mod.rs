//! A device on the host: its memory is the host's, its kernels are the same files, built by a C++ compiler.
//!
//! What is asked of a stream waits until somebody waits for it; then the streams take turns in an order of their own. Threads of a
//! block are fibers, and they and the blocks run in that order too. So a wait, an event or a barrier that was forgotten shows:
//! memory that was never written holds NaN, memory past the end of an allocation is watched, and any call can be made to fail.

mod build;
mod device;
mod poison;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tiled_tensor::MemoryDevice;

use super::{Copy, Driver, DriverError, Event, Facts, Function, Launch, Memory, Pinned, Stream};
use crate::units::Unit;
use build::Library;
use device::{Device, Task};

/// In which order threads, blocks and streams run, as far as barriers and events allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// From the first to the last.
    #[default]
    Forward,
    /// From the last to the first.
    Backward,
    /// Shuffled, from a seed.
    Shuffled(u64),
}

/// What is left free between parts of memory where the address sanitizer watches: more than a row of the tiles of kernels.
const GAP_BYTES: usize = 1024;

/// Whether there is a C++ compiler for kernels.
///
/// # Errors
/// Where none is found, with its name.
pub fn compiler() -> Result<(), DriverError> {
    build::compiler().map(|_| ())
}

/// A device on the host.
#[derive(Debug)]
pub struct Simulated {
    facts: Facts,
    order: Order,
    /// The call that fails.
    fails: Option<u64>,
    calls: AtomicU64,
    libraries: Mutex<HashMap<&'static str, Arc<Library>>>,
    device: Mutex<Device>,
}

impl Simulated {
    /// A device that would be this one.
    ///
    /// # Errors
    /// Where no C++ compiler is found, with its name.
    pub fn new(facts: Facts, order: Order) -> Result<Self, DriverError> {
        compiler()?;
        Ok(Self::unbuilt(facts, order))
    }

    /// The same without a look for the compiler: enough for plans, which launch nothing.
    #[must_use]
    pub fn unbuilt(facts: Facts, order: Order) -> Self {
        Self {
            facts: Facts { is_simulated: true, ..facts },
            order,
            fails: None,
            calls: AtomicU64::new(0),
            libraries: Mutex::default(),
            device: Mutex::new(Device::new(order)),
        }
    }

    /// The same, where the call of this number, from zero, fails.
    #[must_use]
    pub fn failing(self, call: u64) -> Self {
        Self { fails: Some(call), ..self }
    }

    /// The calls so far, of those that may fail.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// What tensors of a caller name a stream by; 0 is one of which nothing is ever asked.
    pub const fn stream_of_callers(stream: Stream) -> u64 {
        stream.0 + 1
    }

    /// The bytes that are allocated on the device.
    pub fn allocated(&self) -> usize {
        self.state().allocated()
    }

    /// The most bytes that were allocated on the device at a time.
    pub fn peak(&self) -> usize {
        self.state().peak()
    }

    /// What was made and not given back: memory of the device and of the host, streams, events.
    pub fn left(&self) -> [usize; 4] {
        self.state().left()
    }

    fn state(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and fails it where it is to fail.
    fn count(&self, call: &'static str) -> Result<(), DriverError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.fails == Some(number) {
            return Err(DriverError::Failed { call, message: format!("call {number} was to fail") });
        }
        Ok(())
    }
}

impl Driver for Simulated {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    // it lies on the host, but belongs to no framework's device
    fn device(&self) -> MemoryDevice {
        MemoryDevice { kind: MemoryDevice::OTHER, index: 0 }
    }

    // any memory of the host is
    fn check_lent(&self, _address: u64, _bytes: usize) -> Result<(), DriverError> {
        self.count("use memory of the caller")
    }

    unsafe fn record_lent(&self, event: Event, stream: u64) -> Result<(), DriverError> {
        self.count("record an event")?;
        self.state().record_lent(event, stream)
    }

    fn gap_bytes(&self) -> usize {
        if poison::is_there() { GAP_BYTES } else { 0 }
    }

    fn set_closed(&self, address: u64, bytes: usize, is_closed: bool) {
        poison::set(address, bytes, is_closed);
    }

    fn allocate(&self, bytes: usize) -> Result<Memory, DriverError> {
        self.count("allocate")?;
        self.state().allocate(bytes, self.facts.memory_bytes)
    }

    fn free(&self, memory: Memory) {
        self.state().free(&memory);
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<Pinned, DriverError> {
        self.count("allocate pinned memory")?;
        self.state().allocate_pinned(bytes)
    }

    fn free_pinned(&self, pinned: Pinned) {
        self.state().free_pinned(&pinned);
    }

    fn create_stream(&self) -> Result<Stream, DriverError> {
        self.count("create a stream")?;
        Ok(self.state().create_stream())
    }

    fn destroy_stream(&self, stream: Stream) {
        self.state().destroy_stream(stream);
    }

    fn create_event(&self) -> Result<Event, DriverError> {
        self.count("create an event")?;
        Ok(self.state().create_event())
    }

    fn destroy_event(&self, event: Event) {
        self.state().destroy_event(event);
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        self.count("record an event")?;
        self.state().record(event, stream)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError> {
        self.count("wait for an event")?;
        self.state().wait(stream, event)
    }

    fn synchronise_event(&self, event: Event) -> Result<(), DriverError> {
        self.count("synchronise an event")?;
        self.state().synchronise_event(event)
    }

    fn synchronise(&self, stream: Stream) -> Result<(), DriverError> {
        self.count("synchronise a stream")?;
        self.state().synchronise(stream)
    }

    fn function(&self, unit: &'static Unit, name: &str) -> Result<Function, DriverError> {
        self.count("load a kernel")?;
        let mut libraries = self.libraries.lock().unwrap_or_else(PoisonError::into_inner);
        let library = match libraries.get(unit.name) {
            Some(library) => Arc::clone(library),
            None => {
                let library = Library::of(unit)?;
                libraries.insert(unit.name, Arc::clone(&library));
                library
            }
        };
        let kernel = library.kernel(name)?;
        Ok(self.state().add_kernel(library, kernel))
    }

    unsafe fn launch(&self, stream: Stream, launch: &Launch, args: &[u8]) -> Result<(), DriverError> {
        self.count("launch")?;
        let order = self.order;
        self.state().launch(stream, launch, args, order)
    }

    unsafe fn copy(&self, stream: Stream, copy: &Copy) -> Result<(), DriverError> {
        self.count("copy")?;
        self.state().push(stream, Task::Copy(*copy))
    }

    unsafe fn fill(&self, stream: Stream, address: u64, bytes: usize, byte: u8) -> Result<(), DriverError> {
        self.count("fill")?;
        self.state().push(stream, Task::Fill { address, bytes, byte })
    }
}
