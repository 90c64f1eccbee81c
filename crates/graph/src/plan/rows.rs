//! What the rows of tiles take, walked once for each height of tiles and band.

use tiled_geometry::div_ceil;
use tiled_tensor::{OutOfMemory, with_room};

use super::slots::Spans;
use crate::flow::Flow;
use crate::index::IndexVec;
use crate::parts::Parts;
use crate::schedule::repeat::{Stop, Walk, Walker};
use crate::schedule::{Band, least_calls};
use crate::sweep::SweepNodeId;

/// What the rows of the tiles of one sweep take, for one band.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) rings: IndexVec<SweepNodeId, i64>,
    pub(super) spans: Spans,
    pub(super) calls: u64,
    pub(super) steps: u64,
    /// The bands of each node.
    pub(super) bands: IndexVec<SweepNodeId, i64>,
}

impl Rows {
    /// Walks the rows of the tiles of all sweeps in the bands of their nodes, and counts the calls that it
    /// takes down from those that it may.
    pub(super) fn walk(
        flows: &[[Flow; 2]],
        heights: &[Parts],
        bands: &[IndexVec<SweepNodeId, Band>],
        calls_left: &mut u64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Self>, Stop> {
        let mut ready = with_room(flows.len())?;
        let mut rest = 0_u64;
        for (([flow, _], parts), bands) in flows.iter().zip(heights).zip(bands) {
            let least = least(flow, parts, bands)?;
            rest = rest.saturating_add(least);
            if rest > *calls_left {
                return Err(Stop::TooLong); // it would be found later
            }
            ready.push((flow, parts, bands, least));
        }
        let mut all = with_room(flows.len())?;
        for (flow, parts, bands, least) in ready {
            rest -= least;
            all.push(Self::of(flow, parts, bands, calls_left, rest, is_cancelled)?);
        }
        Ok(all)
    }

    /// Those of one sweep, where at least `rest` calls are to be left.
    fn of(
        flow: &Flow,
        parts: &Parts,
        own: &IndexVec<SweepNodeId, Band>,
        calls_left: &mut u64,
        rest: u64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Self, Stop> {
        let mut rows = Self {
            rings: IndexVec::filled(flow.len(), 0)?,
            spans: Spans::default(),
            calls: 0,
            steps: 0,
            bands: IndexVec::filled(flow.len(), 0)?,
        };
        for (demand, count) in parts.classes()? {
            let most = calls_left.checked_sub(rest).ok_or(Stop::TooLong)?;
            let walk = Walk::of(flow, demand, own, Walker { most, skips: true, is_cancelled })?;
            *calls_left = calls_left.saturating_sub(walk.walked);
            for (ring, walked) in rows.rings.iter_mut().zip(&walk.rings) {
                *ring = (*ring).max(*walked);
            }
            rows.calls += walk.calls * count.unsigned_abs();
            rows.steps += walk.steps * count.unsigned_abs();
            for ((bands, interval), own) in rows.bands.iter_mut().zip(demand.intervals()).zip(own) {
                let len = interval.end() - interval.begin();
                let of_part = if len <= own.most { len.min(1) } else { div_ceil(len, own.most) };
                *bands += of_part * count;
            }
            rows.spans.add(walk.spans.into())?;
        }
        Ok(rows)
    }
}

/// A number of calls that the walks of a sweep take at least.
fn least(flow: &Flow, parts: &Parts, bands: &IndexVec<SweepNodeId, Band>) -> Result<u64, OutOfMemory> {
    let mut calls = 0_u64;
    for (demand, _) in parts.classes()? {
        calls = calls.saturating_add(least_calls(flow, demand.intervals(), bands)?);
    }
    Ok(calls)
}
