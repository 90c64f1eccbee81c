//! Computations of each pixel over its channels.

/// The normalisation of each pixel over its channels, without weight and bias.
///
/// With C channels, `μ = Σx[c]/C` where it is centred and zero where it is not, and `σ² = Σ(x[c] − μ)²/C`: the variance, or the mean
/// square.
///
/// Source: Ba, Kiros, Hinton, "Layer Normalization" (2016); Zhang, Sennrich, "Root Mean Square Layer Normalization" (2019).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PixelNorm {
    /// Added to σ².
    pub eps: f64,
    /// Whether the mean is subtracted.
    pub centred: bool,
}

/// The normalisation of each pixel by its neighbours along the channels.
///
/// `s[c] = k + α/size·Σ x[i]²` over the channels i from `c − size/2` to `c + (size − 1)/2` that there are; PyTorch's window.
///
/// Source: Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep Convolutional Neural Networks" (2012), section 3.3.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LocalResponse {
    /// The channels of a window.
    pub size: usize,
    /// The factor of the mean of squares.
    pub alpha: f64,
    /// The exponent.
    pub beta: f64,
    /// What the sum begins with; above zero.
    pub k: f64,
}

impl LocalResponse {
    /// The channels that the sum of channel `c` reads, of so many.
    #[must_use]
    pub fn window(&self, c: usize, channels: usize) -> std::ops::Range<usize> {
        c.saturating_sub(self.size / 2)..c.saturating_add(self.size.div_ceil(2)).min(channels)
    }

    /// The channels whose sums read channel `c`.
    #[must_use]
    pub fn readers(&self, c: usize, channels: usize) -> std::ops::Range<usize> {
        (c + 1).saturating_sub(self.size.div_ceil(2))..c.saturating_add(self.size / 2 + 1).min(channels)
    }

    /// The factor of a sum of squares, α/size.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "channel counts are far below 2^53")]
    pub fn share(&self) -> f64 {
        self.alpha / self.size as f64
    }
}
