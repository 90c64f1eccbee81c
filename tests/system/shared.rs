//! Parameters that several nodes read: their gradients are sums, their optimiser state is one.

use tiled::exec::{
    AdamW, AdamWOptions, Executor, Io, MemorySource, NoProgress, Optimizer, Sgd, SgdOptions, Trainer,
};
use tiled::graph::{Graph, Loss, Mode, Objective, Parameters, Plan, PlanOptions};
use tiled::prelude::CpuBackend;
use tiled_tests::{Done, Job, differing, recompute, slide, whole};

/// Three convolutions, two norms and a transposed convolution that read `a`, `n` and `a` again; or copies of these.
fn network(shares: bool) -> Graph {
    let of = |text: &str| if shares { format!(", {text}") } else { String::new() };
    let (conv, weight, norm) = (
        of(r#""weight": "a.weight", "bias": "a.bias""#),
        of(r#""weight": "b.weight""#),
        of(r#""weight": "n.weight", "bias": "n.bias""#),
    );
    let sizes = r#""out_channels": 3, "kernel_size": 3, "padding": 1"#;
    let text = format!(
        r#"{{"inputs": [{{"name": "x", "channels": 3}}],
          "nodes": [{{"name": "a", "op": "conv2d", "inputs": ["x"], {sizes}}},
                    {{"name": "n", "op": "batch_norm", "inputs": ["a"]}},
                    {{"name": "r", "op": "relu", "inputs": ["n"]}},
                    {{"name": "b", "op": "conv2d", "inputs": ["r"], {sizes}{conv}}},
                    {{"name": "m", "op": "batch_norm", "inputs": ["b"]{norm}}},
                    {{"name": "c", "op": "conv2d", "inputs": ["m"], {sizes}{conv}}},
                    {{"name": "t", "op": "conv_transpose2d", "inputs": ["c"], {sizes}{weight}}}],
          "outputs": ["t"]}}"#
    );
    Graph::from_json(&text).expect("a network")
}

/// Each parameter of the network that shares, and those of the network of copies that it stands for, in the order of nodes.
const COPIES: [(&str, &[&str]); 9] = [
    ("a.weight", &["a.weight", "b.weight", "c.weight", "t.weight"]),
    ("a.bias", &["a.bias", "b.bias", "c.bias"]),
    ("n.weight", &["n.weight", "m.weight"]),
    ("n.bias", &["n.bias", "m.bias"]),
    ("n.running_mean", &["n.running_mean"]),
    ("n.running_var", &["n.running_var"]),
    ("m.running_mean", &["m.running_mean"]),
    ("m.running_var", &["m.running_var"]),
    ("t.bias", &["t.bias"]),
];

fn training(wanted: Option<&[&str]>, mode: Mode) -> Objective {
    Objective {
        mode,
        outputs: true,
        grad_inputs: true,
        wanted: wanted.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        ..Objective::training(Loss::MeanSquaredError)
    }
}

fn job(shares: bool, objective: Objective) -> Job<f32> {
    let mut job = Job::<f32>::random(network(shares), 2, [29, 34], objective, 5);
    if !shares {
        let shared = Job::<f32>::random(network(true), 2, [29, 34], job.objective.clone(), 5).parameters;
        copy(&shared, &mut job.parameters);
    }
    job
}

/// Gives every copy the values of what it is a copy of.
fn copy(shared: &Parameters<f32>, copies: &mut Parameters<f32>) {
    for (name, of) in COPIES {
        for copy in of {
            let values = &shared.get(name).expect("it is shared").data;
            let place = place(copies, copy);
            copies.data_mut(place).expect("there").copy_from_slice(values);
        }
    }
}

fn place(parameters: &Parameters<f32>, name: &str) -> usize {
    let mut tensors = parameters.tensors().iter();
    tensors.position(|tensor| tensor.name == name).unwrap_or_else(|| panic!("`{name}` is there"))
}

fn options() -> [PlanOptions; 3] {
    [whole(), recompute([2, 3]), slide(1)].map(|options| PlanOptions { lanes: Some(2), ..options })
}

fn run(job: &Job<f32>, options: &PlanOptions) -> Done<f32> {
    let backend = CpuBackend::new().expect("an instruction set");
    let done = job.run(&backend, job.plan(&backend, options), 2, &NoProgress);
    assert!(options.hold == whole().hold || done.tiles > 1, "{} tiles", done.tiles);
    done
}

/// The sum of the gradients of all copies, in the order of their nodes.
fn sum<'g>(of: &[&str], gradient: impl Fn(&str) -> &'g [f32]) -> Vec<f32> {
    let mut total = gradient(of[0]).to_vec();
    for copy in &of[1..] {
        for (total, share) in total.iter_mut().zip(gradient(copy)) {
            *total += share;
        }
    }
    total
}

fn assert_sums(shared: (&Job<f32>, &Done<f32>), copies: (&Job<f32>, &Done<f32>), what: &str) -> usize {
    let mut summed = 0;
    for (name, of) in COPIES {
        let place_of = |name: &str| place(&copies.0.parameters, name);
        let got = shared.1.gradients[place(&shared.0.parameters, name)].as_deref();
        if name.contains("running_") {
            assert_eq!(got, None, "{what}: {name}");
            continue;
        }
        let want = sum(of, |copy| copies.1.gradients[place_of(copy)].as_deref().expect("all are wanted"));
        assert_eq!(differing(got.expect("it is wanted"), &want), 0, "{what}: {name}");
        summed += usize::from(of.len() > 1);
    }
    summed
}

#[test]
fn the_gradient_is_the_sum_of_those_of_copies_bit_for_bit() {
    for mode in [Mode::Train, Mode::Eval] {
        for options in options() {
            let (with, without) = (job(true, training(None, mode)), job(false, training(None, mode)));
            let (shared, copies) = (run(&with, &options), run(&without, &options));
            let what = format!("{mode:?} {:?}", options.hold);
            assert_eq!(shared.loss.map(f64::to_bits), copies.loss.map(f64::to_bits), "{what}");
            assert_eq!(differing(shared.outputs[0].data(), copies.outputs[0].data()), 0, "{what}");
            assert_eq!(differing(shared.grad_inputs[0].data(), copies.grad_inputs[0].data()), 0, "{what}");
            assert_eq!(assert_sums((&with, &shared), (&without, &copies), &what), 4);
            // a second run on an executor that has run: nothing is left over from the first
            assert_eq!(differing(run(&with, &options).outputs[0].data(), shared.outputs[0].data()), 0);
        }
    }
}

#[test]
fn every_name_of_a_shared_parameter_wants_its_whole_gradient() {
    for options in options() {
        let all = run(&job(true, training(None, Mode::Train)), &options);
        for (wanted, names) in [
            (&["a.weight"][..], &["a.weight"][..]),
            (&["c.weight"], &["a.weight"]),
            (&["t.weight"], &["a.weight"]),
            (&["c"], &["a.weight", "a.bias"]),
            (&["t"], &["a.weight", "t.bias"]),
            (&["m*"], &["n.weight", "n.bias"]),
            (&["m.b*", "x"], &["n.bias"]),
            (&["a", "b", "c"], &["a.weight", "a.bias"]),
        ] {
            let job = job(true, training(Some(wanted), Mode::Train));
            let some = run(&job, &options);
            for (place, tensor) in job.parameters.tensors().iter().enumerate() {
                let is_wanted = names.contains(&tensor.name.as_str());
                assert_eq!(some.gradients[place].is_some(), is_wanted, "{wanted:?}: {}", tensor.name);
                if let (Some(some), Some(all)) = (&some.gradients[place], &all.gradients[place]) {
                    assert_eq!(differing(some, all), 0, "{wanted:?}: {}", tensor.name);
                }
            }
        }
    }
}

/// Runs two steps, and what an optimiser makes of the summed gradients of copies.
fn two_steps<O: Optimizer<f32>>(options: &PlanOptions, make: impl Fn() -> O) {
    let backend = CpuBackend::new().expect("an instruction set");
    let mut with = job(true, training(None, Mode::Train));
    let mut without = job(false, with.objective.clone());
    with.objective.outputs = false;
    with.objective.grad_inputs = false;
    let plan: Plan = with.plan(&backend, options);
    let mut trainer = Trainer::new(Executor::new(plan, &backend, 2).expect("starts"), make());
    let mut by_hand = make();
    let mut expected = with.parameters.clone();
    for step in 0..2 {
        let (x, target) = (MemorySource::try_from(&with.inputs[0]), MemorySource::try_from(&with.target));
        let (x, target) = (x.expect("whole"), target.expect("whole"));
        let io = Io { inputs: vec![&x], target: Some(&target), ..Io::default() };
        trainer.step(&mut with.parameters, &io, &NoProgress).expect("trains");

        copy(&expected, &mut without.parameters);
        let copies = run(&without, options);
        let trained = COPIES.iter().filter(|(name, _)| !name.contains("running_"));
        let gradients: Vec<(usize, Vec<f32>)> = trained
            .map(|(name, of)| {
                let gradient = |copy: &str| {
                    copies.gradients[place(&without.parameters, copy)].as_deref().expect("all are wanted")
                };
                (place(&expected, name), sum(of, gradient))
            })
            .collect();
        let mut values: Vec<(usize, &mut [f32])> =
            expected.iter_mut().map(|(_, values)| values).enumerate().collect();
        values.retain(|(place, _)| gradients.iter().any(|(other, _)| other == place));
        let mut sorted = gradients.clone();
        sorted.sort_by_key(|(place, _)| *place);
        let mut values: Vec<&mut [f32]> = values.into_iter().map(|(_, values)| values).collect();
        let slices: Vec<&[f32]> = sorted.iter().map(|(_, gradient)| gradient.as_slice()).collect();
        by_hand.step(&mut values, &slices).expect("finite");
        for (name, of) in COPIES.iter().filter(|(name, _)| name.contains("running_")) {
            let place = place(&expected, name);
            let moved = &copies.parameters.get(of[0]).expect("there").data;
            expected.data_mut(place).expect("there").copy_from_slice(moved);
        }
        for (got, want) in with.parameters.tensors().iter().zip(expected.tensors()) {
            assert_eq!(differing(&got.data, &want.data), 0, "{} after step {step}", got.name);
        }
    }
}

#[test]
fn two_steps_of_an_optimiser_move_a_shared_parameter_once() {
    for options in options() {
        two_steps(&options, || {
            Sgd::new(SgdOptions { lr: 0.05, momentum: 0.9, ..SgdOptions::default() }).expect("fits")
        });
        two_steps(&options, || {
            AdamW::new(AdamWOptions { lr: 0.05, ..AdamWOptions::default() }).expect("fits")
        });
    }
}

#[test]
fn a_node_that_leads_nowhere_adds_nothing() {
    let text = network(true).to_json().replace(r#""outputs": ["t"]"#, r#""outputs": ["m"]"#);
    let graph = Graph::from_json(&text).expect("a network");
    let lone = network(false).to_json().replace(r#""outputs": ["t"]"#, r#""outputs": ["m"]"#);
    let objective = training(None, Mode::Train);
    let shared = Job::<f32>::random(graph, 2, [29, 34], objective.clone(), 5);
    let mut copies =
        Job::<f32>::random(Graph::from_json(&lone).expect("a network"), 2, [29, 34], objective, 5);
    copy(&shared.parameters, &mut copies.parameters);
    for options in options() {
        let (with, without) = (run(&shared, &options), run(&copies, &options));
        let gradient =
            |name: &str| without.gradients[place(&copies.parameters, name)].as_deref().expect("all");
        let want = sum(&["a.weight", "b.weight"], gradient);
        let got = with.gradients[place(&shared.parameters, "a.weight")].as_deref().expect("wanted");
        assert_eq!(differing(got, &want), 0);
        assert!(with.gradients[place(&shared.parameters, "t.bias")].is_none(), "nothing reads it");
    }
}
