//! Nodes of one operand with their gradients, and nodes of two.

use tiled_geometry::{AxisMap, Chain};
use tiled_kernel::Kernel;
use tiled_tensor::OutOfMemory;

use super::builder::{Flowing, Lowering, Site, edge, identity};
use crate::program::{Edge, NodeId, NodeKind};

/// An operator of one operand, and the kernel of its gradient, which takes `gy` and perhaps a saved value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unary {
    pub(crate) kernel: Kernel,
    pub(crate) gradient: Kernel,
    pub(crate) saved: Option<Saved>,
    /// From the result to the operand.
    pub(crate) maps: [AxisMap; 2],
}

/// A value of the forward pass that a gradient reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Saved {
    /// The result of the node, at the same place.
    Output,
    /// The operand, through the forward map of what the gradient reads.
    Operand,
}

impl Lowering {
    /// Adds a node of one operand of the same shape.
    pub(crate) fn pointwise(
        &mut self,
        site: &Site<'_>,
        kernel: Kernel,
        gradient: Kernel,
        saved: Option<Saved>,
    ) -> Result<NodeId, OutOfMemory> {
        let (channels, extents, _) = self.described(site.x());
        let unary = Unary { kernel, gradient, saved, maps: [AxisMap::Identity; 2] };
        self.unary(site.name, unary, site.x(), channels, extents)
    }

    /// Adds a node of one operand.
    pub(crate) fn unary(
        &mut self,
        name: &str,
        unary: Unary,
        x: NodeId,
        channels: usize,
        extents: [i64; 2],
    ) -> Result<NodeId, OutOfMemory> {
        let operand = edge(x, unary.maps, self.program.nodes[x].extents);
        let kind = NodeKind::Compute(unary.kernel);
        let node = self.push(name.to_owned(), kind, channels, extents, vec![operand], Vec::new())?;
        self.record(name, node, move |lowering, at| {
            lowering.flow(x, |lowering| lowering.unary_backward(unary, at, x, node))
        })?;
        Ok(node)
    }

    /// The gradient of an operator with one operand: it reads `gy` through the adjoint map, and what it saved
    /// through the adjoint followed by the forward map.
    fn unary_backward(
        &mut self,
        unary: Unary,
        at: &Flowing<'_>,
        x: NodeId,
        output: NodeId,
    ) -> Result<NodeId, OutOfMemory> {
        let (channels, extents, _) = self.described(x);
        let out_extents = self.program.nodes[output].extents;
        let adjoint = unary
            .maps
            .map(|map| map.adjoint().expect("invariant: maps of operators with windows have an adjoint"));
        let mut operands = vec![edge(at.gradient, adjoint, out_extents)];
        match unary.saved {
            None => {}
            Some(Saved::Output) => operands.push(edge(output, adjoint, out_extents)),
            Some(Saved::Operand) => operands.push(Edge {
                node: x,
                axes: std::array::from_fn(|axis| {
                    Chain::new([(adjoint[axis], out_extents[axis]), (unary.maps[axis], extents[axis])])
                }),
            }),
        }
        let kind = NodeKind::Compute(unary.gradient);
        self.push(at.named("grad_input"), kind, channels, extents, operands, Vec::new())
    }

    /// Adds a node of two operands of the same shape.
    pub(crate) fn binary(
        &mut self,
        name: &str,
        kernel: Kernel,
        a: NodeId,
        b: NodeId,
    ) -> Result<NodeId, OutOfMemory> {
        let (channels, extents, _) = self.described(a);
        let operands = vec![identity(a, extents), identity(b, extents)];
        self.push(name.to_owned(), NodeKind::Compute(kernel), channels, extents, operands, Vec::new())
    }
}
