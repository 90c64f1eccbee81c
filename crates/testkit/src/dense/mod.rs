//! One suite for every implementation of dense work: near the reference, and the same bits whatever strides and threads.
//!
//! Each case is an operation with the values of its operands. What is checked of it:
//!
//! - its results agree with [`tiled_kernel::Reference`] in `f64` within a tolerance that is derived beside the operation;
//! - operands that lie otherwise in memory (transposed, with gaps that hold NaN, backward, repeated by strides of zero) and 1, 2 and 4
//!   threads give the same bits;
//! - a result that is added is the one that is not, added; and what is replaced is not read: it was NaN;
//! - nothing is written beside a result.

mod gradients;
mod indexing;
mod layout;
mod operation;
mod tolerance;

use ndarray::{ArrayD, ArrayViewD, ArrayViewMutD, IxDyn};
use rayon::ThreadPoolBuilder;
use tiled_kernel::Reference;
use tiled_kernel::dense::{Dense, Update};
use tiled_tensor::Element;

pub use gradients::check_gradients;
pub use indexing::check_indexing;
use layout::Held;
use operation::Operation;

use crate::conformance::Rng;

/// Checks every kind of dense work, `cases` times each.
///
/// # Panics
/// Where a check fails, with the operation, the shapes and the element.
pub fn check_dense<T: Element>(dense: &dyn Dense<T>, seed: u64, cases: usize) {
    let pools = [1, 2, 4]
        .map(|threads| ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads"));
    for kind in 0..operation::KINDS {
        for index in 0..cases {
            let mut rng = Rng::of_case(operation::NAMES[kind], seed, index);
            let operation = Operation::random::<T>(kind, index, &mut rng);
            check(dense, &operation, &pools, &mut rng);
        }
    }
    check_indexing(dense, seed, cases);
}

fn check<T: Element>(
    dense: &dyn Dense<T>,
    operation: &Operation,
    pools: &[rayon::ThreadPool; 3],
    rng: &mut Rng,
) {
    let name = dense.name();
    let oracle = plain::<f64>(&Reference, operation);
    let own = pools[0].install(|| plain::<T>(dense, operation));
    let bounds = tolerance::of(operation, T::EPSILON.to_f64());
    for (which, ((got, expected), bound)) in own.iter().zip(&oracle).zip(&bounds).enumerate() {
        for ((at, got), expected) in got.indexed_iter().zip(expected) {
            let (got, allowed) = (got.to_f64(), bound[at.clone()]);
            let agrees =
                got == *expected || (got.is_nan() && expected.is_nan()) || (got - expected).abs() <= allowed;
            assert!(
                agrees,
                "{name}: result {which} at {at:?} is {got:e}, reference {expected:e}, allowed difference {allowed:e}\n{operation:?}"
            );
        }
    }
    for round in 0..6 {
        let pool = &pools[round % 3];
        let updates: Vec<Update> = operation
            .outputs()
            .iter()
            .map(|(_, fixed)| fixed.unwrap_or_else(|| rng.pick(&[Update::Replace, Update::Add])))
            .collect();
        let inputs: Vec<Held<T>> = operation
            .inputs()
            .iter()
            .map(|(values, repeats)| Held::of(&values.mapv(T::from_f64), repeats, rng))
            .collect();
        let before: Vec<ArrayD<T>> = own
            .iter()
            .zip(&updates)
            .map(|(own, update)| match update {
                Update::Replace => ArrayD::from_elem(own.raw_dim(), T::from_f64(f64::NAN)),
                Update::Add => {
                    ArrayD::from_shape_simple_fn(own.raw_dim(), || T::from_f64(rng.uniform(-1.0, 1.0)))
                }
            })
            .collect();
        let mut outputs: Vec<Held<T>> = before.iter().map(|before| Held::of(before, &[], rng)).collect();
        let bases: Vec<ArrayViewD<'_, T>> = inputs.iter().map(Held::base).collect();
        let views: Vec<ArrayViewD<'_, T>> =
            bases.iter().zip(&inputs).map(|(base, held)| held.spread(base)).collect();
        let mut results: Vec<ArrayViewMutD<'_, T>> = outputs.iter_mut().map(Held::view_mut).collect();
        pool.install(|| operation.run(dense, &views, &mut results, &updates));
        drop(results);
        for (which, held) in outputs.iter().enumerate() {
            let base = held.base();
            let expected = |at: &IxDyn| match updates[which] {
                Update::Replace => own[which][at.clone()],
                Update::Add => before[which][at.clone()] + own[which][at.clone()],
            };
            for (at, got) in held.spread(&base).indexed_iter() {
                let expected = expected(&at);
                let same = got.to_bits_u64() == expected.to_bits_u64() || (got.is_nan() && expected.is_nan());
                assert!(
                    same,
                    "{name}: result {which} at {at:?} is {got:e}, on one thread from contiguous memory {expected:e}, \
                     {:?}, round {round}\n{operation:?}",
                    updates[which],
                    got = got.to_f64(),
                    expected = expected.to_f64(),
                );
            }
            assert!(held.gaps_are_untouched(), "{name}: written beside result {which}\n{operation:?}");
        }
    }
}

/// The results from contiguous memory, where NaN was before.
fn plain<T: Element>(dense: &dyn Dense<T>, operation: &Operation) -> Vec<ArrayD<T>> {
    let inputs: Vec<ArrayD<T>> =
        operation.inputs().iter().map(|(values, _)| values.mapv(T::from_f64)).collect();
    let mut outputs: Vec<ArrayD<T>> = operation
        .outputs()
        .iter()
        .map(|(shape, fixed)| {
            let before = if *fixed == Some(Update::Add) { 0.0 } else { f64::NAN };
            ArrayD::from_elem(&shape[..], T::from_f64(before))
        })
        .collect();
    let views: Vec<ArrayViewD<'_, T>> = inputs.iter().map(|input| input.view()).collect();
    let updates: Vec<Update> =
        operation.outputs().iter().map(|(_, fixed)| fixed.unwrap_or(Update::Replace)).collect();
    let mut results: Vec<ArrayViewMutD<'_, T>> = outputs.iter_mut().map(|output| output.view_mut()).collect();
    operation.run(dense, &views, &mut results, &updates);
    drop(results);
    outputs
}
