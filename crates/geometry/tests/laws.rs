//! The laws of the geometry as properties, against the oracles that the fuzz targets call.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tiled_geometry::{GeometryError, Grid, Interval, Window};
use tiled_testkit::geometry_laws as laws;

/// The same cases in every run, unless `PROPTEST_RNG_SEED` asks for others; fixed bugs have tests by name.
fn cases(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(20_160_323);
    }
    config
}

fn window() -> impl Strategy<Value = Window> {
    any::<[u8; 4]>().prop_map(laws::small_window)
}

fn interval() -> impl Strategy<Value = Interval> {
    any::<[u8; 2]>().prop_map(laws::small_interval)
}

fn small_chain_window() -> impl Strategy<Value = Window> {
    any::<[u8; 4]>().prop_map(laws::small_chain_window)
}

fn chain() -> impl Strategy<Value = Vec<Window>> {
    prop::collection::vec(small_chain_window(), 0..5)
}

/// Extents, counts and sizes of tiles, and extents to rescale to.
fn grid_case<const N: usize>(largest: i64) -> impl Strategy<Value = [[i64; N]; 4]>
where
    [i64; N]: std::fmt::Debug,
{
    let axes = |range: std::ops::RangeInclusive<i64>| prop::array::uniform(range).boxed();
    (axes(0..=largest), axes(1..=5), axes(1..=largest), axes(0..=largest))
        .prop_map(|(a, b, c, d)| [a, b, c, d])
}

fn grid_laws<const N: usize>([extents, counts, tile, rescaled]: [[i64; N]; 4], maps: [(u8, [u8; 4]); N]) {
    let even = laws::even_sizes_differ_by_at_most_one(extents, counts);
    let ragged = laws::only_the_last_tile_is_ragged(extents, tile);
    let maps = maps.map(|(kind, bytes)| laws::small_map(kind, bytes));
    for grid in [even, ragged] {
        laws::tiles_partition_the_whole(&grid);
        laws::rescaled_tiles_partition(&grid, rescaled);
        laws::what_tiles_need_is_what_the_whole_needs(&grid, maps);
    }
}

proptest! {
    #![proptest_config(cases(4096))]

    /// `receptive(O)` is the smallest interval that holds every tap of every output in `O`.
    #[test]
    fn receptive_is_the_hull_of_the_taps(window in window(), outputs in interval()) {
        laws::receptive_is_the_hull_of_the_taps(window, outputs);
    }

    /// An output lies in `touched(I)` exactly if its span meets `I`. Without dilation the span is the taps, so
    /// these are exactly the outputs that read any of `I`.
    #[test]
    fn touched_outputs_meet_the_inputs(window in window(), inputs in interval()) {
        laws::touched_outputs_meet_the_inputs(window, inputs);
    }

    /// An output lies in `computable(I)` exactly if all of its taps lie in `I`.
    #[test]
    fn computable_outputs_have_all_taps_inside(window in window(), inputs in interval()) {
        laws::computable_outputs_have_all_taps_inside(window, inputs);
    }

    /// Tap t lies in `taps_inside(o, I)`, and output o in `outputs_inside(t, I)`, exactly if `input(o, t)` lies in `I`.
    #[test]
    fn taps_and_outputs_inside_are_those_that_read_the_inputs(window in window(), inputs in interval()) {
        for output in -40..40 {
            let taps = window.taps_inside(output, inputs);
            prop_assert!(Interval::whole(window.kernel()).contains_interval(taps));
            for tap in 0..window.kernel() {
                let input = output * window.stride() - window.padding() + window.dilation() * tap;
                prop_assert_eq!(window.input(output, tap), input);
                prop_assert_eq!(taps.contains(tap), inputs.contains(input));
                prop_assert_eq!(window.outputs_inside(tap, inputs).contains(output), inputs.contains(input));
            }
        }
    }

    /// Galois pair: `receptive(O) ⊆ I ⇔ O ⊆ computable(I)`.
    #[test]
    fn galois_pair(window in window(), outputs in interval(), inputs in interval()) {
        laws::galois_pair(window, outputs, inputs);
    }

    /// Without `ceil`, `[0, outputs) = [0, ∞) ∩ computable([−p, extent + p'))`; so there is none where the
    /// kernel is larger than the padded input. With `ceil`, one more window is taken where the last one does
    /// not reach the end of the padded input, unless it would start behind the input; so a kernel larger than
    /// the padded input can have an output, as in PyTorch.
    #[test]
    fn outputs_count_the_windows(window in window(), extent in 1..40_i64, after in 0..16_i64) {
        laws::outputs_count_the_windows(window, extent, after.min(window.extent().div_euclid(2)));
    }

    /// Coordinates within ±2^40 and windows up to 2^20 never overflow.
    #[test]
    fn window_stays_in_64_bits(sizes in any::<[u32; 4]>(), ends in any::<[i64; 2]>()) {
        laws::window_stays_in_64_bits(laws::wide_window(sizes), laws::wide_interval(ends));
    }

    /// Composition of windows equals folding them.
    #[test]
    fn composition_equals_folding(chain in chain(), outputs in interval(), inputs in interval()) {
        laws::composition_equals_folding(&chain, outputs, inputs);
    }

    /// Composing is associative, with equal errors. What composes does not overflow.
    #[test]
    fn composition_is_associative(small in any::<[[u8; 4]; 3]>(), wide in any::<[[u32; 4]; 3]>(), shift in 0..21_u32) {
        let [a, b, c] = small.map(laws::small_window);
        laws::composition_is_associative(a, b, c);
        let [a, b, c] = wide.map(|sizes| laws::wide_window(sizes.map(|size| (size % (1 << 20)) >> shift)));
        laws::composition_is_associative(a, b, c);
    }

    /// Clip at the image border only, and pad each operator there by itself. A tile's edge is never padded: a
    /// tap of a tile is padding exactly if it is padding in the whole, at every layer.
    #[test]
    fn clipping_at_the_border_changes_no_tap(
        windows in prop::collection::vec(small_chain_window(), 1..5),
        extent in 1..32_i64,
        tile in (0..32_i64, 1..8_i64).prop_map(|(begin, len)| Interval::new(begin, begin + len)),
    ) {
        laws::clipping_at_the_border_changes_no_tap(&windows, extent, tile);
    }

    /// `needed(Y)` is the hull of all `x` that some `y` in `Y` reads, and the adjoint's `needed(X)` is the hull
    /// of all `y` that read some `x` in `X`. The adjoint of the adjoint is the map itself.
    #[test]
    fn adjoint_is_the_transpose(kind in any::<u8>(), bytes in any::<[u8; 4]>(), interval in interval()) {
        laws::adjoint_is_the_transpose(laws::small_map(kind, bytes), interval);
    }

    /// Monotone, `A ⊆ B ⇒ needed(A) ⊆ needed(B)`; empty needs empty.
    #[test]
    fn map_is_monotone(kind in any::<u8>(), bytes in any::<[u8; 4]>(), a in interval(), b in interval()) {
        laws::map_is_monotone(laws::small_map(kind, bytes), a, b);
    }

    /// An empty interval is one value.
    #[test]
    fn empty_is_one_value(bytes in any::<[[u8; 2]; 3]>(), ends in any::<[i64; 2]>()) {
        laws::empty_is_one_value([bytes[0]], ends);
        laws::empty_is_one_value([bytes[0], bytes[1]], ends);
        laws::empty_is_one_value(bytes, ends);
    }

    /// `len = intersect(other).len + before + after` for `other` not empty; both are zero where either is empty.
    #[test]
    fn excess_is_what_clipping_removes(a in interval(), b in interval()) {
        laws::excess_is_what_clipping_removes(a, b);
    }
}

proptest! {
    #![proptest_config(cases(512))]

    /// `receptive(O)` of a chain is the smallest interval that holds every input from which a path of taps
    /// leads to `O`. Without dilation `touched(I)` is exactly the outputs to which a path leads from `I`.
    #[test]
    fn paths_bound_a_chain(chain in chain(), outputs in interval(), inputs in interval()) {
        laws::paths_bound_a_chain(&chain, outputs, inputs);
    }

    /// A point lies in the intersection exactly if it lies in both. A region contains the hull exactly if it
    /// contains both.
    #[test]
    fn regions_are_sets_of_points(bytes in any::<[[[u8; 2]; 3]; 3]>()) {
        let [a, b, c] = bytes;
        laws::regions_are_sets_of_points(
            laws::small_region([a[0]]), laws::small_region([b[0]]), laws::small_region([c[0]]),
        );
        laws::regions_are_sets_of_points(
            laws::small_region([a[0], a[1]]), laws::small_region([b[0], b[1]]), laws::small_region([c[0], c[1]]),
        );
        laws::regions_are_sets_of_points(laws::small_region(a), laws::small_region(b), laws::small_region(c));
    }

    /// `aligned` contains the interval and is its own, and `aligned(hull(a, b)) = hull(aligned(a), aligned(b))`.
    #[test]
    fn aligned_is_a_closure(a in interval(), b in interval(), step in 1_i64..9) {
        laws::aligned_is_a_closure(a, b, step);
    }

    /// Tiles of a grid partition the whole: no gap, no overlap, for every size, also where it does not divide;
    /// and what the tiles need is what the whole needs. One axis.
    #[test]
    fn tiles_partition_a_line(case in grid_case::<1>(32), maps in any::<[(u8, [u8; 4]); 1]>()) {
        grid_laws(case, maps);
    }

    /// The same for two axes.
    #[test]
    fn tiles_partition_a_plane(case in grid_case::<2>(12), maps in any::<[(u8, [u8; 4]); 2]>()) {
        grid_laws(case, maps);
    }
}

proptest! {
    #![proptest_config(cases(128))]

    /// The same for three axes.
    #[test]
    fn tiles_partition_a_volume(case in grid_case::<3>(5), maps in any::<[(u8, [u8; 4]); 3]>()) {
        grid_laws(case, maps);
    }
}

#[test]
fn windows_at_the_ends_of_their_range_stay_in_64_bits() {
    let (least, most) = (0, (1 << 20) - 1);
    for sizes in [[least; 4], [most; 4], [most, least, most, least], [least, most, least, 1 << 20]] {
        for ends in [[0, -1], [0, 0], [-1, 0], [i64::MIN, i64::MAX], [1 << 40, -(1 << 40)]] {
            laws::window_stays_in_64_bits(laws::wide_window(sizes), laws::wide_interval(ends));
        }
    }
}

#[test]
fn composition_past_the_range_is_an_error_and_what_fits_does_not_overflow() {
    let wide = Window::new(1 << 20, 1 << 20, 1 << 20, 1 << 20).expect("in range");
    assert!(wide.then(wide).is_err());
    // of sparse windows only the stride grows: 2^20 is the last that composes
    let [sparse, twice] = [1 << 10, 1 << 11].map(|stride| Window::new(1, stride, 1, 0).expect("in range"));
    assert_eq!(sparse.then(sparse).map(Window::stride), Ok(1 << 20));
    assert_eq!(sparse.then(twice), Err(GeometryError::Overflow));
    // and the padding, up to 2^40
    let [spread, padded] =
        [(1 << 20, 0), (1, 1 << 20)].map(|(s, p)| Window::new(1, s, 1, p).expect("in range"));
    let shifted = Window::new(1, 1 << 20, 1, 1).expect("in range");
    assert_eq!(spread.then(padded).map(Window::padding), Ok(1 << 40));
    assert_eq!(shifted.then(padded), Err(GeometryError::Overflow));
    laws::composition_is_associative(sparse, sparse, Window::IDENTITY);
    laws::composition_is_associative(sparse, twice, sparse);

    let composed = Window::IDENTITY.then(wide).expect("one window fits");
    let ends = Interval::new(-(1 << 40), 1 << 40);
    assert_eq!(composed.receptive(ends), wide.receptive(ends));
    laws::window_stays_in_64_bits(composed, ends);
}

#[test]
fn ceil_mode_follows_pytorch_for_a_kernel_larger_than_the_input() {
    // torch.nn.functional.max_pool2d(torch.zeros(1, 1, 1, 1), 2, 2, ceil_mode=True).shape == (1, 1, 1, 1)
    let pool = Window::new(2, 2, 1, 0).expect("in range");
    assert_eq!((pool.outputs(1, 0, false), pool.outputs(1, 0, true)), (0, 1));
    // a window that would start in the padding behind the input is dropped
    let padded = Window::new(2, 2, 1, 1).expect("in range");
    assert_eq!((padded.outputs(3, 1, false), padded.outputs(3, 1, true)), (2, 2));
    assert_eq!((padded.outputs(4, 1, false), padded.outputs(4, 1, true)), (3, 3));
}

#[test]
fn sizes_that_nobody_checked_do_not_overflow_the_output_count() {
    let window = Window::new(3, 1, 1, 1).expect("in range");
    assert_eq!(window.outputs(i64::MAX, 1, true), i64::MAX);
    assert_eq!(window.outputs(i64::MIN, 1, true), 0);
}

#[test]
fn grids_out_of_range_are_errors() {
    assert!(Grid::from_counts([4, 4], [0, 1]).is_err());
    assert!(Grid::from_counts([-1], [1]).is_err());
    assert!(Grid::from_counts([(1 << 40) + 1], [1]).is_err());
    assert!(Grid::from_counts([4], [(1 << 24) + 1]).is_err());
    assert!(Grid::from_counts([1 << 24; 3], [1 << 24; 3]).is_err());
    assert!(Grid::from_tile([1 << 40], [1]).is_err());
    assert!(Grid::from_tile([4], [0]).is_err());
}
