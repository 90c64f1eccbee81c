//! Random sequences of valid and invalid calls of the C interface: no panic, no write on failure, no handle left.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tiled_capi::oracle::calls(data));
