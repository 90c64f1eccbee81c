//! Networks, their texts, shapes and parameters, and plans: all that is made before a run.

use std::fmt::Write;

use tiled::cpu::CpuBackend;
use tiled::graph::{
    Activation, Conv2d, Graph, GraphError, Hold, Loss, Objective, Op, Parameters, PlanOptions, Planner,
    Tiling, UNLIMITED, ValueId, builtin_names, infer, infer_nchw, try_params,
};

use super::{Anything, all_refused, at_calls, at_every_call, builtin, training};
use tiled::tensor::with_room;
use tiled_tests::slide;

/// So many that lists of them are large.
const MANY: usize = 600;

/// The most calls of a plan, and of a search for one, that are refused one by one; of more, every so many.
const PLANNED: usize = 100;
const SEARCHED: usize = 40;

/// A chain of convolutions.
fn chain() -> Result<Graph, GraphError> {
    chain_of(MANY)
}

fn chain_of(count: usize) -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    let mut last = graph.add_input("x", 2)?;
    for place in 0..count {
        let conv = Conv2d::new(2, [3, 3]).padded([1, 1]);
        last = graph.add_node(&format!("c{place}"), Op::Conv2d(conv), &[last])?;
    }
    graph.set_outputs(&[last])?;
    Ok(graph)
}

/// One value that many read, a sum and a row of them all, and as many outputs.
fn fan() -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    let input = graph.add_input("x", 2)?;
    let stem =
        graph.add_node_from_json("stem", "conv2d", r#"{"out_channels": 1, "kernel_size": 1}"#, &[input])?;
    let mut outputs: Vec<ValueId> = with_room(MANY + 2)?;
    for place in 0..MANY {
        outputs.push(graph.add_node(&format!("r{place}"), Op::Activation(Activation::Sigmoid), &[stem])?);
    }
    let sum = graph.add_node("sum", Op::Add, &outputs)?;
    let row = graph.add_node("row", Op::Concat, &outputs)?;
    outputs.extend([sum, row]);
    graph.set_outputs(&outputs)?;
    Ok(graph)
}

/// Many inputs.
fn wide() -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    let mut inputs = with_room(MANY)?;
    for place in 0..MANY {
        inputs.push(graph.add_input(&format!("x{place}"), 1)?);
    }
    let sum = graph.add_node("sum", Op::Add, &inputs)?;
    graph.set_outputs(&[sum])?;
    Ok(graph)
}

/// Networks from the builder and from texts, and what is known of them without sizes of images.
pub(super) fn networks() -> usize {
    let mut points = 0;
    for (label, build) in
        [("a chain", chain as fn() -> Result<Graph, GraphError>), ("a fan", fan), ("many inputs", wide)]
    {
        points += at_every_call(&format!("{label}, built"), || Ok(build().map(drop)?));
        let graph = build().expect("there is memory");
        let text = graph.to_json();
        points += at_every_call(&format!("{label}, written"), || Ok(graph.try_to_json().map(drop)?));
        points += at_every_call(&format!("{label}, read"), || Ok(Graph::from_json(&text).map(drop)?));
        let slip = text.replace("\"outputs\": [", "\"outputs\": [\"q\", ");
        assert!(Graph::from_json(&slip).is_err(), "a name that is close to many");
        points += at_every_call(&format!("{label}, shapes"), || shapes(&graph));
        let specs = try_params(&graph).expect("there is memory");
        if !specs.is_empty() {
            points += at_every_call(&format!("{label}, parameters"), || {
                let specs = try_params(&graph)?;
                let weights = Parameters::<f32>::initialised(&specs, 3)?;
                Ok(Parameters::new(&specs, weights.into_tensors())?.check(&specs)?)
            });
        }
        if graph.nodes().len() < MANY {
            continue; // there is room for one more
        }
        let mut again = graph.clone();
        let mut add = || {
            let (name, last) = (format!("n{}", again.values()), ValueId(again.values() - 1));
            let added = again.add_node(&name, Op::Activation(Activation::Relu), &[last]);
            (added, again.values(), again.value(&name))
        };
        let (refused, values, found) = all_refused(&mut add);
        assert!(matches!(refused, Err(GraphError::OutOfMemory { .. })), "{label}: {refused:?}");
        assert_eq!((values, found), (graph.values(), None), "{label}: the network is as before");
        let (added, _, found) = add();
        assert_eq!(added.expect("there is memory again"), found.expect("it is named"), "{label}");
    }
    for name in builtin_names() {
        points += at_every_call(&format!("{name}, built in"), || Ok(Graph::try_builtin(name).map(drop)?));
    }
    points
}

fn shapes(graph: &Graph) -> Anything {
    let all = [[1, graph.inputs()[0].channels, 16, 16]; MANY];
    Ok(infer_nchw(graph, &all[..graph.inputs().len()]).map(drop)?)
}

/// Plans of networks of many nodes for given tilings.
pub(super) fn plans_of_many_nodes(cpu: &CpuBackend) -> usize {
    let sliding = PlanOptions { memory_bytes: Some(UNLIMITED), ..slide(4) };
    let tiles = PlanOptions { tiling: Tiling::Grid([2, 1]), hold: Hold::Recompute, ..sliding.clone() };
    let whole = PlanOptions { hold: Hold::Materialise, ..sliding.clone() };
    let mut points = 0;
    for (label, graph) in [("a chain", chain()), ("a fan", fan())] {
        let graph = graph.expect("there is memory");
        let checkpoints = (0..MANY / 100).map(|place| graph.node_value(100 * place)).collect();
        let cut = PlanOptions { checkpoints: Some(checkpoints), ..sliding.clone() };
        for (way, options) in
            [("sliding", &sliding), ("tiles", &tiles), ("whole", &whole), ("segments", &cut)]
        {
            for objective in [Objective::inference(), Objective::training(Loss::Sum)] {
                let label =
                    format!("{label}, {way}{}", if objective.loss.is_some() { ", training" } else { "" });
                points += plans(&label, &graph, [24, 24], cpu, &objective, options, PLANNED);
            }
        }
    }
    // very many tiles
    let graph = builtin("seed-001");
    for tiling in [Tiling::Grid([600, 1]), Tiling::Tile([2, 3])] {
        for hold in [Hold::Recompute, Hold::Slide] {
            let options = PlanOptions { tiling, hold, ..PlanOptions::default() };
            let options = PlanOptions { memory_bytes: Some(UNLIMITED), ..options };
            points += plans(
                &format!("{tiling:?}, {hold:?}"),
                &graph,
                [2400, 2000],
                cpu,
                &training(),
                &options,
                SEARCHED,
            );
        }
    }
    points
}

/// Plans of built-in networks that are searched for, within a budget.
pub(super) fn searches(cpu: &CpuBackend) -> usize {
    let mut points = 0;
    let networks = ["unet", "vgg2", "resnet18"].map(|name| (name, 64, builtin(name)));
    let light = ("light", 96, builtin("light"));
    let chain = ("a chain of a hundred", 32, chain_of(100).expect("there is memory"));
    for (name, side, graph) in networks.into_iter().chain([light, chain]) {
        for objective in [Objective::inference(), training()] {
            let options =
                PlanOptions { memory_bytes: Some(UNLIMITED), parallelism: 2, ..PlanOptions::default() };
            let shapes = infer(&graph, 2, &[[side, side]]).expect("it fits");
            let best = Planner::<f32>::new(&graph, &shapes, &objective, cpu).plan(&options).expect("a plan");
            let fixed = best.peak_bytes() - best.memory.windows_bytes - best.memory.stores_bytes;
            for budget in [UNLIMITED, (best.peak_bytes() + fixed) / 2] {
                let options = PlanOptions { memory_bytes: Some(budget), ..options.clone() };
                let mut label = name.to_owned();
                let is_trained = objective.loss.is_some();
                write!(label, ", {}", if is_trained { "training" } else { "inference" }).expect("a text");
                write!(label, "{}", if budget == UNLIMITED { "" } else { ", budget" }).expect("a text");
                points += plans(&label, &graph, [side; 2], cpu, &objective, &options, SEARCHED);
            }
        }
    }
    points
}

/// Shapes and a plan with calls refused, at most `most` of them; the plan after is the plan before.
fn plans(
    label: &str,
    graph: &Graph,
    extents: [usize; 2],
    cpu: &CpuBackend,
    objective: &Objective,
    options: &PlanOptions,
    most: usize,
) -> usize {
    let plan = || {
        let shapes = infer(graph, 2, &[extents])?;
        Planner::<f32>::new(graph, &shapes, objective, cpu).plan(options)
    };
    let expected = plan().map(|plan| plan.memory);
    if let Err(error) = &expected {
        assert!(error.to_string().starts_with("memory budget"), "{label}: {error}");
    }
    let points = at_calls(label, most, || match plan() {
        // a budget that is too small is said where the search came to its end
        Err(error) if expected.as_ref().is_err_and(|expected| *expected == error) => Ok(()),
        planned => Ok(planned.map(drop)?),
    });
    assert_eq!(plan().map(|plan| plan.memory), expected, "{label}");
    points
}
