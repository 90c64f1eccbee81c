//! The geometry of two-dimensional pooling.

use tiled_geometry::Window;

/// A pooling window over each channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    /// Kernel, stride, dilation and padding before, for height and width.
    pub windows: [Window; 2],
    /// Padding after, for height and width: with the padding before, what average pooling may count.
    pub padding_after: [i64; 2],
    /// Extents of the input: height, width.
    pub input: [i64; 2],
    /// Extents of the output: height, width.
    pub output: [i64; 2],
    /// Average pooling: whether padding counts in the divisor, as PyTorch's `count_include_pad`.
    pub counts_padding: bool,
}
