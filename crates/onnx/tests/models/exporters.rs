//! Patterns that PyTorch's exporters and onnxsim write: against what they stand for.

use tiled_exec::{Executor, Io, MemorySink, MemorySource, NoProgress};
use tiled_graph::{Activation, Objective, Op, PlanOptions, Planner, infer_nchw};
use tiled_kernel::Reference;
use tiled_onnx::from_bytes;

use crate::build::{Attribute, Builder, float_tensor, graph, int_tensor, ints, names, only, ops, value};
use crate::runs::run;

/// Numbers from −2 to 2 without order.
pub(crate) fn image(shape: [usize; 4]) -> Vec<f64> {
    let len: usize = shape.iter().product();
    (0..len).map(|place| ((place * 37 + 11) % 97) as f64 / 24.0 - 2.0).collect()
}

pub(crate) fn assert_close(got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len());
    for (got, wanted) in got.iter().zip(wanted) {
        // a few roundings of double
        assert!((got - wanted).abs() <= 1e-14 * wanted.abs().max(1.0), "{got} is not {wanted}");
    }
}

/// Numbers by their names.
pub(crate) fn numbers(channels: i64, all: &[(&str, f32)]) -> Builder {
    let add =
        |model: Builder, (name, number): &(&str, f32)| model.tensor(float_tensor(name, &[], &[*number]));
    all.iter().fold(Builder::new(18, channels), add)
}

/// An input of these extents.
pub(crate) fn declared(mut model: Builder, shape: [i64; 4]) -> Builder {
    model.graph().input[0] = value("x", 1, &shape.map(Some));
    model
}

fn axis(axis: i64) -> [(&'static str, Attribute); 1] {
    [("axis", Attribute::Int(axis))]
}

/// The height and the width of `x`, as lists of one, and some numbers.
pub(crate) fn extents(channels: i64) -> Builder {
    let numbers = [("minus", -1), ("none", 0), ("one", 1), ("two", 2), ("three", 3)];
    let model = numbers
        .iter()
        .fold(Builder::new(18, channels), |model, (name, number)| model.ints(name, &[1], &[*number]));
    [("n", 0), ("h", 2), ("w", 3)].iter().fold(model, |model, (name, axis)| {
        let bounds = [("start", Attribute::Int(*axis)), ("end", Attribute::Int(axis + 1))];
        model.node("Shape", &["x"], name, &bounds)
    })
}

/// `from.expand(sizes)` as the older exporter writes it: −1 becomes 1 where it stands.
fn expanded(model: Builder, from: &str, sizes: [&str; 4]) -> Builder {
    let ones = Attribute::Tensor(Box::new(int_tensor("ones", &[1], &[1])));
    model
        .node("Concat", &sizes, "sizes", &axis(0))
        .node("Reshape", &["sizes", "minus"], "listed", &[])
        .node("Shape", &["listed"], "rank", &[])
        .node("ConstantOfShape", &["rank"], "ones", &[("value", ones)])
        .node("Mul", &["ones", "minus"], "minuses", &[])
        .node("Equal", &["listed", "minuses"], "is_kept", &[])
        .node("Where", &["is_kept", "ones", "listed"], "target", &[])
        .node("Expand", &[from, "target"], "y", &[])
}

#[test]
fn an_expansion_with_what_stays_is_the_pixel_everywhere() {
    let pooled = extents(3).node("GlobalAveragePool", &["x"], "p", &[]).node("Sigmoid", &["p"], "s", &[]);
    let model = expanded(pooled, "s", ["minus", "minus", "h", "w"]).output("y");
    assert_eq!(names(&model), ["global_avg_pool", "sigmoid", "upsample"]);
    let direct = Builder::new(18, 3)
        .node("GlobalAveragePool", &["x"], "p", &[])
        .node("Sigmoid", &["p"], "s", &[])
        .node("Shape", &["x"], "shape", &[])
        .node("Expand", &["s", "shape"], "y", &[])
        .output("y");
    for shape in [[2, 3, 5, 7], [1, 3, 1, 1]] {
        assert_eq!(run(&model, shape, &image(shape)), run(&direct, shape, &image(shape)));
    }
    // in arithmetic the pixel is itself
    let pooled = extents(3).node("GlobalAveragePool", &["x"], "p", &[]);
    let scaled = expanded(pooled, "p", ["minus", "three", "h", "w"]).node("Mul", &["x", "y"], "z", &[]);
    assert_eq!(names(&scaled.output("z")), ["global_avg_pool", "mul"]);
    // more channels than there are
    let wrong = expanded(extents(3), "x", ["minus", "two", "h", "w"]).output("y");
    assert!(only(&wrong).starts_with("Expand `n_y` (opset 18): input 1 is computed sizes, wants the shape"));
}

/// The channels that `Where` leaves of four, by a condition over the height `h` of `x`: two or all.
fn chosen(make: impl Fn(Builder) -> Builder) -> Builder {
    make(extents(4))
        .node("Where", &["c", "two", "minus"], "end", &[])
        .ints("end_of_all", &[1], &[4])
        .node("Equal", &["end", "minus"], "is_all", &[])
        .node("Where", &["is_all", "end_of_all", "end"], "until", &[])
        .node("Slice", &["x", "none", "until", "one"], "y", &[])
        .output("y")
}

#[test]
fn comparisons_of_sizes_are_known_where_they_hold_for_every_image() {
    let compared = |op: &'static str, a: &'static str, b: &'static str| {
        chosen(move |model| model.node("Add", &["h", "one"], "more", &[]).node(op, &[a, b], "c", &[]))
    };
    for (op, a, b, holds) in [
        ("Equal", "h", "h", true),
        ("Equal", "more", "h", false),
        ("Equal", "h", "none", false),
        ("Greater", "more", "h", true),
        ("Greater", "h", "more", false),
        ("Greater", "h", "h", false),
        ("Greater", "h", "none", true),
        ("GreaterOrEqual", "h", "one", true),
        ("GreaterOrEqual", "h", "more", false),
        ("Less", "h", "more", true),
        ("Less", "h", "one", false),
        ("LessOrEqual", "h", "h", true),
        ("LessOrEqual", "h", "none", false),
        ("And", "one", "two", true),
        ("And", "one", "none", false),
        ("Or", "none", "two", true),
        ("Or", "none", "none", false),
    ] {
        let shape = run(&compared(op, a, b), [2, 4, 3, 5], &image([2, 4, 3, 5])).1;
        assert_eq!(shape, [2, if holds { 2 } else { 4 }, 3, 5], "{op} {a} {b}");
    }
    let not = chosen(|model| model.node("Not", &["none"], "c", &[]));
    assert_eq!(run(&not, [1, 4, 1, 1], &image([1, 4, 1, 1])).1, [1, 2, 1, 1]);
    // what holds for some images alone is no condition, unless the model declares their size
    for (op, a, b) in [("Equal", "h", "three"), ("Greater", "h", "two"), ("Equal", "h", "w")] {
        let words = "Where `n_end` (opset 18): input 0 is computed sizes, wants conditions that do not depend on the image";
        assert_eq!(only(&compared(op, a, b)), words);
        assert!(declared(compared(op, a, b), [1, 4, 3, 5]).read().is_ok(), "{op} {a} {b}");
    }
    // between images there is no comparison
    let images = Builder::new(18, 4).node("Equal", &["x", "x"], "y", &[]).output("y");
    assert_eq!(only(&images), "Equal `n_y` (opset 18): input 0 is a batch of images, wants a few numbers");
}

#[test]
fn class_numbers_are_whole_and_casts_of_them_leave_nothing() {
    let wanted = Builder::new(18, 5).node("ArgMax", &["x"], "y", &[("axis", Attribute::Int(1))]).output("y");
    let (shape, keeps) = ([2, 5, 3, 7], |keeps| ("keepdims", Attribute::Int(keeps)));
    for to in [2, 3, 4, 5, 6, 7, 12, 13, 1] {
        let cast = [("to", Attribute::Int(to))];
        let squeezed = |before: bool| {
            let model = Builder::new(18, 5).ints("channels", &[1], &[1]);
            let model = model.node("ArgMax", &["x"], "c", &[("axis", Attribute::Int(1)), keeps(1)]);
            if before {
                let model = model.node("Cast", &["c"], "d", &cast);
                return model.node("Squeeze", &["d", "channels"], "y", &[]).output("y");
            }
            let model = model.node("Squeeze", &["c", "channels"], "d", &[]);
            model.node("Cast", &["d"], "y", &cast).output("y")
        };
        let dropped = Builder::new(18, 5)
            .node("ArgMax", &["x"], "c", &[("axis", Attribute::Int(-3)), keeps(0)])
            .node("Cast", &["c"], "y", &cast)
            .output("y");
        for model in [squeezed(true), squeezed(false), dropped] {
            assert_eq!(names(&model), ["argmax"], "{to}");
            assert_eq!(run(&model, shape, &image(shape)), run(&wanted, shape, &image(shape)));
        }
    }
    let cast = |channels: i64, to: i64| {
        Builder::new(18, channels)
            .node("ArgMax", &["x"], "c", &[("axis", Attribute::Int(1))])
            .node("Cast", &["c"], "y", &[("to", Attribute::Int(to))])
            .output("y")
    };
    // as many classes as the type has numbers
    for (channels, to) in [(128, 3), (256, 2), (257, 4)] {
        assert!(cast(channels, to).read().is_ok(), "{channels} {to}");
    }
    for (channels, to, got) in [(129, 3, "int8 for 0 to 128"), (257, 2, "uint8 for 0 to 256"), (2, 9, "bool")]
    {
        let wanted = "a type of floats, or one that holds all of the whole numbers";
        let words = format!("Cast `n_y` (opset 18): attribute `to` is {got}, wants {wanted}");
        assert_eq!(only(&cast(channels, to)), words);
    }
    // other values are no whole numbers
    let sigmoid = Builder::new(18, 1)
        .node("Sigmoid", &["x"], "s", &[])
        .node("Cast", &["s"], "y", &[("to", Attribute::Int(7))])
        .output("y");
    assert_eq!(only(&sigmoid), "Cast `n_y` (opset 18): attribute `to` is int64, wants a type of floats");
    // an axis of one channel alone is dropped
    let channels =
        Builder::new(18, 2).ints("a", &[1], &[1]).node("Squeeze", &["x", "a"], "y", &[]).output("y");
    let words = "Squeeze `n_y` (opset 18): attribute `axes` is [1], wants height and width, 2 and 3";
    assert_eq!(only(&channels), words);
}

/// Softplus as the newer exporter writes it.
fn softplus(beta: f32, threshold: f32) -> Builder {
    numbers(3, &[("beta", beta), ("threshold", threshold)])
        .node("Mul", &["x", "beta"], "m", &[])
        .node("Softplus", &["m"], "s", &[])
        .node("Div", &["s", "beta"], "d", &[])
}

#[test]
fn softplus_with_a_line_from_a_number_on_is_one_activation() {
    let shape = [2, 3, 5, 7];
    for (beta, threshold) in [(1.0, 20.0), (1.0, -0.5), (2.0, 1.0), (0.5, 0.25)] {
        let written = [
            softplus(beta, threshold).node("Greater", &["m", "threshold"], "c", &[]).node(
                "Where",
                &["c", "x", "d"],
                "y",
                &[],
            ),
            softplus(beta, threshold).node("Less", &["threshold", "m"], "c", &[]).node(
                "Where",
                &["c", "x", "d"],
                "y",
                &[],
            ),
            softplus(beta, threshold).node("LessOrEqual", &["m", "threshold"], "c", &[]).node(
                "Where",
                &["c", "d", "x"],
                "y",
                &[],
            ),
        ];
        let (beta, threshold) = (f64::from(beta), f64::from(threshold));
        let line = |x: &f64| if beta * x > threshold { *x } else { (beta * x).exp().ln_1p() / beta };
        let wanted: Vec<f64> = image(shape).iter().map(line).collect();
        for model in written {
            let model = model.output("y");
            assert_eq!(ops(&model), [Op::Activation(Activation::Softplus { beta, threshold })]);
            assert_close(&run(&model, shape, &image(shape)).0, &wanted);
        }
    }
    // another factor, another value, and the other side
    let compared = |op: &str, of: &str| softplus(2.0, 1.0).node(op, &[of, "threshold"], "c", &[]);
    let wants = "wants softplus of the value that is compared";
    for (model, position) in [
        (compared("Greater", "x").node("Where", &["c", "x", "d"], "y", &[]), 2),
        (compared("Greater", "m").node("Where", &["c", "x", "s"], "y", &[]), 2),
        (compared("Greater", "m").node("Where", &["c", "d", "x"], "y", &[]), 2),
        (compared("LessOrEqual", "m").node("Where", &["c", "x", "d"], "y", &[]), 1),
    ] {
        let words = format!("Where `n_y` (opset 18): input {position} is a batch of images, {wants}");
        assert_eq!(only(&model.output("y")), words);
    }
}

#[test]
fn a_number_where_a_value_is_not_above_another_is_a_threshold() {
    let shape = [2, 3, 3, 5];
    let from = || numbers(3, &[("threshold", 0.5), ("value", -3.0)]);
    let model = from()
        .node("LessOrEqual", &["x", "threshold"], "c", &[])
        .node("Where", &["c", "value", "x"], "y", &[])
        .output("y");
    assert_eq!(ops(&model), [Op::Activation(Activation::Threshold { threshold: 0.5, value: -3.0 })]);
    let wanted: Vec<f64> = image(shape).iter().map(|x| if *x <= 0.5 { -3.0 } else { *x }).collect();
    assert_eq!(run(&model, shape, &image(shape)).0, wanted);
    // what is no number would be the value there, and is itself in a threshold
    let above = from()
        .node("Greater", &["x", "threshold"], "c", &[])
        .node("Where", &["c", "x", "value"], "y", &[])
        .output("y");
    let wants = "wants softplus of the value that is compared";
    assert_eq!(only(&above), format!("Where `n_y` (opset 18): input 2 is a constant of shape [], {wants}"));
}

/// `x·(1 + erf(x/√2))` of `x`, as `t`.
fn twice_gelu(channels: i64) -> Builder {
    numbers(channels, &[("root", std::f32::consts::SQRT_2), ("one", 1.0), ("half", 0.5), ("third", 3.0)])
        .node("Div", &["x", "root"], "a", &[])
        .node("Erf", &["a"], "b", &[])
        .node("Add", &["b", "one"], "c", &[])
        .node("Mul", &["x", "c"], "t", &[])
}

#[test]
fn a_multiple_of_gelu_is_gelu_and_a_product() {
    let shape = [2, 3, 5, 7];
    let gelu = Builder::new(20, 3).node("Gelu", &["x"], "y", &[]).output("y");
    let times =
        |factor: f64| -> Vec<f64> { run(&gelu, shape, &image(shape)).0.iter().map(|y| factor * y).collect() };
    let got = |model: &Builder| run(model, shape, &image(shape)).0;
    // as an output, and where the next layer has the half in its weights
    let alone = twice_gelu(3).output("t");
    assert_eq!(names(&alone), ["gelu", "mul"]);
    assert_close(&got(&alone), &times(2.0));
    let conv = |model: Builder, from: &str| {
        model.floats("w", &[2, 3, 3, 3]).node("Conv", &[from, "w"], "y", &[]).output("y")
    };
    let direct = Builder::new(20, 3)
        .tensor(float_tensor("two", &[], &[2.0]))
        .node("Gelu", &["x"], "g", &[])
        .node("Mul", &["g", "two"], "t", &[]);
    let layer = conv(twice_gelu(3), "t");
    assert_eq!(names(&layer), ["gelu", "mul", "conv2d"]);
    assert_close(&got(&layer), &got(&conv(direct, "t")));
    // a factor that comes later is in the one product, and the half leaves none
    let third = twice_gelu(3).node("Mul", &["t", "third"], "y", &[]).output("y");
    assert_eq!(names(&third), ["gelu", "mul"]);
    assert_close(&got(&third), &times(6.0));
    let whole = twice_gelu(3).node("Mul", &["t", "half"], "y", &[]).output("y");
    assert_eq!(names(&whole), ["gelu"]);
    // several that read it read one value
    let sum = twice_gelu(3).node("Add", &["x", "t"], "s", &[]).node("Max", &["s", "t"], "m", &[]);
    let sum = sum.node("Sigmoid", &["t"], "n", &[]).node("Mul", &["m", "n"], "y", &[]).output("y");
    assert_eq!(names(&sum), ["gelu", "mul", "add", "maximum", "sigmoid", "mul"]);
    let of = |(x, t): (&f64, &f64)| (x + t).max(*t) / (1.0 + (-t).exp());
    let wanted: Vec<f64> = image(shape).iter().zip(&times(2.0)).map(of).collect();
    assert_close(&got(&sum), &wanted);
    // another function of x is none
    let other = twice_gelu(3).node("Add", &["c", "x"], "y", &[]).output("y");
    let words = "output `y`: is arithmetic that is no operator (Add `n_y`), wants a value of the network";
    assert_eq!(only(&other), words);
}

#[test]
fn a_gate_of_a_multiple_is_the_product_that_it_is() {
    let shape = [2, 3, 3, 5];
    let swish =
        Builder::new(24, 3).node("Swish", &["x"], "y", &[("alpha", Attribute::Float(1.702))]).output("y");
    assert_eq!(names(&swish), ["mul", "sigmoid", "mul"]);
    assert_eq!(graph(&swish).nodes()[2].name, "n_y");
    let written = numbers(3, &[("k", 1.702)])
        .node("Mul", &["x", "k"], "m", &[])
        .node("Sigmoid", &["m"], "s", &[])
        .node("Mul", &["x", "s"], "y", &[])
        .output("y");
    assert_eq!(names(&written), ["mul", "sigmoid", "mul"]);
    let wanted: Vec<f64> = image(shape).iter().map(|x| x / (1.0 + (-1.702 * x).exp())).collect();
    assert_close(&run(&swish, shape, &image(shape)).0, &wanted);
    // the constant of a file has 32 bits
    let wanted: Vec<f64> =
        image(shape).iter().map(|x| x / (1.0 + (-f64::from(1.702_f32) * x).exp())).collect();
    assert_close(&run(&written, shape, &image(shape)).0, &wanted);
}

#[test]
fn what_has_no_channels_adds_none() {
    let shape = [2, 3, 5, 7];
    let joined = |model: Builder, all: &[&str]| model.node("Concat", all, "y", &axis(1)).output("y");
    let relu = || extents(3).node("Relu", &["x"], "r", &[]);
    let wanted = run(&joined(relu(), &["x", "r"]), shape, &image(shape));
    let halves = || {
        relu().node("Div", &["h", "two"], "hh", &[]).node("Div", &["w", "two"], "hw", &[]).node(
            "Concat",
            &["n", "none", "hh", "hw"],
            "size",
            &axis(0),
        )
    };
    let dummies = [
        relu().tensor(float_tensor("d", &[1, 0, 32, 16], &[])),
        halves().node("ConstantOfShape", &["size"], "d", &[]),
        halves().tensor(float_tensor("zero", &[], &[0.0])).node("Expand", &["zero", "size"], "d", &[]),
        relu().node("Slice", &["x", "none", "none", "one"], "d", &[]),
        relu().node("Slice", &["x", "two", "minus", "one"], "d", &[]),
    ];
    for model in dummies {
        for all in [["d", "x", "r"], ["x", "d", "r"], ["x", "r", "d"]] {
            let model = joined(model.clone(), &all);
            assert_eq!(names(&model), ["relu", "concat"]);
            assert_eq!(run(&model, shape, &image(shape)), wanted);
        }
        // one that is left is itself
        assert_eq!(names(&joined(model.clone(), &["r", "d"])), ["relu"]);
        // and nothing is no value
        let refused = only(&joined(model.clone(), &["d", "d"]));
        assert!(refused.starts_with("Concat `n_y` (opset 18): input 0 is a "), "{refused}");
        assert!(refused.ends_with(", wants a value of the network"), "{refused}");
    }
    // it has extents
    let sized = halves()
        .node("ConstantOfShape", &["size"], "d", &[])
        .node("Shape", &["d"], "s", &[])
        .node("Equal", &["s", "size"], "is_it", &[])
        .node("Where", &["is_it", "one", "two"], "k", &[])
        .node("Slice", &["k", "none", "one"], "end", &[])
        .node("Slice", &["x", "none", "end", "one"], "y", &[])
        .output("y");
    assert_eq!(run(&sized, shape, &image(shape)).1, [2, 1, 5, 7]);
    // along other axes, and where no image is empty
    let rows = relu().tensor(float_tensor("d", &[1, 3, 0, 16], &[]));
    let words =
        "Concat `n_y` (opset 18): input 2 is a constant of shape [1, 3, 0, 16], wants a value of the network";
    assert_eq!(only(&joined(rows, &["x", "r", "d"])), words);
}

#[test]
fn a_value_may_be_two_outputs() {
    let model = Builder::new(18, 3)
        .node("Relu", &["x"], "r", &[])
        .node("Identity", &["r"], "again", &[])
        .output("r")
        .output("again");
    let read = model.read().unwrap();
    let given: Vec<&str> = read.outputs.iter().map(|output| output.given.as_str()).collect();
    assert_eq!(given, ["r", "again"]);
    assert_eq!(names(&model), ["relu", "slice"]);
    let shape = [2, 3, 5, 7];
    let shapes = infer_nchw(&read.graph, &[shape]).unwrap();
    let objective = Objective::inference();
    let planner = Planner::<f64>::new(&read.graph, &shapes, &objective, &Reference);
    let plan = planner.plan(&PlanOptions::default()).unwrap();
    let pixels = image(shape);
    let source = MemorySource::new(&pixels, shape).unwrap();
    let sinks =
        [0, 1].map(|output: usize| MemorySink::new(shapes.shape(read.graph.outputs()[output])).unwrap());
    let io = Io { inputs: vec![&source], outputs: vec![&sinks[0], &sinks[1]], ..Io::default() };
    let mut parameters = read.weights.parameters().unwrap();
    Executor::new(plan, &Reference, 1).unwrap().run(&mut parameters, &io, &NoProgress).unwrap();
    let wanted: Vec<f64> = pixels.iter().map(|x| x.max(0.0)).collect();
    for sink in sinks {
        assert_eq!(sink.into_tensor().data(), wanted);
    }
    // a name stands for one
    let twice = Builder::new(18, 3).node("Relu", &["x"], "r", &[]).output("r").output("r");
    let words = "output `r`: is one that stands before, wants a value of the network";
    assert_eq!(only(&twice), words);
}

#[test]
fn patterns_with_any_byte_changed_are_read_or_refused() {
    let pooled = twice_gelu(3).node("ReduceMax", &["t"], "m", &[("axes", ints(&[3]))]);
    let pooled = pooled.node("ReduceMax", &["m"], "p", &[("axes", ints(&[2]))]);
    let chosen = pooled.node("Softplus", &["x"], "s", &[]).node("Greater", &["x", "one"], "g", &[]).node(
        "Where",
        &["g", "x", "s"],
        "v",
        &[],
    );
    let sized = chosen
        .ints("minus", &[4], &[-1; 4])
        .ints("border", &[8], &[0, 0, 1, 1, 0, 0, 1, 1])
        .tensor(float_tensor("lowest", &[], &[f32::NEG_INFINITY]))
        .tensor(float_tensor("d", &[1, 0, 2, 2], &[]))
        .node("Shape", &["x"], "sh", &[])
        .node("Equal", &["sh", "minus"], "e", &[])
        .node("Where", &["e", "minus", "sh"], "size", &[])
        .node("Expand", &["p", "size"], "q", &[])
        .node("Pad", &["v", "border", "lowest"], "bordered", &[])
        .node("MaxPool", &["bordered"], "l", &[("kernel_shape", ints(&[3, 3]))])
        .node("Concat", &["d", "q", "l"], "joined", &axis(1))
        .node("ArgMax", &["joined"], "k", &axis(1))
        .node("Cast", &["k"], "y", &[("to", Attribute::Int(2))])
        .output("y");
    assert!(sized.read().is_ok(), "{:?}", sized.refusals());
    let bytes = sized.bytes();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << bit;
            drop(from_bytes(changed, None));
        }
    }
}
