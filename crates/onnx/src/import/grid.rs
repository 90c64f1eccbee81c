//! Whole numbers in a grid of axes, as exporters write out which elements an assignment changes: known by what they are along one
//! axis each, and never element by element, which would be as many as an image has.

use std::rc::Rc;

use super::computed::Room;
use super::extents::Extents;
use super::numbers::{Num, whole};

/// Whole numbers in a grid of up to [`MOST_AXES`] axes.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// The extents, without that of the axis along which coordinates stand.
    pub(crate) extents: Vec<Num>,
    /// What the numbers are; none where nothing but the extents is known, as of a sum.
    pub(crate) coordinates: Vec<Coordinate>,
    /// Whether coordinates stand along a last axis of their own.
    pub(crate) is_index: bool,
}

/// Numbers that change along one axis of a grid and are the same along the others.
#[derive(Clone, Debug)]
pub(crate) struct Coordinate {
    pub(crate) axis: usize,
    pub(crate) numbers: Run,
}

/// Numbers along an axis.
#[derive(Clone, Debug)]
pub(crate) enum Run {
    /// `first, first + step, …`, as many as an axis has.
    Steps { first: i64, step: i64, count: Num },
    /// Others.
    List(Rc<List>),
}

/// A list of numbers, and the room that it takes.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) numbers: Vec<i64>,
    #[expect(dead_code, reason = "taken as long as the numbers are there")]
    pub(crate) room: Room,
}

/// As many axes as a batch of images has.
pub(crate) const MOST_AXES: usize = 4;

impl Run {
    /// How many there are.
    pub(crate) fn count(&self) -> Num {
        match self {
            Self::Steps { count, .. } => *count,
            Self::List(list) => Num::Known(list.numbers.len() as f64),
        }
    }

    /// Whether they are `0, 1, 2, …`.
    pub(crate) fn counts_up(&self) -> bool {
        match self {
            Self::Steps { first: 0, step: 1, .. } => true,
            Self::Steps { first: 0, count, .. } => *count == Num::Known(1.0),
            _ => false,
        }
    }

    /// All of them, where they are no more than `most`.
    pub(crate) fn all(&self, most: usize, extents: &Extents) -> Option<Vec<i64>> {
        let count = usize::try_from(whole(self.count().known(extents)?)?).ok()?;
        if count > most {
            return None;
        }
        match self {
            Self::List(list) => Some(list.numbers.clone()),
            Self::Steps { first, step, .. } => (0..count)
                .map(|place| first.checked_add(i64::try_from(place).ok()?.checked_mul(*step)?))
                .collect(),
        }
    }
}

/// Whether two extents are the same whatever the image, or as the model declares them.
pub(crate) fn is_same(a: Num, b: Num, extents: &Extents) -> bool {
    let is_known = |item: Num| matches!(item, Num::Known(_) | Num::Extent(_));
    let known = a.known(extents);
    is_known(a) && is_known(b) && (a == b || (known.is_some() && known == b.known(extents)))
}

/// The extents of what two grids become together: from the last axis on those that they have in common, or that of the one where
/// the other has one.
pub(crate) fn broadcast(a: &[Num], b: &[Num], extents: &Extents) -> Option<Vec<Num>> {
    const ONE: Num = Num::Known(1.0);
    let rank = a.len().max(b.len());
    let extent = |of: &[Num], axis: usize| (axis + of.len()).checked_sub(rank).map_or(ONE, |place| of[place]);
    let common = |axis| match (extent(a, axis), extent(b, axis)) {
        (a, b) if b == ONE || is_same(a, b, extents) => Some(a),
        (ONE, b) => Some(b),
        _ => None,
    };
    (0..rank).map(common).collect()
}
