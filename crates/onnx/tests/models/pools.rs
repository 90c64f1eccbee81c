//! Pools and means that exporters write in other words.

use tiled_graph::{AvgPool2d, MaxPool2d, Op};

use crate::build::{Attribute, Builder, ints, names, only, ops, value};
use crate::exporters::{assert_close, declared, extents, image, numbers};
use crate::runs::run;

#[test]
fn a_window_of_the_whole_declared_map_is_a_global_pool() {
    let pool = |op: &str, kernel: [i64; 2], more: &[(&str, Attribute)]| {
        let kernel = ("kernel_shape", ints(&kernel));
        let attributes: Vec<_> = std::iter::once(kernel).chain(more.iter().cloned()).collect();
        let model = Builder::new(18, 3).node("Relu", &["x"], "r", &[]).node(op, &["r"], "y", &attributes);
        declared(model.output("y"), [2, 3, 5, 7])
    };
    for (op, global) in [("AveragePool", "GlobalAveragePool"), ("MaxPool", "GlobalMaxPool")] {
        let wanted = Builder::new(18, 3).node("Relu", &["x"], "r", &[]).node(global, &["r"], "y", &[]);
        let wanted = wanted.output("y");
        let strides = [("strides", ints(&[5, 7]))];
        for model in [pool(op, [5, 7], &[]), pool(op, [5, 7], &strides)] {
            assert_eq!(names(&model), names(&wanted));
            // of other sizes too
            for shape in [[2, 3, 5, 7], [2, 3, 9, 4]] {
                assert_eq!(run(&model, shape, &image(shape)), run(&wanted, shape, &image(shape)));
            }
        }
        // other windows, with padding, and where the model leaves the size open
        let mut open = pool(op, [5, 7], &[]);
        open.graph().input[0] = value("x", 1, &[None, Some(3), None, None]);
        for model in [pool(op, [5, 6], &[]), pool(op, [5, 7], &[("pads", ints(&[1, 1, 1, 1]))]), open] {
            assert!(matches!(ops(&model)[1], Op::AvgPool2d(_) | Op::MaxPool2d(_)), "{:?}", ops(&model));
        }
    }
    // what halves an image halves it at every size
    let stride = [("strides", ints(&[2, 2]))];
    let small = |model: Builder| declared(model, [1, 3, 2, 2]);
    let halved = MaxPool2d::new([2, 2]);
    assert_eq!(ops(&small(pool("MaxPool", [2, 2], &stride)))[1], Op::MaxPool2d(halved));
    let halved = AvgPool2d { count_include_pad: false, ..AvgPool2d::new([2, 2]) };
    assert_eq!(ops(&small(pool("AveragePool", [2, 2], &stride)))[1], Op::AvgPool2d(halved));
}

#[test]
fn a_border_below_all_numbers_is_the_padding_of_a_maximum() {
    let pool = |lowest: f32, pads: [i64; 8], more: &[(&str, Attribute)]| {
        let kernel = [("kernel_shape", ints(&[3, 3])), ("strides", ints(&[2, 2]))];
        let attributes: Vec<_> = kernel.iter().chain(more).cloned().collect();
        numbers(3, &[("lowest", lowest)])
            .ints("pads", &[8], &pads)
            .node("Relu", &["x"], "r", &[])
            .node("Pad", &["r", "pads", "lowest"], "p", &[])
            .node("MaxPool", &["p"], "y", &attributes)
            .output("y")
    };
    let (after, around) = ([0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 1, 0, 0, 0, 1, 1]);
    for (pads, padding) in [(after, [[0, 1], [0, 1]]), (around, [[1, 1], [0, 1]])] {
        for lowest in [f32::NEG_INFINITY, f32::MIN, -3.3e38] {
            let model = pool(lowest, pads, &[]);
            let wanted = MaxPool2d { stride: [2, 2], padding, ..MaxPool2d::new([3, 3]) };
            assert_eq!(ops(&model)[1..], [Op::MaxPool2d(wanted)]);
            for shape in [[2, 3, 5, 7], [1, 3, 8, 6], [2, 3, 2, 2]] {
                // the same with a number that a padding may have, below all that there are
                let direct = pool(-100.0, pads, &[]);
                assert_eq!(names(&direct), ["relu", "pad", "max_pool2d"]);
                assert_eq!(run(&model, shape, &image(shape)), run(&direct, shape, &image(shape)));
            }
        }
    }
    // what leaves windows without any element, or is rounded up, has no such padding
    for (pads, more) in [
        ([0, 0, 2, 0, 0, 0, 1, 1], vec![]),
        (after, vec![("ceil_mode", Attribute::Int(1))]),
        (after, vec![("pads", ints(&[1, 1, 1, 1]))]),
        (after, vec![("dilations", ints(&[2, 2]))]),
    ] {
        let words = "MaxPool `n_y` (opset 18): pad `n_p`: value is -inf, must be finite";
        assert_eq!(only(&pool(f32::NEG_INFINITY, pads, &more)), words);
        assert!(pool(f32::MIN, pads, &more).read().is_ok());
    }
    // and elsewhere it is none
    let average = numbers(3, &[("lowest", f32::NEG_INFINITY)])
        .ints("pads", &[8], &after)
        .node("Pad", &["x", "pads", "lowest"], "p", &[])
        .node("AveragePool", &["p"], "y", &[("kernel_shape", ints(&[3, 3]))])
        .output("y");
    assert_eq!(only(&average), "AveragePool `n_y` (opset 18): pad `n_p`: value is -inf, must be finite");
}

#[test]
fn reductions_over_width_and_height_are_one_over_both() {
    let shape = [2, 3, 5, 7];
    let reduced = |[first, second]: [(&str, i64, i64); 2]| {
        let node = |model: Builder, (op, axis, keeps): (&str, i64, i64), from: &str, to: &str| {
            let name = format!("axes_{to}");
            let keeps = [("keepdims", Attribute::Int(keeps))];
            model.ints(&name, &[1], &[axis]).node(op, &[from, &name], to, &keeps)
        };
        node(node(Builder::new(18, 3), first, "x", "m"), second, "m", "y").output("y")
    };
    let pixels = image(shape);
    let planes = || pixels.chunks(35);
    let sums: Vec<f64> = planes().map(|plane| plane.iter().sum()).collect();
    let means: Vec<f64> = sums.iter().map(|sum| sum / 35.0).collect();
    let most: Vec<f64> = planes().map(|plane| plane.iter().copied().fold(f64::MIN, f64::max)).collect();
    for (op, made, wanted) in [
        ("ReduceSum", "global_sum_pool", &sums),
        ("ReduceMean", "global_avg_pool", &means),
        ("ReduceMax", "global_max_pool", &most),
    ] {
        for (keeps, orders) in
            [(1, [[3, 2], [-1, -2], [2, 3], [-2, -1]]), (0, [[3, 2], [-1, -1], [2, 2], [-2, -1]])]
        {
            for [first, second] in orders {
                let model = reduced([(op, first, keeps), (op, second, keeps)]);
                assert_eq!(names(&model), [made]);
                assert_close(&run(&model, shape, &pixels).0, wanted);
            }
        }
    }
    // another reduction, and the same axis again, of a value without the first axis
    for both in [
        [("ReduceSum", 3, 0), ("ReduceMean", 2, 0)],
        [("ReduceSum", 3, 0), ("ReduceSum", 3, 0)],
        [("ReduceSum", 3, 0), ("ReduceSum", -2, 0)],
        [("ReduceSum", 3, 0), ("ReduceMin", 2, 0)],
    ] {
        let words = format!(
            "{} `n_y` (opset 18): input 0 is a value without the axis that it is reduced over (ReduceSum `n_m`), \
             wants the same reduction over the other of height and width",
            both[1].0
        );
        assert_eq!(only(&reduced(both)), words);
    }
    let min = reduced([("ReduceMin", 3, 0), ("ReduceMin", 2, 0)]);
    let words =
        "ReduceMin `n_m` (opset 18): attribute `axes` is [3], wants height and width, or the channels";
    assert_eq!(only(&min), words);
}

#[test]
fn a_sum_by_the_pixels_of_the_declared_map_is_the_mean() {
    let by = |pixels: f32, keeps: i64| {
        let keeps = |axis: i64| [("axes", ints(&[axis])), ("keepdims", Attribute::Int(keeps))];
        let mut model = numbers(3, &[("pixels", pixels)]);
        model.model.opset_import[0].version = Some(11);
        model
            .node("ReduceSum", &["x"], "a", &keeps(3))
            .node("ReduceSum", &["a"], "b", &keeps(2))
            .node("Div", &["b", "pixels"], "y", &[])
            .output("y")
    };
    for keeps in [0, 1] {
        let model = declared(by(35.0, keeps), [2, 3, 5, 7]);
        assert_eq!(names(&model), ["global_avg_pool"]);
        for shape in [[2, 3, 5, 7], [2, 3, 4, 3]] {
            let means: Vec<f64> =
                image(shape).chunks(shape[2] * shape[3]).map(|plane| plane.iter().sum::<f64>()).collect();
            let means: Vec<f64> = means.iter().map(|sum| sum / (shape[2] * shape[3]) as f64).collect();
            assert_close(&run(&model, shape, &image(shape)).0, &means);
        }
        // another number, and where the size is open
        for model in [declared(by(36.0, keeps), [2, 3, 5, 7]), by(35.0, keeps)] {
            assert_eq!(names(&model), ["global_sum_pool", "div"]);
        }
    }
}

#[test]
fn a_sum_by_the_pixels_of_an_open_map_is_the_mean() {
    let by = |a: &str, b: &str| {
        extents(3)
            .node("Squeeze", &["h"], "rows", &[])
            .node("Squeeze", &["w"], "columns", &[])
            .node("Add", &["h", "one"], "more", &[])
            .node("Mul", &[a, b], "area", &[])
            .node("Cast", &["area"], "pixels", &[("to", Attribute::Int(1))])
            .node("ReduceSum", &["x", "3"], "a", &[])
            .node("ReduceSum", &["a", "2"], "b", &[])
            .node("Div", &["b", "pixels"], "y", &[])
            .ints("3", &[1], &[3])
            .ints("2", &[1], &[2])
            .output("y")
    };
    let mean = Builder::new(18, 3).node("GlobalAveragePool", &["x"], "y", &[]).output("y");
    for model in [by("rows", "columns"), by("w", "h")] {
        assert_eq!(names(&model), ["global_avg_pool"]);
        for shape in [[2, 3, 5, 7], [1, 3, 1, 1]] {
            assert_eq!(run(&model, shape, &image(shape)), run(&mean, shape, &image(shape)));
        }
    }
    // products of other extents are no number of the network
    for (a, b) in [("h", "h"), ("more", "w"), ("n", "w")] {
        let refused = only(&by(a, b));
        assert!(refused.starts_with("Div `n_y` (opset 18): input 1 is computed sizes, wants"), "{refused}");
    }
}
