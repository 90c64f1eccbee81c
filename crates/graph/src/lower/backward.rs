//! Gradient nodes and reductions: the loss, then one loop that accumulates over the rules of operators.

use std::cmp::Reverse;

use tiled_kernel::{Kernel, Reduction};
use tiled_tensor::{OutOfMemory, collected, push};

use super::builder::{Flowing, Lowering, Share, Tape, identity, lossless};
use super::forward::Network;
use crate::index::ValueId;
use crate::objective::Loss;
use crate::plan::error::PlanError;
use crate::program::{Edge, Finaliser, NodeId, NodeKind, SinkRole, SourceRole};

impl Network<'_> {
    /// Adds the gradients that an objective with this loss wants.
    pub(super) fn backward(&mut self, loss: Loss) -> Result<(), PlanError> {
        let outputs = self.output_nodes()?;
        self.lowering.loss(loss, outputs)?;
        self.lowering.flow_back()?;
        self.grad_inputs()?;
        Ok(self.lowering.shared_grads()?)
    }

    fn grad_inputs(&mut self) -> Result<(), OutOfMemory> {
        for input in (0..self.wanted.len()).filter(|input| self.wanted[*input]) {
            let node = self.node_of(ValueId(input));
            self.lowering.grad_input(input, node)?;
        }
        Ok(())
    }
}

impl Lowering {
    /// Adds the gradients of nodes, from the last to the first.
    fn flow_back(&mut self) -> Result<(), OutOfMemory> {
        for tape in std::mem::take(&mut self.tape).into_iter().rev() {
            if !self.wants_grad[tape.output] {
                continue;
            }
            if let Some(contributions) = self.gradients.remove(&tape.output) {
                let gradient = self.total(&tape.name, &contributions)?;
                self.rule(tape, gradient)?;
            }
        }
        Ok(())
    }

    /// Sums the shares of each parameter in the order of nodes, after the sweep that the last of them is known in.
    fn shared_grads(&mut self) -> Result<(), OutOfMemory> {
        // the gradients of nodes were made from the last to the first
        let mut order =
            collected(self.shares.iter().enumerate().map(|(index, share)| (share.param, Reverse(index))))?;
        order.sort_unstable();
        for shares in order.chunk_by(|(a, _), (b, _)| a == b) {
            let param = shares[0].0;
            let nodes = &self.program.nodes;
            let sweep_of = |share: &Share| nodes[self.program.reductions[share.of.reduction()].node].level;
            let sweep = shares.iter().map(|(_, Reverse(index))| sweep_of(&self.shares[*index])).max();
            for (position, (_, Reverse(index))) in shares.iter().enumerate() {
                let (share, is_first) = (self.shares[*index].of, position == 0);
                push(
                    &mut self.program.finalisers,
                    (sweep, Finaliser::SharedGrad { param, share, is_first }),
                )?;
            }
            push(&mut self.program.param_grads, param)?;
        }
        Ok(())
    }

    /// The gradient with respect to the outputs.
    fn loss(&mut self, loss: Loss, outputs: Vec<NodeId>) -> Result<(), PlanError> {
        match loss {
            Loss::GradOutput | Loss::GradOutputLater => {
                if loss == Loss::GradOutputLater {
                    self.program.second_half = Some(self.program.sweeps());
                }
                for (index, output) in outputs.into_iter().enumerate() {
                    let (channels, extents, level) = self.described(output);
                    let level = self.program.second_half.unwrap_or(level);
                    let name = format!("{}.grad", self.program.nodes[output].name);
                    let node = self.source(name, SourceRole::GradOutput(index), channels, extents, level)?;
                    push(self.gradients.entry(output).or_default(), node)?;
                }
            }
            Loss::Sum => {
                for output in outputs {
                    let (channels, extents, level) = self.described(output);
                    let name = self.program.nodes[output].name.clone();
                    let fill = NodeKind::Compute(Kernel::Fill { value: 1.0 });
                    let node =
                        self.push(format!("{name}.grad"), fill, channels, extents, Vec::new(), Vec::new())?;
                    self.program.nodes[node].level = level;
                    push(self.gradients.entry(output).or_default(), node)?;
                    let operands = vec![identity(output, extents)];
                    self.loss_value(&name, Reduction::Sum, output, operands, 1.0)?;
                }
            }
            Loss::MeanSquaredError => {
                let output = outputs[0];
                let channels = self.program.nodes[output].channels;
                let weight = 1.0 / (self.pixels(output) * lossless(channels));
                let kernel = Kernel::DifferenceScaled { scale: 2.0 * weight };
                self.against_target(output, channels, kernel, Reduction::SquaredError, weight)?;
            }
            Loss::CrossEntropy { target_channels } => {
                let output = outputs[0];
                let channels = self.program.nodes[output].channels;
                if target_channels != 1 && target_channels != channels {
                    return Err(PlanError::TargetChannels { output: channels, target: target_channels });
                }
                let weight = 1.0 / self.pixels(output);
                let kernel = Kernel::CrossEntropyBackward { scale: weight };
                self.against_target(output, target_channels, kernel, Reduction::CrossEntropy, weight)?;
            }
        }
        Ok(())
    }

    fn pixels(&self, node: NodeId) -> f64 {
        let node = &self.program.nodes[node];
        let [height, width] = node.extents.map(|extent| lossless(super::builder::extent(extent)));
        lossless(node.batch) * height * width
    }

    fn against_target(
        &mut self,
        output: NodeId,
        target_channels: usize,
        kernel: Kernel,
        reduction: Reduction,
        scale: f64,
    ) -> Result<(), OutOfMemory> {
        let (channels, extents, _) = self.described(output);
        let name = self.program.nodes[output].name.clone();
        let target = self.source("target".to_owned(), SourceRole::Target, target_channels, extents, 0)?;
        let operands = vec![identity(output, extents), identity(target, extents)];
        let kind = NodeKind::Compute(kernel);
        let node =
            self.push(format!("{name}.grad"), kind, channels, extents, operands.clone(), Vec::new())?;
        push(self.gradients.entry(output).or_default(), node)?;
        self.loss_value(&name, reduction, output, operands, scale)
    }

    fn loss_value(
        &mut self,
        name: &str,
        reduction: Reduction,
        output: NodeId,
        operands: Vec<Edge>,
        scale: f64,
    ) -> Result<(), OutOfMemory> {
        let (channels, extents, _) = self.described(output);
        let reduction =
            self.reduce(format!("{name}.loss"), reduction, channels, extents, operands, Vec::new())?;
        self.finalise(reduction, Finaliser::Loss { reduction, scale })
    }

    /// The sum of what flows into a node, from the left.
    fn total(&mut self, name: &str, contributions: &[NodeId]) -> Result<NodeId, OutOfMemory> {
        let mut total = contributions[0];
        for (position, &next) in contributions.iter().enumerate().skip(1) {
            total = self.binary(&format!("{name}.grad_sum{position}"), Kernel::Add, total, next)?;
        }
        Ok(total)
    }

    fn rule(&mut self, tape: Tape, mut gradient: NodeId) -> Result<(), OutOfMemory> {
        let Tape { name, output, activation, rule } = tape;
        if let Some(activation) = activation {
            let name = format!("{name}.grad_pre");
            gradient = self.binary(&name, Kernel::ActivationBackward(activation), gradient, output)?;
        }
        rule(self, &Flowing { name: &name, gradient })
    }

    /// Writes the gradient of an input, which a node holds.
    fn grad_input(&mut self, input: usize, node: NodeId) -> Result<(), OutOfMemory> {
        let role = SinkRole::GradInput(self.program.input_grads.len());
        push(&mut self.program.input_grads, input)?;
        let name = format!("{}.grad", self.program.nodes[node].name);
        let gradient = match self.gradients.remove(&node) {
            Some(contributions) => self.total(&name, &contributions)?,
            None => {
                let (channels, extents, _) = self.described(node);
                let zero = NodeKind::Compute(Kernel::Fill { value: 0.0 });
                self.push(format!("{name}.zero"), zero, channels, extents, Vec::new(), Vec::new())?
            }
        };
        self.sink(name, role, gradient)?;
        Ok(())
    }
}
