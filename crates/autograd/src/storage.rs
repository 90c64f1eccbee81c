//! The buffers that tensors share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tiled_tensor::{AlignedBuffer, Element};

use crate::context::Context;

/// A buffer of the context, which goes back to it when the last tensor that shares it is dropped.
pub(crate) struct Storage<T: Element> {
    values: RwLock<AlignedBuffer<T>>,
    /// How often it was changed in place.
    version: AtomicU64,
    /// The version of the last change that the tape recorded: values derived before it are stale.
    taped: AtomicU64,
    /// What every leaf in this memory has a share of.
    leaves: OnceLock<Arc<()>>,
    context: Context<T>,
}

pub(crate) type Read<'a, T> = RwLockReadGuard<'a, AlignedBuffer<T>>;
pub(crate) type Write<'a, T> = RwLockWriteGuard<'a, AlignedBuffer<T>>;

impl<T: Element> Storage<T> {
    pub(crate) const fn new(context: Context<T>, values: AlignedBuffer<T>) -> Self {
        Self {
            values: RwLock::new(values),
            version: AtomicU64::new(0),
            taped: AtomicU64::new(0),
            leaves: OnceLock::new(),
            context,
        }
    }

    pub(crate) fn read(&self) -> Read<'_, T> {
        // floats have no state that a panic could leave half made
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> Write<'_, T> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one memory and writes another. The one that comes first is locked first, so that threads that change two tensors by one
    /// another do not wait for each other.
    pub(crate) fn read_and_write<'a>(from: &'a Self, to: &'a Self) -> (Read<'a, T>, Write<'a, T>) {
        if std::ptr::from_ref(from) < std::ptr::from_ref(to) {
            let read = from.read();
            (read, to.write())
        } else {
            let write = to.write();
            (from.read(), write)
        }
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

    /// What a leaf in this memory holds as long as it lives.
    pub(crate) fn leaf_mark(&self) -> Arc<()> {
        Arc::clone(self.leaves.get_or_init(Arc::default))
    }

    /// Whether a leaf lies in this memory.
    pub(crate) fn has_leaf(&self) -> bool {
        self.leaves.get().is_some_and(|mark| Arc::strong_count(mark) > 1)
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
