//! `layer_norm`: `y[c] = γ[c]·(x[c] − μ)/√(σ² + ε) + β[c]`, μ and σ² over the channels of each pixel; `rms_norm`:
//! `y[c] = γ[c]·x[c]/√(Σx[i]²/C + ε)`.

use serde_json::{Value, json};
use tiled_geometry::AxisMap;
use tiled_kernel::{Kernel, PixelNorm, Reduction};
use tiled_tensor::OutOfMemory;

use super::norm::{check_eps, per_channel};
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::{Fields, whole};
use crate::format::json::Json;
use crate::lower::builder::{Flowing, Lowering, Site, identity};
use crate::lower::unary::{Saved, Unary};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::{NodeId, NodeKind, Param, ParamId};
use crate::shapes::Shapes;

/// Attributes of `layer_norm`, over the channels of each pixel.
///
/// ```
/// assert_eq!(tiled_graph::LayerNorm::default().eps, 1e-5);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f64,
    /// Whether there is a weight.
    pub elementwise_affine: bool,
    /// Whether there is a bias beside the weight, where there is one.
    pub bias: bool,
}

impl Default for LayerNorm {
    /// PyTorch's: `eps` 1e-5, a weight and a bias.
    fn default() -> Self {
        Self { eps: 1e-5, elementwise_affine: true, bias: true }
    }
}

/// Attributes of `rms_norm`, over the channels of each pixel.
///
/// ```
/// assert_eq!(tiled_graph::RmsNorm::default().eps, f64::from(f32::EPSILON));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f64,
    /// Whether there is a weight.
    pub elementwise_affine: bool,
}

impl Default for RmsNorm {
    /// PyTorch's in single precision: `eps` is the ε of the type, and there is a weight.
    fn default() -> Self {
        Self { eps: f32::EPSILON.into(), elementwise_affine: true }
    }
}

pub(super) static LAYER: Format = Format {
    name: "layer_norm",
    arity: Arity::Exactly(1),
    keys: &["normalized_shape", "eps", "elementwise_affine", "weight", "bias"],
};

pub(super) static RMS: Format = Format {
    name: "rms_norm",
    arity: Arity::Exactly(1),
    keys: &["normalized_shape", "eps", "elementwise_affine", "weight"],
};

pub(super) fn read(fields: &Fields<'_>) -> Result<LayerNorm, GraphError> {
    check_shape(fields)?;
    let default = LayerNorm::default();
    Ok(LayerNorm {
        eps: fields.number("eps", default.eps)?,
        elementwise_affine: fields.flag("elementwise_affine", default.elementwise_affine)?,
        bias: fields.bias(default.bias)?,
    })
}

pub(super) fn read_rms(fields: &Fields<'_>) -> Result<RmsNorm, GraphError> {
    check_shape(fields)?;
    let default = RmsNorm::default();
    Ok(RmsNorm {
        eps: fields.number("eps", default.eps)?,
        elementwise_affine: fields.flag("elementwise_affine", default.elementwise_affine)?,
    })
}

/// Checks that it goes over one axis, the channels, whose number is checked with those of other operators.
fn check_shape(fields: &Fields<'_>) -> Result<(), GraphError> {
    match fields.get("normalized_shape") {
        None | Some(Json::Number(_)) => Ok(()),
        Some(Json::List(axes)) if axes.len() == 1 => Ok(()),
        Some(Json::List(axes)) if !axes.is_empty() && axes.iter().all(|axis| whole(axis).is_some()) => {
            let reason = "over height and width it has a weight for each pixel; over the channels it is one number, and \
                          `group_norm` with one group has statistics of the whole image";
            Err(GraphError::CannotTile { place: fields.place().clone(), reason })
        }
        Some(other) => Err(fields.wrong("normalized_shape", "the number of channels", other)),
    }
}

impl Operator for LayerNorm {
    fn format(&self) -> &'static Format {
        &LAYER
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"eps": self.eps, "elementwise_affine": self.elementwise_affine, "bias": self.bias})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        check_eps(&at.place, self.eps).map(|()| at.channels())
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        per_channel(channels, self.elementwise_affine, self.elementwise_affine && self.bias, false)
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let norm = PixelNorm { eps: self.eps, centred: true };
        Ok(lower(lowering, site, norm, self.elementwise_affine, self.elementwise_affine && self.bias)?)
    }
}

impl Operator for RmsNorm {
    fn format(&self) -> &'static Format {
        &RMS
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"eps": self.eps, "elementwise_affine": self.elementwise_affine})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        check_eps(&at.place, self.eps).map(|()| at.channels())
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        per_channel(channels, self.elementwise_affine, false, false)
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let norm = PixelNorm { eps: self.eps, centred: false };
        Ok(lower(lowering, site, norm, self.elementwise_affine, false)?)
    }
}

/// The normalisation, then weight and bias as a node of their own: their gradient reads what is normalised.
fn lower(
    lowering: &mut Lowering,
    site: &Site<'_>,
    norm: PixelNorm,
    weight: bool,
    bias: bool,
) -> Result<NodeId, OutOfMemory> {
    let (channels, extents, _) = lowering.described(site.x());
    let unary = Unary {
        kernel: Kernel::PixelNorm(norm),
        gradient: Kernel::PixelNormBackward(norm),
        saved: Some(Saved::Operand),
        maps: [AxisMap::Identity; 2],
    };
    if !weight {
        return lowering.unary(site.name, unary, site.x(), channels, extents);
    }
    let normalised =
        lowering.unary(&format!("{}.normalised", site.name), unary, site.x(), channels, extents)?;
    let weight = lowering.param(site.name, "weight");
    let bias = bias.then(|| lowering.param(site.name, "bias"));
    let shift = match bias {
        Some(bias) => Param::Network(bias),
        None => Param::Derived(lowering.zeros(channels)?),
    };
    let (name, operands) = (site.name.to_owned(), vec![identity(normalised, extents)]);
    let kind = NodeKind::Compute(Kernel::ChannelAffine { activation: None });
    let params = vec![Param::Network(weight), shift];
    let node = lowering.push(name, kind, channels, extents, operands, params)?;
    lowering.wants_grad[node] |= lowering.wants_any([Some(weight), bias]);
    lowering.record(site.name, node, move |lowering, at| backward(lowering, at, normalised, weight, bias))?;
    Ok(node)
}

/// The gradients of weight and bias, and that of what they were applied to.
fn backward(
    lowering: &mut Lowering,
    at: &Flowing<'_>,
    normalised: NodeId,
    weight: ParamId,
    bias: Option<ParamId>,
) -> Result<(), OutOfMemory> {
    let (channels, extents, _) = lowering.described(normalised);
    let gradient = identity(at.gradient, extents);
    if lowering.wants(weight) {
        let operands = vec![gradient.clone(), identity(normalised, extents)];
        let (name, dot) = (at.named("grad_weight"), Reduction::ChannelDot);
        let reduction = lowering.reduce(name, dot, channels, extents, operands, Vec::new())?;
        lowering.param_grad(weight, reduction)?;
    }
    if let Some(bias) = bias.filter(|bias| lowering.wants(*bias)) {
        let (name, sum) = (at.named("grad_bias"), Reduction::ChannelSum);
        let reduction = lowering.reduce(name, sum, channels, extents, vec![gradient.clone()], Vec::new())?;
        lowering.param_grad(bias, reduction)?;
    }
    let zero = lowering.zeros(channels)?;
    let kind = NodeKind::Compute(Kernel::ChannelAffine { activation: None });
    let params = vec![Param::Network(weight), Param::Derived(zero)];
    lowering.flow(normalised, |lowering| {
        lowering.push(at.named("grad_normalised"), kind, channels, extents, vec![gradient], params)
    })
}
