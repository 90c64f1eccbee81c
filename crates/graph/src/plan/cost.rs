//! The predicted time of a sweep.
//!
//! ```text
//! time = (Σ max(flops / (peak · share), spilled bytes / spilled) + weights · calls / weight bandwidth      convolutions
//!         + Σ bytes / bandwidth + spilled bytes / spilled) · imbalance / cores                             all others
//!        + calls · overhead
//! ```
//!
//! Convolutions are bound by arithmetic, everything else by the bytes that it touches; both are slower where the cache of a
//! core does not hold their windows. Where the last cache does not hold the windows of all lanes, what a layer writes comes
//! back from memory: convolutions fetch it beside their arithmetic, the others wait for it. The figures are the backend's
//! ([`Costs`](tiled_kernel::Costs)).

use tiled_kernel::Kernel;

use super::build::Prepared;
use super::lanes::Share;
use super::measure::SweepFigures;

/// How much longer a convolution takes where the cache of its core does not hold what it reads: taps come back to a row.
const FAR_TAPS: f64 = 0.08;

/// The predicted time of a sweep whose tiles are shared out like this, in seconds: that of its work, and that which threads
/// take beside it to meet in calls that they share.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
pub(super) fn predict(
    prepared: &Prepared<'_>,
    figures: &SweepFigures<'_>,
    share: Share,
    element: usize,
) -> [f64; 2] {
    let costs = &prepared.lowered.costs;
    let Share { lanes, in_flight, threads } = share;
    let windows: f64 = figures.slot_elements.iter().map(|elements| (elements * element) as f64).sum();
    let spilled = costs.spilled_share(windows * in_flight as f64);
    let (cores, calls) = (threads as f64, figures.calls as f64);
    // each of the threads that share a call reads the weights
    let readers = if in_flight < threads { cores } else { 1.0 };
    let work = work(prepared, figures, spilled, readers, element);
    if in_flight < threads {
        return [work / cores, calls * costs.shared_call];
    }
    // who runs the most tiles ends last; the others help with its convolutions alone
    let most = figures.tiles.div_ceil(lanes) * lanes.div_ceil(in_flight) * in_flight;
    let imbalance = f64::midpoint(1.0, most as f64 / figures.tiles as f64);
    [work * imbalance / cores + calls * costs.call / cores, 0.0]
}

/// The time that the work of a sweep takes one core, where this share of its windows spills and so many threads read the
/// weights of each call.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
pub(super) fn work(
    prepared: &Prepared<'_>,
    figures: &SweepFigures<'_>,
    spilled: f64,
    readers: f64,
    element: usize,
) -> f64 {
    let common = Common { element: element as f64, spilled, readers };
    let readings = &prepared.readings[figures.sweep];
    let mut begin = 0;
    let mut work = 0.0;
    for (place, reading) in readings.nodes.iter().enumerate() {
        let operands = &readings.operands[begin..reading.end as usize];
        begin = reading.end as usize;
        work += node_seconds(prepared, figures, place, operands, &common);
    }
    work
}

/// What the nodes of a sweep have in common.
struct Common {
    /// The bytes of an element.
    element: f64,
    /// The share of the windows that the last cache does not hold.
    spilled: f64,
    /// The threads that read the weights of a call.
    readers: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a model of time")]
#[inline]
fn node_seconds(
    prepared: &Prepared<'_>,
    figures: &SweepFigures<'_>,
    place: usize,
    operands: &[u32],
    common: &Common,
) -> f64 {
    let Common { element, spilled, readers } = *common;
    let (rows, cols) = (figures.rows[place], figures.cols[place]);
    let costs = &prepared.lowered.costs;
    let reading = &prepared.readings[figures.sweep].nodes[place];
    let facts = &prepared.lowered.facts[reading.node as usize];
    let bytes = facts.planes * rows as f64 * cols as f64 * element;
    // written once and read again by each consumer
    let spilling = if reading.is_terminal { 0.0 } else { 2.0 * bytes * spilled / costs.spilled };
    let size = |slot: u32| figures.slot_elements[slot as usize] as f64 * element;
    let read: f64 = operands.iter().filter_map(|operand| figures.slots[*operand as usize]).map(size).sum();
    let far = costs.far_share(read + figures.slots[place].map_or(0.0, size));
    if reading.moves {
        // whole rows follow one another in memory: a run for each band
        let runs =
            if figures.strips > 1 { rows as f64 * figures.strips as f64 } else { figures.steps as f64 };
        return bytes / costs.transfer * (1.0 + far) + facts.planes * runs * costs.run + spilling;
    }
    if let Some(share) = facts.share {
        let flops = facts.flops * rows as f64 * cols as f64;
        let calls = figures.bands[place] as f64 * figures.strips as f64;
        let weights = facts.weights * element * calls;
        let arithmetic = flops / (costs.flops * share) * (1.0 + FAR_TAPS * costs.far_share(read));
        // what they fetch from memory they fetch ahead, beside their arithmetic
        return arithmetic.max(spilling) + readers * weights / costs.weights;
    }
    let touched = if reading.is_terminal { 1.0 } else { 1.0 + operands.len() as f64 };
    touched * bytes / costs.bytes * (1.0 + far) + spilling
}

/// The elements of weights that each call of a kernel reads anew. Small ones stay in a nearer cache, but count for little.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
pub(super) fn weight_elements(kernel: &Kernel) -> f64 {
    match kernel {
        Kernel::Conv2d { conv, .. } | Kernel::Conv2dBackwardInput { conv, .. } => conv.weight_len() as f64,
        // 36 numbers for each filter of 9
        Kernel::Conv2dWinograd { conv, .. } => 4.0 * conv.weight_len() as f64,
        Kernel::ConvThen { conv, .. } => weight_elements(conv),
        _ => 0.0,
    }
}
