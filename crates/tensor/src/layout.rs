//! Where the elements of a window lie.

use tiled_geometry::{Interval, Region};

/// A layout whose size does not fit the address space.
///
/// ```
/// use tiled_tensor::Layout;
/// let error = Layout::nchw([1, 1 << 30, 1 << 20, 1 << 20]).unwrap_err();
/// assert_eq!((error.channels, error.ring, error.cols), (1 << 30, 1 << 20, 1 << 20));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a window of {batch}×{channels} channels, {ring} rows, {cols} columns overflows 64-bit sizes")]
pub struct LayoutError {
    /// The batch size.
    pub batch: usize,
    /// The number of channels.
    pub channels: usize,
    /// The rows of storage.
    pub ring: usize,
    /// The columns.
    pub cols: usize,
}

/// The elements from one block of channels to the next, where its rows take so many: not just above a multiple of 4 KiB of `f32`.
///
/// Kernels read the same pixels of one block after another. A first level cache has the same set every 4 KiB, and room for
/// about a dozen lines in it, and rows are often multiples of that. More rows or columns never give less, so a slot
/// for the largest window of a node holds the others.
const fn apart(rows: usize) -> usize {
    const PERIOD: usize = 1024;
    const GAP: usize = 176;
    let past = rows % PERIOD;
    if rows >= PERIOD && past < GAP { rows.saturating_add(GAP - past) } else { rows }
}

/// A channel-blocked window `N·(C/block)·ring·cols·block` with the region that it holds. Between blocks of several
/// channels there may be a gap.
///
/// Lanes past the last channel of the last block ("padding lanes") hold unspecified values: a kernel may
/// write anything there and must not let them reach a real lane.
///
/// ```
/// use tiled_geometry::Region;
/// use tiled_tensor::Layout;
/// // 20 channels in blocks of 16 are 2 blocks; a row of 5 columns takes 80 elements
/// let layout = Layout::new(1, 20, 16, Region::whole([4, 5]), 4)?;
/// assert_eq!((layout.blocks(), layout.row_stride(), layout.block_stride()), (2, 80, 320));
/// assert_eq!(layout.offset(0, 17, 1, 2), 320 + 80 + 2 * 16 + 1);
/// # Ok::<(), tiled_tensor::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    batch: usize,
    channels: usize,
    block: usize,
    ring: usize,
    region: Region<2>,
    row_stride: usize,
    block_stride: usize,
    batch_stride: usize,
}

impl Layout {
    /// The layout of a window over `region` with storage for `ring` rows.
    ///
    /// The columns of `region` fix the row length. Its rows may be more than `ring`: then it stands for a
    /// window that slides, and [`Layout::with_rows`] gives what it holds at a time.
    ///
    /// # Errors
    /// Where the size overflows.
    ///
    /// ```
    /// use tiled_geometry::Region;
    /// use tiled_tensor::Layout;
    /// // 6 rows of storage for a window that slides down 1000
    /// let layout = Layout::new(1, 3, 1, Region::whole([1000, 50]), 6)?;
    /// assert_eq!((layout.ring(), layout.len()), (6, 3 * 6 * 50));
    /// # Ok::<(), tiled_tensor::LayoutError>(())
    /// ```
    pub fn new(
        batch: usize,
        channels: usize,
        block: usize,
        region: Region<2>,
        ring: usize,
    ) -> Result<Self, LayoutError> {
        let cols = usize::try_from(region.cols().len()).unwrap_or(usize::MAX);
        let error = LayoutError { batch, channels, ring, cols };
        let row_stride = cols.checked_mul(block).ok_or(error)?;
        let rows = row_stride.checked_mul(ring).ok_or(error)?;
        let block_stride = if block > 1 { apart(rows) } else { rows };
        let batch_stride = block_stride.checked_mul(channels.div_ceil(block.max(1))).ok_or(error)?;
        let len = batch_stride.checked_mul(batch).ok_or(error)?;
        if i64::try_from(len.checked_mul(8).ok_or(error)?).is_err() {
            return Err(error);
        }
        Ok(Self { batch, channels, block, ring, region, row_stride, block_stride, batch_stride })
    }

    /// The layout of a whole `NCHW` tensor.
    ///
    /// # Errors
    /// Where the size overflows.
    ///
    /// ```
    /// use tiled_tensor::Layout;
    /// let layout = Layout::nchw([2, 3, 4, 5])?;
    /// assert_eq!((layout.len(), layout.batch_stride(), layout.block_stride(), layout.row_stride()), (120, 60, 20, 5));
    /// # Ok::<(), tiled_tensor::LayoutError>(())
    /// ```
    pub fn nchw(shape: [usize; 4]) -> Result<Self, LayoutError> {
        let [batch, channels, height, width] = shape;
        let error = LayoutError { batch, channels, ring: height, cols: width };
        let extent = |size: usize| i64::try_from(size).map_err(|_| error);
        Self::new(batch, channels, 1, Region::whole([extent(height)?, extent(width)?]), height)
    }

    /// The same storage holding other rows.
    ///
    /// # Panics
    /// Where the rows are more than the ring stores.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// use tiled_tensor::Layout;
    /// let layout = Layout::new(1, 1, 1, Region::whole([100, 8]), 3)?.with_rows(Interval::new(7, 10));
    /// assert_eq!(layout.rows(), Interval::new(7, 10));
    /// assert_eq!(layout.offset(0, 0, 9, 0), 0); // 9 mod 3
    /// # Ok::<(), tiled_tensor::LayoutError>(())
    /// ```
    #[must_use]
    pub fn with_rows(self, rows: Interval) -> Self {
        assert!(
            usize::try_from(rows.len()).is_ok_and(|len| len <= self.ring),
            "{rows} rows in a ring of {}",
            self.ring
        );
        Self { region: Region::from_rows_cols(rows, self.region.cols()), ..self }
    }

    /// How many rows lie one after another from row `y` on, until the ring begins anew.
    ///
    /// # Panics
    /// Where the ring is empty.
    #[must_use]
    pub fn rows_in_order(&self, y: i64) -> usize {
        self.ring - self.row_offset(0, 0, y) / self.row_stride.max(1)
    }

    /// The same storage as one long row, in which row `y` begins at column 0.
    ///
    /// # Panics
    /// Where the ring is empty.
    ///
    /// ```
    /// use tiled_geometry::Region;
    /// use tiled_tensor::Layout;
    /// let layout = Layout::new(1, 16, 8, Region::whole([100, 5]), 6)?;
    /// let row = layout.in_one_row(8); // the third row of storage, of 6
    /// assert_eq!(row.region().to_string(), "[0,1)×[-10,20)");
    /// assert_eq!((row.rows_in_order(0), layout.rows_in_order(8)), (1, 4));
    /// assert_eq!(row.offset(0, 9, 0, 5 + 2), layout.offset(0, 9, 9, 2));
    /// # Ok::<(), tiled_tensor::LayoutError>(())
    /// ```
    #[must_use]
    #[expect(clippy::cast_possible_wrap, reason = "no more than the elements, whose bytes fit an i64")]
    pub fn in_one_row(&self, y: i64) -> Self {
        let pixels = |elements: usize| (elements / self.block.max(1)) as i64;
        let before = pixels(self.row_offset(0, 0, y));
        let row_stride = self.ring * self.row_stride;
        let cols = Interval::new(-before, pixels(row_stride) - before);
        Self { ring: 1, region: Region::from_rows_cols(Interval::new(0, 1), cols), row_stride, ..*self }
    }

    /// The batch size, N.
    #[must_use]
    pub const fn batch(&self) -> usize {
        self.batch
    }

    /// The number of channels, C.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.channels
    }

    /// The channels of a block; one for plain `NCHW`.
    #[must_use]
    pub const fn block(&self) -> usize {
        self.block
    }

    /// The number of blocks, `ceil(C / block)`.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.channels.div_ceil(self.block)
    }

    /// The rows of storage.
    #[must_use]
    pub const fn ring(&self) -> usize {
        self.ring
    }

    /// The region of the whole tensor that it holds.
    #[must_use]
    pub const fn region(&self) -> Region<2> {
        self.region
    }

    /// The rows that it holds.
    #[must_use]
    pub const fn rows(&self) -> Interval {
        self.region.rows()
    }

    /// The columns that it holds.
    #[must_use]
    pub const fn cols(&self) -> Interval {
        self.region.cols()
    }

    /// Elements from one row of storage to the next.
    #[must_use]
    pub const fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Elements from one block of channels to the next.
    #[must_use]
    pub const fn block_stride(&self) -> usize {
        self.block_stride
    }

    /// Elements from one image of the batch to the next.
    #[must_use]
    pub const fn batch_stride(&self) -> usize {
        self.batch_stride
    }

    /// The elements of storage.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.batch * self.batch_stride
    }

    /// Whether there is no storage.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The offset of the first element of row `y` of channel block `block` of image `n`: column `cols.begin`, lane 0.
    ///
    /// # Panics
    /// Where the ring is empty.
    ///
    /// ```
    /// use tiled_tensor::Layout;
    /// assert_eq!(Layout::nchw([2, 3, 4, 5])?.row_offset(1, 2, 3), 60 + 40 + 15);
    /// # Ok::<(), tiled_tensor::LayoutError>(())
    /// ```
    #[must_use]
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "a remainder of a positive ring is between 0 and the ring, which fits usize"
    )]
    pub const fn row_offset(&self, n: usize, block: usize, y: i64) -> usize {
        let row = y.rem_euclid(self.ring as i64) as usize;
        n * self.batch_stride + block * self.block_stride + row * self.row_stride
    }

    /// The offset of element (n, c, y, x) in global coordinates.
    ///
    /// # Panics
    /// Where the ring is empty.
    ///
    /// ```
    /// use tiled_tensor::Layout;
    /// assert_eq!(Layout::nchw([2, 3, 4, 5])?.offset(1, 2, 3, 4), 60 + 40 + 15 + 4);
    /// # Ok::<(), tiled_tensor::LayoutError>(())
    /// ```
    #[must_use]
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "x lies in the columns held")]
    pub const fn offset(&self, n: usize, c: usize, y: i64, x: i64) -> usize {
        let col = (x - self.region.cols().begin()) as usize;
        self.row_offset(n, c / self.block, y) + col * self.block + c % self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_channels_begin_in_different_sets_of_a_cache() {
        for (block, cols, ring) in [(8, 1024, 5), (16, 1024, 5), (16, 64, 4), (8, 128, 1), (16, 130, 63)] {
            let region = Region::whole([100, cols]);
            let layout = Layout::new(2, 8 * block, block, region, ring).expect("small");
            assert!(layout.block_stride() % 1024 >= 176, "{layout:?}");
            assert_eq!(layout.row_offset(0, 0, 1) % 16, 0, "rows stay aligned");
            assert_eq!(layout.block_stride() % block, 0);
            assert_eq!(layout.len(), 2 * layout.blocks() * layout.block_stride());
        }
    }

    #[test]
    fn a_smaller_window_takes_no_more() {
        for block in [1, 4, 8, 16] {
            let len = |cols: i64, ring| {
                Layout::new(1, 3 * block, block, Region::whole([100, cols]), ring).expect("small").len()
            };
            for cols in 1..300 {
                for ring in 1..20 {
                    assert!(len(cols, ring) <= len(cols + 1, ring).min(len(cols, ring + 1)));
                }
            }
        }
    }

    #[test]
    fn planes_follow_one_another() {
        let layout = Layout::nchw([2, 3, 32, 1024]).expect("small");
        assert_eq!((layout.block_stride(), layout.len()), (32 * 1024, 6 * 32 * 1024));
    }

    #[test]
    fn a_window_without_rows_has_no_storage() {
        assert!(Layout::new(1, 64, 16, Region::EMPTY, 0).expect("small").is_empty());
    }
}
