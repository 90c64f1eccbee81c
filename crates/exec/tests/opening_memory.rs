//! The memory that opening a picture takes is the memory that its header promises: one test, alone in its process.

use std::path::Path;

use tiled_exec::{PictureSource, SourceOptions, inspect_source, peak_rss_bytes, reset_peak_rss};

#[test]
fn r10_opening_takes_what_the_header_promises() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/flat_2000x1500_progressive.jpg");
    let facts = inspect_source(&path, &SourceOptions::default()).expect("it is a picture");
    let Some(before) = peak_rss_bytes().filter(|_| reset_peak_rss()) else {
        eprintln!("skipped: the system does not tell the peak of a process");
        return;
    };
    let source = PictureSource::open(&path, facts.opening_bytes).expect("it fits");
    let after = peak_rss_bytes().unwrap_or(u64::MAX);
    drop(source);
    let promised = facts.opening_bytes + facts.opening_bytes / 20 + (2 << 20);
    assert!(after.saturating_sub(before) <= promised, "{before} to {after} bytes, {facts:?}");
}
