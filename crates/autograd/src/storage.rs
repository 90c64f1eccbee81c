//! The buffers that tensors share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tiled_tensor::{AlignedBuffer, Element};

use crate::context::Context;

/// A buffer of the context, which goes back to it when the last tensor that shares it is dropped.
pub(crate) struct Storage<T: Element> {
    values: RwLock<AlignedBuffer<T>>,
    /// How often it was changed in place.
    version: AtomicU64,
    /// The version of the last change that the tape recorded: values derived before it are stale.
    taped: AtomicU64,
    context: Context<T>,
}

pub(crate) type Read<'a, T> = RwLockReadGuard<'a, AlignedBuffer<T>>;
pub(crate) type Write<'a, T> = RwLockWriteGuard<'a, AlignedBuffer<T>>;

impl<T: Element> Storage<T> {
    pub(crate) const fn new(context: Context<T>, values: AlignedBuffer<T>) -> Self {
        Self { values: RwLock::new(values), version: AtomicU64::new(0), taped: AtomicU64::new(0), context }
    }

    pub(crate) fn read(&self) -> Read<'_, T> {
        // floats have no state that a panic could leave half made
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> Write<'_, T> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn context(&self) -> &Context<T> {
        &self.context
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn taped(&self) -> u64 {
        self.taped.load(Ordering::Acquire)
    }

    /// Counts a change in place, and gives the version after it.
    pub(crate) fn change(&self, is_taped: bool) -> u64 {
        let version = self.version.fetch_add(1, Ordering::AcqRel) + 1;
        if is_taped {
            self.taped.store(version, Ordering::Release);
        }
        version
    }
}

impl<T: Element> Drop for Storage<T> {
    fn drop(&mut self) {
        let values = self.values.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.context.buffers().give(std::mem::take(values));
    }
}
