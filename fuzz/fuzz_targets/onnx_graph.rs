//! Models of known operators with any attributes, operands and constants: what reads nearly right, cycles, sizes that leave
//! 64 bits, elements that are not there.
#![no_main]

mod network;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use prost::Message;
use prost::bytes::Bytes;
use tiled_onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

fuzz_target!(|data: &[u8]| {
    if let Ok(model) = model(&mut Unstructured::new(data)) {
        network::read(model.encode_to_vec());
    }
});

const OPERATORS: [&str; 99] = [
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Ceil",
    "Celu",
    "Clip",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Conv",
    "ConvTranspose",
    "DepthToSpace",
    "Div",
    "Dropout",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Expand",
    "Flatten",
    "Floor",
    "Gather",
    "GatherND",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Greater",
    "GreaterOrEqual",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "If",
    "InstanceNormalization",
    "LRN",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "LogSoftmax",
    "MatMul",
    "Max",
    "MaxPool",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pad",
    "Pow",
    "QLinearConv",
    "RMSNormalization",
    "Range",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "Resize",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shape",
    "Sigmoid",
    "Size",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "Swish",
    "Tanh",
    "ThresholdedRelu",
    "Tile",
    "Transpose",
    "Unsqueeze",
    "Upsample",
    "Where",
];

const ATTRIBUTES: [&str; 40] = [
    "allowzero",
    "alpha",
    "approximate",
    "auto_pad",
    "axes",
    "axis",
    "beta",
    "blocksize",
    "ceil_mode",
    "coordinate_transformation_mode",
    "count_include_pad",
    "dilations",
    "ends",
    "epsilon",
    "group",
    "keepdims",
    "kernel_shape",
    "mode",
    "momentum",
    "nearest_mode",
    "num_groups",
    "output_padding",
    "output_shape",
    "pads",
    "perm",
    "ratio",
    "scales",
    "select_last_index",
    "size",
    "spatial",
    "split",
    "starts",
    "storage_order",
    "strides",
    "to",
    "training_mode",
    "transA",
    "transB",
    "value",
    "num_outputs",
];

const TEXTS: [&str; 14] = [
    "NOTSET",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "nearest",
    "linear",
    "cubic",
    "asymmetric",
    "half_pixel",
    "align_corners",
    "reflect",
    "edge",
    "tanh",
    "floor",
];

/// The names of values; those of constants begin with a w.
const VALUES: [&str; 16] =
    ["x", "", "a", "b", "c", "d", "e", "f", "g", "w0", "w1", "w2", "w3", "w4", "w5", "nowhere"];

fn number(u: &mut Unstructured<'_>) -> Result<i64> {
    Ok(match u.int_in_range(0..=15)? {
        0 => u.arbitrary()?,
        1 => *u.choose(&[i64::MAX, i64::MIN, 1 << 31, 1 << 40, -1])?,
        _ => u.int_in_range(-2..=9)?,
    })
}

fn numbers(u: &mut Unstructured<'_>, most: usize) -> Result<Vec<i64>> {
    let len = u.int_in_range(0..=most)?;
    (0..len).map(|_| number(u)).collect()
}

fn real(u: &mut Unstructured<'_>) -> Result<f32> {
    Ok(if u.ratio(1, 8)? { f32::from_bits(u.arbitrary()?) } else { u.int_in_range(-8_i8..=32)? as f32 / 4.0 })
}

fn tensor(u: &mut Unstructured<'_>, name: &str) -> Result<TensorProto> {
    let dims = if u.ratio(1, 6)? {
        numbers(u, 5)?
    } else {
        let rank = u.int_in_range(0..=4)?;
        (0..rank).map(|_| u.int_in_range(1..=4)).collect::<Result<Vec<i64>>>()?
    };
    let len =
        dims.iter().try_fold(1_i64, |product, dim| product.checked_mul(*dim)).unwrap_or(0).clamp(0, 300);
    let len = usize::try_from(len).unwrap_or(0);
    let len = if u.ratio(1, 10)? { len.saturating_sub(1) } else { len };
    let empty = TensorProto { name: Some(name.to_owned()), dims, ..TensorProto::default() };
    Ok(match u.int_in_range(0..=5)? {
        0 => TensorProto {
            data_type: Some(7),
            int64_data: (0..len).map(|_| number(u)).collect::<Result<_>>()?,
            ..empty
        },
        1 => TensorProto {
            data_type: Some(1),
            float_data: (0..len).map(|_| real(u)).collect::<Result<_>>()?,
            ..empty
        },
        2 => {
            let (kind, size) =
                *u.choose(&[(1, 4), (10, 2), (11, 8), (16, 2), (2, 1), (7, 8), (9, 1), (0, 4), (99, 1)])?;
            let raw = u.bytes((len * size).min(u.len()))?.to_vec();
            TensorProto { data_type: Some(kind), raw_data: Some(Bytes::from(raw)), ..empty }
        }
        3 => TensorProto { data_type: Some(1), data_location: Some(1), ..empty },
        _ => {
            let raw = (0..len).flat_map(|place| (place as f32 / 7.0).to_le_bytes()).collect::<Vec<u8>>();
            TensorProto { data_type: Some(1), raw_data: Some(Bytes::from(raw)), ..empty }
        }
    })
}

fn attribute(u: &mut Unstructured<'_>) -> Result<AttributeProto> {
    let name = Some((*u.choose(&ATTRIBUTES)?).to_owned());
    let empty = AttributeProto { name, ..AttributeProto::default() };
    Ok(match u.int_in_range(0..=5)? {
        0 => AttributeProto { f: Some(real(u)?), r#type: Some(1), ..empty },
        1 => AttributeProto { i: Some(number(u)?), r#type: Some(2), ..empty },
        2 => {
            let text = Bytes::from_static(u.choose(&TEXTS)?.as_bytes());
            AttributeProto { s: Some(text), r#type: Some(3), ..empty }
        }
        3 => AttributeProto { t: Some(Box::new(tensor(u, "")?)), r#type: Some(4), ..empty },
        4 => AttributeProto { ints: numbers(u, 9)?, r#type: Some(7), ..empty },
        _ => {
            let floats = (0..u.int_in_range(0..=5)?).map(|_| real(u)).collect::<Result<_>>()?;
            AttributeProto { floats, r#type: Some(6), ..empty }
        }
    })
}

/// A branch with a few nodes, which may have branches too.
fn branch(u: &mut Unstructured<'_>, name: &str, depth: usize) -> Result<AttributeProto> {
    let node = (0..u.int_in_range(0..=3)?).map(|place| node(u, place, depth + 1)).collect::<Result<_>>()?;
    let initializer = (0..u.int_in_range(0..=1)?).map(|_| tensor(u, "w0")).collect::<Result<_>>()?;
    let output = (0..u.int_in_range(0..=2)?).map(|_| {
        let name = Some((*u.choose(&VALUES)?).to_owned());
        Ok(ValueInfoProto { name, r#type: None })
    });
    let graph =
        GraphProto { node, initializer, output: output.collect::<Result<_>>()?, ..GraphProto::default() };
    let g = Some(Bytes::from(graph.encode_to_vec()));
    Ok(AttributeProto { name: Some(name.to_owned()), g, r#type: Some(5), ..AttributeProto::default() })
}

fn node(u: &mut Unstructured<'_>, place: usize, depth: usize) -> Result<NodeProto> {
    let names = |u: &mut Unstructured<'_>, most: usize| -> Result<Vec<String>> {
        let len = u.int_in_range(0..=most)?;
        (0..len).map(|_| Ok((*u.choose(&VALUES)?).to_owned())).collect()
    };
    let input = names(u, 4)?;
    // mostly a chain of values in order; else anything, so also cycles and values made twice
    let output = if u.ratio(7, 8)? { vec![VALUES[2 + place % 7].to_owned()] } else { names(u, 3)? };
    let domain = if u.ratio(1, 32)? { Some("ai.other".to_owned()) } else { None };
    let operator = if u.ratio(1, 16)? { "If" } else { *u.choose(&OPERATORS)? };
    let attribute = match operator {
        "If" if depth < 4 => vec![branch(u, "then_branch", depth)?, branch(u, "else_branch", depth)?],
        _ => (0..u.int_in_range(0..=4)?).map(|_| attribute(u)).collect::<Result<_>>()?,
    };
    let op_type = Some(operator.to_owned());
    Ok(NodeProto { input, output, attribute, domain, op_type, ..NodeProto::default() })
}

fn value(u: &mut Unstructured<'_>, name: &str) -> Result<ValueInfoProto> {
    let dims = if u.ratio(1, 12)? {
        numbers(u, 5)?.into_iter().map(Some).collect()
    } else {
        let channels = Some(u.int_in_range(1..=4)?);
        if u.ratio(1, 8)? { vec![None, None, None, channels] } else { vec![None, channels, None, None] }
    };
    let dim = dims.into_iter().map(|dim_value| DimensionProto { dim_value, dim_param: None }).collect();
    let kind = TensorTypeProto { elem_type: Some(1), shape: Some(TensorShapeProto { dim }) };
    Ok(ValueInfoProto { name: Some(name.to_owned()), r#type: Some(TypeProto { tensor_type: Some(kind) }) })
}

fn model(u: &mut Unstructured<'_>) -> Result<ModelProto> {
    let version = Some(if u.ratio(1, 24)? { number(u)? } else { u.int_in_range(7..=28)? });
    let node = (0..u.int_in_range(1..=9)?).map(|place| node(u, place, 0)).collect::<Result<Vec<_>>>()?;
    let initializer = (0..6).map(|place| tensor(u, &format!("w{place}"))).collect::<Result<Vec<_>>>()?;
    let last = node.last().and_then(|node| node.output.first()).cloned().unwrap_or_default();
    let graph = GraphProto {
        node,
        initializer,
        input: vec![value(u, "x")?],
        output: vec![value(u, &last)?],
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: None, version }];
    Ok(ModelProto { ir_version: Some(8), graph: Some(graph), opset_import, ..ModelProto::default() })
}
