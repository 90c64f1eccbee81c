//! Bytes as a model file: a network or an error, never a panic, and shapes for whatever network comes out.
#![no_main]

mod network;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    network::read(data.to_vec());
});
