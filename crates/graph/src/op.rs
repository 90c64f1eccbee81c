//! Operators as they stand in a network: named and defaulted as in PyTorch.
//!
//! Each has a file with all that this crate knows of it: attributes, network format, checks, shapes, parameters, lowering and
//! gradient, in this order.

mod activation;
mod batch_norm;
mod concat;
mod conv2d;
mod conv_transpose2d;
mod dropout;
mod elementwise;
mod global_pool;
mod linear;
mod pool2d;
mod upsample;
mod windowed;

pub use batch_norm::BatchNorm;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv2d::{Conv2d, PaddingMode};
pub use dropout::Dropout;
pub use linear::Linear;
pub use pool2d::{AvgPool2d, MaxPool2d};
pub use upsample::{Upsample, UpsampleMode, UpsampleTo};

use tiled_kernel::Activation;

use crate::format::{Fields, Find, Value};
use crate::lower::{Lowering, Site};
use crate::params::Own;
use crate::program::NodeId;
use crate::{Arity, Graph, GraphError, Place, PlanError, Shapes, ValueId};
use concat::Concat;
use elementwise::Elementwise;
use global_pool::GlobalPool;

/// An operator with its attributes. Pairs are height, then width.
///
/// ```
/// use tiled_graph::{Arity, Linear, Op};
/// assert_eq!(Op::Linear(Linear::new(10)).name(), "linear");
/// assert_eq!(Op::Concat.arity(), Arity::AtLeast(2));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Op {
    /// `conv2d`.
    Conv2d(Conv2d),
    /// `conv_transpose2d`.
    ConvTranspose2d(ConvTranspose2d),
    /// `max_pool2d`.
    MaxPool2d(MaxPool2d),
    /// `avg_pool2d`.
    AvgPool2d(AvgPool2d),
    /// `batch_norm`.
    BatchNorm(BatchNorm),
    /// `relu`, `leaky_relu`, `sigmoid`, `tanh`, `silu`, `gelu`.
    Activation(Activation),
    /// `add` of two or more values of the same shape.
    Add,
    /// `mul` of two or more values of the same shape.
    Mul,
    /// `concat` of two or more values along the channels.
    Concat,
    /// `upsample`.
    Upsample(Upsample),
    /// `global_avg_pool`: mean over the image, N×C×1×1.
    GlobalAvgPool,
    /// `global_max_pool`: maximum over the image, N×C×1×1.
    GlobalMaxPool,
    /// `linear` over the channels of a value of one pixel.
    Linear(Linear),
    /// `dropout`: identity in evaluation.
    Dropout(Dropout),
}

impl Op {
    /// The name, as in the network format.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.operator().format().name
    }

    /// How many operands it takes.
    #[must_use]
    pub fn arity(&self) -> Arity {
        self.operator().format().arity
    }

    pub(crate) const fn operator(&self) -> &dyn Operator {
        match self {
            Self::Conv2d(conv) => conv,
            Self::ConvTranspose2d(conv) => conv,
            Self::MaxPool2d(pool) => pool,
            Self::AvgPool2d(pool) => pool,
            Self::BatchNorm(norm) => norm,
            Self::Activation(activation) => activation,
            Self::Add => &Elementwise::Add,
            Self::Mul => &Elementwise::Mul,
            Self::Concat => &Concat,
            Self::Upsample(upsample) => upsample,
            Self::GlobalAvgPool => &GlobalPool::Mean,
            Self::GlobalMaxPool => &GlobalPool::Max,
            Self::Linear(linear) => linear,
            Self::Dropout(dropout) => dropout,
        }
    }
}

/// What this crate asks of an operator. No method has a default, so that one which forgets an answer does not compile.
pub(crate) trait Operator {
    /// What the network format says of it.
    fn format(&self) -> &'static Format;

    /// The attributes as [`Format::read`] takes them: an object, or null where there are none.
    fn write(&self, graph: &Graph) -> Value;

    /// Checks what must hold whatever the size of the image; returns the channels of the output.
    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError>;

    /// The height and width of the output; those of the operands are known, and each within [`crate::MAX_EXTENT`].
    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError>;

    /// The parameters over so many input channels.
    fn params(&self, channels: usize) -> Vec<Own>;

    /// Adds the nodes that compute it, and records how its gradient flows ([`Lowering::record`]); returns the node of the output.
    fn lower(&self, lowering: &mut Lowering<'_>, site: &Site<'_>) -> Result<NodeId, PlanError>;
}

/// An operator in the network format.
#[derive(Debug)]
pub(crate) struct Format {
    /// The name.
    pub(crate) name: &'static str,
    /// How many operands it takes.
    pub(crate) arity: Arity,
    /// The keys beyond those of every node.
    pub(crate) keys: &'static [&'static str],
    /// Reads the attributes, with PyTorch's defaults for those that are not there.
    pub(crate) read: fn(&Fields<'_>, Find<'_>) -> Result<Op, GraphError>,
}

/// All operators of the network format.
pub(crate) static FORMATS: [&Format; 21] = [
    &conv2d::FORMAT,
    &conv_transpose2d::FORMAT,
    &pool2d::MAX,
    &pool2d::AVG,
    &batch_norm::FORMAT,
    &activation::RELU,
    &activation::LEAKY_RELU,
    &activation::SIGMOID,
    &activation::TANH,
    &activation::SILU,
    &activation::GELU,
    &elementwise::ADD,
    &elementwise::MUL,
    &concat::FORMAT,
    &upsample::FORMAT,
    &global_pool::AVG,
    &global_pool::MAX,
    &linear::FORMAT,
    &dropout::FORMAT,
    &global_pool::ADAPTIVE_AVG,
    &global_pool::ADAPTIVE_MAX,
];

/// An operator over values of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Applied<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) operands: &'a [ValueId],
    /// Where an error lies.
    pub(crate) place: Place,
}

impl Applied<'_> {
    /// The channels of the first operand.
    pub(crate) fn channels(&self) -> usize {
        self.graph.channels(self.operands[0])
    }
}
