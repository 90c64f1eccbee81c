//! What follows the sums of a tile that does not write them itself: bias, activation, the store.

use tiled_kernel::Activation;
use tiled_kernel::dense::Update;
use tiled_tensor::Element;

use super::super::matrix::Matrix;
use crate::ops;
use crate::vector::{MAX_LANES, Micro, Simd};

/// The bias of a product.
#[derive(Clone, Copy)]
pub(crate) struct Bias<E> {
    pub(crate) start: *const E,
    pub(crate) stride: isize,
    /// Whether there is one for each row, else for each column.
    pub(crate) of_rows: bool,
}

impl<E> Bias<E> {
    fn at(&self, index: usize) -> *const E {
        self.start.wrapping_offset(index.cast_signed().wrapping_mul(self.stride))
    }

    /// Whether those of columns lie side by side.
    pub(super) const fn is_plain(&self) -> bool {
        !self.of_rows && self.stride == 1
    }

    pub(super) fn from(self, row: usize, col: usize) -> Self {
        Self { start: self.at(if self.of_rows { row } else { col }), ..self }
    }
}

/// What is done with the sums of a tile, `[vector][row][lane]`.
///
/// # Safety
/// `sums` hold `vectors` by `height` vectors; `c` is writable for `rows` by `cols` by this call alone, and the bias
/// readable for them.
pub(super) struct Finish<E> {
    pub(super) sums: *mut E,
    pub(super) height: usize,
    pub(super) vectors: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) bias: Option<Bias<E>>,
    pub(super) activation: Option<Activation>,
    pub(super) update: Update,
    pub(super) c: Matrix<*mut E>,
}

impl<E: Element> Micro<E> for Finish<E> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let Self { sums, height, vectors, rows, cols, c, .. } = self;
        let len = height * vectors * S::LANES;
        // SAFETY: as the type asks.
        unsafe {
            if let Some(bias) = self.bias {
                self.add_bias(simd, &bias);
            }
            if let Some(activation) = self.activation {
                ops::elementwise::activate(S::ISA, activation, std::slice::from_raw_parts_mut(sums, len));
            }
            match c.strides {
                [_, 1] => {
                    for v in 0..vectors {
                        let lanes = S::LANES.min(cols.saturating_sub(v * S::LANES));
                        for row in 0..rows {
                            let from = sums.add((v * height + row) * S::LANES);
                            let to = c.at(row, v * S::LANES);
                            put(simd, from, to, lanes, self.update);
                        }
                    }
                }
                [1, step] if step > 0 => {
                    for v in 0..vectors {
                        let lanes = S::LANES.min(cols.saturating_sub(v * S::LANES));
                        for first in (0..rows).step_by(S::LANES) {
                            let from = sums.add((v * height + first) * S::LANES);
                            let count = S::LANES.min(rows - first);
                            let to = c.at(first, v * S::LANES);
                            self.put_lanes(simd, from, to, step.cast_unsigned(), [count, lanes]);
                        }
                    }
                }
                _ => {
                    for row in 0..rows {
                        for col in 0..cols {
                            let value =
                                *sums.add((col / S::LANES * height + row) * S::LANES + col % S::LANES);
                            let to = c.at(row, col);
                            *to = match self.update {
                                Update::Replace => value,
                                Update::Add => *to + value,
                            };
                        }
                    }
                }
            }
        }
    }
}

impl<E: Element> Finish<E> {
    /// # Safety
    /// As of the type.
    #[inline(always)]
    unsafe fn add_bias<S: Simd<E = E>>(&self, simd: S, bias: &Bias<E>) {
        for v in 0..self.vectors {
            let mut lanes = [E::ZERO; MAX_LANES];
            if !bias.of_rows {
                for (lane, value) in lanes.iter_mut().enumerate().take(S::LANES) {
                    if v * S::LANES + lane < self.cols {
                        // SAFETY: there is one for each column.
                        *value = unsafe { *bias.at(v * S::LANES + lane) };
                    }
                }
            }
            let of_lanes = simd.read(&lanes);
            for row in 0..self.rows {
                // SAFETY: there is one for each row; the sums hold the vector.
                unsafe {
                    let summand = if bias.of_rows { simd.splat(*bias.at(row)) } else { of_lanes };
                    let at = self.sums.add((v * self.height + row) * S::LANES);
                    simd.store(at, simd.add(simd.load(at), summand));
                }
            }
        }
    }

    /// Writes lanes apart: those of a vector are `step` from each other, vectors side by side.
    ///
    /// # Safety
    /// `from` holds `count` vectors; `to` is writable for what `c` has there.
    #[inline(always)]
    unsafe fn put_lanes<S: Simd<E = E>>(
        &self,
        simd: S,
        from: *const E,
        to: *mut E,
        step: usize,
        [count, lanes]: [usize; 2],
    ) {
        // SAFETY: passed on to the caller; a square has room for all lanes.
        unsafe {
            if self.update == Update::Replace {
                simd.store_lanes(from, to, step, [count, lanes]);
                return;
            }
            let mut square = [E::ZERO; MAX_LANES * MAX_LANES];
            simd.store_lanes(from, square.as_mut_ptr(), S::LANES, [count, lanes]);
            for lane in 0..lanes {
                put(simd, square.as_ptr().add(lane * S::LANES), to.add(lane * step), count, self.update);
            }
        }
    }
}

/// Writes or adds the first `count` elements of a vector.
///
/// # Safety
/// `from` is readable for a vector, `to` writable for `count` elements.
#[inline(always)]
unsafe fn put<S: Simd>(simd: S, from: *const S::E, to: *mut S::E, count: usize, update: Update) {
    // SAFETY: passed on to the caller.
    unsafe {
        if count == S::LANES {
            let value = simd.load(from);
            simd.store(to, if update == Update::Add { simd.add(simd.load(to), value) } else { value });
            return;
        }
        for i in 0..count {
            let (value, to) = (*from.add(i), to.add(i));
            *to = if update == Update::Add { *to + value } else { value };
        }
    }
}
