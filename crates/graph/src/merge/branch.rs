//! Which sums are of branches that can be merged.

use std::collections::HashMap;

use tiled_tensor::{collected, filled, push, with_room};

use super::window::Taps;
use crate::error::GraphError;
use crate::graph::Graph;
use crate::index::ValueId;
use crate::op::{BatchNorm, Conv2d, Elementwise, Op, PaddingMode, WithOperand};

/// A term of a sum: a value, a convolution of it, or either one scaled.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// What is added.
    pub(super) value: ValueId,
    /// What it is a function of.
    pub(super) source: ValueId,
    /// The node of the convolution; without one it is the source itself.
    pub(super) conv: Option<usize>,
    /// The nodes that scale and shift it, in the order in which they do.
    pub(super) affine: Vec<usize>,
}

/// Terms that are one convolution together.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    /// Their positions among those of the sum.
    pub(super) terms: Vec<usize>,
    /// What they are all functions of.
    pub(super) source: ValueId,
    /// What they become.
    pub(super) conv: Conv2d,
    /// The value whose name it takes where the sum has other terms beside.
    pub(super) named: ValueId,
}

/// A sum, and those of its terms that are merged.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    pub(super) node: usize,
    pub(super) terms: Vec<Term>,
    pub(super) clusters: Vec<Cluster>,
    /// The cluster that each term is in.
    pub(super) cluster_of: Vec<Option<usize>>,
}

/// What is merged.
#[derive(Debug)]
pub(super) struct Found {
    /// The sum that each node is the last of.
    pub(super) by_node: Vec<Option<Sum>>,
    /// Whether a node is a part of a sum and nothing else.
    pub(super) is_absorbed: Vec<bool>,
}

/// The sums of a network in which convolutions are merged.
pub(super) fn sums(graph: &Graph) -> Result<Found, GraphError> {
    let search = Search::of(graph)?;
    let nodes = graph.nodes().len();
    let mut found = Found { by_node: with_room(nodes)?, is_absorbed: filled(nodes, false)? };
    found.by_node.resize_with(nodes, || None);
    // a sum of sums is one sum, so the last ones come first, and a sum within one of as many channels has been looked at with it
    let mut is_seen = filled(nodes, false)?;
    for node in (0..nodes).rev() {
        if is_seen[node] || !matches!(graph.nodes()[node].op, Op::Add) {
            continue;
        }
        let (terms, sums) = search.terms(node)?;
        let channels = |node: usize| graph.channels(graph.node_value(node));
        sums.iter().filter(|sum| channels(**sum) == channels(node)).for_each(|sum| is_seen[*sum] = true);
        let clusters = search.clusters(node, &terms)?;
        if clusters.is_empty() {
            continue;
        }
        sums.iter().for_each(|sum| is_seen[*sum] = true);
        let merged = clusters.iter().flat_map(|cluster| &cluster.terms).map(|term| &terms[*term]);
        let of_terms = merged.flat_map(|term| term.conv.iter().chain(&term.affine));
        for absorbed in of_terms.chain(&sums) {
            found.is_absorbed[*absorbed] = true;
        }
        let mut cluster_of = filled(terms.len(), None)?;
        for (place, cluster) in clusters.iter().enumerate() {
            cluster.terms.iter().for_each(|term| cluster_of[*term] = Some(place));
        }
        found.by_node[node] = Some(Sum { node, terms, clusters, cluster_of });
    }
    Ok(found)
}

struct Search<'g> {
    graph: &'g Graph,
    /// How often each value is read, or given out.
    readers: Vec<usize>,
}

impl<'g> Search<'g> {
    fn of(graph: &'g Graph) -> Result<Self, GraphError> {
        let mut readers = filled(graph.values(), 0)?;
        for input in graph.nodes().iter().flat_map(|node| &node.inputs) {
            readers[input.0] += 1;
        }
        graph.outputs().iter().for_each(|output| readers[output.0] += 1);
        Ok(Self { graph, readers })
    }

    /// The node that makes a value for one reader alone.
    fn own_node(&self, value: ValueId) -> Option<(usize, &'g Op)> {
        let position = value.0.checked_sub(self.graph.inputs().len())?;
        (self.readers[value.0] == 1).then(|| (position, &self.graph.nodes()[position].op))
    }

    /// The terms of the sum that a node is the last of, those of sums within it too, and these sums.
    fn terms(&self, node: usize) -> Result<(Vec<Term>, Vec<usize>), GraphError> {
        let (mut terms, mut sums, mut ahead) = (Vec::new(), Vec::new(), Vec::new());
        let later = |ahead: &mut Vec<ValueId>, node: usize| {
            let inputs = &self.graph.nodes()[node].inputs;
            inputs.iter().rev().try_for_each(|input| push(ahead, *input))
        };
        later(&mut ahead, node)?;
        while let Some(value) = ahead.pop() {
            match self.own_node(value) {
                Some((inner, Op::Add)) => {
                    push(&mut sums, inner)?;
                    later(&mut ahead, inner)?;
                }
                _ => push(&mut terms, self.term(value)?)?,
            }
        }
        Ok((terms, sums))
    }

    /// A value as a term.
    fn term(&self, value: ValueId) -> Result<Term, GraphError> {
        let mut term = Term { value, source: value, conv: None, affine: Vec::new() };
        while let Some((position, op)) = self.own_node(term.source) {
            let input = self.graph.nodes()[position].inputs[0];
            if let Op::Conv2d(_) = op {
                (term.source, term.conv) = (input, Some(position));
                break;
            }
            if !is_affine(op) || self.graph.channels(input) != self.graph.channels(term.source) {
                break;
            }
            push(&mut term.affine, position)?;
            term.source = input;
        }
        term.affine.reverse();
        Ok(term)
    }

    fn conv(&self, term: &Term) -> Option<&'g Conv2d> {
        match &self.graph.nodes()[term.conv?].op {
            Op::Conv2d(conv) => Some(conv),
            _ => None,
        }
    }

    /// The terms that are merged: of one source, of one stride and groups, of the same outputs, where that multiplies no more often
    /// than each by itself.
    fn clusters(&self, node: usize, terms: &[Term]) -> Result<Vec<Cluster>, GraphError> {
        let sum = self.graph.node_value(node);
        let channels = self.graph.channels(sum);
        let mut clusters = Vec::new();
        if !self.may_name(sum) {
            return Ok(clusters);
        }
        // the classes of convolutions in the order of their first ones, and the terms that are a source themselves
        let (mut classes, mut places) = (Vec::<Vec<usize>>::new(), HashMap::new());
        let mut plain: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (position, term) in terms.iter().enumerate() {
            let Some(conv) = self.conv(term) else {
                if self.graph.channels(term.source) == channels {
                    push(plain.entry(term.source).or_default(), position)?;
                }
                continue;
            };
            if conv.padding_mode == PaddingMode::Zeros && conv.out_channels == channels {
                let gained = [0, 1].map(|axis| Taps::of(conv, axis).gained());
                let class =
                    *places.entry((term.source, conv.stride, conv.groups, gained)).or_insert(classes.len());
                if class == classes.len() {
                    push(&mut classes, Vec::new())?;
                }
                push(&mut classes[class], position)?;
            }
        }
        for class in classes {
            let first = class[0];
            let (source, Some(conv)) = (terms[first].source, self.conv(&terms[first])) else { continue };
            let gained = [0, 1].map(|axis| Taps::of(conv, axis).gained());
            let itself = plain.get(&source).filter(|_| conv.stride == [1, 1] && gained == [0, 0]);
            let members = itself.into_iter().flatten().chain(&class).copied();
            if let Some(cluster) = self.cluster(terms, first, collected(members)?)?
                && self.may_name(cluster.named)
            {
                if cluster.terms.iter().any(|term| terms[*term].conv.is_none()) {
                    // of two classes of one source, the first one has it
                    plain.remove(&source);
                }
                push(&mut clusters, cluster)?;
            }
        }
        Ok(clusters)
    }

    /// The most of these terms that are merged, the smallest windows first; the convolution at `first` is one like all of theirs.
    fn cluster(
        &self,
        terms: &[Term],
        first: usize,
        mut members: Vec<usize>,
    ) -> Result<Option<Cluster>, GraphError> {
        let taps = |term: usize| match self.conv(&terms[term]) {
            Some(conv) => [0, 1].map(|axis| Taps::of(conv, axis)),
            None => [Taps::ITSELF; 2],
        };
        members.sort_by_key(|term| taps(*term).map(Taps::span).into_iter().fold(1_i64, i64::saturating_mul));
        let (mut merged, mut multiplied, mut best) = (taps(members[0]), 0_i64, None);
        for (position, term) in members.iter().enumerate() {
            let taps = taps(*term);
            let [Some(height), Some(width)] = [0, 1].map(|axis| merged[axis].with(taps[axis])) else { break };
            merged = [height, width];
            if let Some(conv) = self.conv(&terms[*term]) {
                multiplied = multiplied.saturating_add(area(conv.kernel_size));
            }
            if position > 0 && area(merged.map(|taps| taps.kernel)) <= multiplied {
                best = Some((position + 1, merged));
            }
        }
        let Some((count, merged)) = best else { return Ok(None) };
        members.truncate(count);
        // in the order of the sum
        members.sort_unstable();
        let named = members.iter().find(|term| terms[**term].conv.is_some());
        let (Some(conv), Some(named)) = (self.conv(&terms[first]), named) else { return Ok(None) };
        let has_bias = |term: &usize| {
            !terms[*term].affine.is_empty() || self.conv(&terms[*term]).is_some_and(|conv| conv.bias)
        };
        let conv = Conv2d {
            kernel_size: merged.map(|taps| taps.kernel),
            padding: merged.map(|taps| taps.padding),
            dilation: merged.map(|taps| taps.dilation),
            bias: members.iter().any(has_bias),
            ..conv.clone()
        };
        let (source, named) = (terms[first].source, terms[*named].value);
        Ok(Some(Cluster { terms: members, source, conv, named }))
    }

    /// Whether parameters of a node of this value's name would have names of their own.
    fn may_name(&self, value: ValueId) -> bool {
        let name = self.graph.name(value);
        ["weight", "bias"].iter().all(|what| self.graph.value(&format!("{name}.{what}")).is_none())
    }
}

/// Whether an operator scales and shifts each channel.
fn is_affine(op: &Op) -> bool {
    match op {
        Op::BatchNorm(BatchNorm { track_running_stats, .. }) => *track_running_stats,
        Op::WithOperand(WithOperand { function, reversed, .. }) => match function {
            Elementwise::Add | Elementwise::Mul | Elementwise::Sub => true,
            Elementwise::Div => !reversed,
            Elementwise::Minimum | Elementwise::Maximum => false,
        },
        _ => false,
    }
}

fn area([height, width]: [i64; 2]) -> i64 {
    height.saturating_mul(width)
}
