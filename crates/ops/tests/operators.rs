//! Every operator, forward and backward, on every instruction set: the naive kernels' results, with the same bits whatever the tiles are.

use std::sync::atomic::{AtomicUsize, Ordering};

use tiled_cpu::{CpuBackend, Isa};
use tiled_exec::{ExecError, FnSink, FnSource, MemorySink, MemorySource, SliceSink};
use tiled_geometry::Region;
use tiled_graph::{Activation, AvgPool2d, Conv2d, MaxPool2d, Op, UNLIMITED};
use tiled_kernel::{Backend, Context, DeviceError, Needs, Reference, forward};
use tiled_ops::{DEFAULT_BYTES, Engine, Options, WeightGradients, Weights, output_shape};
use tiled_tensor::{Element, Tensor, View, ViewMut};

/// Numbers that look random, the same for every run, between −1 and 1.
fn random<T: Element>(shape: [usize; 4], seed: u64) -> Tensor<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Tensor::from_fn(shape, |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        T::from_f64((state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)
    })
    .expect("small")
}

/// A tensor between other numbers: every second column of rows with a gap behind them.
struct Strided<T> {
    data: Vec<T>,
    shape: [usize; 4],
    strides: [isize; 4],
}

impl<T: Element> Strided<T> {
    fn new(tensor: &Tensor<T>) -> Self {
        let shape = tensor.shape();
        let [n, c, h, w] = shape;
        let row = 2 * w + 3;
        let strides = [c * h * row, h * row, row, 2].map(|stride| isize::try_from(stride).expect("small"));
        let mut data = vec![T::from_f64(f64::NAN); n * c * h * row];
        for (place, value) in tensor.data().iter().enumerate() {
            data[place / w * row + place % w * 2] = *value;
        }
        Self { data, shape, strides }
    }

    fn source(&self) -> MemorySource<'_, T> {
        MemorySource::with_strides(&self.data, self.shape, 0, self.strides).expect("it fits")
    }

    fn sink(&mut self) -> SliceSink<'_, T> {
        SliceSink::with_strides(&mut self.data, self.shape, 0, self.strides).expect("it fits")
    }

    fn values(&self) -> Vec<T> {
        let [.., w] = self.shape;
        let rows = self.data.chunks(2 * w + 3);
        rows.flat_map(|row| row.iter().step_by(2).take(w).copied()).collect()
    }
}

/// How tensors lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    Contiguous,
    Strided,
}

/// Calls `body` with sources of `inputs` and a sink for a tensor of `shape`, which it returns.
fn with_memory<T: Element, const N: usize>(
    lie: Lie,
    inputs: [&Tensor<T>; N],
    shape: [usize; 4],
    body: impl FnOnce([&MemorySource<'_, T>; N], &dyn tiled_exec::Sink<T>),
) -> Vec<T> {
    match lie {
        Lie::Contiguous => {
            let sources = inputs.map(|input| MemorySource::try_from(input).expect("contiguous"));
            let sink = MemorySink::new(shape).expect("small");
            body(sources.each_ref(), &sink);
            sink.into_tensor().data().to_vec()
        }
        Lie::Strided => {
            let inputs = inputs.map(Strided::new);
            let mut output = Strided::new(&random(shape, 99));
            let sources = inputs.each_ref().map(Strided::source);
            body(sources.each_ref(), &output.sink());
            output.values()
        }
    }
}

/// A convolution, its tensors, and whether it has a bias and an activation.
struct Convolution<T: Element> {
    conv: Conv2d,
    activation: Option<Activation>,
    has_bias: bool,
    x: Tensor<T>,
    weight: Tensor<T>,
    bias: Tensor<T>,
    grad_output: Tensor<T>,
}

impl<T: Element> Convolution<T> {
    fn new(conv: Conv2d, activation: Option<Activation>, input: [usize; 4], has_bias: bool) -> Self {
        let [height, width] = conv.kernel_size.map(|side| usize::try_from(side).expect("small"));
        let output = output_shape(Op::Conv2d(conv.clone()), input).expect("it fits");
        Self {
            x: random(input, 1),
            weight: random([conv.out_channels, input[1] / conv.groups, height, width], 2),
            bias: random([1, conv.out_channels, 1, 1], 3),
            grad_output: random(output, 4),
            conv,
            activation,
            has_bias,
        }
    }

    /// Output and gradient of the input, then the gradients of weight and bias.
    fn run(&self, engine: &mut Engine<'_, T>, options: &Options, lie: Lie) -> [Vec<T>; 4] {
        let Self { conv, activation, x, weight, bias, grad_output, .. } = self;
        let output = with_memory(lie, [x, weight, bias], grad_output.shape(), |[x, weight, bias], sink| {
            let weights = Weights { weight, bias: self.has_bias.then_some(bias) };
            engine.conv2d(conv, *activation, options, x, &weights, sink).expect("it runs");
        });
        let grad_input = with_memory(lie, [grad_output, weight], x.shape(), |[grad_output, weight], sink| {
            engine.conv2d_backward_input(conv, options, grad_output, weight, sink).expect("it runs");
        });
        let mut grad_bias = vec![T::ZERO; conv.out_channels];
        let grad_weight = with_memory(lie, [x, grad_output], weight.shape(), |[x, grad_output], sink| {
            let bias = SliceSink::new(&mut grad_bias, bias.shape()).expect("it fits");
            let gradients = WeightGradients { weight: sink, bias: self.has_bias.then_some(&bias) };
            engine.conv2d_backward_weight(conv, options, x, grad_output, &gradients).expect("it runs");
        });
        [output, grad_input, grad_weight, grad_bias]
    }
}

fn options() -> Vec<Options> {
    let tile = |tile| Options { tile, ..Options::default() };
    vec![
        Options::default(),
        tile([Some(5), Some(7)]),
        tile([Some(3), None]),
        tile([None, Some(i64::MAX)]),
        Options { memory_bytes: Some(400 << 10), ..Options::default() },
        Options { memory_bytes: Some(400 << 10), tile: [None, Some(6)] },
    ]
}

fn assert_near<T: Element>(got: &[T], expected: &[T], terms: usize, what: &str) {
    let most = expected.iter().map(|value| value.to_f64().abs()).fold(1.0, f64::max);
    let epsilon = if size_of::<T>() == 4 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    let bound = most * epsilon * (terms as f64 + 8.0);
    assert_eq!(got.len(), expected.len(), "{what}");
    for (place, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (got.to_f64() - expected.to_f64()).abs();
        assert!(error <= bound, "{what}: element {place} is {got:?}, not {expected:?}");
    }
}

fn differing<T: Element>(a: &[T], b: &[T]) -> usize {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).filter(|(a, b)| a.to_bits_u64() != b.to_bits_u64()).count()
}

fn backends() -> impl Iterator<Item = CpuBackend> {
    Isa::ALL.into_iter().filter_map(|isa| CpuBackend::with_isa(isa).ok())
}

fn check_convolution<T: Element>(case: &Convolution<T>)
where
    CpuBackend: Backend<T>,
    Reference: Backend<T>,
{
    let unlimited = Options { memory_bytes: Some(UNLIMITED), ..Options::default() };
    let naive = case.run(&mut Engine::new(&Reference, 1).expect("starts"), &unlimited, Lie::Contiguous);
    let pixels = case.grad_output.shape().iter().product::<usize>();
    let terms = [case.weight.data().len(), case.weight.data().len(), pixels, pixels];
    for backend in backends() {
        let mut engine = Engine::new(&backend, 2).expect("starts");
        let whole = case.run(&mut engine, &unlimited, Lie::Contiguous);
        for options in options() {
            for lie in [Lie::Contiguous, Lie::Strided] {
                let what =
                    format!("{:?} of {:?} on {backend:?}, {options:?}, {lie:?}", case.conv, case.x.shape());
                let got = case.run(&mut engine, &options, lie);
                let again = case.run(&mut engine, &options, lie);
                for place in 0..4 {
                    assert_near(&got[place], &naive[place], terms[place], &format!("{what}: {place}"));
                    assert_eq!(differing(&got[place], &again[place]), 0, "{what}: {place} again");
                    if place < 2 {
                        assert_eq!(differing(&got[place], &whole[place]), 0, "{what}: {place} in tiles");
                    }
                }
            }
        }
    }
}

#[test]
fn convolutions_and_their_gradients() {
    let conv = |out, kernel, stride, padding, dilation, groups| Conv2d {
        stride,
        padding,
        dilation,
        groups,
        ..Conv2d::new(out, kernel)
    };
    let (none, same) = ([[0, 0], [0, 0]], [[1, 1], [1, 1]]);
    for (conv, input, activation) in [
        (conv(24, [3, 3], [1, 1], same, [1, 1], 1), [2, 20, 17, 23], Some(Activation::Relu)),
        (conv(5, [3, 2], [2, 1], [[1, 0], [0, 2]], [1, 2], 1), [2, 3, 19, 16], None),
        (conv(32, [3, 3], [2, 2], same, [1, 1], 32), [1, 32, 18, 21], Some(Activation::Silu)),
        (conv(1, [3, 3], [1, 1], same, [1, 1], 1), [1, 1, 16, 16], None),
        (
            conv(18, [1, 1], [1, 1], none, [1, 1], 2),
            [3, 34, 9, 31],
            Some(Activation::LeakyRelu { slope: 0.1 }),
        ),
    ] {
        for has_bias in [true, false] {
            check_convolution(&Convolution::<f32>::new(conv.clone(), activation, input, has_bias));
            check_convolution(&Convolution::<f64>::new(conv.clone(), activation, input, has_bias));
        }
    }
}

/// Runs one of the four poolings on whatever an engine computes with.
type Pooling<'p, T> = dyn Fn(&mut Engine<'_, T>, &Options, Lie) -> Vec<T> + 'p;

fn check_pooling<T: Element>(name: &str, run: &Pooling<'_, T>)
where
    CpuBackend: Backend<T>,
    Reference: Backend<T>,
{
    let unlimited = Options { memory_bytes: Some(UNLIMITED), ..Options::default() };
    let naive = run(&mut Engine::new(&Reference, 1).expect("starts"), &unlimited, Lie::Contiguous);
    for backend in backends() {
        let mut engine = Engine::new(&backend, 2).expect("starts");
        let whole = run(&mut engine, &unlimited, Lie::Contiguous);
        assert_near(&whole, &naive, 16, name);
        for options in options() {
            for lie in [Lie::Contiguous, Lie::Strided] {
                let got = run(&mut engine, &options, lie);
                assert_eq!(differing(&got, &whole), 0, "{name} on {backend:?}, {options:?}, {lie:?}");
            }
        }
    }
}

fn check_poolings<T: Element>(maximum: &MaxPool2d, average: &AvgPool2d, input: [usize; 4])
where
    CpuBackend: Backend<T>,
    Reference: Backend<T>,
{
    let x = random::<T>(input, 5);
    let shape = output_shape(Op::MaxPool2d(maximum.clone()), input).expect("it fits");
    let grad_output = random::<T>(shape, 6);
    check_pooling::<T>(&format!("{maximum:?}"), &|engine, options, lie| {
        with_memory(lie, [&x], shape, |[x], sink| {
            engine.max_pool2d(maximum, options, x, sink).expect("it runs")
        })
    });
    check_pooling::<T>(&format!("gradient of {maximum:?}"), &|engine, options, lie| {
        with_memory(lie, [&grad_output, &x], input, |[grad_output, x], sink| {
            engine.max_pool2d_backward(maximum, options, grad_output, x, sink).expect("it runs");
        })
    });
    let shape = output_shape(Op::AvgPool2d(average.clone()), input).expect("it fits");
    let grad_output = random::<T>(shape, 7);
    check_pooling::<T>(&format!("{average:?}"), &|engine, options, lie| {
        with_memory(lie, [&x], shape, |[x], sink| {
            engine.avg_pool2d(average, options, x, sink).expect("it runs")
        })
    });
    check_pooling::<T>(&format!("gradient of {average:?}"), &|engine, options, lie| {
        with_memory(lie, [&grad_output], input, |[grad_output], sink| {
            engine.avg_pool2d_backward(average, options, grad_output, sink).expect("it runs");
        })
    });
}

#[test]
fn poolings_and_their_gradients() {
    let uneven = [[1, 0], [0, 1]];
    for (kernel, stride, padding, dilation, ceil_mode) in [
        ([2, 2], [2, 2], [[0, 0], [0, 0]], [1, 1], false),
        ([3, 2], [2, 1], uneven, [1, 2], true),
        ([3, 3], [1, 2], [[1, 1], [1, 1]], [1, 1], true),
    ] {
        let maximum = MaxPool2d { stride, padding, dilation, ceil_mode, ..MaxPool2d::new(kernel) };
        for count_include_pad in [true, false] {
            let average =
                AvgPool2d { stride, padding, ceil_mode, count_include_pad, ..AvgPool2d::new(kernel) };
            for input in [[2, 20, 17, 23], [1, 3, 16, 31]] {
                check_poolings::<f32>(&maximum, &average, input);
                check_poolings::<f64>(&maximum, &average, input);
            }
        }
    }
}

#[test]
fn weights_that_change_between_calls_are_read_again() {
    let backend = CpuBackend::new().expect("an instruction set");
    let mut engine = Engine::new(&backend, 1).expect("starts");
    let mut case = Convolution::<f32>::new(Conv2d::new(4, [3, 3]), None, [1, 2, 9, 9], true);
    let before = case.run(&mut engine, &Options::default(), Lie::Contiguous);
    case.weight = random(case.weight.shape(), 22);
    case.bias = random(case.bias.shape(), 23);
    let after = case.run(&mut engine, &Options::default(), Lie::Contiguous);
    assert!(differing(&before[0], &after[0]) > 0 && differing(&before[1], &after[1]) > 0);
    let fresh =
        case.run(&mut Engine::new(&backend, 1).expect("starts"), &Options::default(), Lie::Contiguous);
    for place in 0..4 {
        assert_eq!(differing(&after[place], &fresh[place]), 0, "{place}");
    }
}

/// Zeros are equal and have two signs: calls that differ in the sign of one are two.
#[test]
fn zeros_of_activations_have_their_signs() {
    let backend = CpuBackend::new().expect("an instruction set");
    for of_zero in [
        |zero: f64| Activation::Clamp { min: zero, max: f64::INFINITY },
        |zero: f64| Activation::Threshold { threshold: 0.0, value: zero },
        |zero: f64| Activation::LeakyRelu { slope: zero },
    ] {
        let mut engine = Engine::new(&backend, 1).expect("starts");
        let run = |zero: f64, engine: &mut Engine<'_, f32>| {
            let conv = Conv2d::new(4, [3, 3]);
            let case = Convolution::<f32>::new(conv, Some(of_zero(zero)), [1, 2, 9, 9], true);
            let [output, ..] = case.run(engine, &Options::default(), Lie::Contiguous);
            output.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let positive = run(0.0, &mut engine);
        let negative = run(-0.0, &mut engine);
        assert_ne!(positive, negative);
        assert_eq!(negative, run(-0.0, &mut Engine::new(&backend, 1).expect("starts")));
    }
}

/// Counts what is opened: a call that is planned anew opens memory of its own.
#[derive(Debug)]
struct Opened {
    backend: CpuBackend,
    count: AtomicUsize,
}

impl Backend<f32> for Opened {
    forward!(f32, |opened| &opened.backend; name block support seconds transfers_beside workers);

    fn open<'b>(&'b self, needs: &Needs<'_>) -> Result<Box<dyn Context<f32> + 'b>, DeviceError> {
        self.count.fetch_add(1, Ordering::Relaxed);
        Backend::<f32>::open(&self.backend, needs)
    }
}

#[test]
fn a_call_that_comes_again_is_not_planned_again() {
    let opened =
        Opened { backend: CpuBackend::new().expect("an instruction set"), count: AtomicUsize::new(0) };
    let mut engine = Engine::new(&opened, 1).expect("starts");
    let pool = MaxPool2d::new([2, 2]);
    let mut call = |width: usize, options: &Options| {
        let x = random::<f32>([1, 3, 8, width], 1);
        let shape = output_shape(Op::MaxPool2d(pool.clone()), x.shape()).expect("it fits");
        with_memory(Lie::Contiguous, [&x], shape, |[x], sink| {
            engine.max_pool2d(&pool, options, x, sink).expect("it runs");
        });
        opened.count.load(Ordering::Relaxed)
    };
    // as many calls in turns as are kept
    let widths = 2..2 + 32;
    for round in 0..3 {
        for width in widths.clone() {
            let expected = if round == 0 { width - 1 } else { 32 };
            assert_eq!(call(width, &Options::default()), expected, "width {width} in round {round}");
        }
    }
    // other options are another call, and one more sends off the one that was used longest ago
    let tile = Options { tile: [Some(2), None], ..Options::default() };
    assert_eq!(call(2, &tile), 33);
    assert_eq!(call(33, &Options::default()), 33);
    assert_eq!(call(2, &Options::default()), 34);
}

#[test]
fn what_is_kept_is_bounded() {
    let backend = CpuBackend::new().expect("an instruction set");
    let mut engine = Engine::new(&backend, 1).expect("starts");
    let call = |engine: &mut Engine<'_, f32>, channels: usize, options: &Options| {
        let case = Convolution::<f32>::new(Conv2d::new(channels, [3, 3]), None, [1, channels, 8, 8], true);
        with_memory(Lie::Strided, [&case.x, &case.weight], case.grad_output.shape(), |[x, weight], sink| {
            let weights = Weights { weight, bias: None };
            engine.conv2d(&case.conv, None, options, x, &weights, sink).expect("it runs");
        });
    };
    let mut most = 0;
    for channels in (16..=512).step_by(16) {
        call(&mut engine, channels, &Options::default());
        most = most.max(engine.kept_bytes());
        assert!(engine.kept_bytes() <= DEFAULT_BYTES, "{} bytes", engine.kept_bytes());
    }
    assert!(most > DEFAULT_BYTES / 4, "{most} bytes: several calls are kept at a time");
    // a call with a budget holds no more than that, with all that others left
    let options = Options { memory_bytes: Some(1 << 20), ..Options::default() };
    call(&mut engine, 16, &options);
    assert!(engine.kept_bytes() <= 1 << 20, "{} bytes", engine.kept_bytes());
}

#[test]
fn a_tile_with_a_free_side_keeps_to_the_default_budget() {
    let backend = CpuBackend::new().expect("an instruction set");
    let mut engine = Engine::new(&backend, 2).expect("starts");
    // 256 MiB, which no tile of whole rows would hold in windows
    let shape = [1, 16, 64, 65536];
    let ones = |_: Region<2>, window: &mut ViewMut<'_, f32>| {
        window.data_mut().fill(1.0);
        Ok(())
    };
    let source = FnSource::new("<ones>", shape, ones).expect("small");
    let wrong = AtomicUsize::new(0);
    let count = |region: Region<2>, window: &View<'_, f32>| {
        let columns = region.cols().begin()..region.cols().end();
        let is_one = columns.into_iter().all(|x| window.get(0, 3, region.rows().begin(), x) == 1.0);
        wrong.fetch_add(usize::from(!is_one), Ordering::Relaxed);
        Ok(())
    };
    let sink = FnSink::new("<count>", [1, 16, 32, 32768], count).expect("small");
    let options = Options { tile: [Some(32), None], ..Options::default() };
    engine.avg_pool2d(&AvgPool2d::new([2, 2]), &options, &source, &sink).expect("it runs");
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
    assert!(engine.kept_bytes() <= DEFAULT_BYTES, "{} bytes", engine.kept_bytes());
}

#[test]
fn the_gradient_of_one_pixel_is_cut_into_tiles() {
    let backend = CpuBackend::new().expect("an instruction set");
    let (shape, pool) = ([2, 20, 61, 64], AvgPool2d::new([61, 64]));
    let grad_output = random::<f32>([2, 20, 1, 1], 8);
    let [(whole, all), (tiled, less)] = [[None; 2], [Some(16), Some(20)]].map(|tile| {
        let mut engine = Engine::new(&backend, 2).expect("starts");
        let options = Options { tile, ..Options::default() };
        let result = with_memory(Lie::Strided, [&grad_output], shape, |[grad_output], sink| {
            engine.avg_pool2d_backward(&pool, &options, grad_output, sink).expect("it runs");
        });
        (result, engine.kept_bytes())
    });
    assert_eq!(differing(&whole, &tiled), 0);
    assert!(less < all / 2, "{less} bytes in tiles, {all} without");
}

#[test]
fn what_does_not_fit_is_an_error_that_names_both_numbers() {
    let backend = CpuBackend::new().expect("an instruction set");
    let mut engine = Engine::<f32>::new(&backend, 1).expect("starts");
    let (x, weight) = (random([1, 4, 9, 9], 1), random([6, 4, 3, 3], 2));
    let mut attempt = |conv: &Conv2d, options: &Options, shape: [usize; 4]| {
        let mut output = vec![7.0; shape.iter().product()];
        let error = {
            let source = |tensor| MemorySource::try_from(tensor).expect("contiguous");
            let (input, weight) = (source(&x), source(&weight));
            let sink = SliceSink::new(&mut output, shape).expect("it fits");
            let weights = Weights { weight: &weight, bias: None };
            let done = engine.conv2d(conv, None, options, &input, &weights, &sink);
            assert!(tiled_exec::Sink::finish(&sink).is_err(), "it is aborted");
            done
        };
        assert!(output.iter().all(|value| *value == 7.0), "nothing is written");
        error.map_err(|error: ExecError| error.to_string()).expect_err("it does not fit")
    };
    let (fits, free) = (Conv2d::new(6, [3, 3]), Options::default());
    let cases = [
        (attempt(&Conv2d::new(5, [3, 3]), &free, [1, 6, 7, 7]), ["[5, 4, 3, 3]", "[6, 4, 3, 3]"]),
        (attempt(&fits, &free, [1, 6, 7, 8]), ["[1, 6, 7, 7]", "[1, 6, 7, 8]"]),
        (attempt(&fits, &Options { memory_bytes: Some(10), ..free }, [1, 6, 7, 7]), ["10 bytes", "smallest"]),
        (attempt(&fits, &Options { tile: [Some(0), None], ..free }, [1, 6, 7, 7]), ["0", "1"]),
        (
            attempt(&Conv2d { groups: 3, ..fits.clone() }, &free, [1, 6, 7, 7]),
            ["[6, 1, 3, 3]", "[6, 4, 3, 3]"],
        ),
    ];
    for (message, parts) in cases {
        for part in parts {
            assert!(message.contains(part), "`{message}` says nothing of {part}");
        }
    }
    let pool = MaxPool2d { dilation: [12, 1], ..MaxPool2d::new([2, 2]).padded([1, 1]) };
    let error = output_shape(Op::MaxPool2d(pool), [1, 1, 10, 10]).expect_err("it steps over the input");
    assert!(error.to_string().contains("12"), "{error}");
}
