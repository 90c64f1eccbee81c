//! Random programs of one to forty operations on the tape, with views and changes in place: what is possible and every element as
//! in a model of memory, gradients as differences have them, and the CPU's kernels as the reference.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    tiled_testkit::tape::check_program(data);
});
