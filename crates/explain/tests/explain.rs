//! What a plan says of itself: text, JSON and pictures.

mod explain_xml;

use serde_json::Value;
use tiled_explain::{Explain, StepDetail};
use tiled_graph::program::SourceRole;
use tiled_graph::{
    Chunks, Graph, Hold, Id, Loss, Objective, Plan, PlanOptions, Planner, SweepNodeId, Tiling, ValueId, infer,
};
use tiled_kernel::Reference;

/// 001: conv, pool, conv, pool on 16×16, in 4×4 tiles.
const GOLDEN: &str = include_str!("../../../tests/golden/data/geometry_conv_pool_conv_pool_16x16.json");

fn plan(net: &str, extents: [usize; 2], objective: &Objective, options: &PlanOptions) -> Plan {
    let graph = Graph::builtin(net).expect("it is built in");
    let shapes = infer(&graph, 1, &[extents]).expect("infers");
    Planner::<f32>::new(&graph, &shapes, objective, &Reference).plan(options).expect("plans")
}

fn options(hold: Hold, grid: [i64; 2]) -> PlanOptions {
    PlanOptions { hold, tiling: Tiling::Grid(grid), ..PlanOptions::default() }
}

fn seed_001() -> Plan {
    plan("seed-001", [16, 16], &Objective::gradients(), &options(Hold::Recompute, [4, 4]))
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list.as_array().and_then(|list| list.iter().find(|item| item["name"] == name));
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[test]
fn json_regions_and_padding_of_tiles_equal_the_published_run() {
    let golden: Value = serde_json::from_str(GOLDEN).expect("the file is JSON");
    let json = seed_001().to_json(StepDetail::All);
    let steps = json["sweeps"][0]["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), 16);
    for tile in golden["tiles"].as_array().expect("a list") {
        let step = steps.iter().find(|step| step["tile"] == tile["tile"]).expect("a step per tile");
        let compared = [
            ("x.grad", "conv1.grad_input", &tile["input_grad"], None),
            ("conv1", "x", &tile["forward"][0]["out"], Some((&tile["forward"][0], "in"))),
            ("pool1", "conv1", &tile["forward"][1]["out"], Some((&tile["forward"][1], "in"))),
            ("conv2", "pool1", &tile["forward"][2]["out"], Some((&tile["forward"][2], "in"))),
            (
                "conv1.grad_input",
                "pool1.grad_input",
                &tile["backward"][0]["grad_in"],
                Some((&tile["backward"][0], "grad_out")),
            ),
            (
                "pool1.grad_input",
                "conv2.grad_input",
                &tile["backward"][1]["grad_in"],
                Some((&tile["backward"][1], "grad_out")),
            ),
            (
                "conv2.grad_input",
                "pool2.grad_input",
                &tile["backward"][2]["grad_in"],
                Some((&tile["backward"][2], "grad_out")),
            ),
            (
                "pool2.grad_input",
                "pool2.grad",
                &tile["backward"][3]["grad_in"],
                Some((&tile["backward"][3], "grad_out")),
            ),
        ];
        for (name, input, region, needed) in compared {
            let node = named(&step["nodes"], name);
            assert_eq!(&node["region"], region, "{} {name}", tile["tile"]);
            let Some((op, field)) = needed else { continue };
            let input = named(&node["inputs"], input);
            assert_eq!(input["region"], op[field], "{} {name}: input", tile["tile"]);
            let unclipped = &op[format!("{field}_unclipped")];
            assert_eq!(&input["unclipped"], unclipped, "{} {name}: unclipped", tile["tile"]);
            assert_eq!(input["padding"], op["pad"], "{} {name}: padding", tile["tile"]);
        }
    }
}

#[test]
fn the_steps_of_a_sliding_plan_partition_each_strip_of_each_node() {
    let plan = plan("light", [40, 48], &Objective::gradients(), &options(Hold::Slide, [5, 2]));
    let json = plan.to_json(StepDetail::All);
    let sweep = &json["sweeps"][0];
    let steps = sweep["steps"].as_array().expect("a list");
    assert_eq!(sweep["hold"], "slide");
    assert_eq!(steps.len() as u64, plan.sweeps[0].steps);
    assert!(steps.len() > 2, "one step for each strip shows nothing");
    for (place, node) in sweep["nodes"].as_array().expect("a list").iter().enumerate() {
        for col in 0..2 {
            let whole = plan.sweeps[0].region(SweepNodeId::new(place), [0, col]);
            let mut next = whole.rows().begin();
            for step in steps.iter().filter(|step| step["tile"][1] == col) {
                let nodes = step["nodes"].as_array().expect("a list");
                let Some(own) = nodes.iter().find(|own| own["name"] == node["name"]) else { continue };
                assert_eq!(own["region"][0], next, "{}", node["name"]);
                assert_eq!(own["region"][2], whole.cols().begin());
                next = own["region"][1].as_i64().expect("a number");
                if let Some(window) = own.get("window") {
                    let held = next - window["rows"][0].as_i64().expect("a number");
                    assert!(held <= window["ring"].as_i64().expect("a number"), "{}", node["name"]);
                }
            }
            assert_eq!(next, whole.rows().end(), "{}", node["name"]);
        }
    }
}

#[test]
fn a_limit_lists_the_first_steps_of_each_sweep() {
    let plan = seed_001();
    let all = plan.to_json(StepDetail::All);
    let some = plan.to_json(StepDetail::First(3));
    let steps = |json: &Value| json["sweeps"][0]["steps"].as_array().expect("a list").clone();
    assert_eq!(steps(&some), steps(&all)[..3]);
    assert_eq!(steps(&plan.to_json(StepDetail::None)), [] as [Value; 0]);
}

#[test]
fn streamed_json_equals_json_in_memory() {
    let plan = seed_001();
    let mut written = Vec::new();
    plan.write_json(&mut written, StepDetail::All).expect("memory does not fail");
    let read: Value = serde_json::from_slice(&written).expect("it is JSON");
    assert_eq!(read, plan.to_json(StepDetail::All));
}

#[test]
fn an_error_of_the_writer_ends_the_json() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = seed_001().write_json(&mut Full(5000), StepDetail::All).expect_err("it is full");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn arithmetic_and_memory_of_the_parts_add_up_to_those_of_the_plan() {
    for plan in [seed_001(), unet(Hold::Slide)] {
        let json = plan.to_json(StepDetail::None);
        let nodes = |sweep: &Value| sweep["nodes"].as_array().expect("a list").clone();
        let sweeps = json["sweeps"].as_array().expect("a list");
        let flops: f64 =
            sweeps.iter().flat_map(nodes).map(|node| node["flops"].as_f64().expect("a number")).sum();
        assert!((flops - plan.flops).abs() <= 1e-9 * plan.flops, "{flops} {}", plan.flops);
        let memory = json["memory"].as_object().expect("an object");
        let bytes: u64 = memory.values().map(|part| part.as_u64().expect("a number")).sum();
        assert_eq!(bytes, json["plan_peak_bytes"].as_u64().expect("a number"));
        for sweep in sweeps {
            for node in nodes(sweep).iter().filter(|node| node["slot"].is_u64()) {
                let slot = usize::try_from(node["slot"].as_u64().expect("a number")).expect("small");
                assert!(node["window_bytes"].as_u64() <= sweep["slot_bytes"][slot].as_u64(), "{node}");
            }
        }
    }
}

fn unet(hold: Hold) -> Plan {
    let objective = Objective::training(Loss::MeanSquaredError);
    plan("unet", [64, 96], &objective, &options(hold, [8, 2]))
}

#[test]
fn text_names_every_node_and_the_parts_of_the_memory() {
    for plan in [seed_001(), unet(Hold::Slide), unet(Hold::Materialise)] {
        let text = plan.to_text();
        for node in plan.sweeps.iter().flat_map(|sweep| &sweep.nodes) {
            let name = format!("  {} ", plan.program.nodes[node.node].name);
            assert!(text.contains(&name), "{name} is not in\n{text}");
        }
        for (part, bytes) in plan.memory.parts() {
            assert_eq!(text.lines().any(|line| line.starts_with(part)), bytes > 0, "{part} in\n{text}");
        }
    }
}

#[test]
fn text_tells_the_ways_to_hold_apart() {
    let recompute = seed_001().to_text();
    assert!(recompute.contains("recompute, 4×4 tiles of 1×1 over 4×4; 16 steps"), "{recompute}");
    let slide = unet(Hold::Slide).to_text();
    assert!(slide.contains("slide in bands of 8 rows, 2 strips of 48 of 96 columns"), "{slide}");
    let whole = unet(Hold::Materialise).to_text();
    assert!(whole.contains("materialise whole tensors, 64×96; 1 step"), "{whole}");
}

#[test]
fn pictures_are_well_formed_and_name_what_they_draw() {
    let seed = seed_001();
    let names = ["x", "conv1", "pool1", "conv2", "pool2.grad", "conv2.grad_input", "conv1.grad_input"];
    let texts = explain_xml::texts(&seed.to_svg());
    for name in names {
        // once under a panel and once under a bar
        assert_eq!(texts.iter().filter(|text| text == &name).count(), 2, "{name} in {texts:?}");
    }
    let unet = unet(Hold::Slide);
    let texts = explain_xml::texts(&unet.to_svg());
    for node in unet.sweeps[0].nodes.iter().filter(|node| !node.is_terminal()) {
        let node = &unet.program.nodes[node.node];
        let is_convolution = format!("{:?}", node.kind).contains("Conv2d");
        assert!(!is_convolution || texts.contains(&node.name), "{} in {texts:?}", node.name);
    }
}

#[test]
fn a_picture_of_several_sweeps_has_a_line_for_each() {
    let graph = Graph::builtin("vgg2").expect("it is built in");
    let pool1 = graph.nodes().iter().position(|node| node.name == "pool1").expect("it is there");
    let checkpoint = ValueId(graph.inputs().len() + pool1);
    let options = PlanOptions { checkpoints: Some(vec![checkpoint]), ..options(Hold::Slide, [4, 1]) };
    let plan = plan("vgg2", [64, 64], &Objective::training(Loss::Sum), &options);
    assert!(plan.sweeps.len() > 1);
    let texts = explain_xml::texts(&plan.to_svg_within(1 << 30));
    for number in 1..=plan.sweeps.len() {
        let heading = format!("Sweep {number} of {}", plan.sweeps.len());
        assert!(texts.contains(&heading), "{heading} in {texts:?}");
    }
    assert!(texts.iter().any(|text| text == "budget 1.00 GiB"), "{texts:?}");
}

#[test]
fn values_kept_between_sweeps_are_written_and_read_under_their_names() {
    let graph = Graph::builtin("resnet18").expect("it is built in");
    let shapes = infer(&graph, 2, &[[40, 40]]).expect("infers");
    let objective = Objective::training(Loss::Sum);
    let options = PlanOptions { hold: Hold::Slide, ..PlanOptions::default() };
    let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&options).expect("plans");
    assert!(!plan.program.stores.is_empty() && plan.sweeps.len() > 2);
    let json = plan.to_json(StepDetail::First(2));
    let mut stored = Vec::new();
    for sweep in json["sweeps"].as_array().expect("a list") {
        let nodes = sweep["nodes"].as_array().expect("a list");
        let names: Vec<&str> = nodes.iter().map(|node| node["name"].as_str().expect("a name")).collect();
        let distinct: std::collections::BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        for node in nodes.iter().filter(|node| node["kernel"] == "store") {
            let name = node["name"].as_str().expect("a name").trim_end_matches(".store").to_owned();
            match node["does"].as_str() {
                Some("write") => stored.push(name),
                does => assert!(does == Some("load") && stored.contains(&name), "{node}"),
            }
        }
        for step in sweep["steps"].as_array().expect("a list") {
            for node in step["nodes"].as_array().expect("a list") {
                let inputs = node["inputs"].as_array().expect("a list");
                let facts = named(&sweep["nodes"], node["name"].as_str().expect("a name"));
                let read: Vec<&Value> = inputs.iter().map(|input| &input["name"]).collect();
                assert_eq!(read, facts["inputs"].as_array().expect("a list").iter().collect::<Vec<_>>());
            }
        }
    }
    assert!(!stored.is_empty());
    let texts = explain_xml::texts(&plan.to_svg());
    assert_eq!(texts.iter().filter(|text| text.starts_with("Sweep ")).count(), plan.sweeps.len());
}

#[test]
fn pictures_of_extreme_shapes_are_well_formed() {
    for extents in [[4, 4096], [4096, 4], [4, 4]] {
        let plan = plan("light", extents, &Objective::inference(), &PlanOptions::default());
        assert!(explain_xml::texts(&plan.to_svg()).contains(&"conv4".to_owned()));
    }
}

/// The text under "Reading a plan". To bring it up to date, copy what the example `pictures` writes beside the picture.
#[test]
fn the_book_shows_the_text_of_a_plan_as_it_is() {
    let page = include_str!("../../../docs/src/concepts/plans-and-budgets.md");
    let tiling = Tiling::Tile([2, 43]);
    let options = PlanOptions { hold: Hold::Slide, tiling, ..PlanOptions::default() };
    let text = plan("light", [512, 512], &Objective::inference(), &options).to_text();
    for line in text.lines().filter(|line| !line.is_empty()) {
        // the prediction depends on constants that are measured anew
        let line = line.split("; predicted").next().unwrap_or(line);
        assert!(page.contains(line), "not in the book: {line}");
    }
}

#[test]
fn chunks_of_a_source_are_told_with_their_bytes_and_reads() {
    let chunks = vec![(SourceRole::Input(0), Chunks::new([8, 16], 1).expect("not empty"))];
    let plan = plan(
        "seed-001",
        [64, 64],
        &Objective::inference(),
        &PlanOptions { chunks, ..options(Hold::Slide, [8, 2]) },
    );
    let text = plan.to_text();
    assert!(text.contains("`x` in chunks of 8×16: "), "{text}");
    assert!(text.contains(" held, 32 reads of 32\n"), "{text}");
    assert!(text.contains("\nchunks "), "{text}");
    let json = plan.to_json(StepDetail::None);
    assert_eq!(json["memory"]["chunks_bytes"], plan.memory.chunks_bytes);
    let cache = &json["sweeps"][0]["chunks"][0];
    assert_eq!((&cache["name"], &cache["reads"], &cache["count"]), (&"x".into(), &32.into(), &32.into()));
}
