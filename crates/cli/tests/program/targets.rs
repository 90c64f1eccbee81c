//! Targets and gradients of outputs: held against the outputs before the work.

use crate::bed::Bed;

/// Three classes from one channel.
const NET: &str = r#"{"inputs": [{"name": "x", "channels": 1}],
    "nodes": [{"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 3, "kernel_size": 3, "padding": 1}],
    "outputs": ["c"]}"#;

const TWO_OUTPUTS: &str = r#"{"inputs": [{"name": "x", "channels": 1}],
    "nodes": [{"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 1, "kernel_size": 1},
              {"name": "d", "op": "sigmoid", "inputs": ["c"]}],
    "outputs": ["c", "d"]}"#;

fn bed() -> Bed {
    let bed = Bed::new();
    bed.write("net.json", NET.as_bytes());
    bed.write("two.json", TWO_OUTPUTS.as_bytes());
    bed.npy("x.npy", &[1, 4, 4]);
    bed.npy("wide.npy", &[1, 4, 5]);
    bed.npy("t.npy", &[3, 4, 4]);
    bed
}

/// What is refused with these words, leaving all files as they are.
fn refused(bed: &Bed, args: &[&str], expected: &str) {
    let before = bed.names();
    assert_eq!(bed.refused(args, 2), format!("error: {expected}\n"), "{args:?}");
    assert_eq!(bed.names(), before);
}

#[test]
fn a_target_of_another_shape_is_told_with_its_file_before_the_work() {
    let bed = bed();
    bed.write("log.jsonl", b"of an earlier run\n");
    let train = ["train", "--net", "net.json", "--input", "x.npy", "--log", "log.jsonl"];
    let plan = ["plan", "--train", "--net", "net.json", "--input", "x.npy"];
    let mse = ["--target", "x.npy"];
    let classes = ["--loss", "cross-entropy", "--target", "wide.npy"];
    let of_mse = "shape is [1, 1, 4, 4], mse of output `c` wants [1, 3, 4, 4]";
    let of_classes =
        "`wide.npy`: shape is [1, 1, 4, 5], cross-entropy of output `c` wants [1, 1, 4, 4] or [1, 3, 4, 4]";
    for start in [&train[..], &plan] {
        refused(&bed, &[start, &mse].concat(), &format!("`x.npy`: {of_mse}"));
        refused(&bed, &[start, &classes].concat(), of_classes);
    }
    refused(&bed, &[&plan[..], &["--target", "1x4x4"]].concat(), &format!("--target: {of_mse}"));
    bed.succeeds(&[&plan[..], &["--target", "3x4x4"]].concat());
    bed.succeeds(&[&plan[..], &["--loss", "cross-entropy", "--target", "1x4x4"]].concat());
    bed.succeeds(&[&plan[..], &["--loss", "sum", "--target", "1x4x4"]].concat());
    assert_eq!(bed.read("log.jsonl"), b"of an earlier run\n");
}

#[test]
fn a_run_without_a_step_leaves_the_log_of_the_last_one() {
    let bed = bed();
    let nan: Vec<u8> = [f32::NAN.to_le_bytes(); 16].concat();
    let zeros = bed.read("x.npy");
    bed.write("nan.npy", &[&zeros[..zeros.len() - nan.len()], &nan].concat());
    bed.write("log.jsonl", b"of an earlier run\n");
    let train = ["train", "--net", "net.json", "--target", "t.npy", "--log", "log.jsonl", "--steps", "1"];
    let text = bed.refused(&[&train[..], &["--input", "nan.npy"]].concat(), 1);
    assert!(text.contains("training step 1: loss is NaN"), "{text}");
    assert_eq!(bed.read("log.jsonl"), b"of an earlier run\n");
    bed.succeeds(&[&train[..], &["--input", "x.npy"]].concat());
    let log = String::from_utf8(bed.read("log.jsonl")).expect("text");
    assert!(log.starts_with("{\"step\":1,") && log.lines().count() == 1, "{log}");
}

#[test]
fn a_gradient_of_another_shape_is_told_with_its_file() {
    let bed = bed();
    let grad = ["grad", "--net", "net.json", "--weights", "random:1", "--input", "x.npy"];
    let files = ["--grad-output", "wide.npy", "--grad-weights", "g.safetensors"];
    let expected = "`wide.npy`: shape is [1, 1, 4, 5], the gradient of output `c` wants [1, 3, 4, 4]";
    refused(&bed, &[&grad[..], &files].concat(), expected);
}

#[test]
fn a_network_of_two_outputs_is_not_trained_on_its_first() {
    let bed = bed();
    let expected = "a loss is of one output, network has 2: `c`, `d`";
    let files = ["--net", "two.json", "--input", "x.npy", "--target", "x.npy"];
    refused(&bed, &[&["train", "--steps", "1"], &files[..]].concat(), expected);
    refused(&bed, &[&["plan", "--train"], &files[..]].concat(), expected);
    // gradients are of all outputs, and so is their sum
    bed.succeeds(&["plan", "--train", "--loss", "sum", "--net", "two.json", "--input", "x.npy"]);
    let grad = ["grad", "--net", "two.json", "--weights", "random:1", "--input", "x.npy"];
    bed.succeeds(&[&grad[..], &["--grad-output", "ones", "--grad-input", "g.npy"]].concat());
}
