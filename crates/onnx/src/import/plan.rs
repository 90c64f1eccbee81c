//! The nodes of the network to be, each checked as it joins; those that an output needs become the network.
//!
//! Each is tried in a network of its own, so that what a network refuses is refused here, with its words, and channels, extents
//! and the shapes of parameters are inferred by the rules that hold there, and by no copy of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tiled_graph::{Graph, Op, ParamKind, Upsample, UpsampleTo, ValueId, infer, try_params};
use tiled_tensor::push;

use super::form::Form;
use super::names::Names;
use super::numbers::{Extent, Extents};
use super::value::Constant;
use crate::Reason;

/// Inputs and nodes, by number.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    all: Vec<Planned>,
    names: Names,
    /// The batch size that the inputs declare.
    pub(crate) batch: Option<i64>,
}

/// An input or a node.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) name: String,
    /// `None` of an input. What it upsamples to is a number among what is planned.
    pub(crate) op: Option<Op>,
    pub(crate) inputs: Vec<usize>,
    pub(crate) params: Vec<(ParamKind, Constant)>,
    pub(crate) channels: usize,
    /// Height and width, where the inputs declare theirs or the operator gives them.
    pub(crate) extents: Option<[usize; 2]>,
    /// The first that has the same height and width whatever the image.
    same_as: usize,
    /// What it is of other values, the nearest first.
    pub(crate) forms: Vec<Form>,
}

/// A parameter of the network, and the constant that it is.
#[derive(Debug)]
pub(crate) struct Weight {
    pub(crate) name: String,
    pub(crate) constant: Constant,
}

impl Plans {
    pub(crate) fn get(&self, plan: usize) -> &Planned {
        &self.all[plan]
    }

    pub(crate) fn input(
        &mut self,
        name: &str,
        channels: usize,
        extents: Option<[usize; 2]>,
    ) -> Result<usize, Reason> {
        let (name, same_as) = (self.names.take(name), self.all.len());
        let (inputs, params) = (Vec::new(), Vec::new());
        let input = Planned { name, op: None, inputs, params, channels, extents, same_as, forms: Vec::new() };
        Graph::new().add_input(&input.name, channels)?;
        push(&mut self.all, input)?;
        Ok(same_as)
    }

    /// Adds a node, where a network takes it.
    pub(crate) fn node(
        &mut self,
        name: &str,
        op: Op,
        inputs: Vec<usize>,
        params: Vec<(ParamKind, Constant)>,
    ) -> Result<usize, Reason> {
        let name = self.names.take(name);
        let mut places = HashMap::new();
        let mut graph = Graph::new();
        for plan in reads(&op, &inputs) {
            if let Entry::Vacant(place) = places.entry(plan) {
                place.insert(graph.add_input(&self.all[plan].name, self.all[plan].channels)?);
            }
        }
        let operands: Vec<ValueId> = inputs.iter().map(|input| places[input]).collect();
        let value = graph.add_node(&name, mapped(&op, &places), &operands)?;
        graph.set_outputs(&[value])?;
        check_parameters(&graph, &params)?;
        let mut extents: Vec<(ValueId, Option<[usize; 2]>)> =
            places.iter().map(|(plan, place)| (*place, self.all[*plan].extents)).collect();
        extents.sort_by_key(|(place, _)| *place);
        let known: Option<Vec<[usize; 2]>> = extents.into_iter().map(|(_, extents)| extents).collect();
        let extents = match known {
            Some(known) => Some(infer(&graph, 1, &known)?.extents(value)),
            None => given_extents(&op),
        };
        let plan = self.all.len();
        let same_as = self.same_extents(&op, &inputs).unwrap_or(plan);
        let channels = graph.channels(value);
        let node =
            Planned { name, op: Some(op), inputs, params, channels, extents, same_as, forms: Vec::new() };
        push(&mut self.all, node)?;
        Ok(plan)
    }

    /// Lets a node take the name of another, which gets a new one.
    pub(crate) fn rename(&mut self, plan: usize, from: usize) {
        let spare = std::mem::take(&mut self.all[plan].name);
        self.all[plan].name = std::mem::replace(&mut self.all[from].name, spare);
    }

    /// Keeps what a node is of other values: of the nearest few, as many as an activation is written out in.
    pub(crate) fn set_forms(&mut self, plan: usize, mut forms: Vec<Form>) {
        forms.truncate(8);
        self.all[plan].forms = forms;
    }

    /// The network of what these outputs need, and the constants that its parameters are.
    pub(crate) fn build(self, outputs: &[usize]) -> Result<(Graph, Vec<Weight>), crate::OnnxError> {
        let mut is_needed = vec![false; self.all.len()];
        for output in outputs {
            is_needed[*output] = true;
        }
        for plan in (0..self.all.len()).rev().filter(|plan| self.all[*plan].op.is_some()) {
            if let (true, Some(op)) = (is_needed[plan], &self.all[plan].op) {
                reads(op, &self.all[plan].inputs).for_each(|read| is_needed[read] = true);
            }
        }
        let (mut graph, mut weights) = (Graph::new(), Vec::new());
        let mut places = HashMap::new();
        let mut owners: HashMap<(ParamKind, Constant), String> = HashMap::new();
        for (plan, planned) in self.all.into_iter().enumerate() {
            let value = match &planned.op {
                None => graph.add_input(&planned.name, planned.channels)?,
                Some(_) if !is_needed[plan] => continue,
                Some(op) => {
                    let operands: Vec<ValueId> = planned.inputs.iter().map(|input| places[input]).collect();
                    let mut shared = Vec::new();
                    for (kind, constant) in planned.params {
                        let name = format!("{}.{}", planned.name, kind.suffix());
                        let key = (kind, constant);
                        if let Some(owner) = owners.get(&key) {
                            shared.push((kind, owner.clone()));
                        } else {
                            weights.push(Weight { name: name.clone(), constant: key.1.clone() });
                            owners.insert(key, name);
                        }
                    }
                    let shared: Vec<(ParamKind, &str)> =
                        shared.iter().map(|(kind, owner)| (*kind, owner.as_str())).collect();
                    graph.add_node_sharing(&planned.name, mapped(op, &places), &operands, &shared)?
                }
            };
            places.insert(plan, value);
        }
        let outputs: Vec<ValueId> = outputs.iter().map(|output| places[output]).collect();
        graph.set_outputs(&outputs)?;
        Ok((graph, weights))
    }

    /// The first value with the extents of this node, where they are those of an operand whatever the image.
    fn same_extents(&self, op: &Op, inputs: &[usize]) -> Option<usize> {
        let keeps = |kernel: [i64; 2], stride: [i64; 2], dilation: [i64; 2], padding: [[i64; 2]; 2]| {
            stride == [1, 1]
                && (0..2).all(|axis| padding[axis].iter().sum::<i64>() == dilation[axis] * (kernel[axis] - 1))
        };
        let same = match op {
            Op::Activation(_)
            | Op::BatchNorm(_)
            | Op::InstanceNorm(_)
            | Op::GroupNorm(_)
            | Op::LayerNorm(_)
            | Op::RmsNorm(_)
            | Op::LocalResponseNorm(_)
            | Op::Softmax
            | Op::LogSoftmax
            | Op::Dropout(_)
            | Op::Prelu(_)
            | Op::WithOperand(_)
            | Op::Concat
            | Op::Slice(_)
            | Op::Split(_)
            | Op::ChannelShuffle(_)
            | Op::ArgMax => inputs[0],
            // a value of one pixel stands for all pixels of the others
            Op::Add | Op::Mul | Op::Sub | Op::Div | Op::Minimum | Op::Maximum => {
                let is_image = |input: &&usize| self.all[**input].extents != Some([1, 1]);
                *inputs.iter().find(is_image).unwrap_or(&inputs[0])
            }
            Op::Conv2d(conv) if keeps(conv.kernel_size, conv.stride, conv.dilation, conv.padding) => {
                inputs[0]
            }
            Op::MaxPool2d(pool) if keeps(pool.kernel_size, pool.stride, pool.dilation, pool.padding) => {
                inputs[0]
            }
            Op::AvgPool2d(pool) if keeps(pool.kernel_size, pool.stride, [1, 1], pool.padding) => inputs[0],
            Op::Upsample(Upsample { to: UpsampleTo::Like(ValueId(like)), .. }) => *like,
            _ => return None,
        };
        Some(self.all[same].same_as)
    }
}

impl Extents for Plans {
    fn are_same(&self, a: Extent, b: Extent) -> bool {
        a.axis == b.axis && (a.axis == 0 || self.all[a.plan].same_as == self.all[b.plan].same_as)
    }

    fn known(&self, Extent { plan, axis, times }: Extent) -> Option<f64> {
        let whole = match axis {
            0 => self.batch?,
            _ => i64::try_from(self.all[plan].extents?[axis - 2]).ok()?,
        };
        Some(whole.checked_mul(times)? as f64)
    }
}

/// What an operator reads: its operands, and the value whose extents it takes.
fn reads(op: &Op, inputs: &[usize]) -> impl Iterator<Item = usize> {
    let like = match op {
        Op::Upsample(Upsample { to: UpsampleTo::Like(ValueId(like)), .. }) => Some(*like),
        _ => None,
    };
    inputs.iter().copied().chain(like)
}

/// The operator in a network where what it reads has these places.
fn mapped(op: &Op, places: &HashMap<usize, ValueId>) -> Op {
    match op {
        Op::Upsample(Upsample { mode, to: UpsampleTo::Like(ValueId(like)) }) => {
            Op::Upsample(Upsample { mode: *mode, to: UpsampleTo::Like(places[like]) })
        }
        other => other.clone(),
    }
}

/// The extents that an operator gives whatever it reads.
fn given_extents(op: &Op) -> Option<[usize; 2]> {
    match op {
        Op::GlobalAvgPool | Op::GlobalMaxPool | Op::Linear(_) => Some([1, 1]),
        Op::Upsample(Upsample { to: UpsampleTo::Size([height, width]), .. }) => {
            Some([usize::try_from(*height).ok()?, usize::try_from(*width).ok()?])
        }
        _ => None,
    }
}

/// Checks that constants have the shapes of the parameters of the one node of a network.
fn check_parameters(graph: &Graph, given: &[(ParamKind, Constant)]) -> Result<(), Reason> {
    for spec in try_params(graph)? {
        let what = spec.kind.suffix();
        let constant = given.iter().find(|(kind, _)| *kind == spec.kind).map(|(_, constant)| constant);
        let got = constant.map(|constant| constant.shape.to_vec()).unwrap_or_default();
        if got != spec.shape {
            return Err(Reason::Parameter { what, expected: spec.shape, got });
        }
    }
    Ok(())
}
