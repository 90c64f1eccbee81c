//! Memory that kernels need for the length of a call, one buffer a thread.

use std::cell::RefCell;

use tiled_tensor::{AlignedBuffer, Element, OutOfMemory};

thread_local! {
    /// In `f64` because its alignment suits both types.
    static SCRATCH: RefCell<AlignedBuffer<f64>> = RefCell::default();
}

/// Makes room for so many bytes on this thread.
pub(crate) fn reserve(bytes: usize) -> Result<(), OutOfMemory> {
    let len = bytes.div_ceil(size_of::<f64>());
    SCRATCH.with_borrow_mut(|buffer| {
        if buffer.len() < len {
            *buffer = AlignedBuffer::default(); // the old one goes first: never both
            *buffer = AlignedBuffer::try_new(len)?;
        }
        Ok(())
    })
}

/// Runs `work` with `elements` of whatever the last one left. A thread of a pool keeps its buffer until it ends, which it does before
/// the drop of an executor returns; any other has one for the length of the call alone.
///
/// # Panics
/// Where memory is refused on a thread that has not reserved it: kernels have no errors. Those of an executor have.
pub(crate) fn with_scratch<T: Element, R>(elements: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
    if let Err(error) = reserve(elements * size_of::<T>()) {
        panic!("scratch memory that was not reserved: {error}");
    }
    let result = SCRATCH.with_borrow_mut(|buffer| {
        let start = buffer.as_mut_ptr().cast::<T>();
        // SAFETY: `f64` is aligned at least as `T`, which is `f32` or `f64`; `reserve` made room for the elements, all of whose
        // bits are valid.
        work(unsafe { std::slice::from_raw_parts_mut(start, elements) })
    });
    if rayon::current_thread_index().is_none() {
        SCRATCH.set(AlignedBuffer::default());
    }
    result
}
