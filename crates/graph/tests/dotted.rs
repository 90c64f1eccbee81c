//! Names with dots, as PyTorch gives its modules: `layer1.0.conv1`.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use tiled_graph::{
    Activation, BatchNorm, Conv2d, Graph, Linear, Loss, Mode, Objective, Op, ParamKind, PlanError, ValueId,
    initialise, params,
};

const RELU: Op = Op::Activation(Activation::Relu);

fn conv() -> Op {
    Op::Conv2d(Conv2d::new(4, [3, 3]).padded([1, 1]))
}

/// The names of a small residual network as torchvision has them.
fn network() -> Graph {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 4).unwrap();
    let stem = graph.add_node("conv1", conv(), &[x]).unwrap();
    let mut last = stem;
    for block in ["layer1.0", "layer1.1", "layer10.0"] {
        last = graph.add_node(&format!("{block}.conv1"), conv(), &[last]).unwrap();
        let norm = Op::BatchNorm(BatchNorm::default());
        last = graph.add_node(&format!("{block}.downsample.1"), norm, &[last]).unwrap();
    }
    let pool = graph.add_node("avgpool", Op::GlobalAvgPool, &[last]).unwrap();
    let fc = graph.add_node("fc", Op::Linear(Linear::new(3)), &[pool]).unwrap();
    graph.set_outputs(&[fc]).unwrap();
    graph
}

fn wanted(names: &[&str]) -> Result<Vec<String>, PlanError> {
    let graph = network();
    let wanted = Some(names.iter().map(|name| (*name).to_owned()).collect());
    let objective = Objective { wanted, ..Objective::training(Loss::MeanSquaredError) };
    let specs = params(&graph);
    Ok(objective.param_grads(&graph)?.into_iter().map(|param| specs[param].name.clone()).collect())
}

#[test]
fn nodes_and_parameters_have_the_names_of_pytorch() {
    let graph = network();
    let names: Vec<String> = params(&graph).into_iter().map(|spec| spec.name).collect();
    assert_eq!(
        names[2..6],
        [
            "layer1.0.conv1.weight",
            "layer1.0.conv1.bias",
            "layer1.0.downsample.1.weight",
            "layer1.0.downsample.1.bias"
        ]
    );
    assert_eq!(graph.value("layer1.1.conv1"), Some(ValueId(4)));
    assert_eq!(Graph::from_json(&graph.to_json()).unwrap(), graph);
    let parameters = initialise::<f32>(&params(&graph), 1);
    assert_eq!(parameters.get("layer10.0.downsample.1.running_var").unwrap().data, [1.0; 4]);
}

#[test]
fn gradients_are_wanted_by_node_by_parameter_and_by_the_beginning() {
    let both = |node: &str| [format!("{node}.weight"), format!("{node}.bias")];
    assert_eq!(wanted(&["layer1.0.conv1"]).unwrap(), both("layer1.0.conv1"));
    assert_eq!(wanted(&["layer1.0.conv1.bias"]).unwrap(), ["layer1.0.conv1.bias"]);
    let of = ["layer1.0.conv1", "layer1.0.downsample.1", "layer1.1.conv1", "layer1.1.downsample.1"];
    // not layer10
    assert_eq!(wanted(&["layer1.*"]).unwrap(), of.map(both).concat());
    assert_eq!(wanted(&["layer1.0.*"]).unwrap(), of[..2].iter().copied().flat_map(both).collect::<Vec<_>>());
    assert_eq!(wanted(&["layer1.0.conv1.w*"]).unwrap(), ["layer1.0.conv1.weight"]);
    assert_eq!(wanted(&["layer1*"]).unwrap().len(), 12);
    // a module that is no node
    for name in ["layer1", "layer1.0", "layer1.0.", "conv1.0", "layer1.0.conv1.running_mean"] {
        let error = wanted(&[name]).unwrap_err();
        assert_eq!(error, PlanError::NoGradient { name: name.to_owned() });
    }
}

#[test]
fn nodes_evaluate_by_the_beginning_of_their_names() {
    let graph = network();
    let evaluated = |name: &str| {
        let objective = Objective {
            mode: Mode::Train,
            evaluated: vec![name.to_owned()],
            ..Objective::training(Loss::MeanSquaredError)
        };
        objective.param_grads(&graph)
    };
    assert!(evaluated("layer1.*").is_ok() && evaluated("layer1.1.downsample.1").is_ok());
    let error = evaluated("layer1.1").unwrap_err();
    assert_eq!(error, PlanError::UnknownNode { name: "layer1.1".to_owned() });
}

#[test]
fn parameters_are_shared_by_names_with_dots() {
    let mut graph = network();
    let x = graph.value("x").unwrap();
    let shared = [(ParamKind::Weight, "layer1.0.conv1.weight")];
    graph.add_node_sharing("layer2.0.conv1", conv(), &[x], &shared).unwrap();
    assert_eq!(graph.nodes().last().unwrap().shared[0].node, 1);
    let error = graph.add_node_sharing("c", conv(), &[x], &[(ParamKind::Weight, "layer1.0.weight")]);
    let message = error.unwrap_err().to_string();
    assert!(
        message.starts_with("conv2d `c`: `weight` names `layer1.0.weight`, no node before it has"),
        "{message}"
    );
}

#[test]
fn a_name_that_could_be_read_in_two_ways_is_refused() {
    let start = || {
        let mut graph = Graph::new();
        let x = graph.add_input("x", 4).unwrap();
        (graph, x)
    };
    // the node after the parameter
    let (mut graph, x) = start();
    let a = graph.add_node("m.a", conv(), &[x]).unwrap();
    let before = graph.clone();
    let error = graph.add_node("m.a.weight", RELU, &[a]).unwrap_err().to_string();
    assert_eq!(error, "relu `m.a.weight`: its name is that of the parameter `weight` of conv2d `m.a`");
    assert_eq!(graph, before, "a refused node changed the graph");
    // what the node has not is no parameter
    graph.add_node("m.a.running_mean", RELU, &[a]).unwrap();
    graph.add_node("m.a.weight.0", RELU, &[a]).unwrap();
    // the parameter after the node, and after an input
    let (mut graph, x) = start();
    graph.add_node("a.bias", RELU, &[x]).unwrap();
    let error = graph.add_node("a", conv(), &[x]).unwrap_err().to_string();
    assert_eq!(error, "relu `a.bias`: its name is that of the parameter `bias` of conv2d `a`");
    let mut graph = Graph::new();
    let x = graph.add_input("a.weight", 4).unwrap();
    let error = graph.add_node("a", conv(), &[x]).unwrap_err().to_string();
    assert_eq!(error, "input `a.weight`: its name is that of the parameter `weight` of conv2d `a`");
    // by the name that a node has for a parameter of another
    let (mut graph, x) = start();
    let a = graph.add_node("a", conv(), &[x]).unwrap();
    graph.add_node_sharing("b", conv(), &[a], &[(ParamKind::Weight, "a.weight")]).unwrap();
    let error = graph.add_node("b.weight", RELU, &[a]).unwrap_err().to_string();
    assert_eq!(error, "relu `b.weight`: its name is that of the parameter `weight` of conv2d `b`");
}

#[test]
fn parts_of_a_name_are_not_empty() {
    for name in ["", ".", "a.", ".a", "a..b"] {
        let mut graph = Graph::new();
        let message =
            format!("the name `{name}` must not be empty, nor begin or end with `.`, nor have `..`");
        assert_eq!(graph.add_input(name, 1).unwrap_err().to_string(), message);
        let x = graph.add_input("x.0", 1).unwrap();
        assert_eq!(graph.add_node(name, RELU, &[x]).unwrap_err().to_string(), message);
    }
}
