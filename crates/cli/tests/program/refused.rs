//! Memory that the system does not give.

use super::bed::Bed;

/// Far less than the runs below want, and enough for the program itself with its threads.
const LIMIT_BYTES: u64 = 1 << 30;

/// Two convolutions with a batch norm between, wide enough that whole values of 2048² take gigabytes.
const WIDE_NET: &str = r#"{
  "inputs": [{"name": "x", "channels": 3}],
  "nodes": [
    {"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 64, "kernel_size": 3, "padding": 1},
    {"name": "n1", "op": "batch_norm", "inputs": ["c1"]},
    {"name": "c2", "op": "conv2d", "inputs": ["n1"], "out_channels": 3, "kernel_size": 3, "padding": 1}
  ],
  "outputs": ["c2"]
}
"#;

fn bed() -> Bed {
    let bed = Bed::new();
    bed.write("net.json", WIDE_NET.as_bytes());
    bed.sparse_npy("x.npy", &[3, 2048, 2048]);
    bed
}

/// Fails on one line of standard error that names the bytes, and leaves no file.
fn refused(bed: &Bed, args: &[&str]) {
    let before = bed.names();
    let whole = ["--memory", "100GiB", "--hold", "materialise", "--threads", "2"];
    let output = bed.limited(&[args, &whole].concat(), LIMIT_BYTES);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
    assert!(text.starts_with("error: ") && text.contains(" bytes"), "{args:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    assert_eq!(bed.names(), before, "{args:?}: files were left or removed");
}

#[test]
fn r09_refused_memory_ends_each_command_with_an_error_and_leaves_nothing() {
    let bed = bed();
    let given = ["--net", "net.json", "--weights", "random:1", "--input", "x.npy"];
    refused(&bed, &[&["run"], &given[..], &["--output", "y.npy"]].concat());
    refused(&bed, &[&["run"], &given[..], &["--output", "y.png"]].concat());
    let grads = ["--grad-input", "gx.npy", "--grad-weights", "gw.safetensors"];
    refused(&bed, &[&["grad"], &given[..], &grads].concat());
    let train = ["--target", "x.npy", "--loss", "mse", "--steps", "2", "--save", "w.safetensors"];
    refused(&bed, &[&["train"], &given[..], &train].concat());
}

#[test]
fn r09_less_memory_is_enough_for_the_same_run_in_bands() {
    let bed = bed();
    let args = ["run", "--net", "net.json", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"];
    let bands = ["--memory", "64MiB", "--threads", "2"];
    let output = bed.limited(&[&args[..], &bands].concat(), LIMIT_BYTES);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(bed.names().contains(&"y.npy".to_owned()));
}
