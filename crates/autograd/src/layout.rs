//! Where the elements of a tensor lie in its buffer.
//!
//! ```text
//!   element (i₀, …) lies at  offset + Σ iₐ·strideₐ      a stride of zero repeats, one below zero runs backward
//! ```

use ndarray::{ArrayViewD, ArrayViewMutD, Axis, IxDyn, ShapeBuilder};
use tiled_tensor::Element;

use crate::error::{Result, TapeError};

/// The axes that a tensor has at most.
pub const MAX_AXES: usize = 8;

/// Shape, strides and offset, in elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    axes: usize,
    shape: [usize; MAX_AXES],
    strides: [isize; MAX_AXES],
    offset: usize,
}

impl std::fmt::Debug for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layout")
            .field("shape", &self.shape())
            .field("strides", &self.strides())
            .field("offset", &self.offset)
            .finish()
    }
}

impl Layout {
    /// The elements of a shape in row-major order.
    pub(crate) fn contiguous(operator: &'static str, shape: &[usize]) -> Result<Self> {
        if shape.len() > MAX_AXES {
            let (what, expected) = ("a tensor", "at most 8");
            return Err(TapeError::Axes { operator, what, expected, got: shape.into() });
        }
        // extents of a tensor without elements count as well: strides are products of them
        let size = shape.iter().try_fold(size_of::<f64>(), |size, extent| size.checked_mul((*extent).max(1)));
        if size.is_none_or(|size| isize::try_from(size).is_err()) {
            return Err(TapeError::OutOfMemory { operator, bytes: u64::MAX });
        }
        Ok(Self::row_major(shape))
    }

    /// The same of a shape whose size is known to fit.
    fn row_major(extents: &[usize]) -> Self {
        let mut layout =
            Self { axes: extents.len(), shape: [1; MAX_AXES], strides: [0; MAX_AXES], offset: 0 };
        let mut stride = 1;
        for axis in (0..extents.len()).rev() {
            layout.shape[axis] = extents[axis];
            layout.strides[axis] = stride;
            stride *= extents[axis].max(1).cast_signed();
        }
        layout
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape[..self.axes]
    }

    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides[..self.axes]
    }

    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) const fn axes(&self) -> usize {
        self.axes
    }

    /// The number of elements.
    pub(crate) fn elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// Whether the elements lie one after the other in row-major order.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.elements() == 0
            || self.shape().iter().zip(self.strides()).rev().all(|(extent, stride)| {
                let holds = *extent == 1 || *stride == expected;
                expected *= extent.cast_signed();
                holds
            })
    }

    /// An axis counted from the start or, below zero, from the end; `more` axes are there besides.
    pub(crate) fn axis(&self, operator: &'static str, axis: isize, more: usize) -> Result<usize> {
        let axes = self.axes + more;
        let found = if axis < 0 { axes.checked_add_signed(axis) } else { Some(axis.unsigned_abs()) };
        found.filter(|found| *found < axes).ok_or_else(|| TapeError::Axis {
            operator,
            axis,
            shape: self.shape().into(),
        })
    }

    /// Which axes are named; all of them where none is.
    pub(crate) fn named(&self, operator: &'static str, axes: &[isize]) -> Result<[bool; MAX_AXES]> {
        let mut named = [axes.is_empty(); MAX_AXES];
        for axis in axes {
            let found = self.axis(operator, *axis, 0)?;
            if std::mem::replace(&mut named[found], true) {
                return Err(TapeError::Axis { operator, axis: *axis, shape: self.shape().into() });
            }
        }
        Ok(named)
    }

    /// The same elements under another shape, where strides can say that; the shape has as many elements.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        let mut reshaped = Self { offset: self.offset, ..Self::row_major(shape) };
        if self.elements() == 0 || self.is_contiguous() {
            return Some(reshaped);
        }
        // runs of axes of both shapes with equal numbers of elements; within a run of the old ones, each must continue the next
        let extents: Vec<(usize, isize)> = self
            .shape()
            .iter()
            .copied()
            .zip(self.strides().iter().copied())
            .filter(|(n, _)| *n != 1)
            .collect();
        let mut old = 0;
        let mut new = 0;
        while old < extents.len() {
            let first = new;
            let (mut end, mut olds) = (old + 1, extents[old].0);
            let mut news = 1;
            loop {
                while new < shape.len() && news < olds {
                    news *= shape[new];
                    new += 1;
                }
                if news == olds {
                    break;
                }
                olds *= extents.get(end)?.0;
                end += 1;
            }
            let continues = |pair: &[(usize, isize)]| pair[0].1 == pair[1].1 * pair[1].0.cast_signed();
            if !extents[old..end].windows(2).all(continues) {
                return None;
            }
            let mut stride = extents[end - 1].1;
            for axis in (first..new).rev() {
                reshaped.strides[axis] = stride;
                stride *= shape[axis].cast_signed();
            }
            old = end;
        }
        Some(reshaped)
    }

    /// The axes in another order: axis `a` of the result is `order[a]`.
    pub(crate) fn permuted(&self, order: &[usize]) -> Self {
        let mut permuted = *self;
        for (axis, from) in order.iter().enumerate() {
            permuted.shape[axis] = self.shape[*from];
            permuted.strides[axis] = self.strides[*from];
        }
        permuted
    }

    /// Elements repeated along new axes in front and along axes of extent one.
    pub(crate) fn expanded(&self, shape: &[usize]) -> Option<Self> {
        let new = shape.len().checked_sub(self.axes)?;
        let mut expanded = Self::row_major(shape);
        expanded.offset = self.offset;
        for (axis, extent) in shape.iter().enumerate() {
            expanded.strides[axis] = match axis.checked_sub(new) {
                Some(own) if self.shape[own] == *extent => self.strides[own],
                Some(own) if self.shape[own] != 1 => return None,
                _ => 0,
            };
        }
        Some(expanded)
    }

    /// Every `step`-th element of an axis from `begin` to before `end`.
    pub(crate) const fn sliced(&self, axis: usize, begin: usize, end: usize, step: usize) -> Self {
        let mut sliced = *self;
        sliced.shape[axis] = (end - begin).div_ceil(step);
        if sliced.shape[axis] > 0 {
            sliced.offset = self.offset.wrapping_add_signed(begin.cast_signed() * self.strides[axis]);
        }
        sliced.strides[axis] = self.strides[axis] * step.cast_signed();
        sliced
    }

    /// An axis from its end to its start.
    pub(crate) const fn flipped(&self, axis: usize) -> Self {
        let mut flipped = *self;
        if self.shape[axis] > 1 {
            let last = (self.shape[axis] - 1).cast_signed();
            flipped.offset = self.offset.wrapping_add_signed(last * self.strides[axis]);
        }
        flipped.strides[axis] = -self.strides[axis];
        flipped
    }

    /// The elements in a buffer.
    pub(crate) fn view<'a, V>(&self, buffer: &'a [V]) -> ArrayViewD<'a, V> {
        let (start, strides) = self.forward();
        let buffer = if self.elements() == 0 { &buffer[..0] } else { &buffer[start..] };
        let shape = IxDyn(self.shape()).strides(IxDyn(&strides[..self.axes]));
        let mut view = ArrayViewD::from_shape(shape, buffer).expect("invariant: a layout lies in its buffer");
        for axis in self.backward_axes() {
            view.invert_axis(Axis(axis));
        }
        view
    }

    /// The same to be written; no element lies there twice.
    pub(crate) fn view_mut<'a, V>(&self, buffer: &'a mut [V]) -> ArrayViewMutD<'a, V> {
        let (start, strides) = self.forward();
        let buffer = if self.elements() == 0 { &mut buffer[..0] } else { &mut buffer[start..] };
        let shape = IxDyn(self.shape()).strides(IxDyn(&strides[..self.axes]));
        let mut view = ArrayViewMutD::from_shape(shape, buffer)
            .expect("invariant: what is written has every element once");
        for axis in self.backward_axes() {
            view.invert_axis(Axis(axis));
        }
        view
    }

    /// Whether an element of the buffer stands for more than one of the tensor.
    pub(crate) fn repeats(&self) -> bool {
        self.shape().iter().zip(self.strides()).any(|(extent, stride)| *extent > 1 && *stride == 0)
    }

    /// The lowest place and the strides without their signs.
    fn forward(&self) -> (usize, [usize; MAX_AXES]) {
        let mut start = self.offset;
        let mut strides = [0; MAX_AXES];
        for (to, (extent, stride)) in strides.iter_mut().zip(self.shape().iter().zip(self.strides())) {
            // an extent of one has no stride to speak of, and one of another view might lie outside the buffer
            let stride = if *extent > 1 { *stride } else { 0 };
            if stride < 0 {
                start -= stride.unsigned_abs() * (extent - 1);
            }
            *to = stride.unsigned_abs();
        }
        if self.elements() == 0 {
            strides = [0; MAX_AXES];
        }
        (start, strides)
    }

    fn backward_axes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.axes).filter(|axis| self.strides[*axis] < 0 && self.shape[*axis] > 1)
    }
}

/// The shape that two operands are repeated to.
pub(crate) fn broadcast(operator: &'static str, a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let axes = a.len().max(b.len());
    let extent =
        |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(axes).map_or(1, |own| shape[own]);
    (0..axes)
        .map(|axis| match (extent(a, axis), extent(b, axis)) {
            (a, b) if a == b => Ok(a),
            (1, other) | (other, 1) => Ok(other),
            _ => Err(TapeError::Broadcast { operator, a: a.into(), b: b.into() }),
        })
        .collect()
}

/// A view of contiguous elements.
pub(crate) fn contiguous_view<'a, T: Element>(shape: &[usize], values: &'a [T]) -> ArrayViewD<'a, T> {
    Layout::row_major(shape).view(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(shape: &[usize]) -> Layout {
        Layout::contiguous("test", shape).unwrap()
    }

    #[test]
    fn reshape_of_a_permuted_layout_is_a_view_where_strides_can_say_it() {
        let permuted = whole(&[2, 3, 4, 5]).permuted(&[2, 3, 0, 1]);
        let values: Vec<i32> = (0..120).collect();
        let merged = permuted.reshaped(&[20, 6]).expect("each pair continues");
        assert_eq!(merged.strides(), [1, 20]);
        assert!(merged.view(&values).iter().eq(permuted.view(&values).iter()));
        let split = permuted.reshaped(&[2, 2, 5, 1, 6]).expect("axes split");
        assert!(split.view(&values).iter().eq(permuted.view(&values).iter()));
        assert_eq!(permuted.reshaped(&[40, 3]), None);
    }

    #[test]
    fn a_layout_that_runs_backward_shows_the_last_element_first() {
        let values: Vec<i32> = (0..6).collect();
        let flipped = whole(&[2, 3]).flipped(1).sliced(1, 1, 3, 1);
        assert_eq!(flipped.view(&values).iter().copied().collect::<Vec<_>>(), [1, 0, 4, 3]);
        let empty = whole(&[0, 3]).flipped(0);
        assert_eq!(empty.view(&[0; 0]).len(), 0);
    }

    #[test]
    fn broadcasting_repeats_extents_of_one() {
        assert_eq!(broadcast("add", &[3, 1], &[2, 1, 4]).unwrap(), [2, 3, 4]);
        assert_eq!(broadcast("add", &[0, 1], &[4]).unwrap(), [0, 4]);
        let error = broadcast("add", &[2, 3], &[2]).unwrap_err();
        assert_eq!(error.to_string(), "add: shapes [2, 3] and [2] do not broadcast");
    }
}
