//! Parameters that a run lets go of once they are packed.

use tiled_exec::{Cancel, ExecError, Executor, Io, MemorySink, NoProgress, Progress, Sink};
use tiled_graph::{
    BatchNorm, Conv2d, Graph, GroupNorm, Loss, Memory, Mode, Objective, Op, ParamKind, Parameters, Plan,
    PlanOptions, Planner, Prelu, Shapes, Tiling, ValueId, infer, initialise, params,
};
use tiled_kernel::Reference;

use crate::run::source;

/// A network, its sizes, and what is wanted of it.
struct Bed {
    graph: Graph,
    shapes: Shapes,
    objective: Objective,
}

impl Bed {
    fn new(graph: Graph, objective: Objective) -> Self {
        let shapes = infer(&graph, 2, &[[13, 10]]).expect("fits");
        Self { graph, shapes, objective }
    }

    fn plan(&self, releases_parameters: bool) -> Plan {
        let options =
            PlanOptions { releases_parameters, tiling: Tiling::Grid([3, 2]), ..PlanOptions::default() };
        let planner = Planner::<f64>::new(&self.graph, &self.shapes, &self.objective, &Reference);
        planner.plan(&options).expect("plans")
    }

    fn executor(&self, releases_parameters: bool) -> Executor<'static, f64> {
        Executor::new(self.plan(releases_parameters), &Reference, 2).expect("starts")
    }

    fn parameters(&self) -> Parameters<f64> {
        initialise(&params(&self.graph), 7)
    }

    /// The output and the gradient for the input, where they are wanted.
    fn run(
        &self,
        executor: &mut Executor<'_, f64>,
        parameters: &mut Parameters<f64>,
        progress: &dyn Progress,
    ) -> Result<Vec<u64>, ExecError> {
        let input_shape = self.shapes.all()[0];
        let output_shape = self.shapes.shape(self.graph.outputs()[0]);
        let (input, slope) = (source(input_shape, 3), source(output_shape, 4));
        let of = |is_wanted: bool, shape| is_wanted.then(|| MemorySink::<f64>::new(shape).expect("small"));
        let output = of(self.objective.outputs, output_shape);
        let gradient = of(self.objective.grad_inputs, input_shape);
        let io = Io {
            inputs: vec![&input],
            grad_outputs: vec![&slope],
            outputs: output.iter().map(|sink| sink as &dyn Sink<f64>).collect(),
            grad_inputs: gradient.iter().map(|sink| sink as &dyn Sink<f64>).collect(),
            ..Io::default()
        };
        executor.run(parameters, &io, progress)?;
        drop(io);
        let tensors = output.into_iter().chain(gradient).map(MemorySink::into_tensor);
        Ok(tensors.flat_map(|tensor| tensor.data().iter().map(|x| x.to_bits()).collect::<Vec<_>>()).collect())
    }

    /// The names of the parameters whose elements are gone.
    fn gone(parameters: &Parameters<f64>) -> Vec<&str> {
        let tensors = parameters.tensors().iter().enumerate();
        tensors
            .filter(|(at, _)| parameters.is_released(*at))
            .map(|(_, tensor)| tensor.name.as_str())
            .collect()
    }
}

fn conv(channels: usize) -> Op {
    Op::Conv2d(Conv2d::new(channels, [3, 3]).padded([1, 1]))
}

/// Every way in which parameters are read: `b` and `again` share their weight, norms keep theirs, and `unread` goes nowhere.
fn network() -> Graph {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 3).expect("new");
    let mut add = |name: &str, op: Op, from: ValueId| graph.add_node(name, op, &[from]).expect("fits");
    let a = add("a", conv(8), x);
    add("unread", conv(2), a);
    let normed = add("bn", Op::BatchNorm(BatchNorm::default()), a);
    let curved = add("curved", Op::Prelu(Prelu { num_parameters: 8, init: 0.25 }), normed);
    let b = add("b", conv(8), curved);
    let shared = [(ParamKind::Weight, "b.weight")];
    let again = graph.add_node_sharing("again", conv(8), &[b], &shared).expect("fits");
    let mut add = |name: &str, op: Op, from: ValueId| graph.add_node(name, op, &[from]).expect("fits");
    let grouped = add("gn", Op::GroupNorm(GroupNorm::new(2)), again);
    let last = add("last", conv(5), grouped);
    graph.set_outputs(&[last]).expect("known");
    graph
}

fn beds() -> Vec<(&'static str, Bed)> {
    let builtin = |name| Graph::builtin(name).expect("built in");
    let of_input =
        Objective { grad_params: false, grad_inputs: true, outputs: true, ..Objective::gradients() };
    let batches = Objective { mode: Mode::Train, ..Objective::inference() };
    vec![
        ("light", Bed::new(builtin("light"), Objective::inference())),
        ("unet", Bed::new(builtin("unet"), Objective::inference())),
        ("network", Bed::new(network(), Objective::inference())),
        ("network, statistics of the batch", Bed::new(network(), batches)),
        ("network, gradient for the input", Bed::new(network(), of_input)),
    ]
}

#[test]
fn runs_give_the_same_bits_as_with_all_parameters() {
    for (name, bed) in beds() {
        let (mut whole, mut parameters) = (bed.executor(false), bed.parameters());
        let expected = bed.run(&mut whole, &mut parameters, &NoProgress).expect("runs");
        let mut executor = bed.executor(true);
        assert!(executor.plan().tiles() > 1, "{name}: one tile");
        let mut parameters = bed.parameters();
        for time in 0..3 {
            let got = bed.run(&mut executor, &mut parameters, &NoProgress).expect("runs");
            assert_eq!(got, expected, "{name}, run {time}");
            assert!(!Bed::gone(&parameters).is_empty(), "{name}: all parameters are kept");
        }
        // other parameters, and then the same again
        let mut others = initialise(&params(&bed.graph), 8);
        let other = bed.run(&mut executor, &mut others, &NoProgress).expect("runs");
        assert_ne!(other, expected, "{name}");
        let got = bed.run(&mut executor, &mut bed.parameters(), &NoProgress).expect("runs");
        assert_eq!(got, expected, "{name}, after others");
    }
}

#[test]
fn what_is_read_again_stays() {
    let bed = Bed::new(network(), Objective::inference());
    let mut parameters = bed.parameters();
    bed.run(&mut bed.executor(true), &mut parameters, &NoProgress).expect("runs");
    let gone = [
        "a.weight",
        "a.bias",
        "curved.weight",
        "b.weight",
        "b.bias",
        "again.bias",
        "last.weight",
        "last.bias",
    ];
    assert_eq!(Bed::gone(&parameters), gone);
}

#[test]
fn parameters_with_gradients_stay() {
    let all = Objective { outputs: true, ..Objective::gradients() };
    let training = Objective::training(Loss::Sum);
    let later =
        Objective { grad_params: false, grad_inputs: true, ..Objective::training(Loss::GradOutputLater) };
    for objective in [all, training, later] {
        let bed = Bed::new(network(), objective);
        let (asked, kept) = (bed.plan(true), bed.plan(false));
        assert!(asked.releases.is_empty(), "{:?}", bed.objective);
        assert_eq!(asked.memory, kept.memory, "{:?}", bed.objective);
    }
}

#[test]
fn others_are_told_what_is_gone() {
    let bed = Bed::new(network(), Objective::inference());
    let (mut first, mut parameters) = (bed.executor(true), bed.parameters());
    let expected = bed.run(&mut first, &mut parameters, &NoProgress).expect("runs");
    for releases_parameters in [false, true] {
        let mut other = bed.executor(releases_parameters);
        let error = bed.run(&mut other, &mut parameters, &NoProgress).expect_err("they are gone").to_string();
        assert!(error.starts_with("parameter `") && error.contains("has let go of its elements"), "{error}");
    }
    // half of what is missing: nothing more is let go of
    let fresh = bed.parameters();
    let mut half = parameters.try_clone().expect("small");
    for (at, tensor) in fresh.tensors().iter().enumerate().filter(|(_, tensor)| tensor.name.starts_with("a."))
    {
        half.set(at, &tensor.data).expect("as many");
    }
    let before: Vec<String> = Bed::gone(&half).into_iter().map(str::to_owned).collect();
    let error =
        bed.run(&mut bed.executor(true), &mut half, &NoProgress).expect_err("half is gone").to_string();
    assert!(error.starts_with("parameter `"), "{error}");
    assert_eq!(Bed::gone(&half), before);
    // a norm that changes: the convolution that carries it out, and no other, wants its weight again
    let mut changed = parameters.try_clone().expect("small");
    changed.iter_mut().for_each(|(name, data)| {
        if name == "bn.weight" {
            data[0] += 1.0;
        }
    });
    let error = bed.run(&mut first, &mut changed, &NoProgress).expect_err("the norm has changed").to_string();
    assert!(error.starts_with("parameter `a.weight`"), "{error}");
    assert_eq!(Bed::gone(&changed), Bed::gone(&parameters));
    // what is given again, and what nothing was packed from
    let fresh = bed.parameters();
    for (at, tensor) in
        fresh.tensors().iter().enumerate().filter(|(at, _)| parameters.is_released(*at)).collect::<Vec<_>>()
    {
        parameters.set(at, &tensor.data).expect("as many");
    }
    assert_eq!(bed.run(&mut bed.executor(true), &mut parameters, &NoProgress).expect("runs"), expected);
    let mut holed = bed.parameters();
    let mean =
        holed.tensors().iter().position(|tensor| tensor.name == "bn.running_mean").expect("there is one");
    holed.release(mean);
    let error = bed.run(&mut first, &mut holed, &NoProgress).expect_err("it is gone").to_string();
    assert!(error.starts_with("parameter `bn.running_mean`"), "{error}");
    assert_eq!(Bed::gone(&holed), ["bn.running_mean"], "checks come first");
    let error = parameters.set(0, &[1.0]).expect_err("too few").to_string();
    assert!(error.contains("a.weight") && error.contains("216"), "{error}");
}

#[test]
fn a_run_that_fails_can_be_repeated() {
    let bed = Bed::new(network(), Objective::inference());
    let expected = bed.run(&mut bed.executor(false), &mut bed.parameters(), &NoProgress).expect("runs");
    let (mut executor, mut parameters) = (bed.executor(true), bed.parameters());
    let cancelled = Cancel::new();
    cancelled.cancel();
    let error = bed.run(&mut executor, &mut parameters, &cancelled).expect_err("it is cancelled");
    assert!(matches!(error, ExecError::Cancelled), "{error}");
    assert_eq!(bed.run(&mut executor, &mut parameters, &NoProgress).expect("runs"), expected);
    // a missing input is found before anything is let go of
    let mut parameters = bed.parameters();
    let error = executor.run(&mut parameters, &Io::default(), &NoProgress).expect_err("no input");
    assert!(matches!(error, ExecError::Missing { .. }), "{error}");
    assert!(Bed::gone(&parameters).is_empty());
}

#[test]
fn plans_count_the_most_that_is_held() {
    let bed = Bed::new(network(), Objective::inference());
    let (plan, kept) = (bed.plan(true), bed.plan(false));
    let bytes = |elements: usize| 8 * elements as u64;
    let packed = |node| plan.support[node].as_ref().map_or(0, |support| support.packed_bytes as u64);
    let given: u64 = plan.program.params.iter().map(|len| bytes(*len)).sum();
    let early: Vec<_> = plan.releases.iter().map(|release| release.node).collect();
    assert!(early.is_sorted_by_key(|node| std::cmp::Reverse(packed(*node))), "the largest first");
    let stamps: usize = plan.program.nodes.iter().map(|node| 8 * plan.program.stamp_len(&node.params)).sum();
    // one after the other, as they are packed
    let late =
        plan.program.nodes.entries().filter(|(id, node)| !early.contains(id) && !node.params.is_empty());
    let mut held = given + late.map(|(id, _)| packed(id)).sum::<u64>();
    let mut most = held;
    for release in &plan.releases {
        held += packed(release.node);
        most = most.max(held);
        held -= release.params.iter().map(|param| bytes(plan.program.params[*param])).sum::<u64>();
    }
    assert_eq!(plan.memory.parameters_bytes, held + stamps as u64);
    assert_eq!(plan.memory.before_sweeps_bytes, most - held);
    let parts: u64 = plan.memory.parts().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(plan.peak_bytes(), parts);
    let [values, packing] =
        [plan.memory.windows_bytes + plan.memory.stores_bytes, plan.memory.before_sweeps_bytes];
    let beside = parts - values.max(packing);
    let less_values = Memory { windows_bytes: 0, stores_bytes: 0, ..plan.memory };
    assert_eq!(less_values.total_bytes(), beside + packing, "packing counts where there are no values");
    let less_packing = Memory { before_sweeps_bytes: 0, ..plan.memory };
    assert_eq!(less_packing.total_bytes(), beside + values);
    assert!(most < given + early.iter().map(|node| packed(*node)).sum::<u64>());
    assert!(plan.memory.parameters_bytes < kept.memory.parameters_bytes);
}
