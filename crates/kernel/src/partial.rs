//! What a reduction has gathered so far.

use tiled_tensor::{AlignedBuffer, Element};

use crate::ExactSum;

/// The largest value seen and its first position in row-major order; NaN wins over every number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extremum<T> {
    /// The value.
    pub value: T,
    /// Its row and column; `None` before anything was seen.
    pub position: Option<[i64; 2]>,
}

impl<T: Element> Extremum<T> {
    /// Takes another candidate in. The result does not depend on the order of candidates.
    pub fn offer(&mut self, value: T, position: [i64; 2]) {
        let wins = match self.position {
            None => true,
            Some(held) => {
                let earlier = position < held;
                match (value.is_nan(), self.value.is_nan()) {
                    (true, true) => earlier,
                    (true, false) => true,
                    (false, true) => false,
                    (false, false) => value > self.value || (value == self.value && earlier),
                }
            }
        };
        if wins {
            *self = Self { value, position: Some(position) };
        }
    }
}

impl<T: Element> Default for Extremum<T> {
    fn default() -> Self {
        Self { value: T::NEG_INFINITY, position: None }
    }
}

/// The state of a reduction between shares. Each lane of a run has its own; lanes are merged in order.
#[derive(Clone, Debug)]
pub enum Partial<T: Element> {
    /// Sums in the backend's own order and layout ([`crate::Reduction::ConvWeight`]).
    Values(AlignedBuffer<T>),
    /// Sums without rounding.
    Exact(Vec<ExactSum>),
    /// Maxima per image and channel.
    Extrema(Vec<Extremum<T>>),
}

impl<T: Element> Partial<T> {
    /// Forgets everything gathered, and becomes a state of [`Partial::len_of`] another reduction: no more than it was made for.
    ///
    /// # Panics
    /// Where it was made for less.
    pub fn clear(&mut self, len: usize) {
        match self {
            Self::Values(values) => values.clear(len),
            Self::Exact(sums) => begin(sums, len),
            Self::Extrema(extrema) => begin(extrema, len),
        }
    }

    /// Takes in what the next lane gathered.
    ///
    /// # Panics
    /// Where the two belong to different reductions.
    pub fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Values(to), Self::Values(from)) if to.len() == from.len() => {
                for (to, from) in to.iter_mut().zip(from.iter()) {
                    *to += *from;
                }
            }
            (Self::Exact(to), Self::Exact(from)) if to.len() == from.len() => {
                for (to, from) in to.iter_mut().zip(from) {
                    to.merge(from);
                }
            }
            (Self::Extrema(to), Self::Extrema(from)) if to.len() == from.len() => {
                for (to, from) in to.iter_mut().zip(from) {
                    if let Some(position) = from.position {
                        to.offer(from.value, position);
                    }
                }
            }
            _ => panic!("invariant: lanes of one reduction have the same state"),
        }
    }

    /// The size in memory, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Values(values) => size_of_val(&**values),
            Self::Exact(sums) => size_of_val(&**sums),
            Self::Extrema(extrema) => size_of_val(&**extrema),
        }
    }
}

/// Makes a list so many empty states, in the memory that it has.
fn begin<S: Clone + Default>(states: &mut Vec<S>, len: usize) {
    assert!(len <= states.capacity(), "{len} states in a list for {}", states.capacity());
    states.clear();
    states.resize(len, S::default());
}
