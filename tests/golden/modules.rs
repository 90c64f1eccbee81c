//! Networks that PyTorch trains for a few steps (`torch/modules.json`, `torch/norm_modules.json`), trained in tiles.

use serde_json::Value;
use tiled::cpu::CpuBackend;
use tiled::exec::{Executor, Io, MemorySink, MemorySource, NoProgress, Sgd, SgdOptions, Trainer};
use tiled::graph::{
    Graph, Loss, Mode, Objective, ParamTensor, Parameters, Plan, PlanOptions, Planner, infer_nchw, params,
};
use tiled::kernel::{Backend, Reference};
use tiled::tensor::{Element, Tensor};
use tiled_tests::{differing, recompute, slide, whole};

use crate::data::{items, number};

/// Results have 13 digits; nothing in a few steps magnifies the rounding of sums of 400 terms by more than 100.
const TOLERANCE: f64 = 1e-11;

/// What training leaves.
struct Trained<T: Element> {
    losses: Vec<f64>,
    parameters: Parameters<T>,
    evaluation: Tensor<T>,
    least_tiles: u64,
}

fn cases() -> Vec<Value> {
    ["modules", "norm_modules"].into_iter().flat_map(cases_of).collect()
}

fn cases_of(file: &str) -> Vec<Value> {
    let path = format!("{}/golden/torch/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut file: Value = serde_json::from_str(&text).expect("the file is JSON");
    match file["cases"].take() {
        Value::Array(cases) => cases,
        other => panic!("{other} is a list"),
    }
}

fn name(case: &Value) -> &str {
    case["name"].as_str().expect("a name")
}

fn numbers(tensor: &Value) -> Vec<f64> {
    items(&tensor["data"]).iter().map(number).collect()
}

fn shape(tensor: &Value) -> Vec<usize> {
    let extent = |extent: &Value| usize::try_from(extent.as_u64().expect("an extent")).expect("small");
    items(&tensor["shape"]).iter().map(extent).collect()
}

fn image<T: Element>(tensor: &Value) -> Tensor<T> {
    let (data, shape) = (numbers(tensor), shape(tensor));
    let shape: [usize; 4] = shape.try_into().expect("NCHW");
    let [_, channels, height, width] = shape;
    let at = |[n, c, y, x]: [usize; 4]| data[((n * channels + c) * height + y) * width + x];
    Tensor::from_fn(shape, |place| T::from_f64(at(place))).expect("small")
}

/// All that PyTorch's state has, also counters that the network has no use for.
fn state<T: Element>(graph: &Graph, tensors: &Value) -> Parameters<T> {
    let tensors = tensors.as_object().expect("tensors by name").iter().map(|(name, tensor)| {
        let data = numbers(tensor).into_iter().map(T::from_f64).collect();
        ParamTensor::new(name, shape(tensor), data).expect("as many as the shape says")
    });
    Parameters::new(&params(graph), tensors.collect()).expect("the parameters of the network")
}

fn plan<T: Element>(
    graph: &Graph,
    of: [usize; 4],
    objective: &Objective,
    backend: &dyn Backend<T>,
    options: &PlanOptions,
) -> Plan {
    let shapes = infer_nchw(graph, &[of]).expect("fits");
    Planner::new(graph, &shapes, objective, backend).plan(options).expect("plans")
}

fn train<T: Element>(case: &Value, backend: &dyn Backend<T>, options: &PlanOptions) -> Trained<T> {
    let graph = Graph::from_json(&case["network"].to_string()).expect("a network");
    let mut parameters = state::<T>(&graph, &case["parameters"]);
    let steps = items(&case["steps"]);
    let images: Vec<Tensor<T>> = steps.iter().map(|step| image(&step["x"])).collect();
    let objective = Objective::training(Loss::MeanSquaredError);
    let training = plan(&graph, images[0].shape(), &objective, backend, options);
    let tiles = training.tiles();
    let sgd =
        SgdOptions { lr: number(&case["lr"]), momentum: number(&case["momentum"]), ..SgdOptions::default() };
    let executor = Executor::new(training, backend, 2).expect("starts");
    let mut trainer = Trainer::new(executor, Sgd::new(sgd).expect("fits"));
    let losses = steps.iter().zip(&images).map(|(step, x)| {
        let target = image(&step["target"]);
        let (x, target) = (MemorySource::try_from(x).expect("whole"), MemorySource::try_from(&target));
        let target = target.expect("whole");
        let io = Io { inputs: vec![&x], target: Some(&target), ..Io::default() };
        trainer.step(&mut parameters, &io, &NoProgress).expect("trains").loss.expect("a loss")
    });
    let losses = losses.collect();

    let objective = Objective { mode: Mode::Eval, ..Objective::inference() };
    let evaluation = plan(&graph, images[0].shape(), &objective, backend, options);
    let least_tiles = tiles.min(evaluation.tiles());
    let output: [usize; 4] = shape(&case["evaluation"]).try_into().expect("NCHW");
    let (x, output) =
        (MemorySource::try_from(&images[0]).expect("whole"), MemorySink::new(output).expect("small"));
    let io = Io { inputs: vec![&x], outputs: vec![&output], ..Io::default() };
    let before = parameters.clone();
    let mut executor = Executor::new(evaluation, backend, 2).expect("starts");
    executor.run(&mut parameters, &io, &NoProgress).expect("runs");
    drop(io);
    assert_eq!(parameters, before, "{}: evaluation changes nothing", name(case));
    Trained { losses, parameters, evaluation: output.into_tensor(), least_tiles }
}

fn assert_near(what: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}: elements");
    for (place, (got, want)) in got.iter().zip(want).enumerate() {
        let bound = TOLERANCE * (1.0 + want.abs());
        assert!((got - want).abs() <= bound, "{what}, element {place}: {got}, want {want}");
    }
}

#[test]
fn networks_trained_in_tiles_have_the_numbers_of_pytorch() {
    let cpu = CpuBackend::new().expect("an instruction set");
    for case in cases() {
        for backend in [&cpu as &dyn Backend<f64>, &Reference] {
            for options in [whole(), recompute([2, 3]), slide(2)] {
                let what = format!("{} on {} with {:?}", name(&case), backend.name(), options.hold);
                let got = train::<f64>(&case, backend, &options);
                assert!(options == whole() || got.least_tiles > 1, "{what}: {} tiles", got.least_tiles);
                let losses: Vec<f64> =
                    items(&case["steps"]).iter().map(|step| number(&step["loss"])).collect();
                assert_near(&format!("{what}: loss"), &got.losses, &losses);
                let known = state::<f64>(
                    &Graph::from_json(&case["network"].to_string()).expect("a network"),
                    &case["after"],
                );
                for (got, want) in got.parameters.tensors().iter().zip(known.tensors()) {
                    assert_eq!((&got.name, &got.shape), (&want.name, &want.shape), "{what}");
                    assert_near(&format!("{what}: {}", got.name), &got.data, &want.data);
                }
                assert_near(&what, got.evaluation.data(), &numbers(&case["evaluation"]));
            }
        }
    }
}

#[test]
fn statistics_of_a_step_do_not_depend_on_the_tiles() {
    let cpu = CpuBackend::new().expect("an instruction set");
    for mut case in cases() {
        // of the second step on, weights may differ in their last bits
        case["steps"].as_array_mut().expect("steps").truncate(1);
        let of = |options: &PlanOptions| train::<f32>(&case, &cpu, options);
        let whole = of(&whole());
        for options in [recompute([2, 3]), slide(2)] {
            let tiled = of(&options);
            assert!(tiled.least_tiles > 1, "{} tiles", tiled.least_tiles);
            assert_eq!(tiled.losses[0].to_bits(), whole.losses[0].to_bits(), "{}", name(&case));
            let tensors = tiled.parameters.tensors().iter().zip(whole.parameters.tensors());
            for (tiled, whole) in tensors.filter(|(tensor, _)| !tensor.name.ends_with("weight")) {
                assert_eq!(differing(&tiled.data, &whole.data), 0, "{} of {}", tiled.name, name(&case));
            }
        }
    }
}
