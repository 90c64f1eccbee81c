//! What carries out [`Algorithm::Winograd`](crate::Algorithm::Winograd) takes filters as.

use tiled_tensor::Element;

/// The points along an axis at which patches and filters are evaluated.
pub const PATCH: usize = 6;
/// The outputs of a tile along an axis.
pub const TILE: usize = 4;

/// The points where a filter is evaluated, as the rows of `G` of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016).
const FILTER: [[f64; 3]; PATCH] = [
    [1.0 / 4.0, 0.0, 0.0],
    [-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
    [-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
    [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
    [1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
    [0.0, 0.0, 1.0],
];

/// `G g Gᵀ` of a filter of 3×3, row by row.
#[must_use]
pub fn filter<T: Element>(weights: &[T]) -> [[f64; PATCH]; PATCH] {
    let rows: [[f64; 3]; PATCH] = std::array::from_fn(|i| {
        std::array::from_fn(|v| (0..3).map(|u| FILTER[i][u] * weights[3 * u + v].to_f64()).sum())
    });
    rows.map(|row| std::array::from_fn(|j| (0..3).map(|v| row[v] * FILTER[j][v]).sum()))
}
