//! The geometry of a two-dimensional convolution.

use tiled_geometry::Window;

/// A convolution `y[n,o,i,j] = b[o] + Σ w[o,c,u,v] · x[n, g·C/G + c, i·s−p+d·u, j·s−p+d·v]`, zero outside `x`.
///
/// Weights are OIHW: `[out_channels, in_channels/groups, kh, kw]`. Group `g` of output channel `o` is
/// `o / (out_channels/groups)`. The same geometry serves the gradients and, with the roles of input and
/// output swapped, the transposed convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conv {
    /// Channels of `x`.
    pub in_channels: usize,
    /// Channels of `y`.
    pub out_channels: usize,
    /// Groups G; divides both channel counts.
    pub groups: usize,
    /// Kernel, stride, dilation and padding before, for height and width.
    pub windows: [Window; 2],
    /// Extents of `x`: height, width.
    pub input: [i64; 2],
    /// Extents of `y`: height, width.
    pub output: [i64; 2],
}

impl Conv {
    /// The extents of the kernel: kh, kw.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "kernels are between 1 and 2^20"
    )]
    pub fn kernel(&self) -> [usize; 2] {
        self.windows.map(|window| window.kernel() as usize)
    }

    /// The shape of the weights, OIHW.
    #[must_use]
    pub fn weight_shape(&self) -> [usize; 4] {
        let [kh, kw] = self.kernel();
        [self.out_channels, self.in_channels / self.groups, kh, kw]
    }

    /// The number of weights.
    #[must_use]
    pub fn weight_len(&self) -> usize {
        self.weight_shape().iter().product()
    }

    /// Whether [`Algorithm::Winograd`] can carry it out: 3×3 with stride one, as much dilation along both axes, one group,
    /// channels enough on both sides that its transforms cost less than they save, and where it is dilated at least six outputs for each
    /// tile: so it takes two thirds of the products at most.
    #[must_use]
    pub fn suits_winograd(&self) -> bool {
        let is_3_by_1 = |w: Window| (w.kernel(), w.stride()) == (3, 1);
        let [rows, cols] = self.windows;
        self.groups == 1
            && self.in_channels >= 16
            && self.out_channels >= 16
            && [rows, cols].into_iter().all(is_3_by_1)
            && rows.dilation() == cols.dilation()
            && (rows.dilation() == 1 || self.has_outputs_for_tiles())
    }

    /// Whether there are six outputs or more for each tile of a dilated convolution: a cell of four times the dilation has as many tiles along an
    /// axis as taps lie apart.
    fn has_outputs_for_tiles(&self) -> bool {
        let tiles = [0, 1].map(|axis| {
            let apart = i128::from(self.windows[axis].dilation());
            (i128::from(self.output[axis]) + 4 * apart - 1) / (4 * apart) * apart
        });
        let [height, width] = self.output.map(i128::from);
        6 * tiles[0] * tiles[1] <= height * width
    }

    /// The dilation of both axes, where it is the same.
    ///
    /// # Panics
    /// Where it is not.
    #[must_use]
    pub fn dilation(&self) -> i64 {
        let [rows, cols] = self.windows.map(|window| window.dilation());
        assert_eq!(rows, cols, "one dilation");
        rows
    }
}

/// How the sums of a convolution are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// Products summed one after another, in a fixed order.
    #[default]
    Direct,
    /// Winograd's minimal filtering F(4×4, 3×3), for the convolutions that [`Conv::suits_winograd`]: a quarter of the
    /// multiplications and other roundings. Outputs are computed in tiles of 4×4 that lie as far apart as taps do, `d`: those of a
    /// remainder modulo `d` are the outputs of a convolution without dilation. Tiles begin at multiples of `4·d` and up to `d` behind them, so a region
    /// needs what its [`crate::Kernel::grain`] needs, and a NaN or infinity spoils its tile.
    Winograd,
}

impl Algorithm {
    /// The products that it takes, of those of the sums themselves.
    pub(super) const fn share_of_products(self) -> f64 {
        match self {
            Self::Direct => 1.0,
            // 36 products for 16 outputs, where there were 144
            Self::Winograd => 0.25,
        }
    }

    /// The numbers that it reads for each weight.
    pub(super) const fn expansion(self) -> usize {
        match self {
            Self::Direct => 1,
            // 36 numbers for each filter of 9
            Self::Winograd => 4,
        }
    }
}
