//! Sums over the elements of rows: products, softmax, layer norm, cross-entropy, running sums.

use ndarray::{ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut1, ArrayViewMut2, ArrayViewMutD, Axis};
use tiled_tensor::Element;

use super::{put, require, write};
use crate::dense::{CrossEntropy, Direction, IndexError, LayerNorm, Product, Softmax, Targets, Update};
use crate::reference::activation;

pub(super) fn product<T: Element>(product: &Product<'_, T>, c: ArrayViewMutD<'_, T>, update: Update) {
    let Product { a, b, bias, activation } = product;
    let axes = c.ndim();
    assert!(
        axes >= 2 && a.ndim() == axes && b.ndim() == axes,
        "a product of {:?} and {:?}",
        a.shape(),
        b.shape()
    );
    let (batch, rows, cols, inner) =
        (axes - 2, c.shape()[axes - 2], c.shape()[axes - 1], a.shape()[axes - 1]);
    let with = |last: [usize; 2]| [&c.shape()[..batch], &last].concat();
    require("a", a.shape(), &with([rows, inner]));
    require("b", b.shape(), &with([inner, cols]));
    if let Some(bias) = bias {
        require("bias", bias.shape(), &[cols]);
    }
    write(c, update, |i| {
        let (mut at_a, mut at_b) = (i.to_vec(), i.to_vec());
        let mut sum = 0.0;
        for k in 0..inner {
            (at_a[axes - 1], at_b[axes - 2]) = (k, k);
            sum += a[&at_a[..]].to_f64() * b[&at_b[..]].to_f64();
        }
        let bias = bias.map_or(0.0, |bias| bias[i[axes - 1]].to_f64());
        let value = T::from_f64(sum + bias);
        activation.map_or(value, |activation| activation::value(activation, value))
    });
}

pub(super) fn cumulate<T: Element>(
    x: &ArrayViewD<'_, T>,
    axis: usize,
    direction: Direction,
    mut y: ArrayViewMutD<'_, T>,
    update: Update,
) {
    require("x", x.shape(), y.shape());
    for (x, y) in x.lanes(Axis(axis)).into_iter().zip(y.lanes_mut(Axis(axis))) {
        let mut sum = 0.0;
        let step = |(x, y): (&T, &mut T)| {
            sum += x.to_f64();
            put(y, T::from_f64(sum), update);
        };
        let pairs = x.into_iter().zip(y);
        match direction {
            Direction::FromStart => pairs.for_each(step),
            Direction::FromEnd => pairs.rev().for_each(step),
        }
    }
}

/// A row, widened.
fn wide<T: Element>(row: ArrayView1<'_, T>) -> Vec<f64> {
    row.iter().map(|value| value.to_f64()).collect()
}

/// The logarithm of the sum of exponentials, in two parts: the largest value, and the sum less it.
fn log_sum(x: &[f64]) -> (f64, f64) {
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (largest, x.iter().map(|x| (x - largest).exp()).sum())
}

pub(super) fn softmax<T: Element>(
    kind: Softmax,
    x: &ArrayViewD<'_, T>,
    axis: usize,
    mut y: ArrayViewMutD<'_, T>,
) {
    require("x", x.shape(), y.shape());
    for (x, y) in x.lanes(Axis(axis)).into_iter().zip(y.lanes_mut(Axis(axis))) {
        let x = wide(x);
        let (largest, sum) = log_sum(&x);
        for (x, y) in x.iter().zip(y) {
            *y = T::from_f64(match kind {
                Softmax::Probabilities => (x - largest).exp() / sum,
                Softmax::Logarithms => (x - largest) - sum.ln(),
            });
        }
    }
}

pub(super) fn softmax_backward<T: Element>(
    kind: Softmax,
    [y, dy]: [&ArrayViewD<'_, T>; 2],
    axis: usize,
    mut dx: ArrayViewMutD<'_, T>,
    update: Update,
) {
    require("y", y.shape(), dx.shape());
    require("dy", dy.shape(), dx.shape());
    let lanes = y.lanes(Axis(axis)).into_iter().zip(dy.lanes(Axis(axis)));
    for ((y, dy), dx) in lanes.zip(dx.lanes_mut(Axis(axis))) {
        let (y, dy) = (wide(y), wide(dy));
        let pairs = || y.iter().zip(&dy);
        let sum: f64 = match kind {
            Softmax::Probabilities => pairs().map(|(y, dy)| y * dy).sum(),
            Softmax::Logarithms => dy.iter().sum(),
        };
        for ((y, dy), dx) in pairs().zip(dx) {
            let value = match kind {
                Softmax::Probabilities => y * (dy - sum),
                Softmax::Logarithms => dy - y.exp() * sum,
            };
            put(dx, T::from_f64(value), update);
        }
    }
}

fn check_norm<T: Element>(norm: &LayerNorm<'_, T>, shape: &[usize], of_rows: [&[usize]; 2]) {
    of_rows.iter().for_each(|of_rows| require("statistics", of_rows, &shape[..1]));
    for parameter in [&norm.gamma, &norm.beta].into_iter().flatten() {
        require("a parameter", parameter.shape(), &shape[1..]);
    }
}

#[expect(clippy::cast_precision_loss, reason = "columns are far below 2^53")]
fn mean_of(values: impl Iterator<Item = f64>, count: usize) -> f64 {
    values.sum::<f64>() / count.max(1) as f64
}

pub(super) fn layer_norm<T: Element>(
    norm: &LayerNorm<'_, T>,
    x: &ArrayView2<'_, T>,
    mut y: ArrayViewMut2<'_, T>,
    [mut means, mut rstds]: [ArrayViewMut1<'_, T>; 2],
) {
    require("x", x.shape(), y.shape());
    check_norm(norm, x.shape(), [means.shape(), rstds.shape()]);
    for (r, x) in x.rows().into_iter().enumerate() {
        let x = wide(x);
        let mean = mean_of(x.iter().copied(), x.len());
        let variance = mean_of(x.iter().map(|x| (x - mean) * (x - mean)), x.len());
        let rstd = 1.0 / (variance + norm.epsilon).sqrt();
        (means[r], rstds[r]) = (T::from_f64(mean), T::from_f64(rstd));
        for (c, x) in x.iter().enumerate() {
            let gamma = norm.gamma.map_or(1.0, |gamma| gamma[c].to_f64());
            let beta = norm.beta.map_or(0.0, |beta| beta[c].to_f64());
            y[[r, c]] = T::from_f64((x - mean) * rstd * gamma + beta);
        }
    }
}

pub(super) fn layer_norm_backward<T: Element>(
    norm: &LayerNorm<'_, T>,
    [x, dy]: [&ArrayView2<'_, T>; 2],
    [means, rstds]: [ArrayView1<'_, T>; 2],
    dx: Option<(ArrayViewMut2<'_, T>, Update)>,
    [d_gamma, d_beta]: [Option<ArrayViewMut1<'_, T>>; 2],
) {
    require("dy", dy.shape(), x.shape());
    check_norm(norm, x.shape(), [means.shape(), rstds.shape()]);
    let (rows, cols) = x.dim();
    let normalised = |r: usize, c: usize| (x[[r, c]].to_f64() - means[r].to_f64()) * rstds[r].to_f64();
    let dy = |r: usize, c: usize| dy[[r, c]].to_f64();
    if let Some((mut dx, update)) = dx {
        require("dx", dx.shape(), x.shape());
        for r in 0..rows {
            let g = |c: usize| dy(r, c) * norm.gamma.map_or(1.0, |gamma| gamma[c].to_f64());
            let mean = mean_of((0..cols).map(g), cols);
            let dot = mean_of((0..cols).map(|c| g(c) * normalised(r, c)), cols);
            for c in 0..cols {
                let value = rstds[r].to_f64() * (g(c) - mean - normalised(r, c) * dot);
                put(&mut dx[[r, c]], T::from_f64(value), update);
            }
        }
    }
    let add = |to: Option<ArrayViewMut1<'_, T>>, term: &dyn Fn(usize, usize) -> f64| {
        for (c, to) in to.into_iter().flatten().enumerate() {
            *to += T::from_f64((0..rows).map(|r| term(r, c)).sum());
        }
    };
    for parameter in [&d_gamma, &d_beta].into_iter().flatten() {
        require("the gradient of a parameter", parameter.shape(), &[cols]);
    }
    add(d_gamma, &|r, c| dy(r, c) * normalised(r, c));
    add(d_beta, &dy);
}

/// `w·t` of an element, with t smoothed.
struct Weighted<'a, 's, 't, T: Element> {
    spec: &'a CrossEntropy<'s, T>,
    targets: &'a Targets<'t, T>,
    classes: usize,
}

impl<T: Element> Weighted<'_, '_, '_, T> {
    fn weight(&self, class: usize) -> f64 {
        self.spec.weights.map_or(1.0, |weights| weights[class].to_f64())
    }

    /// Of a row, or `None` where it is ignored.
    #[expect(clippy::cast_precision_loss, reason = "classes are far below 2^53")]
    fn row(&self, row: usize) -> Option<Vec<f64>> {
        let target = |class: usize| match self.targets {
            Targets::Classes(classes) => f64::from(u8::from(usize::try_from(classes[row]) == Ok(class))),
            Targets::Probabilities(probabilities) => probabilities[[row, class]].to_f64(),
        };
        if matches!(self.targets, Targets::Classes(classes) if Some(classes[row]) == self.spec.ignore) {
            return None;
        }
        let smoothing = self.spec.smoothing;
        let smoothed = |class| (1.0 - smoothing) * target(class) + smoothing / self.classes as f64;
        Some((0..self.classes).map(|class| self.weight(class) * smoothed(class)).collect())
    }
}

fn check_classes<T: Element>(
    spec: &CrossEntropy<'_, T>,
    x: &ArrayView2<'_, T>,
    targets: &Targets<'_, T>,
    of_rows: [&[usize]; 2],
) -> Result<(), IndexError> {
    of_rows.iter().for_each(|of_rows| require("what rows have", of_rows, &x.shape()[..1]));
    if let Some(weights) = spec.weights {
        require("weights", weights.shape(), &x.shape()[1..]);
    }
    match targets {
        Targets::Classes(classes) => {
            require("classes", classes.shape(), &x.shape()[..1]);
            let extent = x.shape()[1];
            let is_wrong = |class: &i64| {
                Some(*class) != spec.ignore && usize::try_from(*class).map_or(true, |class| class >= extent)
            };
            let wrong = classes.iter().copied().find(|class| is_wrong(class));
            wrong.map_or(Ok(()), |index| Err(IndexError { index, extent }))
        }
        Targets::Probabilities(probabilities) => {
            require("probabilities", probabilities.shape(), x.shape());
            Ok(())
        }
    }
}

pub(super) fn cross_entropy<T: Element>(
    spec: &CrossEntropy<'_, T>,
    x: &ArrayView2<'_, T>,
    targets: &Targets<'_, T>,
    mut losses: ArrayViewMut1<'_, T>,
    mut log_sums: ArrayViewMut1<'_, T>,
) -> Result<T, IndexError> {
    check_classes(spec, x, targets, [losses.shape(), log_sums.shape()])?;
    let weighted = Weighted { spec, targets, classes: x.ncols() };
    let mut total = 0.0;
    for (r, x) in x.rows().into_iter().enumerate() {
        let x = wide(x);
        let (largest, sum) = log_sum(&x);
        log_sums[r] = T::from_f64(largest + sum.ln());
        let Some(weights) = weighted.row(r) else {
            losses[r] = T::ZERO;
            continue;
        };
        // a class of no weight in a target that names classes says nothing, even where its probability is zero
        let names = matches!(targets, Targets::Classes(_));
        let terms = x.iter().zip(weights).filter(|(_, weight)| !names || *weight != 0.0);
        losses[r] = T::from_f64(terms.map(|(x, weight)| weight * (sum.ln() - (x - largest))).sum());
        total += match targets {
            Targets::Classes(classes) => {
                usize::try_from(classes[r]).map_or(0.0, |class| weighted.weight(class))
            }
            Targets::Probabilities(_) => 1.0,
        };
    }
    Ok(T::from_f64(total))
}

pub(super) fn cross_entropy_backward<T: Element>(
    spec: &CrossEntropy<'_, T>,
    x: &ArrayView2<'_, T>,
    targets: &Targets<'_, T>,
    [log_sums, d_losses]: [ArrayView1<'_, T>; 2],
    mut dx: ArrayViewMut2<'_, T>,
    update: Update,
) {
    require("dx", dx.shape(), x.shape());
    if let Err(error) = check_classes(spec, x, targets, [log_sums.shape(), d_losses.shape()]) {
        panic!("{error}");
    }
    let weighted = Weighted { spec, targets, classes: x.ncols() };
    for (r, mut dx) in dx.rows_mut().into_iter().enumerate() {
        let weights = weighted.row(r);
        let total: f64 = weights.iter().flatten().sum();
        for (c, dx) in dx.iter_mut().enumerate() {
            let value = weights.as_ref().map_or(0.0, |weights| {
                let probability = (x[[r, c]].to_f64() - log_sums[r].to_f64()).exp();
                d_losses[r].to_f64() * (probability * total - weights[c])
            });
            put(dx, T::from_f64(value), update);
        }
    }
}
