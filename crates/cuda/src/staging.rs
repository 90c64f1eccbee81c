//! How regions pass between pinned memory and windows beside the kernels of a queue.
//!
//! ```text
//!   pinned ──(stream in)──► piece ──(stream of the kernels)──► window ──(stream of the kernels)──► piece ──(stream out)──► pinned
//! ```
//!
//! A copy into a window has to wait for the kernels that still read it, so one from the host would never run beside them. It goes to a piece of memory
//! of its own instead, as soon as the one before has left it; what the kernels' stream then waits for is a copy on the device. So it is on the way back.

use std::sync::Arc;

use crate::driver::{Driver, DriverError, Stream};
use crate::memory::{OwnEvent, OwnStream};

/// The pieces of each way, and the bytes of one: together they hold some rows of a large picture.
const PIECES: usize = 4;
pub(crate) const PIECE_BYTES: usize = 2 << 20;
/// What the pieces of a queue take on the device.
pub(crate) const STAGING_BYTES: usize = 2 * PIECES * PIECE_BYTES;

/// The pieces of one way, with a stream of their own.
#[derive(Debug)]
pub(crate) struct Lift {
    // before the events: what it still runs uses them
    pub(crate) stream: OwnStream,
    pieces: Vec<Piece>,
    next: usize,
    /// The offset of the first piece among those of a queue.
    offset: u64,
}

/// A piece of memory between two streams.
#[derive(Debug)]
struct Piece {
    filled: OwnEvent,
    emptied: OwnEvent,
}

/// A piece that is being passed on, by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    number: usize,
    /// Where it begins among the pieces of a queue.
    pub(crate) offset: u64,
}

impl Lift {
    /// Both ways of a queue: in, out.
    pub(crate) fn both(driver: &Arc<dyn Driver>) -> Result<[Self; 2], DriverError> {
        let way = |first: usize| {
            let piece = |_| Ok(Piece { filled: OwnEvent::new(driver)?, emptied: OwnEvent::new(driver)? });
            let pieces = (0..PIECES).map(piece).collect::<Result<_, DriverError>>()?;
            let offset = (first * PIECES * PIECE_BYTES) as u64;
            Ok(Self { stream: OwnStream::new(driver)?, pieces, next: 0, offset })
        };
        Ok([way(0)?, way(1)?])
    }

    /// The next piece, which a stream is about to fill: it waits until what the piece held has left it.
    pub(crate) fn take(&mut self, filling: Stream) -> Result<Taken, DriverError> {
        let number = self.next;
        self.next = (number + 1) % self.pieces.len();
        let emptied = &self.pieces[number].emptied;
        emptied.driver.wait(filling, emptied.event)?;
        Ok(Taken { number, offset: self.offset + (number * PIECE_BYTES) as u64 })
    }

    /// Says that one stream has filled a piece, and lets the other wait for it.
    pub(crate) fn pass(&self, taken: Taken, filling: Stream, emptying: Stream) -> Result<(), DriverError> {
        let filled = &self.pieces[taken.number].filled;
        filled.driver.record(filled.event, filling)?;
        filled.driver.wait(emptying, filled.event)
    }

    /// Says that a stream has emptied a piece.
    pub(crate) fn give_back(&self, taken: Taken, emptying: Stream) -> Result<(), DriverError> {
        let emptied = &self.pieces[taken.number].emptied;
        emptied.driver.record(emptied.event, emptying)
    }
}
