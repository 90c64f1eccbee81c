//! Functions of one and two elements, their gradients, and folds.

use ndarray::{ArrayD, ArrayViewD, ArrayViewMutD, Dimension};
use tiled_tensor::Element;

use super::{put, require, write};
use crate::dense::{Binary, Fold, Saves, Side, Unary, Update};
use crate::reference::activation;

/// The function of one element.
pub(super) fn unary<T: Element>(f: Unary, x: T) -> T {
    match f {
        Unary::Identity => x,
        Unary::Activation(function) => activation::value(function, x),
        Unary::Rsqrt => T::from_f64(1.0 / x.to_f64().sqrt()),
        Unary::Affine { factor, summand } => T::from_f64(factor).mul_add(x, T::from_f64(summand)),
    }
}

pub(super) fn map<T: Element>(f: Unary, x: &ArrayViewD<'_, T>, y: ArrayViewMutD<'_, T>, update: Update) {
    require("x", x.shape(), y.shape());
    write(y, update, |i| unary(f, x[i]));
}

pub(super) fn map_backward<T: Element>(
    f: Unary,
    saved: &ArrayViewD<'_, T>,
    dy: &ArrayViewD<'_, T>,
    dx: ArrayViewMutD<'_, T>,
    update: Update,
) {
    require("dy", dy.shape(), dx.shape());
    let needs = f.saves() != Saves::Nothing;
    if needs {
        require("what was saved", saved.shape(), dx.shape());
    }
    let saved = |i: &[usize]| if needs { saved[i] } else { T::ZERO };
    write(dx, update, |i| match f {
        Unary::Identity => dy[i],
        Unary::Activation(function) => activation::gradient(function, dy[i], saved(i)),
        Unary::Rsqrt => {
            let y = saved(i).to_f64();
            T::from_f64(dy[i].to_f64() * (-0.5 * y * y * y))
        }
        Unary::Affine { factor, .. } => dy[i] * T::from_f64(factor),
    });
}

/// The function of two elements. Where it is one operation, rounding it twice is rounding it once.
fn binary<T: Element>(f: Binary, a: T, b: T) -> T {
    match f {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Pow => T::from_f64(a.to_f64().powf(b.to_f64())),
        Binary::Maximum if a > b || a.is_nan() => a,
        Binary::Minimum if a < b || a.is_nan() => a,
        Binary::Maximum | Binary::Minimum => b,
    }
}

pub(super) fn zip<T: Element>(
    f: Binary,
    a: &ArrayViewD<'_, T>,
    b: &ArrayViewD<'_, T>,
    y: ArrayViewMutD<'_, T>,
    update: Update,
) {
    require("a", a.shape(), y.shape());
    require("b", b.shape(), y.shape());
    write(y, update, |i| binary(f, a[i], b[i]));
}

pub(super) fn zip_in_place<T: Element>(f: Binary, mut a: ArrayViewMutD<'_, T>, b: &ArrayViewD<'_, T>) {
    require("b", b.shape(), a.shape());
    for (index, a) in a.indexed_iter_mut() {
        *a = binary(f, *a, b[index]);
    }
}

/// `dy·∂f/∂side`, in `f64`. Where torch has no gradient, none passes, not even one that is infinite.
fn slope((f, side): (Binary, Side), [a, b]: [f64; 2], dy: f64) -> f64 {
    let is_shut = match (f, side) {
        (Binary::Pow, Side::First) => b == 0.0,
        (Binary::Pow, Side::Second) => a == 0.0 && b >= 0.0,
        (Binary::Maximum, Side::First) | (Binary::Minimum, Side::Second) => a < b,
        (Binary::Maximum, Side::Second) | (Binary::Minimum, Side::First) => b < a,
        _ => false,
    };
    if is_shut {
        return 0.0;
    }
    match (f, side) {
        (Binary::Add, _) | (Binary::Sub, Side::First) => dy,
        (Binary::Sub, Side::Second) => -dy,
        (Binary::Mul, Side::First) => dy * b,
        (Binary::Mul, Side::Second) => dy * a,
        (Binary::Div, Side::First) => dy / b,
        (Binary::Div, Side::Second) => -dy * ((a / b) / b),
        (Binary::Pow, Side::First) => dy * (b * a.powf(b - 1.0)),
        (Binary::Pow, Side::Second) => dy * (a.powf(b) * a.ln()),
        (Binary::Maximum | Binary::Minimum, _) if a == b => 0.5 * dy,
        (Binary::Maximum | Binary::Minimum, _) => dy,
    }
}

pub(super) fn zip_backward<T: Element>(
    (f, side): (Binary, Side),
    operands: [Option<ArrayViewD<'_, T>>; 2],
    dy: &ArrayViewD<'_, T>,
    dx: ArrayViewMutD<'_, T>,
    update: Update,
) {
    for (operand, needed) in operands.iter().zip(f.saves(side)) {
        match operand {
            Some(operand) if needed => require("an operand", operand.shape(), dy.shape()),
            _ => assert!(!needed, "an operand that the derivative needs"),
        }
    }
    let value = |which: usize, i: &[usize]| match &operands[which] {
        Some(operand) if f.saves(side)[which] => operand[i].to_f64(),
        _ => 0.0,
    };
    fold(
        dy.shape(),
        dx,
        update,
        (0.0, |sum, i: &[usize]| sum + slope((f, side), [value(0, i), value(1, i)], dy[i].to_f64())),
    );
}

pub(super) fn reduce<T: Element>(
    of: Fold,
    x: &ArrayViewD<'_, T>,
    scale: T,
    y: ArrayViewMutD<'_, T>,
    update: Update,
) {
    let scale = scale.to_f64();
    let none = match of {
        Fold::Sum => 0.0,
        Fold::Max => f64::NEG_INFINITY,
        Fold::Min => f64::INFINITY,
    };
    let folded = folded(
        x.shape(),
        y.shape(),
        (none, |held: f64, i: &[usize]| {
            let x = x[i].to_f64();
            match of {
                Fold::Sum => held + x,
                Fold::Max if x > held || x.is_nan() => x,
                Fold::Min if x < held || x.is_nan() => x,
                Fold::Max | Fold::Min => held,
            }
        }),
    );
    write(y, update, |i| T::from_f64(scale * folded[i]));
}

fn fold<T: Element>(
    shape: &[usize],
    y: ArrayViewMutD<'_, T>,
    update: Update,
    step: (f64, impl Fn(f64, &[usize]) -> f64),
) {
    let folded = folded(shape, y.shape(), step);
    for (y, value) in { y }.iter_mut().zip(&folded) {
        put(y, T::from_f64(*value), update);
    }
}

/// Folds all positions of a shape, in row-major order, into those of a shape that has extent 1 in some axes.
fn folded(
    shape: &[usize],
    reduced: &[usize],
    (none, step): (f64, impl Fn(f64, &[usize]) -> f64),
) -> ArrayD<f64> {
    let fits = shape.len() == reduced.len() && shape.iter().zip(reduced).all(|(x, y)| x == y || *y == 1);
    assert!(fits, "{shape:?} does not become {reduced:?} by folding axes");
    let mut folded = ArrayD::from_elem(reduced, none);
    for index in ndarray::indices(shape) {
        let place: Vec<usize> =
            index.slice().iter().zip(reduced).map(|(i, extent)| if *extent == 1 { 0 } else { *i }).collect();
        let held = &mut folded[&place[..]];
        *held = step(*held, index.slice());
    }
    folded
}
