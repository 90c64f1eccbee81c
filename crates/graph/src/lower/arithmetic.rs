//! Arithmetic of several values: nodes, and gradients summed over what a value stands for.

use tiled_geometry::AxisMap;
use tiled_kernel::{Activation, Arithmetic, Kernel, Reduction, Spread};
use tiled_tensor::OutOfMemory;

use super::builder::{Flowing, Lowering, edge, identity};
use crate::program::{Finaliser, NodeId, NodeKind, Param, ParamId, SourceRole};

/// An operand of arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Term {
    /// A value, which stands for channels and pixels that it has not.
    Node(NodeId),
    /// A parameter, with a number for each channel or one for all.
    Param(ParamId),
    /// A number.
    Number(f64),
}

/// The channels and extents of what arithmetic makes.
pub(crate) type Shape = (usize, [i64; 2]);

impl Lowering {
    /// The channels and extents of a value.
    pub(crate) fn shape(&self, node: NodeId) -> Shape {
        let (channels, extents, _) = self.described(node);
        (channels, extents)
    }

    /// Adds a node of arithmetic of two operands, and records how its gradients flow.
    pub(crate) fn arithmetic(
        &mut self,
        name: &str,
        function: Arithmetic,
        operands: [Term; 2],
        shape: Shape,
    ) -> Result<NodeId, OutOfMemory> {
        let node = self.term(name.to_owned(), function, &operands, shape)?;
        self.record(name, node, move |lowering, at| {
            for position in [0, 1] {
                lowering.term_backward(at, function, operands, position)?;
            }
            Ok(())
        })?;
        Ok(node)
    }

    /// Adds the sum over the channels of a value, whose gradient is that of each channel.
    pub(crate) fn sum_channels(&mut self, name: &str, x: NodeId) -> Result<NodeId, OutOfMemory> {
        let (channels, extents) = self.shape(x);
        let kind = NodeKind::Compute(Kernel::SumChannels);
        let node = self.push(name.to_owned(), kind, 1, extents, vec![identity(x, extents)], Vec::new())?;
        self.record(name, node, move |lowering, at| {
            lowering.flow(x, |lowering| {
                let operands = [Term::Node(at.gradient), Term::Number(1.0)];
                lowering.term(at.named("grad_input"), Arithmetic::Mul, &operands, (channels, extents))
            })
        })?;
        Ok(node)
    }

    /// Adds a node of arithmetic.
    fn term(
        &mut self,
        name: String,
        function: Arithmetic,
        operands: &[Term],
        (channels, extents): Shape,
    ) -> Result<NodeId, OutOfMemory> {
        let (mut spreads, mut edges, mut params) = ([Spread::Whole; 3], Vec::new(), Vec::new());
        for (spread, operand) in spreads.iter_mut().zip(operands) {
            *spread = match *operand {
                Term::Number(number) => Spread::Number(number),
                Term::Param(param) => {
                    params.push(Param::Network(param));
                    Spread::Channel
                }
                Term::Node(node) => {
                    let shape = self.shape(node);
                    let is_pixel = shape.1 != extents;
                    edges.push(match is_pixel {
                        true => edge(node, [AxisMap::Whole(1); 2], [1, 1]),
                        false => identity(node, extents),
                    });
                    match shape.0 == channels {
                        _ if is_pixel => Spread::Pixel,
                        true => Spread::Whole,
                        false => Spread::Plane,
                    }
                }
            };
        }
        let kind = NodeKind::Compute(match (function, spreads) {
            // what a convolution may take over
            (Arithmetic::Add, [Spread::Whole, Spread::Whole, _]) => Kernel::Add,
            (Arithmetic::Mul, [Spread::Whole, Spread::Whole, _]) => Kernel::Mul,
            _ => Kernel::Arithmetic { function, operands: spreads },
        });
        let wants_param = params.iter().any(|param| matches!(param, Param::Network(id) if self.wants(*id)));
        let node = self.push(name, kind, channels, extents, edges, params)?;
        self.wants_grad[node] |= wants_param;
        Ok(node)
    }

    fn term_backward(
        &mut self,
        at: &Flowing<'_>,
        function: Arithmetic,
        operands: [Term; 2],
        position: usize,
    ) -> Result<(), OutOfMemory> {
        match operands[position] {
            Term::Number(_) => Ok(()),
            Term::Node(node) => self.flow(node, |lowering| {
                let name = at.named(&format!("grad_input{position}"));
                let shape = lowering.shape(node);
                let is_spread = shape != lowering.shape(at.gradient);
                let terms = if is_spread { format!("{name}.terms") } else { name.clone() };
                let gradient = lowering.term_gradient(terms, at.gradient, function, operands, position)?;
                lowering.gathered(&name, gradient, shape)
            }),
            Term::Param(param) if self.wants(param) => {
                let name = at.named("grad_weight");
                let terms = format!("{name}.terms");
                let gradient = self.term_gradient(terms, at.gradient, function, operands, position)?;
                let (channels, extents) = self.shape(gradient);
                let reduction = match self.program.params[param] {
                    1 => Reduction::Sum,
                    _ => Reduction::ChannelSum,
                };
                let operand = identity(gradient, extents);
                let reduction = self.reduce(name, reduction, channels, extents, vec![operand], Vec::new())?;
                self.param_grad(param, reduction)
            }
            Term::Param(_) => Ok(()),
        }
    }

    /// The gradient with respect to an operand as if it had the shape of the result.
    fn term_gradient(
        &mut self,
        name: String,
        gradient: NodeId,
        function: Arithmetic,
        [a, b]: [Term; 2],
        position: usize,
    ) -> Result<NodeId, OutOfMemory> {
        let (shape, g) = (self.shape(gradient), Term::Node(gradient));
        let (function, operands) = match (function, position) {
            (Arithmetic::Add, _) | (Arithmetic::Sub, 0) => return Ok(gradient),
            (Arithmetic::Sub, _) => {
                let kind = NodeKind::Compute(Kernel::Activation(Activation::Neg));
                let operand = identity(gradient, shape.1);
                return self.push(name, kind, shape.0, shape.1, vec![operand], Vec::new());
            }
            (Arithmetic::Mul, 0) => (Arithmetic::Mul, vec![g, b]),
            (Arithmetic::Mul, _) => (Arithmetic::Mul, vec![g, a]),
            (Arithmetic::Div, 0) => (Arithmetic::Div, vec![g, b]),
            (Arithmetic::Div, _) => (Arithmetic::DivisorBackward, vec![g, a, b]),
            (Arithmetic::Minimum, 0) => (Arithmetic::MinimumBackward, vec![g, a, b]),
            (Arithmetic::Minimum, _) => (Arithmetic::MinimumBackward, vec![g, b, a]),
            (Arithmetic::Maximum, 0) => (Arithmetic::MaximumBackward, vec![g, a, b]),
            (Arithmetic::Maximum, _) => (Arithmetic::MaximumBackward, vec![g, b, a]),
            (Arithmetic::Prelu, 0) => (Arithmetic::PreluBackward, vec![g, a, b]),
            (Arithmetic::Prelu, _) => (Arithmetic::PreluSlope, vec![g, a]),
            _ => unreachable!("invariant: networks have no gradients of gradients"),
        };
        self.term(name, function, &operands, shape)
    }

    /// The sum of a gradient over the channels and pixels that a value of this shape stands for: over channels in one order, over the
    /// image exactly, in a sweep of its own.
    fn gathered(
        &mut self,
        name: &str,
        gradient: NodeId,
        (channels, extents): Shape,
    ) -> Result<NodeId, OutOfMemory> {
        let (mut node, whole) = (gradient, self.shape(gradient));
        if channels != whole.0 {
            let (what, kind) = (format!("{name}.sum_channels"), NodeKind::Compute(Kernel::SumChannels));
            node = self.push(what, kind, channels, whole.1, vec![identity(node, whole.1)], Vec::new())?;
        }
        if extents == whole.1 {
            return Ok(node);
        }
        let (what, operand) = (format!("{name}.image_sum"), identity(node, whole.1));
        let reduction =
            self.reduce(what, Reduction::ImageSum, channels, whole.1, vec![operand], Vec::new())?;
        let pixel = self.program.pixels.push([self.batch, channels])?;
        self.finalise(reduction, Finaliser::GlobalMean { reduction, count: 1, pixel })?;
        let level = self.program.nodes[self.program.reductions[reduction].node].level + 1;
        self.source(name.to_owned(), SourceRole::Pixel(pixel), channels, extents, level)
    }
}
