//! Normalisation by statistics of the whole image: what `batch_norm`, `instance_norm` and `group_norm` have in common.
//!
//! `y = γ·(x − μ)/√(σ² + ε) + β`, γ and β of the channel, μ and σ² of the channel over the batch, of the channel of one image, or of
//! a group of channels of one image.

use tiled_kernel::{Kernel, Reduction};
use tiled_tensor::{OutOfMemory, push};

use super::check::out_of_range;
use crate::error::{GraphError, Place};
use crate::lower::builder::{Flowing, Lowering, Site, identity, pixels};
use crate::params::own::{Init, InputAxis, Own, ParamKind};
use crate::plan::error::PlanError;
use crate::program::{
    DerivedId, Finaliser, GradShare, NodeId, NodeKind, Norm, Param, ParamId, ReductionId, Running, Statistics,
};

/// A normalisation, as far as lowering needs to know.
pub(super) struct Normalisation {
    pub(super) eps: f64,
    /// Whether there are a weight and a bias.
    pub(super) affine: bool,
    pub(super) running: Option<Running>,
    /// What shares its statistics, where they are not the running ones.
    pub(super) over: Statistics,
}

pub(super) fn check_eps(place: &Place, eps: f64) -> Result<(), GraphError> {
    if eps.is_finite() && eps > 0.0 {
        return Ok(());
    }
    Err(out_of_range(place, "eps", "a finite number above 0", eps))
}

pub(super) fn check_momentum(place: &Place, momentum: f64) -> Result<(), GraphError> {
    if (0.0..=1.0).contains(&momentum) {
        return Ok(());
    }
    Err(out_of_range(place, "momentum", "at least 0 and at most 1", momentum))
}

/// The parameters of a norm that there are: a number for each channel.
pub(super) fn per_channel(channels: usize, weight: bool, bias: bool, running: bool) -> Vec<Own> {
    let all = [
        (weight, ParamKind::Weight, 1.0),
        (bias, ParamKind::Bias, 0.0),
        (running, ParamKind::RunningMean, 0.0),
        (running, ParamKind::RunningVar, 1.0),
    ];
    let kept = all.into_iter().filter(|(is_there, ..)| *is_there);
    kept.map(|(_, kind, value)| {
        let input = (kind == ParamKind::Weight).then_some(InputAxis { axis: 0, groups: 1 });
        Own { kind, shape: vec![channels], init: Init::Constant(value), input }
    })
    .collect()
}

impl Normalisation {
    pub(super) fn lower(self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (name, x) = (site.name, site.x());
        let (channels, extents, _) = lowering.described(x);
        let running = self.running.filter(|_| !site.trains);
        let over = if running.is_some() { Statistics::Batch } else { self.over };
        let len = numbers(over, lowering.batch, channels);
        let norm = Norm {
            over,
            eps: self.eps,
            weight: self.affine.then(|| lowering.param(name, "weight")),
            bias: self.affine.then(|| lowering.param(name, "bias")),
            mean: lowering.derive(len)?,
            inverse_std: lowering.derive(len)?,
            scale: lowering.derive(len)?,
            shift: lowering.derive(len)?,
        };
        if let Some(Running { mean, variance, .. }) = running {
            let running = [mean, variance];
            push(&mut lowering.program.finalisers, (None, Finaliser::NormEval { norm, running }))?;
        } else {
            let (what, operand) = (format!("{name}.moments"), identity(x, extents));
            let moments = match over {
                Statistics::Batch => Reduction::Moments,
                Statistics::Image { .. } => Reduction::ImageMoments,
            };
            let reduction = lowering.reduce(what, moments, channels, extents, vec![operand], Vec::new())?;
            let (count, running) = (count(over, lowering.batch, extents), self.running);
            lowering.finalise(reduction, Finaliser::NormTrain { norm, reduction, count, running })?;
        }
        let of_images = running.is_none();
        let kind = NodeKind::Compute(Kernel::ChannelAffine { activation: None });
        let params = vec![Param::Derived(norm.scale), Param::Derived(norm.shift)];
        let operand = identity(x, extents);
        let node = lowering.push(name.to_owned(), kind, channels, extents, vec![operand], params)?;
        lowering.wants_grad[node] |= lowering.wants_any([norm.weight, norm.bias]);
        lowering.record(name, node, move |lowering, at| backward(lowering, at, x, norm, of_images))?;
        Ok(node)
    }
}

/// The numbers in a derived vector.
const fn numbers(over: Statistics, batch: usize, channels: usize) -> usize {
    match over {
        Statistics::Batch => channels,
        Statistics::Image { .. } => batch * channels,
    }
}

/// The elements that share their statistics.
fn count(over: Statistics, batch: usize, extents: [i64; 2]) -> u64 {
    match over {
        Statistics::Batch => batch as u64 * pixels(extents),
        Statistics::Image { group } => group as u64 * pixels(extents),
    }
}

/// The gradient flows through the statistics too where they are those of the images at hand.
fn backward(
    lowering: &mut Lowering,
    at: &Flowing<'_>,
    x: NodeId,
    norm: Norm,
    of_images: bool,
) -> Result<(), OutOfMemory> {
    let (channels, extents, _) = lowering.described(x);
    let operands = vec![identity(at.gradient, extents), identity(x, extents)];
    let wants_params = lowering.wants_any([norm.weight, norm.bias]);
    if wants_params || (of_images && lowering.wants_grad[x]) {
        let (what, mean) = (at.named("grad_moments"), vec![Param::Derived(norm.mean)]);
        let dots = match norm.over {
            Statistics::Batch => Reduction::CentredDot,
            Statistics::Image { .. } => Reduction::ImageCentredDot,
        };
        let reduction = lowering.reduce(what, dots, channels, extents, operands.clone(), mean)?;
        let count = count(norm.over, lowering.batch, extents);
        let len = numbers(norm.over, lowering.batch, channels);
        let coefficients = if of_images {
            Some([lowering.derive(len)?, lowering.derive(len)?, lowering.derive(len)?])
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
    lowering.finalise(reduction, Finaliser::NormBackward { norm: own, reduction, count, coefficients })?;
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
