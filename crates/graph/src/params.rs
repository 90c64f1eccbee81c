//! The parameters that a network wants: names, shapes, initialisation as in PyTorch.

mod random;
mod set;

pub use random::Rng;
pub use set::{MatchedParams, ParamTensor, Parameters, initialise, is_counter, match_params, wants_tensor};

use tiled_tensor::{OutOfMemory, push, with_room};

use crate::{Graph, GraphError, Node, Place};

/// A parameter of a network.
///
/// ```
/// use tiled_graph::{Graph, ParamKind, params};
/// let graph = Graph::builtin("vgg2").expect("it is built in");
/// let specs = params(&graph);
/// assert_eq!(specs[0].name, "conv1.weight");
/// assert_eq!(specs[0].shape, [64, 3, 3, 3]);
/// assert_eq!(specs[1].kind, ParamKind::Bias);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// `<node>.` and the [`ParamKind::suffix`]: `conv1.weight`.
    pub name: String,
    /// The same of the other nodes that read it, in their order.
    pub other_names: Vec<String>,
    /// The position of the node.
    pub node: usize,
    /// Where an error of this parameter lies.
    pub place: Place,
    /// The role.
    pub kind: ParamKind,
    /// The shape.
    pub shape: Vec<usize>,
    /// The values it starts with.
    pub init: Init,
    /// Where a weight says how many input channels it wants.
    input: Option<InputAxis>,
}

/// The axis of a weight that runs over the input channels of one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InputAxis {
    pub(crate) axis: usize,
    pub(crate) groups: usize,
}

/// A parameter of an operator, before it has a name.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) kind: ParamKind,
    pub(crate) shape: Vec<usize>,
    pub(crate) init: Init,
    /// Where it is a weight: its axis over input channels.
    pub(crate) input: Option<InputAxis>,
}

impl ParamSpec {
    /// All of its names, its own first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.other_names).map(String::as_str)
    }

    /// The number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The role of a parameter.
///
/// ```
/// use tiled_graph::ParamKind;
/// assert!(ParamKind::Weight.is_trained() && !ParamKind::RunningVar.is_trained());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamKind {
    /// `weight`.
    Weight,
    /// `bias`.
    Bias,
    /// `running_mean` of batch normalisation.
    RunningMean,
    /// `running_var` of batch normalisation.
    RunningVar,
    /// `num_batches_tracked` of batch normalisation whose running statistics are means: how many batches they are of. It counts in
    /// the element type of all parameters, so in `f32` to 2²⁴, where it stays: each later batch weighs 2⁻²⁴, half the ε of the type
    /// in which the statistics lie.
    NumBatchesTracked,
}

impl ParamKind {
    /// Whether it has a gradient; running statistics and what counts them have none.
    #[must_use]
    pub const fn is_trained(self) -> bool {
        matches!(self, Self::Weight | Self::Bias)
    }

    /// The role of this [`ParamKind::suffix`].
    pub(crate) fn of_suffix(suffix: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.suffix() == suffix)
    }

    /// All of them, in the order of a node's parameters.
    pub(crate) const ALL: [Self; 5] =
        [Self::Weight, Self::Bias, Self::RunningMean, Self::RunningVar, Self::NumBatchesTracked];

    /// The end of the parameter's name.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Bias => "bias",
            Self::RunningMean => "running_mean",
            Self::RunningVar => "running_var",
            Self::NumBatchesTracked => "num_batches_tracked",
        }
    }
}

/// The values that a parameter starts with.
///
/// ```
/// use tiled_graph::{Graph, Init, params};
/// let specs = params(&Graph::builtin("seed-001").expect("it is built in"));
/// assert_eq!(specs[0].init, Init::Uniform { bound: 1.0 / 3.0 }); // 1/√(1·3·3)
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Independent and uniform in `[−bound, bound)`.
    Uniform {
        /// The bound.
        bound: f64,
    },
    /// The same value everywhere.
    Constant(f64),
}

/// The same as [`try_params`], for networks whose lists are sure to find room.
///
/// ```
/// use tiled_graph::{Graph, params};
/// let specs = params(&Graph::builtin("vgg2").expect("it is built in"));
/// assert_eq!(specs[0].name, "conv1.weight");
/// ```
///
/// # Panics
/// Where memory is refused.
#[must_use]
pub fn params(graph: &Graph) -> Vec<ParamSpec> {
    try_params(graph).unwrap_or_else(|error| panic!("{error}"))
}

/// The parameters of a network, each once however many nodes read it: nodes in order, and for each weight, bias, running mean, running variance, number of batches.
///
/// | operator | weight | bias | initialisation |
/// |---|---|---|---|
/// | `conv2d` | `[O, I/G, kh, kw]` | `[O]` | uniform, bound `1/√(I/G·kh·kw)` |
/// | `conv_transpose2d` | `[I, O/G, kh, kw]` | `[O]` | uniform, bound `1/√(O/G·kh·kw)` |
/// | `linear` | `[O, I]` | `[O]` | uniform, bound `1/√I` |
/// | `batch_norm` | `[C]` | `[C]` | ones and zeros; running mean zeros, running variance ones, both `[C]` |
///
/// A batch norm that keeps no running statistics has none of these; one without momentum has a number of batches, `[]`, from zero.
///
/// The bounds are those of PyTorch: `kaiming_uniform_(a=√5)` with its fan-in, for weights and biases alike
/// (He, Zhang, Ren, Sun, "Delving deep into rectifiers", 2015).
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// use tiled_graph::{Graph, try_params};
/// let specs = try_params(&Graph::builtin("vgg2").expect("it is built in"))?;
/// assert_eq!(specs.iter().map(|spec| spec.elements()).sum::<usize>(), 260_160);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
pub fn try_params(graph: &Graph) -> Result<Vec<ParamSpec>, GraphError> {
    let mut specs = Vec::new();
    for (position, node) in graph.nodes().iter().enumerate() {
        for Own { kind, shape, init, input } in of_node(graph, node) {
            let name = format!("{}.{}", node.name, kind.suffix());
            let owner = graph.owner(position, kind);
            // that of an earlier node, where it has been listed
            let first = specs.partition_point(|spec: &ParamSpec| spec.node < owner);
            let mut owned = specs[first..].iter_mut().take_while(|spec| spec.node == owner);
            if let Some(shared) = owned.find(|spec| spec.kind == kind) {
                push(&mut shared.other_names, name)?;
                continue;
            }
            let spec = ParamSpec {
                name,
                other_names: Vec::new(),
                node: position,
                place: node.place(),
                kind,
                shape,
                init,
                input,
            };
            push(&mut specs, spec)?;
        }
    }
    Ok(specs)
}

/// A parameter as a node reads it: its own, or that of a node before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The position of the node.
    pub(crate) node: usize,
    /// What the parameter is to it.
    pub(crate) kind: ParamKind,
    /// The place of the parameter in the list of all.
    pub(crate) param: usize,
}

/// The parameters that each node reads, in the order of [`try_params`], whose list of this network is `specs`.
pub(crate) fn readings(graph: &Graph, specs: &[ParamSpec]) -> Result<Vec<Reading>, OutOfMemory> {
    // where the parameters of each node begin
    let mut begins = with_room(graph.nodes().len())?;
    let mut readings = with_room(specs.len())?;
    let mut begin = 0;
    for (node, described) in graph.nodes().iter().enumerate() {
        begins.push(begin);
        begin += specs[begin..].iter().take_while(|spec| spec.node == node).count();
        for Own { kind, .. } in of_node(graph, described) {
            let first = begins[graph.owner(node, kind)];
            let found = specs[first..].iter().position(|spec| spec.kind == kind);
            let offset = found.expect("invariant: a parameter is listed with the node that it belongs to");
            push(&mut readings, Reading { node, kind, param: first + offset })?;
        }
    }
    Ok(readings)
}

/// The parameters of a node, whose operands are in the graph.
pub(crate) fn of_node(graph: &Graph, node: &Node) -> Vec<Own> {
    node.op.operator().params(graph.channels(node.inputs[0]))
}

/// A weight and a bias of this length, if any. PyTorch's fan-in is all dimensions but the first, for transposed convolutions too.
pub(crate) fn weight_and_bias(weight: Vec<usize>, input: InputAxis, bias: Option<usize>) -> Vec<Own> {
    let init = uniform(weight[1..].iter().product());
    let weight = Own { kind: ParamKind::Weight, shape: weight, init, input: Some(input) };
    let bias = bias.map(|len| Own { kind: ParamKind::Bias, shape: vec![len], init, input: None });
    std::iter::once(weight).chain(bias).collect()
}

#[expect(clippy::cast_precision_loss, reason = "fan-in is far below 2^53")]
fn uniform(fan_in: usize) -> Init {
    Init::Uniform { bound: 1.0 / (fan_in as f64).sqrt() }
}
