//! Handles: numbers that name objects, so that a wrong, stale or freed one is told and never followed.
//!
//! ```text
//!   63 ......... 36  35 ......... 4  3 .. 0        a handle is never an address: it is never dereferenced,
//!   generation        place          kind          and the kind is not 0, which the low bits of an address are
//! ```
//! Rejected: handles that are addresses with a magic number in front. They are as fast, but looking for the magic
//! number of a freed handle reads freed memory, and one that was freed and made again passes.

use std::any::Any;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use tiled::tensor::make_room;

use crate::status::{
    Failure, Fallible, TILED_STATUS_BUSY, TILED_STATUS_INVALID_HANDLE, TILED_STATUS_NULL_POINTER,
    TILED_STATUS_POISONED, TILED_STATUS_WRONG_HANDLE,
};

/// The type that the header declares for a kind of handle.
pub(crate) trait Opaque: Sized {
    /// What a handle of this type names.
    type Object: Send + Sync + 'static;
    /// The kind's number, from 1 to 15.
    const KIND: usize;
    /// The kind's name in messages.
    const NAME: &'static str;
}

/// Takes an object in and gives its handle.
pub(crate) fn insert<H: Opaque>(object: H::Object) -> Fallible<*mut H> {
    let mut registry = write();
    let place = match registry.free.pop() {
        Some(place) => place,
        None => registry.add(H::NAME)?,
    };
    let slot = &mut registry.slots[place];
    slot.object = Some(Arc::new(RwLock::new(object)));
    slot.name = H::NAME;
    Ok(std::ptr::without_provenance_mut(encode(place, slot.generation, H::KIND)))
}

/// Uses an object that other threads may use at the same time.
pub(crate) fn shared<H: Opaque, R>(
    handle: *const H,
    name: &str,
    body: impl FnOnce(&H::Object) -> Fallible<R>,
) -> Fallible<R> {
    let object = find(handle, name)?;
    let guard = match object.try_read() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(_)) => return Err(poisoned(name)),
        Err(TryLockError::WouldBlock) => return Err(busy(name)),
    };
    body(&guard)
}

/// Uses an object that nobody else uses; a panic inside poisons it.
pub(crate) fn exclusive<H: Opaque, R>(
    handle: *mut H,
    name: &str,
    body: impl FnOnce(&mut H::Object) -> Fallible<R>,
) -> Fallible<R> {
    let object = find(handle.cast_const(), name)?;
    let mut guard = match object.try_write() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(_)) => return Err(poisoned(name)),
        Err(TryLockError::WouldBlock) => return Err(busy(name)),
    };
    #[cfg(test)]
    crate::tests::inject(crate::tests::Injection::WithHandle);
    body(&mut guard)
}

/// Ends a handle; NULL does nothing. A poisoned one can be freed, one in use cannot.
pub(crate) fn free<H: Opaque>(handle: *mut H, name: &str) -> Fallible {
    if handle.is_null() {
        return Ok(());
    }
    let object = find(handle.cast_const(), name)?;
    if let Err(TryLockError::WouldBlock) = object.try_write() {
        return Err(busy(name));
    }
    let mut registry = write();
    let (place, generation, _) = decode(handle.addr());
    let taken = match registry.slots.get_mut(place) {
        Some(slot) if slot.generation == generation => {
            slot.generation = slot.generation.wrapping_add(1) & GENERATIONS;
            slot.object.take()
        }
        _ => None, // another thread was faster
    };
    if taken.is_none() {
        return Err(stale(name));
    }
    registry.free.push(place);
    drop(registry);
    drop(taken); // outside the lock: what a handle names can take long to drop
    Ok(())
}

/// The number of handles that are not freed, for tests of leaks.
pub(crate) fn live() -> usize {
    let registry = read();
    registry.slots.len() - registry.free.len()
}

/// Checks that an argument is a handle of its kind, without using it.
fn find<H: Opaque>(handle: *const H, name: &str) -> Fallible<Arc<RwLock<H::Object>>> {
    if handle.is_null() {
        return Err(Failure::new(TILED_STATUS_NULL_POINTER, format!("{name} is NULL")));
    }
    let (place, generation, kind) = decode(handle.addr());
    let registry = read();
    let slot = registry.slots.get(place).filter(|slot| slot.generation == generation);
    let Some((slot, object)) = slot.and_then(|slot| Some((slot, slot.object.as_ref()?))) else {
        return Err(stale(name));
    };
    match Arc::clone(object).downcast::<RwLock<H::Object>>() {
        Ok(object) if kind == H::KIND => Ok(object),
        _ => Err(Failure::new(
            TILED_STATUS_WRONG_HANDLE,
            format!("{name} is a handle of kind `{}`, wanted is `{}`", slot.name, H::NAME),
        )),
    }
}

fn stale(name: &str) -> Failure {
    Failure::new(TILED_STATUS_INVALID_HANDLE, format!("{name} is no handle: freed, or never made"))
}

fn busy(name: &str) -> Failure {
    Failure::new(TILED_STATUS_BUSY, format!("{name} is in use by another call"))
}

fn poisoned(name: &str) -> Failure {
    Failure::new(TILED_STATUS_POISONED, format!("{name} is poisoned: an earlier call panicked"))
}

#[derive(Default)]
struct Registry {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

impl Registry {
    /// A place more, with room to note that it is free again: to free a handle takes no memory.
    fn add(&mut self, name: &str) -> Fallible<usize> {
        let place = self.slots.len();
        if place > MAX_PLACE {
            return Err(Failure::range(format!("{name}: too many handles")));
        }
        if place == self.slots.capacity() {
            make_room(&mut self.slots, place.max(16))?;
        }
        if self.free.capacity() <= place {
            make_room(&mut self.free, self.slots.capacity())?;
        }
        self.slots.push(Slot::default());
        Ok(place)
    }
}

#[derive(Default)]
struct Slot {
    generation: usize,
    object: Option<Arc<dyn Any + Send + Sync>>,
    name: &'static str,
}

static REGISTRY: RwLock<Registry> = RwLock::new(Registry { slots: Vec::new(), free: Vec::new() });

// a panic while the registry is held cannot leave it half changed: every change is one assignment after all checks
fn read() -> RwLockReadGuard<'static, Registry> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

const KIND_BITS: u32 = 4;
const PLACE_BITS: u32 = (usize::BITS - KIND_BITS) / 2;
const MAX_PLACE: usize = (1 << PLACE_BITS) - 1;
const GENERATIONS: usize = usize::MAX >> (KIND_BITS + PLACE_BITS);

const fn encode(place: usize, generation: usize, kind: usize) -> usize {
    (generation << (KIND_BITS + PLACE_BITS)) | (place << KIND_BITS) | kind
}

const fn decode(handle: usize) -> (usize, usize, usize) {
    ((handle >> KIND_BITS) & MAX_PLACE, handle >> (KIND_BITS + PLACE_BITS), handle & ((1 << KIND_BITS) - 1))
}
