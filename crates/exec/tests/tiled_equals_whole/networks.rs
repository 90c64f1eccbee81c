//! Small built-in networks: every objective, every way to hold. The large ones need a fast backend, and so
//! belong to the tests of the whole system.

use tiled_graph::{Graph, Hold, Loss, Mode, Objective, PlanOptions, Tiling};

use crate::run::{Case, assert_same};

fn check(name: &str, batch: usize, extents: [usize; 2]) {
    let graph = Graph::builtin(name).expect("built in");
    for objective in objectives() {
        let case = Case { graph: &graph, batch, extents, objective: &objective };
        let whole = case.whole();
        for options in holds() {
            let tiled = case.run(&options);
            let label = format!("{name} {objective:?} {options:?}");
            assert!(tiled.tiles > 1, "{label}: one tile");
            assert_same(&label, &whole, &tiled);
        }
    }
}

/// No loss, one that is local to a pixel with and without batch statistics, and gradients that the caller gives.
fn objectives() -> [Objective; 4] {
    [
        Objective::inference(),
        Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::Sum) },
        Objective { outputs: true, ..Objective::gradients() },
        Objective { mode: Mode::Eval, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) },
    ]
}

fn holds() -> [PlanOptions; 3] {
    let with =
        |hold, tiling, parallelism| PlanOptions { hold, tiling, parallelism, ..PlanOptions::default() };
    [
        with(Hold::Slide, Tiling::Tile([2, 7]), 2),
        with(Hold::Slide, Tiling::Grid([4, 1]), 1),
        with(Hold::Recompute, Tiling::Grid([3, 2]), 2),
    ]
}

macro_rules! networks {
    ($($test:ident: $name:literal, $batch:literal, $extents:expr;)*) => {$(
        #[test]
        fn $test() {
            check($name, $batch, $extents);
        }
    )*};
}

networks! {
    seed_001_tiled_equals_whole: "seed-001", 1, [16, 16];
    seed_002_tiled_equals_whole: "seed-002", 2, [29, 22];
    light_tiled_equals_whole: "light", 2, [13, 10];
    unet_tiled_equals_whole: "unet", 1, [13, 10];
}
