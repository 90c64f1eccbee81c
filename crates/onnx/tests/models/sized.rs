//! Padding and crops by amounts that a model works out of the size of its input.

use tiled_graph::{Op, PadTarget, PadTo, PadWith, Placement, ValueId, infer};

use crate::build::{Attribute, Builder, float_tensor, ints};
use crate::runs::run;

fn ops(model: &Builder) -> Vec<Op> {
    let read = model.read().unwrap_or_else(|error| panic!("{error}"));
    read.graph.nodes().iter().map(|node| node.op.clone()).collect()
}

fn only(model: &Builder) -> String {
    let refusals = model.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    refusals[0].split_once(": ").unwrap().1.to_owned()
}

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
    let wanted = "wants as much as makes a multiple of a number or the extents of another value, after the image or half of it before";
    // one row and column more than a multiple of four
    let more = ["h", "w"].iter().fold(missing(start(), "four"), |model, axis| {
        model.node("Add", &[&format!("{axis}_more"), "one"], &format!("{axis}_extra"), &[])
    });
    let pads = ["zero", "zero", "zero", "zero", "zero", "zero", "h_extra", "w_extra"];
    let text = only(&padded(more, &pads, "constant").output("p"));
    assert_eq!(text, format!("input 1 is computed sizes, {wanted}"));
    // all of it before
    let pads = ["zero", "zero", "h_more", "w_more", "zero", "zero", "zero", "zero"];
    let text = only(&padded(missing(start(), "four"), &pads, "constant").output("p"));
    assert!(text.ends_with(wanted), "{text}");
    // the height of one axis for the other
    let pads = ["zero", "zero", "zero", "zero", "zero", "zero", "w", "h"];
    let text = only(&padded(start(), &pads, "constant").output("p"));
    assert_eq!(text, "the padding depends on the size of the image, which the model leaves open");
    let half = start().node("Div", &["h", "two"], "half", &[]);
    let half = half.node("Slice", &["x", "zero", "half", "two"], "y", &[]).output("y");
    assert_eq!(only(&half), "what is cut depends on the size of the image, which the model leaves open");
    let around = start().node("Mod", &["x", "two"], "y", &[]).output("y");
    assert_eq!(only(&around), "input 0 is a batch of images, wants sizes");
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
