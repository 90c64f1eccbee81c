//! Sizes that a model works out of those of its input, and values that it writes out in several nodes.

use tiled_graph::{LocalResponseNorm, Op, Upsample, UpsampleTo};

use crate::build::{Attribute, Builder, float_tensor, int_tensor, ints, ops, reason, value};
use crate::runs::run;

/// `x`, four channels of half the height and width in `c`, and what the newer exporter writes for these: `(h − 1)/2 + 1`, as
/// lists of one, and `n` for the batch.
fn halved(divisor: i64) -> Builder {
    let axes = [("h", 2, 3), ("w", 3, 4), ("n", 0, 1)];
    let mut model = Builder::new(18, 4)
        .floats("k", &[4, 4, 3, 3])
        .node("Conv", &["x", "k"], "c", &[("strides", ints(&[2, 2])), ("pads", ints(&[1; 4]))])
        .ints("less", &[], &[-1])
        .ints("one", &[], &[1])
        .ints("divisor", &[], &[divisor])
        .ints("list", &[1], &[-1]);
    for (name, start, end) in axes {
        let bounds = [("start", Attribute::Int(start)), ("end", Attribute::Int(end))];
        model = model.node("Shape", &["x"], name, &bounds);
    }
    for axis in ["h", "w"] {
        let name = |step: &str| format!("{axis}_{step}");
        model = model
            .node("Squeeze", &[axis], &name("size"), &[])
            .node("Add", &["less", &name("size")], &name("less"), &[])
            .node("Div", &[&name("less"), "divisor"], &name("part"), &[])
            .node("Add", &["one", &name("part")], &name("half"), &[])
            .node("Reshape", &[&name("half"), "list"], &name("out"), &[]);
    }
    model
}

#[test]
fn extents_that_a_formula_gives_are_those_of_the_layer_that_has_it() {
    let shuffled = |divisor| {
        halved(divisor)
            .ints("groups", &[2], &[2, 2])
            .ints("channels", &[1], &[4])
            .node("Concat", &["n", "groups", "h_out", "w_out"], "apart", &[("axis", Attribute::Int(0))])
            .node("Concat", &["n", "channels", "h_out", "w_out"], "whole", &[("axis", Attribute::Int(0))])
            .node("Reshape", &["c", "apart"], "f", &[])
            .node("Transpose", &["f"], "t", &[("perm", ints(&[0, 2, 1, 3, 4]))])
            .node("Reshape", &["t", "whole"], "y", &[])
            .output("y")
    };
    let read = ops(&shuffled(2));
    assert!(matches!(read.as_slice(), [Op::Conv2d(_), Op::ChannelShuffle(_)]), "{read:?}");
    let wanted = "wants a shape that takes channels apart, or height and width into blocks";
    assert!(reason(&shuffled(3)).ends_with(wanted), "{}", reason(&shuffled(3)));
}

#[test]
fn a_size_that_a_formula_gives_is_like_the_value_that_has_it() {
    let resized = |divisor| {
        halved(divisor)
            .ints("channels", &[1], &[4])
            .node("Concat", &["n", "channels", "h_out", "w_out"], "size", &[("axis", Attribute::Int(0))])
            .node("MaxPool", &["c"], "p", &[("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))])
            .node("Resize", &["p", "", "", "size"], "u", &[("mode", Attribute::Text("linear"))])
            .node("Add", &["u", "c"], "y", &[])
            .output("y")
    };
    let read = ops(&resized(2));
    let like = |op: &Op| matches!(op, Op::Upsample(Upsample { to: UpsampleTo::Like(_), .. }));
    assert!(read.iter().any(like), "{read:?}");
    assert_eq!(reason(&resized(3)), "its size depends on the size of the image, which the model leaves open");
}

#[test]
fn blocks_of_an_open_size_become_channels() {
    let blocks = |divisor| {
        let model = Builder::new(20, 3).ints("2", &[1], &[2]).ints("3", &[1], &[3]).ints("12", &[1], &[12]);
        let model = model.ints("divisor", &[1], &[divisor]);
        let axes = [("n", 0), ("h", 2), ("w", 3)];
        let model = axes.iter().fold(model, |model, (name, axis)| {
            let bounds = [("start", Attribute::Int(*axis)), ("end", Attribute::Int(axis + 1))];
            model.node("Shape", &["x"], name, &bounds)
        });
        let along = [("axis", Attribute::Int(0))];
        model
            .node("Div", &["h", "divisor"], "rows", &[])
            .node("Div", &["w", "divisor"], "columns", &[])
            .node("Concat", &["n", "3", "rows", "2", "columns", "2"], "apart", &along)
            .node("Concat", &["n", "12", "rows", "columns"], "whole", &along)
            .node("Reshape", &["x", "apart"], "f", &[])
            .node("Transpose", &["f"], "t", &[("perm", ints(&[0, 1, 3, 5, 2, 4]))])
            .node("Reshape", &["t", "whole"], "y", &[])
            .output("y")
    };
    let read = ops(&blocks(2));
    assert!(matches!(read.as_slice(), [Op::PixelUnshuffle(_)]), "{read:?}");
    assert!(reason(&blocks(4)).ends_with("or height and width into blocks"));
}

#[test]
fn a_pixel_that_is_expanded_is_itself_in_arithmetic() {
    let expanded =
        || {
            Builder::new(17, 3)
                .node("GlobalAveragePool", &["x"], "p", &[])
                .node("Shape", &["x"], "s", &[])
                .node("Expand", &["p", "s"], "e", &[])
        };
    let scaled = expanded().node("Mul", &["x", "e"], "y", &[]).output("y");
    let (got, _) = run(&scaled, [1, 3, 1, 2], &[1.0, 3.0, 2.0, 4.0, 0.0, 1.0]);
    assert_eq!(got, [2.0, 6.0, 6.0, 12.0, 0.0, 0.5]);
    assert_eq!(ops(&scaled), [Op::GlobalAvgPool, Op::Mul]);
    // elsewhere it has all pixels
    let alone = expanded().output("e");
    assert_eq!(run(&alone, [1, 3, 1, 2], &[1.0, 3.0, 2.0, 4.0, 0.0, 1.0]).0, [2.0, 2.0, 3.0, 3.0, 0.5, 0.5]);
    // a declared size is no part of the network
    let fixed = Builder::new(17, 3)
        .ints("s", &[4], &[1, 3, 4, 5])
        .node("GlobalAveragePool", &["x"], "p", &[])
        .node("Expand", &["p", "s"], "e", &[])
        .node("Mul", &["x", "e"], "y", &[])
        .output("y");
    assert_eq!(ops(&declared(fixed, [1, 3, 4, 5])), [Op::GlobalAvgPool, Op::Mul]);
    let rows =
        Builder::new(17, 2).ints("s", &[4], &[1, 3, 1, 1]).node("Expand", &["x", "s"], "y", &[]).output("y");
    let wanted = "wants the shape of a value, of which it has all channels, rows and columns, or one";
    assert!(reason(&rows).ends_with(wanted));
}

#[test]
fn a_channel_that_is_expanded_is_itself_in_arithmetic() {
    let expanded = || {
        Builder::new(17, 3)
            .node("ReduceL2", &["x"], "n", &[("axes", ints(&[1]))])
            .node("Shape", &["x"], "s", &[])
            .node("Expand", &["n", "s"], "e", &[])
    };
    // each pixel by its length
    let image = [3.0, 0.0, 4.0, 2.0, 0.0, 0.0];
    let unit = expanded().node("Div", &["x", "e"], "y", &[]).output("y");
    assert_eq!(run(&unit, [1, 3, 1, 2], &image).0, [0.6, 0.0, 0.8, 1.0, 0.0, 0.0]);
    assert_eq!(ops(&unit).len(), 4);
    // elsewhere it has all channels
    let alone = expanded().node("Add", &["e", "e"], "y", &[]).output("y");
    assert_eq!(run(&alone, [1, 3, 1, 2], &image), (vec![10.0, 4.0, 10.0, 4.0, 10.0, 4.0], [1, 3, 1, 2]));
}

/// `x/(k + α·mean)^β` of squares over `size` channels, as PyTorch's exporters write it, padded by so many channels.
fn response(size: i64, padding: [i64; 2]) -> Builder {
    let pads = [0, 0, padding[0], 0, 0, 0, 0, padding[1], 0, 0];
    Builder::new(17, 3)
        .ints("volume", &[5], &[1, 1, 3, 1, -1])
        .ints("image", &[4], &[1, 3, 1, 2])
        .ints("pads", &[10], &pads)
        .ints("axis", &[1], &[1])
        .tensor(float_tensor("alpha", &[], &[0.5]))
        .tensor(float_tensor("k", &[], &[2.0]))
        .tensor(float_tensor("beta", &[], &[2.0]))
        .node("Mul", &["x", "x"], "q", &[])
        .node("Reshape", &["q", "volume"], "v", &[])
        .node("Pad", &["v", "pads"], "p", &[])
        .node(
            "AveragePool",
            &["p"],
            "a",
            &[("kernel_shape", ints(&[size, 1, 1])), ("strides", ints(&[1, 1, 1]))],
        )
        .node("Squeeze", &["a", "axis"], "s", &[])
        .node("Reshape", &["s", "image"], "r", &[])
        .node("Mul", &["r", "alpha"], "m", &[])
        .node("Add", &["m", "k"], "n", &[])
        .node("Pow", &["n", "beta"], "d", &[])
        .node("Div", &["x", "d"], "y", &[])
        .output("y")
}

/// The same with `x.squeeze(1)` of an exporter that does not know how many there are.
fn asked(mut model: Builder) -> Builder {
    let squeezed = Builder::new(17, 3).node("Squeeze", &["a", "axis"], "z", &[]).output("z").branch();
    let kept = Builder::new(17, 3).node("Identity", &["a"], "i", &[]).output("i").branch();
    let asked = Builder::new(17, 3)
        .node("Shape", &["a"], "size", &[])
        .node("Gather", &["size", "axis"], "count", &[])
        .node("Equal", &["count", "axis"], "is_one", &[])
        .node("If", &["is_one"], "s", &[("then_branch", squeezed), ("else_branch", kept)])
        .graph()
        .node
        .clone();
    let nodes = &mut model.graph().node;
    let place = nodes.iter().position(|node| node.op_type() == "Squeeze").unwrap();
    nodes.splice(place..=place, asked);
    model
}

fn declared(mut model: Builder, shape: [i64; 4]) -> Builder {
    model.graph().input[0] = value("x", 1, &shape.map(Some));
    model
}

#[test]
fn a_local_response_norm_that_is_written_out_is_one_node() {
    for (size, padding) in [(3, [1, 1]), (2, [1, 0]), (1, [0, 0])] {
        let model = declared(response(size, padding), [1, 3, 1, 2]);
        let wanted = LocalResponseNorm { size: 3, alpha: 0.5, beta: 2.0, k: 2.0 };
        let wanted = LocalResponseNorm { size: usize::try_from(size).unwrap(), ..wanted };
        assert_eq!(ops(&model), [Op::LocalResponseNorm(wanted.clone())]);
        assert_eq!(ops(&asked(model)), [Op::LocalResponseNorm(wanted)]);
    }
    let model = declared(response(3, [1, 1]), [1, 3, 1, 2]);
    let image = [1.0, 0.0, 2.0, 3.0, 4.0, 0.0];
    // squares 1 4 16 and 0 9 0; means of three 5/3 7 20/3 and 3 3 3
    let by = |x: f64, mean: f64| x / (2.0 + 0.5 * mean).powi(2);
    let wanted = [by(1.0, 5.0 / 3.0), 0.0, by(2.0, 7.0), by(3.0, 3.0), by(4.0, 20.0 / 3.0), 0.0];
    let (got, _) = run(&model, [1, 3, 1, 2], &image);
    assert!(got.iter().zip(&wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-14), "{got:?}, {wanted:?}");
}

#[test]
fn a_step_of_a_local_response_norm_has_its_extents() {
    let extents = |of: &str, axes: &[i64]| {
        let model = declared(response(3, [1, 1]), [1, 3, 1, 2]);
        let model = model.ints("at", &[1], axes).node("Shape", &[of], "all", &[]);
        let model = model.node("Gather", &["all", "at"], "extent", &[]);
        let model = model.node("Size", &["all"], "rank", &[]).node("Size", &[of], "size", &[]);
        let model =
            model.node("Add", &["extent", "rank"], "some", &[]).node("Add", &["some", "size"], "w", &[]);
        model.node("Add", &["x", "w"], "z", &[])
    };
    // extent, axes and elements of squares, padded ones, means, and means without the axis
    for (of, axis, wanted) in [
        ("v", 2, 3 + 5 + 6),
        ("p", 2, 5 + 5 + 10),
        ("a", 2, 3 + 5 + 6),
        ("a", 1, 1 + 5 + 6),
        ("s", 1, 3 + 4 + 6),
    ] {
        let mut model = extents(of, &[axis]);
        model.graph().output[0].name = Some("z".to_owned());
        let (got, _) = run(&model, [1, 3, 1, 2], &[0.0; 6]);
        assert_eq!(got, [f64::from(wanted); 6], "{of} {axis}");
    }
}

#[test]
fn squares_that_are_padded_otherwise_are_refused() {
    for (size, padding) in [(3, [2, 0]), (2, [0, 1]), (3, [1, 0]), (0, [0, 0])] {
        let model = declared(response(size, padding), [1, 3, 1, 2]);
        assert_eq!(
            reason(&model),
            "input 0 is a step of a local response norm, wants squares padded for means of as many channels as there are"
        );
    }
}

/// A pooled value of three channels, gathered from the list of its elements.
fn gathered(places: Builder) -> Builder {
    places
        .ints("list", &[1], &[-1])
        .node("GlobalAveragePool", &["x"], "p", &[])
        .node("Reshape", &["p", "list"], "l", &[])
        .node("Gather", &["l", "at"], "y", &[])
        .output("y")
}

/// The places of all elements whatever the batch, with this many from one image to the next.
fn places(of_image: i64) -> Builder {
    Builder::new(18, 3)
        .ints("zero", &[], &[0])
        .ints("one", &[], &[1])
        .ints("of_image", &[], &[of_image])
        .ints("axes", &[3], &[1, 2, 3])
        .ints("channels", &[1, 3, 1, 1], &[0, 1, 2])
        .ints("nothing", &[1, 1, 1, 1], &[0])
        .node("Shape", &["x"], "n", &[("end", Attribute::Int(1))])
        .node("Squeeze", &["n"], "size", &[])
        .node("Range", &["zero", "size", "one"], "images", &[])
        .node("Mul", &["images", "of_image"], "begins", &[])
        .node("Unsqueeze", &["begins", "axes"], "spread", &[])
        .node("Add", &["spread", "channels"], "both", &[])
        .node("Add", &["both", "nothing"], "at", &[])
}

#[test]
fn a_view_that_is_gathered_from_all_elements_is_the_value_itself() {
    assert_eq!(ops(&gathered(places(3))), [Op::GlobalAvgPool]);
    let wanted = "wants the places of all elements in their order, N×C×1×1";
    assert!(reason(&gathered(places(2))).ends_with(wanted));
    let fixed = |places: &[i64]| {
        let at = Builder::new(18, 3).tensor(int_tensor("at", &[2, 3, 1, 1], places));
        declared(gathered(at), [2, 3, 4, 4])
    };
    assert_eq!(ops(&fixed(&[0, 1, 2, 3, 4, 5])), [Op::GlobalAvgPool]);
    let turned = reason(&fixed(&[0, 1, 2, 5, 4, 3]));
    assert!(turned.ends_with(wanted), "{turned}");
}
