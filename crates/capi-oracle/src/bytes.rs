//! Choices, read from the bytes that a fuzzer gives.

use std::ffi::{CStr, c_char};

/// The bytes that are left; once there are none, every choice is the first.
#[derive(Debug)]
pub(super) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// At most `len` of the bytes themselves.
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number from 0 to `end - 1`.
    pub(super) fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    /// A number from `first` to `last`.
    pub(super) fn from(&mut self, first: u8, last: u8) -> i64 {
        i64::from(first + self.below(last - first + 1))
    }

    /// True once in `times`, and not where there are no bytes left.
    pub(super) fn once_in(&mut self, times: u8) -> bool {
        self.below(times) == times - 1
    }

    pub(super) fn either(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A small number, or one that few sizes can be.
    pub(super) fn number(&mut self) -> i64 {
        match self.byte() {
            byte @ 0..=215 => i64::from(byte % 10) + 1,
            byte => ODD[usize::from(byte) % ODD.len()],
        }
    }

    /// A number that no size, stride or count can be.
    pub(super) fn nonsense(&mut self) -> i64 {
        [-1, i64::MIN, i64::MAX, -(1 << 40), 1 << 62][usize::from(self.below(5))]
    }

    pub(super) fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    pub(super) fn text(&mut self, choices: &[&'static CStr]) -> *const c_char {
        self.choose(choices).as_ptr()
    }
}

const ODD: [i64; 8] = [0, -1, i64::MIN, i64::MAX, 1 << 40, (1 << 40) + 1, -(1 << 40), 1 << 62];
