//! The built-in networks on the CPU backend: every objective, every way to hold.

use tiled::cpu::CpuBackend;
use tiled::exec::NoProgress;
use tiled::graph::{Graph, Hold, Loss, Objective, PlanOptions, Tiling, builtin_names};
use tiled::tensor::Element;
use tiled_tests::{Job, differing, whole};

fn check<T: Element>(name: &str, extents: [usize; 2]) {
    let backend = CpuBackend::new().expect("an instruction set");
    let graph = Graph::builtin(name).expect("built in");
    let objectives = [
        Objective::inference(),
        Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) },
        Objective { outputs: true, ..Objective::gradients() },
    ];
    let with = |hold, tiling| PlanOptions { hold, tiling, parallelism: 2, ..PlanOptions::default() };
    for objective in objectives {
        let job = Job::<T>::random(graph.clone(), 1, extents, objective, 3);
        let untiled = job.run(&backend, job.plan(&backend, &whole()), 2, &NoProgress);
        let holds = [
            with(Hold::Slide, Tiling::Tile([1, 3])),
            with(Hold::Slide, Tiling::Grid([4, 1])),
            with(Hold::Recompute, Tiling::Grid([2, 2])),
        ];
        for options in holds {
            let tiled = job.run(&backend, job.plan(&backend, &options), 2, &NoProgress);
            let label = format!("{name} {:?} {:?} {:?}", job.objective, options.hold, options.tiling);
            assert!(tiled.tiles > 1, "{label}: one tile");
            for (a, b) in untiled.outputs.iter().zip(&tiled.outputs) {
                assert_eq!(differing(a.data(), b.data()), 0, "{label}: output");
            }
            for (a, b) in untiled.grad_inputs.iter().zip(&tiled.grad_inputs) {
                assert_eq!(differing(a.data(), b.data()), 0, "{label}: input gradient");
            }
            assert_eq!(untiled.loss.map(f64::to_bits), tiled.loss.map(f64::to_bits), "{label}: loss");
        }
    }
}

macro_rules! networks {
    ($($test:ident: $name:literal, $type:ty, $extents:expr;)*) => {
        $(
            #[test]
            fn $test() {
                check::<$type>($name, $extents);
            }
        )*

        #[test]
        fn every_built_in_network_is_tested() {
            assert_eq!(builtin_names().collect::<Vec<_>>(), [$($name),*]);
        }
    };
}

networks! {
    seed_001: "seed-001", f64, [37, 22];
    seed_002: "seed-002", f32, [61, 34];
    vgg2: "vgg2", f32, [45, 37];
    light: "light", f64, [45, 37];
    vgg16: "vgg16", f32, [64, 97];
    darknet19: "darknet19", f32, [64, 97];
    resnet18: "resnet18", f64, [65, 98];
    unet: "unet", f64, [45, 38];
}
