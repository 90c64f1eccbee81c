//! What a backend answers to a planner, as plain data.

use crate::backend::MAX_INPUTS;
use crate::{ExactSum, Extremum, Reduction};

/// How a backend carries out a [`crate::Work`] on certain [`crate::Operands`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Support {
    /// The bytes of its packed parameters.
    pub packed_bytes: usize,
    /// The bytes that each thread needs beside the windows.
    pub workspace_bytes: usize,
    /// The bytes of what a reduction has gathered.
    pub partial_bytes: usize,
    /// Whether each input may come in a window with blocks of one channel (plain NCHW), read about as fast as one in blocks of
    /// [`crate::Backend::block`], so that it is not worth copying.
    pub reads_planes: [bool; MAX_INPUTS],
    /// Whether the output may be written to such a window, by [`crate::Host::compute_part`], faster than to one in blocks
    /// that is copied after it.
    pub writes_planes: bool,
    /// The floating-point operations a second that one core reaches where arithmetic bounds the work; of other work the bytes
    /// count.
    pub flops_per_second: Option<f64>,
    /// The largest error of a factor, as a part of it, that rounds it before it is multiplied; zero where factors stay what they are.
    pub factor_rounding: f64,
}

impl Support {
    /// Of work that needs nothing and takes windows in blocks alone.
    pub const PLAIN: Self = Self {
        packed_bytes: 0,
        workspace_bytes: 0,
        partial_bytes: 0,
        reads_planes: [false; MAX_INPUTS],
        writes_planes: false,
        flops_per_second: None,
        factor_rounding: 0.0,
    };
}

impl Reduction {
    /// The bytes that [`crate::Partial`] takes for a domain of this batch size and channel count, where the sums of
    /// [`Reduction::ConvWeight`] take `values_bytes`.
    #[must_use]
    pub const fn partial_bytes<T>(&self, batch: usize, channels: usize, values_bytes: usize) -> usize {
        match self {
            Self::ConvWeight(_) => values_bytes,
            Self::ImageMax => batch * channels * size_of::<Extremum<T>>(),
            _ => self.slots(batch, channels) * size_of::<ExactSum>(),
        }
    }
}
