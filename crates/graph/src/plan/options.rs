//! What a caller may ask of a plan.

use tiled_tensor::{OutOfMemory, copied};

use super::{Chunks, InMemory};
use crate::ValueId;
use crate::program::SourceRole;

/// How the values of a sweep are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Hold {
    /// The planner chooses.
    #[default]
    Auto,
    /// Windows of a few rows slide down the image, in strips of columns; rows are computed once.
    Slide,
    /// Every tile computes its whole region; overlaps are computed again.
    Recompute,
    /// Whole tensors in memory: the untiled run.
    Materialise,
}

/// The bytes that a source or sink may hold for each lane in flight, or each of [`Plan::host_threads`](crate::Plan::host_threads), while it
/// converts elements, where nothing is known of it.
pub const TRANSFER_BYTES: u64 = 256 << 10;

/// The tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Tiling {
    /// The planner chooses.
    #[default]
    Auto,
    /// Tiles of this height and width of the first output; clamped to it. Where windows slide: strips of this
    /// width, steps of this height.
    Tile([i64; 2]),
    /// This many rows and columns of tiles.
    Grid([i64; 2]),
}

/// What a caller may ask of a plan. The default asks for the fastest one that the memory of the machine holds.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOptions {
    /// The most bytes that the run may hold: by default what can be had when the plan is made ([`Budget::available`](crate::Budget::available)), and any number
    /// with [`UNLIMITED`](crate::UNLIMITED).
    pub memory_bytes: Option<u64>,
    /// The tiles.
    pub tiling: Tiling,
    /// How values are held.
    pub hold: Hold,
    /// The rows of the tallest node that a sliding plan advances by in a step; by default the planner chooses, or
    /// takes the rows of [`PlanOptions::tiling`].
    pub band: Option<i64>,
    /// The fewest rows that a call which reads weights computes where windows slide, of a value of up to 64 columns, and of wider ones as many fewer: so
    /// weights are not read again for each row of a small value. By default the planner chooses, or takes one where [`PlanOptions::tiling`] or [`PlanOptions::band`] is given.
    pub least_rows: Option<i64>,
    /// The lanes that tiles are shared out to ([`crate::Plan::lanes`]); by default the planner chooses. Gradients of
    /// convolution weights depend on them in their last bits, and so what it chooses for these does not follow
    /// [`PlanOptions::parallelism`].
    pub lanes: Option<usize>,
    /// The cores to plan for: as many lanes run at a time, each with windows of its own.
    pub parallelism: usize,
    /// Bytes that the caller holds beside the run and that count towards the budget: decoded pictures, the
    /// state of an optimiser.
    pub resident_bytes: u64,
    /// Whether a run may let go of parameters once they are packed ([`Parameters::is_released`](crate::Parameters::is_released)), so that memory holds
    /// most of them once. Whoever runs the plan has no other use for them: only executors of such
    /// plans that have packed them run with what is left. It keeps them where gradients with respect to parameters are wanted, where it has two
    /// halves ([`Plan::second_half`](crate::Plan::second_half)), and on a device with memory of its own.
    pub releases_parameters: bool,
    /// The tensors of the caller that lie in memory.
    pub in_memory: InMemory,
    /// The most bytes that one of the other sources and sinks may hold for each lane in flight, or each of
    /// [`Plan::host_threads`](crate::Plan::host_threads); [`TRANSFER_BYTES`] by default.
    pub transfer_bytes: u64,
    /// The sources that are read in chunks: inputs, gradients of outputs, and a target that is not of class numbers. What a run is then
    /// given has these chunks.
    pub chunks: Vec<(SourceRole, Chunks)>,
    /// Whether values that are kept between sweeps may lie in temporary files where memory does not hold them.
    pub temporary_files: bool,
    /// Whether convolutions that [`Conv::suits_winograd`](tiled_kernel::Conv::suits_winograd) run as
    /// [`Algorithm::Winograd`](tiled_kernel::Algorithm::Winograd): faster, with other roundings. Kernels of gradients stay sums. Scratch memory
    /// is for [`PlanOptions::parallelism`] threads, and no more will run the plan.
    pub winograd: bool,
    /// Values kept whole, after which a segment ends; by default the planner chooses. None ends after what an operator leaves as it is
    /// (dropout in evaluation) of a value that others read too.
    pub checkpoints: Option<Vec<ValueId>>,
}

impl PlanOptions {
    /// The same, of another memory.
    pub(super) fn within(&self, memory_bytes: Option<u64>) -> Result<Self, OutOfMemory> {
        let checkpoints = self.checkpoints.as_deref().map(copied).transpose()?;
        let chunks = copied(&self.chunks)?;
        let Self {
            tiling,
            hold,
            band,
            least_rows,
            lanes,
            parallelism,
            resident_bytes,
            releases_parameters,
            in_memory,
            transfer_bytes,
            temporary_files,
            winograd,
            ..
        } = *self;
        Ok(Self {
            memory_bytes,
            tiling,
            hold,
            band,
            least_rows,
            lanes,
            parallelism,
            resident_bytes,
            releases_parameters,
            in_memory,
            transfer_bytes,
            chunks,
            temporary_files,
            winograd,
            checkpoints,
        })
    }
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            tiling: Tiling::Auto,
            hold: Hold::Auto,
            band: None,
            least_rows: None,
            lanes: None,
            parallelism: 1,
            resident_bytes: 0,
            releases_parameters: false,
            in_memory: InMemory::default(),
            transfer_bytes: TRANSFER_BYTES,
            chunks: Vec::new(),
            temporary_files: false,
            winograd: false,
            checkpoints: None,
        }
    }
}

/// More threads than these copy no faster.
const MOST_HOST_THREADS: usize = 16;

/// The threads of the host that read and write for a device.
pub(super) fn host_threads(options: &PlanOptions) -> usize {
    options.parallelism.clamp(1, MOST_HOST_THREADS)
}
