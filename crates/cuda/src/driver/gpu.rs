//! An NVIDIA GPU, by its driver, which is found when it is first called.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::result::{self, DriverError as CudaError, ctx, device, event, stream};
use cudarc::driver::sys;

use tiled_tensor::MemoryDevice;

use super::facts::DRIVER_BYTES;
use super::{Copy, Driver, DriverError, Event, Facts, Function, Launch, Memory, Pinned, Rows, Stream, Way};
use crate::bundle;
use crate::units::{Unit, shared_bytes};

/// A GPU.
#[derive(Debug)]
pub struct Gpu {
    facts: Facts,
    context: Handle<sys::CUcontext>,
    device: sys::CUdevice,
    index: u32,
    made: Mutex<Made>,
}

/// What was made, by the numbers that stand for it: a number that is not here is no handle of the driver.
#[derive(Debug, Default)]
struct Made {
    next: u64,
    memory: HashMap<u64, usize>,
    pinned: HashMap<u64, usize>,
    streams: HashMap<u64, Handle<sys::CUstream>>,
    events: HashMap<u64, Handle<sys::CUevent>>,
    functions: HashMap<u64, (Handle<sys::CUfunction>, u32)>,
    modules: HashMap<&'static str, Handle<sys::CUmodule>>,
}

/// A handle of the driver.
#[derive(Clone, Copy, Debug)]
struct Handle<H>(H);

// SAFETY: handles of the driver may be used from any thread whose current context is theirs, as `Gpu::made` makes it
unsafe impl<H> Send for Handle<H> {}

// SAFETY: the context is only made current, which any thread may do
unsafe impl Sync for Gpu {}

/// The GPUs of this machine.
///
/// # Errors
/// Where there is no driver or no device, or it fails.
pub fn devices() -> Result<Vec<Facts>, DriverError> {
    (0..count()?).map(|index| facts(find(index)?)).collect()
}

fn count() -> Result<u32, DriverError> {
    // cudarc panics where the library is not found
    // SAFETY: it loads the library, whose initialisers are those of the driver
    if !unsafe { sys::is_culib_present() } {
        return Err(DriverError::NoDriver);
    }
    match result::init() {
        Err(CudaError(sys::cudaError_enum::CUDA_ERROR_NO_DEVICE)) => return Err(DriverError::NoDriver),
        other => other.map_err(failed("initialise"))?,
    }
    let count = device::get_count().map_err(failed("count devices"))?;
    Ok(u32::try_from(count).unwrap_or(0))
}

fn find(index: u32) -> Result<sys::CUdevice, DriverError> {
    device::get(c_int::try_from(index).unwrap_or(c_int::MAX)).map_err(failed("find a device"))
}

impl Gpu {
    /// The GPU of this number, from zero.
    ///
    /// # Errors
    /// Where there is no driver or no such GPU, or it fails.
    pub fn new(index: u32) -> Result<Self, DriverError> {
        let count = count()?;
        if index >= count {
            return Err(DriverError::NoDevice { index, count });
        }
        let device = find(index)?;
        let facts = facts(device)?;
        // SAFETY: a device that the driver gave, released when this is dropped
        let context = unsafe { ctx_retain(device) }?;
        Ok(Self { facts, context: Handle(context), device, index, made: Mutex::default() })
    }

    /// What was made, with this device's context current on this thread.
    fn made(&self) -> Result<MutexGuard<'_, Made>, DriverError> {
        self.bind()?;
        Ok(self.made.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn bind(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained
        unsafe { ctx::set_current(self.context.0) }.map_err(failed("use a device"))
    }

    fn stream(&self, stream: Stream) -> Result<sys::CUstream, DriverError> {
        self.made()?.streams.get(&stream.0).map(|handle| handle.0).ok_or_else(|| unknown("stream"))
    }

    fn event(&self, event: Event) -> Result<sys::CUevent, DriverError> {
        self.made()?.events.get(&event.0).map(|handle| handle.0).ok_or_else(|| unknown("event"))
    }
}

unsafe fn ctx_retain(device: sys::CUdevice) -> Result<sys::CUcontext, DriverError> {
    // SAFETY: as the caller promises, a device of the driver
    unsafe { result::primary_ctx::retain(device) }.map_err(failed("open a device"))
}

impl Made {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.bind().is_err() {
            return;
        }
        let made = self.made.get_mut().unwrap_or_else(PoisonError::into_inner);
        for module in made.modules.values() {
            // SAFETY: loaded once, and no kernel of it runs: contexts of runs are gone before their driver
            let _ = unsafe { result::module::unload(module.0) };
        }
        // SAFETY: retained once
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

fn facts(device: sys::CUdevice) -> Result<Facts, DriverError> {
    use sys::CUdevice_attribute_enum as Attribute;
    let attribute = |attribute| {
        // SAFETY: a device of the driver
        let value = unsafe { device::get_attribute(device, attribute) };
        value.map(|value| u32::try_from(value).unwrap_or(0)).map_err(failed("ask a device"))
    };
    let kilohertz = |clock| Ok::<_, DriverError>(f64::from(attribute(clock)?) * 1e3);
    let width_bytes = f64::from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?) / 8.0;
    let [major, minor] = [
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ];
    Ok(Facts {
        name: device::get_name(device).map_err(failed("name a device"))?,
        is_simulated: false,
        capability: [major, minor],
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        clock: kilohertz(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        // two transfers a clock
        memory_bandwidth: 2.0 * kilohertz(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)? * width_bytes,
        host_bandwidth: Facts::link(major),
        // SAFETY: a device of the driver
        memory_bytes: unsafe { device::total_mem(device) }.map_err(failed("ask a device"))? as u64,
        cache_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        driver_bytes: DRIVER_BYTES,
    })
}

/// The error of a call of the driver.
fn failed(call: &'static str) -> impl FnOnce(CudaError) -> DriverError {
    move |error| {
        let said = error
            .error_string()
            .map_or_else(|_| String::new(), |text| format!(": {}", text.to_string_lossy()));
        DriverError::Failed { call, message: format!("CUDA says {:?}{said}", error.0) }
    }
}

/// The same of an allocation.
fn refused(call: &'static str, bytes: usize) -> impl FnOnce(CudaError) -> DriverError {
    move |error| match error {
        CudaError(sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY) => {
            DriverError::OutOfMemory { bytes: bytes as u64 }
        }
        other => failed(call)(other),
    }
}

/// The device whose memory an address lies in; `None` of the host's.
fn memory_device(address: u64) -> Option<sys::CUdevice> {
    use sys::CUpointer_attribute_enum as Attribute;
    let ask = |attribute| {
        let mut value: c_uint = 0;
        // SAFETY: both attributes are of 32 bits, and the driver knows any address or says that it does not
        let asked = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, address) };
        asked.result().ok().map(|()| value)
    };
    let kind = ask(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE)?;
    if kind != sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as c_uint {
        return None;
    }
    c_int::try_from(ask(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?).ok()
}

/// The rows from one plane to the next; `None` where those are no whole number, or too few for a plane.
fn plane_rows(side: &Rows, copy: &Copy) -> Option<usize> {
    if copy.planes == 1 {
        return Some(copy.rows);
    }
    let rows = side.plane_bytes.checked_div(side.row_bytes)?;
    (rows * side.row_bytes == side.plane_bytes && rows >= copy.rows).then_some(rows)
}

fn unknown(what: &'static str) -> DriverError {
    DriverError::Failed { call: "use a handle", message: format!("no {what} of this device") }
}

impl Driver for Gpu {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn device(&self) -> MemoryDevice {
        MemoryDevice { kind: MemoryDevice::CUDA, index: i32::try_from(self.index).unwrap_or(i32::MAX) }
    }

    fn check_lent(&self, address: u64, bytes: usize) -> Result<(), DriverError> {
        self.bind()?;
        // both ends: what lies between them is one allocation, or is mapped as if it were
        for at in [address, address + bytes.saturating_sub(1) as u64] {
            if memory_device(at) != Some(self.device) {
                let message = format!("{bytes} bytes at {address:#x} are no memory of this device");
                return Err(DriverError::Failed { call: "use memory of the caller", message });
            }
        }
        Ok(())
    }

    unsafe fn record_lent(&self, event: Event, stream: u64) -> Result<(), DriverError> {
        let event = self.event(event)?;
        // SAFETY: the event is a handle of this driver, the stream one of the caller, as is promised
        unsafe { event::record(event, stream as sys::CUstream) }.map_err(failed("record an event"))
    }

    // what is for that is a tool of CUDA, which looks at allocations
    fn gap_bytes(&self) -> usize {
        0
    }

    fn set_closed(&self, _address: u64, _bytes: usize, _is_closed: bool) {}

    fn allocate(&self, bytes: usize) -> Result<Memory, DriverError> {
        let mut made = self.made()?;
        // not from the driver's pool, which keeps what is given back
        // SAFETY: nothing is read of it that was not written
        let address = unsafe { result::malloc_sync(bytes) }.map_err(refused("allocate", bytes))?;
        made.memory.insert(address, bytes);
        Ok(Memory { address, bytes })
    }

    fn free(&self, memory: Memory) {
        if let Ok(mut made) = self.made()
            && made.memory.remove(&memory.address).is_some()
        {
            // SAFETY: allocated by this driver and not given back; it waits for what is under way
            let _ = unsafe { result::free_sync(memory.address) };
        }
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<Pinned, DriverError> {
        let mut made = self.made()?;
        // without flags: write-combined memory is many times slower to read
        // SAFETY: it is initialised below
        let start =
            unsafe { result::malloc_host(bytes, 0) }.map_err(refused("allocate pinned memory", bytes))?;
        // SAFETY: just allocated with this size
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        let address = start as u64;
        made.pinned.insert(address, bytes);
        Ok(Pinned { address, bytes })
    }

    fn free_pinned(&self, pinned: Pinned) {
        if let Ok(mut made) = self.made()
            && made.pinned.remove(&pinned.address).is_some()
        {
            // SAFETY: allocated by this driver and not given back
            let _ = unsafe { result::free_host(pinned.address as *mut c_void) };
        }
    }

    fn create_stream(&self) -> Result<Stream, DriverError> {
        let mut made = self.made()?;
        let stream = stream::create(stream::StreamKind::NonBlocking).map_err(failed("create a stream"))?;
        let number = made.number();
        made.streams.insert(number, Handle(stream));
        Ok(Stream(number))
    }

    fn destroy_stream(&self, stream: Stream) {
        if let Ok(mut made) = self.made()
            && let Some(handle) = made.streams.remove(&stream.0)
        {
            // SAFETY: created by this driver and not given back
            unsafe {
                let _ = stream::synchronize(handle.0);
                let _ = stream::destroy(handle.0);
            }
        }
    }

    fn create_event(&self) -> Result<Event, DriverError> {
        let mut made = self.made()?;
        let event =
            event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(failed("create an event"))?;
        let number = made.number();
        made.events.insert(number, Handle(event));
        Ok(Event(number))
    }

    fn destroy_event(&self, event: Event) {
        if let Ok(mut made) = self.made()
            && let Some(handle) = made.events.remove(&event.0)
        {
            // SAFETY: created by this driver and not given back
            let _ = unsafe { event::destroy(handle.0) };
        }
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        let (event, stream) = (self.event(event)?, self.stream(stream)?);
        // SAFETY: both are handles of this driver
        unsafe { event::record(event, stream) }.map_err(failed("record an event"))
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError> {
        let (event, stream) = (self.event(event)?, self.stream(stream)?);
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are handles of this driver
        unsafe { stream::wait_event(stream, event, flags) }.map_err(failed("wait for an event"))
    }

    fn synchronise_event(&self, event: Event) -> Result<(), DriverError> {
        let event = self.event(event)?;
        // SAFETY: a handle of this driver
        unsafe { event::synchronize(event) }.map_err(failed("synchronise an event"))
    }

    fn synchronise(&self, stream: Stream) -> Result<(), DriverError> {
        let stream = self.stream(stream)?;
        // SAFETY: a handle of this driver
        unsafe { stream::synchronize(stream) }.map_err(failed("synchronise a stream"))
    }

    fn function(&self, unit: &'static Unit, name: &str) -> Result<Function, DriverError> {
        let mut made = self.made()?;
        let module = match made.modules.get(unit.name) {
            Some(module) => *module,
            None => {
                let [major, minor] = self.facts.capability;
                let code = bundle::code(unit, &format!("sm_{major}{minor}"))?;
                // SAFETY: machine code as NVRTC gives it
                let module = unsafe { result::module::load_data(code.as_ptr().cast()) };
                let module = Handle(module.map_err(failed("load kernels"))?);
                made.modules.insert(unit.name, module);
                module
            }
        };
        let text = CString::new(name).map_err(|_| unknown("kernel"))?;
        // SAFETY: a module that is loaded
        let function = unsafe { result::module::get_function(module.0, text) };
        let function = function.map_err(failed("find a kernel"))?;
        let shared = shared_bytes(name);
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        if shared > 0 {
            // SAFETY: a kernel of a module that is loaded
            unsafe { result::function::set_function_attribute(function, attribute, shared.cast_signed()) }
                .map_err(failed("give a kernel shared memory"))?;
        }
        let number = made.number();
        made.functions.insert(number, (Handle(function), shared));
        Ok(Function(number))
    }

    unsafe fn launch(&self, stream: Stream, launch: &Launch, args: &[u8]) -> Result<(), DriverError> {
        let stream = self.stream(stream)?;
        let function = self.made()?.functions.get(&launch.function.0).copied();
        let (function, shared) = function.ok_or_else(|| unknown("kernel"))?;
        let [grid, block] =
            [launch.grid, launch.block].map(|[x, y, z]| (x, y, z) as (c_uint, c_uint, c_uint));
        let mut params = [args.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the kernel takes one struct, whose bytes these are, as the caller promises with the rest; the driver copies them
        unsafe { result::launch_kernel(function.0, grid, block, shared, stream, &mut params) }
            .map_err(failed("launch"))
    }

    unsafe fn copy(&self, stream: Stream, copy: &Copy) -> Result<(), DriverError> {
        let stream = self.stream(stream)?;
        if copy.bytes == 0 || copy.rows == 0 || copy.planes == 0 {
            return Ok(());
        }
        // a call takes some microseconds of the host: one for all planes, where they are whole numbers of rows apart
        let heights = [&copy.from, &copy.to].map(|side| plane_rows(side, copy));
        let (planes_each, [from_rows, to_rows]) = match heights {
            [Some(from), Some(to)] => (copy.planes, [from, to]),
            _ => (1, [copy.rows; 2]),
        };
        let host = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        let device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let [from_type, to_type] = match copy.way {
            Way::In => [host, device],
            Way::Out => [device, host],
            Way::Within => [device, device],
        };
        for plane in (0..copy.planes).step_by(planes_each) {
            let [from, to] =
                [&copy.from, &copy.to].map(|side| side.address + (plane * side.plane_bytes) as u64);
            let planes = sys::CUDA_MEMCPY3D {
                srcXInBytes: 0,
                srcY: 0,
                srcZ: 0,
                srcLOD: 0,
                srcMemoryType: from_type,
                srcHost: from as *const c_void,
                srcDevice: from,
                srcArray: std::ptr::null_mut(),
                reserved0: std::ptr::null_mut(),
                srcPitch: copy.from.row_bytes,
                srcHeight: from_rows,
                dstXInBytes: 0,
                dstY: 0,
                dstZ: 0,
                dstLOD: 0,
                dstMemoryType: to_type,
                dstHost: to as *mut c_void,
                dstDevice: to,
                dstArray: std::ptr::null_mut(),
                reserved1: std::ptr::null_mut(),
                dstPitch: copy.to.row_bytes,
                dstHeight: to_rows,
                WidthInBytes: copy.bytes,
                Height: copy.rows,
                Depth: planes_each,
            };
            // SAFETY: the caller promises that the rows lie in memory of their kind that outlives the copy
            unsafe { sys::cuMemcpy3DAsync_v2(&raw const planes, stream) }.result().map_err(failed("copy"))?;
        }
        Ok(())
    }

    unsafe fn fill(&self, stream: Stream, address: u64, bytes: usize, byte: u8) -> Result<(), DriverError> {
        let stream = self.stream(stream)?;
        // SAFETY: the caller promises that the bytes lie in memory of the device
        unsafe { result::memset_d8_async(address, byte, bytes, stream) }.map_err(failed("fill"))
    }
}
