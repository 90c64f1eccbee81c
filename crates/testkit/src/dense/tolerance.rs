//! How far results of dense work may be from exact arithmetic, in ε of the element type.
//!
//! The oracle is the reference in `f64` on the same numbers. A sum of n products in any order errs by at most `n·ε/2·Σ|a·b|` to first
//! order (Higham, *Accuracy and Stability of Numerical Algorithms*, 2002, section 3.1); bounds allow twice as much and some terms more,
//! which covers the oracle's own error in `f64`. `Σ|a·b|` comes from the reference on absolute values.

use ndarray::{ArrayD, IxDyn, Zip};
use tiled_kernel::Reference;
use tiled_kernel::dense::{Binary, Dense, Fold, Side, Softmax, Unary, Update};

use super::operation::{EPSILON, Op, Operation, SCALE};
use super::plain;

/// Roundings of a function of one element, and of an exponential with its argument: a few units in the last place each.
const FUNCTION: f64 = 64.0;

/// What flushing subnormal numbers to zero may change, in ε.
const TINY: f64 = 1e-30;

/// The allowed difference of each element of each result.
pub(super) fn of(operation: &Operation, eps: f64) -> Vec<ArrayD<f64>> {
    let values = || plain::<f64>(&Reference, operation);
    let absolute = |op: Op| {
        let operands = operation.inputs().iter().map(|(values, _)| values.mapv(f64::abs)).collect();
        plain::<f64>(&Reference, &Operation { op, ..operation.with(operands) })
    };
    let extent = |operand: usize, axis: usize| count(operation.operand(operand).shape()[axis]);
    let x = |which: usize| operation.operand(which);
    match &operation.op {
        Op::Product { bias, activation } => {
            let sums = absolute(Op::Product { bias: *bias, activation: None }).remove(0);
            let terms = count(x(0).shape()[x(0).ndim() - 1]);
            let before = sums.mapv(|sum| (terms + 3.0) * eps * sum);
            let Some(activation) = *activation else { return vec![before] };
            // none of those that are drawn has a slope above 1.13
            let argument =
                Operation { op: Op::Product { bias: *bias, activation: None }, ..operation.clone() };
            let argument = plain::<f64>(&Reference, &argument).remove(0);
            let own = function(Unary::Activation(activation), &argument, eps);
            vec![before.mapv(|before| 1.13 * before) + own]
        }
        Op::Map(f) | Op::MapInPlace(f) => vec![function(*f, x(0), eps)],
        Op::MapBackward(_) => {
            let value = values().remove(0);
            vec![Zip::from(&value).and(x(0)).and(x(1)).map_collect(|dx, saved, dy| {
                FUNCTION * eps * (dx.abs() + dy.abs() * (1.0 + saved * saved)) + TINY
            })]
        }
        Op::Zip(Binary::Pow) | Op::ZipInPlace(Binary::Pow) => {
            let value = values().remove(0);
            vec![
                Zip::from(&value)
                    .and(x(0))
                    .and(x(1))
                    .map_collect(|y, a, b| FUNCTION * eps * y.abs() * (1.0 + (b * a.ln()).abs())),
            ]
        }
        Op::Zip(_) | Op::ZipInPlace(_) | Op::Select => vec![values().remove(0).mapv(|y| eps * y.abs())],
        Op::ZipBackward(f, side) => {
            let terms = terms_of(*f, *side, operation);
            let factor = if *f == Binary::Pow { 16.0 } else { 1.0 };
            let to = &operation.outputs()[0].0;
            let folded = count(x(2).len() / to.iter().product::<usize>().max(1));
            let mut sums = ArrayD::zeros(IxDyn(to));
            let absolute = terms.mapv(f64::abs);
            Dense::<f64>::reduce(
                &Reference,
                Fold::Sum,
                absolute.view(),
                1.0,
                sums.view_mut(),
                Update::Replace,
            );
            vec![sums.mapv(|sum: f64| (folded + FUNCTION) * factor * eps * sum + TINY)]
        }
        Op::Reduce(fold, scale) => {
            let folded = count(x(0).len() / operation.outputs()[0].0.iter().product::<usize>().max(1));
            match fold {
                Fold::Sum => {
                    let sums = absolute(Op::Reduce(*fold, scale.abs())).remove(0);
                    vec![sums.mapv(|sum| (folded + 4.0) * eps * sum)]
                }
                Fold::Max | Fold::Min => vec![values().remove(0).mapv(|y| 2.0 * eps * y.abs())],
            }
        }
        Op::Cumulate(axis, _) => {
            let terms = extent(0, *axis);
            vec![absolute(operation.op.clone()).remove(0).mapv(|sum| (terms + 2.0) * eps * sum)]
        }
        Op::Softmax(kind, axis) => {
            // the exponent errs by ε of itself: a difference of two values
            let own = (extent(0, *axis) + FUNCTION + 4.0 * largest(x(0))) * eps;
            let values = values().remove(0);
            vec![match kind {
                Softmax::Probabilities => values.mapv(|y| own * y + TINY),
                Softmax::Logarithms => values.mapv(|y| own * (1.0 + y.abs())),
            }]
        }
        Op::SoftmaxBackward(kind, axis) => {
            let own = (extent(0, *axis) + FUNCTION) * eps;
            let size = largest(x(1))
                * (1.0 + largest(&x(0).mapv(|y| if *kind == Softmax::Logarithms { 0.0 } else { y })));
            let terms = extent(0, *axis);
            vec![x(0).mapv(|y| match kind {
                Softmax::Probabilities => own * size * y.abs() * (1.0 + terms),
                Softmax::Logarithms => own * size * (1.0 + y.exp() * terms * (1.0 + y.abs())),
            })]
        }
        Op::LayerNorm { gamma, beta } => {
            let own = (extent(0, 1) + FUNCTION) * eps;
            let [_, means, rstds] = three(values());
            // a difference from the mean errs by ε of the largest value, and counts in units of the deviation
            let size = largest(x(0));
            let g = if *gamma { largest(x(1)) } else { 1.0 };
            let b = if *beta { largest(x(2)) } else { 0.0 };
            let of_rows = |r: usize| own * (g * (1.0 + 2.0 * size * rstds[[r]]) + b);
            let y = ArrayD::from_shape_fn(x(0).raw_dim(), |at| of_rows(at[0]));
            let rstd = rstds.mapv(|rstd| own * rstd * (1.0 + size * size * rstd * rstd * own + size * rstd));
            vec![y, means.mapv(|_| own * size), rstd]
        }
        Op::LayerNormBackward { gamma, dx, parameters } => {
            let [rows, cols] = [x(0).shape()[0], x(0).shape()[1]];
            let own = (extent(0, 1) + FUNCTION) * eps;
            let g = largest(x(4)) * if *gamma { largest(x(1)) } else { 1.0 };
            let normal = |r: usize| (largest(x(0)) + x(2)[[r]].abs()) * x(3)[[r]];
            let mut bounds = Vec::new();
            if *dx {
                bounds.push(ArrayD::from_shape_fn(IxDyn(&[rows, cols]), |at| {
                    let n = normal(at[0]);
                    own * x(3)[[at[0]]] * g * (2.0 + n * n)
                }));
            }
            if *parameters {
                let own = (count(rows) + FUNCTION) * eps * largest(x(4));
                let sum: f64 = (0..rows).map(normal).sum();
                bounds.push(ArrayD::from_elem(IxDyn(&[cols]), own * sum));
                bounds.push(ArrayD::from_elem(IxDyn(&[cols]), own * count(rows)));
            }
            bounds
        }
        Op::Attention { .. } | Op::AttentionBackward { .. } | Op::AttentionWeights { .. } => {
            attention(operation, eps)
        }
        Op::CrossEntropy(loss) => {
            let own = (extent(0, 1) + FUNCTION) * eps;
            let range = 1.0 + 2.0 * largest(x(0)) + extent(0, 1).ln();
            let weight = if loss.weights { largest(x(2)) } else { 1.0 };
            // a row of probabilities need not sum to one
            let targets = if loss.classes.is_some() { 1.0 } else { extent(0, 1) };
            let [losses, log_sums, total] = three(values());
            vec![
                losses.mapv(|_| own * range * weight * targets),
                log_sums.mapv(|_| own * range),
                total.mapv(|total| (count(x(0).shape()[0]) + 4.0) * eps * total),
            ]
        }
        Op::CrossEntropyBackward(loss) => {
            let own = (extent(0, 1) + FUNCTION) * eps;
            let range = 1.0 + 2.0 * largest(x(0)) + extent(0, 1).ln();
            let weight = if loss.weights { largest(x(2)) } else { 1.0 };
            let targets = if loss.classes.is_some() { 1.0 } else { extent(0, 1) };
            let bound = own * range * weight * (targets + 1.0) * largest(x(4));
            vec![ArrayD::from_elem(x(0).raw_dim(), bound)]
        }
    }
}

/// The error of a function: its own, and what ε of its argument changes.
fn function(f: Unary, x: &ArrayD<f64>, eps: f64) -> ArrayD<f64> {
    let (mut value, mut slope) = (ArrayD::zeros(x.raw_dim()), ArrayD::zeros(x.raw_dim()));
    Dense::<f64>::map(&Reference, f, x.view(), value.view_mut(), Update::Replace);
    let ones = ArrayD::from_elem(x.raw_dim(), 1.0);
    let saved = match f.saves() {
        tiled_kernel::dense::Saves::Output => value.view(),
        _ => x.view(),
    };
    Dense::<f64>::map_backward(&Reference, f, saved, ones.view(), slope.view_mut(), Update::Replace);
    let own = |y: &f64, x: &f64, slope: &f64| {
        // the constants of a line are rounded to the type too
        let constants = if let Unary::Affine { summand, .. } = f { summand.abs() } else { 0.0 };
        let error = FUNCTION * eps * (y.abs() + (x * slope).abs() + constants);
        if f == Unary::Identity { 0.0 } else { error + TINY }
    };
    Zip::from(&value).and(x).and(&slope).map_collect(own)
}

/// The terms that a gradient of two operands is the sum of.
fn terms_of(f: Binary, side: Side, operation: &Operation) -> ArrayD<f64> {
    let dy = operation.operand(2);
    let mut terms = ArrayD::zeros(dy.raw_dim());
    let operands = [Some(operation.operand(0).view()), Some(operation.operand(1).view())];
    let to = terms.view_mut();
    Dense::<f64>::zip_backward(&Reference, f, side, operands, dy.view(), to, Update::Replace);
    terms
}

/// Of a score, of a probability in units of itself, then of what is summed with them.
fn attention(operation: &Operation, eps: f64) -> Vec<ArrayD<f64>> {
    let x = |which: usize| operation.operand(which);
    let (depth, keys) = (count(x(0).shape()[3]), count(x(1).shape()[2]));
    let (queries, width) = (count(x(0).shape()[2]), count(x(2).shape()[3]));
    let finite =
        |array: &ArrayD<f64>| largest(&array.mapv(|value| if value.is_finite() { value } else { 0.0 }));
    let scores = SCALE * depth * largest(x(0)) * largest(x(1));
    let range = scores + finite(x(3)) + keys.ln();
    let score = (depth + 8.0) * eps * (scores + finite(x(3)));
    let probability = 2.0 * score + (2.0 * keys + FUNCTION + 4.0 * range) * eps;
    let everywhere =
        |which: usize, bound: f64| ArrayD::from_elem(IxDyn(&operation.outputs()[which].0), bound);
    match operation.op {
        Op::Attention { .. } => vec![
            everywhere(0, (probability + keys * eps) * largest(x(2))),
            everywhere(1, score + (keys + FUNCTION) * eps * (1.0 + range)),
        ],
        Op::AttentionWeights { .. } => vec![everywhere(0, probability + 8.0 * eps)],
        _ => {
            // ds = p·(dy·v − dy·y), of which each product sums `width` terms
            let product = width * largest(x(6)) * largest(x(2));
            let of_scores = 2.0 * product * (probability + (2.0 * width + keys + queries + 16.0) * eps);
            vec![
                everywhere(0, SCALE * largest(x(1)) * of_scores),
                everywhere(1, SCALE * largest(x(0)) * of_scores * queries),
                everywhere(2, queries * largest(x(6)) * (probability + (queries + 8.0) * eps)),
            ]
        }
    }
}

fn three(values: Vec<ArrayD<f64>>) -> [ArrayD<f64>; 3] {
    values.try_into().expect("three results")
}

fn largest(values: &ArrayD<f64>) -> f64 {
    values.iter().fold(0.0, |largest, value| value.abs().max(largest))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn count(terms: usize) -> f64 {
    terms as f64
}

// what a layer norm adds to its variance bounds the reciprocal of the deviation
const _: () = assert!(EPSILON > 0.0);
