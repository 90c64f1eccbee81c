//! `pixel_shuffle`: `y[c, i·r + u, j·s + v] = x[(c·r + u)·s + v, i, j]`; `pixel_unshuffle`: its inverse; `channel_shuffle`: the
//! groups of the channels and the channels of a group change places.

use serde_json::{Value, json};
use tiled_geometry::{AxisMap, MAX_WINDOW, Window};
use tiled_kernel::Kernel;

use super::check::{count, out_of_range};
use super::operator::{Applied, Format, Operator, Values};
use super::windowed::check_groups;
use crate::error::{Arity, Axis, GraphError, Place};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::lower::unary::Unary;
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `pixel_shuffle`.
///
/// ```
/// use tiled_graph::{Graph, Op, PixelShuffle, infer};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 12)?;
/// let up = graph.add_node("up", Op::PixelShuffle(PixelShuffle { upscale_factor: [2, 2] }), &[x])?;
/// graph.set_outputs(&[up])?;
/// assert_eq!(infer(&graph, 1, &[[5, 7]])?.shape(up), [1, 3, 10, 14]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixelShuffle {
    /// The factors of height and of width; their product divides the channels.
    pub upscale_factor: [i64; 2],
}

/// Attributes of `pixel_unshuffle`.
///
/// ```
/// use tiled_graph::{Graph, Op, PixelUnshuffle, infer};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 3)?;
/// let down = graph.add_node("down", Op::PixelUnshuffle(PixelUnshuffle { downscale_factor: [2, 2] }), &[x])?;
/// graph.set_outputs(&[down])?;
/// assert_eq!(infer(&graph, 1, &[[10, 14]])?.shape(down), [1, 12, 5, 7]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixelUnshuffle {
    /// What divides height, and what divides width.
    pub downscale_factor: [i64; 2],
}

/// Attributes of `channel_shuffle`.
///
/// ```
/// assert_eq!(tiled_graph::ChannelShuffle { groups: 2 }.groups, 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelShuffle {
    /// The groups, which divide the channels.
    pub groups: usize,
}

pub(super) static PIXEL_SHUFFLE: Format =
    Format { name: "pixel_shuffle", arity: Arity::Exactly(1), keys: &["upscale_factor"] };

pub(super) static PIXEL_UNSHUFFLE: Format =
    Format { name: "pixel_unshuffle", arity: Arity::Exactly(1), keys: &["downscale_factor"] };

pub(super) static CHANNEL_SHUFFLE: Format =
    Format { name: "channel_shuffle", arity: Arity::Exactly(1), keys: &["groups"] };

pub(super) fn read_pixel_shuffle(fields: &Fields<'_>) -> Result<PixelShuffle, GraphError> {
    fields.required_pair("upscale_factor").map(|upscale_factor| PixelShuffle { upscale_factor })
}

pub(super) fn read_pixel_unshuffle(fields: &Fields<'_>) -> Result<PixelUnshuffle, GraphError> {
    fields.required_pair("downscale_factor").map(|downscale_factor| PixelUnshuffle { downscale_factor })
}

pub(super) fn read_channel_shuffle(fields: &Fields<'_>) -> Result<ChannelShuffle, GraphError> {
    fields.required_count("groups").map(|groups| ChannelShuffle { groups })
}

/// The channels that one becomes, `r·s`.
fn product(place: &Place, key: &'static str, factor: [i64; 2]) -> Result<usize, GraphError> {
    let mut product = 1;
    for factor in factor {
        let expected = match factor {
            ..1 => "at least 1",
            1..=MAX_WINDOW => {
                product *= usize::try_from(factor).expect("invariant: it is positive and at most 2^20");
                continue;
            }
            _ => "at most 2^20",
        };
        return Err(out_of_range(place, key, expected, factor));
    }
    Ok(product)
}

/// The blocks of pixels that lie on each other in the channels, along each axis.
fn blocks([height, width]: [i64; 2]) -> Result<[Window; 2], PlanError> {
    Ok([Window::new(height, height, 1, 0)?, Window::new(width, width, 1, 0)?])
}

/// A number that both axes have, or one for each.
fn written([height, width]: [i64; 2]) -> Value {
    if height == width { json!(height) } else { json!([height, width]) }
}

impl Operator for PixelShuffle {
    fn format(&self) -> &'static Format {
        &PIXEL_SHUFFLE
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"upscale_factor": written(self.upscale_factor)})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        let (channels, factor) = (at.channels(), self.upscale_factor);
        let product = product(&at.place, "upscale_factor", factor)?;
        if !channels.is_multiple_of(product) {
            return Err(GraphError::ShuffledChannels { place: at.place.clone(), channels, factor });
        }
        Ok(channels / product)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        at.per_axis(known, |axis, extent| Ok(extent.checked_mul(self.upscale_factor[axis])))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let factor = self.upscale_factor;
        let unary = Unary {
            kernel: Kernel::PixelShuffle { factor },
            gradient: Kernel::PixelUnshuffle { factor },
            saved: None,
            maps: blocks(factor)?.map(AxisMap::Touched),
        };
        Ok(lowering.unary(site.name, unary, site.x(), site.channels, site.extents)?)
    }
}

impl Operator for PixelUnshuffle {
    fn format(&self) -> &'static Format {
        &PIXEL_UNSHUFFLE
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"downscale_factor": written(self.downscale_factor)})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        let product = product(&at.place, "downscale_factor", self.downscale_factor)?;
        let channels = at.channels().saturating_mul(product);
        count(&at.place, "channels", channels).map(|()| channels)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        at.per_axis(known, |axis, extent| {
            let factor = self.downscale_factor[axis];
            if extent % factor == 0 {
                return Ok(Some(extent / factor));
            }
            let (place, axis) = (at.place.clone(), Axis::BOTH[axis]);
            Err(GraphError::Indivisible { place, axis, extent, factor })
        })
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let factor = self.downscale_factor;
        let unary = Unary {
            kernel: Kernel::PixelUnshuffle { factor },
            gradient: Kernel::PixelShuffle { factor },
            saved: None,
            maps: blocks(factor)?.map(AxisMap::Window),
        };
        Ok(lowering.unary(site.name, unary, site.x(), site.channels, site.extents)?)
    }
}

impl Operator for ChannelShuffle {
    fn format(&self) -> &'static Format {
        &CHANNEL_SHUFFLE
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"groups": self.groups})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        let channels = at.channels();
        check_groups(&at.place, self.groups, channels, channels).map(|()| channels)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let shuffle = |groups| Kernel::ChannelShuffle { groups };
        Ok(lowering.pointwise(site, shuffle(self.groups), shuffle(site.channels / self.groups), None)?)
    }
}
