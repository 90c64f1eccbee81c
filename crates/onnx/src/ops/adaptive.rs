//! Adaptive mean pooling as PyTorch's newer exporter writes it out where windows are not all alike: the pixels of all windows are gathered, N×C×k×r×l×s for
//! k by l windows of at most r by s pixels, those that a window lacks are filled with zeros, one is added after another, and the sums are divided by how
//! many there are.
//!
//! Which pixels they are is a constant of the size that the model was exported for; pooling by it is pooling to k by l.

use std::rc::Rc;

use tiled_graph::{AdaptivePool2d, Op, PartPooling};

use super::permuted;
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Constant, Gathered, Gathering, Image, Value};

/// The axes of a batch of images, those of a pixel first, and those of gathered windows, those of a pixel last.
const TURNED: [i64; 4] = [2, 3, 0, 1];
const TURNED_BACK: [i64; 6] = [4, 5, 0, 1, 2, 3];

/// What is wanted of a node that reads a step: of these no other makes sense.
const NEXT: &str = "the next step of it as PyTorch's exporter writes it out";

const PAIRS: &str = "a constant, k×r×l×s×2, of the rows and columns of windows";

/// The most elements of a constant that says where pixels are gathered.
const MOST_INDICES: usize = 1 << 22;

/// A transposition of images before their pixels are gathered, and of windows after it; `None` of others.
pub(super) fn turned(site: &mut Site<'_>, order: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    match (site.operand(0)?, order) {
        (Value::Gathered(gathered), Some(order)) => {
            let is_back = gathered.step == Gathering::Pixels && order == TURNED_BACK;
            let windows = Gathered { step: Gathering::Windows, ..Gathered::clone(gathered) };
            if is_back { made(windows) } else { site.wrong(0, NEXT) }
        }
        (Value::Image(Image { plan, flat: false }), Some(order)) if order == TURNED => {
            made(Gathered { plan: *plan, step: Gathering::Turned, indices: None, masks: [None, None] })
        }
        _ => Ok(None),
    }
}

/// Gathers the pixels of windows, by a row and a column for each.
pub(super) fn gather_nd(site: &mut Site<'_>) -> Result<Value, Reason> {
    site.only("batch_dims", 0, 0, "0, of pixels")?;
    if let Some(made) = permuted::gathered(site)? {
        return Ok(made);
    }
    let turned = match gathered(site, 0) {
        Some(turned) if turned.step == Gathering::Turned => turned,
        _ => return site.wrong(0, "images with the axes of a pixel first"),
    };
    let (indices, [.., pair]) = site.constant_of::<5>(1, PAIRS)?;
    if pair != 2 || indices.shape.iter().product::<usize>() > MOST_INDICES {
        return site.wrong(1, PAIRS);
    }
    let pixels = Gathered { step: Gathering::Pixels, indices: Some(indices), ..turned };
    Ok(Value::Gathered(Rc::new(pixels)))
}

/// Fills places of windows with zeros, by a constant for their rows, k×r×1×1, or their columns, l×s; `None` of other values.
pub(super) fn filled(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some(windows) = gathered(site, 2) else { return Ok(None) };
    if site.scalar(1)? != Some(0.0) {
        return site.wrong(1, NEXT);
    }
    let mask = site.constant(0)?;
    let [k, r, l, s] = windows.shape().unwrap_or_default();
    let axis = match *mask.shape {
        [windows, rows, 1, 1] if [windows, rows] == [k, r] => 0,
        [windows, columns] if [windows, columns] == [l, s] => 1,
        _ => return site.wrong(0, NEXT),
    };
    let mut masks = windows.masks.clone();
    if windows.step != Gathering::Windows || masks[axis].replace(mask).is_some() {
        return site.wrong(2, NEXT);
    }
    made(Gathered { masks, ..windows })
}

/// One row of all windows, then one column of it; `None` of other values.
pub(super) fn selected(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some(gathered) = gathered(site, 0) else { return Ok(None) };
    let axis = site.int("axis", 0)?;
    let place = match *site.whole(1)? {
        [place] => usize::try_from(place).ok(),
        _ => None,
    };
    let [_, rows, _, columns] = gathered.shape().unwrap_or_default();
    let step = match (gathered.step, axis, place) {
        (Gathering::Windows, 3, Some(row)) if row < rows => Gathering::Row(row),
        (Gathering::Row(row), 4, Some(column)) if column < columns => Gathering::Pixel([row, column]),
        _ => return site.wrong(0, NEXT),
    };
    made(Gathered { step, ..gathered })
}

/// The next pixel of all windows added to those before it; `None` of other values.
pub(super) fn sum(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let (Some(before), Some(next)) = (gathered(site, 0), gathered(site, 1)) else { return Ok(None) };
    let counted = before.counted().filter(|_| before.is_of_same(&next));
    let is_next = |counted: &usize| match (&next.step, next.shape()) {
        (Gathering::Pixel([row, column]), Some([.., width])) => row * width + column == *counted,
        _ => false,
    };
    match counted.filter(is_next) {
        Some(counted) => made(Gathered { step: Gathering::Sum(counted + 1), ..before }),
        None => site.wrong(1, NEXT),
    }
}

/// The sums of all pixels of windows divided by how many these are; `None` of other values.
pub(super) fn quotient(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some(sums) = gathered(site, 0) else { return Ok(None) };
    let is_all = sums.shape().is_some_and(|[_, r, _, s]| sums.counted() == Some(r * s));
    let counts = if is_all { counts(site)? } else { None };
    let Some(counts) = counts else { return site.wrong(0, NEXT) };
    pooled(site, &sums, |lens| {
        let [rows, columns] = lens;
        let of = |i: usize, j: usize| (rows[i] * columns[j]) as f64;
        (0..rows.len()).all(|i| (0..columns.len()).all(|j| counts.at(i, j) == Some(of(i, j))))
    })
}

/// The mean over all pixels of windows that lack none; `None` of other values.
pub(super) fn mean(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some(windows) = gathered(site, 0) else { return Ok(None) };
    let given = if site.has(1) { site.whole(1)? } else { site.ints("axes")?.unwrap_or_default() };
    let mut axes: Vec<i64> = given.iter().map(|axis| if *axis < 0 { axis + 6 } else { *axis }).collect();
    axes.sort_unstable();
    let is_mean = windows.step == Gathering::Windows && axes == [3, 5] && !site.flag("keepdims", true)?;
    if !is_mean || windows.masks != [None, None] {
        return site.wrong(0, NEXT);
    }
    pooled(site, &windows, |_| true)
}

/// A number for each window, or one for all along an axis.
struct Counts {
    shape: [usize; 2],
    values: Vec<f64>,
}

impl Counts {
    fn at(&self, i: usize, j: usize) -> Option<f64> {
        let [rows, columns] = self.shape;
        let place = |at: usize, len: usize| if len == 1 { 0 } else { at };
        self.values.get(place(i, rows) * columns + place(j, columns)).copied()
    }
}

/// What sums are divided by; `None` of what is no constant of two axes or fewer.
fn counts(site: &mut Site<'_>) -> Result<Option<Counts>, Reason> {
    if let Some(number) = site.scalar(1)? {
        return Ok(Some(Counts { shape: [1, 1], values: vec![number] }));
    }
    let Value::Constant(constant) = site.operand(1)?.clone() else { return Ok(None) };
    let shape = match *constant.shape {
        [columns] => [1, columns],
        [rows, columns] if !constant.transposed => [rows, columns],
        _ => return Ok(None),
    };
    if shape.iter().product::<usize>() > MOST_INDICES {
        return Ok(None);
    }
    Ok(Some(Counts { shape, values: site.values(&constant)? }))
}

/// The mean pooling that gathered windows are of; `is_divided` tells by the rows and columns of the windows whether sums become means.
fn pooled(
    site: &mut Site<'_>,
    windows: &Gathered,
    is_divided: impl Fn([&[usize]; 2]) -> bool,
) -> Result<Option<Value>, Reason> {
    let (Some(indices), Some([k, r, l, s])) = (&windows.indices, windows.shape()) else {
        return site.wrong(0, NEXT);
    };
    let Some([height, width]) = site.plans.get(windows.plan).extents else {
        return site.wrong(0, "the size of the image declared by the model");
    };
    let indices = site.values(indices)?;
    let [rows, columns] = [(height, k), (width, l)].map(|(extent, count)| parts(extent, count));
    let [rows_of, columns_of] =
        [&rows, &columns].map(|parts| parts.iter().map(|[_, len]| *len).collect::<Vec<_>>());
    let mut filled = [Vec::new(), Vec::new()];
    for (filled, mask) in filled.iter_mut().zip(&windows.masks) {
        if let Some(mask) = mask {
            *filled = site.values(mask)?;
        }
    }
    // each place that is not filled holds its pixel of the part, and no more are filled than the part lacks
    let holds = |filled: &[f64], lens: &[usize], most: usize| {
        let is_filled = |window: usize, at: usize| match filled {
            [] => Some(false),
            filled => filled.get(window * most + at).map(|is| *is != 0.0),
        };
        (0..lens.len()).all(|window| (0..most).all(|at| is_filled(window, at) == Some(at >= lens[window])))
    };
    let mut places = indices.chunks_exact(2);
    let mut is_of_parts = holds(&filled[0], &rows_of, r) && holds(&filled[1], &columns_of, s);
    for (i, row) in (0..k).flat_map(|i| (0..r).map(move |row| (i, row))) {
        for (j, column) in (0..l).flat_map(|j| (0..s).map(move |column| (j, column))) {
            let wanted = [(rows[i], row), (columns[j], column)];
            let is_place = places.next().is_some_and(|place| {
                place
                    .iter()
                    .zip(wanted)
                    .all(|(got, ([begin, len], at))| at >= len || *got == (begin + at) as f64)
            });
            is_of_parts &= is_place;
        }
    }
    if !is_of_parts || !is_divided([&rows_of, &columns_of]) {
        return site.wrong(0, "windows that are the parts of adaptive pooling");
    }
    let [k, l] = [k, l].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    let pool = Op::AdaptivePool2d(AdaptivePool2d::new(PartPooling::Mean, [k, l]));
    let plan = site.add(pool, vec![windows.plan])?;
    Ok(Some(Value::Image(Image { plan, flat: false })))
}

/// The first pixel and the length of each of so many parts of an extent.
fn parts(extent: usize, count: usize) -> Vec<[usize; 2]> {
    let part = |at: usize| {
        let begin = at * extent / count;
        [begin, ((at + 1) * extent).div_ceil(count) - begin]
    };
    (0..count).map(part).collect()
}

fn gathered(site: &Site<'_>, position: usize) -> Option<Gathered> {
    match site.operands.get(position) {
        Some(Some(Value::Gathered(gathered))) => Some(Gathered::clone(gathered)),
        _ => None,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what rules return")]
fn made(gathered: Gathered) -> Result<Option<Value>, Reason> {
    Ok(Some(Value::Gathered(Rc::new(gathered))))
}

impl Gathered {
    /// k, r, l and s.
    fn shape(&self) -> Option<[usize; 4]> {
        match *self.indices.as_ref()?.shape {
            [k, r, l, s, _] => Some([k, r, l, s]),
            _ => None,
        }
    }

    /// How many pixels of each window were added.
    fn counted(&self) -> Option<usize> {
        match self.step {
            Gathering::Pixel([0, 0]) => Some(1),
            Gathering::Sum(counted) => Some(counted),
            _ => None,
        }
    }

    /// Whether these are pixels of the same windows.
    fn is_of_same(&self, other: &Self) -> bool {
        let tensor = |constant: &Option<Constant>| constant.as_ref().map(|constant| constant.tensor);
        self.plan == other.plan
            && tensor(&self.indices) == tensor(&other.indices)
            && self.masks.each_ref().map(tensor) == other.masks.each_ref().map(tensor)
    }
}
