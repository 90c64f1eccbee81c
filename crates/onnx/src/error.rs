//! What a model is refused for.

use std::fmt;
use std::io;

use tiled_graph::GraphError;
use tiled_tensor::OutOfMemory;

/// Why a model was not read.
///
/// ```
/// use tiled_onnx::{OnnxError, from_bytes};
/// let error = from_bytes(b"no model".as_slice(), None).expect_err("it is none");
/// assert!(matches!(error, OnnxError::Syntax { .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// The file cannot be read.
    #[error("cannot read: {source}")]
    Read {
        /// Why.
        source: io::Error,
    },
    /// The path names a folder, a pipe or a device.
    #[error("is not a file")]
    NotAFile,
    /// The bytes are no model.
    #[error("is no ONNX model: {reason}")]
    Syntax {
        /// What the reader of the wire format says.
        reason: String,
    },
    /// The file has so many messages without content that they take far more memory than the file.
    #[error("its messages take {got} bytes in memory, at most {expected} are read of such a file")]
    Messages {
        /// The bytes that would be read.
        expected: u64,
        /// The bytes that they take.
        got: u64,
    },
    /// The model has more nodes or constants than are numbered.
    #[error("has {got} nodes or constants, at most {expected} are read")]
    TooManyNodes {
        /// As many are read.
        expected: usize,
        /// As many there are.
        got: usize,
    },
    /// The model has no network.
    #[error("has no graph")]
    NoGraph,
    /// The operators are older or newer than those that are known.
    #[error("wants version {got} of the ONNX operators, known are 7 to 28")]
    Opset {
        /// The version, 0 where there is none.
        got: i64,
    },
    /// Memory is refused.
    #[error("{bytes} bytes could not be had")]
    OutOfMemory {
        /// The bytes that were asked for.
        bytes: u64,
    },
    /// Nodes, inputs and outputs that a network cannot have: all that were found.
    #[error("{}", Listed(refusals))]
    Refused {
        /// In the order of the model.
        refusals: Vec<Refusal>,
    },
    /// A constant that cannot be read.
    #[error("tensor `{name}`: {problem}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: TensorProblem,
    },
    /// The network is not well formed.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl OnnxError {
    /// Whether the system did not give memory.
    #[must_use]
    pub fn is_refused_memory(&self) -> bool {
        let of_tensor = |problem: &TensorProblem| matches!(problem, TensorProblem::OutOfMemory { .. });
        let of_graph = |error: &GraphError| matches!(error, GraphError::OutOfMemory { .. });
        match self {
            Self::OutOfMemory { .. } => true,
            Self::Tensor { problem, .. } => of_tensor(problem),
            Self::Graph(error) => of_graph(error),
            Self::Refused { refusals } => refusals.iter().any(|refusal| match &refusal.reason {
                Reason::Graph(error) => of_graph(error),
                Reason::Tensor { problem, .. } => of_tensor(problem),
                _ => false,
            }),
            _ => false,
        }
    }
}

impl From<OutOfMemory> for OnnxError {
    fn from(OutOfMemory { bytes }: OutOfMemory) -> Self {
        Self::OutOfMemory { bytes }
    }
}

/// Something in a model that a network cannot have.
#[derive(Debug)]
pub struct Refusal {
    /// Where.
    pub place: OnnxPlace,
    /// What.
    pub reason: Reason,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// Where in a model something is.
///
/// ```
/// use tiled_onnx::OnnxPlace;
/// let place = OnnxPlace::Node { operator: "Conv".to_owned(), name: "stem".to_owned(), opset: 17 };
/// assert_eq!(place.to_string(), "Conv `stem` (opset 17)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnnxPlace {
    /// A node.
    Node {
        /// Its operator, with the domain where it is not that of ONNX.
        operator: String,
        /// Its name, or that of the first value that it makes.
        name: String,
        /// The version of the operators.
        opset: i64,
    },
    /// An input of the network.
    Input {
        /// Its name.
        name: String,
    },
    /// An output of the network.
    Output {
        /// Its name.
        name: String,
    },
    /// A constant.
    Tensor {
        /// Its name.
        name: String,
    },
}

impl fmt::Display for OnnxPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { operator, name, opset } => write!(f, "{operator} `{name}` (opset {opset})"),
            Self::Input { name } => write!(f, "input `{name}`"),
            Self::Output { name } => write!(f, "output `{name}`"),
            Self::Tensor { name } => write!(f, "tensor `{name}`"),
        }
    }
}

/// Why a place is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// No operator of a network does what this one does.
    #[error("no operator of a network does this")]
    Operator,
    /// The operator is of a quantised network.
    #[error("quantised networks are not read")]
    Quantised,
    /// The operator is not of ONNX.
    #[error("operators of domain `{domain}` are not known")]
    Domain {
        /// The domain.
        domain: String,
    },
    /// The operator is a function that the model defines.
    #[error("functions of the model are not read, inline them first")]
    Function,
    /// An attribute has a value that is not known, or that no operator of a network has.
    #[error("attribute `{name}` is {got}, wants {expected}")]
    Attribute {
        /// The attribute.
        name: &'static str,
        /// What would be read.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// An attribute that the operator does not have.
    #[error("has no attribute `{name}`")]
    UnknownAttribute {
        /// The attribute.
        name: String,
    },
    /// An operand, from zero, is of another kind.
    #[error("input {position} is {got}, wants {expected}")]
    Operand {
        /// Its position.
        position: usize,
        /// What would be read.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// A parameter has another shape than the operator wants.
    #[error("{what} has shape {got:?}, wants {expected:?}")]
    Parameter {
        /// What it is to the operator.
        what: &'static str,
        /// The shape that the operator wants.
        expected: Vec<usize>,
        /// The shape of the constant.
        got: Vec<usize>,
    },
    /// A value that nothing makes.
    #[error("reads `{name}`, which nothing makes")]
    MissingValue {
        /// Its name.
        name: String,
    },
    /// A value that a later node makes, or this one.
    #[error("reads `{name}` before it is made: nodes are out of order or form a cycle")]
    LaterValue {
        /// Its name.
        name: String,
    },
    /// A name that two nodes, inputs or initialisers have.
    #[error("`{name}` is made twice")]
    MadeTwice {
        /// The name.
        name: String,
    },
    /// A second result of a node, which no operator of a network makes.
    #[error("reads `{name}`, output {position} of its node, which no operator of a network makes")]
    Second {
        /// Its name.
        name: String,
        /// Its position, from zero.
        position: usize,
    },
    /// What is computed depends on the size of the image, which the model leaves open.
    #[error("{what} depends on the size of the image, which the model leaves open")]
    OpenSize {
        /// What depends on it.
        what: &'static str,
    },
    /// A constant that is computed of constants has many more elements than they have.
    #[error("makes a constant of {got} elements, at most {expected} are made of its operands")]
    ComputedElements {
        /// As many are made.
        expected: u64,
        /// As many it has.
        got: u64,
    },
    /// Constants that are computed of constants take far more memory than the elements of the model.
    #[error("constants that are computed take {got} bytes, at most {expected} are taken beside this model")]
    ComputedBytes {
        /// The bytes that may be taken.
        expected: u64,
        /// The bytes that they take.
        got: u64,
    },
    /// Computing constants of constants takes far longer than reading the elements of the model.
    #[error("constants of {got} elements in all are computed, at most {expected} are computed of this model")]
    ComputedWork {
        /// As many are computed.
        expected: u64,
        /// As many it would be with this node.
        got: u64,
    },
    /// An input or output that is no batch of images.
    #[error("is {got}, wants {expected}")]
    Value {
        /// What would be read.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// A constant that cannot be read.
    #[error("tensor `{name}`: {problem}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: TensorProblem,
    },
    /// The network refuses the operator.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl From<OutOfMemory> for Reason {
    fn from(refused: OutOfMemory) -> Self {
        Self::Graph(refused.into())
    }
}

/// What is wrong with a constant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorProblem {
    /// Its elements are of a type that is not read.
    #[error("elements of type {got} are not read")]
    Type {
        /// The type, as ONNX names it.
        got: &'static str,
    },
    /// An extent is negative, or there are more elements than 63 bits count.
    #[error("shape {got:?} is not possible")]
    Shape {
        /// The extents.
        got: Vec<i64>,
    },
    /// It has other elements than its shape says.
    #[error("has {got} bytes of elements, its shape wants {expected}")]
    Length {
        /// The bytes that the shape wants.
        expected: u64,
        /// The bytes that there are.
        got: u64,
    },
    /// Its elements lie in another file, and the model was not read from one.
    #[error("lies in the file `{location}`, the model in none")]
    NoFolder {
        /// The file.
        location: String,
    },
    /// A key of where its elements lie is missing or no number.
    #[error("`{key}` of its external data is `{got}`, wants {expected}")]
    External {
        /// The key.
        key: &'static str,
        /// What would be read.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// Its elements lie outside the folder of the model.
    #[error("lies in `{location}`, which is outside the model's folder")]
    Outside {
        /// The file.
        location: String,
    },
    /// The file of its elements ends before they do.
    #[error("lies at {offset} to {end} of `{location}`, which has {len} bytes")]
    Range {
        /// The file.
        location: String,
        /// Where it begins.
        offset: u64,
        /// Where it ends.
        end: u64,
        /// The length of the file.
        len: u64,
    },
    /// The file of its elements cannot be read.
    #[error("`{location}`: {source}")]
    File {
        /// The file.
        location: String,
        /// Why.
        source: io::Error,
    },
    /// Finite elements are infinite in the type of the parameters.
    #[error("{beyond} of {elements} elements are finite and beyond {wanted}")]
    Beyond {
        /// Those that would be infinite.
        beyond: usize,
        /// The elements of the tensor.
        elements: usize,
        /// The type of the parameters, as NumPy names it.
        wanted: &'static str,
    },
    /// Memory is refused.
    #[error("{bytes} bytes could not be had")]
    OutOfMemory {
        /// The bytes that were asked for.
        bytes: u64,
    },
}

impl From<OutOfMemory> for TensorProblem {
    fn from(OutOfMemory { bytes }: OutOfMemory) -> Self {
        Self::OutOfMemory { bytes }
    }
}

/// Refusals on one line, the first few in words.
struct Listed<'a>(&'a [Refusal]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        let Self(refusals) = self;
        if refusals.len() > 1 {
            write!(f, "{} refusals: ", refusals.len())?;
        }
        for (place, refusal) in refusals.iter().take(SHOWN).enumerate() {
            let separator = if place == 0 { "" } else { "; " };
            write!(f, "{separator}{refusal}")?;
        }
        match refusals.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
