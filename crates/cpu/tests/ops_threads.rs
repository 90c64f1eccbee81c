//! The same bits whatever the number of threads.

use tiled_cpu::{CpuBackend, Isa};
use tiled_geometry::{Interval, PadMode, Padding, Region, Resize, ResizeMode, Window};
use tiled_kernel::{
    Activation, Dropped, Host, Kernel, Params, Partial, Pool, Reduction, Workspace, copy_region,
};
use tiled_tensor::{AlignedBuffer, Layout, View, ViewMut};

/// Large enough that every kernel is shared among threads.
const SIZE: i64 = 192;
const CHANNELS: usize = 24;

struct Held {
    data: AlignedBuffer<f32>,
    layout: Layout,
}

impl Held {
    fn new(channels: usize, block: usize, extents: [i64; 2], seed: u32) -> Self {
        let rows = usize::try_from(extents[0]).expect("a positive extent");
        let layout = Layout::new(2, channels, block, Region::whole(extents), rows).expect("a small window");
        let mut data = AlignedBuffer::new(layout.len());
        let mut state = seed;
        for value in data.iter_mut() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // small multiples, so that maxima have ties
            *value = (f32::from((state >> 24) as u8) - 128.0) / 16.0;
        }
        Self { data, layout }
    }

    fn view(&self) -> View<'_, f32> {
        View::new(&self.data, self.layout)
    }
}

fn with_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool").install(work)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn kernels_give_the_same_bits_on_one_two_and_three_threads() {
    let window = |k, s, p| Window::new(k, s, 1, p).unwrap();
    let pool = |k: i64, s, p| {
        let window = window(k, s, p);
        let output = window.outputs(SIZE, p, false);
        Pool {
            windows: [window; 2],
            padding_after: [p; 2],
            input: [SIZE; 2],
            output: [output; 2],
            counts_padding: true,
        }
    };
    let resize = [Resize::new(ResizeMode::LINEAR, SIZE, 2 * SIZE).unwrap(); 2];
    let padding = [Padding::new(PadMode::Reflect, SIZE, 5, 7).unwrap(); 2];
    let whole = [SIZE; 2];
    let mut cases: Vec<(Kernel, Vec<[i64; 2]>, [i64; 2])> = vec![
        (Kernel::Add, vec![whole; 2], whole),
        (Kernel::Activation(Activation::Gelu), vec![whole], whole),
        (Kernel::Activation(Activation::Silu), vec![whole], whole),
        (Kernel::ActivationBackward(Activation::Silu), vec![whole; 2], whole),
        (Kernel::Dropout { probability: 0.4, seed: 7, dropped: Dropped::Elements }, vec![whole], whole),
        (Kernel::CrossEntropyBackward { scale: 0.5 }, vec![whole; 2], whole),
        (Kernel::Softmax { log: false }, vec![whole], whole),
        (Kernel::SoftmaxBackward { log: false }, vec![whole; 2], whole),
        (Kernel::Resize(resize), vec![whole], [2 * SIZE; 2]),
        (Kernel::ResizeBackward(resize), vec![[2 * SIZE; 2]], whole),
        (Kernel::Pad(padding), vec![whole], [SIZE + 12; 2]),
        (Kernel::PadBackward(padding), vec![[SIZE + 12; 2]], whole),
    ];
    for pool in [pool(2, 2, 0), pool(3, 2, 1), pool(3, 1, 1), pool(5, 3, 2)] {
        cases.push((Kernel::MaxPool2d(pool), vec![whole], pool.output));
        cases.push((Kernel::MaxPool2dBackward(pool), vec![pool.output, whole], whole));
        cases.push((Kernel::AvgPool2d(pool), vec![whole], pool.output));
        cases.push((Kernel::AvgPool2dBackward(pool), vec![pool.output], whole));
    }
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let backend = CpuBackend::with_isa(isa).unwrap();
        for (kernel, inputs, output) in &cases {
            for block in [1, 8] {
                let held: Vec<Held> = inputs
                    .iter()
                    .zip(1..)
                    .map(|(extents, i)| Held::new(CHANNELS, block, *extents, i))
                    .collect();
                let views: Vec<View<'_, f32>> = held.iter().map(Held::view).collect();
                let run = |threads| {
                    with_threads(threads, || {
                        let mut out = Held::new(CHANNELS, block, *output, 99);
                        let view = ViewMut::new(&mut out.data, out.layout);
                        backend.compute(
                            kernel,
                            Params::Packed(&[]),
                            &views,
                            view,
                            Region::whole(*output),
                            &Workspace::NONE,
                        );
                        bits(&out.data)
                    })
                };
                let one = run(1);
                for threads in [2, 3] {
                    let same = one == run(threads);
                    assert!(same, "{} on {isa}, block {block}, {threads} threads", kernel.name());
                }
            }
        }
    }
}

#[test]
fn reductions_give_the_same_sums_on_one_two_and_three_threads() {
    let mean: Vec<f32> = (0..24_u8).map(|c| f32::from(c) / 7.0).collect();
    let reductions = [
        Reduction::ChannelSum,
        Reduction::ImageSum,
        Reduction::Moments,
        Reduction::CentredDot,
        Reduction::ChannelDot,
        Reduction::ImageMoments,
        Reduction::ImageCentredDot,
        Reduction::Sum,
        Reduction::SquaredError,
        Reduction::CrossEntropy,
        Reduction::ImageMax,
    ];
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let backend = CpuBackend::with_isa(isa).unwrap();
        for reduction in &reductions {
            for block in [1, 8] {
                let held = [1, 2].map(|seed| Held::new(CHANNELS, block, [SIZE; 2], seed));
                let views = [held[0].view(), held[1].view()];
                let run = |threads| {
                    with_threads(threads, || {
                        let mut partial: Partial<f32> = (&backend as &dyn Host<f32>)
                            .partial(reduction, 2, CHANNELS)
                            .expect("memory for a small reduction");
                        backend.reduce(reduction, &[&mean], &views, Region::whole([SIZE; 2]), &mut partial);
                        match partial {
                            Partial::Exact(sums) => {
                                sums.iter().map(|sum| format!("{:x}", sum.value().to_bits())).collect()
                            }
                            Partial::Extrema(extrema) => {
                                extrema.iter().map(|extremum| format!("{extremum:?}")).collect::<Vec<_>>()
                            }
                            Partial::Values(_) => panic!("no weights here"),
                        }
                    })
                };
                let one = run(1);
                for threads in [2, 3] {
                    assert_eq!(one, run(threads), "{} on {isa}, block {block}", reduction.name());
                }
            }
        }
    }
}

#[test]
fn copies_move_a_region_and_nothing_else_on_one_two_and_three_threads() {
    let region = Region::from_rows_cols(Interval::new(3, SIZE - 2), Interval::new(1, SIZE - 6));
    let backend = CpuBackend::new().unwrap();
    for block in [1, 8, 16] {
        let from = Held::new(CHANNELS + 3, block, [SIZE; 2], 5);
        let before = Held::new(CHANNELS + 3, block, [SIZE; 2], 6);
        let mut expected = before.data.to_vec();
        copy_region(&from.view(), &mut ViewMut::new(&mut expected, before.layout), region);
        for threads in [1, 2, 3] {
            let mut data = before.data.to_vec();
            with_threads(threads, || {
                let host: &dyn Host<f32> = &backend;
                host.copy(&from.view(), ViewMut::new(&mut data, before.layout), region);
            });
            assert!(bits(&data) == bits(&expected), "block {block}, {threads} threads");
        }
    }
}
