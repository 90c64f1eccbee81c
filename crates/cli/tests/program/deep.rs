//! Networks that are deep, images that are tall, grids that are fine.

use crate::bed::Bed;

/// Convolutions of one channel, one after another.
fn chain(count: usize) -> String {
    let node = |number: usize| {
        let input = if number == 0 { "x".to_owned() } else { format!("c{}", number - 1) };
        serde_json::json!({
            "name": format!("c{number}"), "op": "conv2d", "inputs": [input],
            "out_channels": 1, "kernel_size": 3, "padding": 1
        })
    };
    serde_json::json!({
        "inputs": [{"name": "x", "channels": 1}],
        "nodes": (0..count).map(node).collect::<Vec<_>>(),
        "outputs": [format!("c{}", count - 1)]
    })
    .to_string()
}

#[test]
fn r08_a_chain_of_six_thousand_convolutions_runs() {
    let bed = Bed::new();
    bed.write("net.json", chain(6000).as_bytes());
    bed.random_npy("x.npy", &[1, 8, 8]);
    let run = ["run", "--net", "net.json", "--weights", "random:3", "--input", "x.npy", "--output"];
    let report = bed.json(&[&run[..], &["y.npy"]].concat());
    assert_eq!(report["outputs"], serde_json::json!([[1, 1, 8, 8]]));
    bed.json(&[&run[..], &["z.npy", "--hold", "slide", "--tile", "1x8"]].concat());
    assert!(bed.read("y.npy") == bed.read("z.npy"), "outputs differ");
}

#[test]
fn r15_a_grid_finer_than_the_output_is_clamped_to_it() {
    let bed = Bed::new();
    let plan = ["plan", "--net", "vgg2", "--input", "3x512x512", "--grid", "1000000x1000000", "--steps", "0"];
    let report = bed.json(&plan);
    assert_eq!(report["plan"]["sweeps"][0]["grid"]["counts"], serde_json::json!([128, 128]));
}
