//! `linear`: `y[o] = b[o] + Σ w[o, c]·x[c]` over the channels of a value of one pixel, a 1×1 convolution with the same weights.

use serde_json::{Value, json};
use tiled_geometry::Window;
use tiled_kernel::Conv;

use super::check::count;
use super::conv2d::Direction;
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::{InputAxis, Own, weight_and_bias};
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `linear`. Weights are `[out_features, in_features]`.
///
/// ```
/// assert!(tiled_graph::Linear::new(1000).bias);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Output features.
    pub out_features: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

impl Linear {
    /// A linear layer with a bias, PyTorch's default.
    #[must_use]
    pub const fn new(out_features: usize) -> Self {
        Self { out_features, bias: true }
    }
}

pub(super) static FORMAT: Format = Format {
    name: "linear",
    arity: Arity::Exactly(1),
    keys: &["in_features", "out_features", "weight", "bias"],
};

pub(super) fn read(fields: &Fields<'_>) -> Result<Linear, GraphError> {
    let default = Linear::new(fields.required_count("out_features")?);
    Ok(Linear { bias: fields.bias(default.bias)?, ..default })
}

impl Operator for Linear {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"out_features": self.out_features, "bias": self.bias})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        count(&at.place, "out_features", self.out_features).map(|()| self.out_features)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        match known.extents(at.operands[0]) {
            [1, 1] => Ok([1, 1]),
            got => Err(GraphError::NotOnePixel { place: at.place.clone(), got }),
        }
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        let weight = vec![self.out_features, channels];
        weight_and_bias(weight, InputAxis { axis: 1, groups: 1 }, self.bias.then_some(self.out_features))
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (channels, extents, _) = lowering.described(site.x());
        let conv = Conv {
            in_channels: channels,
            out_channels: self.out_features,
            groups: 1,
            windows: [Window::IDENTITY; 2],
            input: extents,
            output: extents,
        };
        Ok(Direction::Forward.lower(lowering, site.name, conv, site.x(), self.bias)?)
    }
}
