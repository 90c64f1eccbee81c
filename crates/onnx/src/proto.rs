//! The messages of `onnx.proto` as far as a network needs them; what is not named here is skipped.
//!
//! The numbers of the fields are those of the schema. Bytes of tensors stay where the file was read, so that a model is held
//! once. Source: ONNX, `onnx/onnx.proto`, IR version 13, 2025.

use prost::Message;
use prost::bytes::Bytes;

/// A file as it is read: [`ModelProto`] with the nodes as bytes of the file, each a message of its own when its turn comes.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelFile {
    #[prost(message, optional, tag = "7")]
    pub(crate) graph: Option<GraphFile>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) opset_import: Vec<OperatorSetIdProto>,
    #[prost(message, repeated, tag = "25")]
    pub(crate) functions: Vec<FunctionProto>,
}

/// The network of a [`ModelFile`], or a graph within it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GraphFile {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) node: Vec<Bytes>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    pub(crate) output: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "15")]
    pub(crate) sparse_initializer: Vec<SparseTensorProto>,
}

/// A file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// The version of the format.
    #[prost(int64, optional, tag = "1")]
    pub ir_version: Option<i64>,
    /// The program that wrote it.
    #[prost(string, optional, tag = "2")]
    pub producer_name: Option<String>,
    /// The network.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// The operators' versions, by domain.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Operators that the model defines itself.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// The version of the operators of a domain.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OperatorSetIdProto {
    /// The domain; empty for ONNX itself.
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    /// The version.
    #[prost(int64, optional, tag = "2")]
    pub version: Option<i64>,
}

/// An operator that a model defines itself: only its name, to refuse it by.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FunctionProto {
    /// The name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Its domain.
    #[prost(string, optional, tag = "10")]
    pub domain: Option<String>,
}

/// A network.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// The nodes, each behind those whose values it reads.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// The name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Named constants.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// The inputs; before IR version 4 initialisers too.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// The outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Constants of few elements, which are refused.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
}

/// An operator over named values.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// The values that it reads; an empty name is one that is left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// The values that it makes.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// The name, which may be missing.
    #[prost(string, optional, tag = "3")]
    pub name: Option<String>,
    /// The operator.
    #[prost(string, optional, tag = "4")]
    pub op_type: Option<String>,
    /// The attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// The operator's domain.
    #[prost(string, optional, tag = "7")]
    pub domain: Option<String>,
}

/// A named attribute. Lists of graphs, sparse tensors and types are skipped: no operator that is read has one.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// The name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// A number.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// A whole number.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// A text.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub s: Option<Bytes>,
    /// A tensor.
    #[prost(message, optional, boxed, tag = "5")]
    pub t: Option<Box<TensorProto>>,
    /// A graph, as the bytes of a [`GraphProto`], which may be within others as deep as a file likes.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub g: Option<Bytes>,
    /// Numbers.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Whole numbers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Which of these it is.
    #[prost(int32, optional, tag = "20")]
    pub r#type: Option<i32>,
    /// The attribute of a function that it stands for.
    #[prost(string, optional, tag = "21")]
    pub ref_attr_name: Option<String>,
}

/// A constant.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// The extents.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// The type of an element.
    #[prost(int32, optional, tag = "2")]
    pub data_type: Option<i32>,
    /// Elements of `float32`.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of 32 bits and fewer.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Elements of `int64`.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// The name.
    #[prost(string, optional, tag = "8")]
    pub name: Option<String>,
    /// Elements of any type but text, little-endian.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    /// Elements of `float64`.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Elements of `uint32` and `uint64`.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// Where the elements lie, if in another file: `location`, `offset`, `length`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 where they lie in another file.
    #[prost(int32, optional, tag = "14")]
    pub data_location: Option<i32>,
}

/// A constant of few elements: only its name, to refuse it by.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// The elements, whose name is that of the whole.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StringStringEntryProto {
    /// The key.
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    /// The value.
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// A named value and its type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// The name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// The type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// A type; sequences, maps and others are skipped.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// That of a tensor.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

/// The type of a tensor, `TypeProto.Tensor` in the schema.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// The type of an element.
    #[prost(int32, optional, tag = "1")]
    pub elem_type: Option<i32>,
    /// The shape, where it is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// The extents.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// An extent, `TensorShapeProto.Dimension` in the schema: a number, a name or neither.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DimensionProto {
    /// The number.
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// The name.
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}
