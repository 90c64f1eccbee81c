//! Arrays that lie in memory in many ways.

use ndarray::{ArrayD, ArrayViewD, ArrayViewMutD, IxDyn, Slice};
use tiled_tensor::Element;

use crate::conformance::Rng;

/// Values somewhere in a larger array whose other elements are NaN: axes in another order, steps, some backward.
#[derive(Debug)]
pub(super) struct Held<T> {
    memory: ArrayD<T>,
    /// The axis of the memory that each axis of the values is.
    order: Vec<usize>,
    /// What is taken of each axis of the memory.
    slices: Vec<Slice>,
    /// The extents, also of axes that are repeated.
    shape: Vec<usize>,
}

impl<T: Element> Held<T> {
    /// The values; along the axes that are named all are the same, and may be there once.
    pub(super) fn of(values: &ArrayD<T>, repeats: &[usize], rng: &mut Rng) -> Self {
        let axes = values.ndim();
        let shape = values.shape().to_vec();
        let is_plain = rng.chance(15);
        let mut order: Vec<usize> = (0..axes).collect();
        if !is_plain && rng.chance(70) {
            for i in (1..axes).rev() {
                order.swap(i, rng.index(0, i));
            }
        }
        let is_once: Vec<bool> =
            (0..axes).map(|axis| repeats.contains(&axis) && shape[axis] > 0 && rng.chance(60)).collect();
        let mut extents = vec![0; axes];
        let mut slices = vec![Slice::from(..); axes];
        for axis in 0..axes {
            let extent = if is_once[axis] { 1 } else { shape[axis] };
            let step = if is_plain { 1 } else { rng.pick(&[1, 1, 1, 2, 3, -1, -2]) };
            let (before, behind) = if is_plain { (0, 0) } else { (rng.range(0, 2), rng.range(0, 2)) };
            let apart: isize = isize::try_from(step).expect("small");
            let span = if extent == 0 { 0 } else { (extent - 1) * apart.unsigned_abs() + 1 };
            let before = usize::try_from(before).expect("small");
            extents[order[axis]] = before + span + usize::try_from(behind).expect("small");
            let (start, end) = (before.cast_signed(), (before + span).cast_signed());
            slices[order[axis]] = Slice::new(start, Some(end), apart);
        }
        let memory = ArrayD::from_elem(IxDyn(&extents), T::from_f64(f64::NAN));
        let mut held = Self { memory, order, slices, shape };
        let once: Vec<usize> =
            (0..axes).map(|axis| if is_once[axis] { 1 } else { held.shape[axis] }).collect();
        let mut view = held.view_mut();
        for (at, value) in view.indexed_iter_mut() {
            *value = values[at];
        }
        assert_eq!(held.base().shape(), &once[..], "the layout holds what it should");
        held
    }

    /// The values, each once.
    pub(super) fn base(&self) -> ArrayViewD<'_, T> {
        let mut view = self.memory.view();
        view.slice_each_axis_inplace(|axis| self.slices[axis.axis.index()]);
        view.permuted_axes(IxDyn(&self.order))
    }

    /// The values as often as they are there.
    pub(super) fn spread<'a>(&self, base: &'a ArrayViewD<'_, T>) -> ArrayViewD<'a, T> {
        base.broadcast(IxDyn(&self.shape)).expect("axes of one element are repeated")
    }

    pub(super) fn view_mut(&mut self) -> ArrayViewMutD<'_, T> {
        let mut view = self.memory.view_mut();
        view.slice_each_axis_inplace(|axis| self.slices[axis.axis.index()]);
        view.permuted_axes(IxDyn(&self.order))
    }

    /// Whether all that is not one of the values is NaN, as it was.
    pub(super) fn gaps_are_untouched(&self) -> bool {
        let mut rest = self.memory.clone();
        let mut inner = rest.view_mut();
        inner.slice_each_axis_inplace(|axis| self.slices[axis.axis.index()]);
        inner.fill(T::from_f64(f64::NAN));
        let count = rest.iter().filter(|value| !value.is_nan()).count();
        count == 0
    }
}
