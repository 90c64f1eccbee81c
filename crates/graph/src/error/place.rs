//! What errors speak of: places, axes, numbers of operands, sizes.

use std::fmt;

/// Where in a network an error lies.
///
/// ```
/// use tiled_graph::Place;
/// let place = Place::Node { op: "conv2d".into(), name: "stem".into() };
/// assert_eq!(place.to_string(), "conv2d `stem`");
/// assert_eq!(Place::Entry { list: "nodes", index: 2 }.to_string(), "nodes[2]");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The network as a whole.
    Network,
    /// An input.
    Input {
        /// Its name.
        name: Box<str>,
    },
    /// A node.
    Node {
        /// Its operator.
        op: Box<str>,
        /// Its name.
        name: Box<str>,
    },
    /// An entry of a list of the file, where it has no name yet.
    Entry {
        /// The list: `inputs`, `nodes` or `outputs`.
        list: &'static str,
        /// The position, from zero.
        index: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network => write!(f, "network"),
            Self::Input { name } => write!(f, "input `{name}`"),
            Self::Node { op, name } => write!(f, "{op} `{name}`"),
            Self::Entry { list, index } => write!(f, "{list}[{index}]"),
        }
    }
}

/// An axis of the image.
///
/// ```
/// assert_eq!(tiled_graph::Axis::Height.to_string(), "height");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Rows.
    Height,
    /// Columns.
    Width,
}

impl Axis {
    /// Both, in the order of every pair: height, width.
    pub(crate) const BOTH: [Self; 2] = [Self::Height, Self::Width];
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Height => "height",
            Self::Width => "width",
        })
    }
}

/// How many operands an operator takes.
///
/// ```
/// use tiled_graph::Arity;
/// assert_eq!(Arity::Exactly(1).to_string(), "1");
/// assert_eq!(Arity::AtLeast(2).to_string(), "at least 2");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// This many.
    Exactly(usize),
    /// This many or more.
    AtLeast(usize),
}

impl Arity {
    /// Whether this many operands are right.
    #[must_use]
    pub const fn accepts(self, count: usize) -> bool {
        match self {
            Self::Exactly(wanted) => count == wanted,
            Self::AtLeast(least) => count >= least,
        }
    }
}

impl fmt::Display for Arity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(count) => write!(f, "{count}"),
            Self::AtLeast(count) => write!(f, "at least {count}"),
        }
    }
}

/// A size that may not fit 64 bits.
///
/// ```
/// use tiled_graph::Extent;
/// assert_eq!(Extent(Some(7)).to_string(), "7");
/// assert_eq!(Extent(None).to_string(), "more than 64 bits hold");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent(pub Option<usize>);

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value}"),
            None => write!(f, "more than 64 bits hold"),
        }
    }
}
