//! Forward nodes.

use tiled_geometry::{AxisMap, PadMode, Padding, Resize, ResizeMode, Window};
use tiled_kernel::{Activation, Conv, Epilogue, Kernel, MAX_INPUTS, Pool, Reduction};
use tiled_tensor::{OutOfMemory, collected, copied, filled, push};

use super::tape::{Rule, Saved, Tape};
use super::{Lowering, edge, identity};
use crate::program::{Finaliser, Momentum, NodeId, NodeKind, Norm, Param, Running, SourceRole};
use crate::{
    AvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Linear, MaxPool2d, Op, PaddingMode, PlanError, Upsample,
    UpsampleMode, ValueId,
};

impl Lowering<'_> {
    pub(super) fn forward(&mut self) -> Result<(), PlanError> {
        for place in 0..self.graph.inputs().len() {
            let value = ValueId(place);
            let (channels, extents) = self.shape(value);
            let name = self.graph.name(value).to_owned();
            let node = self.source(name, SourceRole::Input(place), channels, extents, 0)?;
            self.wants_grad[node] = self.wanted.inputs[place];
            push(&mut self.values, node)?;
        }
        let graph = self.graph;
        let live = self.live()?;
        for (place, node) in graph.nodes().iter().enumerate() {
            let value = ValueId(graph.inputs().len() + place);
            if !live[value.0] {
                push(&mut self.values, NodeId::MAX)?; // nothing that is lowered reads it
                continue;
            }
            let operands = collected(node.inputs.iter().map(|input| self.values[input.0]))?;
            let mut result = self.operator(&node.name, &node.op, &operands, value)?;
            if self.is_checkpoint[value.0] {
                let stored = self.store(result)?;
                self.record(&node.name, stored, Rule::Store { x: result })?;
                result = stored;
            }
            push(&mut self.values, result)?;
        }
        Ok(())
    }

    /// Which values lead to an output; the others are not computed.
    fn live(&self) -> Result<Vec<bool>, OutOfMemory> {
        let inputs = self.graph.inputs().len();
        let mut live = filled(inputs + self.graph.nodes().len(), false)?;
        for output in self.graph.outputs() {
            live[output.0] = true;
        }
        for (place, node) in self.graph.nodes().iter().enumerate().rev() {
            if live[inputs + place] {
                for operand in &node.inputs {
                    live[operand.0] = true;
                }
            }
        }
        Ok(live)
    }

    fn shape(&self, value: ValueId) -> (usize, [i64; 2]) {
        let [_, channels, height, width] = self.shapes.shape(value);
        let extent = |size: usize| {
            i64::try_from(size).expect("invariant: sizes were checked when shapes were inferred")
        };
        (channels, [extent(height), extent(width)])
    }

    fn record(&mut self, name: &str, output: NodeId, rule: Rule) -> Result<(), OutOfMemory> {
        push(&mut self.tape, Tape { name: name.to_owned(), output, activation: None, rule })
    }

    fn operator(
        &mut self,
        name: &str,
        op: &Op,
        operands: &[NodeId],
        value: ValueId,
    ) -> Result<NodeId, PlanError> {
        let (channels, extents) = self.shape(value);
        let x = operands[0];
        Ok(match op {
            Op::Conv2d(conv) => self.conv2d(name, conv, x, channels, extents)?,
            Op::ConvTranspose2d(conv) => self.conv_transpose2d(name, conv, x, channels, extents)?,
            Op::Linear(linear) => self.linear(name, linear, x)?,
            Op::MaxPool2d(pool) => self.max_pool2d(name, pool, x, extents)?,
            Op::AvgPool2d(pool) => self.avg_pool2d(name, pool, x, extents)?,
            Op::BatchNorm(norm) => self.batch_norm(name, norm, x, self.trains(value))?,
            Op::Activation(activation) => self.activation(name, *activation, x, value)?,
            Op::Add => self.fold(name, Kernel::Add, operands)?,
            Op::Mul => self.fold(name, Kernel::Mul, operands)?,
            Op::Concat => self.concat(name, operands)?,
            Op::Upsample(upsample) => self.upsample(name, upsample, x, extents)?,
            Op::GlobalAvgPool => self.global_avg_pool(name, x)?,
            Op::GlobalMaxPool => self.global_max_pool(name, x)?,
            Op::Dropout(dropout) => {
                if !self.trains(value) || dropout.p == 0.0 {
                    return Ok(x);
                }
                let seed = self.objective.seed ^ (value.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let kernel = Kernel::Dropout { probability: dropout.p, seed };
                self.pointwise(name, kernel, x, kernel, None)?
            }
        })
    }

    /// A node of one operand of the same shape.
    fn pointwise(
        &mut self,
        name: &str,
        kernel: Kernel,
        x: NodeId,
        gradient: Kernel,
        saved: Option<Saved>,
    ) -> Result<NodeId, OutOfMemory> {
        let (channels, extents) = (self.program.nodes[x].channels, self.program.nodes[x].extents);
        self.unary(name, kernel, x, channels, extents, [AxisMap::Identity; 2], gradient, saved)
    }

    #[expect(clippy::too_many_arguments, reason = "a node and its gradient rule are described in one place")]
    fn unary(
        &mut self,
        name: &str,
        kernel: Kernel,
        x: NodeId,
        channels: usize,
        extents: [i64; 2],
        maps: [AxisMap; 2],
        gradient: Kernel,
        saved: Option<Saved>,
    ) -> Result<NodeId, OutOfMemory> {
        let operand = edge(x, maps, self.program.nodes[x].extents);
        let node = self.push(
            name.to_owned(),
            NodeKind::Compute(kernel),
            channels,
            extents,
            vec![operand],
            Vec::new(),
        )?;
        self.record(name, node, Rule::Unary { x, kernel: gradient, saved, maps })?;
        Ok(node)
    }

    fn conv2d(
        &mut self,
        name: &str,
        op: &Conv2d,
        x: NodeId,
        channels: usize,
        extents: [i64; 2],
    ) -> Result<NodeId, PlanError> {
        let mut x = x;
        let mut before = op.padding.map(|[before, _]| before);
        if op.padding_mode != PaddingMode::Zeros && op.padding.iter().flatten().any(|side| *side > 0) {
            let mode = match op.padding_mode {
                PaddingMode::Replicate => PadMode::Replicate,
                _ => PadMode::Reflect,
            };
            let source = &self.program.nodes[x];
            let (in_channels, in_extents) = (source.channels, source.extents);
            let mut paddings = Vec::with_capacity(2);
            for (extent, [before, after]) in in_extents.into_iter().zip(op.padding) {
                paddings.push(Padding::new(mode, extent, before, after)?);
            }
            let paddings = [paddings[0], paddings[1]];
            let padded = paddings.map(Padding::output);
            let maps = paddings.map(AxisMap::Padding);
            let gradient = Kernel::PadBackward(paddings);
            x = self.unary(
                &format!("{name}.pad"),
                Kernel::Pad(paddings),
                x,
                in_channels,
                padded,
                maps,
                gradient,
                None,
            )?;
            before = [0, 0];
        }
        let source = &self.program.nodes[x];
        let conv = Conv {
            in_channels: source.channels,
            out_channels: channels,
            groups: op.groups,
            windows: windows(op.kernel_size, op.stride, op.dilation, before)?,
            input: source.extents,
            output: extents,
        };
        Ok(self.convolution(name, conv, x, op.bias)?)
    }

    fn convolution(
        &mut self,
        name: &str,
        conv: Conv,
        x: NodeId,
        has_bias: bool,
    ) -> Result<NodeId, OutOfMemory> {
        let weight = self.param(name, "weight");
        let bias = has_bias.then(|| self.param(name, "bias"));
        let kernel = Kernel::conv2d(conv, Epilogue::of_bias(has_bias));
        let operand = edge(x, conv.windows.map(AxisMap::Window), conv.input);
        let params = self.conv_params(weight, bias);
        let node = self.push(
            name.to_owned(),
            NodeKind::Compute(kernel),
            conv.out_channels,
            conv.output,
            vec![operand],
            params,
        )?;
        self.wants_grad[node] |= self.wants_any([Some(weight), bias]);
        self.record(name, node, Rule::Conv { conv, x, weight, bias, is_transposed: false })?;
        Ok(node)
    }

    fn conv_params(&self, weight: usize, bias: Option<usize>) -> Vec<Param> {
        std::iter::once(weight).chain(bias).map(Param::Network).collect()
    }

    /// The transposed convolution is the gradient of the convolution with input and output swapped.
    fn conv_transpose2d(
        &mut self,
        name: &str,
        op: &ConvTranspose2d,
        x: NodeId,
        channels: usize,
        extents: [i64; 2],
    ) -> Result<NodeId, PlanError> {
        let source = &self.program.nodes[x];
        let conv = Conv {
            in_channels: channels,
            out_channels: source.channels,
            groups: op.groups,
            windows: windows(op.kernel_size, op.stride, op.dilation, op.padding)?,
            input: extents,
            output: source.extents,
        };
        let weight = self.param(name, "weight");
        let bias = op.bias.then(|| self.param(name, "bias"));
        let kernel = Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::of_bias(op.bias) };
        let operand = edge(x, conv.windows.map(AxisMap::Touched), conv.output);
        let params = self.conv_params(weight, bias);
        let node =
            self.push(name.to_owned(), NodeKind::Compute(kernel), channels, extents, vec![operand], params)?;
        self.wants_grad[node] |= self.wants_any([Some(weight), bias]);
        self.record(name, node, Rule::Conv { conv, x, weight, bias, is_transposed: true })?;
        Ok(node)
    }

    /// A linear layer over one pixel is a 1×1 convolution with the same weights.
    fn linear(&mut self, name: &str, op: &Linear, x: NodeId) -> Result<NodeId, PlanError> {
        let source = &self.program.nodes[x];
        let conv = Conv {
            in_channels: source.channels,
            out_channels: op.out_features,
            groups: 1,
            windows: [Window::IDENTITY; 2],
            input: source.extents,
            output: source.extents,
        };
        Ok(self.convolution(name, conv, x, op.bias)?)
    }

    fn max_pool2d(
        &mut self,
        name: &str,
        op: &MaxPool2d,
        x: NodeId,
        extents: [i64; 2],
    ) -> Result<NodeId, PlanError> {
        let pool = Pool {
            windows: op.windows()?,
            padding_after: op.padding.map(|[_, after]| after),
            input: self.program.nodes[x].extents,
            output: extents,
            counts_padding: false,
        };
        let gradient = Kernel::MaxPool2dBackward(pool);
        let maps = pool.windows.map(AxisMap::Window);
        let channels = self.program.nodes[x].channels;
        let saved = Some(Saved::Operand);
        Ok(self.unary(name, Kernel::MaxPool2d(pool), x, channels, extents, maps, gradient, saved)?)
    }

    fn avg_pool2d(
        &mut self,
        name: &str,
        op: &AvgPool2d,
        x: NodeId,
        extents: [i64; 2],
    ) -> Result<NodeId, PlanError> {
        let pool = Pool {
            windows: op.windows()?,
            padding_after: op.padding.map(|[_, after]| after),
            input: self.program.nodes[x].extents,
            output: extents,
            counts_padding: op.count_include_pad,
        };
        let maps = pool.windows.map(AxisMap::Window);
        let channels = self.program.nodes[x].channels;
        Ok(self.unary(
            name,
            Kernel::AvgPool2d(pool),
            x,
            channels,
            extents,
            maps,
            Kernel::AvgPool2dBackward(pool),
            None,
        )?)
    }

    /// Whether the node that makes a value trains.
    fn trains(&self, value: ValueId) -> bool {
        self.wanted.trains[value.0 - self.graph.inputs().len()]
    }

    fn batch_norm(
        &mut self,
        name: &str,
        op: &BatchNorm,
        x: NodeId,
        train: bool,
    ) -> Result<NodeId, OutOfMemory> {
        let (channels, extents) = (self.program.nodes[x].channels, self.program.nodes[x].extents);
        let norm = Norm {
            eps: op.eps,
            weight: op.affine.then(|| self.param(name, "weight")),
            bias: op.affine.then(|| self.param(name, "bias")),
            mean: self.derive(channels)?,
            inverse_std: self.derive(channels)?,
            scale: self.derive(channels)?,
            shift: self.derive(channels)?,
        };
        let running = op.track_running_stats.then(|| self.running(name, op));
        let of_batch = match running {
            Some(Running { mean, variance, .. }) if !train => {
                let running = [mean, variance];
                push(&mut self.program.finalisers, (None, Finaliser::BatchNormEval { norm, running }))?;
                false
            }
            running => {
                let operand = identity(x, extents);
                let what = format!("{name}.moments");
                let reduction =
                    self.reduce(what, Reduction::Moments, channels, extents, vec![operand], Vec::new())?;
                let count = self.shapes.batch() as u64 * pixels(extents);
                self.finalise(reduction, Finaliser::BatchNormTrain { norm, reduction, count, running })?;
                true
            }
        };
        let kernel = Kernel::ChannelAffine { activation: None };
        let params = vec![Param::Derived(norm.scale), Param::Derived(norm.shift)];
        let operand = identity(x, extents);
        let node =
            self.push(name.to_owned(), NodeKind::Compute(kernel), channels, extents, vec![operand], params)?;
        self.wants_grad[node] |= self.wants_any([norm.weight, norm.bias]);
        self.record(name, node, Rule::BatchNorm { x, norm, of_batch })?;
        Ok(node)
    }

    fn running(&self, name: &str, op: &BatchNorm) -> Running {
        Running {
            mean: self.param(name, "running_mean"),
            variance: self.param(name, "running_var"),
            momentum: match op.momentum {
                Some(momentum) => Momentum::Fixed(momentum),
                None => Momentum::Mean { batches: self.param(name, "num_batches_tracked") },
            },
        }
    }

    /// Fuses the activation into the node before it where that node serves nothing else, and where it is exact: a
    /// checkpoint between the two, which keeps them apart, must not change a bit.
    fn activation(
        &mut self,
        name: &str,
        activation: Activation,
        x: NodeId,
        value: ValueId,
    ) -> Result<NodeId, OutOfMemory> {
        let operand = self.graph.nodes()[value.0 - self.graph.inputs().len()].inputs[0];
        let serves_others = self.is_output[operand.0] || self.reads[operand.0] > 1;
        let tape = self.tape.last_mut().filter(|tape| tape.output == x && tape.activation.is_none());
        if let (Some(tape), false, Activation::Relu) = (tape, serves_others, activation)
            && let NodeKind::Compute(
                Kernel::Conv2d { epilogue: Epilogue { activation: fused, .. }, .. }
                | Kernel::Conv2dBackwardInput { epilogue: Epilogue { activation: fused, .. }, .. }
                | Kernel::ChannelAffine { activation: fused },
            ) = &mut self.program.nodes[x].kind
        {
            *fused = Some(activation);
            tape.activation = Some(activation);
            return Ok(x);
        }
        let saved = if activation.differentiates_from_output() { Saved::Output } else { Saved::Operand };
        let gradient = Kernel::ActivationBackward(activation);
        self.pointwise(name, Kernel::Activation(activation), x, gradient, Some(saved))
    }

    /// A sum or product of two or more operands, from the left.
    fn fold(&mut self, name: &str, kernel: Kernel, operands: &[NodeId]) -> Result<NodeId, OutOfMemory> {
        let mut total = operands[0];
        for (place, &next) in operands.iter().enumerate().skip(1) {
            let last = place + 1 == operands.len();
            let name = if last { name.to_owned() } else { format!("{name}.{place}") };
            let rule = match kernel {
                Kernel::Mul => Rule::Mul { a: total, b: next },
                _ => Rule::Add { operands: vec![total, next] },
            };
            total = self.binary(&name, kernel, total, next)?;
            self.record(&name, total, rule)?;
        }
        Ok(total)
    }

    pub(super) fn binary(
        &mut self,
        name: &str,
        kernel: Kernel,
        a: NodeId,
        b: NodeId,
    ) -> Result<NodeId, OutOfMemory> {
        let (channels, extents) = (self.program.nodes[a].channels, self.program.nodes[a].extents);
        let operands = vec![identity(a, extents), identity(b, extents)];
        self.push(name.to_owned(), NodeKind::Compute(kernel), channels, extents, operands, Vec::new())
    }

    fn concat(&mut self, name: &str, operands: &[NodeId]) -> Result<NodeId, OutOfMemory> {
        // what was joined comes first in the next few
        let mut parts = copied(operands)?;
        let (mut first, mut left) = (0, parts.len());
        while left > MAX_INPUTS {
            let next = first + MAX_INPUTS - 1;
            let joined = self.concat_few(&format!("{name}.{left}"), &parts[first..=next])?;
            parts[next] = joined;
            (first, left) = (next, left - MAX_INPUTS + 1);
        }
        self.concat_few(name, &parts[first..])
    }

    fn concat_few(&mut self, name: &str, parts: &[NodeId]) -> Result<NodeId, OutOfMemory> {
        let extents = self.program.nodes[parts[0]].extents;
        let channels = parts.iter().map(|part| self.program.nodes[*part].channels).sum();
        let operands = parts.iter().map(|part| identity(*part, extents)).collect();
        let node = self.push(
            name.to_owned(),
            NodeKind::Compute(Kernel::Concat),
            channels,
            extents,
            operands,
            Vec::new(),
        )?;
        self.record(name, node, Rule::Concat { operands: parts.to_vec() })?;
        Ok(node)
    }

    fn upsample(
        &mut self,
        name: &str,
        op: &Upsample,
        x: NodeId,
        extents: [i64; 2],
    ) -> Result<NodeId, PlanError> {
        let mode = match op.mode {
            UpsampleMode::Nearest => ResizeMode::Nearest,
            UpsampleMode::Bilinear { align_corners: false } => ResizeMode::Linear,
            UpsampleMode::Bilinear { align_corners: true } => ResizeMode::LinearAlignCorners,
        };
        let from = self.program.nodes[x].extents;
        let resize = [Resize::new(mode, from[0], extents[0])?, Resize::new(mode, from[1], extents[1])?];
        let channels = self.program.nodes[x].channels;
        let maps = resize.map(AxisMap::Resize);
        Ok(self.unary(
            name,
            Kernel::Resize(resize),
            x,
            channels,
            extents,
            maps,
            Kernel::ResizeBackward(resize),
            None,
        )?)
    }

    fn global_avg_pool(&mut self, name: &str, x: NodeId) -> Result<NodeId, OutOfMemory> {
        let (reduction, pixel) = self.global(name, Reduction::ImageSum, x)?;
        let count = pixels(self.program.nodes[x].extents);
        self.finalise(reduction, Finaliser::GlobalMean { reduction, count, pixel })?;
        let node = self.pixel(name, x, reduction, pixel)?;
        self.record(name, node, Rule::GlobalMean { x })?;
        Ok(node)
    }

    fn global_max_pool(&mut self, name: &str, x: NodeId) -> Result<NodeId, OutOfMemory> {
        let (reduction, pixel) = self.global(name, Reduction::ImageMax, x)?;
        let positions = self.derive(4 * self.shapes.batch() * self.program.nodes[x].channels)?;
        self.finalise(reduction, Finaliser::GlobalMax { reduction, pixel, positions })?;
        let node = self.pixel(name, x, reduction, pixel)?;
        self.record(name, node, Rule::GlobalMax { x, positions })?;
        Ok(node)
    }

    fn global(&mut self, name: &str, reduction: Reduction, x: NodeId) -> Result<(usize, usize), OutOfMemory> {
        let (channels, extents) = (self.program.nodes[x].channels, self.program.nodes[x].extents);
        let operand = identity(x, extents);
        let what = format!("{name}.{}", reduction.name());
        let place = self.reduce(what, reduction, channels, extents, vec![operand], Vec::new())?;
        push(&mut self.program.pixels, [self.shapes.batch(), channels])?;
        Ok((place, self.program.pixels.len() - 1))
    }

    /// The source of a value of one pixel that a reduction becomes.
    fn pixel(
        &mut self,
        name: &str,
        x: NodeId,
        reduction: usize,
        pixel: usize,
    ) -> Result<NodeId, OutOfMemory> {
        let channels = self.program.nodes[x].channels;
        let level = self.program.nodes[self.program.reductions[reduction].node].level + 1;
        let node = self.source(name.to_owned(), SourceRole::Pixel(pixel), channels, [1, 1], level)?;
        self.wants_grad[node] = self.wants_grad[x];
        Ok(node)
    }
}

fn windows(
    kernel: [i64; 2],
    stride: [i64; 2],
    dilation: [i64; 2],
    before: [i64; 2],
) -> Result<[Window; 2], PlanError> {
    let window = |axis: usize| Window::new(kernel[axis], stride[axis], dilation[axis], before[axis]);
    Ok([window(0)?, window(1)?])
}

fn pixels(extents: [i64; 2]) -> u64 {
    extents.iter().map(|extent| extent.unsigned_abs()).product()
}
