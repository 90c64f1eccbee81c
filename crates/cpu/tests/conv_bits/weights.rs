//! The gradient for the weights: within bounds on fractions, exact on whole numbers.

use tiled_cpu::CpuBackend;
use tiled_geometry::{Interval, Region};
use tiled_kernel::{Backend, Host, Partial, Reduction};
use tiled_tensor::{Element, View};

use super::cases::{Axis, Case, Whole, case, cases, extents, for_each_product, isas};

/// The gradient from the shares, whose windows hold what they need and no more: channel blocks or planes.
fn gradient<T: Element>(
    backend: &CpuBackend,
    case: &Case,
    [x, gy]: [&Whole; 2],
    shares: &[Region<2>],
    blocked: [bool; 2],
) -> Vec<T> {
    let conv = &case.conv;
    let reduction = Reduction::ConvWeight(*conv);
    let block = |channels, blocked| if blocked { Backend::<T>::block(backend, channels) } else { 1 };
    let mut partial = (backend as &dyn Host<T>).partial(&reduction, case.batch, conv.in_channels).unwrap();
    for share in shares.iter().copied() {
        let need = Region::new(
            [0, 1]
                .map(|i| conv.windows[i].receptive(share.axis(i)).intersect(Interval::whole(conv.input[i]))),
        );
        let ring = |region: Region<2>, more: usize| usize::try_from(region.rows().len()).unwrap() + more;
        let (x, x_layout) = x.window::<T>(block(conv.in_channels, blocked[0]), need, ring(need, 1));
        let (gy, gy_layout) = gy.window::<T>(block(conv.out_channels, blocked[1]), share, ring(share, 3));
        let inputs = [View::new(&x, x_layout), View::new(&gy, gy_layout)];
        backend.reduce(&reduction, &[], &inputs, share, &mut partial);
    }
    let Partial::Values(values) = &partial else { panic!("sums expected") };
    let mut result = vec![T::from_f64(f64::NAN); conv.weight_len()];
    backend.unpack(&reduction, values, &mut result);
    result
}

/// The outputs of a convolution in so many parts of rows and columns, in the order of rows.
fn shares(output: [i64; 2], parts: [i64; 2]) -> Vec<Region<2>> {
    let cut = |axis: usize, part: i64| output[axis] * part / parts[axis];
    (0..parts[0])
        .flat_map(|y| (0..parts[1]).map(move |x| [y, x]))
        .map(|place| Region::new([0, 1].map(|i| Interval::new(cut(i, place[i]), cut(i, place[i] + 1)))))
        .filter(|share| !share.is_empty())
        .collect()
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
    for backend in isas() {
        let name = format!("{case:?} on {}", Backend::<T>::name(&backend));
        for bands in [1, 2, 5] {
            let shares = shares(conv.output, [bands, 1]);
            let mut first: Option<Vec<T>> = None;
            for blocked in [[true, true], [false, true], [false, false]] {
                let result = gradient::<T>(&backend, case, [&x, &gy], &shares, blocked);
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
    let shares = shares(conv.output, parts);
    for backend in isas() {
        for blocked in [[true, true], [false, true], [true, false], [false, false]] {
            let result = gradient::<T>(&backend, case, [&x, &gy], &shares, blocked);
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

/// Case `i` of some axes, of depthwise channels or narrow groups.
fn check_groups(i: usize, axes: [[i64; 6]; 2]) {
    let (channels, groups) = [([16, 16], 16), ([19, 19], 19), ([16, 32], 16), ([32, 32], 8)][i % 4];
    let case = case(1 + i / 4 % 2, channels, groups, axes);
    let parts = [[1, 1], [2, 1], [1, 3], [3, 2]][i / 4 % 4];
    check_weight_of_integers::<f32>(&case, parts);
    if i.is_multiple_of(7) {
        check_weight_of_integers::<f64>(&case, parts);
    }
}

#[test]
fn gradient_for_depthwise_weights_is_exact_on_integers_for_every_row_of_pixels() {
    let mut seen = 0;
    for (i, cols) in rows_of_pixels().enumerate() {
        let [width, kernel, stride, _, before, after] = cols;
        if width + before + after < kernel {
            continue;
        }
        let rows = if i % 3 == 0 { [9, kernel, stride, 1, before, after] } else { [4, 2, stride, 1, 1, 1] };
        if rows[0] + rows[4] + rows[5] < rows[1] {
            continue;
        }
        check_groups(i, [rows, cols]);
        seen += 1;
    }
    assert!(seen > 800, "{seen} rows");
}

#[test]
fn gradient_for_weights_apart_is_exact_on_integers_for_every_row_of_pixels() {
    let mut seen = 0;
    for (i, [width, kernel, stride, _, before, after]) in rows_of_pixels().enumerate() {
        let dilation = [2, 3, 7][i % 3];
        if !matches!(kernel, 3 | 5 | 7) || width + before + after < dilation * (kernel - 1) + 1 {
            continue;
        }
        let rows = if i % 2 == 0 { [9, 3, stride, 2, before, after] } else { [17, kernel, 1, 2, 6, 6] };
        if rows[0] + rows[4] + rows[5] < 2 * (rows[1] - 1) + 1 {
            continue;
        }
        let cols = [width, kernel, stride, dilation, before, after];
        check_groups(i, [rows, cols]);
        seen += 1;
    }
    assert!(seen > 100, "{seen} rows");
}

#[test]
fn gradient_for_the_weights_of_padding_alone_is_nothing() {
    // the second of three rows of outputs reads the image, its columns in part
    for (channels, groups) in [([16, 16], 1), ([3, 32], 1), ([16, 3], 1), ([16, 16], 16), ([32, 32], 8)] {
        let case = case(1, channels, groups, [[1, 2, 3, 1, 3, 4], [9, 3, 1, 1, 2, 2]]);
        for parts in [[1, 1], [3, 1], [3, 11]] {
            check_weight_of_integers::<f32>(&case, parts);
        }
    }
}
