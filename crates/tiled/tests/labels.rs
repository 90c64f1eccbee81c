//! Class numbers as the target of a cross-entropy: the loss and its gradient by formula, whatever is ignored, whatever the
//! tiling; what is no class is an error.

use tiled::cpu::CpuBackend;
use tiled::exec::{
    ChunkedSource, ExecError, Executor, FnSource, Io, IoError, Labels, MemorySink, MemorySource, NoProgress,
    Numbers, Source,
};
use tiled::graph::{
    Graph, Hold, Loss, Objective, Parameters, PlanOptions, Planner, Rng, Tiling, infer, initialise, params,
};
use tiled::kernel::{Backend, Reference};
use tiled::tensor::{Element, Tensor};

const CLASSES: usize = 3;
const SHAPE: [usize; 4] = [2, CLASSES, 21, 34];

/// A network whose output is its input: the scores.
const SAME: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
    "nodes": [{"name": "same", "op": "conv2d", "inputs": ["x"], "out_channels": 3, "kernel_size": 1}],
    "outputs": ["same"]}"#;

struct Outcome<T> {
    loss: f64,
    grad: Vec<T>,
    grad_bias: Vec<T>,
    tiles: u64,
}

fn scores<T: Element>() -> Tensor<T> {
    let mut rng = Rng::new(5);
    Tensor::from_fn(SHAPE, |_| T::from_f64(6.0 * rng.uniform() - 3.0)).expect("small")
}

/// Classes in some order, every ninth pixel or so `ignored`.
fn classes<T: Element>(ignored: Option<f64>) -> Tensor<T> {
    let [batch, _, height, width] = SHAPE;
    Tensor::from_fn([batch, 1, height, width], |[n, _, y, x]| {
        let place = n * 7 + y * 5 + x * 11 + y * x;
        let class = f64::from(u8::try_from(place % CLASSES).expect("few"));
        T::from_f64(ignored.filter(|_| place % 9 == 0).unwrap_or(class))
    })
    .expect("small")
}

fn run<T: Element>(
    backend: &dyn Backend<T>,
    target: &dyn Source<T>,
    ignore_index: Option<i64>,
    options: &PlanOptions,
) -> Result<Outcome<T>, ExecError> {
    let graph = Graph::from_json(SAME).expect("a network");
    let shapes = infer(&graph, SHAPE[0], &[[SHAPE[2], SHAPE[3]]]).expect("it fits");
    let loss = Loss::CrossEntropy { target_channels: 1 };
    let objective = Objective { grad_inputs: true, ignore_index, ..Objective::training(loss) };
    let plan = Planner::new(&graph, &shapes, &objective, backend).plan(options).expect("it plans");
    let tiles = plan.tiles();
    let mut parameters: Parameters<T> = initialise(&params(&graph), 1);
    for place in [0, 1] {
        let data = parameters.data_mut(place).expect("weight, then bias");
        for (i, value) in data.iter_mut().enumerate() {
            *value = if place == 0 && i % 4 == 0 { T::ONE } else { T::ZERO };
        }
    }
    let input = MemorySource::from_tensor(scores())?;
    let grad = MemorySink::new(SHAPE)?;
    let io = Io { inputs: vec![&input], target: Some(target), grad_inputs: vec![&grad], ..Io::default() };
    let mut executor = Executor::new(plan, backend, 2)?;
    let report = executor.run(&mut parameters, &io, &NoProgress)?;
    let grad_bias = executor.gradient(1).expect("the bias is trained").to_vec();
    drop(io);
    let loss = report.loss.expect("a cross-entropy has a value");
    Ok(Outcome { loss, grad: grad.into_tensor().data().to_vec(), grad_bias, tiles })
}

/// `−log softmax(p)[class]` and `softmax(p) − [c = class]`, the means over the pixels that count.
fn formula(target: &Tensor<f64>, ignored: Option<f64>) -> (f64, Vec<f64>) {
    let scores = scores::<f64>();
    let [batch, channels, height, width] = SHAPE;
    let plane = height * width;
    let (mut loss, mut counted, mut grad) = (0.0, 0.0, vec![0.0; batch * channels * plane]);
    for (place, class) in target.data().iter().enumerate().filter(|(_, class)| Some(**class) != ignored) {
        let (n, pixel) = (place / plane, place % plane);
        let at = |c: usize| (n * channels + c) * plane + pixel;
        let sum: f64 = (0..channels).map(|c| scores.data()[at(c)].exp()).sum();
        counted += 1.0;
        for c in 0..channels {
            let share = scores.data()[at(c)].exp() / sum;
            let is_class = f64::from(u8::try_from(c).expect("few")) == *class;
            grad[at(c)] = share - f64::from(u8::from(is_class));
            loss -= if is_class { share.ln() } else { 0.0 };
        }
    }
    (loss / counted, grad.into_iter().map(|value| value / counted).collect())
}

fn tilings() -> [PlanOptions; 3] {
    let options = |hold, tiling| PlanOptions { hold, tiling, ..PlanOptions::default() };
    [
        options(Hold::Materialise, Tiling::Auto),
        options(Hold::Recompute, Tiling::Grid([3, 4])),
        options(Hold::Slide, Tiling::Tile([2, 9])),
    ]
}

#[test]
fn r02_ignored_pixels_count_for_nothing_and_the_mean_is_over_the_others() {
    let cpu = CpuBackend::new().expect("an instruction set");
    for ignore_index in [None, Some(255), Some(-100), Some(1)] {
        let ignored = ignore_index.map(|class: i64| f64::from(i32::try_from(class).expect("small")));
        let target = classes::<f64>(ignored);
        let (loss, grad) = formula(&target, ignored);
        let source = MemorySource::try_from(&target).expect("small");
        let labels = Labels::new::<f64>("target", &source, CLASSES, ignore_index).expect("they are classes");
        let census = labels.census();
        assert!(ignore_index.is_none() == (census.counted == census.pixels), "{census:?}");
        for backend in [&cpu as &dyn Backend<f64>, &Reference] {
            let mut first: Option<Outcome<f64>> = None;
            for (place, options) in tilings().iter().enumerate() {
                // counted by the run, and before it
                let target: &dyn Source<f64> = if place == 1 { &labels } else { &source };
                let got = run(backend, target, ignore_index, options).expect("it runs");
                assert!((got.loss - loss).abs() <= 1e-12 * loss, "{ignore_index:?}: {} for {loss}", got.loss);
                for (got, expected) in got.grad.iter().zip(&grad) {
                    assert!((got - expected).abs() <= 1e-12, "{ignore_index:?}: {got} for {expected}");
                }
                match &first {
                    None => first = Some(got),
                    Some(first) => {
                        assert!(got.tiles > 1);
                        assert_eq!(got.loss.to_bits(), first.loss.to_bits(), "{ignore_index:?}: loss");
                        assert!(
                            got.grad == first.grad && got.grad_bias == first.grad_bias,
                            "{ignore_index:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn r02_single_precision_ignores_the_same_pixels() {
    let cpu = CpuBackend::new().expect("an instruction set");
    let target = classes::<f32>(Some(255.0));
    let source = MemorySource::try_from(&target).expect("small");
    let (loss, _) = formula(&classes(Some(255.0)), Some(255.0));
    for options in tilings() {
        let got = run::<f32>(&cpu, &source, Some(255), &options).expect("it runs");
        assert!((got.loss - loss).abs() <= 1e-6, "{} for {loss}", got.loss);
        let zeros = got.grad[..SHAPE[2] * SHAPE[3]].iter().zip(target.data());
        assert!(zeros.filter(|(_, class)| **class == 255.0).all(|(grad, _)| *grad == 0.0));
    }
}

#[test]
fn r02_what_is_no_class_is_an_error_with_its_pixel() {
    let cpu = CpuBackend::new().expect("an instruction set");
    for (class, text) in [(7.0, "7"), (-1.0, "-1"), (1.5, "1.5"), (f64::NAN, "NaN"), (3.0, "3")] {
        let mut target = classes::<f64>(None);
        let place = SHAPE[2] * SHAPE[3] + 4 * SHAPE[3] + 30;
        target.data_mut()[place] = class;
        target.data_mut()[place + 2 * SHAPE[3]] = 99.0; // not the first
        let source = MemorySource::try_from(&target).expect("small");
        let expected = format!(
            "`<target>`: class {text} at row 4, column 30 of image 1 is none of the {CLASSES} classes from 0 on"
        );
        for options in tilings() {
            let error = run::<f64>(&cpu, &source, Some(255), &options).err().expect("it is no class");
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[test]
fn r02_a_source_that_is_not_in_memory_is_checked_too() {
    let cpu = CpuBackend::new().expect("an instruction set");
    let shape = [SHAPE[0], 1, SHAPE[2], SHAPE[3]];
    let source = FnSource::new::<f64>("<function>", shape, |region, window| {
        for n in 0..SHAPE[0] {
            for y in region.rows().begin()..region.rows().end() {
                for x in region.cols().begin()..region.cols().end() {
                    window.set(n, 0, y, x, if (n, y, x) == (1, 20, 33) { 3.0 } else { 2.0 });
                }
            }
        }
        Ok(())
    })
    .expect("small");
    let error = run::<f64>(&cpu, &source, None, &PlanOptions::default()).err().expect("3 is no class");
    assert!(error.to_string().contains("class 3 at row 20, column 33 of image 1"), "{error}");
}

#[test]
fn r02_a_target_that_is_ignored_whole_is_an_error() {
    let cpu = CpuBackend::new().expect("an instruction set");
    let target = Tensor::<f64>::from_fn([SHAPE[0], 1, SHAPE[2], SHAPE[3]], |_| 255.0).expect("small");
    let source = MemorySource::try_from(&target).expect("small");
    let error = run(&cpu, &source, Some(255), &PlanOptions::default()).err().expect("no loss");
    assert!(
        matches!(error, ExecError::Io(IoError::AllIgnored { pixels: 1428, ignore_index: 255, .. })),
        "{error}"
    );
}

/// What a source takes for a transfer is what its labels take: a run is refused whose plan counts less.
#[test]
fn labels_take_what_their_source_takes() {
    let read = |_: [usize; 2], chunk: &mut [u8]| {
        chunk.fill(1);
        Ok(())
    };
    let source = ChunkedSource::new("chunks", [1, 1, 900, 900], [600, 700], read).expect("few bytes");
    let taken = Source::<f32>::transfer_bytes(&source);
    let labels = Labels::new::<f32>("labels", source.with_numbers(Numbers::AsIs), CLASSES, None);
    let labels = labels.expect("they are classes");
    assert!(taken > 256 << 10, "{taken}");
    assert_eq!(Source::<f32>::transfer_bytes(&labels), taken);
}

#[test]
fn r02_labels_of_another_count_of_classes_are_counted_again() {
    let cpu = CpuBackend::new().expect("an instruction set");
    let mut target = classes::<f64>(None);
    target.data_mut()[0] = 5.0;
    let labels = Labels::new::<f64>("six", MemorySource::try_from(&target).expect("small"), 6, None);
    let labels = labels.expect("5 is among six");
    let error = run(&cpu, &labels, None, &PlanOptions::default()).err().expect("5 is not among three");
    assert!(error.to_string().contains("class 5 at row 0, column 0 of image 0"), "{error}");
}
