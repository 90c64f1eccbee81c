//! Attention, with a row of probabilities at a time.

use ndarray::{ArrayD, ArrayView2, ArrayView4, ArrayViewMut2, ArrayViewMut4, ArrayViewMutD};
use tiled_tensor::Element;

use super::{require, write};
use crate::dense::{Attention, Update};

/// The products of a query with the keys that it may see, scaled and masked; −∞ for those that it may not.
fn scores<T: Element>(
    attention: &Attention<'_, T>,
    q: &ArrayView4<'_, T>,
    k: &ArrayView4<'_, T>,
    [n, h, i]: [usize; 3],
) -> Vec<f64> {
    let score = |j: usize| {
        if attention.causal && j > i {
            return f64::NEG_INFINITY;
        }
        let dot: f64 = (0..q.dim().3).map(|e| q[[n, h, i, e]].to_f64() * k[[n, h, j, e]].to_f64()).sum();
        let mask = attention.mask.as_ref().map_or(0.0, |mask| mask[[n, h, i, j]].to_f64());
        attention.scale * dot + mask
    };
    (0..k.dim().2).map(score).collect()
}

/// `e^(score − log_sum)`, zero for keys that a query may not see.
fn probabilities<T: Element>(
    attention: &Attention<'_, T>,
    q: &ArrayView4<'_, T>,
    k: &ArrayView4<'_, T>,
    at: [usize; 3],
    log_sum: f64,
) -> Vec<f64> {
    let is_hidden = |j: usize| attention.causal && j > at[2];
    let probability = |(j, score): (usize, f64)| if is_hidden(j) { 0.0 } else { (score - log_sum).exp() };
    scores(attention, q, k, at).into_iter().enumerate().map(probability).collect()
}

fn check<T: Element>(
    attention: &Attention<'_, T>,
    q: &ArrayView4<'_, T>,
    k: &ArrayView4<'_, T>,
    log_sums: &[usize],
) -> [usize; 4] {
    let ((n, h, l, e), (_, _, s, _)) = (q.dim(), k.dim());
    require("k", k.shape(), &[n, h, s, e]);
    require("log_sums", log_sums, &[n * h, l]);
    if let Some(mask) = &attention.mask {
        require("mask", mask.shape(), &[n, h, l, s]);
    }
    [n, h, l, s]
}

pub(super) fn forward<T: Element>(
    attention: &Attention<'_, T>,
    [q, k, v]: [ArrayView4<'_, T>; 3],
    mut y: ArrayViewMut4<'_, T>,
    mut log_sums: ArrayViewMut2<'_, T>,
) {
    let [batch, heads, queries, keys] = check(attention, &q, &k, log_sums.shape());
    let width = v.dim().3;
    require("v", v.shape(), &[batch, heads, keys, width]);
    require("y", y.shape(), &[batch, heads, queries, width]);
    for (n, h, i) in ndarray::indices((batch, heads, queries)) {
        let scores = scores(attention, &q, &k, [n, h, i]);
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exponentials: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        log_sums[[n * heads + h, i]] = T::from_f64(largest + sum.ln());
        for f in 0..width {
            // a key behind the query is not read
            let seen = if attention.causal { keys.min(i + 1) } else { keys };
            let dot: f64 = (0..seen).map(|j| exponentials[j] * v[[n, h, j, f]].to_f64()).sum();
            y[[n, h, i, f]] = T::from_f64(dot / sum);
        }
    }
}

pub(super) fn backward<T: Element>(
    attention: &Attention<'_, T>,
    [q, k, v]: [ArrayView4<'_, T>; 3],
    [y, dy]: [ArrayView4<'_, T>; 2],
    log_sums: ArrayView2<'_, T>,
    gradients: [Option<(ArrayViewMutD<'_, T>, Update)>; 3],
) {
    let [batch, heads, queries, keys] = check(attention, &q, &k, log_sums.shape());
    let (depth, width) = (q.dim().3, v.dim().3);
    require("v", v.shape(), &[batch, heads, keys, width]);
    require("y", y.shape(), &[batch, heads, queries, width]);
    require("dy", dy.shape(), y.shape());
    let mut sums = [q.shape(), k.shape(), v.shape()].map(ArrayD::<f64>::zeros);
    for (n, h, i) in ndarray::indices((batch, heads, queries)) {
        let log_sum = log_sums[[n * heads + h, i]].to_f64();
        let probabilities = probabilities(attention, &q, &k, [n, h, i], log_sum);
        let dot = |f: usize, with: T| dy[[n, h, i, f]].to_f64() * with.to_f64();
        let own: f64 = (0..width).map(|f| dot(f, y[[n, h, i, f]])).sum();
        for (j, p) in probabilities.into_iter().enumerate() {
            if attention.causal && j > i {
                continue;
            }
            let dp: f64 = (0..width).map(|f| dot(f, v[[n, h, j, f]])).sum();
            let ds = attention.scale * (p * (dp - own));
            for e in 0..depth {
                sums[0][[n, h, i, e]] += ds * k[[n, h, j, e]].to_f64();
                sums[1][[n, h, j, e]] += ds * q[[n, h, i, e]].to_f64();
            }
            for f in 0..width {
                sums[2][[n, h, j, f]] += p * dy[[n, h, i, f]].to_f64();
            }
        }
    }
    for (gradient, sums) in gradients.into_iter().zip(sums) {
        if let Some((gradient, update)) = gradient {
            require("a gradient", gradient.shape(), sums.shape());
            write(gradient, update, |i| T::from_f64(sums[i]));
        }
    }
}

pub(super) fn weights<T: Element>(
    attention: &Attention<'_, T>,
    [q, k]: [ArrayView4<'_, T>; 2],
    log_sums: ArrayView2<'_, T>,
    weights: ArrayViewMutD<'_, T>,
) {
    let [batch, heads, queries, keys] = check(attention, &q, &k, log_sums.shape());
    require("weights", weights.shape(), &[batch, queries, keys]);
    let mut sums = ArrayD::<f64>::zeros(weights.shape());
    for (n, h, i) in ndarray::indices((batch, heads, queries)) {
        let log_sum = log_sums[[n * heads + h, i]].to_f64();
        for (j, p) in probabilities(attention, &q, &k, [n, h, i], log_sum).into_iter().enumerate() {
            sums[[n, i, j]] += p;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "heads are far below 2^53")]
    write(weights, Update::Replace, |i| T::from_f64(sums[i] / heads as f64));
}
