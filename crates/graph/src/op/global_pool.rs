//! `global_avg_pool`: `y = Σ x[i, j]/(h·w)`; `global_sum_pool`: `y = Σ x[i, j]`; `global_max_pool`: `y = max x[i, j]`, over the image.

use serde_json::Value;
use tiled_geometry::AxisMap;
use tiled_kernel::{Kernel, Reduction};
use tiled_tensor::OutOfMemory;

use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::lower::builder::{Flowing, Lowering, Site, edge, extent, identity, lossless, pixels};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::{Finaliser, NodeId, NodeKind, Param, PixelId, ReductionId, SourceRole};
use crate::shapes::Shapes;

/// What it makes of an image; none has attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GlobalPool {
    Mean,
    Sum,
    Max,
}

pub(super) static AVG: Format = Format { name: "global_avg_pool", arity: Arity::Exactly(1), keys: &[] };

pub(super) static MAX: Format = Format { name: "global_max_pool", arity: Arity::Exactly(1), keys: &[] };

pub(super) static SUM: Format = Format { name: "global_sum_pool", arity: Arity::Exactly(1), keys: &[] };

impl Operator for GlobalPool {
    fn format(&self) -> &'static Format {
        match self {
            Self::Mean => &AVG,
            Self::Sum => &SUM,
            Self::Max => &MAX,
        }
    }

    fn write(&self, _: &dyn Values) -> Value {
        Value::Null
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        Ok(at.channels())
    }

    fn extents(&self, _: &Applied<'_>, _: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok([1, 1])
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (name, x) = (site.name, site.x());
        match self {
            Self::Mean | Self::Sum => {
                let (reduction, pixel) = reduce(lowering, name, Reduction::ImageSum, x)?;
                let is_mean = *self == Self::Mean;
                let count = if is_mean { pixels(lowering.program.nodes[x].extents) } else { 1 };
                lowering.finalise(reduction, Finaliser::GlobalMean { reduction, count, pixel })?;
                let node = source(lowering, name, x, reduction, pixel)?;
                let scale = if is_mean { share(lowering, x) } else { 1.0 };
                lowering.record(name, node, move |lowering, at| {
                    spread(lowering, at, x, Kernel::Broadcast { scale }, Vec::new())
                })?;
                Ok(node)
            }
            Self::Max => {
                let (reduction, pixel) = reduce(lowering, name, Reduction::ImageMax, x)?;
                lowering.finalise(reduction, Finaliser::GlobalMax { reduction, pixel })?;
                let node = source(lowering, name, x, reduction, pixel)?;
                lowering.record(name, node, move |lowering, at| {
                    spread(lowering, at, x, Kernel::Scatter, vec![Param::Extrema(reduction)])
                })?;
                Ok(node)
            }
        }
    }
}

/// Adds a reduction over the image; returns it and the value of one pixel that it becomes.
fn reduce(
    lowering: &mut Lowering,
    name: &str,
    reduction: Reduction,
    x: NodeId,
) -> Result<(ReductionId, PixelId), OutOfMemory> {
    let (channels, extents, _) = lowering.described(x);
    let (what, operand) = (format!("{name}.{}", reduction.name()), identity(x, extents));
    let id = lowering.reduce(what, reduction, channels, extents, vec![operand], Vec::new())?;
    Ok((id, lowering.program.pixels.push([lowering.batch, channels])?))
}

/// The source of a value of one pixel that a reduction becomes.
fn source(
    lowering: &mut Lowering,
    name: &str,
    x: NodeId,
    reduction: ReductionId,
    pixel: PixelId,
) -> Result<NodeId, OutOfMemory> {
    let channels = lowering.program.nodes[x].channels;
    let level = lowering.program.nodes[lowering.program.reductions[reduction].node].level + 1;
    let node = lowering.source(name.to_owned(), SourceRole::Pixel(pixel), channels, [1, 1], level)?;
    lowering.wants_grad[node] = lowering.wants_grad[x];
    Ok(node)
}

/// The share that a pixel has in the mean.
fn share(lowering: &Lowering, x: NodeId) -> f64 {
    let (_, extents, _) = lowering.described(x);
    let [height, width] = extents.map(|side| lossless(extent(side)));
    1.0 / (height * width)
}

/// Every pixel of the operand's gradient reads the one of the result's.
fn spread(
    lowering: &mut Lowering,
    at: &Flowing<'_>,
    x: NodeId,
    kernel: Kernel,
    params: Vec<Param>,
) -> Result<(), OutOfMemory> {
    let (channels, extents, _) = lowering.described(x);
    let operand = edge(at.gradient, [AxisMap::Whole(1); 2], [1, 1]);
    lowering.flow(x, |lowering| {
        let kind = NodeKind::Compute(kernel);
        lowering.push(at.named("grad_input"), kind, channels, extents, vec![operand], params)
    })
}
