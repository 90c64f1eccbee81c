//! `batch_norm`: `y[c] = γ[c]·(x[c] − μ[c])/√(σ²[c] + ε) + β[c]`, μ and σ² running ones or those of the batch.

use serde_json::{Value, json};
use tiled_kernel::{Kernel, Reduction};
use tiled_tensor::{OutOfMemory, push};

use super::check::out_of_range;
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Flowing, Lowering, Site, identity, pixels};
use crate::params::own::{Init, InputAxis, Own, ParamKind};
use crate::plan::error::PlanError;
use crate::program::{
    DerivedId, Finaliser, GradShare, Momentum, NodeId, NodeKind, Norm, Param, ParamId, ReductionId, Running,
};
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
        if !(self.eps.is_finite() && self.eps > 0.0) {
            return Err(out_of_range(&at.place, "eps", "a finite number above 0", self.eps));
        }
        match self.momentum {
            Some(momentum) if !(0.0..=1.0).contains(&momentum) => {
                Err(out_of_range(&at.place, "momentum", "at least 0 and at most 1", momentum))
            }
            _ => Ok(at.channels()),
        }
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        let all = [
            (self.affine, ParamKind::Weight, vec![channels], 1.0),
            (self.affine, ParamKind::Bias, vec![channels], 0.0),
            (self.track_running_stats, ParamKind::RunningMean, vec![channels], 0.0),
            (self.track_running_stats, ParamKind::RunningVar, vec![channels], 1.0),
            (self.counts_batches(), ParamKind::NumBatchesTracked, Vec::new(), 0.0),
        ];
        let kept = all.into_iter().filter(|(is_there, ..)| *is_there);
        kept.map(|(_, kind, shape, value)| {
            let input = (kind == ParamKind::Weight).then_some(InputAxis { axis: 0, groups: 1 });
            Own { kind, shape, init: Init::Constant(value), input }
        })
        .collect()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (name, x) = (site.name, site.x());
        let (channels, extents, _) = lowering.described(x);
        let norm = Norm {
            eps: self.eps,
            weight: self.affine.then(|| lowering.param(name, "weight")),
            bias: self.affine.then(|| lowering.param(name, "bias")),
            mean: lowering.derive(channels)?,
            inverse_std: lowering.derive(channels)?,
            scale: lowering.derive(channels)?,
            shift: lowering.derive(channels)?,
        };
        let running = self.track_running_stats.then(|| self.running(lowering, name));
        let of_batch = match running {
            Some(Running { mean, variance, .. }) if !site.trains => {
                let running = [mean, variance];
                push(&mut lowering.program.finalisers, (None, Finaliser::BatchNormEval { norm, running }))?;
                false
            }
            running => {
                let (what, operand) = (format!("{name}.moments"), identity(x, extents));
                let reduction = lowering.reduce(
                    what,
                    Reduction::Moments,
                    channels,
                    extents,
                    vec![operand],
                    Vec::new(),
                )?;
                let count = lowering.batch as u64 * pixels(extents);
                lowering
                    .finalise(reduction, Finaliser::BatchNormTrain { norm, reduction, count, running })?;
                true
            }
        };
        let kind = NodeKind::Compute(Kernel::ChannelAffine { activation: None });
        let params = vec![Param::Derived(norm.scale), Param::Derived(norm.shift)];
        let operand = identity(x, extents);
        let node = lowering.push(name.to_owned(), kind, channels, extents, vec![operand], params)?;
        lowering.wants_grad[node] |= lowering.wants_any([norm.weight, norm.bias]);
        lowering.record(name, node, move |lowering, at| backward(lowering, at, x, norm, of_batch))?;
        Ok(node)
    }
}

impl BatchNorm {
    fn running(&self, lowering: &Lowering, name: &str) -> Running {
        Running {
            mean: lowering.param(name, "running_mean"),
            variance: lowering.param(name, "running_var"),
            momentum: match self.momentum {
                Some(momentum) => Momentum::Fixed(momentum),
                None => Momentum::Mean { batches: lowering.param(name, "num_batches_tracked") },
            },
        }
    }
}

/// The gradient flows through the statistics too where they are those of the batch.
fn backward(
    lowering: &mut Lowering,
    at: &Flowing<'_>,
    x: NodeId,
    norm: Norm,
    of_batch: bool,
) -> Result<(), OutOfMemory> {
    let (channels, extents, _) = lowering.described(x);
    let operands = vec![identity(at.gradient, extents), identity(x, extents)];
    let wants_params = lowering.wants_any([norm.weight, norm.bias]);
    if wants_params || (of_batch && lowering.wants_grad[x]) {
        let (what, mean) = (at.named("grad_moments"), vec![Param::Derived(norm.mean)]);
        let reduction =
            lowering.reduce(what, Reduction::CentredDot, channels, extents, operands.clone(), mean)?;
        let count = lowering.batch as u64 * pixels(extents);
        let coefficients = if of_batch {
            Some([lowering.derive(channels)?, lowering.derive(channels)?, lowering.derive(channels)?])
        } else {
            None
        };
        param_grads(lowering, norm, reduction, count, coefficients)?;
        if let Some(vectors) = coefficients {
            let params = vectors.map(Param::Derived).to_vec();
            let kind = NodeKind::Compute(Kernel::ChannelCombine);
            return lowering.flow(x, |lowering| {
                lowering.push(at.named("grad_input"), kind, channels, extents, operands, params)
            });
        }
    }
    let zero = lowering.zeros(channels)?;
    let kind = NodeKind::Compute(Kernel::ChannelAffine { activation: None });
    let params = vec![Param::Derived(norm.scale), Param::Derived(zero)];
    let operand = identity(at.gradient, extents);
    lowering.flow(x, |lowering| {
        lowering.push(at.named("grad_input"), kind, channels, extents, vec![operand], params)
    })
}

/// The gradients of weight and bias, and the coefficients of that of the input.
fn param_grads(
    lowering: &mut Lowering,
    norm: Norm,
    reduction: ReductionId,
    count: u64,
    coefficients: Option<[DerivedId; 3]>,
) -> Result<(), OutOfMemory> {
    let alone = |param: &ParamId| !lowering.is_shared(*param);
    let own = Norm { weight: norm.weight.filter(alone), bias: norm.bias.filter(alone), ..norm };
    lowering
        .finalise(reduction, Finaliser::BatchNormBackward { norm: own, reduction, count, coefficients })?;
    let weight = GradShare::NormWeight { reduction, inverse_std: norm.inverse_std };
    for (param, of) in [(norm.weight, weight), (norm.bias, GradShare::NormBias { reduction })] {
        let Some(param) = param.filter(|param| lowering.wants(*param)) else { continue };
        if lowering.is_shared(param) {
            lowering.share(param, of)?;
        } else {
            push(&mut lowering.program.param_grads, param)?;
        }
    }
    Ok(())
}
