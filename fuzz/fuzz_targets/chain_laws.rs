//! Composition of windows equals folding them, and is associative, with equal errors. What composes does not
//! overflow. `receptive(O)` of a chain is the smallest interval that holds every input from which a path of taps
//! leads to `O`. Clip at the image border only, and pad each operator there by itself. A tile's edge is never
//! padded: a tap of a tile is padding exactly if it is padding in the whole, at every layer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiled_geometry::Interval;
use tiled_testkit::geometry_laws as laws;

/// Number of windows, their sizes, outputs and inputs, extent; then sizes anywhere in range.
type Case = (u8, [[u8; 4]; 4], [[u8; 2]; 2], u8, [[u32; 4]; 3]);

fuzz_target!(|case: Case| {
    let (len, sizes, intervals, extent, wide) = case;
    let windows = &sizes.map(laws::small_chain_window)[..usize::from(len % 5)];
    let [outputs, inputs] = intervals.map(laws::small_interval);
    laws::composition_equals_folding(windows, outputs, inputs);
    laws::paths_bound_a_chain(windows, outputs, inputs);
    let tile = Interval::new(outputs.begin() + 16, outputs.end() + 16);
    laws::clipping_at_the_border_changes_no_tap(windows, 1 + i64::from(extent % 48), tile);
    let [a, b, c] =
        wide.map(|sizes| laws::wide_window(sizes.map(|size| (size % (1 << 20)) >> (extent % 21))));
    laws::composition_is_associative(a, b, c);
});
