//! Memory, streams and events that are given back when they are dropped.

use std::ops::Range;
use std::sync::Arc;

use tiled_tensor::Element;

use crate::driver::{Driver, DriverError, Event, Memory, Pinned, Stream};

/// What parts of the device's memory begin at multiples of.
pub const ALIGNMENT_BYTES: usize = 256;

/// Memory of the device, by parts.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    driver: Arc<dyn Driver>,
    memory: Option<Memory>,
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    pub(crate) fn new(driver: &Arc<dyn Driver>, bytes: usize) -> Result<Self, DriverError> {
        let memory = if bytes == 0 { None } else { Some(driver.allocate(bytes)?) };
        let address = memory.as_ref().map_or(0, |memory| memory.address);
        Ok(Self { driver: Arc::clone(driver), memory, address, bytes })
    }

    pub(crate) const fn address(&self) -> u64 {
        self.address
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lets all of it be touched again.
    pub(crate) fn open(&self) {
        self.driver.set_closed(self.address, self.bytes, false);
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.driver.free(memory);
        }
    }
}

/// The sizes of parts of one allocation, and where they begin.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    bytes: usize,
    /// The bytes that nobody may touch behind each part, where the device finds that; then where they lie.
    gap_bytes: usize,
    gaps: Vec<Range<usize>>,
}

impl Parts {
    /// Parts in memory of a device.
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Self {
        Self { bytes: 0, gap_bytes: driver.gap_bytes(), gaps: Vec::new() }
    }

    /// Makes room for so many bytes more, and gives where they begin.
    pub(crate) fn add(&mut self, bytes: usize) -> usize {
        let begin = self.bytes;
        self.bytes = (begin + bytes).next_multiple_of(ALIGNMENT_BYTES) + self.gap_bytes;
        if self.gap_bytes > 0 {
            self.gaps.push(begin + bytes..self.bytes);
        }
        begin
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lets nobody touch what lies between the parts of this memory.
    pub(crate) fn close_gaps(&self, memory: &DeviceMemory) {
        for gap in &self.gaps {
            memory.driver.set_closed(memory.address + gap.start as u64, gap.len(), true);
        }
    }
}

/// Memory of the host that a stream reads or writes, and the event that tells when it has.
#[derive(Debug)]
pub(crate) struct Chunk {
    driver: Arc<dyn Driver>,
    pinned: Option<Pinned>,
    event: Event,
}

impl Chunk {
    /// A chunk without memory.
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Result<Self, DriverError> {
        Ok(Self { driver: Arc::clone(driver), pinned: None, event: driver.create_event()? })
    }

    /// Waits until no stream uses it, then makes room for so many bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<(), DriverError> {
        self.wait()?;
        if self.bytes() < bytes {
            self.release();
            self.pinned = Some(self.driver.allocate_pinned(bytes)?);
        }
        Ok(())
    }

    /// Waits until what was asked of a stream with it has run.
    pub(crate) fn wait(&self) -> Result<(), DriverError> {
        self.driver.synchronise_event(self.event)
    }

    /// Says that a stream uses it until what was asked so far has run.
    pub(crate) fn use_by(&self, stream: Stream) -> Result<(), DriverError> {
        self.driver.record(self.event, stream)
    }

    pub(crate) fn address(&self) -> u64 {
        self.pinned.as_ref().map_or(0, |pinned| pinned.address)
    }

    fn bytes(&self) -> usize {
        self.pinned.as_ref().map_or(0, |pinned| pinned.bytes)
    }

    /// Its first elements.
    ///
    /// # Safety
    /// No stream uses it: it was waited for after the last [`Chunk::use_by`].
    pub(crate) unsafe fn elements<T: Element>(&mut self, len: usize) -> &mut [T] {
        if len == 0 {
            return &mut [];
        }
        assert!(len * size_of::<T>() <= self.bytes(), "{len} elements of {} bytes", self.bytes());
        // SAFETY: pinned memory is aligned to 64 bytes, so long, and initialised by the driver; any bytes are a float. As no stream
        // uses it, the borrow of the chunk is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.address() as *mut T, len) }
    }

    fn release(&mut self) {
        if let Some(pinned) = self.pinned.take() {
            self.driver.free_pinned(pinned);
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.release();
        self.driver.destroy_event(self.event);
    }
}

/// An event.
#[derive(Debug)]
pub(crate) struct OwnEvent {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) event: Event,
}

impl OwnEvent {
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Result<Self, DriverError> {
        Ok(Self { driver: Arc::clone(driver), event: driver.create_event()? })
    }
}

impl Drop for OwnEvent {
    fn drop(&mut self) {
        self.driver.destroy_event(self.event);
    }
}

/// A stream of a lane.
#[derive(Debug)]
pub(crate) struct OwnStream {
    driver: Arc<dyn Driver>,
    pub(crate) stream: Stream,
}

impl OwnStream {
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Result<Self, DriverError> {
        Ok(Self { driver: Arc::clone(driver), stream: driver.create_stream()? })
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        self.driver.destroy_stream(self.stream);
    }
}
