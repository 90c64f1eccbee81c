//! Arithmetic over arrays whose axes are matched from the last one on, and their reductions, as NumPy defines both.

use ndarray::{ArrayViewD, ArrayViewMutD, Axis, IxDyn};
use tiled_tensor::{OutOfMemory, with_room, zeros};

/// The shape of what two arrays become: along each axis they have as many elements, or one of them has one.
pub(super) fn shape(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let extent = |of: &[usize], axis: usize| (axis + of.len()).checked_sub(rank).map_or(1, |place| of[place]);
    let common = |axis| match (extent(a, axis), extent(b, axis)) {
        (a, b) if a == b => Some(a),
        (a, 1) => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    (0..rank).map(common).collect()
}

/// The elements of an array that is repeated to this shape, to which it broadcasts.
pub(super) fn repeated(array: &ArrayViewD<'_, f64>, shape: &[usize]) -> Result<Vec<f64>, OutOfMemory> {
    array.broadcast(IxDyn(shape)).map_or(Ok(Vec::new()), |array| ordered(&array))
}

/// The elements of an array in the order of its axes, row by row: an iterator over them keeps an index of all axes for each.
pub(super) fn ordered(array: &ArrayViewD<'_, f64>) -> Result<Vec<f64>, OutOfMemory> {
    let mut values = zeros(array.len())?;
    // an array without elements may have rows without number
    if values.is_empty() {
        return Ok(values);
    }
    if let Ok(mut to) = ArrayViewMutD::from_shape(array.raw_dim(), &mut values) {
        to.assign(array);
    }
    Ok(values)
}

/// Combines elements of this shape with those of an array that broadcasts to it.
pub(super) fn combine(
    values: &mut [f64],
    shape: &[usize],
    array: &ArrayViewD<'_, f64>,
    function: fn(f64, f64) -> f64,
) {
    if values.is_empty() {
        return; // of however many rows
    }
    let array = array.broadcast(IxDyn(shape));
    if let (Ok(mut values), Some(array)) = (ArrayViewMutD::from_shape(IxDyn(shape), values), array) {
        values.zip_mut_with(&array, |value, other| *value = function(*value, *other));
    }
}

/// What becomes of elements that are folded to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    Sum,
    Mean,
    Max,
    Min,
    /// The sum of their absolute values.
    L1,
    /// The root of the sum of their squares.
    L2,
    SumSquare,
}

impl Fold {
    fn of(self, elements: impl Iterator<Item = f64>, count: usize) -> f64 {
        match self {
            Self::Sum => elements.sum(),
            Self::Mean => elements.sum::<f64>() / count as f64,
            Self::Max => elements.fold(f64::NEG_INFINITY, larger),
            Self::Min => elements.fold(f64::INFINITY, smaller),
            Self::L1 => elements.map(f64::abs).sum(),
            Self::L2 => elements.map(|value| value * value).sum::<f64>().sqrt(),
            Self::SumSquare => elements.map(|value| value * value).sum(),
        }
    }
}

/// The folds over these axes, which differ; the others keep their order.
pub(super) fn reduced(
    array: &ArrayViewD<'_, f64>,
    axes: &[usize],
    fold: Fold,
) -> Result<Vec<f64>, OutOfMemory> {
    let shape = array.shape();
    let kept = (0..shape.len()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.clone().chain(axes.iter().copied()).collect();
    let [results, count] =
        [kept.map(|axis| shape[axis]).product(), axes.iter().map(|axis| shape[*axis]).product::<usize>()];
    let mut turned = array.view().permuted_axes(order);
    if axes.is_empty() {
        turned = turned.insert_axis(Axis(shape.len()));
    }
    // the last axis is one of those that are folded
    let mut lanes = turned.rows().into_iter();
    let each = count / turned.shape().last().copied().unwrap_or(1).max(1);
    let mut values = with_room(results)?;
    values.extend((0..results).map(|_| {
        let elements = lanes.by_ref().take(each).flat_map(|lane| lane.into_iter().copied());
        fold.of(elements, count)
    }));
    Ok(values)
}

/// The larger of two; one that is no number where there is one.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// The smaller of two; one that is no number where there is one.
pub(super) fn smaller(a: f64, b: f64) -> f64 {
    if b < a || b.is_nan() { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look like chance, the same every time.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % end
        }

        fn values(&mut self, len: usize) -> Vec<f64> {
            (0..len).map(|_| self.below(1000) as f64 / 100.0 - 5.0).collect()
        }
    }

    /// The place of an element of an array at an index of one of the same rank or a higher one.
    fn place(shape: &[usize], index: &[usize]) -> usize {
        let index = &index[index.len() - shape.len()..];
        shape.iter().zip(index).fold(0, |place, (extent, at)| place * extent + at % extent)
    }

    fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
        shape.iter().fold(vec![Vec::new()], |before, extent| {
            before
                .iter()
                .flat_map(|index| (0..*extent).map(move |at| [index.as_slice(), &[at]].concat()))
                .collect()
        })
    }

    #[test]
    fn arithmetic_is_that_of_plain_loops_for_shapes_of_all_ranks() {
        let mut chance = Chance(1);
        for round in 0..400 {
            let rank = chance.below(5);
            let whole: Vec<usize> = (0..rank).map(|_| 1 + chance.below(4)).collect();
            let mut part = || -> Vec<usize> {
                let from = chance.below(rank + 1);
                whole[from..].iter().map(|extent| if chance.below(3) == 0 { 1 } else { *extent }).collect()
            };
            let (of_a, of_b) = (part(), part());
            let a = chance.values(of_a.iter().product());
            let b = chance.values(of_b.iter().product());
            let common = shape(&of_a, &of_b).unwrap();
            assert_eq!(common.len(), of_a.len().max(of_b.len()), "round {round}");
            let view = |shape: &[usize], values| ArrayViewD::from_shape(IxDyn(shape), values).unwrap();
            let mut got = repeated(&view(&of_a, &a), &common).unwrap();
            combine(&mut got, &common, &view(&of_b, &b), |a, b| a - 2.0 * b);
            let wanted: Vec<f64> = indices(&common)
                .iter()
                .map(|index| a[place(&of_a, index)] - 2.0 * b[place(&of_b, index)])
                .collect();
            assert_eq!(got, wanted, "round {round}: {of_a:?} and {of_b:?}");
        }
    }

    #[test]
    fn reductions_are_those_of_plain_loops_over_all_sets_of_axes() {
        let mut chance = Chance(2);
        for round in 0..400 {
            let rank = chance.below(5);
            let shape: Vec<usize> = (0..rank).map(|_| 1 + chance.below(4)).collect();
            let values = chance.values(shape.iter().product());
            let axes: Vec<usize> = (0..rank).rev().filter(|_| chance.below(2) == 0).collect();
            let ones: Vec<usize> =
                (0..rank).map(|axis| if axes.contains(&axis) { 1 } else { shape[axis] }).collect();
            let view = ArrayViewD::from_shape(IxDyn(&shape), &values).unwrap();
            let count: usize = axes.iter().map(|axis| shape[*axis]).product();
            let mut sums = vec![[0.0; 3]; ones.iter().product()];
            let mut ends = vec![[f64::NEG_INFINITY, f64::INFINITY]; sums.len()];
            for (index, value) in indices(&shape).iter().zip(&values) {
                let to = place(&ones, index);
                for (sum, term) in sums[to].iter_mut().zip([*value, value.abs(), value * value]) {
                    *sum += term;
                }
                ends[to] = [ends[to][0].max(*value), ends[to][1].min(*value)];
            }
            let check = |fold, wanted: Vec<f64>| {
                let got = reduced(&view, &axes, fold).unwrap();
                let is_near = |(got, wanted): (&f64, &f64)| (got - wanted).abs() <= 1e-12;
                assert!(
                    got.len() == wanted.len() && got.iter().zip(&wanted).all(is_near),
                    "round {round}: {fold:?} of {shape:?} over {axes:?}: {got:?}, {wanted:?}"
                );
            };
            check(Fold::Sum, sums.iter().map(|sum| sum[0]).collect());
            check(Fold::Mean, sums.iter().map(|sum| sum[0] / count as f64).collect());
            check(Fold::L1, sums.iter().map(|sum| sum[1]).collect());
            check(Fold::L2, sums.iter().map(|sum| sum[2].sqrt()).collect());
            check(Fold::SumSquare, sums.iter().map(|sum| sum[2]).collect());
            check(Fold::Max, ends.iter().map(|ends| ends[0]).collect());
            check(Fold::Min, ends.iter().map(|ends| ends[1]).collect());
        }
    }

    #[test]
    fn arrays_without_elements_take_no_time_however_many_rows_they_have() {
        let shape = [1 << 40, 0];
        let empty = ArrayViewD::from_shape(IxDyn(&[1, 0]), &[]).unwrap();
        let mut values = repeated(&empty, &shape).unwrap();
        combine(&mut values, &shape, &empty, |a, b| a + b);
        assert!(values.is_empty());
        let whole = empty.broadcast(IxDyn(&shape)).unwrap();
        assert!(reduced(&whole, &[0], Fold::Sum).unwrap().is_empty());
        assert!(reduced(&whole.reversed_axes(), &[1], Fold::Max).unwrap().is_empty());
    }

    #[test]
    fn shapes_that_do_not_match_have_no_common_one() {
        assert_eq!(shape(&[2, 3], &[2]), None);
        assert_eq!(shape(&[3, 1], &[4]), Some(vec![3, 4]));
        assert_eq!(shape(&[], &[0, 2]), Some(vec![0, 2]));
    }

    #[test]
    fn what_is_no_number_is_the_largest_and_the_smallest() {
        for function in [larger, smaller] {
            assert!(function(f64::NAN, 1.0).is_nan() && function(1.0, f64::NAN).is_nan());
        }
        assert_eq!((larger(-1.0, 2.0), smaller(-1.0, 2.0)), (2.0, -1.0));
    }
}
