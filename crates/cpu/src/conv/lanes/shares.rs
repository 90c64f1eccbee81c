//! What a planner is told of kernels whose lanes are channels of several groups.

use crate::conv::problem::Problem;

/// The share of the peak that a kernel reaches; medians of the example `conv_speed`.
pub(in crate::conv) fn share_of_peak(problem: &Problem) -> f64 {
    let [rows, cols] = problem.conv.windows;
    let spelled_out = matches!(cols.kernel(), 3 | 5 | 7);
    match (cols.stride(), rows.kernel() * cols.kernel()) {
        (1, _) if spelled_out && cols.dilation() > 1 => 0.50,
        (3.., _) => 0.35,
        _ if !spelled_out || cols.dilation() > 1 => 0.35,
        (1, ..=9) => 0.72,
        (1, _) => 0.80,
        (_, ..=9) if problem.transposed => 0.35,
        (_, ..=9) => 0.45,
        _ => 0.60,
    }
}

/// The same for the gradient for the weights.
pub(in crate::conv) fn weight_share_of_peak(problem: &Problem) -> f64 {
    let [rows, cols] = problem.conv.windows;
    match (cols.stride(), rows.kernel() * cols.kernel()) {
        _ if !matches!(cols.kernel(), 2 | 3 | 5 | 7) => 0.40,
        _ if cols.dilation() > 1 => {
            if cols.kernel() == 2 {
                0.40
            } else {
                0.60
            }
        }
        (1, _) => 0.80,
        (_, ..=9) => 0.48,
        _ => 0.62,
    }
}
