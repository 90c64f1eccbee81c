//! The laws of grids of tiles.

use tiled_geometry::{AxisMap, Grid, Region};

use super::{map, points};

/// Law: tiles of a grid partition the whole: no gap, no overlap, for every size, also where it does not
/// divide. A tile is empty only where there are more tiles than coordinates.
///
/// # Panics
/// Where the law does not hold.
pub fn tiles_partition_the_whole<const N: usize>(grid: &Grid<N>) {
    covers_each_point_once(grid);
    let roomy =
        (0..N).all(|axis| i64::try_from(grid.counts()[axis]).is_ok_and(|n| n <= grid.extents()[axis]));
    assert!(!roomy || grid.tiles().all(|tile| !tile.is_empty()), "{grid:?}");
    // row-major: each tile's indices are the next ones after those of the tile before
    assert!((1..grid.len()).all(|number| grid.index_of(number - 1) < grid.index_of(number)), "{grid:?}");
    assert!((0..grid.len()).all(|number| Some(grid.tile(grid.index_of(number))) == grid.tiles().nth(number)));
}

/// Law: sizes along an axis differ by at most one.
///
/// # Panics
/// Where the law does not hold, or the grid cannot be made.
#[must_use]
pub fn even_sizes_differ_by_at_most_one<const N: usize>(extents: [i64; N], counts: [i64; N]) -> Grid<N> {
    let grid = Grid::from_counts(extents, counts).expect("extents and counts are in range");
    assert_eq!(grid.counts().map(i64::try_from), counts.map(Ok), "{extents:?}");
    for axis in 0..N {
        // an axis of its own: a tile that is empty along another axis is empty as a whole
        let line = Grid::from_counts([extents[axis]], [counts[axis]]).expect("in range");
        let sizes: Vec<i64> = line.tiles().map(Region::volume).collect();
        let (least, most) = (sizes.iter().min(), sizes.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{sizes:?}");
    }
    grid
}

/// Law: all tiles but the last of an axis have the size given, and the last is neither larger nor empty (but
/// the one tile of an empty axis).
///
/// # Panics
/// Where the law does not hold, or the grid cannot be made.
#[must_use]
pub fn only_the_last_tile_is_ragged<const N: usize>(extents: [i64; N], tile: [i64; N]) -> Grid<N> {
    let grid = Grid::from_tile(extents, tile).expect("extents and sizes are in range");
    for axis in 0..N {
        let line = Grid::from_tile([extents[axis]], [tile[axis]]).expect("in range");
        let sizes: Vec<i64> = line.tiles().map(Region::volume).collect();
        let (last, others) = sizes.split_last().expect("a grid has a tile");
        assert!(others.iter().all(|size| *size == tile[axis]), "{extents:?}, {tile:?}: {sizes:?}");
        assert!(*last <= tile[axis] && (*last > 0 || extents[axis] == 0), "{extents:?}, {tile:?}: {sizes:?}");
    }
    grid
}

/// Law: a grid rescaled is still a partition, of as many tiles; boundary `b` becomes `floor(b·to/from)`. Of
/// an empty axis the last tile becomes the whole. The shares of an axis are the tiles of the grid rescaled.
///
/// # Panics
/// Where the law does not hold, or the grid cannot be made.
pub fn rescaled_tiles_partition<const N: usize>(grid: &Grid<N>, extents: [i64; N]) {
    let rescaled = grid.rescale(extents).expect("extents are in range");
    assert_eq!((rescaled.counts(), rescaled.extents()), (grid.counts(), extents), "{grid:?}");
    covers_each_point_once(&rescaled);
    for (number, carried) in rescaled.tiles().enumerate() {
        let index = grid.index_of(number);
        let shares = std::array::from_fn(|axis| grid.share(axis, index[axis], extents[axis]));
        assert_eq!(Region::new(shares), carried, "{grid:?}, {extents:?}");
    }
    for (tile, carried) in grid.tiles().zip(rescaled.tiles()) {
        for axis in 0..N {
            let (from, to) = (grid.extents()[axis], extents[axis]);
            if !tile.is_empty() && !carried.is_empty() {
                assert_eq!(
                    carried.axis(axis).begin(),
                    tile.axis(axis).begin() * to / from,
                    "{grid:?}, {extents:?}"
                );
                assert_eq!(
                    carried.axis(axis).end(),
                    tile.axis(axis).end() * to / from,
                    "{grid:?}, {extents:?}"
                );
            }
        }
    }
}

/// Law: what the tiles of a grid need lies in what the whole needs and has it as its hull, and every point
/// that the whole reads lies in what some tile needs.
///
/// # Panics
/// Where the law does not hold.
pub fn what_tiles_need_is_what_the_whole_needs<const N: usize>(grid: &Grid<N>, maps: [AxisMap; N]) {
    let whole = Region::whole(grid.extents());
    let needed = whole.through(maps);
    let parts: Vec<Region<N>> = grid.tiles().map(|tile| tile.through(maps)).collect();
    assert!(parts.iter().all(|part| needed.contains_region(*part)), "{grid:?}, {maps:?}");
    assert_eq!(parts.iter().copied().fold(Region::EMPTY, Region::hull), needed, "{grid:?}, {maps:?}");
    // per axis, which coordinates the whole reads
    let read: [Vec<i64>; N] = std::array::from_fn(|axis| {
        let along = |x: &i64| (0..grid.extents()[axis]).any(|y| map::reads(maps[axis], y, *x));
        super::each(needed.axis(axis)).filter(along).collect()
    });
    for point in points(needed) {
        let is_read = (0..N).all(|axis| read[axis].binary_search(&point[axis]).is_ok());
        let is_covered = parts.iter().any(|part| part.contains(point));
        assert!(is_covered || !is_read, "{grid:?}, {maps:?}: no tile needs {point:?}");
    }
}

fn covers_each_point_once<const N: usize>(grid: &Grid<N>) {
    let whole = Region::whole(grid.extents());
    for point in points(whole) {
        let holders = grid.tiles().filter(|tile| tile.contains(point)).count();
        assert_eq!(holders, 1, "{point:?} of {grid:?}");
    }
    assert!(grid.tiles().all(|tile| whole.contains_region(tile)), "{grid:?}");
    assert_eq!(grid.tiles().map(Region::volume).sum::<i64>(), whole.volume(), "{grid:?}");
}
