//! Gradients and training of some layers alone.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::bed::Bed;

/// The bytes of each tensor of a file of weights.
pub(crate) fn tensors(file: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let size = |number: u64| usize::try_from(number).expect("a small file");
    let data = 8 + size(u64::from_le_bytes(file[..8].try_into().expect("eight bytes")));
    let header: Value = serde_json::from_slice(&file[8..data]).expect("a header");
    let all = header.as_object().expect("an object").iter().filter(|(name, _)| *name != "__metadata__");
    let bytes = |tensor: &Value| {
        let at = |place: usize| data + size(tensor["data_offsets"][place].as_u64().expect("a number"));
        file[at(0)..at(1)].to_vec()
    };
    all.map(|(name, tensor)| (name.clone(), bytes(tensor))).collect()
}

fn bed() -> Bed {
    let bed = Bed::new();
    bed.random_npy("x.npy", &[2, 3, 70, 66]);
    bed.random_npy("t.npy", &[2, 1000, 1, 1]);
    bed
}

const NETWORK: [&str; 4] = ["--net", "resnet18", "--input", "x.npy"];

#[test]
fn layers_that_are_not_named_stay_as_they_are() {
    let bed = bed();
    let after = |steps: &str| {
        let train =
            ["--target", "t.npy", "--optimizer", "adamw", "--steps", steps, "--save", "w.safetensors"];
        let wanted = ["--only", "fc,layer4_1*,conv1.weight", "--eval", "bn1,layer1*", "--grid", "2x2"];
        bed.succeeds(&[&["train"], &NETWORK[..], &train, &wanted].concat());
        tensors(&bed.read("w.safetensors"))
    };
    let (once, twice) = (after("1"), after("2"));
    for (name, bytes) in &once {
        let is_trained = ["fc.", "layer4_1", "conv1.weight"].iter().any(|wanted| name.starts_with(wanted));
        let evaluates = ["bn1.", "layer1"].iter().any(|wanted| name.starts_with(wanted));
        let moves = if name.contains("running_") { !evaluates } else { is_trained };
        assert_eq!(twice[name] != *bytes, moves, "{name}");
    }
}

#[test]
fn gradients_of_named_layers_are_those_among_all() {
    let bed = bed();
    let gradients = |only: &[&str]| {
        let grad =
            ["--weights", "random:3", "--grad-weights", "g.safetensors", "--grid", "2x2", "--lanes", "2"];
        bed.succeeds(&[&["grad"], &NETWORK[..], &grad, only].concat());
        tensors(&bed.read("g.safetensors"))
    };
    let (all, some) = (gradients(&[]), gradients(&["--only", "layer4_1_conv2,fc.bias"]));
    let names: Vec<&str> = some.keys().map(String::as_str).collect();
    assert_eq!(names, ["fc.bias", "layer4_1_conv2.weight"]);
    assert!(some.iter().all(|(name, bytes)| all[name] == *bytes));
}

#[test]
fn names_that_the_network_has_not_are_told_before_the_work() {
    let bed = bed();
    let train = ["--target", "t.npy", "--save", "w.safetensors"];
    let error = bed.refused(&[&["train"], &NETWORK[..], &train, &["--only", "conv9"]].concat(), 2);
    assert!(
        error.contains("`conv9` is no input, parameter with a gradient, or node that has one"),
        "{error}"
    );
    let error = bed.refused(&[&["train"], &NETWORK[..], &train, &["--eval", "fc.weight"]].concat(), 2);
    assert!(error.contains("`fc.weight` is no node of the network"), "{error}");
    let error = bed.refused(&[&["train"], &NETWORK[..], &train, &["--only", "x"]].concat(), 2);
    assert!(error.contains("no gradient is left to compute"), "{error}");
    let error = bed.refused(&[&["plan"], &NETWORK[..], &["--only", "fc"]].concat(), 2);
    assert!(error.contains("--train"), "{error}");
    assert!(!bed.path("w.safetensors").exists());
    let gradient = ["--weights", "random:3", "--grad-input", "gx.npy", "--only", "fc"];
    let error = bed.refused(&[&["grad"], &NETWORK[..], &gradient].concat(), 2);
    assert!(error.contains("no gradient is left to compute"), "{error}");
    let both = ["--grad-weights", "gw.safetensors"];
    let error = bed.refused(&[&["grad"], &NETWORK[..], &gradient, &both].concat(), 2);
    assert!(error.contains("grad-input"), "{error}");
}

#[test]
fn a_frozen_stem_takes_less_work() {
    let bed = bed();
    let flops = |more: &[&str]| {
        let report = bed.json(&[&["plan", "--train", "--steps", "0"], &NETWORK[..], more].concat());
        report["plan"]["flops"].as_f64().expect("a number")
    };
    assert!(flops(&["--only", "fc"]) < 0.5 * flops(&[]));
}
