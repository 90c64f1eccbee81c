//! Borrowed windows.

use tiled_geometry::Region;

use crate::{Element, Layout};

/// A window that can be read: storage and its [`Layout`].
///
/// ```
/// use tiled_geometry::{Interval, Region};
/// use tiled_tensor::{Layout, View};
/// let held = Region::from_rows_cols(Interval::new(10, 12), Interval::new(20, 23));
/// let data = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let view = View::new(&data, Layout::new(1, 1, 1, held, 2)?);
/// assert_eq!((view.get(0, 0, 10, 21), view.get(0, 0, 11, 22)), (2.0, 6.0));
/// assert_eq!(view.row(0, 0, 11), [4.0, 5.0, 6.0]);
/// # Ok::<(), tiled_tensor::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    data: &'a [T],
    layout: Layout,
}

impl<'a, T: Element> View<'a, T> {
    /// The window of `layout` in `data`.
    ///
    /// # Panics
    /// Where `data` is shorter than the layout.
    #[must_use]
    pub fn new(data: &'a [T], layout: Layout) -> Self {
        assert!(data.len() >= layout.len(), "{} elements for a layout of {}", data.len(), layout.len());
        Self { data, layout }
    }

    /// The storage.
    #[must_use]
    pub const fn data(&self) -> &'a [T] {
        self.data
    }

    /// Where its elements lie.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The region of the whole tensor that it holds.
    #[must_use]
    pub const fn region(&self) -> Region<2> {
        self.layout.region()
    }

    /// The element at (n, c, y, x) in global coordinates, which must lie in the region held.
    #[must_use]
    #[inline(always)]
    pub fn get(&self, n: usize, c: usize, y: i64, x: i64) -> T {
        debug_assert!(
            self.region().rows().contains(y) && self.region().cols().contains(x),
            "({y},{x}) outside the region {} held",
            self.region()
        );
        self.data[self.layout.offset(n, c, y, x)]
    }

    /// Row `y` of channel block `block` of image `n`: `cols·block` elements.
    #[must_use]
    #[inline(always)]
    pub fn row(&self, n: usize, block: usize, y: i64) -> &'a [T] {
        debug_assert!(self.region().rows().contains(y), "row {y} outside the region {} held", self.region());
        let start = self.layout.row_offset(n, block, y);
        &self.data[start..start + self.layout.row_stride()]
    }
}

/// A window that can be written.
///
/// ```
/// use tiled_tensor::{Layout, ViewMut};
/// let mut data = [0.0_f32; 6];
/// let mut view = ViewMut::new(&mut data, Layout::nchw([1, 1, 2, 3])?);
/// view.set(0, 0, 0, 2, 7.0);
/// view.row_mut(0, 0, 1).fill(1.0);
/// assert_eq!(view.as_view().get(0, 0, 0, 2), 7.0);
/// assert_eq!(data, [0.0, 0.0, 7.0, 1.0, 1.0, 1.0]);
/// # Ok::<(), tiled_tensor::LayoutError>(())
/// ```
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    data: &'a mut [T],
    layout: Layout,
}

impl<'a, T: Element> ViewMut<'a, T> {
    /// The window of `layout` in `data`.
    ///
    /// # Panics
    /// Where `data` is shorter than the layout.
    #[must_use]
    pub fn new(data: &'a mut [T], layout: Layout) -> Self {
        assert!(data.len() >= layout.len(), "{} elements for a layout of {}", data.len(), layout.len());
        Self { data, layout }
    }

    /// The same window, to be read.
    #[must_use]
    pub fn as_view(&self) -> View<'_, T> {
        View { data: self.data, layout: self.layout }
    }

    /// The same window for a shorter time.
    ///
    /// ```
    /// use tiled_tensor::{Layout, ViewMut};
    /// let mut data = [0.0_f32; 2];
    /// let mut view = ViewMut::new(&mut data, Layout::nchw([1, 1, 1, 2])?);
    /// view.reborrow().set(0, 0, 0, 0, 1.0);
    /// view.set(0, 0, 0, 1, 2.0);
    /// assert_eq!(view.into_data(), [1.0, 2.0]);
    /// # Ok::<(), tiled_tensor::LayoutError>(())
    /// ```
    #[must_use]
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut { data: self.data, layout: self.layout }
    }

    /// The storage, for as long as it was borrowed.
    #[must_use]
    pub fn into_data(self) -> &'a mut [T] {
        self.data
    }

    /// The storage.
    #[must_use]
    pub fn data_mut(&mut self) -> &mut [T] {
        self.data
    }

    /// Where its elements lie.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The region of the whole tensor that it holds.
    #[must_use]
    pub const fn region(&self) -> Region<2> {
        self.layout.region()
    }

    /// Writes the element at (n, c, y, x) in global coordinates, which must lie in the region held.
    #[inline(always)]
    pub fn set(&mut self, n: usize, c: usize, y: i64, x: i64, value: T) {
        debug_assert!(
            self.region().rows().contains(y) && self.region().cols().contains(x),
            "({y},{x}) outside the region {} held",
            self.region()
        );
        self.data[self.layout.offset(n, c, y, x)] = value;
    }

    /// Row `y` of channel block `block` of image `n`: `cols·block` elements.
    #[must_use]
    #[inline(always)]
    pub fn row_mut(&mut self, n: usize, block: usize, y: i64) -> &mut [T] {
        debug_assert!(self.region().rows().contains(y), "row {y} outside the region {} held", self.region());
        let start = self.layout.row_offset(n, block, y);
        &mut self.data[start..start + self.layout.row_stride()]
    }
}
