//! `include/tiled.h` is what cbindgen writes from this crate.

use std::path::{Path, PathBuf};

/// The nouns, in the order in which a reader of the header wants them; the parts of a noun follow its `mod.rs`.
const SOURCES: [&str; 20] = [
    "version",
    "status",
    "logger",
    "log",
    "allocator",
    "geometry",
    "grid",
    "tensor",
    "dlpack",
    "device",
    "engine",
    "operator/mod",
    "graph",
    "weights",
    "objective",
    "plan",
    "io/mod",
    "executor",
    "pending",
    "trainer",
];

#[test]
fn the_header_equals_a_fresh_generation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = root.join("../../include/tiled.h");
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("it is well-formed");
    config.header = config.header.map(|text| text.trim().to_owned());
    let sources: Vec<PathBuf> =
        SOURCES.iter().map(|name| root.join("src").join(format!("{name}.rs"))).collect();
    let builder = cbindgen::Builder::new().with_config(config);
    let bindings = sources
        .iter()
        .fold(builder, |builder, source| builder.with_src(source))
        .generate()
        .expect("the sources are parsed");
    let mut fresh = Vec::new();
    bindings.write(&mut fresh);
    let fresh = tidy(&String::from_utf8(fresh).expect("it is text"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&header, &fresh).expect("it can be written");
    }
    let committed = std::fs::read_to_string(&header).expect("it is committed");
    assert!(committed == fresh, "include/tiled.h is stale: BLESS=1 cargo test -p tiled-capi --test header");
}

/// What cbindgen leaves of Rust: links of rustdoc and headings of sections.
fn tidy(header: &str) -> String {
    header.replace("* # Safety\n", "* Safety:\n").replace(" \n", "\n")
}
