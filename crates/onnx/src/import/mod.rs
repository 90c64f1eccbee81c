//! A model becomes a network: its nodes in their order, each by the rule of its operator.
//!
//! A model of a million nodes is held as the bytes that it was read from: a node is a message while it is looked at, and what a
//! name stands for goes when the last node has read it. Nodes that no output needs are passed over. A rule that refuses does not end the import: what reads its result is passed over
//! too, and everything else is looked at, so that all refusals come at once.

mod branch;
pub(crate) mod computed;
pub(crate) mod extents;
pub(crate) mod form;
pub(crate) mod formula;
pub(crate) mod grid;
mod mask;
mod names;
pub(crate) mod numbers;
pub(crate) mod plan;
mod scope;
pub(crate) mod site;
pub(crate) mod strip;
pub(crate) mod value;

use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;

use prost::bytes::Bytes;
use prost::{DecodeError, Message};
use tiled_graph::{Op, Slice, try_params};
use tiled_tensor::collected;

use self::plan::Plans;
use self::scope::{Named, READ, Scope};
use self::site::{Site, node_name};
use self::value::{Image, Last, Order, Value};
use crate::ops::{self, Operator};
use crate::proto::{AttributeProto, ModelFile, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto};
use crate::tensor::{Origin, Tensors, is_float, type_name};
use crate::wire::{Room, names_of_node};
use crate::{DeclaredInput, DeclaredOutput, Model, OnnxError, OnnxPlace, Reason, Refusal, Weights};

/// Imports a model, with this room for the messages of graphs within its nodes; files of elements lie in this folder.
pub(crate) fn import(
    model: ModelFile,
    room: Room,
    folder: Option<&Path>,
    origin: Option<Origin>,
) -> Result<Model, OnnxError> {
    let opset = opset(&model)?;
    let functions: HashSet<(String, String)> = model
        .functions
        .iter()
        .map(|function| (domain(function.domain()).to_owned(), function.name().to_owned()))
        .collect();
    let Some(mut graph) = model.graph else { return Err(OnnxError::NoGraph) };
    let tensors = Tensors::new(folder).map_err(|source| OnnxError::Read { source })?;
    let initialisers = std::mem::take(&mut graph.initializer);
    let mut import = Import {
        opset,
        functions,
        room,
        counted: 0,
        plans: Plans::default(),
        tensors,
        values: Vec::new(),
        refusals: Vec::new(),
    };
    let names = import.counted(&graph.node, &initialisers)?;
    let mut scope = Scope::new(&graph.node, None);
    import.initialisers(&mut scope, &names, initialisers)?;
    import.sparse_initialisers(&mut scope, &graph.sparse_initializer)?;
    let inputs = import.inputs(&mut scope, &graph.input)?;
    import.needed(&mut scope, graph.output.iter().map(|output| output.name()))?;
    import.nodes(&scope)?;
    let outputs = import.outputs(&scope, &graph.output);
    if !import.refusals.is_empty() {
        return Err(OnnxError::Refused { refusals: import.refusals });
    }
    let Import { plans, mut tensors, values, .. } = import;
    drop((scope, values));
    if let Some(origin) = origin {
        tensors.leave_in(origin);
    }
    // the nodes, and the bytes of the file where no weight is left in them: a network is built where they were
    drop((graph, names));
    let (graph, weights) = plans.build(&outputs.iter().map(|(_, plan)| *plan).collect::<Vec<_>>())?;
    let outputs = outputs.into_iter().map(|(output, _)| output).collect();
    let weights = Weights::new(try_params(&graph)?, weights, tensors);
    Ok(Model { graph, weights, inputs, outputs })
}

/// A node of a file.
fn decoded(node: &Bytes) -> Result<NodeProto, OnnxError> {
    NodeProto::decode(node.clone()).map_err(syntax)
}

/// What is malformed.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` gives")]
pub(crate) fn syntax(error: DecodeError) -> OnnxError {
    OnnxError::Syntax { reason: error.to_string() }
}

/// The version of ONNX's own operators.
fn opset(model: &ModelFile) -> Result<i64, OnnxError> {
    let own = model.opset_import.iter().find(|set| domain(set.domain()).is_empty());
    match own.map_or(0, |set| set.version()) {
        known @ 7..=28 => Ok(known),
        got => Err(OnnxError::Opset { got }),
    }
}

/// ONNX's own domain has two names.
fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

struct Import {
    opset: i64,
    functions: HashSet<(String, String)>,
    room: Room,
    /// The nodes or constants of all graphs that were looked at.
    counted: usize,
    plans: Plans,
    tensors: Tensors,
    /// What names stand for, by number: those of a graph behind those of the graphs around it.
    values: Vec<Named>,
    refusals: Vec<Refusal>,
}

/// Far more than a network has.
const MOST_NODES: usize = 1 << 26;

/// The inputs for each of which all nodes are looked through: far more than a network has.
const FEW_INPUTS: usize = 16;

impl Import {
    fn refuse(&mut self, place: OnnxPlace, reason: impl Into<Reason>) {
        self.refusals.push(Refusal { place, reason: reason.into() });
    }

    /// The names of the constants of a graph, once it is known that there are not too many of them and of nodes: a node makes a few
    /// nodes of the network and a few constants at most, and all of them have numbers of 32 bits.
    fn counted(&mut self, nodes: &[Bytes], initialisers: &[TensorProto]) -> Result<Vec<String>, OnnxError> {
        self.counted = self.counted.saturating_add(nodes.len().max(initialisers.len()));
        if self.counted > MOST_NODES {
            return Err(OnnxError::TooManyNodes { expected: MOST_NODES, got: self.counted });
        }
        Ok(collected(initialisers.iter().map(|tensor| tensor.name().to_owned()))?)
    }

    /// Enters the initialisers, whose elements nobody looks at before a node reads them.
    fn initialisers<'a>(
        &mut self,
        scope: &mut Scope<'a>,
        names: &'a [String],
        protos: Vec<TensorProto>,
    ) -> Result<(), OnnxError> {
        for (name, proto) in names.iter().zip(protos) {
            let tensor = self.tensors.push(proto);
            let number = self.number(scope, name)?;
            if self.values[number].value.is_some() {
                self.set(number, Value::Refused);
                let place = OnnxPlace::Tensor { name: name.clone() };
                self.refuse(place, Reason::MadeTwice { name: name.clone() });
            } else {
                self.set(number, Value::Initialiser(tensor));
            }
        }
        Ok(())
    }

    fn sparse_initialisers<'a>(
        &mut self,
        scope: &mut Scope<'a>,
        all: &'a [SparseTensorProto],
    ) -> Result<(), OnnxError> {
        for sparse in all {
            let name = sparse.values.as_ref().map_or("", |values| values.name());
            let number = self.number(scope, name)?;
            self.set(number, Value::Refused);
            let place = OnnxPlace::Tensor { name: name.to_owned() };
            self.refuse(place, Reason::Value { expected: "a dense tensor", got: "a sparse one".to_owned() });
        }
        Ok(())
    }

    /// Enters the inputs that are no initialisers.
    fn inputs<'a>(
        &mut self,
        scope: &mut Scope<'a>,
        all: &'a [ValueInfoProto],
    ) -> Result<Vec<DeclaredInput>, OnnxError> {
        let (mut inputs, mut given) = (Vec::new(), 0);
        for info in all {
            let name = info.name().to_owned();
            let number = self.number(scope, info.name())?;
            match self.values[number].value.as_deref() {
                Some(Value::Initialiser(_)) => continue,
                Some(_) => {
                    let place = OnnxPlace::Input { name: name.clone() };
                    self.refuse(place, Reason::MadeTwice { name });
                    continue;
                }
                None => {}
            }
            let may_turn = given < FEW_INPUTS;
            given += 1;
            let value = match self.input(may_turn.then_some(&*scope), info) {
                Ok((input, plan)) => {
                    let value = Value::Image(Image { plan, flat: false });
                    let is_last = input.channels_last;
                    inputs.push(input);
                    if is_last {
                        Value::Last(Last { value: Rc::new(value), order: Order::Plain })
                    } else {
                        value
                    }
                }
                Err(reason) => {
                    self.refuse(OnnxPlace::Input { name }, reason);
                    Value::Refused
                }
            };
            self.set(number, value);
        }
        Ok(inputs)
    }

    /// An input; the nodes of the graph tell whether its channels are last.
    fn input(
        &mut self,
        scope: Option<&Scope<'_>>,
        info: &ValueInfoProto,
    ) -> Result<(DeclaredInput, usize), Reason> {
        const EXPECTED: &str =
            "a batch of images, N×C×H×W, or N×H×W×C that is transposed, with a number of channels";
        let no_images = |got: String| Reason::Value { expected: EXPECTED, got };
        let tensor = info.r#type.as_ref().and_then(|of| of.tensor_type.as_ref());
        let tensor = tensor.ok_or_else(|| no_images("no tensor".to_owned()))?;
        if !is_float(tensor.elem_type()) {
            return Err(no_images(format!("of elements {}", type_name(tensor.elem_type()))));
        }
        let shape = tensor.shape.as_ref().ok_or_else(|| no_images("a tensor without a shape".to_owned()))?;
        let extents: Vec<Option<usize>> = shape
            .dim
            .iter()
            .map(|dim| {
                dim.dim_value.and_then(|extent| usize::try_from(extent).ok()).filter(|extent| *extent > 0)
            })
            .collect();
        let shown = || {
            let shown: Vec<String> = extents
                .iter()
                .map(|extent| extent.map_or("?".to_owned(), |extent| extent.to_string()))
                .collect();
            no_images(format!("a tensor of shape [{}]", shown.join(", ")))
        };
        let Ok([batch, second, third, last]) = <[Option<usize>; 4]>::try_from(extents.as_slice()) else {
            return Err(shown());
        };
        // fewer in the last place than in the second may be channels
        let may_turn = last.is_some() && second.is_none_or(|second| last < Some(second));
        let extents = [second, third, last];
        let channels_last = may_turn && scope.is_some_and(|scope| self.turns(scope, info.name(), extents));
        let [channels, height, width] =
            if channels_last { [last, second, third] } else { [second, third, last] };
        let Some(channels) = channels else { return Err(shown()) };
        let declared = height.zip(width).map(|(height, width)| [height, width]);
        let plan = self.plans.input(info.name(), channels, declared)?;
        if let Some(batch) = batch.and_then(|batch| i64::try_from(batch).ok()) {
            self.plans.extents.set_batch(batch);
        }
        let name = self.plans.get(plan).name.to_string();
        Ok((
            DeclaredInput {
                name,
                given: info.name().to_owned(),
                shape: [batch, Some(channels), height, width],
                channels_last,
            },
            plan,
        ))
    }

    /// Whether the channels of an input, its last axis, are moved before the others: by the first that reads it, or what preprocessing
    /// makes of it. Exporters of networks with one channel have a reshaping there.
    fn turns(&mut self, scope: &Scope<'_>, input: &str, extents: [Option<usize>; 3]) -> bool {
        let mut made = HashSet::from([input.to_owned()]);
        for bytes in scope.nodes {
            if !names_of_node(bytes, READ).any(|name| made.contains(name)) {
                continue;
            }
            // what cannot be decoded is told of later
            let Ok(node) = NodeProto::decode(bytes.clone()) else { return false };
            let is_perm =
                |attribute: &AttributeProto| attribute.name() == "perm" && attribute.ints == [0, 3, 1, 2];
            match node.op_type() {
                "Transpose" if node.attribute.iter().any(is_perm) => return true,
                "Reshape" if extents[2] == Some(1) => {
                    let target = node.input.get(1).and_then(|name| self.initialiser(scope, name));
                    return target.is_some_and(|target| is_one_channel_first(&target, extents));
                }
                "Shape" => {}
                name if ops::find(name).is_some_and(|operator| operator.leaves_axes()) => {
                    made.extend(node.output);
                }
                // whoever reads it otherwise has the channels where they are
                _ => return false,
            }
        }
        false
    }

    /// The few numbers that an initialiser holds.
    fn initialiser(&mut self, scope: &Scope<'_>, name: &str) -> Option<Vec<i64>> {
        let number = scope.number(name)?;
        let Some(Value::Initialiser(tensor)) = self.values[number].value.as_deref() else { return None };
        let tensor = *tensor;
        let is_short = self.tensors.check(tensor).is_ok_and(|stored| stored.shape == [4]);
        let values: Vec<f64> = if is_short { self.tensors.values(tensor).ok()? } else { return None };
        values.into_iter().map(numbers::whole).collect()
    }

    fn place(&self, node: &NodeProto) -> OnnxPlace {
        let domain = domain(node.domain());
        let operator = if domain.is_empty() {
            node.op_type().to_owned()
        } else {
            format!("{domain}.{}", node.op_type())
        };
        OnnxPlace::Node { operator, name: node_name(node).to_owned(), opset: self.opset }
    }

    /// Imports the nodes of a graph that its outputs need.
    fn nodes(&mut self, scope: &Scope<'_>) -> Result<(), OnnxError> {
        for position in (0..scope.nodes.len()).filter(|position| scope.starts(*position)) {
            self.node(scope, position)?;
        }
        Ok(())
    }

    /// Imports a node, whose results are refused where its rule does or where what it reads was.
    fn node(&mut self, scope: &Scope<'_>, position: usize) -> Result<(), OnnxError> {
        let (node, outside) = (decoded(&scope.nodes[position])?, self.values.len());
        let made = match self.made(scope, &node) {
            Ok(Value::Taken(taken)) => self.branch(scope, position, &node, &taken)?,
            made => made,
        };
        let made = made.unwrap_or_else(|reason| {
            self.refuse(self.place(&node), reason);
            Value::Refused
        });
        let is_refused = matches!(made, Value::Refused);
        for (place, name) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let value = match (place, &made) {
                (_, Value::Several(values)) => values.get(place).cloned().unwrap_or(Value::Second(place)),
                (0, _) => made.clone(),
                _ if is_refused => Value::Refused,
                // refused where something reads it
                _ => Value::Second(place),
            };
            if let Some(number) = scope.number(name)
                && self.values[number].reads > 0
            {
                self.set(number, value);
            }
        }
        self.leave(outside);
        self.release(scope, &scope.nodes[position]);
        Ok(())
    }

    fn made(&mut self, scope: &Scope<'_>, node: &NodeProto) -> Result<Value, Reason> {
        let operator = self.operator(node)?;
        let mut operands = Vec::with_capacity(node.input.len());
        for name in &node.input {
            let operand = if name.is_empty() { None } else { Some(self.value(scope, name)?) };
            operands.push(match operand {
                Some(Value::Padded(padded)) if !ops::leaves_padding(node.op_type()) => {
                    let plan = self.plans.padded(&padded)?;
                    Some(Value::Image(Image { plan, flat: false }))
                }
                other => other,
            });
        }
        if operands.iter().flatten().any(|operand| matches!(operand, Value::Refused)) {
            return Ok(Value::Refused);
        }
        if let Some(unknown) =
            node.attribute.iter().find(|attribute| !operator.attributes.contains(&attribute.name()))
        {
            return Err(Reason::UnknownAttribute { name: unknown.name().to_owned() });
        }
        let (plans, tensors) = (&mut self.plans, &mut self.tensors);
        ops::made(operator, &mut Site { node, opset: self.opset, operands, plans, tensors })
    }

    /// The rule of a node.
    fn operator(&self, node: &NodeProto) -> Result<&'static Operator, Reason> {
        let (domain, name) = (domain(node.domain()), node.op_type());
        if ops::is_quantised(name) {
            return Err(Reason::Quantised);
        }
        if self.functions.contains(&(domain.to_owned(), name.to_owned())) {
            return Err(Reason::Function);
        }
        if !domain.is_empty() {
            return Err(Reason::Domain { domain: domain.to_owned() });
        }
        ops::find(name).ok_or(Reason::Operator)
    }

    /// What an output stands for, and whether its channels stand last in the model: padding that nothing took over is a node.
    fn result(&mut self, scope: &Scope<'_>, name: &str) -> Result<(Value, bool), Reason> {
        let value = match self.value(scope, name)? {
            Value::Whole(whole) => Value::clone(&whole.value),
            other => other,
        };
        let (value, channels_last) = match value {
            Value::Last(Last { value, order: Order::Plain }) => (Value::clone(&value), true),
            other => (other, false),
        };
        let multiple = match &value {
            Value::Form(forms) => self.plans.multiplied(forms)?,
            _ => None,
        };
        let plan = match multiple.map_or(value, Value::Image) {
            Value::Padded(padded) => self.plans.padded(&padded)?,
            Value::Halfway(halfway) if halfway.keeps => self.plans.reduced(&halfway)?,
            Value::Plane(plan) => plan,
            Value::Norming(norming) => self.plans.settled(norming, name)?,
            Value::Above(above) => self.plans.mask(above, name)?,
            Value::Image(Image { plan, flat: true }) if self.plans.get(plan).extents != Some([1, 1]) => {
                let expected = "a value of one pixel, or of four axes";
                return Err(Reason::Value { expected, got: "all features of an image".to_owned() });
            }
            other => return Ok((other, channels_last)),
        };
        Ok((Value::Image(Image { plan, flat: false }), channels_last))
    }

    /// The names of the outputs, and which values they are.
    fn outputs(&mut self, scope: &Scope<'_>, given: &[ValueInfoProto]) -> Vec<(DeclaredOutput, usize)> {
        let mut outputs: Vec<(DeclaredOutput, usize)> = Vec::new();
        let (mut seen, mut names) = (HashSet::new(), HashSet::new());
        for info in given {
            let name = info.name().to_owned();
            let is_new = names.insert(info.name());
            let refused = match self.result(scope, &name) {
                Ok((Value::Image(Image { plan, .. }), channels_last)) if is_new => {
                    // an output of a network is no other, and all channels of a value are a value of their own
                    let whole = Op::Slice(Slice { begin: 0, end: None });
                    let made = match seen.insert(plan) {
                        true => Ok(plan),
                        false => self.plans.node(&name, whole, vec![plan], Vec::new()),
                    };
                    match made {
                        Ok(plan) => {
                            outputs.push((DeclaredOutput { given: name, channels_last }, plan));
                            continue;
                        }
                        Err(reason) => reason,
                    }
                }
                Ok((Value::Refused, _)) => continue,
                Ok((value, _)) => {
                    let is_twice = matches!(value, Value::Image(_));
                    let got = if is_twice { "one that stands before".to_owned() } else { value.describe() };
                    Reason::Value { expected: "a value of the network", got }
                }
                Err(reason) => reason,
            };
            self.refuse(OnnxPlace::Output { name }, refused);
        }
        outputs
    }
}

/// Whether a reshaping of N×H×W×1 gives N×1×H×W.
fn is_one_channel_first(target: &[i64], [height, width, _]: [Option<usize>; 3]) -> bool {
    let is =
        |got: i64, extent: Option<usize>| got == -1 || extent.is_some_and(|e| i64::try_from(e) == Ok(got));
    matches!(*target, [_, 1, h, w] if is(h, height) && is(w, width))
}

/// The values of the network that a value of the model is, where it is some.
fn for_each_plan(value: &Value, visit: &mut dyn FnMut(usize)) {
    match value {
        Value::Image(Image { plan, .. }) => visit(*plan),
        Value::Last(last) => for_each_plan(&last.value, visit),
        Value::Whole(whole) => for_each_plan(&whole.value, visit),
        Value::Lanes(lanes) => lanes.parts.iter().for_each(|part| for_each_plan(&part.value, visit)),
        Value::Several(values) => values.iter().for_each(|value| for_each_plan(value, visit)),
        _ => {}
    }
}
