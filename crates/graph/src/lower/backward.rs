//! Gradient nodes and reductions: one rule per operator, one loop that accumulates.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tiled_geometry::AxisMap;
use tiled_kernel::{Conv, Epilogue, Kernel, Reduction};
use tiled_tensor::{OutOfMemory, collected, push};

use super::tape::{Rule, Saved, Tape};
use super::{Lowering, edge, identity};
use crate::program::{Edge, Finaliser, GradShare, NodeId, NodeKind, Norm, Param, SinkRole, SourceRole};
use crate::{Loss, PlanError};

/// What a node adds to the gradient of a parameter that others read too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    param: usize,
    of: GradShare,
}

/// What flows into each node so far, in a fixed order.
type Gradients = BTreeMap<NodeId, Vec<NodeId>>;

impl Lowering<'_> {
    pub(super) fn backward(&mut self, loss: Loss) -> Result<(), PlanError> {
        let mut gradients = Gradients::new();
        self.loss(loss, &mut gradients)?;
        for tape in std::mem::take(&mut self.tape).into_iter().rev() {
            if !self.wants_grad[tape.output] {
                continue;
            }
            if let Some(contributions) = gradients.remove(&tape.output) {
                let gradient = self.total(&tape.name, &contributions)?;
                self.rule(tape, gradient, &mut gradients)?;
            }
        }
        self.grad_inputs(&mut gradients)?;
        self.shared_grads()?;
        Ok(())
    }

    /// The gradient of a parameter is a reduction's result, or a share of the sum over the nodes that read it.
    fn param_grad(&mut self, param: usize, reduction: usize) -> Result<(), OutOfMemory> {
        if self.readers[param] > 1 {
            return push(&mut self.shares, Share { param, of: GradShare::Whole { reduction } });
        }
        self.finalise(reduction, Finaliser::ParamGrad { reduction, param })?;
        push(&mut self.program.param_grads, param)
    }

    /// Sums the shares of each parameter in the order of nodes, after the sweep that the last of them is known in.
    fn shared_grads(&mut self) -> Result<(), OutOfMemory> {
        // the gradients of nodes were made from the last to the first
        let mut order =
            collected(self.shares.iter().enumerate().map(|(place, share)| (share.param, Reverse(place))))?;
        order.sort_unstable();
        for shares in order.chunk_by(|(a, _), (b, _)| a == b) {
            let param = shares[0].0;
            let nodes = &self.program.nodes;
            let sweep_of = |share: &Share| nodes[self.program.reductions[share.of.reduction()].node].level;
            let sweep = shares.iter().map(|(_, Reverse(place))| sweep_of(&self.shares[*place])).max();
            for (position, (_, Reverse(place))) in shares.iter().enumerate() {
                let (share, is_first) = (self.shares[*place].of, position == 0);
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
    fn loss(&mut self, loss: Loss, gradients: &mut Gradients) -> Result<(), PlanError> {
        let outputs = collected(self.graph.outputs().iter().map(|value| self.values[value.0]))?;
        match loss {
            Loss::GradOutput | Loss::GradOutputLater => {
                if loss == Loss::GradOutputLater {
                    self.program.second_half = Some(self.program.sweeps());
                }
                for (place, output) in outputs.into_iter().enumerate() {
                    let (channels, extents, level) = self.described(output);
                    let level = self.program.second_half.unwrap_or(level);
                    let name = format!("{}.grad", self.program.nodes[output].name);
                    let node = self.source(name, SourceRole::GradOutput(place), channels, extents, level)?;
                    push(gradients.entry(output).or_default(), node)?;
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
                    push(gradients.entry(output).or_default(), node)?;
                    let operands = vec![identity(output, extents)];
                    self.loss_value(&name, Reduction::Sum, output, operands, 1.0)?;
                }
            }
            Loss::MeanSquaredError => {
                let output = outputs[0];
                let channels = self.program.nodes[output].channels;
                let weight = 1.0 / (self.pixels(output) * lossless(channels));
                let kernel = Kernel::DifferenceScaled { scale: 2.0 * weight };
                self.against_target(output, channels, kernel, Reduction::SquaredError, weight, gradients)?;
            }
            Loss::CrossEntropy { target_channels } => {
                let output = outputs[0];
                let channels = self.program.nodes[output].channels;
                if target_channels != 1 && target_channels != channels {
                    return Err(PlanError::TargetChannels { output: channels, target: target_channels });
                }
                let weight = 1.0 / self.pixels(output);
                let kernel = Kernel::CrossEntropyBackward { scale: weight };
                self.against_target(
                    output,
                    target_channels,
                    kernel,
                    Reduction::CrossEntropy,
                    weight,
                    gradients,
                )?;
            }
        }
        Ok(())
    }

    fn described(&self, node: NodeId) -> (usize, [i64; 2], usize) {
        let node = &self.program.nodes[node];
        (node.channels, node.extents, node.level)
    }

    fn pixels(&self, node: NodeId) -> f64 {
        let node = &self.program.nodes[node];
        let [height, width] = node.extents.map(|extent| lossless(super::extent(extent)));
        lossless(node.batch) * height * width
    }

    fn against_target(
        &mut self,
        output: NodeId,
        target_channels: usize,
        kernel: Kernel,
        reduction: Reduction,
        scale: f64,
        gradients: &mut Gradients,
    ) -> Result<(), OutOfMemory> {
        let (channels, extents, _) = self.described(output);
        let name = self.program.nodes[output].name.clone();
        let target = self.source("target".to_owned(), SourceRole::Target, target_channels, extents, 0)?;
        let operands = vec![identity(output, extents), identity(target, extents)];
        let kind = NodeKind::Compute(kernel);
        let node =
            self.push(format!("{name}.grad"), kind, channels, extents, operands.clone(), Vec::new())?;
        push(gradients.entry(output).or_default(), node)?;
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
        let place =
            self.reduce(format!("{name}.loss"), reduction, channels, extents, operands, Vec::new())?;
        self.finalise(place, Finaliser::Loss { reduction: place, scale })
    }

    /// The sum of what flows into a node, from the left.
    fn total(&mut self, name: &str, contributions: &[NodeId]) -> Result<NodeId, OutOfMemory> {
        let mut total = contributions[0];
        for (place, &next) in contributions.iter().enumerate().skip(1) {
            total = self.binary(&format!("{name}.grad_sum{place}"), Kernel::Add, total, next)?;
        }
        Ok(total)
    }

    fn rule(&mut self, tape: Tape, gradient: NodeId, gradients: &mut Gradients) -> Result<(), OutOfMemory> {
        let Tape { name, output, activation, rule } = tape;
        let mut gradient = gradient;
        if let Some(activation) = activation {
            let extents = self.program.nodes[output].extents;
            let operands = vec![identity(gradient, extents), identity(output, extents)];
            let kind = NodeKind::Compute(Kernel::ActivationBackward(activation));
            let channels = self.program.nodes[output].channels;
            gradient =
                self.push(format!("{name}.grad_pre"), kind, channels, extents, operands, Vec::new())?;
        }
        let grad_input = format!("{name}.grad_input");
        match rule {
            Rule::Conv { conv, x, weight, bias, is_transposed } => {
                self.flow(x, gradients, |this| {
                    this.conv_backward_input(grad_input, conv, gradient, weight, is_transposed)
                })?;
                // the transposed convolution reads its gradient where the convolution reads its input
                let (wide, narrow) = if is_transposed { (gradient, x) } else { (x, gradient) };
                let window = edge(wide, conv.windows.map(AxisMap::Window), conv.input);
                let operands = vec![window, identity(narrow, conv.output)];
                self.weight_grad(&name, conv, weight, operands)?;
                self.bias_grad(&name, bias, gradient)
            }
            Rule::Unary { x, kernel, saved, maps } => self.flow(x, gradients, |this| {
                this.unary_backward(grad_input, kernel, [x, output, gradient], saved, maps)
            }),
            Rule::BatchNorm { x, norm, of_batch } => {
                self.batch_norm_backward(&name, [x, gradient], norm, of_batch, gradients)
            }
            Rule::Add { operands } => {
                operands.into_iter().try_for_each(|operand| self.flow(operand, gradients, |_| Ok(gradient)))
            }
            Rule::Mul { a, b } => {
                for (place, operand, other) in [(0, a, b), (1, b, a)] {
                    self.flow(operand, gradients, |this| {
                        this.binary(&format!("{grad_input}{place}"), Kernel::Mul, gradient, other)
                    })?;
                }
                Ok(())
            }
            Rule::Concat { operands } => {
                let mut begin = 0;
                for (place, operand) in operands.into_iter().enumerate() {
                    let (channels, extents, _) = self.described(operand);
                    self.flow(operand, gradients, |this| {
                        let kind = NodeKind::Compute(Kernel::Slice { begin });
                        let operands = vec![identity(gradient, extents)];
                        this.push(
                            format!("{grad_input}{place}"),
                            kind,
                            channels,
                            extents,
                            operands,
                            Vec::new(),
                        )
                    })?;
                    begin += channels;
                }
                Ok(())
            }
            Rule::GlobalMean { x } => {
                let (channels, extents, _) = self.described(x);
                let [height, width] = extents.map(|extent| lossless(super::extent(extent)));
                let kind = NodeKind::Compute(Kernel::Broadcast { scale: 1.0 / (height * width) });
                let operand = edge(gradient, [AxisMap::Whole(1); 2], [1, 1]);
                self.flow(x, gradients, |this| {
                    this.push(grad_input, kind, channels, extents, vec![operand], Vec::new())
                })
            }
            Rule::GlobalMax { x, positions } => {
                let (channels, extents, _) = self.described(x);
                let operand = edge(gradient, [AxisMap::Whole(1); 2], [1, 1]);
                let params = vec![Param::Derived(positions)];
                let kind = NodeKind::Compute(Kernel::Scatter);
                self.flow(x, gradients, |this| {
                    this.push(grad_input, kind, channels, extents, vec![operand], params)
                })
            }
            Rule::Store { x } => self.flow(x, gradients, |this| this.store(gradient)),
        }
    }

    /// Adds what `make` builds to the gradient of `x`, where one is wanted.
    fn flow(
        &mut self,
        x: NodeId,
        gradients: &mut Gradients,
        make: impl FnOnce(&mut Self) -> Result<NodeId, OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        if self.wants_grad[x] {
            let node = make(self)?;
            push(gradients.entry(x).or_default(), node)?;
        }
        Ok(())
    }

    /// The gradient of an operator with one operand: it reads `gy` through the adjoint map, and what it saved
    /// through the adjoint followed by the forward map.
    fn unary_backward(
        &mut self,
        name: String,
        kernel: Kernel,
        [x, output, gradient]: [NodeId; 3],
        saved: Option<Saved>,
        maps: [AxisMap; 2],
    ) -> Result<NodeId, OutOfMemory> {
        let (channels, extents, _) = self.described(x);
        let out_extents = self.program.nodes[output].extents;
        let adjoint =
            maps.map(|map| map.adjoint().expect("invariant: maps of operators with windows have an adjoint"));
        let mut operands = vec![edge(gradient, adjoint, out_extents)];
        match saved {
            None => {}
            Some(Saved::Output) => operands.push(edge(output, adjoint, out_extents)),
            Some(Saved::Operand) => operands.push(Edge {
                node: x,
                axes: std::array::from_fn(|axis| {
                    vec![(adjoint[axis], out_extents[axis]), (maps[axis], extents[axis])]
                }),
            }),
        }
        self.push(name, NodeKind::Compute(kernel), channels, extents, operands, Vec::new())
    }

    /// The gradient of a convolution is the transposed one, and the other way round.
    fn conv_backward_input(
        &mut self,
        name: String,
        conv: Conv,
        gradient: NodeId,
        weight: usize,
        is_transposed: bool,
    ) -> Result<NodeId, OutOfMemory> {
        let (kernel, operand, channels, extents) = if is_transposed {
            let operand = edge(gradient, conv.windows.map(AxisMap::Window), conv.input);
            (Kernel::conv2d(conv, Epilogue::NONE), operand, conv.out_channels, conv.output)
        } else {
            let operand = edge(gradient, conv.windows.map(AxisMap::Touched), conv.output);
            (
                Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::NONE },
                operand,
                conv.in_channels,
                conv.input,
            )
        };
        self.push(
            name,
            NodeKind::Compute(kernel),
            channels,
            extents,
            vec![operand],
            vec![Param::Network(weight)],
        )
    }

    fn weight_grad(
        &mut self,
        name: &str,
        conv: Conv,
        param: usize,
        operands: Vec<Edge>,
    ) -> Result<(), OutOfMemory> {
        if !self.wanted.params[param] {
            return Ok(());
        }
        let name = format!("{name}.grad_weight");
        let reduction = Reduction::ConvWeight(conv);
        let place = self.reduce(name, reduction, conv.out_channels, conv.output, operands, Vec::new())?;
        self.param_grad(param, place)
    }

    fn bias_grad(&mut self, name: &str, bias: Option<usize>, gradient: NodeId) -> Result<(), OutOfMemory> {
        let Some(param) = bias.filter(|param| self.wanted.params[*param]) else { return Ok(()) };
        let (channels, extents, _) = self.described(gradient);
        let operands = vec![identity(gradient, extents)];
        let name = format!("{name}.grad_bias");
        let place = self.reduce(name, Reduction::ChannelSum, channels, extents, operands, Vec::new())?;
        self.param_grad(param, place)
    }

    fn batch_norm_backward(
        &mut self,
        name: &str,
        [x, gradient]: [NodeId; 2],
        norm: Norm,
        of_batch: bool,
        gradients: &mut Gradients,
    ) -> Result<(), OutOfMemory> {
        let (channels, extents, _) = self.described(x);
        let operands = vec![identity(gradient, extents), identity(x, extents)];
        let wants_params = self.wants_any([norm.weight, norm.bias]);
        if wants_params || (of_batch && self.wants_grad[x]) {
            let mean = vec![Param::Derived(norm.mean)];
            let what = format!("{name}.grad_moments");
            let reduction =
                self.reduce(what, Reduction::CentredDot, channels, extents, operands.clone(), mean)?;
            let count = self.shapes.batch() as u64
                * extents.iter().map(|extent| extent.unsigned_abs()).product::<u64>();
            let coefficients = if of_batch {
                Some([self.derive(channels)?, self.derive(channels)?, self.derive(channels)?])
            } else {
                None
            };
            self.norm_grads(norm, reduction, count, coefficients)?;
            if let Some(places) = coefficients {
                let params = places.map(Param::Derived).to_vec();
                let kind = NodeKind::Compute(Kernel::ChannelCombine);
                let name = format!("{name}.grad_input");
                return self
                    .flow(x, gradients, |this| this.push(name, kind, channels, extents, operands, params));
            }
        }
        let zero = self.derive(channels)?;
        let kind = NodeKind::Compute(Kernel::ChannelAffine { activation: None });
        let params = vec![Param::Derived(norm.scale), Param::Derived(zero)];
        let operand = identity(gradient, extents);
        let name = format!("{name}.grad_input");
        self.flow(x, gradients, |this| this.push(name, kind, channels, extents, vec![operand], params))
    }

    /// The gradients of weight and bias of a batch normalisation, and the coefficients of that of its input.
    fn norm_grads(
        &mut self,
        norm: Norm,
        reduction: usize,
        count: u64,
        coefficients: Option<[usize; 3]>,
    ) -> Result<(), OutOfMemory> {
        let alone = |param: &usize| self.readers[*param] == 1;
        let own = Norm { weight: norm.weight.filter(alone), bias: norm.bias.filter(alone), ..norm };
        self.finalise(reduction, Finaliser::BatchNormBackward { norm: own, reduction, count, coefficients })?;
        let weight = GradShare::NormWeight { reduction, inverse_std: norm.inverse_std };
        for (param, of) in [(norm.weight, weight), (norm.bias, GradShare::NormBias { reduction })] {
            let Some(param) = param.filter(|param| self.wanted.params[*param]) else { continue };
            if self.readers[param] > 1 {
                push(&mut self.shares, Share { param, of })?;
            } else {
                push(&mut self.program.param_grads, param)?;
            }
        }
        Ok(())
    }

    fn grad_inputs(&mut self, gradients: &mut Gradients) -> Result<(), OutOfMemory> {
        for input in 0..self.wanted.inputs.len() {
            if !self.wanted.inputs[input] {
                continue;
            }
            let place = self.program.input_grads.len();
            push(&mut self.program.input_grads, input)?;
            let input = self.values[input];
            let name = format!("{}.grad", self.program.nodes[input].name);
            let gradient = match gradients.remove(&input) {
                Some(contributions) => self.total(&name, &contributions)?,
                None => {
                    let (channels, extents, _) = self.described(input);
                    let zero = NodeKind::Compute(Kernel::Fill { value: 0.0 });
                    self.push(format!("{name}.zero"), zero, channels, extents, Vec::new(), Vec::new())?
                }
            };
            self.sink(name, SinkRole::GradInput(place), gradient)?;
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of a tensor in memory or on disk are far below 2^53")]
fn lossless(size: usize) -> f64 {
    size as f64
}
