//! Plans for GPUs, by the figures of a model of them: nothing runs.

use std::time::Instant;

use tiled::device::{Device, DeviceFigures};
use tiled::prelude::*;

const GIB: u64 = 1 << 30;

/// The plan of a training step on an image of this size, with all gradients and the outputs.
fn plan(net: &str, size: usize, device: &str, memory_bytes: u64) -> (Plan, DeviceFigures) {
    let device: Device = device.parse().expect("a device");
    let backend = device.open_for_plans().expect("figures alone");
    let graph = Graph::builtin(net).expect("it is built in");
    let shapes = infer(&graph, 1, &[[size, size]]).expect("it fits");
    let objective =
        Objective { mode: Mode::Eval, grad_inputs: true, outputs: true, ..Objective::training(Loss::Sum) };
    let options = PlanOptions { memory_bytes: Some(memory_bytes), ..PlanOptions::default() };
    let plan = Planner::<f32>::new(&graph, &shapes, &objective, &backend).plan(&options).expect("it fits");
    let figures = backend.figures(&plan).expect("there is room").expect("it is a GPU");
    (plan, figures)
}

/// What a training step on a large picture takes in 8 GiB: the share computed twice, and the figures of the device.
fn large(net: &str) -> (f64, DeviceFigures) {
    let begin = Instant::now();
    let (plan, figures) = plan(net, 20480, "cuda-sim:h200", 8 * GIB);
    let planned = begin.elapsed();
    assert!(planned.as_secs_f64() < 5.0, "{net}: planned in {planned:?}");
    let twice = plan.redundant_flops / plan.flops;
    let predicted = plan.predicted_seconds;
    eprintln!("{net}: {twice:.4} twice, {predicted:.2} s predicted, {figures:?}, {:?}", plan.memory);
    for sweep in &plan.sweeps {
        let (band, least, tiles) = (sweep.band, sweep.least_rows, sweep.grid.counts());
        eprintln!("  {} calls, bands of {band}, at least {least} rows, {tiles:?} tiles", sweep.calls);
    }
    assert!(figures.device_bytes <= 8 * GIB && plan.peak_bytes() <= 8 * GIB);
    assert!(figures.pinned_bytes > 0 && figures.driver_bytes > 0);
    (twice, figures)
}

#[test]
fn plans_for_an_h200_take_few_calls() {
    for net in ["vgg16", "darknet19"] {
        let (_, figures) = large(net);
        assert!(figures.calls <= 60_000, "{net}: {} calls", figures.calls);
    }
}

#[test]
fn a_plan_of_vgg16_for_an_h200_computes_little_twice() {
    let (twice, _) = large("vgg16");
    assert!(twice <= 0.02, "{twice} is computed twice");
}

#[test]
fn a_plan_of_darknet19_for_an_h200_computes_little_twice() {
    let (twice, _) = large("darknet19");
    assert!(twice <= 0.02, "{twice} is computed twice");
}

/// Holds a plan to the share of its time that may be lost.
fn fills_waves(net: &str) {
    let (_, figures) = large(net);
    assert!(figures.lost_to_waves <= 0.08, "{net}: {} is lost to waves", figures.lost_to_waves);
}

#[test]
fn a_plan_of_vgg16_for_an_h200_fills_its_waves() {
    fills_waves("vgg16");
}

#[test]
fn a_plan_of_darknet19_for_an_h200_fills_its_waves() {
    fills_waves("darknet19");
}

#[test]
fn a_smaller_gpu_is_predicted_to_take_longer() {
    let [large, small] = ["h200", "l4"]
        .map(|model| plan("light", 4096, &format!("cuda-sim:{model}"), GIB).0.predicted_seconds);
    assert!(2.0 * large < small, "{large} s and {small} s");
}

#[cfg(unix)]
mod simulated {
    use std::sync::{Arc, Mutex};

    use tiled::cuda::CudaBackend;
    use tiled::cuda::driver::Facts;
    use tiled::cuda::driver::simulated::{Order, Simulated};
    use tiled::exec::MemorySource;
    use tiled::prelude::*;
    use tiled::tensor::ViewMut;

    /// What a step of training gives: the outputs, the gradients of the inputs, and the weights after so many steps.
    type Trained = (Vec<f32>, Vec<f32>, Vec<Vec<f32>>);

    /// A source that says in which regions it was read.
    struct Told(Mutex<Vec<Region<2>>>);

    const SHUFFLED: Order = Order::Shuffled(9);

    /// A device that runs what it may in some order; none where there is no compiler.
    fn device(order: Order) -> Option<Simulated> {
        Simulated::new(Facts::h200(), order).inspect_err(|reason| eprintln!("skipped: {reason}")).ok()
    }

    /// So large that a run is worth a thread of the pool.
    const EXTENT: usize = 900;

    fn value([c, y, x]: [usize; 3]) -> f32 {
        ((c + 3 * y + 7 * x) % 11) as f32 - 5.0
    }

    impl Source<f32> for Told {
        fn shape(&self) -> [usize; 4] {
            [1, 3, EXTENT, EXTENT]
        }
        fn read(&self, region: Region<2>, output: &mut ViewMut<'_, f32>) -> Result<(), IoError> {
            self.0.lock().expect("nobody panics").push(region);
            let index = |at: i64| usize::try_from(at).expect("it is in the image");
            let [rows, cols] = region.axes().map(|axis| axis.begin()..axis.end());
            for (c, y) in (0..3).flat_map(|c| rows.clone().map(move |y| (c, y))) {
                cols.clone().for_each(|x| output.set(0, c, y, x, value([c, index(y), index(x)])));
            }
            Ok(())
        }
    }

    #[test]
    fn threads_of_the_host_read_and_write_bands_for_a_device() -> Result<(), Box<dyn std::error::Error>> {
        let Some(device) = device(Order::Forward) else { return Ok(()) };
        let backend = CudaBackend::new(Arc::new(device));
        let graph = Graph::from_json(
            r#"{"inputs": [{"name": "x", "channels": 3}], "nodes": [{"name": "y", "op": "relu", "inputs": ["x"]}], "outputs": ["y"]}"#,
        )?;
        let shapes = infer(&graph, 1, &[[EXTENT, EXTENT]])?;
        let bytes = |parallelism| -> Result<_, Box<dyn std::error::Error>> {
            let options = PlanOptions { hold: Hold::Materialise, parallelism, ..PlanOptions::default() };
            Ok(Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &backend).plan(&options)?)
        };
        let (plan, alone) = (bytes(3)?, bytes(1)?);
        assert_eq!(
            plan.memory.transfer_bytes,
            3 * alone.memory.transfer_bytes,
            "what three threads hold is counted"
        );
        let (source, output) = (Told(Mutex::default()), MemorySink::<f32>::new([1, 3, EXTENT, EXTENT])?);
        let io = Io { inputs: vec![&source], outputs: vec![&output], ..Io::default() };
        Executor::new(plan, &backend, 3)?.run(
            &mut initialise::<f32>(&params(&graph), 1),
            &io,
            &NoProgress,
        )?;
        let mut bands = source.0.into_inner()?;
        bands.sort_by_key(|band| band.rows().begin());
        assert!(bands.len() >= 3, "{bands:?}");
        assert!(bands.windows(2).all(|two| two[0].rows().end() == two[1].rows().begin()), "{bands:?}");
        let output = output.into_tensor();
        for (c, y, x) in [(0, 0, 0), (2, 85, 170), (1, 86, 3), (2, 255, 255)] {
            let expected = value([c, y, x]).max(0.0);
            assert_eq!(
                output.data()[(c * EXTENT + y) * EXTENT + x].to_bits(),
                expected.to_bits(),
                "{c} {y} {x}"
            );
        }
        Ok(())
    }

    /// Windows of several blocks have gaps between them where rows are powers of two: so have the pieces that they pass through, of which
    /// rows alone would fill each.
    #[test]
    fn blocks_with_gaps_between_them_pass_through_pieces_as_they_are()
    -> Result<(), Box<dyn std::error::Error>> {
        for (order, [channels, height, width]) in [
            (Order::Forward, [16, 140, 1024]),
            (Order::Backward, [16, 70, 1024]),
            (Order::Shuffled(3), [64, 33, 512]),
            (Order::Forward, [512, 20, 128]),
        ] {
            let Some(device) = device(order) else { return Ok(()) };
            let backend = CudaBackend::new(Arc::new(device));
            let graph = Graph::from_json(&format!(
                r#"{{"inputs": [{{"name": "x", "channels": {channels}}}], "nodes": [{{"name": "y", "op": "neg", "inputs": ["x"]}}], "outputs": ["y"]}}"#,
            ))?;
            let shape = [1, channels, height, width];
            let image = Tensor::<f32>::from_fn(shape, |[_, c, y, x]| value([c, y, x]))?;
            let shapes = infer(&graph, 1, &[[height, width]])?;
            let options = PlanOptions { hold: Hold::Materialise, ..PlanOptions::default() };
            let plan =
                Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &backend).plan(&options)?;
            let (source, output) = (MemorySource::try_from(&image)?, MemorySink::<f32>::new(shape)?);
            let io = Io { inputs: vec![&source], outputs: vec![&output], ..Io::default() };
            Executor::new(plan, &backend, 1)?.run(
                &mut initialise::<f32>(&params(&graph), 1),
                &io,
                &NoProgress,
            )?;
            let output = output.into_tensor();
            let wrong = output.data().iter().zip(image.data()).filter(|(y, x)| **y != -**x).count();
            assert_eq!(wrong, 0, "{order:?}, {channels}×{height}×{width}");
        }
        Ok(())
    }

    struct Bed {
        device: Arc<Simulated>,
        backend: CudaBackend,
        graph: Graph,
    }

    impl Bed {
        fn new(device: Simulated) -> Self {
            let device = Arc::new(device);
            let backend = CudaBackend::new(Arc::<Simulated>::clone(&device));
            Self { device, backend, graph: Graph::builtin("light").expect("it is built in") }
        }

        fn plan(&self, hold: Hold, tiling: Tiling) -> Plan {
            let shapes = infer(&self.graph, 1, &[[16, 24]]).expect("it fits");
            let objective = Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::Sum) };
            let options = PlanOptions { hold, tiling, ..PlanOptions::default() };
            Planner::<f32>::new(&self.graph, &shapes, &objective, &self.backend)
                .plan(&options)
                .expect("a plan")
        }

        /// So many steps of training; where one fails, its sinks are as after an abort.
        fn train(&self, plan: Plan, steps: usize) -> Result<Trained, ExecError> {
            let image =
                Tensor::from_fn([1, 3, 16, 24], |[_, c, y, x]| ((c * 5 + y * 3 + x) % 7) as f32 / 7.0);
            let image = image.expect("small");
            let mut parameters = initialise::<f32>(&params(&self.graph), 5);
            let executor = Executor::new(plan, &self.backend, 2)?;
            let optimizer = Sgd::new(SgdOptions { lr: 0.01, momentum: 0.5, ..SgdOptions::default() })?;
            let mut trainer = Trainer::new(executor, optimizer);
            let mut last = None;
            for _ in 0..steps {
                let source = MemorySource::try_from(&image)?;
                let output = MemorySink::<f32>::new([1, 32, 4, 6])?;
                let gradient = MemorySink::<f32>::new([1, 3, 16, 24])?;
                let io = Io {
                    inputs: vec![&source],
                    outputs: vec![&output],
                    grad_inputs: vec![&gradient],
                    ..Io::default()
                };
                if let Err(error) = trainer.step(&mut parameters, &io, &NoProgress) {
                    assert!(
                        output.finish().is_err() && gradient.finish().is_err(),
                        "sinks are aborted: {error}"
                    );
                    return Err(error);
                }
                last = Some((output.into_tensor().data().to_vec(), gradient.into_tensor().data().to_vec()));
            }
            let (output, gradient) = last.expect("a step");
            Ok((output, gradient, parameters.tensors().iter().map(|tensor| tensor.data.clone()).collect()))
        }
    }

    #[test]
    fn two_steps_of_training_on_a_simulated_gpu_do_not_depend_on_the_tiles() {
        let Some(device) = device(SHUFFLED) else { return };
        let bed = Bed::new(device);
        let whole = bed.train(bed.plan(Hold::Materialise, Tiling::Auto), 1).expect("a step");
        let tiles = bed.plan(Hold::Slide, Tiling::Tile([1, 3]));
        assert!(tiles.tiles() > 4, "more than one tile");
        let tiled = bed.train(tiles.clone(), 1).expect("a step");
        assert!(whole.0 == tiled.0 && whole.1 == tiled.1, "outputs and gradients of inputs");
        // the same plan gives the same bits, weights included
        let first = bed.train(tiles.clone(), 2).expect("two steps");
        let again = bed.train(tiles, 2).expect("two steps");
        assert!(first == again && first.2 != tiled.2, "weights after two steps");
        // sums of at most 384 products in another order
        let near = bed.train(bed.plan(Hold::Materialise, Tiling::Auto), 2).expect("two steps");
        for (one, other) in first.2.iter().flatten().zip(near.2.iter().flatten()) {
            assert!((one - other).abs() <= 1e-4 * one.abs().max(1.0), "{one} and {other}");
        }
        assert_eq!(bed.device.left(), [0; 4], "memory, pinned memory, streams and events are given back");
    }

    #[test]
    fn each_call_of_the_driver_that_fails_ends_a_run_with_its_name_and_leaves_nothing() {
        let Some(device) = device(SHUFFLED) else { return };
        let bed = Bed::new(device);
        let plan = bed.plan(Hold::Slide, Tiling::Tile([2, 3]));
        bed.train(plan.clone(), 1).expect("a step");
        let calls = bed.device.calls();
        assert!(calls > 200, "only {calls} calls");
        for call in 0..calls {
            let failing = self::device(SHUFFLED).expect("a compiler was found").failing(call);
            let bed = Bed::new(failing);
            let Err(error) = bed.train(plan.clone(), 1) else {
                panic!("call {call} of {calls} did not fail")
            };
            assert!(error.to_string().contains(&format!("call {call} was to fail")), "{error}");
            assert_eq!(bed.device.left(), [0; 4], "after {error}");
        }
    }

    #[test]
    fn a_gpu_never_holds_more_than_the_plan_states() {
        let Some(device) = device(SHUFFLED) else { return };
        let bed = Bed::new(device);
        let backend =
            tiled::device::DeviceBackend::Cuda(CudaBackend::new(Arc::<Simulated>::clone(&bed.device)));
        for hold in [Hold::Slide, Hold::Materialise] {
            let plan = bed.plan(hold, Tiling::Auto);
            let figures = backend.figures(&plan).expect("there is room").expect("it is a GPU");
            bed.train(plan.clone(), 1).expect("a step");
            let peak = bed.device.peak() as u64;
            assert!(peak <= figures.device_bytes, "{peak} bytes of {figures:?}");
            assert!(figures.device_bytes <= plan.peak_bytes() + (64 << 10), "{figures:?}, {:?}", plan.memory);
        }
    }
}
