//! `local_response_norm`: `y[c] = x[c]·(k + α/size·Σ x[i]²)^(−β)` over the channels i around c, per pixel.

use serde_json::{Value, json};
use tiled_kernel::{Kernel, LocalResponse};

use super::check::{count, out_of_range};
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::lower::unary::Saved;
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `local_response_norm`.
///
/// ```
/// assert_eq!(tiled_graph::LocalResponseNorm::new(5).beta, 0.75);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LocalResponseNorm {
    /// The channels of a window: from `c − size/2` to `c + (size − 1)/2`.
    pub size: usize,
    /// The factor of the mean of squares; at least zero.
    pub alpha: f64,
    /// The exponent; above zero.
    pub beta: f64,
    /// What the sum begins with; above zero.
    pub k: f64,
}

impl LocalResponseNorm {
    /// Over so many channels; the rest as PyTorch: `alpha` 1e-4, `beta` 0.75, `k` 1.
    #[must_use]
    pub const fn new(size: usize) -> Self {
        Self { size, alpha: 1e-4, beta: 0.75, k: 1.0 }
    }
}

pub(super) static FORMAT: Format =
    Format { name: "local_response_norm", arity: Arity::Exactly(1), keys: &["size", "alpha", "beta", "k"] };

pub(super) fn read(fields: &Fields<'_>) -> Result<LocalResponseNorm, GraphError> {
    let default = LocalResponseNorm::new(fields.required_count("size")?);
    Ok(LocalResponseNorm {
        alpha: fields.number("alpha", default.alpha)?,
        beta: fields.number("beta", default.beta)?,
        k: fields.number("k", default.k)?,
        ..default
    })
}

impl Operator for LocalResponseNorm {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"size": self.size, "alpha": self.alpha, "beta": self.beta, "k": self.k})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        count(&at.place, "size", self.size)?;
        if !(self.alpha.is_finite() && self.alpha >= 0.0) {
            return Err(out_of_range(&at.place, "alpha", "a finite number of at least 0", self.alpha));
        }
        // a power of a sum that may be zero or negative has no value, or no gradient
        for (key, value) in [("beta", self.beta), ("k", self.k)] {
            if !(value.is_normal() && value > 0.0) {
                return Err(out_of_range(&at.place, key, "a finite number above 0", value));
            }
        }
        Ok(at.channels())
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let Self { size, alpha, beta, k } = *self;
        let local = LocalResponse { size, alpha, beta, k };
        let (kernel, gradient) = (Kernel::LocalResponse(local), Kernel::LocalResponseBackward(local));
        Ok(lowering.pointwise(site, kernel, gradient, Some(Saved::Operand))?)
    }
}
