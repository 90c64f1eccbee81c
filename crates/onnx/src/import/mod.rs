//! A model becomes a network: its nodes in their order, each by the rule of its operator.
//!
//! Nodes that no output needs are passed over. A rule that refuses does not end the import: what reads its result is passed over
//! too, and everything else is looked at, so that all refusals come at once.

pub(crate) mod form;
mod names;
pub(crate) mod numbers;
pub(crate) mod plan;
pub(crate) mod site;
pub(crate) mod value;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use tiled_graph::try_params;

use self::plan::Plans;
use self::site::{Site, constant, node_name};
use self::value::{Image, Value};
use crate::ops;
use crate::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use crate::tensor::{Tensors, is_float, type_name};
use crate::{DeclaredInput, Model, OnnxError, OnnxPlace, Reason, Refusal, Weights};

/// Imports a model; files of elements lie in this folder.
pub(crate) fn import(model: ModelProto, folder: Option<&Path>) -> Result<Model, OnnxError> {
    let opset = opset(&model)?;
    let functions: HashSet<(String, String)> = model
        .functions
        .iter()
        .map(|function| (domain(function.domain()).to_owned(), function.name().to_owned()))
        .collect();
    let Some(mut graph) = model.graph else { return Err(OnnxError::NoGraph) };
    let tensors = Tensors::new(folder).map_err(|source| OnnxError::Read { source })?;
    let mut import = Import {
        opset,
        functions,
        plans: Plans::default(),
        tensors,
        values: HashMap::new(),
        refusals: Vec::new(),
    };
    import.initialisers(&mut graph);
    let inputs = import.inputs(&graph.input);
    let (makers, is_needed) = import.needed(&graph);
    for (position, node) in graph.node.iter().enumerate().filter(|(position, _)| is_needed[*position]) {
        import.node(position, node, &makers);
    }
    let outputs = import.outputs(&graph.output, &makers);
    if !import.refusals.is_empty() {
        return Err(OnnxError::Refused { refusals: import.refusals });
    }
    let (graph, weights) = import.plans.build(&outputs.iter().map(|(_, plan)| *plan).collect::<Vec<_>>())?;
    let outputs = outputs.into_iter().map(|(name, _)| name).collect();
    let weights = Weights::new(try_params(&graph)?, weights, import.tensors);
    Ok(Model { graph, weights, inputs, outputs })
}

/// The version of ONNX's own operators.
fn opset(model: &ModelProto) -> Result<i64, OnnxError> {
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
    plans: Plans,
    tensors: Tensors,
    values: HashMap<String, Value>,
    refusals: Vec<Refusal>,
}

impl Import {
    fn refuse(&mut self, place: OnnxPlace, reason: impl Into<Reason>) {
        self.refusals.push(Refusal { place, reason: reason.into() });
    }

    /// Enters the initialisers, whose elements nobody looks at before a node reads them.
    fn initialisers(&mut self, graph: &mut GraphProto) {
        for proto in std::mem::take(&mut graph.initializer) {
            let name = proto.name().to_owned();
            let tensor = self.tensors.push(proto);
            if self.values.insert(name.clone(), Value::Initialiser(tensor)).is_some() {
                self.values.insert(name.clone(), Value::Refused);
                let place = OnnxPlace::Tensor { name: name.clone() };
                self.refuse(place, Reason::MadeTwice { name });
            }
        }
        for sparse in &graph.sparse_initializer {
            let name = sparse.values.as_ref().map_or("", |values| values.name()).to_owned();
            let place = OnnxPlace::Tensor { name: name.clone() };
            self.values.insert(name, Value::Refused);
            self.refuse(place, Reason::Value { expected: "a dense tensor", got: "a sparse one".to_owned() });
        }
    }

    /// Enters the inputs that are no initialisers.
    fn inputs(&mut self, given: &[ValueInfoProto]) -> Vec<DeclaredInput> {
        let mut inputs = Vec::new();
        for info in given {
            let name = info.name().to_owned();
            match self.values.get(&name) {
                Some(Value::Initialiser(_)) => continue,
                Some(_) => {
                    let place = OnnxPlace::Input { name: name.clone() };
                    self.refuse(place, Reason::MadeTwice { name });
                    continue;
                }
                None => {}
            }
            let value = match self.input(info) {
                Ok((input, plan)) => {
                    inputs.push(input);
                    Value::Image(Image { plan, flat: false })
                }
                Err(reason) => {
                    self.refuse(OnnxPlace::Input { name: name.clone() }, reason);
                    Value::Refused
                }
            };
            self.values.insert(name, value);
        }
        inputs
    }

    fn input(&mut self, info: &ValueInfoProto) -> Result<(DeclaredInput, usize), Reason> {
        const EXPECTED: &str = "a batch of images, N×C×H×W, with a number of channels";
        let wrong = |got: String| Reason::Value { expected: EXPECTED, got };
        let tensor = info.r#type.as_ref().and_then(|of| of.tensor_type.as_ref());
        let tensor = tensor.ok_or_else(|| wrong("no tensor".to_owned()))?;
        if !is_float(tensor.elem_type()) {
            return Err(wrong(format!("of elements {}", type_name(tensor.elem_type()))));
        }
        let shape = tensor.shape.as_ref().ok_or_else(|| wrong("a tensor without a shape".to_owned()))?;
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
            wrong(format!("a tensor of shape [{}]", shown.join(", ")))
        };
        let Ok([batch, Some(channels), height, width]) = <[Option<usize>; 4]>::try_from(extents.as_slice())
        else {
            return Err(shown());
        };
        let declared = height.zip(width).map(|(height, width)| [height, width]);
        let plan = self.plans.input(info.name(), channels, declared)?;
        self.plans.batch = self.plans.batch.or(batch.and_then(|batch| i64::try_from(batch).ok()));
        let name = self.plans.get(plan).name.clone();
        Ok((
            DeclaredInput {
                name,
                given: info.name().to_owned(),
                shape: [batch, Some(channels), height, width],
            },
            plan,
        ))
    }

    /// Which node makes each value, and which nodes the outputs need.
    fn needed<'a>(&mut self, graph: &'a GraphProto) -> (HashMap<&'a str, usize>, Vec<bool>) {
        let mut makers = HashMap::new();
        for (position, node) in graph.node.iter().enumerate() {
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                if self.values.contains_key(name) || makers.insert(name.as_str(), position).is_some() {
                    let place = self.place(node);
                    self.refuse(place, Reason::MadeTwice { name: name.clone() });
                }
            }
        }
        let mut is_needed = vec![false; graph.node.len()];
        let mut left: Vec<&str> = graph.output.iter().map(ValueInfoProto::name).collect();
        while let Some(name) = left.pop() {
            if let Some(maker) = makers.get(name)
                && !std::mem::replace(&mut is_needed[*maker], true)
            {
                left.extend(graph.node[*maker].input.iter().map(String::as_str));
            }
        }
        (makers, is_needed)
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

    /// Imports a node, whose results are refused where its rule does or where what it reads was.
    fn node(&mut self, position: usize, node: &NodeProto, makers: &HashMap<&str, usize>) {
        let made = match self.made(position, node, makers) {
            Ok(made) => made,
            Err(reason) => {
                let place = self.place(node);
                self.refuse(place, reason);
                Value::Refused
            }
        };
        let is_refused = matches!(made, Value::Refused);
        for (place, name) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let value = match (place, &made) {
                (_, Value::Several(values)) => values.get(place).cloned().unwrap_or(Value::Second(place)),
                (0, _) => made.clone(),
                _ if is_refused => Value::Refused,
                // refused where something reads it
                _ => Value::Second(place),
            };
            self.values.insert(name.clone(), value);
        }
    }

    fn made(
        &mut self,
        position: usize,
        node: &NodeProto,
        makers: &HashMap<&str, usize>,
    ) -> Result<Value, Reason> {
        let operator = self.operator(node)?;
        let mut operands = Vec::with_capacity(node.input.len());
        for name in &node.input {
            let operand = if name.is_empty() { None } else { Some(self.value(name, position, makers)?) };
            operands.push(match operand {
                Some(Value::Padded(padded)) if !ops::leaves_padding(node.op_type()) => {
                    let plan = padded.node(&mut self.plans)?;
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
    fn operator(&self, node: &NodeProto) -> Result<&'static ops::Operator, Reason> {
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

    /// What a name stands for where the node at this position reads it.
    fn value(&mut self, name: &str, position: usize, makers: &HashMap<&str, usize>) -> Result<Value, Reason> {
        match self.values.get(name) {
            Some(Value::Initialiser(tensor)) => {
                let value = Value::Constant(constant(&mut self.tensors, *tensor)?);
                self.values.insert(name.to_owned(), value.clone());
                Ok(value)
            }
            Some(Value::Second(position)) => {
                Err(Reason::Second { name: name.to_owned(), position: *position })
            }
            Some(value) => Ok(value.clone()),
            None if makers.get(name).is_some_and(|maker| *maker >= position) => {
                Err(Reason::LaterValue { name: name.to_owned() })
            }
            None => Err(Reason::MissingValue { name: name.to_owned() }),
        }
    }

    /// What an output stands for: padding that nothing took over is a node.
    fn result(&mut self, name: &str, makers: &HashMap<&str, usize>) -> Result<Value, Reason> {
        let plan = match self.value(name, usize::MAX, makers)? {
            Value::Padded(padded) => padded.node(&mut self.plans)?,
            Value::Classes(plan) => plan,
            Value::Image(Image { plan, flat: true }) if self.plans.get(plan).extents != Some([1, 1]) => {
                let expected = "a value of one pixel, or of four axes";
                return Err(Reason::Value { expected, got: "all features of an image".to_owned() });
            }
            other => return Ok(other),
        };
        Ok(Value::Image(Image { plan, flat: false }))
    }

    /// The names of the outputs, and which values they are.
    fn outputs(&mut self, given: &[ValueInfoProto], makers: &HashMap<&str, usize>) -> Vec<(String, usize)> {
        let mut outputs: Vec<(String, usize)> = Vec::new();
        let mut seen = HashSet::new();
        for info in given {
            let name = info.name().to_owned();
            let refused = match self.result(&name, makers) {
                Ok(Value::Image(Image { plan, .. })) if seen.insert(plan) => {
                    outputs.push((name, plan));
                    continue;
                }
                Ok(Value::Refused) => continue,
                Ok(value) => {
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
