//! `slice`: the channels `begin .. end`; `split`: one part of the channels, cut as PyTorch's `split` cuts them.

use serde_json::{Value, json};
use tiled_geometry::AxisMap;
use tiled_kernel::Kernel;

use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::{Fields, whole};
use crate::format::json::Json;
use crate::lower::builder::{Lowering, Site};
use crate::lower::unary::Unary;
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `slice`.
///
/// ```
/// use tiled_graph::{Graph, Op, Slice};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 8)?;
/// let last = graph.add_node("last", Op::Slice(Slice { begin: -3, end: None }), &[x])?;
/// assert_eq!(graph.channels(last), 3);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first channel; below zero it counts from the end.
    pub begin: i64,
    /// The channel behind the last; below zero it counts from the end, which is the default.
    pub end: Option<i64>,
}

/// Attributes of `split`.
///
/// ```
/// use tiled_graph::{Graph, Op, Split, SplitSize};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 8)?;
/// let part = Split { split_size: SplitSize::Every(3), index: 2 };
/// let rest = graph.add_node("rest", Op::Split(part), &[x])?;
/// assert_eq!(graph.channels(rest), 2);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The channels of the parts.
    pub split_size: SplitSize,
    /// Which part it is, from zero.
    pub index: usize,
}

/// The channels of the parts of a split.
///
/// ```
/// assert_ne!(tiled_graph::SplitSize::Every(3), tiled_graph::SplitSize::Each(vec![3]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitSize {
    /// So many each, the last part the rest.
    Every(usize),
    /// Those of each part; together all channels.
    Each(Vec<usize>),
}

pub(super) static SLICE: Format = Format { name: "slice", arity: Arity::Exactly(1), keys: &["begin", "end"] };

pub(super) static SPLIT: Format =
    Format { name: "split", arity: Arity::Exactly(1), keys: &["split_size", "index"] };

pub(super) fn read_slice(fields: &Fields<'_>) -> Result<Slice, GraphError> {
    let channel = |key: &'static str| match fields.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(json) => whole(json).map(Some).ok_or_else(|| fields.wrong(key, "a whole number", json)),
    };
    Ok(Slice { begin: channel("begin")?.unwrap_or(0), end: channel("end")? })
}

pub(super) fn read_split(fields: &Fields<'_>) -> Result<Split, GraphError> {
    let count =
        |json: &Json| whole(json).filter(|count| *count > 0).and_then(|count| usize::try_from(count).ok());
    let json = fields.require("split_size")?;
    let size = match json {
        Json::List(items) => items.iter().map(count).collect::<Option<_>>().map(SplitSize::Each),
        one => count(one).map(SplitSize::Every),
    };
    let expected = "a number of channels or a list of them, each at least 1";
    let split_size = size.ok_or_else(|| fields.wrong("split_size", expected, json))?;
    let json = fields.require("index")?;
    let index = whole(json).and_then(|index| usize::try_from(index).ok());
    let index = index.ok_or_else(|| fields.wrong("index", "a whole number of at least 0", json))?;
    Ok(Split { split_size, index })
}

impl Slice {
    /// The first channel and the one behind the last.
    fn range(&self, at: &Applied<'_>) -> Result<[usize; 2], GraphError> {
        resolved(self, at.channels()).ok_or_else(|| GraphError::ChannelRange {
            place: at.place.clone(),
            begin: self.begin,
            end: self.end,
            channels: at.channels(),
        })
    }
}

/// Both ends counted from the first channel, where there is a channel between them.
fn resolved(slice: &Slice, channels: usize) -> Option<[usize; 2]> {
    let count = i64::try_from(channels).ok()?;
    let from_start = |end: i64| usize::try_from(if end < 0 { end.checked_add(count)? } else { end }).ok();
    let (begin, end) = (from_start(slice.begin)?, slice.end.map_or(Some(channels), from_start)?);
    (begin < end && end <= channels).then_some([begin, end])
}

impl Split {
    /// The first channel of the part and the one behind the last.
    fn range(&self, at: &Applied<'_>) -> Result<[usize; 2], GraphError> {
        let channels = at.channels();
        let (parts, range) = match &self.split_size {
            SplitSize::Every(size) => {
                let size = (*size).max(1);
                let begin = self.index.saturating_mul(size);
                (channels.div_ceil(size), [begin, begin.saturating_add(size).min(channels)])
            }
            SplitSize::Each(sizes) => {
                let sum = |sizes: &[usize]| sizes.iter().fold(0_usize, |sum, size| sum.saturating_add(*size));
                let expected = sum(sizes);
                if expected != channels {
                    let (place, what) = (at.place.clone(), "split_size");
                    return Err(GraphError::Channels { place, what, expected, got: channels });
                }
                let place = self.index.min(sizes.len());
                let begin = sum(&sizes[..place]);
                (sizes.len(), [begin, begin + sizes.get(place).copied().unwrap_or_default()])
            }
        };
        if self.index >= parts || range[0] >= range[1] {
            return Err(GraphError::NoSuchPart { place: at.place.clone(), index: self.index, parts });
        }
        Ok(range)
    }
}

impl Operator for Slice {
    fn format(&self) -> &'static Format {
        &SLICE
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"begin": self.begin, "end": self.end})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        self.range(at).map(|[begin, end]| end - begin)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (channels, _, _) = lowering.described(site.x());
        let [begin, _] = resolved(self, channels).expect("invariant: it was checked when the node was added");
        lower(lowering, site, begin)
    }
}

impl Operator for Split {
    fn format(&self) -> &'static Format {
        &SPLIT
    }

    fn write(&self, _: &dyn Values) -> Value {
        match &self.split_size {
            SplitSize::Every(size) => json!({"split_size": size, "index": self.index}),
            SplitSize::Each(sizes) => json!({"split_size": sizes, "index": self.index}),
        }
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        if self.split_size == SplitSize::Every(0) {
            return Err(super::check::out_of_range(&at.place, "split_size", "at least 1", 0));
        }
        self.range(at).map(|[begin, end]| end - begin)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let begin = match &self.split_size {
            SplitSize::Every(size) => self.index * size,
            SplitSize::Each(sizes) => sizes[..self.index].iter().sum(),
        };
        lower(lowering, site, begin)
    }
}

/// As many channels as the result has, from this one on.
fn lower(lowering: &mut Lowering, site: &Site<'_>, begin: usize) -> Result<NodeId, PlanError> {
    let unary = Unary {
        kernel: Kernel::Slice { begin },
        gradient: Kernel::SliceBackward { begin },
        saved: None,
        maps: [AxisMap::Identity; 2],
    };
    Ok(lowering.unary(site.name, unary, site.x(), site.channels, site.extents)?)
}
