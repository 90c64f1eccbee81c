//! Sums, means, extremes and running sums.

use ndarray::ArrayD;
use tiled_kernel::dense::{Direction, Extreme, Fold, Unary, Update};
use tiled_tensor::Element;

use crate::error::{Result, TapeError};
use crate::layout::MAX_AXES;
use crate::op::Op;
use crate::tape::record::Step;
use crate::tensor::Kept;
use crate::tensor::Tensor;

impl<T: Element> Tensor<T> {
    /// The sum over axes, counted from the end where they are below zero; over all of them where none is named. Axes that are summed
    /// over stay with one element where `keepdim` says so.
    ///
    /// # Errors
    /// Where an axis is out of range or named twice, and where memory is refused.
    pub fn sum(&self, axes: &[isize], keepdim: bool) -> Result<Self> {
        self.reduce("sum", axes, keepdim, |_| 1.0)
    }

    /// The mean over axes, as [`Tensor::sum`]; of no elements it is not a number.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    pub fn mean(&self, axes: &[isize], keepdim: bool) -> Result<Self> {
        #[expect(clippy::cast_precision_loss, reason = "elements are far fewer than 2^53")]
        self.reduce("mean", axes, keepdim, |count| 1.0 / count as f64)
    }

    /// The variance over axes, `Σ (x − mean)²/(n − correction)`.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    pub fn var(&self, axes: &[isize], correction: f64, keepdim: bool) -> Result<Self> {
        let named = self.layout().named("var", axes)?;
        let count = self.counted(&named);
        #[expect(clippy::cast_precision_loss, reason = "elements are far fewer than 2^53")]
        let divisor = (count as f64 - correction).max(0.0);
        let apart = (self - &self.mean(axes, true)?)?;
        &(&apart * &apart)?.sum(axes, keepdim)? * (1.0 / divisor)
    }

    /// The largest elements over axes. The gradient goes to the first of them; the first that is not a number wins.
    ///
    /// # Errors
    /// As [`Tensor::sum`], and where there are no elements to choose from.
    pub fn max(&self, axes: &[isize], keepdim: bool) -> Result<Self> {
        self.extreme(Extreme::Max, axes, keepdim)
    }

    /// The smallest elements, as [`Tensor::max`].
    ///
    /// # Errors
    /// As [`Tensor::max`].
    pub fn min(&self, axes: &[isize], keepdim: bool) -> Result<Self> {
        self.extreme(Extreme::Min, axes, keepdim)
    }

    /// The place of the first largest element along an axis, or among all of them.
    ///
    /// # Errors
    /// As [`Tensor::max`].
    #[expect(clippy::missing_panics_doc, reason = "what is expected is an invariant")]
    pub fn argmax(&self, axis: Option<isize>, keepdim: bool) -> Result<ArrayD<i64>> {
        let operator = "argmax";
        let flat = self.detach();
        let (x, at) = match axis {
            None => (flat.reshape(&[self.elements()])?, 0),
            Some(axis) => (flat, self.layout().axis(operator, axis, 0)?),
        };
        if x.shape()[at] == 0 {
            return Err(TapeError::Empty { operator, shape: self.shape().into() });
        }
        let places = x.places(Extreme::Max, at);
        Ok(match axis {
            None if keepdim => {
                let shape = vec![1; self.axes()];
                places.into_shape_with_order(shape).expect("invariant: one element has any shape of ones")
            }
            _ if keepdim => places,
            _ => places.remove_axis(ndarray::Axis(at)),
        })
    }

    /// The running sums along an axis.
    ///
    /// # Errors
    /// Where the axis is out of range, and where memory is refused.
    pub fn cumsum(&self, axis: isize) -> Result<Self> {
        let operator = "cumsum";
        let axis = self.layout().axis(operator, axis, 0)?;
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        let context = self.context();
        let y = context.filled_by(operator, self.shape(), |y| {
            let x = self.values();
            let work = || context.dense().cumulate(x.view(), axis, Direction::FromStart, y, Update::Replace);
            context.share(self.elements(), work);
        })?;
        Ok(step.finish(|| Op::Cumulate { axis }, y))
    }

    fn reduce(
        &self,
        operator: &'static str,
        axes: &[isize],
        keepdim: bool,
        scale: impl Fn(usize) -> f64,
    ) -> Result<Self> {
        let named = self.layout().named(operator, axes)?;
        let scale = scale(self.counted(&named));
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        let kept = self.kept_shape(&named);
        let context = self.context();
        let y = context.filled_by(operator, &kept, |y| {
            let x = self.values();
            let work = || context.dense().reduce(Fold::Sum, x.view(), T::from_f64(scale), y, Update::Replace);
            context.share(self.elements(), work);
        })?;
        let y = step.finish(|| Op::Reduce { name: operator, scale }, y);
        if keepdim { Ok(y) } else { y.without(&named) }
    }

    fn extreme(&self, extreme: Extreme, axes: &[isize], keepdim: bool) -> Result<Self> {
        let operator = if extreme == Extreme::Max { "max" } else { "min" };
        let named = self.layout().named(operator, axes)?;
        let kept = self.kept_shape(&named);
        if self.counted(&named) == 0 {
            return Err(TapeError::Empty { operator, shape: self.shape().into() });
        }
        let reduced: Vec<usize> = (0..self.axes()).filter(|axis| named[*axis]).collect();
        let y = match reduced.as_slice() {
            [] => self.map(Unary::Identity)?,
            [axis] => self.extreme_along(operator, extreme, *axis)?,
            _ => {
                // the axes become one, the last
                let others = (0..self.axes()).filter(|axis| !named[*axis]);
                let order: Vec<isize> =
                    others.chain(reduced.iter().copied()).map(usize::cast_signed).collect();
                let mut shape: Vec<usize> =
                    (0..self.axes()).filter(|axis| !named[*axis]).map(|axis| self.shape()[axis]).collect();
                shape.push(self.counted(&named));
                let rows = self.permute(&order)?.reshape(&shape)?;
                rows.extreme_along(operator, extreme, shape.len() - 1)?.reshape(&kept)?
            }
        };
        if keepdim { Ok(y) } else { y.without(&named) }
    }

    fn extreme_along(&self, operator: &'static str, extreme: Extreme, axis: usize) -> Result<Self> {
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        let context = self.context();
        let mut shape = self.shape().to_vec();
        shape[axis] = 1;
        let places = self.places(extreme, axis);
        let y = context.empty(operator, &shape)?;
        {
            let (x, mut memory) = (self.values(), y.storage().write());
            let to = y.layout().view_mut(&mut memory);
            let gathered = context.dense().gather(x.view(), axis, places.view(), to);
            gathered.map_err(|source| TapeError::Index { operator, source })?;
        }
        Ok(step.finish_keeping(|| (Op::Extreme { extreme, axis }, Kept::Indices(places)), y))
    }

    /// Where the first extreme elements along an axis lie.
    fn places(&self, extreme: Extreme, axis: usize) -> ArrayD<i64> {
        let mut shape = self.shape().to_vec();
        shape[axis] = 1;
        let mut places = ArrayD::zeros(shape);
        let (x, context) = (self.values(), self.context());
        let to = places.view_mut();
        context.share(self.elements(), || context.dense().arg(extreme, x.view(), axis, to));
        places
    }

    fn counted(&self, named: &[bool; MAX_AXES]) -> usize {
        self.shape().iter().zip(named).filter(|(_, named)| **named).map(|(extent, _)| extent).product()
    }

    fn kept_shape(&self, named: &[bool; MAX_AXES]) -> Vec<usize> {
        self.shape().iter().zip(named).map(|(extent, named)| if *named { 1 } else { *extent }).collect()
    }

    /// The same without the named axes, which have one element.
    fn without(&self, named: &[bool; MAX_AXES]) -> Result<Self> {
        let left = self.shape().iter().zip(named).filter(|(_, named)| !**named).map(|(extent, _)| *extent);
        self.reshape(&left.collect::<Vec<_>>())
    }
}
