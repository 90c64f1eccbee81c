//! The laws of chains of windows.

use std::collections::BTreeSet;

use tiled_geometry::{AxisMap, Chain, GeometryError, Interval, MAX_COORDINATE, Window};

use super::window::{taps, window_stays_in_64_bits};
use super::{each, hull_of};

/// Outputs of every layer of the small cases that can meet small inputs lie well inside this.
const SEARCHED: std::ops::Range<i64> = -160..160;

/// Law: composition of windows equals folding them. `receptive` and `computable` of the composed window equal
/// those of the windows in turn; so does `touched`, where it is not empty, and always lies in it.
/// Law (Galois pair): `receptive(O) ⊆ I ⇔ O ⊆ computable(I)`.
///
/// # Panics
/// Where the law does not hold.
pub fn composition_equals_folding(windows: &[Window], outputs: Interval, inputs: Interval) {
    let composed = composed(windows).expect("small windows compose");
    let receptive = receptive(windows, outputs);
    assert_eq!(receptive, composed.receptive(outputs), "{windows:?}, outputs {outputs}");
    let computable = windows.iter().fold(inputs, |given, window| window.computable(given));
    assert_eq!(computable, composed.computable(inputs), "{windows:?}, inputs {inputs}");
    let touched = touched(windows, inputs);
    assert!(composed.touched(inputs).contains_interval(touched), "{windows:?}, inputs {inputs}");
    assert!(touched.is_empty() || touched == composed.touched(inputs), "{windows:?}, inputs {inputs}");
    assert_eq!(
        inputs.contains_interval(receptive),
        computable.contains_interval(outputs),
        "{windows:?}, outputs {outputs}, inputs {inputs}"
    );
}

/// Windows, first operator first, as one.
fn composed(windows: &[Window]) -> Result<Window, GeometryError> {
    windows.iter().try_fold(Window::IDENTITY, |first, window| first.then(*window))
}

/// What `outputs` read through windows, first operator first, where nothing is clipped.
fn receptive(windows: &[Window], outputs: Interval) -> Interval {
    windows.iter().rev().fold(outputs, |wanted, window| window.receptive(wanted))
}

/// What reads `inputs` through windows, first operator first, where nothing is clipped.
fn touched(windows: &[Window], inputs: Interval) -> Interval {
    windows.iter().fold(inputs, |wanted, window| window.touched(wanted))
}

/// Law: composing is associative, with equal errors. What composes does not overflow.
///
/// # Panics
/// Where the law does not hold.
pub fn composition_is_associative(a: Window, b: Window, c: Window) {
    let from_left = a.then(b).and_then(|ab| ab.then(c));
    let from_right = b.then(c).and_then(|bc| a.then(bc));
    assert_eq!(from_left, from_right, "{a:?}, {b:?}, {c:?}");
    assert_eq!(from_left, composed(&[a, b, c]), "{a:?}, {b:?}, {c:?}");
    assert_eq!(a.then(Window::IDENTITY), Window::IDENTITY.then(a), "{a:?}");
    if let Ok(composed) = from_left {
        window_stays_in_64_bits(composed, Interval::new(-MAX_COORDINATE, MAX_COORDINATE));
    }
}

/// Law: `receptive(O)` of a chain is the smallest interval that holds every input from which a path of taps
/// leads to `O`. Without dilation `touched(I)` is exactly the outputs to which a path of taps leads from
/// `I`; with dilation it holds them.
///
/// # Panics
/// Where the law does not hold.
pub fn paths_bound_a_chain(windows: &[Window], outputs: Interval, inputs: Interval) {
    let read = windows.iter().rev().fold(each(outputs).collect::<BTreeSet<i64>>(), |read, window| {
        read.iter().flat_map(|o| taps(*window, *o)).collect()
    });
    assert_eq!(receptive(windows, outputs), hull_of(read), "{windows:?}, outputs {outputs}");

    let readers = windows.iter().fold(each(inputs).collect::<BTreeSet<i64>>(), |read, window| {
        SEARCHED.filter(|o| taps(*window, *o).any(|x| read.contains(&x))).collect()
    });
    let touched = touched(windows, inputs);
    assert!(
        readers.iter().all(|o| touched.contains(*o)),
        "{windows:?}, inputs {inputs}: {touched} does not hold {readers:?}"
    );
    if windows.iter().all(|window| window.dilation() == 1) {
        assert_eq!(each(touched).collect::<BTreeSet<_>>(), readers, "{windows:?}, inputs {inputs}");
    }
}

/// Law: clip at the image border only, and pad each operator there by itself. A tile's edge is never padded:
/// a tap of a tile is padding exactly if it is padding in the whole, at every layer. What a tile needs holds
/// every tap inside the image from which a path inside the image leads to the tile, and without dilation and
/// with no stride larger than its kernel it is exactly these.
///
/// The image has `extent` coordinates, every window pads the same before and behind, and `tile` is clipped
/// to the outputs; where a layer has no output there is nothing to hold.
///
/// # Panics
/// Where the law does not hold.
pub fn clipping_at_the_border_changes_no_tap(windows: &[Window], extent: i64, tile: Interval) {
    let mut images = vec![Interval::whole(extent)];
    for window in windows {
        let extent = images[images.len() - 1].end();
        images.push(Interval::whole(window.outputs(extent, window.padding(), false)));
    }
    let dense = windows.iter().all(|window| window.dilation() == 1 && window.stride() <= window.kernel());
    let mut needed = tile.intersect(images[windows.len()]);
    let mut read: BTreeSet<i64> = each(needed).collect();
    for (window, image) in windows.iter().zip(&images).rev() {
        let unclipped = window.receptive(needed);
        let clipped = unclipped.intersect(*image);
        for x in each(needed).flat_map(|o| taps(*window, o)) {
            assert_eq!(clipped.contains(x), image.contains(x), "{windows:?}, {extent}, {tile}: tap {x}");
        }
        let (before, after) = unclipped.excess(*image);
        let padded = Interval::new(clipped.begin() - before, clipped.end() + after);
        assert!(clipped.is_empty() || padded == unclipped, "{windows:?}, {extent}, {tile}: {padded}");
        read = read.iter().flat_map(|o| taps(*window, *o)).filter(|x| image.contains(*x)).collect();
        assert!(read.iter().all(|x| clipped.contains(*x)), "{windows:?}, {extent}, {tile}: {clipped}");
        if dense {
            assert_eq!(each(clipped).collect::<BTreeSet<_>>(), read, "{windows:?}, {extent}, {tile}");
        }
        needed = clipped;
    }
    let back = windows.iter().zip(&images).rev();
    let chain = Chain::new(back.map(|(window, image)| (AxisMap::Window(*window), image.end())));
    let wanted = tile.intersect(images[windows.len()]);
    assert_eq!(chain.needed(wanted), needed, "{windows:?}, {extent}, {tile}");
}
