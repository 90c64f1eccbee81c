//! Memory that may be refused: constructors that tell instead of ending the process.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::Cell;
use std::ptr::NonNull;

use crate::Element;

/// Memory that could not be had.
///
/// ```
/// use tiled_tensor::OutOfMemory;
/// assert_eq!(OutOfMemory::of::<f32>(1000).to_string(), "4000 bytes could not be had");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes could not be had")]
pub struct OutOfMemory {
    /// The bytes that were asked for.
    pub bytes: u64,
}

impl OutOfMemory {
    /// The error for so many values; sizes that overflow count as the largest there is.
    #[must_use]
    pub const fn of<V>(len: usize) -> Self {
        Self { bytes: (len as u64).saturating_mul(size_of::<V>() as u64) }
    }
}

/// Whether the allocation that this thread makes right now may be refused without ending the process.
///
/// A global allocator that hands out the memory of somebody else asks this: a block that may be refused is refused, any other
/// block, a list that the program cannot do without, it can take from elsewhere.
///
/// ```
/// assert!(!tiled_tensor::may_refuse());
/// ```
#[must_use]
pub fn may_refuse() -> bool {
    // a thread that ends has no such value any more
    MAY_REFUSE.try_with(Cell::get).unwrap_or(false)
}

/// A list with room for so many values.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// let mut list = tiled_tensor::with_room(3)?;
/// list.extend([1, 2, 3]);
/// assert!(tiled_tensor::with_room::<u64>(usize::MAX).is_err());
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn with_room<V>(len: usize) -> Result<Vec<V>, OutOfMemory> {
    let mut list = Vec::new();
    make_room(&mut list, len)?;
    Ok(list)
}

/// Makes room for so many values more.
///
/// # Errors
/// Where memory is refused; then the list is as before.
///
/// ```
/// let mut list = vec![1];
/// tiled_tensor::make_room(&mut list, 2)?;
/// assert!(list.capacity() >= 3);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn make_room<V>(list: &mut Vec<V>, more: usize) -> Result<(), OutOfMemory> {
    let wanted = list.len().saturating_add(more);
    refusable(|| list.try_reserve_exact(more)).map_err(|_| OutOfMemory::of::<V>(wanted))
}

/// Makes room for so many values more, and where the list has to move for as many as it holds besides, so that it may grow value
/// by value.
///
/// # Errors
/// Where memory is refused; then the list is as before.
///
/// ```
/// let mut list = vec![1; 100];
/// tiled_tensor::grow(&mut list, 1)?;
/// assert!(list.capacity() >= 200);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn grow<V>(list: &mut Vec<V>, more: usize) -> Result<(), OutOfMemory> {
    if list.capacity() - list.len() >= more {
        return Ok(());
    }
    let wanted = list.len().saturating_add(more).max(list.capacity().saturating_mul(2));
    refusable(|| list.try_reserve(more)).map_err(|_| OutOfMemory::of::<V>(wanted))
}

/// Adds a value to a list that grows.
///
/// # Errors
/// Where memory is refused; then the list is as before.
///
/// ```
/// let mut list = vec![1];
/// tiled_tensor::push(&mut list, 2)?;
/// assert_eq!(list, [1, 2]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
#[inline]
pub fn push<V>(list: &mut Vec<V>, value: V) -> Result<(), OutOfMemory> {
    if list.len() == list.capacity() {
        grow(list, 1)?;
    }
    list.push(value);
    Ok(())
}

/// A list of copies of a value.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// assert_eq!(tiled_tensor::filled(3, 7)?, [7, 7, 7]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn filled<V: Clone>(len: usize, value: V) -> Result<Vec<V>, OutOfMemory> {
    let mut list = with_room(len)?;
    list.resize(len, value);
    Ok(list)
}

/// A list of zeros; where there are many, the system gives them only when they are first touched.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// assert_eq!(tiled_tensor::zeros::<f32>(2)?, [0.0, 0.0]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn zeros<T: Element>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    // SAFETY: all bits zero is a float.
    unsafe { zeroed(len) }
}

/// A list of zero bytes; where there are many, the system gives them only when they are first touched.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// assert_eq!(tiled_tensor::zero_bytes(2)?, [0, 0]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn zero_bytes(len: usize) -> Result<Vec<u8>, OutOfMemory> {
    // SAFETY: all bits zero is a number.
    unsafe { zeroed(len) }
}

/// # Safety
/// All bits zero is a value.
unsafe fn zeroed<V: Copy>(len: usize) -> Result<Vec<V>, OutOfMemory> {
    let error = OutOfMemory::of::<V>(len);
    let layout = Layout::array::<V>(len).map_err(|_| error)?;
    if layout.size() == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the layout has a size above zero.
    let start = refusable(|| NonNull::new(unsafe { alloc_zeroed(layout) })).ok_or(error)?;
    // SAFETY: just allocated by the global allocator for `len` values, all of which are zero, which is a value.
    Ok(unsafe { Vec::from_raw_parts(start.as_ptr().cast(), len, len) })
}

/// A copy of a slice.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// assert_eq!(tiled_tensor::copied(&[1.0, 2.0])?, [1.0, 2.0]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn copied<V: Copy>(values: &[V]) -> Result<Vec<V>, OutOfMemory> {
    let mut list = with_room(values.len())?;
    list.extend_from_slice(values);
    Ok(list)
}

/// The values of an iterator, which says how many at least there are.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// assert_eq!(tiled_tensor::collected((0..4).map(|i| i * i))?, [0, 1, 4, 9]);
/// assert_eq!(tiled_tensor::collected((0..9).filter(|i| i % 4 == 0))?, [0, 4, 8]);
/// # Ok::<(), tiled_tensor::OutOfMemory>(())
/// ```
pub fn collected<V>(values: impl IntoIterator<Item = V>) -> Result<Vec<V>, OutOfMemory> {
    let mut values = values.into_iter();
    let mut list = with_room(values.size_hint().0)?;
    while let Some(value) = values.next() {
        if list.len() == list.capacity() {
            let least = list.len().max(4).max(values.size_hint().0.saturating_add(1));
            make_room(&mut list, least)?;
        }
        list.push(value);
    }
    Ok(list)
}

/// Runs an allocation that may be refused: of a map or a text, say.
///
/// ```
/// let mut names = std::collections::HashMap::<String, u64>::new();
/// let room = tiled_tensor::refusable(|| {
///     assert!(tiled_tensor::may_refuse());
///     names.try_reserve(100)
/// });
/// assert!(room.is_ok() && !tiled_tensor::may_refuse());
/// ```
pub fn refusable<R>(allocate: impl FnOnce() -> R) -> R {
    let before = MAY_REFUSE.replace(true);
    let result = allocate();
    MAY_REFUSE.set(before);
    result
}

thread_local! {
    /// Plain and without a destructor, so that an allocator can read it at any time.
    static MAY_REFUSE: Cell<bool> = const { Cell::new(false) };
}
