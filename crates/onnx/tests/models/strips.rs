//! Values of one row or one column: means, maxima and sums over height or width alone, and arithmetic with values of all of them.

use ndarray::{Array4, ArrayView4, Axis, Zip};
use tiled_graph::{AdaptivePool2d, GraphError, Op, PartPooling, Upsample, UpsampleTo, infer_nchw};

use crate::build::{Attribute, Builder, float_tensor, ints, names, ops, reason};
use crate::exporters::{assert_close, declared, image};
use crate::runs::run;

/// Neither square nor of one image.
pub(crate) const SHAPE: [usize; 4] = [2, 3, 4, 5];
const OTHER: [usize; 4] = [1, 3, 6, 3];

pub(crate) fn array(shape: [usize; 4]) -> Array4<f64> {
    Array4::from_shape_vec(shape, image(shape)).unwrap()
}

/// The mean over an axis, which stays with one row or column.
pub(crate) fn mean(x: &Array4<f64>, axis: usize) -> Array4<f64> {
    x.mean_axis(Axis(axis)).unwrap().insert_axis(Axis(axis))
}

pub(crate) fn most(x: &Array4<f64>, axis: usize) -> Array4<f64> {
    x.fold_axis(Axis(axis), f64::NEG_INFINITY, |a, b| a.max(*b)).insert_axis(Axis(axis))
}

/// A function of two arrays as large as both together.
pub(crate) fn combined(a: &Array4<f64>, b: &Array4<f64>, function: fn(f64, f64) -> f64) -> Array4<f64> {
    let extent = |axis: usize| a.shape()[axis].max(b.shape()[axis]);
    let shape = [extent(0), extent(1), extent(2), extent(3)];
    let views: [ArrayView4<'_, f64>; 2] = [a.broadcast(shape).unwrap(), b.broadcast(shape).unwrap()];
    Zip::from(&views[0]).and(&views[1]).map_collect(|a, b| function(*a, *b))
}

/// Runs a model whose size is open and declared, at one size, and the open one at another.
pub(crate) fn check(model: &Builder, wanted: &dyn Fn(&Array4<f64>) -> Array4<f64>) {
    let fixed = declared(model.clone(), SHAPE.map(|extent| i64::try_from(extent).unwrap()));
    for (model, shape) in [(model, SHAPE), (&fixed, SHAPE), (model, OTHER)] {
        let wanted = wanted(&array(shape));
        let (got, got_shape) = run(model, shape, &image(shape));
        assert_eq!(got_shape, wanted.shape(), "{shape:?}");
        assert_close(&got, &wanted.iter().copied().collect::<Vec<_>>());
    }
}

/// The means of rows `h`, N×C×H×1, and of columns `w`, N×C×1×W.
pub(crate) fn start() -> Builder {
    Builder::new(17, 3).node("ReduceMean", &["x"], "h", &[("axes", ints(&[3]))]).node(
        "ReduceMean",
        &["x"],
        "w",
        &[("axes", ints(&[-2]))],
    )
}

fn is_nearest(op: &Op) -> bool {
    matches!(op, Op::Upsample(Upsample { to: UpsampleTo::Like(_), .. }))
}

#[test]
fn a_reduction_over_one_axis_is_pooling_to_one_row_or_column() {
    let least = |x: &Array4<f64>, axis| -most(&-x, axis);
    for axis in [2, 3] {
        for given in [axis, axis - 4] {
            let model =
                |op| Builder::new(17, 3).node(op, &["x"], "y", &[("axes", ints(&[given]))]).output("y");
            let axis = usize::try_from(axis).unwrap();
            check(&model("ReduceMean"), &|x| mean(x, axis));
            check(&model("ReduceMax"), &|x| most(x, axis));
            check(&model("ReduceMin"), &|x| least(x, axis));
            let output_size = if axis == 2 { [Some(1), None] } else { [None, Some(1)] };
            let pool = Op::AdaptivePool2d(AdaptivePool2d { pooling: PartPooling::Mean, output_size });
            assert_eq!(ops(&model("ReduceMean")), [pool]);
        }
    }
}

#[test]
fn a_reduction_is_one_node_whoever_reads_it() {
    let model = start()
        .node("Mul", &["x", "h"], "a", &[])
        .node("Add", &["a", "h"], "b", &[])
        .node("ReduceMean", &["h"], "p", &[("axes", ints(&[2]))])
        .node("Sub", &["b", "p"], "y", &[])
        .output("y");
    check(&model, &|x| {
        let h = mean(x, 3);
        let b = combined(&combined(x, &h, |a, b| a * b), &h, |a, b| a + b);
        combined(&b, &mean(&h, 2), |a, b| a - b)
    });
    let all = names(&model);
    let count = |name| all.iter().filter(|op| **op == name).count();
    assert_eq!([count("adaptive_avg_pool2d"), count("global_avg_pool")], [1, 1], "{all:?}");
    // another reduction over the other axis, and the same axis once more
    let other = Builder::new(17, 3)
        .node("ReduceMean", &["x"], "h", &[("axes", ints(&[3]))])
        .node("ReduceMax", &["h"], "m", &[("axes", ints(&[2]))])
        .node("ReduceMax", &["h"], "n", &[("axes", ints(&[3]))])
        .node("Mul", &["n", "m"], "y", &[])
        .output("y");
    check(&other, &|x| combined(&mean(x, 3), &most(&mean(x, 3), 2), |a, b| a * b));
}

#[test]
fn arithmetic_repeats_rows_and_columns_to_the_other_value() {
    type Function = fn(f64, f64) -> f64;
    let functions: [(&str, Function); 6] = [
        ("Add", |a, b| a + b),
        ("Sub", |a, b| a - b),
        ("Mul", |a, b| a * b),
        ("Div", |a, b| a / b),
        ("Min", f64::min),
        ("Max", f64::max),
    ];
    for (op, function) in functions {
        for (line, axis) in [("h", 3), ("w", 2)] {
            // no divisor is near zero
            let model = start().node("Exp", &[line], "e", &[]).node(op, &["x", "e"], "y", &[]).output("y");
            check(&model, &|x| combined(x, &mean(x, axis).mapv(f64::exp), function));
            assert!(ops(&model).iter().any(is_nearest), "{:?}", ops(&model));
        }
        let reversed = start().node("Exp", &["x"], "e", &[]).node(op, &["w", "e"], "y", &[]).output("y");
        check(&reversed, &|x| combined(&mean(x, 2), &x.mapv(f64::exp), function));
        // a value of all rows and columns is not among the operands
        let both = start().node("Exp", &["w"], "e", &[]).node(op, &["h", "e"], "y", &[]).output("y");
        check(&both, &|x| combined(&mean(x, 3), &mean(x, 2).mapv(f64::exp), function));
    }
    let three = start().node("Sum", &["h", "x", "w"], "y", &[]).output("y");
    check(&three, &|x| {
        let sum = combined(x, &mean(x, 3), |a, b| a + b);
        combined(&sum, &mean(x, 2), |a, b| a + b)
    });
    // a pixel, a row and a column, and two columns alone
    let pixel = start()
        .node("GlobalMaxPool", &["x"], "p", &[])
        .node("Mul", &["p", "h"], "ph", &[])
        .node("Sub", &["ph", "w"], "y", &[])
        .output("y");
    check(&pixel, &|x| {
        let most = most(&most(x, 2), 3);
        combined(&combined(&most, &mean(x, 3), |a, b| a * b), &mean(x, 2), |a, b| a - b)
    });
    let columns = start().node("Add", &["h", "h"], "y", &[]).output("y");
    check(&columns, &|x| mean(x, 3) * 2.0);
    assert_eq!(names(&columns), ["adaptive_avg_pool2d", "add"]);
}

#[test]
fn layers_between_leave_a_row_a_row() {
    // three taps along the rows, an activation, and back
    let model = start()
        .tensor(float_tensor("k", &[3, 1, 3, 1], &[1.0, 2.0, -1.0, 0.5, 0.0, 1.0, -2.0, 1.0, 0.25]))
        .node("Conv", &["h", "k"], "c", &[("group", Attribute::Int(3)), ("pads", ints(&[1, 0, 1, 0]))])
        .node("Relu", &["c"], "r", &[])
        .node("Mul", &["x", "r"], "y", &[])
        .output("y");
    let taps = [[1.0, 2.0, -1.0], [0.5, 0.0, 1.0], [-2.0, 1.0, 0.25]];
    check(&model, &|x| {
        let h = mean(x, 3);
        let rows = h.shape()[2];
        let conv = Array4::from_shape_fn(h.raw_dim(), |(n, c, row, _)| {
            let tap = |at: usize| {
                let from = (row + at).checked_sub(1).filter(|from| *from < rows);
                from.map_or(0.0, |from| taps[c][at] * h[[n, c, from, 0]])
            };
            (tap(0) + tap(1) + tap(2)).max(0.0)
        });
        combined(x, &conv, |a, b| a * b)
    });
}

#[test]
fn rows_of_one_value_and_columns_of_another_have_the_extents_of_both() {
    // of half the width, and of half the height
    let model = Builder::new(17, 3)
        .node("MaxPool", &["x"], "a", &[("kernel_shape", ints(&[2, 1])), ("strides", ints(&[2, 1]))])
        .node("MaxPool", &["x"], "b", &[("kernel_shape", ints(&[1, 2])), ("strides", ints(&[1, 2]))])
        .node("ReduceMean", &["a"], "h", &[("axes", ints(&[3]))])
        .node("ReduceMax", &["b"], "w", &[("axes", ints(&[2]))])
        .node("Mul", &["h", "w"], "y", &[])
        .output("y");
    let pooled = |x: &Array4<f64>, axis: usize| {
        let mut shape = [x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]];
        shape[axis] /= 2;
        Array4::from_shape_fn(shape, |(n, c, h, w)| match axis {
            2 => x[[n, c, 2 * h, w]].max(x[[n, c, 2 * h + 1, w]]),
            _ => x[[n, c, h, 2 * w]].max(x[[n, c, h, 2 * w + 1]]),
        })
    };
    check(&model, &|x| combined(&mean(&pooled(x, 2), 3), &most(&pooled(x, 3), 2), |a, b| a * b));
    // the first becomes as large as both, and the second is as large as the first then
    let is_padded = |op: &Op| matches!(op, Op::PadTo(_));
    let ops = ops(&model);
    assert!(ops.iter().any(is_padded) && ops.iter().any(is_nearest), "{ops:?}");
}

#[test]
fn rows_and_columns_that_are_expanded_have_the_extents_of_the_value() {
    let expanded = || {
        start().node("Shape", &["x"], "s", &[]).node("Expand", &["h", "s"], "eh", &[]).node(
            "Expand",
            &["w", "s"],
            "ew",
            &[],
        )
    };
    let both = expanded().node("Add", &["eh", "ew"], "y", &[]).output("y");
    check(&both, &|x| combined(&mean(x, 3), &mean(x, 2), |a, b| a + b));
    let alone = expanded().output("eh");
    check(&alone, &|x| combined(&mean(x, 3), &(x * 0.0), |a, b| a + b));
    // as PyTorch writes it, with what stays left open
    let stays = start()
        .ints("list", &[1], &[-1])
        .ints("minus", &[3], &[-1, -1, -1])
        .ints("three", &[], &[3])
        .node("Shape", &["x"], "s", &[])
        .node("Gather", &["s", "three"], "width", &[])
        .node("Reshape", &["width", "list"], "last", &[])
        .node("Concat", &["minus", "last"], "shape", &[("axis", Attribute::Int(0))])
        .node("Expand", &["h", "shape"], "y", &[])
        .output("y");
    check(&stays, &|x| combined(&mean(x, 3), &(x * 0.0), |a, b| a + b));
}

#[test]
fn a_declared_size_is_no_part_of_what_is_expanded_in_arithmetic() {
    let model = start()
        .ints("s", &[4], &[2, 3, 4, 5])
        .node("Expand", &["h", "s"], "e", &[])
        .node("Mul", &["e", "x"], "y", &[])
        .output("y");
    let model = declared(model, SHAPE.map(|extent| i64::try_from(extent).unwrap()));
    for shape in [SHAPE, OTHER] {
        let x = array(shape);
        let wanted = combined(&x, &mean(&x, 3), |a, b| a * b);
        assert_close(&run(&model, shape, &image(shape)).0, &wanted.iter().copied().collect::<Vec<_>>());
    }
}

#[test]
fn sums_over_one_axis_are_means_by_its_extent() {
    let sum = |axis| {
        let axis = i64::try_from(axis).unwrap();
        Builder::new(11, 3).node("ReduceSum", &["x"], "s", &[("axes", ints(&[axis]))])
    };
    for axis in [2, 3] {
        let fixed = declared(sum(axis).output("s"), [2, 3, 4, 5]);
        let wanted = mean(&array(SHAPE), axis) * if axis == 2 { 4.0 } else { 5.0 };
        assert_close(&run(&fixed, SHAPE, &image(SHAPE)).0, &wanted.iter().copied().collect::<Vec<_>>());
        let words = "the sum over height or width alone depends on the size of the image, which the model leaves open";
        assert!(reason(&sum(axis).output("s")).ends_with(words), "{}", reason(&sum(axis).output("s")));
        // by the extent it is the mean at every size
        let by = |axis: usize| {
            sum(axis)
                .ints("at", &[], &[i64::try_from(axis).unwrap()])
                .node("Shape", &["x"], "extents", &[])
                .node("Gather", &["extents", "at"], "whole", &[])
                .node("Cast", &["whole"], "extent", &[("to", Attribute::Int(1))])
                .node("Div", &["s", "extent"], "y", &[])
                .output("y")
        };
        check(&by(axis), &|x| mean(x, axis));
        assert_eq!(names(&by(axis)), ["adaptive_avg_pool2d"]);
    }
}

#[test]
fn an_axis_that_is_dropped_and_given_again_has_one_row_or_column() {
    for (axis, given) in [(2, 2), (3, 3), (2, -2), (3, -1)] {
        let model = Builder::new(13, 3)
            .ints("at", &[1], &[given])
            .node("ReduceMax", &["x"], "m", &[("axes", ints(&[axis])), ("keepdims", Attribute::Int(0))])
            .node("Unsqueeze", &["m", "at"], "u", &[])
            .node("Sub", &["x", "u"], "y", &[])
            .output("y");
        check(&model, &|x| combined(x, &most(x, usize::try_from(axis).unwrap()), |a, b| a - b));
    }
}

#[test]
fn a_window_of_all_declared_rows_or_columns_is_a_reduction_over_them() {
    let pool = |op, kernel: [i64; 2], strides: [i64; 2]| {
        let attributes = [("kernel_shape", ints(&kernel)), ("strides", ints(&strides))];
        let model = Builder::new(17, 3).node(op, &["x"], "p", &attributes).node("Mul", &["x", "p"], "y", &[]);
        declared(model.output("y"), [2, 3, 4, 5])
    };
    for shape in [SHAPE, OTHER] {
        let x = array(shape);
        for (op, axis, kernel, strides) in [
            ("AveragePool", 3, [1, 5], [1, 5]),
            ("AveragePool", 2, [4, 1], [4, 1]),
            ("MaxPool", 3, [1, 5], [1, 1]),
            ("MaxPool", 2, [4, 1], [1, 1]),
        ] {
            let line = if op == "MaxPool" { most(&x, axis) } else { mean(&x, axis) };
            let wanted = combined(&x, &line, |a, b| a * b);
            let got = run(&pool(op, kernel, strides), shape, &image(shape)).0;
            assert_close(&got, &wanted.iter().copied().collect::<Vec<_>>());
        }
    }
    // every second row, and windows of which there are several
    for (kernel, strides) in [([1, 5], [2, 1]), ([1, 4], [1, 1])] {
        let attributes = [("kernel_shape", ints(&kernel)), ("strides", ints(&strides))];
        let model = Builder::new(17, 3).node("MaxPool", &["x"], "y", &attributes).output("y");
        assert_eq!(names(&declared(model, [2, 3, 4, 5])), ["max_pool2d"]);
    }
}

#[test]
fn what_has_one_column_at_the_declared_size_alone_is_repeated_at_that_size_alone() {
    let model = Builder::new(17, 3)
        .node("MaxPool", &["x"], "p", &[("kernel_shape", ints(&[1, 3]))])
        .node("Mul", &["x", "p"], "y", &[])
        .output("y");
    let model = declared(model, [1, 3, 4, 3]);
    let shape = [1, 3, 4, 3];
    let x = array(shape);
    let wanted = combined(&x, &most(&x, 3), |a, b| a * b);
    assert_close(&run(&model, shape, &image(shape)).0, &wanted.iter().copied().collect::<Vec<_>>());
    let error = infer_nchw(&model.read().unwrap().graph, &[[1, 3, 4, 4]]).unwrap_err();
    assert!(matches!(error, GraphError::OperandExtents { .. }), "{error}");
}

#[test]
fn a_column_times_a_row_is_all_their_products() {
    let model = start().node("MatMul", &["h", "w"], "y", &[]).output("y");
    check(&model, &|x| combined(&mean(x, 3), &mean(x, 2), |a, b| a * b));
    let reversed = start().node("MatMul", &["w", "h"], "y", &[]).output("y");
    assert_eq!(reason(&reversed), "input 0 is a batch of images, wants a value of two axes, N×C");
}
