//! The examples in C, C++ and Rust print the same bits, and the native ones are clean under the sanitizers.

mod native;

use std::path::{Path, PathBuf};
use std::process::Command;

use native::Language::{C11, Cpp17};
use native::{Language, build, compile, has, root, run, succeed, text};

const EXAMPLES: [&str; 4] = ["conv_pool", "stream", "train", "geometry"];

fn source(language: Language, name: &str) -> PathBuf {
    let path = match language {
        C11 => format!("docs/examples/c/{name}.c"),
        Cpp17 => format!("docs/examples/cpp/{name}.cpp"),
    };
    root().join(path)
}

fn native(language: Language, name: &str, flags: &[&str], folder: &Path) -> PathBuf {
    let program = folder.join(format!("{name}_{language:?}"));
    compile(language, &[source(language, name)], flags, &program);
    program
}

#[test]
fn c_cpp_and_rust_examples_print_the_same_bits() {
    let folder = tempfile::tempdir().expect("there is room");
    for name in EXAMPLES {
        // cargo builds the examples of a package with its tests, in the folder beside theirs
        let rust = build().join("../examples").join(name);
        let rust = text(&succeed(&mut Command::new(rust)).stdout);
        let c = run(&native(C11, name, &[], folder.path()), &[]);
        let cpp = run(&native(Cpp17, name, &[], folder.path()), &[]);
        assert!(c.starts_with(name), "{name} prints `{c}`");
        assert_eq!(c, rust, "{name}: C and Rust differ");
        assert_eq!(cpp, rust, "{name}: C++ and Rust differ");
    }
}

#[test]
fn native_examples_are_clean_under_address_and_undefined_sanitizers() {
    let folder = tempfile::tempdir().expect("there is room");
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    for name in EXAMPLES {
        for language in [C11, Cpp17] {
            run(&native(language, name, &flags, folder.path()), &[]);
        }
    }
}

#[test]
fn native_examples_are_clean_under_valgrind() {
    if !has("valgrind") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let valgrind = [
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
    ];
    for name in EXAMPLES {
        for language in [C11, Cpp17] {
            let program = native(language, name, &[], folder.path());
            // valgrind has no AVX-512
            let with_isa = ["env", "TILED_ISA=avx2"].into_iter().chain(valgrind).collect::<Vec<_>>();
            run(&program, &with_isa);
        }
    }
}
