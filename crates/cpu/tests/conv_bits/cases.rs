//! The convolutions, their tensors, and the products that they sum.

use tiled_cpu::{CpuBackend, Isa};
use tiled_geometry::{Region, Window};
use tiled_kernel::{Activation, Conv};
use tiled_tensor::{AlignedBuffer, Element, Layout};

/// A convolution with its batch size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) conv: Conv,
    pub(super) batch: usize,
    pub(super) bias: bool,
    pub(super) activation: Option<Activation>,
}

/// Geometry of one axis: extent, kernel, stride, dilation, padding before and after.
pub(super) type Axis = [i64; 6];

pub(super) fn case(batch: usize, channels: [usize; 2], groups: usize, axes: [Axis; 2]) -> Case {
    let windows = axes.map(|[_, k, s, d, p, _]| Window::new(k, s, d, p).unwrap());
    let output = [0, 1].map(|i| windows[i].outputs(axes[i][0], axes[i][5], false));
    assert!(output.iter().all(|&extent| extent > 0), "case without outputs");
    let conv = Conv {
        in_channels: channels[0],
        out_channels: channels[1],
        groups,
        windows,
        input: axes.map(|axis| axis[0]),
        output,
    };
    Case { conv, batch, bias: false, activation: None }
}

pub(super) fn same(extent: i64, kernel: i64) -> Axis {
    [extent, kernel, 1, 1, kernel / 2, kernel / 2]
}

pub(super) fn cases() -> Vec<Case> {
    let three = [same(11, 3), same(37, 3)];
    let two = [[13, 3, 2, 1, 1, 1], [38, 3, 2, 1, 1, 0]];
    let mut cases = vec![
        case(1, [3, 16], 1, three),
        case(2, [16, 16], 1, three),
        case(1, [16, 40], 1, three),
        case(1, [33, 64], 1, three),
        case(1, [64, 3], 1, three),
        case(1, [3, 2], 1, three),
        case(2, [1, 1], 1, three),
        case(1, [1, 6], 1, three),
        case(1, [16, 24], 1, [[9, 1, 1, 1, 0, 0], [70, 1, 1, 1, 0, 0]]),
        case(1, [20, 24], 1, [[9, 1, 2, 1, 0, 0], [31, 1, 2, 1, 0, 0]]),
        case(1, [16, 32], 1, two),
        case(1, [3, 64], 1, [[21, 7, 2, 1, 3, 3], [40, 7, 2, 1, 3, 3]]),
        case(1, [3, 3], 1, two),
        case(1, [8, 8], 1, [[17, 3, 1, 2, 2, 2], [29, 3, 1, 2, 2, 2]]),
        case(1, [8, 12], 1, [[17, 3, 2, 3, 1, 4], [29, 2, 3, 2, 2, 0]]),
        case(1, [4, 9], 1, [[17, 2, 3, 1, 0, 0], [29, 3, 4, 5, 6, 7]]),
        case(2, [32, 32], 32, three),
        case(1, [19, 19], 19, two),
        case(1, [16, 32], 16, three),
        case(1, [32, 32], 8, three),
        case(1, [24, 24], 3, three),
        case(1, [6, 9], 3, three),
        case(1, [2, 2], 2, three),
        case(1, [40, 36], 2, three),
        case(1, [64, 32], 2, two),
        case(1, [16, 16], 16, [[13, 2, 3, 1, 0, 0], [31, 3, 2, 2, 3, 1]]),
        // depthwise: sizes with tiles of their own and without, both phases of a stride, rows of strips and of one pixel
        case(2, [16, 16], 16, [same(9, 5), same(45, 5)]),
        case(1, [35, 35], 35, [same(9, 7), same(33, 7)]),
        case(1, [16, 16], 16, [[11, 5, 2, 1, 2, 2], [61, 5, 2, 1, 2, 2]]),
        case(1, [16, 16], 16, [[11, 7, 2, 1, 3, 2], [62, 7, 2, 1, 2, 3]]),
        case(1, [19, 19], 19, [[7, 3, 2, 1, 0, 0], [39, 3, 2, 1, 0, 1]]),
        case(1, [16, 16], 16, [same(17, 9), same(29, 4)]),
        case(1, [16, 16], 16, [[5, 3, 3, 1, 1, 1], [40, 6, 1, 1, 2, 3]]),
        case(1, [16, 16], 16, [[13, 3, 1, 4, 4, 4], [31, 5, 1, 2, 4, 4]]),
        case(1, [16, 16], 16, [same(4, 3), same(301, 3)]),
        case(1, [16, 16], 16, [[4, 5, 2, 1, 2, 2], [403, 5, 2, 1, 2, 2]]),
        case(1, [16, 16], 16, [same(3, 7), same(1, 7)]),
        case(1, [32, 32], 8, two),
        case(1, [32, 64], 16, [same(7, 2), [23, 5, 1, 1, 2, 2]]),
        case(1, [16, 16], 1, [[3, 5, 1, 1, 2, 2], [2, 5, 1, 1, 4, 4]]),
        case(1, [16, 16], 1, [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0]]),
        case(1, [16, 16], 1, [[6, 2, 1, 1, 5, 5], [6, 2, 1, 1, 5, 5]]),
        case(1, [16, 16], 1, [[9, 3, 1, 1, 0, 0], [9, 3, 1, 1, 0, 0]]),
        // chains of taps: all lengths, strides one and two, rests of rows, one vector of outputs and more
        case(1, [20, 16], 1, [same(5, 3), same(31, 5)]),
        case(1, [16, 16], 1, [same(5, 1), [50, 4, 1, 1, 1, 2]]),
        case(1, [24, 48], 1, [[9, 5, 2, 1, 2, 2], [61, 5, 2, 1, 2, 2]]),
        case(2, [16, 16], 1, [[5, 3, 2, 1, 1, 1], [65, 10, 2, 1, 4, 5]]),
        case(1, [16, 16], 1, [[5, 3, 2, 1, 1, 1], [65, 11, 2, 1, 5, 5]]),
        case(1, [40, 36], 2, [[9, 3, 2, 1, 1, 1], [47, 2, 1, 1, 1, 0]]),
        case(1, [40, 36], 2, [[6, 2, 1, 1, 5, 5], [6, 2, 1, 1, 5, 5]]),
        case(1, [3, 20], 1, [same(7, 5), same(39, 7)]),
        // strips of many tiles
        case(1, [16, 40], 1, [same(4, 3), same(811, 3)]),
        case(1, [16, 16], 1, [same(4, 3), same(930, 3)]),
        case(1, [16, 16], 1, [[5, 3, 2, 1, 1, 1], [1203, 3, 2, 1, 1, 1]]),
        case(1, [3, 3], 1, [same(4, 3), same(903, 3)]),
        case(1, [16, 24], 1, [[3, 1, 1, 1, 0, 0], [700, 1, 1, 1, 0, 0]]),
        // one tap: the last block of inputs has few, one vector of outputs and more
        case(1, [24, 16], 1, [[5, 1, 1, 1, 0, 0], [83, 1, 1, 1, 0, 0]]),
        case(2, [40, 12], 1, [[3, 1, 1, 1, 0, 0], [57, 1, 1, 1, 0, 0]]),
        case(1, [72, 40], 1, [[4, 1, 1, 1, 0, 0], [30, 1, 1, 1, 0, 0]]),
        // dense kernels whose taps lie apart: phases of columns, also under a stride of as much, more padding than taps reach over, too few channels for phases
        case(2, [128, 40], 1, [[5, 3, 1, 2, 2, 2], [41, 3, 1, 2, 2, 2]]),
        case(1, [130, 132], 1, [[3, 3, 1, 3, 3, 3], [50, 3, 1, 3, 1, 4]]),
        case(1, [132, 36], 1, [[4, 3, 2, 2, 2, 2], [67, 3, 2, 2, 2, 2]]),
        case(1, [128, 20], 1, [[4, 3, 2, 4, 4, 4], [81, 3, 2, 4, 4, 5]]),
        case(1, [256, 64], 2, [[3, 3, 1, 2, 2, 2], [70, 3, 1, 4, 4, 4]]),
        case(1, [128, 32], 1, [[3, 3, 1, 2, 2, 2], [35, 3, 1, 2, 9, 11]]),
        case(1, [24, 40], 1, [[5, 3, 1, 2, 2, 2], [50, 3, 1, 2, 9, 11]]),
        // the same with columns that leave out taps: parts of two taps and of one, none in the middle, nothing inside, and other kernels
        case(2, [16, 40], 1, [[30, 3, 1, 12, 12, 12], [40, 3, 1, 12, 12, 12]]),
        case(1, [24, 16], 1, [[20, 3, 1, 9, 9, 9], [41, 3, 1, 24, 24, 24]]),
        case(1, [16, 32], 1, [[9, 3, 1, 4, 4, 4], [31, 3, 1, 20, 20, 20]]),
        case(1, [16, 24], 1, [[9, 3, 1, 4, 4, 4], [48, 3, 1, 36, 36, 36]]),
        case(1, [16, 16], 1, [[9, 3, 1, 4, 4, 4], [20, 2, 1, 9, 17, 30]]),
        case(1, [32, 16], 1, [[9, 5, 1, 2, 4, 4], [75, 5, 1, 9, 18, 18]]),
        case(1, [16, 48], 1, [[9, 3, 2, 3, 3, 3], [101, 3, 2, 17, 17, 17]]),
        // one tap, of columns that it reads inside and of more that it does not, in classes of the gradient of others too
        case(1, [16, 24], 1, [[9, 1, 1, 1, 0, 0], [20, 1, 1, 1, 9, 9]]),
        case(2, [16, 24], 1, [[16, 1, 1, 1, 8, 8], [16, 1, 1, 1, 8, 8]]),
        case(1, [16, 24], 1, [[9, 1, 1, 1, 0, 0], [40, 1, 2, 1, 17, 17]]),
        case(1, [16, 16], 1, [[64, 3, 2, 17, 0, 0], [64, 3, 2, 17, 0, 0]]),
        // depthwise and narrow groups whose taps lie apart: phases of rows, of columns and of both, and too few outputs for any
        case(2, [16, 16], 16, [[19, 3, 1, 2, 2, 2], [61, 3, 1, 2, 2, 2]]),
        case(1, [19, 19], 19, [[25, 5, 1, 3, 6, 6], [77, 5, 1, 3, 5, 6]]),
        case(1, [16, 16], 16, [[23, 7, 1, 2, 6, 6], [59, 7, 1, 2, 6, 5]]),
        case(1, [32, 32], 8, [[7, 3, 1, 2, 2, 2], [61, 3, 1, 3, 3, 3]]),
        case(1, [16, 32], 16, [[31, 3, 2, 2, 2, 2], [101, 3, 2, 4, 4, 4]]),
        case(1, [16, 16], 16, [[30, 3, 1, 6, 6, 6], [40, 3, 1, 12, 12, 12]]),
        case(2, [16, 16], 8, [[9, 3, 1, 4, 4, 4], [200, 3, 1, 2, 1, 3]]),
    ];
    let activations = [
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.1 },
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
    ];
    for (i, case) in cases.iter_mut().enumerate() {
        case.bias = i % 3 != 1;
        case.activation = (i % 2 == 0).then(|| activations[i / 2 % activations.len()]);
    }
    cases
}

/// A whole tensor, NCHW, in `f64` but of values of the element type.
pub(super) struct Whole {
    pub(super) shape: [usize; 4],
    pub(super) values: Vec<f64>,
}

impl Whole {
    pub(super) fn random<T: Element>(shape: [usize; 4], seed: u64) -> Self {
        let values = random::<T>(shape.iter().product(), seed).iter().map(|x| x.to_f64()).collect();
        Self { shape, values }
    }

    pub(super) fn get(&self, n: usize, c: usize, y: i64, x: i64) -> f64 {
        let [_, channels, height, width] = self.shape.map(|size| i64::try_from(size).unwrap());
        if !(0..height).contains(&y) || !(0..width).contains(&x) {
            return 0.0;
        }
        let (n, c) = (i64::try_from(n).unwrap(), i64::try_from(c).unwrap());
        self.values[usize::try_from(((n * channels + c) * height + y) * width + x).unwrap()]
    }

    /// A window of `region` in a ring of `ring` rows; NaN wherever nothing is held.
    pub(super) fn window<T: Element>(
        &self,
        block: usize,
        region: Region<2>,
        ring: usize,
    ) -> (AlignedBuffer<T>, Layout) {
        let layout = Layout::new(self.shape[0], self.shape[1], block, region, ring).unwrap();
        let mut data = AlignedBuffer::new(layout.len());
        data.fill(T::from_f64(f64::NAN));
        for n in 0..self.shape[0] {
            for c in 0..self.shape[1] {
                for y in region.rows().begin()..region.rows().end() {
                    for x in region.cols().begin()..region.cols().end() {
                        data[layout.offset(n, c, y, x)] = T::from_f64(self.get(n, c, y, x));
                    }
                }
            }
        }
        (data, layout)
    }
}

pub(super) fn random<T: Element>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in f64")]
            let unit = (state >> 11) as f64 / (1_u64 << 53) as f64;
            T::from_f64(2.0 * unit - 1.0)
        })
        .collect()
}

pub(super) fn extents(shape: [i64; 2], batch: usize, channels: usize) -> [usize; 4] {
    [batch, channels, usize::try_from(shape[0]).unwrap(), usize::try_from(shape[1]).unwrap()]
}

/// Calls `pair(weight, o, c, [y, x] of y, [i, j] of x)` for every product of a forward convolution.
pub(super) fn for_each_product(conv: &Conv, mut pair: impl FnMut(usize, usize, usize, [i64; 2], [i64; 2])) {
    let [outs, ins, kh, kw] = conv.weight_shape();
    for o in 0..outs {
        for c in 0..ins {
            for (u, v) in (0..kh).flat_map(|u| (0..kw).map(move |v| (u, v))) {
                let weight = ((o * ins + c) * kh + u) * kw + v;
                let source = o / (outs / conv.groups) * ins + c;
                let read = |axis: usize, at: i64, tap: usize| {
                    let window = conv.windows[axis];
                    at * window.stride() - window.padding() + window.dilation() * i64::try_from(tap).unwrap()
                };
                for y in 0..conv.output[0] {
                    for x in 0..conv.output[1] {
                        let [i, j] = [read(0, y, u), read(1, x, v)];
                        if (0..conv.input[0]).contains(&i) && (0..conv.input[1]).contains(&j) {
                            pair(weight, o, source, [y, x], [i, j]);
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn isas() -> impl Iterator<Item = CpuBackend> {
    Isa::ALL.into_iter().filter_map(|isa| {
        let backend = CpuBackend::with_isa(isa).ok();
        if backend.is_none() {
            eprintln!("skipped: this CPU lacks {isa}");
        }
        backend
    })
}
