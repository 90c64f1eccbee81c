//! The window that holds the taps of several.

use tiled_geometry::MAX_WINDOW;

use crate::{op::Conv2d, rate::gcd};

/// Extent, distance of taps and padding of a kernel along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taps {
    pub(super) kernel: i64,
    pub(super) dilation: i64,
    /// Before and after.
    pub(super) padding: [i64; 2],
}

impl Taps {
    /// One tap, at the pixel itself.
    pub(super) const ITSELF: Self = Self { kernel: 1, dilation: 1, padding: [0, 0] };

    /// Those of a convolution along an axis.
    pub(super) fn of(conv: &Conv2d, axis: usize) -> Self {
        Self { kernel: conv.kernel_size[axis], dilation: conv.dilation[axis], padding: conv.padding[axis] }
    }

    /// How many more pixels than its inputs its outputs are, at a stride of one.
    pub(super) fn gained(self) -> i64 {
        self.padding[0] + self.padding[1] - self.dilation * (self.kernel - 1)
    }

    /// The pixels from the first to the last tap.
    pub(super) fn span(self) -> i64 {
        self.dilation * (self.kernel - 1) + 1
    }

    /// Where the first and the last tap lie, from the pixel itself.
    fn ends(self) -> [i64; 2] {
        let first = -self.padding[0];
        [first, first + self.dilation * (self.kernel - 1)]
    }

    /// The closest window that holds the taps of both, of the same outputs; `None` where it would cut the image, or be larger
    /// than a window may be.
    pub(super) fn with(self, other: Self) -> Option<Self> {
        let ([first, last], [other_first, other_last]) = (self.ends(), other.ends());
        let begin = first.min(other_first);
        let span = last.max(other_last) - begin;
        let steps = [self, other].map(|taps| if taps.kernel > 1 { taps.dilation } else { 0 });
        let dilation = [steps[1], first - begin, other_first - begin].into_iter().fold(steps[0], gcd);
        let padding = [-begin, self.gained() + span + begin];
        let kernel = span / dilation + 1;
        let is_window = kernel <= MAX_WINDOW && padding.iter().all(|side| *side >= 0);
        is_window.then_some(Self { kernel, dilation, padding })
    }

    /// Which tap of this window a tap of one within is.
    pub(super) fn place(self, within: Self, tap: i64) -> i64 {
        (self.padding[0] - within.padding[0] + tap * within.dilation) / self.dilation
    }
}

#[cfg(test)]
mod tests {
    use super::Taps;

    const THREE: Taps = Taps { kernel: 3, dilation: 1, padding: [1, 1] };

    #[test]
    fn a_smaller_kernel_lies_in_the_larger_one() {
        assert_eq!(THREE.with(Taps::ITSELF), Some(THREE));
        assert_eq!(Taps::ITSELF.with(THREE), Some(THREE));
        assert_eq!(THREE.place(Taps::ITSELF, 0), 1);
    }

    #[test]
    fn taps_that_lie_apart_keep_their_distance_where_they_can() {
        let apart = Taps { kernel: 3, dilation: 2, padding: [2, 2] };
        assert_eq!(apart.with(Taps::ITSELF), Some(apart));
        assert_eq!(apart.with(THREE), Some(Taps { kernel: 5, dilation: 1, padding: [2, 2] }));
        let five = Taps { kernel: 5, dilation: 2, padding: [4, 4] };
        assert_eq!(apart.with(five), Some(five));
        assert_eq!([0, 1, 2].map(|tap| five.place(apart, tap)), [1, 2, 3]);
    }

    #[test]
    fn kernels_beside_each_other_reach_as_far_as_both() {
        let left = Taps { kernel: 2, dilation: 1, padding: [1, 0] };
        let right = Taps { kernel: 2, dilation: 1, padding: [0, 1] };
        assert_eq!(left.with(right), Some(THREE));
        assert_eq!((THREE.place(left, 1), THREE.place(right, 1)), (1, 2));
    }

    #[test]
    fn a_window_that_would_be_too_large_is_none() {
        let far = |padding| Taps { kernel: 1 << 20, dilation: 1, padding };
        let (left, right) = (far([(1 << 20) - 1, 0]), far([0, (1 << 20) - 1]));
        assert_eq!((left.gained(), left.with(right)), (0, None));
    }

    #[test]
    fn a_window_that_would_cut_the_image_is_none() {
        let inside = Taps { kernel: 1, dilation: 1, padding: [0, -2] };
        assert_eq!(inside.with(inside), None);
    }
}
