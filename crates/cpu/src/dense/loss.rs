//! Cross-entropy, a row after another.

use ndarray::{ArrayView1, ArrayView2, ArrayViewMut1, ArrayViewMut2};
use tiled_kernel::dense::{CrossEntropy, IndexError, Targets, Update};

use super::lines::for_rows;
use super::matrix::{Shared, require, with_scratch};
use super::row;
use crate::Isa;
use crate::vector::Lane;

/// Operations that an element counts for.
const COST: usize = 80;

/// What targets say of rows.
struct Weights<'a, 's, 't, E: Lane> {
    spec: &'a CrossEntropy<'s, E>,
    targets: &'a Targets<'t, E>,
    /// A weight for each class.
    of_classes: Vec<E>,
    /// What is spread over each class.
    share: E,
    /// Weights where a row names no class.
    base: Vec<E>,
    base_total: f64,
}

impl<'a, 's, 't, E: Lane> Weights<'a, 's, 't, E> {
    #[expect(clippy::cast_precision_loss, reason = "classes are far below 2^53")]
    fn new(isa: Isa, spec: &'a CrossEntropy<'s, E>, targets: &'a Targets<'t, E>, classes: usize) -> Self {
        let of_classes =
            spec.weights.as_ref().map_or_else(|| vec![E::ONE; classes], |weights| weights.to_vec());
        let share = E::from_f64(spec.smoothing / classes.max(1) as f64);
        let base: Vec<E> = of_classes.iter().map(|weight| *weight * share).collect();
        let base_total = row::sum(isa, &base);
        Self { spec, targets, of_classes, share, base, base_total }
    }

    /// Calls `body` with the weights of a row, their sum and what the row counts for; not where it is ignored.
    fn with<R>(
        &self,
        isa: Isa,
        r: usize,
        buffer: &mut [E],
        body: impl FnOnce(&[E], f64, f64) -> R,
    ) -> Option<R> {
        let kept = 1.0 - self.spec.smoothing;
        match self.targets {
            Targets::Classes(classes) if Some(classes[r]) == self.spec.ignore => None,
            Targets::Classes(classes) => {
                let class = usize::try_from(classes[r]).expect("invariant: classes were checked");
                let weight = self.of_classes[class].to_f64();
                buffer.copy_from_slice(&self.base);
                buffer[class] = E::from_f64(weight * (kept + self.share.to_f64()));
                Some(body(buffer, self.base_total + weight * kept, weight))
            }
            Targets::Probabilities(targets) => {
                let (row, share) = (targets.row(r), self.share);
                let factor = E::from_f64(kept);
                match row.as_slice() {
                    Some(row) => row::weigh(isa, row, &self.of_classes, factor, share, buffer),
                    None => {
                        let gathered: Vec<E> = row.to_vec();
                        row::weigh(isa, &gathered, &self.of_classes, factor, share, buffer);
                    }
                }
                Some(body(buffer, row::sum(isa, buffer), 1.0))
            }
        }
    }
}

fn check<E: Lane>(
    spec: &CrossEntropy<'_, E>,
    shape: &[usize],
    targets: &Targets<'_, E>,
    of_rows: [&[usize]; 2],
) -> Result<(), IndexError> {
    of_rows.iter().for_each(|of_rows| require("what rows have", of_rows, &shape[..1]));
    if let Some(weights) = &spec.weights {
        require("weights", weights.shape(), &shape[1..]);
    }
    match targets {
        Targets::Classes(classes) => {
            require("classes", classes.shape(), &shape[..1]);
            let extent = shape[1];
            let fits = |class: i64| usize::try_from(class).is_ok_and(|class| class < extent);
            let wrong = classes.iter().find(|class| Some(**class) != spec.ignore && !fits(**class));
            wrong.map_or(Ok(()), |index| Err(IndexError { index: *index, extent }))
        }
        Targets::Probabilities(probabilities) => {
            require("probabilities", probabilities.shape(), shape);
            Ok(())
        }
    }
}

fn at<T>(start: *const T, stride: isize, row: usize) -> *const T {
    start.wrapping_offset(row.cast_signed() * stride)
}

pub(super) fn forward<E: Lane>(
    isa: Isa,
    spec: CrossEntropy<'_, E>,
    x: ArrayView2<'_, E>,
    targets: Targets<'_, E>,
    mut losses: ArrayViewMut1<'_, E>,
    mut log_sums: ArrayViewMut1<'_, E>,
) -> Result<f64, IndexError> {
    check(&spec, x.shape(), &targets, [losses.shape(), log_sums.shape()])?;
    let (rows, classes) = x.dim();
    let weights = Weights::new(isa, &spec, &targets, classes);
    let named = matches!(targets, Targets::Classes(_));
    let of_x = [x.strides()[0], x.strides()[1]];
    let of_rows = [losses.strides()[0], log_sums.strides()[0]];
    let starts = Shared((x.as_ptr(), losses.as_mut_ptr(), log_sums.as_mut_ptr()));
    for_rows(rows, classes * COST, |r| {
        let (x, losses, log_sums) = starts.get();
        with_scratch(3 * classes, |scratch: *mut E| {
            let part = |index: usize| scratch.wrapping_add(index * classes);
            // SAFETY: the row is one of each array, and no other unit writes it; the scratch has three rows.
            unsafe {
                let x = row::read(at(x, of_x[0], r), of_x[1], classes, part(0));
                let exponentials = std::slice::from_raw_parts_mut(part(1), classes);
                let largest = row::largest(isa, x);
                row::exponentials(isa, x, largest, exponentials);
                let log = row::sum(isa, exponentials).ln();
                *at(log_sums, of_rows[1], r).cast_mut() = E::from_f64(largest.to_f64() + log);
                let buffer = std::slice::from_raw_parts_mut(part(2), classes);
                let loss = weights.with(isa, r, buffer, |weights, _, _| {
                    E::from_f64(row::losses(isa, x, weights, largest, E::from_f64(log), named))
                });
                *at(losses, of_rows[0], r).cast_mut() = loss.unwrap_or(E::ZERO);
            }
        });
    });
    let total = |r: usize| match &targets {
        Targets::Classes(classes) if Some(classes[r]) == spec.ignore => 0.0,
        Targets::Classes(classes) => {
            usize::try_from(classes[r]).map_or(0.0, |class| weights.of_classes[class].to_f64())
        }
        Targets::Probabilities(_) => 1.0,
    };
    Ok((0..rows).map(total).sum())
}

pub(super) fn backward<E: Lane>(
    isa: Isa,
    spec: CrossEntropy<'_, E>,
    x: ArrayView2<'_, E>,
    targets: Targets<'_, E>,
    [log_sums, d_losses]: [ArrayView1<'_, E>; 2],
    mut dx: ArrayViewMut2<'_, E>,
    update: Update,
) {
    require("dx", dx.shape(), x.shape());
    if let Err(error) = check(&spec, x.shape(), &targets, [log_sums.shape(), d_losses.shape()]) {
        panic!("{error}");
    }
    let (rows, classes) = x.dim();
    let weights = Weights::new(isa, &spec, &targets, classes);
    let (of_x, of_dx) = ([x.strides()[0], x.strides()[1]], [dx.strides()[0], dx.strides()[1]]);
    let starts = Shared((x.as_ptr(), dx.as_mut_ptr()));
    for_rows(rows, classes * COST, |r| {
        let (x, dx) = starts.get();
        with_scratch(3 * classes, |scratch: *mut E| {
            let part = |index: usize| scratch.wrapping_add(index * classes);
            // SAFETY: the row is one of each array, and no other unit writes that of dx; the scratch has three rows.
            unsafe {
                let x = row::read(at(x, of_x[0], r), of_x[1], classes, part(0));
                let buffer = std::slice::from_raw_parts_mut(part(1), classes);
                let to = at(dx, of_dx[0], r).cast_mut();
                row::write(isa, to, of_dx[1], classes, part(2), update, |dx| {
                    let found = weights.with(isa, r, buffer, |weights, total, _| {
                        row::loss_slopes(isa, x, weights, log_sums[r], E::from_f64(total), d_losses[r], dx);
                    });
                    if found.is_none() {
                        dx.fill(E::ZERO);
                    }
                });
            }
        });
    });
}
