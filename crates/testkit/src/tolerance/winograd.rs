//! How far Winograd's filtering may be from the sum that it stands for.

use tiled_kernel::Conv;
use tiled_tensor::Tensor;

/// The sizes of the entries of `Bᵀ`, `G` and `Aᵀ` of F(4×4, 3×3).
const INPUT: [[f64; 6]; 6] = [
    [4.0, 0.0, 5.0, 0.0, 1.0, 0.0],
    [0.0, 4.0, 4.0, 1.0, 1.0, 0.0],
    [0.0, 4.0, 4.0, 1.0, 1.0, 0.0],
    [0.0, 2.0, 1.0, 2.0, 1.0, 0.0],
    [0.0, 2.0, 1.0, 2.0, 1.0, 0.0],
    [0.0, 4.0, 0.0, 5.0, 0.0, 1.0],
];
const FILTER: [[f64; 3]; 6] = [
    [0.25, 0.0, 0.0],
    [1.0 / 6.0; 3],
    [1.0 / 6.0; 3],
    [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
    [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
    [0.0, 0.0, 1.0],
];
const OUTPUT: [[f64; 6]; 4] = [
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    [0.0, 1.0, 1.0, 2.0, 2.0, 0.0],
    [0.0, 1.0, 1.0, 4.0, 4.0, 0.0],
    [0.0, 1.0, 1.0, 8.0, 8.0, 1.0],
];

/// For each output `(C + 24)·ε · |Aᵀ|[Σ_c (|G||g||Gᵀ|) ⊙ (|Bᵀ||d||B|)]|A| + ε·(|bias| + …)`: every rounding of a sum of
/// this many terms, as in [`super`]. A filter's transform takes at most 4 roundings an axis with its entries', a patch's 3,
/// a tile's 4, the sum one for each channel.
pub(super) fn bound(
    conv: &Conv,
    input: &Tensor<f64>,
    weights: &[f64],
    bias: &[f64],
    eps: f64,
) -> Tensor<f64> {
    let [batch, channels, ..] = input.shape();
    let size = |extent: i64| usize::try_from(extent).expect("positive extents");
    let padding = conv.windows.map(|window| window.padding());
    let shape = [batch, conv.out_channels, size(conv.output[0]), size(conv.output[1])];
    let view = input.view();
    let pixel = |n: usize, c: usize, y: i64, x: i64| {
        let inside = (0..conv.input[0]).contains(&y) && (0..conv.input[1]).contains(&x);
        if inside { view.get(n, c, y, x).abs() } else { 0.0 }
    };
    let product = |a: &[f64], m: &dyn Fn(usize, usize) -> f64, b: &[f64]| -> f64 {
        let row = |i: usize| b.iter().enumerate().map(|(j, b)| b * m(i, j)).sum::<f64>();
        a.iter().enumerate().filter(|(_, a)| **a != 0.0).map(|(i, a)| a * row(i)).sum()
    };
    let filters: Vec<[[f64; 6]; 6]> = (0..conv.out_channels * channels)
        .map(|filter| {
            let weight = |u: usize, v: usize| weights[filter * 9 + 3 * u + v].abs();
            std::array::from_fn(|i| std::array::from_fn(|j| product(&FILTER[i], &weight, &FILTER[j])))
        })
        .collect();
    let factor = (super::count(channels) + 24.0) * eps;
    let mut bound = Tensor::zeros(shape).expect("a small tensor");
    let mut to = bound.view_mut();
    // pixels of a tile lie as far apart as taps
    let apart = conv.dilation();
    let tiles = |axis: usize| (0..conv.output[axis]).filter(|first| first % (4 * apart) < apart);
    let pixels = |first: i64, axis: usize| {
        (0..4).map(|pixel| first + apart * pixel).take_while(|at| *at < conv.output[axis]).collect::<Vec<_>>()
    };
    for n in 0..batch {
        for tile_y in tiles(0) {
            for tile_x in tiles(1) {
                let patches: Vec<[[f64; 6]; 6]> = (0..channels)
                    .map(|c| {
                        let at = |i: usize, j: usize| {
                            let [i, j] = [i, j].map(|k| i64::try_from(k).expect("below six"));
                            pixel(n, c, tile_y - padding[0] + apart * i, tile_x - padding[1] + apart * j)
                        };
                        std::array::from_fn(|i| std::array::from_fn(|j| product(&INPUT[i], &at, &INPUT[j])))
                    })
                    .collect();
                for o in 0..conv.out_channels {
                    let sum = |i: usize, j: usize| -> f64 {
                        (0..channels).map(|c| filters[o * channels + c][i][j] * patches[c][i][j]).sum()
                    };
                    let sums: [[f64; 6]; 6] = std::array::from_fn(|i| std::array::from_fn(|j| sum(i, j)));
                    for (y, rows) in pixels(tile_y, 0).into_iter().zip(&OUTPUT) {
                        for (x, cols) in pixels(tile_x, 1).into_iter().zip(&OUTPUT) {
                            let size = product(rows, &|i, j| sums[i][j], cols)
                                + bias.get(o).map_or(0.0, |b| b.abs());
                            to.set(n, o, y, x, factor * size);
                        }
                    }
                }
            }
        }
    }
    bound
}
