//! What the integers in a file stand for.

/// What the integers in a file stand for: one rule for pictures, `.npy` and raw files.
///
/// | file | [`Numbers::Scaled`] | [`Numbers::AsIs`] | [`Numbers::Classes`] |
/// |---|---|---|---|
/// | 8 bits without a sign (PNG, JPEG, `u1`) | v/255 | v | v |
/// | 16 bits without a sign (PNG, `u2`) | v/65535 | v | v |
/// | gray PNG of b < 8 bits | v/(2^b − 1) | v | v |
/// | PNG with a palette | the colours, v/255 | the colours, v | the index in the palette |
/// | other integers, floating point | v | v | v |
///
/// v/255 and v/65535 are rounded once, to the type of the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Numbers {
    /// Integers of pictures, of 8 and 16 bits and without a sign, become 0 to 1.
    #[default]
    Scaled,
    /// Every integer is the number that it is.
    AsIs,
    /// Every integer is the number of a class: as [`Numbers::AsIs`], and a picture has one channel.
    Classes,
}
