//! What finished reductions become: statistics, gradients and losses.

use super::{DerivedId, ParamId, PixelId, ReductionId};

/// What a finished reduction becomes. Finalisers of a sweep run in order after it.
#[derive(Clone, Debug, PartialEq)]
pub enum Finaliser {
    /// Normalisation from running statistics, before the first sweep.
    NormEval {
        /// Its parameters.
        norm: Norm,
        /// The parameters that are the running mean and variance.
        running: [ParamId; 2],
    },
    /// Normalisation from statistics of the images at hand, from sums of [`Reduction::Moments`](tiled_kernel::Reduction::Moments) or [`Reduction::ImageMoments`](tiled_kernel::Reduction::ImageMoments).
    NormTrain {
        /// Its parameters.
        norm: Norm,
        /// The moments.
        reduction: ReductionId,
        /// The elements that share their statistics.
        count: u64,
        /// The running statistics that move once towards those of the batch, if any.
        running: Option<Running>,
    },
    /// Gradients of normalisation from [`Reduction::CentredDot`](tiled_kernel::Reduction::CentredDot) or [`Reduction::ImageCentredDot`](tiled_kernel::Reduction::ImageCentredDot).
    NormBackward {
        /// Its parameters; weight and bias where it alone reads them.
        norm: Norm,
        /// The sums.
        reduction: ReductionId,
        /// The elements that share their statistics.
        count: u64,
        /// Where the coefficients of [`Kernel::ChannelCombine`](tiled_kernel::Kernel::ChannelCombine) go (training statistics only).
        coefficients: Option<[DerivedId; 3]>,
    },
    /// A global mean, or the sum where the count is one, from [`Reduction::ImageSum`](tiled_kernel::Reduction::ImageSum).
    GlobalMean {
        /// The sums.
        reduction: ReductionId,
        /// What the sums are divided by: the pixels of an image.
        count: u64,
        /// The value it becomes.
        pixel: PixelId,
    },
    /// A global maximum, from [`Reduction::ImageMax`](tiled_kernel::Reduction::ImageMax).
    GlobalMax {
        /// The maxima.
        reduction: ReductionId,
        /// The value it becomes.
        pixel: PixelId,
    },
    /// A gradient with respect to a parameter: the reduction's result as it is.
    ParamGrad {
        /// The reduction.
        reduction: ReductionId,
        /// The parameter.
        param: ParamId,
    },
    /// What one node adds to the gradient with respect to a parameter that several nodes read; they follow each other in the order
    /// of the nodes.
    SharedGrad {
        /// The parameter.
        param: ParamId,
        /// Where it comes from.
        share: GradShare,
        /// Whether it is the first, which begins the sum.
        is_first: bool,
    },
    /// The loss: the reduction's first sum times `scale`; of a cross-entropy divided by its second sum, the pixels that
    /// count.
    Loss {
        /// The reduction.
        reduction: ReductionId,
        /// The factor.
        scale: f64,
    },
}

impl Finaliser {
    /// The reduction that it reads, if any.
    #[must_use]
    pub const fn reduction(&self) -> Option<ReductionId> {
        match self {
            Self::NormEval { .. } => None,
            Self::SharedGrad { share, .. } => Some(share.reduction()),
            Self::NormTrain { reduction, .. }
            | Self::NormBackward { reduction, .. }
            | Self::GlobalMean { reduction, .. }
            | Self::GlobalMax { reduction, .. }
            | Self::ParamGrad { reduction, .. }
            | Self::Loss { reduction, .. } => Some(*reduction),
        }
    }
}

/// Where a share of the gradient of a parameter comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GradShare {
    /// The reduction's result as it is.
    Whole {
        /// The reduction.
        reduction: ReductionId,
    },
    /// For the weight of a normalisation, from [`Reduction::CentredDot`](tiled_kernel::Reduction::CentredDot) or [`Reduction::ImageCentredDot`](tiled_kernel::Reduction::ImageCentredDot).
    NormWeight {
        /// The reduction, which [`Finaliser::NormBackward`] has read before.
        reduction: ReductionId,
        /// Derived: `1/√(var + eps)`.
        inverse_std: DerivedId,
    },
    /// The same for its bias.
    NormBias {
        /// The reduction.
        reduction: ReductionId,
    },
}

impl GradShare {
    /// The reduction.
    #[must_use]
    pub const fn reduction(self) -> ReductionId {
        match self {
            Self::Whole { reduction } | Self::NormWeight { reduction, .. } | Self::NormBias { reduction } => {
                reduction
            }
        }
    }
}

/// Which elements share a mean and a variance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// Those of a channel, of all images.
    Batch,
    /// Those of an image, of so many consecutive channels. Derived vectors are then of images and channels, `[n][c]`.
    Image {
        /// The channels.
        group: usize,
    },
}

impl Statistics {
    /// The consecutive channels whose statistics are one.
    #[must_use]
    pub const fn group(self) -> usize {
        match self {
            Self::Batch => 1,
            Self::Image { group } => group,
        }
    }
}

/// Where the parameters and derived vectors of one normalisation lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Which elements share their statistics.
    pub over: Statistics,
    /// Added to the variance.
    pub eps: f64,
    /// The weight γ, if any.
    pub weight: Option<ParamId>,
    /// The bias β, if any.
    pub bias: Option<ParamId>,
    /// Derived: the mean.
    pub mean: DerivedId,
    /// Derived: `1/√(var + eps)`.
    pub inverse_std: DerivedId,
    /// Derived: `γ/√(var + eps)`.
    pub scale: DerivedId,
    /// Derived: `β − mean·scale`.
    pub shift: DerivedId,
}

/// Where the running statistics of one normalisation lie, and how far they move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Running {
    /// The parameter that is the running mean.
    pub mean: ParamId,
    /// The parameter that is the running variance.
    pub variance: ParamId,
    /// The weight of the new statistics.
    pub momentum: Momentum,
}

impl Running {
    /// The parameters: mean, variance, and the count of batches where there is one.
    pub(crate) const fn params(self) -> [Option<ParamId>; 3] {
        let batches = match self.momentum {
            Momentum::Fixed(_) => None,
            Momentum::Mean { batches } => Some(batches),
        };
        [Some(self.mean), Some(self.variance), batches]
    }
}

/// The weight of new statistics in running ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Momentum {
    /// The same at every step.
    Fixed(f64),
    /// `1/n` for the n-th batch, so that running statistics are means over all batches; this parameter counts them, as far as
    /// [`crate::ParamKind::NumBatchesTracked`] says.
    Mean {
        /// The parameter.
        batches: ParamId,
    },
}
