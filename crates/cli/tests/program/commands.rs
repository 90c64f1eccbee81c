//! What the subcommands compute.

use serde_json::Value;

use crate::bed::Bed;

/// Ways to run the same thing: untiled first.
const HOLDS: [&[&str]; 4] = [
    &["--hold", "materialise"],
    &["--hold", "slide", "--tile", "4x9"],
    &["--hold", "recompute", "--grid", "3x4"],
    &["--memory", "1340KiB"],
];

#[test]
fn tiled_outputs_equal_untiled_ones_byte_for_byte() {
    let bed = Bed::new();
    bed.random_npy("x.npy", &[2, 3, 61, 90]);
    let run = ["run", "--net", "light", "--weights", "random:3", "--input", "x.npy", "--output", "y.npy"];
    let mut whole = Vec::new();
    for (place, hold) in HOLDS.iter().enumerate() {
        let report = bed.json(&[&run[..], *hold].concat());
        assert_eq!(report["outputs"], serde_json::json!([[2, 32, 15, 22]]));
        assert!(place == 0 || tiles(&report) > 1, "{hold:?}: one tile");
        let output = bed.read("y.npy");
        if place == 0 {
            whole = output;
        } else {
            assert!(whole == output, "{hold:?}: outputs differ");
        }
    }
}

#[test]
fn tiled_gradients_equal_untiled_ones() {
    let bed = Bed::new();
    bed.random_npy("x.npy", &[3, 50, 75]);
    bed.random_npy("g.npy", &[32, 12, 18]);
    let grad =
        ["grad", "--net", "light", "--weights", "random:3", "--input", "x.npy", "--grad-output", "g.npy"];
    let files = ["--grad-input", "gx.npy", "--grad-weights", "gw.safetensors"];
    let mut whole: Option<(Vec<u8>, Vec<f32>)> = None;
    for hold in HOLDS {
        let report = bed.json(&[&grad[..], &files, hold].concat());
        let (input, weights) = (bed.read("gx.npy"), floats(&bed.read("gw.safetensors")));
        assert_eq!(weights.len(), 16656);
        match &whole {
            None => whole = Some((input, weights)),
            Some((whole_input, whole_weights)) => {
                assert!(tiles(&report) > 1, "{hold:?}: one tile");
                assert!(*whole_input == input, "{hold:?}: input gradients differ");
                // sums of at most 3750 products, each of which is far from the largest gradient
                let largest = whole_weights.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
                for (a, b) in whole_weights.iter().zip(&weights) {
                    assert!((a - b).abs() <= 1e-4 * largest, "{hold:?}: {a} and {b}");
                }
            }
        }
    }
}

#[test]
fn gradients_of_ones_are_those_of_a_file_of_ones() {
    let bed = Bed::new();
    bed.random_npy("x.npy", &[3, 16, 24]);
    let mut ones = crate::bed::npy_header("<f4", &[32, 4, 6]);
    ones.extend(1.0_f32.to_le_bytes().repeat(32 * 4 * 6));
    bed.write("ones.npy", &ones);
    for (given, name) in [("ones", "a.npy"), ("ones.npy", "b.npy")] {
        let grad = ["grad", "--net", "light", "--weights", "random:3", "--input", "x.npy"];
        bed.succeeds(&[&grad[..], &["--grad-output", given, "--grad-input", name]].concat());
    }
    assert!(bed.read("a.npy") == bed.read("b.npy"));
}

#[test]
fn training_makes_the_loss_fall_and_goes_on_from_saved_weights() {
    let bed = Bed::new();
    bed.random_npy("x.npy", &[3, 40, 56]);
    let run = ["run", "--net", "unet", "--weights", "random:9", "--input", "x.npy", "--output", "t.npy"];
    bed.succeeds(&run);
    let train = ["train", "--net", "unet", "--input", "x.npy", "--target", "t.npy", "--memory", "8MiB"];
    let slide = ["--hold", "slide", "--tile", "8x20"];
    let options = ["--optimizer", "sgd", "--lr", "0.2", "--save", "w.safetensors"];
    let pictures = ["--prediction", "p.png", "--loss-curve", "loss.svg", "--steps", "12"];
    let report = bed.json(&[&train[..], &slide, &options, &pictures].concat());
    let losses = losses(&report);
    assert_eq!(losses.len(), 12);
    assert!(losses[11] < 0.1 * losses[0], "{losses:?}");
    assert!(tiles(&report) > 1);
    assert!(bed.read("p.png").starts_with(b"\x89PNG"));
    assert!(bed.read("loss.svg").starts_with(b"<svg"));
    let resumed = bed.json(&[&train[..], &["--weights", "w.safetensors", "--steps", "1"]].concat());
    assert!(self::losses(&resumed)[0] < losses[0]);
    // the report counts the arithmetic of all steps
    let one = bed.json(&[&train[..], &slide, &["--steps", "1", "--save", "one.safetensors"]].concat());
    let (twelve, one) = (&report["flops"].as_f64(), &one["flops"].as_f64());
    assert_eq!(twelve.expect("a number"), 12.0 * one.expect("a number"));
}

#[test]
fn untiled_and_tiled_training_have_the_same_losses() {
    let bed = Bed::new();
    bed.random_npy("x.npy", &[3, 33, 47]);
    bed.npy("t.npy", &[1, 33, 47]);
    bed.write("net.json", CLASSES.as_bytes());
    let train = ["train", "--net", "net.json", "--input", "x.npy", "--target", "t.npy", "--steps", "3"];
    let options = ["--loss", "cross-entropy", "--momentum", "0.9", "--weight-decay", "0.001", "--lr", "0.1"];
    let all: Vec<Vec<f64>> =
        HOLDS.iter().map(|hold| losses(&bed.json(&[&train[..], &options, hold].concat()))).collect();
    assert!(all[0][2] < all[0][0]);
    for tiled in &all[1..] {
        for (a, b) in all[0].iter().zip(tiled) {
            assert!((a - b).abs() <= 1e-5 * a, "{all:?}");
        }
    }
}

#[test]
fn networks_of_many_inputs_and_outputs_take_a_file_for_each() {
    let bed = Bed::new();
    bed.random_npy("a.npy", &[2, 20, 30]);
    bed.random_npy("b.npy", &[2, 20, 30]);
    bed.write("net.json", TWO_INPUTS.as_bytes());
    let run = ["run", "--net", "net.json", "--weights", "random:0", "--input", "a.npy", "--input", "b.npy"];
    let report =
        bed.json(&[&run[..], &["--output", "s.npy", "--output", "r.npy", "--dtype", "f64"]].concat());
    assert_eq!(report["outputs"], serde_json::json!([[1, 2, 20, 30], [1, 2, 20, 30]]));
    let header = bed.read("s.npy");
    assert!(String::from_utf8_lossy(&header[..80]).contains("'<f8'"));
    let grad = ["grad", "--net", "net.json", "--weights", "random:0", "--input", "a.npy", "--input", "b.npy"];
    bed.succeeds(&[&grad[..], &["--grad-input", "ga.npy", "--grad-input", "gb.npy"]].concat());
    // the sum passes its gradient to both; the way through relu adds to that of `a`
    assert!(bed.read("ga.npy") != bed.read("gb.npy"));
    assert_eq!(floats_of_npy(&bed.read("gb.npy")), vec![1.0; 2 * 20 * 30]);
}

#[test]
fn plans_of_huge_images_need_no_data_and_state_their_memory() {
    let bed = Bed::new();
    let plan = ["plan", "--net", "light", "--input", "3x100000x100000", "--train", "--memory", "1GiB"];
    let report = bed.json(&[&plan[..], &["--svg", "plan.svg", "--steps", "2"]].concat());
    check_figures(&report);
    assert!(report["plan_peak_bytes"].as_u64().expect("a number") <= 1 << 30);
    assert!(report["redundant_flops"].as_f64() < report["flops"].as_f64());
    assert_eq!(report["plan"]["sweeps"][0]["steps"].as_array().map(Vec::len), Some(2));
    assert!(bed.read("plan.svg").starts_with(b"<svg"));
}

#[test]
fn verification_reports_its_counts() {
    let report = Bed::new().json(&["verify", "--cases", "5", "--seed", "3"]);
    check_figures(&report);
    assert_eq!(report["cases"], 5);
    assert!(report["min_tiles"].as_u64() > Some(1));
    for key in ["output_mismatches", "input_grad_mismatches", "weight_grad_failures"] {
        assert_eq!(report[key], 0, "{key}");
    }
}

#[test]
fn the_demo_finds_no_mismatch_on_another_picture() {
    let bed = Bed::new();
    bed.write("net.json", SHIFT.as_bytes());
    bed.random_npy("x.npy", &[3, 90, 130]);
    let run = ["run", "--net", "net.json", "--weights", "random:0", "--input", "x.npy", "--output", "x.png"];
    bed.succeeds(&run);
    let report = bed.json(&["demo", "--picture", "x.png", "--memory", "16MiB", "--out", "drawn"]);
    check_figures(&report);
    assert_eq!(report["mismatches"], 0);
    // outputs and input gradients, twice, of the crop of 88×128
    let outputs = (3 + 64) * 22 * 32;
    assert_eq!(report["compared"], 2 * (outputs + 3 * 88 * 128));
    assert!(report["untiled_bytes"].as_u64() > Some(88 * 128 * 32 * 4));
    assert!(bed.read("drawn/plan.svg").starts_with(b"<svg"));
    assert!(bed.read("drawn/feature_map.png").starts_with(b"\x89PNG"));
}

#[test]
fn every_subcommand_has_help_with_examples() {
    for command in ["demo", "plan", "run", "grad", "train", "verify", "bench", "net"] {
        let help = Bed::new().says(&[command, "--help"]);
        assert!(help.contains("Examples:") && help.contains(&format!("tiled {command}")), "{help}");
    }
}

/// The figures that every JSON report has.
fn check_figures(report: &Value) {
    for key in ["seconds", "tiles", "plan_peak_bytes", "peak_rss_bytes", "flops", "redundant_flops"] {
        assert!(report.get(key).is_some(), "{key} is missing in {report}");
    }
}

fn tiles(report: &Value) -> u64 {
    check_figures(report);
    report["tiles"].as_u64().expect("a number of tiles")
}

fn losses(report: &Value) -> Vec<f64> {
    let losses = report["losses"].as_array().expect("a list");
    losses.iter().map(|loss| loss.as_f64().expect("a number")).collect()
}

#[test]
fn scratch_files_hold_what_memory_does_not() {
    let bed = Bed::new();
    bed.write("net.json", CLASSES.as_bytes());
    bed.random_npy("x.npy", &[3, 120, 200]);
    let grad =
        ["grad", "--net", "net.json", "--weights", "random:3", "--input", "x.npy", "--grad-output", "ones"];
    let files = ["--grad-input", "gx.npy", "--memory", "1800KiB"];
    let without = bed.json(&[&grad[..], &files].concat());
    let expected = bed.read("gx.npy");
    let before = bed.names();
    let with = bed.json(&[&grad[..], &files, &["--scratch", "."]].concat());
    let again = |report: &Value| report["redundant_flops"].as_f64().expect("a number");
    assert!(again(&without) > 0.0, "the memory holds it all: {without}");
    assert!(again(&with) < again(&without), "nothing is kept: {with}");
    assert!(bed.read("gx.npy") == expected, "gradients differ");
    assert_eq!(bed.names(), before, "files are left behind");
}

/// The elements of all tensors of a `.safetensors` file.
fn floats(bytes: &[u8]) -> Vec<f32> {
    let (len, rest) = bytes.split_first_chunk().expect("a length");
    let header = usize::try_from(u64::from_le_bytes(*len)).expect("a short header");
    numbers(&rest[header..])
}

fn floats_of_npy(bytes: &[u8]) -> Vec<f32> {
    numbers(&bytes[128..])
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    let (elements, _) = bytes.as_chunks::<4>();
    elements.iter().map(|element| f32::from_le_bytes(*element)).collect()
}

const CLASSES: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 8, "kernel_size": 3, "padding": 1},
            {"name": "n1", "op": "batch_norm", "inputs": ["c1"]},
            {"name": "r1", "op": "relu", "inputs": ["n1"]},
            {"name": "c2", "op": "conv2d", "inputs": ["r1"], "out_channels": 5, "kernel_size": 3, "padding": 1}],
  "outputs": ["c2"]}"#;

const TWO_INPUTS: &str = r#"{"inputs": [{"name": "a", "channels": 2}, {"name": "b", "channels": 2}],
  "nodes": [{"name": "sum", "op": "add", "inputs": ["a", "b"]}, {"name": "relu", "op": "relu", "inputs": ["a"]}],
  "outputs": ["sum", "relu"]}"#;

const SHIFT: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "s", "op": "sigmoid", "inputs": ["x"]}], "outputs": ["s"]}"#;
