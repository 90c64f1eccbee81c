//! Every operator against torch in f64, and in f32 against the same: results and the gradient of every operand.
//!
//! `bindings/python/fixtures/torch_autograd.py` writes what is compared with.

mod edges;
mod operators;

use std::path::Path;
use std::sync::OnceLock;

use safetensors::SafeTensors;
use serde_json::Value;
use tiled_autograd::{Context, Result, Tensor};
use tiled_cpu::CpuBackend;
use tiled_kernel::Reference;
use tiled_tensor::Element;

struct Fixture {
    cases: Vec<Value>,
    values: Vec<f64>,
}

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/torch/autograd");
        let cases = std::fs::read(folder.join("cases.json")).expect("the fixture is there");
        let bytes = std::fs::read(folder.join("values.safetensors")).expect("the fixture is there");
        let file = SafeTensors::deserialize(&bytes).expect("the fixture is whole");
        let values = file.tensor("values").expect("it has values");
        Fixture {
            cases: serde_json::from_slice(&cases).expect("the fixture is JSON"),
            values: values.data().chunks(8).map(<f64 as Element>::from_le_bytes).collect(),
        }
    })
}

fn mixed(counter: u64) -> u64 {
    let z = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The values of an operand: multiples of 2⁻¹⁶ of a span, exact in both types.
pub(crate) fn drawn<T: Element>(seed: u64, count: usize, low: f64, span: f64) -> Vec<T> {
    let value = |i: usize| low + span * ((mixed(seed * 1_000_003 + i as u64 + 1) >> 48) as f64 / 65536.0);
    (0..count).map(|i| T::from_f64(value(i))).collect()
}

pub(crate) fn list<V: TryFrom<i64>>(value: &Value) -> Vec<V> {
    let whole = |value: &Value| V::try_from(value.as_i64().expect("a whole number")).ok().expect("in range");
    value.as_array().expect("a list").iter().map(whole).collect()
}

pub(crate) fn whole(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("a whole number")).expect("in range")
}

fn viewed<T: Element>(mut x: Tensor<T>, views: &Value) -> Result<Tensor<T>> {
    for view in views.as_array().expect("a list") {
        let argument = &view[1];
        x = match view[0].as_str().expect("a name") {
            "permute" => x.permute(&list(argument))?,
            "flip" => x.flip(&list(argument))?,
            "expand" => x.expand(&list(argument))?,
            "slice" => {
                let [axis, begin, end, step] = [1, 2, 3, 4].map(|at| whole(&view[at]));
                x.slice_step(axis.cast_signed(), begin, end, step)?
            }
            other => panic!("no view `{other}`"),
        };
    }
    Ok(x)
}

/// The largest difference, as a share of the largest reference.
fn apart<T: Element>(name: &str, got: &Tensor<T>, expected: &[f64]) -> f64 {
    let got = got.to_vec();
    assert_eq!(got.len(), expected.len(), "{name}");
    let largest = expected.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let mut apart = 0.0_f64;
    for (got, expected) in got.iter().zip(expected) {
        if got.is_nan() || expected.is_nan() {
            assert_eq!(got.is_nan(), expected.is_nan(), "{name}: {got} for {expected}");
        } else if got.to_f64() != *expected {
            apart = apart.max((got.to_f64() - expected).abs() / largest.max(f64::MIN_POSITIVE));
        }
    }
    apart
}

fn compare<T: Element>(bound: f64, kernels: &'static dyn tiled_autograd::Kernels<T>, threads: usize) {
    let context = Context::<T>::new(kernels, threads).expect("a context");
    let Fixture { cases, values } = fixture();
    let mut begin = 0;
    let mut next = |count: usize| {
        begin += count;
        &values[begin - count..begin]
    };
    let (mut failures, mut worst) = (Vec::new(), 0.0_f64);
    for (number, case) in cases.iter().enumerate() {
        let name = format!("case {number}, {case}");
        let operands = case["operands"].as_array().expect("a list");
        let shape: Vec<usize> = list(&case["result"]);
        let count: usize = shape.iter().product();
        let expected = next(count);
        let make = || -> Result<_> {
            let mut leaves = Vec::new();
            for operand in operands {
                let shape: Vec<usize> = list(&operand["shape"]);
                let (low, span) =
                    (operand["low"].as_f64().expect("low"), operand["span"].as_f64().expect("span"));
                let seed = operand["seed"].as_u64().expect("a seed");
                let leaf = context.from_slice(&shape, &drawn(seed, shape.iter().product(), low, span))?;
                leaves.push(if operand["gradient"] == true { leaf.with_gradient()? } else { leaf });
            }
            let inputs =
                leaves.iter().zip(operands).map(|(leaf, operand)| viewed(leaf.clone(), &operand["views"]));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            let y = operators::run(&context, &case["operator"], &case["attributes"], &inputs)?;
            let last = if count > 1 { count - 1 } else { 1 };
            let upstream: Vec<T> = match count {
                1 => vec![T::ONE],
                _ => (0..count).map(|i| T::from_f64(i as f64 / last as f64)).collect(),
            };
            if y.requires_grad() {
                y.backward_with(Some(&context.from_slice(y.shape(), &upstream)?), Default::default())?;
            }
            Ok((y, leaves))
        };
        let made = make();
        let gradients: Vec<&[f64]> = operands
            .iter()
            .filter(|operand| operand["gradient"] == true)
            .map(|operand| next(list::<usize>(&operand["shape"]).iter().product()))
            .collect();
        match made {
            Err(error) => failures.push(format!("{name}: {error}")),
            Ok((y, leaves)) => {
                if y.shape() != shape {
                    failures.push(format!("{name}: shape {:?}", y.shape()));
                    continue;
                }
                let mut check = |what: &str, got: &Tensor<T>, expected: &[f64]| {
                    let apart = apart(&name, got, expected);
                    worst = worst.max(apart);
                    if apart > bound {
                        failures.push(format!("{name}: {what} is {apart:.2e} of the largest off"));
                    }
                };
                check("the result", &y, expected);
                let needing = leaves.iter().filter(|leaf| leaf.requires_grad());
                for (position, (leaf, expected)) in needing.zip(gradients).enumerate() {
                    match leaf.grad() {
                        Some(gradient) => check(&format!("gradient {position}"), &gradient, expected),
                        None => assert!(expected.iter().all(|value| *value == 0.0), "{name}: no gradient"),
                    }
                }
            }
        }
    }
    eprintln!("{} cases, at most {worst:.2e} of the largest off, bound {bound:.0e}", cases.len());
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn there_are_cases_enough() {
    assert!(fixture().cases.len() >= 600);
}

/// The fast kernels of the instruction set that this machine, or `TILED_ISA`, has.
fn cpu() -> &'static CpuBackend {
    static CPU: OnceLock<CpuBackend> = OnceLock::new();
    CPU.get_or_init(|| CpuBackend::new().expect("the instruction set is known"))
}

#[test]
fn double_precision_agrees_with_torch() {
    compare::<f64>(1e-12, &Reference, 1);
    compare::<f64>(1e-12, cpu(), 2);
}

#[test]
fn single_precision_agrees_with_torch() {
    compare::<f32>(1e-5, &Reference, 1);
    compare::<f32>(1e-5, cpu(), 2);
}
