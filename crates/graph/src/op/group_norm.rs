//! `group_norm`: `y[n,c] = γ[c]·(x[n,c] − μ[n,g])/√(σ²[n,g] + ε) + β[c]`, μ and σ² of the group g of channels of the image.

use serde_json::{Value, json};

use super::check::count;
use super::norm::{Normalisation, check_eps, per_channel};
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::{NodeId, Statistics};
use crate::shapes::Shapes;

/// Attributes of `group_norm`.
///
/// ```
/// assert_eq!(tiled_graph::GroupNorm::new(8).eps, 1e-5);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GroupNorm {
    /// The groups that the channels divide into.
    pub num_groups: usize,
    /// Added to the variance.
    pub eps: f64,
    /// Whether there are a weight and a bias.
    pub affine: bool,
}

impl GroupNorm {
    /// So many groups; the rest as PyTorch: `eps` 1e-5, affine.
    #[must_use]
    pub const fn new(num_groups: usize) -> Self {
        Self { num_groups, eps: 1e-5, affine: true }
    }
}

pub(super) static FORMAT: Format = Format {
    name: "group_norm",
    arity: Arity::Exactly(1),
    keys: &["num_groups", "num_channels", "eps", "affine", "weight", "bias"],
};

pub(super) fn read(fields: &Fields<'_>) -> Result<GroupNorm, GraphError> {
    let default = GroupNorm::new(fields.required_count("num_groups")?);
    Ok(GroupNorm {
        eps: fields.number("eps", default.eps)?,
        affine: fields.flag("affine", default.affine)?,
        ..default
    })
}

impl Operator for GroupNorm {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"num_groups": self.num_groups, "eps": self.eps, "affine": self.affine})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        check_eps(&at.place, self.eps)?;
        count(&at.place, "num_groups", self.num_groups)?;
        let (channels, groups) = (at.channels(), self.num_groups);
        if channels.is_multiple_of(groups) {
            return Ok(channels);
        }
        Err(GraphError::Groups { place: at.place.clone(), which: "input", channels, groups })
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        per_channel(channels, self.affine, self.affine, false)
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let over = Statistics::Image { group: site.channels / self.num_groups };
        Normalisation { eps: self.eps, affine: self.affine, running: None, over }.lower(lowering, site)
    }
}
