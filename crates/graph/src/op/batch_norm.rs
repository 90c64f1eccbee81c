//! `batch_norm`: `y[c] = γ[c]·(x[c] − μ[c])/√(σ²[c] + ε) + β[c]`, μ and σ² running ones or those of the batch.

use serde_json::{Value, json};

use super::norm::{Normalisation, check_eps, check_momentum, per_channel};
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::{Init, Own, ParamKind};
use crate::plan::error::PlanError;
use crate::program::{Momentum, NodeId, Running, Statistics};
use crate::shapes::Shapes;

/// Attributes of `batch_norm`.
///
/// ```
/// assert_eq!(tiled_graph::BatchNorm::default().momentum, Some(0.1));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f64,
    /// The weight of a new statistic in the running one; `None` for the mean of all that there were, 1/n for the n-th.
    pub momentum: Option<f64>,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Whether there are running statistics; without them evaluation uses those of the batch as well.
    pub track_running_stats: bool,
}

impl BatchNorm {
    /// Whether it counts the batches that its running statistics have seen.
    ///
    /// ```
    /// use tiled_graph::BatchNorm;
    /// assert!(!BatchNorm::default().counts_batches());
    /// assert!(BatchNorm { momentum: None, ..BatchNorm::default() }.counts_batches());
    /// ```
    #[must_use]
    pub const fn counts_batches(&self) -> bool {
        self.track_running_stats && self.momentum.is_none()
    }
}

impl Default for BatchNorm {
    /// PyTorch's: `eps` 1e-5, `momentum` 0.1, affine, with running statistics.
    fn default() -> Self {
        Self { eps: 1e-5, momentum: Some(0.1), affine: true, track_running_stats: true }
    }
}

pub(super) static FORMAT: Format = Format {
    name: "batch_norm",
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
        "num_batches_tracked",
    ],
};

pub(super) fn read(fields: &Fields<'_>) -> Result<BatchNorm, GraphError> {
    let default = BatchNorm::default();
    Ok(BatchNorm {
        eps: fields.number("eps", default.eps)?,
        momentum: fields.number_or_null("momentum", default.momentum)?,
        affine: fields.flag("affine", default.affine)?,
        track_running_stats: fields.flag("track_running_stats", default.track_running_stats)?,
    })
}

impl Operator for BatchNorm {
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
        self.momentum.map_or(Ok(()), |momentum| check_momentum(&at.place, momentum))?;
        Ok(at.channels())
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        let mut all = per_channel(channels, self.affine, self.affine, self.track_running_stats);
        if self.counts_batches() {
            let kind = ParamKind::NumBatchesTracked;
            all.push(Own { kind, shape: Vec::new(), init: Init::Constant(0.0), input: None });
        }
        all
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let running = self.track_running_stats.then(|| Running {
            mean: lowering.param(site.name, "running_mean"),
            variance: lowering.param(site.name, "running_var"),
            momentum: match self.momentum {
                Some(momentum) => Momentum::Fixed(momentum),
                None => Momentum::Mean { batches: lowering.param(site.name, "num_batches_tracked") },
            },
        });
        let norm = Normalisation { eps: self.eps, affine: self.affine, running, over: Statistics::Batch };
        norm.lower(lowering, site)
    }
}
