//! `adaptive_avg_pool2d`, `adaptive_max_pool2d`: the mean or the maximum of as many parts as the output has, of which part o of k
//! of an extent n is `[floor(o·n/k), ceil((o + 1)·n/k))`.

use serde_json::{Value, json};
use tiled_geometry::{AxisMap, Resize, ResizeMode};
use tiled_kernel::Kernel;

use super::check::out_of_range;
use super::global_pool::GlobalPool;
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::{Fields, whole};
use crate::format::json::Json;
use crate::lower::builder::{Lowering, Site};
use crate::lower::unary::{Saved, Unary};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `adaptive_avg_pool2d` and `adaptive_max_pool2d`.
///
/// ```
/// use tiled_graph::{AdaptivePool2d, Graph, Op, PartPooling, infer};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 8)?;
/// let pool = Op::AdaptivePool2d(AdaptivePool2d::new(PartPooling::Mean, [7, 7]));
/// let y = graph.add_node("pool", pool, &[x])?;
/// graph.set_outputs(&[y])?;
/// assert_eq!(infer(&graph, 1, &[[100, 30]])?.shape(y), [1, 8, 7, 7]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdaptivePool2d {
    /// What becomes of each part.
    pub pooling: PartPooling,
    /// Height and width of the output; `None` as those of the input.
    pub output_size: [Option<i64>; 2],
}

/// What becomes of each part of an image.
///
/// ```
/// assert_ne!(tiled_graph::PartPooling::Mean, tiled_graph::PartPooling::Max);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartPooling {
    /// `adaptive_avg_pool2d`.
    Mean,
    /// `adaptive_max_pool2d`.
    Max,
}

impl AdaptivePool2d {
    /// To this height and width.
    ///
    /// ```
    /// use tiled_graph::{AdaptivePool2d, PartPooling};
    /// assert_eq!(AdaptivePool2d::new(PartPooling::Max, [7, 7]).output_size, [Some(7), Some(7)]);
    /// ```
    #[must_use]
    pub const fn new(pooling: PartPooling, [height, width]: [i64; 2]) -> Self {
        Self { pooling, output_size: [Some(height), Some(width)] }
    }
}

impl Operator for AdaptivePool2d {
    fn format(&self) -> &'static Format {
        match self.pooling {
            PartPooling::Mean => &AVG,
            PartPooling::Max => &MAX,
        }
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({ "output_size": self.output_size })
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        match self.output_size.into_iter().flatten().find(|extent| *extent < 1) {
            None => Ok(at.channels()),
            Some(got) => Err(out_of_range(&at.place, "output_size", "at least 1", got)),
        }
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        at.per_axis(known, |axis, input| Ok(Some(self.output_size[axis].unwrap_or(input))))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    /// One node for the columns, then one for the rows: what waits for the rows of a part is as wide as the output.
    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        if self.output_size == [Some(1); 2] {
            return self.pooling.of_image().lower(lowering, site);
        }
        let (channels, [height, width], _) = lowering.described(site.x());
        let mut node = site.x();
        let mut extents = [height, width];
        let along = |from: i64, to: i64| Resize::new(ResizeMode::AREA, from, to);
        let [is_shorter, is_narrower] = [0, 1].map(|axis| extents[axis] != site.extents[axis]);
        for (axis, is_last) in [(1, !is_shorter), (0, true)] {
            let is_alone = axis == 0 && !is_shorter && !is_narrower;
            if extents[axis] == site.extents[axis] && !is_alone {
                continue;
            }
            let mut parts = [along(extents[0], extents[0])?, along(extents[1], extents[1])?];
            parts[axis] = along(extents[axis], site.extents[axis])?;
            extents[axis] = site.extents[axis];
            let maps = parts.map(AxisMap::Resize);
            let unary = match self.pooling {
                PartPooling::Mean => Unary {
                    kernel: Kernel::AdaptiveAvgPool2d(parts),
                    gradient: Kernel::AdaptiveAvgPool2dBackward(parts),
                    saved: None,
                    maps,
                },
                PartPooling::Max => Unary {
                    kernel: Kernel::AdaptiveMaxPool2d(parts),
                    gradient: Kernel::AdaptiveMaxPool2dBackward(parts),
                    saved: Some(Saved::Operand),
                    maps,
                },
            };
            let name = if is_last { site.name.to_owned() } else { format!("{}.columns", site.name) };
            node = lowering.unary(&name, unary, node, channels, extents)?;
        }
        Ok(node)
    }
}

pub(super) static AVG: Format =
    Format { name: "adaptive_avg_pool2d", arity: Arity::Exactly(1), keys: &["output_size"] };

pub(super) static MAX: Format =
    Format { name: "adaptive_max_pool2d", arity: Arity::Exactly(1), keys: &["output_size"] };

impl PartPooling {
    /// The pooling over the whole image.
    const fn of_image(self) -> GlobalPool {
        match self {
            Self::Mean => GlobalPool::Mean,
            Self::Max => GlobalPool::Max,
        }
    }
}

/// The attributes; `None` of one pixel, which is pooled from the whole image.
pub(super) fn read(fields: &Fields<'_>, pooling: PartPooling) -> Result<Option<AdaptivePool2d>, GraphError> {
    let given = fields.require("output_size")?;
    let one = |json: &Json| match json {
        Json::Null => Some(None),
        other => whole(other).map(Some),
    };
    let output_size = match given {
        Json::List(items) => match items.as_slice() {
            [height, width] => one(height).zip(one(width)).map(|(height, width)| [height, width]),
            _ => None,
        },
        both => one(both).map(|extent| [extent; 2]),
    };
    match output_size {
        Some([Some(1), Some(1)]) => Ok(None),
        Some(output_size) => Ok(Some(AdaptivePool2d { pooling, output_size })),
        None => {
            let expected = "a whole number or null, or a pair [height, width] of them";
            Err(fields.wrong("output_size", expected, given))
        }
    }
}
