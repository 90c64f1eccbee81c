//! `channel_max`: `y = max x[c]`; `channel_mean`: `y = Σ x[c]/C`; `channel_sum`: `y = Σ x[c]`, over the channels of each pixel.

use serde_json::Value;
use tiled_geometry::AxisMap;
use tiled_kernel::{Arithmetic, Kernel};

use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::lower::arithmetic::Term;
use crate::lower::builder::{Lowering, Site, lossless};
use crate::lower::unary::{Saved, Unary};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// What it makes of the channels of a pixel; none has attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelFold {
    Max,
    Mean,
    Sum,
}

const fn one(name: &'static str) -> Format {
    Format { name, arity: Arity::Exactly(1), keys: &[] }
}

pub(super) static MAX: Format = one("channel_max");
pub(super) static MEAN: Format = one("channel_mean");
pub(super) static SUM: Format = one("channel_sum");

impl Operator for ChannelFold {
    fn format(&self) -> &'static Format {
        match self {
            Self::Max => &MAX,
            Self::Mean => &MEAN,
            Self::Sum => &SUM,
        }
    }

    fn write(&self, _: &dyn Values) -> Value {
        Value::Null
    }

    fn check(&self, _: &Applied<'_>) -> Result<usize, GraphError> {
        Ok(1)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let x = site.x();
        let (channels, extents, _) = lowering.described(x);
        Ok(match self {
            Self::Max => {
                let unary = Unary {
                    kernel: Kernel::MaxChannels,
                    gradient: Kernel::MaxChannelsBackward,
                    saved: Some(Saved::Operand),
                    maps: [AxisMap::Identity; 2],
                };
                lowering.unary(site.name, unary, x, 1, extents)?
            }
            Self::Sum => lowering.sum_channels(site.name, x)?,
            Self::Mean => {
                let sum = lowering.sum_channels(&format!("{}.sum", site.name), x)?;
                let operands = [Term::Node(sum), Term::Number(lossless(channels))];
                lowering.arithmetic(site.name, Arithmetic::Div, operands, (1, extents))?
            }
        })
    }
}
