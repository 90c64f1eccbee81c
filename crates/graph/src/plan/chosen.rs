//! The plan of what was chosen: everything that a run has to know.

use tiled_kernel::Backend;
use tiled_tensor::{Element, OutOfMemory, collected, refusable, with_room};

use super::build::Prepared;
use super::lanes::{Share, further_lanes, has_ordered_sums};
use super::measure::{Candidate, Measure, Numbers, anchor};
use super::options::host_threads;
use super::slots::most_bytes;
use super::unmeasured::Unmeasured;
use super::{Budget, InMemory, Plan, PlanError, SweepPlan};
use crate::index::IndexVec;
use crate::parts::{Cuts, Parts};
use crate::schedule::{Band, Course};
use crate::sweep::SweepNodeId;

impl Measure<'_, '_> {
    /// The plan of a candidate that takes so much, on the threads that there are.
    pub(super) fn planned<T: Element>(
        &mut self,
        backend: &dyn Backend<T>,
        candidate: Candidate,
        numbers: &Numbers,
        budget: Option<u64>,
    ) -> Result<Plan, PlanError> {
        let numbers = self.on_threads::<T>(backend, &candidate, numbers, budget)?;
        Ok(self.plan::<T>(&[Candidate { share: numbers.share, ..candidate }], &numbers)?)
    }

    /// The numbers of a chosen candidate on the threads that there are: with as many lanes in flight, and as many threads
    /// with scratch, as the budget holds.
    fn on_threads<T: Element>(
        &mut self,
        backend: &dyn Backend<T>,
        Candidate { grid, bands, .. }: &Candidate,
        numbers: &Numbers,
        budget: Option<u64>,
    ) -> Result<Numbers, Unmeasured> {
        if !has_ordered_sums(self.prepared.program()) {
            return Ok(*numbers); // it was chosen for them
        }
        let mut lanes = numbers.share.lanes;
        if self.options.lanes.is_none() {
            let partial_bytes = self.prepared.kept.partial_bytes;
            lanes = further_lanes(lanes, grid.len(), partial_bytes, numbers.memory.total_bytes(), budget);
        }
        let windows = numbers.memory.windows_bytes / numbers.share.in_flight as u64;
        let most = backend.workers(self.options.parallelism.max(1)).max(1);
        let mut fits = |in_flight, threads| {
            let share = Share { lanes, in_flight, threads };
            let chunks = self.chunks(grid, share)?;
            let memory = self.memory(windows, share, &chunks, budget);
            let fits = memory.is_ok_and(|memory| budget.is_none_or(|budget| memory.total_bytes() <= budget));
            Ok::<_, Unmeasured>(fits)
        };
        let (mut in_flight, mut threads) = (lanes.min(most), most);
        while in_flight > 1 && !fits(in_flight, 1)? {
            in_flight -= 1;
        }
        while threads > 1 && !fits(in_flight, threads)? {
            threads -= 1;
        }
        let share = Share { lanes, in_flight: in_flight.min(threads), threads };
        let shares = [share, Share { threads: share.in_flight, ..share }];
        // what was chosen is within the budget, whatever it is told to be
        let limit = budget.filter(|_| !self.prepared.chunked.iter().all(Vec::is_empty));
        let numbers = self.numbers::<T>(backend, grid, *bands, &shares, limit)?;
        let (mut on_all, alone) = (numbers[0], numbers[1]);
        // threads without a lane share the calls that are worth it, and leave the others to those that have one
        if alone.seconds < on_all.seconds {
            (on_all.seconds, on_all.meeting_seconds) = (alone.seconds, alone.meeting_seconds);
        }
        Ok(on_all)
    }

    /// Builds the plan of a candidate that was measured: of one tiling for all sweeps, or of one for each.
    pub(super) fn plan<T: Element>(
        &mut self,
        tilings: &[Candidate],
        numbers: &Numbers,
    ) -> Result<Plan, Unmeasured> {
        let prepared = self.prepared;
        let kept = prepared.kept;
        let mut memory = numbers.memory;
        let sweeps = prepared.sweeps.len();
        let mut stored = with_room(sweeps)?;
        if let [Candidate { grid, bands, share }] = tilings {
            stored = self.stored(grid, *bands, share.in_flight)?;
            match most_bytes::<T>(&stored)?.checked_mul(share.in_flight as u64) {
                Some(windows) if windows <= memory.windows_bytes => memory.windows_bytes = windows,
                // fewer windows, assigned one by one, may take more
                _ => stored = self.stored(grid, *bands, usize::MAX)?,
            }
        } else {
            for (sweep, Candidate { grid, bands, share }) in tilings.iter().enumerate() {
                stored.push(self.stored_of(sweep, grid, *bands, share.in_flight)?);
            }
        }
        let mut flops = 0.0;
        let mut built = with_room(sweeps)?;
        for (sweep, (slots, slot_elements)) in stored.into_iter().enumerate() {
            let Candidate { grid, bands, share } = &tilings[if tilings.len() == 1 { 0 } else { sweep }];
            let (bands, share) = (*bands, *share);
            let rows = self.rows(grid, bands)?;
            let own_bands = self.own_bands(grid, bands)?;
            let chunks = self.chunks(grid, share)?;
            let stored = (slots, slot_elements);
            let (mut calls, mut steps) = (0, 0);
            self.visit_sweep(sweep, grid, bands, &stored, &mut |figures| {
                for node in prepared.sweeps[sweep].ids() {
                    flops += prepared.node_flops(sweep, node, figures.rows[node], figures.cols[node]);
                }
                (calls, steps) = (figures.calls, figures.steps);
            })?;
            let (slots, slot_elements) = stored;
            let parts = |axis| {
                let mut cuts = Cuts::new(grid, axis, anchor(prepared, axis));
                let parts = Parts::new(&prepared.flows[sweep][axis], &mut cuts, usize::MAX)?;
                Ok::<_, OutOfMemory>(parts.expect("invariant: there is no bound"))
            };
            built.push(SweepPlan {
                nodes: prepared.sweeps[sweep].try_clone()?,
                grid: refusable(|| grid.try_clone()).map_err(PlanError::from)?,
                lanes: share.lanes,
                in_flight: share.in_flight,
                band: if bands.tall > 0 {
                    tallest_band(prepared, sweep, &own_bands[sweep])
                } else {
                    bands.rows
                },
                least_rows: bands.least_rows,
                rows: parts(0)?,
                cols: parts(1)?,
                rings: rows[sweep].rings.copied()?,
                bindings: prepared.bindings_of(sweep, share.in_flight)?,
                slots,
                slot_elements,
                chunks: chunks.caches(sweep, &prepared.chunked[sweep], numbers.memory.chunks_bytes)?,
                calls,
                steps,
                course: Course::new(&kept.program, &prepared.sweeps[sweep], own_bands[sweep].copied()?)?,
            });
        }
        Ok(Plan {
            sweeps: built,
            program: kept.program.try_clone()?,
            threads: numbers.share.threads,
            host_threads: host_threads(self.options),
            stores_in_files: kept.in_files,
            store_slots: prepared.stores.0.copied()?,
            partial_slots: prepared.lowered.partials.0.copied()?,
            partial_bytes: prepared.lowered.partials.1.copied()?,
            blocks: prepared.lowered.blocks.copied()?,
            support: collected(prepared.lowered.facts.iter().map(|facts| facts.support().copied()))?.into(),
            releases: collected(prepared.lowered.releases.iter().cloned())?,
            dtype: T::DTYPE,
            memory,
            // the planner says these
            budget: Budget::UNLIMITED,
            in_memory: InMemory::default(),
            transfer_bytes: 0,
            flops,
            redundant_flops: flops - kept.untiled_flops,
            predicted_seconds: numbers.seconds,
            meeting_seconds: numbers.meeting_seconds,
        })
    }
}

/// The rows of a call of the tallest nodes of a sweep.
fn tallest_band(prepared: &Prepared<'_>, sweep: usize, bands: &IndexVec<SweepNodeId, Band>) -> i64 {
    let nodes = prepared.flows[sweep][0].nodes.iter().zip(bands);
    nodes.map(|(node, band)| (node.extent, band.most)).max().map_or(1, |(_, most)| most)
}
