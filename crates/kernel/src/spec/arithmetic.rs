//! Functions of several values of one position, and how each value spreads over the image.

/// A function of two or three values of one position; a and b are the operands, g is a gradient of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arithmetic {
    /// `a + b`.
    Add,
    /// `a − b`.
    Sub,
    /// `a·b`.
    Mul,
    /// `a/b`.
    Div,
    /// The smaller of a and b; NaN where one is.
    Minimum,
    /// The larger of a and b; NaN where one is.
    Maximum,
    /// `a` where `a > 0`, else `b·a`.
    Prelu,
    /// `−g·((a/b)/b)` of `[g, a, b]`: the gradient of [`Arithmetic::Div`] with respect to b.
    DivisorBackward,
    /// Of `[g, a, b]` the gradient of [`Arithmetic::Minimum`] with respect to a: `g/2` where `a = b`, zero where `a > b`, else g.
    MinimumBackward,
    /// Of `[g, a, b]` the gradient of [`Arithmetic::Maximum`] with respect to a: `g/2` where `a = b`, zero where `a < b`, else g.
    MaximumBackward,
    /// `g` where `a > 0`, else `b·g`, of `[g, a, b]`: the gradient of [`Arithmetic::Prelu`] with respect to a.
    PreluBackward,
    /// Zero where `a > 0`, else `g·a`, of `[g, a]`: the gradient of [`Arithmetic::Prelu`] with respect to b.
    PreluSlope,
}

impl Arithmetic {
    /// How many values it takes.
    #[must_use]
    pub const fn arity(self) -> usize {
        match self {
            Self::DivisorBackward | Self::MinimumBackward | Self::MaximumBackward | Self::PreluBackward => 3,
            _ => 2,
        }
    }

    /// The name, as it stands in plans and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Minimum => "minimum",
            Self::Maximum => "maximum",
            Self::Prelu => "prelu",
            Self::DivisorBackward => "div_backward",
            Self::MinimumBackward => "minimum_backward",
            Self::MaximumBackward => "maximum_backward",
            Self::PreluBackward => "prelu_backward",
            Self::PreluSlope => "prelu_backward_slope",
        }
    }
}

/// Where the values of an operand come from.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Spread {
    /// An input of the shape of the output.
    #[default]
    Whole,
    /// An input of one pixel, which stands for all pixels; with one channel it stands for all channels too.
    Pixel,
    /// An input of one channel, which stands for all channels.
    Plane,
    /// The parameter, with a number for each channel or one for all; of one operand at most.
    Channel,
    /// A number.
    Number(f64),
}

impl Spread {
    /// Whether it is an input, rather than a parameter or a number.
    #[must_use]
    pub const fn is_input(self) -> bool {
        matches!(self, Self::Whole | Self::Pixel | Self::Plane)
    }
}

/// What a seed drops as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dropped {
    /// Each element by itself.
    #[default]
    Elements,
    /// Whole channels of an image.
    Channels,
    /// Whole images.
    Images,
    /// The whole batch.
    Batch,
}

impl Dropped {
    /// The position that decides for this one.
    #[must_use]
    pub const fn decider(self, [n, c]: [usize; 2], [y, x]: [i64; 2]) -> ([usize; 2], [i64; 2]) {
        match self {
            Self::Elements => ([n, c], [y, x]),
            Self::Channels => ([n, c], [0, 0]),
            Self::Images => ([n, 0], [0, 0]),
            Self::Batch => ([0, 0], [0, 0]),
        }
    }
}
