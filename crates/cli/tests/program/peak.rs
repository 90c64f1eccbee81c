//! The process takes no more memory than its plan says: the peak of the process beyond that of a trivial run of the
//! same subcommand, as the system counts it, is at most the peak of the plan, 5 % and 8 MiB.
//!
//! A few of the runs always; `TILED_PEAK=all cargo test --release -p tiled-cli --test program r10` runs all of them.

use image::{ColorType, ExtendedColorType, ImageEncoder};
use serde_json::Value;

use crate::bed::{Bed, number_after};

/// What a process may take beside its plan, and the part of the plan that it may be wrong by.
const BESIDE_BYTES: u64 = 8 << 20;
const PART: u64 = 20;

/// A run, and the least that another one of its kind takes.
struct Run {
    command: &'static str,
    net: &'static str,
    input: &'static str,
    /// Weights and what else the subcommand wants.
    options: Vec<&'static str>,
    threads: &'static str,
    /// Whether it is one of those that always run.
    is_quick: bool,
}

impl Run {
    fn args(&self, net: &str, input: &str, more: &[&str]) -> Vec<String> {
        let start = [self.command, "--net", net, "--input", input];
        let all = start.into_iter().chain(more.iter().copied());
        all.map(str::to_owned).collect()
    }

    /// The smallest budget that works, the double of it, and what can be had.
    fn budgets(&self, bed: &Bed, is_all: bool) -> Vec<Option<u64>> {
        let mut smallest = 1;
        // a picture is refused before there is a plan, and decoding it may take more than the run
        while let Some(text) = self.refusal(bed, smallest) {
            let words =
                ["picture takes ", "smallest that works is "].into_iter().find(|words| text.contains(words));
            smallest = number_after(&text, words.unwrap_or_else(|| panic!("{text}")));
        }
        // the smallest plan of a large image is one call for each pixel, which takes minutes
        let least = (is_all || self.input == SMALL).then_some(Some(smallest));
        least.into_iter().chain([Some(2 * smallest), None]).collect()
    }

    /// What the program says where a budget is too small, from the plan of the run.
    fn refusal(&self, bed: &Bed, budget: u64) -> Option<String> {
        let kept: &[&str] = match self.command {
            "run" => &["--output"],
            "grad" => &[],
            _ => &["--target", "--optimizer", "--momentum", "--save"],
        };
        let options = self.options.chunks(2).filter(|pair| kept.contains(&pair[0])).flatten().copied();
        let training: &[&str] = match self.command {
            "run" => &[],
            "grad" if self.options.contains(&"--grad-input") => {
                &["--train", "--loss", "none", "--grad-input"]
            }
            "grad" => &["--train", "--loss", "none"],
            _ => &["--train"],
        };
        let budget = budget.to_string();
        let start = ["plan", "--net", self.net, "--input", self.input, "--threads", self.threads];
        let start = start.into_iter().chain(["--json", "--steps", "0", "--memory", &budget]);
        let args: Vec<&str> = start.chain(training.iter().copied()).chain(options).collect();
        bed.refusal(&args)
    }

    fn check(&self, bed: &Bed, is_all: bool) {
        let name = format!("{} {} {} {:?}", self.command, self.net, self.input, self.options);
        let trivial = bytes(&bed.json(&self.args(TRIVIAL, "tiny.npy", self.trivial())), "peak_rss_bytes");
        let Some(trivial) = trivial else {
            return eprintln!("skipped: the system does not say what a process takes");
        };
        for budget in self.budgets(bed, is_all) {
            let budget = budget.map(|bytes| ["--memory".to_owned(), bytes.to_string()]);
            let mut args = self.args(self.net, self.input, &self.options);
            args.extend(["--threads".to_owned(), self.threads.to_owned()]);
            args.extend(budget.iter().flatten().cloned());
            let report = bed.json(&args);
            let planned = bytes(&report, "plan_peak_bytes").expect("a number");
            let beyond = bytes(&report, "peak_rss_bytes").expect("a number").saturating_sub(trivial);
            eprintln!("{name} {budget:?}: planned {planned}, beyond a trivial run {beyond}");
            assert!(
                beyond <= planned + planned / PART + BESIDE_BYTES,
                "{name} {budget:?}: {beyond} bytes beyond a trivial run, planned {planned}"
            );
        }
    }

    /// The options of the least run of the subcommand.
    fn trivial(&self) -> &'static [&'static str] {
        match self.command {
            "run" => &["--weights", "random:1", "--output", "y.npy", "--threads", "1"],
            "grad" => &["--weights", "random:1", "--grad-weights", "gw.safetensors", "--threads", "1"],
            _ => &["--target", "tiny.npy", "--save", "w.safetensors", "--steps", "1", "--threads", "1"],
        }
    }
}

const TRIVIAL: &str = "trivial.json";
const SMALL: &str = "small.npy";

fn bytes(report: &Value, key: &str) -> Option<u64> {
    report[key].as_u64()
}

fn runs() -> Vec<Run> {
    let run = |command, net, input, options: &[&'static str], threads, is_quick| Run {
        command,
        net,
        input,
        options: options.to_vec(),
        threads,
        is_quick,
    };
    let output: &[&str] = &["--weights", "random:1", "--output", "y.npy"];
    let gradients: &[&str] = &["--weights", "random:1", "--grad-weights", "gw.safetensors"];
    vec![
        // gradients of as many bytes as the weights are written from where they lie
        run("grad", "vgg16", "small.npy", gradients, "2", true),
        // weights of another type pass a small buffer
        run(
            "run",
            "vgg16",
            "small.npy",
            &["--weights", "vgg16_f64.safetensors", "--output", "y.npy"],
            "1",
            true,
        ),
        // weights of a model lie in its file until they are asked for
        run("run", "many.onnx", "small.npy", &["--output", "y.npy"], "2", true),
        // decoded pictures are counted
        run("run", "conv.json", "rgb.png", output, "1", true),
        run("run", "conv.json", "baseline.jpg", output, "2", true),
        run("run", "conv.json", "progressive.jpg", output, "2", true),
        // an optimiser with two numbers for each weight
        run(
            "train",
            "vgg16",
            "small.npy",
            &[
                "--target",
                "small_target.npy",
                "--optimizer",
                "adamw",
                "--steps",
                "2",
                "--save",
                "w.safetensors",
            ],
            "2",
            true,
        ),
        run("run", "conv.json", "large.npy", output, "8", true),
        run(
            "run",
            "vgg16",
            "small.npy",
            &["--weights", "vgg16_f32.safetensors", "--output", "y.npy"],
            "8",
            false,
        ),
        run("run", "conv.json", "gray.png", &["--weights", "random:1", "--output", "y.npy"], "1", false),
        run("run", "shift.json", "rgb.png", &["--weights", "random:1", "--output", "y.png"], "4", false),
        run("run", "light", "rgb.png", output, "3", false),
        run("run", "unet", "batch.npy", output, "4", false),
        run("grad", "light", "rgb.png", &[gradients, &["--grad-input", "gx.npy"]].concat(), "2", false),
        run("grad", "resnet18", "batch.npy", gradients, "8", false),
        run("grad", "light", "large.npy", gradients, "8", false),
        run("grad", "conv.json", "progressive.jpg", gradients, "1", false),
        run("grad", "conv.json", "baseline.jpg", gradients, "8", false),
        run("train", "conv.json", "rgb.png", &["--target", "rgb_target.npy", "--steps", "2"], "4", false),
        run(
            "train",
            "light",
            "batch.npy",
            &["--target", "batch_target.npy", "--steps", "2", "--momentum", "0.9", "--save", "w.safetensors"],
            "1",
            false,
        ),
        run(
            "train",
            "vgg16",
            "small.npy",
            &[
                "--target",
                "small_target.npy",
                "--weights",
                "vgg16_f64.safetensors",
                "--steps",
                "2",
                "--save",
                "w.safetensors",
            ],
            "8",
            false,
        ),
    ]
}

#[test]
fn r10_processes_take_what_their_plans_say() {
    let bed = Bed::new();
    let is_all = std::env::var_os("TILED_PEAK").is_some_and(|value| value == "all");
    write_files(&bed, is_all);
    let runs: Vec<Run> = runs().into_iter().filter(|run| is_all || run.is_quick).collect();
    runs.iter().for_each(|run| run.check(&bed, is_all));
}

/// The plan of the prediction takes the room that the training has left.
#[test]
fn r10_a_prediction_holds_nothing_of_the_training() {
    let bed = Bed::new();
    bed.write("net.json", HEAVY_NET.as_bytes());
    bed.write(TRIVIAL, TRIVIAL_NET.as_bytes());
    bed.npy("tiny.npy", &[3, 8, 8]);
    bed.npy("x.npy", &[3, 1000, 1000]);
    bed.npy("t.npy", &[1, 1000, 1000]);
    let train = |net: &str, input: &str, target: &str, more: &[&str]| {
        let files = ["train", "--net", net, "--input", input, "--target", target, "--save", "w.safetensors"];
        let steps = ["--prediction", "p.npy", "--steps", "1", "--threads", "1"];
        bed.json(&[&files[..], &steps, more].concat())
    };
    let trivial = train(TRIVIAL, "tiny.npy", "tiny.npy", &[]);
    let Some(trivial) = bytes(&trivial, "peak_rss_bytes") else {
        return eprintln!("skipped: the system does not say what a process takes");
    };
    let report = train("net.json", "x.npy", "t.npy", &["--only", "h", "--memory", "200MB"]);
    let planned = bytes(&report, "plan_peak_bytes").expect("a number");
    let beyond = bytes(&report, "peak_rss_bytes").expect("a number").saturating_sub(trivial);
    assert!(
        beyond <= planned + planned / PART + BESIDE_BYTES,
        "{beyond} beyond a trivial run, planned {planned}"
    );
}

/// A picture that is larger than a quarter of the memory lies in a file until it is whole, also where there is no room for it beside the plan.
#[test]
fn r10_pictures_of_predictions_and_gradients_take_no_memory_of_their_plans() {
    let bed = Bed::new();
    bed.write("net.json", br#"{"inputs": [{"name": "x", "channels": 1}], "outputs": ["y"], "nodes":
        [{"name": "y", "op": "conv2d", "inputs": ["x"], "out_channels": 1, "kernel_size": 3, "padding": 1}]}"#);
    bed.npy("x.npy", &[1, 2000, 2000]);
    let memory = ["--memory", "3MiB", "--threads", "1"];
    let train = ["train", "--net", "net.json", "--input", "x.npy", "--target", "x.npy", "--steps", "1"];
    bed.succeeds(&[&train[..], &["--save", "w.safetensors", "--prediction", "p.png"], &memory].concat());
    let grad = ["grad", "--net", "net.json", "--weights", "w.safetensors", "--input", "x.npy"];
    bed.succeeds(&[&grad[..], &["--grad-output", "x.npy", "--grad-input", "g.png"], &memory].concat());
    for picture in ["p.png", "g.png"] {
        assert!(bed.path(picture).metadata().is_ok_and(|metadata| metadata.len() > 1000), "{picture}");
    }
}

fn write_files(bed: &Bed, is_all: bool) {
    bed.write(TRIVIAL, TRIVIAL_NET.as_bytes());
    bed.write("many.onnx", &crate::onnx::of_many_weights());
    bed.write("conv.json", crate::bed::CONV_NET.as_bytes());
    bed.write("shift.json", SHIFT_NET.as_bytes());
    bed.npy("tiny.npy", &[3, 8, 8]);
    bed.npy("small.npy", &[3, 32, 32]);
    bed.npy("small_target.npy", &[512, 1, 1]);
    bed.sparse_npy("large.npy", &[3, 2000, 2000]);
    bed.write("rgb.png", &png(SIDE));
    bed.write("baseline.jpg", &baseline_jpeg(SIDE));
    bed.write("progressive.jpg", &progressive_jpeg(SIDE));
    save_weights(bed, "f64");
    if is_all {
        bed.npy("batch.npy", &[4, 3, 128, 160]);
        bed.npy("batch_target.npy", &[4, 32, 32, 40]);
        bed.npy("rgb_target.npy", &[4, usize::from(SIDE), usize::from(SIDE)]);
        bed.write("gray.png", &png(SIDE));
        save_weights(bed, "f32");
    }
}

/// Weights of `vgg16`: as large as the rest of a run.
fn save_weights(bed: &Bed, dtype: &str) {
    let name = format!("vgg16_{dtype}.safetensors");
    let args =
        ["train", "--net", "vgg16", "--input", "small.npy", "--target", "small_target.npy", "--steps", "1"];
    bed.succeeds(&[&args[..], &["--dtype", dtype, "--save", &name]].concat());
}

const SIDE: u16 = 2000;

fn png(side: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let pixels = vec![90; usize::from(side) * usize::from(side) * 3];
    image::codecs::png::PngEncoder::new(&mut bytes)
        .write_image(&pixels, side.into(), side.into(), ColorType::Rgb8.into())
        .expect("a picture");
    bytes
}

fn baseline_jpeg(side: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let pixels = vec![90; usize::from(side) * usize::from(side) * 3];
    image::codecs::jpeg::JpegEncoder::new(&mut bytes)
        .write_image(&pixels, side.into(), side.into(), ExtendedColorType::Rgb8)
        .expect("a picture");
    bytes
}

/// A progressive JPEG of one scan, which says that all differences of mean values are zero: mid-gray.
fn progressive_jpeg(side: u16) -> Vec<u8> {
    let segment = |marker: u8, body: &[u8]| {
        let len = u16::try_from(body.len() + 2).expect("a short segment");
        [&[0xff, marker][..], &len.to_be_bytes(), body].concat()
    };
    let [high, low] = side.to_be_bytes();
    let tables = [&[0_u8][..], &[1; 64]].concat();
    let frame = [8, high, low, high, low, 3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0];
    let codes = [&[0_u8, 1][..], &[0; 15], &[0]].concat(); // one code of one bit, for a difference of zero
    let scan = [3, 1, 0, 2, 0, 3, 0, 0, 0, 0];
    let blocks = usize::from(side).div_ceil(8).pow(2);
    let parts = [
        vec![0xff, 0xd8],
        segment(0xdb, &tables),
        segment(0xc2, &frame),
        segment(0xc4, &codes),
        segment(0xda, &scan),
        vec![0; (3 * blocks).div_ceil(8)],
        vec![0xff, 0xd9],
    ];
    parts.concat()
}

const TRIVIAL_NET: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 3, "kernel_size": 1}], "outputs": ["c"]}"#;

/// A norm whose inputs, 64 MB, are worth holding, and as many bytes of weights.
const HEAVY_NET: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "b", "op": "conv2d", "inputs": ["x"], "out_channels": 16, "kernel_size": 3, "padding": 1},
            {"name": "c", "op": "conv2d", "inputs": ["b"], "out_channels": 16, "kernel_size": 5, "padding": 2},
            {"name": "n", "op": "group_norm", "inputs": ["c"], "num_groups": 4},
            {"name": "h", "op": "conv2d", "inputs": ["n"], "out_channels": 1, "kernel_size": 1},
            {"name": "p", "op": "global_avg_pool", "inputs": ["x"]},
            {"name": "f1", "op": "linear", "inputs": ["p"], "out_features": 4000},
            {"name": "f2", "op": "linear", "inputs": ["f1"], "out_features": 4096},
            {"name": "f3", "op": "linear", "inputs": ["f2"], "out_features": 1},
            {"name": "o", "op": "mul", "inputs": ["h", "f3"]}], "outputs": ["o"]}"#;

const SHIFT_NET: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "s", "op": "sigmoid", "inputs": ["x"]}], "outputs": ["s"]}"#;
