//! The crates depend on each other in the directions of `docs/src/architecture.md`, and no others.
//!
//! ```text
//!   geometry ← tensor ← kernel ← cpu, cuda, graph
//!   graph ← onnx, explain, exec;   exec ← ops, autograd
//!   explain + exec + ops + autograd + cpu + [cuda] + [onnx] ← tiled ← verify, capi, cli, python
//!   verify ← cli;   capi ← capi-oracle                  testkit, capi-oracle: tests alone
//! ```
#![cfg(feature = "networks")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What each crate may depend on; a crate that is not here is not part of the architecture.
const DIRECTIONS: &[(&str, &[&str])] = &[
    ("tiled-geometry", &[]),
    ("tiled-tensor", &["tiled-geometry"]),
    ("tiled-kernel", &["tiled-geometry", "tiled-tensor"]),
    ("tiled-cpu", KERNELS),
    ("tiled-cuda", KERNELS),
    ("tiled-graph", KERNELS),
    ("tiled-onnx", &["tiled-tensor", "tiled-graph"]),
    ("tiled-explain", &["tiled-geometry", "tiled-tensor", "tiled-kernel", "tiled-graph"]),
    ("tiled-autograd", &["tiled-tensor", "tiled-kernel", "tiled-graph", "tiled-exec"]),
    ("tiled-exec", &["tiled-geometry", "tiled-tensor", "tiled-kernel", "tiled-graph"]),
    ("tiled-ops", &["tiled-geometry", "tiled-tensor", "tiled-kernel", "tiled-graph", "tiled-exec"]),
    ("tiled", EVERYTHING_BELOW),
    ("tiled-verify", &["tiled"]),
    ("tiled-capi", &["tiled"]),
    ("tiled-capi-oracle", &["tiled-capi"]),
    ("tiled-cli", &["tiled", "tiled-verify"]),
    ("tiled-python", &["tiled"]),
    ("tiled-testkit", EVERYTHING_BELOW),
    ("tiled-tests", &["tiled"]),
];

const KERNELS: &[&str] = &["tiled-geometry", "tiled-tensor", "tiled-kernel"];

const EVERYTHING_BELOW: &[&str] = &[
    "tiled-geometry",
    "tiled-tensor",
    "tiled-kernel",
    "tiled-cpu",
    "tiled-cuda",
    "tiled-graph",
    "tiled-onnx",
    "tiled-explain",
    "tiled-autograd",
    "tiled-exec",
    "tiled-ops",
];

/// The crates that may hold unsafe code.
const UNSAFE: &[&str] =
    &["tiled-tensor", "tiled-cpu", "tiled-cuda", "tiled-capi", "tiled-capi-oracle", "tiled-python"];

struct Package {
    manifest: PathBuf,
    roots: Vec<PathBuf>,
    /// Names of normal and build dependencies.
    dependencies: BTreeSet<String>,
    dev_dependencies: BTreeSet<String>,
}

fn workspace() -> BTreeMap<String, Package> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    list(&metadata, "packages").iter().map(|package| (text(package, "name"), read(package))).collect()
}

fn read(package: &Value) -> Package {
    let is_root = |target: &&Value| {
        let kinds = list(target, "kind");
        kinds.iter().any(|kind| ["lib", "bin", "cdylib", "rlib"].contains(&kind.as_str().unwrap_or("")))
    };
    let names = |is_dev: bool| {
        list(package, "dependencies")
            .iter()
            .filter(|dependency| (dependency["kind"].as_str() == Some("dev")) == is_dev)
            .map(|dependency| text(dependency, "name"))
            .collect()
    };
    Package {
        manifest: PathBuf::from(text(package, "manifest_path")),
        roots: list(package, "targets")
            .iter()
            .filter(is_root)
            .map(|target| PathBuf::from(text(target, "src_path")))
            .collect(),
        dependencies: names(false),
        dev_dependencies: names(true),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("metadata has a list `{key}`"))
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("metadata has a text `{key}`")).to_owned()
}

#[test]
fn crates_depend_in_the_directions_of_the_architecture() {
    let directions: BTreeMap<&str, &[&str]> = DIRECTIONS.iter().copied().collect();
    let packages = workspace();
    let mut arrows = 0;
    for (name, package) in &packages {
        let allowed = directions
            .get(name.as_str())
            .unwrap_or_else(|| panic!("`{name}` has no place in the architecture"));
        for dependency in package.dependencies.iter().filter(|other| packages.contains_key(*other)) {
            assert!(allowed.contains(&dependency.as_str()), "`{name}` must not depend on `{dependency}`");
            arrows += 1;
        }
    }
    assert!(arrows >= 15, "only {arrows} dependencies between crates were seen");
}

#[test]
fn the_test_kit_reaches_nothing_but_tests() {
    for (name, package) in workspace() {
        assert!(!package.dependencies.contains("tiled-testkit"), "`{name}` ships the test kit");
    }
}

#[test]
fn tests_reach_no_crate_above_their_own_but_the_test_kit() {
    // a cycle through dev-dependencies builds a crate twice, and its types are then two types
    let packages = workspace();
    for (name, package) in &packages {
        for dependency in package.dev_dependencies.iter().filter(|other| packages.contains_key(*other)) {
            let is_cycle = packages[dependency].dependencies.contains(name) && dependency != "tiled-testkit";
            assert!(!is_cycle, "tests of `{name}` depend on `{dependency}`, which depends on it");
        }
    }
}

#[test]
fn the_geometry_depends_on_nothing() {
    let packages = workspace();
    let dependencies = &packages["tiled-geometry"].dependencies;
    assert!(dependencies.is_empty(), "{dependencies:?}");
}

#[test]
fn unsafe_code_is_forbidden_where_it_has_no_place() {
    for (name, package) in workspace() {
        for root in &package.roots {
            let source = std::fs::read_to_string(root).expect("the root of a crate is readable");
            let forbids = source.contains("#![forbid(unsafe_code)]");
            let may_be_unsafe = UNSAFE.contains(&name.as_str());
            assert!(forbids != may_be_unsafe, "`{name}`, {}: forbids unsafe: {forbids}", root.display());
        }
    }
}

#[test]
fn every_crate_takes_the_lints_and_the_licence_of_the_workspace() {
    for (name, package) in workspace() {
        let manifest = std::fs::read_to_string(&package.manifest).expect("a manifest is readable");
        assert!(manifest.contains("[lints]\nworkspace = true"), "`{name}` has lints of its own");
        assert!(manifest.contains("license.workspace = true"), "`{name}` has a licence of its own");
    }
}
