//! A plan as JSON, written as it is walked.

use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};
use tiled_graph::{ChunkCache, Memory, SweepPlan};

use super::facts::{Facts, Holding, band_rows};
use super::{Description, steps};

impl Serialize for Description<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plan = self.plan;
        let mut map = serializer.serialize_struct("Plan", 13)?;
        map.serialize_field("dtype", plan.dtype.name())?;
        map.serialize_field("lanes", &plan.lanes())?;
        map.serialize_field("in_flight", &plan.in_flight())?;
        map.serialize_field("tiles", &plan.tiles())?;
        map.serialize_field("plan_peak_bytes", &plan.peak_bytes())?;
        map.serialize_field("memory", &Parts(plan.memory))?;
        map.serialize_field("stores_in_files", &plan.stores_in_files)?;
        map.serialize_field("flops", &plan.flops)?;
        map.serialize_field("redundant_flops", &plan.redundant_flops)?;
        map.serialize_field("predicted_seconds", &plan.predicted_seconds)?;
        map.serialize_field("calls", &plan.sweeps.iter().map(|sweep| sweep.calls).sum::<u64>())?;
        map.serialize_field("steps", &plan.sweeps.iter().map(|sweep| sweep.steps).sum::<u64>())?;
        map.serialize_field("sweeps", &Sweeps(*self))?;
        map.end()
    }
}

/// The bytes of each part.
struct Parts(Memory);

impl Serialize for Parts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts = self.0.parts();
        let mut map = serializer.serialize_map(Some(parts.len()))?;
        for (name, bytes) in parts {
            map.serialize_entry(&format!("{name}_bytes"), &bytes)?;
        }
        map.end()
    }
}

struct Sweeps<'a>(Description<'a>);

impl Serialize for Sweeps<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.plan.sweeps.len()))?;
        for sweep in &self.0.plan.sweeps {
            list.serialize_element(&OneSweep { description: self.0, sweep })?;
        }
        list.end()
    }
}

struct OneSweep<'a> {
    description: Description<'a>,
    sweep: &'a SweepPlan,
}

impl Serialize for OneSweep<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (plan, sweep) = (self.description.plan, self.sweep);
        let bytes = |elements: &usize| (elements * plan.dtype.size_bytes()) as u64;
        let nodes = Facts::all(plan, sweep);
        let mut map = serializer.serialize_struct("Sweep", 12)?;
        map.serialize_field("hold", &Holding::of(sweep))?;
        map.serialize_field("grid", &Tiles { extents: sweep.grid.extents(), counts: sweep.grid.counts() })?;
        map.serialize_field("lanes", &sweep.lanes)?;
        map.serialize_field("in_flight", &sweep.in_flight)?;
        map.serialize_field("band_rows", &band_rows(plan, sweep))?;
        map.serialize_field("least_rows", &sweep.least_rows)?;
        map.serialize_field("calls", &sweep.calls)?;
        map.serialize_field("step_count", &sweep.steps)?;
        map.serialize_field("slot_bytes", &sweep.slot_elements.iter().map(bytes).collect::<Vec<u64>>())?;
        map.serialize_field("chunks", &Caches { description: self.description, sweep })?;
        map.serialize_field("nodes", &nodes)?;
        map.serialize_field("steps", &Steps { description: self.description, sweep })?;
        map.end()
    }
}

/// The sources that are read in chunks.
struct Caches<'a> {
    description: Description<'a>,
    sweep: &'a SweepPlan,
}

/// What a sweep holds of a source in chunks, and how often it reads one.
#[derive(Serialize)]
struct Cache<'a> {
    name: &'a str,
    shape: [usize; 2],
    held: usize,
    reads: u64,
    count: u64,
}

impl Serialize for Caches<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.sweep.chunks.len()))?;
        for cache in &self.sweep.chunks {
            let name = &self.description.plan.program.nodes[self.sweep.nodes[cache.node].node].name;
            let shape = cache.chunks.shape();
            let ChunkCache { slots: held, reads, count, .. } = *cache;
            list.serialize_element(&Cache { name, shape, held, reads, count })?;
        }
        list.end()
    }
}

/// The tiles of a sweep, over the plan's anchor.
#[derive(Serialize)]
struct Tiles {
    extents: [i64; 2],
    counts: [usize; 2],
}

struct Steps<'a> {
    description: Description<'a>,
    sweep: &'a SweepPlan,
}

impl Serialize for Steps<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let limit = self.description.detail.limit();
        steps::visit(self.description.plan, self.sweep, limit, |step| list.serialize_element(step))?;
        list.end()
    }
}
