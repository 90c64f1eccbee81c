//! Every number of run 001, from the system: both backends, both element types, whole and in tiles.

use serde_json::Value;
use tiled::cpu::CpuBackend;
use tiled::exec::NoProgress;
use tiled::graph::{Graph, Loss, Objective, ParamTensor, Parameters, PlanOptions, params};
use tiled::kernel::{Backend, Reference};
use tiled::tensor::{DType, Element, Tensor};
use tiled_tests::{Done, Job, differing, recompute, slide, whole};

use crate::data::{image, items, load, number, numbers, region};

const FILE: &str = "tensors_conv_pool_conv_pool_16x16.json";

/// What a run of the network, or of its last operators, starts from.
fn job<T: Element>(data: &Value, graph: Graph, input: &[f64], objective: Objective) -> Job<T> {
    let side = if input.len() == 256 { 16 } else { 8 };
    assert_eq!(input.len(), side * side);
    let mut job = Job::<T>::random(graph, 1, [side, side], objective, 1);
    job.inputs = vec![tensor(input)];
    let specs = params(&job.graph);
    let weights = specs.iter().map(|spec| {
        let name = spec.name.strip_suffix(".weight").expect("no other parameters");
        let values = image(&data["weights"][name]).into_iter().map(T::from_f64).collect();
        ParamTensor::new(&spec.name, vec![1, 1, 3, 3], values).expect("nine weights")
    });
    job.parameters = Parameters::new(&specs, weights.collect()).expect("all weights");
    job
}

fn tensor<T: Element>(values: &[f64]) -> Tensor<T> {
    let side = values.len().isqrt();
    Tensor::from_fn([1, 1, side, side], |[_, _, y, x]| T::from_f64(values[y * side + x])).expect("small")
}

/// The operators `from ..` of the network, as a network of their own.
fn tail(from: usize) -> Graph {
    let graph = Graph::builtin("seed-001").expect("built in");
    let mut tail = Graph::new();
    let mut last = tail.add_input("x", 1).expect("new");
    for node in &graph.nodes()[from..] {
        last = tail.add_node(&node.name, node.op.clone(), &[last]).expect("fits");
    }
    tail.set_outputs(&[last]).expect("known");
    tail
}

fn training() -> Objective {
    Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::Sum) }
}

/// Calls `check` with every backend, element type and way to hold.
fn for_each_run(check: fn(&Data, &dyn Runs)) {
    let data = Data { json: load(FILE) };
    let cpu = CpuBackend::new().expect("an instruction set");
    for options in [whole(), recompute([4, 4]), slide(1)] {
        check(&data, &Run::<f32> { backend: &cpu, options: options.clone() });
        check(&data, &Run::<f64> { backend: &cpu, options: options.clone() });
        check(&data, &Run::<f32> { backend: &Reference, options: options.clone() });
        check(&data, &Run::<f64> { backend: &Reference, options });
    }
}

struct Data {
    json: Value,
}

impl Data {
    fn tolerance(&self, key: &str) -> f64 {
        number(&self.json["tolerance"][key])
    }

    fn derived(&self, name: &str) -> Vec<f64> {
        image(&self.json["derived"][name])
    }

    fn printed(&self, name: &str) -> Vec<f64> {
        image(&self.json["printed"][name])
    }

    fn input(&self) -> Vec<f64> {
        image(&self.json["input"])
    }
}

struct Run<'b, T: Element> {
    backend: &'b dyn Backend<T>,
    options: PlanOptions,
}

/// A run of some operators on numbers, whatever its element type.
trait Runs {
    fn name(&self) -> String;
    fn dtype(&self) -> DType;
    /// Outputs, gradient of the input, gradients of weights, loss.
    fn run(
        &self,
        data: &Data,
        graph: Graph,
        input: &[f64],
        objective: Objective,
        seeds: Option<&[f64]>,
    ) -> Numbers;
}

struct Numbers {
    outputs: Vec<Vec<f64>>,
    grad_input: Vec<f64>,
    gradients: Vec<Vec<f64>>,
    loss: Option<f64>,
}

impl<T: Element> Runs for Run<'_, T> {
    fn name(&self) -> String {
        format!(
            "{} {} {:?} {:?}",
            self.backend.name(),
            T::DTYPE.name(),
            self.options.hold,
            self.options.tiling
        )
    }

    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn run(
        &self,
        data: &Data,
        graph: Graph,
        input: &[f64],
        objective: Objective,
        seeds: Option<&[f64]>,
    ) -> Numbers {
        let mut job = job::<T>(&data.json, graph, input, objective);
        job.grad_outputs = seeds.map(tensor).into_iter().collect();
        let done: Done<T> = job.run(self.backend, job.plan(self.backend, &self.options), 2, &NoProgress);
        let wide = |values: &[T]| values.iter().map(|value| value.to_f64()).collect::<Vec<f64>>();
        Numbers {
            outputs: done.outputs.iter().map(|tensor| wide(tensor.data())).collect(),
            grad_input: done.grad_inputs.first().map_or_else(Vec::new, |tensor| wide(tensor.data())),
            gradients: done.gradients.iter().flatten().map(|gradient| wide(gradient)).collect(),
            loss: done.loss,
        }
    }
}

#[track_caller]
fn assert_near(name: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{name}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!(
            (got - expected).abs() <= tolerance,
            "{name} [{i}]: {got}, expected {expected} ± {tolerance}"
        );
    }
}

impl Data {
    fn derived_tolerance(&self, run: &dyn Runs) -> f64 {
        match run.dtype() {
            DType::F32 => self.tolerance("derived_float32"),
            DType::F64 => self.tolerance("derived_float64"),
        }
    }
}

/// The network with every operator's output as an output.
fn all_outputs() -> Graph {
    let mut graph = tail(0);
    let values: Vec<_> = (0..4).map(|node| graph.node_value(node)).collect();
    graph.set_outputs(&values).expect("known");
    graph
}

#[test]
fn activations_equal_the_derived_and_the_printed_ones() {
    for_each_run(|data, run| {
        let done = run.run(data, all_outputs(), &data.input(), Objective::inference(), None);
        for (name, got) in ["conv1", "pool1", "conv2", "output"].iter().zip(&done.outputs) {
            let label = format!("{}: {name}", run.name());
            assert_near(&label, got, &data.derived(name), data.derived_tolerance(run));
        }
        let tolerance = data.tolerance("printed_pool1_from_input_and_weights");
        assert_near(&run.name(), &done.outputs[1], &data.printed("pool1"), tolerance);
    });
}

#[test]
fn the_loss_and_weight_gradients_equal_the_derived_ones() {
    for_each_run(|data, run| {
        let done = run.run(data, tail(0), &data.input(), training(), None);
        let tolerance = data.derived_tolerance(run);
        let loss = done.loss.expect("a loss");
        assert_near(&run.name(), &[loss], &[number(&data.json["derived"]["loss"])], tolerance);
        // tiles overlap: summed over whole tiles, outputs would count several times
        for (gradient, name) in done.gradients.iter().zip(["grad_weight_conv1", "grad_weight_conv2"]) {
            assert_near(&format!("{}: {name}", run.name()), gradient, &data.derived(name), tolerance);
        }
        assert_eq!(done.gradients.len(), 2);
    });
}

/// The gradient of each operator's output is that of the input of the operators behind it.
#[test]
fn gradients_equal_the_derived_and_the_printed_ones() {
    for_each_run(|data, run| {
        let forward = run.run(data, all_outputs(), &data.input(), Objective::inference(), None);
        let inputs = [&data.input(), &forward.outputs[0], &forward.outputs[1], &forward.outputs[2]];
        for (from, name) in ["grad_input", "grad_conv1", "grad_pool1", "grad_conv2"].iter().enumerate() {
            let label = format!("{}: {name}", run.name());
            let done = run.run(data, tail(from), inputs[from], training(), None);
            if *name != "grad_conv2" {
                assert_near(&label, &done.grad_input, &data.derived(name), data.derived_tolerance(run));
            }
            let tolerance = data.tolerance("printed_gradients_from_input_and_weights");
            assert_near(&label, &done.grad_input, &data.printed(name), tolerance);
        }
    });
}

#[test]
fn the_refined_input_reproduces_every_printed_digit() {
    for_each_run(|data, run| {
        let input = image(&data.json["input_refined"]);
        let slack =
            number(&data.json["tolerance"]["printed_from_input_refined_beyond_half_ulp"][run.dtype().name()]);
        let half_ulp = number(&data.json["printed_half_ulp"]);
        let forward = run.run(data, all_outputs(), &input, Objective::inference(), None);
        let halves = image(&data.json["printed"]["pool1_half_ulp"]);
        for ((got, printed), half) in forward.outputs[1].iter().zip(data.printed("pool1")).zip(halves) {
            assert!((got - printed).abs() <= half + slack, "{}: pool1 {got}, printed {printed}", run.name());
        }
        let inputs = [&input, &forward.outputs[0], &forward.outputs[1]];
        for (from, name) in ["grad_input", "grad_conv1", "grad_pool1"].iter().enumerate() {
            let done = run.run(data, tail(from), inputs[from], training(), None);
            let label = format!("{}: {name}", run.name());
            assert_near(&label, &done.grad_input, &data.printed(name), half_ulp + slack);
        }
    });
}

#[test]
fn maxima_lie_where_the_logs_say() {
    for_each_run(|data, run| {
        let forward = run.run(data, all_outputs(), &data.input(), Objective::inference(), None);
        let pool = |of: usize| {
            let mut graph = Graph::new();
            let x = graph.add_input("x", 1).expect("new");
            let op = all_outputs().nodes()[of].op.clone();
            let y = graph.add_node("pool", op, &[x]).expect("fits");
            graph.set_outputs(&[y]).expect("known");
            graph
        };
        for (name, of, input) in [("pool1", 1, &forward.outputs[0]), ("pool2", 3, &forward.outputs[2])] {
            let positions: Vec<usize> = items(&data.json["argmax"][name])
                .iter()
                .flat_map(items)
                .map(|position| usize::try_from(position.as_u64().expect("a position")).expect("small"))
                .collect();
            // each output sends another number back
            let seeds: Vec<f64> =
                (1..=positions.len()).map(|i| f64::from(u32::try_from(i).expect("few"))).collect();
            let objective = Objective { grad_params: false, ..Objective::gradients() };
            let done = run.run(data, pool(of), input, objective, Some(&seeds));
            let mut expected = vec![0.0; input.len()];
            for (seed, position) in seeds.iter().zip(positions) {
                expected[position] = *seed;
            }
            assert_eq!(done.grad_input, expected, "{}: {name}", run.name());
        }
    });
}

/// Each tile of the log started from ones on its outputs alone, and so printed partial sums outside `exact`.
#[test]
fn every_tile_of_the_log_is_reproduced_whole() {
    let geometry = load("geometry_conv_pool_conv_pool_16x16.json");
    let data = Data { json: load(FILE) };
    let run = Run::<f64> { backend: &Reference, options: recompute([2, 3]) };
    let forward = run.run(&data, all_outputs(), &data.input(), Objective::inference(), None);
    let inputs = [&data.input(), &forward.outputs[0], &forward.outputs[1], &forward.outputs[2]];
    let objective = Objective { grad_params: false, ..Objective::gradients() };
    let tolerance = data.tolerance("printed_gradients_from_input_and_weights");
    let tiles = items(&data.json["tiles"]);
    assert_eq!(tiles.len(), 16);
    for (tile, regions) in tiles.iter().zip(items(&geometry["tiles"])) {
        assert_eq!(numbers::<2>(&tile["tile"]), numbers::<2>(&regions["tile"]));
        let output = region(&regions["output"]);
        let ones: Vec<f64> = (0..16).map(|i| f64::from(u8::from(output.contains([i / 4, i % 4])))).collect();
        for (from, name) in ["grad_input", "grad_conv1", "grad_pool1", "grad_conv2"].iter().enumerate() {
            let partial = run.run(&data, tail(from), inputs[from], objective.clone(), Some(&ones)).grad_input;
            let whole = data.printed(name);
            let (held, exact) = (region(&tile[name]["region"]), region(&tile[name]["exact"]));
            let side = i64::try_from(whole.len().isqrt()).expect("small");
            let mut printed = image(&tile[name]["printed"]).into_iter();
            for y in held.rows().begin()..held.rows().end() {
                for x in held.cols().begin()..held.cols().end() {
                    let at = usize::try_from(y * side + x).expect("inside");
                    let printed = printed.next().expect("as many numbers as the region has");
                    let label = format!("tile {}: {name} ({y}, {x})", tile["tile"]);
                    assert!((partial[at] - printed).abs() <= tolerance, "{label}: {} {printed}", partial[at]);
                    if exact.contains([y, x]) {
                        assert!((whole[at] - printed).abs() <= tolerance, "{label}: {} {printed}", whole[at]);
                    }
                }
            }
            assert_eq!(printed.next(), None);
        }
    }
}

#[test]
fn tiles_equal_the_whole() {
    let data = load(FILE);
    fn check<T: Element>(data: &Value, backend: &dyn Backend<T>) {
        let job = job::<T>(data, tail(0), &image(&data["input"]), training());
        let run = |options: &PlanOptions| job.run(backend, job.plan(backend, options), 2, &NoProgress);
        let untiled = run(&whole());
        for options in [recompute([4, 4]), slide(1)] {
            let tiled = run(&options);
            assert!(tiled.tiles > 1);
            assert_eq!(differing(untiled.outputs[0].data(), tiled.outputs[0].data()), 0);
            assert_eq!(differing(untiled.grad_inputs[0].data(), tiled.grad_inputs[0].data()), 0);
            if T::DTYPE == DType::F64 {
                let tolerance = number(&data["tolerance"]["tile_vs_full_float64"]);
                for (a, b) in untiled.gradients.iter().flatten().zip(tiled.gradients.iter().flatten()) {
                    let wide = |values: &[T]| values.iter().map(|value| value.to_f64()).collect::<Vec<f64>>();
                    assert_near("weight gradient", &wide(b), &wide(a), tolerance);
                }
            }
        }
    }
    let cpu = CpuBackend::new().expect("an instruction set");
    check::<f32>(&data, &cpu);
    check::<f64>(&data, &cpu);
    check::<f64>(&data, &Reference);
}
