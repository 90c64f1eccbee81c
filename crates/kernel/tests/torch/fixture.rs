//! Reading the cases of `tests/golden/torch`.

use serde_json::Value;
use tiled_geometry::Region;
use tiled_kernel::{Host, Kernel, Partial, Reduction, Reference};
use tiled_tensor::Tensor;
use tiled_testkit::conformance::Case;

/// Results were stored with 13 digits; sums of a few hundred terms in another order differ far less.
const RELATIVE: f64 = 2e-12;

/// One case of a file.
pub(crate) struct Fixture {
    value: Value,
}

/// The cases of a family; `run` is called with each.
pub(crate) fn each(family: &str, run: impl Fn(&Fixture)) {
    let path = format!("{}/../../tests/golden/torch/{family}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the fixture is committed");
    let document: Value = serde_json::from_str(&text).expect("the fixture is JSON");
    let cases = document["cases"].as_array().expect("cases");
    assert!(!cases.is_empty(), "{path} has cases");
    for value in cases {
        let fixture = Fixture { value: value.clone() };
        eprintln!("{family}: {} {}", fixture.op(), fixture.value["name"]);
        run(&fixture);
    }
}

impl Fixture {
    pub(crate) fn op(&self) -> &str {
        self.value["op"].as_str().expect("an operator")
    }

    pub(crate) fn attribute(&self, name: &str) -> &Value {
        &self.value["attributes"][name]
    }

    pub(crate) fn numbers(&self, name: &str) -> Vec<i64> {
        let list = self.attribute(name).as_array().expect("a list");
        list.iter().map(|number| number.as_i64().expect("a whole number")).collect()
    }

    pub(crate) fn pair(&self, name: &str) -> [i64; 2] {
        self.numbers(name).try_into().expect("two numbers")
    }

    /// An operand as a tensor of four axes, missing ones of extent one.
    pub(crate) fn operand(&self, name: &str) -> Tensor<f64> {
        tensor(&self.value["operands"][name])
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.value["operands"].get(name).is_some()
    }

    /// An operand as a flat list; empty where there is none.
    pub(crate) fn param(&self, name: &str) -> Vec<f64> {
        if self.has(name) { self.operand(name).data().to_vec() } else { Vec::new() }
    }

    pub(crate) fn output(&self) -> Tensor<f64> {
        tensor(&self.value["output"])
    }

    /// The gradient with respect to the output: `i / (n − 1)`.
    pub(crate) fn output_gradient(&self) -> Tensor<f64> {
        let shape = self.output().shape();
        let last = as_f64(shape.iter().product::<usize>().max(2) - 1);
        let mut numbers = (0..).map(as_f64);
        Tensor::from_fn(shape, |_| numbers.next().expect("endless") / last).expect("a small tensor")
    }

    pub(crate) fn check_output(&self, got: &[f64]) {
        close("output", got, self.output().data());
    }

    pub(crate) fn check_gradient(&self, name: &str, got: &[f64]) {
        close(name, got, tensor(&self.value["gradients"][name]).data());
    }

    pub(crate) fn check(&self, group: &str, name: &str, got: &[f64]) {
        close(name, got, tensor(&self.value[group][name]).data());
    }
}

/// What the reference computes over the whole output.
pub(crate) fn compute(
    kernel: Kernel,
    params: &[&[f64]],
    inputs: &[&Tensor<f64>],
    output: [usize; 4],
) -> Tensor<f64> {
    let params = params.iter().filter(|param| !param.is_empty()).map(|param| param.to_vec()).collect();
    let inputs = inputs.iter().map(|input| (*input).clone()).collect();
    Case { kernel, params, inputs, output }.whole(&Reference)
}

/// What the reference gathers over the whole domain.
pub(crate) fn reduce(
    reduction: Reduction,
    params: &[&[f64]],
    inputs: &[&Tensor<f64>],
    domain: [usize; 4],
) -> Partial<f64> {
    let views: Vec<_> = inputs.iter().map(|input| input.view()).collect();
    let mut partial = (&Reference as &dyn Host<f64>)
        .partial(&reduction, domain[0], domain[1])
        .expect("memory for a small reduction");
    Reference.reduce(&reduction, params, &views, Region::whole(extents(domain)), &mut partial);
    partial
}

/// The values of exact sums.
pub(crate) fn sums(partial: &Partial<f64>) -> Vec<f64> {
    match partial {
        Partial::Exact(sums) => sums.iter().map(tiled_kernel::ExactSum::value).collect(),
        _ => panic!("exact sums expected"),
    }
}

pub(crate) fn extents([.., height, width]: [usize; 4]) -> [i64; 2] {
    [height, width].map(|extent| i64::try_from(extent).expect("a small tensor"))
}

pub(crate) fn tensor(value: &Value) -> Tensor<f64> {
    let shape: Vec<usize> = value["shape"]
        .as_array()
        .expect("a shape")
        .iter()
        .map(|extent| usize::try_from(extent.as_u64().expect("an extent")).expect("small"))
        .collect();
    // lists are one channel each, matrices images of one pixel
    let shape = match shape[..] {
        [] => [1; 4],
        [channels] => [1, channels, 1, 1],
        [batch, channels] => [batch, channels, 1, 1],
        [batch, height, width] => [batch, 1, height, width],
        [n, c, h, w] => [n, c, h, w],
        _ => panic!("{} axes", shape.len()),
    };
    let mut data = value["data"].as_array().expect("data").iter();
    Tensor::from_fn(shape, |_| data.next().expect("enough data").as_f64().unwrap_or(f64::NAN))
        .expect("a small tensor")
}

fn close(what: &str, got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "elements of {what}");
    let scale =
        expected.iter().filter(|value| value.is_finite()).fold(1.0, |scale: f64, v| scale.max(v.abs()));
    for (at, (g, e)) in got.iter().zip(expected).enumerate() {
        let agrees = (g - e).abs() <= RELATIVE * scale || g == e || (g.is_nan() && e.is_nan());
        assert!(agrees, "{what} element {at} is {g:e}, PyTorch has {e:e}");
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn as_f64(number: usize) -> f64 {
    number as f64
}
