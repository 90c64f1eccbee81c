//! Which value has a name, without a second copy of the names.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;

use tiled_tensor::{OutOfMemory, grow, refusable};

use crate::index::ValueId;

/// The values by the hashes of their names.
#[derive(Clone, Debug, Default)]
pub(super) struct NameIndex {
    hasher: RandomState,
    of: HashMap<u64, ValueId>,
    /// Those whose names have the hash of one before.
    others: Vec<ValueId>,
}

/// It says nothing that the names do not say.
impl PartialEq for NameIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl NameIndex {
    /// The value whose name this is.
    pub(super) fn find(&self, name: &str, is_name_of: impl Fn(ValueId) -> bool) -> Option<ValueId> {
        let first = *self.of.get(&self.hasher.hash_one(name))?;
        let mut all = std::iter::once(first).chain(self.others.iter().copied());
        all.find(|value| is_name_of(*value))
    }

    /// Makes room for so many more.
    pub(super) fn reserve(&mut self, names: usize) -> Result<(), OutOfMemory> {
        let wanted = self.of.len().saturating_add(names).checked_next_power_of_two().unwrap_or(usize::MAX);
        refusable(|| self.of.try_reserve(names)).map_err(|_| OutOfMemory::of::<(u64, ValueId)>(wanted))?;
        grow(&mut self.others, 1)
    }

    /// Enters a value under its name, which no other has.
    pub(super) fn insert(&mut self, name: &str, value: ValueId) {
        match self.of.entry(self.hasher.hash_one(name)) {
            Entry::Vacant(place) => {
                place.insert(value);
            }
            Entry::Occupied(_) => self.others.push(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_hash_are_told_apart() {
        let mut index = NameIndex::default();
        let names = ["a", "b", "c"];
        for (number, name) in names.iter().enumerate() {
            index.reserve(1).expect("room");
            index.insert(name, ValueId(number));
        }
        // as if all three had the hash of the first
        let first = index.hasher.hash_one("a");
        index.of = HashMap::from([(first, ValueId(0))]);
        index.others = vec![ValueId(1), ValueId(2)];
        assert_eq!(index.find("a", |value| names[value.0] == "a"), Some(ValueId(0)));
        index.of.insert(index.hasher.hash_one("c"), ValueId(0));
        assert_eq!(index.find("c", |value| names[value.0] == "c"), Some(ValueId(2)));
        assert_eq!(index.find("d", |value| names[value.0] == "d"), None);
    }
}
