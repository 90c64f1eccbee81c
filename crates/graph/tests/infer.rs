//! Shapes: the sizes of PyTorch, the laws between them, and what is said where there are none.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod format_networks;

use format_networks::network;
use proptest::prelude::*;
use tiled_graph::{
    Activation, AvgPool2d, Conv2d, ConvTranspose2d, Graph, GraphError, Linear, MAX_ELEMENTS, MAX_EXTENT,
    MaxPool2d, Op, PaddingMode, ResizeMode, Upsample, UpsampleTo, ValueId, infer, infer_nchw,
};

fn one(channels: usize, op: Op) -> Graph {
    let mut graph = Graph::new();
    let x = graph.add_input("x", channels).unwrap();
    let n = graph.add_node("n", op, &[x]).unwrap();
    graph.set_outputs(&[n]).unwrap();
    graph
}

/// The height and width that an operator makes of these.
fn size(op: &Op, input: [usize; 2]) -> [usize; 2] {
    let graph = one(4, op.clone());
    infer(&graph, 1, &[input]).unwrap().extents(graph.outputs()[0])
}

fn error(op: &Op, input: [usize; 2]) -> String {
    infer(&one(4, op.clone()), 1, &[input]).expect_err("the sizes are wrong").to_string()
}

fn two(op: Op, sizes: [[usize; 2]; 2]) -> Result<[usize; 4], GraphError> {
    let mut graph = Graph::new();
    let (a, b) = (graph.add_input("a", 4)?, graph.add_input("b", 4)?);
    let n = graph.add_node("n", op, &[a, b])?;
    graph.set_outputs(&[n])?;
    infer(&graph, 3, &sizes).map(|shapes| shapes.shape(n))
}

#[test]
fn convolutions_have_the_sizes_of_pytorch() {
    let conv = Conv2d::new(8, [3, 3]);
    assert_eq!(size(&Op::Conv2d(conv.clone()), [10, 7]), [8, 5]);
    assert_eq!(size(&Op::Conv2d(conv.clone().padded([1, 0])), [10, 7]), [10, 5]);
    assert_eq!(size(&Op::Conv2d(Conv2d { stride: [2, 3], ..conv.clone() }), [10, 7]), [4, 2]);
    assert_eq!(size(&Op::Conv2d(Conv2d { dilation: [4, 2], ..conv.clone() }), [10, 7]), [2, 3]);
    assert_eq!(size(&Op::Conv2d(Conv2d { padding: [[0, 1], [2, 0]], ..conv }), [10, 7]), [9, 7]);
    let stem = Conv2d { stride: [2, 2], ..Conv2d::new(64, [7, 7]).padded([3, 3]) };
    assert_eq!(size(&Op::Conv2d(stem), [224, 225]), [112, 113]);
    let kernel_of_the_padded_input = Conv2d::new(8, [5, 5]).padded([2, 2]);
    assert_eq!(size(&Op::Conv2d(kernel_of_the_padded_input), [1, 2]), [1, 2]);
    let stride_above_kernel = Conv2d { stride: [5, 5], ..Conv2d::new(8, [2, 2]) };
    assert_eq!(size(&Op::Conv2d(stride_above_kernel), [6, 7]), [1, 2]);
}

#[test]
fn transposed_convolutions_have_the_sizes_of_pytorch() {
    let conv = ConvTranspose2d { stride: [2, 2], ..ConvTranspose2d::new(8, [3, 3]) };
    assert_eq!(size(&Op::ConvTranspose2d(conv.clone()), [5, 1]), [11, 3]);
    assert_eq!(
        size(&Op::ConvTranspose2d(ConvTranspose2d { padding: [1, 1], ..conv.clone() }), [5, 4]),
        [9, 7]
    );
    let exact = ConvTranspose2d { padding: [1, 1], output_padding: [1, 0], ..conv.clone() };
    assert_eq!(size(&Op::ConvTranspose2d(exact), [5, 4]), [10, 7]);
    let dilated = ConvTranspose2d { dilation: [3, 1], output_padding: [2, 1], ..conv };
    assert_eq!(size(&Op::ConvTranspose2d(dilated), [5, 4]), [17, 10]);
}

#[test]
fn pools_have_the_sizes_of_pytorch() {
    let max = MaxPool2d::new([3, 2]);
    assert_eq!(size(&Op::MaxPool2d(max.clone()), [10, 7]), [3, 3]);
    assert_eq!(size(&Op::MaxPool2d(MaxPool2d { ceil_mode: true, ..max.clone() }), [10, 7]), [4, 4]);
    // a last window that would start in the padding behind is dropped
    let padded = MaxPool2d { ceil_mode: true, stride: [3, 3], ..MaxPool2d::new([2, 2]).padded([1, 1]) };
    assert_eq!(size(&Op::MaxPool2d(padded), [4, 5]), [2, 2]);
    let dilated = MaxPool2d { dilation: [2, 3], stride: [1, 1], ..max };
    assert_eq!(size(&Op::MaxPool2d(dilated), [10, 7]), [6, 4]);
    let avg = AvgPool2d { stride: [2, 2], ..AvgPool2d::new([3, 3]).padded([1, 1]) };
    assert_eq!(size(&Op::AvgPool2d(avg), [10, 7]), [5, 4]);
}

#[test]
fn resampling_has_the_sizes_it_is_told() {
    let mode = ResizeMode::NEAREST;
    assert_eq!(size(&Op::Upsample(Upsample { mode, to: UpsampleTo::Scale([2.0, 3.0]) }), [5, 7]), [10, 21]);
    assert_eq!(size(&Op::Upsample(Upsample { mode, to: UpsampleTo::Size([9, 4]) }), [5, 7]), [9, 4]);
    let mut graph = Graph::new();
    let (a, b) = (graph.add_input("a", 4).unwrap(), graph.add_input("b", 9).unwrap());
    let like = Op::Upsample(Upsample { mode, to: UpsampleTo::Like(b) });
    let n = graph.add_node("n", like, &[a]).unwrap();
    graph.set_outputs(&[n]).unwrap();
    let shapes = infer(&graph, 2, &[[5, 7], [11, 13]]).unwrap();
    assert_eq!(shapes.shape(n), [2, 4, 11, 13]);
    assert_eq!((shapes.batch(), shapes.elements(n), shapes.all().len()), (2, 2 * 4 * 11 * 13, 3));
}

#[test]
fn heads_see_one_pixel() {
    assert_eq!(size(&Op::GlobalAvgPool, [5, 7]), [1, 1]);
    assert_eq!(size(&Op::GlobalMaxPool, [5, 7]), [1, 1]);
    let linear = Op::Linear(Linear::new(10));
    let graph = one(4, linear.clone());
    assert_eq!(infer(&graph, 3, &[[1, 1]]).unwrap().shape(graph.outputs()[0]), [3, 10, 1, 1]);
    assert_eq!(error(&linear, [7, 8]), "linear `n`: input has 7×8 pixels, wants 1×1");
}

#[test]
fn joins_want_equal_extents() {
    assert_eq!(two(Op::Add, [[5, 7], [5, 7]]), Ok([3, 4, 5, 7]));
    assert_eq!(two(Op::Concat, [[5, 7], [5, 7]]), Ok([3, 8, 5, 7]));
    for (op, name) in [(Op::Add, "add"), (Op::Mul, "mul"), (Op::Concat, "concat")] {
        let message = two(op, [[5, 7], [5, 8]]).unwrap_err().to_string();
        assert_eq!(message, format!("{name} `n`: `a` is 5×7 pixels, `b` is 5×8"));
    }
}

#[test]
fn kernels_larger_than_the_padded_input_are_refused_with_both_sizes() {
    let conv = Conv2d { dilation: [1, 3], ..Conv2d::new(8, [3, 3]).padded([0, 1]) };
    assert_eq!(
        error(&Op::Conv2d(conv.clone()), [2, 9]),
        "conv2d `n`: kernel height 3 is larger than padded input height 2"
    );
    assert_eq!(
        error(&Op::Conv2d(conv), [3, 4]),
        "conv2d `n`: kernel width 7 is larger than padded input width 6"
    );
    assert_eq!(
        error(&Op::MaxPool2d(MaxPool2d::new([2, 2])), [1, 8]),
        "max_pool2d `n`: kernel height 2 is larger than padded input height 1"
    );
    // rounding up keeps a window that starts inside
    let ceil = MaxPool2d { ceil_mode: true, ..MaxPool2d::new([2, 2]) };
    assert_eq!(size(&Op::MaxPool2d(ceil), [1, 8]), [1, 4]);
}

#[test]
fn reflection_stays_inside_the_input() {
    let conv = Conv2d { padding_mode: PaddingMode::Reflect, ..Conv2d::new(8, [5, 5]).padded([2, 2]) };
    assert_eq!(size(&Op::Conv2d(conv.clone()), [3, 3]), [3, 3]);
    assert_eq!(
        error(&Op::Conv2d(conv.clone()), [3, 2]),
        "conv2d `n`: reflect padding of 2 must be smaller than the extent 2"
    );
    let replicate = Conv2d { padding_mode: PaddingMode::Replicate, ..conv };
    assert_eq!(size(&Op::Conv2d(replicate), [1, 1]), [1, 1]);
}

#[test]
fn transposed_convolutions_that_remove_everything_are_refused() {
    let conv = ConvTranspose2d { padding: [2, 2], ..ConvTranspose2d::new(8, [3, 3]) };
    assert_eq!(
        error(&Op::ConvTranspose2d(conv), [2, 9]),
        "conv_transpose2d `n`: output height would be 0, must be at least 1"
    );
}

#[test]
fn a_max_pool_window_that_sees_only_padding_is_refused() {
    let pool = MaxPool2d { dilation: [5, 1], stride: [1, 1], ..MaxPool2d::new([2, 1]).padded([1, 0]) };
    assert_eq!(
        error(&Op::MaxPool2d(pool.clone()), [4, 3]),
        "max_pool2d `n`: a window of dilation 5 has no tap in the input of height 4"
    );
    assert_eq!(size(&Op::MaxPool2d(pool), [5, 3]), [2, 3]);
}

#[test]
fn empty_and_overflowing_sizes_are_refused() {
    let relu = Op::Activation(Activation::Relu);
    assert_eq!(error(&relu, [0, 8]), "input `x`: height is 0, must be at least 1");
    assert_eq!(error(&relu, [8, 0]), "input `x`: width is 0, must be at least 1");
    let graph = one(4, relu.clone());
    assert_eq!(
        infer(&graph, 0, &[[8, 8]]).unwrap_err().to_string(),
        "input `x`: batch size is 0, must be at least 1"
    );
    assert_eq!(
        error(&relu, [8, (1 << 30) + 1]),
        "input `x`: width is 1073741825, must be at most 1073741824"
    );
    assert_eq!(
        error(&relu, [1 << 30, 1 << 30]),
        "input `x`: 1×4×1073741824×1073741824 elements are more than 1152921504606846975"
    );
    assert_eq!(
        infer(&graph, usize::MAX, &[[8, 8]]).unwrap_err().to_string(),
        "input `x`: 18446744073709551615×4×8×8 elements are more than 1152921504606846975"
    );
    let scaled = |scale| Op::Upsample(Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Scale(scale) });
    assert_eq!(
        error(&scaled([1.0, f64::from(1 << 28)]), [8, 8]),
        "upsample `n`: width is 2147483648, must be at most 1073741824"
    );
    assert_eq!(
        error(&scaled([f64::from(1 << 29); 2]), [2, 2]),
        "upsample `n`: 1×4×1073741824×1073741824 elements are more than 1152921504606846975"
    );
}

#[test]
fn more_than_two_to_the_31_elements_are_ordinary() {
    let graph = Graph::builtin("vgg2").unwrap();
    let shapes = infer(&graph, 1, &[[65536, 65536]]).unwrap();
    assert_eq!(shapes.elements(graph.value("relu1").unwrap()), 64 << 32);
}

#[test]
fn whole_shapes_are_checked_for_channels_batch_and_number() {
    let mut graph = Graph::new();
    let (a, b) = (graph.add_input("a", 4).unwrap(), graph.add_input("b", 2).unwrap());
    let n = graph.add_node("n", Op::Concat, &[a, b]).unwrap();
    graph.set_outputs(&[n]).unwrap();
    assert_eq!(infer_nchw(&graph, &[[2, 4, 5, 7], [2, 2, 5, 7]]).unwrap().shape(n), [2, 6, 5, 7]);
    for (inputs, message) in [
        (vec![[2, 4, 5, 7], [2, 3, 5, 7]], "input `b`: input has 3 channels, network wants 2"),
        (vec![[2, 4, 5, 7], [1, 2, 5, 7]], "input `b`: batch size is 1, the first input has 2"),
        (vec![[2, 4, 5, 7]], "network has 2 inputs, sizes were given for 1"),
        (vec![], "network has 2 inputs, sizes were given for 0"),
    ] {
        assert_eq!(infer_nchw(&graph, &inputs).unwrap_err().to_string(), message);
    }
    assert_eq!(infer(&Graph::new(), 1, &[]), Err(GraphError::NoOutputs));
}

proptest! {
    #[test]
    fn inference_never_panics_and_its_shapes_are_within_limits(
        graph in network(),
        batch in 1..4_usize,
        sizes in [[1..40_usize, 1..40], [1..40, 1..40]],
    ) {
        let sizes = &sizes[..graph.inputs().len()];
        if let Ok(shapes) = infer(&graph, batch, sizes) {
            for value in (0..graph.values()).map(ValueId) {
                let [n, c, h, w] = shapes.shape(value);
                prop_assert_eq!((n, c), (batch, graph.channels(value)));
                prop_assert!(h > 0 && w > 0 && shapes.elements(value) <= MAX_ELEMENTS);
                prop_assert!(i64::try_from(h.max(w)).unwrap() <= MAX_EXTENT);
            }
        }
    }

    /// As many outputs as there are window positions whose taps lie in the padded input, counted one by one.
    #[test]
    fn output_extents_count_the_windows_that_fit(
        extent in 1..40_usize, kernel in 1..6_i64, stride in 1..5_i64, dilation in 1..4_i64,
        [before, after] in [0..5_i64, 0..5],
    ) {
        let conv = Conv2d {
            stride: [stride, 1], dilation: [dilation, 1], padding: [[before, after], [0, 0]],
            ..Conv2d::new(8, [kernel, 1])
        };
        let last = i64::try_from(extent).unwrap() + after;
        let fits = |output: &i64| output * stride - before + dilation * (kernel - 1) < last;
        let counted = (0..).take_while(fits).count();
        match infer(&one(4, Op::Conv2d(conv)), 1, &[[extent, 1]]) {
            Ok(shapes) => prop_assert_eq!(shapes.extents(ValueId(1))[0], counted),
            Err(_) => prop_assert_eq!(counted, 0),
        }
    }

    /// `ceil_mode` counts the windows that start inside the input or its padding before, one more at most.
    #[test]
    fn no_pool_window_is_without_a_tap_in_the_input(
        extent in 1..30_i64, kernel in 1..6_i64, stride in 1..5_i64, dilation in 1..8_i64, padding in 0..3_i64,
        ceil_mode in any::<bool>(),
    ) {
        let padding = padding.min(kernel / 2);
        let pool = MaxPool2d {
            kernel_size: [kernel, 1], stride: [stride, 1], padding: [[padding; 2], [0; 2]], dilation: [dilation, 1], ceil_mode,
        };
        let has_tap = |output: i64| {
            (0..kernel).any(|tap| (0..extent).contains(&(output * stride - padding + dilation * tap)))
        };
        match infer(&one(4, Op::MaxPool2d(pool)), 1, &[[usize::try_from(extent).unwrap(), 1]]) {
            Ok(shapes) => {
                let count = i64::try_from(shapes.extents(ValueId(1))[0]).unwrap();
                prop_assert!((0..count).all(has_tap));
            }
            Err(GraphError::EmptyWindow { .. }) => prop_assert!(!(0..=padding / stride).all(has_tap)),
            Err(GraphError::KernelTooLarge { kernel, padded, .. }) => prop_assert!(kernel > padded),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn a_transposed_convolution_restores_the_extent_of_its_convolution(
        extent in 1..60_usize, kernel in 1..6_i64, stride in 1..5_i64, dilation in 1..4_i64, padding in 0..3_i64,
    ) {
        let conv = Conv2d {
            stride: [stride, 1], dilation: [dilation, 1], ..Conv2d::new(8, [kernel, 1]).padded([padding, 0])
        };
        if let Ok(shapes) = infer(&one(4, Op::Conv2d(conv)), 1, &[[extent, 1]]) {
            let small = shapes.extents(ValueId(1));
            let whole = i64::try_from(extent).unwrap();
            let rest = (whole + 2 * padding - dilation * (kernel - 1) - 1).rem_euclid(stride);
            let back = ConvTranspose2d {
                stride: [stride, 1], dilation: [dilation, 1], padding: [padding, 0], output_padding: [rest, 0],
                ..ConvTranspose2d::new(8, [kernel, 1])
            };
            prop_assert_eq!(size(&Op::ConvTranspose2d(back), small), [extent, 1]);
        }
    }
}
