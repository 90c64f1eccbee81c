//! Elements by index, where extreme ones are, running sums.

use ndarray::{ArrayView1, ArrayViewD, ArrayViewMutD};
use tiled_kernel::dense::{Direction, Extreme, IndexError, Update};

use super::lines::{Lines, for_rows};
use super::matrix::{Axes, Shared, require, with_scratch};
use super::row;
use crate::Isa;
use crate::vector::Lane;

/// Operations that an element counts for.
const COST: usize = 20;

/// Elements of a row that a thread adds to at a time.
const CHUNK: usize = 256;

fn with_extent(shape: &[usize], axis: usize, extent: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    shape[axis] = extent;
    shape
}

/// The element that an index names; those below zero count from the end.
fn place(index: i64, extent: usize) -> Option<usize> {
    let place = match usize::try_from(index) {
        Ok(place) => Some(place),
        Err(_) => usize::try_from(index.unsigned_abs()).ok().and_then(|back| extent.checked_sub(back)),
    };
    place.filter(|place| *place < extent)
}

fn check<'i>(mut index: impl Iterator<Item = &'i i64>, extent: usize) -> Result<(), IndexError> {
    let wrong = index.find(|index| place(**index, extent).is_none());
    wrong.map_or(Ok(()), |index| Err(IndexError { index: *index, extent }))
}

/// Where an index that was checked points, in elements of an axis.
fn offset(index: i64, extent: usize, stride: isize) -> isize {
    place(index, extent).expect("invariant: indices were checked").cast_signed() * stride
}

/// Runs `body` for each stretch of two arrays of one shape: where it lies in each, how far apart its elements are, and how many.
fn stretches(axes: &Axes<2>, mut body: impl FnMut([isize; 2], [isize; 2], usize)) {
    let [outer @ .., last] = axes.all() else { return body([0; 2], [1; 2], 1) };
    let count: usize = outer.iter().map(|axis| axis.extent).product();
    for index in 0..count {
        body(axes.offsets(outer.len(), index), last.strides, last.extent);
    }
}

pub(super) fn take<E: Lane>(
    _isa: Isa,
    x: ArrayViewD<'_, E>,
    axis: usize,
    index: ArrayView1<'_, i64>,
    mut y: ArrayViewMutD<'_, E>,
) -> Result<(), IndexError> {
    require("y", y.shape(), &with_extent(x.shape(), axis, index.len()));
    let extent = x.shape()[axis];
    check(index.iter(), extent)?;
    let others = with_extent(x.shape(), axis, 1);
    let axes = Axes::new(&others, [x.strides(), y.strides()]);
    let [of_x, of_y] = [x.strides()[axis], y.strides()[axis]];
    let starts = Shared((x.as_ptr(), y.as_mut_ptr()));
    for_rows(index.len(), others.iter().product::<usize>() * COST, |i| {
        let (x, y) = starts.get();
        let x = x.wrapping_offset(offset(index[i], extent, of_x));
        let y = y.wrapping_offset(i.cast_signed() * of_y);
        stretches(&axes, |[at_x, at_y], strides, count| {
            let (x, y) = (x.wrapping_offset(at_x), y.wrapping_offset(at_y));
            // SAFETY: the elements are there, and no other unit writes what has this index.
            unsafe {
                if strides == [1, 1] {
                    return std::ptr::copy_nonoverlapping(x, y, count);
                }
                for i in 0..count.cast_signed() {
                    *y.wrapping_offset(i * strides[1]) = *x.wrapping_offset(i * strides[0]);
                }
            }
        });
    });
    Ok(())
}

pub(super) fn put_add<E: Lane>(
    isa: Isa,
    y: ArrayViewD<'_, E>,
    axis: usize,
    index: ArrayView1<'_, i64>,
    mut x: ArrayViewMutD<'_, E>,
) -> Result<(), IndexError> {
    require("y", y.shape(), &with_extent(x.shape(), axis, index.len()));
    let extent = x.shape()[axis];
    check(index.iter(), extent)?;
    let others = with_extent(x.shape(), axis, 1);
    let axes = Axes::new(&others, [y.strides(), x.strides()]);
    let [of_y, of_x] = [y.strides()[axis], x.strides()[axis]];
    let starts = Shared((y.as_ptr(), x.as_mut_ptr()));
    // each element adds in the order of the indices: threads share the elements
    let add = |i: usize, [at_y, at_x]: [isize; 2], strides: [isize; 2], count: usize| {
        let (y, x) = starts.get();
        let y = y.wrapping_offset(i.cast_signed() * of_y + at_y);
        let x = x.wrapping_offset(offset(index[i], extent, of_x) + at_x);
        // SAFETY: the elements are there, and no other unit has them.
        unsafe {
            if strides == [1, 1] {
                let from = std::slice::from_raw_parts(y, count);
                return row::add(isa, from, std::slice::from_raw_parts_mut(x, count));
            }
            for i in 0..count.cast_signed() {
                *x.wrapping_offset(i * strides[1]) += *y.wrapping_offset(i * strides[0]);
            }
        }
    };
    if let [row] = axes.all() {
        let chunks = row.extent.div_ceil(CHUNK);
        for_rows(chunks, index.len() * CHUNK * COST, |chunk| {
            let first = chunk * CHUNK;
            let at = row.strides.map(|stride| first.cast_signed() * stride);
            (0..index.len()).for_each(|i| add(i, at, row.strides, CHUNK.min(row.extent - first)));
        });
    } else {
        (0..index.len()).for_each(|i| stretches(&axes, |at, strides, count| add(i, at, strides, count)));
    }
    Ok(())
}

/// An index for each element: the axes of what has its shape, and the strides of all that it reads and writes.
fn by_element(
    whole: &[usize],
    axis: usize,
    index: &ArrayViewD<'_, i64>,
    [of_whole, of_part]: [&[isize]; 2],
) -> Lines<3> {
    let shape = index.shape();
    let fits = whole.len() == shape.len() && (0..whole.len()).all(|i| i == axis || whole[i] >= shape[i]);
    assert!(fits, "indices {shape:?} along axis {axis} of {whole:?}");
    // rows along the last axis, so that elements come in row-major order
    Lines::new(shape, [index.strides(), of_part, of_whole], shape.len() - 1)
}

pub(super) fn gather<E: Lane>(
    _isa: Isa,
    x: ArrayViewD<'_, E>,
    axis: usize,
    index: ArrayViewD<'_, i64>,
    mut y: ArrayViewMutD<'_, E>,
) -> Result<(), IndexError> {
    require("y", y.shape(), index.shape());
    let (extent, stride) = (x.shape()[axis], x.strides()[axis]);
    // along the axis the index says where an element of x lies
    let mut strides = x.strides().to_vec();
    strides[axis] = 0;
    let lines = by_element(x.shape(), axis, &index, [&strides, y.strides()]);
    check(index.iter(), extent)?;
    let [of_index, of_y, of_x] = lines.strides;
    let starts = Shared((x.as_ptr(), index.as_ptr(), y.as_mut_ptr()));
    lines.for_each(COST, |[at_index, at_y, at_x]| {
        let (x, index, y) = starts.get();
        for i in 0..lines.extent.cast_signed() {
            // SAFETY: the elements are there, as indices were checked; no other unit writes this row.
            unsafe {
                let at = offset(*index.wrapping_offset(at_index + i * of_index), extent, stride);
                *y.wrapping_offset(at_y + i * of_y) = *x.wrapping_offset(at_x + i * of_x + at);
            }
        }
    });
    Ok(())
}

pub(super) fn scatter_add<E: Lane>(
    _isa: Isa,
    y: ArrayViewD<'_, E>,
    axis: usize,
    index: ArrayViewD<'_, i64>,
    mut x: ArrayViewMutD<'_, E>,
) -> Result<(), IndexError> {
    require("y", y.shape(), index.shape());
    let (extent, stride) = (x.shape()[axis], x.strides()[axis]);
    let mut strides = x.strides().to_vec();
    strides[axis] = 0;
    let lines = by_element(x.shape(), axis, &index, [&strides, y.strides()]);
    check(index.iter(), extent)?;
    let [of_index, of_y, of_x] = lines.strides;
    let (from, indices, to) = (y.as_ptr(), index.as_ptr(), x.as_mut_ptr());
    // two rows may add to one element, in their order: one thread
    lines.for_each_in_turn(|[at_index, at_y, at_x]| {
        for i in 0..lines.extent.cast_signed() {
            // SAFETY: the elements are there, as indices were checked; nothing else uses x.
            unsafe {
                let at = offset(*indices.wrapping_offset(at_index + i * of_index), extent, stride);
                *to.wrapping_offset(at_x + i * of_x + at) += *from.wrapping_offset(at_y + i * of_y);
            }
        }
    });
    Ok(())
}

pub(super) fn arg<E: Lane>(
    _isa: Isa,
    extreme: Extreme,
    x: ArrayViewD<'_, E>,
    axis: usize,
    mut y: ArrayViewMutD<'_, i64>,
) {
    require("y", y.shape(), &with_extent(x.shape(), axis, 1));
    assert!(x.shape()[axis] > 0, "no element along axis {axis}");
    let lines = Lines::new(x.shape(), [x.strides(), y.strides()], axis);
    let stride = lines.strides[0];
    let starts = Shared((x.as_ptr(), y.as_mut_ptr()));
    lines.for_each(COST, |[at_x, at_y]| {
        let (x, y) = starts.get();
        // SAFETY: the row is one of x, and the element of y that of no other.
        unsafe {
            let at = |i: usize| *x.wrapping_offset(at_x + i.cast_signed() * stride);
            let (mut best, mut held) = (0_usize, at(0));
            for i in 1..lines.extent {
                let value = at(i);
                let wins = match extreme {
                    Extreme::Max => value > held,
                    Extreme::Min => value < held,
                };
                if wins || (value.is_nan() && !held.is_nan()) {
                    (best, held) = (i, value);
                }
            }
            *y.wrapping_offset(at_y) = i64::try_from(best).expect("invariant: an index is below 2^63");
        }
    });
}

pub(super) fn cumulate<E: Lane>(
    isa: Isa,
    x: ArrayViewD<'_, E>,
    axis: usize,
    direction: Direction,
    mut y: ArrayViewMutD<'_, E>,
    update: Update,
) {
    require("x", x.shape(), y.shape());
    let lines = Lines::new(x.shape(), [x.strides(), y.strides()], axis);
    let (len, [of_x, of_y]) = (lines.extent, lines.strides);
    let starts = Shared((x.as_ptr(), y.as_mut_ptr()));
    lines.for_each(COST, |[at_x, at_y]| {
        let (x, y) = starts.get();
        with_scratch(2 * len, |scratch: *mut E| {
            // SAFETY: the row is one of x and of y, which no other unit writes; the scratch has two rows.
            unsafe {
                let x = row::read(x.wrapping_offset(at_x), of_x, len, scratch);
                let to = y.wrapping_offset(at_y);
                row::write(isa, to, of_y, len, scratch.wrapping_add(len), update, |y| {
                    let mut sum = 0.0;
                    let step = |(y, x): (&mut E, &E)| {
                        sum += x.to_f64();
                        *y = E::from_f64(sum);
                    };
                    let pairs = y.iter_mut().zip(x);
                    match direction {
                        Direction::FromStart => pairs.for_each(step),
                        Direction::FromEnd => pairs.rev().for_each(step),
                    }
                });
            }
        });
    });
}
