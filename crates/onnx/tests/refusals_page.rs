//! The book's page of what is refused, made of the code and of the list of ONNX's own tests. `BLESS=1 cargo test -p tiled-onnx --test
//! refusals_page` writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/src/onnx-refusals.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Where operands and attributes are refused.
const FOLDERS: [&str; 3] = ["crates/onnx/src/ops", "crates/onnx/src/import", "crates/onnx/src/import/plan"];

/// The files of a folder, without those of folders in it.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).expect("the folder is there");
    entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()).collect()
}

/// The text literal that begins at the first quote, and what is behind it.
fn literal(code: &str) -> Option<(String, &str)> {
    let code = &code[code.find('"')? + 1..];
    let mut value = String::new();
    let mut characters = code.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &code[at + 1..])),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    None
}

/// The variants of an enum of errors: what each is, and what it says.
fn variants(code: &str, name: &str) -> Vec<(String, String)> {
    let begin = code.find(&format!("pub enum {name} {{")).expect("the enum is there");
    let body = &code[begin..];
    let body = &body[..body.find("\n}\n").expect("it ends")];
    let mut found = Vec::new();
    let mut about = String::new();
    let mut rest = body;
    while let Some((line, after)) = rest.split_once('\n') {
        if let Some(line) = line.strip_prefix("    /// ") {
            about = format!("{about} {line}").trim().to_owned();
        } else if line.starts_with("    #[error(transparent)]") {
            found.push((std::mem::take(&mut about), "what is said of the network".to_owned()));
        } else if line.starts_with("    #[error(") {
            let (says, _) = literal(&rest[rest.find("#[error(").expect("it stands here")..]).expect("a text");
            let says =
                if says == "{}" { "each of them, in the words below".to_owned() } else { quoted(&says) };
            found.push((std::mem::take(&mut about), says));
        } else if line.trim().is_empty() {
            about.clear();
        }
        rest = after;
    }
    found
}

/// What the rules of a file want in place of what they refuse.
fn wants(code: &str) -> BTreeSet<String> {
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = BTreeSet::new();
    for key in ["expected: \"", "EXPECTED: &str = \"", "wrong(", "constant_of(", "constant_of::<", ".only("] {
        for (at, _) in code.match_indices(key) {
            let call = &code[at..];
            // the last text of a call is what is wanted; of a field or a constant the only one
            let end = if key.ends_with('"') { call.len() } else { call.find(')').unwrap_or(call.len()) };
            let mut last = None;
            let mut rest = &call[..end];
            while let Some((value, after)) = literal(rest) {
                last = Some(value);
                rest = if key.ends_with('"') { "" } else { after };
            }
            found.extend(last.filter(|value| value.len() > 1));
        }
    }
    found
}

/// The reasons for which ONNX's own tests are refused, with what is said and how many they are.
fn cases() -> Vec<(String, String, usize)> {
    let mut found: Vec<(String, String, usize)> = Vec::new();
    for line in text("tests/onnx/refused.toml").lines() {
        if line == "[[refused]]" {
            found.push(Default::default());
        } else if let Some(last) = found.last_mut() {
            if line.starts_with("reason = ") {
                last.0 = literal(line).expect("a text").0;
            } else if line.starts_with("says = ") {
                last.1 = literal(line).expect("a text").0;
            } else if line.trim_start().starts_with('"') {
                last.2 += line.matches("\"test_").count();
            }
        }
    }
    found
}

/// Words that may have quotes of their own.
fn quoted(words: &str) -> String {
    if words.contains('`') { format!("`` {words} ``") } else { format!("`{words}`") }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn page() -> String {
    let mut page = String::from(
        "# What is not read of ONNX\n\nEverything that a model has and a network has not is refused when the model is read, all of it at once, by \
         node, operator and attribute; nothing is approximated. This page is made of the code by a test \
         (`BLESS=1 cargo test -p tiled-onnx --test refusals_page`), which fails where it is not what the code says.\n\n\
         ## What is said of a file\n\n| what | words |\n|---|---|\n",
    );
    let errors = text("crates/onnx/src/error.rs");
    let mut rows = |title: &str, name: &str| {
        let _ = write!(page, "{title}");
        for (about, says) in variants(&errors, name) {
            let _ = writeln!(page, "| {} | {} |", cell(&about), cell(&says));
        }
    };
    rows("", "OnnxError");
    rows("\n## What is said of a node, an input or an output\n\n| what | words |\n|---|---|\n", "Reason");
    rows("\n## What is said of a constant\n\n| what | words |\n|---|---|\n", "TensorProblem");
    page += "\n## What operators want\n\nA node whose operand or attribute is something else than this is refused with `wants …`; the families are \
             the files of `crates/onnx/src/ops`.\n\n| family | wants |\n|---|---|\n";
    let mut families = BTreeMap::new();
    for folder in FOLDERS {
        for path in files(folder) {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            // what operands of every operator are held to
            let name = if folder.contains("import") { "all of them".to_owned() } else { format!("`{name}`") };
            let wants = wants(&text(&path));
            if !wants.is_empty() {
                families.entry(name).or_insert_with(BTreeSet::new).extend(wants);
            }
        }
    }
    for (family, wants) in families {
        let wants: Vec<String> = wants.iter().map(|want| cell(want)).collect();
        let _ = writeln!(page, "| {family} | {} |", wants.join("; "));
    }
    page += "\n## ONNX's own tests\n\nOf the tests of single operators that come with ONNX, `bindings/python/onnx/node_tests.py` finds these refused; \
             their names stand in `tests/onnx/refused.toml`.\n\n| why | words | tests |\n|---|---|---|\n";
    for (reason, says, count) in cases() {
        let _ = writeln!(page, "| {} | {} | {count} |", cell(&reason), quoted(&cell(&says)));
    }
    page
}

/// Words that a text of errors holds in this order, between what is put in for `{…}`.
fn parts(words: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = words;
    while let Some((part, after)) = rest.split_once('{') {
        parts.push(part.to_owned());
        rest = after.split_once('}').map_or("", |(_, rest)| rest);
    }
    parts.push(rest.to_owned());
    parts
}

fn holds(text: &str, parts: &[String]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| match rest.find(part.as_str()) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// What no small model can be refused for.
const WITHOUT_TEXT: [&str; 5] = [
    // of files of gigabytes, or where memory is short
    "its messages take {got} bytes in memory, at most {expected} are read of such a file",
    "has {got} nodes or constants, at most {expected} are read",
    "{bytes} bytes could not be had",
    // what tests of names of several kinds and of broken disks have
    "`{location}`: {source}",
    "tensor `{name}`: {problem}",
];

#[test]
fn every_refusal_has_a_text() {
    let texts: Vec<String> = std::fs::read_dir(root().join("tests/ui"))
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("onnx_")))
        .map(|path| std::fs::read_to_string(path).expect("a text"))
        .collect();
    let errors = text("crates/onnx/src/error.rs");
    let mut wanted: Vec<String> = ["OnnxError", "Reason", "TensorProblem"]
        .iter()
        .flat_map(|name| variants(&errors, name))
        .map(|(_, says)| says.trim_matches('`').trim().to_owned())
        .filter(|says| !says.starts_with("what is said") && !says.starts_with("each of them"))
        .filter(|says| WITHOUT_TEXT.iter().all(|known| says.trim_matches('`') != known.trim_matches('`')))
        .collect();
    for folder in FOLDERS {
        for path in files(folder) {
            let found = wants(&text(path));
            wanted.extend(found.into_iter().map(|want| format!("wants {want}")));
        }
    }
    let missing: Vec<&String> =
        wanted.iter().filter(|words| !texts.iter().any(|text| holds(text, &parts(words)))).collect();
    assert!(missing.is_empty(), "no text in tests/ui/onnx_*.txt holds {missing:#?}");
    assert!(wanted.len() > 90, "{}", wanted.len());
}

#[test]
fn the_page_of_refusals_is_what_the_code_says() {
    let made = page();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(root().join(PAGE), &made).expect("the page can be written");
    }
    let written = text(PAGE);
    let differs = made.lines().zip(written.lines()).find(|(made, written)| made != written);
    assert!(made == written, "{PAGE} is not what the code says, first here: {differs:?}");
    assert!(made.lines().count() > 60, "{made}");
}
