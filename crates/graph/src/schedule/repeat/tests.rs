//! A walk that skips is the whole walk.

use tiled_geometry::Grid;

use super::*;
use crate::index::Id;
use crate::parts::{Cuts, Parts};
use crate::program::{NodeId, Store, StoreId};
use crate::schedule::{Bands, bands_of, least_calls};
use crate::sweep::{shared_between_sweeps, sweeps};
use crate::{
    Activation, AvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Graph, Loss, MaxPool2d, Mode, Objective, Op,
    ResizeMode, Rng, Upsample, UpsampleTo, ValueId, infer, lower,
};

/// A number of `0..count`.
fn below(rng: &mut Rng, count: u64) -> u64 {
    rng.next_u64() % count
}

fn among<V: Copy>(rng: &mut Rng, values: &[V]) -> V {
    values[usize::try_from(below(rng, values.len() as u64)).expect("small")]
}

fn operator(rng: &mut Rng) -> Op {
    let kernel = among(rng, &[1, 2, 3, 3, 5]);
    let stride = among(rng, &[1, 1, 1, 2, 3]);
    let mut conv = Conv2d::new(4, [kernel, kernel]);
    match below(rng, 9) {
        0..=2 => {
            conv.stride = [stride, 1];
            conv.dilation = [among(rng, &[1, 1, 2, 3]), 1];
            let padding = among(rng, &[0, kernel / 2, kernel / 2, 2]);
            Op::Conv2d(conv.padded([padding, kernel / 2]))
        }
        3 => {
            let mut up = ConvTranspose2d::new(4, [kernel, kernel]);
            up.stride = [among(rng, &[1, 2, 2, 3]), 1];
            up.padding = [among(rng, &[0, kernel / 2]), 0];
            Op::ConvTranspose2d(up)
        }
        4 => {
            let mut pool = MaxPool2d::new([2, 2]);
            pool.stride = [2, 1];
            Op::MaxPool2d(pool)
        }
        5 => Op::AvgPool2d(AvgPool2d::new([among(rng, &[2, 3]), 1])),
        6 => {
            let mode = among(rng, &[ResizeMode::NEAREST, ResizeMode::LINEAR, ResizeMode::LINEAR_ALIGNED]);
            Op::Upsample(Upsample { to: UpsampleTo::Scale([2.0, 1.0]), mode })
        }
        7 => Op::BatchNorm(BatchNorm::default()),
        _ => Op::Activation(Activation::Sigmoid),
    }
}

/// A network of operators one after another, with sums, joins and U-shapes where extents allow.
pub(crate) fn network(rng: &mut Rng, height: usize) -> Graph {
    loop {
        let mut graph = Graph::new();
        let mut values = vec![graph.add_input("x", 4).expect("an input")];
        for number in 0..3 + below(rng, 7) {
            let last = values[values.len() - 1];
            let other = values[usize::try_from(below(rng, values.len() as u64)).expect("small")];
            let added = match below(rng, 4) {
                0 if other != last => graph.add_node(&format!("s{number}"), Op::Add, &[last, other]),
                1 if other != last => {
                    let to = UpsampleTo::Like(other);
                    let like = Op::Upsample(Upsample { to, mode: ResizeMode::NEAREST });
                    graph.add_node(&format!("l{number}"), like, &[last]).and_then(|like| {
                        values.push(like);
                        graph.add_node(&format!("j{number}"), Op::Add, &[like, other])
                    })
                }
                _ => graph.add_node(&format!("n{number}"), operator(rng), &[last]),
            };
            let Ok(added) = added else { continue };
            values.push(added);
            let mut probe = graph.clone();
            if probe.set_outputs(&[added]).is_err() || infer(&probe, 1, &[[height, 9]]).is_err() {
                break;
            }
        }
        let last = ValueId(graph.values() - 1);
        if graph.set_outputs(&[last]).is_ok() && infer(&graph, 1, &[[height, 9]]).is_ok() {
            return graph;
        }
    }
}

const fn lowest() -> Bands {
    Bands { tall: 0, rows: 1, least_rows: 1 }
}

const NEVER: &dyn Fn() -> bool = &|| false;

#[derive(Debug, Default)]
struct Counts {
    walks: u64,
    skipped: u64,
    walked: u64,
    least: u64,
}

/// Compares the walks of all sweeps of a network with and without skipping.
fn compare(label: &str, graph: &Graph, height: usize, rng: &mut Rng, counts: &mut Counts) {
    let shapes = infer(graph, 1, &[[height, 9]]).expect("shapes");
    let objective = if below(rng, 3) == 0 {
        Objective { mode: among(rng, &[Mode::Train, Mode::Eval]), ..Objective::inference() }
    } else {
        Objective { grad_inputs: below(rng, 2) == 0, ..Objective::training(Loss::Sum) }
    };
    let program = lower(graph, &shapes, &objective, &[]).expect("a program");
    let kept: Vec<(NodeId, StoreId)> = match below(rng, 2) {
        0 => Vec::new(),
        _ => {
            let shared = shared_between_sweeps(&program).expect("there is room");
            shared.into_iter().zip((0..).map(StoreId::new)).collect()
        }
    };
    let mut with_stores = program.clone();
    with_stores.stores = vec![Store { name: String::new(), shape: [1; 4] }; kept.len()].into();
    for sweep in sweeps(&with_stores, &kept) {
        let flow = Flow::new(&with_stores, &sweep, 0).expect("there is room");
        let rows = among(rng, &[1, 1, 2, 3, 20]).min(program.anchor[0].max(1));
        let grid = Grid::from_counts(program.anchor, [rows, 1]).expect("a grid");
        let anchor =
            program.anchor_node.map_or(program.rate(NodeId::new(0), 0), |node| program.rate(node, 0));
        let mut cuts = Cuts::new(&grid, 0, anchor);
        let parts = Parts::new(&flow, &mut cuts, usize::MAX).expect("there is room").expect("no bound");
        let band = among(rng, &[1, 2, 3, 4, 5, 7, 8, 16, 64]);
        let least_rows = among(rng, &[1, 1, 2, 3, 4, 8]);
        let mut bands = bands_of(&flow, Bands { tall: 0, rows: band, least_rows }).expect("there is room");
        if below(rng, 3) == 0 {
            // as where calls are cut to fill waves: each height has rows of its own
            for (band, node) in bands.iter_mut().zip(&flow.nodes) {
                let most = 1 + (node.extent * 7 + i64::from(node.reads_weights)) % 11;
                let least = if node.reads_weights { most } else { 1 };
                *band = Band { most, least, step: 1 + (node.extent * 5) % 17, is_whole: true };
            }
        }
        for part in parts.iter() {
            let demand = Demand::of_flow(&flow, |node, _| part.interval(node)).expect("there is room");
            for node in sweep.ids() {
                assert_eq!(demand.interval(node), part.interval(node), "{label}: node {node:?} of {grid:?}");
            }
            let walk = |skips| {
                let walker = Walker { most: u64::MAX, skips, is_cancelled: NEVER };
                Walk::of(&flow, &demand, &bands, walker).expect("it ends")
            };
            let (whole, skipping) = (walk(false), walk(true));
            let least = least_calls(&flow, demand.intervals(), &bands).expect("there is room");
            assert!(
                least <= skipping.walked,
                "{label}: at least {least} calls, bands of {band}, {least_rows} at least"
            );
            counts.least += least;
            counts.walked += skipping.walked;
            counts.walks += 1;
            counts.skipped += u64::from(skipping.walked < whole.walked);
            assert_eq!(whole.rings, skipping.rings, "{label}: rings, bands of {band}");
            assert_eq!(whole.calls, skipping.calls, "{label}: calls, bands of {band}");
            assert_eq!(whole.steps, skipping.steps, "{label}: steps, bands of {band}");
            assert_eq!(order(&whole), order(&skipping), "{label}: spans, bands of {band}");
        }
    }
}

/// Which spans meet: all that storage depends on.
fn order(walk: &Walk) -> Vec<[bool; 2]> {
    let mut order = Vec::new();
    for a in walk.spans.iter().flatten() {
        for b in walk.spans.iter().flatten() {
            order.push([a[0] <= b[1], b[0] <= a[1]]);
        }
    }
    order
}

#[test]
fn r11_a_walk_that_skips_periods_is_the_whole_walk() {
    let mut counts = Counts::default();
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let height = usize::try_from(60 + below(&mut rng, 500)).expect("small");
        let graph = network(&mut rng, height);
        compare(&format!("seed {seed}, {height} rows"), &graph, height, &mut rng, &mut counts);
    }
    assert!(counts.walks > 1000 && counts.skipped > 500, "too few were skipped: {counts:?}");
    assert!(20 * counts.least > counts.walked, "far fewer than were walked: {counts:?}");
}

#[test]
fn r11_built_in_networks_are_walked_in_periods() {
    for (name, height) in [("light", 300), ("vgg2", 400), ("unet", 512), ("resnet18", 900), ("unet", 515)] {
        let graph = Graph::builtin(name).expect("built in");
        let mut counts = Counts::default();
        for seed in 0..3 {
            compare(name, &graph, height, &mut Rng::new(seed), &mut counts);
        }
        assert!(height == 515 || counts.skipped > 0, "{name}: {counts:?}");
    }
}

#[test]
fn r11_the_calls_walked_do_not_grow_with_the_height() {
    let graph = Graph::builtin("light").expect("built in");
    let walked = |height: usize| {
        let shapes = infer(&graph, 1, &[[height, 9]]).expect("shapes");
        let program = lower(&graph, &shapes, &Objective::training(Loss::Sum), &[]).expect("a program");
        let all = sweeps(&program, &[]);
        let flow = Flow::new(&program, &all[0], 0).expect("there is room");
        let whole = Demand::of_flow(&flow, |_, extent| Interval::whole(extent)).expect("there is room");
        let walker = Walker { most: u64::MAX, skips: true, is_cancelled: NEVER };
        Walk::of(&flow, &whole, &bands_of(&flow, lowest()).expect("there is room"), walker).expect("it ends")
    };
    let (low, high) = (walked(10_000), walked(1_000_000));
    assert!(high.calls > 90 * low.calls);
    assert!(high.walked < 2 * low.walked.max(1000), "{} calls of {}", high.walked, high.calls);
}

#[test]
fn r11_a_walk_ends_where_nobody_waits_or_it_takes_too_long() {
    let graph = Graph::builtin("unet").expect("built in");
    let shapes = infer(&graph, 1, &[[20_001, 9]]).expect("shapes");
    let program = lower(&graph, &shapes, &Objective::inference(), &[]).expect("a program");
    let all = sweeps(&program, &[]);
    let flow = Flow::new(&program, &all[0], 0).expect("there is room");
    let whole = Demand::of_flow(&flow, |_, extent| Interval::whole(extent)).expect("there is room");
    let bands = bands_of(&flow, lowest()).expect("there is room");
    let walk =
        |most, is_cancelled| Walk::of(&flow, &whole, &bands, Walker { most, skips: true, is_cancelled });
    assert_eq!(walk(100, NEVER), Err(Stop::TooLong));
    assert_eq!(walk(u64::MAX, &|| true), Err(Stop::Cancelled));
}
