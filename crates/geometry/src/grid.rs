//! A partition of a tensor into tiles.

use crate::{GeometryError, Interval, Region};

/// A partition of the box `[0, extents)` into `counts` tiles per axis.
///
/// Tile `i` of `n` of an axis of extent `e` is `[floor(i·e/n), floor((i+1)·e/n))`: no gap, no overlap, sizes
/// that differ by at most one. With [`Grid::from_tile`] all tiles but the last have the size given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid<const N: usize> {
    extents: [i64; N],
    bounds: [Vec<i64>; N],
}

impl<const N: usize> Grid<N> {
    /// The grid of `counts` tiles per axis, as even as integers allow.
    ///
    /// # Errors
    /// Where an extent is negative or a count is not positive.
    pub fn from_counts(extents: [i64; N], counts: [i64; N]) -> Result<Self, GeometryError> {
        check(extents, counts, "tile count")?;
        let bounds = std::array::from_fn(|axis| {
            (0..=counts[axis]).map(|i| proportion(i, extents[axis], counts[axis])).collect()
        });
        Ok(Self { extents, bounds })
    }

    /// The grid of tiles of the given size, the last one ragged; a size above the extent is clamped.
    ///
    /// # Errors
    /// Where an extent is negative or a size is not positive.
    pub fn from_tile(extents: [i64; N], tile: [i64; N]) -> Result<Self, GeometryError> {
        check(extents, tile, "tile size")?;
        let bounds = std::array::from_fn(|axis| {
            let mut bounds: Vec<i64> =
                (0..extents[axis]).step_by(tile[axis].try_into().unwrap_or(usize::MAX)).collect();
            bounds.push(extents[axis]);
            if bounds.len() == 1 {
                bounds.insert(0, 0);
            }
            bounds
        });
        Ok(Self { extents, bounds })
    }

    /// The same tiles carried over to a tensor of other extents: boundary `b` becomes `floor(b·to/from)`.
    ///
    /// Still a partition; tiles of a much smaller tensor can be empty.
    ///
    /// # Errors
    /// Where an extent is negative.
    pub fn rescale(&self, extents: [i64; N]) -> Result<Self, GeometryError> {
        check(extents, [1; N], "tile count")?;
        let bounds = std::array::from_fn(|axis| {
            let from = self.extents[axis].max(1);
            self.bounds[axis].iter().map(|bound| proportion(*bound, extents[axis], from)).collect()
        });
        let mut grid = Self { extents, bounds };
        for axis in 0..N {
            if let Some(last) = grid.bounds[axis].last_mut() {
                *last = extents[axis];
            }
        }
        Ok(grid)
    }

    /// The box that is partitioned.
    #[must_use]
    pub const fn extents(&self) -> [i64; N] {
        self.extents
    }

    /// The number of tiles per axis.
    #[must_use]
    pub fn counts(&self) -> [usize; N] {
        std::array::from_fn(|axis| self.bounds[axis].len() - 1)
    }

    /// The number of tiles.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts().iter().product()
    }

    /// Whether there is no tile; never true, a grid has at least one (possibly empty) tile.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tile at these indices, one per axis.
    ///
    /// # Panics
    /// Where an index is not below the count of its axis.
    #[must_use]
    pub fn tile(&self, index: [usize; N]) -> Region<N> {
        Region::new(std::array::from_fn(|axis| {
            let bounds = &self.bounds[axis];
            Interval::new(bounds[index[axis]], bounds[index[axis] + 1])
        }))
    }

    /// The indices of tile number `number` in row-major order.
    ///
    /// # Panics
    /// Where `number` is not below [`Grid::len`].
    #[must_use]
    pub fn index_of(&self, number: usize) -> [usize; N] {
        assert!(number < self.len(), "tile {number} of {}", self.len());
        let counts = self.counts();
        let mut rest = number;
        let mut index = [0; N];
        for axis in (0..N).rev() {
            index[axis] = rest % counts[axis];
            rest /= counts[axis];
        }
        index
    }

    /// All tiles in row-major order.
    pub fn tiles(&self) -> impl Iterator<Item = Region<N>> + '_ {
        (0..self.len()).map(|number| self.tile(self.index_of(number)))
    }
}

fn proportion(part: i64, extent: i64, whole: i64) -> i64 {
    let scaled = i128::from(part) * i128::from(extent) / i128::from(whole);
    i64::try_from(scaled).expect("invariant: a share of an extent is at most the extent")
}

fn check<const N: usize>(
    extents: [i64; N],
    sizes: [i64; N],
    what: &'static str,
) -> Result<(), GeometryError> {
    for extent in extents {
        if extent < 0 {
            return Err(GeometryError::NotPositive { what: "extent", got: extent });
        }
    }
    for size in sizes {
        if size < 1 {
            return Err(GeometryError::NotPositive { what, got: size });
        }
    }
    Ok(())
}
