//! Gradients of some inputs and parameters alone, and nodes that evaluate in a network that trains.

use tiled::exec::NoProgress;
use tiled::graph::{Graph, Hold, Loss, Mode, Objective, Op, PlanError, PlanOptions, Planner, UNLIMITED};
use tiled::kernel::Reference;
use tiled::prelude::CpuBackend;
use tiled_tests::{Done, Job, differing, recompute, slide, whole};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn training(wanted: Option<&[&str]>) -> Objective {
    Objective {
        outputs: true,
        grad_inputs: true,
        wanted: wanted.map(names),
        ..Objective::training(Loss::MeanSquaredError)
    }
}

fn run(name: &str, objective: Objective, options: &PlanOptions) -> (Job<f32>, Done<f32>) {
    let backend = CpuBackend::new().expect("an instruction set");
    let job = Job::<f32>::random(Graph::builtin(name).expect("built in"), 2, [67, 70], objective, 5);
    let plan = job.plan(&backend, options);
    let done = job.run(&backend, plan, 2, &NoProgress);
    (job, done)
}

#[test]
fn wanted_gradients_have_the_bits_that_they_have_among_all_and_others_are_not_computed() {
    let cases: [(&str, &[&str]); 4] = [
        ("unet", &["x", "head.bias"]),
        ("resnet18", &["layer4*", "fc", "bn1.weight"]),
        ("light", &["conv1"]),
        ("unet", &["merge1*"]),
    ];
    for (name, wanted) in cases {
        for options in [whole(), recompute([2, 3]), slide(1)] {
            // sums of weights depend on the lanes, which the planner chooses by the memory
            let options = PlanOptions { lanes: Some(2), ..options };
            let (job, all) = run(name, training(None), &options);
            let (_, some) = run(name, training(Some(wanted)), &options);
            assert_eq!(all.loss.map(f64::to_bits), some.loss.map(f64::to_bits), "{name}");
            assert!(options.hold == Hold::Materialise || some.tiles > 1, "{name}: {} tiles", some.tiles);
            let is_named = |param: &str| {
                let node = param.split('.').next();
                wanted.iter().any(|text| match text.strip_suffix('*') {
                    Some(prefix) => param.starts_with(prefix),
                    None => param == *text || node == Some(text),
                })
            };
            let mut count = 0;
            for (place, param) in job.parameters.tensors().iter().enumerate() {
                let is_wanted = all.gradients[place].is_some() && is_named(&param.name);
                match (&all.gradients[place], &some.gradients[place]) {
                    (Some(all), Some(some)) if is_wanted => {
                        assert_eq!(differing(all, some), 0, "{}", param.name);
                    }
                    (_, got) => assert!(!is_wanted && got.is_none(), "{} of {name}", param.name),
                }
                count += usize::from(is_wanted);
                let [all, some] = [&all, &some].map(|done| &done.parameters.tensors()[place].data);
                assert_eq!(differing(all, some), 0, "{} after the run", param.name);
            }
            assert!(count > 0, "{name}: nothing is wanted");
            assert_eq!(some.grad_inputs.len(), usize::from(wanted.contains(&"x")), "{name}");
            for (all, some) in all.grad_inputs.iter().zip(&some.grad_inputs) {
                assert_eq!(differing(all.data(), some.data()), 0, "{name}: gradient of the input");
            }
        }
    }
}

/// The arithmetic of an untiled plan.
fn flops(job: &Job<f32>, objective: &Objective) -> f64 {
    let options = PlanOptions { memory_bytes: Some(UNLIMITED), ..whole() };
    let plan = Planner::<f32>::new(&job.graph, &job.shapes, objective, &Reference).plan(&options);
    plan.expect("plans").flops
}

#[test]
fn a_frozen_stem_costs_its_forward_pass_alone() {
    let objective = Objective::training(Loss::MeanSquaredError);
    let graph = Graph::builtin("resnet18").expect("built in");
    let job = Job::<f32>::random(graph, 1, [224, 224], objective.clone(), 1);
    let forward = flops(&job, &Objective { mode: Mode::Train, ..Objective::inference() });
    let all = flops(&job, &objective);
    for head in [&["fc"][..], &["layer4*", "fc"]] {
        let backward: f64 = Planner::<f32>::new(&job.graph, &job.shapes, &objective, &Reference)
            .plan(&PlanOptions { memory_bytes: Some(UNLIMITED), ..whole() })
            .map(|plan| {
                let of = |name: &str| {
                    let is_head = head.iter().any(|head| name.starts_with(head.trim_end_matches('*')));
                    (is_head && name.contains(".grad")) || name.contains("loss")
                };
                let nodes = plan.program.nodes.entries().filter(|(_, node)| of(&node.name));
                nodes
                    .map(|(id, node)| {
                        let elements = node.extents[0] * node.extents[1];
                        let elements = f64::from(u32::try_from(elements).expect("small"));
                        let planes = f64::from(u32::try_from(node.batch * node.channels).expect("few"));
                        plan.program.work(id).map_or(0.0, |work| work.flops_per_element()) * planes * elements
                    })
                    .sum()
            })
            .expect("plans");
        let frozen = flops(&job, &Objective { wanted: Some(names(head)), ..objective.clone() });
        assert!(frozen <= 1.02 * (forward + backward), "{head:?}: {frozen:e} of {forward:e} + {backward:e}");
        assert!(frozen < 0.8 * all, "{head:?}: {frozen:e} of {all:e}");
    }
}

#[test]
fn nodes_that_evaluate_leave_their_statistics_and_drop_nothing() {
    let graph = Graph::builtin("resnet18").expect("built in");
    let norms = graph.nodes().iter().filter(|node| matches!(node.op, Op::BatchNorm(_)));
    let evaluated: Vec<String> = norms.map(|node| node.name.clone()).collect();
    for options in [whole(), recompute([2, 2])] {
        // all of them: as in evaluation
        let evaluation = Objective { mode: Mode::Eval, ..training(None) };
        let (job, expected) = run("resnet18", evaluation, &options);
        let objective = Objective { evaluated: evaluated.clone(), ..training(None) };
        let (_, got) = run("resnet18", objective, &options);
        assert!(options == whole() || got.tiles > 1, "{} tiles", got.tiles);
        assert_eq!(differing(expected.outputs[0].data(), got.outputs[0].data()), 0);
        for (expected, got) in expected.gradients.iter().zip(&got.gradients) {
            assert_eq!(expected.is_some(), got.is_some());
            assert_eq!(
                differing(expected.as_deref().unwrap_or_default(), got.as_deref().unwrap_or_default()),
                0
            );
        }
        // those of the stem alone: the others move
        let objective = Objective { evaluated: names(&["bn1", "layer1*"]), ..training(None) };
        let (_, got) = run("resnet18", objective, &options);
        for (before, after) in job.parameters.tensors().iter().zip(got.parameters.tensors()) {
            let is_kept = ["bn1.", "layer1"].iter().any(|name| before.name.starts_with(name));
            if before.name.contains("running_") {
                assert_eq!(differing(&before.data, &after.data) == 0, is_kept, "{}", before.name);
            }
        }
    }
}

#[test]
fn names_that_are_not_there_are_errors() {
    let graph = Graph::builtin("resnet18").expect("built in");
    let job = Job::<f32>::random(graph, 1, [64, 64], training(None), 1);
    let plan = |objective: &Objective| {
        Planner::<f32>::new(&job.graph, &job.shapes, objective, &Reference).plan(&PlanOptions::default())
    };
    for name in ["conv7", "relu1", "bn1.running_mean", "conv1.bias", "nothing*"] {
        let error = plan(&training(Some(&[name]))).expect_err("nothing of that name");
        assert_eq!(error, PlanError::NoGradient { name: name.to_owned() });
    }
    // an input in a training of parameters alone, and nothing at all
    for wanted in [&["x"][..], &[]] {
        let objective = Objective { grad_inputs: false, ..training(Some(wanted)) };
        assert_eq!(plan(&objective).expect_err("nothing to train"), PlanError::NothingWanted);
    }
    for name in ["conv7", "conv1.weight", "nothing*"] {
        let objective = Objective { evaluated: names(&[name]), ..training(None) };
        assert_eq!(plan(&objective).expect_err("no node"), PlanError::UnknownNode { name: name.to_owned() });
    }
}
