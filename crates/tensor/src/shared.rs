//! A tensor that several threads write at once.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tiled_geometry::{Interval, Region};

use crate::{Element, Layout, Tensor, ViewMut};

/// A tensor of which several threads write regions at once, each its own.
///
/// ```
/// use tiled_geometry::{Interval, Region};
/// use tiled_tensor::{SharedTensor, Tensor};
///
/// let tensor = SharedTensor::from(Tensor::<f32>::zeros([1, 1, 2, 3])?);
/// let row = |y| Region::from_rows_cols(Interval::new(y, y + 1), Interval::new(0, 3));
/// std::thread::scope(|scope| {
///     for y in 0..2 {
///         let tensor = &tensor;
///         scope.spawn(move || tensor.claim(row(y)).write(3 * y as usize, &[y as f32; 3]));
///     }
/// });
/// assert_eq!(tensor.into_tensor().data(), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
/// # Ok::<(), tiled_tensor::TensorError>(())
/// ```
pub struct SharedTensor<O, T> {
    start: *mut T,
    layout: Layout,
    claims: Claims,
    owner: O,
}

/// The owner of a [`SharedTensor`] whose elements are borrowed.
///
/// ```
/// use tiled_geometry::Region;
/// use tiled_tensor::{Layout, SharedTensor, ViewMut};
/// let mut data = [0.0_f32; 4];
/// let shared = SharedTensor::from(ViewMut::new(&mut data, Layout::nchw([1, 1, 2, 2])?));
/// shared.claim(Region::whole([2, 2])).write(0, &[1.0, 2.0, 3.0, 4.0]);
/// drop(shared);
/// assert_eq!(data, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), tiled_tensor::LayoutError>(())
/// ```
#[derive(Debug)]
pub struct Borrowed<'a, T>(PhantomData<&'a mut [T]>);

/// What is being written.
#[derive(Debug, Default)]
struct Claims {
    held: Mutex<Held>,
    released: Condvar,
}

/// The claims that are held, and how many threads wait for one of them: to wake nobody is a call of the system too.
#[derive(Debug, Default)]
struct Held {
    claims: Vec<Claim>,
    waiting: usize,
}

/// A region of some planes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Claim {
    region: Region<2>,
    planes: Range<usize>,
}

impl Claim {
    fn meets(&self, other: &Self) -> bool {
        self.planes.start.max(other.planes.start) < self.planes.end.min(other.planes.end)
            && !self.region.intersect(other.region).is_empty()
    }
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, claim: Claim) {
        let mut held = self.lock();
        while held.claims.iter().any(|other| other.meets(&claim)) {
            held.waiting += 1;
            held = self.released.wait(held).unwrap_or_else(PoisonError::into_inner);
            held.waiting -= 1;
        }
        held.claims.push(claim);
    }

    fn remove(&self, claim: &Claim) {
        let mut held = self.lock();
        if let Some(place) = held.claims.iter().position(|other| other == claim) {
            held.claims.swap_remove(place);
        }
        let is_awaited = held.waiting > 0;
        drop(held);
        if is_awaited {
            self.released.notify_all();
        }
    }
}

impl<'a, T: Element> From<ViewMut<'a, T>> for SharedTensor<Borrowed<'a, T>, T> {
    fn from(view: ViewMut<'a, T>) -> Self {
        let layout = *view.layout();
        Self {
            start: view.into_data().as_mut_ptr(),
            layout,
            claims: Claims::default(),
            owner: Borrowed(PhantomData),
        }
    }
}

impl<T: Element> From<Tensor<T>> for SharedTensor<Tensor<T>, T> {
    fn from(mut tensor: Tensor<T>) -> Self {
        let layout = *tensor.view().layout();
        // the elements of a tensor stay where they are when the tensor moves
        let start = tensor.data_mut().as_mut_ptr();
        Self { start, layout, claims: Claims::default(), owner: tensor }
    }
}

impl<T: Element> SharedTensor<Tensor<T>, T> {
    /// The tensor.
    #[must_use]
    pub fn into_tensor(self) -> Tensor<T> {
        self.owner
    }
}

impl<O, T: Element> SharedTensor<O, T> {
    /// Where the elements lie.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A region of all images and channels to write, after waiting for those that have any of it.
    ///
    /// # Panics
    /// Where the region is not inside the tensor.
    #[must_use]
    pub fn claim(&self, region: Region<2>) -> PartMut<'_, T> {
        self.claim_part(region, 0..planes(&self.layout))
    }

    /// The same of some planes: channels, those of all images counted.
    ///
    /// # Panics
    /// Where the region or a plane is not inside the tensor, and where the tensor has blocks of more than one channel.
    ///
    /// ```
    /// use tiled_geometry::Region;
    /// use tiled_tensor::{SharedTensor, Tensor};
    /// let tensor = SharedTensor::from(Tensor::<f32>::zeros([1, 2, 1, 2])?);
    /// let image = Region::whole([1, 2]);
    /// let (mut first, mut second) = (tensor.claim_planes(image, 0..1), tensor.claim_planes(image, 1..2));
    /// first.write(0, &[1.0, 2.0]);
    /// second.write(2, &[3.0, 4.0]);
    /// drop((first, second));
    /// assert_eq!(tensor.into_tensor().data(), [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), tiled_tensor::TensorError>(())
    /// ```
    #[must_use]
    pub fn claim_planes(&self, region: Region<2>, planes: Range<usize>) -> PartMut<'_, T> {
        let count = self::planes(&self.layout);
        assert!(planes.end <= count, "planes {planes:?} of {count}");
        assert_eq!(self.layout.block(), 1, "channels of a block");
        self.claim_part(region, planes)
    }

    fn claim_part(&self, region: Region<2>, planes: Range<usize>) -> PartMut<'_, T> {
        let held = self.layout.region();
        assert!(held.contains_region(region), "region {region} of {held}");
        assert!(is_without_wraps(&self.layout), "a window that slides");
        let claim = Claim { region, planes };
        self.claims.add(claim.clone());
        PartMut {
            start: self.start,
            layout: self.layout,
            claim,
            claims: Some(&self.claims),
            borrow: PhantomData,
        }
    }
}

/// The channels of all images.
const fn planes(layout: &Layout) -> usize {
    layout.batch() * layout.channels()
}

/// Whether every row has storage of its own.
fn is_without_wraps(layout: &Layout) -> bool {
    usize::try_from(layout.rows().len()).is_ok_and(|rows| rows <= layout.ring())
}

impl<O: std::fmt::Debug, T> std::fmt::Debug for SharedTensor<O, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedTensor").field("layout", &self.layout).finish_non_exhaustive()
    }
}

// SAFETY: the elements are reached through parts alone, whose claims are disjoint while they live; the
// elements are plain floats.
unsafe impl<O: Sync, T: Element> Sync for SharedTensor<O, T> {}
// SAFETY: as above; nothing is bound to a thread.
unsafe impl<O: Send, T: Element> Send for SharedTensor<O, T> {}

/// A region of a window, of all or some planes, that nobody else reads or writes as long as this lives.
///
/// The rest of the storage may be in use by others, so there is no slice of it.
///
/// ```
/// use tiled_geometry::{Interval, Region};
/// use tiled_tensor::{SharedTensor, Tensor};
/// let tensor = SharedTensor::from(Tensor::<f32>::zeros([1, 1, 2, 3])?);
/// let mut part = tensor.claim(Region::from_rows_cols(Interval::new(1, 2), Interval::new(1, 3)));
/// part.write(4, &[8.0, 9.0]); // row 1 from column 1 on
/// drop(part);
/// assert_eq!(tensor.into_tensor().data(), [0.0, 0.0, 0.0, 0.0, 8.0, 9.0]);
/// # Ok::<(), tiled_tensor::TensorError>(())
/// ```
pub struct PartMut<'a, T> {
    start: *mut T,
    layout: Layout,
    claim: Claim,
    claims: Option<&'a Claims>,
    borrow: PhantomData<&'a mut [T]>,
}

impl<'a, T: Element> From<ViewMut<'a, T>> for PartMut<'a, T> {
    /// All that the window holds.
    fn from(view: ViewMut<'a, T>) -> Self {
        let (layout, region) = (*view.layout(), view.region());
        let claim = Claim { region, planes: 0..planes(&layout) };
        Self { start: view.into_data().as_mut_ptr(), layout, claim, claims: None, borrow: PhantomData }
    }
}

impl<T: Element> PartMut<'_, T> {
    /// The same part for a while.
    #[must_use]
    pub fn reborrow(&mut self) -> PartMut<'_, T> {
        // the claim stays with the original, which lives longer and touches nothing meanwhile
        let claim = self.claim.clone();
        PartMut { start: self.start, layout: self.layout, claim, claims: None, borrow: PhantomData }
    }

    /// Where the elements of the window lie.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The region that may be written, in the planes that it was claimed for.
    #[must_use]
    pub const fn region(&self) -> Region<2> {
        self.claim.region
    }

    /// The storage of the window: valid for its length, but only the elements of [`PartMut::region`] may be touched.
    ///
    /// # Panics
    /// Where the part has some planes alone.
    #[must_use]
    pub const fn as_mut_ptr(&mut self) -> *mut T {
        let Range { start, end } = self.claim.planes;
        assert!(start == 0 && end == planes(&self.layout), "a part of some planes alone");
        self.start
    }

    /// Writes neighbouring elements of a window of single channels, from this place in its storage on: whole rows, and whole planes
    /// without a gap between them, may follow one another.
    ///
    /// # Panics
    /// Where they are not all in the region, and where the window has blocks of more than one channel.
    ///
    /// ```
    /// use tiled_geometry::Region;
    /// use tiled_tensor::{SharedTensor, Tensor};
    /// let tensor = SharedTensor::from(Tensor::<f32>::zeros([1, 1, 2, 2])?);
    /// tensor.claim(Region::whole([2, 2])).write(1, &[5.0, 6.0]);
    /// assert_eq!(tensor.into_tensor().data(), [0.0, 5.0, 6.0, 0.0]);
    /// # Ok::<(), tiled_tensor::TensorError>(())
    /// ```
    pub fn write(&mut self, offset: usize, values: &[T]) {
        if values.is_empty() {
            return;
        }
        assert!(
            self.holds(offset, values.len()),
            "{} elements from {offset} on leave the part",
            values.len()
        );
        // SAFETY: the elements lie in the region, which nobody else touches.
        unsafe { self.start.add(offset).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    /// Whether so many elements from a place on lie in the region.
    fn holds(&self, offset: usize, len: usize) -> bool {
        let Some(last) = offset.checked_add(len).and_then(|end| end.checked_sub(1)) else { return false };
        let (held, ring) = (&self.layout, self.layout.ring().max(1));
        let width = held.row_stride().max(1);
        let column = |place: usize| held.cols().begin().saturating_add_unsigned((place % width) as u64);
        let row = |place: usize| {
            let stored = i64::try_from(place / width % ring).unwrap_or(i64::MAX);
            let ring = i64::try_from(ring).unwrap_or(i64::MAX);
            held.rows().begin() + (stored - held.rows().begin()).rem_euclid(ring)
        };
        let Claim { region, planes } = &self.claim;
        let inside = |y: i64, x: i64| region.rows().contains(y) && region.cols().contains(x);
        let (first_row, last_row) = (row(offset), row(last));
        // whole rows may follow one another within a plane
        let follows = first_row == last_row || region.cols() == held.cols();
        let rows = i64::try_from(last / width - offset / width).unwrap_or(i64::MAX);
        let [plane, last_plane] = [offset, last].map(|place| place / held.block_stride().max(1));
        let are_planes = planes.contains(&plane) && planes.contains(&last_plane);
        if plane != last_plane {
            let stored = Interval::whole(i64::try_from(held.ring()).unwrap_or(i64::MAX));
            let is_whole = [region.rows(), held.rows()] == [stored; 2] && region.cols() == held.cols();
            return is_whole && are_planes && held.block() == 1 && last < held.len();
        }
        len == 0
            || held.block() == 1
                && last < held.len()
                && are_planes
                && follows
                && last_row - first_row == rows
                && inside(first_row, column(offset))
                && inside(last_row, column(last))
    }
}

impl<T> Drop for PartMut<'_, T> {
    fn drop(&mut self) {
        if let Some(claims) = self.claims {
            claims.remove(&self.claim);
        }
    }
}

impl<T> std::fmt::Debug for PartMut<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartMut")
            .field("layout", &self.layout)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

// SAFETY: a part is an exclusive borrow of its elements, which are plain floats.
unsafe impl<T: Element> Send for PartMut<'_, T> {}
// SAFETY: a shared part gives out nothing to write through.
unsafe impl<T: Element> Sync for PartMut<'_, T> {}

#[cfg(test)]
mod tests {

    use super::*;

    fn region(rows: [i64; 2], cols: [i64; 2]) -> Region<2> {
        Region::from_rows_cols(Interval::new(rows[0], rows[1]), Interval::new(cols[0], cols[1]))
    }

    #[test]
    fn parts_hold_their_own_elements_alone() {
        let shape = [2, 3, 4, 5];
        let tensor = SharedTensor::from(Tensor::<f32>::zeros(shape).unwrap());
        for (rows, cols) in [([1, 3], [1, 4]), ([1, 3], [0, 5]), ([0, 4], [0, 5]), ([2, 2], [0, 5])] {
            let part = tensor.claim(region(rows, cols));
            for offset in 0..125 {
                for len in 1..30 {
                    let inside = (offset..offset + len).all(|place| {
                        let [y, x] = [place / 5 % 4, place % 5].map(|at| i64::try_from(at).unwrap());
                        place < 120 && part.region().rows().contains(y) && part.region().cols().contains(x)
                    });
                    let in_plane = offset / 20 == (offset + len - 1) / 20 || (rows, cols) == ([0, 4], [0, 5]);
                    let in_rows = offset / 5 == (offset + len - 1) / 5 || cols == [0, 5];
                    let expected = inside && in_plane && in_rows;
                    assert_eq!(part.holds(offset, len), expected, "{len} from {offset} in {part:?}");
                }
            }
        }
    }

    #[test]
    fn planes_are_claimed_apart() {
        let tensor = SharedTensor::from(Tensor::<f32>::zeros([2, 3, 2, 2]).unwrap());
        let whole = region([0, 2], [0, 2]);
        let (mut first, mut last) = (tensor.claim_planes(whole, 0..4), tensor.claim_planes(whole, 4..6));
        first.write(12, &[1.0; 4]);
        last.write(16, &[2.0; 4]);
        assert!(first.holds(0, 4) && first.holds(10, 6) && !first.holds(14, 4) && !first.holds(16, 4));
        assert!(last.holds(20, 4) && !last.holds(12, 4) && !last.holds(20, 5));
        drop((first, last));
        assert_eq!(
            tensor.into_tensor().data()[12..],
            [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]
        );
    }

    #[test]
    #[should_panic(expected = "some planes alone")]
    fn a_part_of_some_planes_gives_out_no_pointer() {
        let tensor = SharedTensor::from(Tensor::<f32>::zeros([2, 3, 2, 2]).unwrap());
        let _ = tensor.claim_planes(region([0, 2], [0, 2]), 1..6).as_mut_ptr();
    }

    #[test]
    #[should_panic(expected = "planes 1..7 of 6")]
    fn planes_that_are_not_there_are_refused() {
        let tensor = SharedTensor::from(Tensor::<f32>::zeros([2, 3, 2, 2]).unwrap());
        let _ = tensor.claim_planes(region([0, 1], [0, 1]), 1..7);
    }

    #[test]
    #[should_panic(expected = "leave the part")]
    fn a_part_refuses_elements_of_others() {
        let tensor = SharedTensor::from(Tensor::<f64>::zeros([1, 1, 4, 4]).unwrap());
        tensor.claim(region([0, 2], [0, 4])).write(6, &[1.0; 3]);
    }

    #[test]
    fn a_region_is_had_by_one_at_a_time() {
        let mut data = vec![0.0_f64; 64];
        let layout = Layout::nchw([1, 1, 8, 8]).unwrap();
        let tensor = SharedTensor::from(ViewMut::new(&mut data, layout));
        std::thread::scope(|scope| {
            for begin in 0..4_u8 {
                let tensor = &tensor;
                scope.spawn(move || {
                    for _ in 0..200 {
                        // rows that overlap those of the neighbours
                        let rows = [begin, begin + 4].map(i64::from);
                        let mut part = tensor.claim(region(rows, [0, 8]));
                        let start = part.as_mut_ptr();
                        for place in 8 * usize::from(begin)..8 * (usize::from(begin) + 4) {
                            // SAFETY: a place in the region of the part.
                            unsafe { *start.add(place) += 1.0 };
                        }
                    }
                });
            }
        });
        let times = [1, 2, 3, 4, 3, 2, 1, 0].map(|times| f64::from(200 * times));
        assert!(data.chunks(8).zip(times).all(|(row, times)| row.iter().all(|value| *value == times)));
    }
}
