//! Random networks over every operator.

mod attributes;

use tiled::graph::{
    Activation, Conv2d, Dropout, Dropout2d, Elementwise, Graph, Linear, Op, Operand, ParamKind, Prelu,
    ResizeMode, Shapes, StochasticDepth, StochasticDepthMode, Upsample, UpsampleTo, ValueId, WithOperand,
    infer, params,
};

use super::draw::Draw;

/// A network with the sizes of its inputs.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) graph: Graph,
    pub(super) shapes: Shapes,
}

/// The most nodes of a network.
pub(super) const MAX_NODES: usize = 12;
/// The most elements of a value: what keeps a case below a tenth of a second.
const MAX_VALUE: usize = 120_000;

/// Draws a network of one to [`MAX_NODES`] nodes with one to three inputs and outputs.
pub(super) fn network(draw: &mut Draw) -> Network {
    loop {
        if let Some(network) = Growing::new(draw).grow() {
            return network;
        }
    }
}

/// A network that grows node by node; a node that does not fit is thrown away.
struct Growing<'d> {
    draw: &'d mut Draw,
    graph: Graph,
    batch: usize,
    extents: Vec<[usize; 2]>,
    shapes: Vec<[usize; 4]>,
}

impl<'d> Growing<'d> {
    fn new(draw: &'d mut Draw) -> Self {
        let batch = draw.pick(&[1, 1, 1, 2, 2, 3]);
        let mut growing = Self { draw, graph: Graph::new(), batch, extents: Vec::new(), shapes: Vec::new() };
        let first = growing.image();
        for place in 0..growing.draw.pick(&[1, 1, 1, 1, 2, 2, 3]) {
            let extents = if place == 0 || growing.draw.chance(60) { first } else { growing.image() };
            let channels = growing.draw.pick(&[1, 1, 2, 3, 3, 4, 5, 8, 9, 17]);
            let added = growing.graph.add_input(&format!("x{place}"), channels);
            debug_assert!(added.is_ok(), "invariant: inputs come first and have names of their own");
            growing.extents.push(extents);
            growing.shapes.push([batch, channels, extents[0], extents[1]]);
        }
        growing
    }

    /// The height and width of an input: mostly odd and not square, at times a line or a point.
    fn image(&mut self) -> [usize; 2] {
        let [height, width] = match self.draw.below(10) {
            0 => [self.draw.between(1, 4), self.draw.between(1, 120)],
            1 => [self.draw.between(1, 120), self.draw.between(1, 4)],
            _ => [self.draw.between(5, 80), self.draw.between(5, 80)],
        };
        [height, width].map(|extent| usize::try_from(extent).unwrap_or(1))
    }

    fn grow(mut self) -> Option<Network> {
        let nodes = 1 + self.draw.below(MAX_NODES);
        let head = self.draw.chance(20) && nodes >= 3;
        let body = if head { nodes - 2 } else { nodes };
        let mut tries = 0;
        while self.graph.nodes().len() < body && tries < 20 * MAX_NODES {
            tries += 1;
            self.node(body);
        }
        let head = if head { self.head() } else { None };
        self.finish(head)
    }

    /// A global pooling and a linear layer over the last image.
    fn head(&mut self) -> Option<ValueId> {
        let of = (0..self.graph.values()).rev().find(|value| self.shapes[*value][2..] != [1, 1])?;
        let pool = if self.draw.chance(70) { Op::GlobalAvgPool } else { Op::GlobalMaxPool };
        let pooled = self.push(pool, &[ValueId(of)])?;
        let linear = Linear { bias: self.draw.chance(70), ..Linear::new(2 + self.draw.below(5)) };
        self.push(Op::Linear(linear), &[pooled])
    }

    /// Adds a node, or nothing where what was drawn does not fit.
    fn node(&mut self, limit: usize) -> Option<ValueId> {
        let x = self.operand();
        let channels = self.graph.channels(x);
        let op = match self.draw.below(64) {
            0..=4 => Op::Conv2d(self.conv2d(channels)),
            5..=6 => Op::ConvTranspose2d(self.conv_transpose2d(channels)),
            7..=8 => Op::MaxPool2d(self.max_pool2d()),
            9..=10 => Op::AvgPool2d(self.avg_pool2d()),
            11..=12 => Op::BatchNorm(self.batch_norm()),
            13..=15 | 36..=41 => Op::Activation(self.activation()),
            16 => Op::Dropout(Dropout { p: self.draw.pick(&[0.0, 0.2, 0.5, 0.9]) }),
            17..=18 | 58 => Op::Upsample(self.upsample(x)),
            59 => Op::AdaptivePool2d(self.adaptive_pool2d()),
            19 if self.draw.chance(50) => Op::GlobalAvgPool,
            19 if self.draw.chance(60) => Op::GlobalMaxPool,
            19 => Op::GlobalSumPool,
            20 if self.shapes[x.0][2..] == [1, 1] => {
                Op::Linear(Linear { bias: self.draw.chance(70), ..Linear::new(1 + self.draw.below(6)) })
            }
            20 if self.draw.chance(30) => Op::Linear(self.linear_of_image(x)?),
            20..=21 => return self.residual(x, limit),
            26..=27 | 42..=43 => return self.again(),
            28..=29 => return self.arithmetic(x),
            30..=31 => Op::WithOperand(self.with_operand()),
            32 => {
                let num_parameters = if self.draw.chance(50) { channels } else { 1 };
                Op::Prelu(Prelu { num_parameters, init: self.draw.pick(&[0.25, -0.5]) })
            }
            33 => self.drop_whole(),
            34..=35 => return self.bounded(x, limit),
            44..=47 => self.norm(channels),
            48 if self.draw.chance(50) => Op::Softmax,
            48 => Op::LogSoftmax,
            49 => Op::LocalResponseNorm(self.local_response_norm()),
            50..=51 => self.part(channels)?,
            52..=54 => self.shuffle(x)?,
            55..=56 => Op::Pad(self.pad(x)),
            60..=61 => Op::PadTo(self.pad_to()),
            62 => Op::ChannelMax,
            63 if self.draw.chance(50) => Op::ChannelMean,
            63 => Op::ChannelSum,
            57 if self.draw.chance(25) => Op::ArgMax,
            57 => Op::Pad(self.pad(x)),
            kind => return self.join(x, kind),
        };
        self.push(op, &[x])
    }

    /// An operand, more often a late one.
    fn operand(&mut self) -> ValueId {
        let count = self.graph.values();
        if self.draw.chance(50) {
            return ValueId(count - 1 - self.draw.below(count.min(2)));
        }
        ValueId(self.draw.below(count))
    }

    /// A sum, product or concatenation of `x` and values of its shape, itself among them.
    fn join(&mut self, x: ValueId, kind: usize) -> Option<ValueId> {
        let shape = self.shapes[x.0];
        let op = match kind {
            22 => Op::Mul,
            23 => Op::Add,
            _ => Op::Concat,
        };
        let fits = |other: &[usize; 4]| {
            other[2..] == shape[2..] && (matches!(op, Op::Concat) || other[1] == shape[1])
        };
        let others: Vec<ValueId> =
            (0..self.shapes.len()).filter(|value| fits(&self.shapes[*value])).map(ValueId).collect();
        let distinct: Vec<ValueId> = others.iter().copied().filter(|value| *value != x).collect();
        let count = match op {
            Op::Concat if self.draw.chance(10) => 9,
            _ => self.draw.pick(&[2, 2, 2, 3]),
        };
        let mut operands = vec![x];
        while operands.len() < count {
            let from = if distinct.is_empty() || self.draw.chance(15) { &others } else { &distinct };
            let next = self.draw.pick(from);
            let place = self.draw.below(operands.len() + 1);
            operands.insert(place, next);
        }
        self.push(op, &operands)
    }

    /// A function of `x` and another value, either of which may stand for the channels or pixels of the other.
    fn arithmetic(&mut self, x: ValueId) -> Option<ValueId> {
        let [_, channels, height, width] = self.shapes[x.0];
        let fits = |[_, c, h, w]: &[usize; 4]| {
            (*c == channels || *c == 1 || channels == 1)
                && ([*h, *w] == [height, width] || [*h, *w] == [1, 1] || [height, width] == [1, 1])
        };
        let others: Vec<ValueId> =
            (0..self.shapes.len()).filter(|value| fits(&self.shapes[*value])).map(ValueId).collect();
        let is_spread = |value: &ValueId| self.shapes[value.0] != self.shapes[x.0];
        let spread: Vec<ValueId> = others.iter().copied().filter(is_spread).collect();
        let from = if spread.is_empty() || self.draw.chance(30) { &others } else { &spread };
        let other = self.draw.pick(from);
        let op = match self.draw.below(6) {
            0 => Op::Add,
            1 => Op::Mul,
            2 => Op::Minimum,
            3 => Op::Maximum,
            _ => Op::Sub,
        };
        let operands = if self.draw.chance(50) { [x, other] } else { [other, x] };
        self.push(op, &operands)
    }

    /// A function of a value and a number or a parameter; divisors are numbers away from zero.
    fn with_operand(&mut self) -> WithOperand {
        use Elementwise::{Add, Div, Maximum, Minimum, Mul, Sub};
        let function = self.draw.pick(&[Add, Mul, Sub, Div, Minimum, Maximum]);
        let number = Operand::Number(self.draw.pick(&[0.75, -1.5, 2.0]));
        let operand = if self.draw.chance(50) && function != Div { Operand::Weight } else { number };
        WithOperand { function, operand, reversed: function != Div && self.draw.chance(40) }
    }

    fn drop_whole(&mut self) -> Op {
        let p = self.draw.pick(&[0.2, 0.5]);
        match self.draw.below(3) {
            0 => Op::StochasticDepth(StochasticDepth { p, mode: StochasticDepthMode::Row }),
            1 => Op::StochasticDepth(StochasticDepth { p, mode: StochasticDepthMode::Batch }),
            _ => Op::Dropout2d(Dropout2d { p }),
        }
    }

    /// Functions that are steep somewhere, or not defined, of values between 0.5 and 1.5.
    fn bounded(&mut self, x: ValueId, limit: usize) -> Option<ValueId> {
        if self.graph.nodes().len() + 3 > limit {
            return None;
        }
        let between = self.push(Op::Activation(Activation::Sigmoid), &[x])?;
        let (function, operand) = (Elementwise::Add, Operand::Number(0.5));
        let above = Op::WithOperand(WithOperand { function, operand, reversed: false });
        let above = self.push(above, &[between])?;
        let function = Elementwise::Div;
        let op = match self.draw.below(14) {
            0 => return self.push(Op::Div, &[x, above]),
            1 => Op::WithOperand(WithOperand { function, operand, reversed: true }),
            2 => Op::WithOperand(WithOperand { function, operand: Operand::Weight, reversed: true }),
            3 | 7 => Op::Activation(Activation::Exp),
            4 | 8 => Op::Activation(Activation::Log),
            5 | 9 | 10 => Op::Activation(Activation::Sqrt),
            6 | 11 => Op::Activation(Activation::Reciprocal),
            _ => {
                let exponent = self.draw.pick(&[-2.0, 3.0, 1.5, -0.5]);
                Op::Activation(Activation::Pow { exponent })
            }
        };
        self.push(op, &[above])
    }

    /// A branch that keeps the shape, and the sum or product with what it starts from.
    fn residual(&mut self, x: ValueId, limit: usize) -> Option<ValueId> {
        if self.graph.nodes().len() + 2 > limit {
            return None;
        }
        let channels = self.graph.channels(x);
        let op = match self.draw.below(4) {
            // squeeze and excite: the whole image decides a factor for each channel
            0 => {
                if self.graph.nodes().len() + 3 > limit || self.shapes[x.0][2..] == [1, 1] {
                    return None;
                }
                let pooled = self.push(Op::GlobalAvgPool, &[x])?;
                if self.draw.chance(50) {
                    return self.push(Op::Mul, &[x, pooled]);
                }
                let like = Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Like(x) };
                let wide = self.push(Op::Upsample(like), &[pooled])?;
                return self.push(Op::Mul, &[x, wide]);
            }
            1 => Op::Conv2d(Conv2d::new(channels, [3, 1]).padded([1, 0])),
            2 => Op::Conv2d(Conv2d {
                groups: channels,
                dilation: [2, 2],
                ..Conv2d::new(channels, [3, 3]).padded([2, 2])
            }),
            _ => Op::Conv2d(Conv2d::new(channels, [3, 3]).padded([1, 1])),
        };
        let branch = self.push(op, &[x])?;
        let join = if self.draw.chance(75) { Op::Add } else { Op::Mul };
        let operands = if self.draw.chance(50) { [x, branch] } else { [branch, x] };
        self.push(join, &operands)
    }

    /// An operator that stands in the network once more, over all or some of its parameters.
    fn again(&mut self) -> Option<ValueId> {
        let specs = params(&self.graph);
        if specs.is_empty() {
            return None;
        }
        let before = self.draw.pick(&specs.iter().map(|spec| spec.node).collect::<Vec<_>>());
        let node = self.graph.nodes()[before].clone();
        let channels = self.graph.channels(node.inputs[0]);
        let fitting: Vec<ValueId> = (0..self.graph.values())
            .map(ValueId)
            .filter(|value| self.graph.channels(*value) == channels)
            .collect();
        let operand = match node.op {
            // a divisor that is away from zero
            Op::WithOperand(WithOperand { function: Elementwise::Div, reversed: true, .. }) => node.inputs[0],
            _ => self.draw.pick(&fitting),
        };
        let own = specs.iter().filter(|spec| spec.node == before).map(|spec| spec.kind);
        let mut kinds: Vec<ParamKind> = own.collect();
        kinds.retain(|_| self.draw.chance(80));
        let names: Vec<String> =
            kinds.iter().map(|kind| format!("{}.{}", node.name, kind.suffix())).collect();
        let shared: Vec<(ParamKind, &str)> =
            kinds.into_iter().zip(names.iter().map(String::as_str)).collect();
        self.push_sharing(node.op, &[operand], &shared)
    }

    /// Adds a node where the network stays valid and small.
    fn push(&mut self, op: Op, operands: &[ValueId]) -> Option<ValueId> {
        self.push_sharing(op, operands, &[])
    }

    fn push_sharing(
        &mut self,
        op: Op,
        operands: &[ValueId],
        shared: &[(ParamKind, &str)],
    ) -> Option<ValueId> {
        let mut graph = self.graph.clone();
        let name = format!("n{}", self.graph.nodes().len());
        let value = graph.add_node_sharing(&name, op, operands, shared).ok()?;
        graph.set_outputs(&[value]).ok()?;
        let shapes = infer(&graph, self.batch, &self.extents).ok()?;
        if shapes.elements(value) > MAX_VALUE {
            return None;
        }
        self.shapes.push(shapes.shape(value));
        self.graph = graph;
        Some(value)
    }

    /// Chooses outputs: the head first, then values that nothing reads, then perhaps one that is read.
    fn finish(mut self, head: Option<ValueId>) -> Option<Network> {
        let first_node = self.graph.inputs().len();
        let is_read = |value: &ValueId| self.graph.nodes().iter().any(|node| node.inputs.contains(value));
        let mut ends: Vec<ValueId> = (first_node..self.graph.values())
            .map(ValueId)
            .filter(|value| !is_read(value) && Some(*value) != head)
            .collect();
        let mut outputs: Vec<ValueId> = head.into_iter().collect();
        let most = 1 + self.draw.below(3);
        while outputs.len() < most && !ends.is_empty() {
            let place = if self.draw.chance(60) { ends.len() - 1 } else { self.draw.below(ends.len()) };
            outputs.push(ends.remove(place));
        }
        let another = ValueId(self.draw.below(self.graph.values()));
        if self.draw.chance(15) && outputs.len() < 3 && !outputs.contains(&another) {
            outputs.push(another);
        }
        self.graph.set_outputs(&outputs).ok()?;
        let shapes = infer(&self.graph, self.batch, &self.extents).ok()?;
        Some(Network { graph: self.graph, shapes })
    }
}

#[cfg(test)]
mod tests;
