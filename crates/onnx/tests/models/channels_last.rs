//! Models of TensorFlow and Keras: images N×H×W×C, which they transpose.

use tiled_graph::{ConvTranspose2d, Op, Pad, PadWith};

use crate::build::{Attribute, Builder, float_tensor, int_tensor, ints, value};
use crate::runs::run;

/// A model of an input `x` of this shape.
fn of(shape: &[Option<i64>]) -> Builder {
    let mut model = Builder::new(17, 1);
    model.graph().input[0] = value("x", 1, shape);
    model
}

fn first(model: Builder, from: &str, to: &str) -> Builder {
    model.node("Transpose", &[from], to, &[("perm", ints(&[0, 3, 1, 2]))])
}

fn last(model: Builder, from: &str, to: &str) -> Builder {
    model.node("Transpose", &[from], to, &[("perm", ints(&[0, 2, 3, 1]))])
}

/// A convolution 3×3 of two channels to three.
fn convolved(model: Builder, from: &str, to: &str) -> Builder {
    let pads = [("pads", ints(&[1, 1, 1, 1]))];
    model.floats("w", &[3, 2, 3, 3]).floats("b", &[3]).node("Conv", &[from, "w", "b"], to, &pads)
}

fn image(len: usize) -> Vec<f64> {
    (0..len).map(|place| (place % 11) as f64 - 5.0).collect()
}

#[test]
fn an_image_with_channels_last_is_that_image_with_channels_first() {
    let mean = float_tensor("mean", &[2], &[0.5, -1.0]);
    for extents in [[None, None], [Some(5), Some(7)]] {
        let model = of(&[None, extents[0], extents[1], Some(2)]).tensor(mean.clone());
        let model = first(model.node("Sub", &["x", "mean"], "s", &[]), "s", "t");
        let model = last(convolved(model, "t", "c"), "c", "y").output("y");
        let read = model.read().unwrap();
        assert!(read.inputs[0].channels_last && read.outputs[0].channels_last);
        let [height, width] = extents.map(|extent| extent.and_then(|extent| usize::try_from(extent).ok()));
        assert_eq!(read.inputs[0].shape, [None, Some(2), height, width]);

        let plain = Builder::new(17, 2).tensor(float_tensor("mean", &[1, 2, 1, 1], &[0.5, -1.0]));
        let plain = convolved(plain.node("Sub", &["x", "mean"], "s", &[]), "s", "y").output("y");
        assert!(!plain.read().unwrap().inputs[0].channels_last);
        let image = image(2 * 2 * 5 * 7);
        assert_eq!(run(&model, [2, 2, 5, 7], &image), run(&plain, [2, 2, 5, 7], &image));
    }
}

#[test]
fn an_image_is_taken_for_what_the_model_does_with_it() {
    // as many channels as columns of another: nobody transposes it
    let plain = of(&[Some(1), Some(16), Some(4), Some(3)]).node("Relu", &["x"], "y", &[]).output("y");
    let read = plain.read().unwrap();
    assert_eq!((read.inputs[0].shape[1], read.inputs[0].channels_last), (Some(16), false));
    let features = of(&[Some(1), Some(16), Some(4), Some(1)])
        .ints("s", &[2], &[1, 64])
        .floats("m", &[64, 5])
        .node("Reshape", &["x", "s"], "f", &[])
        .node("MatMul", &["f", "m"], "y", &[])
        .output("y");
    assert_eq!(features.read().unwrap().inputs[0].shape[1], Some(16));
    let open = of(&[None, None, None, Some(3)]).node("Relu", &["x"], "y", &[]).output("y");
    let expected = "input `x`: is a tensor of shape [?, ?, ?, 3], wants a batch of images, N×C×H×W, or N×H×W×C that is \
                    transposed, with a number of channels";
    assert_eq!(open.refusals(), [expected]);
}

#[test]
fn one_channel_is_moved_by_a_reshaping() {
    let model = of(&[Some(1), Some(4), Some(6), Some(1)])
        .ints("in", &[4], &[1, 1, 4, 6])
        .ints("out", &[4], &[-1, 4, 6, 1])
        .tensor(float_tensor("w", &[1, 1, 1, 1], &[2.0]))
        .node("Reshape", &["x", "in"], "f", &[])
        .node("Conv", &["f", "w"], "c", &[])
        .node("Reshape", &["c", "out"], "y", &[])
        .output("y");
    let read = model.read().unwrap();
    assert_eq!(read.inputs[0].shape, [Some(1), Some(1), Some(4), Some(6)]);
    assert!(read.inputs[0].channels_last && read.outputs[0].channels_last);
    let image = image(24);
    let twice: Vec<f64> = image.iter().map(|value| 2.0 * value).collect();
    assert_eq!(run(&model, [1, 1, 4, 6], &image), (twice, [1, 1, 4, 6]));
}

#[test]
fn operators_along_axes_know_where_these_stand() {
    // channels 1, 0, 1 of rows 1 to 4, with a column of zeros before and two rows behind, in the model's order of axes
    let cut = |model: Builder, axis: i64, rows: i64, pads: &[i64]| {
        model
            .ints("zero", &[1], &[0])
            .ints("one", &[1], &[1])
            .ints("two", &[1], &[2])
            .ints("four", &[1], &[4])
            .ints("c", &[1], &[axis])
            .ints("h", &[1], &[rows])
            .ints("pads", &[8], pads)
            .node("Slice", &["t", "one", "four", "h"], "r", &[])
            .node("Slice", &["r", "zero", "one", "c"], "a", &[])
            .node("Slice", &["r", "one", "two", "c"], "b", &[])
            .node("Concat", &["b", "a", "b"], "j", &[("axis", Attribute::Int(axis))])
            .node("Pad", &["j", "pads"], "p", &[])
    };
    let model = first(of(&[None, Some(5), Some(3), Some(2)]), "x", "f");
    let model = cut(last(model, "f", "t"), 3, 1, &[0, 0, 1, 0, 0, 2, 0, 0]);
    let model = first(model, "p", "q").node("Relu", &["q"], "y", &[]).output("y");
    let plain = of(&[None, Some(2), Some(5), Some(3)]).node("Identity", &["x"], "t", &[]);
    let plain = cut(plain, 1, 2, &[0, 0, 0, 1, 0, 0, 2, 0]).node("Relu", &["p"], "y", &[]).output("y");
    let image = image(2 * 2 * 5 * 3);
    let got = run(&model, [2, 2, 5, 3], &image);
    assert_eq!(got.1, [2, 3, 5, 4]);
    assert_eq!(got, run(&plain, [2, 2, 5, 3], &image));
}

#[test]
fn classes_and_sizes_of_images_with_channels_last() {
    // the largest of three channels, and upsampling to the size of the image as the model says it
    let model = first(of(&[None, None, None, Some(3)]), "x", "f");
    let model = model
        .node("MaxPool", &["f"], "m", &[("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))])
        .node("Shape", &["x"], "s", &[])
        .ints("one", &[1], &[1])
        .ints("three", &[1], &[3])
        .ints("four", &[1], &[4])
        .node("Slice", &["s", "one", "three"], "hw", &[])
        .node("Shape", &["m"], "ms", &[])
        .ints("zero", &[1], &[0])
        .ints("two", &[1], &[2])
        .node("Slice", &["ms", "zero", "two"], "nc", &[])
        .node("Concat", &["nc", "hw"], "size", &[("axis", Attribute::Int(0))])
        .node(
            "Resize",
            &["m", "", "", "size"],
            "u",
            &[
                ("coordinate_transformation_mode", Attribute::Text("asymmetric")),
                ("nearest_mode", Attribute::Text("floor")),
            ],
        );
    let model = last(model, "u", "l");
    let model = model
        .node("ArgMax", &["l"], "y", &[("axis", Attribute::Int(3)), ("keepdims", Attribute::Int(1))])
        .output("y");
    let read = model.read().unwrap();
    assert!(read.outputs[0].channels_last);
    let pixels = image(72);
    let (classes, shape) = run(&model, [1, 3, 4, 6], &pixels);
    assert_eq!(shape, [1, 1, 4, 6]);
    // what each two by two pixels have, by loops
    let at = |c: usize, y: usize, x: usize| pixels[c * 24 + y * 6 + x];
    let most = |c: usize, y: usize, x: usize| {
        [at(c, y, x), at(c, y, x + 1), at(c, y + 1, x), at(c, y + 1, x + 1)]
            .into_iter()
            .fold(f64::MIN, f64::max)
    };
    let class = |y: usize, x: usize| {
        let all = [0, 1, 2].map(|c| most(c, y / 2 * 2, x / 2 * 2));
        if all[0] >= all[1] && all[0] >= all[2] {
            0.0
        } else if all[1] >= all[2] {
            1.0
        } else {
            2.0
        }
    };
    let wanted: Vec<f64> = (0..24).map(|place| class(place / 6, place % 6)).collect();
    assert_eq!(classes, wanted);
    for class in [0.0, 1.0, 2.0] {
        assert!(wanted.contains(&class), "{wanted:?} without {class}");
    }
}

#[test]
fn a_transposed_convolution_that_is_cut_behind_alone_is_cut_by_a_node() {
    // what Keras' `same` is for a kernel of 3 and a stride of 2
    let model = Builder::new(17, 1).tensor(float_tensor("w", &[1, 1, 3, 3], &[1.0; 9]));
    let attributes = [("auto_pad", Attribute::Text("SAME_UPPER")), ("strides", ints(&[2, 2]))];
    let model = model.node("ConvTranspose", &["x", "w"], "y", &attributes).output("y");
    let ops: Vec<Op> = model.read().unwrap().graph.nodes().iter().map(|node| node.op.clone()).collect();
    let Op::ConvTranspose2d(ConvTranspose2d { padding, output_padding, .. }) = ops[0] else {
        panic!("{ops:?}")
    };
    assert_eq!((padding, output_padding), ([0; 2], [0; 2]));
    assert_eq!(ops[1..], [Op::Pad(Pad { padding: [[0, -1], [0, -1]], with: PadWith::Constant(0.0) })]);
    // 1, 2 by rows: each value spreads over 3×3, two apart
    let expected = [1.0, 1.0, 3.0, 2.0, 1.0, 1.0, 3.0, 2.0];
    assert_eq!(run(&model, [1, 1, 1, 2], &[1.0, 2.0]), (expected.to_vec(), [1, 1, 2, 4]));
}

#[test]
fn functions_of_elements_do_the_same_with_channels_last() {
    let image = image(2 * 2 * 3 * 5);
    let same = |op: &str, attributes: &[(&str, Attribute)], more: [Option<&[i64]>; 2]| {
        let made = |model: Builder, from: &str, to: &str, dims: Option<&[i64]>| match dims {
            Some(dims) => {
                model.tensor(float_tensor("m", dims, &[0.5, -3.0])).node(op, &[from, "m"], to, attributes)
            }
            None => model.node(op, &[from], to, attributes),
        };
        let model = last(first(of(&[None, None, None, Some(2)]), "x", "f"), "f", "l");
        let model = first(made(model, "l", "g", more[0]), "g", "y").output("y");
        let plain = made(Builder::new(17, 2), "x", "y", more[1]).output("y");
        assert_eq!(run(&model, [2, 2, 3, 5], &image), run(&plain, [2, 2, 3, 5], &image), "{op}");
    };
    let alpha = [("alpha", Attribute::Float(1.5))];
    for (op, attributes) in [
        ("Celu", &alpha[..]),
        ("Selu", &[]),
        ("Softsign", &[]),
        ("Softplus", &[]),
        ("ThresholdedRelu", &alpha),
    ] {
        same(op, attributes, [None; 2]);
    }
    for op in ["Sum", "Mean", "Max", "Add"] {
        same(op, &[], [Some(&[2]), Some(&[1, 2, 1, 1])]);
    }
}

#[test]
fn excitation_over_a_pixel_with_channels_last_is_that_over_features() {
    // Keras' squeeze and excitation: features, a pixel N×1×1×C, a matrix over the last axis
    let model = first(of(&[None, None, None, Some(2)]), "x", "f").floats("m", &[2, 2]);
    let model = last(model, "f", "l")
        .node("ReduceMean", &["l"], "mean", &[("axes", ints(&[1, 2])), ("keepdims", Attribute::Int(0))])
        .ints("pixel", &[4], &[-1, 1, 1, 2])
        .tensor(float_tensor("b", &[2], &[0.25, -0.5]))
        .node("Reshape", &["mean", "pixel"], "p", &[])
        .node("MatMul", &["p", "m"], "e", &[])
        .node("Add", &["e", "b"], "s", &[])
        .node("Sigmoid", &["s"], "g", &[])
        .node("Mul", &["l", "g"], "y", &[])
        .output("y");
    let plain = Builder::new(17, 2)
        .floats("m", &[2, 2])
        .tensor(float_tensor("b", &[2], &[0.25, -0.5]))
        .node("ReduceMean", &["x"], "mean", &[("axes", ints(&[2, 3])), ("keepdims", Attribute::Int(0))])
        .node("MatMul", &["mean", "m"], "e", &[])
        .node("Add", &["e", "b"], "s", &[])
        .node("Sigmoid", &["s"], "g", &[])
        .ints("axes", &[2], &[2, 3])
        .node("Unsqueeze", &["g", "axes"], "u", &[])
        .node("Mul", &["x", "u"], "y", &[])
        .output("y");
    let image = image(2 * 2 * 3 * 5);
    assert_eq!(run(&model, [2, 2, 3, 5], &image), run(&plain, [2, 2, 3, 5], &image));
}

#[test]
fn channels_are_picked_in_any_order() {
    let image = image(2 * 5 * 3 * 2);
    let pixels = 6;
    let picked = |places: &[usize]| -> Vec<f64> {
        let of = |n: usize, channel: usize| image[(n * 5 + channel) * pixels..][..pixels].to_vec();
        (0..2)
            .flat_map(|n| places.iter().flat_map(move |channel| of(n, *channel)).collect::<Vec<_>>())
            .collect()
    };
    let slice = |start: i64, end: i64, step: i64| {
        let model =
            Builder::new(17, 5).ints("s", &[1], &[start]).ints("e", &[1], &[end]).ints("a", &[1], &[1]);
        model.ints("p", &[1], &[step]).node("Slice", &["x", "s", "e", "a", "p"], "y", &[]).output("y")
    };
    let gather = |places: &[i64]| {
        let len = [i64::try_from(places.len()).unwrap()];
        let model = Builder::new(17, 5).ints("i", &len, places);
        model.node("Gather", &["x", "i"], "y", &[("axis", Attribute::Int(1))]).output("y")
    };
    for (model, places) in [
        (slice(-1, i64::MIN, -1), vec![4, 3, 2, 1, 0]),
        (slice(4, 0, -2), vec![4, 2]),
        (slice(0, i64::MAX, 2), vec![0, 2, 4]),
        (slice(1, -1, 3), vec![1]),
        (slice(-100, -200, -1), vec![0]),
        (slice(100, 2, -1), vec![4, 3]),
        (gather(&[2, 1, 0]), vec![2, 1, 0]),
        (gather(&[-1, 0, 1, 1]), vec![4, 0, 1, 1]),
        (gather(&[1, 2, 3]), vec![1, 2, 3]),
    ] {
        assert_eq!(
            run(&model, [2, 5, 3, 2], &image),
            (picked(&places), [2, places.len(), 3, 2]),
            "{places:?}"
        );
    }
    let one = Builder::new(17, 5).tensor(int_tensor("i", &[], &[3]));
    let one = one.node("Gather", &["x", "i"], "y", &[("axis", Attribute::Int(-3))]).output("y");
    assert_eq!(run(&one, [2, 5, 3, 2], &image), (picked(&[3]), [2, 1, 3, 2]));
    assert_eq!(
        gather(&[5]).refusals(),
        ["Gather `n_y` (opset 17): input 1 is a constant of shape [1], wants channels that there are"]
    );
    assert_eq!(slice(2, 2, -1).refusals().len(), 1);
    // what cannot be picked is not taken for nothing
    let many = Builder::new(17, 80).ints("s", &[1], &[-1]).ints("e", &[1], &[i64::MIN]).ints("a", &[1], &[1]);
    let many = many.node("Slice", &["x", "s", "e", "a", "s"], "r", &[]);
    let many = many.node("Concat", &["x", "r"], "y", &[("axis", Attribute::Int(1))]).output("y");
    assert_eq!(
        many.refusals(),
        ["Slice `n_r` (opset 17): input 4 is a constant of shape [1], wants a few channels"]
    );
}

#[test]
fn channels_that_are_last_are_turned_around_there() {
    // Keras' preprocessing of VGG: blue, green, red, less their means
    let model = of(&[None, None, None, Some(3)])
        .ints("s", &[1], &[-1])
        .ints("e", &[1], &[i64::from(i32::MIN)])
        .ints("a", &[1], &[3])
        .tensor(float_tensor("mean", &[3], &[-1.0, -2.0, -3.0]))
        .node("Slice", &["x", "s", "e", "a", "s"], "bgr", &[])
        .node("Add", &["bgr", "mean"], "m", &[]);
    let model = first(model, "m", "f").node("Relu", &["f"], "y", &[]).output("y");
    let image: Vec<f64> = (0..6).map(|place| f64::from(place) + 4.0).collect();
    // pixels 4 5, 6 7, 8 9
    assert_eq!(run(&model, [1, 3, 1, 2], &image), (vec![7.0, 8.0, 4.0, 5.0, 1.0, 2.0], [1, 3, 1, 2]));
}

#[test]
fn what_stands_otherwise_is_not_taken_for_channels_first() {
    // a plane of a value that is N×W×H×C is N×W×H
    let turned = Builder::new(17, 3).node("Transpose", &["x"], "t", &[("perm", ints(&[0, 3, 2, 1]))]);
    let axis = [("axis", Attribute::Int(3)), ("keepdims", Attribute::Int(0))];
    let wanted = "ArgMax `n_y` (opset 17): input 0 is a value whose channels are last, wants a value whose axes are those of the others";
    assert_eq!(turned.node("ArgMax", &["t"], "y", &axis).output("y").refusals(), [wanted]);

    // pixels that are joined, of which the open one may be the channels
    let model = last(Builder::new(17, 4), "x", "t")
        .node("Shape", &["x"], "s", &[])
        .ints("two", &[1], &[2])
        .ints("three", &[1], &[3])
        .ints("four", &[1], &[4])
        .node("Slice", &["s", "two", "three"], "h", &[])
        .node("Slice", &["s", "three", "four"], "w", &[])
        .node("Div", &["w", "two"], "half", &[])
        .node("Mul", &["h", "half"], "p", &[]);
    let reshaped = |model: &Builder, n: i64, c: i64| {
        let model = model.clone().ints("n", &[1], &[n]).ints("c", &[1], &[c]);
        let model = model.node("Concat", &["n", "p", "c"], "shape", &[("axis", Attribute::Int(0))]);
        model.node("Reshape", &["t", "shape"], "y", &[]).output("y").refusals().len()
    };
    assert_eq!([reshaped(&model, 1, -1), reshaped(&model, -1, 4)], [1, 1]);
}

#[test]
fn axes_that_a_slice_leaves_out_are_the_first_of_the_model() {
    let sliced = |model: Builder, attributes: &[(&str, Attribute)]| {
        let model = last(model, "x", "t").node("Slice", &["t"], "s", attributes);
        first(model, "s", "f").node("Relu", &["f"], "y", &[]).output("y")
    };
    let mut old = Builder::new(9, 2);
    old.graph().input[0] = value("x", 1, &[Some(1), Some(2), Some(4), Some(3)]);
    let cut = [("starts", ints(&[0, 1])), ("ends", ints(&[i64::MAX, 3]))];
    let image = image(2 * 4 * 3);
    let rows: Vec<f64> = image.chunks(12).flat_map(|plane| plane[3..9].iter().map(|v| v.max(0.0))).collect();
    assert_eq!(run(&sliced(old, &cut), [1, 2, 4, 3], &image), (rows, [1, 2, 2, 3]));
}

#[test]
fn padding_stays_where_the_channels_are() {
    // whoever reads it, it is N×H×W×C until it is transposed
    let padded = last(Builder::new(17, 2), "x", "t").ints("pads", &[8], &[0, 1, 0, 0, 0, 0, 2, 0]);
    let padded = padded.node("Pad", &["t", "pads"], "p", &[]).node("Identity", &["p"], "i", &[]);
    let through = first(padded.clone(), "i", "f").node("Relu", &["f"], "y", &[]).output("y");
    let plain = Builder::new(17, 2).ints("pads", &[8], &[0, 0, 1, 0, 0, 0, 0, 2]);
    let plain = plain.node("Pad", &["x", "pads"], "p", &[]).node("Relu", &["p"], "y", &[]).output("y");
    let image = image(2 * 2 * 3 * 4);
    assert_eq!(run(&through, [2, 2, 3, 4], &image), run(&plain, [2, 2, 3, 4], &image));
    assert!(padded.output("i").read().unwrap().outputs[0].channels_last);
}

#[test]
fn a_transposed_convolution_of_a_wanted_size_has_what_is_more_behind() {
    let model = Builder::new(17, 1).tensor(float_tensor("w", &[1, 1, 1, 3], &[1.0, 2.0, 4.0]));
    let attributes = [("strides", ints(&[1, 2])), ("output_shape", ints(&[1, 6]))];
    let model = model.node("ConvTranspose", &["x", "w"], "y", &attributes).output("y");
    let mut model = model;
    model.graph().input[0] = value("x", 1, &[Some(1), Some(1), Some(1), Some(2)]);
    // 1 2 4+1 2 4 in all, and a column that no tap reaches
    assert_eq!(run(&model, [1, 1, 1, 2], &[1.0, 1.0]), (vec![1.0, 2.0, 5.0, 2.0, 4.0, 0.0], [1, 1, 1, 6]));
}
