//! What moves elements: views where strides can say it, copies elsewhere.

use ndarray::{Axis, Slice};
use tiled_kernel::dense::{Unary, Update};
use tiled_tensor::Element;

use crate::error::{Result, TapeError};
use crate::layout::{Layout, MAX_AXES};
use crate::op::Op;
use crate::tape::record::Step;
use crate::tensor::Tensor;
use crate::views::ReadAll;

impl<T: Element> Tensor<T> {
    /// The same elements in another shape: a view where strides can say it.
    ///
    /// # Errors
    /// Where the shape has another number of elements, and where memory is refused.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        let operator = "reshape";
        if Layout::contiguous(operator, shape)?.elements() != self.elements() {
            return Err(TapeError::Elements { operator, expected: shape.into(), got: self.elements() });
        }
        if shape == self.shape() {
            return Ok(self.clone());
        }
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        let y = crate::views::reshaped(self, shape)?;
        Ok(step.finish(|| Op::Reshape, y))
    }

    /// The axes in another order: axis `a` of the result is `order[a]`. A view.
    ///
    /// # Errors
    /// Where not every axis is named once.
    pub fn permute(&self, order: &[isize]) -> Result<Self> {
        let operator = "permute";
        if order.len() != self.axes() {
            let (what, expected) = ("the tensor", "as many as are named");
            return Err(TapeError::Axes { operator, what, expected, got: self.shape().into() });
        }
        self.layout().named(operator, order)?;
        let mut axes = [0; MAX_AXES];
        for (axis, from) in axes.iter_mut().zip(order) {
            *axis = self.layout().axis(operator, *from, 0)?;
        }
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        let y = self.seen_as(self.layout().permuted(&axes[..order.len()]));
        Ok(step.finish(|| Op::Permute(axes), y))
    }

    /// Two axes exchanged. A view.
    ///
    /// # Errors
    /// Where an axis is out of range.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Self> {
        let [a, b] = [self.layout().axis("transpose", a, 0)?, self.layout().axis("transpose", b, 0)?];
        let mut order: Vec<isize> = (0..self.axes()).map(usize::cast_signed).collect();
        order.swap(a, b);
        self.permute(&order)
    }

    /// Without axes of one element: those that are named, or all. A view.
    ///
    /// # Errors
    /// Where an axis is out of range, or has not one element.
    pub fn squeeze(&self, axes: &[isize]) -> Result<Self> {
        let operator = "squeeze";
        let named = self.layout().named(operator, axes)?;
        let mut shape = Vec::with_capacity(self.axes());
        for (axis, extent) in self.shape().iter().enumerate() {
            if !named[axis] || *extent != 1 {
                if named[axis] && !axes.is_empty() {
                    return Err(TapeError::Axis {
                        operator,
                        axis: axis.cast_signed(),
                        shape: self.shape().into(),
                    });
                }
                shape.push(*extent);
            }
        }
        self.reshape(&shape)
    }

    /// With one more axis, of one element. A view.
    ///
    /// # Errors
    /// Where the axis is out of range.
    pub fn unsqueeze(&self, axis: isize) -> Result<Self> {
        let axis = self.layout().axis("unsqueeze", axis, 1)?;
        let mut shape = self.shape().to_vec();
        shape.insert(axis, 1);
        self.reshape(&shape)
    }

    /// The axes from `begin` to `end` as one, both included.
    ///
    /// # Errors
    /// Where an axis is out of range, and where memory is refused.
    pub fn flatten(&self, begin: isize, end: isize) -> Result<Self> {
        if self.axes() == 0 {
            return self.reshape(&[1]);
        }
        let operator = "flatten";
        let [begin, last] = [self.layout().axis(operator, begin, 0)?, self.layout().axis(operator, end, 0)?];
        if begin > last {
            return Err(TapeError::Axis { operator, axis: end, shape: self.shape().into() });
        }
        let mut shape = self.shape()[..begin].to_vec();
        shape.push(self.shape()[begin..=last].iter().product());
        shape.extend(&self.shape()[last + 1..]);
        self.reshape(&shape)
    }

    /// The elements repeated along new axes in front and along axes of one element. A view.
    ///
    /// # Errors
    /// Where another axis would have to change.
    pub fn expand(&self, shape: &[usize]) -> Result<Self> {
        let operator = "expand";
        Layout::contiguous(operator, shape)?;
        let layout = self.layout().expanded(shape);
        let layout = layout.ok_or_else(|| TapeError::Broadcast {
            operator,
            a: self.shape().into(),
            b: shape.into(),
        })?;
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        Ok(step.finish(|| Op::Expand, self.seen_as(layout)))
    }

    /// Every `step`-th element of an axis from `begin` to before `end`. A view.
    ///
    /// # Errors
    /// Where that is no part of the axis.
    pub fn slice_step(&self, axis: isize, begin: usize, end: usize, step: usize) -> Result<Self> {
        let operator = "slice";
        let axis = self.layout().axis(operator, axis, 0)?;
        let extent = self.shape()[axis];
        if begin > end || end > extent || step == 0 {
            return Err(TapeError::Range { operator, axis, begin, end, step, extent });
        }
        // a longer step takes the first element too, and strides that it would pass do not fit
        let step = step.min((end - begin).max(1));
        let operands = [self];
        let record = Step::begin(operator, &operands)?;
        let y = self.seen_as(self.layout().sliced(axis, begin, end, step));
        Ok(record.finish(|| Op::Slice { axis, begin, end, step }, y))
    }

    /// The elements of an axis from `begin` to before `end`. A view.
    ///
    /// # Errors
    /// As [`Tensor::slice_step`].
    pub fn slice(&self, axis: isize, begin: usize, end: usize) -> Result<Self> {
        self.slice_step(axis, begin, end, 1)
    }

    /// The elements at one place of an axis, which is gone. A view.
    ///
    /// # Errors
    /// As [`Tensor::slice_step`].
    pub fn select(&self, axis: isize, at: usize) -> Result<Self> {
        let part = self.slice(axis, at, at.saturating_add(1))?;
        let axis = self.layout().axis("select", axis, 0)?;
        part.squeeze(&[axis.cast_signed()])
    }

    /// Parts of these lengths along an axis. Views.
    ///
    /// # Errors
    /// Where the lengths do not add up to the axis.
    pub fn split(&self, axis: isize, lengths: &[usize]) -> Result<Vec<Self>> {
        let operator = "split";
        let at = self.layout().axis(operator, axis, 0)?;
        let (end, extent) =
            (lengths.iter().fold(0_usize, |sum, len| sum.saturating_add(*len)), self.shape()[at]);
        if end != extent {
            return Err(TapeError::Range { operator, axis: at, begin: 0, end, step: 1, extent });
        }
        let mut begin = 0;
        lengths
            .iter()
            .map(|len| {
                begin += len;
                self.slice(axis, begin - len, begin)
            })
            .collect()
    }

    /// Parts of at most this length along an axis. Views.
    ///
    /// # Errors
    /// Where the length is zero.
    pub fn chunks(&self, axis: isize, length: usize) -> Result<Vec<Self>> {
        let operator = "split";
        let at = self.layout().axis(operator, axis, 0)?;
        let extent = self.shape()[at];
        if length == 0 {
            return Err(TapeError::Range { operator, axis: at, begin: 0, end: extent, step: 0, extent });
        }
        (0..extent).step_by(length).map(|begin| self.slice(axis, begin, extent.min(begin + length))).collect()
    }

    /// Axes from their ends to their starts. A view.
    ///
    /// # Errors
    /// Where an axis is out of range or named twice.
    pub fn flip(&self, axes: &[isize]) -> Result<Self> {
        let operator = "flip";
        let named = if axes.is_empty() { [false; MAX_AXES] } else { self.layout().named(operator, axes)? };
        let mut y = self.clone();
        for axis in (0..self.axes()).filter(|axis| named[*axis]) {
            let operands = [&y];
            let step = Step::begin(operator, &operands)?;
            let flipped = y.seen_as(y.layout().flipped(axis));
            y = step.finish(|| Op::Flip { axis }, flipped);
        }
        Ok(y)
    }

    /// A copy without gaps, or the same where there are none.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn contiguous(&self) -> Result<Self> {
        if self.is_contiguous() { Ok(self.clone()) } else { self.map(Unary::Identity) }
    }

    /// With `value` around it: so many elements before and after, for the last axes.
    ///
    /// # Errors
    /// Where there are more pairs than axes, and where memory is refused.
    pub fn pad(&self, padding: &[[usize; 2]], value: f64) -> Result<Self> {
        let operator = "pad";
        let Some(untouched) = self.axes().checked_sub(padding.len()) else {
            let (what, expected) = ("the tensor", "as many as are padded");
            return Err(TapeError::Axes { operator, what, expected, got: self.shape().into() });
        };
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        let all: Vec<[usize; 2]> =
            std::iter::repeat_n([0; 2], untouched).chain(padding.iter().copied()).collect();
        let extent = |(extent, [before, after]): (&usize, &[usize; 2])| {
            extent.checked_add(*before).and_then(|sum| sum.checked_add(*after))
        };
        let shape: Option<Vec<usize>> = self.shape().iter().zip(&all).map(extent).collect();
        let shape = shape.ok_or(TapeError::OutOfMemory { operator, bytes: u64::MAX })?;
        let context = self.context();
        let y = context.filled_by(operator, &shape, |mut y| {
            y.fill(T::from_f64(value));
            for (axis, ([before, _], extent)) in all.iter().zip(self.shape()).enumerate() {
                let part = Slice::from(before.cast_signed()..(before + extent).cast_signed());
                y.slice_axis_inplace(Axis(axis), part);
            }
            let x = self.values();
            context.share(self.elements(), || {
                context.dense().map(Unary::Identity, x.view(), y, Update::Replace)
            });
        })?;
        let before = all.into_iter().map(|[before, _]| before).collect();
        Ok(step.finish(|| Op::Pad { before }, y))
    }

    /// The channels of each r×r pixels side by side: N×C·r²×H×W becomes N×C×H·r×W·r.
    ///
    /// # Errors
    /// Where the tensor has not four axes, or channels that the square of the factor does not divide.
    pub fn pixel_shuffle(&self, factor: usize) -> Result<Self> {
        let operator = "pixel_shuffle";
        let &[batch, channels, height, width] = self.shape() else {
            let (what, expected) = ("the image", "4");
            return Err(TapeError::Axes { operator, what, expected, got: self.shape().into() });
        };
        let square = factor.saturating_mul(factor);
        if square == 0 || !channels.is_multiple_of(square) {
            let expected = [batch, channels.div_ceil(square.max(1)).saturating_mul(square), height, width];
            let (what, expected, got) = ("the image", expected.as_slice().into(), self.shape().into());
            return Err(TapeError::Shape { operator, what, expected, got });
        }
        let left = channels / square;
        self.reshape(&[batch, left, factor, factor, height, width])?.permute(&[0, 1, 4, 2, 5, 3])?.reshape(&[
            batch,
            left,
            height * factor,
            width * factor,
        ])
    }
}

/// Tensors one after the other along an axis.
///
/// # Errors
/// Where there is none, where the other axes differ, and where memory is refused.
pub fn concat<T: Element>(tensors: &[&Tensor<T>], axis: isize) -> Result<Tensor<T>> {
    let operator = "concat";
    let Some(first) = tensors.first() else {
        return Err(TapeError::Empty { operator, shape: [0].as_slice().into() });
    };
    let at = first.layout().axis(operator, axis, 0)?;
    let step = Step::begin(operator, tensors)?;
    let mut shape = first.shape().to_vec();
    shape[at] = 0;
    for tensor in tensors {
        let mut expected = first.shape().to_vec();
        if tensor.axes() == expected.len() {
            expected[at] = tensor.shape()[at];
        }
        if tensor.shape() != expected {
            let (what, expected, got) = ("an operand", expected.as_slice().into(), tensor.shape().into());
            return Err(TapeError::Shape { operator, what, expected, got });
        }
        shape[at] = shape[at].saturating_add(tensor.shape()[at]);
    }
    let context = first.context();
    let y = context.filled_by(operator, &shape, |mut y| {
        for tensor in tensors {
            let (part, rest) = y.split_at(Axis(at), tensor.shape()[at]);
            let x = tensor.values();
            context
                .share(part.len(), || context.dense().map(Unary::Identity, x.view(), part, Update::Replace));
            y = rest;
        }
    })?;
    Ok(step.finish(|| Op::Concat { axis: at }, y))
}

/// Tensors of one shape one after the other along a new axis.
///
/// # Errors
/// As [`concat()`].
pub fn stack<T: Element>(tensors: &[&Tensor<T>], axis: isize) -> Result<Tensor<T>> {
    let unsqueezed = tensors.iter().map(|tensor| tensor.unsqueeze(axis)).collect::<Result<Vec<_>>>()?;
    concat(&unsqueezed.iter().collect::<Vec<_>>(), axis)
}

/// Two tensors read together, repeated to one shape.
pub(super) fn with_pair<T: Element, R>(
    [a, b]: [&Tensor<T>; 2],
    shape: &[usize],
    with: impl FnOnce(ndarray::ArrayViewD<'_, T>, ndarray::ArrayViewD<'_, T>) -> R,
) -> R {
    let read = ReadAll::of([a, b]);
    with(read.expanded(0, shape), read.expanded(1, shape))
}
