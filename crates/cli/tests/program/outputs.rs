//! Files that are written: known to be possible before the work, never two in one, and as they were but for their content.

use crate::bed::{Bed, CONV_NET, Ended};

/// A bed on which a step takes far longer than a test may, so that a program that fails has failed before it.
fn long_bed() -> Bed {
    let bed = Bed::new();
    bed.sparse_npy("x.npy", &[3, 4096, 4096]);
    bed.sparse_npy("t.npy", &[512, 128, 128]);
    bed
}

const LONG_TRAIN: [&str; 9] =
    ["train", "--net", "vgg16", "--input", "x.npy", "--target", "t.npy", "--steps", "100"];

fn refused(bed: &Bed, args: &[&str], code: i32, expected: &str) {
    let before = bed.names();
    let ended = bed.output(args);
    assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.stderr);
    assert_eq!(ended.stderr, format!("error: {expected}\n"));
    assert_eq!(ended.stdout, "");
    assert_eq!(bed.names(), before, "files were left or removed");
}

#[test]
fn r13_outputs_of_training_that_cannot_be_created_are_told_before_the_work() {
    let bed = long_bed();
    let missing = "cannot create: No such file or directory (os error 2)";
    for option in ["--save", "--prediction", "--loss-curve", "--log"] {
        let file = if option == "--prediction" { "nodir/w.npy" } else { "nodir/w" };
        let args = [&LONG_TRAIN[..], &[option, file]].concat();
        refused(&bed, &args, 1, &format!("`{file}`: {missing}"));
    }
    std::fs::create_dir(bed.path("w")).expect("the folder is writable");
    let args = [&LONG_TRAIN[..], &["--save", "w"]].concat();
    refused(&bed, &args, 2, "`w`: not a regular file");
    let args = [&LONG_TRAIN[..], &["--save", "w.npy"]].concat();
    refused(&bed, &args, 2, "`w.npy`: unknown extension `npy`, known are safetensors");
    let args = [&LONG_TRAIN[..], &["--loss-curve", "loss.png"]].concat();
    refused(&bed, &args, 2, "`loss.png`: unknown extension `png`, known are svg");
    let args = [&LONG_TRAIN[..], &["--prediction", "p.png"]].concat();
    let shape = "a picture has batch 1 and 1 or 3 channels, tensor is [1, 512, 128, 128]";
    refused(&bed, &args, 2, &format!("`p.png`: {shape}"));
}

#[test]
fn r13_gradients_of_weights_that_cannot_be_created_are_told_before_the_work() {
    let bed = long_bed();
    let grad = ["grad", "--net", "vgg16", "--weights", "random:1", "--input", "x.npy", "--grad-weights"];
    let missing = "`nodir/gw`: cannot create: No such file or directory (os error 2)";
    refused(&bed, &[&grad[..], &["nodir/gw"]].concat(), 1, missing);
    let plan = ["plan", "--net", "light", "--input", "3x64x64", "--svg", "nodir/plan.svg"];
    refused(&bed, &plan, 1, "`nodir/plan.svg`: cannot create: No such file or directory (os error 2)");
}

#[test]
fn r13_two_outputs_of_one_file_are_refused_however_they_are_written() {
    let bed = Bed::new();
    bed.random_npy("x.npy", &[3, 16, 16]);
    bed.write("net.json", TWO_OUTPUTS.as_bytes());
    bed.write("old.npy", b"old");
    std::fs::create_dir(bed.path("sub")).expect("the folder is writable");
    let run = ["run", "--net", "net.json", "--weights", "random:0", "--input", "x.npy"];
    let refuse = |first: &str, second: &str| {
        let args = [&run[..], &["--output", first, "--output", second]].concat();
        refused(&bed, &args, 2, &format!("--output `{first}` and --output `{second}` are one file"));
    };
    refuse("o.npy", "o.npy");
    refuse("o.npy", "./o.npy");
    refuse("sub/../o.npy", "o.npy");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("old.npy", bed.path("link.npy")).expect("links can be made");
        std::os::unix::fs::symlink(".", bed.path("here")).expect("links can be made");
        std::fs::hard_link(bed.path("old.npy"), bed.path("hard.npy")).expect("links can be made");
        refuse("old.npy", "link.npy");
        refuse("old.npy", "hard.npy");
        refuse("here/o.npy", "o.npy");
    }
    bed.succeeds(&[&run[..], &["--output", "a.npy", "--output", "b.npy"]].concat());
}

#[test]
fn r13_an_output_over_what_is_read_is_refused_and_over_the_weights_it_resumes() {
    let bed = Bed::new();
    bed.write("net.json", CONV_NET.as_bytes());
    bed.random_npy("x.npy", &[3, 16, 16]);
    bed.npy("t.npy", &[4, 16, 16]);
    bed.weights("w.safetensors", &[("c1.weight", &[4, 3, 3, 3]), ("c1.bias", &[4])]);
    let files = ["--net", "net.json", "--input", "x.npy", "--weights", "w.safetensors"];
    let over = |start: &[&str], first: &str, second: &str| {
        refused(&bed, &[start, &files].concat(), 2, &format!("{first} and {second} are one file"));
    };
    over(&["run", "--output", "./x.npy"], "--input `x.npy`", "--output `./x.npy`");
    let gradient = ["grad", "--grad-weights", "./w.safetensors"];
    over(&gradient, "--weights `w.safetensors`", "--grad-weights `./w.safetensors`");
    over(&["grad", "--grad-input", "x.npy"], "--input `x.npy`", "--grad-input `x.npy`");
    let train = ["train", "--target", "t.npy"];
    let over_target = [&train[..], &["--prediction", "t.npy"]].concat();
    over(&over_target, "--target `t.npy`", "--prediction `t.npy`");
    let over_network = [&train[..], &["--log", "net.json"]].concat();
    over(&over_network, "--net `net.json`", "--log `net.json`");
    let twice = [&train[..], &["--save", "n.safetensors", "--log", "./n.safetensors"]].concat();
    let ended = bed.output(&[&twice[..], &files].concat());
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let before = bed.read("w.safetensors");
    let resumed = [&train[..], &["--save", "w.safetensors", "--steps", "2", "--lr", "0.1"]].concat();
    bed.succeeds(&[&resumed[..], &files].concat());
    assert!(bed.read("w.safetensors") != before, "the weights are trained on in place");
}

#[test]
fn r15_names_as_long_as_a_folder_allows_are_written() {
    let bed = Bed::with_network();
    for len in [235, 250, 255] {
        let [output, weights, curve] = [".npy", ".safetensors", ".svg"]
            .map(|extension| format!("{}{extension}", "n".repeat(len - extension.len())));
        let run = ["run", "--net", "net.json", "--weights", "random:1", "--input", "x.npy", "--output"];
        bed.succeeds(&[&run[..], &[&output]].concat());
        bed.npy("t.npy", &[4, 64, 64]);
        let train = ["train", "--net", "net.json", "--input", "x.npy", "--target", "t.npy", "--steps", "1"];
        bed.succeeds(&[&train[..], &["--save", &weights, "--loss-curve", &curve]].concat());
        for name in [output, weights, curve] {
            assert!(bed.names().contains(&name), "{len}");
            std::fs::remove_file(bed.path(&name)).expect("the folder is writable");
        }
    }
    let name = format!("{}.npy", "n".repeat(252));
    let run = ["run", "--net", "net.json", "--weights", "random:1", "--input", "x.npy", "--output", &name];
    refused(&bed, &run, 1, &format!("`{name}`: cannot create: File name too long (os error 36)"));
}

#[cfg(unix)]
#[test]
fn r15_the_permissions_of_a_replaced_file_stay() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    let bed = Bed::with_network();
    bed.npy("t.npy", &[4, 64, 64]);
    let mode = |name: &str| std::fs::metadata(bed.path(name)).expect(name).permissions().mode() & 0o7777;
    let run = ["run", "--net", "net.json", "--weights", "random:1", "--input", "x.npy", "--output", "y.npy"];
    let train = ["train", "--net", "net.json", "--input", "x.npy", "--target", "t.npy", "--steps", "1"];
    let train = [&train[..], &["--save", "w.safetensors", "--loss-curve", "loss.svg"]].concat();
    for wanted in [0o600, 0o664, 0o751] {
        for name in ["y.npy", "w.safetensors", "loss.svg"] {
            bed.write(name, b"old");
            std::fs::set_permissions(bed.path(name), Permissions::from_mode(wanted)).expect("it is ours");
        }
        bed.succeeds(&run);
        bed.succeeds(&train);
        for name in ["y.npy", "w.safetensors", "loss.svg"] {
            assert!(bed.read(name) != b"old");
            assert_eq!(mode(name), wanted, "{name} has {:o} after {wanted:o}", mode(name));
        }
    }
    // a file that is new has what the process gives
    bed.write("new", b"");
    std::fs::remove_file(bed.path("y.npy")).expect("it is ours");
    bed.succeeds(&run);
    assert_eq!(mode("y.npy"), mode("new"));
}

#[cfg(unix)]
#[test]
fn r15_what_is_no_file_is_refused_as_input_network_and_weights() {
    let bed = Bed::with_network();
    for name in ["pipe.npy", "pipe.png", "pipe.json", "pipe.safetensors"] {
        let made = std::process::Command::new("mkfifo").arg(bed.path(name)).status();
        assert!(made.expect("mkfifo starts").success());
    }
    std::os::unix::fs::symlink("/dev/zero", bed.path("zero.npy")).expect("links can be made");
    std::os::unix::fs::symlink("/dev/zero", bed.path("zero.json")).expect("links can be made");
    let run = |net: &str, weights: &str, input: &str| {
        let args = ["run", "--net", net, "--weights", weights, "--input", input, "--output", "y.npy"];
        let name = [net, weights, input]
            .into_iter()
            .find(|name| name.contains("pipe") || name.contains("/dev/") || name.contains("zero"));
        refused(&bed, &args, 2, &format!("`{}`: not a regular file", name.expect("one of them")));
    };
    run("net.json", "random:1", "pipe.npy");
    run("net.json", "random:1", "pipe.png");
    run("net.json", "random:1", "zero.npy");
    run("pipe.json", "random:1", "x.npy");
    run("/dev/zero", "random:1", "x.npy");
    run("zero.json", "random:1", "x.npy");
    run("net.json", "pipe.safetensors", "x.npy");
    run("net.json", "/dev/zero", "x.npy");
    let plan = ["plan", "--net", "pipe.json", "--input", "3x16x16"];
    refused(&bed, &plan, 2, "`pipe.json`: not a regular file");
    // and as outputs
    let run =
        ["run", "--net", "net.json", "--weights", "random:1", "--input", "x.npy", "--output", "pipe.npy"];
    refused(&bed, &run, 2, "`pipe.npy`: not a regular file");
}

#[cfg(unix)]
#[test]
fn r15_names_reach_the_terminal_escaped() {
    let bed = Bed::with_network();
    let hostile = "a\x1b[2J\nb\u{202e}\u{9b}.npy";
    let shown = r"a\u{1b}[2J\nb\u{202e}\u{9b}.npy";
    let run = |input: &str, output: &str| {
        bed.output(&[
            "run",
            "--net",
            "net.json",
            "--weights",
            "random:1",
            "--input",
            input,
            "--output",
            output,
        ])
    };
    let missing = run(hostile, "y.npy");
    assert_eq!(
        missing.stderr,
        format!("error: `{shown}`: cannot open: No such file or directory (os error 2)\n")
    );
    let written = run("x.npy", hostile);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    assert!(written.stdout.contains(&format!("wrote {shown} (")), "{}", written.stdout);
    assert!(bed.names().contains(&hostile.to_owned()), "the file has its own name");
    // an argument, a network's name, a layer's name in text and in JSON
    plain(&bed.output(&["run", "--\x1b[2J"]));
    plain(&bed.output(&["plan", "--net", "\x1b[2J", "--input", "3x16x16"]));
    bed.write("net.json", CONV_NET.replace("c1", "c\\u001b\\u009b\\u202e1").as_bytes());
    for json in [&[][..], &["--json"]] {
        let planned = bed.output(&[&["plan", "--net", "net.json", "--input", "3x16x16"][..], json].concat());
        assert_eq!(planned.code, Some(0), "{}", planned.stderr);
        plain(&planned);
    }
    plain(&bed.output(&["net", "net.json"]));
}

fn plain(ended: &Ended) {
    for text in [&ended.stdout, &ended.stderr] {
        let is_plain = |character: char| {
            character == '\n' || !character.is_control() && !('\u{202a}'..='\u{202e}').contains(&character)
        };
        assert!(text.chars().all(is_plain), "{text:?}");
    }
}

const TWO_OUTPUTS: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "a", "op": "relu", "inputs": ["x"]}, {"name": "b", "op": "sigmoid", "inputs": ["x"]}],
  "outputs": ["a", "b"]}"#;
