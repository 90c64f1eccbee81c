//! Which windows may share storage.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tiled_tensor::{OutOfMemory, collected, filled, make_room, push, refusable, with_room};

use super::PlanError;
use crate::index::{Id, IndexVec, id};
use crate::sweep::SweepNodeId;

id! {
    /// A slot: storage that windows of a sweep lie in, or values that are kept between sweeps.
    SlotId
}

/// The slot of each window of a sweep, or of each value that is kept between sweeps, and the elements of each slot.
pub(super) type Stored<I = SweepNodeId> = (IndexVec<I, Option<SlotId>>, IndexVec<SlotId, usize>);

/// The bytes of the windows of the sweep with the most.
pub(super) fn most_bytes<T>(stored: &[Stored]) -> Result<u64, PlanError> {
    let mut most = 0;
    for (_, slot_elements) in stored {
        most = most.max(window_bytes::<T>(slot_elements)?);
    }
    Ok(most)
}

/// The bytes of the windows of a lane.
pub(super) fn window_bytes<T>(slot_elements: &[usize]) -> Result<u64, PlanError> {
    let elements = slot_elements.iter().try_fold(0_u64, |sum, len| sum.checked_add(*len as u64));
    elements.and_then(|elements| elements.checked_mul(size_of::<T>() as u64)).ok_or(PlanError::TooLarge)
}

/// When a node is held in a tile: the first and the last call that it takes part in, `None` where it takes part in none.
pub(super) type Span = Option<[u64; 2]>;

/// When each node is held, in calls, for each kind of tile: windows held at different times may share storage.
#[derive(Debug, Default)]
pub(super) struct Spans {
    kinds: Vec<Kind>,
}

/// When each node is held in one kind of tile.
#[derive(Debug)]
struct Kind {
    spans: Vec<Span>,
    /// The same in ranks of the calls in which a node is first held: of two nodes that are held together, the one that is
    /// held later begins while both are.
    ranks: Vec<Option<[u32; 2]>>,
    /// The number of ranks.
    count: usize,
    /// Whether an earlier kind has the same ranks, so that what is free in one is free in the other.
    is_known: bool,
}

impl Spans {
    /// Takes in one kind of tile.
    pub(super) fn add(&mut self, spans: Vec<Span>) -> Result<(), OutOfMemory> {
        if self.kinds.iter().all(|kind| kind.spans != spans) {
            make_room(&mut self.kinds, 1)?;
            let mut kind = Kind::new(spans)?;
            kind.is_known = self.kinds.iter().any(|earlier| earlier.ranks == kind.ranks);
            self.kinds.push(kind);
        }
        Ok(())
    }

    /// Assigns storage, largest window first, to the first slot whose windows are never held together with it.
    /// Returns each node's slot and the sizes of the slots. Nodes of size zero get none.
    pub(super) fn assign<I: Id>(&self, sizes: &[usize]) -> Result<Stored<I>, OutOfMemory> {
        let nodes = (0_u32..).zip(sizes).filter(|(_, size)| **size > 0);
        let mut order: Vec<(Reverse<usize>, u32)> = with_room(sizes.len())?;
        order.extend(nodes.map(|(node, size)| (Reverse(*size), node)));
        if order.len() > MANY {
            return self.assign_alike(sizes, collected(order.into_iter().map(|(_, node)| node))?);
        }
        order.sort_unstable();
        let mut slots = Slots::new(self);
        let mut slot_of = filled(sizes.len(), None)?;
        let mut largest = Vec::new();
        for (Reverse(size), node) in order {
            let slot = slots.take(node as usize)?;
            if slot == largest.len() {
                if slot == largest.capacity() {
                    make_room(&mut largest, slot.max(SLOTS))?;
                }
                largest.push(size); // the first one is the largest
            }
            slot_of[node as usize] = Some(SlotId::new(slot));
        }
        Ok((slot_of.into(), largest.into()))
    }

    /// The same for very many windows: those of one size alone share, in the order in which they begin, each in the slot
    /// that has been free for longest. For one kind of tile no assignment of equal windows takes fewer slots.
    fn assign_alike<I: Id>(&self, sizes: &[usize], mut order: Vec<u32>) -> Result<Stored<I>, OutOfMemory> {
        let first = |kind: &Kind, node: u32| kind.spans[node as usize].map_or(0, |span| span[0]);
        let begin = |node: u32| self.kinds.first().map_or(0, |kind| first(kind, node));
        order.sort_unstable_by_key(|node| (Reverse(sizes[*node as usize]), begin(*node), *node));
        let mut slot_of = filled(sizes.len(), None)?;
        let mut largest: Vec<usize> = Vec::new();
        // of each slot of the size at hand, the calls of each kind of tile from which on it is free
        let mut free: BinaryHeap<Reverse<(Vec<u64>, u32)>> = BinaryHeap::new();
        for node in order {
            let size = sizes[node as usize];
            if largest.last().is_some_and(|last| *last != size) {
                free.clear();
            }
            let is_free = |ends: &[u64]| {
                self.kinds
                    .iter()
                    .zip(ends)
                    .all(|(kind, end)| kind.spans[node as usize].is_none_or(|[first, _]| *end <= first))
            };
            let (mut ends, slot) = match free.pop() {
                Some(Reverse((ends, slot))) if is_free(&ends) => (ends, slot),
                taken => {
                    free.extend(taken);
                    push(&mut largest, size)?;
                    let slot = u32::try_from(largest.len() - 1).unwrap_or(u32::MAX);
                    (filled(self.kinds.len(), 0)?, slot)
                }
            };
            for (end, kind) in ends.iter_mut().zip(&self.kinds) {
                *end = kind.spans[node as usize].map_or(*end, |[_, last]| last + 1);
            }
            let wanted = free.len() + 1;
            refusable(|| free.try_reserve(1)).map_err(|_| OutOfMemory::of::<(Vec<u64>, u32)>(wanted))?;
            free.push(Reverse((ends, slot)));
            slot_of[node as usize] = Some(SlotId::new(slot as usize));
        }
        Ok((slot_of.into(), largest.into()))
    }
}

impl Kind {
    fn new(spans: Vec<Span>) -> Result<Self, OutOfMemory> {
        let mut begins = collected(spans.iter().flatten().map(|[first, _]| *first))?;
        begins.sort_unstable();
        begins.dedup();
        // the last rank that begins at or before a call
        let rank =
            |call: u64| u32::try_from(begins.partition_point(|begin| *begin <= call)).unwrap_or(u32::MAX) - 1;
        let ranks = collected(spans.iter().map(|span| span.map(|span| span.map(rank))))?;
        Ok(Self { spans, ranks, count: begins.len(), is_known: false })
    }
}

/// From so many windows on, looking for the first slot that is free takes longer than it is worth.
const MANY: usize = 4096;

/// The slots of a group: as many as an integer has bits.
const SLOTS: usize = 128;

/// Slots in groups, with when each is taken.
struct Slots<'s> {
    spans: &'s Spans,
    /// Of each group, for each kind of tile.
    groups: Vec<Vec<Taken>>,
}

/// When the slots of a group are taken: a tree over the ranks of the calls, with a bit for each slot.
struct Taken {
    /// Of each node of the tree: the slots that are taken in all of its ranks by one window, and those that are taken in any.
    tree: Vec<[u128; 2]>,
    leaves: usize,
}

impl<'s> Slots<'s> {
    const fn new(spans: &'s Spans) -> Self {
        Self { spans, groups: Vec::new() }
    }

    /// Takes the first slot that is free while a node is held.
    fn take(&mut self, node: usize) -> Result<usize, OutOfMemory> {
        let kinds = || self.spans.kinds.iter().filter(|kind| !kind.is_known);
        for group in 0.. {
            if group == self.groups.len() {
                make_room(&mut self.groups, group.max(1))?;
                let mut trees = with_room(kinds().count())?;
                for kind in kinds() {
                    trees.push(Taken::new(kind.count)?);
                }
                self.groups.push(trees);
            }
            let trees = &mut self.groups[group];
            let held = || kinds().map(|kind| kind.ranks[node]);
            let taken = trees.iter().zip(held()).filter_map(|(tree, held)| Some(tree.slots(held?)));
            let slot = taken.fold(0_u128, |all, taken| all | taken).trailing_ones();
            if (slot as usize) < SLOTS {
                for (tree, held) in trees.iter_mut().zip(held()) {
                    if let Some(held) = held {
                        tree.take(held, 1 << slot);
                    }
                }
                return Ok(group * SLOTS + slot as usize);
            }
        }
        unreachable!("invariant: a group that was just made has room")
    }
}

impl Taken {
    fn new(ranks: usize) -> Result<Self, OutOfMemory> {
        let leaves = ranks.next_power_of_two();
        Ok(Self { tree: filled(2 * leaves, [0; 2])?, leaves })
    }

    /// The slots that are taken at some time between two ranks.
    fn slots(&self, [first, last]: [u32; 2]) -> u128 {
        let tree = &self.tree[..];
        let (mut from, mut to) = (self.leaves + first as usize, self.leaves + last as usize);
        let mut taken = tree[from][1] | tree[to][1];
        // what lies between the two paths to the root, and what covers them
        while from >> 1 != to >> 1 {
            taken |= (tree[from ^ 1][1] & if_even(from)) | (tree[to ^ 1][1] & !if_even(to));
            (from, to) = (from >> 1, to >> 1);
            taken |= tree[from][0] | tree[to][0];
        }
        while from > 1 {
            from >>= 1;
            taken |= tree[from][0];
        }
        taken
    }

    /// Takes a slot from one rank to another.
    fn take(&mut self, [first, last]: [u32; 2], slot: u128) {
        let tree = &mut self.tree[..];
        let take = |tree: &mut [[u128; 2]], node: usize, slot: u128| {
            tree[node] = tree[node].map(|slots| slots | slot)
        };
        let (mut from, mut to) = (self.leaves + first as usize, self.leaves + last as usize);
        take(tree, from, slot);
        take(tree, to, slot);
        while from >> 1 != to >> 1 {
            take(tree, from ^ 1, slot & if_even(from));
            take(tree, to ^ 1, slot & !if_even(to));
            (from, to) = (from >> 1, to >> 1);
            tree[from][1] |= slot;
            tree[to][1] |= slot;
        }
        while from > 1 {
            from >>= 1;
            tree[from][1] |= slot;
        }
    }
}

/// All bits for an even number, none for an odd one: which side of its parent a node is on is not worth a guess.
const fn if_even(number: usize) -> u128 {
    (number as u128 & 1).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that no two windows of one slot are held at the same time, and that each fits.
    fn check(spans: &Spans, sizes: &[usize], (slots, largest): &Stored) {
        for (a, slot) in slots.iter().enumerate() {
            assert_eq!(slot.is_some(), sizes[a] > 0);
            let Some(slot) = slot else { continue };
            assert!(sizes[a] <= largest[*slot]);
            for b in (0..a).filter(|b| slots.get(*b) == Some(&Some(*slot))) {
                for kind in &spans.kinds {
                    if let (Some(a), Some(b)) = (kind.spans[a], kind.spans[b]) {
                        assert!(a[1] < b[0] || b[1] < a[0], "{a:?} and {b:?} share a slot");
                    }
                }
            }
        }
    }

    fn random(count: usize, kinds: usize, rng: &mut crate::Rng) -> (Spans, Vec<usize>) {
        let mut below = |end: u64| rng.next_u64() % end;
        let sizes = (0..count).map(|_| usize::try_from(below(4)).unwrap_or(0) * 16).collect();
        let mut spans = Spans::default();
        for _ in 0..kinds {
            let span = |_| {
                let (first, long) = (below(300), below(120));
                (below(8) > 0).then_some([first, first + long])
            };
            spans.add((0..count).map(span).collect()).expect("there is room");
        }
        (spans, sizes)
    }

    /// The first slot without a conflict, looked for one after another.
    fn first_fit(spans: &Spans, sizes: &[usize]) -> Vec<Option<SlotId>> {
        let mut order: Vec<usize> = (0..sizes.len()).filter(|node| sizes[*node] > 0).collect();
        order.sort_by_key(|node| (Reverse(sizes[*node]), *node));
        let mut slot_of: Vec<Option<SlotId>> = vec![None; sizes.len()];
        for node in order {
            let is_free = |slot: &SlotId| {
                (0..sizes.len()).filter(|other| slot_of[*other] == Some(*slot)).all(|other| {
                    spans.kinds.iter().all(|kind| match (kind.spans[node], kind.spans[other]) {
                        (Some(a), Some(b)) => a[1] < b[0] || b[1] < a[0],
                        _ => true,
                    })
                })
            };
            slot_of[node] = (0..).map(SlotId::new).find(is_free);
        }
        slot_of
    }

    #[test]
    fn r11_windows_of_one_slot_are_never_held_together() {
        let mut rng = crate::Rng::new(5);
        for kinds in 1..4 {
            for count in [0, 1, 2, 40, 150] {
                let (spans, sizes) = random(count, kinds, &mut rng);
                let found = spans.assign(&sizes).expect("there is room");
                check(&spans, &sizes, &found);
                assert_eq!(found.0, first_fit(&spans, &sizes).into(), "the first free slot is taken");
                let order =
                    (0_u32..).zip(&sizes).filter(|(_, size)| **size > 0).map(|(node, _)| node).collect();
                check(&spans, &sizes, &spans.assign_alike(&sizes, order).expect("there is room"));
            }
        }
    }
}
