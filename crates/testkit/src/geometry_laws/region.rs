//! The laws of regions as sets of points.

use tiled_geometry::{Interval, Region};

use super::{points, small_interval};

/// Law: a point lies in the intersection exactly if it lies in both. A region contains the hull exactly if it
/// contains both, and contains another exactly if it contains each of its points. The volume is the number of
/// points.
///
/// # Panics
/// Where the law does not hold.
pub fn regions_are_sets_of_points<const N: usize>(a: Region<N>, b: Region<N>, c: Region<N>) {
    let (both, hull) = (a.intersect(b), a.hull(b));
    for point in points(hull) {
        assert_eq!(both.contains(point), a.contains(point) && b.contains(point), "{a}, {b}, {point:?}");
    }
    assert!(hull.contains_region(both), "{a}, {b}");
    assert_eq!(c.contains_region(hull), c.contains_region(a) && c.contains_region(b), "{a}, {b}, {c}");
    assert!(hull.contains_region(a) && hull.contains_region(b), "{a}, {b}");
    // smallest: each face of the hull is a face of one of the two
    for axis in 0..N {
        let [hull, a, b] = [hull, a, b].map(|region| region.axis(axis));
        assert!([a, b].iter().any(|part| part.begin() == hull.begin()), "{a}, {b}");
        assert!([a, b].iter().any(|part| part.end() == hull.end()), "{a}, {b}");
    }
    for (outer, inner) in [(a, b), (b, a), (a, both), (c, hull)] {
        assert_eq!(
            outer.contains_region(inner),
            points(inner).all(|p| outer.contains(p)),
            "{outer}, {inner}"
        );
    }
    for region in [a, b, both, hull] {
        assert_eq!(usize::try_from(region.volume()), Ok(points(region).count()), "{region}");
    }
    assert_eq!((a.intersect(b), a.hull(b)), (b.intersect(a), b.hull(a)), "{a}, {b}");
}

/// Law: `aligned` contains the interval and is its own, by less than a step on either side, and
/// `aligned(hull(a, b)) = hull(aligned(a), aligned(b))`.
///
/// # Panics
/// Where the law does not hold.
pub fn aligned_is_a_closure(a: Interval, b: Interval, step: i64) {
    let aligned = a.aligned(step);
    assert!(aligned.contains_interval(a), "{a}, {step}");
    assert_eq!(aligned.aligned(step), aligned, "{a}, {step}");
    assert_eq!((aligned.begin() % step, aligned.end() % step), (0, 0), "{a}, {step}");
    assert!(aligned.is_empty() == a.is_empty() && aligned.len() < a.len() + 2 * step, "{a}, {step}");
    assert!(
        a.is_empty() || a.begin() - aligned.begin() < step && aligned.end() - a.end() < step,
        "{a}, {step}"
    );
    assert_eq!(a.hull(b).aligned(step), aligned.hull(b.aligned(step)), "{a}, {b}, {step}");
}

/// Law: an empty interval is one value. A region with one empty axis holds no point, and `Region::EMPTY` is
/// its only representation.
///
/// # Panics
/// Where the law does not hold.
pub fn empty_is_one_value<const N: usize>(bytes: [[u8; 2]; N], ends: [i64; 2]) {
    let interval = Interval::new(ends[0], ends[1]);
    assert_eq!(interval.is_empty(), ends[1] <= ends[0], "{ends:?}");
    assert_eq!(interval.is_empty(), interval == Interval::EMPTY, "{ends:?}");
    assert!(interval.is_empty() || (interval.begin(), interval.end()) == (ends[0], ends[1]), "{ends:?}");

    let axes = bytes.map(small_interval);
    let region = Region::new(axes);
    assert_eq!(region.is_empty(), axes.contains(&Interval::EMPTY), "{axes:?}");
    assert_eq!(region.is_empty(), region == Region::EMPTY, "{axes:?}");
    assert_eq!(region.is_empty(), points(region).next().is_none(), "{axes:?}");
    for axis in 0..N {
        assert_eq!(region.with_axis(axis, Interval::EMPTY), Region::EMPTY, "{axes:?}");
        assert_eq!(region.with_axis(axis, region.axis(axis)), region, "{axes:?}");
    }
}

/// Law: `len = intersect(other).len + before + after` for `other` not empty; both are zero where either is
/// empty.
///
/// # Panics
/// Where the law does not hold.
pub fn excess_is_what_clipping_removes(interval: Interval, other: Interval) {
    let (before, after) = interval.excess(other);
    if interval.is_empty() || other.is_empty() {
        assert_eq!((before, after), (0, 0), "{interval}, {other}");
        return;
    }
    assert_eq!(interval.len(), interval.intersect(other).len() + before + after, "{interval}, {other}");
    let count = |is_outside: &dyn Fn(i64) -> bool| {
        i64::try_from(super::each(interval).filter(|x| is_outside(*x)).count())
    };
    assert_eq!(count(&|x| x < other.begin()), Ok(before), "{interval}, {other}");
    assert_eq!(count(&|x| x >= other.end()), Ok(after), "{interval}, {other}");
}
