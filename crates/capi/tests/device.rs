//! Devices and tensors on them, from C and C++.

#[expect(dead_code, reason = "what the programs of other tests need")]
mod native;

use std::path::PathBuf;

use native::Language::{C11, Cpp17};
use native::{compile, root, run};

fn source(name: &str) -> PathBuf {
    root().join("tests/abi").join(name)
}

#[test]
fn tensors_on_a_simulated_gpu_are_read_and_written_from_c_and_through_the_wrapper() {
    let folder = tempfile::tempdir().expect("there is room");
    for (language, name) in [(C11, "device.c"), (Cpp17, "device.cpp")] {
        let program = folder.path().join("device");
        compile(language, &[source(name)], &[], &program);
        eprint!("{}", run(&program, &[]));
    }
}
