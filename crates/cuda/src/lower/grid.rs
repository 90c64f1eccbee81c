//! Threads over regions.

use tiled_geometry::Region;
use tiled_tensor::Layout;

use super::Shape;

/// The threads of a block.
pub(super) const THREADS: usize = 256;
/// The most blocks along y and z.
const MOST_BLOCKS: usize = 65_535;
/// Lanes that a thread of a vector kernel has.
pub(super) const LANES: usize = 4;

/// Threads for some lanes of each pixel of a window: of up to sixteen lanes each, where blocks are left that fill the device.
///
/// # Panics
/// Where a row is longer than `Run` in `kernels/device.cuh` takes.
pub(super) fn of_lanes(layout: &Layout, region: Region<2>, lanes: usize) -> Shape {
    const MOST_OF_A_ROW: usize = 1 << 29;
    const LANES_OF_A_THREAD: usize = 16;
    const BLOCKS: u64 = 2048;
    let width = extent(region.cols().len()) * (layout.block() / lanes).max(1);
    assert!(width <= MOST_OF_A_ROW, "a row of {region} is too long");
    // a thread has the same lanes of all its pixels
    let mut shape = of_planes(width, layout.block(), region, layout.batch() * layout.blocks());
    let blocks = shape.grid.iter().map(|blocks| u64::from(*blocks)).product::<u64>();
    let most = count((LANES_OF_A_THREAD / lanes).max(1));
    let each = u32::try_from(blocks / BLOCKS).map_or(most, |each| each.clamp(1, most));
    shape.grid[0] = shape.grid[0].div_ceil(each);
    shape
}

/// A thread for each pixel of a region, or for each of some groups of its lanes, in each plane.
pub(super) fn of_rows(region: Region<2>, groups: usize, planes: usize) -> Shape {
    of_planes(extent(region.cols().len()) * groups, 1, region, planes)
}

/// Threads for rows of a width, at least so many along a row.
fn of_planes(width: usize, least: usize, region: Region<2>, planes: usize) -> Shape {
    let height = extent(region.rows().len());
    let across = width.next_power_of_two().clamp(least, THREADS);
    let down = (THREADS / across).min(height.next_power_of_two());
    Shape {
        grid: [
            count(width.div_ceil(across)),
            count(height.div_ceil(down).min(MOST_BLOCKS)),
            count(planes.min(MOST_BLOCKS)),
        ],
        block: [count(across), count(down), 1],
    }
}

/// A thread for each of so many things, of which each may have several.
pub(super) fn of_count(things: usize) -> Shape {
    const MOST: usize = 4096;
    Shape { grid: [count(things.div_ceil(THREADS).clamp(1, MOST)), 1, 1], block: [count(THREADS), 1, 1] }
}

pub(super) fn extent(len: i64) -> usize {
    usize::try_from(len).expect("invariant: intervals have no negative length")
}

/// A number of blocks or threads.
pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).expect("invariant: blocks of threads are below 2^31")
}
