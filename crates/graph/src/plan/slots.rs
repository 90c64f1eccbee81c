//! Which windows may share storage.

/// When each node of a tile is held, in calls: windows held at different times may share storage.
#[derive(Clone, Debug)]
pub(super) struct Conflicts {
    count: usize,
    held_together: Vec<bool>,
}

impl Conflicts {
    pub(super) fn new(count: usize) -> Self {
        Self { count, held_together: vec![false; count * count] }
    }

    /// Takes in one tile: the first and last call that each node takes part in, `None` where it takes part in none.
    pub(super) fn add(&mut self, spans: &[Option<(u64, u64)>]) {
        for (i, a) in spans.iter().enumerate() {
            for (j, b) in spans.iter().enumerate() {
                if let (Some(a), Some(b)) = (a, b)
                    && a.0 <= b.1
                    && b.0 <= a.1
                {
                    self.held_together[i * self.count + j] = true;
                }
            }
        }
    }

    /// Assigns storage, largest window first, to the first slot whose windows are never held together with it.
    /// Returns each node's slot and the sizes of the slots. Nodes of size zero get none.
    pub(super) fn assign(&self, sizes: &[usize]) -> (Vec<Option<usize>>, Vec<usize>) {
        let mut order: Vec<usize> = (0..self.count).filter(|node| sizes[*node] > 0).collect();
        order.sort_by_key(|node| (std::cmp::Reverse(sizes[*node]), *node));
        let mut slots: Vec<Vec<usize>> = Vec::new();
        let mut places = vec![None; self.count];
        for node in order {
            let is_free = |members: &Vec<usize>| {
                members.iter().all(|member| !self.held_together[node * self.count + member])
            };
            let slot = slots.iter().position(is_free).unwrap_or_else(|| {
                slots.push(Vec::new());
                slots.len() - 1
            });
            slots[slot].push(node);
            places[node] = Some(slot);
        }
        let largest = |members: &Vec<usize>| members.iter().map(|node| sizes[*node]).max().unwrap_or(0);
        (places, slots.iter().map(largest).collect())
    }
}
