//! A partition of a tensor into tiles.

use crate::error::{Least, check_size};
use crate::{GeometryError, Interval, MAX_COORDINATE, Region};

/// The largest number of tiles along one axis, `2^24`: their bounds are held in memory.
pub const MAX_TILES: i64 = 1 << 24;

/// A partition of the box `[0, extents)` into tiles, the product of one partition per axis.
///
/// ```text
///  7 rows, 3 tiles     from_counts: [0,2) [2,4) [4,7)
///  7 rows, tiles of 3  from_tile:   [0,3) [3,6) [6,7)
/// ```
///
/// Law: tiles of a grid partition the whole: no gap, no overlap, for every size, also where it does not
/// divide. A tile is empty only where there are more tiles than coordinates.
///
/// Law: what the tiles of a grid need ([`Region::through`]) lies in what the whole needs and has it as its
/// hull, and every point that the whole reads lies in what some tile needs.
///
/// ```
/// use tiled_geometry::{Grid, Region};
/// let grid = Grid::from_tile([5, 7], [3, 4])?;
/// let tiles: Vec<String> = grid.tiles().map(|tile| tile.to_string()).collect();
/// assert_eq!(tiles, ["[0,3)×[0,4)", "[0,3)×[4,7)", "[3,5)×[0,4)", "[3,5)×[4,7)"]);
/// assert_eq!(grid.tiles().map(Region::volume).sum::<i64>(), 35);
/// # Ok::<(), tiled_geometry::GeometryError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid<const N: usize> {
    extents: [i64; N],
    bounds: [Vec<i64>; N],
}

impl<const N: usize> Grid<N> {
    /// The grid of `counts` tiles per axis, as even as integers allow.
    ///
    /// Tile `i` of `n` of an axis of extent `e` is `[floor(i·e/n), floor((i+1)·e/n))`.
    ///
    /// Law: sizes along an axis differ by at most one.
    ///
    /// # Errors
    /// Where an extent is negative or above [`MAX_COORDINATE`], or a count is not positive or above
    /// [`MAX_TILES`], or their product overflows, or memory is refused.
    ///
    /// ```
    /// use tiled_geometry::{Grid, Interval};
    /// let grid = Grid::from_counts([7], [3])?;
    /// assert_eq!(grid.tile([2]).axis(0), Interval::new(4, 7));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    pub fn from_counts(extents: [i64; N], counts: [i64; N]) -> Result<Self, GeometryError> {
        check_extents(extents)?;
        check_counts(counts)?;
        let lists = std::array::from_fn(|axis| {
            listed((0..=counts[axis]).map(|i| proportion(i, extents[axis], counts[axis])))
        });
        Ok(Self { extents, bounds: all(lists)? })
    }

    /// The grid of tiles of the given size, the last one ragged; a size above the extent is clamped.
    ///
    /// Tile `i` of an axis of extent `e` and size `t` is `[i·t, min((i+1)·t, e))`.
    ///
    /// Law: all tiles but the last of an axis have the size given, and the last is neither larger nor empty
    /// (but the one tile of an empty axis).
    ///
    /// # Errors
    /// Where an extent is negative or above [`MAX_COORDINATE`], or a size is not positive, or there are more
    /// than [`MAX_TILES`] tiles along an axis or their product overflows, or memory is refused.
    ///
    /// ```
    /// use tiled_geometry::{Grid, Interval};
    /// let grid = Grid::from_tile([7], [3])?;
    /// assert_eq!(grid.tile([2]).axis(0), Interval::new(6, 7));
    /// assert_eq!(Grid::from_tile([7], [99])?.len(), 1);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    pub fn from_tile(extents: [i64; N], tile: [i64; N]) -> Result<Self, GeometryError> {
        check_extents(extents)?;
        for size in tile {
            check_size("tile size", size, Least::One, i64::MAX)?;
        }
        let tile: [i64; N] = std::array::from_fn(|axis| tile[axis].min(extents[axis]).max(1));
        let counts: [i64; N] = std::array::from_fn(|axis| crate::div_ceil(extents[axis], tile[axis]).max(1));
        check_counts(counts)?;
        let lists = std::array::from_fn(|axis| {
            listed((0..=counts[axis]).map(|i| (i * tile[axis]).min(extents[axis])))
        });
        Ok(Self { extents, bounds: all(lists)? })
    }

    /// The grid whose tiles begin and end at these bounds, along each axis.
    ///
    /// Law: the first bound of an axis is 0, the last its extent, and none is below the one before it; so the tiles partition
    /// the whole.
    ///
    /// # Errors
    /// Where an extent is negative or above [`MAX_COORDINATE`], where bounds break the law, where there are none or
    /// more than [`MAX_TILES`] tiles along an axis, or their product overflows.
    ///
    /// ```
    /// use tiled_geometry::{Grid, Interval};
    /// let grid = Grid::from_bounds([7], [vec![0, 4, 5, 7]])?;
    /// assert_eq!(grid.tile([1]).axis(0), Interval::new(4, 5));
    /// assert!(Grid::from_bounds([7], [vec![0, 5, 4, 7]]).is_err());
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    pub fn from_bounds(extents: [i64; N], bounds: [Vec<i64>; N]) -> Result<Self, GeometryError> {
        check_extents(extents)?;
        check_counts::<N>(std::array::from_fn(|axis| {
            i64::try_from(bounds[axis].len()).unwrap_or(i64::MAX) - 1
        }))?;
        for (extent, bounds) in extents.into_iter().zip(&bounds) {
            let last = bounds.len() - 1;
            let mut before = 0;
            for (number, bound) in bounds.iter().enumerate() {
                let least = if number == last { extent } else { before };
                let most = if number == 0 { 0 } else { extent };
                if *bound < least || *bound > most {
                    return Err(GeometryError::Bound { got: *bound, least, most });
                }
                before = *bound;
            }
        }
        Ok(Self { extents, bounds })
    }

    /// The same tiles carried over to a tensor of other extents: boundary `b` becomes `floor(b·to/from)`.
    ///
    /// Law: still a partition, of as many tiles; tiles of a smaller tensor can be empty. Of an empty axis the
    /// last tile becomes the whole.
    ///
    /// # Errors
    /// Where an extent is negative or above [`MAX_COORDINATE`], or memory is refused.
    ///
    /// ```
    /// use tiled_geometry::{Grid, Interval};
    /// let input = Grid::from_counts([16], [4])?;
    /// assert_eq!(input.rescale([6])?.tile([1]).axis(0), Interval::new(1, 3));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    pub fn rescale(&self, extents: [i64; N]) -> Result<Self, GeometryError> {
        check_extents(extents)?;
        let lists = std::array::from_fn(|axis| {
            let (from, to) = (self.extents[axis], extents[axis]);
            let bounds = self.bounds[axis].iter().map(|bound| proportion(*bound, to, from.max(1)));
            let mut bounds = listed(bounds)?;
            if let Some(last) = bounds.last_mut() {
                *last = to; // differs only where `from` is zero
            }
            Ok(bounds)
        });
        Ok(Self { extents, bounds: all(lists)? })
    }

    /// A copy.
    ///
    /// # Errors
    /// Where memory is refused.
    ///
    /// ```
    /// let grid = tiled_geometry::Grid::from_tile([5, 7], [3, 4])?;
    /// assert_eq!(grid.try_clone()?, grid);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    pub fn try_clone(&self) -> Result<Self, GeometryError> {
        let lists = std::array::from_fn(|axis| listed(self.bounds[axis].iter().copied()));
        Ok(Self { extents: self.extents, bounds: all(lists)? })
    }

    /// The box that is partitioned.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Grid::from_tile([5, 7], [3, 4]).unwrap().extents(), [5, 7]);
    /// ```
    #[must_use]
    pub const fn extents(&self) -> [i64; N] {
        self.extents
    }

    /// The number of tiles per axis.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Grid::from_tile([5, 9], [3, 4]).unwrap().counts(), [2, 3]);
    /// ```
    #[must_use]
    pub fn counts(&self) -> [usize; N] {
        std::array::from_fn(|axis| self.bounds[axis].len() - 1)
    }

    /// The number of tiles.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Grid::from_tile([5, 9], [3, 4]).unwrap().len(), 6);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts().iter().product()
    }

    /// Whether there is no tile; never true, a grid has at least one (possibly empty) tile.
    ///
    /// ```
    /// assert!(!tiled_geometry::Grid::from_tile([0, 9], [3, 4]).unwrap().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tile at these indices, one per axis.
    ///
    /// # Panics
    /// Where an index is not below the count of its axis.
    ///
    /// ```
    /// let grid = tiled_geometry::Grid::from_tile([5, 7], [3, 4])?;
    /// assert_eq!(grid.tile([0, 1]).to_string(), "[0,3)×[4,7)");
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn tile(&self, index: [usize; N]) -> Region<N> {
        Region::new(std::array::from_fn(|axis| {
            let bounds = &self.bounds[axis];
            Interval::new(bounds[index[axis]], bounds[index[axis] + 1])
        }))
    }

    /// Part `part` of axis `axis`, carried over to an axis of extent `extent` as by [`Grid::rescale`].
    ///
    /// With `[a,b)` the part and `from` the extent of the axis: `[floor(a·to/from), floor(b·to/from))`.
    ///
    /// Law: the parts of an axis partition `[0, extent)`; they are the tiles of the grid rescaled.
    ///
    /// # Panics
    /// Where `axis` is not below `N` or `part` not below the count of the axis.
    ///
    /// ```
    /// use tiled_geometry::{Grid, Interval};
    /// let grid = Grid::from_counts([16, 16], [4, 4])?;
    /// assert_eq!(grid.share(0, 1, 8), Interval::new(2, 4));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn share(&self, axis: usize, part: usize, extent: i64) -> Interval {
        let from = self.extents[axis].max(1);
        let bounds = &self.bounds[axis];
        let end = if part + 2 == bounds.len() { extent } else { proportion(bounds[part + 1], extent, from) };
        Interval::new(proportion(bounds[part], extent, from), end)
    }

    /// The indices of tile number `number` in row-major order.
    ///
    /// # Panics
    /// Where `number` is not below [`Grid::len`].
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Grid::from_tile([5, 9], [3, 4]).unwrap().index_of(4), [1, 1]);
    /// ```
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
    ///
    /// ```
    /// let grid = tiled_geometry::Grid::from_counts([4], [2])?;
    /// let tiles: Vec<String> = grid.tiles().map(|tile| tile.to_string()).collect();
    /// assert_eq!(tiles, ["[0,2)", "[2,4)"]);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    pub fn tiles(&self) -> impl Iterator<Item = Region<N>> + '_ {
        (0..self.len()).map(|number| self.tile(self.index_of(number)))
    }
}

fn proportion(part: i64, extent: i64, whole: i64) -> i64 {
    let scaled = i128::from(part) * i128::from(extent) / i128::from(whole);
    i64::try_from(scaled).expect("invariant: a share of an extent is at most the extent")
}

/// Bounds as a list; the iterator knows how many there are.
fn listed(bounds: impl Iterator<Item = i64>) -> Result<Vec<i64>, GeometryError> {
    let mut list = Vec::new();
    let count = bounds.size_hint().0;
    let bytes = (count as u64).saturating_mul(size_of::<i64>() as u64);
    list.try_reserve_exact(count).map_err(|_| GeometryError::OutOfMemory { bytes })?;
    list.extend(bounds);
    Ok(list)
}

/// The lists of all axes, or the first error.
fn all<const N: usize>(lists: [Result<Vec<i64>, GeometryError>; N]) -> Result<[Vec<i64>; N], GeometryError> {
    let mut all = std::array::from_fn(|_| Vec::new());
    for (list, made) in all.iter_mut().zip(lists) {
        *list = made?;
    }
    Ok(all)
}

fn check_extents<const N: usize>(extents: [i64; N]) -> Result<(), GeometryError> {
    extents.iter().try_for_each(|extent| check_size("extent", *extent, Least::Zero, MAX_COORDINATE))
}

fn check_counts<const N: usize>(counts: [i64; N]) -> Result<(), GeometryError> {
    let mut product = 1_usize;
    for count in counts {
        check_size("tile count", count, Least::One, MAX_TILES)?;
        let count = usize::try_from(count).map_err(|_| GeometryError::Overflow)?;
        product = product.checked_mul(count).ok_or(GeometryError::Overflow)?;
    }
    Ok(())
}
