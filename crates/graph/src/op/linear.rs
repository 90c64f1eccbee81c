//! `linear`: `y[o] = b[o] + Σ w[o, c·H·W + i·W + j]·x[c, i, j]` over all of a value: a convolution with the same weights whose
//! kernel is as large as the image.

use serde_json::{Value, json};
use tiled_geometry::Window;
use tiled_kernel::Conv;

use super::check::{count, weight};
use super::conv2d::Direction;
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::{InputAxis, Own, weight_and_bias};
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `linear`. Weights are `[out_features, in_features]`, as in PyTorch behind a `Flatten`.
///
/// ```
/// assert!(tiled_graph::Linear::new(1000).bias);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Output features.
    pub out_features: usize,
    /// The features that it reads, channels times pixels; `None` where there is one pixel, so that they are the channels.
    pub in_features: Option<usize>,
    /// Whether there is a bias.
    pub bias: bool,
}

impl Linear {
    /// A linear layer with a bias, PyTorch's default.
    #[must_use]
    pub const fn new(out_features: usize) -> Self {
        Self { out_features, in_features: None, bias: true }
    }
}

pub(super) static FORMAT: Format = Format {
    name: "linear",
    arity: Arity::Exactly(1),
    keys: &["in_features", "out_features", "weight", "bias"],
};

pub(super) fn read(fields: &Fields<'_>) -> Result<Linear, GraphError> {
    let default = Linear::new(fields.required_count("out_features")?);
    Ok(Linear { in_features: fields.count("in_features")?, bias: fields.bias(default.bias)?, ..default })
}

impl Operator for Linear {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        match self.in_features {
            None => json!({"out_features": self.out_features, "bias": self.bias}),
            Some(features) => {
                json!({"in_features": features, "out_features": self.out_features, "bias": self.bias})
            }
        }
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        let channels = at.channels();
        let features = self.in_features.unwrap_or(channels);
        count(&at.place, "in_features", features)?;
        if !features.is_multiple_of(channels) {
            let (place, what) = (at.place.clone(), "in_features");
            return Err(GraphError::Channels { place, what, expected: features, got: channels });
        }
        count(&at.place, "out_features", self.out_features)?;
        weight(&at.place, [self.out_features, features, 1, 1])?;
        Ok(self.out_features)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        let (channels, got) = (at.channels(), known.extents(at.operands[0]));
        let features = got.iter().try_fold(channels, |product, extent| product.checked_mul(*extent));
        match self.in_features {
            None if got != [1, 1] => Err(GraphError::NotOnePixel { place: at.place.clone(), got }),
            Some(expected) if features != Some(expected) => {
                let (place, got) = (at.place.clone(), [channels, got[0], got[1]]);
                Err(GraphError::Features { place, expected, got })
            }
            _ => Ok([1, 1]),
        }
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        let weight = vec![self.out_features, self.in_features.unwrap_or(channels)];
        weight_and_bias(weight, InputAxis { axis: 1, groups: 1 }, self.bias.then_some(self.out_features))
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (channels, extents, _) = lowering.described(site.x());
        let conv = Conv {
            in_channels: channels,
            out_channels: self.out_features,
            groups: 1,
            windows: [Window::new(extents[0], 1, 1, 0)?, Window::new(extents[1], 1, 1, 0)?],
            input: extents,
            output: [1, 1],
        };
        Ok(Direction::Forward.lower(lowering, site.name, conv, site.x(), self.bias)?)
    }
}
