//! The laws of one window.

use tiled_geometry::{Interval, Window};

use super::{each, hull_of};

/// Outputs that can meet the inputs and windows of the small cases lie well inside this.
const SEARCHED: std::ops::Range<i64> = -96..96;

/// Law: `receptive(O)` is the smallest interval that holds every tap of every output in `O`.
///
/// # Panics
/// Where the law does not hold.
pub fn receptive_is_the_hull_of_the_taps(window: Window, outputs: Interval) {
    let expected = hull_of(each(outputs).flat_map(|o| taps(window, o)));
    assert_eq!(window.receptive(outputs), expected, "{window:?}, outputs {outputs}");
}

/// Law: an output lies in `touched(I)` exactly if its span meets `I`. Without dilation the span is the taps,
/// so these are exactly the outputs that read any of `I`.
///
/// # Panics
/// Where the law does not hold.
pub fn touched_outputs_meet_the_inputs(window: Window, inputs: Interval) {
    let touched = window.touched(inputs);
    for o in SEARCHED {
        let meets = span(window, o).any(|x| inputs.contains(x));
        assert_eq!(touched.contains(o), meets, "{window:?}, inputs {inputs}, output {o}");
        let reads = taps(window, o).any(|x| inputs.contains(x));
        assert!(meets || !reads, "{window:?}, inputs {inputs}, output {o}");
        assert!(window.dilation() > 1 || meets == reads, "{window:?}, inputs {inputs}, output {o}");
    }
    assert!(touched.is_empty() || SEARCHED.contains(&touched.begin()) && SEARCHED.contains(&touched.end()));
}

/// Law: an output lies in `computable(I)` exactly if all of its taps lie in `I`.
///
/// # Panics
/// Where the law does not hold.
pub fn computable_outputs_have_all_taps_inside(window: Window, inputs: Interval) {
    let computable = window.computable(inputs);
    for o in SEARCHED {
        let all = taps(window, o).all(|x| inputs.contains(x));
        assert_eq!(computable.contains(o), all, "{window:?}, inputs {inputs}, output {o}");
    }
    assert!(window.touched(inputs).contains_interval(computable), "{window:?}, inputs {inputs}");
}

/// Law (Galois pair): `receptive(O) ⊆ I ⇔ O ⊆ computable(I)`.
///
/// # Panics
/// Where the law does not hold.
pub fn galois_pair(window: Window, outputs: Interval, inputs: Interval) {
    assert_eq!(
        inputs.contains_interval(window.receptive(outputs)),
        window.computable(inputs).contains_interval(outputs),
        "{window:?}, outputs {outputs}, inputs {inputs}"
    );
    // the two tightest cases, which random intervals seldom meet
    assert!(window.computable(window.receptive(outputs)).contains_interval(outputs));
    assert!(inputs.contains_interval(window.receptive(window.computable(inputs))));
}

/// Law: without `ceil`, `[0, outputs) = [0, ∞) ∩ computable([−p, extent + p'))`; so there is none where the
/// kernel is larger than the padded input. With `ceil`, one more window is taken where the last one does not
/// reach the end of the padded input, unless it would start behind the input; so a kernel larger than the
/// padded input can have an output, as in PyTorch.
///
/// `extent` is at least one and, as in PyTorch, `padding_after` at most half of the span.
///
/// # Panics
/// Where the law does not hold.
pub fn outputs_count_the_windows(window: Window, extent: i64, padding_after: i64) {
    let padded_end = extent + padding_after;
    let starts = |o: i64| o * window.stride() - window.padding();
    let ends = |o: i64| starts(o) + window.extent() + 1;
    let case = || format!("{window:?}, extent {extent}, padding after {padding_after}");

    let whole = (0..).take_while(|o| ends(*o) <= padded_end).count();
    let computable = window.computable(Interval::new(-window.padding(), padded_end));
    assert_eq!(usize::try_from(window.outputs(extent, padding_after, false)), Ok(whole), "{}", case());
    assert_eq!(computable, Interval::whole(window.outputs(extent, padding_after, false)), "{}", case());

    let rounded_up = (0..).take_while(|o| ends(*o - 1) < padded_end && starts(*o) < extent).count();
    assert_eq!(usize::try_from(window.outputs(extent, padding_after, true)), Ok(rounded_up), "{}", case());
}

/// Law: coordinates within ±2^40 and windows up to 2^20 never overflow.
///
/// # Panics
/// Where the law does not hold: where 64 bits give another interval than 128 bits.
pub fn window_stays_in_64_bits(window: Window, interval: Interval) {
    let [s, p, e] = [window.stride(), window.padding(), window.extent()].map(i128::from);
    let (a, b) = (i128::from(interval.begin()), i128::from(interval.end()));
    let floor = |n: i128| n.div_euclid(s);
    let ceil = |n: i128| -(-n).div_euclid(s);
    let wide = [
        (window.receptive(interval), a * s - p, (b - 1) * s - p + e + 1),
        (window.touched(interval), ceil(a + p - e), floor(b - 1 + p) + 1),
        (window.computable(interval), ceil(a + p), floor(b - 1 + p - e) + 1),
    ];
    for (narrow, begin, end) in wide {
        let narrow = (i128::from(narrow.begin()), i128::from(narrow.end()));
        let expected = if interval.is_empty() || end <= begin { (0, 0) } else { (begin, end) };
        assert_eq!(narrow, expected, "{window:?}, {interval}");
    }
}

/// The inputs that output `o` reads.
pub(super) fn taps(window: Window, o: i64) -> impl Iterator<Item = i64> {
    let first = o * window.stride() - window.padding();
    (0..window.kernel()).map(move |t| first + window.dilation() * t)
}

/// The inputs from the first tap of output `o` to its last.
pub(super) fn span(window: Window, o: i64) -> std::ops::RangeInclusive<i64> {
    let first = o * window.stride() - window.padding();
    first..=first + window.dilation() * (window.kernel() - 1)
}
