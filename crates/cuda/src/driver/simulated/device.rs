//! The memory and the streams of a simulated device.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::super::{Copy, DriverError, Event, Function, Launch, Memory, Pinned, Stream};
use super::build::{Kernel, Library, Shape};
use super::{Order, poison};

/// Something that was asked of a stream.
pub(super) enum Task {
    Launch { library: Arc<Library>, kernel: Kernel, args: Vec<u64>, shape: Shape },
    Copy(Copy),
    Fill { address: u64, bytes: usize, byte: u8 },
    Record { event: u64, time: u64 },
    Wait { event: u64, time: u64 },
}

/// Bytes on both sides of an allocation that nobody may write.
const GUARD_BYTES: usize = 256;
const GUARD: u8 = 0xa5;
/// Of `f32` and `f64` alike this byte makes NaN.
const NOTHING: u8 = 0xff;
const ALIGNMENT_BYTES: usize = 256;

/// An allocation with guards before and behind.
#[derive(Debug)]
struct Allocation {
    start: *mut u8,
    bytes: usize,
}

impl Allocation {
    fn new(bytes: usize) -> Option<Self> {
        // SAFETY: the size is not zero
        let start = unsafe { alloc(Self::layout(bytes)?) };
        if start.is_null() {
            return None;
        }
        // SAFETY: just allocated with this size
        unsafe {
            start.write_bytes(GUARD, GUARD_BYTES);
            start.add(GUARD_BYTES).write_bytes(NOTHING, bytes);
            start.add(GUARD_BYTES + bytes).write_bytes(GUARD, GUARD_BYTES);
        }
        let allocation = Self { start, bytes };
        for guard in [start as u64, allocation.address() + bytes as u64] {
            poison::set(guard, GUARD_BYTES, true);
        }
        Some(allocation)
    }

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.checked_add(2 * GUARD_BYTES)?, ALIGNMENT_BYTES).ok()
    }

    fn address(&self) -> u64 {
        self.start as u64 + GUARD_BYTES as u64
    }

    /// Whether nobody has written beside it.
    fn is_whole(&self) -> bool {
        poison::set(self.start as u64, self.bytes + 2 * GUARD_BYTES, false);
        let is_guard = |from: usize| {
            // SAFETY: the guards are bytes of the allocation
            let guard = unsafe { std::slice::from_raw_parts(self.start.add(from), GUARD_BYTES) };
            guard.iter().all(|byte| *byte == GUARD)
        };
        is_guard(0) && is_guard(GUARD_BYTES + self.bytes)
    }

    /// Whether these bytes lie in it.
    fn holds(&self, address: u64, bytes: usize) -> bool {
        let end = address.saturating_add(bytes as u64);
        address >= self.address() && end <= self.address() + self.bytes as u64
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.bytes) {
            poison::set(self.start as u64, layout.size(), false);
            // SAFETY: allocated with this layout, and dropped once
            unsafe { dealloc(self.start, layout) }
        }
    }
}

/// When an event was recorded last, and the last of these times that has come.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    recorded: u64,
    came: u64,
}

/// The state of a device.
pub(super) struct Device {
    order: Order,
    seed: u64,
    memory: Vec<Allocation>,
    pinned: Vec<Allocation>,
    allocated: usize,
    peak: usize,
    streams: Vec<Option<VecDeque<Task>>>,
    events: HashMap<u64, Times>,
    handles: u64,
    kernels: Vec<(Arc<Library>, Kernel)>,
    /// The first failure: after it every call that waits fails.
    error: Option<DriverError>,
}

// SAFETY: the addresses that it holds are those of its own allocations
unsafe impl Send for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("allocated", &self.allocated).field("left", &self.left()).finish()
    }
}

impl Device {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            seed: if let Order::Shuffled(seed) = order { seed } else { 0 },
            memory: Vec::new(),
            pinned: Vec::new(),
            allocated: 0,
            peak: 0,
            streams: Vec::new(),
            events: HashMap::new(),
            handles: 0,
            kernels: Vec::new(),
            error: None,
        }
    }

    pub(super) const fn allocated(&self) -> usize {
        self.allocated
    }

    pub(super) const fn peak(&self) -> usize {
        self.peak
    }

    pub(super) fn left(&self) -> [usize; 4] {
        let streams = self.streams.iter().flatten().count();
        [self.memory.len(), self.pinned.len(), streams, self.events.len()]
    }

    pub(super) fn allocate(&mut self, bytes: usize, most: u64) -> Result<Memory, DriverError> {
        let refused = DriverError::OutOfMemory { bytes: bytes as u64 };
        if (self.allocated as u64).saturating_add(bytes as u64) > most {
            return Err(refused);
        }
        let allocation = Allocation::new(bytes).ok_or(refused)?;
        let memory = Memory { address: allocation.address(), bytes };
        self.memory.push(allocation);
        self.allocated += bytes;
        self.peak = self.peak.max(self.allocated);
        Ok(memory)
    }

    pub(super) fn free(&mut self, memory: &Memory) {
        self.run_all();
        let place = self.memory.iter().position(|held| held.address() == memory.address);
        let place = place.expect("memory is given back to the device that gave it");
        let allocation = self.memory.swap_remove(place);
        self.allocated -= allocation.bytes;
        assert!(
            allocation.is_whole(),
            "a kernel or a copy has written beside memory of {} bytes",
            memory.bytes
        );
    }

    pub(super) fn allocate_pinned(&mut self, bytes: usize) -> Result<Pinned, DriverError> {
        let allocation = Allocation::new(bytes).ok_or(DriverError::OutOfMemory { bytes: bytes as u64 })?;
        let pinned = Pinned { address: allocation.address(), bytes };
        self.pinned.push(allocation);
        Ok(pinned)
    }

    pub(super) fn free_pinned(&mut self, pinned: &Pinned) {
        self.run_all();
        let place = self.pinned.iter().position(|held| held.address() == pinned.address);
        let allocation =
            self.pinned.swap_remove(place.expect("memory is given back to the device that gave it"));
        assert!(
            allocation.is_whole(),
            "something has written beside pinned memory of {} bytes",
            pinned.bytes
        );
    }

    pub(super) fn create_stream(&mut self) -> Stream {
        self.streams.push(Some(VecDeque::new()));
        Stream(self.streams.len() as u64 - 1)
    }

    pub(super) fn destroy_stream(&mut self, stream: Stream) {
        self.run_all();
        self.streams[index(stream.0)] = None;
    }

    pub(super) fn create_event(&mut self) -> Event {
        self.handles += 1;
        self.events.insert(self.handles, Times::default());
        Event(self.handles)
    }

    pub(super) fn destroy_event(&mut self, event: Event) {
        self.run_all();
        self.events.remove(&event.0);
    }

    pub(super) fn record(&mut self, event: Event, stream: Stream) -> Result<(), DriverError> {
        let times = self.events.get_mut(&event.0).expect("an event of this device");
        times.recorded += 1;
        let time = times.recorded;
        self.push(stream, Task::Record { event: event.0, time })
    }

    pub(super) fn wait(&mut self, stream: Stream, event: Event) -> Result<(), DriverError> {
        let time = self.events[&event.0].recorded;
        self.push(stream, Task::Wait { event: event.0, time })
    }

    pub(super) fn record_lent(&mut self, event: Event, stream: u64) -> Result<(), DriverError> {
        let Some(stream) = stream.checked_sub(1) else { return Ok(()) };
        let is_there =
            usize::try_from(stream).is_ok_and(|index| self.streams.get(index).is_some_and(Option::is_some));
        if is_there {
            return self.record(event, Stream(stream));
        }
        let message = format!("{:#x} is no stream of this device", stream + 1);
        Err(DriverError::Failed { call: "record an event", message })
    }

    pub(super) fn add_kernel(&mut self, library: Arc<Library>, kernel: Kernel) -> Function {
        self.kernels.push((library, kernel));
        Function(self.kernels.len() as u64 - 1)
    }

    pub(super) fn launch(
        &mut self,
        stream: Stream,
        launch: &Launch,
        args: &[u8],
        order: Order,
    ) -> Result<(), DriverError> {
        let (library, kernel) = self.kernels[index(launch.function.0)].clone();
        let threads: u32 = launch.block.iter().product();
        let is_grid =
            launch.grid.iter().all(|blocks| *blocks > 0) && launch.grid[1..].iter().all(|n| *n < 1 << 16);
        if args.len() != kernel.args_bytes || threads == 0 || threads > kernel.threads || !is_grid {
            let message = format!(
                "{} bytes of arguments of {}, {threads} threads of {}, grid {:?}",
                args.len(),
                kernel.args_bytes,
                kernel.threads,
                launch.grid
            );
            return Err(DriverError::Failed { call: "launch", message });
        }
        let words = args.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(word)
        });
        let order = match order {
            Order::Forward => 0,
            Order::Backward => 1,
            Order::Shuffled(_) => 2,
        };
        let shape = Shape { grid: launch.grid, block: launch.block, order, seed: self.random() };
        self.push(stream, Task::Launch { library, kernel, args: words.collect(), shape })
    }

    pub(super) fn push(&mut self, stream: Stream, task: Task) -> Result<(), DriverError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.streams[index(stream.0)].as_mut().expect("a stream of this device").push_back(task);
        Ok(())
    }

    pub(super) fn synchronise(&mut self, stream: Stream) -> Result<(), DriverError> {
        self.run_until(|device| device.streams[index(stream.0)].as_ref().is_none_or(VecDeque::is_empty))
    }

    pub(super) fn synchronise_event(&mut self, event: Event) -> Result<(), DriverError> {
        let time = self.events[&event.0].recorded;
        self.run_until(|device| device.events[&event.0].came >= time)
    }

    fn run_all(&mut self) {
        // what fails is told to whoever waits
        let _ = self.run_until(|device| device.streams.iter().flatten().all(VecDeque::is_empty));
    }

    /// Runs tasks, one stream after another in the order of the device, until this holds.
    fn run_until(&mut self, holds: impl Fn(&Self) -> bool) -> Result<(), DriverError> {
        while self.error.is_none() && !holds(self) {
            let ready: Vec<usize> = (0..self.streams.len()).filter(|stream| self.is_ready(*stream)).collect();
            let chosen = match self.order {
                Order::Forward => ready.first().copied(),
                Order::Backward => ready.last().copied(),
                Order::Shuffled(_) => {
                    let random = self.random();
                    (!ready.is_empty()).then(|| ready[index(random % ready.len() as u64)])
                }
            };
            let Some(stream) = chosen else {
                self.error = Some(DriverError::Failed {
                    call: "synchronise",
                    message: "streams wait for one another".to_owned(),
                });
                break;
            };
            let task = self.streams[stream].as_mut().and_then(VecDeque::pop_front);
            if let Some(Err(error)) = task.map(|task| self.run(task)) {
                self.error = Some(error);
            }
        }
        match &self.error {
            Some(error) => {
                self.streams.iter_mut().flatten().for_each(VecDeque::clear);
                Err(error.clone())
            }
            None => Ok(()),
        }
    }

    fn is_ready(&self, stream: usize) -> bool {
        match self.streams[stream].as_ref().and_then(VecDeque::front) {
            None => false,
            Some(Task::Wait { event, time }) => {
                self.events.get(event).is_none_or(|times| times.came >= *time)
            }
            Some(_) => true,
        }
    }

    fn run(&mut self, task: Task) -> Result<(), DriverError> {
        match task {
            // SAFETY: who launched it has promised what it reads and writes; nothing else of the device runs meanwhile
            Task::Launch { library, kernel, args, shape } => unsafe { library.run(kernel, &args, &shape) },
            Task::Copy(copy) => self.copy(&copy),
            Task::Fill { address, bytes, byte } => {
                self.check(address, bytes)?;
                // SAFETY: the bytes lie in an allocation
                unsafe { (address as *mut u8).write_bytes(byte, bytes) };
                Ok(())
            }
            Task::Record { event, time } => {
                if let Some(times) = self.events.get_mut(&event) {
                    times.came = times.came.max(time);
                }
                Ok(())
            }
            Task::Wait { .. } => Ok(()),
        }
    }

    fn copy(&self, copy: &Copy) -> Result<(), DriverError> {
        for plane in 0..copy.planes {
            for row in 0..copy.rows {
                let at = |side: &super::super::Rows| {
                    side.address + (plane * side.plane_bytes + row * side.row_bytes) as u64
                };
                let (from, to) = (at(&copy.from), at(&copy.to));
                self.check(from, copy.bytes)?;
                self.check(to, copy.bytes)?;
                // SAFETY: both rows lie in allocations, and who asked for the copy has promised that nobody else touches them
                unsafe { (from as *const u8).copy_to(to as *mut u8, copy.bytes) };
            }
        }
        Ok(())
    }

    /// Whether bytes lie in memory of the device or in pinned memory.
    fn check(&self, address: u64, bytes: usize) -> Result<(), DriverError> {
        let mut all = self.memory.iter().chain(&self.pinned);
        if all.any(|held| held.holds(address, bytes)) {
            return Ok(());
        }
        let message = format!("{bytes} bytes at {address:#x} lie in no memory of the device");
        Err(DriverError::Failed { call: "copy", message })
    }

    /// The generator splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
    const fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn index(handle: u64) -> usize {
    usize::try_from(handle).expect("handles are places in lists")
}
