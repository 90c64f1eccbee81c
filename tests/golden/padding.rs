//! Run 002 in numbers: three convolutions in a row, each padded by itself.

use tiled::cpu::CpuBackend;
use tiled::exec::NoProgress;
use tiled::graph::{Conv2d, Graph, Loss, Objective, Op, PlanOptions};
use tiled::kernel::{Backend, Reference};
use tiled::tensor::Element;
use tiled_tests::{Job, differing, recompute, slide, whole};

fn check<T: Element>(backend: &dyn Backend<T>) {
    let graph = Graph::builtin("seed-002").expect("built in");
    let objective =
        Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) };
    for seed in 0..3 {
        let job = Job::<T>::random(graph.clone(), 1, [64, 64], objective.clone(), seed);
        let run = |options: &PlanOptions| job.run(backend, job.plan(backend, options), 2, &NoProgress);
        let untiled = run(&whole());
        for options in [recompute([4, 4]), recompute([3, 5]), slide(2)] {
            let tiled = run(&options);
            assert!(tiled.tiles > 1);
            assert_eq!(differing(untiled.outputs[0].data(), tiled.outputs[0].data()), 0, "output");
            assert_eq!(differing(untiled.grad_inputs[0].data(), tiled.grad_inputs[0].data()), 0, "gradient");
            let pairs = untiled.gradients.iter().flatten().zip(tiled.gradients.iter().flatten());
            for (a, b) in pairs.flat_map(|(a, b)| a.iter().zip(b)) {
                // 4096 products, each below 0.01: 4096·ε·41
                let tolerance = 4096.0 * 41.0 * T::EPSILON.to_f64();
                assert!((a.to_f64() - b.to_f64()).abs() <= tolerance, "weight gradient {a} {b}");
            }
        }
    }
}

#[test]
fn tiles_of_run_002_equal_the_whole() {
    let cpu = CpuBackend::new().expect("an instruction set");
    check::<f32>(&cpu);
    check::<f64>(&cpu);
    check::<f64>(&Reference);
}

/// The trap: one padding of three in place of three of one. What differs is the border alone, and it does differ.
#[test]
fn padding_a_run_once_would_show_at_the_border() {
    let run = |paddings: [i64; 3]| {
        let mut graph = Graph::new();
        let mut last = graph.add_input("x", 1).expect("new");
        for (i, padding) in paddings.into_iter().enumerate() {
            let conv = Conv2d { bias: false, ..Conv2d::new(1, [3, 3]).padded([padding, padding]) };
            last = graph.add_node(&format!("conv{i}"), Op::Conv2d(conv), &[last]).expect("fits");
        }
        graph.set_outputs(&[last]).expect("known");
        let job = Job::<f64>::random(graph, 1, [64, 64], Objective::inference(), 5);
        job.run(&Reference, job.plan(&Reference, &recompute([4, 4])), 2, &NoProgress)
    };
    let (each, once) = (run([1, 1, 1]), run([3, 0, 0]));
    let (each, once) = (each.outputs[0].data(), once.outputs[0].data());
    let is_border = |i: usize| [i / 64, i % 64].iter().any(|place| !(2..62).contains(place));
    let wrong: Vec<usize> = (0..64 * 64).filter(|i| (each[*i] - once[*i]).abs() > 1e-12).collect();
    assert!(wrong.iter().all(|i| is_border(*i)), "the interior agrees");
    assert!(wrong.len() > 400, "{} of the 496 border pixels differ", wrong.len());
}
