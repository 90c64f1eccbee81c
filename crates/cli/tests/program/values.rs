//! What becomes of values on their way in and out: normalised, decided, of other types.

use tiled::exec::{Numbers, Source, SourceOptions, open_source_with};
use tiled::tensor::Tensor;

use crate::bed::{Bed, npy_header};

/// Five classes from three channels, halved.
const NET: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
    "nodes": [{"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 5, "kernel_size": 3, "stride": 2,
    "padding": 1}], "outputs": ["c"]}"#;

/// A picture of three colours without a pattern that repeats.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.write("net.json", NET.as_bytes());
    let picture = image::RgbImage::from_fn(61, 43, |x, y| {
        image::Rgb(
            [x * 5 + y * 3, x * y, x * x + 7 * y].map(|value| u8::try_from(value % 256).expect("a byte")),
        )
    });
    picture.save(bed.path("x.png")).expect("the folder is writable");
    bed
}

fn run<'a>(output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let run = ["run", "--net", "net.json", "--weights", "random:3", "--input", "x.png", "--output", output];
    [&run[..], more].concat()
}

/// A file as the integers that it holds.
fn as_is(bed: &Bed, name: &str) -> Tensor<f32> {
    let options = SourceOptions { numbers: Numbers::AsIs, ..SourceOptions::default() };
    let source = open_source_with::<f32>(bed.path(name), &options).expect("it was written");
    let mut tensor = Tensor::zeros(source.shape()).expect("it is small");
    source.read(tensor.view().region(), &mut tensor.view_mut()).expect("it was written");
    tensor
}

#[test]
fn the_largest_channel_is_written_as_class_numbers() {
    let bed = bed();
    bed.succeeds(&run("y.npy", &["--tile", "7x9"]));
    let scores = as_is(&bed, "y.npy");
    let [_, channels, height, width] = scores.shape();
    let view = scores.view();
    let largest = Tensor::from_fn([1, 1, height, width], |[.., y, x]| {
        let at = |c: usize| view.get(0, c, y.cast_signed() as i64, x.cast_signed() as i64);
        let best = (1..channels).fold(0, |best, c| if at(c) > at(best) { c } else { best });
        f32::from(u8::try_from(best).expect("five classes"))
    })
    .expect("it is small");
    assert!(largest.data().iter().any(|class| *class > 0.0), "all pixels have one class");
    for name in ["c.png", "c.npy"] {
        let text = bed.says(&run(name, &["--tile", "7x9", "--argmax"]));
        assert!(text.contains(&format!("wrote {name} (1×1×22×31")), "{text}");
        assert_eq!(as_is(&bed, name).data(), largest.data());
    }
    assert_eq!(bed.read("c.npy").len() - npy_header("|u1", &[1, 1, 22, 31]).len(), 22 * 31, "bytes");
    bed.succeeds(&run("c.npy", &["--argmax", "--output-type", "i32"]));
    assert_eq!(as_is(&bed, "c.npy").data(), largest.data());
    image::GrayImage::new(16, 16).save(bed.path("g.png")).expect("the folder is writable");
    bed.fails(
        "argmax_of_one",
        &[
            "run",
            "--net",
            "seed-001",
            "--weights",
            "random:0",
            "--input",
            "g.png",
            "--output",
            "q.npy",
            "--argmax",
        ],
        2,
    );
}

#[test]
fn thresholds_and_types_of_outputs() {
    let bed = bed();
    bed.succeeds(&run("y.npy", &[]));
    let scores = as_is(&bed, "y.npy");
    bed.succeeds(&run(
        "t.npy",
        &["--threshold", "-0.05", "--output-type", "u8", "--output-numbers", "as-is"],
    ));
    let above: Vec<f32> = scores.data().iter().map(|score| f32::from(u8::from(*score > -0.05))).collect();
    assert_eq!(as_is(&bed, "t.npy").data(), above);

    let text = bed.says(&run("w.npy", &["--output-type", "i16", "--output-numbers", "as-is"]));
    assert!(text.contains(" values rounded to whole numbers"), "{text}");
    let rounded: Vec<f32> = scores.data().iter().map(|score| score.round()).collect();
    assert_eq!(as_is(&bed, "w.npy").data(), rounded);
    let report = bed.json(&run("w.npy", &["--output-type", "f16"]));
    assert_eq!(report["changed"][0]["element"], "f16");
    for (half, score) in as_is(&bed, "w.npy").data().iter().zip(scores.data()) {
        assert!((half - score).abs() <= score.abs() / 2048.0 + 1e-7, "{half} {score}");
    }
    bed.fails("picture_of_floats", &run("w.png", &["--output-type", "f32"]), 2);
}

#[test]
fn inputs_are_normalised_as_torchvision_does() {
    let bed = bed();
    let (mean, std) = ([0.485_f32, 0.456, 0.406], [0.229_f32, 0.224, 0.225]);
    let picture = image::open(bed.path("x.png")).expect("it was written").into_rgb8();
    let mut array = npy_header("<f4", &[3, 43, 61]);
    for c in 0..3 {
        let pixels = picture.pixels().map(|pixel| (f32::from(pixel.0[c]) / 255.0 - mean[c]) / std[c]);
        array.extend(pixels.flat_map(f32::to_le_bytes));
    }
    bed.write("x.npy", &array);
    let of_array: Vec<&str> =
        run("y.npy", &[]).into_iter().map(|word| if word == "x.png" { "x.npy" } else { word }).collect();
    bed.succeeds(&of_array);
    let factors = ["--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225"];
    bed.succeeds(&run("z.npy", &[&factors[..], &["--tile", "5x8"]].concat()));
    assert!(bed.read("y.npy") == bed.read("z.npy"), "normalised before and while it is read");
    bed.fails("mean_of_two_channels", &run("q.npy", &["--mean", "0.5,0.25"]), 2);
    bed.fails("deviation_of_zero", &run("q.npy", &["--std", "0"]), 2);
}

#[test]
fn pictures_over_a_quarter_of_the_memory_lie_in_a_temporary_file() {
    let bed = bed();
    let picture = image::RgbImage::from_fn(1201, 1003, |x, y| {
        image::Rgb([x * 5 + y * 3, x * y, x + 7 * y].map(|value| u8::try_from(value % 256).expect("a byte")))
    });
    picture.save(bed.path("x.png")).expect("the folder is writable");
    bed.succeeds(&run("y.npy", &[]));
    let text = bed.says(&run("z.npy", &["--memory", "4MiB", "--scratch", "."]));
    assert!(text.contains("x.png, 3×1003×1201, u8 scaled to 0…1, decoded to a temporary file\n"), "{text}");
    assert!(bed.read("y.npy") == bed.read("z.npy"), "held and from a file");
    // a plan of the same files states the same peak
    let more = ["--memory", "4MiB", "--argmax"];
    let planned = run("c.png", &more).into_iter().map(|word| if word == "run" { "plan" } else { word });
    let planned: Vec<&str> = planned.filter(|word| !["--weights", "random:3"].contains(word)).collect();
    let peak = |report: &serde_json::Value| report["plan_peak_bytes"].as_u64().expect("bytes");
    assert_eq!(peak(&bed.json(&planned)), peak(&bed.json(&run("c.png", &more))));
    std::fs::remove_file(bed.path("c.png")).expect("it was written");
    let names = bed.names();
    bed.succeeds(&run("c.png", &["--memory", "4MiB", "--argmax"]));
    assert_eq!(bed.names().len(), names.len() + 1, "nothing else is left");
}
