//! Kernels as machine code of a GPU, by NVRTC: on any machine that has its library, with a GPU or without.

use std::ffi::{CString, c_char};
use std::fs;

use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys;

use crate::cache;
use crate::driver::DriverError;
use crate::units::Unit;

/// Machine code, and what the compiler says of it.
#[derive(Clone, Debug)]
pub struct Built {
    /// The code: a cubin.
    pub code: Vec<u8>,
    /// Warnings, and the registers and spills of each kernel.
    pub log: String,
}

/// What a kernel takes of a multiprocessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Its name.
    pub kernel: String,
    /// The registers of a thread.
    pub registers: u32,
    /// The bytes that threads spill: stores and loads.
    pub spilled: [u32; 2],
}

/// What every kernel is built with. No contraction: a multiply-add is one where it is written.
const OPTIONS: [&str; 4] =
    ["--std=c++17", "--fmad=false", "--ptxas-options=-v", "--device-as-default-execution-space"];

/// Builds a file of kernels for an architecture, as `sm_90`.
///
/// # Errors
/// Where NVRTC is not found, or refuses the source; with its log.
pub fn build(unit: &Unit, architecture: &str) -> Result<Built, DriverError> {
    let failed = |message: String| DriverError::Failed { call: "build kernels", message };
    // cudarc panics where the library is not found
    // SAFETY: it loads the library, whose initialisers are those of NVRTC
    if !unsafe { sys::is_culib_present() } {
        return Err(failed("no NVRTC library".to_owned()));
    }
    let text = CString::new(unit.text()).map_err(|_| failed(format!("{} holds a zero byte", unit.name)))?;
    let said = |error: NvrtcError| failed(format!("{}: NVRTC says {:?}", unit.name, error.0));
    let program = Program(result::create_program(&text, None).map_err(said)?);
    let mut options = OPTIONS.map(str::to_owned).to_vec();
    options.push(format!("--gpu-architecture={architecture}"));
    // SAFETY: the program was created and is destroyed when it is dropped; so in what follows
    let compiled = unsafe { result::compile_program(program.0, &options) };
    // SAFETY: as above
    let log = unsafe { result::get_program_log(program.0) }.map_err(said)?;
    let log = text_of(&log);
    if let Err(error) = compiled {
        return Err(failed(format!("{} for {architecture}: {:?}\n{log}", unit.name, error.0)));
    }
    let mut bytes = 0;
    // SAFETY: as above
    unsafe { sys::nvrtcGetCUBINSize(program.0, &raw mut bytes) }.result().map_err(said)?;
    let mut code = vec![0_u8; bytes];
    // SAFETY: as above, and the code has this size
    unsafe { sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()) }.result().map_err(said)?;
    Ok(Built { code, log })
}

/// What machine code depends on, as a hash: source, options and architecture.
pub(crate) fn key(unit: &Unit, architecture: &str) -> u128 {
    let key = [unit.text().as_str(), architecture, &OPTIONS.join(" ")].join("\n");
    cache::hash(key.as_bytes())
}

/// The same from the folder of kernels, where an earlier run has built it.
///
/// # Errors
/// As [`build`].
pub(crate) fn cached(unit: &Unit, architecture: &str) -> Result<Vec<u8>, DriverError> {
    let folder = cache::folder("cuda");
    let path = folder.join(format!("{}-{architecture}-{:032x}.cubin", unit.name, key(unit, architecture)));
    if let Some(code) = cache::read(&path) {
        return Ok(code);
    }
    let code = build(unit, architecture)?.code;
    // a folder that cannot be written to costs the next run the time to build again, no more
    let _ = fs::create_dir_all(&folder).and_then(|()| cache::write(&path, &code));
    Ok(code)
}

impl Built {
    /// What each kernel takes, as the log says.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        let mut all: Vec<Usage> = Vec::new();
        for line in self.log.lines() {
            if let Some(name) = between(line, "Compiling entry function '", "'") {
                all.push(Usage { kernel: name.to_owned(), registers: 0, spilled: [0; 2] });
            }
            let Some(last) = all.last_mut() else { continue };
            let number =
                |before: &str, after: &str| between(line, before, after).and_then(|text| text.parse().ok());
            if let Some(registers) = number("Used ", " registers") {
                last.registers = registers;
            }
            // functions of their own are listed behind the kernel that calls them
            if let Some(stores) = number("stack frame, ", " bytes spill stores") {
                last.spilled[0] += stores;
            }
            if let Some(loads) = number("spill stores, ", " bytes spill loads") {
                last.spilled[1] += loads;
            }
        }
        all
    }
}

fn between<'t>(line: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let rest = &line[line.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}

fn text_of(chars: &[c_char]) -> String {
    let bytes: Vec<u8> =
        chars.iter().map(|char| char.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A program of NVRTC.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_and_spills_are_read_from_the_log() {
        let log = "ptxas info    : Compiling entry function 'first' for 'sm_90'\n\
                   ptxas info    : Function properties for first\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   ptxas info    : Used 128 registers, used 1 barriers, 24576 bytes smem\n\
                   ptxas info    : Compiling entry function 'second' for 'sm_90'\n\
                   \x20   40 bytes stack frame, 36 bytes spill stores, 44 bytes spill loads\n\
                   ptxas info    : Used 80 registers, used 0 barriers";
        let usage = Built { code: Vec::new(), log: log.to_owned() }.usage();
        let expected = [("first", 128, [0, 0]), ("second", 80, [36, 44])];
        let found: Vec<_> =
            usage.iter().map(|usage| (&*usage.kernel, usage.registers, usage.spilled)).collect();
        assert_eq!(found, expected);
    }
}
