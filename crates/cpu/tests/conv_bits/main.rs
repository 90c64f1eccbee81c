//! Convolutions against naive loops, and their bits against the same computation cut differently.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod cases;
mod weights;

use rayon::ThreadPoolBuilder;
use tiled_cpu::CpuBackend;
use tiled_geometry::{Interval, Region};
use tiled_kernel::{
    Activation, Backend, Epilogue, Host, Kernel, Params, Partial, Reduction, Reference, Workspace,
};
use tiled_tensor::{AlignedBuffer, Element, Layout, Tensor, View, ViewMut};

use cases::{Case, Whole, case, cases, extents, for_each_product, isas, random, same};

/// The activation of the reference backend.
fn activate(activation: Activation, values: Vec<f64>) -> Vec<f64> {
    let shape = [1, 1, 1, values.len()];
    let region = Region::whole([1, i64::try_from(values.len()).unwrap()]);
    let mut output = Tensor::<f64>::zeros(shape).unwrap();
    let input = View::new(&values, Layout::nchw(shape).unwrap());
    Reference.compute(
        &Kernel::Activation(activation),
        Params::Packed(&[]),
        &[input],
        output.view_mut(),
        region,
        &Workspace::NONE,
    );
    output.data().to_vec()
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
        Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::of_bias(bias).with_activation(activation) }
    } else {
        Kernel::conv2d(conv, Epilogue::of_bias(bias).with_activation(activation))
    }
}

fn pack<T: Element>(backend: &CpuBackend, kernel: &Kernel, params: &[Vec<T>]) -> AlignedBuffer<T> {
    let lens: Vec<usize> = params.iter().map(Vec::len).collect();
    let mut packed = AlignedBuffer::new((backend as &dyn Host<T>).packed_len(kernel, &lens));
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
    let (params, output) = (Params::Packed(packed), ViewMut::new(&mut data, layout));
    backend.compute(kernel, params, &[input], output, region, &Workspace::NONE);
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
fn bits_do_not_depend_on_the_number_of_threads() {
    let pool = |threads| ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let (one, two) = (pool(1), pool(2));
    let large = [same(40, 3), same(101, 3)];
    let cases = [
        case(2, [16, 48], 1, large),
        case(1, [3, 64], 1, [[81, 7, 2, 1, 3, 3], [200, 7, 2, 1, 3, 3]]),
        case(1, [64, 40], 1, [[40, 3, 2, 1, 1, 1], [101, 3, 2, 1, 1, 1]]),
        case(8, [64, 64], 64, [same(80, 3), same(120, 3)]),
        case(4, [64, 64], 64, [[80, 5, 2, 1, 2, 2], [420, 5, 2, 1, 2, 2]]),
        case(1, [512, 512], 1, [same(4, 3), same(5, 3)]),
        case(4, [4, 4], 1, [same(200, 3), same(211, 3)]),
        // parts of rows: more phases than a call lists, and columns that leave out taps
        case(1, [128, 32], 1, [same(4, 3), [280, 3, 1, 17, 17, 17]]),
        case(1, [64, 64], 1, [same(30, 3), [48, 3, 1, 24, 24, 24]]),
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
                let mut partial =
                    (&backend as &dyn Host<f32>).partial(&reduction, case.batch, conv.in_channels).unwrap();
                backend.reduce(&reduction, &[], &[x, gy], Region::whole(conv.output), &mut partial);
                let Partial::Values(values) = partial else { panic!("sums expected") };
                values
            };
            let (a, b) = (one.install(run), two.install(run));
            assert!(a.iter().zip(b.iter()).all(|(a, b)| a.to_bits() == b.to_bits()), "{case:?} weights");
        }
    }
}
