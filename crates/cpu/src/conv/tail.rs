//! What follows the sum of a convolution, on tiles that were just written: `·a[c] + b[c]`, a tensor to add, ReLU.

use tiled_geometry::Region;
use tiled_kernel::Activation;
use tiled_tensor::{Element, Layout, View};

use super::class::signed;
use crate::vector::{Micro, Simd};

/// What follows, in this order.
#[derive(Clone, Copy)]
pub(super) struct Tail<'a, T> {
    /// `a`, then `b`, each padded to whole vectors; nothing where they are not wanted.
    pub(super) affine: &'a [T],
    pub(super) sum: Option<View<'a, T>>,
    pub(super) activation: Option<Activation>,
}

impl<T: Element> Tail<'_, T> {
    /// Whether there is more than an activation.
    fn is_long(&self) -> bool {
        !self.affine.is_empty() || self.sum.is_some()
    }

    /// Whether the ReLU is applied to the sum, in registers.
    pub(super) fn is_relu(&self) -> bool {
        !self.is_long() && self.activation == Some(Activation::Relu)
    }

    /// Asserts that a long tail follows in blocks of vectors, and that the tensor to add holds the region.
    pub(super) fn check(&self, output: &Layout, lanes: usize, region: Region<2>) {
        assert!(!self.is_long() || output.block() == lanes, "an output in blocks of {}", output.block());
        let Some(sum) = &self.sum else { return };
        assert!(sum.region().contains_region(region), "input window {} lacks part of {region}", sum.region());
        assert_eq!(sum.layout().batch(), output.batch(), "batch size");
        let (got, block) = (sum.layout().channels(), sum.layout().block());
        assert_eq!((got, block), (output.channels(), lanes), "channels to add, and their block");
    }

    /// Where the tail is longer than an activation: what follows the pixels of image `n` from `[y, x]`.
    ///
    /// # Panics
    /// Where the tensor to add does not hold the row.
    pub(super) fn at(&self, n: usize, [y, x]: [i64; 2]) -> Option<At<T>> {
        if !self.is_long() {
            return None;
        }
        let (sum, sum_block_stride) = self.sum.as_ref().map_or((std::ptr::null(), 0), |sum| {
            let layout = sum.layout();
            let row = sum.data()[layout.row_offset(n, 0, y)..].as_ptr();
            let offset = (x - layout.cols().begin()) * signed(layout.block());
            (row.wrapping_offset(isize::try_from(offset).unwrap_or(0)), layout.block_stride())
        });
        let [scale, shift] = if self.affine.is_empty() {
            [std::ptr::null(); 2]
        } else {
            let (scale, shift) = self.affine.split_at(self.affine.len() / 2);
            [scale, shift].map(|values| values.as_ptr())
        };
        let relu = self.activation == Some(Activation::Relu);
        Some(At { scale, shift, sum, sum_block_stride, relu })
    }
}

/// What follows where a tile begins. Null stands for what does not.
#[derive(Clone, Copy)]
pub(super) struct At<E> {
    /// One for each output channel.
    scale: *const E,
    shift: *const E,
    /// The first pixel in block 0.
    sum: *const E,
    sum_block_stride: usize,
    relu: bool,
}

impl<E: Element> At<E> {
    /// The same from a pixel `offset` elements on.
    pub(super) fn after(self, offset: usize) -> Self {
        let sum = if self.sum.is_null() { self.sum } else { self.sum.wrapping_add(offset) };
        Self { sum, ..self }
    }
}

/// Neighbouring pixels of some vectors of output channels, just written.
#[derive(Clone, Copy)]
pub(super) struct Written<E> {
    /// The first pixel in block 0.
    pub(super) start: *mut E,
    pub(super) block_stride: usize,
    pub(super) pixels: usize,
    /// The first output channel, and how many vectors.
    pub(super) channel: usize,
    pub(super) vectors: usize,
}

/// Applies what follows to what was written.
///
/// # Safety
/// The pixels are valid for this call alone, the parameters have the channels, and the tensor to add the pixels.
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
        for channel in (written.channel..).step_by(S::LANES).take(written.vectors) {
            let block = channel / S::LANES;
            let start = written.start.wrapping_add(block * written.block_stride);
            // SAFETY: as `follow` asks.
            unsafe {
                let affine = (!at.scale.is_null())
                    .then(|| (simd.load(at.scale.add(channel)), simd.load(at.shift.add(channel))));
                for p in 0..written.pixels {
                    let to = start.add(p * S::LANES);
                    let mut value = simd.load(to);
                    if let Some((scale, shift)) = affine {
                        value = simd.mul_add(value, scale, shift);
                    }
                    if !at.sum.is_null() {
                        let other = at.sum.wrapping_add(block * at.sum_block_stride + p * S::LANES);
                        value = simd.add(value, simd.load(other));
                    }
                    simd.store(to, if at.relu { simd.relu(value) } else { value });
                }
            }
        }
    }
}
