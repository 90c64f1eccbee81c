//! Memory that the caller's allocator refuses.

#[expect(dead_code, reason = "what the programs of other tests need")]
mod native;

use std::path::PathBuf;

use native::Language::C11;
use native::{compile, root, run};

fn source(name: &str) -> PathBuf {
    root().join("tests/abi").join(name)
}

#[test]
fn r09_every_refused_call_is_a_status_and_nothing_is_lost() {
    let folder = tempfile::tempdir().expect("there is room");
    let program = folder.path().join("refused");
    compile(C11, &[source("refused.c")], &[], &program);
    eprint!("{}", run(&program, &[]));
}

#[test]
fn r09_refusals_are_clean_under_address_and_undefined_sanitizers() {
    let folder = tempfile::tempdir().expect("there is room");
    let program = folder.path().join("sanitized");
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DDOUBLE_ALONE"];
    compile(C11, &[source("refused.c")], &flags, &program);
    run(&program, &[]);
}

#[test]
fn r05_what_a_parent_made_can_be_freed_after_a_fork() {
    let folder = tempfile::tempdir().expect("there is room");
    let program = folder.path().join("forked");
    compile(C11, &[source("forked.c")], &[], &program);
    run(&program, &[]);
}
