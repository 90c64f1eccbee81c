//! A part is what it would be alone.

use tiled_kernel::Reference;

use super::*;
use crate::index::Id;
use crate::parts::Parts;
use crate::program::NodeId;
use crate::schedule::repeat::tests::network;
use crate::select::select;
use crate::sweep::sweeps;
use crate::{Graph, Loss, Objective, Rng, infer, lower};

/// Compares the parts of the sweeps of a training with what each of them needs by itself; the parts, and those that have a
/// demand in common with an earlier one.
fn compare(label: &str, graph: &Graph, extents: [usize; 2], count: i64) -> [usize; 2] {
    let shapes = infer(graph, 1, &[extents]).expect("shapes");
    let program = lower(graph, &shapes, &Objective::training(Loss::Sum), &[]).expect("a program");
    let program = select::<f32>(program, &Reference, count % 2 == 0).expect("there is room");
    let counts = [0, 1].map(|axis| count.min(program.anchor[axis].max(1)));
    let grid = Grid::from_counts(program.anchor, counts).expect("a grid");
    let mut totals = [0; 2];
    for axis in [0, 1] {
        let anchor =
            program.anchor_node.map_or(program.rate(NodeId::new(0), axis), |node| program.rate(node, axis));
        let mut cuts = Cuts::new(&grid, axis, anchor);
        for sweep in sweeps(&program, &[]) {
            let flow = Flow::new(&program, &sweep, axis).expect("there is room");
            let parts = Parts::new(&flow, &mut cuts, usize::MAX).expect("there is room").expect("no bound");
            let cutter = Cutter::new(&flow, &mut cuts).expect("there is room");
            for (number, part) in parts.iter().enumerate() {
                let share = |terminal, extent: i64| cutter.share(terminal, extent, number);
                let alone = Demand::of_flow(&flow, share).expect("there is room");
                for node in flow.nodes.ids() {
                    let (own, alone) = (part.interval(node), alone.interval(node));
                    assert_eq!(own, alone, "{label}: part {number} of {counts:?}, node {node:?}");
                }
            }
            totals = [totals[0] + parts.len(), totals[1] + parts.len() - parts.demands()];
            let most = parts.demands();
            assert!(Parts::new(&flow, &mut cuts, most).expect("there is room").is_some());
            assert!(Parts::new(&flow, &mut cuts, most - 1).expect("there is room").is_none());
        }
    }
    totals
}

#[test]
fn a_part_is_what_it_would_be_alone() {
    for (name, extents) in
        [("light", [640, 333]), ("unet", [1024, 515]), ("resnet18", [1800, 900]), ("vgg2", [200, 1001])]
    {
        let graph = Graph::builtin(name).expect("built in");
        for count in [1, 3, 16, 17, 30, 64, 150, 400] {
            let [parts, alike] = compare(name, &graph, extents, count);
            assert!(count < 150 || 5 * alike > parts, "{name}: {alike} of {parts} parts are alike");
        }
    }
    let mut totals = [0; 2];
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let height = 60 + usize::try_from(rng.next_u64() % 500).expect("small");
        let count = 17 + i64::try_from(rng.next_u64() % 150).expect("small");
        let graph = network(&mut rng, height);
        let [parts, alike] = compare(&format!("seed {seed}"), &graph, [height, 9], count);
        totals = [totals[0] + parts, totals[1] + alike];
    }
    assert!(5 * totals[1] > totals[0], "{} of {} parts are alike", totals[1], totals[0]);
}
