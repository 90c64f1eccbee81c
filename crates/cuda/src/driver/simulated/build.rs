//! Kernels built by a C++ compiler of the host, kept by content.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::super::DriverError;
use crate::cache;
use crate::units::{Unit, shared_bytes};

/// Runs a kernel over its arguments: a function of the library (see `kernels/sim.h`).
type Run = unsafe extern "C" fn(
    kernel: *const c_void,
    args: *const c_void,
    grid: *const u32,
    block: *const u32,
    shared_bytes: u32,
    order: c_int,
    seed: u64,
    message: *mut c_char,
    message_bytes: usize,
) -> c_int;

/// A file of kernels, loaded.
#[derive(Debug)]
pub(super) struct Library {
    handle: *mut c_void,
    run: Run,
}

// SAFETY: a handle of the loader may be used from any thread, and the library keeps its state for each thread by itself.
unsafe impl Send for Library {}
// SAFETY: as above
unsafe impl Sync for Library {}

/// A kernel of a library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    address: *const c_void,
    /// The bytes of its arguments.
    pub(super) args_bytes: usize,
    /// The most threads of a block.
    pub(super) threads: u32,
    /// The shared memory that a launch gives it.
    shared_bytes: u32,
}

// SAFETY: it is an address of code
unsafe impl Send for Kernel {}

/// Threads, blocks and the order that they run in.
pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// As in `kernels/sim.h`: 0 forward, 1 backward, 2 shuffled.
    pub(super) order: c_int,
    pub(super) seed: u64,
}

impl Library {
    /// The library of a file, built where no earlier run has built it. Libraries are shared by all devices of a process.
    pub(super) fn of(unit: &'static Unit) -> Result<Arc<Self>, DriverError> {
        static LOADED: Mutex<Vec<(&'static str, Weak<Library>)>> = Mutex::new(Vec::new());
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let held = loaded.iter().find(|(name, _)| *name == unit.name);
        if let Some(library) = held.and_then(|(_, library)| library.upgrade()) {
            return Ok(library);
        }
        let library = Arc::new(Self::load(&built(unit)?)?);
        loaded.retain(|(name, _)| *name != unit.name);
        loaded.push((unit.name, Arc::downgrade(&library)));
        Ok(library)
    }

    fn load(path: &Path) -> Result<Self, DriverError> {
        let failed = |message: String| DriverError::Failed { call: "load a library of kernels", message };
        let text = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| failed(format!("{} has a zero byte", path.display())))?;
        // SAFETY: the path is a string that ends; the library's initialisers do nothing
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure `dlerror` gives a string or nothing
            let reason = unsafe { libc::dlerror().as_ref().map(|reason| CStr::from_ptr(reason)) };
            return Err(failed(reason.map_or_else(String::new, |text| text.to_string_lossy().into_owned())));
        }
        // SAFETY: a handle that is open, and a string that ends
        let run = unsafe { libc::dlsym(handle, c"tiled_sim_launch".as_ptr()) };
        if run.is_null() {
            return Err(failed("no function `tiled_sim_launch`".to_owned()));
        }
        // SAFETY: the function of this name has this signature
        let run = unsafe { std::mem::transmute::<*mut c_void, Run>(run) };
        Ok(Self { handle, run })
    }

    /// A kernel by its name.
    pub(super) fn kernel(&self, name: &str) -> Result<Kernel, DriverError> {
        let symbol = |name: String| {
            let text = CString::new(name.clone()).unwrap_or_default();
            // SAFETY: a handle that is open, and a string that ends
            let address = unsafe { libc::dlsym(self.handle, text.as_ptr()) };
            let missing = DriverError::Failed { call: "find a kernel", message: format!("no `{name}`") };
            if address.is_null() { Err(missing) } else { Ok(address.cast_const()) }
        };
        let number = |name: String| {
            // SAFETY: symbols of these names are constants of this type
            symbol(name).map(|address| unsafe { address.cast::<u32>().read() })
        };
        Ok(Kernel {
            address: symbol(name.to_owned())?,
            args_bytes: number(format!("{name}_args_bytes"))? as usize,
            threads: number(format!("{name}_threads"))?,
            shared_bytes: shared_bytes(name),
        })
    }

    /// Runs a kernel of this library.
    ///
    /// # Safety
    /// - `args` are the bytes of the struct that the kernel takes, aligned to 8 bytes.
    /// - What it reads and writes by them is memory of the process that nothing else touches.
    pub(super) unsafe fn run(&self, kernel: Kernel, args: &[u64], shape: &Shape) -> Result<(), DriverError> {
        let mut message: [c_char; 512] = [0; 512];
        // SAFETY: the kernel is one of this library, as the caller promises the rest; the message ends within its bytes
        let status = unsafe {
            (self.run)(
                kernel.address,
                args.as_ptr().cast(),
                shape.grid.as_ptr(),
                shape.block.as_ptr(),
                kernel.shared_bytes,
                shape.order,
                shape.seed,
                message.as_mut_ptr(),
                message.len(),
            )
        };
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library writes a string that ends
        let message = unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned();
        Err(DriverError::Failed { call: "run a kernel", message })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: opened once, and no kernel of it runs any more
        unsafe { libc::dlclose(self.handle) };
    }
}

/// The compiler, and what it is called with.
///
/// # Errors
/// Where it cannot be run.
pub(super) fn compiler() -> Result<&'static Compiler, DriverError> {
    static COMPILER: OnceLock<Option<Compiler>> = OnceLock::new();
    let found = COMPILER.get_or_init(|| {
        let name = env::var("TILED_CUDA_SIM_CXX").unwrap_or_else(|_| "g++".to_owned());
        let version = Command::new(&name).arg("--version").output().ok()?;
        version.status.success().then(|| Compiler::new(name, &version.stdout))
    });
    found.as_ref().ok_or_else(|| DriverError::Failed {
        call: "find a C++ compiler",
        message: "g++, or what TILED_CUDA_SIM_CXX names, does not run".to_owned(),
    })
}

#[derive(Debug)]
pub(super) struct Compiler {
    name: String,
    version: Vec<u8>,
    flags: Vec<String>,
}

impl Compiler {
    fn new(name: String, version: &[u8]) -> Self {
        // no contraction: a multiply-add is one where it is written
        let mut flags: Vec<String> =
            "-std=c++17 -O1 -ffp-contract=off -fno-gnu-unique -fPIC -shared -w -DTILED_SIM -x c++"
                .split(' ')
                .map(str::to_owned)
                .collect();
        // without the instruction a multiply-add is a call of the C library, as exact and slower
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("fma") {
            flags.push("-mfma".to_owned());
        }
        let more = env::var("TILED_CUDA_SIM_FLAGS").unwrap_or_default();
        flags.extend(more.split_whitespace().map(str::to_owned));
        Self { name, version: version.to_vec(), flags }
    }
}

/// The library of a file, built where the folder of kernels has none of this content.
fn built(unit: &Unit) -> Result<PathBuf, DriverError> {
    let (compiler, text) = (compiler()?, unit.text());
    let mut key = compiler.version.clone();
    key.extend(compiler.flags.join(" ").as_bytes());
    key.extend(text.as_bytes());
    let folder = cache::folder("cuda-sim");
    let path = folder.join(format!("{}-{:032x}.so", unit.name, cache::hash(&key)));
    if path.exists() {
        return Ok(path);
    }
    let failed = |message: String| DriverError::Failed { call: "build kernels", message };
    fs::create_dir_all(&folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    // under a name of its own until it is whole
    let own = cache::own_name(&path);
    let source = own.with_extension("cpp");
    fs::write(&source, text).map_err(|error| failed(format!("{}: {error}", source.display())))?;
    let output = Command::new(&compiler.name).args(&compiler.flags).arg("-o").arg(&own).arg(&source).output();
    let _ = fs::remove_file(&source);
    let output = output.map_err(|error| failed(format!("{}: {error}", compiler.name)))?;
    if !output.status.success() {
        let mut message = format!("{} of {}:\n", compiler.name, unit.name);
        let _ = write!(message, "{}", String::from_utf8_lossy(&output.stderr));
        return Err(failed(message));
    }
    fs::rename(&own, &path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
    Ok(path)
}
