//! Functions of one value, arithmetic of several, resampling and adaptive pooling, with their gradients, against PyTorch
//! (`torch/elementwise.json`, `torch/resize.json`).

use serde_json::Value;
use tiled::cpu::{CpuBackend, Isa};
use tiled::exec::NoProgress;
use tiled::graph::{Graph, Loss, Objective, ParamTensor, Parameters, infer_nchw, params};
use tiled::kernel::{Backend, Reference};
use tiled::tensor::Tensor;
use tiled_tests::{Done, Job, differing, recompute, slide, whole};

use crate::data::items;

/// Results have 13 digits, of which the last may be off by half a unit: up to 5e-13 of a value.
const TOLERANCE: f64 = 1e-12;

fn cases(family: &str) -> Vec<Value> {
    let path = format!("{}/golden/torch/{family}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut file: Value = serde_json::from_str(&text).expect("the file is JSON");
    match file["cases"].take() {
        Value::Array(cases) => cases,
        other => panic!("{other} is a list"),
    }
}

/// Null is NaN.
fn numbers(tensor: &Value) -> Vec<f64> {
    items(&tensor["data"]).iter().map(|number| number.as_f64().unwrap_or(f64::NAN)).collect()
}

fn shape(tensor: &Value) -> Vec<usize> {
    let extent = |extent: &Value| usize::try_from(extent.as_u64().expect("an extent")).expect("small");
    items(&tensor["shape"]).iter().map(extent).collect()
}

fn image(tensor: &Value) -> Tensor<f64> {
    let (data, shape) = (numbers(tensor), shape(tensor));
    let mut data = data.into_iter();
    Tensor::from_fn(shape.try_into().expect("NCHW"), |_| data.next().expect("enough")).expect("small")
}

fn job(case: &Value) -> Job<f64> {
    let graph = Graph::from_json(&case["network"].to_string()).expect("a network");
    let again = Graph::from_json(&graph.to_json()).expect("what was written is read");
    assert_eq!(again, graph, "{}", case["name"]);
    let inputs: Vec<Tensor<f64>> =
        graph.inputs().iter().map(|input| image(&case["inputs"][&input.name])).collect();
    let shapes: Vec<[usize; 4]> = inputs.iter().map(Tensor::shape).collect();
    let shapes = infer_nchw(&graph, &shapes).expect("fits");
    let tensors = params(&graph).into_iter().map(|spec| {
        let tensor = &case["parameters"][&spec.name];
        ParamTensor::new(&spec.name, shape(tensor), numbers(tensor)).expect("as many as the shape says")
    });
    let parameters = Parameters::new(&params(&graph), tensors.collect()).expect("the parameters");
    let output = shapes.shape(graph.outputs()[0]);
    let last = as_f64(output.iter().product::<usize>().max(2) - 1);
    let mut count = 0..;
    let gradient = Tensor::from_fn(output, |_| as_f64(count.next().expect("endless")) / last).expect("small");
    let objective = Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::GradOutput) };
    let target = gradient.clone();
    Job { graph, shapes, objective, inputs, target, grad_outputs: vec![gradient], parameters }
}

fn as_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("small"))
}

fn assert_near(what: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}: elements");
    let size = want.iter().filter(|want| want.is_finite()).fold(1.0, |size: f64, want| size.max(want.abs()));
    for (place, (got, want)) in got.iter().zip(want).enumerate() {
        let is_near = (got - want).abs() <= TOLERANCE * size || (got.is_nan() && want.is_nan());
        assert!(is_near || got == want, "{what}, element {place}: {got}, want {want}");
    }
}

fn assert_same(what: &str, got: &Done<f64>, whole: &Done<f64>) {
    let gradients = |done: &Done<f64>| done.gradients.iter().flatten().flatten().copied().collect::<Vec<_>>();
    let data = |tensors: &[Tensor<f64>]| -> Vec<f64> {
        tensors.iter().flat_map(|tensor| tensor.data().to_vec()).collect()
    };
    assert_eq!(differing(&data(&got.outputs), &data(&whole.outputs)), 0, "{what}: outputs");
    assert_eq!(differing(&data(&got.grad_inputs), &data(&whole.grad_inputs)), 0, "{what}: input gradients");
    let (got, whole) = (gradients(got), gradients(whole));
    assert_eq!(got.len(), whole.len(), "{what}: weight gradients");
}

#[test]
fn functions_and_arithmetic_have_the_numbers_and_gradients_of_pytorch() {
    assert_family("elementwise", 500);
}

#[test]
fn resampling_and_adaptive_pooling_have_the_numbers_and_gradients_of_pytorch() {
    assert_family("resize", 200);
}

/// Runs every case of a family on every backend, untiled and tiled; more runs than `least` have several tiles.
fn assert_family(family: &str, least: u32) {
    let cpus: Vec<CpuBackend> = [Isa::Portable, Isa::Avx2, Isa::Avx512]
        .into_iter()
        .filter_map(|isa| CpuBackend::with_isa(isa).ok())
        .collect();
    let cpus = cpus.iter().map(|cpu| cpu as &dyn Backend<f64>);
    let backends: Vec<&dyn Backend<f64>> = cpus.chain([&Reference as &dyn Backend<f64>]).collect();
    let mut tiled = 0;
    for case in cases(family) {
        let job = job(&case);
        for backend in &backends {
            let plan = job.plan(*backend, &whole());
            let untiled = job.run(*backend, plan, 2, &NoProgress);
            for options in [whole(), recompute([2, 3]), slide(2)] {
                let what = format!("{} on {} with {:?}", case["name"], backend.name(), options.hold);
                let got = job.run(*backend, job.plan(*backend, &options), 2, &NoProgress);
                tiled += u32::from(got.tiles > 1);
                assert_near(&what, got.outputs[0].data(), &numbers(&case["output"]));
                for (input, gradient) in job.graph.inputs().iter().zip(&got.grad_inputs) {
                    let what = format!("{what}: gradient of {}", input.name);
                    assert_near(&what, gradient.data(), &numbers(&case["gradients"][&input.name]));
                }
                for (spec, gradient) in params(&job.graph).iter().zip(&got.gradients) {
                    let what = format!("{what}: gradient of {}", spec.name);
                    let gradient = gradient.as_ref().expect("every parameter has one");
                    assert_near(&what, gradient, &numbers(&case["gradients"][&spec.name]));
                }
                assert_same(&what, &got, &untiled);
            }
        }
    }
    assert!(tiled > least, "{tiled} runs in more than one tile");
}
