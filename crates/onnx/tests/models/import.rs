//! What models become: nodes, names and parameters, family by family.

use tiled_graph::{
    Activation, AvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Coordinates, Filter, Graph, Linear, MaxPool2d,
    Op, PaddingMode, ResizeMode, Rounding, Upsample, UpsampleTo, ValueId, params,
};

use crate::build::{Attribute, Builder, float_tensor, graph, ints, names};

/// The operator of the only node.
fn only(model: &Builder) -> Op {
    let graph = graph(model);
    assert_eq!(graph.nodes().len(), 1, "{:?}", graph.nodes());
    graph.nodes()[0].op.clone()
}

fn conv(attributes: &[(&str, Attribute)]) -> Builder {
    Builder::new(17, 3).floats("w", &[4, 3, 3, 3]).node("Conv", &["x", "w"], "y", attributes).output("y")
}

#[test]
fn a_convolution_has_its_attributes_and_its_weights() {
    let attributes = [
        ("pads", ints(&[1, 2, 3, 4])),
        ("strides", ints(&[2, 1])),
        ("dilations", ints(&[1, 2])),
        ("kernel_shape", ints(&[3, 3])),
        ("group", Attribute::Int(1)),
    ];
    let model = Builder::new(17, 3)
        .floats("w", &[4, 3, 3, 3])
        .floats("b", &[4])
        .node("Conv", &["x", "w", "b"], "y", &attributes)
        .output("y");
    let expected =
        Conv2d { stride: [2, 1], dilation: [1, 2], padding: [[1, 3], [2, 4]], ..Conv2d::new(4, [3, 3]) };
    assert_eq!(only(&model), Op::Conv2d(expected));
    let read = model.read().unwrap();
    let parameters = read.weights.parameters::<f64>().unwrap();
    let names: Vec<&str> = parameters.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["n_y.weight", "n_y.bias"]);
    assert_eq!(parameters.tensors()[1].data, [-1.0, -0.875, -0.75, -0.625]);
    assert_eq!((read.inputs[0].given.as_str(), read.outputs[0].given.as_str()), ("x", "y"));
}

#[test]
fn groups_and_the_same_padding_of_stride_one_need_no_size() {
    for (mode, halves) in [("SAME_UPPER", [1, 2]), ("SAME_LOWER", [2, 1])] {
        let model = Builder::new(17, 4)
            .floats("w", &[4, 1, 4, 4])
            .node(
                "Conv",
                &["x", "w"],
                "y",
                &[("auto_pad", Attribute::Text(mode)), ("group", Attribute::Int(4))],
            )
            .output("y");
        let expected = Conv2d { groups: 4, bias: false, padding: [halves; 2], ..Conv2d::new(4, [4, 4]) };
        assert_eq!(only(&model), Op::Conv2d(expected));
    }
    let valid = [("auto_pad", Attribute::Text("VALID"))];
    assert_eq!(only(&conv(&valid)), Op::Conv2d(Conv2d { bias: false, ..Conv2d::new(4, [3, 3]) }));
}

#[test]
fn the_same_padding_of_a_stride_is_that_of_the_declared_size() {
    let attributes = [("auto_pad", Attribute::Text("SAME_LOWER")), ("strides", ints(&[2, 2]))];
    let open = conv(&attributes);
    let text = "Conv `n_y` (opset 17): the padding of auto_pad depends on the size of the image, which the model leaves open";
    assert_eq!(open.refusals(), [text]);
    let mut declared = open;
    declared.graph().input[0] = crate::build::value("x", 1, &[Some(1), Some(3), Some(7), Some(8)]);
    match only(&declared) {
        Op::Conv2d(conv) => assert_eq!(conv.padding, [[1, 1], [1, 0]]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn padding_before_a_convolution_is_its_own() {
    let padded = |mode, pads: &[i64]| {
        Builder::new(13, 3)
            .ints("pads", &[8], pads)
            .floats("w", &[4, 3, 3, 3])
            .node("Pad", &["x", "pads"], "p", &[("mode", Attribute::Text(mode))])
            .node("Conv", &["p", "w"], "y", &[])
            .output("y")
    };
    let pads = [0, 0, 1, 0, 0, 0, 1, 2];
    for (name, mode) in [
        ("constant", PaddingMode::Zeros),
        ("reflect", PaddingMode::Reflect),
        ("edge", PaddingMode::Replicate),
    ] {
        let conv =
            Conv2d { bias: false, padding: [[1, 1], [0, 2]], padding_mode: mode, ..Conv2d::new(4, [3, 3]) };
        assert_eq!(only(&padded(name, &pads)), Op::Conv2d(conv));
    }
    let refused = padded("constant", &[1, 0, 0, 0, 0, 0, 0, 0]).refusals();
    let text = "Pad `n_p` (opset 13): attribute `pads` is [1, 0, 0, 0, 0, 0, 0, 0], wants before and after of height and width alone";
    assert_eq!(refused, [text]);
}

#[test]
fn a_transposed_convolution_takes_uneven_padding_for_output_padding() {
    let model = |attributes: &[(&str, Attribute)]| {
        Builder::new(11, 4)
            .floats("w", &[4, 2, 3, 3])
            .node("ConvTranspose", &["x", "w"], "y", attributes)
            .output("y")
    };
    let uneven = [("strides", ints(&[2, 2])), ("pads", ints(&[1, 1, 0, 0])), ("group", Attribute::Int(2))];
    let expected = ConvTranspose2d {
        stride: [2, 2],
        padding: [1, 1],
        output_padding: [1, 1],
        groups: 2,
        bias: false,
        ..ConvTranspose2d::new(4, [3, 3])
    };
    assert_eq!(only(&model(&uneven)), Op::ConvTranspose2d(expected));
    // 2·n, whatever n: one row in all is cut, behind
    let same = [("strides", ints(&[2, 2])), ("auto_pad", Attribute::Text("SAME_LOWER"))];
    match only(&model(&same)) {
        Op::ConvTranspose2d(conv) => assert_eq!((conv.padding, conv.output_padding), ([1, 1], [1, 1])),
        other => panic!("{other:?}"),
    }
}

#[test]
fn pooling_has_its_attributes() {
    let pool = |op, attributes: &[(&str, Attribute)]| {
        only(&Builder::new(19, 2).node(op, &["x"], "y", attributes).output("y"))
    };
    let kernel = ("kernel_shape", ints(&[3, 3]));
    let max = [
        kernel.clone(),
        ("strides", ints(&[2, 2])),
        ("pads", ints(&[1, 1, 1, 1])),
        ("ceil_mode", Attribute::Int(1)),
    ];
    let expected = MaxPool2d { stride: [2, 2], ceil_mode: true, ..MaxPool2d::new([3, 3]).padded([1, 1]) };
    assert_eq!(pool("MaxPool", &max), Op::MaxPool2d(expected));
    let average = AvgPool2d { stride: [1, 1], count_include_pad: false, ..AvgPool2d::new([3, 3]) };
    assert_eq!(pool("AveragePool", &[kernel]), Op::AvgPool2d(average));
    assert_eq!(pool("GlobalAveragePool", &[]), Op::GlobalAvgPool);
    assert_eq!(pool("GlobalMaxPool", &[]), Op::GlobalMaxPool);
}

#[test]
fn a_mean_over_height_and_width_is_global_pooling() {
    let by_attribute =
        Builder::new(13, 2).node("ReduceMean", &["x"], "y", &[("axes", ints(&[-1, 2]))]).output("y");
    assert_eq!(only(&by_attribute), Op::GlobalAvgPool);
    let by_operand = Builder::new(18, 2)
        .ints("axes", &[2], &[2, 3])
        .node("ReduceMean", &["x", "axes"], "y", &[])
        .output("y");
    assert_eq!(only(&by_operand), Op::GlobalAvgPool);
    let of =
        |axis| Builder::new(13, 2).node("ReduceMean", &["x"], "y", &[("axes", ints(&[axis]))]).output("y");
    assert_eq!(only(&of(1)), Op::ChannelMean);
}

#[test]
fn batch_norm_has_the_momentum_of_the_new_statistic() {
    let names = ["x", "s", "b", "m", "v"];
    let mut model = Builder::new(15, 5);
    for name in &names[1..] {
        model = model.floats(name, &[5]);
    }
    let attributes = [("epsilon", Attribute::Float(1e-3)), ("momentum", Attribute::Float(0.9))];
    let model = model.node("BatchNormalization", &names, "y", &attributes).output("y");
    assert_eq!(only(&model), Op::BatchNorm(BatchNorm { eps: 1e-3, ..BatchNorm::default() }));
    let names: Vec<String> = params(&graph(&model)).into_iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["n_y.weight", "n_y.bias", "n_y.running_mean", "n_y.running_var"]);
}

#[test]
fn activations_written_out_are_activations() {
    let silu =
        Builder::new(17, 2).node("Sigmoid", &["x"], "s", &[]).node("Mul", &["x", "s"], "y", &[]).output("y");
    assert_eq!(only(&silu), Op::Activation(Activation::Silu));
    let gelu = Builder::new(17, 2)
        .tensor(float_tensor("root", &[], &[std::f32::consts::SQRT_2]))
        .tensor(float_tensor("one", &[], &[1.0]))
        .tensor(float_tensor("half", &[], &[0.5]))
        .node("Div", &["x", "root"], "a", &[])
        .node("Erf", &["a"], "b", &[])
        .node("Add", &["b", "one"], "c", &[])
        .node("Mul", &["x", "c"], "d", &[])
        .node("Mul", &["d", "half"], "y", &[])
        .output("y");
    assert_eq!(only(&gelu), Op::Activation(Activation::Gelu));
    let by_tanh = Builder::new(17, 2)
        .tensor(float_tensor("three", &[], &[3.0]))
        .tensor(float_tensor("cubic", &[], &[0.044_715]))
        .tensor(float_tensor("slope", &[], &[0.797_884_6]))
        .tensor(float_tensor("one", &[], &[1.0]))
        .tensor(float_tensor("half", &[], &[0.5]))
        .node("Pow", &["x", "three"], "a", &[])
        .node("Mul", &["cubic", "a"], "b", &[])
        .node("Add", &["x", "b"], "c", &[])
        .node("Mul", &["c", "slope"], "d", &[])
        .node("Tanh", &["d"], "e", &[])
        .node("Add", &["one", "e"], "f", &[])
        .node("Mul", &["half", "x"], "g", &[])
        .node("Mul", &["g", "f"], "y", &[])
        .output("y");
    assert_eq!(only(&by_tanh), Op::Activation(Activation::GeluTanh));
    let operator = Builder::new(20, 2).node("Gelu", &["x"], "y", &[]).output("y");
    assert_eq!(only(&operator), Op::Activation(Activation::Gelu));
}

#[test]
fn a_sigmoid_that_others_read_stays() {
    let both = Builder::new(17, 2)
        .node("Sigmoid", &["x"], "s", &[])
        .node("Mul", &["x", "s"], "y", &[])
        .output("y")
        .output("s");
    assert_eq!(names(&both), ["sigmoid", "silu"]);
    // of another value it is no activation
    let gate = Builder::new(17, 2)
        .node("Relu", &["x"], "r", &[])
        .node("Sigmoid", &["x"], "s", &[])
        .node("Mul", &["r", "s"], "y", &[])
        .output("y");
    assert_eq!(names(&gate), ["relu", "sigmoid", "mul"]);
}

#[test]
fn arithmetic_that_is_no_activation_is_refused_where_it_is_read() {
    let error = Builder::new(17, 2).node("Erf", &["x"], "a", &[]).node("Relu", &["a"], "y", &[]).output("y");
    let text = "Relu `n_y` (opset 17): input 0 is arithmetic that is no operator (Erf `n_a`), wants a value of the network";
    assert_eq!(error.refusals(), [text]);
}

#[test]
fn sums_products_and_concatenations_take_several_values() {
    let model = Builder::new(13, 2)
        .node("Relu", &["x"], "a", &[])
        .node("Sum", &["x", "a", "x"], "b", &[])
        .node("Mul", &["a", "b"], "c", &[])
        .node("Concat", &["a", "b", "c"], "y", &[("axis", Attribute::Int(-3))])
        .output("y");
    assert_eq!(names(&model), ["relu", "add", "mul", "concat"]);
    let graph = graph(&model);
    assert_eq!(graph.channels(graph.outputs()[0]), 6);
}

#[test]
fn a_head_of_gemm_is_linear() {
    let model = Builder::new(13, 3)
        .floats("w", &[2, 3])
        .floats("b", &[2])
        .node("GlobalAveragePool", &["x"], "a", &[])
        .node("Flatten", &["a"], "f", &[])
        .node("Gemm", &["f", "w", "b"], "y", &[("transB", Attribute::Int(1))])
        .output("y");
    assert_eq!(names(&model), ["global_avg_pool", "linear"]);
    assert_eq!(graph(&model).nodes()[1].op, Op::Linear(Linear::new(2)));
}

#[test]
fn a_product_of_matrices_and_a_sum_are_linear_with_the_weight_turned() {
    let model = Builder::new(13, 3)
        .tensor(float_tensor("w", &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        .floats("b", &[2])
        .ints("shape", &[2], &[0, -1])
        .node("GlobalAveragePool", &["x"], "a", &[])
        .node("Reshape", &["a", "shape"], "f", &[])
        .node("MatMul", &["f", "w"], "m", &[])
        .node("Add", &["b", "m"], "y", &[])
        .output("y");
    assert_eq!(names(&model), ["global_avg_pool", "linear"]);
    let read = model.read().unwrap();
    assert_eq!(read.graph.nodes()[1].name, "n_m");
    let parameters = read.weights.parameters::<f32>().unwrap();
    let weight = parameters.get("n_m.weight").unwrap();
    assert_eq!(
        (weight.shape.as_slice(), weight.data.as_slice()),
        ([2, 3].as_slice(), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0].as_slice())
    );
}

#[test]
fn a_number_for_each_channel_behind_a_convolution_is_its_bias() {
    let model = conv(&[]).floats("b", &[4, 1, 1]).node("Add", &["y", "b"], "z", &[]);
    let mut model = model;
    model.graph().output[0].name = Some("z".to_owned());
    match only(&model) {
        Op::Conv2d(conv) => assert!(conv.bias),
        other => panic!("{other:?}"),
    }
    assert!(model.read().unwrap().weights.parameters::<f32>().is_ok());
}

/// `Resize` to the height and width of another value, by sizes that are cut and joined as exporters do.
fn like_another(opset: i64) -> Builder {
    Builder::new(opset, 2)
        .ints("starts", &[1], &[0])
        .ints("ends", &[1], &[2])
        .ints("two", &[1], &[2])
        .ints("four", &[1], &[4])
        .node("MaxPool", &["x"], "small", &[("kernel_shape", ints(&[3, 3])), ("strides", ints(&[2, 2]))])
        .node("Shape", &["x"], "of_x", &[])
        .node("Slice", &["of_x", "two", "four"], "extents", &[])
        .node("Shape", &["small"], "of_small", &[])
        .node("Slice", &["of_small", "starts", "ends"], "outer", &[])
        .node("Concat", &["outer", "extents"], "sizes", &[("axis", Attribute::Int(0))])
        .node(
            "Resize",
            &["small", "", "", "sizes"],
            "y",
            &[
                ("mode", Attribute::Text("linear")),
                ("coordinate_transformation_mode", Attribute::Text("pytorch_half_pixel")),
            ],
        )
        .output("y")
}

#[test]
fn resizing_to_the_size_of_another_value_is_like_that_value() {
    let graph = graph(&like_another(13));
    let mode = ResizeMode { filter: Filter::Linear, coordinates: Coordinates::HalfPixelOfSeveral };
    assert_eq!(graph.nodes()[1].op, Op::Upsample(Upsample { mode, to: UpsampleTo::Like(ValueId(0)) }));
}

#[test]
fn resizing_by_computed_factors_is_by_these_factors() {
    // opset 9: floor(2·H) / H, as floats
    let model = Builder::new(10, 2)
        .ints("2", &[], &[2])
        .ints("3", &[], &[3])
        .tensor(float_tensor("twice", &[], &[2.0]))
        .tensor(float_tensor("ones", &[2], &[1.0, 1.0]))
        .node("Shape", &["x"], "s", &[])
        .node("Gather", &["s", "2"], "h", &[])
        .node("Gather", &["s", "3"], "w", &[])
        .node("Unsqueeze", &["h"], "h1", &[("axes", ints(&[0]))])
        .node("Unsqueeze", &["w"], "w1", &[("axes", ints(&[0]))])
        .node("Concat", &["h1", "w1"], "hw", &[("axis", Attribute::Int(0))])
        .node("Cast", &["hw"], "hwf", &[("to", Attribute::Int(1))])
        .node("Mul", &["hwf", "twice"], "wide", &[])
        .node("Floor", &["wide"], "floor", &[])
        .node("Div", &["floor", "hwf"], "factors", &[])
        .node("Concat", &["ones", "factors"], "scales", &[("axis", Attribute::Int(0))])
        .node("Resize", &["x", "scales"], "y", &[])
        .output("y");
    let to = UpsampleTo::Scale([2.0, 2.0]);
    assert_eq!(only(&model), Op::Upsample(Upsample { mode: ResizeMode::NEAREST, to }));
}

#[test]
fn resizing_by_scales_takes_filters_coordinates_and_roundings() {
    let resize = |mode: &'static str, coordinates: &'static str, nearest: &'static str, scale: f32| {
        Builder::new(19, 2)
            .tensor(float_tensor("scales", &[4], &[1.0, 1.0, scale, scale]))
            .node(
                "Resize",
                &["x", "", "scales"],
                "y",
                &[
                    ("mode", Attribute::Text(mode)),
                    ("coordinate_transformation_mode", Attribute::Text(coordinates)),
                    ("nearest_mode", Attribute::Text(nearest)),
                ],
            )
            .output("y")
    };
    let nearest = |rounding, coordinates| ResizeMode { filter: Filter::Nearest(rounding), coordinates };
    let linear = |coordinates| ResizeMode { filter: Filter::Linear, coordinates };
    let half = Coordinates::HalfPixel;
    for (mode, coordinates, rounding, scale, expected) in [
        ("nearest", "asymmetric", "floor", 3.0, ResizeMode::NEAREST),
        ("nearest", "half_pixel", "round_prefer_ceil", 1.5, ResizeMode::NEAREST_EXACT),
        ("nearest", "half_pixel", "round_prefer_floor", 3.0, nearest(Rounding::HalfDown, half)),
        ("nearest", "align_corners", "ceil", 2.0, nearest(Rounding::Ceil, Coordinates::AlignCorners)),
        ("nearest", "tf_half_pixel_for_nn", "floor", 2.0, ResizeMode::NEAREST_EXACT),
        ("linear", "half_pixel", "floor", 0.6, ResizeMode::LINEAR),
        ("linear", "align_corners", "floor", 2.0, ResizeMode::LINEAR_ALIGNED),
        ("linear", "asymmetric", "floor", 2.0, linear(Coordinates::Asymmetric)),
        ("linear", "half_pixel_symmetric", "floor", 1.3, linear(Coordinates::HalfPixelSymmetric)),
        ("cubic", "half_pixel", "floor", 2.0, ResizeMode::CUBIC),
    ] {
        // 0.6 of 32 bits is three fifths
        let to = UpsampleTo::Scale([(f64::from(scale) * 1e6).round() / 1e6; 2]);
        let op = only(&resize(mode, coordinates, rounding, scale));
        assert_eq!(op, Op::Upsample(Upsample { mode: expected, to }), "{mode} {coordinates} {rounding}");
    }
    for (mode, coordinates, rounding, scale) in [
        ("nearest", "tf_half_pixel_for_nn", "ceil", 2.0),
        ("nearest", "asymmetric", "round", 2.0),
        ("linear", "tf_crop_and_resize", "floor", 2.0),
        ("linear", "tf_half_pixel_for_nn", "floor", 2.0),
        ("area", "half_pixel", "floor", 2.0),
        ("linear", "half_pixel", "floor", 0.0),
        ("linear", "align_corners", "floor", 0.7),
    ] {
        let refusals = resize(mode, coordinates, rounding, scale).refusals();
        assert_eq!(refusals.len(), 1, "{mode} {coordinates} {rounding}: {refusals:?}");
    }
}

#[test]
fn what_does_nothing_leaves_no_node() {
    let model = Builder::new(13, 2)
        .node("Identity", &["x"], "a", &[])
        .node("Dropout", &["a"], "b", &[])
        .node("Cast", &["b"], "c", &[("to", Attribute::Int(10))])
        .node("Transpose", &["c"], "d", &[("perm", ints(&[0, 1, 2, 3]))])
        .node("Relu", &["d"], "y", &[])
        .node("NonZero", &["y"], "unused", &[])
        .output("y");
    assert_eq!(names(&model), ["relu"]);
}

#[test]
fn constants_are_values_of_nodes_too() {
    let weight = float_tensor("", &[4, 3, 1, 1], &[0.5; 12]);
    let model = Builder::new(13, 3)
        .node("Constant", &[], "w", &[("value", Attribute::Tensor(Box::new(weight)))])
        .node("Constant", &[], "b", &[("value_floats", Attribute::Floats(vec![1.0, 2.0, 3.0, 4.0]))])
        .node("Conv", &["x", "w", "b"], "y", &[])
        .output("y");
    let read = model.read().unwrap();
    let parameters = read.weights.parameters::<f32>().unwrap();
    assert_eq!(parameters.get("n_y.bias").unwrap().data, [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn constants_that_are_seen_otherwise_are_parameters() {
    let model = Builder::new(13, 3)
        .tensor(float_tensor("w", &[12], &[0.5; 12]))
        .ints("shape", &[4], &[4, -1, 1, 1])
        .floats("b", &[4])
        .ints("axes", &[2], &[1, 2])
        .node("Reshape", &["w", "shape"], "w4", &[])
        .node("Cast", &["b"], "b1", &[("to", Attribute::Int(1))])
        .node("Unsqueeze", &["b1", "axes"], "b3", &[])
        .node("Conv", &["x", "w4"], "c", &[])
        .node("Add", &["c", "b3"], "y", &[])
        .output("y");
    let read = model.read().unwrap();
    let parameters = read.weights.parameters::<f32>().unwrap();
    assert_eq!(parameters.get("n_c.weight").unwrap().shape, [4, 3, 1, 1]);
    assert_eq!(parameters.get("n_c.bias").unwrap().data.len(), 4);
}

#[test]
fn an_initialiser_that_nodes_share_is_one_parameter() {
    let model = Builder::new(13, 3)
        .floats("stem.weight", &[3, 3, 3, 3])
        .floats("b", &[3])
        .node("Conv", &["x", "stem.weight", "b"], "a", &[("pads", ints(&[1, 1, 1, 1]))])
        .node("Conv", &["a", "stem.weight"], "y", &[("pads", ints(&[1, 1, 1, 1]))])
        .output("y");
    let read = model.read().unwrap();
    let names: Vec<String> = params(&read.graph).into_iter().map(|spec| spec.name).collect();
    // the name of the module that the weight is of
    assert_eq!(names, ["stem.weight", "stem.bias"]);
    assert_eq!(read.graph.nodes()[1].shared.len(), 1);
    assert!(read.weights.parameters::<f32>().is_ok());
}

#[test]
fn names_are_valid_and_unique() {
    let mut model = Builder::new(13, 2)
        .node("Relu", &["x"], "/a/Relu_output", &[])
        .node("Relu", &["/a/Relu_output"], "b", &[])
        .node("Relu", &["b"], "y", &[])
        .output("y");
    for (node, name) in model.graph().node.iter_mut().zip(["x", "/a//Relu", ""]) {
        node.name = Some(name.to_owned());
    }
    let graph = graph(&model);
    let names: Vec<&str> = graph.nodes().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["x_2", "a.Relu", "y"]);
    assert!(Graph::from_json(&graph.try_to_json().unwrap()).is_ok());
}

#[test]
fn initialisers_that_stand_among_the_inputs_are_no_inputs() {
    let model = conv(&[]).input("w", &[Some(4), Some(3), Some(3), Some(3)]);
    assert_eq!(graph(&model).inputs().len(), 1);
}
