//! Programs in C and C++ against the library of this build.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The top of the source tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder with `libtiled_capi.so` and `libtiled_capi.a`, beside this test's own program.
pub(crate) fn build() -> PathBuf {
    let program = std::env::current_exe().expect("a test is a program");
    program.parent().expect("it lies in a folder").to_path_buf()
}

/// The shared library.
pub(crate) fn shared_library() -> PathBuf {
    build().join("libtiled_capi.so")
}

/// A language and its standard.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    C11,
    Cpp17,
}

/// Compiles sources to a program, with every warning an error.
pub(crate) fn compile(language: Language, sources: &[PathBuf], flags: &[&str], program: &Path) {
    let (compiler, standard) = match language {
        Language::C11 => ("cc", "-std=c11"),
        Language::Cpp17 => ("c++", "-std=c++17"),
    };
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-D_DEFAULT_SOURCE", "-I"]);
    command.arg(root().join("include")).args(sources);
    if !flags.contains(&"-c") {
        // the SONAME is not the file's name, so the loader looks for a link of that name
        let link = program.with_file_name("libtiled.so.0");
        if !link.exists() {
            std::os::unix::fs::symlink(shared_library(), &link).expect("the folder is ours");
        }
        command.arg(shared_library()).arg("-lpthread");
    }
    command.args(flags).arg("-o").arg(program);
    succeed(&mut command);
}

/// Runs a program that was compiled here, and gives what it printed.
pub(crate) fn run(program: &Path, before: &[&str]) -> String {
    let mut words = before.iter().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
    let mut command = Command::new(words.next().expect("there is a program"));
    command.args(words).env("LD_LIBRARY_PATH", program.parent().expect("it lies in a folder"));
    text(&succeed(&mut command).stdout)
}

/// Runs a command that must succeed.
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

/// Whether a tool is installed; says so where it is not.
pub(crate) fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: `{tool}` is not installed");
    }
    found
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
