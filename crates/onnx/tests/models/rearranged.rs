//! Slices, splits, shuffles, padding and heads over images: what models of them become.

use tiled_graph::{
    ChannelShuffle, Elementwise, Linear, Op, Operand, Pad, PadWith, PixelShuffle, PixelUnshuffle, Slice,
    WithOperand,
};

use crate::build::{Attribute, Builder, float_tensor, int_tensor, ints, ops, value};
use crate::runs::run;

fn refusal(model: &Builder) -> String {
    let refusals = model.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    refusals[0].clone()
}

/// A model whose image has this size.
fn sized(opset: i64, [channels, height, width]: [i64; 3]) -> Builder {
    let mut model = Builder::new(opset, channels);
    model.graph().input[0] = value("x", 1, &[Some(1), Some(channels), Some(height), Some(width)]);
    model
}

#[test]
fn features_of_an_image_of_known_size_go_to_a_linear_layer() {
    for shape in [None, Some([1, -1]), Some([0, 24]), Some([-1, 24])] {
        let model = sized(17, [2, 3, 4]).floats("w", &[5, 24]).floats("b", &[5]);
        let model = match shape {
            None => model.node("Flatten", &["x"], "f", &[]),
            Some(shape) => model.ints("s", &[2], &shape).node("Reshape", &["x", "s"], "f", &[]),
        };
        let model = model.node("Gemm", &["f", "w", "b"], "y", &[("transB", Attribute::Int(1))]).output("y");
        assert_eq!(ops(&model), [Op::Linear(Linear { in_features: Some(24), ..Linear::new(5) })]);
    }
    let wrong = sized(17, [2, 3, 4]).floats("w", &[26, 5]);
    let wrong = wrong.node("Flatten", &["x"], "f", &[]).node("MatMul", &["f", "w"], "y", &[]).output("y");
    assert!(
        refusal(&wrong).ends_with("input has 2×3×4 features, in_features wants 26"),
        "{}",
        refusal(&wrong)
    );
}

#[test]
fn slices_cut_channels_rows_and_columns() {
    let slice = |model: Builder, starts: &[i64], ends: &[i64], axes: &[i64]| {
        let len = [i64::try_from(starts.len()).unwrap()];
        model
            .ints("s", &len, starts)
            .ints("e", &len, ends)
            .ints("a", &len, axes)
            .node("Slice", &["x", "s", "e", "a"], "y", &[])
            .output("y")
    };
    let cropped = |padding| Op::Pad(Pad { padding, with: PadWith::Constant(0.0) });
    let channels = |begin, end| Op::Slice(Slice { begin, end: Some(end) });
    assert_eq!(ops(&slice(Builder::new(17, 8), &[2], &[i64::MAX], &[1])), [channels(2, 8)]);
    assert_eq!(ops(&slice(Builder::new(17, 8), &[-3], &[-1], &[-3])), [channels(5, 7)]);
    assert_eq!(
        ops(&slice(Builder::new(17, 8), &[1, 0, 2], &[3, -2, i64::MAX], &[1, 2, 3])),
        [channels(1, 3), cropped([[0, -2], [-2, 0]])]
    );
    assert_eq!(
        ops(&slice(sized(17, [8, 6, 9]), &[-4, 1], &[5, 100], &[2, 3])),
        [cropped([[-2, -1], [-1, 0]])]
    );
    let open = slice(Builder::new(17, 8), &[0], &[5], &[2]);
    assert!(refusal(&open).contains("is the first rows of a value of open size"), "{}", refusal(&open));
    let open = slice(Builder::new(17, 8), &[1], &[5], &[2]);
    assert!(refusal(&open).contains("what is cut depends on the size of the image"), "{}", refusal(&open));
    let step = slice(Builder::new(17, 8), &[0], &[5], &[2]).ints("t", &[1], &[-1]);
    let mut step = step;
    step.graph().node[0].input.push("t".to_owned());
    assert!(refusal(&step).contains("steps of 1"), "{}", refusal(&step));
}

/// `x[.., first::by]` along height and along width, one `Slice` for both.
pub(crate) fn picked(model: Builder, first: [i64; 2], by: [i64; 2], name: &str) -> Builder {
    let [from, step] = ["from", "step"].map(|what| format!("{name}_{what}"));
    let model = model.ints("ends", &[2], &[i64::MAX, 0x7fff_ffff]).ints("axes", &[2], &[2, -1]);
    model.ints(&from, &[2], &first).ints(&step, &[2], &by).node(
        "Slice",
        &["x", &from, "ends", "axes", &step],
        name,
        &[],
    )
}

/// Every n-th row and column of planes, from these on.
fn every(
    image: &[f64],
    [height, width]: [usize; 2],
    first: [usize; 2],
    by: [usize; 2],
) -> (Vec<f64>, [usize; 2]) {
    let rows = || (first[0]..height).step_by(by[0]);
    let columns = || (first[1]..width).step_by(by[1]);
    let plane = |plane: &[f64]| -> Vec<f64> {
        rows().flat_map(|row| columns().map(move |column| row * width + column)).map(|at| plane[at]).collect()
    };
    let values = image.chunks(height * width).flat_map(plane).collect();
    (values, [rows().count(), columns().count()])
}

#[test]
fn steps_over_rows_and_columns_pick_every_nth() {
    for by in [[2, 2], [3, 1], [1, 4], [2, 5]] {
        for first in [[0, 0], [1, 0], [0, 1], [1, 2]] {
            let model = picked(Builder::new(17, 2), first, by, "y").output("y");
            for [height, width] in [[6, 8], [7, 9], [2, 3]] {
                let image: Vec<f64> = (0..2 * 2 * height * width).map(|at| at as f64 - 50.0).collect();
                let usize_of = |pair: [i64; 2]| pair.map(|extent| usize::try_from(extent).unwrap());
                let (wanted, extents) = every(&image, [height, width], usize_of(first), usize_of(by));
                let shape = [2, 2, extents[0], extents[1]];
                assert_eq!(run(&model, [2, 2, height, width], &image), (wanted, shape), "{first:?} {by:?}");
            }
        }
    }
}

#[test]
fn the_four_phases_of_a_focus_are_picked_and_joined() {
    let numbers = [("two", 2), ("three", 3), ("zero", 0), ("one", 1), ("end", i64::MAX)];
    let model =
        numbers.iter().fold(Builder::new(11, 1), |model, (name, number)| model.ints(name, &[1], &[*number]));
    // rows, then columns, as exporters write two subscripts; the parts in YOLOX's order
    let model = ["zero", "one"].iter().fold(model, |model, row| {
        let rows = format!("rows_{row}");
        let model = model.node("Slice", &["x", row, "end", "two", "two"], &rows, &[]);
        ["zero", "one"].iter().fold(model, |model, column| {
            model.node("Slice", &[&rows, column, "end", "three", "two"], &format!("{row}_{column}"), &[])
        })
    });
    let parts = ["zero_zero", "one_zero", "zero_one", "one_one"];
    let model = model.node("Concat", &parts, "y", &[("axis", Attribute::Int(1))]).output("y");
    let image: Vec<f64> = (0..2 * 24).map(f64::from).collect();
    let wanted: Vec<f64> = image
        .chunks(24)
        .flat_map(|plane| [[0, 0], [1, 0], [0, 1], [1, 1]].map(|first| every(plane, [4, 6], first, [2, 2]).0))
        .flatten()
        .collect();
    assert_eq!(run(&model, [2, 1, 4, 6], &image), (wanted, [2, 4, 2, 3]));
}

#[test]
fn steps_of_known_and_computed_ends_and_of_not_a_number() {
    let model = sized(17, [1, 7, 5]).ints("from", &[2], &[-6, 0]).ints("to", &[2], &[-1, 3]);
    let model = model.ints("axes", &[2], &[2, 3]).ints("by", &[2], &[2, 2]);
    let model = model.node("Slice", &["x", "from", "to", "axes", "by"], "y", &[]).output("y");
    let image: Vec<f64> = (0..35).map(|at| if at == 15 { f64::NAN } else { f64::from(at) }).collect();
    let (got, shape) = run(&model, [1, 1, 7, 5], &image);
    assert_eq!((&got[..2], &got[3..], shape), (&[5.0, 7.0][..], &[17.0, 25.0, 27.0][..], [1, 1, 3, 2]));
    assert!(got[2].is_nan());
    // up to one row before the last
    let open = Builder::new(17, 1).ints("one", &[1], &[1]).ints("two", &[1], &[2]);
    let open = open
        .node("Shape", &["x"], "h", &[("start", Attribute::Int(2)), ("end", Attribute::Int(3))])
        .node("Sub", &["h", "one"], "until", &[])
        .node("Slice", &["x", "one", "until", "two", "two"], "y", &[])
        .output("y");
    let image: Vec<f64> = (0..6).map(f64::from).collect();
    assert_eq!(run(&open, [1, 1, 6, 1], &image), (vec![1.0, 3.0], [1, 1, 2, 1]));
}

#[test]
fn steps_backward_of_nothing_and_over_images_are_refused() {
    let step = |axis: i64, step: i64| {
        let model = Builder::new(17, 8).ints("from", &[1], &[0]).ints("to", &[1], &[i64::MAX]);
        let model = model.ints("axis", &[1], &[axis]).ints("by", &[1], &[step]);
        refusal(&model.node("Slice", &["x", "from", "to", "axis", "by"], "y", &[]).output("y"))
    };
    let wanted = "Slice `n_y` (opset 17): input 4 is a constant of shape [1], wants steps of 1, or forward over rows and columns";
    for (axis, by) in [(2, -1), (3, 0), (1, 0), (0, 2), (-4, 2), (2, i64::MIN)] {
        assert_eq!(step(axis, by), wanted, "{axis} {by}");
    }
    assert!(step(2, i64::MAX).contains("stride"), "{}", step(2, i64::MAX));
}

#[test]
fn splits_are_a_slice_for_each_result() {
    let mut model = Builder::new(17, 8).node("Split", &["x"], "a", &[("axis", Attribute::Int(1))]);
    model.graph().node[0].output.push("b".to_owned());
    let model = model.node("Mul", &["a", "b"], "y", &[]).output("y");
    let part = |begin, end| Op::Slice(Slice { begin, end: Some(end) });
    assert_eq!(ops(&model), [part(0, 4), part(4, 8), Op::Mul]);
    let mut sizes = Builder::new(17, 8).ints("s", &[2], &[3, 5]);
    sizes = sizes.node("Split", &["x", "s"], "a", &[("axis", Attribute::Int(1))]);
    sizes.graph().node[0].output.push("b".to_owned());
    assert_eq!(ops(&sizes.clone().output("b")), [part(3, 8)]);
    let mut wrong = sizes.output("b");
    wrong.graph().initializer.clear();
    let wrong = wrong.ints("s", &[2], &[3, 4]);
    assert!(refusal(&wrong).contains("sum to the channels"), "{}", refusal(&wrong));
}

#[test]
fn padding_that_no_convolution_takes_over_is_a_node() {
    let padded = |mode: &'static str, pads: &[i64]| {
        Builder::new(13, 3).ints("pads", &[8], pads).node(
            "Pad",
            &["x", "pads"],
            "p",
            &[("mode", Attribute::Text(mode))],
        )
    };
    let pads = [0, 0, 1, 0, 0, 0, 1, 2];
    let pad = |with| Op::Pad(Pad { padding: [[1, 1], [0, 2]], with });
    for (mode, with) in [
        ("constant", PadWith::Constant(0.0)),
        ("reflect", PadWith::Reflect),
        ("edge", PadWith::Replicate),
        ("wrap", PadWith::Circular),
    ] {
        assert_eq!(ops(&padded(mode, &pads).output("p")), [pad(with)]);
        let twice = padded(mode, &pads).node("Relu", &["p"], "r", &[]).node("Mul", &["r", "p"], "y", &[]);
        let twice = ops(&twice.output("y"));
        assert_eq!((twice.len(), &twice[0]), (3, &pad(with)));
    }
    let wrapped = padded("wrap", &pads).floats("w", &[4, 3, 3, 3]);
    let wrapped = ops(&wrapped.node("Conv", &["p", "w"], "y", &[]).output("y"));
    assert_eq!((wrapped.len(), &wrapped[0]), (2, &pad(PadWith::Circular)));
    let cropped = padded("constant", &[0, 0, -1, 0, 0, 0, 2, 0]).floats("w", &[4, 3, 3, 3]);
    assert_eq!(ops(&cropped.node("Conv", &["p", "w"], "y", &[]).output("y")).len(), 2);
}

#[test]
fn shuffles_are_recognised_in_three_nodes() {
    let three = |from: [i64; 3], apart: &[i64], order: &[i64], joined: &[i64]| {
        let len = |list: &[i64]| [i64::try_from(list.len()).unwrap()];
        sized(17, from)
            .ints("s", &len(apart), apart)
            .ints("t", &len(joined), joined)
            .node("Reshape", &["x", "s"], "a", &[])
            .node("Transpose", &["a"], "b", &[("perm", ints(order))])
            .node("Reshape", &["b", "t"], "y", &[])
            .output("y")
    };
    let to_pixels = Op::PixelShuffle(PixelShuffle { upscale_factor: [2, 2] });
    let to_channels = Op::PixelUnshuffle(PixelUnshuffle { downscale_factor: [2, 2] });
    let shuffle = |groups| Op::ChannelShuffle(ChannelShuffle { groups });
    let groups = three([12, 4, 6], &[1, 3, 4, 4, 6], &[0, 2, 1, 3, 4], &[1, 12, 4, 6]);
    assert_eq!(ops(&groups), [shuffle(3)]);
    let groups = three([12, 4, 6], &[1, 3, -1, 4, 6], &[0, 2, 1, 3, 4], &[1, -1, 4, 6]);
    assert_eq!(ops(&groups), [shuffle(3)]);
    let pixels = three([12, 4, 6], &[1, 3, 2, 2, 4, 6], &[0, 1, 4, 2, 5, 3], &[1, 3, 8, 12]);
    assert_eq!(ops(&pixels), std::slice::from_ref(&to_pixels));
    let depth_first = three([12, 4, 6], &[1, 2, 2, 3, 4, 6], &[0, 3, 4, 1, 5, 2], &[1, 3, 8, 12]);
    assert_eq!(ops(&depth_first), [shuffle(4), to_pixels]);
    let channels = three([3, 4, 6], &[1, 3, 2, 2, 3, 2], &[0, 1, 3, 5, 2, 4], &[1, 12, 2, 3]);
    assert_eq!(ops(&channels), std::slice::from_ref(&to_channels));
    let depth_first = three([3, 4, 6], &[1, 3, 2, 2, 3, 2], &[0, 3, 5, 1, 2, 4], &[1, 12, 2, 3]);
    assert_eq!(ops(&depth_first), [to_channels, shuffle(3)]);

    let order = three([12, 4, 6], &[1, 3, 4, 4, 6], &[0, 1, 3, 2, 4], &[1, 12, 4, 6]);
    assert!(refusal(&order).contains("the order of a shuffle"), "{}", refusal(&order));
    let joined = three([12, 4, 6], &[1, 3, 4, 4, 6], &[0, 2, 1, 3, 4], &[1, 12, 6, 4]);
    assert!(refusal(&joined).contains("the shape of the shuffled value"), "{}", refusal(&joined));
}

#[test]
fn shuffles_of_their_own_are_one_or_two_nodes() {
    let size = ("blocksize", Attribute::Int(2));
    let to_pixels = Op::PixelShuffle(PixelShuffle { upscale_factor: [2, 2] });
    let shuffle = |groups| Op::ChannelShuffle(ChannelShuffle { groups });
    let crd = [size.clone(), ("mode", Attribute::Text("CRD"))];
    let model = Builder::new(13, 12).node("DepthToSpace", &["x"], "y", &crd).output("y");
    assert_eq!(ops(&model), std::slice::from_ref(&to_pixels));
    let model =
        Builder::new(13, 12).node("DepthToSpace", &["x"], "y", std::slice::from_ref(&size)).output("y");
    assert_eq!(ops(&model), [shuffle(4), to_pixels]);
    let to_channels = Op::PixelUnshuffle(PixelUnshuffle { downscale_factor: [2, 2] });
    let crd = [size.clone(), ("mode", Attribute::Text("CRD"))];
    let model = Builder::new(28, 3).node("SpaceToDepth", &["x"], "y", &crd).output("y");
    assert_eq!(ops(&model), std::slice::from_ref(&to_channels));
    let model = Builder::new(13, 3).node("SpaceToDepth", &["x"], "y", &[size]).output("y");
    assert_eq!(ops(&model), [to_channels, shuffle(3)]);
}

#[test]
fn class_numbers_are_an_output_with_or_without_their_axis() {
    for keeps in [0, 1] {
        let attributes = [("axis", Attribute::Int(1)), ("keepdims", Attribute::Int(keeps))];
        let model = Builder::new(13, 4).node("ArgMax", &["x"], "y", &attributes).output("y");
        assert_eq!(ops(&model), [Op::ArgMax]);
    }
    let last = [("axis", Attribute::Int(1)), ("select_last_index", Attribute::Int(1))];
    let model = Builder::new(13, 4).node("ArgMax", &["x"], "y", &last).output("y");
    assert!(refusal(&model).contains("select_last_index"), "{}", refusal(&model));
}

#[test]
fn what_is_reduced_over_an_axis_that_values_are_stacked_along_is_arithmetic_of_them() {
    let stacked = |axis: i64, reduction: &str, keeps: i64| {
        let model = Builder::new(17, 4).ints("axis", &[1], &[axis]);
        let model = model.node("Relu", &["x"], "a", &[]).node("Sigmoid", &["x"], "b", &[]);
        let model = model
            .node("Unsqueeze", &["a", "axis"], "a5", &[])
            .node("Unsqueeze", &["b", "axis"], "b5", &[])
            .node("Unsqueeze", &["x", "axis"], "x5", &[])
            .node("Concat", &["a5", "b5", "x5"], "all", &[("axis", Attribute::Int(axis))]);
        let keeps = ("keepdims", Attribute::Int(keeps));
        if reduction == "ReduceSum" {
            model.node(reduction, &["all", "axis"], "y", &[keeps])
        } else {
            model.node(reduction, &["all"], "y", &[("axes", ints(&[axis])), keeps])
        }
    };
    let last = |model: &Builder| ops(model).split_off(2);
    let third = WithOperand { function: Elementwise::Div, operand: Operand::Number(3.0), reversed: false };
    for axis in [0, 1, -1] {
        assert_eq!(last(&stacked(axis, "ReduceSum", 0).output("y")), [Op::Add]);
        assert_eq!(last(&stacked(axis, "ReduceMean", 0).output("y")), [Op::Add, Op::WithOperand(third)]);
        assert_eq!(last(&stacked(axis, "ReduceMax", 0).output("y")), [Op::Maximum]);
        let kept = stacked(axis, "ReduceSum", 1).node("Squeeze", &["y", "axis"], "z", &[]).output("z");
        assert_eq!(last(&kept), [Op::Add]);
    }
    let whole = stacked(0, "ReduceSum", 0).output("all");
    assert!(refusal(&whole).contains("a stack of 3 values"), "{}", refusal(&whole));
    let other = stacked(0, "ReduceSum", 1).ints("two", &[1], &[2]);
    let other = other.node("ReduceSum", &["all", "two"], "z", &[]).output("z");
    assert!(refusal(&other).contains("attribute `axes`"), "{}", refusal(&other));
    let sum = Builder::new(17, 4).node("ReduceSum", &["x"], "y", &[]).output("y");
    assert!(
        refusal(&sum).contains("`axes` is [], wants height and width, or the channels"),
        "{}",
        refusal(&sum)
    );
}

#[test]
fn padding_that_exporters_turn_around_is_worked_out() {
    // PyTorch's (left 1, right 2, top 3, bottom 4), filled up to four axes
    let zero = ("value", Attribute::Tensor(Box::new(int_tensor("zero", &[1], &[0]))));
    let model = Builder::new(11, 4)
        .ints("sides", &[4], &[1, 2, 3, 4])
        .ints("four", &[1], &[4])
        .ints("pairs", &[2], &[-1, 2])
        .ints("flat", &[1], &[-1])
        .ints("last", &[1], &[-1])
        .ints("before", &[1], &[i64::MIN + 1])
        .ints("rows", &[1], &[0])
        .node("ConstantOfShape", &["four"], "zeros", &[zero])
        .node("Concat", &["sides", "zeros"], "all", &[("axis", Attribute::Int(0))])
        .node("Reshape", &["all", "pairs"], "table", &[])
        .node("Slice", &["table", "last", "before", "rows", "last"], "reversed", &[])
        .node("Transpose", &["reversed"], "turned", &[("perm", ints(&[1, 0]))])
        .node("Reshape", &["turned", "flat"], "list", &[])
        .node("Cast", &["list"], "pads", &[("to", Attribute::Int(7))])
        .node("Pad", &["x", "pads"], "y", &[("mode", Attribute::Text("reflect"))]);
    let expected = Pad { padding: [[3, 4], [1, 2]], with: PadWith::Reflect };
    assert_eq!(ops(&model.clone().output("y")), [Op::Pad(expected)]);
    let halved =
        model.ints("one", &[1], &[1]).node("Slice", &["table", "rows", "one", "rows", "one"], "z", &[]);
    assert!(refusal(&halved.output("z")).contains("rows that are reversed whole"));
}

#[test]
fn pixels_that_are_joined_to_one_axis_are_pixels() {
    let turned = || [("perm", ints(&[0, 2, 1]))];
    let joined = || {
        Builder::new(17, 2)
            .tensor(float_tensor("w", &[2, 2], &[1.0, 10.0, 100.0, 1000.0]))
            .tensor(float_tensor("b", &[2], &[0.5, 0.25]))
            .ints("joined", &[3], &[0, 2, -1])
            .node("Reshape", &["x", "joined"], "r", &[])
            .node("Transpose", &["r"], "t", &turned())
            .node("MatMul", &["t", "w"], "m", &[])
            .node("Add", &["b", "m"], "a", &[])
    };
    let by_shape = joined()
        .ints("batch", &[1], &[0])
        .ints("rest", &[1], &[-1])
        .node("Shape", &["x"], "size", &[("start", Attribute::Int(2))])
        .node("Concat", &["batch", "rest", "size"], "apart", &[("axis", Attribute::Int(0))])
        .node("Transpose", &["a"], "u", &turned())
        .node("Reshape", &["u", "apart"], "y", &[])
        .output("y");
    let with_channels_last = joined()
        .ints("batch", &[1], &[0])
        .ints("two", &[1], &[2])
        .node("Shape", &["x"], "size", &[("start", Attribute::Int(2))])
        .node("Concat", &["batch", "size", "two"], "apart", &[("axis", Attribute::Int(0))])
        .node("Reshape", &["a", "apart"], "l", &[])
        .node("Transpose", &["l"], "y", &[("perm", ints(&[0, 3, 1, 2]))])
        .output("y");
    for model in [by_shape, with_channels_last] {
        assert!(matches!(ops(&model).as_slice(), [Op::Conv2d(conv)] if conv.bias), "{:?}", ops(&model));
        // w[0][c]·x[0] + w[1][c]·x[1] + b[c]
        let wanted = [301.5, 402.5, 3010.25, 4020.25];
        assert_eq!(run(&model, [1, 2, 1, 2], &[1.0, 2.0, 3.0, 4.0]).0, wanted);
    }
}

/// `PixelUnshuffle` of an image of open size, as an exporter writes it: height first, then width, and axes of one.
fn unshuffled(block: [i64; 2], ones: &[i64]) -> Builder {
    Builder::new(17, 2)
        .ints("three", &[1], &[3])
        .ints("height", &[5], &[0, 0, -1, block[0], 0])
        .ints("width", &[6], &[0, 0, 0, 0, -1, block[1]])
        .ints("joined", &[6], &[0, -1, 1, 1, 0, 0])
        .ints("ones", &[i64::try_from(ones.len()).unwrap()], ones)
        .node("Unsqueeze", &["x", "three"], "u", &[])
        .node("Reshape", &["u", "height"], "h", &[])
        .node("Reshape", &["h", "width"], "w", &[])
        .node("Transpose", &["w"], "t", &[("perm", ints(&[0, 1, 3, 5, 2, 4]))])
        .node("Reshape", &["t", "joined"], "j", &[])
        .node("Squeeze", &["j", "ones"], "y", &[])
        .output("y")
}

#[test]
fn blocks_of_an_image_of_open_size_become_channels() {
    for ones in [[2, 3], [-3, -4]] {
        let model = unshuffled([2, 2], &ones);
        let unshuffle = PixelUnshuffle { downscale_factor: [2, 2] };
        assert_eq!(ops(&model), [Op::PixelUnshuffle(unshuffle)]);
    }
    let image: Vec<f64> = (0..48).map(f64::from).collect();
    let (made, shape) = run(&unshuffled([2, 2], &[2, 3]), [1, 2, 4, 6], &image);
    assert_eq!(shape, [1, 8, 2, 3]);
    let wanted = |c: usize, h: usize, w: usize| {
        let (channel, row, column) = (c / 4, c / 2 % 2, c % 2);
        image[(channel * 4 + 2 * h + row) * 6 + 2 * w + column]
    };
    for (place, made) in made.iter().enumerate() {
        assert_eq!(*made, wanted(place / 6, place / 3 % 2, place % 3));
    }
    for ones in [&[2][..], &[2, 2], &[2, 4], &[1, 2], &[2, 9], &[i64::MIN, 2]] {
        let refusals = unshuffled([2, 2], ones).refusals();
        assert_eq!(refusals.len(), 1, "{ones:?}: {refusals:?}");
    }
    assert!(unshuffled([2, 3], &[2, 3]).refusals()[0].contains("a shuffle of channels or pixels"));
}

#[test]
fn channels_that_are_taken_apart_have_a_shape() {
    // x.reshape(n, 2, 4, h, w).transpose(1, 2).flatten(1, 2), by the extents that are left
    let model = Builder::new(17, 8)
        .ints("zero", &[1], &[0])
        .ints("one", &[1], &[1])
        .ints("two", &[1], &[2])
        .ints("three", &[1], &[3])
        .ints("four", &[1], &[4])
        .ints("five", &[1], &[5])
        .ints("all", &[1], &[-1])
        .node("Shape", &["x"], "s", &[])
        .node("Slice", &["s", "zero", "one"], "n", &[])
        .node("Slice", &["s", "two", "four"], "hw", &[])
        .node("Concat", &["n", "two", "four", "hw"], "apart", &[("axis", Attribute::Int(0))])
        .node("Reshape", &["x", "apart"], "p", &[])
        .node("Transpose", &["p"], "t", &[("perm", ints(&[0, 2, 1, 3, 4]))])
        .node("Shape", &["t"], "ts", &[])
        .node("Slice", &["ts", "zero", "one"], "tn", &[])
        .node("Slice", &["ts", "three", "five"], "thw", &[])
        .node("Concat", &["tn", "all", "thw"], "joined", &[("axis", Attribute::Int(0))])
        .node("Reshape", &["t", "joined"], "y", &[])
        .output("y");
    assert_eq!(ops(&model), [Op::ChannelShuffle(ChannelShuffle { groups: 2 })]);
    // the extents of what is taken apart are numbers like any other
    let counted = |from: i64, to: i64| {
        let model = Builder::new(17, 8)
            .ints("s", &[5], &[0, 2, 4, 6, 7])
            .ints("from", &[1], &[from])
            .ints("to", &[1], &[to])
            .ints("shape", &[1], &[2]);
        let mut model = model;
        model.graph().input[0] = value("x", 1, &[Some(1), Some(8), Some(6), Some(7)]);
        model
            .node("Reshape", &["x", "s"], "p", &[])
            .node("Shape", &["p"], "ps", &[])
            .node("Slice", &["ps", "from", "to"], "part", &[])
            .node("Concat", &["zero", "minus", "part"], "back", &[("axis", Attribute::Int(0))])
            .ints("zero", &[1], &[0])
            .ints("minus", &[1], &[-1])
            .node("Reshape", &["x", "back"], "y", &[])
            .output("y")
    };
    assert!(counted(3, 5).read().is_ok());
    assert_eq!(counted(1, 3).refusals().len(), 1);
}
