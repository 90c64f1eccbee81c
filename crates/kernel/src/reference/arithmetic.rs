//! Functions of several values of one position.

use tiled_geometry::Region;
use tiled_tensor::{Element, View, ViewMut};

use super::{fill, require};
use crate::{Arithmetic, Spread};

/// The function of the operands, whose inputs and parameter are given.
pub(super) fn arithmetic<T: Element>(
    function: Arithmetic,
    operands: [Spread; 3],
    param: &[T],
    inputs: &[View<'_, T>],
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let channels = output.layout().channels();
    let mut inputs = inputs.iter();
    let taken: Vec<(Spread, Option<View<'_, T>>)> = operands[..function.arity()]
        .iter()
        .map(|operand| (*operand, operand.is_input().then(|| *inputs.next().expect("an input for each"))))
        .collect();
    for (operand, view) in &taken {
        match (operand, view) {
            (Spread::Whole | Spread::Plane, Some(view)) => require(view.region(), region),
            (Spread::Pixel, Some(view)) => require(view.region(), Region::whole([1, 1])),
            (Spread::Channel, _) => assert!(param.len() == 1 || param.len() == channels, "the parameter"),
            _ => {}
        }
    }
    fill(output, region, |n, c, y, x| {
        let mut values = [T::ZERO; 3];
        for (value, (operand, view)) in values.iter_mut().zip(&taken) {
            let channel = |channels: usize| if channels == 1 { 0 } else { c };
            *value = match (operand, view) {
                (Spread::Whole, Some(view)) => view.get(n, c, y, x),
                (Spread::Pixel, Some(view)) => view.get(n, channel(view.layout().channels()), 0, 0),
                (Spread::Plane, Some(view)) => view.get(n, 0, y, x),
                (Spread::Number(number), _) => T::from_f64(*number),
                _ => param[channel(param.len())],
            };
        }
        apply(function, values)
    });
}

fn apply<T: Element>(function: Arithmetic, [a, b, c]: [T; 3]) -> T {
    let half = T::from_f64(0.5);
    match function {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        Arithmetic::Div => a / b,
        Arithmetic::Minimum => {
            if a < b || a.is_nan() {
                a
            } else {
                b
            }
        }
        Arithmetic::Maximum => {
            if a > b || a.is_nan() {
                a
            } else {
                b
            }
        }
        Arithmetic::Prelu => {
            if a > T::ZERO {
                a
            } else {
                b * a
            }
        }
        Arithmetic::DivisorBackward => -a * ((b / c) / c),
        Arithmetic::MinimumBackward if b > c => T::ZERO,
        Arithmetic::MaximumBackward if b < c => T::ZERO,
        Arithmetic::MinimumBackward | Arithmetic::MaximumBackward => {
            if b == c {
                a * half
            } else {
                a
            }
        }
        Arithmetic::PreluBackward => {
            if b > T::ZERO {
                a
            } else {
                c * a
            }
        }
        Arithmetic::PreluSlope => {
            if b > T::ZERO {
                T::ZERO
            } else {
                a * b
            }
        }
    }
}

/// The sum over the channels, from the first to the last.
pub(super) fn sum_channels<T: Element>(input: View<'_, T>, output: &mut ViewMut<'_, T>, region: Region<2>) {
    require(input.region(), region);
    fill(output, region, |n, _, y, x| {
        let mut values = (0..input.layout().channels()).map(|c| input.get(n, c, y, x));
        let first = values.next().unwrap_or(T::ZERO);
        values.fold(first, |sum, value| sum + value)
    });
}
