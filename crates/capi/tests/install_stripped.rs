//! Installed libraries carry no debug information, and all that a program links with.

#[expect(dead_code, reason = "programs outside the tree link what is installed")]
mod native;

use std::path::{Path, PathBuf};
use std::process::Command;

use native::{build, root, run, succeed, text};

fn install(prefix: &Path, options: &[&str]) {
    let script = root().join("bindings/install.sh");
    let mut command = Command::new("sh");
    succeed(command.arg(script).arg("--prefix").arg(prefix).arg("--from").arg(build()).args(options));
}

fn libraries(prefix: &Path) -> [PathBuf; 2] {
    ["lib/libtiled.so.0.1.0", "lib/libtiled.a"].map(|name| prefix.join(name))
}

/// The bytes of the sections that have this in their name, in all members of an archive.
fn section_bytes(library: &Path, part: &str) -> u64 {
    let sections = succeed(Command::new("readelf").args(["-S", "-W"]).arg(library));
    // [number] name type address offset size
    let size = |line: &str| {
        let mut words = line.split_once(']')?.1.split_whitespace();
        words.next().filter(|name| name.contains(part))?;
        Some(u64::from_str_radix(words.nth(3)?, 16).expect("a size"))
    };
    text(&sections.stdout).lines().filter_map(size).sum()
}

#[test]
fn r07_installed_libraries_are_stripped_and_still_link() {
    let folder = tempfile::tempdir().expect("there is room");
    let [stripped, kept] = ["stripped", "kept"].map(|name| folder.path().join(name));
    install(&stripped, &[]);
    install(&kept, &["--keep-debug"]);
    for (stripped, kept) in libraries(&stripped).iter().zip(&libraries(&kept)) {
        let debug = section_bytes(kept, ".debug_");
        assert!(debug > 1 << 20, "{}: {debug} bytes to strip", kept.display());
        assert_eq!(section_bytes(stripped, ".debug_"), 0, "{}", stripped.display());
        // all of it is gone from the file, whose tables of names are written anew
        let rest = |path: &Path| {
            std::fs::metadata(path).expect("it is installed").len() - section_bytes(path, "tab")
        };
        let [least, most] = [stripped, kept].map(|path| rest(path));
        assert!(least + debug <= most, "{}: {least} of {most} bytes are left", stripped.display());
    }
    let exported = |prefix: &Path| {
        let library = &libraries(prefix)[0];
        text(&succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library)).stdout)
            .lines()
            .filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert!(exported(&stripped).contains(&"tiled_executor_run".to_owned()));
    assert_eq!(exported(&stripped), exported(&kept), "exported functions differ");

    let unit = |name: &str| root().join("tests/abi").join(name);
    let lib = stripped.join("lib");
    for (name, library) in [("shared", "libtiled.so"), ("static", "libtiled.a")] {
        let program = folder.path().join(name);
        let mut compiler = Command::new("cc");
        compiler.arg("-I").arg(stripped.join("include")).args([unit("unit_a.c"), unit("unit_b.c")]);
        compiler.arg(lib.join(library)).args(["-lgcc_s", "-lpthread", "-lm", "-ldl"]);
        succeed(compiler.arg(format!("-Wl,-rpath,{}", lib.display())).arg("-o").arg(&program));
        run(&program, &[]);
    }
}
