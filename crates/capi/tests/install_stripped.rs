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

fn has_debug_sections(library: &Path) -> bool {
    let sections = succeed(Command::new("readelf").args(["-S", "-W"]).arg(library));
    text(&sections.stdout).contains(".debug_info")
}

#[test]
fn r07_installed_libraries_are_stripped_and_still_link() {
    let folder = tempfile::tempdir().expect("there is room");
    let [stripped, kept] = ["stripped", "kept"].map(|name| folder.path().join(name));
    install(&stripped, &[]);
    install(&kept, &["--keep-debug"]);
    for (stripped, kept) in libraries(&stripped).iter().zip(&libraries(&kept)) {
        assert!(has_debug_sections(kept), "{}: there is nothing to strip", kept.display());
        assert!(!has_debug_sections(stripped), "{}", stripped.display());
        let bytes = |path: &Path| std::fs::metadata(path).expect("it is installed").len();
        let [least, most] = [stripped, kept].map(|path| bytes(path));
        assert!(least < most, "{}: {least} of {most} bytes are left", stripped.display());
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
