//! Engines: a backend, its threads and the memory that single operators work in.

use std::ffi::c_char;
use std::sync::{Arc, OnceLock};

use tiled::cpu::{CpuBackend, Isa};
use tiled::device::{Device, DeviceBackend};
use tiled::exec::Pool;
use tiled::kernel::{Backend, Reference};
use tiled::ops::{DEFAULT_BYTES, Options};
use tiled::tensor::Element;

use crate::device;
use crate::guard::guard;
use crate::handle::{self, Opaque};
use crate::logger;
use crate::pointer::{Extensible, Output, TextOutput, extensible_or_initial, text, write_extensible};
use crate::status::{Failure, Fallible, TILED_STATUS_OUT_OF_MEMORY, tiled_status};

/// A backend, its threads, and what is kept of single operators for calls of the same shapes: plan and memory of the last call, and of others
/// while all of them hold at most 64 MiB.
///
/// A call that changes it (every operator) has it alone: have one engine per thread. Planning and making executors only
/// read it. A process that was forked has none of its threads: make engines and executors after `fork`.
#[derive(Debug)]
pub struct tiled_engine {
    _opaque: (),
}

impl Opaque for tiled_engine {
    type Object = Engine;
    const KIND: usize = 2;
    const NAME: &'static str = "engine";
}

/// What an engine is to be.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_engine_options {
    /// The size of the struct, as `tiled_engine_options_init` sets it.
    pub struct_size: u32,
    /// The threads, 1 to 1024; 0 for one per core. Calls with little to do stay on the thread of the caller.
    pub threads: u32,
    /// `"avx512"`, `"avx2"`, `"portable"`, or `"reference"` for the naive oracle; NULL for the best that this CPU has
    /// (or what the environment variable `TILED_ISA` names). Read during the call.
    pub isa: *const c_char,
    /// `"cpu"`, `"cuda"` or `"cuda:N"` for an NVIDIA GPU, `"cuda-sim"` or `"cuda-sim:MODEL"` for one that this machine
    /// simulates, as `tiled_device_name` lists them, with `+tf32` or `+f32x3` after it for tensor cores; NULL for the CPU. An `isa` is the
    /// CPU's alone. Read during the call.
    pub device: *const c_char,
}

// SAFETY: repr(C), the size first, and integers and pointers, which take any bits
unsafe impl Extensible for tiled_engine_options {
    const NAME: &'static str = "tiled_engine_options";
    const FIRST_SIZE: usize = std::mem::offset_of!(Self, device);

    fn initial() -> Self {
        let (isa, device) = (std::ptr::null(), std::ptr::null());
        Self { struct_size: crate::size_of_u32::<Self>(), threads: 0, isa, device }
    }
}

/// Sets every field to its default: the CPU, a thread per core, the best instruction set.
/// `struct_size` is `sizeof(tiled_engine_options)`.
///
/// # Safety
/// `options` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_engine_options_init(
    options: *mut tiled_engine_options,
    struct_size: u32,
) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(options, struct_size, "options", &tiled_engine_options::initial()) })
}

/// Makes an engine; `options` may be NULL for the defaults.
///
/// A device that is not there is `TILED_STATUS_NO_DEVICE`, one of a kind that this build was made without `TILED_STATUS_LEFT_OUT`, and a
/// name of none `TILED_STATUS_NOT_FOUND`. What is opened of a GPU stays open as long as the program runs.
///
/// The handle is the caller's, to be freed with `tiled_engine_free`. On failure `engine` is untouched. Threads: any.
///
/// # Safety
/// `options` is NULL or a struct with its size set; `engine` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_engine_new(
    options: *const tiled_engine_options,
    engine: *mut *mut tiled_engine,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (options, engine) =
            unsafe { (extensible_or_initial(options, "options")?, Output::new(engine, "engine")?) };
        let given = |name: *const c_char, what| {
            if name.is_null() {
                return Ok(None);
            }
            // SAFETY: the caller's promise
            unsafe { text(name, what) }.map(Some)
        };
        let (isa, device) = (given(options.isa, "isa")?, given(options.device, "device")?);
        let made = Engine::new(Choice::new(isa, device)?, options.threads)?;
        logger::info(|| format!("engine {} with {} threads", made.name(), made.threads()));
        engine.set(handle::insert(made)?);
        Ok(())
    })
}

/// The name of the backend with its instruction set or its GPU, as `"cpu-avx512"`: UTF-8, ended by a NUL.
///
/// With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
/// Threads: any.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_engine_name(
    engine: *const tiled_engine,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let output = unsafe { TextOutput::new(buffer, capacity, length)? };
        handle::shared(engine, "engine", |engine| output.set(&engine.name()))
    })
}

/// The number of threads. On failure `threads` is untouched. Threads: any.
///
/// # Safety
/// `threads` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_engine_threads(
    engine: *const tiled_engine,
    threads: *mut u32,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let threads = unsafe { Output::new(threads, "threads")? };
        handle::shared(engine, "engine", |engine| {
            threads.set(u32::try_from(engine.threads()).unwrap_or(u32::MAX));
            Ok(())
        })
    })
}

/// Frees an engine; NULL does nothing. Plans and executors made with it stay. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_engine_free(engine: *mut tiled_engine) -> tiled_status {
    guard(|| handle::free(engine, "engine"))
}

/// A backend, its threads and what calls of single operators left for the next ones.
#[derive(Debug)]
pub struct Engine {
    choice: Choice,
    threads: usize,
    single: tiled::ops::Engine<'static, f32>,
    double: tiled::ops::Engine<'static, f64>,
}

/// What carries out the work of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    Reference,
    Cpu(Isa),
    Device(&'static DeviceBackend),
}

impl Choice {
    /// What these names say, where NULL is none.
    pub(crate) fn new(isa: Option<&str>, device: Option<&str>) -> Fallible<Self> {
        let device = device.map_or(Ok(Device::Cpu), str::parse)?;
        if device != Device::Cpu {
            return match isa {
                None => Ok(Self::Device(device::backend(device)?)),
                Some(isa) => {
                    Err(Failure::invalid(format!("isa is `{isa}`, and device `{device}` has no such sets")))
                }
            };
        }
        Ok(match isa {
            Some("reference") => Self::Reference,
            Some(name) => Self::Cpu(CpuBackend::with_isa(name.parse()?)?.isa()),
            None => Self::Cpu(CpuBackend::new()?.isa()),
        })
    }

    /// The backend, which lives as long as the program: executors refer to it.
    fn backend<T: Element>(self) -> &'static dyn Backend<T> {
        match self {
            Self::Reference => &Reference,
            Self::Cpu(isa) => cpu(isa),
            Self::Device(device) => device,
        }
    }
}

impl Engine {
    /// An engine with so many threads; 0 for one per core.
    pub(crate) fn new(choice: Choice, threads: u32) -> Fallible<Self> {
        if threads > MAX_THREADS {
            return Err(Failure::range(format!("threads is {threads}, must be at most {MAX_THREADS}")));
        }
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads as usize,
        };
        let pool = Pool::new(threads).map_err(|error| {
            Failure::new(TILED_STATUS_OUT_OF_MEMORY, format!("cannot start threads: {error}"))
        })?;
        let pool = Arc::new(pool);
        let single = tiled::ops::Engine::with_pool(choice.backend(), Arc::clone(&pool));
        let double = tiled::ops::Engine::with_pool(choice.backend(), pool);
        Ok(Self { choice, threads, single, double })
    }

    pub(crate) fn name(&self) -> String {
        <f32 as Real>::backend(self).name()
    }

    pub(crate) const fn threads(&self) -> usize {
        self.threads
    }

    /// The bytes that a run may take: what the caller says, else what its device has; `None` for what this machine has.
    pub(crate) fn budget(&self, memory_bytes: Option<u64>) -> Fallible<Option<u64>> {
        let Choice::Device(device) = self.choice else { return Ok(memory_bytes) };
        device.check_budget(memory_bytes)?;
        Ok(memory_bytes.or(device.memory_bytes()))
    }
}

/// An element type that engines compute with.
pub(crate) trait Real: Element {
    /// The backend, which lives as long as the program: executors refer to it.
    fn backend(engine: &Engine) -> &'static dyn Backend<Self> {
        engine.choice.backend()
    }

    /// The single operators, for a call with these options: what is kept of the other element type counts with this one's.
    fn operators<'e>(engine: &'e mut Engine, options: &Options) -> &'e mut tiled::ops::Engine<'static, Self>;
}

impl Real for f32 {
    fn operators<'e>(engine: &'e mut Engine, options: &Options) -> &'e mut tiled::ops::Engine<'static, Self> {
        engine.double.keep_at_most(beside(engine.single.kept_bytes(), options));
        &mut engine.single
    }
}

impl Real for f64 {
    fn operators<'e>(engine: &'e mut Engine, options: &Options) -> &'e mut tiled::ops::Engine<'static, Self> {
        engine.single.keep_at_most(beside(engine.double.kept_bytes(), options));
        &mut engine.double
    }
}

/// The bytes that may be kept beside so many, and beside a call that has a budget of its own.
fn beside(kept: u64, options: &Options) -> u64 {
    options.memory_bytes.map_or(DEFAULT_BYTES.saturating_sub(kept), |_| 0)
}

/// The backend of an instruction set that this CPU has, made once.
fn cpu(isa: Isa) -> &'static CpuBackend {
    static BACKENDS: [OnceLock<CpuBackend>; Isa::ALL.len()] = [const { OnceLock::new() }; Isa::ALL.len()];
    let place = Isa::ALL.iter().position(|known| *known == isa).unwrap_or(0);
    BACKENDS[place].get_or_init(|| {
        CpuBackend::with_isa(isa).expect("invariant: the engine has checked the instruction set")
    })
}

const MAX_THREADS: u32 = 1024;
