//! A sweep along one axis, made ready to be walked many times: edges in a row, their maps as plain numbers.

use std::collections::BTreeMap;

use tiled_geometry::{AxisMap, Chain, Filter, Interval, PadMode, Padding, Resize, div_ceil, div_floor};
use tiled_tensor::{OutOfMemory, filled, make_room, with_room};

use crate::index::{Id, IndexVec};
use crate::program::{Program, Rate};
use crate::rate;
use crate::sweep::{Action, Sweep, SweepNodeId};

/// The nodes and edges of a sweep along one axis.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) nodes: IndexVec<SweepNodeId, FlowNode>,
    /// The operands of each node, the last one first.
    links: Vec<Link>,
    /// The readers of each node: who, and through which of `links`.
    readers: Vec<(SweepNodeId, u32)>,
    /// The rates of the nodes, each once.
    pub(crate) rates: Vec<Rate>,
    /// The most nodes that lie on one path.
    pub(crate) depth: usize,
}

/// A node of a sweep along one axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowNode {
    pub(crate) extent: i64,
    /// The extent along the other axis: of rows, their length.
    pub(crate) across: i64,
    /// What it computes comes in whole cells of this.
    pub(crate) grain: i64,
    /// Its rate, in [`Flow::rates`].
    pub(crate) rate: u32,
    pub(crate) is_terminal: bool,
    /// Whether each of its calls reads weights, and is no terminal.
    pub(crate) reads_weights: bool,
    feeds_terminals: bool,
    links: [u32; 2],
    readers: [u32; 2],
}

/// An operand.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) operand: SweepNodeId,
    pub(crate) reach: Reach,
}

/// What wanted coordinates need of an operand: an [`Edge`](crate::program::Edge) along one axis.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    /// `[a·s − before, (b − 1)·s + after)`. With a stride of one nearly everything else is one of these too: it is worth
    /// more that there is one formula than that it is short.
    Window { stride: i64, before: i64, after: i64, extent: i64 },
    /// `[ceil((a − before)/s), floor((b − 1 + after)/s) + 1)`, with a stride above one.
    Touched { stride: i64, before: i64, after: i64, extent: i64 },
    /// Any chain.
    Maps(Chain),
}

impl Flow {
    pub(crate) fn new(program: &Program, sweep: &Sweep, axis: usize) -> Result<Self, OutOfMemory> {
        let count = sweep.len();
        let edges = sweep.iter().map(|node| node.operands.len()).sum();
        let most = sweep.iter().map(|node| node.operands.len()).max().unwrap_or(0);
        let readers = filled(edges, (SweepNodeId::new(0), 0))?;
        let (nodes, links) = (with_room(count)?, with_room(edges)?);
        let mut flow = Self { nodes: IndexVec::from(nodes), links, readers, rates: Vec::new(), depth: 0 };
        let mut rates = BTreeMap::new();
        let mut depths = IndexVec::<SweepNodeId, usize>::from(with_room(count)?);
        let mut asked: Vec<(SweepNodeId, usize)> = with_room(most)?;
        for node in sweep {
            let program_node = &program.nodes[node.node];
            // the last operand first: it may ask an earlier one, a shortcut, for more rows than this node does, which are
            // then one call and not two; and so on for what is before them
            asked.clear();
            asked.extend(node.operands.iter().copied().zip(0..));
            asked.sort_unstable_by(|a, b| b.cmp(a));
            let first = index(flow.links.len());
            for &(operand, which) in &asked {
                let reach = match node.action {
                    // the value that a sweep writes, inside by itself
                    Action::Write(_) if !program_node.is_terminal() => Reach::same(i64::MAX),
                    _ => Reach::of(&program_node.operands[which].axes[axis]),
                };
                flow.links.push(Link { operand, reach });
            }
            let depth = 1 + node.operands.iter().map(|operand| depths[*operand]).max().unwrap_or(0);
            depths.push(depth)?;
            flow.depth = flow.depth.max(depth);
            let rate = flow.number_of(program.rate(node.node, axis), &mut rates)?;
            flow.nodes.push(FlowNode {
                extent: program_node.extents[axis],
                across: program_node.extents[1 - axis],
                grain: match node.action {
                    Action::Compute => program_node.kernel().map_or(1, tiled_kernel::Kernel::grain),
                    _ => 1,
                },
                rate,
                is_terminal: node.is_terminal(),
                reads_weights: node.action == Action::Compute
                    && program.work(node.node).is_some_and(|work| work.weights() > 0),
                feeds_terminals: node.consumers.iter().any(|(reader, _)| sweep[*reader].is_terminal()),
                links: [first, index(flow.links.len())],
                readers: [0, 0],
            })?;
        }
        flow.read();
        Ok(flow)
    }

    /// The number of a rate among those of the nodes.
    fn number_of(&mut self, rate: Rate, numbers: &mut BTreeMap<Rate, u32>) -> Result<u32, OutOfMemory> {
        // neighbours mostly have the same
        if let Some(last) = self.nodes.last()
            && self.rates[last.rate as usize] == rate
        {
            return Ok(last.rate);
        }
        if let Some(number) = numbers.get(&rate) {
            return Ok(*number);
        }
        let number = index(self.rates.len());
        if self.rates.len() == self.rates.capacity() {
            make_room(&mut self.rates, self.nodes.len().clamp(4, 1 << 10))?;
        }
        self.rates.push(rate);
        numbers.insert(rate, number);
        Ok(number)
    }

    /// Finds the readers of each node, in their order.
    fn read(&mut self) {
        for link in &self.links {
            self.nodes[link.operand].readers[1] += 1;
        }
        let mut begin = 0;
        for node in &mut self.nodes {
            let count = node.readers[1];
            node.readers = [begin, begin];
            begin += count;
        }
        for id in self.nodes.ids() {
            let [begin, end] = self.nodes[id].links;
            for link in begin..end {
                let operand = &mut self.nodes[self.links[link as usize].operand];
                self.readers[operand.readers[1] as usize] = (id, link);
                operand.readers[1] += 1;
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn rate(&self, node: SweepNodeId) -> Rate {
        self.rates[self.nodes[node].rate as usize]
    }

    pub(crate) fn links(&self, node: SweepNodeId) -> &[Link] {
        let [begin, end] = self.nodes[node].links;
        &self.links[begin as usize..end as usize]
    }

    /// The readers of a node, each with what it needs of it.
    pub(crate) fn readers(&self, node: SweepNodeId) -> impl Iterator<Item = (SweepNodeId, &Reach)> {
        let [begin, end] = self.nodes[node].readers;
        let readers = &self.readers[begin as usize..end as usize];
        readers.iter().map(|(reader, link)| (*reader, &self.links[*link as usize].reach))
    }

    /// The numbers of the readers of a node, where a terminal is among them.
    pub(crate) fn terminals_of(&self, node: SweepNodeId) -> std::ops::Range<u32> {
        let node = &self.nodes[node];
        if node.feeds_terminals { node.readers[0]..node.readers[1] } else { 0..0 }
    }

    /// The reader of this number, if it is a terminal.
    pub(crate) fn terminal(&self, reader: u32) -> Option<SweepNodeId> {
        let (id, _) = self.readers[reader as usize];
        self.nodes[id].is_terminal.then_some(id)
    }
}

impl FlowNode {
    /// The coordinates that are computed where these are asked for: whole cells, clipped to the extent.
    #[inline]
    pub(crate) fn computed(&self, wanted: Interval) -> Interval {
        match self.grain {
            1 => wanted,
            grain => wanted.aligned(grain).intersect(Interval::whole(self.extent)),
        }
    }
}

impl Reach {
    fn of(chain: &Chain) -> Self {
        match *chain.maps() {
            [(AxisMap::Identity, extent)] => Self::same(extent),
            [(AxisMap::Window(window), extent)] => Self::Window {
                stride: window.stride(),
                before: window.padding(),
                after: window.extent() + 1 - window.padding(),
                extent,
            },
            [(AxisMap::Touched(window), extent)] => {
                let (before, after) = (window.extent() - window.padding(), window.padding());
                match window.stride() {
                    1 => Self::Window { stride: 1, before, after: after + 1, extent },
                    stride => Self::Touched { stride, before, after, extent },
                }
            }
            _ => Self::Maps(chain.clone()),
        }
    }

    /// The same coordinates.
    const fn same(extent: i64) -> Self {
        Self::Window { stride: 1, before: 0, after: 1, extent }
    }

    /// The coordinates of the operand that `wanted` needs, clipped to the image.
    #[inline(always)]
    pub(crate) fn needed(&self, wanted: Interval) -> Interval {
        if wanted.is_empty() {
            return Interval::EMPTY;
        }
        match *self {
            Self::Window { stride, before, after, extent } => Interval::new(
                (wanted.begin() * stride - before).max(0),
                ((wanted.end() - 1) * stride + after).min(extent),
            ),
            _ => self.needed_through(wanted),
        }
    }

    /// The same for maps that hardly any node has.
    fn needed_through(&self, wanted: Interval) -> Interval {
        match *self {
            Self::Window { .. } => self.needed(wanted),
            Self::Touched { stride, before, after, extent } => Interval::new(
                div_ceil(wanted.begin() - before, stride).max(0),
                (div_floor(wanted.end() - 1 + after, stride) + 1).min(extent),
            ),
            Self::Maps(ref chain) => chain.needed(wanted),
        }
    }

    /// Whether `wanted`, which is not empty, meets no border of the operand before, and none behind.
    #[inline]
    pub(crate) fn free(&self, wanted: Interval) -> [bool; 2] {
        let (begin, end) = (wanted.begin(), wanted.end());
        match *self {
            Self::Window { stride, before, after, extent } => {
                [begin * stride >= before, (end - 1) * stride + after <= extent]
            }
            Self::Touched { stride, before, after, extent } => {
                [begin >= before.max(0), end <= extent * stride - after]
            }
            Self::Maps(_) => {
                let mut free = [true; 2];
                self.walk(wanted, |stage, wanted| {
                    free[0] &= wanted.is_empty() || stage.free[0] <= wanted.begin();
                    free[1] &= wanted.is_empty() || wanted.end() <= stage.free[1];
                });
                free
            }
        }
    }

    /// Calls `visit` with each map, the coordinates wanted of it and the extent of what it reads.
    pub(crate) fn walk(&self, wanted: Interval, mut visit: impl FnMut(Stage, Interval)) -> Interval {
        let stages = match *self {
            Self::Maps(ref chain) => {
                return chain.walk(wanted, |map, extent, wanted| visit(Stage::of(map, extent), wanted));
            }
            Self::Window { stride, before, after, extent } => Stage::window(stride, before, after, extent),
            Self::Touched { stride, before, after, extent } => Stage::touched(stride, before, after, extent),
        };
        visit(stages, wanted);
        self.needed(wanted)
    }

    /// Whether coordinates in a row need coordinates in a row, however they are parted.
    pub(crate) const fn leaves_no_gap(&self) -> bool {
        match *self {
            Self::Window { stride, before, after, .. } => before + after >= stride,
            Self::Touched { .. } => true,
            Self::Maps(_) => false, // it is not known
        }
    }

    /// The most coordinates that may be wanted of the operand in vain: what lies between the windows of a stride.
    pub(crate) fn gap(&self) -> i64 {
        match *self {
            Self::Touched { stride, .. } => stride,
            Self::Maps(ref chain) => {
                let scale = chain.maps().first().and_then(|(map, _)| rate::scale(*map));
                scale.map_or(1, |[per, of]| div_ceil(of, per.max(1)))
            }
            _ => 1,
        }
    }

    /// By how far the operand's coordinates move where the wanted ones move by `shift` away from every border: `None`
    /// where that is no whole number or the map does not repeat, `Some(None)` where the operand stays.
    #[inline]
    pub(crate) fn shifted(&self, shift: i64) -> Option<Option<i64>> {
        match *self {
            Self::Window { stride, .. } => shift.checked_mul(stride).map(Some),
            Self::Touched { stride, .. } => (shift % stride == 0).then_some(Some(shift / stride)),
            Self::Maps(ref chain) => shifted(chain.maps(), shift),
        }
    }
}

fn shifted(maps: &[(AxisMap, i64)], shift: i64) -> Option<Option<i64>> {
    let mut shift = Some(shift);
    for (map, extent) in maps {
        shift = match (Stage::of(*map, *extent).scale, shift) {
            (Some([per, of]), Some(wanted)) => {
                let moved = i128::from(wanted) * i128::from(per);
                if moved % i128::from(of) != 0 {
                    return None;
                }
                Some(i64::try_from(moved / i128::from(of)).ok()?)
            }
            _ => None,
        };
    }
    Some(shift)
}

/// The coordinates of one node for several parts of a grid at a time. Where there are none, they begin past their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<const N: usize> {
    begin: [i64; N],
    end: [i64; N],
}

impl<const N: usize> Bounds<N> {
    pub(crate) const EMPTY: Self = Self { begin: [i64::MAX; N], end: [i64::MIN; N] };

    pub(crate) const fn interval(&self, number: usize) -> Interval {
        Interval::new(self.begin[number], self.end[number])
    }

    pub(crate) const fn set(&mut self, number: usize, interval: Interval) {
        let is_empty = interval.is_empty();
        self.begin[number] = if is_empty { i64::MAX } else { interval.begin() };
        self.end[number] = if is_empty { i64::MIN } else { interval.end() };
    }

    /// The hull of these and of what `wanted` needs through a reach: [`Reach::needed`] for each part.
    #[inline]
    pub(crate) fn take_in(&mut self, reach: &Reach, wanted: &Self) {
        match *reach {
            Reach::Window { stride, before, after, extent } => self.hull(wanted, |begin, end| {
                [(begin * stride - before).max(0), ((end - 1) * stride + after).min(extent)]
            }),
            _ => self.hull(wanted, |begin, end| {
                let needed = reach.needed(Interval::new(begin, end));
                [needed.begin(), needed.end()]
            }),
        }
    }

    #[inline]
    fn hull(&mut self, wanted: &Self, needed: impl Fn(i64, i64) -> [i64; 2]) {
        for number in 0..N {
            if wanted.begin[number] < wanted.end[number] {
                let [begin, end] = needed(wanted.begin[number], wanted.end[number]);
                let is_empty = end <= begin;
                self.begin[number] = self.begin[number].min(if is_empty { i64::MAX } else { begin });
                self.end[number] = self.end[number].max(if is_empty { i64::MIN } else { end });
            }
        }
    }
}

/// One map of a reach, as far as it repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    /// The coordinates read for each one wanted; `None` where the same are read wherever that is.
    pub(crate) scale: Option<[i64; 2]>,
    /// What may be wanted so that no border is met: `[free[0], free[1])`.
    pub(crate) free: [i64; 2],
}

impl Stage {
    fn of(map: AxisMap, extent: i64) -> Self {
        let scale = rate::scale(map);
        let resized = |resize: Resize, from: i64, to: i64| {
            // borders are met within as many pixels of the coarser side as are read behind an output
            let pixels = if matches!(resize.mode().filter, Filter::Cubic(_)) { 2 } else { 1 };
            let border = pixels * div_ceil(from, to.max(1)).max(1) + 1;
            Self { scale, free: [border, from - border] }
        };
        match map {
            AxisMap::Identity => Self { scale, free: [0, extent] },
            AxisMap::Window(window) => Self::window(
                window.stride(),
                window.padding(),
                window.extent() + 1 - window.padding(),
                extent,
            ),
            AxisMap::Touched(window) => {
                Self::touched(window.stride(), window.extent() - window.padding(), window.padding(), extent)
            }
            AxisMap::Resize(resize) => resized(resize, resize.output(), resize.input()),
            AxisMap::ResizeTouched(resize) => resized(resize, resize.input(), resize.output()),
            AxisMap::Padding(padding) => {
                Self { scale, free: [padding.before(), padding.before() + padding.input()] }
            }
            AxisMap::PaddingTouched(padding) => Self { scale, free: inside(padding) },
            AxisMap::Whole(_) => Self { scale: None, free: [i64::MIN, i64::MAX] },
        }
    }

    /// `a·s − before >= 0` and `(b − 1)·s + after <= extent`.
    fn window(stride: i64, before: i64, after: i64, extent: i64) -> Self {
        let free = match stride {
            1 => [before, extent - after + 1],
            _ => [div_ceil(before, stride), div_floor(extent - after, stride) + 1],
        };
        Self { scale: Some([stride, 1]), free }
    }

    /// `ceil((a − before)/s) >= 0` and `floor((b − 1 + after)/s) < extent`.
    fn touched(stride: i64, before: i64, after: i64, extent: i64) -> Self {
        let free = [before.max(0), extent * stride - after];
        Self { scale: Some([1, stride]), free }
    }
}

/// The inputs of a padding that it reads for no pixel outside the image.
fn inside(padding: Padding) -> [i64; 2] {
    match padding.mode() {
        // the padding of a side shows the other one
        PadMode::Circular => [padding.after(), padding.input() - padding.before()],
        PadMode::Reflect | PadMode::Replicate => {
            [padding.before() + 1, padding.input() - padding.after() - 1]
        }
    }
}

fn index(number: usize) -> u32 {
    u32::try_from(number).expect("invariant: a network of 2^32 nodes does not fit in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_its_borders_the_gradient_of_padding_moves_with_what_is_wanted() {
        for mode in [PadMode::Reflect, PadMode::Replicate, PadMode::Circular] {
            for (before, after) in [(0, 0), (0, 5), (5, 0), (2, 6), (6, 1)] {
                let padding = Padding::new(mode, 23, before, after).expect("less than the extent");
                let map = AxisMap::PaddingTouched(padding);
                let [begin, end] = Stage::of(map, padding.output()).free;
                assert!(begin + 1 < end, "{padding:?} has an inside");
                for first in begin..end - 1 {
                    for last in first + 1..end {
                        // `[first + 1, last + 1)` is inside too
                        let needed = map.needed(Interval::new(first, last));
                        let moved = map.needed(Interval::new(first + 1, last + 1));
                        let by_one = Interval::new(needed.begin() + 1, needed.end() + 1);
                        assert_eq!(moved, by_one, "{padding:?} [{first}, {last})");
                    }
                }
            }
        }
    }
}
