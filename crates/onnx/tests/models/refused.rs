//! What is refused, and in which words.

use tiled_onnx::proto::{FunctionProto, ModelProto, SparseTensorProto, TensorProto};
use tiled_onnx::{OnnxError, OnnxPlace, Reason, from_bytes};

use crate::build::{Attribute, Builder, float_tensor, int_tensor, ints, reason, value};

/// `y = Conv(x, w)` with 3 channels in and 4 out.
fn conv(attributes: &[(&str, Attribute)]) -> Builder {
    Builder::new(17, 3).floats("w", &[4, 3, 3, 3]).node("Conv", &["x", "w"], "y", attributes).output("y")
}

#[test]
fn versions_of_operators_outside_the_known_ones_are_refused() {
    for (opset, expected) in [(7, true), (28, true), (6, false), (29, false)] {
        let read = Builder::new(opset, 3).node("Relu", &["x"], "y", &[]).output("y").read();
        assert_eq!(read.is_ok(), expected, "{opset}");
    }
    let error = from_bytes(Vec::new(), None).unwrap_err();
    assert!(matches!(error, OnnxError::Opset { got: 0 }), "{error}");
    let mut model = Builder::new(13, 3);
    model.model.graph = None;
    assert!(matches!(model.read(), Err(OnnxError::NoGraph)));
}

#[test]
fn all_refusals_come_at_once_and_none_twice() {
    let model = Builder::new(17, 3)
        .node("NonZero", &["x"], "a", &[])
        .node("Relu", &["a"], "b", &[])
        .node("LSTM", &["b"], "c", &[])
        .node("Relu", &["x"], "d", &[("slope", Attribute::Float(1.0))])
        .node("Add", &["c", "d"], "y", &[])
        .output("y");
    let expected = [
        "NonZero `n_a` (opset 17): no operator of a network does this",
        "LSTM `n_c` (opset 17): no operator of a network does this",
        "Relu `n_d` (opset 17): has no attribute `slope`",
    ];
    assert_eq!(model.refusals(), expected);
    let text = model.read().unwrap_err().to_string();
    assert_eq!(text, format!("3 refusals: {}", expected.join("; ")));
    let Err(OnnxError::Refused { refusals }) = model.read() else { panic!("it is refused") };
    let place = OnnxPlace::Node { operator: "LSTM".into(), name: "n_c".into(), opset: 17 };
    assert_eq!(refusals[1].place, place);
    assert!(matches!(refusals[1].reason, Reason::Operator));
}

#[test]
fn operators_of_other_domains_functions_and_quantised_ones_are_named() {
    let in_domain = |op: &str, domain: &str| {
        let mut model = Builder::new(17, 3).node(op, &["x"], "y", &[]).output("y");
        model.graph().node[0].domain = Some(domain.to_owned());
        model
    };
    let text = "com.microsoft.FusedConv `n_y` (opset 17): operators of domain `com.microsoft` are not known";
    assert_eq!(in_domain("FusedConv", "com.microsoft").refusals(), [text]);
    assert_eq!(reason(&in_domain("QLinearAdd", "com.microsoft")), "quantised networks are not read");
    assert_eq!(reason(&in_domain("DequantizeLinear", "")), "quantised networks are not read");
    assert!(in_domain("Relu", "ai.onnx").read().is_ok());
    let mut own = in_domain("Block", "mine");
    own.model.functions.push(FunctionProto { name: Some("Block".into()), domain: Some("mine".into()) });
    assert_eq!(reason(&own), "functions of the model are not read, inline them first");
}

#[test]
fn nodes_out_of_order_cycles_and_missing_values_are_told_apart() {
    let swapped =
        Builder::new(17, 3).node("Relu", &["a"], "y", &[]).node("Relu", &["x"], "a", &[]).output("y");
    let text = "reads `a` before it is made: nodes are out of order or form a cycle";
    assert_eq!(reason(&swapped), text);
    let cycle = Builder::new(17, 3).node("Relu", &["b"], "a", &[]).node("Relu", &["a"], "b", &[]).output("b");
    assert_eq!(reason(&cycle), "reads `b` before it is made: nodes are out of order or form a cycle");
    let itself = Builder::new(17, 3).node("Relu", &["a"], "a", &[]).output("a");
    assert_eq!(reason(&itself), text);
    let missing = Builder::new(17, 3).node("Conv", &["x", "w"], "y", &[]).output("y");
    assert_eq!(reason(&missing), "reads `w`, which nothing makes");
    assert_eq!(reason(&Builder::new(17, 3).output("z")), "reads `z`, which nothing makes");
    let empty = Builder::new(17, 3).node("Relu", &[""], "y", &[]).output("y");
    assert_eq!(reason(&empty), "input 0 is nothing, wants a value");
}

#[test]
fn names_that_are_made_twice_are_refused() {
    let nodes = Builder::new(17, 3).node("Relu", &["x"], "y", &[]).node("Tanh", &["x"], "y", &[]).output("y");
    assert_eq!(reason(&nodes), "`y` is made twice");
    let input = Builder::new(17, 3).node("Relu", &["x"], "x", &[]).output("x");
    assert_eq!(reason(&input), "`x` is made twice");
    assert_eq!(reason(&conv(&[]).floats("w", &[1])), "`w` is made twice");
    let twice = Builder::new(17, 3)
        .input("x", &[None, Some(3), None, None])
        .node("Relu", &["x"], "y", &[])
        .output("y");
    assert_eq!(reason(&twice), "`x` is made twice");
    let output = Builder::new(17, 3).node("Relu", &["x"], "y", &[]).output("y").output("y");
    assert_eq!(reason(&output), "is one that stands before, wants a value of the network");
}

#[test]
fn inputs_that_are_no_images_are_refused() {
    let with = |elem_type, shape: &[Option<i64>]| {
        let mut model = Builder::new(17, 3).node("Relu", &["x"], "y", &[]).output("y");
        model.graph().input[0] = value("x", elem_type, shape);
        reason(&model)
    };
    let wanted = "wants a batch of images, N×C×H×W, or N×H×W×C that is transposed, with a number of channels";
    assert_eq!(with(1, &[Some(1), None]), format!("is a tensor of shape [1, ?], {wanted}"));
    assert_eq!(with(1, &[None; 4]), format!("is a tensor of shape [?, ?, ?, ?], {wanted}"));
    assert_eq!(with(7, &[None, Some(3), None, None]), format!("is of elements int64, {wanted}"));
    assert_eq!(
        with(1, &[None, Some(-3), None, None]),
        format!("is a tensor of shape [?, ?, ?, ?], {wanted}")
    );
    let mut untyped = Builder::new(17, 3).node("Relu", &["x"], "y", &[]).output("y");
    untyped.graph().input[0].r#type = None;
    assert_eq!(reason(&untyped), format!("is no tensor, {wanted}"));
    let constant = Builder::new(17, 3).floats("w", &[3]).output("w");
    assert_eq!(reason(&constant), "is a constant of shape [3], wants a value of the network");
}

#[test]
fn second_results_are_refused_where_they_are_read() {
    let pool = |last: &str| {
        let kernel = [("kernel_shape", ints(&[2, 2]))];
        let mut model = Builder::new(17, 3).node("MaxPool", &["x"], "y", &kernel).output(last);
        model.graph().node[0].output.push("indices".to_owned());
        model
    };
    assert!(pool("y").read().is_ok());
    assert_eq!(
        reason(&pool("indices")),
        "reads `indices`, output 1 of its node, which no operator of a network makes"
    );
}

#[test]
fn attributes_name_what_they_are_and_what_is_wanted() {
    let refusal = |attribute: (&str, Attribute)| reason(&conv(&[attribute]));
    assert_eq!(
        refusal(("strides", ints(&[1, 1, 1]))),
        "attribute `strides` is [1, 1, 1], wants two whole numbers"
    );
    assert_eq!(
        refusal(("strides", Attribute::Int(2))),
        "attribute `strides` is a whole number, wants whole numbers"
    );
    assert_eq!(
        refusal(("group", Attribute::Text("two"))),
        "attribute `group` is a text, wants a whole number"
    );
    assert_eq!(
        refusal(("kernel_shape", ints(&[5, 5]))),
        "attribute `kernel_shape` is [5, 5], wants that of the weight"
    );
    assert_eq!(refusal(("pads", ints(&[1]))), "attribute `pads` is [1], wants four whole numbers");
    assert_eq!(
        refusal(("pads", ints(&[i64::MAX, 0, 0, 0]))),
        "attribute `pads` is 9223372036854775807, wants within ±2^30"
    );
    assert_eq!(refusal(("strides", ints(&[0, 1]))), "conv2d `n_y`: stride is 0, must be at least 1");
    let same = ("auto_pad", Attribute::Text("SAME"));
    assert_eq!(refusal(same), "attribute `auto_pad` is SAME, wants NOTSET, VALID, SAME_UPPER or SAME_LOWER");
    for hostile in [i64::MIN, i64::MAX, -1, 0] {
        for name in ["strides", "dilations", "pads", "kernel_shape"] {
            for auto_pad in ["SAME_UPPER", "NOTSET"] {
                let list = if name == "pads" { ints(&[hostile; 4]) } else { ints(&[hostile; 2]) };
                let attributes = [(name, list), ("auto_pad", Attribute::Text(auto_pad))];
                let pool = Builder::new(17, 3).node("MaxPool", &["x"], "y", &attributes).output("y");
                drop((conv(&attributes).read(), pool.read()));
                let turned = Builder::new(17, 3).floats("w", &[3, 1, 2, 2]).node(
                    "ConvTranspose",
                    &["x", "w"],
                    "y",
                    &attributes,
                );
                drop(turned.output("y").read());
            }
        }
    }
}

#[test]
fn what_a_network_refuses_is_told_in_its_words() {
    let wrong =
        Builder::new(17, 5).floats("w", &[4, 3, 3, 3]).node("Conv", &["x", "w"], "y", &[]).output("y");
    assert_eq!(reason(&wrong), "weight has shape [4, 3, 3, 3], wants [4, 5, 3, 3]");
    let bias = conv(&[]).floats("b", &[5]);
    let mut bias = bias;
    bias.graph().node[0].input.push("b".to_owned());
    assert_eq!(reason(&bias), "bias has shape [5], wants [4]");
    let mut sizes = Builder::new(17, 3).node("Add", &["x", "z"], "y", &[]).output("y");
    sizes.graph().input[0] = value("x", 1, &[None, Some(3), Some(8), Some(8)]);
    let sizes = sizes.input("z", &[None, Some(3), Some(8), Some(9)]);
    assert!(reason(&sizes).starts_with("add `n_y`: "), "{}", reason(&sizes));
    let channels = Builder::new(17, 3)
        .floats("w", &[2, 3, 1, 1])
        .node("Conv", &["x", "w"], "a", &[])
        .node("Mul", &["x", "a"], "y", &[])
        .output("y");
    assert_eq!(reason(&channels), "mul `n_y`: `x` has 3 channels, `n_a` has 2");
    let slopes = Builder::new(17, 3).floats("s", &[2]).node("PRelu", &["x", "s"], "y", &[]).output("y");
    assert_eq!(
        reason(&slopes),
        "input 1 is a constant of shape [2], wants one slope, or one for each channel"
    );
    let rows = Builder::new(17, 3).floats("c", &[1, 1, 4]).node("Sub", &["x", "c"], "y", &[]).output("y");
    assert_eq!(
        reason(&rows),
        "input 1 is a constant of shape [1, 1, 4], wants a value of the network, a number or one for each channel"
    );
    let celu = [("alpha", Attribute::Float(0.0))];
    let celu = Builder::new(17, 3).node("Celu", &["x"], "y", &celu).output("y");
    assert_eq!(reason(&celu), "celu `n_y`: alpha is 0, must be a finite number above 0");
}

#[test]
fn features_of_an_image_are_refused_as_they_depend_on_its_size() {
    let flat = Builder::new(17, 3).node("Flatten", &["x"], "y", &[]).output("y");
    assert_eq!(
        reason(&flat),
        "the number of features depends on the size of the image, which the model leaves open"
    );
    // of a size that is declared they are known, but make no pixel
    let mut declared = Builder::new(17, 3)
        .ints("axes", &[2], &[2, 3])
        .node("Flatten", &["x"], "f", &[])
        .node("Unsqueeze", &["f", "axes"], "y", &[])
        .output("y");
    declared.graph().input[0] = value("x", 1, &[None, Some(3), Some(7), Some(7)]);
    assert_eq!(reason(&declared), "input 0 is an image of 7×7, wants a value of one pixel");
    declared.graph().output[0].name = Some("f".to_owned());
    let refusals = declared.refusals();
    assert!(refusals[0].contains("wants a value of one pixel, or of four axes"), "{refusals:?}");
}

#[test]
fn constants_that_are_not_what_they_say_are_refused() {
    let with = |tensor: TensorProto| {
        reason(&Builder::new(17, 3).tensor(tensor).node("Conv", &["x", "w"], "y", &[]).output("y"))
    };
    let of = |dims: &[i64], data_type| TensorProto {
        dims: dims.to_vec(),
        data_type: Some(data_type),
        ..float_tensor("w", &[], &[])
    };
    assert_eq!(with(of(&[4, 3, 1, 1], 1)), "tensor `w`: has 0 bytes of elements, its shape wants 48");
    assert_eq!(
        with(of(&[1 << 40, 1 << 40, 1, 1], 1)),
        format!("tensor `w`: shape {:?} is not possible", [1_i64 << 40, 1 << 40, 1, 1])
    );
    assert_eq!(
        with(of(&[i64::MAX, 1], 11)),
        format!("tensor `w`: shape {:?} is not possible", [i64::MAX, 1])
    );
    assert_eq!(with(of(&[-1, 3], 1)), "tensor `w`: shape [-1, 3] is not possible");
    assert_eq!(with(of(&[4], 8)), "tensor `w`: elements of type string are not read");
    assert_eq!(with(of(&[4], 99)), "tensor `w`: elements of type an unknown one are not read");
    let mut sparse = Builder::new(17, 3).node("Relu", &["x"], "y", &[]).output("y");
    let values = Some(float_tensor("s", &[1], &[1.0]));
    sparse.graph().sparse_initializer.push(SparseTensorProto { values });
    assert_eq!(reason(&sparse), "is a sparse one, wants a dense tensor");
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let bytes = conv(&[("pads", ints(&[1, 1, 1, 1]))]).bytes();
    for end in 0..bytes.len() {
        if let Ok(model) = from_bytes(bytes[..end].to_vec(), None) {
            panic!("{end} of {}: {model:?}", bytes.len());
        }
    }
    assert!(from_bytes(bytes, None).is_ok());
}

#[test]
fn a_file_with_any_byte_changed_is_read_or_refused() {
    let model = conv(&[("pads", ints(&[1, 1, 1, 1]))]).ints("s", &[4], &[1, 1, 2, 2]);
    let model = model.node("Upsample", &["y", "s"], "z", &[]).output("z");
    let of_sizes = [
        model,
        crate::sized::same_pooling(),
        crate::resized::resized(9, "linear").output("u"),
        crate::filled::pooled_shape(17, 3).node("ConstantOfShape", &["shape"], "y", &[]).output("y"),
        crate::rearranged::picked(Builder::new(17, 2), [0, 1], [2, 3], "y").output("y"),
        Builder::new(17, 2)
            .ints("p", &[8], &[0, 1, 1, 2, 0, 2, 0, 1])
            .node("Pad", &["x", "p"], "y", &[])
            .output("y"),
    ];
    for bytes in of_sizes.map(|model| model.bytes()) {
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[place] ^= 1 << bit;
                drop(from_bytes(changed, None));
            }
        }
    }
}

#[test]
fn sizes_do_not_grow_without_end() {
    let mut model = Builder::new(17, 3).node("Shape", &["x"], "s0", &[]);
    for step in 0..64 {
        let from = format!("s{step}");
        model =
            model.node("Concat", &[&from, &from], &format!("s{}", step + 1), &[("axis", Attribute::Int(0))]);
    }
    assert_eq!(reason(&model.output("s64")), "input 0 is computed sizes, wants a few numbers");
    let huge = Builder::new(17, 3)
        .ints("n", &[1], &[i64::MAX])
        .node("ConstantOfShape", &["n"], "y", &[])
        .output("y");
    assert_eq!(reason(&huge), "tensor `n_y`: shape [9223372036854775807] is not possible");
    let value = ("value", Attribute::Tensor(Box::new(int_tensor("one", &[1], &[1]))));
    let whole = Builder::new(17, 3).ints("n", &[1], &[i64::MAX]);
    let whole = whole.node("ConstantOfShape", &["n"], "y", &[value]).output("y");
    assert_eq!(reason(&whole), "input 0 is a constant of shape [1], wants a few whole numbers");
}

#[test]
fn many_nodes_take_linear_time() {
    let mut model = Builder::new(17, 3).output("y");
    let nodes = 200_000;
    let name = |place: usize| {
        if place == 0 {
            "x".to_owned()
        } else if place == nodes {
            "y".to_owned()
        } else {
            format!("v{place}")
        }
    };
    for place in 0..nodes {
        model = model.node("Relu", &[&name(place)], &name(place + 1), &[]);
    }
    assert_eq!(model.read().unwrap().graph.nodes().len(), nodes);
}

#[test]
fn messages_within_messages_end_somewhere() {
    // a graph attribute is skipped by its length, however deep it is
    let mut bytes = Vec::new();
    for _ in 0..10_000 {
        let mut outer = vec![0x32];
        prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
        outer.append(&mut bytes);
        bytes = outer;
    }
    assert!(from_bytes(bytes, None).is_err());
    assert!(ModelProto::default().graph.is_none());
}

#[test]
fn attention_between_pixels_is_refused_by_name() {
    let words =
        "height and width kept apart: attention, in which every pixel reads every other, cannot be tiled";
    let joined = |shape: &[i64]| {
        let model = Builder::new(17, 3).ints("s", &[3], shape).node("Reshape", &["x", "s"], "r", &[]);
        model.node("Transpose", &["r"], "t", &[("perm", ints(&[0, 2, 1]))])
    };
    let scores = joined(&[0, 3, -1]).node("MatMul", &["t", "r"], "y", &[]).output("y");
    assert_eq!(reason(&scores), format!("input 1 is a value of 3 groups of channels, wants {words}"));
    let heads = joined(&[0, 3, -1]).ints("h", &[4], &[0, -1, 3, 1]);
    let heads = heads.node("Reshape", &["t", "h"], "y", &[]).output("y");
    assert_eq!(reason(&heads), format!("input 1 is a constant of shape [4], wants {words}"));
    // as many pixels as nothing says
    assert!(reason(&joined(&[1, 3, 35]).output("t")).ends_with(words));
}
