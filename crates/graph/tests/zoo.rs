//! The built-in networks are the published ones.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use tiled_graph::{Graph, Op, ParamKind, builtin_names, infer, params};

fn shape(name: &str, batch: usize, input: [usize; 2]) -> [usize; 4] {
    let graph = Graph::builtin(name).unwrap();
    infer(&graph, batch, &[input]).unwrap().shape(graph.outputs()[0])
}

/// The trained parameters of a network.
fn trained(name: &str) -> usize {
    let specs = params(&Graph::builtin(name).unwrap());
    specs.iter().filter(|spec| spec.kind.is_trained()).map(|spec| spec.elements()).sum()
}

fn operators(name: &str) -> Vec<&'static str> {
    Graph::builtin(name).unwrap().nodes().iter().map(|node| node.op.name()).collect()
}

#[test]
fn every_built_in_network_is_valid_and_survives_a_round_trip() {
    let names: Vec<&str> = builtin_names().collect();
    assert_eq!(names, ["seed-001", "seed-002", "vgg2", "light", "vgg16", "darknet19", "resnet18", "unet"]);
    for name in names {
        let graph = Graph::builtin(name).unwrap();
        assert_eq!(Graph::from_json(&graph.to_json()).unwrap(), graph, "{name}");
        assert_eq!(graph.inputs().len(), 1, "{name}");
        assert_eq!(graph.outputs(), [graph.node_value(graph.nodes().len() - 1)], "{name}");
    }
    assert_eq!(Graph::builtin("vgg17"), None);
}

#[test]
fn seeds_are_the_networks_of_the_golden_data() {
    assert_eq!(operators("seed-001"), ["conv2d", "max_pool2d", "conv2d", "max_pool2d"]);
    assert_eq!(operators("seed-002"), ["conv2d", "conv2d", "conv2d", "max_pool2d", "conv2d"]);
    assert_eq!(shape("seed-001", 1, [16, 16]), [1, 1, 4, 4]);
    assert_eq!(shape("seed-002", 1, [64, 64]), [1, 1, 32, 32]);
    assert_eq!((trained("seed-001"), trained("seed-002")), (18, 36));
}

#[test]
fn vgg_trunks_have_the_published_number_of_parameters() {
    assert_eq!(trained("vgg2"), 260_160);
    assert_eq!(trained("vgg16"), 14_714_688); // torchvision's vgg16().features
    assert_eq!(trained("light"), 448 + 2_320 + 4_640 + 9_248);
    assert_eq!(shape("vgg2", 2, [2700, 5400]), [2, 128, 675, 1350]);
    assert_eq!(shape("light", 1, [16384, 16384]), [1, 32, 4096, 4096]);
    assert_eq!(shape("vgg16", 1, [224, 224]), [1, 512, 7, 7]);
}

#[test]
fn darknet19_has_its_18_convolutions_and_5_pools() {
    let count = |wanted| operators("darknet19").into_iter().filter(|name| *name == wanted).count();
    assert_eq!(["conv2d", "batch_norm", "leaky_relu", "max_pool2d"].map(count), [18, 18, 18, 5]);
    assert_eq!(shape("darknet19", 1, [224, 224]), [1, 1024, 7, 7]);
    assert_eq!(trained("darknet19"), 19_802_976 + 2 * 7_200);
}

#[test]
fn resnet18_has_the_published_number_of_parameters() {
    assert_eq!(trained("resnet18"), 11_689_512); // torchvision's resnet18
    assert_eq!(shape("resnet18", 2, [224, 224]), [2, 1000, 1, 1]);
    let specs = params(&Graph::builtin("resnet18").unwrap());
    assert_eq!(specs.iter().filter(|spec| spec.kind == ParamKind::RunningVar).count(), 20);
}

#[test]
fn the_unet_gives_an_image_of_the_size_of_every_input() {
    for size in [[675, 1350], [2700, 5400], [64, 64], [7, 4], [4, 9], [101, 53]] {
        assert_eq!(shape("unet", 1, size), [1, 3, size[0], size[1]]);
    }
    let graph = Graph::builtin("unet").unwrap();
    let concat = graph.nodes().iter().find(|node| node.op == Op::Concat).unwrap();
    assert_eq!(concat.inputs.len(), 2);
}

#[test]
fn the_documentation_lists_every_network_with_its_parameters() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/built-in-networks.md");
    let page = std::fs::read_to_string(page).unwrap();
    for name in builtin_names() {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        assert!(row.ends_with(&format!("| {} |", trained(name))), "{row}");
    }
}
