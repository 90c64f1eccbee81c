//! Padding and crops by amounts that a model works out of the size of its input.

use tiled_graph::{Op, PadTarget, PadTo, PadWith, Placement, ValueId, infer};

use crate::build::{Attribute, Builder, float_tensor, ints, ops, reason, value};
use crate::runs::run;

const ALONG: [(&str, Attribute); 1] = [("axis", Attribute::Int(0))];

/// An input of one channel, its height `h` and width `w` as lists of one, and some numbers.
fn start() -> Builder {
    let numbers = [("zero", 0), ("one", 1), ("two", 2), ("three", 3), ("four", 4), ("end", i64::MAX)];
    let model =
        numbers.iter().fold(Builder::new(18, 1), |model, (name, number)| model.ints(name, &[1], &[*number]));
    [("h", 2), ("w", 3)].iter().fold(model, |model, (name, axis)| {
        let bounds = [("start", Attribute::Int(*axis)), ("end", Attribute::Int(axis + 1))];
        model.node("Shape", &["x"], name, &bounds)
    })
}

/// `(d − e % d) % d` of both extents, as `h_more` and `w_more`.
fn missing(model: Builder, divisor: &str) -> Builder {
    ["h", "w"].iter().fold(model, |model, axis| {
        let [rest, less, more] = ["rest", "less", "more"].map(|step| format!("{axis}_{step}"));
        model.node("Mod", &[axis, divisor], &rest, &[]).node("Sub", &[divisor, &rest], &less, &[]).node(
            "Mod",
            &[&less, divisor],
            &more,
            &[],
        )
    })
}

fn padded(model: Builder, pads: &[&str; 8], mode: &'static str) -> Builder {
    model.node("Concat", pads, "pads", &ALONG).node(
        "Pad",
        &["x", "pads"],
        "p",
        &[("mode", Attribute::Text(mode))],
    )
}

/// What lies before `h` and `w`, of all rows and columns.
fn cropped(model: Builder, from: &str) -> Builder {
    model.node("Slice", &[from, "zero", "h", "two"], "rows", &[]).node(
        "Slice",
        &["rows", "zero", "w", "three"],
        "y",
        &[],
    )
}

const BEHIND: [&str; 8] = ["zero", "zero", "zero", "zero", "zero", "zero", "h_more", "w_more"];

#[test]
fn padding_to_a_multiple_and_back_follows_the_size_of_the_image() {
    for (mode, with) in [("constant", PadWith::Constant(0.0)), ("reflect", PadWith::Reflect)] {
        let model = padded(missing(start(), "four"), &BEHIND, mode);
        let model = cropped(model.node("Relu", &["p"], "z", &[]), "z").output("y").output("p");
        let read = model.read().unwrap_or_else(|error| panic!("{error}"));
        let (placement, like) = (Placement::After, |of: [usize; 2]| PadTarget::Like(of.map(ValueId)));
        let wanted = PadTo { to: PadTarget::Multiple([4, 4]), placement, with };
        let ops: Vec<&Op> = read.graph.nodes().iter().map(|node| &node.op).collect();
        assert_eq!(ops[0], &Op::PadTo(wanted));
        // rows first, with the columns of what is cut, then the columns
        let zeros = PadWith::Constant(0.0);
        assert_eq!(ops[2], &Op::PadTo(PadTo { to: like([0, 1]), placement, with: zeros }));
        assert_eq!(ops[3], &Op::PadTo(PadTo { to: like([0, 0]), placement, with: zeros }));
        for size in [[9, 14], [8, 12], [5, 7]] {
            let shapes = infer(&read.graph, 1, &[size]).unwrap();
            let [cut, whole] = [0, 1].map(|output| shapes.extents(read.graph.outputs()[output]));
            assert_eq!((cut, whole), (size, size.map(|extent| extent.next_multiple_of(4))), "{mode}");
        }
    }
}

#[test]
fn padded_and_cropped_values_have_their_numbers() {
    let model = padded(missing(start(), "two"), &BEHIND, "reflect");
    let kernel = [("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))];
    let model = model.node("MaxPool", &["p"], "m", &kernel);
    let model = model.tensor(float_tensor("s", &[4], &[1.0, 1.0, 2.0, 2.0]));
    let model = cropped(model.node("Resize", &["m", "", "s"], "u", &[]), "u").output("y");
    // 1 2 3, 4 5 6 and 9 8 7 are reflected to four rows and columns
    let image = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 8.0, 7.0];
    let wanted = vec![5.0, 5.0, 6.0, 5.0, 5.0, 6.0, 9.0, 9.0, 8.0];
    assert_eq!(run(&model, [1, 1, 3, 3], &image), (wanted, [1, 1, 3, 3]));
}

#[test]
fn padding_around_to_a_value_is_half_before() {
    // four times what a pooling leaves, and the difference to the input around it
    let kernel = [("kernel_shape", ints(&[4, 4])), ("strides", ints(&[4, 4]))];
    let model = start()
        .tensor(float_tensor("s", &[4], &[1.0, 1.0, 4.0, 4.0]))
        .node("MaxPool", &["x"], "m", &kernel)
        .node("Resize", &["m", "", "s"], "u", &[])
        .node("Shape", &["u"], "of_u", &[]);
    let model = [("h", "two"), ("w", "three")].iter().fold(model, |model, (axis, place)| {
        let name = |step: &str| format!("{axis}_{step}");
        model
            .node("Gather", &["of_u", place], &name("u"), &[])
            .node("Sub", &[axis, &name("u")], &name("all"), &[])
            .node("Div", &[&name("all"), "two"], &name("before"), &[])
            .node("Sub", &[&name("all"), &name("before")], &name("after"), &[])
    });
    let pads = ["zero", "zero", "h_before", "w_before", "zero", "zero", "h_after", "w_after"];
    let model = model
        .node("Concat", &pads, "pads", &ALONG)
        .node("Pad", &["u", "pads"], "p", &[])
        .node("Add", &["p", "x"], "y", &[])
        .output("y");
    let ops = ops(&model);
    let wanted = PadTo {
        to: PadTarget::Like([ValueId(0); 2]),
        placement: Placement::Around,
        with: PadWith::Constant(0.0),
    };
    assert!(ops.contains(&Op::PadTo(wanted)), "{ops:?}");
    // the largest of the first four columns, one column from the left
    let image: Vec<f64> = (0..4 * 7).map(f64::from).collect();
    let wanted: Vec<f64> =
        (0..4 * 7).map(|at| f64::from(at) + if (1..5).contains(&(at % 7)) { 24.0 } else { 0.0 }).collect();
    assert_eq!(run(&model, [1, 1, 4, 7], &image).0, wanted);
}

#[test]
fn amounts_that_name_no_extents_are_refused() {
    let wanted = "wants as much as makes a multiple of a number, what windows at a stride cover or the extents of another value, after the image or half of it before";
    // as many rows and columns as are above a multiple of four
    let pads = ["zero", "zero", "zero", "zero", "zero", "zero", "h_rest", "w_rest"];
    let text = reason(&padded(missing(start(), "four"), &pads, "constant").output("p"));
    assert_eq!(text, format!("input 1 is computed sizes, {wanted}"));
    // all of it before
    let pads = ["zero", "zero", "h_more", "w_more", "zero", "zero", "zero", "zero"];
    let text = reason(&padded(missing(start(), "four"), &pads, "constant").output("p"));
    assert!(text.ends_with(wanted), "{text}");
    // the height of one axis for the other
    let pads = ["zero", "zero", "zero", "zero", "zero", "zero", "w", "h"];
    let text = reason(&padded(start(), &pads, "constant").output("p"));
    assert_eq!(text, "the padding depends on the size of the image, which the model leaves open");
    let half = start().node("Div", &["h", "two"], "half", &[]);
    let half = half.node("Slice", &["x", "zero", "half", "two"], "y", &[]).output("y");
    assert_eq!(reason(&half), "what is cut depends on the size of the image, which the model leaves open");
    let around = start().node("Mod", &["x", "two"], "y", &[]).output("y");
    assert_eq!(reason(&around), "input 0 is a batch of images, wants sizes");
}

#[test]
fn a_crop_by_known_numbers_from_a_place_that_follows_the_size_is_a_pad() {
    let model = start()
        .node("Sub", &["h", "two"], "until", &[])
        .node("Slice", &["x", "one", "until", "two"], "y", &[])
        .output("y");
    let ops = ops(&model);
    assert!(matches!(ops.as_slice(), [Op::Pad(pad)] if pad.padding == [[-1, -2], [0, 0]]), "{ops:?}");
}

/// A layer's windows along both axes.
#[derive(Clone, Copy, Debug)]
struct Layer {
    kernel: i64,
    stride: i64,
    dilation: i64,
}

impl Layer {
    const fn reach(self) -> i64 {
        self.dilation * (self.kernel - 1)
    }

    /// Rows before and after an extent, as TensorFlow pads it.
    fn same(self, extent: i64) -> [i64; 2] {
        let last = (extent + self.stride - 1) / self.stride - 1;
        let all = (last * self.stride + self.reach() + 1 - extent).max(0);
        [all / 2, all - all / 2]
    }
}

/// How the padding is held at zero or more.
const HELD: [&str; 2] = ["Clip", "Max"];

/// `max((⌈e/s⌉ − 1)·s + (k − 1)·d + 1 − e, 0)` of both extents and its halves, as timm's `pad_same` is exported, and the padded
/// value `p`.
fn same(model: Builder, layer: Layer, held: &str, value: f32) -> Builder {
    let scalar = |name: &str, value: f32| float_tensor(name, &[], &[value]);
    let float = |name: i64| f32::from(i16::try_from(name).unwrap());
    let model = model
        .tensor(scalar("f_zero", 0.0))
        .tensor(scalar("f_one", 1.0))
        .tensor(scalar("f_two", 2.0))
        .tensor(scalar("stride", float(layer.stride)))
        .tensor(scalar("reach", float(layer.reach())))
        .tensor(scalar("shown", value))
        .node("Shape", &["x"], "of_x", &[]);
    let model = [("h", 2), ("w", 3)].iter().fold(model, |model, (axis, place)| {
        let name = |step: &str| format!("s{axis}_{step}");
        let [to_float, to_whole] = [1, 7].map(|to| [("to", Attribute::Int(to))]);
        let axes = [("axes", ints(&[0]))];
        model
            .ints(&name("place"), &[], &[*place])
            .node("Gather", &["of_x", &name("place")], &name("extent"), &[])
            .node("Cast", &[&name("extent")], &name("float"), &to_float)
            .node("Div", &[&name("float"), "stride"], &name("quotient"), &[])
            .node("Ceil", &[&name("quotient")], &name("count"), &[])
            .node("Sub", &[&name("count"), "f_one"], &name("last"), &[])
            .node("Mul", &[&name("last"), "stride"], &name("begin"), &[])
            .node("Add", &[&name("begin"), "reach"], &name("reached"), &[])
            .node("Add", &[&name("reached"), "f_one"], &name("end"), &[])
            .node("Sub", &[&name("end"), &name("float")], &name("more"), &[])
            .node(held, &[&name("more"), "f_zero"], &name("all"), &[])
            .node("Div", &[&name("all"), "f_two"], &name("half"), &[])
            .node("Floor", &[&name("half")], &name("before"), &[])
            .node("Sub", &[&name("all"), &name("before")], &name("after"), &[])
            .node("Cast", &[&name("before")], &name("b"), &to_whole)
            .node("Cast", &[&name("after")], &name("a"), &to_whole)
            .node("Unsqueeze", &[&name("b")], &name("before_"), &axes)
            .node("Unsqueeze", &[&name("a")], &name("after_"), &axes)
    });
    // the last axis first, then turned to ONNX's order
    model
        .ints("no", &[4], &[0; 4])
        .ints("pairs", &[2], &[-1, 2])
        .ints("first", &[1], &[0])
        .ints("last", &[1], &[-1])
        .ints("least", &[1], &[-i64::MAX])
        .node("Concat", &["sw_before_", "sw_after_", "sh_before_", "sh_after_", "no"], "list", &ALONG)
        .node("Reshape", &["list", "pairs"], "rows", &[])
        .node("Slice", &["rows", "last", "least", "first", "last"], "reversed", &[])
        .node("Transpose", &["reversed"], "turned", &[("perm", ints(&[1, 0]))])
        .node("Reshape", &["turned", "last"], "pads", &[])
        .node("Pad", &["x", "pads", "shown"], "p", &[])
}

const LAYERS: [Layer; 7] = [
    Layer { kernel: 3, stride: 2, dilation: 1 },
    Layer { kernel: 5, stride: 2, dilation: 1 },
    Layer { kernel: 2, stride: 2, dilation: 1 },
    Layer { kernel: 1, stride: 2, dilation: 1 },
    Layer { kernel: 3, stride: 3, dilation: 2 },
    Layer { kernel: 3, stride: 4, dilation: 1 },
    Layer { kernel: 3, stride: 1, dilation: 2 },
];

/// A convolution of planes without bias, padded like this with a number.
fn convolved(
    image: &[f64],
    [height, width]: [i64; 2],
    layer: Layer,
    kernel: &[f64],
) -> (Vec<f64>, [usize; 2]) {
    let at = |place: i64| usize::try_from(place).unwrap();
    let [top, left] = [height, width].map(|extent| layer.same(extent)[0]);
    let counts = [height, width].map(|extent| (extent + layer.stride - 1) / layer.stride);
    let mut values = Vec::new();
    for plane in image.chunks(at(height * width)) {
        for (oh, ow) in (0..counts[0]).flat_map(|oh| (0..counts[1]).map(move |ow| (oh, ow))) {
            let mut sum = 0.0;
            for (kh, kw) in (0..layer.kernel).flat_map(|kh| (0..layer.kernel).map(move |kw| (kh, kw))) {
                let h = oh * layer.stride + kh * layer.dilation - top;
                let w = ow * layer.stride + kw * layer.dilation - left;
                if (0..height).contains(&h) && (0..width).contains(&w) {
                    sum += plane[at(h * width + w)] * kernel[at(kh * layer.kernel + kw)];
                }
            }
            values.push(sum);
        }
    }
    (values, counts.map(at))
}

#[test]
fn same_padding_that_is_worked_out_follows_the_size_of_the_image() {
    for (layer, held) in LAYERS.into_iter().flat_map(|layer| HELD.map(|held| (layer, held))) {
        let Layer { kernel, stride, dilation } = layer;
        let weight: Vec<f32> = (0..kernel * kernel).map(|tap| tap as f32 - 2.0).collect();
        let attributes = [("strides", ints(&[stride; 2])), ("dilations", ints(&[dilation; 2]))];
        let model = same(Builder::new(11, 1), layer, held, 0.0)
            .tensor(float_tensor("k", &[1, 1, kernel, kernel], &weight))
            .node("Conv", &["p", "k"], "y", &attributes)
            .output("y");
        let taps: Vec<f64> = weight.iter().map(|tap| f64::from(*tap)).collect();
        for size in [[7, 8], [9, 6], [12, 13], [1, 2], [5, 5]] {
            let [height, width] = size.map(|extent| usize::try_from(extent).unwrap());
            let image: Vec<f64> = (0..2 * height * width).map(|at| (at * 7 % 23) as f64 - 11.0).collect();
            let (wanted, extents) = convolved(&image, size, layer, &taps);
            let got = run(&model, [2, 1, height, width], &image);
            assert_eq!(got, (wanted, [2, 1, extents[0], extents[1]]), "{layer:?} {held} {size:?}");
        }
    }
}

#[test]
fn same_padding_is_one_node_or_that_of_the_convolution() {
    let start = || Builder::new(11, 1);
    let padded = |layer: Layer| ops(&same(start(), layer, "Clip", -1.0).output("p"));
    let windows = |size, stride, placement| {
        let to = PadTarget::Windows { size: [size; 2], stride: [stride; 2] };
        Op::PadTo(PadTo { to, placement, with: PadWith::Constant(-1.0) })
    };
    assert_eq!(padded(LAYERS[0]), [windows(3, 2, Placement::Around)]);
    assert_eq!(padded(LAYERS[1]), [windows(5, 2, Placement::Around)]);
    assert_eq!(padded(LAYERS[4]), [windows(5, 3, Placement::Around)]);
    // windows that are no larger than their stride cover a multiple of it
    let to = PadTarget::Multiple([2, 2]);
    let whole = PadTo { to, placement: Placement::After, with: PadWith::Constant(-1.0) };
    assert_eq!(padded(LAYERS[2]), [Op::PadTo(whole)]);
    // behind a layer that halves
    let pool = [("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))];
    let mut behind = same(start().node("MaxPool", &["x"], "m", &pool), LAYERS[1], "Max", -1.0);
    for node in behind.graph().node.iter_mut().skip(1) {
        for input in node.input.iter_mut().filter(|input| *input == "x") {
            *input = "m".to_owned();
        }
    }
    assert_eq!(ops(&behind.output("p"))[1], windows(5, 2, Placement::Around));
    // a stride of one: the same for every size
    let conv = same(start(), LAYERS[6], "Clip", 0.0).floats("k", &[1, 1, 3, 3]);
    let conv = conv.node("Conv", &["p", "k"], "y", &[("dilations", ints(&[2, 2]))]).output("y");
    assert!(matches!(&ops(&conv)[..], [Op::Conv2d(conv)] if conv.padding == [[2, 2]; 2]));
}

#[test]
fn same_padding_of_a_declared_size_is_that_of_the_convolution() {
    let mut model = same(Builder::new(11, 1), LAYERS[0], "Clip", 0.0).floats("k", &[1, 1, 3, 3]);
    model.graph().input[0] = value("x", 1, &[Some(1), Some(1), Some(8), Some(9)]);
    let model = model.node("Conv", &["p", "k"], "y", &[("strides", ints(&[2, 2]))]).output("y");
    assert!(matches!(&ops(&model)[..], [Op::Conv2d(conv)] if conv.padding == [[0, 1], [1, 1]]));
}

/// The largest of windows of planes, padded like this with nothing.
fn largest(image: &[f64], [height, width]: [i64; 2], layer: Layer) -> Vec<f64> {
    let at = |place: i64| usize::try_from(place).unwrap();
    let places = |extent: i64| {
        let first = layer.same(extent)[0];
        let counts = (extent + layer.stride - 1) / layer.stride;
        (0..counts).map(move |o| {
            let taps = (0..layer.kernel).map(move |k| o * layer.stride + k * layer.dilation - first);
            taps.filter(move |place| (0..extent).contains(place)).collect::<Vec<i64>>()
        })
    };
    let mut values = Vec::new();
    for plane in image.chunks(at(height * width)) {
        for rows in places(height) {
            for columns in places(width) {
                let all = rows.iter().flat_map(|h| columns.iter().map(move |w| h * width + w));
                values.push(all.map(|place| plane[at(place)]).fold(f64::NEG_INFINITY, f64::max));
            }
        }
    }
    values
}

/// A max pooling with "same" padding that the model works out.
pub(crate) fn same_pooling() -> Builder {
    let model = same(Builder::new(11, 1), LAYERS[1], "Clip", f32::NEG_INFINITY);
    model
        .node("MaxPool", &["p"], "y", &[("kernel_shape", ints(&[5, 5])), ("strides", ints(&[2, 2]))])
        .output("y")
}

#[test]
fn same_padding_of_a_max_pooling_is_below_all_numbers() {
    for layer in [LAYERS[0], LAYERS[1], LAYERS[2], LAYERS[5]] {
        let pool = [("kernel_shape", ints(&[layer.kernel; 2])), ("strides", ints(&[layer.stride; 2]))];
        let model = same(Builder::new(11, 1), layer, "Clip", f32::NEG_INFINITY);
        let model = model.node("MaxPool", &["p"], "y", &pool).output("y");
        for size in [[7, 8], [9, 6], [12, 13], [1, 2]] {
            let [height, width] = size.map(|extent| usize::try_from(extent).unwrap());
            let image: Vec<f64> = (0..2 * height * width).map(|at| (at * 7 % 23) as f64 - 40.0).collect();
            let wanted = largest(&image, size, layer);
            assert_eq!(run(&model, [2, 1, height, width], &image).0, wanted, "{layer:?} {size:?}");
            let mut declared = model.clone();
            declared.graph().input[0] = value("x", 1, &[None, Some(1), Some(size[0]), Some(size[1])]);
            if height > 1 {
                assert!(matches!(&ops(&declared)[..], [Op::MaxPool2d(_)]), "{:?}", ops(&declared));
                assert_eq!(run(&declared, [2, 1, height, width], &image).0, wanted, "{layer:?} {size:?}");
            }
        }
    }
    // another layer would see the number
    for size in [None, Some(8)] {
        let mut model = same(Builder::new(11, 1), LAYERS[0], "Clip", f32::NEG_INFINITY);
        model.graph().input[0] = value("x", 1, &[None, Some(1), size, size]);
        let text = reason(&model.node("Relu", &["p"], "y", &[]).output("y"));
        assert!(text.ends_with("value is -inf, must be finite"), "{text}");
    }
}

#[test]
fn same_padding_by_attribute_follows_the_size_of_the_image() {
    let upper = ("auto_pad", Attribute::Text("SAME_UPPER"));
    for layer in LAYERS {
        let Layer { kernel, stride, dilation } = layer;
        let weight: Vec<f32> = (0..kernel * kernel).map(|tap| tap as f32 - 2.0).collect();
        let attributes =
            [upper.clone(), ("strides", ints(&[stride; 2])), ("dilations", ints(&[dilation; 2]))];
        let conv = Builder::new(11, 1)
            .tensor(float_tensor("k", &[1, 1, kernel, kernel], &weight))
            .node("Conv", &["x", "k"], "y", &attributes)
            .output("y");
        let kernel_shape = [("kernel_shape", ints(&[kernel; 2]))];
        let pool = [&attributes[..], &kernel_shape[..]].concat();
        let pool = Builder::new(11, 1).node("MaxPool", &["x"], "y", &pool).output("y");
        let taps: Vec<f64> = weight.iter().map(|tap| f64::from(*tap)).collect();
        for size in [[7, 8], [9, 6], [12, 13], [1, 2]] {
            let [height, width] = size.map(|extent| usize::try_from(extent).unwrap());
            let image: Vec<f64> = (0..2 * height * width).map(|at| (at * 7 % 23) as f64 - 40.0).collect();
            let (wanted, extents) = convolved(&image, size, layer, &taps);
            let shape = [2, 1, height, width];
            assert_eq!(run(&conv, shape, &image), (wanted, [2, 1, extents[0], extents[1]]), "{layer:?}");
            // a pooling of stride one has its padding itself, which is at most half its kernel; one whose taps are apart may have
            // padding alone in a window, and is refused
            if stride > 1 && dilation == 1 {
                assert_eq!(run(&pool, shape, &image).0, largest(&image, size, layer), "{layer:?} {size:?}");
            }
        }
    }
}

#[test]
fn sizes_that_grow_are_held_only_where_that_changes_nothing() {
    let held = |least: i64| {
        start()
            .ints("least", &[1], &[least])
            .node("Max", &["h", "least"], "rows", &[])
            .node("Slice", &["x", "zero", "rows", "two"], "y", &[])
            .output("y")
    };
    assert_eq!(ops(&held(1)), []);
    assert_eq!(reason(&held(4)), "what is cut depends on the size of the image, which the model leaves open");
    let lists = start().ints("both", &[3], &[1, 2, 3]).node("Concat", &["h", "w"], "s", &ALONG);
    let lists = lists.node("Min", &["s", "both"], "y", &[]).output("y");
    assert_eq!(reason(&lists), "input 1 is a constant of shape [3], wants as many numbers as the other");
}
