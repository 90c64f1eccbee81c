//! `needed(Y)` is the hull of all `x` that some `y` in `Y` reads, and the adjoint's `needed(X)` is the hull of all
//! `y` that read some `x` in `X`. The adjoint of the adjoint is the map itself. Monotone,
//! `A ⊆ B ⇒ needed(A) ⊆ needed(B)`; empty needs empty.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiled_testkit::geometry_laws as laws;

/// Kind and sizes of the map, two intervals.
type Case = (u8, [u8; 4], [[u8; 2]; 2]);

fuzz_target!(|case: Case| {
    let (kind, bytes, intervals) = case;
    let (map, [a, b]) = (laws::small_map(kind, bytes), intervals.map(laws::small_interval));
    laws::adjoint_is_the_transpose(map, a);
    laws::map_is_monotone(map, a, b);
});
