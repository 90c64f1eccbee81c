//! Which windows may share storage.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tiled_tensor::{OutOfMemory, filled, grow, push, refusable, with_room};

/// When a node is held in a tile: the first and the last call that it takes part in, `None` where it takes part in none.
pub(super) type Span = Option<[u64; 2]>;

/// The slot of each window of a sweep, and the elements of each slot.
pub(super) type Stored = (Vec<Option<u32>>, Vec<usize>);

/// When each node is held, in calls, for each kind of tile: windows held at different times may share storage.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    kinds: Vec<Vec<Span>>,
}

impl Spans {
    /// Takes in one kind of tile.
    pub(super) fn add(&mut self, spans: Vec<Span>) -> Result<(), OutOfMemory> {
        if self.kinds.contains(&spans) { Ok(()) } else { push(&mut self.kinds, spans) }
    }

    /// Assigns storage, largest window first, to the first slot whose windows are never held together with it.
    /// Returns each node's slot and the sizes of the slots. Nodes of size zero get none.
    pub(super) fn assign(&self, sizes: &[usize]) -> Result<Stored, OutOfMemory> {
        let nodes = (0_u32..).zip(sizes).filter(|(_, size)| **size > 0).map(|(node, _)| node);
        let mut order: Vec<u32> = with_room(sizes.len())?;
        order.extend(nodes);
        if order.len() > MANY {
            return self.assign_alike(sizes, order);
        }
        order.sort_unstable_by_key(|node| (Reverse(sizes[*node as usize]), *node));
        let mut slots = Slots::new(self, order.len())?;
        let mut places = filled(sizes.len(), None)?;
        let mut largest = Vec::new();
        for node in order {
            let (node, size) = (node as usize, sizes[node as usize]);
            let slot = slots.first_free(node);
            if slot == largest.len() {
                push(&mut largest, size)?; // the first one is the largest
            }
            slots.take(slot, node)?;
            places[node] = u32::try_from(slot).ok();
        }
        Ok((places, largest))
    }

    /// The same for very many windows: those of one size alone share, in the order in which they begin, each in the slot
    /// that has been free for longest. For one kind of tile no assignment of equal windows takes fewer slots.
    fn assign_alike(&self, sizes: &[usize], mut order: Vec<u32>) -> Result<Stored, OutOfMemory> {
        let first = |kind: &Vec<Span>, node: u32| kind[node as usize].map_or(0, |span| span[0]);
        let begin = |node: u32| self.kinds.first().map_or(0, |kind| first(kind, node));
        order.sort_unstable_by_key(|node| (Reverse(sizes[*node as usize]), begin(*node), *node));
        let mut places = filled(sizes.len(), None)?;
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
                    .all(|(kind, end)| kind[node as usize].is_none_or(|[first, _]| *end <= first))
            };
            let (mut ends, slot) = match free.pop() {
                Some(Reverse((ends, slot))) if is_free(&ends) => (ends, slot),
                taken => {
                    free.extend(taken); // it has just left room
                    push(&mut largest, size)?;
                    (filled(self.kinds.len(), 0)?, u32::try_from(largest.len() - 1).unwrap_or(u32::MAX))
                }
            };
            for (end, kind) in ends.iter_mut().zip(&self.kinds) {
                *end = kind[node as usize].map_or(*end, |[_, last]| last + 1);
            }
            let wanted = free.len() + 1;
            refusable(|| free.try_reserve(1)).map_err(|_| OutOfMemory::of::<(Vec<u64>, u32)>(wanted))?;
            free.push(Reverse((ends, slot)));
            places[node as usize] = Some(slot);
        }
        Ok((places, largest))
    }
}

/// From so many windows on, looking for the first slot that is free takes longer than it is worth.
const MANY: usize = 4096;

/// Slots with what they hold, and a tree over them that knows which have room for long.
struct Slots<'s> {
    spans: &'s Spans,
    /// Of each slot and kind of tile: what it holds, in order.
    held: Vec<Vec<Vec<[u64; 2]>>>,
    /// The longest stretch of calls of the first kind in which a slot, or any slot below a node of the tree, is free. The
    /// tree has `leaves` of them; those of slots that do not exist yet are free for ever.
    room: Vec<u64>,
    leaves: usize,
    /// The calls of the first kind.
    end: u64,
}

impl<'s> Slots<'s> {
    fn new(spans: &'s Spans, most: usize) -> Result<Self, OutOfMemory> {
        let leaves = (most + 1).next_power_of_two();
        let end = spans
            .kinds
            .first()
            .map_or(0, |kind| kind.iter().flatten().map(|span| span[1] + 1).max().unwrap_or(0));
        Ok(Self { spans, held: Vec::new(), room: filled(2 * leaves, u64::MAX)?, leaves, end })
    }

    fn first_free(&self, node: usize) -> usize {
        let long =
            self.spans.kinds.first().and_then(|kind| kind[node]).map_or(0, |[first, last]| last - first + 1);
        let mut from = 0;
        loop {
            let slot = self.roomy(from, long);
            if slot >= self.held.len() || self.is_free(slot, node) {
                return slot.min(self.held.len());
            }
            from = slot + 1;
        }
    }

    /// The first slot at or after `from` with room for so many calls.
    fn roomy(&self, from: usize, long: u64) -> usize {
        let mut at = self.leaves + from;
        // up to the first subtree at or after `from` that has room, then down to its first leaf that has
        while self.room[at] < long {
            while at & 1 == 1 {
                at /= 2;
            }
            at += 1;
        }
        while at < self.leaves {
            at *= 2;
            if self.room[at] < long {
                at += 1;
            }
        }
        at - self.leaves
    }

    fn is_free(&self, slot: usize, node: usize) -> bool {
        self.spans.kinds.iter().zip(&self.held[slot]).all(|(kind, held)| match kind[node] {
            None => true,
            Some([first, last]) => {
                let after = held.partition_point(|span| span[0] <= last);
                after == 0 || held[after - 1][1] < first
            }
        })
    }

    fn take(&mut self, slot: usize, node: usize) -> Result<(), OutOfMemory> {
        if slot == self.held.len() {
            push(&mut self.held, filled(self.spans.kinds.len(), Vec::new())?)?;
        }
        for (kind, held) in self.spans.kinds.iter().zip(&mut self.held[slot]) {
            if let Some([first, last]) = kind[node] {
                grow(held, 1)?;
                held.insert(held.partition_point(|span| span[0] <= last), [first, last]);
            }
        }
        let Some(held) = self.held[slot].first() else { return Ok(()) };
        // what this one left of the stretch that it lies in can only be shorter: the whole is looked at while it is short
        let room = if held.len() > 16 {
            u64::MAX
        } else {
            let mut free_from = 0;
            let mut room = 0;
            for [first, last] in held {
                room = room.max(first.saturating_sub(free_from));
                free_from = last + 1;
            }
            room.max(self.end.saturating_sub(free_from))
        };
        let mut at = self.leaves + slot;
        self.room[at] = room;
        while at > 1 {
            at /= 2;
            self.room[at] = self.room[2 * at].max(self.room[2 * at + 1]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that no two windows of one slot are held at the same time, and that each fits.
    fn check(spans: &Spans, sizes: &[usize], (slots, largest): &Stored) {
        for (a, slot) in slots.iter().enumerate() {
            assert_eq!(slot.is_some(), sizes[a] > 0);
            let Some(slot) = slot else { continue };
            assert!(sizes[a] <= largest[*slot as usize]);
            for b in (0..a).filter(|b| slots[*b] == Some(*slot)) {
                for kind in &spans.kinds {
                    if let (Some(a), Some(b)) = (kind[a], kind[b]) {
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
    fn first_fit(spans: &Spans, sizes: &[usize]) -> Vec<Option<u32>> {
        let mut order: Vec<usize> = (0..sizes.len()).filter(|node| sizes[*node] > 0).collect();
        order.sort_by_key(|node| (Reverse(sizes[*node]), *node));
        let mut places: Vec<Option<u32>> = vec![None; sizes.len()];
        for node in order {
            let is_free = |slot: &u32| {
                (0..sizes.len()).filter(|other| places[*other] == Some(*slot)).all(|other| {
                    spans.kinds.iter().all(|kind| match (kind[node], kind[other]) {
                        (Some(a), Some(b)) => a[1] < b[0] || b[1] < a[0],
                        _ => true,
                    })
                })
            };
            places[node] = (0..).find(is_free);
        }
        places
    }

    #[test]
    fn r11_windows_of_one_slot_are_never_held_together() {
        let mut rng = crate::Rng::new(5);
        for kinds in 1..4 {
            for count in [0, 1, 2, 40, 150] {
                let (spans, sizes) = random(count, kinds, &mut rng);
                let found = spans.assign(&sizes).expect("there is room");
                check(&spans, &sizes, &found);
                assert_eq!(found.0, first_fit(&spans, &sizes), "the first free slot is taken");
                let order =
                    (0_u32..).zip(&sizes).filter(|(_, size)| **size > 0).map(|(node, _)| node).collect();
                check(&spans, &sizes, &spans.assign_alike(&sizes, order).expect("there is room"));
            }
        }
    }
}
