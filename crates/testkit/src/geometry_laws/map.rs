//! The laws of the maps along one axis.

use tiled_geometry::{
    AxisMap, Coordinates, Cubic, Filter, Interval, PadMode, Padding, Ratio, Resize, ResizeMode, Rounding,
};

use super::window::span;
use super::{hull_of, small_window};

/// Coordinates that the small cases relate lie well inside this.
const SEARCHED: std::ops::Range<i64> = -192..192;

/// A map of any kind, of a [`small_window`] or of extents up to 24.
///
/// # Panics
/// Never: the sizes are in range.
#[must_use]
pub fn small_map(kind: u8, bytes: [u8; 4]) -> AxisMap {
    let window = small_window(bytes);
    let [a, b, c, d] = bytes.map(i64::from);
    let (from, to) = (1 + a % 24, 1 + b % 24);
    let mode = small_mode(bytes[2]);
    let scale = Ratio::new(to * 7 + d % 7, from * 7).expect("positive");
    let resize = match bytes[3] % 3 {
        0 => Resize::with_scale(mode, from, to, scale),
        _ => Resize::new(mode, from, to),
    };
    let resize = resize.expect("extents are in range");
    // reflection stays inside the tensor, a ring goes round once, replication may reach past it
    let (pad_mode, side) = match bytes[1] % 4 {
        0 | 2 => (PadMode::Reflect, from),
        1 => (PadMode::Replicate, 10),
        _ => (PadMode::Circular, from + 1),
    };
    let padding = Padding::new(pad_mode, from, c % side, d % side).expect("sizes are in range");
    match kind % 8 {
        0 => AxisMap::Identity,
        1 => AxisMap::Window(window),
        2 => AxisMap::Touched(window),
        3 => AxisMap::Resize(resize),
        4 => AxisMap::ResizeTouched(resize),
        5 => AxisMap::Padding(padding),
        6 => AxisMap::PaddingTouched(padding),
        _ => AxisMap::Whole(from),
    }
}

/// A mode of any kind.
fn small_mode(byte: u8) -> ResizeMode {
    const FILTERS: [Filter; 7] = [
        Filter::Nearest(Rounding::Floor),
        Filter::Nearest(Rounding::Ceil),
        Filter::Nearest(Rounding::HalfDown),
        Filter::Nearest(Rounding::HalfUp),
        Filter::Linear,
        Filter::Cubic(Cubic::PYTORCH),
        Filter::Area,
    ];
    const COORDINATES: [Coordinates; 5] = [
        Coordinates::HalfPixel,
        Coordinates::HalfPixelOfSeveral,
        Coordinates::HalfPixelSymmetric,
        Coordinates::AlignCorners,
        Coordinates::Asymmetric,
    ];
    let byte = usize::from(byte);
    ResizeMode { filter: FILTERS[byte % 7], coordinates: COORDINATES[byte / 7 % 5] }
}

/// Law: `needed(Y)` is the hull of all `x` that some `y` in `Y` reads, and the adjoint's `needed(X)` is the
/// hull of all `y` that read some `x` in `X`. The adjoint of the adjoint is the map itself.
///
/// # Panics
/// Where the law does not hold.
pub fn adjoint_is_the_transpose(map: AxisMap, interval: Interval) {
    let reads_any = |x: &i64| (interval.begin()..interval.end()).any(|y| reads(map, y, *x));
    assert_eq!(map.needed(interval), hull_of(SEARCHED.filter(reads_any)), "{map:?} of {interval}");

    let Some(adjoint) = map.adjoint() else {
        assert!(matches!(map, AxisMap::Whole(_)), "{map:?} has no adjoint");
        return;
    };
    assert_eq!(adjoint.adjoint(), Some(map));
    let is_read_by_any = |y: &i64| (interval.begin()..interval.end()).any(|x| reads(map, *y, x));
    assert_eq!(
        adjoint.needed(interval),
        hull_of(SEARCHED.filter(is_read_by_any)),
        "{adjoint:?}, adjoint of {map:?}, of {interval}"
    );
}

/// Law: monotone, `A ⊆ B ⇒ needed(A) ⊆ needed(B)`; empty needs empty.
///
/// # Panics
/// Where the law does not hold.
pub fn map_is_monotone(map: AxisMap, a: Interval, b: Interval) {
    let all = map.needed(a.hull(b));
    for part in [a, b, a.intersect(b)] {
        assert!(all.contains_interval(map.needed(part)), "{map:?}: {part} within {a} and {b}");
    }
    assert_eq!(map.needed(Interval::EMPTY), Interval::EMPTY, "{map:?}");
}

/// Whether coordinate `y` of the result reads coordinate `x` of the operand (for a window: whether its span
/// holds `x`), from the definition of each operator.
#[must_use]
pub fn reads(map: AxisMap, y: i64, x: i64) -> bool {
    match map {
        AxisMap::Identity => x == y,
        AxisMap::Window(window) => span(window, y).contains(&x),
        AxisMap::Touched(window) => span(window, x).contains(&y),
        AxisMap::Resize(resize) => interpolates(resize, y, x),
        AxisMap::ResizeTouched(resize) => interpolates(resize, x, y),
        AxisMap::Padding(padding) => shows(padding, y) == Some(x),
        AxisMap::PaddingTouched(padding) => shows(padding, x) == Some(y),
        AxisMap::Whole(extent) => (0..extent).contains(&x),
    }
}

/// Whether output `o` reads input `i`, by looking for the inputs around its position.
fn interpolates(resize: Resize, o: i64, i: i64) -> bool {
    let (input, output) = (resize.input(), resize.output());
    if !(0..output).contains(&o) || !(0..input).contains(&i) {
        return false;
    }
    if resize.mode().filter == Filter::Area {
        // [i, i + 1) meets [o·in/out, (o + 1)·in/out)
        return i * output < (o + 1) * input && o * input < (i + 1) * output;
    }
    let (position, unit) = position(resize, o);
    let border = |x: i64| x.clamp(0, input - 1) == i;
    let below = (-64..64).rev().find(|x| x * unit <= position).expect("a small case");
    match resize.mode().filter {
        Filter::Nearest(rounding) => {
            let above = (-64..64).find(|x| x * unit >= position).expect("a small case");
            let (down, up) = (position - below * unit, above * unit - position);
            border(match rounding {
                Rounding::Floor => below,
                Rounding::Ceil => above,
                Rounding::HalfDown if down <= up => below,
                Rounding::HalfUp if down < up => below,
                Rounding::HalfDown | Rounding::HalfUp => above,
            })
        }
        Filter::Linear => {
            let below = below.max(0);
            border(below) || border(below + 1)
        }
        Filter::Cubic(_) => (below - 1..=below + 2).any(border),
        Filter::Area => false,
    }
}

/// The position of output `o` as a fraction, by the definition of its coordinates.
fn position(resize: Resize, o: i64) -> (i64, i64) {
    let (input, output) = (resize.input(), resize.output());
    let (p, q) = (resize.scale().numerator(), resize.scale().denominator());
    // (o + 1/2)/s − 1/2
    let half = ((2 * o + 1) * q - p, 2 * p);
    match resize.mode().coordinates {
        Coordinates::HalfPixel => half,
        Coordinates::HalfPixelOfSeveral if output > 1 => half,
        // in/2 − out/(2s)
        Coordinates::HalfPixelSymmetric => (half.0 + input * p - output * q, half.1),
        Coordinates::AlignCorners if output > 1 => (o * (input - 1), output - 1),
        Coordinates::HalfPixelOfSeveral | Coordinates::AlignCorners => (0, 1),
        Coordinates::Asymmetric => (o * q, p),
    }
}

/// The input that padded coordinate `o` shows, by building the padded axis.
fn shows(padding: Padding, o: i64) -> Option<i64> {
    let extent = padding.input();
    let (head, tail): (Vec<i64>, Vec<i64>) = match padding.mode() {
        PadMode::Reflect => (
            (1..=padding.before()).rev().collect(),
            (extent - 1 - padding.after()..extent - 1).rev().collect(),
        ),
        PadMode::Replicate => {
            ((0..padding.before()).map(|_| 0).collect(), (0..padding.after()).map(|_| extent - 1).collect())
        }
        PadMode::Circular => ((extent - padding.before()..extent).collect(), (0..padding.after()).collect()),
    };
    let axis: Vec<i64> = head.into_iter().chain(0..extent).chain(tail).collect();
    usize::try_from(o).ok().and_then(|o| axis.get(o).copied())
}
