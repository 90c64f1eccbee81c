//! What training shows while it runs, and what it leaves where it ends early.

use serde_json::Value;

use crate::bed::{Bed, Ended, is_progress};

/// `unet` is drawn to a target of zeros; small enough to train within milliseconds a step.
fn train(bed: &Bed, extra: &[&str]) -> Ended {
    bed.output(&[&TRAIN[..], extra].concat())
}

const TRAIN: [&str; 9] =
    ["train", "--net", "net.json", "--input", "x.npy", "--target", "t.npy", "--weights", "random:3"];

fn bed() -> Bed {
    let bed = Bed::new();
    bed.write("net.json", NETWORK.as_bytes());
    bed.random_npy("x.npy", &[3, 24, 36]);
    bed.npy("t.npy", &[2, 24, 36]);
    bed
}

/// With batch norm, whose running statistics move too.
const NETWORK: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 4, "kernel_size": 3, "padding": 1},
            {"name": "n1", "op": "batch_norm", "inputs": ["c1"]},
            {"name": "c2", "op": "conv2d", "inputs": ["n1"], "out_channels": 2, "kernel_size": 3, "padding": 1}],
  "outputs": ["c2"]}"#;

#[test]
fn r07_losses_appear_on_standard_error_a_line_each_step() {
    let bed = bed();
    for format in [&[][..], &["--json"]] {
        let ended = train(&bed, &[&["--steps", "12", "--lr", "0.1"], format].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let lines: Vec<&str> = ended.stderr.lines().filter(|line| !is_progress(line)).collect();
        assert_eq!(lines.len(), 12, "{}", ended.stderr);
        let losses: Vec<f64> = lines.iter().enumerate().map(|(place, line)| loss(place + 1, line)).collect();
        assert!(losses[11] < losses[0], "{losses:?}");
        assert!(!ended.stdout.contains("s/step"), "standard output keeps the report");
    }
}

/// The loss in `step  3/12  loss 0.12345  0.00123 s/step`.
fn loss(step: usize, line: &str) -> f64 {
    let words: Vec<&str> = line.split_whitespace().collect();
    let count = format!("{step}/12");
    let (number, rest) = match words[..] {
        ["step", number, "loss", ref rest @ ..] if number == count => (number, rest),
        ["step", _, ..] => panic!("{line}: not step {count}"),
        _ => panic!("{line}: no line of a step"),
    };
    assert_eq!(rest[2], "s/step", "{number}: {line}");
    rest[0].parse().expect("a number")
}

#[test]
fn r07_the_log_has_a_json_object_for_every_step() {
    let bed = bed();
    bed.write("log.jsonl", b"of an earlier run\n");
    let ended = train(&bed, &["--steps", "5", "--lr", "0.125", "--log", "log.jsonl", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    let log = String::from_utf8(bed.read("log.jsonl")).expect("text");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 5, "{log}");
    for (place, line) in lines.iter().enumerate() {
        assert_eq!(line["step"], place + 1);
        assert_eq!(line["loss"], report["losses"][place]);
        assert_eq!(line["learning_rate"], 0.125);
        assert!(line["seconds"].as_f64() > Some(0.0), "{line}");
    }
}

#[test]
fn r02_a_loss_that_is_not_finite_is_an_error_and_saves_the_last_weights_of_use() {
    let bed = bed();
    for optimizer in ["sgd", "adamw"] {
        let run = ["--optimizer", optimizer, "--save", "w.safetensors", "--prediction", "p.npy", "--json"];
        let ended = train(&bed, &[&run[..], &["--steps", "50", "--lr", "1e30"]].concat());
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
        let error = ended.stderr.lines().last().expect("it says why");
        assert!(error.starts_with("error: training step ") && error.contains("loss is "), "{error}");
        assert!(ended.stderr.contains("to `w.safetensors`"), "{}", ended.stderr);
        assert!(!bed.names().contains(&"p.npy".to_owned()), "a prediction of nothing");
        // the weights are those of the last loss that was finite, so that the next run begins with it
        let losses: Vec<&str> = ended
            .stderr
            .lines()
            .filter(|line| line.starts_with("step "))
            .map(|line| after(line, "loss "))
            .collect();
        let resumed = bed.json(&[&RESUME[..], &["--steps", "1", "--lr", "0.001"]].concat());
        let first = resumed["losses"][0].as_f64().expect("a finite loss");
        let last: f64 = losses.last().expect("the first step has a loss").parse().expect("a number");
        assert!((first - last).abs() <= 1e-4 * last.abs(), "{optimizer}: {first} after {losses:?}");
    }
}

const RESUME: [&str; 9] =
    ["train", "--net", "net.json", "--input", "x.npy", "--target", "t.npy", "--weights", "w.safetensors"];

fn after<'a>(text: &'a str, words: &str) -> &'a str {
    text.split_once(words).and_then(|(_, rest)| rest.split_whitespace().next()).expect(words)
}

#[test]
fn r02_a_first_loss_that_is_not_finite_saves_nothing() {
    let bed = bed();
    let mut image = bed.read("x.npy");
    let end = image.len();
    image[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    bed.write("x.npy", &image);
    let before = bed.names();
    let ended = train(&bed, &["--steps", "3", "--save", "w.safetensors"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("error: training step 1: loss is NaN, not a finite number"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("no weights are saved"), "{}", ended.stderr);
    assert_eq!(bed.names(), before);
}

#[test]
fn r02_weights_that_are_kept_count_as_memory_of_the_plan() {
    let bed = bed();
    let peak = |extra: &[&str]| {
        let report = bed.json(&[&TRAIN[..], &["--steps", "1", "--hold", "materialise"], extra].concat());
        report["plan_peak_bytes"].as_u64().expect("a number")
    };
    // 4·3·9 + 4 of c1, four times 4 of n1, 2·4·9 + 2 of c2
    assert_eq!(peak(&["--save", "w.safetensors"]) - peak(&[]), 4 * (112 + 16 + 74));
}

#[test]
fn masks_of_dropout_begin_with_the_seed() {
    let bed = Bed::new();
    bed.write("net.json", DROPS.as_bytes());
    bed.random_npy("x.npy", &[3, 12, 12]);
    bed.npy("t.npy", &[2, 12, 12]);
    let losses = |more: &[&str]| {
        let train = ["train", "--net", "net.json", "--input", "x.npy", "--target", "t.npy", "--lr", "1e-9"];
        let report = bed.json(&[&train[..], more].concat());
        let losses = report["losses"].as_array().expect("losses").clone();
        losses.iter().map(|loss| loss.as_f64().expect("a finite loss")).collect::<Vec<f64>>()
    };
    let differ = |a: f64, b: f64| (a - b).abs() > 1e-4 * a.abs();
    let first = losses(&["--steps", "2", "--save", "w.safetensors"]);
    assert!(differ(first[0], first[1]), "each step has a mask of its own: {first:?}");
    assert_eq!(losses(&["--steps", "2", "--seed", "0"]), first);
    let resumed = ["--steps", "1", "--weights", "w.safetensors", "--seed"];
    let again = losses(&[&resumed[..], &["0"]].concat());
    assert!(!differ(again[0], first[0]), "the masks of a seed begin again: {again:?} {first:?}");
    let other = losses(&[&resumed[..], &["1"]].concat());
    assert!(differ(other[0], first[0]) && differ(other[0], first[1]), "{other:?} {first:?}");
}

const DROPS: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "d", "op": "dropout", "inputs": ["x"], "p": 0.5},
            {"name": "c", "op": "conv2d", "inputs": ["d"], "out_channels": 2, "kernel_size": 3, "padding": 1}],
  "outputs": ["c"]}"#;

#[test]
fn options_that_would_not_be_heeded_are_refused() {
    let bed = bed();
    let momentum = "error: --momentum is for sgd, the optimiser is adamw\n";
    let adamw = ["--optimizer", "adamw", "--momentum", "0.9"];
    assert_eq!(train(&bed, &adamw).stderr, momentum);
    let plan = ["plan", "--net", "net.json", "--input", "x.npy"];
    assert_eq!(bed.refused(&[&plan[..], &["--train"], &adamw].concat(), 2), momentum);
    for (option, size) in [("--tile", "4x4"), ("--grid", "2x2")] {
        let text = bed.refused(&[&plan[..], &["--hold", "materialise", option, size]].concat(), 2);
        assert_eq!(text, format!("error: --hold materialise is the untiled run, {option} is for another\n"));
    }
}

#[test]
fn negative_numbers_reach_the_checks_of_their_options() {
    let bed = bed();
    for option in ["--lr", "--momentum", "--weight-decay"] {
        let ended = train(&bed, &[option, "-1"]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.starts_with("error: ") && ended.stderr.contains("-1"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("unexpected argument"), "{}", ended.stderr);
    }
    assert_eq!(train(&bed, &["--steps", "1", "--mean", "-1,0,1"]).code, Some(0));
    let ended = train(&bed, &["--steps", "1", "--std", "-1,0,1"]);
    assert!(ended.stderr.contains("std") && !ended.stderr.contains("unexpected"), "{}", ended.stderr);
}

#[test]
fn r07_networks_are_listed_and_printed() {
    let bed = Bed::new();
    let list = bed.says(&["net"]);
    for name in ["seed-001", "vgg16", "resnet18", "unet"] {
        assert_eq!(list.lines().filter(|line| line.starts_with(&format!("{name} "))).count(), 1, "{list}");
    }
    assert!(list.contains("16656 trained parameters"), "{list}");
    for name in list.lines().filter_map(|line| line.split_whitespace().next()) {
        let text = bed.says(&["net", name]);
        bed.write("net.json", text.as_bytes());
        assert_eq!(bed.says(&["net", "net.json"]), text, "{name}: as a file");
        let plan = |net: &str| {
            let input = if name.starts_with("seed") { "1x64x64" } else { "3x64x64" };
            // what can be had now differs from one moment to the next, and is told
            bed.says(&["plan", "--net", net, "--input", input, "--threads", "1", "--memory", "1GiB"])
        };
        assert_eq!(plan("net.json"), plan(name));
    }
    let ended = bed.output(&["net", "nothing"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.starts_with("error: unknown network `nothing`"), "{}", ended.stderr);
}
