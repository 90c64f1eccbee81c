//! Which windows may share storage.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// When a node is held in a tile: the first and the last call that it takes part in, `None` where it takes part in none.
pub(super) type Span = Option<[u64; 2]>;

/// When each node is held, in calls, for each kind of tile: windows held at different times may share storage.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    kinds: Vec<Vec<Span>>,
}

impl Spans {
    /// Takes in one kind of tile.
    pub(super) fn add(&mut self, spans: Vec<Span>) {
        if !self.kinds.contains(&spans) {
            self.kinds.push(spans);
        }
    }

    /// Assigns storage, largest window first, to the first slot whose windows are never held together with it.
    /// Returns each node's slot and the sizes of the slots. Nodes of size zero get none.
    pub(super) fn assign(&self, sizes: &[usize]) -> (Vec<Option<u32>>, Vec<usize>) {
        let mut order: Vec<u32> = (0_u32..).zip(sizes).filter(|(_, size)| **size > 0).map(|(node, _)| node).collect();
        order.sort_unstable_by_key(|node| (Reverse(sizes[*node as usize]), *node));
        let mut slots = Slots::new(self, order.len());
        let mut places = vec![None; sizes.len()];
        let mut largest = Vec::new();
        for node in order {
            let (node, size) = (node as usize, sizes[node as usize]);
            let slot = slots.first_free(node);
            if slot == largest.len() {
                largest.push(size); // the first one is the largest
            }
            slots.take(slot, node);
            places[node] = u32::try_from(slot).ok();
        }
        (places, largest)
    }
}

/// Slots with what they hold, and a tree over them that knows which have room for long.
struct Slots<'s> {
    spans: &'s Spans,
    /// Of each slot and kind of tile: what it holds, by the first call.
    held: Vec<Vec<BTreeMap<u64, u64>>>,
    /// The longest stretch of calls of the first kind in which a slot, or any slot below a node of the tree, is free. The
    /// tree has `leaves` of them; those of slots that do not exist yet are free for ever.
    room: Vec<u64>,
    leaves: usize,
    /// The calls of the first kind.
    end: u64,
}

impl<'s> Slots<'s> {
    fn new(spans: &'s Spans, most: usize) -> Self {
        let leaves = (most + 1).next_power_of_two();
        let end = spans.kinds.first().map_or(0, |kind| kind.iter().flatten().map(|span| span[1] + 1).max().unwrap_or(0));
        Self { spans, held: Vec::new(), room: vec![u64::MAX; 2 * leaves], leaves, end }
    }

    fn first_free(&self, node: usize) -> usize {
        let long = self.spans.kinds.first().and_then(|kind| kind[node]).map_or(0, |[first, last]| last - first + 1);
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
                held.range(..=last).next_back().is_none_or(|(_, held_last)| *held_last < first)
            }
        })
    }

    fn take(&mut self, slot: usize, node: usize) {
        if slot == self.held.len() {
            self.held.push(vec![BTreeMap::new(); self.spans.kinds.len()]);
        }
        for (kind, held) in self.spans.kinds.iter().zip(&mut self.held[slot]) {
            if let Some([first, last]) = kind[node] {
                held.insert(first, last);
            }
        }
        let Some(held) = self.held[slot].first() else { return };
        // what this one left of the stretch that it lies in can only be shorter: the whole is looked at while it is short
        let room = if held.len() > 16 {
            u64::MAX
        } else {
            let mut free_from = 0;
            let mut room = 0;
            for (first, last) in held {
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
    }
}
