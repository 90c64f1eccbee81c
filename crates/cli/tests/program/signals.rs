//! What signals do to a run: files in the making go, and training keeps what it has.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::bed::{Bed, Ended, can_heed, heeding, is_progress};

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
}

/// Waits for what a program is going to do; the bound is there for a program that never does it.
fn wait(what: &str, child: &mut Child, mut is_there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_there() {
        assert_eq!(child.try_wait().expect("the program runs"), None, "ended before {what}");
        assert!(begin.elapsed() < Duration::from_secs(300), "no {what}");
        std::thread::yield_now();
    }
}

fn end(mut child: Child) -> Ended {
    let begin = Instant::now();
    while child.try_wait().expect("the program runs").is_none() {
        if begin.elapsed() > Duration::from_secs(300) {
            child.kill().expect("the program ends");
            panic!("a signal did not end it");
        }
        std::thread::yield_now();
    }
    Ended::of(child.wait_with_output().expect("the program ends"))
}

/// A run that lasts until it is ended.
fn long_run(bed: &Bed) -> Child {
    bed.sparse_npy("x.npy", &[3, 2048, 2048]);
    bed.start(&["run", "--net", "vgg16", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"])
}

fn has_partial(bed: &Bed) -> bool {
    bed.names().iter().any(|name| name.starts_with(".y.npy.partial"))
}

/// Training without an end, whose log tells of its steps.
fn long_training(bed: &Bed) -> Child {
    bed.random_npy("x.npy", &[3, 40, 56]);
    bed.npy("t.npy", &[3, 40, 56]);
    let train = ["train", "--net", "unet", "--input", "x.npy", "--target", "t.npy", "--lr", "1e-6"];
    let files = ["--save", "w.safetensors", "--log", "log.jsonl", "--prediction", "p.npy"];
    bed.start(&[&train[..], &files, &["--steps", "1000000000"]].concat())
}

fn logged(bed: &Bed) -> usize {
    std::fs::read(bed.path("log.jsonl")).map_or(0, |log| log.iter().filter(|byte| **byte == b'\n').count())
}

#[test]
fn r15_every_signal_that_ends_a_run_removes_its_partial_files() {
    if !can_heed() {
        return;
    }
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let bed = Bed::new();
        let mut child = long_run(&bed);
        wait("a partial file", &mut child, || has_partial(&bed));
        signal(&child, name);
        let ended = end(child);
        assert_eq!(ended.code, Some(code), "{name}: {}", ended.stderr);
        let told: Vec<&str> = ended.stderr.lines().filter(|line| !is_progress(line)).collect();
        assert_eq!((told, ended.stdout.as_str()), (vec!["cancelled"], ""));
        assert_eq!(bed.names(), ["x.npy"], "{name}");
    }
}

#[test]
fn r07_a_signal_saves_the_weights_of_the_last_whole_step() {
    if !can_heed() {
        return;
    }
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let bed = Bed::new();
        let mut child = long_training(&bed);
        // what is piped must be read, or the program waits
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        for _ in 0..3 {
            lines.next().expect("a line each step").expect("text");
        }
        signal(&child, name);
        let told: Vec<String> = lines.map(|line| line.expect("text")).collect();
        let ended = end(child);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{told:?}");
        let steps = logged(&bed);
        assert!(steps >= 3);
        let [.., saved, last] = &told[..] else { panic!("{told:?}") };
        assert_eq!(saved, &format!("saved the weights after step {steps} to `w.safetensors`"));
        assert_eq!(last, "cancelled");
        assert_eq!(bed.names(), ["log.jsonl", "t.npy", "w.safetensors", "x.npy"]);
        // so many steps without a signal leave the same file
        let kept = bed.read("w.safetensors");
        let train = ["train", "--net", "unet", "--input", "x.npy", "--target", "t.npy", "--lr", "1e-6"];
        bed.succeeds(&[&train[..], &["--save", "w.safetensors", "--steps", &steps.to_string()]].concat());
        assert!(bed.read("w.safetensors") == kept, "not the weights of step {steps}");
    }
}

#[test]
fn a_signal_ends_a_conversion_and_leaves_both_files_as_they_were() {
    if !can_heed() {
        return;
    }
    // long enough to be read and written for a signal to come meanwhile
    let model = crate::onnx::of_convolutions(16);
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let bed = Bed::new();
        bed.write("m.onnx", &model);
        bed.write("n.json", b"old");
        bed.write("w.safetensors", b"old");
        let mut child = bed.start(&["convert", "m.onnx", "--net", "n.json", "--weights", "w.safetensors"]);
        // the first ones are there before the model is read
        wait("a partial file", &mut child, || bed.names().iter().any(|name| name.contains(".partial-")));
        signal(&child, name);
        let ended = end(child);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{}", ended.stderr);
        assert_eq!(ended.stderr, "cancelled\n");
        assert_eq!(bed.names(), ["m.onnx", "n.json", "w.safetensors"], "{name}");
        assert!(bed.read("n.json") == b"old" && bed.read("w.safetensors") == b"old", "{name}");
    }
}

#[test]
fn r15_a_second_signal_ends_at_once_and_leaves_no_partial_files() {
    if !can_heed() {
        return;
    }
    let bed = Bed::new();
    let mut child = long_run(&bed);
    wait("a partial file", &mut child, || has_partial(&bed));
    // the first ends it after its step; until then a second one may still come
    while child.try_wait().expect("the program runs").is_none() {
        let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).output();
    }
    let mut told = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut told).expect("text");
    assert_eq!(child.wait().expect("it ended").code(), Some(143), "{told}");
    assert_eq!(bed.names(), ["x.npy"]);
}

#[test]
fn r15_a_signal_that_is_ignored_stays_so() {
    if !can_heed() {
        return;
    }
    let bed = Bed::new();
    bed.random_npy("x.npy", &[3, 40, 56]);
    bed.npy("t.npy", &[3, 40, 56]);
    // as `nohup` does
    let script = r#"trap '' HUP; exec "$0" "$@" 2>told"#;
    let mut command = heeding("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_tiled"), "train", "--net", "unet", "--input", "x.npy"]);
    command.args(["--target", "t.npy", "--steps", "1000000000", "--log", "log.jsonl", "--lr", "1e-6"]);
    let mut child = command.current_dir(bed.path(".")).spawn().expect("a shell starts");
    wait("a step", &mut child, || logged(&bed) >= 1);
    signal(&child, "HUP");
    let before = logged(&bed);
    wait("steps after the signal", &mut child, || logged(&bed) >= before + 20);
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
}

#[test]
fn r07_progress_is_lines_where_there_is_no_terminal() {
    if !can_heed() {
        return;
    }
    let bed = Bed::new();
    let mut child = long_run(&bed);
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let line = lines.next().expect("it says how far it is").expect("text");
    assert!(is_progress(&line) && line.starts_with("run: "), "{line}");
    signal(&child, "INT");
    assert_eq!(lines.last().map(|line| line.expect("text")).as_deref(), Some("cancelled"));
    assert_eq!(end(child).code, Some(130));
}
