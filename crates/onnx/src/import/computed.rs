//! Constants that are computed of constants while a model is read, and the memory that they may take.
//!
//! Elements lie in the file until a node computes with them. What it makes is held in doubles while a later node reads it, and
//! becomes a tensor beside those of the file once a node of the network has it as a parameter, rounded once. All of it together
//! may take three times the bytes of elements that the model has, and [`FLOOR_BYTES`]: a file cannot ask for more memory by writing
//! few numbers out to many.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Reason;

/// A constant that was computed, in the shape in which it is seen.
#[derive(Clone, Debug)]
pub(crate) struct Computed {
    pub(crate) elements: Rc<Elements>,
    pub(crate) shape: Arc<[usize]>,
}

/// The elements of a computed constant, in the order of their axes.
#[derive(Debug)]
pub(crate) struct Elements {
    /// The value of the model that they were first.
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
    /// Whether one of those that they were computed of is in doubles.
    pub(crate) is_double: bool,
    /// Their number among the tensors of the model, once they are one.
    pub(crate) tensor: Cell<Option<usize>>,
    #[expect(dead_code, reason = "taken as long as they are there")]
    pub(crate) room: Room,
}

/// The bytes of elements that computing takes at a time. One thread counts them; weights that hold room may go to another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms {
    taken: Arc<AtomicU64>,
    /// All elements that were ever computed.
    computed: Arc<AtomicU64>,
}

impl Rooms {
    /// Counts so many elements that are computed, where they lie too.
    pub(crate) fn work(&self, elements: usize, given: u64) -> Result<(), Reason> {
        let computed = self.computed.load(Ordering::Relaxed).saturating_add(elements as u64);
        let most = given.saturating_mul(MOST_TIMES).saturating_add(FLOOR_ELEMENTS);
        if computed > most {
            return Err(Reason::ComputedWork { expected: most, got: computed });
        }
        self.computed.store(computed, Ordering::Relaxed);
        Ok(())
    }

    /// Room for so many elements of a type of so many bytes, beside elements of the model of `given` bytes.
    pub(crate) fn take(&self, elements: usize, size_bytes: usize, given: u64) -> Result<Room, Reason> {
        let bytes = (elements as u64).saturating_mul(size_bytes as u64);
        let got = self.taken.load(Ordering::Relaxed).saturating_add(bytes);
        let expected = given.saturating_mul(3).saturating_add(FLOOR_BYTES);
        if got > expected {
            return Err(Reason::ComputedBytes { expected, got });
        }
        self.work(elements, given)?;
        self.taken.store(got, Ordering::Relaxed);
        Ok(Room { bytes, taken: Arc::clone(&self.taken) })
    }
}

/// Room that is taken until it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: u64,
    taken: Arc<AtomicU64>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The elements that are computed for each byte of those of the model, and beside them: a second or two.
const MOST_TIMES: u64 = 64;
const FLOOR_ELEMENTS: u64 = 1 << 26;

/// What computed constants may take beside a model of however few elements.
const FLOOR_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_without_room_too() {
        let rooms = Rooms::default();
        let all = usize::try_from(FLOOR_ELEMENTS).unwrap();
        rooms.work(all, 0).unwrap();
        assert!(rooms.work(1, 0).is_err() && rooms.take(1, 8, 0).is_err());
        assert!(rooms.work(1, 1).is_ok());
    }

    #[test]
    fn room_is_there_again_once_it_is_dropped() {
        let rooms = Rooms::default();
        let all = usize::try_from(FLOOR_BYTES / 8).unwrap();
        let first = rooms.take(all, 8, 0).unwrap();
        let refused = rooms.take(1, 8, 2).unwrap_err().to_string();
        assert!(refused.contains("33554440") && refused.contains("33554438"), "{refused}");
        let second = rooms.take(1, 8, 3).unwrap();
        drop((first, second));
        assert!(rooms.take(all, 8, 0).is_ok());
    }
}
