//! What a run may take where nobody says, and what a plan counts.

use serde_json::Value;

use crate::bed::{Bed, number_after};

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key} is no number"))
}

#[test]
fn r01_without_a_budget_a_plan_takes_what_can_be_had() {
    let bed = Bed::new();
    let plan = ["plan", "--net", "vgg16", "--input"];
    let small = bed.json(&[&plan[..], &["3x64x64"]].concat());
    assert!(number(&small, "plan_peak_bytes") <= number(&small, "budget_bytes"));
    assert_ne!(small["budget_source"], "given");
    assert_ne!(small["budget_source"], "unlimited");
    let text = bed.says(&[&plan[..], &["3x64x64"]].concat());
    let line = text.lines().find(|line| line.starts_with("memory: at most ")).expect("the budget is told");
    assert!(line.ends_with("; --memory sets another)"), "{line}");
    // untiled it is 300 TB
    let huge = [&plan[..], &["3x600000x600000", "--hold", "materialise"]].concat();
    let text = bed.refused(&huge, 1);
    let (needed, had) = (number_after(&text, "needs at least "), number_after(&text, "memory, "));
    assert!(needed > had && text.contains(" bytes can be had now ("), "{text}");
    let unlimited = bed.json(&[&huge[..], &["--memory", "unlimited"]].concat());
    assert!(number(&unlimited, "plan_peak_bytes") > 1 << 46);
    assert_eq!(
        (&unlimited["budget_bytes"], &unlimited["budget_source"]),
        (&Value::Null, &"unlimited".into())
    );
    let given = bed.json(&[&plan[..], &["3x64x64", "--memory", "1GiB"]].concat());
    assert_eq!((number(&given, "budget_bytes"), &given["budget_source"]), (1 << 30, &"given".into()));
}

#[test]
fn r01_every_subcommand_tells_its_budget() {
    let bed = Bed::with_network();
    bed.npy("t.npy", &[4, 64, 64]);
    let files = ["--net", "net.json", "--input", "x.npy", "--weights", "random:1"];
    for (command, more) in [
        ("run", &["--output", "y.npy"][..]),
        ("grad", &["--grad-weights", "gw.safetensors"]),
        ("train", &["--target", "t.npy", "--steps", "1"]),
    ] {
        let args = [&[command], &files[..], more].concat();
        let report = bed.json(&args);
        assert!(number(&report, "plan_peak_bytes") <= number(&report, "budget_bytes"), "{command}");
        let text = bed.says(&args);
        assert!(text.lines().any(|line| line.starts_with("memory: at most ")), "{command}: {text}");
    }
}

/// Without a budget this run would take over a gibibyte: what the statistics of its batch norm are of, kept whole.
#[cfg(target_os = "linux")]
#[test]
fn r01_a_limit_of_the_process_is_kept() {
    let bed = Bed::new();
    bed.write("net.json", WIDE.as_bytes());
    bed.sparse_npy("x.npy", &[3, 2048, 2048]);
    let run = ["run", "--net", "net.json", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"];
    let options = ["--mode", "train", "--threads", "2"];
    let plan = ["plan", "--net", "net.json", "--input", "x.npy", "--steps", "0", "--memory", "unlimited"];
    let free = number(&bed.json(&[&plan[..], &options].concat()), "plan_peak_bytes");
    assert!(free > 1 << 30, "{free}");
    let output = bed.limited(&[&run[..], &options, &["--json"]].concat(), 1 << 30);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["budget_source"], "address space");
    assert!(number(&report, "plan_peak_bytes") <= number(&report, "budget_bytes"));
    assert!(number(&report, "budget_bytes") < 1 << 30);
    // and where not even the weights find room it says so
    let run = ["run", "--net", "vgg16", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"];
    let output = bed.limited(&run, 160 << 20);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("error: the run needs at least "), "{text}");
    let (needed, had) = (number_after(&text, "needs at least "), number_after(&text, "memory, "));
    assert!(needed > had && text.ends_with("can be had now (address space)\n"), "{text}");
}

#[test]
fn r06_a_plan_of_files_says_what_the_run_takes() {
    let bed = Bed::with_network();
    bed.write("shift.json", SHIFT.as_bytes());
    bed.npy("in.npy", &[3, 600, 500]);
    let make =
        ["run", "--net", "shift.json", "--weights", "random:0", "--input", "in.npy", "--output", "x.png"];
    bed.succeeds(&make);
    let run = ["--net", "shift.json", "--input", "x.png", "--output", "y.png", "--memory", "64MiB"];
    let before = bed.names();
    let planned = bed.json(&[&["plan"], &run[..]].concat());
    assert_eq!(bed.names(), before, "a plan writes nothing");
    let ran = bed.json(&[&["run", "--weights", "random:0"], &run[..]].concat());
    assert_eq!(number(&planned, "plan_peak_bytes"), number(&ran, "plan_peak_bytes"));
    // the pixels of both pictures
    let shape = ["plan", "--net", "shift.json", "--input", "3x600x500", "--memory", "64MiB"];
    let without = number(&bed.json(&shape), "plan_peak_bytes");
    assert_eq!(number(&planned, "plan_peak_bytes"), without + 2 * 3 * 600 * 500);
    // and a plan of shapes says what pictures would add
    let text = bed.says(&shape);
    assert!(text.contains("memory: an input of 3×600×500 in a .png of 8 bits adds 878.9 KiB"), "{text}");
    assert!(text.contains("memory: an output of 3×600×500 in .png adds 878.9 KiB"), "{text}");
}

#[test]
fn r06_a_plan_of_training_says_what_the_training_takes() {
    let bed = Bed::with_network();
    bed.npy("t.npy", &[4, 64, 64]);
    let train = ["--net", "net.json", "--input", "x.npy", "--target", "t.npy", "--memory", "16MiB"];
    let mut peaks = Vec::new();
    for optimizer in [&["--optimizer", "adamw"][..], &["--momentum", "0.9"], &[]] {
        let planned = bed.json(&[&["plan", "--train"], &train[..], optimizer].concat());
        let ran = bed.json(&[&["train", "--steps", "1"], &train[..], optimizer].concat());
        assert_eq!(number(&planned, "plan_peak_bytes"), number(&ran, "plan_peak_bytes"), "{optimizer:?}");
        peaks.push(number(&planned, "plan_peak_bytes"));
    }
    let state = (4 * 3 * 9 + 4) * 4;
    assert_eq!([peaks[0] - peaks[2], peaks[1] - peaks[2]], [2 * state, state]);
}

#[test]
fn r06_files_of_a_plan_are_checked_like_those_of_a_run() {
    let bed = Bed::with_network();
    let plan = |more: &[&'static str]| {
        [&["plan", "--net", "net.json", "--input", "x.npy", "--output"][..], more].concat()
    };
    let text = bed.refused(&plan(&["y.bmp"]), 2);
    assert!(text.starts_with("error: `y.bmp`: unknown extension `bmp`"), "{text}");
    let text = bed.refused(&plan(&["y.png"]), 2);
    assert!(text.starts_with("error: `y.png`: a picture has batch 1 and 1 or 3 channels"), "{text}");
    let text = bed.refused(&plan(&["y.npy", "--output", "z.npy"]), 2);
    assert!(text.starts_with("error: --output is given 2 times, network wants 1"), "{text}");
}

#[cfg(target_os = "linux")]
const WIDE: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 64, "kernel_size": 3, "padding": 1},
            {"name": "n1", "op": "batch_norm", "inputs": ["c1"]},
            {"name": "c2", "op": "conv2d", "inputs": ["n1"], "out_channels": 4, "kernel_size": 1}],
  "outputs": ["c2"]}"#;

const SHIFT: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "s", "op": "sigmoid", "inputs": ["x"]}], "outputs": ["s"]}"#;
