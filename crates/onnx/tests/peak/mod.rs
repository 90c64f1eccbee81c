//! The peak of the memory of this process while it imports a model.

use tiled_exec::{peak_rss_bytes, reset_peak_rss};
use tiled_onnx::Model;

/// A model of these bytes, read from a file with at most four times its size and 64 MiB of memory; none where the peak of a process
/// cannot be reset.
pub(crate) fn read_within_four_times(bytes: Vec<u8>) -> Option<Model> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    let file = bytes.len() as u64;
    // the bytes are given back here
    std::fs::write(&path, bytes).expect("room on the disk");
    // what was given back may stay with the process until then
    let before = resident_bytes();
    if !reset_peak_rss() {
        eprintln!("skipped: the peak of the process cannot be reset here");
        return None;
    }
    let model = tiled_onnx::read(&path).expect("a model");
    let peak = peak_rss_bytes().expect("Linux says").saturating_sub(before);
    eprintln!("{file} bytes, {peak} bytes of memory, {:.2} times", peak as f64 / file as f64);
    assert!(peak <= 4 * file + (64 << 20), "{peak} bytes of memory for a file of {file}");
    Some(model)
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
}
