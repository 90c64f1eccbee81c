//! `receptive(O)` is the smallest interval that holds every tap of every output in `O`. An output lies in
//! `touched(I)` exactly if its span meets `I`, and in `computable(I)` exactly if all of its taps lie in `I`.
//! Galois pair: `receptive(O) ⊆ I ⇔ O ⊆ computable(I)`. Without `ceil`, `[0, outputs) = [0, ∞) ∩
//! computable([−p, extent + p'))`. Coordinates within ±2^40 and windows up to 2^20 never overflow.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiled_testkit::geometry_laws as laws;

/// Sizes, outputs and inputs, extent and padding after; then sizes and ends anywhere in range.
type Case = ([u8; 4], [[u8; 2]; 2], [u8; 2], [u32; 4], [i64; 2]);

fuzz_target!(|case: Case| {
    let (sizes, intervals, [extent, after], wide, ends) = case;
    let (window, [outputs, inputs]) = (laws::small_window(sizes), intervals.map(laws::small_interval));
    laws::receptive_is_the_hull_of_the_taps(window, outputs);
    laws::touched_outputs_meet_the_inputs(window, inputs);
    laws::computable_outputs_have_all_taps_inside(window, inputs);
    laws::galois_pair(window, outputs, inputs);
    let after = i64::from(after) % (window.extent() / 2 + 1);
    laws::outputs_count_the_windows(window, 1 + i64::from(extent), after);
    laws::window_stays_in_64_bits(laws::wide_window(wide), laws::wide_interval(ends));
});
