//! The files of a crate know each other in one direction: no circle of imports, so that each can be read with what stands below it.
//!
//! A `use` of something in a file is an arrow to it. What a module re-exports of its children is no knowledge of them.
#![cfg(feature = "networks")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A module by the names from the root of its crate.
type Module = Vec<String>;

/// The source files below a folder by their modules; tests in files of their own are left out.
fn modules(folder: &Path, of: &[String], found: &mut BTreeMap<Module, PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources is readable") {
        let path = entry.expect("an entry is readable").path();
        let stem = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        let name = match stem.as_str() {
            "lib" | "main" if of.is_empty() => None,
            "mod" => None,
            "tests" => continue,
            _ => Some(stem),
        };
        let module: Module = of.iter().cloned().chain(name).collect();
        if path.is_dir() {
            modules(&path, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(module, path);
        }
    }
}

/// The paths that a file imports, tests at its end left out.
fn imports(source: &str) -> Vec<Vec<String>> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String =
        source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    let mut rest = code.as_str();
    while let Some(at) = rest.find("use ") {
        let line = rest[..at].rsplit('\n').next().unwrap_or_default().trim();
        rest = &rest[at + 4..];
        let is_import = line.is_empty() || line == "pub" || line.starts_with("pub(");
        if let (true, Some(end)) = (is_import, rest.find(';')) {
            expand(&[], &rest[..end], &mut found);
        }
    }
    found
}

/// Takes the braces of an import apart.
fn expand(before: &[String], tree: &str, found: &mut Vec<Vec<String>>) {
    let names = |path: &str| -> Vec<String> {
        let path = path.split(" as ").next().unwrap_or_default();
        path.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
    };
    let Some((path, list)) = tree.split_once('{') else {
        found.push(before.iter().cloned().chain(names(tree)).collect());
        return;
    };
    let before: Vec<String> = before.iter().cloned().chain(names(path)).collect();
    let list = list.trim_end().trim_end_matches('}');
    let (mut depth, mut begin) = (0, 0);
    for (at, character) in list.char_indices().chain([(list.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !list[begin..at].trim().is_empty() {
                    expand(&before, &list[begin..at], found);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// The module whose file an import of another names something of.
fn resolved(own: &Module, import: &[String], all: &BTreeMap<Module, PathBuf>) -> Option<Module> {
    let (first, rest) = import.split_first()?;
    let mut path = match first.as_str() {
        "crate" => Module::new(),
        "self" => own.clone(),
        "super" => own[..own.len() - 1].to_vec(),
        child => own.iter().cloned().chain([child.to_owned()]).collect(),
    };
    if !["crate", "self", "super"].contains(&first.as_str()) && !all.contains_key(&path) {
        return None; // of another crate
    }
    for name in rest {
        match name.as_str() {
            "super" => drop(path.pop()),
            name => path.push(name.to_owned()),
        }
    }
    while !all.contains_key(&path) {
        path.pop()?;
    }
    Some(path)
}

/// A file from which a way leads back to it, with the way.
fn circle(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Option<Vec<Module>> {
    fn walk(
        at: &Module,
        arrows: &BTreeMap<Module, BTreeSet<Module>>,
        way: &mut Vec<Module>,
        done: &mut BTreeSet<Module>,
    ) -> bool {
        if let Some(begin) = way.iter().position(|module| module == at) {
            way.drain(..begin);
            return true;
        }
        if done.contains(at) {
            return false;
        }
        way.push(at.clone());
        for next in &arrows[at] {
            if walk(next, arrows, way, done) {
                return true;
            }
        }
        way.pop();
        done.insert(at.clone());
        false
    }
    let (mut way, mut done) = (Vec::new(), BTreeSet::new());
    arrows.keys().any(|module| walk(module, arrows, &mut way, &mut done)).then_some(way)
}

#[test]
fn files_of_a_crate_know_each_other_in_one_direction() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut files, mut known) = (0, 0);
    for entry in std::fs::read_dir(crates).expect("the crates are readable") {
        let path = entry.expect("an entry is readable").path();
        let mut all = BTreeMap::new();
        modules(&path.join("src"), &[], &mut all);
        let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (own, file) in &all {
            let source = std::fs::read_to_string(file).expect("a source is readable");
            let of_file = imports(&source);
            let of_file = of_file.iter().filter_map(|import| resolved(own, import, &all));
            arrows.insert(
                own.clone(),
                of_file.filter(|other| other != own && !other.starts_with(own)).collect(),
            );
        }
        files += all.len();
        known += arrows.values().map(BTreeSet::len).sum::<usize>();
        if let Some(way) = circle(&arrows) {
            let way: Vec<String> = way.iter().map(|module| all[module].display().to_string()).collect();
            panic!("a circle of imports:\n{}", way.join("\n"));
        }
    }
    assert!(files > 300 && known > 1000, "only {known} imports between {files} files were seen");
}

#[test]
fn imports_are_read_with_their_braces() {
    let source = "use crate::a::{self, b::{C, D as E}, f};\npub(crate) use self::g::H;\n// use crate::not;\n";
    let expected = ["crate::a::self", "crate::a::b::C", "crate::a::b::D", "crate::a::f", "self::g::H"];
    let found: Vec<String> = imports(source).iter().map(|path| path.join("::")).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_circle_is_found() {
    let module = |name: &str| vec![name.to_owned()];
    let arrow = |from: &str, to: &str| (module(from), BTreeSet::from([module(to)]));
    let ladder = BTreeMap::from([arrow("a", "b"), arrow("b", "c"), (module("c"), BTreeSet::new())]);
    assert_eq!(circle(&ladder), None);
    let round = BTreeMap::from([arrow("a", "b"), arrow("b", "c"), arrow("c", "b")]);
    assert_eq!(circle(&round).map(|way| way.len()), Some(2));
}
