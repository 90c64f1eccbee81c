//! Memory that kernels need for the length of a call.

use std::sync::{Mutex, TryLockError};

use tiled_tensor::{AlignedBuffer, Element, OutOfMemory, push, with_room};

/// Buffers that kernels use for the length of a call, one for each thread that may be in one.
#[derive(Debug, Default)]
pub struct Workspace<T: Element> {
    buffers: Vec<Mutex<AlignedBuffer<T>>>,
}

impl<T: Element> Workspace<T> {
    /// No buffer: a call that needs one has it for its length alone.
    pub const NONE: Self = Self { buffers: Vec::new() };

    /// Buffers of so many elements for so many threads.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn new(threads: usize, elements: usize) -> Result<Self, OutOfMemory> {
        if elements == 0 {
            return Ok(Self::NONE);
        }
        let mut buffers = with_room(threads)?;
        for _ in 0..threads {
            push(&mut buffers, Mutex::new(AlignedBuffer::try_new(elements)?))?;
        }
        Ok(Self { buffers })
    }

    /// Runs `work` with `elements` of whatever the last call left, in the buffer of this thread where it is free, which keeps it
    /// in that core's cache.
    ///
    /// # Panics
    /// Where there is no buffer as large that nobody uses, and memory for one is refused: kernels have no errors. In a run
    /// there are as many as threads.
    pub fn with<R>(&self, thread: usize, elements: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
        let count = self.buffers.len();
        for place in (0..count).map(|place| (thread + place) % count) {
            let mut buffer = match self.buffers[place].try_lock() {
                Ok(buffer) => buffer,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(), // what it holds is nothing
                Err(TryLockError::WouldBlock) => continue,
            };
            if let Some(buffer) = buffer.get_mut(..elements) {
                return work(buffer);
            }
        }
        match AlignedBuffer::try_new(elements) {
            Ok(mut buffer) => work(&mut buffer),
            Err(error) => panic!("a workspace that was not planned: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_at_the_same_time_have_buffers_of_their_own() {
        let workspace = Workspace::<f32>::new(2, 8).unwrap();
        workspace.with(5, 8, |outer| {
            outer.fill(1.0);
            // the second of the two, then one that is made for it
            workspace.with(5, 4, |inner| {
                inner.fill(2.0);
                workspace.with(0, 8, |third| third.fill(3.0));
                assert_eq!(inner, [2.0; 4]);
            });
            assert_eq!(outer, [1.0; 8]);
        });
        workspace.with(1, 8, |buffer| assert_eq!(buffer, [1.0; 8], "it is used again"));
    }

    #[test]
    fn a_call_that_nobody_planned_for_has_its_buffer_too() {
        assert_eq!(Workspace::<f64>::NONE.with(3, 100, |buffer| buffer.len()), 100);
        assert_eq!(Workspace::<f64>::new(1, 10).unwrap().with(0, 100, |buffer| buffer.len()), 100);
        assert!(Workspace::<f64>::new(4, 0).unwrap().buffers.is_empty());
    }
}
