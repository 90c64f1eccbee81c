//! The memory of a context: what is live, what is kept for the next tensor, and the limit.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tiled_tensor::{AlignedBuffer, Element};

use crate::error::{Result, TapeError};

/// Buffers that tensors take and give back.
///
/// What is live and what is kept are together never more than what was once live ([`Buffers::peak_bytes`]), so that keeping buffers
/// costs no memory that the work did not need; but for [`SPARE_BYTES`], so that a small model, whose tensors have all kinds of lengths, does
/// not take memory from the system in each step.
#[derive(Debug)]
pub(crate) struct Buffers<T: Element>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T: Element> {
    /// By their lengths.
    kept: BTreeMap<usize, Vec<AlignedBuffer<T>>>,
    kept_bytes: u64,
    live_bytes: u64,
    peak_bytes: u64,
    limit_bytes: Option<u64>,
}

impl<T: Element> Buffers<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State {
            kept: BTreeMap::new(),
            kept_bytes: 0,
            live_bytes: 0,
            peak_bytes: 0,
            limit_bytes: None,
        }))
    }

    /// A buffer of at least so many elements, whose values are what was there before.
    pub(crate) fn take(&self, operator: &'static str, len: usize) -> Result<AlignedBuffer<T>> {
        let len = len.next_multiple_of(LINE);
        let bytes = bytes_of::<T>(len);
        let mut state = self.state();
        state.admit(operator, bytes)?;
        if let Some(buffer) = state.pop(len) {
            state.occupy(bytes);
            return Ok(buffer);
        }
        state.make_way(bytes);
        state.occupy(bytes);
        drop(state);
        if let Ok(buffer) = AlignedBuffer::try_new(len) {
            return Ok(buffer);
        }
        let mut state = self.state();
        state.clear();
        AlignedBuffer::try_new(len).map_err(|_| {
            state.live_bytes -= bytes;
            TapeError::OutOfMemory { operator, bytes }
        })
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, buffer: AlignedBuffer<T>) {
        let (len, bytes) = (buffer.len(), bytes_of::<T>(buffer.len()));
        let mut state = self.state();
        state.live_bytes -= bytes;
        if len > 0 {
            state.kept_bytes += bytes;
            state.kept.entry(len).or_default().push(buffer);
        }
    }

    /// Counts bytes that lie elsewhere, until [`Buffers::release`].
    pub(crate) fn reserve(&self, operator: &'static str, bytes: u64) -> Result<()> {
        let mut state = self.state();
        state.admit(operator, bytes)?;
        state.make_way(bytes);
        state.occupy(bytes);
        Ok(())
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.state().live_bytes -= bytes;
    }

    /// Gives all that is kept back to the system.
    pub(crate) fn clear(&self) {
        self.state().clear();
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.state().live_bytes
    }

    pub(crate) fn kept_bytes(&self) -> u64 {
        self.state().kept_bytes
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.state().peak_bytes
    }

    /// The peak from now on; gives back what was kept.
    pub(crate) fn reset_peak(&self) {
        let mut state = self.state();
        state.clear();
        state.peak_bytes = state.live_bytes;
    }

    pub(crate) fn limit_bytes(&self) -> Option<u64> {
        self.state().limit_bytes
    }

    pub(crate) fn set_limit(&self, limit_bytes: Option<u64>) {
        let mut state = self.state();
        state.limit_bytes = limit_bytes;
        state.make_way(0);
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // every change below is whole before anything can panic
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Element> State<T> {
    fn admit(&self, operator: &'static str, bytes: u64) -> Result<()> {
        match self.limit_bytes {
            Some(limit) if self.live_bytes.saturating_add(bytes) > limit => {
                Err(TapeError::Limit { operator, bytes, live: self.live_bytes, limit })
            }
            _ => Ok(()),
        }
    }

    const fn occupy(&mut self, bytes: u64) {
        self.live_bytes += bytes;
        if self.live_bytes > self.peak_bytes {
            self.peak_bytes = self.live_bytes;
        }
    }

    fn pop(&mut self, len: usize) -> Option<AlignedBuffer<T>> {
        let buffer = self.kept.get_mut(&len)?.pop()?;
        self.kept_bytes -= bytes_of::<T>(len);
        Some(buffer)
    }

    /// Gives up kept buffers, large ones first, until so many bytes more stay within the peak and the limit.
    fn make_way(&mut self, bytes: u64) {
        let wanted = self.live_bytes.saturating_add(bytes);
        let most = self.peak_bytes.max(wanted).max(SPARE_BYTES).min(self.limit_bytes.unwrap_or(u64::MAX));
        while self.kept_bytes > 0 && wanted.saturating_add(self.kept_bytes) > most {
            let Some(mut largest) = self.kept.last_entry() else { break };
            let (len, dropped) = (*largest.key(), largest.get_mut().pop());
            if largest.get().is_empty() {
                largest.remove();
            }
            if dropped.is_some() {
                self.kept_bytes -= bytes_of::<T>(len);
            }
        }
    }

    fn clear(&mut self) {
        self.kept.clear();
        self.kept_bytes = 0;
    }
}

/// Bytes that may be kept and live together, whatever was once live.
const SPARE_BYTES: u64 = 8 << 20;

/// Elements to which lengths are rounded up, so that shapes that differ by little share buffers.
const LINE: usize = 16;

const fn bytes_of<T: Element>(len: usize) -> u64 {
    (len * size_of::<T>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_never_passes_what_was_live() {
        let buffers = Buffers::<f32>::new();
        let of = |parts: usize| 160 << parts;
        let (a, b) = (buffers.take("a", of(14)).unwrap(), buffers.take("b", of(15)).unwrap());
        let both = 4 * (of(14) + of(15)) as u64;
        assert!(both > SPARE_BYTES);
        assert_eq!((buffers.live_bytes(), buffers.peak_bytes()), (both, both));
        buffers.give(a);
        buffers.give(b);
        assert_eq!((buffers.live_bytes(), buffers.kept_bytes()), (0, both));
        let c = buffers.take("c", of(14) + of(13)).unwrap();
        assert!(buffers.live_bytes() + buffers.kept_bytes() <= both);
        let d = buffers.take("d", of(14) - 10).unwrap();
        assert_eq!(d.len(), of(14));
        buffers.give(c);
        buffers.give(d);
        assert_eq!(buffers.live_bytes(), 0);
    }

    #[test]
    fn a_few_bytes_are_kept_whatever_was_live() {
        let buffers = Buffers::<f32>::new();
        for len in [160, 320, 480] {
            buffers.give(buffers.take("a", len).unwrap());
        }
        assert_eq!((buffers.peak_bytes(), buffers.kept_bytes()), (1920, 3840));
    }

    #[test]
    fn the_limit_is_an_error_that_names_the_operator() {
        let buffers = Buffers::<f64>::new();
        buffers.set_limit(Some(256));
        let kept = buffers.take("add", 16).unwrap();
        let error = buffers.take("matmul", 32).unwrap_err();
        assert_eq!(
            error.to_string(),
            "matmul: 256 bytes more than the 128 that are live would pass the limit of 256"
        );
        buffers.give(kept);
        assert!(buffers.take("matmul", 32).is_ok());
    }
}
