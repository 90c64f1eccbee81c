//! Windows and regions, for callers that run kernels of their own.

use tiled::geometry::{AxisMap, Interval, MAX_COORDINATE, Region, Window};

use crate::guard::guard;
use crate::pointer::{Output, input};
use crate::status::{Failure, Fallible, tiled_status};

/// The coordinates `begin <= x < end` of one axis; empty where `end <= begin`, and given back as `[0, 0)` then.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct tiled_interval {
    /// The first coordinate.
    pub begin: i64,
    /// The coordinate after the last.
    pub end: i64,
}

/// A rectangle of coordinates: the product of an interval of rows and one of columns.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct tiled_region {
    /// The rows.
    pub rows: tiled_interval,
    /// The columns.
    pub cols: tiled_interval,
}

/// A window along one axis: kernel size k, stride s, dilation d and padding p before the first input.
///
/// Output `i` reads the inputs `i·s − p + d·u` for `u` in `[0, k)`; `k`, `s`, `d` are from 1 to 2^20, `p` from 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct tiled_window {
    /// The number of taps, k.
    pub kernel: i64,
    /// The distance between the windows of neighbouring outputs, s.
    pub stride: i64,
    /// The distance between neighbouring taps, d.
    pub dilation: i64,
    /// The padding before the first input, p.
    pub padding: i64,
}

impl From<Interval> for tiled_interval {
    fn from(interval: Interval) -> Self {
        Self { begin: interval.begin(), end: interval.end() }
    }
}

impl From<Region<2>> for tiled_region {
    fn from(region: Region<2>) -> Self {
        Self { rows: region.rows().into(), cols: region.cols().into() }
    }
}

impl tiled_interval {
    /// The interval, where its coordinates lie within what maps accept.
    fn checked(self) -> Fallible<Interval> {
        for coordinate in [self.begin, self.end] {
            if !(-MAX_COORDINATE..=MAX_COORDINATE).contains(&coordinate) {
                return Err(Failure::range(format!("coordinate {coordinate} leaves the range of ±2^40")));
            }
        }
        Ok(Interval::new(self.begin, self.end))
    }
}

impl tiled_region {
    pub(crate) fn checked(self) -> Fallible<Region<2>> {
        Ok(Region::from_rows_cols(self.rows.checked()?, self.cols.checked()?))
    }
}

impl tiled_window {
    pub(crate) fn checked(self) -> Fallible<Window> {
        Ok(Window::new(self.kernel, self.stride, self.dilation, self.padding)?)
    }
}

impl From<Window> for tiled_window {
    fn from(window: Window) -> Self {
        Self {
            kernel: window.kernel(),
            stride: window.stride(),
            dilation: window.dilation(),
            padding: window.padding(),
        }
    }
}

/// The inputs that the outputs `[a,b)` read, before clipping to the image: `[a·s − p, (b−1)·s − p + d·(k−1) + 1)`.
///
/// Coordinates lie within ±2^40. On failure `inputs` is untouched. Threads: any.
///
/// # Safety
/// `window` is NULL or can be read, `inputs` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_window_receptive(
    window: *const tiled_window,
    outputs: tiled_interval,
    inputs: *mut tiled_interval,
) -> tiled_status {
    // SAFETY: the caller's promise
    unsafe { map_interval(window, outputs, inputs, "inputs", Window::receptive) }
}

/// The outputs that read any of the inputs `[a,b)`, before clipping: `[ceil((a+p−e)/s), floor((b−1+p)/s) + 1)` with
/// `e = d·(k−1)`. It is what the gradient with respect to these inputs needs.
///
/// Coordinates lie within ±2^40. On failure `outputs` is untouched. Threads: any.
///
/// # Safety
/// `window` is NULL or can be read, `outputs` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_window_touched(
    window: *const tiled_window,
    inputs: tiled_interval,
    outputs: *mut tiled_interval,
) -> tiled_status {
    // SAFETY: the caller's promise
    unsafe { map_interval(window, inputs, outputs, "outputs", Window::touched) }
}

/// The outputs all of whose taps lie in the inputs `[a,b)`: what can be computed from them alone.
///
/// `receptive(O) ⊆ I` exactly if `O ⊆ computable(I)`. Coordinates lie within ±2^40. On failure `outputs` is
/// untouched. Threads: any.
///
/// # Safety
/// `window` is NULL or can be read, `outputs` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_window_computable(
    window: *const tiled_window,
    inputs: tiled_interval,
    outputs: *mut tiled_interval,
) -> tiled_status {
    // SAFETY: the caller's promise
    unsafe { map_interval(window, inputs, outputs, "outputs", Window::computable) }
}

/// # Safety
/// As the exported functions that call it.
unsafe fn map_interval(
    window: *const tiled_window,
    from: tiled_interval,
    to: *mut tiled_interval,
    name: &str,
    map: impl Fn(Window, Interval) -> Interval,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (window, to) = unsafe { (input(window, "window")?, Output::new(to, name)?) };
        to.set(map(window.checked()?, from.checked()?).into());
        Ok(())
    })
}

/// One window that reads what `first`, followed by `second` on its outputs, reads.
///
/// On failure (the composed stride exceeds 2^20, or padding or extent 2^40) `both` is untouched. Threads: any.
///
/// # Safety
/// `first` and `second` are NULL or can be read, `both` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_window_then(
    first: *const tiled_window,
    second: *const tiled_window,
    both: *mut tiled_window,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (first, second, both) =
            unsafe { (input(first, "first")?, input(second, "second")?, Output::new(both, "both")?) };
        both.set(first.checked()?.then(second.checked()?)?.into());
        Ok(())
    })
}

/// The number of outputs over `extent` inputs with `padding_after` behind them.
///
/// `floor((extent + p + padding_after − d·(k−1) − 1)/s) + 1`, or with `ceil_mode` not zero rounded up as in PyTorch.
/// `extent` is from 1 to 2^40, `padding_after` from 0 to 2^20. On failure `outputs` is untouched. Threads: any.
///
/// # Safety
/// `window` is NULL or can be read, `outputs` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_window_outputs(
    window: *const tiled_window,
    extent: i64,
    padding_after: i64,
    ceil_mode: i32,
    outputs: *mut i64,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (window, outputs) = unsafe { (input(window, "window")?, Output::new(outputs, "outputs")?) };
        check("extent", extent, 1, MAX_COORDINATE)?;
        check("padding_after", padding_after, 0, 1 << 20)?;
        outputs.set(window.checked()?.outputs(extent, padding_after, ceil_mode != 0));
        Ok(())
    })
}

/// The region of the input that a region of the output reads, clipped to an image of `height`×`width`.
///
/// `windows` holds two windows, rows then columns. On failure `inputs` is untouched. Threads: any.
///
/// # Safety
/// `windows` is NULL or two windows can be read from it, `inputs` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_region_receptive(
    windows: *const tiled_window,
    outputs: tiled_region,
    height: i64,
    width: i64,
    inputs: *mut tiled_region,
) -> tiled_status {
    // SAFETY: the caller's promise
    unsafe { map_region(windows, outputs, [height, width], inputs, "inputs", AxisMap::Window) }
}

/// The region of the output that reads any of a region of the input, clipped to an output of `height`×`width`.
///
/// `windows` holds two windows, rows then columns. On failure `outputs` is untouched. Threads: any.
///
/// # Safety
/// `windows` is NULL or two windows can be read from it, `outputs` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_region_touched(
    windows: *const tiled_window,
    inputs: tiled_region,
    height: i64,
    width: i64,
    outputs: *mut tiled_region,
) -> tiled_status {
    // SAFETY: the caller's promise
    unsafe { map_region(windows, inputs, [height, width], outputs, "outputs", AxisMap::Touched) }
}

/// # Safety
/// As the exported functions that call it.
unsafe fn map_region(
    windows: *const tiled_window,
    from: tiled_region,
    extents: [i64; 2],
    to: *mut tiled_region,
    name: &str,
    map: impl Fn(Window) -> AxisMap,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; an array of two has the alignment of one
        let (windows, to) =
            unsafe { (input(windows.cast::<[tiled_window; 2]>(), "windows")?, Output::new(to, name)?) };
        for (what, extent) in [("height", extents[0]), ("width", extents[1])] {
            check(what, extent, 1, MAX_COORDINATE)?;
        }
        let maps = [map(windows[0].checked()?), map(windows[1].checked()?)];
        to.set(from.checked()?.through(maps).intersect(Region::whole(extents)).into());
        Ok(())
    })
}

/// The points in both regions. On failure `both` is untouched. Threads: any.
///
/// # Safety
/// `both` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_region_intersect(
    a: tiled_region,
    b: tiled_region,
    both: *mut tiled_region,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let both = unsafe { Output::new(both, "both")? };
        both.set(a.checked()?.intersect(b.checked()?).into());
        Ok(())
    })
}

/// The padding that a region wants around an image: the rows before and after it, then the columns.
///
/// `excess` gets four numbers. On failure it is untouched. Threads: any.
///
/// # Safety
/// `excess` is NULL or four numbers can be written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_region_excess(
    region: tiled_region,
    image: tiled_region,
    excess: *mut i64,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; an array of four has the alignment of one
        let excess = unsafe { Output::new(excess.cast::<[i64; 4]>(), "excess")? };
        let [rows, cols] = region.checked()?.excess(image.checked()?);
        excess.set([rows.0, rows.1, cols.0, cols.1]);
        Ok(())
    })
}

/// Checks `least <= got <= most`.
pub(crate) fn check(what: &str, got: i64, least: i64, most: i64) -> Fallible {
    if (least..=most).contains(&got) {
        return Ok(());
    }
    Err(Failure::range(format!("{what} is {got}, must be from {least} to {most}")))
}
