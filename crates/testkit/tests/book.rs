//! The book and the README: every page is reached, and every link leads somewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

/// All Markdown files below a folder.
fn pages(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the entry is readable").path();
        if path.is_dir() {
            found.append(&mut pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.insert(path);
        }
    }
    found
}

/// The targets of the links and pictures of a page that are files here.
fn links(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("the page is readable");
    let mut is_code = false;
    let mut targets = Vec::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if is_code || line.starts_with("    ") {
            continue;
        }
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !target.contains("://") {
                targets.push(file.to_owned());
            }
        }
    }
    targets
}

#[test]
fn the_summary_reaches_every_page_once() {
    let book = root().join("docs/src");
    let summary = book.join("SUMMARY.md");
    let linked = links(&summary);
    let reached: BTreeSet<PathBuf> = linked.iter().map(|target| book.join(target)).collect();
    assert_eq!(reached.len(), linked.len(), "a page stands twice in the summary");
    let mut written = pages(&book);
    written.remove(&summary);
    assert!(written.len() > 5, "only {written:?}");
    let forgotten: Vec<_> = written.difference(&reached).collect();
    assert!(forgotten.is_empty(), "not in SUMMARY.md: {forgotten:?}");
}

#[test]
fn every_link_leads_to_a_file() {
    let root = root();
    let mut all = pages(&root.join("docs/src"));
    all.extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    let mut followed = 0;
    for page in all {
        for target in links(&page) {
            let file = page.parent().expect("a page lies in a folder").join(&target);
            assert!(file.exists(), "{}: no file `{target}`", page.display());
            followed += 1;
        }
    }
    assert!(followed > 20, "only {followed} links were seen");
}

#[test]
fn no_page_is_empty() {
    for page in pages(&root().join("docs/src")) {
        let text = std::fs::read_to_string(&page).expect("the page is readable");
        assert!(text.lines().count() > 5, "{} says nothing", page.display());
    }
}
