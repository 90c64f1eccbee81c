//! What can be wrong with a network, its sizes, its parameters or its file.

mod place;

use tiled_geometry::GeometryError;
use tiled_tensor::OutOfMemory;

pub use place::{Arity, Axis, Extent, Place};

/// A network that cannot be built, sized, filled with parameters or read from its file.
///
/// Fields hold what was expected and what was found; the message names the layer:
///
/// ```
/// use tiled_graph::{Graph, Linear, Op, infer};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 512)?;
/// let fc = graph.add_node("fc", Op::Linear(Linear::new(1000)), &[x])?;
/// graph.set_outputs(&[fc])?;
/// let error = infer(&graph, 1, &[[7, 7]]).expect_err("49 pixels");
/// assert_eq!(error.to_string(), "linear `fc`: input has 7×7 pixels, wants 1×1");
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Memory is refused.
    #[error("{what}: {bytes} bytes could not be had")]
    OutOfMemory {
        /// What it was for.
        what: String,
        /// The bytes that were asked for.
        bytes: u64,
    },
    /// Two nodes, or a node and an input, share a name.
    #[error("the name `{name}` is used twice")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A name is empty, or a part of it before, after or between dots is.
    #[error("the name `{name}` must not be empty, nor begin or end with `.`, nor have `..`")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// A node or an input has a name that a parameter has too, so that the name could be read in two ways.
    #[error("{place}: its name is that of the parameter `{what}` of {owner}")]
    NameOfParameter {
        /// The node or input.
        place: Place,
        /// The end of the parameter's name.
        what: &'static str,
        /// The node that reads the parameter.
        owner: Place,
    },
    /// An input is added behind a node.
    #[error("input `{name}` is added after a node, inputs come first")]
    InputAfterNode {
        /// The name.
        name: String,
    },
    /// A value is not of this graph.
    #[error("{place}: value {got} does not exist, the graph has {values} values")]
    UnknownValue {
        /// Where it is used.
        place: Place,
        /// The number of the value.
        got: usize,
        /// How many values there are.
        values: usize,
    },
    /// A network without outputs.
    #[error("network has no outputs")]
    NoOutputs,
    /// A value is named as an output twice.
    #[error("the output `{name}` is named twice")]
    DuplicateOutput {
        /// The name.
        name: String,
    },
    /// An operator has too few or too many operands.
    #[error("{place}: has {got} inputs, wants {expected}")]
    Arity {
        /// The node.
        place: Place,
        /// How many it takes.
        expected: Arity,
        /// How many it was given.
        got: usize,
    },
    /// An attribute is outside its range.
    #[error("{place}: {key} is {got}, must be {expected}")]
    OutOfRange {
        /// The node or input.
        place: Place,
        /// The attribute.
        key: &'static str,
        /// The range.
        expected: &'static str,
        /// The value.
        got: String,
    },
    /// A window, a resampling or a padding has no meaning.
    #[error("{place}: {reason}")]
    Geometry {
        /// The node.
        place: Place,
        /// What is wrong.
        reason: GeometryError,
    },
    /// Channels do not divide into groups.
    #[error("{place}: {channels} {which} channels do not divide into {groups} groups")]
    Groups {
        /// The node.
        place: Place,
        /// `input` or `output`.
        which: &'static str,
        /// The channels.
        channels: usize,
        /// The groups.
        groups: usize,
    },
    /// Channels do not become pixels of blocks of these factors.
    #[error("{place}: {channels} input channels do not divide by {}×{}", factor[0], factor[1])]
    ShuffledChannels {
        /// The node.
        place: Place,
        /// The channels.
        channels: usize,
        /// The factors of height and of width.
        factor: [i64; 2],
    },
    /// An image does not divide into blocks.
    #[error("{place}: input {axis} {extent} does not divide by {factor}")]
    Indivisible {
        /// The node.
        place: Place,
        /// The axis.
        axis: Axis,
        /// The extent of the input.
        extent: i64,
        /// What should divide it.
        factor: i64,
    },
    /// A slice has no channels, or some that there are not.
    #[error(
        "{place}: channels {begin} to {} are no part of the {channels} of the input",
        end.map_or("the end".to_owned(), |end| end.to_string())
    )]
    ChannelRange {
        /// The node.
        place: Place,
        /// The first channel, counted from the end where it is below zero.
        begin: i64,
        /// The channel behind the last, alike; `None` of the end.
        end: Option<i64>,
        /// The channels of the input.
        channels: usize,
    },
    /// A split has fewer parts.
    #[error("{place}: index {index} is none of the {parts} parts")]
    NoSuchPart {
        /// The node.
        place: Place,
        /// The part that is wanted, from zero.
        index: usize,
        /// How many there are.
        parts: usize,
    },
    /// A crop leaves nothing of the image.
    #[error("{place}: {removed} are removed of input {axis} {extent}")]
    CroppedAway {
        /// The node.
        place: Place,
        /// The axis.
        axis: Axis,
        /// The extent of the input.
        extent: i64,
        /// Rows or columns that are removed on both sides.
        removed: i64,
    },
    /// A gradient is wanted of what an operator without one reads.
    #[error("{place}: has no gradient, and one is wanted of what it reads")]
    NoGradient {
        /// The node.
        place: Place,
    },
    /// The padding of a pooling is more than half its kernel.
    #[error("{place}: padding of {padding} is more than half of kernel size {kernel}")]
    PoolPadding {
        /// The node.
        place: Place,
        /// The padding of one side.
        padding: i64,
        /// The kernel extent.
        kernel: i64,
    },
    /// The output padding of a transposed convolution is not below its stride or its dilation.
    #[error(
        "{place}: output_padding of {output_padding} must be smaller than stride {stride} or dilation {dilation}"
    )]
    OutputPadding {
        /// The node.
        place: Place,
        /// The output padding.
        output_padding: i64,
        /// The stride.
        stride: i64,
        /// The dilation.
        dilation: i64,
    },
    /// Padding "same" of a convolution that skips pixels.
    #[error("{place}: padding \"same\" wants stride 1, got {stride}")]
    SameNeedsStrideOne {
        /// The node.
        place: Place,
        /// The stride.
        stride: i64,
    },
    /// Operands of elementwise arithmetic have different channels, none of them one.
    #[error("{place}: `{first}` has {expected} channels, `{other}` has {got}")]
    OperandChannels {
        /// The node.
        place: Place,
        /// The first operand.
        first: Box<str>,
        /// Its channels.
        expected: usize,
        /// The operand that differs.
        other: Box<str>,
        /// Its channels.
        got: usize,
    },
    /// Operands have different extents.
    #[error(
        "{place}: `{first}` is {}×{} pixels, `{other}` is {}×{}",
        expected[0], expected[1], got[0], got[1]
    )]
    OperandExtents {
        /// The node.
        place: Place,
        /// The first operand.
        first: Box<str>,
        /// Its height and width.
        expected: [usize; 2],
        /// The operand that differs.
        other: Box<str>,
        /// Its height and width.
        got: [usize; 2],
    },
    /// A weight, or an attribute that repeats the number of input channels, wants another number of channels.
    #[error("{place}: input has {got} channels, {what} wants {expected}")]
    Channels {
        /// The node.
        place: Place,
        /// What wants them: `weight`, `in_channels`, `network` …
        what: &'static str,
        /// The channels wanted.
        expected: usize,
        /// The channels of the input.
        got: usize,
    },
    /// A network was given too few or too many input sizes.
    #[error("network has {expected} inputs, sizes were given for {got}")]
    InputCount {
        /// The inputs of the network.
        expected: usize,
        /// The sizes given.
        got: usize,
    },
    /// Inputs of a network have different batch sizes.
    #[error("input `{name}`: batch size is {got}, the first input has {expected}")]
    BatchMismatch {
        /// The input.
        name: String,
        /// The batch size of the first input.
        expected: usize,
        /// The batch size of this one.
        got: usize,
    },
    /// A kernel, counted with its dilation, does not fit into the padded input.
    #[error("{place}: kernel {axis} {kernel} is larger than padded input {axis} {padded}")]
    KernelTooLarge {
        /// The node.
        place: Place,
        /// The axis.
        axis: Axis,
        /// `dilation·(kernel − 1) + 1`.
        kernel: i64,
        /// The extent of the input with its padding.
        padded: i64,
    },
    /// A window of a dilated max pooling has all its taps in the padding.
    #[error("{place}: a window of dilation {dilation} has no tap in the input of {axis} {extent}")]
    EmptyWindow {
        /// The node.
        place: Place,
        /// The axis.
        axis: Axis,
        /// The dilation.
        dilation: i64,
        /// The extent of the input.
        extent: i64,
    },
    /// A transposed convolution removes more than it makes.
    #[error("{place}: output {axis} would be {got}, must be at least 1")]
    EmptyOutput {
        /// The node.
        place: Place,
        /// The axis.
        axis: Axis,
        /// The extent by the formula.
        got: i64,
    },
    /// An extent is larger than coordinates reach.
    #[error("{place}: {axis} is {got}, must be at most {max}")]
    ExtentTooLarge {
        /// The node or input.
        place: Place,
        /// The axis.
        axis: Axis,
        /// The extent.
        got: Extent,
        /// The largest extent.
        max: i64,
    },
    /// A tensor has more elements than memory can address.
    #[error(
        "{place}: {}×{}×{}×{} elements are more than {max}",
        shape[0], shape[1], shape[2], shape[3]
    )]
    TooManyElements {
        /// The node or input.
        place: Place,
        /// Batch, channels, height, width.
        shape: [usize; 4],
        /// The largest number of elements.
        max: usize,
    },
    /// A weight has more elements than any machine holds.
    #[error("{place}: a weight of {}×{}×{}×{} has more than {max} elements", shape[0], shape[1], shape[2], shape[3])]
    WeightTooLarge {
        /// The node.
        place: Place,
        /// The weight's shape: outputs, inputs of a group, height and width of the kernel; of a transposed convolution inputs first.
        shape: [usize; 4],
        /// The largest number of elements.
        max: usize,
    },
    /// A linear layer is given an image.
    #[error("{place}: input has {}×{} pixels, wants 1×1", got[0], got[1])]
    NotOnePixel {
        /// The node.
        place: Place,
        /// Height and width.
        got: [usize; 2],
    },
    /// A linear layer is given an image of another size than its weight was made for.
    #[error(
        "{place}: input has {}×{}×{} features, in_features wants {expected}",
        got[0], got[1], got[2]
    )]
    Features {
        /// The node.
        place: Place,
        /// The features wanted.
        expected: usize,
        /// Channels, height and width.
        got: [usize; 3],
    },
    /// A parameter was not given.
    #[error("{place}: parameter `{name}` of shape {expected:?} is missing")]
    MissingParameter {
        /// The node.
        place: Place,
        /// The name of the parameter.
        name: String,
        /// Its shape.
        expected: Vec<usize>,
    },
    /// A parameter has another shape.
    #[error("{place}: parameter `{name}` has shape {got:?}, wants {expected:?}")]
    ParameterShape {
        /// The node.
        place: Place,
        /// The name of the parameter.
        name: Box<str>,
        /// The shape of the network.
        expected: Vec<usize>,
        /// The shape given.
        got: Vec<usize>,
    },
    /// A node is to share a parameter that its operator does not have.
    #[error("{place}: has no parameter `{key}`")]
    NoSuchParameter {
        /// The node.
        place: Place,
        /// The parameter.
        key: &'static str,
    },
    /// A node is to share a parameter that no node before it has.
    #[error("{place}: `{key}` names `{name}`, no node before it has that parameter{}", hint(.nearest))]
    UnknownShared {
        /// The node.
        place: Place,
        /// Which of its parameters.
        key: &'static str,
        /// The name given.
        name: String,
        /// The names of parameters that are closest.
        nearest: Vec<String>,
    },
    /// A node is to share a parameter of another kind.
    #[error("{place}: `{key}` names `{name}`, wants a `{key}`")]
    SharedKind {
        /// The node.
        place: Place,
        /// Which of its parameters.
        key: &'static str,
        /// The name given.
        name: String,
    },
    /// A node is to share a parameter of another shape.
    #[error("{place}: `{key}` has shape {got:?}, the shared `{name}` has {expected:?}")]
    SharedShape {
        /// The node.
        place: Place,
        /// Which of its parameters.
        key: &'static str,
        /// The shape that the node wants.
        got: Box<[usize]>,
        /// The parameter that it names.
        name: Box<str>,
        /// The shape of that.
        expected: Box<[usize]>,
    },
    /// The data of a parameter are not as long as its shape says.
    #[error("parameter `{name}` of shape {shape:?} has {got} elements, wants {expected}")]
    ParameterLength {
        /// The name of the parameter.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The elements of that shape.
        expected: Extent,
        /// The elements given.
        got: usize,
    },
    /// A parameter is not of this network.
    #[error("parameter `{name}` of shape {got:?} is not of this network{}", hint(.nearest))]
    UnknownParameter {
        /// The name given.
        name: String,
        /// The shape given.
        got: Vec<usize>,
        /// The names of the network that are closest.
        nearest: Vec<String>,
    },
    /// A parameter that several nodes read was given under the names of two of them, with different elements.
    #[error("parameters `{name}` and `{other}` are one in this network, but differ at element {index}")]
    SharedElements {
        /// One of the names given.
        name: Box<str>,
        /// The other.
        other: Box<str>,
        /// The first element, in row-major order, whose bits differ.
        index: usize,
    },
    /// The parameters are those of a network that lists them otherwise.
    #[error("parameter `{name}` does not stand where this network has it")]
    ParameterPlace {
        /// The first that stands elsewhere.
        name: String,
    },
    /// A parameter was given twice.
    #[error("parameter `{name}` is given twice")]
    DuplicateParameter {
        /// The name.
        name: String,
    },
    /// A file is not JSON.
    #[error("line {line}, column {column}: {reason}")]
    Syntax {
        /// The line, from one.
        line: usize,
        /// The column, from one.
        column: usize,
        /// What the parser found.
        reason: String,
    },
    /// A file names an operator that does not exist.
    #[error("node `{node}`: unknown operator `{op}`{}", hint(.nearest))]
    UnknownOperator {
        /// The node.
        node: String,
        /// The operator.
        op: String,
        /// The operators that are closest.
        nearest: Vec<String>,
    },
    /// A file names an operator of PyTorch that cannot be tiled.
    #[error("{place} cannot be tiled: {reason}")]
    CannotTile {
        /// The node.
        place: Place,
        /// Why not.
        reason: &'static str,
    },
    /// A key of a file is not known there.
    #[error("{place}: unknown key `{key}`{}", hint(.nearest))]
    UnknownKey {
        /// Where it stands.
        place: Place,
        /// The key.
        key: String,
        /// The keys that are closest.
        nearest: Vec<String>,
    },
    /// A key stands twice in one object.
    #[error("{place}: key `{key}` stands twice")]
    DuplicateKey {
        /// Where it stands.
        place: Place,
        /// The key.
        key: String,
    },
    /// A key that must be there is not.
    #[error("{place}: key `{key}` is missing")]
    MissingKey {
        /// Where it should stand.
        place: Place,
        /// The key.
        key: &'static str,
    },
    /// Of keys that exclude each other there is none, or more than one.
    #[error("{place}: wants exactly one of the keys {}, got {}", quoted(.keys), if got.is_empty() { "none".to_owned() } else { quoted(.got) })]
    ExclusiveKeys {
        /// Where they stand.
        place: Place,
        /// The keys that exclude each other.
        keys: Vec<String>,
        /// Those that stand there.
        got: Vec<String>,
    },
    /// The value of a key has the wrong type or is not one of those allowed.
    #[error("{place}: `{key}` wants {expected}, got {got}")]
    WrongValue {
        /// Where it stands.
        place: Place,
        /// The key.
        key: String,
        /// What is accepted.
        expected: &'static str,
        /// The value, as JSON.
        got: String,
    },
    /// An operand is not defined anywhere.
    #[error("{place}: unknown input `{name}`{}", hint(.nearest))]
    UnknownInput {
        /// The node, or the network for an output.
        place: Place,
        /// The operand.
        name: String,
        /// The names that are closest.
        nearest: Vec<String>,
    },
    /// An operand is defined by the node itself or by one after it.
    #[error("{place}: input `{name}` is defined later, a node must stand after its inputs")]
    UsedBeforeDefined {
        /// The node.
        place: Place,
        /// The operand.
        name: String,
    },
    /// An output is not the name of an input or a node.
    #[error("network: unknown output `{name}`{}", hint(.nearest))]
    UnknownOutput {
        /// The name.
        name: String,
        /// The names that are closest.
        nearest: Vec<String>,
    },
}

impl From<OutOfMemory> for GraphError {
    /// A list of a network, of its shapes or of its parameters that is refused.
    fn from(OutOfMemory { bytes }: OutOfMemory) -> Self {
        Self::OutOfMemory { what: "the network".to_owned(), bytes }
    }
}

fn hint(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(", nearest known: {}", quoted(names)) }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
