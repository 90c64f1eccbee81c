//! The C++ wrapper in programs that mix units with and without exceptions, under a standard that is too old, and where
//! training leaves the finite numbers.

#[expect(dead_code, reason = "these programs are all in C++")]
mod native;

use std::path::PathBuf;
use std::process::Command;

use native::Language::Cpp17;
use native::{compile, has, root, run, text};

fn source(name: &str) -> PathBuf {
    root().join("tests/abi/modes").join(name)
}

#[test]
fn r04_units_with_and_without_exceptions_make_one_program_in_either_order() {
    let folder = tempfile::tempdir().expect("there is room");
    let object = |name: &str, flags: &[&str]| {
        let object = folder.path().join(name).with_extension("o");
        // what is inlined leaves the linker no choice between two bodies; without it every function is one
        compile(Cpp17, &[source(name)], &[&["-c", "-O0"], flags].concat(), &object);
        object
    };
    let main = object("main.cpp", &[]);
    let with = object("with.cpp", &[]);
    let without = object("without.cpp", &["-fno-exceptions"]);
    for (order, units) in [[&with, &without], [&without, &with]].into_iter().enumerate() {
        let program = folder.path().join(format!("program_{order}"));
        let objects = [main.clone(), units[0].clone(), units[1].clone()];
        compile(Cpp17, &objects, &[], &program);
        run(&program, &[]);
    }
}

#[test]
fn r04_the_mode_is_a_namespace_that_code_does_not_name() {
    if !has("nm") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    for (name, flags, mode) in [
        ("with.cpp", &["-c"][..], "tiled::with_exceptions::graph::builtin("),
        ("without.cpp", &["-c", "-fno-exceptions"], "tiled::without_exceptions::graph::builtin("),
    ] {
        let object = folder.path().join(name).with_extension("o");
        compile(Cpp17, &[source(name)], flags, &object);
        let symbols = native::succeed(Command::new("nm").arg("-C").arg(&object));
        assert!(text(&symbols.stdout).contains(mode), "{name} has no `{mode}`");
    }
}

#[test]
fn r04_a_standard_before_17_is_told_in_one_line() {
    for standard in ["-std=c++11", "-std=c++14"] {
        let mut command = Command::new("c++");
        command.args([standard, "-fsyntax-only", "-I"]).arg(root().join("include"));
        let output = command.arg(root().join("tests/abi/wrapper.cpp")).output().expect("there is a compiler");
        assert!(!output.status.success());
        let told = text(&output.stderr);
        let says: Vec<&str> =
            told.lines().filter(|line| line.contains("error: ") && line.contains("C++17")).collect();
        assert_eq!(says.len(), 1, "{told}");
        // the one that says so, and the one with which g++ stops: none for the names that are missing
        assert!(told.lines().filter(|line| line.contains("error: ")).count() <= 2, "{told}");
        assert!(!told.contains("wrapper.cpp:2"), "{told}");
    }
}

#[test]
fn r02_a_step_that_is_not_finite_is_a_status_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("there is room");
    let program = folder.path().join("not_finite");
    compile(Cpp17, &[root().join("tests/abi/not_finite.cpp")], &[], &program);
    run(&program, &[]);
}
