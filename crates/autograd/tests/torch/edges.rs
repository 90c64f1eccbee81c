//! Infinities, numbers that are not, ties, borders and nothing at all: what torch makes of them, element by element.
//!
//! `bindings/python/fixtures/torch_autograd_edges.py` writes what is compared with.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::Value;
use tiled_autograd::{Context, Kernels, Result};
use tiled_kernel::Reference;
use tiled_tensor::Element;

use crate::operators::{self, numbers};
use crate::{cpu, list};

/// The largest difference as a share of the larger of one and the value; infinite where one is no number and the other is, or they are
/// two infinities.
fn apart<T: Element>(got: &[T], expected: &[f64]) -> f64 {
    let differences = got.iter().zip(expected).map(|(got, expected)| {
        let got = got.to_f64();
        if got == *expected || got.is_nan() && expected.is_nan() {
            return 0.0;
        }
        let apart = (got - expected).abs() / expected.abs().max(1.0);
        if apart.is_nan() { f64::INFINITY } else { apart }
    });
    differences.fold(if got.len() == expected.len() { 0.0 } else { f64::INFINITY }, f64::max)
}

/// The shape of a case's result, its values, and those of the gradients.
fn run<T: Element>(context: &Context<T>, case: &Value) -> Result<(Vec<usize>, Vec<Vec<T>>)> {
    let mut leaves = Vec::new();
    for operand in case["operands"].as_array().expect("a list") {
        let values: Vec<T> = numbers(&operand["values"]).into_iter().map(T::from_f64).collect();
        let leaf = context.from_slice(&list::<usize>(&operand["shape"]), &values)?;
        leaves.push(if operand["gradient"] == true { leaf.with_gradient()? } else { leaf });
    }
    let y = operators::run(context, &case["operator"], &case["attributes"], &leaves)?;
    let upstream: Vec<T> = (0..y.elements()).map(|i| T::from_f64(i as f64 + 1.0)).collect();
    if y.requires_grad() {
        y.backward_with(Some(&context.from_slice(y.shape(), &upstream)?), Default::default())?;
    }
    let mut values = vec![y.to_vec()];
    for leaf in leaves.iter().filter(|leaf| leaf.requires_grad()) {
        values.push(leaf.grad().map_or_else(|| context.zeros(leaf.shape()), Ok)?.to_vec());
    }
    Ok((y.shape().to_vec(), values))
}

fn compare<T: Element>(bound: f64, kernels: &'static dyn Kernels<T>, threads: usize) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/torch/autograd/edges.json");
    let cases = std::fs::read(file).expect("the fixture is there");
    let cases: Vec<Value> = serde_json::from_slice(&cases).expect("the fixture is JSON");
    assert!(cases.len() > 500, "{} cases", cases.len());
    let context = Context::<T>::new(kernels, threads).expect("a context");
    let mut failures = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let (operator, attributes) = (&case["operator"], &case["attributes"]);
        let name = format!("case {number}, {operator} {attributes} of {}", case["operands"]);
        let (shape, values) = match catch_unwind(AssertUnwindSafe(|| run(&context, case))) {
            Ok(Ok(results)) => results,
            Ok(Err(error)) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
            Err(_) => {
                failures.push(format!("{name}: panics"));
                continue;
            }
        };
        if shape != list::<usize>(&case["shape"]) {
            failures.push(format!("{name}: shape {shape:?} for {}", case["shape"]));
        }
        // a rounding grows by the condition before it gets into the result, and four of them add up
        let bound = bound.max(4.0 * T::EPSILON.to_f64() * case["condition"].as_f64().unwrap_or(0.0));
        let expected = std::iter::once(&case["result"]).chain(case["gradients"].as_array().expect("a list"));
        for (what, (got, expected)) in values.iter().zip(expected).enumerate() {
            let expected = numbers(expected);
            if apart(got, &expected) > bound {
                failures.push(format!("{name}: {what} is\n    {got:?}, not\n    {expected:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn edges_agree_with_torch_in_double_precision() {
    compare::<f64>(1e-12, &Reference, 1);
    compare::<f64>(1e-12, cpu(), 2);
}

#[test]
fn edges_agree_with_torch_in_single_precision() {
    compare::<f32>(1e-5, &Reference, 1);
    compare::<f32>(1e-5, cpu(), 2);
}
