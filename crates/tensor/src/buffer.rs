//! Aligned storage.

use std::alloc::{Layout as AllocLayout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::memory::refusable;
use crate::{Element, OutOfMemory, large_pages};

/// Zeroed storage whose start is aligned to a cache line, 64 bytes: what vector loads want. Large storage lies on large
/// pages where the system gives them to who asks.
///
/// ```
/// use tiled_tensor::AlignedBuffer;
/// let mut buffer = AlignedBuffer::<f32>::new(3);
/// buffer[1] = 2.0;
/// assert_eq!(buffer[..], [0.0, 2.0, 0.0]);
/// assert_eq!(buffer.as_ptr() as usize % 64, 0);
/// ```
pub struct AlignedBuffer<T: Element> {
    start: NonNull<T>,
    len: usize,
    /// The elements that it was made for.
    capacity: usize,
}

const ALIGNMENT_BYTES: usize = 64;

impl<T: Element> AlignedBuffer<T> {
    /// Storage for `len` zeros, where memory that is refused may end the process: for tests and for sizes that no input decides.
    ///
    /// # Panics
    /// Where the size in bytes overflows. Where memory runs out the process ends, as with `Vec`.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let layout = Self::alloc_layout(len).expect("storage size fits the address space");
        Self::allocated(len, layout).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// Storage for `len` zeros.
    ///
    /// # Errors
    /// Where memory is refused, or the size overflows.
    ///
    /// ```
    /// use tiled_tensor::AlignedBuffer;
    /// assert_eq!(*AlignedBuffer::<f32>::try_new(3)?, [0.0; 3]);
    /// assert_eq!(AlignedBuffer::<f64>::try_new(1 << 60).unwrap_err().bytes, 1 << 63);
    /// # Ok::<(), tiled_tensor::OutOfMemory>(())
    /// ```
    pub fn try_new(len: usize) -> Result<Self, OutOfMemory> {
        let layout = Self::alloc_layout(len);
        let made = layout.and_then(|layout| refusable(|| Self::allocated(len, layout)));
        made.ok_or(OutOfMemory::of::<T>(len))
    }

    /// A copy.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let mut copy = Self::try_new(self.len)?;
        copy.copy_from_slice(self);
        Ok(copy)
    }

    /// Becomes so many zeros, in the storage that it was made with.
    ///
    /// ```
    /// use tiled_tensor::AlignedBuffer;
    /// let mut buffer = AlignedBuffer::<f32>::new(3);
    /// buffer[1] = 2.0;
    /// buffer.clear(2);
    /// assert_eq!(buffer[..], [0.0; 2]);
    /// buffer.clear(3);
    /// assert_eq!(buffer[..], [0.0; 3]);
    /// ```
    ///
    /// # Panics
    /// Where it was made for fewer.
    pub fn clear(&mut self, len: usize) {
        assert!(len <= self.capacity, "{len} elements in storage for {}", self.capacity);
        self.len = len;
        self.fill(T::ZERO);
    }

    /// Storage of this layout; `None` where the allocator has none.
    fn allocated(len: usize, layout: AllocLayout) -> Option<Self> {
        if len == 0 {
            return Some(Self { start: NonNull::dangling(), len, capacity: len });
        }
        // SAFETY: the layout has a size above zero, because `len > 0` and elements are 4 or 8 bytes.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        large_pages::advise(start, layout.size());
        // SAFETY: just allocated with this size
        unsafe { start.write_bytes(0, layout.size()) }
        Some(Self { start: start.cast(), len, capacity: len })
    }

    /// The layout of so many elements; `None` where their size overflows.
    fn alloc_layout(len: usize) -> Option<AllocLayout> {
        AllocLayout::array::<T>(len).and_then(|layout| layout.align_to(ALIGNMENT_BYTES)).ok()
    }
}

impl<T: Element> Drop for AlignedBuffer<T> {
    fn drop(&mut self) {
        if let Some(layout) = Self::alloc_layout(self.capacity).filter(|layout| layout.size() > 0) {
            // SAFETY: allocated in `allocated` with the same layout, and not freed before.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) }
        }
    }
}

impl<T: Element> Deref for AlignedBuffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is valid for `capacity >= len` initialised elements (zeroed, and all bits zero is a float), or
        // dangling and aligned with `len == 0`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Element> DerefMut for AlignedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Element> Default for AlignedBuffer<T> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T: Element> Clone for AlignedBuffer<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl<T: Element> std::fmt::Debug for AlignedBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).field("dtype", &T::DTYPE).finish()
    }
}

// SAFETY: it owns its storage, like `Vec<T>`; elements are plain floats.
unsafe impl<T: Element> Send for AlignedBuffer<T> {}
// SAFETY: shared access only reads, like `Vec<T>`.
unsafe impl<T: Element> Sync for AlignedBuffer<T> {}
