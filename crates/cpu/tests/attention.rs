//! Attention of scores that are no ordinary numbers, and of gradients that underflow, against the reference and in other strides.

use ndarray::{Array2, ArrayD, IxDyn};
use tiled_cpu::{CpuBackend, Isa};
use tiled_kernel::Reference;
use tiled_kernel::dense::{Attention, Dense, Update};

fn backends() -> impl Iterator<Item = CpuBackend> {
    Isa::ALL.into_iter().filter_map(|isa| CpuBackend::with_isa(isa).ok())
}

fn zeros(shape: [usize; 4]) -> ArrayD<f32> {
    ArrayD::zeros(IxDyn(&shape))
}

/// A score that is not a number is one of the query's, whatever blocks of hidden keys follow it.
#[test]
fn a_score_that_is_not_a_number_is_not_forgotten() {
    const KEYS: usize = 513;
    let q = ArrayD::from_elem(IxDyn(&[1, 1, 1, 1]), 1.0_f32);
    let mut k = ArrayD::from_elem(IxDyn(&[1, 1, KEYS, 1]), 0.5_f32);
    k[[0, 0, 0, 0]] = f32::NAN;
    let v = ArrayD::from_elem(IxDyn(&[1, 1, KEYS, 1]), 2.0_f32);
    let mut mask = zeros([1, 1, 1, KEYS]);
    (256..512).for_each(|key| mask[[0, 0, 0, key]] = f32::NEG_INFINITY);
    let log_sum = |dense: &dyn Dense<f32>| {
        let attention = Attention { scale: 1.0, causal: false, mask: Some(mask.view()) };
        let (mut y, mut log_sums) = (zeros([1, 1, 1, 1]), Array2::<f32>::zeros((1, 1)));
        dense.attention(&attention, [q.view(), k.view(), v.view()], y.view_mut(), log_sums.view_mut());
        assert!(y[[0, 0, 0, 0]].is_nan());
        log_sums[[0, 0]]
    };
    assert!(log_sum(&Reference).is_nan());
    for backend in backends() {
        assert!(log_sum(&backend).is_nan(), "{backend:?}");
    }
}

/// A product that underflows to −0 is −0 in gradients of any strides.
#[test]
fn zeros_of_gradients_have_their_signs_in_all_strides() {
    let q = ArrayD::from_elem(IxDyn(&[1, 1, 1, 1]), 1.0_f32);
    let mut k = zeros([1, 1, 2, 1]);
    k[[0, 0, 1, 0]] = -69.0;
    let (v, dy) = (zeros([1, 1, 2, 3]), ArrayD::from_elem(IxDyn(&[1, 1, 1, 3]), -1e-30_f32));
    for backend in backends() {
        let attention = Attention { scale: 1.0, causal: false, mask: None };
        let (mut y, mut log_sums) = (zeros([1, 1, 1, 3]), Array2::<f32>::zeros((1, 1)));
        let qkv = || [q.view(), k.view(), v.view()];
        Dense::attention(&backend, &attention, qkv(), y.view_mut(), log_sums.view_mut());
        let signs = |is_turned: bool| {
            let mut dv = zeros(if is_turned { [1, 1, 3, 2] } else { [1, 1, 2, 3] });
            let to =
                if is_turned { dv.view_mut().permuted_axes(IxDyn(&[0, 1, 3, 2])) } else { dv.view_mut() };
            let gradients = [None, None, Some((to, Update::Replace))];
            backend.attention_backward(&attention, qkv(), y.view(), log_sums.view(), dy.view(), gradients);
            let dv = if is_turned { dv.permuted_axes(IxDyn(&[0, 1, 3, 2])) } else { dv };
            dv.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
        };
        assert_eq!(signs(false), signs(true), "{backend:?}");
    }
}
