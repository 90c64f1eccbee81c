//! `instance_norm`: `y[n,c] = γ[c]·(x[n,c] − μ[n,c])/√(σ²[n,c] + ε) + β[c]`, μ and σ² of the image, or running ones.

use serde_json::{Value, json};

use super::norm::{Normalisation, check_eps, check_momentum, per_channel};
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::{Momentum, NodeId, Running, Statistics};
use crate::shapes::Shapes;

/// Attributes of `instance_norm`.
///
/// ```
/// assert!(!tiled_graph::InstanceNorm::default().affine);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceNorm {
    /// Added to the variance.
    pub eps: f64,
    /// The weight of a new statistic, the mean over the images of a batch, in the running one.
    pub momentum: f64,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Whether there are running statistics, which evaluation uses in place of those of the image.
    pub track_running_stats: bool,
}

impl Default for InstanceNorm {
    /// PyTorch's: `eps` 1e-5, `momentum` 0.1, neither affine nor with running statistics.
    fn default() -> Self {
        Self { eps: 1e-5, momentum: 0.1, affine: false, track_running_stats: false }
    }
}

pub(super) static FORMAT: Format = Format {
    name: "instance_norm",
    arity: Arity::Exactly(1),
    keys: &[
        "num_features",
        "eps",
        "momentum",
        "affine",
        "track_running_stats",
        "weight",
        "bias",
        "running_mean",
        "running_var",
    ],
};

pub(super) fn read(fields: &Fields<'_>) -> Result<InstanceNorm, GraphError> {
    let default = InstanceNorm::default();
    Ok(InstanceNorm {
        eps: fields.number("eps", default.eps)?,
        momentum: fields.number("momentum", default.momentum)?,
        affine: fields.flag("affine", default.affine)?,
        track_running_stats: fields.flag("track_running_stats", default.track_running_stats)?,
    })
}

impl Operator for InstanceNorm {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({
            "eps": self.eps,
            "momentum": self.momentum,
            "affine": self.affine,
            "track_running_stats": self.track_running_stats,
        })
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        check_eps(&at.place, self.eps)?;
        check_momentum(&at.place, self.momentum)?;
        Ok(at.channels())
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        per_channel(channels, self.affine, self.affine, self.track_running_stats)
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let running = self.track_running_stats.then(|| Running {
            mean: lowering.param(site.name, "running_mean"),
            variance: lowering.param(site.name, "running_var"),
            momentum: Momentum::Fixed(self.momentum),
        });
        let over = Statistics::Image { group: 1 };
        Normalisation { eps: self.eps, affine: self.affine, running, over }.lower(lowering, site)
    }
}
