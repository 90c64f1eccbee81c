//! What `tiled` says of the files that come in, and what it refuses.

use serde_json::json;

use crate::bed::{Bed, npy_header};

/// Three classes from three channels.
const CLASSIFIER: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
    "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 3, "kernel_size": 3, "padding": 1}],
    "outputs": ["c1"]}"#;

/// A picture of three colours, and its classes by gray.
fn picture_and_classes(bed: &Bed, classes: [u8; 3]) {
    let place = |x: u32, y: u32| ((x / 8 + y / 6) % 3) as usize;
    let colours = [[220, 30, 40], [20, 200, 60], [10, 50, 230]];
    let picture = image::RgbImage::from_fn(48, 36, |x, y| image::Rgb(colours[place(x, y)]));
    let gray = image::GrayImage::from_fn(48, 36, |x, y| image::Luma([classes[place(x, y)]]));
    picture.save(bed.path("x.png")).expect("the folder is writable");
    gray.save(bed.path("t.png")).expect("the folder is writable");
}

/// A class as the bytes of an element.
type Bytes = fn(u8) -> Vec<u8>;

const TRAIN: [&str; 13] = [
    "train",
    "--net",
    "net.json",
    "--input",
    "x.png",
    "--target",
    "t.png",
    "--loss",
    "cross-entropy",
    "--weights",
    "w0.safetensors",
    "--lr",
    "0.5",
];

fn classifier(classes: [u8; 3]) -> Bed {
    let bed = Bed::new();
    bed.write("net.json", CLASSIFIER.as_bytes());
    bed.weights("w0.safetensors", &[("c1.weight", &[3, 3, 3, 3]), ("c1.bias", &[3])]);
    picture_and_classes(&bed, classes);
    bed
}

fn losses(report: &serde_json::Value) -> Vec<f64> {
    let losses = report["losses"].as_array().expect("losses");
    losses.iter().map(|loss| loss.as_f64().expect("a finite loss")).collect()
}

#[test]
fn r02_classes_of_a_png_are_learnt() {
    let bed = classifier([0, 1, 2]);
    let report = bed.json(&[&TRAIN[..], &["--steps", "30", "--save", "w.safetensors"]].concat());
    let losses = losses(&report);
    assert!((losses[0] / 3.0_f64.ln() - 1.0).abs() < 0.2, "{losses:?}");
    assert!(losses[29] < 0.5 * losses[0], "{losses:?}");
    assert_eq!(report["inputs"][1]["scaled"], false);
}

#[test]
fn r02_random_weights_begin_near_the_logarithm_of_the_classes() {
    let bed = classifier([0, 1, 2]);
    let train = ["train", "--net", "net.json", "--input", "x.png", "--target", "t.png", "--steps", "3"];
    let report = bed.json(&[&train[..], &["--loss", "cross-entropy", "--weights", "random:4"]].concat());
    let losses = losses(&report);
    assert!((losses[0] / 3.0_f64.ln() - 1.0).abs() < 0.2 && losses[2] < losses[0], "{losses:?}");
}

#[test]
fn r02_classes_of_integers_of_every_type_are_the_same() {
    let bed = classifier([0, 1, 2]);
    let classes = image::open(bed.path("t.png")).expect("it is a picture").into_luma8();
    let expected = losses(&bed.json(&[&TRAIN[..], &["--steps", "2"]].concat()));
    let integers: [(&str, Bytes); 5] = [
        ("|u1", |class| vec![class]),
        ("<u2", |class| u16::from(class).to_le_bytes().to_vec()),
        ("<i4", |class| i32::from(class).to_le_bytes().to_vec()),
        ("<i8", |class| i64::from(class).to_le_bytes().to_vec()),
        ("<f4", |class| f32::from(class).to_le_bytes().to_vec()),
    ];
    for (descr, bytes) in integers {
        let mut file = npy_header(descr, &[36, 48]);
        file.extend(classes.as_raw().iter().flat_map(|class| bytes(*class)));
        bed.write("t.npy", &file);
        let train: Vec<&str> = TRAIN.map(|word| if word == "t.png" { "t.npy" } else { word }).to_vec();
        assert_eq!(losses(&bed.json(&[&train[..], &["--steps", "2"]].concat())), expected, "{descr}");
    }
}

#[test]
fn r02_a_class_that_is_none_is_told_before_any_work() {
    let bed = classifier([0, 1, 7]);
    bed.fails("class_out_of_range", &[&TRAIN[..], &["--save", "w.safetensors"]].concat(), 2);
}

#[test]
fn r02_ignored_classes_leave_the_mean_to_the_others() {
    let bed = classifier([0, 1, 255]);
    let report = bed.json(&[&TRAIN[..], &["--steps", "2", "--ignore-index", "255"]].concat());
    // the weights are zeros: every pixel that counts has the same loss
    assert!((losses(&report)[0] - 3.0_f64.ln()).abs() < 1e-6, "{report}");
    let bed = classifier([255; 3]);
    bed.fails("classes_all_ignored", &[&TRAIN[..], &["--ignore-index", "255"]].concat(), 2);
    let train: Vec<&str> = TRAIN.map(|word| if word == "t.png" { "x.png" } else { word }).to_vec();
    bed.fails("classes_of_colours", &train, 2);
    let mse =
        ["train", "--net", "net.json", "--input", "x.png", "--target", "x.png", "--ignore-index", "-100"];
    bed.fails("ignore_index_without_classes", &mse, 2);
}

const RUN: [&str; 9] =
    ["run", "--net", "net.json", "--weights", "random:1", "--output", "y.npy", "--input", "x.png"];

#[test]
fn r03_run_says_what_numbers_mean() {
    let bed = classifier([0, 1, 2]);
    let text = bed.says(&RUN);
    assert!(text.contains("input x: x.png, 3×36×48, u8 scaled to 0…1\n"), "{text}");
    let scaled = bed.read("y.npy");
    let report = bed.json(&RUN);
    let input = json!({"name": "input x", "path": "x.png", "shape": [1, 3, 36, 48], "element": "u8", "scaled": true,
            "temporary_bytes": 0});
    assert_eq!(report["inputs"], json!([input]));
    let text = bed.says(&[&RUN[..], &["--numbers", "as-is"]].concat());
    assert!(text.contains("input x: x.png, 3×36×48, u8\n"), "{text}");
    assert!(bed.read("y.npy") != scaled);

    let picture = image::open(bed.path("x.png")).expect("it is a picture").into_rgb8();
    let mut array = npy_header("|u1", &[3, 36, 48]);
    for c in 0..3 {
        array.extend(picture.pixels().map(|pixel| pixel.0[c]));
    }
    bed.write("x.npy", &array);
    let run: Vec<&str> = RUN.map(|word| if word == "x.png" { "x.npy" } else { word }).to_vec();
    let text = bed.says(&run);
    assert!(text.contains("input x: x.npy, 3×36×48, u8 scaled to 0…1\n"), "{text}");
    assert!(bed.read("y.npy") == scaled, "the same bytes are another image in an array");
}

#[test]
fn r03_values_that_a_picture_cannot_hold_are_told() {
    let bed = classifier([0, 1, 2]);
    let run: Vec<&str> = RUN.map(|word| if word == "y.npy" { "y.png" } else { word }).to_vec();
    let text = bed.says(&run);
    let line = text.lines().find(|line| line.starts_with("y.png: ")).expect("values are told");
    assert!(
        line.contains(" of 5184 values cut to 0…1 (least -") && line.contains("rounded to a 255th"),
        "{line}"
    );
    let report = bed.json(&run);
    let picture = &report["changed"][0];
    assert_eq!((&picture["path"], &picture["values"]), (&json!("y.png"), &json!(5184)));
    assert!(picture["cut"].as_u64() > Some(0) && picture["least"].as_f64() < Some(0.0), "{picture}");
    assert_eq!(bed.json(&RUN)["changed"], json!([]));
}

#[test]
fn r07_raw_files_are_read_as_they_are_written() {
    let bed = classifier([0, 1, 2]);
    let run = |input, output| {
        ["run", "--net", "net.json", "--weights", "random:1", "--input", input, "--output", output]
    };
    bed.succeeds(&run("x.png", "y.raw"));
    bed.succeeds(&run("x.png", "y.npy"));
    bed.succeeds(&run("y.raw:3x36x48", "z.npy"));
    let again = bed.read("z.npy");
    bed.succeeds(&run("y.npy", "z.npy"));
    assert!(again == bed.read("z.npy"));
    let text = bed.says(&run("y.raw:3x36x48:f32", "z.npy"));
    assert!(text.contains("input x: y.raw, 3×36×48, f32\n"), "{text}");
    bed.fails("raw_without_shape", &run("y.raw", "q.npy"), 2);
    bed.fails("raw_of_another_size", &run("y.raw:3x36x49", "q.npy"), 2);
}

#[test]
fn r10_a_picture_that_must_be_held_and_is_larger_than_the_memory_is_refused_by_its_header() {
    let bed = classifier([0, 1, 2]);
    let mut promise = bed.read("x.png");
    promise[16..24].copy_from_slice(&[18_000_u32.to_be_bytes(), 18_000_u32.to_be_bytes()].concat());
    // interlaced: its rows do not come one after another, so that it must be held
    promise[28] = 1;
    let sum = crc(&promise[12..29]);
    promise[29..33].copy_from_slice(&sum.to_be_bytes());
    bed.write("x.png", &promise);
    bed.fails("picture_over_memory", &[&RUN[..], &["--memory", "2MiB"]].concat(), 2);
}

/// The checksum of a chunk (PNG, annex D).
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1)))
    })
}

#[test]
fn r14_a_jpeg_that_is_cut_is_refused_with_its_row() {
    let bed = classifier([0, 1, 2]);
    let picture = image::open(bed.path("x.png")).expect("it is a picture");
    picture.save(bed.path("x.jpg")).expect("the folder is writable");
    let whole = bed.read("x.jpg");
    bed.write("x.jpg", &whole[..whole.len() * 9 / 10]);
    let run: Vec<&str> = RUN.map(|word| if word == "x.png" { "x.jpg" } else { word }).to_vec();
    let text = bed.fails("jpeg_cut", &run, 2);
    assert!(text.contains(" at row "), "{text}");
}
