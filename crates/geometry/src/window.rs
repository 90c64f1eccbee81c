//! A sliding window along one axis: kernel, stride, dilation, padding before.

use crate::error::{Least, check_size};
use crate::{GeometryError, Interval, MAX_COORDINATE, div_ceil, div_floor};

/// The largest kernel, stride, dilation or padding of a single operator, `2^20`.
pub const MAX_WINDOW: i64 = 1 << 20;

/// The window of a convolution or pooling along one axis.
///
/// With kernel k, stride s, dilation d, padding before p and `e = d·(k−1)`, output `o` reads the inputs
/// `o·s − p + d·t` for `0 <= t < k`, its taps. From the first tap to the last is its span,
/// `[o·s − p, o·s − p + e + 1)`.
///
/// Law: coordinates within ±2^40 and windows up to 2^20 never overflow; composing windows out of that range
/// is an error.
///
/// ```
/// use tiled_geometry::{Interval, Window};
/// # fn main() -> Result<(), tiled_geometry::GeometryError> {
/// // kernel 3, stride 1, dilation 1, padding 1: "same"
/// let conv = Window::new(3, 1, 1, 1)?;
/// assert_eq!(conv.receptive(Interval::new(0, 10)), Interval::new(-1, 11));
/// assert_eq!(conv.touched(Interval::new(0, 4)), Interval::new(-1, 5));
/// assert_eq!(conv.computable(Interval::new(0, 4)), Interval::new(1, 3));
/// # Ok(())
/// # }
/// ```
///
/// Source: V. Dumoulin and F. Visin, *A guide to convolution arithmetic for deep learning*, sections 2 and 5, 2016.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Window {
    kernel: i64,
    stride: i64,
    dilation: i64,
    padding: i64,
}

impl Window {
    /// The window that maps every coordinate to itself.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Window};
    /// assert_eq!(Window::IDENTITY.receptive(Interval::new(3, 5)), Interval::new(3, 5));
    /// ```
    pub const IDENTITY: Self = Self { kernel: 1, stride: 1, dilation: 1, padding: 0 };

    /// A window of `kernel` taps, `stride` between outputs, `dilation` between taps and `padding` before.
    ///
    /// # Errors
    /// Where a size is not positive (padding: negative) or larger than [`MAX_WINDOW`].
    ///
    /// ```
    /// use tiled_geometry::Window;
    /// assert!(Window::new(3, 2, 1, 1).is_ok());
    /// assert!(Window::new(0, 2, 1, 1).is_err());
    /// assert!(Window::new(3, 2, 1, (1 << 20) + 1).is_err());
    /// ```
    pub const fn new(kernel: i64, stride: i64, dilation: i64, padding: i64) -> Result<Self, GeometryError> {
        // `?` is not const
        macro_rules! check {
            ($what:literal, $got:expr, $least:expr) => {
                if let Err(error) = check_size($what, $got, $least, MAX_WINDOW) {
                    return Err(error);
                }
            };
        }
        check!("kernel size", kernel, Least::One);
        check!("stride", stride, Least::One);
        check!("dilation", dilation, Least::One);
        check!("padding", padding, Least::Zero);
        Ok(Self { kernel, stride, dilation, padding })
    }

    /// The number of taps, k.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Window::new(3, 2, 4, 1).unwrap().kernel(), 3);
    /// ```
    #[must_use]
    pub const fn kernel(self) -> i64 {
        self.kernel
    }

    /// The distance between the windows of neighbouring outputs, s.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Window::new(3, 2, 4, 1).unwrap().stride(), 2);
    /// ```
    #[must_use]
    pub const fn stride(self) -> i64 {
        self.stride
    }

    /// The distance between neighbouring taps, d.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Window::new(3, 2, 4, 1).unwrap().dilation(), 4);
    /// ```
    #[must_use]
    pub const fn dilation(self) -> i64 {
        self.dilation
    }

    /// The padding before the first input, p.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Window::new(3, 2, 4, 1).unwrap().padding(), 1);
    /// ```
    #[must_use]
    pub const fn padding(self) -> i64 {
        self.padding
    }

    /// The distance from the first tap to the last, `e = d·(k−1)`.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Window::new(3, 2, 4, 1).unwrap().extent(), 8);
    /// ```
    #[must_use]
    pub const fn extent(self) -> i64 {
        self.dilation * (self.kernel - 1)
    }

    /// The input that tap t of output o reads, `o·s − p + d·t`.
    ///
    /// ```
    /// let window = tiled_geometry::Window::new(3, 2, 4, 1).unwrap();
    /// assert_eq!([0, 1, 2].map(|t| window.input(5, t)), [9, 13, 17]);
    /// ```
    #[must_use]
    #[inline]
    pub const fn input(self, output: i64, tap: i64) -> i64 {
        output * self.stride - self.padding + self.dilation * tap
    }

    /// The taps of output o that read inside the inputs `[a,b)`.
    ///
    /// `taps_inside(o, [a,b)) = [0,k) ∩ [ceil((a−f)/d), floor((b−1−f)/d) + 1)` with `f = o·s − p`.
    ///
    /// Law: tap t lies in `taps_inside(o, I)` exactly if `input(o, t)` lies in `I`.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Window};
    /// let dilated = Window::new(3, 1, 2, 2)?; // output 1 reads the inputs −1, 1, 3
    /// assert_eq!(dilated.taps_inside(1, Interval::new(0, 4)), Interval::new(1, 3));
    /// assert_eq!(dilated.taps_inside(1, Interval::new(0, 3)), Interval::new(1, 2));
    /// assert_eq!(dilated.taps_inside(1, Interval::new(2, 3)), Interval::EMPTY);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    #[inline]
    pub const fn taps_inside(self, output: i64, inputs: Interval) -> Interval {
        let first = self.input(output, 0);
        let (before, room) = (inputs.begin() - first, inputs.end() - 1 - first);
        // divisions at the border alone: loops over pixels ask
        let begin = if before <= 0 { 0 } else { div_ceil(before, self.dilation) };
        let end = if room >= self.extent() { self.kernel } else { div_floor(room, self.dilation) + 1 };
        Interval::new(begin, end)
    }

    /// The outputs whose tap t reads inside the inputs `[a,b)`.
    ///
    /// `outputs_inside(t, [a,b)) = [ceil((a+p−d·t)/s), ceil((b+p−d·t)/s))`.
    ///
    /// Law: output o lies in `outputs_inside(t, I)` exactly if `input(o, t)` lies in `I`.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Window};
    /// let stride_two = Window::new(3, 2, 1, 1)?; // tap 0 reads the inputs −1, 1, 3, …
    /// assert_eq!(stride_two.outputs_inside(0, Interval::new(0, 6)), Interval::new(1, 4));
    /// assert_eq!(stride_two.outputs_inside(1, Interval::new(0, 6)), Interval::new(0, 3));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub const fn outputs_inside(self, tap: i64, inputs: Interval) -> Interval {
        let shift = -self.input(0, tap);
        Interval::new(
            div_ceil(inputs.begin() + shift, self.stride),
            div_ceil(inputs.end() + shift, self.stride),
        )
    }

    /// Inputs that the outputs `[a,b)` read, before clipping.
    ///
    /// `receptive([a,b)) = [a·s − p, (b−1)·s − p + e + 1)`.
    ///
    /// Law: `receptive(O)` is the smallest interval that holds every tap of every output in `O`.
    ///
    /// # Panics
    /// Where a coordinate is larger in magnitude than [`MAX_COORDINATE`].
    ///
    /// ```
    /// use tiled_geometry::{Interval, Window};
    /// let stride_two = Window::new(3, 2, 1, 1)?;
    /// assert_eq!(stride_two.receptive(Interval::new(2, 4)), Interval::new(3, 8));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn receptive(self, outputs: Interval) -> Interval {
        if outputs.is_empty() {
            return Interval::EMPTY;
        }
        check_range(outputs);
        Interval::new(
            outputs.begin() * self.stride - self.padding,
            (outputs.end() - 1) * self.stride - self.padding + self.extent() + 1,
        )
    }

    /// Outputs whose span meets the inputs `[a,b)`: every output that reads any of them, before clipping.
    ///
    /// `touched([a,b)) = [ceil((a+p−e)/s), floor((b−1+p)/s) + 1)`.
    ///
    /// Law: an output lies in `touched(I)` exactly if its span meets `I`. Without dilation the span is the
    /// taps, so these are exactly the outputs that read any of `I`; with dilation an output can lie here of
    /// which only the holes between the taps meet `I`, and its gradient there is zero.
    ///
    /// # Panics
    /// Where a coordinate is larger in magnitude than [`MAX_COORDINATE`].
    ///
    /// ```
    /// use tiled_geometry::{Interval, Window};
    /// let stride_two = Window::new(3, 2, 1, 1)?;
    /// assert_eq!(stride_two.touched(Interval::new(3, 8)), Interval::new(1, 5));
    /// let sparse = Window::new(1, 3, 1, 0)?; // reads the inputs 0, 3, 6, …
    /// assert_eq!(sparse.touched(Interval::new(1, 3)), Interval::EMPTY);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn touched(self, inputs: Interval) -> Interval {
        if inputs.is_empty() {
            return Interval::EMPTY;
        }
        check_range(inputs);
        Interval::new(
            div_ceil(inputs.begin() + self.padding - self.extent(), self.stride),
            div_floor(inputs.end() - 1 + self.padding, self.stride) + 1,
        )
    }

    /// Outputs all of whose taps lie in the inputs `[a,b)`.
    ///
    /// `computable([a,b)) = [ceil((a+p)/s), floor((b−1+p−e)/s) + 1)`.
    ///
    /// Law: an output lies in `computable(I)` exactly if all of its taps lie in `I`.
    /// Law (Galois pair): `receptive(O) ⊆ I ⇔ O ⊆ computable(I)`.
    ///
    /// # Panics
    /// Where a coordinate is larger in magnitude than [`MAX_COORDINATE`].
    ///
    /// ```
    /// use tiled_geometry::{Interval, Window};
    /// let stride_two = Window::new(3, 2, 1, 1)?;
    /// assert_eq!(stride_two.computable(Interval::new(3, 8)), Interval::new(2, 4));
    /// assert_eq!(stride_two.computable(Interval::new(3, 5)), Interval::EMPTY);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    ///
    /// Source: B. Davey and H. Priestley, *Introduction to Lattices and Order*, chapter 7, 2002.
    #[must_use]
    pub fn computable(self, inputs: Interval) -> Interval {
        if inputs.is_empty() {
            return Interval::EMPTY;
        }
        check_range(inputs);
        Interval::new(
            div_ceil(inputs.begin() + self.padding, self.stride),
            div_floor(inputs.end() - 1 + self.padding - self.extent(), self.stride) + 1,
        )
    }

    /// The window of this operator followed by `next`, as one window.
    ///
    /// `s = s₁·s₂`, `p = p₁ + s₁·p₂`, `e = e₁ + s₁·e₂`, with `d = 1` and `k = e + 1`: the taps of the result
    /// are taken as contiguous, which is their hull.
    ///
    /// Law: composing is associative, with equal errors. What composes does not overflow. `receptive` and
    /// `computable` of the result equal those of the two windows in turn; so does `touched`, where it is not
    /// empty, and always lies in it.
    ///
    /// # Errors
    /// Where the stride exceeds [`MAX_WINDOW`], or the padding or the extent [`MAX_COORDINATE`].
    ///
    /// ```
    /// use tiled_geometry::{Interval, Window};
    /// let (conv, pool) = (Window::new(3, 1, 1, 1)?, Window::new(2, 2, 1, 0)?);
    /// let both = conv.then(pool)?;
    /// assert_eq!((both.kernel(), both.stride(), both.padding()), (4, 2, 1));
    /// assert_eq!(both.receptive(Interval::new(0, 5)), Interval::new(-1, 11));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    ///
    /// Source: A. Araujo, W. Norris and J. Sim, *Computing Receptive Fields of Convolutional Neural Networks*,
    /// Distill, 2019.
    pub fn then(self, next: Self) -> Result<Self, GeometryError> {
        let compose = || {
            let stride = self.stride.checked_mul(next.stride)?;
            let padding = next.padding.checked_mul(self.stride)?.checked_add(self.padding)?;
            let extent = next.extent().checked_mul(self.stride)?.checked_add(self.extent())?;
            // the bounds under which `receptive` of ±2^40 stays within 2^60 + 2^41; each is monotone in
            // every factor, so that the order of composing does not decide whether it fails
            let fits = stride <= MAX_WINDOW && padding <= MAX_COORDINATE && extent <= MAX_COORDINATE;
            fits.then_some(Self { kernel: extent + 1, stride, dilation: 1, padding })
        };
        compose().ok_or(GeometryError::Overflow)
    }

    /// The number of outputs over an input of `extent` with `padding_after` behind it (`ceil`: rounded up).
    ///
    /// `floor((extent + p + p' − e − 1)/s) + 1`, or with `ceil` in place of the floor.
    ///
    /// Law: without `ceil`, `[0, outputs) = [0, ∞) ∩ computable([−p, extent + p'))`; so there is none where
    /// the kernel is larger than the padded input. With `ceil`, one more window is taken where the last one
    /// does not reach the end of the padded input, unless it would start behind the input; so a kernel
    /// larger than the padded input can have an output, as in PyTorch.
    /// Saturates at the ends of `i64`; a negative extent has no output.
    ///
    /// ```
    /// use tiled_geometry::Window;
    /// let pool = Window::new(3, 2, 1, 0)?;
    /// assert_eq!((pool.outputs(8, 0, false), pool.outputs(8, 0, true)), (3, 4));
    /// assert_eq!((pool.outputs(2, 0, false), pool.outputs(2, 0, true)), (0, 1));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    ///
    /// Source: PyTorch, `aten/src/ATen/native/Pool.h`, `pooling_output_shape_pad_lr`.
    #[must_use]
    pub fn outputs(self, extent: i64, padding_after: i64, ceil: bool) -> i64 {
        // 128 bits: extents come from users, before any check of range
        let stride = i128::from(self.stride);
        let before_end = i128::from(extent) + i128::from(self.padding);
        let room = before_end + i128::from(padding_after) - i128::from(self.extent()) - 1;
        let slack = if ceil { stride - 1 } else { 0 };
        let mut count = (room + slack).div_euclid(stride) + 1;
        if ceil && (count - 1) * stride >= before_end {
            count -= 1;
        }
        i64::try_from(count.max(0)).unwrap_or(i64::MAX)
    }
}

fn check_range(interval: Interval) {
    assert!(
        interval.begin() >= -MAX_COORDINATE && interval.end() <= MAX_COORDINATE,
        "coordinates of {interval} leave the range of ±2^40"
    );
}
