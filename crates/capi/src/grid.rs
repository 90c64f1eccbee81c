//! Partitions of an image into tiles.

use tiled::geometry::{GeometryError, Grid, MAX_COORDINATE};
use tiled::tensor::refusable;

use crate::geometry::{check, tiled_region};
use crate::guard::guard;
use crate::handle::{self, Opaque};
use crate::pointer::Output;
use crate::status::{Failure, Fallible, tiled_status};

/// A partition of an image into tiles: no gap, no overlap. Immutable; `const` handles may be shared by threads.
#[derive(Debug)]
pub struct tiled_grid {
    _opaque: (),
}

impl Opaque for tiled_grid {
    type Object = Grid<2>;
    const KIND: usize = 1;
    const NAME: &'static str = "grid";
}

/// The grid of tiles of `tile_height`×`tile_width` over `height`×`width`; the last ones are ragged.
///
/// Extents are from 1 to 2^40, at most 2^24 tiles an axis. The handle is the caller's, to be freed with
/// `tiled_grid_free`. On failure `grid` is untouched. Threads: any.
///
/// # Safety
/// `grid` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_grid_new(
    height: i64,
    width: i64,
    tile_height: i64,
    tile_width: i64,
    grid: *mut *mut tiled_grid,
) -> tiled_status {
    // SAFETY: the caller's promise
    unsafe { new(height, width, grid, || Grid::from_tile([height, width], [tile_height, tile_width])) }
}

/// The grid of `rows`×`cols` tiles, as even as integers allow, over `height`×`width`.
///
/// Extents are from 1 to 2^40, counts from 1 to 2^24. The handle is the caller's, to be freed with
/// `tiled_grid_free`. On failure `grid` is untouched. Threads: any.
///
/// # Safety
/// `grid` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_grid_new_from_counts(
    height: i64,
    width: i64,
    rows: i64,
    cols: i64,
    grid: *mut *mut tiled_grid,
) -> tiled_status {
    // SAFETY: the caller's promise
    unsafe { new(height, width, grid, || Grid::from_counts([height, width], [rows, cols])) }
}

/// # Safety
/// As the exported functions that call it.
unsafe fn new(
    height: i64,
    width: i64,
    grid: *mut *mut tiled_grid,
    make: impl FnOnce() -> Result<Grid<2>, GeometryError>,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let grid = unsafe { Output::new(grid, "grid")? };
        for (what, extent) in [("height", height), ("width", width)] {
            check(what, extent, 1, MAX_COORDINATE)?;
        }
        grid.set(handle::insert(refusable(make)?)?);
        Ok(())
    })
}

/// The numbers of rows and of columns of tiles. On failure `counts`, two numbers, is untouched. Threads: any.
///
/// # Safety
/// `counts` is NULL or two numbers can be written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_grid_counts(grid: *const tiled_grid, counts: *mut i64) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; an array of two has the alignment of one
        let counts = unsafe { Output::new(counts.cast::<[i64; 2]>(), "counts")? };
        handle::shared(grid, "grid", |grid| {
            counts.set(grid.counts().map(|count| i64::try_from(count).unwrap_or(i64::MAX)));
            Ok(())
        })
    })
}

/// The tile in this row and column of tiles, in coordinates of the image. On failure `tile` is untouched.
///
/// Threads: any.
///
/// # Safety
/// `tile` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_grid_tile(
    grid: *const tiled_grid,
    row: i64,
    col: i64,
    tile: *mut tiled_region,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let tile = unsafe { Output::new(tile, "tile")? };
        handle::shared(grid, "grid", |grid| {
            tile.set(grid.tile(tile_index(grid, row, col)?).into());
            Ok(())
        })
    })
}

/// The place of a tile as indices.
pub(crate) fn tile_index(grid: &Grid<2>, row: i64, col: i64) -> Fallible<[usize; 2]> {
    let [rows, cols] = grid.counts();
    let index = |what: &str, got: i64, count: usize| {
        usize::try_from(got)
            .ok()
            .filter(|got| *got < count)
            .ok_or_else(|| Failure::range(format!("{what} is {got}, the grid has {count}")))
    };
    Ok([index("row", row, rows)?, index("col", col, cols)?])
}

/// The same tiles carried over to an image of other extents, for a tensor that a stride has made smaller.
///
/// The handle is the caller's. On failure `scaled` is untouched. Threads: any.
///
/// # Safety
/// `scaled` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_grid_rescale(
    grid: *const tiled_grid,
    height: i64,
    width: i64,
    scaled: *mut *mut tiled_grid,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let scaled = unsafe { Output::new(scaled, "scaled")? };
        for (what, extent) in [("height", height), ("width", width)] {
            check(what, extent, 1, MAX_COORDINATE)?;
        }
        let made = handle::shared(grid, "grid", |grid| Ok(refusable(|| grid.rescale([height, width]))?))?;
        scaled.set(handle::insert(made)?);
        Ok(())
    })
}

/// Frees a grid; NULL does nothing. A handle freed twice is told by `TILED_STATUS_INVALID_HANDLE`. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_grid_free(grid: *mut tiled_grid) -> tiled_status {
    guard(|| handle::free(grid, "grid"))
}
