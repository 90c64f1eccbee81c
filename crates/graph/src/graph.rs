//! A network: a directed acyclic graph of operators.

mod names;
mod share;

use tiled_tensor::{copied, filled, grow, make_room};

use self::names::NameIndex;

use crate::error::{GraphError, Place};
use crate::index::ValueId;
use crate::op::Op;
use crate::op::check::count;
use crate::op::operator::{Applied, Values};
use crate::params::own::{Own, ParamKind};

/// An input of a network.
///
/// ```
/// use tiled_graph::Graph;
/// let mut graph = Graph::new();
/// graph.add_input("x", 3)?;
/// assert_eq!(graph.inputs()[0].channels, 3);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The name.
    pub name: String,
    /// The number of channels.
    pub channels: usize,
}

/// An operator applied to values that stand before it.
///
/// ```
/// use tiled_graph::{Activation, Graph, Op};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 3)?;
/// graph.add_node("r", Op::Activation(Activation::Relu), &[x])?;
/// assert_eq!(graph.nodes()[0].inputs, [x]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The name.
    pub name: String,
    /// The operator.
    pub op: Op,
    /// Its operands.
    pub inputs: Vec<ValueId>,
    /// The parameters that it reads in place of its own.
    pub shared: Vec<Shared>,
}

/// A parameter that a node reads in place of one of its own.
///
/// ```
/// use tiled_graph::{Conv2d, Graph, Op, ParamKind, Shared, params};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 3)?;
/// let conv = Op::Conv2d(Conv2d::new(3, [3, 3]));
/// let a = graph.add_node("a", conv.clone(), &[x])?;
/// graph.add_node_sharing("b", conv, &[a], &[(ParamKind::Weight, "a.weight")])?;
/// assert_eq!(graph.nodes()[1].shared, [Shared { kind: ParamKind::Weight, node: 0 }]);
/// let names: Vec<String> = params(&graph).into_iter().map(|spec| spec.name).collect();
/// assert_eq!(names, ["a.weight", "a.bias", "b.bias"]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// What it is to both nodes.
    pub kind: ParamKind,
    /// The position of the node that it belongs to, which stands before.
    pub node: usize,
}

impl Node {
    /// Where an error of this node lies.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::Node { op: self.op.name().into(), name: self.name.as_str().into() }
    }
}

/// A network. Nodes stand in topological order; every operand precedes its use.
///
/// Names are unique among inputs, nodes and their parameters together, and channels are known and checked from the start;
/// extents are given to [`crate::infer`].
///
/// ```
/// use tiled_graph::{Activation, Conv2d, Graph, Op};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 3)?;
/// let c = graph.add_node("c1", Op::Conv2d(Conv2d::new(16, [3, 3]).padded([1, 1])), &[x])?;
/// let r = graph.add_node("r1", Op::Activation(Activation::Relu), &[c])?;
/// graph.set_outputs(&[r])?;
/// assert_eq!(graph.channels(r), 16);
/// assert_eq!(graph.value("c1"), Some(c));
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Graph {
    inputs: Vec<Input>,
    nodes: Vec<Node>,
    outputs: Vec<ValueId>,
    node_channels: Vec<usize>,
    names: NameIndex,
}

impl Graph {
    /// A network without inputs, nodes and outputs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for so many nodes more, so that a long network does not grow by copies of itself.
    ///
    /// # Errors
    /// Where memory is refused.
    ///
    /// ```
    /// let mut graph = tiled_graph::Graph::new();
    /// graph.reserve(1000)?;
    /// assert_eq!(graph.values(), 0);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn reserve(&mut self, nodes: usize) -> Result<(), GraphError> {
        make_room(&mut self.nodes, nodes)?;
        make_room(&mut self.node_channels, nodes)?;
        Ok(self.names.reserve(nodes)?)
    }

    /// Adds an input. Inputs come before nodes, so that a value keeps its number.
    ///
    /// # Errors
    /// Where the name is empty, has empty parts between its dots or is taken, there are no channels, there is a node already, or
    /// memory is refused.
    ///
    /// ```
    /// use tiled_graph::Graph;
    /// let mut graph = Graph::new();
    /// graph.add_input("x", 3)?;
    /// assert!(graph.add_input("x", 3).is_err(), "the name is taken");
    /// assert_eq!(graph.inputs().len(), 1);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn add_input(&mut self, name: &str, channels: usize) -> Result<ValueId, GraphError> {
        self.check_name(name)?;
        let place = Place::Input { name: name.into() };
        if !self.nodes.is_empty() {
            return Err(GraphError::InputAfterNode { name: name.to_owned() });
        }
        count(&place, "channels", channels)?;
        grow(&mut self.inputs, 1)?;
        self.names.reserve(1)?;
        self.inputs.push(Input { name: name.to_owned(), channels });
        Ok(self.name_last(name))
    }

    /// Adds an operator over values that stand before it.
    ///
    /// # Errors
    /// Where the name is empty, has empty parts between its dots, is taken or would be that of a parameter, as those of the
    /// node's own parameters would be names of nodes; an attribute has no meaning; the operands are too few, too many or not
    /// of this graph; their channels do not fit; or memory is refused. The network is then as before.
    ///
    /// ```
    /// use tiled_graph::{Graph, Linear, Op};
    /// let mut graph = Graph::new();
    /// let x = graph.add_input("x", 512)?;
    /// let fc = graph.add_node("fc", Op::Linear(Linear::new(10)), &[x])?;
    /// assert_eq!((graph.channels(fc), graph.operands(fc)), (10, [x].as_slice()));
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn add_node(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        self.add_node_sharing(name, op, inputs, &[])
    }

    /// Adds an operator that reads parameters of nodes before it in place of its own, each by its name: `conv1.weight`.
    ///
    /// Such a parameter stands once in a file of weights, under that name. Its gradient is the sum of those of the nodes that read
    /// it, in their order, and an optimiser moves it once.
    ///
    /// # Errors
    /// As [`Graph::add_node`], and where the operator has no such parameter, no node before has one of that name, it is of another
    /// kind or shape, or memory is refused.
    ///
    /// ```
    /// use tiled_graph::{Graph, Linear, Op, ParamKind};
    /// let mut graph = Graph::new();
    /// let x = graph.add_input("x", 4)?;
    /// let linear = Op::Linear(Linear::new(4));
    /// let a = graph.add_node("a", linear.clone(), &[x])?;
    /// let error = graph.add_node_sharing("b", linear, &[a], &[(ParamKind::Weight, "c.weight")]).unwrap_err();
    /// assert!(error.to_string().starts_with("linear `b`:"), "{error}");
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn add_node_sharing(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[ValueId],
        shared: &[(ParamKind, &str)],
    ) -> Result<ValueId, GraphError> {
        self.check_name(name)?;
        let mut node = Node { name: name.to_owned(), op, inputs: copied(inputs)?, shared: Vec::new() };
        let channels = self.check_node(&node)?;
        self.check_parameter_names(&node)?;
        node.shared = self.resolved(&node, shared)?;
        grow(&mut self.nodes, 1)?;
        grow(&mut self.node_channels, 1)?;
        self.names.reserve(1)?;
        self.nodes.push(node);
        self.node_channels.push(channels);
        Ok(self.name_last(name))
    }

    /// Sets the outputs.
    ///
    /// # Errors
    /// Where there are none, one is named twice, one is not of this graph, or memory is refused.
    ///
    /// ```
    /// use tiled_graph::{Activation, Graph, Op};
    /// let mut graph = Graph::new();
    /// let x = graph.add_input("x", 3)?;
    /// let r = graph.add_node("r", Op::Activation(Activation::Relu), &[x])?;
    /// graph.set_outputs(&[r])?;
    /// assert!(graph.set_outputs(&[r, r]).is_err());
    /// assert_eq!(graph.outputs(), [r]);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn set_outputs(&mut self, outputs: &[ValueId]) -> Result<(), GraphError> {
        if outputs.is_empty() {
            return Err(GraphError::NoOutputs);
        }
        let mut is_output = filled(self.values(), false)?;
        for (position, output) in outputs.iter().enumerate() {
            self.check(&Place::Entry { list: "outputs", index: position }, *output)?;
            if std::mem::replace(&mut is_output[output.0], true) {
                return Err(GraphError::DuplicateOutput { name: self.name(*output).to_owned() });
            }
        }
        self.outputs = copied(outputs)?;
        Ok(())
    }

    /// The inputs.
    #[must_use]
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The nodes in topological order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The outputs.
    #[must_use]
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// The number of values: inputs and nodes.
    #[must_use]
    pub fn values(&self) -> usize {
        self.inputs.len() + self.nodes.len()
    }

    /// The value of this name.
    ///
    /// ```
    /// use tiled_graph::{Graph, ValueId};
    /// let graph = Graph::builtin("vgg2").expect("it is built in");
    /// assert_eq!((graph.value("x"), graph.value("conv1"), graph.value("y")), (Some(ValueId(0)), Some(ValueId(1)), None));
    /// ```
    #[must_use]
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.names.find(name, |value| self.name(value) == name)
    }

    /// The value that the node at this position makes.
    #[must_use]
    pub fn node_value(&self, position: usize) -> ValueId {
        ValueId(self.inputs.len() + position)
    }

    /// The node that makes this value; `None` for an input.
    ///
    /// ```
    /// use tiled_graph::{Activation, Graph, Op};
    /// let mut graph = Graph::new();
    /// let x = graph.add_input("x", 3)?;
    /// let r = graph.add_node("r", Op::Activation(Activation::Relu), &[x])?;
    /// assert!(graph.node(x).is_none());
    /// assert_eq!(graph.node(r), Some(&graph.nodes()[0]));
    /// assert_eq!((graph.node_value(0), graph.operands(r), graph.name(r)), (r, [x].as_slice(), "r"));
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    #[must_use]
    pub fn node(&self, value: ValueId) -> Option<&Node> {
        self.nodes.get(value.0.checked_sub(self.inputs.len())?)
    }

    /// The operator that makes this value; `None` for an input.
    #[must_use]
    pub fn op(&self, value: ValueId) -> Option<&Op> {
        self.node(value).map(|node| &node.op)
    }

    /// The node that the parameter of this name belongs to, by its position, and what the parameter is to it.
    pub(crate) fn find_param(&self, name: &str) -> Option<(usize, ParamKind)> {
        let (position, kind) = self.reads_param(name)?;
        Some((self.owner(position, kind), kind))
    }

    /// The node that reads a parameter by this name. What follows the last dot is the parameter's role, and all before it, dots
    /// too, the node.
    fn reads_param(&self, name: &str) -> Option<(usize, ParamKind)> {
        let (node, what) = name.rsplit_once('.')?;
        let kind = ParamKind::of_suffix(what)?;
        let position = self.value(node)?.0.checked_sub(self.inputs.len())?;
        self.param_shape(position, kind).map(|_| (position, kind))
    }

    /// The node whose parameter the one at this position reads: itself, where it does not share.
    pub(crate) fn owner(&self, position: usize, kind: ParamKind) -> usize {
        let shared = self.nodes[position].shared.iter().find(|shared| shared.kind == kind);
        shared.map_or(position, |shared| shared.node)
    }

    /// The parameters of a node, whose operands are in the graph.
    pub(crate) fn params_of(&self, node: &Node) -> Vec<Own> {
        node.op.operator().params(self.channels(node.inputs[0]))
    }

    /// The shape of a parameter of the node at this position, if it has that.
    pub(crate) fn param_shape(&self, position: usize, kind: ParamKind) -> Option<Vec<usize>> {
        let node = &self.nodes[position];
        self.params_of(node).into_iter().find(|own| own.kind == kind).map(|own| own.shape)
    }

    /// The operands of the node that makes this value; none for an input.
    #[must_use]
    pub fn operands(&self, value: ValueId) -> &[ValueId] {
        self.node(value).map_or(&[], |node| &node.inputs)
    }

    /// The channels of a value.
    ///
    /// # Panics
    /// Where the value is not of this graph.
    #[must_use]
    pub fn channels(&self, value: ValueId) -> usize {
        match value.0.checked_sub(self.inputs.len()) {
            None => self.inputs[value.0].channels,
            Some(node) => self.node_channels[node],
        }
    }

    /// The name of a value.
    ///
    /// # Panics
    /// Where the value is not of this graph.
    #[must_use]
    pub fn name(&self, value: ValueId) -> &str {
        match value.0.checked_sub(self.inputs.len()) {
            None => &self.inputs[value.0].name,
            Some(node) => &self.nodes[node].name,
        }
    }

    /// Where an error of this value lies.
    ///
    /// # Panics
    /// Where the value is not of this graph.
    #[must_use]
    pub fn place(&self, value: ValueId) -> Place {
        match self.node(value) {
            Some(node) => node.place(),
            None => Place::Input { name: self.name(value).into() },
        }
    }

    /// Enters the last value under its name, for which there is room.
    fn name_last(&mut self, name: &str) -> ValueId {
        let value = ValueId(self.values() - 1);
        self.names.insert(name, value);
        value
    }

    /// Checks that a name is well-formed and new. Parts between dots are those of modules in PyTorch: `layer1.0.conv1`.
    fn check_name(&self, name: &str) -> Result<(), GraphError> {
        if name.split('.').any(str::is_empty) {
            return Err(GraphError::InvalidName { name: name.to_owned() });
        }
        if self.value(name).is_some() {
            return Err(GraphError::DuplicateName { name: name.to_owned() });
        }
        Ok(())
    }

    /// Checks that no name of a value is that of a parameter too: a name has one reading.
    fn check_parameter_names(&self, node: &Node) -> Result<(), GraphError> {
        let clash = |place: Place, kind: ParamKind, owner: Place| {
            Err(GraphError::NameOfParameter { place, what: kind.suffix(), owner })
        };
        if let Some((position, kind)) = self.reads_param(&node.name) {
            return clash(node.place(), kind, self.nodes[position].place());
        }
        for Own { kind, .. } in self.params_of(node) {
            if let Some(value) = self.value(&format!("{}.{}", node.name, kind.suffix())) {
                return clash(self.place(value), kind, node.place());
            }
        }
        Ok(())
    }

    /// Checks what must hold for a node whatever the size of the image; returns the channels of its output.
    fn check_node(&self, node: &Node) -> Result<usize, GraphError> {
        let place = node.place();
        let arity = node.op.arity();
        if !arity.accepts(node.inputs.len()) {
            return Err(GraphError::Arity { place, expected: arity, got: node.inputs.len() });
        }
        for input in &node.inputs {
            self.check(&place, *input)?;
        }
        node.op.operator().check(&Applied { values: self, operands: &node.inputs, place })
    }
}

impl Values for Graph {
    fn channels(&self, value: ValueId) -> usize {
        self.channels(value)
    }

    fn name(&self, value: ValueId) -> &str {
        self.name(value)
    }

    fn check(&self, place: &Place, value: ValueId) -> Result<(), GraphError> {
        if value.0 >= self.values() {
            return Err(GraphError::UnknownValue {
                place: place.clone(),
                got: value.0,
                values: self.values(),
            });
        }
        Ok(())
    }
}
