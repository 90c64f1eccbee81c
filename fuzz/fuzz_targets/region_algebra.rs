//! A point lies in the intersection exactly if it lies in both. A region contains the hull exactly if it contains
//! both. `aligned` is a closure. An empty interval is one value. `len = intersect(other).len + before + after` for `other` not empty.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiled_testkit::geometry_laws as laws;

/// Three boxes of up to three axes; the ends of an interval.
type Case = ([[[u8; 2]; 3]; 3], [i64; 2]);

fuzz_target!(|case: Case| {
    let ([a, b, c], ends) = case;
    let line = [a, b, c].map(|[x, ..]| laws::small_region([x]));
    let plane = [a, b, c].map(|[x, y, _]| laws::small_region([x, y]));
    let volume = [a, b, c].map(laws::small_region);
    laws::regions_are_sets_of_points(line[0], line[1], line[2]);
    laws::regions_are_sets_of_points(plane[0], plane[1], plane[2]);
    laws::regions_are_sets_of_points(volume[0], volume[1], volume[2]);
    laws::empty_is_one_value(a, ends);
    laws::aligned_is_a_closure(
        laws::small_interval(a[0]),
        laws::small_interval(b[0]),
        1 + i64::from(c[0][0] % 9),
    );
    laws::excess_is_what_clipping_removes(laws::small_interval(a[0]), laws::small_interval(b[0]));
});
