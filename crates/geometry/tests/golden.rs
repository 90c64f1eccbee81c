//! The regions of two published runs (`tests/golden/README.md`), from this crate alone.

use serde_json::Value;
use tiled_geometry::{AxisMap, Grid, Interval, Region, Window};

/// 001: conv, pool, conv, pool on 16×16.
const CONV_POOL: &str = "geometry_conv_pool_conv_pool_16x16.json";
/// 002: conv, conv, conv, pool, conv on 64×64.
const CONV_RUN: &str = "geometry_conv3_pool_conv_64x64.json";

struct Op {
    windows: [Window; 2],
    input: Region<2>,
    output: Region<2>,
    run: Option<i64>,
}

impl Op {
    fn receptive(&self, outputs: Region<2>) -> Region<2> {
        outputs.through(self.windows.map(AxisMap::Window))
    }

    fn touched(&self, inputs: Region<2>) -> Region<2> {
        inputs.through(self.windows.map(AxisMap::Touched))
    }
}

struct Golden {
    ops: Vec<Op>,
    grid: Grid<2>,
    tiles: Vec<Value>,
}

impl Golden {
    fn load(file: &str) -> Self {
        let path = format!("{}/../../tests/golden/data/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let json: Value = serde_json::from_str(&text).expect("the file is JSON");
        let ops: Vec<Op> = items(&json["ops"]).iter().map(op).collect();
        let counts: [i64; 2] = numbers(&json["grid"]);
        let grid = Grid::from_counts(extents(ops[0].input), counts).expect("in range");
        let tiles = items(&json["tiles"]).to_vec();
        assert_eq!((tiles.len(), grid.len()), (16, 16));
        for list in ["forward", "backward"] {
            assert!(tiles.iter().all(|tile| items(&tile[list]).len() == ops.len()), "{file}: {list}");
        }
        Self { ops, grid, tiles }
    }

    /// The operators of the run of convolutions that operator `i` belongs to: itself alone for a pooling.
    fn run(&self, i: usize) -> std::ops::Range<usize> {
        let same = |j: &usize| j == &i || (self.ops[i].run.is_some() && self.ops[*j].run == self.ops[i].run);
        let members: Vec<usize> = (0..self.ops.len()).filter(same).collect();
        members[0]..members[members.len() - 1] + 1
    }

    /// The windows of the operators `range` along an axis.
    fn windows(&self, range: std::ops::Range<usize>, axis: usize) -> impl DoubleEndedIterator<Item = Window> {
        self.ops[range].iter().map(move |op| op.windows[axis])
    }

    /// The same as one window.
    fn composed(&self, range: std::ops::Range<usize>, axis: usize) -> Window {
        let windows = self.windows(range, axis);
        windows
            .reduce(|first, next| first.then(next).expect("small windows compose"))
            .unwrap_or(Window::IDENTITY)
    }
}

#[test]
fn tiles_own_the_blocks_of_a_grid_over_the_input() {
    for golden in [CONV_POOL, CONV_RUN].map(Golden::load) {
        let last = &golden.ops[golden.ops.len() - 1];
        let shares = golden.grid.rescale(extents(last.output)).expect("in range");
        for (number, tile) in golden.tiles.iter().enumerate() {
            let index = golden.grid.index_of(number);
            assert_eq!(numbers::<2>(&tile["tile"]).map(usize::try_from), index.map(Ok));
            assert_eq!(golden.grid.tile(index), region(&tile["input_grad"]));
            assert_eq!(shares.tile(index), region(&tile["output_disjoint"]));
            for (axis, part) in index.into_iter().enumerate() {
                let share = golden.grid.share(axis, part, last.output.axis(axis).end());
                assert_eq!(share, region(&tile["output_disjoint"]).axis(axis));
            }
        }
    }
}

#[test]
fn backward_regions_and_padding_equal_the_logs() {
    for golden in [CONV_POOL, CONV_RUN].map(Golden::load) {
        for tile in &golden.tiles {
            let mut wanted = region(&tile["input_grad"]);
            let mut of_run = wanted;
            for (i, (op, logged)) in golden.ops.iter().zip(items(&tile["backward"])).enumerate() {
                assert_eq!(wanted, region(&logged["grad_in"]));

                let own = op.touched(wanted);
                if op.run.is_some() {
                    assert_eq!(own, region(&logged["own_unclipped"]));
                    assert_eq!(own.excess(op.output), sides(&logged["own_pad"]));
                }
                let start = golden.run(i).start;
                if start == i {
                    of_run = wanted;
                }
                let unclipped = along(of_run, |axis, interval| {
                    golden.windows(start..i + 1, axis).fold(interval, |wanted, window| window.touched(wanted))
                });
                assert_eq!(
                    unclipped,
                    along(of_run, |axis, interval| golden.composed(start..i + 1, axis).touched(interval))
                );
                assert_eq!(unclipped, region(&logged["grad_out_unclipped"]));
                assert_eq!(unclipped.excess(op.output), sides(&logged["pad"]));

                wanted = own.intersect(op.output);
                assert_eq!(wanted, unclipped.intersect(op.output));
                assert_eq!(wanted, region(&logged["grad_out"]));
                assert_eq!(extents(wanted), numbers(&logged["grad_out_hw"]));
            }
            assert_eq!(wanted, region(&tile["output"]));
            assert_eq!(extents(wanted), numbers(&tile["output_hw"]));
        }
    }
}

#[test]
fn forward_regions_and_padding_equal_the_logs() {
    for golden in [CONV_POOL, CONV_RUN].map(Golden::load) {
        for tile in &golden.tiles {
            let mut wanted = region(&tile["output"]);
            let mut of_run = wanted;
            for (i, (op, logged)) in golden.ops.iter().zip(items(&tile["forward"])).enumerate().rev() {
                assert_eq!(wanted, region(&logged["out"]));
                assert_eq!(extents(wanted), numbers(&logged["out_hw"]));

                let own = op.receptive(wanted);
                if op.run.is_some() {
                    assert_eq!(own, region(&logged["own_unclipped"]));
                    assert_eq!(own.excess(op.input), sides(&logged["own_pad"]));
                }
                let end = golden.run(i).end;
                if end == i + 1 {
                    of_run = wanted;
                }
                let receptive = |range: std::ops::Range<usize>, axis: usize, wanted: Interval| {
                    golden.windows(range, axis).rev().fold(wanted, |wanted, window| window.receptive(wanted))
                };
                let unclipped = along(of_run, |axis, interval| receptive(i..end, axis, interval));
                assert_eq!(
                    unclipped,
                    along(of_run, |axis, interval| golden.composed(i..end, axis).receptive(interval))
                );
                assert_eq!(unclipped, region(&logged["in_unclipped"]));
                assert_eq!(unclipped.excess(op.input), sides(&logged["pad"]));

                // what the logs computed: the rest of the run, unclipped
                let computed = along(of_run, |axis, interval| receptive(i + 1..end, axis, interval));
                assert_eq!(extents(computed), numbers(&logged["computed_out_hw"]));

                wanted = own.intersect(op.input);
                assert_eq!(wanted, unclipped.intersect(op.input));
                assert_eq!(wanted, region(&logged["in"]));
            }
            let crop = wanted.excess(region(&tile["input_grad"]));
            assert_eq!(crop, sides(&tile["crop"]));
        }
    }
}

#[test]
fn the_smallest_forward_regions_are_those_that_pooling_gradients_ask_for() {
    let golden = Golden::load(CONV_RUN);
    let mut skipped = 0;
    for tile in &golden.tiles {
        let mut wanted = Region::EMPTY;
        for (i, op) in golden.ops.iter().enumerate().rev() {
            // the gradient of a pooling needs its arg-max, that of a convolution nothing of the forward pass
            if op.run.is_none() {
                wanted = wanted.hull(region(&tile["backward"][i]["grad_out"]));
            }
            let logged = &tile["minimal_forward"][i];
            if logged.is_null() {
                assert!(wanted.is_empty());
                skipped += 1;
                continue;
            }
            assert_eq!(wanted, region(&logged["out"]));
            assert!(region(&tile["forward"][i]["out"]).contains_region(wanted));
            wanted = op.receptive(wanted).intersect(op.input);
            assert_eq!(wanted, region(&logged["in"]));
        }
    }
    assert_eq!(skipped, 16, "the last convolution need not run for any tile");
}

#[test]
fn padding_a_run_once_leaves_a_ring_that_padding_each_operator_does_not() {
    let with_ring = |file| {
        let golden = Golden::load(file);
        let forward = golden.tiles.iter().flat_map(|tile| items(&tile["forward"]));
        forward.filter(|op| numbers::<2>(&op["computed_out_hw"]) != numbers(&op["out_hw"])).count()
    };
    // the first two of three convolutions, in the twelve tiles that meet the border
    assert_eq!((with_ring(CONV_POOL), with_ring(CONV_RUN)), (0, 24));
}

fn op(json: &Value) -> Op {
    let [kernel, stride, padding, dilation] =
        ["kernel", "stride", "padding", "dilation"].map(|key| numbers::<2>(&json[key]));
    let windows = [0, 1].map(|axis| {
        Window::new(kernel[axis], stride[axis], dilation[axis], padding[axis]).expect("sizes are in range")
    });
    let (input, output): ([i64; 2], _) = (numbers(&json["in_hw"]), numbers(&json["out_hw"]));
    for axis in 0..2 {
        assert_eq!(windows[axis].outputs(input[axis], padding[axis], false), output[axis]);
    }
    Op { windows, input: Region::whole(input), output: Region::whole(output), run: json["conv_run"].as_i64() }
}

fn along(region: Region<2>, map: impl Fn(usize, Interval) -> Interval) -> Region<2> {
    Region::new([0, 1].map(|axis| map(axis, region.axis(axis))))
}

fn extents(region: Region<2>) -> [i64; 2] {
    region.axes().map(Interval::len)
}

fn items(json: &Value) -> &[Value] {
    json.as_array().unwrap_or_else(|| panic!("{json} is a list"))
}

fn numbers<const N: usize>(json: &Value) -> [i64; N] {
    let numbers: Option<Vec<i64>> = items(json).iter().map(Value::as_i64).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).unwrap_or_else(|| panic!("{json} has {N} integers"))
}

/// `[y0,y1,x0,x1]`.
fn region(json: &Value) -> Region<2> {
    let [y0, y1, x0, x1] = numbers(json);
    Region::from_rows_cols(Interval::new(y0, y1), Interval::new(x0, x1))
}

/// `[top,bottom,left,right]`.
fn sides(json: &Value) -> [(i64, i64); 2] {
    let [top, bottom, left, right] = numbers(json);
    [(top, bottom), (left, right)]
}
