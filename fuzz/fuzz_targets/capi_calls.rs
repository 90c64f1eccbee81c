//! Random sequences of valid and invalid calls of the C interface: every call answers with a status that its arguments
//! account for, a failure has a message and writes nothing, callbacks get what the header promises, and handles can be
//! freed in any order.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    tiled_capi_oracle::calls(data);
});
