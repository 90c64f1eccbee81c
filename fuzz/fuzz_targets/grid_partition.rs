//! Tiles of a grid partition the whole: no gap, no overlap, for every size, also where it does not divide. What
//! the tiles of a grid need lies in what the whole needs and has it as its hull, and every point that the whole
//! reads lies in what some tile needs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiled_testkit::geometry_laws as laws;

fn check<const N: usize>(sizes: [[u8; 4]; N], maps: [(u8, [u8; 4]); N], largest: i64) {
    let column =
        |i: usize, least: i64, most: i64| sizes.map(|axis| least + i64::from(axis[i]) % (most - least + 1));
    let extents = column(0, 0, largest);
    let grids = [
        laws::even_sizes_differ_by_at_most_one(extents, column(1, 1, 5)),
        laws::only_the_last_tile_is_ragged(extents, column(2, 1, largest)),
    ];
    for grid in grids {
        laws::tiles_partition_the_whole(&grid);
        laws::rescaled_tiles_partition(&grid, column(3, 0, largest));
        laws::what_tiles_need_is_what_the_whole_needs(
            &grid,
            maps.map(|(kind, bytes)| laws::small_map(kind, bytes)),
        );
    }
}

/// Number of axes; per axis the extent, count, tile and new extent; per axis a map.
type Case = (u8, [[u8; 4]; 3], [(u8, [u8; 4]); 3]);

fuzz_target!(|case: Case| {
    let (axes, sizes, maps) = case;
    match axes % 3 {
        0 => check([sizes[0]], [maps[0]], 32),
        1 => check([sizes[0], sizes[1]], [maps[0], maps[1]], 12),
        _ => check(sizes, maps, 5),
    }
});
