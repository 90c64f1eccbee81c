//! Batch normalisation in evaluation.

use tiled_graph::{BatchNorm, Op, ParamKind};

use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Image, Value};

pub(super) const BATCH_NORM: &[&str] = &["epsilon", "momentum", "spatial", "training_mode"];

/// ONNX's momentum is the weight of the running statistic, that of a network the weight of the new one.
pub(super) fn batch_norm(site: &mut Site<'_>) -> Result<Value, Reason> {
    site.only("training_mode", 0, 0, "0, evaluation")?;
    site.only("spatial", 1, 1, "1, statistics of channels")?;
    let Image { plan, flat } = site.value(0)?;
    let kept = site.float("momentum", 0.9)?;
    let op = Op::BatchNorm(BatchNorm {
        eps: site.float("epsilon", 1e-5)?,
        // nine digits: 1 − 0.9 is 0.1
        momentum: Some(((1.0 - kept) * 1e9).round() / 1e9),
        affine: true,
        track_running_stats: true,
    });
    let kinds = [ParamKind::Weight, ParamKind::Bias, ParamKind::RunningMean, ParamKind::RunningVar];
    let mut params = Vec::new();
    for (place, kind) in kinds.into_iter().enumerate() {
        params.push((kind, site.constant(place + 1)?));
    }
    let plan = site.add_with(op, plan, params)?;
    Ok(Value::Image(Image { plan, flat }))
}
