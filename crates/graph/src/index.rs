//! Indices with a type of their own, and lists that only such an index reads.
//!
//! A node of the network, of the program and of a sweep has another number in each. With a type for each number the
//! compiler tells them apart.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};

use tiled_tensor::{OutOfMemory, copied, filled, push};

/// The number of an entry in a list of one kind.
pub trait Id: Copy + Ord + fmt::Debug {
    /// The entry of this number.
    ///
    /// # Panics
    /// Where there are so many that they would not fit in memory.
    fn new(index: usize) -> Self;

    /// Its number.
    fn index(self) -> usize;
}

/// A value of a graph: an input (`0 .. inputs`) or the output of a node (`inputs ..`, in node order).
///
/// ```
/// use tiled_graph::{Graph, ValueId};
/// let mut graph = Graph::new();
/// assert_eq!(graph.add_input("x", 3)?, ValueId(0));
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// Defines the type of an index.
macro_rules! id {
    ($(#[$docs:meta])* $name:ident) => {
        $(#[$docs])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $crate::index::Id for $name {
            #[inline]
            fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("invariant: 2^32 entries do not fit in memory"))
            }

            #[inline]
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

pub(crate) use id;

/// A list with an entry for each index of one kind. It reads like a slice, but for `[]`, which takes that index alone.
///
/// ```
/// use tiled_graph::{Id, IndexVec, SweepNodeId};
/// let rows: IndexVec<SweepNodeId, i64> = vec![8, 6].into();
/// assert_eq!(rows[SweepNodeId::new(1)], 6);
/// assert_eq!(rows.entries().map(|(id, rows)| (id.index(), *rows)).collect::<Vec<_>>(), [(0, 8), (1, 6)]);
/// assert_eq!(rows.iter().sum::<i64>(), 14);
/// ```
#[derive(PartialEq, Eq)]
pub struct IndexVec<I, T> {
    entries: Vec<T>,
    index: PhantomData<fn(I) -> I>,
}

impl<I: Id, T> IndexVec<I, T> {
    /// No entries yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new(), index: PhantomData }
    }

    /// So many times the same.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn filled(len: usize, value: T) -> Result<Self, OutOfMemory>
    where
        T: Clone,
    {
        Ok(filled(len, value)?.into())
    }

    /// A copy.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn copied(&self) -> Result<Self, OutOfMemory>
    where
        T: Copy,
    {
        Ok(copied(&self.entries)?.into())
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn push(&mut self, entry: T) -> Result<I, OutOfMemory> {
        let id = I::new(self.len());
        push(&mut self.entries, entry)?;
        Ok(id)
    }

    /// Takes all entries out, and keeps their room.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Keeps the entries that `keeps` is true of, in order; those behind others that go get lower indices.
    pub fn retain(&mut self, keeps: impl FnMut(&T) -> bool) {
        self.entries.retain(keeps);
    }

    /// The indices, in order.
    #[inline]
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.len()).map(I::new)
    }

    /// The entries with their indices, in order.
    #[inline]
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.entries.iter().enumerate().map(|(index, entry)| (I::new(index), entry))
    }
}

impl<I, T> Index<I> for IndexVec<I, T>
where
    I: Id,
{
    type Output = T;

    #[inline]
    fn index(&self, id: I) -> &T {
        &self.entries[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IndexVec<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.entries[id.index()]
    }
}

impl<I, T> Deref for IndexVec<I, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.entries
    }
}

impl<I, T> DerefMut for IndexVec<I, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.entries
    }
}

impl<I, T> From<Vec<T>> for IndexVec<I, T> {
    fn from(entries: Vec<T>) -> Self {
        Self { entries, index: PhantomData }
    }
}

impl<I, T> From<IndexVec<I, T>> for Vec<T> {
    fn from(list: IndexVec<I, T>) -> Self {
        list.entries
    }
}

impl<I, T> IntoIterator for IndexVec<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<'a, I, T> IntoIterator for &'a IndexVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

impl<'a, I, T> IntoIterator for &'a mut IndexVec<I, T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter_mut()
    }
}

impl<I, T: Clone> Clone for IndexVec<I, T> {
    fn clone(&self) -> Self {
        self.entries.clone().into()
    }

    fn clone_from(&mut self, from: &Self) {
        self.entries.clone_from(&from.entries);
    }
}

impl<I, T> Default for IndexVec<I, T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<I, T: fmt::Debug> fmt::Debug for IndexVec<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.fmt(f)
    }
}
