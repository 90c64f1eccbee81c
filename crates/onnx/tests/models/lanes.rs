//! Rows and columns beside each other, as coordinate attention has them.

use ndarray::{Array4, Axis, Slice, concatenate};
use tiled_graph::{Op, params};

use crate::build::{Attribute, Builder, float_tensor, graph, ints, names, reason};
use crate::strips::{array, check, combined, mean, start};

const TURN: [i64; 4] = [0, 1, 3, 2];

fn turn(model: Builder, from: &str, to: &str) -> Builder {
    model.node("Transpose", &[from], to, &[("perm", ints(&TURN))])
}

fn along(axis: i64) -> [(&'static str, Attribute); 1] {
    [("axis", Attribute::Int(axis))]
}

/// `h` and the columns `w` behind it, N×C×(H+W)×1, in `l`; the extents in `rows` and `columns`.
fn beside() -> Builder {
    let model = turn(start(), "w", "v").node("Concat", &["h", "v"], "l", &along(2));
    [("rows", 2), ("columns", 3)].iter().fold(model, |model, (name, axis)| {
        let (at, list) = (format!("{name}_at"), format!("{name}_list"));
        model
            .ints(&at, &[1], &[*axis])
            .ints(&list, &[1], &[-1])
            .node("Shape", &["x"], &format!("{name}_of"), &[])
            .node("Gather", &[&format!("{name}_of"), &at], name, &[])
    })
}

fn joined(x: &Array4<f64>) -> Array4<f64> {
    let turned = mean(x, 2).permuted_axes([0, 1, 3, 2]);
    concatenate(Axis(2), &[mean(x, 3).view(), turned.view()]).unwrap()
}

/// The rows, N×C×H×1, and the columns, N×C×1×W, of values beside each other.
fn apart(l: &Array4<f64>, rows: usize) -> [Array4<f64>; 2] {
    let part = |slice: Slice| l.slice_axis(Axis(2), slice).to_owned();
    [part((..rows).into()), part((rows..).into()).permuted_axes([0, 1, 3, 2])]
}

/// `weights[o][c]`, a convolution of one tap.
fn pointwise(x: &Array4<f64>, weights: &[[f64; 3]; 2]) -> Array4<f64> {
    let [n, _, h, w] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
    Array4::from_shape_fn([n, 2, h, w], |(n, o, h, w)| (0..3).map(|c| weights[o][c] * x[[n, c, h, w]]).sum())
}

/// Cuts `from` in one of the ways that exporters have, into `a` and `b`.
fn cut(model: Builder, from: &str, way: &str) -> Builder {
    let mut model = match way {
        "split" => model.node("Concat", &["rows", "columns"], "sizes", &along(0)),
        _ => model
            .ints("none", &[1], &[0])
            .ints("two", &[1], &[2])
            .ints("end", &[1], &[if way == "end" { i64::MAX } else { 0x7fff_ffff }])
            .node("Add", &["none", "rows"], "middle", &[])
            .node("Add", &["middle", "columns"], "all", &[]),
    };
    if way == "split" {
        model = model.node("Split", &[from, "sizes"], "a", &along(2));
        model.graph().node.last_mut().unwrap().output.push("b".to_owned());
        return model;
    }
    let end = if way == "sum" { "all" } else { "end" };
    model.node("Slice", &[from, "none", "middle", "two"], "a", &[]).node(
        "Slice",
        &[from, "middle", end, "two"],
        "b",
        &[],
    )
}

#[test]
fn coordinate_attention_runs_on_rows_and_on_columns() {
    let scale =
        [("scale", [0.5_f32, 2.0]), ("bias", [1.0, -0.5]), ("mean", [0.25, -1.0]), ("var", [4.0, 0.75])];
    for way in ["split", "sum", "end", "far"] {
        let model = beside()
            .tensor(float_tensor("down", &[2, 3, 1, 1], &[1.0, -0.5, 2.0, 0.25, 1.5, -1.0]))
            .tensor(float_tensor("up", &[3, 2, 1, 1], &[1.0, 0.5, -1.0, 2.0, 0.25, 1.0]))
            .tensor(float_tensor("three", &[], &[3.0]))
            .tensor(float_tensor("six", &[], &[6.0]))
            .tensor(float_tensor("low", &[], &[0.0]));
        let model =
            scale.iter().fold(model, |model, (name, values)| model.tensor(float_tensor(name, &[2], values)));
        let model = model
            .node("Conv", &["l", "down"], "c", &[])
            .node(
                "BatchNormalization",
                &["c", "scale", "bias", "mean", "var"],
                "n",
                &[("epsilon", Attribute::Float(0.25))],
            )
            .node("Add", &["n", "three"], "m", &[])
            .node("Clip", &["m", "low", "six"], "k", &[])
            .node("Div", &["k", "six"], "d", &[])
            .node("Mul", &["n", "d"], "s", &[]);
        let model = turn(cut(model, "s", way), "b", "bt")
            .node("Conv", &["a", "up"], "ga", &[])
            .node("Sigmoid", &["ga"], "sa", &[])
            .node("Conv", &["bt", "up"], "gb", &[])
            .node("Sigmoid", &["gb"], "sb", &[])
            .node("Mul", &["x", "sa"], "xa", &[])
            .node("Mul", &["xa", "sb"], "y", &[])
            .output("y");
        check(&model, &|x| {
            let conv = pointwise(&joined(x), &[[1.0, -0.5, 2.0], [0.25, 1.5, -1.0]]);
            let mut normal = conv;
            for (channel, mut of) in normal.axis_iter_mut(Axis(1)).enumerate() {
                let [scale, bias, mean, var] =
                    [0, 1, 2, 3].map(|which: usize| f64::from(scale[which].1[channel]));
                of.mapv_inplace(|x| scale * (x - mean) / (var + 0.25).sqrt() + bias);
            }
            let active = normal.mapv(|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0);
            let gates = apart(&active, x.shape()[2]).map(|part| {
                let up = [[1.0, 0.5], [-1.0, 2.0], [0.25, 1.0]];
                let [n, _, h, w] = [0, 1, 2, 3].map(|axis| part.shape()[axis]);
                Array4::from_shape_fn([n, 3, h, w], |(n, o, h, w)| {
                    let sum = up[o][0] * part[[n, 0, h, w]] + up[o][1] * part[[n, 1, h, w]];
                    1.0 / (1.0 + f64::exp(-sum))
                })
            });
            combined(&combined(x, &gates[0], |a, b| a * b), &gates[1], |a, b| a * b)
        });
        // the layers of both are there twice, with parameters that are there once
        let all = names(&model);
        let count = |name: &str| all.iter().filter(|op| **op == name).count();
        assert_eq!(
            [count("conv2d"), count("batch_norm"), count("adaptive_avg_pool2d")],
            [4, 2, 2],
            "{all:?}"
        );
        let parameters: Vec<String> = params(&graph(&model)).into_iter().map(|spec| spec.name).collect();
        assert_eq!(parameters.len(), 6, "{parameters:?}");
    }
}

#[test]
fn a_row_is_turned_and_back() {
    // functions of elements, with the value itself and with numbers for each channel, between
    let model = turn(start(), "w", "v")
        .tensor(float_tensor("slope", &[3, 1, 1], &[0.5, 2.0, -1.0]))
        .tensor(float_tensor("more", &[1, 3, 1, 1], &[1.0, 0.0, -2.0]))
        .node("Tanh", &["v"], "t", &[])
        .node("Mul", &["t", "v"], "p", &[])
        .node("PRelu", &["p", "slope"], "r", &[])
        .node("Add", &["r", "more"], "q", &[])
        .node("Transpose", &["q"], "same", &[("perm", ints(&[0, 1, 2, 3]))]);
    let model = turn(model, "same", "u").node("Sub", &["x", "u"], "y", &[]).output("y");
    check(&model, &|x| {
        let mut w = mean(x, 2).mapv(|x| x * x.tanh());
        for (channel, mut of) in w.axis_iter_mut(Axis(1)).enumerate() {
            let (slope, more) = ([0.5, 2.0, -1.0][channel], [1.0, 0.0, -2.0][channel]);
            of.mapv_inplace(|x| if x < 0.0 { slope * x } else { x } + more);
        }
        combined(x, &w, |a, b| a - b)
    });
    assert!(!names(&model).contains(&"pixel_shuffle"));
    // a pixel is one however it stands
    let pixel = Builder::new(17, 3).node("GlobalAveragePool", &["x"], "p", &[]);
    let pixel = turn(pixel, "p", "t").node("Mul", &["x", "t"], "y", &[]).output("y");
    assert_eq!(names(&pixel), ["global_avg_pool", "mul"]);
}

#[test]
fn columns_may_have_rows_behind_them_and_gelu_may_be_written_out() {
    // N×C×1×(W+H)
    let model = turn(start(), "h", "t")
        .tensor(float_tensor("root", &[], &[std::f32::consts::SQRT_2]))
        .tensor(float_tensor("one", &[], &[1.0]))
        .tensor(float_tensor("half", &[], &[0.5]))
        .node("Concat", &["w", "t"], "l", &along(-1))
        .node("Div", &["l", "root"], "inner", &[])
        .node("Erf", &["inner"], "erf", &[])
        .node("Add", &["erf", "one"], "more", &[])
        .node("Mul", &["l", "more"], "twice", &[])
        .node("Mul", &["twice", "half"], "g", &[])
        .ints("zero", &[1], &[0])
        .ints("end", &[1], &[i64::MAX])
        .ints("last", &[1], &[-1])
        .node("Shape", &["x"], "width", &[("start", Attribute::Int(3))])
        .node("Slice", &["g", "zero", "width", "last"], "a", &[])
        .node("Slice", &["g", "width", "end", "last"], "b", &[]);
    let model = turn(model, "b", "bt").node("Add", &["a", "bt"], "y", &[]).output("y");
    let all = names(&model);
    assert_eq!(all.iter().filter(|op| **op == "gelu").count(), 2, "{all:?}");
    // tanh in place of erf tells as well where each part lies
    let model = {
        let model = turn(start(), "h", "t").node("Concat", &["w", "t"], "l", &along(-1)).node(
            "Tanh",
            &["l"],
            "g",
            &[],
        );
        let model = model
            .ints("zero", &[1], &[0])
            .ints("last", &[1], &[-1])
            .node("Shape", &["x"], "width", &[("start", Attribute::Int(3))])
            .node("Shape", &["l"], "all", &[("start", Attribute::Int(3))])
            .node("Slice", &["g", "zero", "width", "last"], "a", &[])
            .node("Slice", &["g", "width", "all", "last"], "b", &[]);
        turn(model, "b", "bt").node("Sub", &["a", "bt"], "y", &[]).output("y")
    };
    check(&model, &|x| combined(&mean(x, 2).mapv(f64::tanh), &mean(x, 3).mapv(f64::tanh), |a, b| a - b));
}

#[test]
fn all_of_it_may_be_turned_and_joined_again() {
    // turned as a whole, cut as columns, and the rows behind once more
    let model = turn(beside(), "l", "t").ints("zero", &[1], &[0]).ints("three", &[1], &[3]).node(
        "Slice",
        &["t", "zero", "rows", "three"],
        "a",
        &[],
    );
    let model = turn(model, "a", "h2").node("Mul", &["x", "h2"], "y", &[]).output("y");
    check(&model, &|x| combined(x, &mean(x, 3), |a, b| a * b));
    let three = beside()
        .node("Concat", &["l", "h"], "m", &along(2))
        .node("Neg", &["m"], "k", &[])
        .node("Concat", &["rows", "columns", "rows"], "sizes", &along(0))
        .node("Split", &["k", "sizes"], "a", &along(2));
    let mut three = three;
    three.graph().node.last_mut().unwrap().output.extend(["b", "c"].map(str::to_owned));
    let three = turn(three, "b", "bt").node("Mul", &["c", "bt"], "y", &[]).output("y");
    check(&three, &|x| combined(&mean(x, 3), &mean(x, 2), |a, b| a * b));
}

#[test]
fn parts_of_declared_lengths_are_cut_at_numbers() {
    let declared = |model: Builder| crate::exporters::declared(model, [2, 3, 4, 5]);
    let split = |sizes: &[i64]| {
        let len = i64::try_from(sizes.len()).unwrap();
        let mut model = beside().ints("sizes", &[len], sizes).node("Split", &["l", "sizes"], "a", &along(2));
        let outputs = ["b", "c"][..sizes.len() - 1].iter().map(|name| (*name).to_owned());
        model.graph().node.last_mut().unwrap().output.extend(outputs);
        declared(turn(model, "b", "bt").node("Add", &["a", "bt"], "y", &[]).output("y"))
    };
    let x = array([2, 3, 4, 5]);
    let wanted = combined(&mean(&x, 3), &mean(&x, 2), |a, b| a + b);
    let (got, _) = crate::runs::run(&split(&[4, 5]), [2, 3, 4, 5], &crate::exporters::image([2, 3, 4, 5]));
    crate::exporters::assert_close(&got, &wanted.iter().copied().collect::<Vec<_>>());
    let words = "wants the lengths of the values beside each other";
    for (sizes, shown) in [([5, 4].as_slice(), "[5, 4]"), (&[4, 3, 2], "[4, 3, 2]")] {
        assert_eq!(reason(&split(sizes)), format!("attribute `split` is {shown}, {words}"));
    }
    // halves, where the model declares a square
    let halves = |extents: [i64; 4]| {
        let mut model = beside().node(
            "Split",
            &["l"],
            "a",
            &[("axis", Attribute::Int(2)), ("num_outputs", Attribute::Int(2))],
        );
        model.graph().node.last_mut().unwrap().output.push("b".to_owned());
        let model = turn(model, "b", "bt").node("Add", &["a", "bt"], "y", &[]).output("y");
        crate::exporters::declared(model, extents)
    };
    assert!(matches!(halves([1, 3, 4, 4]).read().unwrap().graph.nodes().last().unwrap().op, Op::Add));
    assert_eq!(reason(&halves([1, 3, 4, 6])), format!("attribute `split` is [5, 5], {words}"));
    // one from the middle
    let slice = |from: i64, to: i64| {
        let model = beside().ints("from", &[1], &[from]).ints("to", &[1], &[to]).ints("at", &[1], &[2]);
        let model = model.node("Slice", &["l", "from", "to", "at"], "a", &[]);
        declared(turn(model, "a", "y").output("y"))
    };
    assert!(slice(4, 9).read().is_ok());
    let wanted = "is a constant of shape [1], wants a place where one of the values ends and the next begins";
    assert_eq!(reason(&slice(3, 9)), format!("input 1 {wanted}"));
    for end in [8, 4, 0, -1] {
        assert_eq!(reason(&slice(4, end)), format!("input 2 {wanted}"));
    }
}
