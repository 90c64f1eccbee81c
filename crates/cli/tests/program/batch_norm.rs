//! Batch norm whose running statistics are means, or that has none.

use crate::bed::Bed;
use crate::wanted::tensors;

const NETWORK: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 4, "kernel_size": 3, "padding": 1},
            {"name": "n1", "op": "batch_norm", "inputs": ["c1"], "momentum": null},
            {"name": "c2", "op": "conv2d", "inputs": ["n1"], "out_channels": 2, "kernel_size": 3, "padding": 1},
            {"name": "n2", "op": "batch_norm", "inputs": ["c2"], "track_running_stats": false}],
  "outputs": ["n2"]}"#;

fn bed() -> Bed {
    let bed = Bed::new();
    bed.write("net.json", NETWORK.as_bytes());
    bed.random_npy("x.npy", &[2, 3, 24, 36]);
    bed.random_npy("t.npy", &[2, 2, 24, 36]);
    bed
}

fn train(bed: &Bed, weights: &str, steps: &str) {
    let files = ["--net", "net.json", "--input", "x.npy", "--target", "t.npy", "--save", "w.safetensors"];
    let how = ["--weights", weights, "--steps", steps, "--lr", "0.1", "--grid", "2x3"];
    bed.succeeds(&[&["train"], &files[..], &how].concat());
}

#[test]
fn training_that_goes_on_counts_on() {
    let bed = bed();
    train(&bed, "random:1", "5");
    let at_once = tensors(&bed.read("w.safetensors"));
    train(&bed, "random:1", "3");
    assert_eq!(tensors(&bed.read("w.safetensors"))["n1.num_batches_tracked"], 3_i64.to_le_bytes());
    train(&bed, "w.safetensors", "2");
    let in_two_parts = tensors(&bed.read("w.safetensors"));
    assert_eq!(in_two_parts["n1.num_batches_tracked"], 5_i64.to_le_bytes());
    assert_eq!(in_two_parts, at_once);
    let names: Vec<&str> = at_once.keys().map(String::as_str).filter(|name| name.starts_with('n')).collect();
    let counted = ["n1.bias", "n1.num_batches_tracked", "n1.running_mean", "n1.running_var", "n1.weight"];
    assert_eq!(names, [&counted[..], &["n2.bias", "n2.weight"]].concat());
}

#[test]
fn evaluation_in_tiles_is_the_untiled_one_without_running_statistics() {
    let bed = bed();
    train(&bed, "random:1", "1");
    let run = |how: &[&str], output: &str| {
        let files = ["run", "--net", "net.json", "--input", "x.npy", "--weights", "w.safetensors"];
        bed.succeeds(&[&files, &["--output", output][..], how].concat());
        bed.read(output)
    };
    let whole = run(&["--grid", "1x1"], "whole.npy");
    assert!(run(&["--grid", "3x2"], "tiled.npy") == whole);
}

#[test]
fn the_text_of_a_network_has_what_its_batch_norms_keep() {
    let bed = bed();
    let text = bed.says(&["net", "net.json"]);
    assert!(text.contains(r#""momentum":null,"affine":true,"track_running_stats":true"#), "{text}");
    assert!(text.contains(r#""momentum":0.1,"affine":true,"track_running_stats":false"#), "{text}");
}
