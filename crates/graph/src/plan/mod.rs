//! A plan: what a run will do and what memory it will take, before it runs.

mod binding;
mod bound;
mod budget;
mod build;
mod chosen;
mod chunks;
mod cost;
pub(crate) mod error;
mod explorer;
mod improve_kept;
mod kept;
mod lanes;
mod measure;
mod memory;
mod options;
mod own_tilings;
mod partials;
mod planner;
mod price;
mod refine;
mod release;
mod rows;
mod search;
mod slots;
mod stores;
mod tilings;
mod unmeasured;
mod wave_search;
mod waves;

pub use binding::{Binding, InMemory};
pub use budget::{Budget, BudgetSource, UNLIMITED};
pub use chunks::{ChunkCache, Chunks};
pub use error::PlanError;
pub use memory::Memory;
pub use options::{Hold, PlanOptions, TRANSFER_BYTES, Tiling};
pub use planner::Planner;
pub use release::Release;
pub use slots::SlotId;

use tiled_geometry::{Grid, Region};
use tiled_kernel::{Support, WORTH_SHARING_SECONDS};
use tiled_tensor::{DType, Layout, LayoutError, OutOfMemory};

use crate::index::IndexVec;
use crate::parts::Parts;
use crate::program::{NodeId, Program, ReductionId, StoreId};
use crate::schedule::{Course, Schedule};
use crate::sweep::{Action, Sweep, SweepNodeId};

/// What a run will do: sweeps over the image in tiles, with the memory and the arithmetic that they take.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The nodes.
    pub program: Program,
    /// The passes over the image, in order.
    pub sweeps: Vec<SweepPlan>,
    /// The threads that [`Memory::scratch_bytes`] are for.
    pub threads: usize,
    /// The threads of the host that [`Memory::transfer_bytes`] are for where the host goes ahead of a device
    /// ([`Backend::transfers_beside`](tiled_kernel::Backend::transfers_beside)): no more read and write at a time.
    pub host_threads: usize,
    /// Whether values kept between sweeps lie in files rather than in memory.
    pub stores_in_files: bool,
    /// The memory of each of them, or the file: no sweep needs two of one slot. `None` where no sweep needs it.
    pub store_slots: IndexVec<StoreId, Option<SlotId>>,
    /// The memory of each reduction's sums in every lane: no two of one slot are needed together.
    pub partial_slots: IndexVec<ReductionId, SlotId>,
    /// The bytes of each of these slots in one lane.
    pub partial_bytes: IndexVec<SlotId, usize>,
    /// The channel block of each node's windows.
    pub blocks: IndexVec<NodeId, usize>,
    /// How the backend carries out each node; `None` of sources and sinks.
    pub support: IndexVec<NodeId, Option<Support>>,
    /// The parameters that a run lets go of, in the order in which it packs them before its first sweep.
    pub releases: Vec<Release>,
    /// The element type.
    pub dtype: DType,
    /// The memory of the run.
    pub memory: Memory,
    /// The memory that it was to fit in.
    pub budget: Budget,
    /// The tensors of the caller that have to lie in memory.
    pub in_memory: InMemory,
    /// The most bytes that one of the other sources and sinks may hold for each lane in flight.
    pub transfer_bytes: u64,
    /// The arithmetic of the run, in floating-point operations.
    pub flops: f64,
    /// The part of it that an untiled run, which keeps every value, does not do.
    pub redundant_flops: f64,
    /// The time that the cost model predicts, in seconds.
    pub predicted_seconds: f64,
    /// The part of it that threads take to meet in calls that they share.
    pub meeting_seconds: f64,
}

/// One pass over the image.
#[derive(Clone, Debug)]
pub struct SweepPlan {
    /// The nodes.
    pub nodes: Sweep,
    /// The tiles, over the program's anchor.
    pub grid: Grid<2>,
    /// The shares that the tiles are cut into, each with partial sums of its own. Tile `t` of `n` belongs to lane
    /// `floor(t·lanes/n)`; a lane runs its tiles in order. Results depend on the lanes, not on threads.
    pub lanes: usize,
    /// The lanes that run at a time, each with windows of its own; the others wait until one of these has ended.
    pub in_flight: usize,
    /// The rows that a step advances by, of the tallest node.
    pub band: i64,
    /// The fewest rows of a call that reads weights, but where a tile ends, of a value of up to 64 columns; of wider ones as many fewer.
    pub least_rows: i64,
    /// What each row of tiles needs.
    pub rows: Parts,
    /// What each column of tiles needs.
    pub cols: Parts,
    /// The rows of storage of each node's window; zero for reductions and sinks.
    pub rings: IndexVec<SweepNodeId, i64>,
    /// Where each node's value lies.
    pub bindings: IndexVec<SweepNodeId, Binding>,
    /// The slot that each node's window lies in; several may share one where they are never held together. `None` where
    /// nobody needs a value of it: a convolution whose outputs all lie in its padding.
    pub slots: IndexVec<SweepNodeId, Option<SlotId>>,
    /// The elements of each slot.
    pub slot_elements: IndexVec<SlotId, usize>,
    /// The decoded chunks of the sources that are read in chunks.
    pub chunks: Vec<ChunkCache>,
    /// The calls of kernels, sources and sinks.
    pub calls: u64,
    /// The steps: bands of all tiles.
    pub steps: u64,
    /// What the schedules of all tiles have in common: a run of little to do would take longer to find it than to compute.
    pub(crate) course: Course,
}

impl Plan {
    /// The lanes of the sweep with the most: as many have partial sums.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.sweeps.iter().map(|sweep| sweep.lanes).max().unwrap_or(1)
    }

    /// The lanes in flight of the sweep with the most.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.sweeps.iter().map(|sweep| sweep.in_flight).max().unwrap_or(1)
    }

    /// The most bytes that the run holds: a promise.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.memory.total_bytes()
    }

    /// Whether the run stays on the thread of the caller: to wake another one would take longer than it saves.
    #[must_use]
    pub fn stays_on_caller(&self) -> bool {
        stays_on_caller(self.predicted_seconds - self.meeting_seconds)
    }

    /// The first sweep of the second half, which waits for the gradients of the outputs; `None` where the objective has none
    /// ([`Loss::GradOutputLater`](crate::Loss::GradOutputLater)).
    #[must_use]
    pub fn second_half(&self) -> Option<usize> {
        let level = self.program.second_half?;
        Some((0..self.sweeps.len()).find(|sweep| self.level_of(*sweep) >= level).unwrap_or(self.sweeps.len()))
    }

    /// The level of a sweep's reductions and sinks, or of the cut that it ends with.
    ///
    /// # Panics
    /// Where there is no such sweep.
    #[must_use]
    pub fn level_of(&self, sweep: usize) -> usize {
        let program = &self.program;
        let nodes = self.sweeps[sweep].nodes.iter();
        let ends = nodes.filter(|node| {
            program.nodes[node.node].is_terminal()
                || (node.action == Action::Compute && program.cuts.contains(&node.node))
        });
        ends.map(|node| program.nodes[node.node].level).max().unwrap_or(0)
    }

    /// The bytes that a run between its two halves holds: all but the parameters as they are given and their gradients, what
    /// sources and sinks take, and what the caller holds.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let given = (self.program.params.iter().sum::<usize>() * self.dtype.size_bytes()) as u64;
        let Memory { gradients_bytes, transfer_bytes, chunks_bytes, resident_bytes, .. } = self.memory;
        let others = [given, gradients_bytes, transfer_bytes, chunks_bytes, resident_bytes];
        others.into_iter().fold(self.memory.total_bytes(), u64::saturating_sub)
    }

    /// The elements of storage that the windows of all lanes in flight take, of the sweep with the most.
    #[must_use]
    pub fn window_elements(&self) -> usize {
        let of = |sweep: &SweepPlan| sweep.in_flight * sweep.slot_elements.iter().sum::<usize>();
        self.sweeps.iter().map(of).max().unwrap_or(0)
    }

    /// How often the run reads chunks of its sources, at most, and how many chunks that would be if each sweep read each of its
    /// own once.
    #[must_use]
    pub fn chunk_reads(&self) -> [u64; 2] {
        let caches = self.sweeps.iter().flat_map(|sweep| &sweep.chunks);
        caches.fold([0, 0], |[reads, chunks], cache| [reads + cache.reads, chunks + cache.count])
    }

    /// The tiles of the sweep with the most, or the bands where it slides.
    #[must_use]
    pub fn tiles(&self) -> u64 {
        self.sweeps.iter().map(|sweep| sweep.steps).max().unwrap_or(0)
    }
}

impl SweepPlan {
    /// The region of a node in a tile.
    ///
    /// # Panics
    /// Where there is no such node or tile.
    #[must_use]
    pub fn region(&self, node: SweepNodeId, tile: [usize; 2]) -> Region<2> {
        Region::from_rows_cols(self.rows.part(tile[0]).interval(node), self.cols.part(tile[1]).interval(node))
    }

    /// The layout of a node's window in a tile.
    ///
    /// # Errors
    /// Where it overflows; a plan that was built holds layouts that do not.
    pub fn layout(&self, plan: &Plan, node: SweepNodeId, tile: [usize; 2]) -> Result<Layout, LayoutError> {
        layout(&plan.program, &plan.blocks, self, node, self.region(node, tile))
    }

    /// The bytes of a node's window of so many columns in one lane.
    ///
    /// # Panics
    /// Where the sweep does not have it.
    ///
    /// ```
    /// use tiled_graph::{Graph, Hold, Id, Objective, PlanOptions, Planner, SweepNodeId, infer};
    /// use tiled_kernel::Reference;
    /// let graph = Graph::builtin("seed-001").expect("it is built in");
    /// let shapes = infer(&graph, 1, &[[16, 16]])?;
    /// let options = PlanOptions { hold: Hold::Materialise, ..PlanOptions::default() };
    /// let plan = Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &Reference).plan(&options)?;
    /// // behind the input, a convolution: one channel of 16 rows
    /// assert_eq!(plan.sweeps[0].window_bytes(&plan, SweepNodeId::new(1), 16), 16 * 16 * 4);
    /// # Ok::<(), tiled_graph::PlanError>(())
    /// ```
    #[must_use]
    pub fn window_bytes(&self, plan: &Plan, node: SweepNodeId, cols: i64) -> u64 {
        // rows do not matter: a window stores its ring
        let layout = layout(&plan.program, &plan.blocks, self, node, Region::whole([1, cols]));
        layout.map_or(0, |layout| layout.len()) as u64 * plan.dtype.size_bytes() as u64
    }

    /// The schedule of a row of tiles.
    ///
    /// # Errors
    /// Where memory is refused.
    ///
    /// # Panics
    /// Where `row` is not a row of the grid.
    pub fn schedule(&self, row: usize) -> Result<Schedule<'_>, OutOfMemory> {
        self.course.schedule(self.rows.part(row))
    }

    /// Whether a node has a window.
    #[must_use]
    pub fn has_window(&self, node: SweepNodeId) -> bool {
        self.bindings[node] == Binding::Window
    }
}

/// Whether a run that takes so long, without the time that threads take to meet, is not worth handing over to them: that wakes
/// one of them, and at the end the caller.
fn stays_on_caller(seconds: f64) -> bool {
    seconds < 2.0 * WORTH_SHARING_SECONDS
}

pub(crate) fn layout(
    program: &Program,
    blocks: &IndexVec<NodeId, usize>,
    sweep: &SweepPlan,
    node: SweepNodeId,
    region: Region<2>,
) -> Result<Layout, LayoutError> {
    let ring = usize::try_from(sweep.rings[node].max(1)).unwrap_or(usize::MAX);
    let id = sweep.nodes[node].node;
    let node = &program.nodes[id];
    Layout::new(node.batch, node.channels, blocks[id], region, ring)
}
