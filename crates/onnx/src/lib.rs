//! ONNX files as networks and weights.
//!
//! [`read`] makes of a model file a [`Model`]: a [`tiled_graph::Graph`], named after the model's nodes, and the constants that
//! its parameters are, in any floating-point type. It reads ONNX's own
//! operators in versions 7 to 28 as far as a network has them; whatever it has not is refused, all of it at once, by node,
//! operator and attribute.
//!
//! It does not run models, and it does not approximate: an operator is read where a network computes the same, else refused. It
//! writes no ONNX, and quantised models, models of sequences and models with loops are none of its business.
//!
//! ```text
//!   file ─ proto ─► messages ─ import: ops, a rule for each node ─► Model ─┬─ graph
//!                       └─ initialisers, files beside the model: tensor ───┴─ weights ─► parameters::<T>
//! ```
//!
//! Sizes that a model computes (`Shape`, `Gather`, `Mul`, `Concat`) leave no node: they are multiples of extents of values, so
//! that resizing to the size of another value becomes upsampling `like` that value, whatever the size of the image. Arithmetic
//! that is an activation written out (`x·Sigmoid(x)`, GELU by `Erf` or `Tanh`) becomes that activation. Parameters that
//! several nodes read are shared in the network too. Of an `If` whose condition is known then, as one of sizes mostly is, the nodes of the
//! branch that is taken stand in its place.
//!
//! # Example
//!
//! ```
//! use prost::Message;
//! use tiled_onnx::proto::{
//!     DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TensorTypeProto,
//!     TypeProto, ValueInfoProto,
//! };
//!
//! let batch = [None, Some(3), None, None].map(|dim_value| DimensionProto { dim_value, dim_param: None });
//! let shape = Some(TensorShapeProto { dim: batch.to_vec() });
//! let of = Some(TypeProto { tensor_type: Some(TensorTypeProto { elem_type: Some(1), shape }) });
//! let value = |name: &str| ValueInfoProto { name: Some(name.into()), r#type: of.clone() };
//! let relu = NodeProto {
//!     input: vec!["x".into()],
//!     output: vec!["y".into()],
//!     op_type: Some("Relu".into()),
//!     ..NodeProto::default()
//! };
//! let graph = GraphProto {
//!     node: vec![relu],
//!     input: vec![value("x")],
//!     output: vec![value("y")],
//!     ..GraphProto::default()
//! };
//! let opset = OperatorSetIdProto { domain: None, version: Some(17) };
//! let file = ModelProto { graph: Some(graph), opset_import: vec![opset], ..ModelProto::default() };
//!
//! let model = tiled_onnx::from_bytes(file.encode_to_vec(), None)?;
//! assert_eq!(model.graph.nodes()[0].op.name(), "relu");
//! assert_eq!(model.inputs[0].shape, [None, Some(3), None, None]);
//! assert!(model.weights.parameters::<f32>()?.tensors().is_empty());
//! # Ok::<(), tiled_onnx::OnnxError>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod external;
mod import;
mod model;
mod ops;
pub mod proto;
mod tensor;
mod wire;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use prost::Message;
use prost::bytes::Bytes;
use tiled_tensor::zero_bytes;

use crate::tensor::Origin;

pub use error::{OnnxError, OnnxPlace, Reason, Refusal, TensorProblem};
pub use model::{DeclaredInput, DeclaredOutput, Model, Weights};

/// Reads a model, and checks that files beside it hold the elements that it says. Those in the file itself are read there once more when the weights are asked for:
/// until then they take no memory.
///
/// # Errors
/// Where the file cannot be read or is no model, its operators are of another version, or it has anything that a network has
/// not: then all of that is in the error.
///
/// ```
/// assert!(matches!(tiled_onnx::read("nowhere.onnx"), Err(tiled_onnx::OnnxError::Read { .. })));
/// ```
pub fn read(path: impl AsRef<Path>) -> Result<Model, OnnxError> {
    let (path, failed) = (path.as_ref(), |source| OnnxError::Read { source });
    // a pipe would block for ever, and reading a device may do anything
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(OnnxError::NotAFile);
    }
    let mut file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    let len = usize::try_from(len).map_err(|_| OnnxError::OutOfMemory { bytes: len })?;
    let mut bytes = zero_bytes(len)?;
    file.read_exact(&mut bytes).map_err(failed)?;
    let bytes = Bytes::from(bytes);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let origin = Origin { file, name, bytes: bytes.clone() };
    decoded(bytes, path.parent(), Some(origin))
}

/// Reads a model from the bytes of a file; elements that lie beside it are in `folder`.
///
/// # Errors
/// As [`read`].
///
/// ```
/// let error = tiled_onnx::from_bytes(Vec::new(), None).expect_err("it is empty");
/// assert_eq!(error.to_string(), "wants version 0 of the ONNX operators, known are 7 to 28");
/// ```
pub fn from_bytes(bytes: impl Into<Bytes>, folder: Option<&Path>) -> Result<Model, OnnxError> {
    decoded(bytes.into(), folder, None)
}

fn decoded(bytes: Bytes, folder: Option<&Path>, origin: Option<Origin>) -> Result<Model, OnnxError> {
    let room = wire::check(&bytes)?;
    let model = proto::ModelFile::decode(bytes).map_err(import::syntax)?;
    import::import(model, room, folder, origin)
}
