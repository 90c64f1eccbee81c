//! What is installed under a prefix serves projects outside the tree: pkg-config and CMake, shared and static.

#[expect(dead_code, reason = "projects outside the tree compile by themselves")]
mod native;

use std::path::{Path, PathBuf};
use std::process::Command;

use native::{build, has, root, succeed, text};

fn install(prefix: &Path) {
    let script = root().join("bindings/install.sh");
    succeed(Command::new("sh").arg(script).arg("--prefix").arg(prefix).arg("--from").arg(build()));
}

fn project(folder: &Path) -> PathBuf {
    let project = folder.join("project");
    std::fs::create_dir(&project).expect("the folder is ours");
    for name in ["Makefile", "CMakeLists.txt"] {
        let from = root().join("tests/abi/project").join(name);
        std::fs::copy(from, project.join(name)).expect("there is room");
    }
    project
}

fn examples() -> PathBuf {
    root().join("docs/examples").canonicalize().expect("it is in the tree")
}

/// Runs a program without help to find the library, and checks that it printed its result.
fn check(program: &Path) {
    let output = succeed(Command::new(program).env_remove("LD_LIBRARY_PATH"));
    assert!(text(&output.stdout).starts_with("conv_pool "), "{}", text(&output.stdout));
}

#[test]
fn a_prefix_holds_what_a_packager_expects() {
    let folder = tempfile::tempdir().expect("there is room");
    let prefix = folder.path().join("prefix");
    install(&prefix);
    for name in [
        "include/tiled.h",
        "include/tiled.hpp",
        "lib/libtiled.a",
        "lib/libtiled.so",
        "lib/libtiled.so.0",
        "lib/libtiled.so.0.1.0",
        "lib/pkgconfig/tiled.pc",
        "lib/cmake/tiled/tiledConfig.cmake",
        "lib/cmake/tiled/tiledConfigVersion.cmake",
    ] {
        assert!(prefix.join(name).exists(), "{name} is missing");
    }
    let link = std::fs::read_link(prefix.join("lib/libtiled.so.0")).expect("it is a link");
    assert_eq!(link, Path::new("libtiled.so.0.1.0"));
}

#[test]
fn a_makefile_project_finds_it_by_pkg_config() {
    if !has("pkg-config") || !has("make") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let prefix = folder.path().join("prefix");
    install(&prefix);
    let project = project(folder.path());
    let mut make = Command::new("make");
    make.arg(format!("EXAMPLES={}", examples().display())).current_dir(&project);
    succeed(make.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    check(&project.join("shared"));
    check(&project.join("static"));
}

#[test]
fn a_cmake_project_finds_it_by_find_package_also_where_it_was_moved() {
    if !has("cmake") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let (first, prefix) = (folder.path().join("first"), folder.path().join("moved"));
    install(&first);
    std::fs::rename(&first, &prefix).expect("the folder is ours");
    let project = project(folder.path());
    let mut configure = Command::new("cmake");
    configure.args(["-S", ".", "-B", "build"]).current_dir(&project);
    configure.arg(format!("-DEXAMPLES={}", examples().display()));
    succeed(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    succeed(Command::new("cmake").args(["--build", "build"]).current_dir(&project));
    check(&project.join("build/shared"));
    check(&project.join("build/static"));
}
