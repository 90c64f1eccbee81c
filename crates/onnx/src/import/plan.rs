//! The nodes of the network to be, each checked as it joins; those that an output needs become the network.
//!
//! Each is tried in a network of its own, so that what a network refuses is refused here, with its words, and channels, extents
//! and the shapes of parameters are inferred by the rules that hold there, and by no copy of them.

mod sizes;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ops::{Index, IndexMut};
use std::rc::Rc;

use tiled_graph::{
    Activation, Elementwise, Graph, Op, Operand, PadTarget, PadTo, ParamKind, Upsample, UpsampleTo, ValueId,
    WithOperand, infer, try_params,
};
use tiled_tensor::{OutOfMemory, push, with_room};

use super::extents::{Extent, Extents};
use super::form::Form;
use super::names::Names;
use super::numbers::{Num, Numbers};
use super::value::{Constant, Grouped, Image, Norming, Padded, Step, Value};
use crate::Reason;

/// Inputs and nodes, by number.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    all: Pieces,
    names: Names,
    /// The last operators that differ: most nodes of a network have one of few.
    recent: VecDeque<Rc<Op>>,
    /// What is known of extents.
    pub(crate) extents: Extents,
    /// The first of each height and width.
    firsts: HashMap<[Extent; 2], u32>,
    /// The first of each height, and of each width.
    firsts_along: [HashMap<Extent, u32>; 2],
    /// The last steps of norms that are values after all.
    settled: VecDeque<(Norming, usize)>,
    /// The last multiples of activations that are values.
    multiples: VecDeque<(Multiple, usize)>,
    /// The operands and values of stacks that are copies of others.
    pub(crate) expanded: usize,
}

/// A value, an activation of it, and the number that is its factor.
type Multiple = (usize, Activation, f64);

/// A long list in pieces of [`PIECE`], which are given back one by one as it is used up.
#[derive(Debug, Default)]
struct Pieces {
    pieces: Vec<Vec<Planned>>,
}

const PIECE: usize = 1 << 12;

impl Pieces {
    fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }

    fn push(&mut self, planned: Planned) -> Result<(), OutOfMemory> {
        if self.pieces.last().is_none_or(|last| last.len() == PIECE) {
            push(&mut self.pieces, Vec::new())?;
        }
        let last = self.pieces.last_mut().expect("invariant: there is one with room");
        push(last, planned)
    }
}

impl Index<usize> for Pieces {
    type Output = Planned;

    fn index(&self, plan: usize) -> &Planned {
        &self.pieces[plan / PIECE][plan % PIECE]
    }
}

impl IndexMut<usize> for Pieces {
    fn index_mut(&mut self, plan: usize) -> &mut Planned {
        &mut self.pieces[plan / PIECE][plan % PIECE]
    }
}

/// An input or a node.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) name: Box<str>,
    /// `None` of an input. What it upsamples to is a number among what is planned.
    pub(crate) op: Option<Rc<Op>>,
    pub(crate) inputs: Operands,
    pub(crate) params: Box<[(ParamKind, Constant)]>,
    pub(crate) channels: usize,
    /// Height and width, where the inputs declare theirs or the operator gives them.
    pub(crate) extents: Option<[usize; 2]>,
    /// Height and width as formulas of those of the inputs, as far as the operators say.
    formulas: [Extent; 2],
    /// The names of the model that stand for it.
    held: u32,
    /// What it is of other values, the nearest first; nothing once no name stands for it any more.
    pub(crate) forms: Box<[Form]>,
}

/// The numbers of a few operands, mostly one or two.
#[derive(Debug)]
pub(crate) enum Operands {
    /// Two at most; [`NONE`](Self::NONE) where there are fewer.
    Few([u32; 2]),
    Many(Box<[u32]>),
}

impl Operands {
    const NONE: u32 = u32::MAX;

    fn new(operands: &[usize]) -> Self {
        match *operands {
            [] => Self::Few([Self::NONE; 2]),
            [a] => Self::Few([number(a), Self::NONE]),
            [a, b] => Self::Few([number(a), number(b)]),
            _ => Self::Many(operands.iter().map(|operand| number(*operand)).collect()),
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let all = match self {
            Self::Few(few) => &few[..few.iter().take_while(|operand| **operand != Self::NONE).count()],
            Self::Many(many) => many,
        };
        all.iter().map(|operand| *operand as usize)
    }

    /// The one that all of them are.
    pub(crate) fn repeated(&self) -> Option<usize> {
        let first = self.first();
        self.iter().all(|operand| operand == first).then_some(first)
    }

    /// The first, which every operator has.
    pub(crate) fn first(&self) -> usize {
        self.iter().next().expect("invariant: every operator has an operand")
    }
}

/// A number among what is planned; a model has fewer nodes than there are of these, which is checked.
fn number(plan: usize) -> u32 {
    u32::try_from(plan).unwrap_or(u32::MAX)
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
        let (name, plan) = (self.names.take(name), self.all.len());
        let formulas = self.opened(extents)?;
        let input = Planned {
            name: name.into(),
            op: None,
            inputs: Operands::new(&[]),
            params: Box::default(),
            channels,
            extents,
            formulas,
            held: 0,
            forms: Box::default(),
        };
        Graph::new().add_input(&input.name, channels)?;
        self.all.push(input)?;
        self.enter(plan, formulas);
        Ok(plan)
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
        for plan in reads(&op, inputs.iter().copied()) {
            if let Entry::Vacant(place) = places.entry(plan) {
                place.insert(graph.add_input(&self.all[plan].name, self.all[plan].channels)?);
            }
        }
        let operands: Vec<ValueId> = inputs.iter().map(|input| places[input]).collect();
        let value = graph.add_node(&name, mapped(&op, |like| places[&like]), &operands)?;
        graph.set_outputs(&[value])?;
        check_parameters(&graph, &params)?;
        let mut extents: Vec<(ValueId, Option<[usize; 2]>)> =
            places.iter().map(|(plan, place)| (*place, self.all[*plan].extents)).collect();
        extents.sort_by_key(|(place, _)| *place);
        let known: Option<Vec<[usize; 2]>> = extents.into_iter().map(|(_, extents)| extents).collect();
        let shapes = known.map(|known| infer(&graph, 1, &known)).transpose()?;
        let extents = shapes.map(|shapes| shapes.extents(value));
        let plan = self.all.len();
        let formulas = match self.formulas(&op, &inputs)? {
            Some(formulas) => formulas,
            None => self.opened(extents)?,
        };
        let extents = extents.or_else(|| self.constants(formulas));
        let channels = graph.channels(value);
        let node = Planned {
            name: name.into(),
            op: Some(self.shared(op)),
            inputs: Operands::new(&inputs),
            params: params.into(),
            channels,
            extents,
            formulas,
            held: 0,
            forms: Box::default(),
        };
        self.all.push(node)?;
        self.enter(plan, formulas);
        Ok(plan)
    }

    /// Remembers the first value of a height and width.
    fn enter(&mut self, plan: usize, formulas: [Extent; 2]) {
        self.firsts.entry(formulas).or_insert(number(plan));
        for (firsts, extent) in self.firsts_along.iter_mut().zip(formulas) {
            firsts.entry(extent).or_insert(number(plan));
        }
    }

    /// The value that a step of a norm is where it is no part of one.
    pub(crate) fn settled(&mut self, norming: Norming, name: &str) -> Result<usize, Reason> {
        if let Some((_, made)) = self.settled.iter().find(|(known, _)| *known == norming) {
            return Ok(*made);
        }
        let Norming { plan, step } = norming;
        let before = |step| Norming { plan, step };
        let named = |what: &str| format!("{name}.{what}");
        let made = match step {
            Step::Mean => self.node(&named("mean"), Op::ChannelMean, vec![plan], Vec::new())?,
            Step::Centred => {
                let mean = self.settled(before(Step::Mean), name)?;
                self.node(&named("centred"), Op::Sub, vec![plan, mean], Vec::new())?
            }
            Step::Squares => {
                let centred = self.settled(before(Step::Centred), name)?;
                self.node(&named("squares"), Op::Mul, vec![centred, centred], Vec::new())?
            }
            Step::Variance => {
                let squares = self.settled(before(Step::Squares), name)?;
                self.node(&named("variance"), Op::ChannelMean, vec![squares], Vec::new())?
            }
            Step::MeanSquare => {
                let squares = self.node(&named("squares"), Op::Mul, vec![plan, plan], Vec::new())?;
                self.node(&named("mean_square"), Op::ChannelMean, vec![squares], Vec::new())?
            }
            Step::Guarded { eps, is_centred } => {
                let of = if is_centred { Step::Variance } else { Step::MeanSquare };
                let of = self.settled(before(of), name)?;
                let (function, operand) = (Elementwise::Add, Operand::Number(eps));
                let op = Op::WithOperand(WithOperand { function, operand, reversed: false });
                self.node(&named("guarded"), op, vec![of], Vec::new())?
            }
            Step::Root { eps, is_centred } => {
                let of = self.settled(before(Step::Guarded { eps, is_centred }), name)?;
                let op = Op::Activation(Activation::Sqrt);
                self.node(&named("root"), op, vec![of], Vec::new())?
            }
        };
        if self.settled.len() == RECENT {
            self.settled.pop_front();
        }
        self.settled.push_back((norming, made));
        Ok(made)
    }

    /// The value that forms are where one of them is a multiple of an activation and its arithmetic does not go on.
    pub(crate) fn multiplied(&mut self, forms: &[Form]) -> Result<Option<Image>, Reason> {
        let multiple = |form: &Form| Some((form.multiple()?, form.x()?));
        let found = forms.iter().find_map(|form| Some((form, multiple(form)?)));
        let Some((form, ((activation, factor), x))) = found else { return Ok(None) };
        let image = |plan: usize| Some(Image { plan, flat: form.flat });
        let multiple = (x, activation, factor);
        if let Some((_, made)) = self.multiples.iter().find(|(known, _)| *known == multiple) {
            return Ok(image(*made));
        }
        let name = format!("{}.{}", form.node, activation.name());
        let of = self.node(&name, Op::Activation(activation), vec![x], Vec::new())?;
        let (function, operand) = (Elementwise::Mul, Operand::Number(factor));
        let op = Op::WithOperand(WithOperand { function, operand, reversed: false });
        let made = self.node(&form.node, op, vec![of], Vec::new())?;
        if self.multiples.len() == RECENT {
            self.multiples.pop_front();
        }
        self.multiples.push_back((multiple, made));
        Ok(image(made))
    }

    /// The node of its own that pads, where something other than a convolution reads a padded value.
    pub(crate) fn padded(&mut self, padded: &Padded) -> Result<usize, Reason> {
        if let Some(made) = padded.made.get() {
            return Ok(made);
        }
        let made = self.node(&padded.name, Op::Pad(padded.pad), vec![padded.plan], Vec::new())?;
        padded.made.set(Some(made));
        Ok(made)
    }

    /// The operator, as one of the last nodes has it where one does.
    fn shared(&mut self, op: Op) -> Rc<Op> {
        if let Some(known) = self.recent.iter().find(|known| ***known == op) {
            return Rc::clone(known);
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let op = Rc::new(op);
        self.recent.push_back(Rc::clone(&op));
        op
    }

    /// Lets a node take the name of another, which gets a new one.
    pub(crate) fn rename(&mut self, plan: usize, from: usize) {
        let spare = std::mem::take(&mut self.all[plan].name);
        self.all[plan].name = std::mem::replace(&mut self.all[from].name, spare);
    }

    /// Keeps what a node is of other values: of the nearest few, as many as an activation is written out in.
    pub(crate) fn set_forms(&mut self, plan: usize, mut forms: Vec<Form>) {
        forms.truncate(8);
        self.all[plan].forms = forms.into();
    }

    /// Says that one more name of the model stands for it.
    pub(crate) fn hold(&mut self, plan: usize) {
        self.all[plan].held += 1;
    }

    /// Says that a name of the model that stood for it is not read any more.
    pub(crate) fn release(&mut self, plan: usize) {
        let planned = &mut self.all[plan];
        planned.held = planned.held.saturating_sub(1);
        if planned.held == 0 {
            planned.forms = Box::default();
        }
    }

    /// The network of what these outputs need, and the constants that its parameters are.
    pub(crate) fn build(self, outputs: &[usize]) -> Result<(Graph, Vec<Weight>), crate::OnnxError> {
        let mut is_needed = vec![false; self.all.len()];
        for output in outputs {
            is_needed[*output] = true;
        }
        for plan in (0..self.all.len()).rev().filter(|plan| self.all[*plan].op.is_some()) {
            if let (true, Some(op)) = (is_needed[plan], &self.all[plan].op) {
                reads(op, self.all[plan].inputs.iter()).for_each(|read| is_needed[read] = true);
            }
        }
        let (mut graph, mut weights) = (Graph::new(), Vec::new());
        graph.reserve(is_needed.iter().filter(|is_needed| **is_needed).count())?;
        let mut places = with_room(self.all.len())?;
        let mut owners: HashMap<(ParamKind, Constant), String> = HashMap::new();
        let Self { all, names, .. } = self;
        drop(names);
        for (plan, planned) in all.pieces.into_iter().flatten().enumerate() {
            let value = match &planned.op {
                None => graph.add_input(&planned.name, planned.channels)?,
                Some(_) if !is_needed[plan] => {
                    places.push(NOWHERE);
                    continue;
                }
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
                    graph.add_node_sharing(
                        &planned.name,
                        mapped(op, |like| places[like]),
                        &operands,
                        &shared,
                    )?
                }
            };
            places.push(value);
        }
        let outputs: Vec<ValueId> = outputs.iter().map(|output| places[*output]).collect();
        graph.set_outputs(&outputs)?;
        Ok((graph, weights))
    }

    /// Height or width, axis 2 or 3, as a model computes with it; axis 0 is the batch.
    pub(crate) fn extent(&self, plan: usize, axis: usize) -> Num {
        match axis {
            0 => Num::of(Extents::BATCH, &self.extents),
            _ => Num::of(self.all[plan].formulas[axis - 2], &self.extents),
        }
    }

    /// Whether a number is the height or width of a value, axis 2 or 3, or what the model declares it to be.
    pub(crate) fn is_extent(&self, item: Num, plan: usize, axis: usize) -> bool {
        let known = self.all[plan].extents.map(|extents| extents[axis - 2] as f64);
        item == self.extent(plan, axis) || (known.is_some() && item.known(&self.extents) == known)
    }

    /// Whether a number is that of the pixels of a value, whatever the image or as the model declares it.
    pub(crate) fn is_pixels(&self, item: Num, plan: usize) -> bool {
        let [height, width] = self.all[plan].formulas;
        if [Num::Area([height, width]), Num::Area([width, height])].contains(&item) {
            return true;
        }
        let pixels = self.all[plan].extents.map(|[height, width]| height as f64 * width as f64);
        pixels.is_some() && item.known(&self.extents) == pixels
    }

    /// Height and width by a divisor, rounded down; `None` where one is no formula.
    pub(crate) fn parts(&mut self, plan: usize, divisor: i64) -> Result<Option<[Num; 2]>, Reason> {
        let [height, width] = self.all[plan].formulas;
        let height = self.extents.linear(height, 1, 0, divisor)?;
        let width = self.extents.linear(width, 1, 0, divisor)?;
        Ok(height
            .zip(width)
            .map(|(height, width)| [height, width].map(|extent| Num::of(extent, &self.extents))))
    }

    /// Whether two values have the same height and width, whatever the image or as the model declares it.
    pub(crate) fn are_as_large(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.all[a], &self.all[b]);
        a.formulas == b.formulas || (a.extents.is_some() && a.extents == b.extents)
    }

    /// Whether a number of a shape keeps the batch; that is one image where the model leaves it open.
    pub(crate) fn is_batch(&self, item: Num) -> bool {
        let batch = self.extents.known(Extents::BATCH).unwrap_or(1);
        item == Num::Known(0.0) || item == Num::Extent(Extents::BATCH) || item == Num::Known(batch as f64)
    }

    /// The image of a value whose pixels are one axis, N×C×(H·W); `None` of another.
    pub(crate) fn lines(&self, value: &Value) -> Option<usize> {
        match *value {
            Value::Grouped(Grouped { plan, groups }) => (self.get(plan).channels == groups).then_some(plan),
            _ => None,
        }
    }

    /// Whether four numbers are the extents of a value, one of which may be left open.
    pub(crate) fn is_shape_of(&self, shape: &Numbers, plan: usize) -> bool {
        let is_open = |item: &Num| *item == Num::Known(-1.0);
        let [n, c, h, w] = shape.items.as_slice() else { return false };
        let is_channels = is_open(c) || *c == Num::Known(self.get(plan).channels as f64);
        let is_extent = |item: &Num, axis| is_open(item) || self.is_extent(*item, plan, axis);
        let open = shape.items.iter().filter(|item| is_open(item)).count();
        open <= 1 && (is_open(n) || self.is_batch(*n)) && is_channels && is_extent(h, 2) && is_extent(w, 3)
    }

    /// How many times the height and width of a value these are.
    pub(crate) fn ratios(&self, items: [Num; 2], plan: usize) -> Option<[i64; 2]> {
        let [height, width] = self.all[plan].formulas;
        match items {
            [Num::Extent(a), Num::Extent(b)] => {
                Some([self.extents.ratio(a, height)?, self.extents.ratio(b, width)?])
            }
            _ => None,
        }
    }

    /// The first values of this height and of this width, along axis 2 or 3.
    pub(crate) fn first_along(&self, extent: Extent, axis: usize) -> Option<usize> {
        self.firsts_along[axis - 2].get(&extent).map(|plan| *plan as usize)
    }

    /// The first value of this height and width.
    pub(crate) fn like(&self, items: [Num; 2]) -> Option<usize> {
        match items {
            [Num::Extent(height), Num::Extent(width)] => {
                self.firsts.get(&[height, width]).map(|plan| *plan as usize)
            }
            _ => None,
        }
    }
}

/// The operators that are compared with the next one.
const RECENT: usize = 32;

/// The place of what no output needs.
const NOWHERE: ValueId = ValueId(usize::MAX);

/// What an operator reads: its operands, and the values whose extents it takes.
fn reads(op: &Op, inputs: impl Iterator<Item = usize>) -> impl Iterator<Item = usize> {
    let like = match op {
        Op::Upsample(Upsample { to: UpsampleTo::Like(ValueId(like)), .. }) => [Some(*like), None],
        Op::PadTo(PadTo { to: PadTarget::Like([height, width]), .. }) => [Some(height.0), Some(width.0)],
        _ => [None, None],
    };
    inputs.chain(like.into_iter().flatten())
}

/// The operator in a network where what it reads has these places.
fn mapped(op: &Op, place: impl Fn(usize) -> ValueId) -> Op {
    match op {
        Op::Upsample(Upsample { mode, to: UpsampleTo::Like(ValueId(like)) }) => {
            Op::Upsample(Upsample { mode: *mode, to: UpsampleTo::Like(place(*like)) })
        }
        Op::PadTo(pad @ PadTo { to: PadTarget::Like(like), .. }) => {
            Op::PadTo(PadTo { to: PadTarget::Like(like.map(|ValueId(like)| place(like))), ..*pad })
        }
        other => other.clone(),
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
