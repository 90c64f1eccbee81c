//! How fast the rows and columns of nodes move against one another.
//!
//! ```text
//! y = conv, stride s, of x:   rate(x) = s·rate(y)        rate = coordinates per coordinate of the group's measure
//! ```
//!
//! Maps with a scale tie the nodes at their ends together; where every path between two nodes gives the same ratio, the
//! nodes are of one group and keep that ratio over the whole image. So a schedule repeats, and tiles of one size are
//! alike. Ragged resizing (1351 rows to 2701) beside pooling has no such ratio: its group has none.

use tiled_geometry::AxisMap;
use tiled_tensor::{OutOfMemory, collected};

use crate::index::{Id, IndexVec};
use crate::program::{NodeId, NodeKind, ProgramNode, Rate, SinkRole, SourceRole, StoreId};

impl Rate {
    /// The coordinates of this node for each one of another, as a reduced fraction; `None` where they keep no ratio.
    #[must_use]
    pub fn to(self, other: Self) -> Option<[i64; 2]> {
        if self.group.is_none() || self.group != other.group {
            return None;
        }
        product([self.per, self.of], [other.of, other.per])
    }
}

/// The rates of all nodes along an axis.
pub(crate) fn rates(
    nodes: &IndexVec<NodeId, ProgramNode>,
    axis: usize,
) -> Result<IndexVec<NodeId, Rate>, OutOfMemory> {
    let mut groups = Groups::new(nodes.len())?;
    let stores = nodes.iter().filter_map(store).max().map_or(0, |last| last.index() + 1);
    let mut stored: IndexVec<StoreId, Option<NodeId>> = IndexVec::filled(stores, None)?;
    for (id, node) in nodes.entries() {
        if let Some(store) = store(node) {
            match stored[store] {
                None => stored[store] = Some(id),
                Some(other) => groups.tie(id, other, Some([1, 1])),
            }
        }
        for edge in &node.operands {
            let scales = edge.axes[axis].maps().iter().map(|(map, _)| scale(*map));
            match scales.collect::<Option<Vec<_>>>() {
                None => {} // the whole of the operand, wherever the reader is
                Some(scales) => {
                    let ratio = scales.into_iter().try_fold([1, 1], product);
                    groups.tie(edge.node, id, ratio);
                }
            }
        }
    }
    groups.rates()
}

/// The store that a node writes or reads.
fn store(node: &ProgramNode) -> Option<StoreId> {
    match node.kind {
        NodeKind::Source(SourceRole::Store(store)) | NodeKind::Sink(SinkRole::Store(store)) => Some(store),
        _ => None,
    }
}

/// The coordinates of the operand for each one wanted; `None` where the operand does not move.
pub(crate) fn scale(map: AxisMap) -> Option<[i64; 2]> {
    let resized = |resize: tiled_geometry::Resize| {
        let step = resize.step();
        (resize.input() > 1 && step[0] > 0).then_some(step)
    };
    match map {
        AxisMap::Identity | AxisMap::Padding(_) | AxisMap::PaddingTouched(_) => Some([1, 1]),
        AxisMap::Window(window) => Some([window.stride(), 1]),
        AxisMap::Touched(window) => Some([1, window.stride()]),
        AxisMap::Resize(resize) => resized(resize),
        AxisMap::ResizeTouched(resize) => resized(resize).map(|[from, to]| [to, from]),
        AxisMap::Whole(_) => None,
    }
}

/// The product of two fractions, reduced; `None` where it leaves 62 bits.
pub(crate) fn product(a: [i64; 2], b: [i64; 2]) -> Option<[i64; 2]> {
    let (x, y) = (gcd(a[0], b[1]), gcd(b[0], a[1]));
    let per = (a[0] / x).checked_mul(b[0] / y)?;
    let of = (a[1] / y).checked_mul(b[1] / x)?;
    let rest = gcd(per, of);
    let (per, of) = (per / rest, of / rest);
    (per < 1 << 62 && of < 1 << 62).then_some([per, of])
}

pub(crate) const fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    if a == 0 { 1 } else { a }
}

/// Sets of nodes with a ratio to the one that stands for the set.
struct Groups {
    parent: IndexVec<NodeId, NodeId>,
    /// The rate of a node for each of its parent's.
    ratio: IndexVec<NodeId, [i64; 2]>,
    size: IndexVec<NodeId, usize>,
    agrees: IndexVec<NodeId, bool>,
}

impl Groups {
    fn new(count: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            parent: collected((0..count).map(NodeId::new))?.into(),
            ratio: IndexVec::filled(count, [1, 1])?,
            size: IndexVec::filled(count, 1)?,
            agrees: IndexVec::filled(count, true)?,
        })
    }

    /// The node that stands for a node's set, and the ratio to it; paths stay short because smaller sets join larger ones.
    fn find(&self, node: NodeId) -> (NodeId, Option<[i64; 2]>) {
        let (mut at, mut ratio) = (node, Some([1, 1]));
        while self.parent[at] != at {
            ratio = ratio.and_then(|ratio| product(ratio, self.ratio[at]));
            at = self.parent[at];
        }
        (at, ratio)
    }

    /// `rate(node) = ratio · rate(other)`.
    fn tie(&mut self, node: NodeId, other: NodeId, ratio: Option<[i64; 2]>) {
        let ((a, of_a), (b, of_b)) = (self.find(node), self.find(other));
        // rate(a) = rate(node) / of_a = ratio · of_b / of_a · rate(b)
        let between = of_a
            .zip(of_b)
            .zip(ratio)
            .and_then(|((of_a, of_b), ratio)| product(product(ratio, of_b)?, [of_a[1], of_a[0]]));
        if a == b {
            self.agrees[a] &= between == Some([1, 1]);
            return;
        }
        let (small, large, between) = if self.size[a] <= self.size[b] {
            (a, b, between)
        } else {
            (b, a, between.map(|[per, of]| [of, per]))
        };
        self.parent[small] = large;
        self.ratio[small] = between.unwrap_or([1, 1]);
        self.size[large] += self.size[small];
        self.agrees[large] = self.agrees[large] && self.agrees[small] && between.is_some();
    }

    fn rates(&self) -> Result<IndexVec<NodeId, Rate>, OutOfMemory> {
        let rates = self.parent.ids().map(|node| match self.find(node) {
            (group, Some([per, of])) if self.agrees[group] => Rate { group: Some(group), per, of },
            _ => Rate { group: None, per: 1, of: 1 },
        });
        Ok(collected(rates)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Graph, Loss, Objective, infer, lower};

    fn agree(name: &str, extents: [usize; 2]) -> bool {
        let graph = Graph::builtin(name).expect("a built-in network");
        let shapes = infer(&graph, 1, &[extents]).expect("shapes");
        let program = lower(&graph, &shapes, &Objective::training(Loss::Sum), &[]).expect("a program");
        program.rates.iter().flatten().all(|rate| rate.group.is_some())
    }

    #[test]
    fn nodes_keep_their_ratios_unless_resizing_is_ragged() {
        assert!(agree("resnet18", [231, 999]), "strides alone always agree");
        assert!(agree("unet", [256, 512]));
        assert!(!agree("unet", [257, 511]), "pooled to 128 and resized to 257");
    }

    #[test]
    fn fractions_are_reduced_and_overflow_is_seen() {
        assert_eq!(product([4, 3], [9, 2]), Some([6, 1]));
        assert_eq!(product([1 << 40, 1], [1 << 40, 1]), None);
        assert_eq!(product([1 << 40, 1], [1, 1 << 40]), Some([1, 1]));
    }
}
