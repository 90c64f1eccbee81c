//! Convolutions against naive loops, and their bits against the same computation cut differently.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use rayon::ThreadPoolBuilder;
use tiled_cpu::{CpuBackend, Isa};
use tiled_geometry::{Interval, Region, Window};
use tiled_kernel::{Activation, Backend, Conv, Kernel, Partial, Reduction, Reference};
use tiled_tensor::{AlignedBuffer, Element, Layout, Tensor, View, ViewMut};

/// A convolution with its batch size.
#[derive(Clone, Copy, Debug)]
struct Case {
    conv: Conv,
    batch: usize,
    bias: bool,
    activation: Option<Activation>,
}

/// Geometry of one axis: extent, kernel, stride, dilation, padding before and after.
type Axis = [i64; 6];

fn case(batch: usize, channels: [usize; 2], groups: usize, axes: [Axis; 2]) -> Case {
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

fn same(extent: i64, kernel: i64) -> Axis {
    [extent, kernel, 1, 1, kernel / 2, kernel / 2]
}

fn cases() -> Vec<Case> {
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
struct Whole {
    shape: [usize; 4],
    values: Vec<f64>,
}

impl Whole {
    fn random<T: Element>(shape: [usize; 4], seed: u64) -> Self {
        let values = random::<T>(shape.iter().product(), seed).iter().map(|x| x.to_f64()).collect();
        Self { shape, values }
    }

    fn get(&self, n: usize, c: usize, y: i64, x: i64) -> f64 {
        let [_, channels, height, width] = self.shape.map(|size| i64::try_from(size).unwrap());
        if !(0..height).contains(&y) || !(0..width).contains(&x) {
            return 0.0;
        }
        let (n, c) = (i64::try_from(n).unwrap(), i64::try_from(c).unwrap());
        self.values[usize::try_from(((n * channels + c) * height + y) * width + x).unwrap()]
    }

    /// A window of `region` in a ring of `ring` rows; NaN wherever nothing is held.
    fn window<T: Element>(&self, block: usize, region: Region<2>, ring: usize) -> (AlignedBuffer<T>, Layout) {
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

fn random<T: Element>(len: usize, seed: u64) -> Vec<T> {
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

fn extents(shape: [i64; 2], batch: usize, channels: usize) -> [usize; 4] {
    [batch, channels, usize::try_from(shape[0]).unwrap(), usize::try_from(shape[1]).unwrap()]
}

/// The activation of the reference backend.
fn activate(activation: Activation, values: Vec<f64>) -> Vec<f64> {
    let shape = [1, 1, 1, values.len()];
    let region = Region::whole([1, i64::try_from(values.len()).unwrap()]);
    let mut output = Tensor::<f64>::zeros(shape).unwrap();
    let input = View::new(&values, Layout::nchw(shape).unwrap());
    Reference.compute(&Kernel::Activation(activation), &[], &[input], output.view_mut(), region);
    output.data().to_vec()
}

/// Calls `pair(weight, o, c, [y, x] of y, [i, j] of x)` for every product of a forward convolution.
fn for_each_product(conv: &Conv, mut pair: impl FnMut(usize, usize, usize, [i64; 2], [i64; 2])) {
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

/// The output of a kernel with naive sums in `f64`, and the sums of magnitudes.
fn naive<T: Element>(case: &Case, transposed: bool, from: &Whole, params: &[Vec<T>]) -> (Vec<f64>, Vec<f64>) {
    let conv = &case.conv;
    let (channels, shape) =
        if transposed { (conv.in_channels, conv.input) } else { (conv.out_channels, conv.output) };
    let [_, _, height, width] = extents(shape, case.batch, channels);
    let at = |n: usize, c: usize, [y, x]: [i64; 2]| {
        ((n * channels + c) * height + usize::try_from(y).unwrap()) * width + usize::try_from(x).unwrap()
    };
    let mut sums = vec![0.0; case.batch * channels * height * width];
    let mut sizes = vec![0.0; sums.len()];
    for n in 0..case.batch {
        for_each_product(conv, |weight, o, c, y, x| {
            let (to, [i, j]) = if transposed { (at(n, c, x), y) } else { (at(n, o, y), x) };
            let product = params[0][weight].to_f64() * from.get(n, if transposed { o } else { c }, i, j);
            sums[to] += product;
            sizes[to] += product.abs();
        });
    }
    for (i, sum) in sums.iter_mut().enumerate() {
        if let Some(bias) = params.get(1) {
            let bias = bias[i / (height * width) % channels].to_f64();
            *sum += bias;
            sizes[i] += bias.abs();
        }
    }
    if let Some(activation) = case.activation {
        sums = activate(activation, sums);
    }
    (sums, sizes)
}

fn isas() -> impl Iterator<Item = CpuBackend> {
    Isa::ALL.into_iter().filter_map(|isa| {
        let backend = CpuBackend::with_isa(isa).ok();
        if backend.is_none() {
            eprintln!("skipped: this CPU lacks {isa}");
        }
        backend
    })
}

/// Parts of an axis with all kinds of sizes and positions.
fn parts(extent: i64) -> Vec<Interval> {
    let mut parts = vec![Interval::whole(extent), Interval::new(0, 1), Interval::new(extent - 1, extent)];
    parts.push(Interval::new(extent / 3, extent / 3 + 1));
    parts.push(Interval::new(1.min(extent - 1), (extent - 1).max(1)));
    parts.push(Interval::new(extent / 2, extent));
    parts.retain(|part| !part.is_empty());
    parts
}

fn kernel_of(case: &Case, transposed: bool) -> Kernel {
    let (conv, bias, activation) = (case.conv, case.bias, case.activation);
    if transposed {
        Kernel::Conv2dBackwardInput { conv, bias, activation }
    } else {
        Kernel::Conv2d { conv, bias, activation }
    }
}

fn pack<T: Element>(backend: &CpuBackend, kernel: &Kernel, params: &[Vec<T>]) -> AlignedBuffer<T> {
    let lens: Vec<usize> = params.iter().map(Vec::len).collect();
    let mut packed = AlignedBuffer::new(Backend::<T>::packed_len(backend, kernel, &lens));
    packed.fill(T::from_f64(f64::NAN));
    let slices: Vec<&[T]> = params.iter().map(Vec::as_slice).collect();
    backend.pack(kernel, &slices, &mut packed);
    packed
}

fn check_compute<T: Element>(case: &Case, transposed: bool) {
    let conv = &case.conv;
    let (from, to) = ((conv.in_channels, conv.input), (conv.out_channels, conv.output));
    let (from, to) = if transposed { (to, from) } else { (from, to) };
    let input = Whole::random::<T>(extents(from.1, case.batch, from.0), 3);
    let mut params = vec![random::<T>(conv.weight_len(), 5)];
    if case.bias {
        params.push(random::<T>(to.0, 7));
    }
    let (expected, sizes) = naive(case, transposed, &input, &params);
    let shape = extents(to.1, case.batch, to.0);
    let kernel = kernel_of(case, transposed);
    // each product and each of the partial sums rounds once, the activations a few times
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let roundings = (conv.weight_len() / conv.out_channels.min(conv.in_channels) + 8) as f64;
    for backend in isas() {
        let packed = pack(&backend, &kernel, &params);
        let name = format!("{case:?} {} on {}", kernel.name(), Backend::<T>::name(&backend));
        let blocks = |channels: usize| [Backend::<T>::block(&backend, channels), 1];
        let (data, layout) = input.window::<T>(blocks(from.0)[0], Region::whole(from.1), shape_rows(from.1));
        let whole = compute(
            &backend,
            &kernel,
            &packed,
            View::new(&data, layout),
            (blocks(to.0)[0], shape),
            Region::whole(to.1),
            0,
        );
        for (i, (got, want)) in whole.iter().zip(&expected).enumerate() {
            let bound = roundings * T::EPSILON.to_f64() * (sizes[i] + want.abs());
            assert!(
                (got.to_f64() - want).abs() <= bound,
                "{name}: element {i} of {shape:?} is {got}, not {want} ± {bound}"
            );
        }
        for rows in parts(to.1[0]) {
            for cols in parts(to.1[1]) {
                let region = Region::new([rows, cols]);
                let need = Region::new([0, 1].map(|i| {
                    let (window, axis) = (conv.windows[i], region.axis(i));
                    let need = if transposed { window.touched(axis) } else { window.receptive(axis) };
                    need.intersect(Interval::whole(from.1[i]))
                }));
                let pairs = blocks(from.0).map(|from| blocks(to.0).map(|to| (from, to)));
                for (from_block, to_block) in pairs.into_iter().flatten() {
                    let ring = usize::try_from(need.rows().len()).unwrap() + 2;
                    let (data, layout) = input.window::<T>(from_block, need, ring);
                    let view = View::new(&data, layout);
                    let part = compute(&backend, &kernel, &packed, view, (to_block, shape), region, 1);
                    assert_same_bits(&name, &part, &whole, shape, region);
                }
            }
        }
    }
}

fn shape_rows(shape: [i64; 2]) -> usize {
    usize::try_from(shape[0]).unwrap()
}

/// Computes a region into a window that holds it and `margin` more columns; returns it as a whole tensor.
fn compute<T: Element>(
    backend: &CpuBackend,
    kernel: &Kernel,
    packed: &[T],
    input: View<'_, T>,
    (block, shape): (usize, [usize; 4]),
    region: Region<2>,
    margin: i64,
) -> Vec<T> {
    let cols = Interval::new(region.cols().begin() - margin, region.cols().end() + margin);
    let held = Region::new([region.rows(), cols]);
    let ring = usize::try_from(region.rows().len() + margin).unwrap();
    let layout = Layout::new(shape[0], shape[1], block, held, ring).unwrap();
    let mut data = AlignedBuffer::new(layout.len());
    let untouched = T::from_f64(-77.25);
    data.fill(untouched);
    backend.compute(kernel, packed, &[input], ViewMut::new(&mut data, layout), region);
    let mut whole = vec![untouched; shape.iter().product()];
    for n in 0..shape[0] {
        for c in 0..shape[1] {
            for y in region.rows().begin()..region.rows().end() {
                for x in cols.begin()..cols.end() {
                    let value = data[layout.offset(n, c, y, x)];
                    if !region.cols().contains(x) {
                        assert!(value == untouched, "wrote ({n},{c},{y},{x}) outside {region}");
                        continue;
                    }
                    let (y, x) = (usize::try_from(y).unwrap(), usize::try_from(x).unwrap());
                    whole[((n * shape[1] + c) * shape[2] + y) * shape[3] + x] = value;
                }
            }
        }
    }
    whole
}

fn assert_same_bits<T: Element>(name: &str, got: &[T], want: &[T], shape: [usize; 4], region: Region<2>) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let [y, x] = [i / shape[3] % shape[2], i % shape[3]].map(|at| i64::try_from(at).unwrap());
        if region.rows().contains(y) && region.cols().contains(x) {
            assert_eq!(
                got.to_bits_u64(),
                want.to_bits_u64(),
                "{name}: element {i} of {shape:?} computed within {region} is {got}, whole {want}"
            );
        }
    }
}

fn check_weight<T: Element>(case: &Case) {
    let conv = &case.conv;
    let x = Whole::random::<T>(extents(conv.input, case.batch, conv.in_channels), 11);
    let gy = Whole::random::<T>(extents(conv.output, case.batch, conv.out_channels), 13);
    let mut expected = vec![0.0; conv.weight_len()];
    let mut sizes = vec![0.0; conv.weight_len()];
    let mut terms = vec![0.0; conv.weight_len()];
    for n in 0..case.batch {
        for_each_product(conv, |weight, o, c, [y, z], [i, j]| {
            let product = gy.get(n, o, y, z) * x.get(n, c, i, j);
            expected[weight] += product;
            sizes[weight] += product.abs();
            terms[weight] += 1.0;
        });
    }
    let reduction = Reduction::ConvWeight(*conv);
    for backend in isas() {
        let name = format!("{case:?} on {}", Backend::<T>::name(&backend));
        for bands in [1, 2, 5] {
            let mut first: Option<Vec<T>> = None;
            for blocked in [[true, true], [false, true], [false, false]] {
                let block = |channels, blocked| {
                    if blocked { Backend::<T>::block(&backend, channels) } else { 1 }
                };
                let mut partial = Backend::<T>::partial(&backend, &reduction, case.batch, conv.in_channels)
                    .expect("memory for a small reduction");
                for band in 0..bands {
                    let rows =
                        Interval::new(conv.output[0] * band / bands, conv.output[0] * (band + 1) / bands);
                    let share = Region::new([rows, Interval::whole(conv.output[1])]);
                    if share.is_empty() {
                        continue;
                    }
                    let need = Region::new([0, 1].map(|i| {
                        conv.windows[i].receptive(share.axis(i)).intersect(Interval::whole(conv.input[i]))
                    }));
                    let ring = usize::try_from(need.rows().len()).unwrap() + 1;
                    let (x, x_layout) = x.window::<T>(block(conv.in_channels, blocked[0]), need, ring);
                    let ring = usize::try_from(rows.len()).unwrap() + 3;
                    let (gy, gy_layout) = gy.window::<T>(block(conv.out_channels, blocked[1]), share, ring);
                    let inputs = [View::new(&x, x_layout), View::new(&gy, gy_layout)];
                    backend.reduce(&reduction, &[], &inputs, share, &mut partial);
                }
                let Partial::Values(values) = &partial else { panic!("sums expected") };
                let mut result = vec![T::from_f64(f64::NAN); conv.weight_len()];
                backend.unpack(&reduction, values, &mut result);
                for (i, (got, want)) in result.iter().zip(&expected).enumerate() {
                    let bound = (terms[i] + 4.0) * T::EPSILON.to_f64() * sizes[i];
                    assert!(
                        (got.to_f64() - want).abs() <= bound,
                        "{name}, {bands} bands: weight {i} is {got}, not {want} ± {bound}"
                    );
                }
                let first = first.get_or_insert_with(|| result.clone());
                let differ = first.iter().zip(&result).filter(|(a, b)| a.to_bits_u64() != b.to_bits_u64());
                assert_eq!(differ.count(), 0, "{name}, {bands} bands: windows of blocks {blocked:?}");
            }
        }
    }
}

#[test]
fn forward_agrees_with_naive_loops_and_has_the_same_bits_for_every_region() {
    for case in cases() {
        check_compute::<f32>(&case, false);
        check_compute::<f64>(&case, false);
    }
}

#[test]
fn gradient_for_the_input_agrees_with_naive_loops_and_has_the_same_bits_for_every_region() {
    for case in cases() {
        check_compute::<f32>(&case, true);
        check_compute::<f64>(&case, true);
    }
}

#[test]
fn gradient_for_the_weights_agrees_with_naive_loops_for_every_cut() {
    for case in cases() {
        check_weight::<f32>(&case);
        check_weight::<f64>(&case);
    }
}

/// Rows of pixels of all lengths that matter to tiles of taps and pixels, by pads on either side, strides and kernels.
fn rows_of_pixels() -> impl Iterator<Item = Axis> {
    let widths = [1, 2, 3, 4, 9, 127, 128, 129, 130, 131, 255, 258];
    let strides = [1, 2, 3];
    let kernels = [2, 3, 4, 5, 7];
    widths.into_iter().flat_map(move |width| {
        strides.into_iter().flat_map(move |stride| {
            kernels.into_iter().flat_map(move |kernel| {
                let pads = [[0, 0], [kernel / 2; 2], [kernel - 1, 0], [0, kernel + 1], [kernel + 1, 1]];
                pads.map(|[before, after]| [width * stride, kernel, stride, 1, before, after])
            })
        })
    })
}

/// The same on whole numbers, whose sums are exact in any order: one product too many or too few is seen.
fn check_weight_of_integers<T: Element>(case: &Case, parts: [i64; 2]) {
    let conv = &case.conv;
    let integers = |shape, seed| {
        let mut whole = Whole::random::<T>(shape, seed);
        whole.values.iter_mut().for_each(|value| *value = (*value * 4.0).round());
        whole
    };
    let x = integers(extents(conv.input, case.batch, conv.in_channels), 11);
    let gy = integers(extents(conv.output, case.batch, conv.out_channels), 13);
    let mut expected = vec![0.0; conv.weight_len()];
    for n in 0..case.batch {
        for_each_product(conv, |weight, o, c, [y, z], [i, j]| {
            expected[weight] += gy.get(n, o, y, z) * x.get(n, c, i, j);
        });
    }
    let cut = |axis: usize, part: i64| conv.output[axis] * part / parts[axis];
    let shares: Vec<Region<2>> = (0..parts[0])
        .flat_map(|y| (0..parts[1]).map(move |x| [y, x]))
        .map(|place| Region::new([0, 1].map(|i| Interval::new(cut(i, place[i]), cut(i, place[i] + 1)))))
        .filter(|share| !share.is_empty())
        .collect();
    let reduction = Reduction::ConvWeight(*conv);
    for backend in isas() {
        for blocked in [[true, true], [false, true], [true, false], [false, false]] {
            let block = |channels, blocked| if blocked { Backend::<T>::block(&backend, channels) } else { 1 };
            let mut partial = Backend::<T>::partial(&backend, &reduction, case.batch, conv.in_channels)
                .expect("memory for a small reduction");
            for share in shares.iter().copied() {
                let need = Region::new([0, 1].map(|i| {
                    conv.windows[i].receptive(share.axis(i)).intersect(Interval::whole(conv.input[i]))
                }));
                let ring = |region: Region<2>| usize::try_from(region.rows().len()).unwrap() + 1;
                let (x, x_layout) = x.window::<T>(block(conv.in_channels, blocked[0]), need, ring(need));
                let (gy, gy_layout) =
                    gy.window::<T>(block(conv.out_channels, blocked[1]), share, ring(share));
                let inputs = [View::new(&x, x_layout), View::new(&gy, gy_layout)];
                backend.reduce(&reduction, &[], &inputs, share, &mut partial);
            }
            let Partial::Values(values) = &partial else { panic!("sums expected") };
            let mut result = vec![T::from_f64(f64::NAN); conv.weight_len()];
            backend.unpack(&reduction, values, &mut result);
            let wrong = result.iter().zip(&expected).position(|(got, want)| got.to_f64() != *want);
            let name = Backend::<T>::name(&backend);
            assert_eq!(wrong, None, "{case:?} in {parts:?} parts on {name}, blocks {blocked:?}");
        }
    }
}

#[test]
fn gradient_for_the_weights_is_exact_on_integers_for_every_row_of_pixels() {
    let channels = [
        [3, 16],
        [16, 16],
        [5, 20],
        [3, 32],
        [1, 16],
        [17, 33],
        [2, 40],
        [35, 32],
        [33, 17],
        [1, 40],
        [8, 48],
    ];
    let mut seen = 0;
    for (i, cols) in rows_of_pixels().enumerate() {
        let [width, kernel, stride, _, before, after] = cols;
        if width + before + after < kernel {
            continue;
        }
        let rows = if i % 3 == 0 { [3, 3, 1, 1, 0, 2] } else { [4, 2, stride, 1, 1, 1] };
        let case = case(1 + i / 4 % 2, channels[i % channels.len()], 1, [rows, cols]);
        let parts = [[1, 1], [2, 1], [1, 3], [3, 2]][i % 4];
        check_weight_of_integers::<f32>(&case, parts);
        if i % 7 == 0 {
            check_weight_of_integers::<f64>(&case, parts);
        }
        seen += 1;
    }
    assert!(seen > 800, "{seen} rows");
}

#[test]
fn gradient_for_the_weights_of_padding_alone_is_nothing() {
    // the second of three rows of outputs reads the image, its columns in part
    for channels in [[16, 16], [3, 32], [16, 3]] {
        let case = case(1, channels, 1, [[1, 2, 3, 1, 3, 4], [9, 3, 1, 1, 2, 2]]);
        for parts in [[1, 1], [3, 1], [3, 11]] {
            check_weight_of_integers::<f32>(&case, parts);
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    let pool = |threads| ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let (one, two) = (pool(1), pool(2));
    let large = [same(40, 3), same(101, 3)];
    let cases = [
        case(2, [16, 48], 1, large),
        case(1, [3, 64], 1, [[81, 7, 2, 1, 3, 3], [200, 7, 2, 1, 3, 3]]),
        case(1, [64, 40], 1, [[40, 3, 2, 1, 1, 1], [101, 3, 2, 1, 1, 1]]),
        case(8, [64, 64], 64, [same(80, 3), same(120, 3)]),
        case(1, [512, 512], 1, [same(4, 3), same(5, 3)]),
        case(4, [4, 4], 1, [same(200, 3), same(211, 3)]),
    ];
    for case in cases {
        let conv = &case.conv;
        let x = Whole::random::<f32>(extents(conv.input, case.batch, conv.in_channels), 17);
        let gy = Whole::random::<f32>(extents(conv.output, case.batch, conv.out_channels), 19);
        let params = [random::<f32>(conv.weight_len(), 23)];
        for backend in isas() {
            let block = |channels| Backend::<f32>::block(&backend, channels);
            let (x, x_layout) =
                x.window::<f32>(block(conv.in_channels), Region::whole(conv.input), shape_rows(conv.input));
            let (gy, gy_layout) = gy.window::<f32>(
                block(conv.out_channels),
                Region::whole(conv.output),
                shape_rows(conv.output),
            );
            let (x, gy) = (View::new(&x, x_layout), View::new(&gy, gy_layout));
            for (transposed, from, channels, shape) in
                [(false, x, conv.out_channels, conv.output), (true, gy, conv.in_channels, conv.input)]
            {
                let kernel = kernel_of(&case, transposed);
                let packed = pack(&backend, &kernel, &params);
                let to = (block(channels), extents(shape, case.batch, channels));
                let run = || compute(&backend, &kernel, &packed, from, to, Region::whole(shape), 0);
                let (a, b) = (one.install(run), two.install(run));
                assert!(a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits()), "{case:?} {kernel:?}");
            }
            let reduction = Reduction::ConvWeight(*conv);
            let run = || {
                let mut partial = Backend::<f32>::partial(&backend, &reduction, case.batch, conv.in_channels)
                    .expect("memory for a small reduction");
                backend.reduce(&reduction, &[], &[x, gy], Region::whole(conv.output), &mut partial);
                let Partial::Values(values) = partial else { panic!("sums expected") };
                values
            };
            let (a, b) = (one.install(run), two.install(run));
            assert!(a.iter().zip(b.iter()).all(|(a, b)| a.to_bits() == b.to_bits()), "{case:?} weights");
        }
    }
}
