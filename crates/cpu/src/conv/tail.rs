//! What follows the sum of a convolution, on tiles that were just written: `·a[c] + b[c]`, a tensor to add, an
//! activation, the mask of a ReLU.

use tiled_geometry::Region;
use tiled_kernel::Activation;
use tiled_tensor::{Element, Layout, View};

use super::class::signed;
use super::limits::Limits;
use super::source::Beside;
use crate::vector::{Micro, Simd};

/// What follows, in this order.
#[derive(Clone, Copy)]
pub(super) struct Tail<'a, T> {
    /// `a`, then `b`, each padded to whole vectors; nothing where they are not wanted.
    pub(super) affine: &'a [T],
    pub(super) sum: Option<View<'a, T>>,
    pub(super) activation: Option<Activation>,
    /// What a ReLU gave, whose zeros make zeros.
    pub(super) mask: Option<View<'a, T>>,
}

impl<T: Element> Tail<'_, T> {
    /// Whether there is more than an activation.
    pub(super) fn is_long(&self) -> bool {
        !self.affine.is_empty() || self.sum.is_some() || self.mask.is_some()
    }

    /// The limits that are applied to the sum, in registers.
    pub(super) fn limits(&self) -> Limits<T> {
        if self.is_long() { Limits::None } else { Limits::of(self.activation) }
    }

    /// What follows all else, on what tiles have written.
    pub(super) fn last(&self) -> Option<Activation> {
        self.activation.filter(|activation| Limits::<T>::of(Some(*activation)) == Limits::None)
    }

    /// Asserts that a long tail follows in blocks of vectors, and that the tensors that it reads hold the region.
    pub(super) fn check(&self, output: &Layout, lanes: usize, region: Region<2>) {
        assert!(!self.is_long() || output.block() == lanes, "an output in blocks of {}", output.block());
        for other in [&self.sum, &self.mask].into_iter().flatten() {
            let held = other.region();
            assert!(held.contains_region(region), "input window {held} lacks part of {region}");
            assert_eq!(other.layout().batch(), output.batch(), "batch size");
            let (got, block) = (other.layout().channels(), other.layout().block());
            assert_eq!((got, block), (output.channels(), lanes), "channels that follow, and their block");
        }
    }

    /// Where the tail is longer than an activation: what follows the pixels of image `n` from `[y, x]`.
    ///
    /// # Panics
    /// Where a tensor that it reads does not hold the row.
    pub(super) fn at(&self, n: usize, [y, x]: [i64; 2]) -> Option<At<T>> {
        if !self.is_long() {
            return None;
        }
        let other = |view: &Option<View<'_, T>>| {
            view.as_ref().map(|view| {
                let layout = view.layout();
                let row = view.data()[layout.row_offset(n, 0, y)..].as_ptr();
                let offset = (x - layout.cols().begin()) * signed(layout.block());
                let start = row.wrapping_offset(isize::try_from(offset).unwrap_or(0));
                Other { start, block_stride: layout.block_stride() }
            })
        };
        let [scale, shift] = if self.affine.is_empty() {
            [std::ptr::null(); 2]
        } else {
            let (scale, shift) = self.affine.split_at(self.affine.len() / 2);
            [scale, shift].map(|values| values.as_ptr())
        };
        let limits = Limits::of(self.activation);
        Some(At { scale, shift, sum: other(&self.sum), limits, mask: other(&self.mask) })
    }
}

/// What follows where a tile begins. Null stands for factors that do not.
#[derive(Clone, Copy)]
pub(super) struct At<E> {
    /// One for each output channel.
    scale: *const E,
    shift: *const E,
    sum: Option<Other<E>>,
    limits: Limits<E>,
    mask: Option<Other<E>>,
}

/// A tensor that lies like the output.
#[derive(Clone, Copy)]
struct Other<E> {
    /// The first pixel in block 0.
    start: *const E,
    block_stride: usize,
}

impl<E: Element> At<E> {
    /// The tensor that is added, seen from where the outputs begin.
    pub(super) fn beside(&self, outputs: *const E) -> Option<Beside> {
        let Other { start, block_stride } = self.sum?;
        let bytes = start.addr().wrapping_sub(outputs.addr()).cast_signed();
        let element = size_of::<E>().cast_signed();
        // both are aligned to elements
        Some(Beside { distance: bytes / element, block_stride })
    }

    /// The same from a pixel `offset` elements on.
    pub(super) fn after(self, offset: usize) -> Self {
        let after = |other: Other<E>| Other { start: other.start.wrapping_add(offset), ..other };
        Self { sum: self.sum.map(after), mask: self.mask.map(after), ..self }
    }
}

/// Pixels of a row of some vectors of output channels, just written.
#[derive(Clone, Copy)]
pub(super) struct Written<E> {
    /// The first pixel in block 0.
    pub(super) start: *mut E,
    pub(super) block_stride: usize,
    /// The elements from one of them to the next.
    pub(super) step: usize,
    pub(super) pixels: usize,
    /// The first output channel, and how many vectors.
    pub(super) channel: usize,
    pub(super) vectors: usize,
}

/// Applies what follows to what was written.
///
/// # Safety
/// The pixels are valid for this call alone, the parameters have the channels, and the tensors that it reads the pixels.
pub(super) unsafe fn follow<S: Simd>(simd: S, at: &At<S::E>, written: Written<S::E>) {
    // SAFETY: passed on to the caller.
    unsafe { simd.call(Follow { at, written }) }
}

/// See [`follow`].
struct Follow<'a, E> {
    at: &'a At<E>,
    written: Written<E>,
}

impl<E: Element> Micro<E> for Follow<'_, E> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let (at, written) = (self.at, self.written);
        let limits = at.limits.splat(simd);
        for channel in (written.channel..).step_by(S::LANES).take(written.vectors) {
            let block = channel / S::LANES;
            let start = written.start.wrapping_add(block * written.block_stride);
            // SAFETY: as `follow` asks.
            unsafe {
                let affine = (!at.scale.is_null())
                    .then(|| (simd.load(at.scale.add(channel)), simd.load(at.shift.add(channel))));
                for p in 0..written.pixels {
                    let to = start.add(p * written.step);
                    let mut value = simd.load(to);
                    if let Some((scale, shift)) = affine {
                        value = simd.mul_add(value, scale, shift);
                    }
                    let other = |of: Other<S::E>| {
                        simd.load(of.start.wrapping_add(block * of.block_stride + p * written.step))
                    };
                    if let Some(sum) = at.sum {
                        value = simd.add(value, other(sum));
                    }
                    value = limits.vector(simd, value);
                    if let Some(mask) = at.mask {
                        value = simd.gate(value, other(mask));
                    }
                    simd.store(to, value);
                }
            }
        }
    }
}
