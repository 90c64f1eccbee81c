//! The parameters that a network wants: names, shapes, initialisation as in PyTorch.

pub(crate) mod own;
mod random;
mod set;

pub use own::{Init, ParamKind};
pub use random::Rng;
pub use set::{MatchedParams, ParamTensor, Parameters, initialise, is_counter, match_params, wants_tensor};

use tiled_tensor::{OutOfMemory, push, with_room};

use crate::error::{GraphError, Place};
use crate::graph::Graph;
use crate::index::Id;
use crate::program::ParamId;
use own::{InputAxis, Own};

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
/// | norms | `[C]` | `[C]` | ones and zeros; running mean zeros, running variance ones, both `[C]` |
///
/// A norm that keeps no running statistics has none of these; one without momentum has a number of batches, `[]`, from zero.
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
        for Own { kind, shape, init, input } in graph.params_of(node) {
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
    /// The parameter in the list of all.
    pub(crate) param: ParamId,
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
        for Own { kind, .. } in graph.params_of(described) {
            let first = begins[graph.owner(node, kind)];
            let found = specs[first..].iter().position(|spec| spec.kind == kind);
            let offset = found.expect("invariant: a parameter is listed with the node that it belongs to");
            push(&mut readings, Reading { node, kind, param: ParamId::new(first + offset) })?;
        }
    }
    Ok(readings)
}
