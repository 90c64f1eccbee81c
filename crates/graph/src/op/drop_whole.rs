//! `dropout2d`: whole channels of an image; `stochastic_depth`: whole images or batches. `y = x/(1 − p)` with probability 1 − p, else
//! 0, by the seed and the number of the image and the channel; identity in evaluation.

use serde_json::{Value, json};
use tiled_kernel::{Dropped, Kernel};

use super::check::out_of_range;
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `dropout2d`.
///
/// ```
/// assert_eq!(tiled_graph::Dropout2d::default().p, 0.5);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout2d {
    /// The probability of zeroing a channel of an image in training; in `[0, 1)`.
    pub p: f64,
}

impl Default for Dropout2d {
    /// PyTorch's: `p` 0.5.
    fn default() -> Self {
        Self { p: 0.5 }
    }
}

/// What `stochastic_depth` zeroes as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StochasticDepthMode {
    /// Each image by itself.
    Row,
    /// All images of a batch.
    Batch,
}

/// Attributes of `stochastic_depth`, as in torchvision.
///
/// ```
/// use tiled_graph::{StochasticDepth, StochasticDepthMode};
/// let depth = StochasticDepth { p: 0.2, mode: StochasticDepthMode::Row };
/// assert_eq!(tiled_graph::Op::StochasticDepth(depth).name(), "stochastic_depth");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct StochasticDepth {
    /// The probability of zeroing in training; in `[0, 1)`.
    pub p: f64,
    /// What is zeroed as one.
    pub mode: StochasticDepthMode,
}

pub(super) static DROPOUT2D: Format = Format { name: "dropout2d", arity: Arity::Exactly(1), keys: &["p"] };

pub(super) static STOCHASTIC_DEPTH: Format =
    Format { name: "stochastic_depth", arity: Arity::Exactly(1), keys: &["p", "mode"] };

pub(super) fn read_dropout2d(fields: &Fields<'_>) -> Result<Dropout2d, GraphError> {
    Ok(Dropout2d { p: fields.number("p", Dropout2d::default().p)? })
}

pub(super) fn read_stochastic_depth(fields: &Fields<'_>) -> Result<StochasticDepth, GraphError> {
    fields.require("p")?;
    let choices = [("row", StochasticDepthMode::Row), ("batch", StochasticDepthMode::Batch)];
    let mode = fields.choice("mode", "\"row\" or \"batch\"", &choices, StochasticDepthMode::Row)?;
    Ok(StochasticDepth { p: fields.number("p", 0.0)?, mode })
}

impl Operator for Dropout2d {
    fn format(&self) -> &'static Format {
        &DROPOUT2D
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"p": self.p})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        check(at, self.p)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        drop(lowering, site, self.p, Dropped::Channels)
    }
}

impl Operator for StochasticDepth {
    fn format(&self) -> &'static Format {
        &STOCHASTIC_DEPTH
    }

    fn write(&self, _: &dyn Values) -> Value {
        let mode = match self.mode {
            StochasticDepthMode::Row => "row",
            StochasticDepthMode::Batch => "batch",
        };
        json!({"p": self.p, "mode": mode})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        check(at, self.p)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let dropped = match self.mode {
            StochasticDepthMode::Row => Dropped::Images,
            StochasticDepthMode::Batch => Dropped::Batch,
        };
        drop(lowering, site, self.p, dropped)
    }
}

pub(super) fn check(at: &Applied<'_>, p: f64) -> Result<usize, GraphError> {
    if (0.0..1.0).contains(&p) {
        return Ok(at.channels());
    }
    Err(out_of_range(&at.place, "p", "at least 0 and below 1", p))
}

/// Adds the node, where it trains and drops anything.
pub(super) fn drop(
    lowering: &mut Lowering,
    site: &Site<'_>,
    probability: f64,
    dropped: Dropped,
) -> Result<NodeId, PlanError> {
    if !site.trains || probability == 0.0 {
        return Ok(site.x());
    }
    let seed = lowering.seed ^ (site.value.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let kernel = Kernel::Dropout { probability, seed, dropped };
    Ok(lowering.pointwise(site, kernel, kernel, None)?)
}
