//! The speed of every kernel and reduction but convolution, beside a copy loop in the same run.
//!
//! `cargo run --release -p tiled-cpu --example ops_speed -- [threads] [name]`; `TILED_ISA` chooses the
//! instruction set. A name may be several with `|` between them. Bytes are those of the inputs and the
//! output, each once. "memory" is an image that leaves the caches, "cache" one that stays in the second.
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::time::Instant;

use tiled_cpu::CpuBackend;
use tiled_geometry::{PadMode, Padding, Region, Resize, ResizeMode, Window};
use tiled_kernel::{
    Activation, Backend, Dropped, Host, Kernel, LocalResponse, Params, Partial, PixelNorm, Pool, Reduction,
    Workspace,
};
use tiled_tensor::{AlignedBuffer, Layout, View, ViewMut};

/// A window of one image.
struct Held {
    data: AlignedBuffer<f32>,
    layout: Layout,
}

impl Held {
    fn new(channels: usize, block: usize, extents: [i64; 2]) -> Self {
        let rows = usize::try_from(extents[0]).expect("a positive extent");
        let layout = Layout::new(1, channels, block, Region::whole(extents), rows).expect("it fits memory");
        let mut data = AlignedBuffer::new(layout.len());
        let mut state = 1_u32;
        for value in data.iter_mut() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *value = f32::from((state >> 16) as u16) / 16_384.0 - 2.0;
        }
        Self { data, layout }
    }

    fn view(&self) -> View<'_, f32> {
        View::new(&self.data, self.layout)
    }
}

enum Work {
    Kernel(Kernel, [i64; 2]),
    Reduction(Reduction),
}

struct Case {
    name: String,
    work: Work,
    inputs: Vec<[i64; 2]>,
}

fn cases([height, width]: [i64; 2]) -> Vec<Case> {
    let whole = [height, width];
    let pool = |k, s, p| {
        let window = Window::new(k, s, 1, p).expect("a window");
        Pool {
            windows: [window; 2],
            padding_after: [p; 2],
            input: whole,
            output: whole.map(|extent| window.outputs(extent, p, false)),
            counts_padding: false,
        }
    };
    let resize = |mode| whole.map(|extent| Resize::new(mode, extent, 2 * extent).expect("extents"));
    let twice = whole.map(|extent| 2 * extent);
    let padding = whole.map(|extent| Padding::new(PadMode::Reflect, extent, 1, 1).expect("extents"));
    let padded = whole.map(|extent| extent + 2);
    let kernel = |name: &str, kernel, inputs, output| Case {
        name: name.to_owned(),
        work: Work::Kernel(kernel, output),
        inputs,
    };
    let norm = PixelNorm { eps: 1e-5, centred: true };
    let local = LocalResponse { size: 5, alpha: 1e-4, beta: 0.75, k: 1.0 };
    let mut cases = vec![
        kernel("add", Kernel::Add, vec![whole; 2], whole),
        kernel("mul", Kernel::Mul, vec![whole; 2], whole),
        kernel("fill", Kernel::Fill { value: 1.0 }, vec![], whole),
        kernel("concat", Kernel::Concat, vec![whole], whole),
        kernel("slice", Kernel::Slice { begin: 0 }, vec![whole], whole),
        kernel(
            "dropout",
            Kernel::Dropout { probability: 0.5, seed: 1, dropped: Dropped::Elements },
            vec![whole],
            whole,
        ),
        kernel("mse backward", Kernel::DifferenceScaled { scale: 0.5 }, vec![whole; 2], whole),
        kernel("cross-entropy backward", Kernel::CrossEntropyBackward { scale: 0.5 }, vec![whole; 2], whole),
        kernel("channel affine", Kernel::ChannelAffine { activation: None }, vec![whole], whole),
        kernel(
            "channel affine relu",
            Kernel::ChannelAffine { activation: Some(Activation::Relu) },
            vec![whole],
            whole,
        ),
        kernel("channel combine", Kernel::ChannelCombine, vec![whole; 2], whole),
        kernel("softmax", Kernel::Softmax { log: false }, vec![whole], whole),
        kernel("softmax backward", Kernel::SoftmaxBackward { log: false }, vec![whole; 2], whole),
        kernel("pixel norm", Kernel::PixelNorm(norm), vec![whole], whole),
        kernel("pixel norm backward", Kernel::PixelNormBackward(norm), vec![whole; 2], whole),
        kernel("local response", Kernel::LocalResponse(local), vec![whole], whole),
        kernel("local response backward", Kernel::LocalResponseBackward(local), vec![whole; 2], whole),
        kernel("pad reflect 1", Kernel::Pad(padding), vec![whole], padded),
        kernel("pad backward", Kernel::PadBackward(padding), vec![padded], whole),
        kernel("nearest x2", Kernel::Resize(resize(ResizeMode::NEAREST)), vec![whole], twice),
        kernel(
            "nearest x2 backward",
            Kernel::ResizeBackward(resize(ResizeMode::NEAREST)),
            vec![twice],
            whole,
        ),
        kernel("linear x2", Kernel::Resize(resize(ResizeMode::LINEAR)), vec![whole], twice),
        kernel("linear x2 backward", Kernel::ResizeBackward(resize(ResizeMode::LINEAR)), vec![twice], whole),
    ];
    for (name, k, s, p) in [("2/2", 2, 2, 0), ("3/2", 3, 2, 1), ("3/1", 3, 1, 1), ("5/1", 5, 1, 2)] {
        let pool = pool(k, s, p);
        let output = pool.output;
        cases.push(kernel(&format!("max {name}"), Kernel::MaxPool2d(pool), vec![whole], output));
        let backward = Kernel::MaxPool2dBackward(pool);
        cases.push(kernel(&format!("max {name} backward"), backward, vec![output, whole], whole));
        cases.push(kernel(&format!("mean {name}"), Kernel::AvgPool2d(pool), vec![whole], output));
        let backward = Kernel::AvgPool2dBackward(pool);
        cases.push(kernel(&format!("mean {name} backward"), backward, vec![output], whole));
    }
    for (name, activation) in [
        ("relu", Activation::Relu),
        ("leaky relu", Activation::LeakyRelu { slope: 0.01 }),
        ("sigmoid", Activation::Sigmoid),
        ("tanh", Activation::Tanh),
        ("silu", Activation::Silu),
        ("gelu", Activation::Gelu),
        ("gelu tanh", Activation::GeluTanh),
        ("hardswish", Activation::HardSwish),
        ("mish", Activation::Mish),
    ] {
        cases.push(kernel(name, Kernel::Activation(activation), vec![whole], whole));
        let backward = Kernel::ActivationBackward(activation);
        cases.push(kernel(&format!("{name} backward"), backward, vec![whole; 2], whole));
    }
    for (reduction, inputs) in [
        (Reduction::ChannelSum, 1),
        (Reduction::ImageSum, 1),
        (Reduction::Moments, 1),
        (Reduction::CentredDot, 2),
        (Reduction::ChannelDot, 2),
        (Reduction::ImageMoments, 1),
        (Reduction::ImageCentredDot, 2),
        (Reduction::Sum, 1),
        (Reduction::SquaredError, 2),
        (Reduction::CrossEntropy, 2),
        (Reduction::ImageMax, 1),
    ] {
        cases.push(Case {
            name: reduction.name().to_owned(),
            work: Work::Reduction(reduction),
            inputs: vec![whole; inputs],
        });
    }
    cases
}

/// Seconds of the fastest of several calls.
fn fastest(mut call: impl FnMut()) -> f64 {
    call();
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    let mut calls = 0;
    while calls < 5 || begin.elapsed().as_secs_f64() < 0.08 {
        let start = Instant::now();
        call();
        best = best.min(start.elapsed().as_secs_f64());
        calls += 1;
    }
    best
}

/// Seconds per byte of a copy of as many bytes as an image has, shared among the threads.
fn copy(len: usize) -> f64 {
    let (from, mut to) = (AlignedBuffer::<f32>::new(len), AlignedBuffer::<f32>::new(len));
    let threads = rayon::current_num_threads();
    let part = len.div_ceil(threads);
    let seconds = fastest(|| {
        rayon::scope(|scope| {
            let mut parts = to.chunks_mut(part).zip(from.chunks(part));
            let first = parts.next();
            for (to, from) in parts {
                scope.spawn(move |_| to.copy_from_slice(from));
            }
            if let Some((to, from)) = first {
                to.copy_from_slice(from);
            }
        });
    });
    seconds / bytes(2 * len)
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
fn bytes(len: usize) -> f64 {
    (len * size_of::<f32>()) as f64
}

/// Gigabytes per second of a case.
fn speed(backend: CpuBackend, case: &Case, channels: usize, block: usize) -> f64 {
    let held: Vec<Held> = case.inputs.iter().map(|extents| Held::new(channels, block, *extents)).collect();
    let views: Vec<View<'_, f32>> = held.iter().map(Held::view).collect();
    let read: usize = held.iter().map(|held| held.layout.len()).sum();
    let params: Vec<f32> = (0..4 * channels).map(|_| 0.5).collect();
    match &case.work {
        Work::Kernel(kernel, extents) => {
            let mut output = Held::new(channels, block, *extents);
            let (layout, region) = (output.layout, Region::whole(*extents));
            let seconds = fastest(|| {
                let view = ViewMut::new(&mut output.data, layout);
                let params = match kernel {
                    Kernel::ChannelAffine { .. } => &params[..2 * channels],
                    _ => &params[..3 * channels],
                };
                backend.compute(kernel, Params::Packed(params), &views, view, region, &Workspace::NONE);
            });
            bytes(read + layout.len()) / seconds / 1e9
        }
        Work::Reduction(reduction) => {
            let mut partial: Partial<f32> =
                (&backend as &dyn Host<f32>).partial(reduction, 1, channels).expect("memory");
            let region = held[0].layout.region();
            let seconds = fastest(|| {
                backend.reduce(reduction, &[&params[..channels]], &views, region, &mut partial);
            });
            bytes(read) / seconds / 1e9
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let wanted = arguments.next().unwrap_or_default();
    let backend = CpuBackend::new().expect("TILED_ISA names an instruction set of this CPU");
    let vector = 16;
    // channels, block and extents: planes and channel blocks, in memory and in the second cache
    let settings = [
        ("memory, planes", 64, 1, [512, 512]),
        ("memory, blocks", 64, vector, [512, 512]),
        ("cache, planes", 32, 1, [16, 128]),
        ("cache, blocks", 32, vector, [16, 128]),
    ];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    pool.install(|| {
        println!("{} on {threads} threads; GB/s and share of a copy", Backend::<f32>::name(&backend));
        let copies = settings.map(|(_, channels, _, extents)| {
            let pixels: i64 = extents.iter().product();
            1e-9 / copy(channels * usize::try_from(pixels).expect("a positive extent"))
        });
        print!("{:24}", "");
        settings.iter().for_each(|(name, ..)| print!("{name:>20}"));
        println!();
        print!("{:24}", "copy");
        copies.iter().for_each(|copy| print!("{copy:>14.1}      "));
        println!();
        for index in 0..cases(settings[0].3).len() {
            let mut line = String::new();
            for ((_, channels, block, extents), copy) in settings.iter().zip(copies) {
                let case = &cases(*extents)[index];
                if !wanted.split('|').any(|part| case.name.contains(part)) {
                    continue;
                }
                if line.is_empty() {
                    line = format!("{:24}", case.name);
                }
                let speed = speed(backend, case, *channels, *block);
                line += &format!("{speed:>14.1} {:>4.0}%", 100.0 * speed / copy);
            }
            if !line.is_empty() {
                println!("{line}");
            }
        }
    });
}
