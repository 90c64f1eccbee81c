//! Plans: what a run will do and the memory that it will take.

use std::ffi::c_char;
use std::ops::Deref;
use std::sync::Arc;

use tiled::explain::{Explain, StepDetail};
use tiled::graph::program::SourceRole;
use tiled::graph::{
    BudgetSource, Chunks, Hold, Id, InMemory, Plan, PlanOptions, Planner, SweepNodeId, Tiling, infer_nchw,
};
use tiled::tensor::{collected, with_room};

use crate::engine::{Engine, Real, tiled_engine};
use crate::geometry::tiled_region;
use crate::graph::{shapes, tiled_graph};
use crate::grid::tile_index;
use crate::guard::guard;
use crate::handle::{self, Opaque};
use crate::io::{chunk_shape, transfer_bytes};
use crate::logger;
use crate::objective::tiled_objective;
use crate::pointer::{Extensible, Output, TextOutput, array, extensible_or_initial, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};
use crate::tensor::with_element;

/// What a run will do: passes over the image in tiles, with the memory and the arithmetic that they take.
///
/// Immutable; `const` handles may be shared by threads.
#[derive(Debug)]
pub struct tiled_plan {
    _opaque: (),
}

impl Opaque for tiled_plan {
    type Object = Planned;
    const KIND: usize = 5;
    const NAME: &'static str = "plan";
}

/// The planner chooses.
pub const TILED_HOLD_AUTO: i32 = 0;
/// Windows of a few rows slide down the image; rows are computed once.
pub const TILED_HOLD_SLIDE: i32 = 1;
/// Every tile computes its whole region; overlaps are computed again.
pub const TILED_HOLD_RECOMPUTE: i32 = 2;
/// Whole tensors in memory: the untiled run.
pub const TILED_HOLD_MATERIALISE: i32 = 3;

/// Lines for a terminal.
pub const TILED_EXPLAIN_TEXT: i32 = 1;
/// A JSON document, for programs: passes and nodes, without single steps.
pub const TILED_EXPLAIN_JSON: i32 = 2;
/// An SVG picture of tiles, regions and memory.
pub const TILED_EXPLAIN_SVG: i32 = 3;

/// As `memory_bytes` of `tiled_plan_options`: any number of bytes.
pub const TILED_MEMORY_UNLIMITED: u64 = u64::MAX;

/// `memory_bytes` of `tiled_plan_options` set the budget.
pub const TILED_BUDGET_GIVEN: i32 = 1;
/// `TILED_MEMORY_UNLIMITED`: there is none.
pub const TILED_BUDGET_UNLIMITED: i32 = 2;
/// What of the machine's memory was free or could be freed.
pub const TILED_BUDGET_FREE_MEMORY: i32 = 3;
/// What a control group of the process, a container's for one, had left.
pub const TILED_BUDGET_CONTROL_GROUP: i32 = 4;
/// What the limit of the process's addresses left, `ulimit -v`.
pub const TILED_BUDGET_ADDRESS_SPACE: i32 = 5;
/// What the limit of the process's data left, `ulimit -d`.
pub const TILED_BUDGET_DATA_SIZE: i32 = 6;
/// What the machine could still promise where it promises no more than it has.
pub const TILED_BUDGET_COMMITMENT: i32 = 7;
/// 4 GiB, because the system does not say what is free.
pub const TILED_BUDGET_ASSUMED: i32 = 8;

/// As part of `in_memory` of `tiled_plan_options`: all inputs.
pub const TILED_IN_MEMORY_INPUTS: u32 = 1;
/// The target of the loss.
pub const TILED_IN_MEMORY_TARGET: u32 = 2;
/// The gradients of all outputs.
pub const TILED_IN_MEMORY_GRAD_OUTPUTS: u32 = 4;
/// All outputs.
pub const TILED_IN_MEMORY_OUTPUTS: u32 = 8;
/// The gradients of all inputs.
pub const TILED_IN_MEMORY_GRAD_INPUTS: u32 = 16;

/// As `source` of `tiled_chunks`: an input of the network.
pub const TILED_CHUNKS_INPUT: i32 = 0;
/// The target of the loss, where it is not of class numbers.
pub const TILED_CHUNKS_TARGET: i32 = 1;
/// The gradient with respect to an output.
pub const TILED_CHUNKS_GRAD_OUTPUT: i32 = 2;

/// A source that a run reads in chunks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_chunks {
    /// Which source it is, `TILED_CHUNKS_…`.
    pub source: i32,
    /// The type of its elements, `TILED_DTYPE_…`.
    pub dtype: i32,
    /// The number of the input or output, from 0.
    pub index: usize,
    /// Rows and columns of a chunk.
    pub shape: [i64; 2],
}

/// What may be asked of a plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_plan_options {
    /// The size of the struct, as `tiled_plan_options_init` sets it.
    pub struct_size: u32,
    /// One of `TILED_HOLD_…`.
    pub hold: i32,
    /// The most bytes that the run may hold; 0 for what can be had when the plan is made, `TILED_MEMORY_UNLIMITED` for any. More than a
    /// GPU has is `TILED_STATUS_BUDGET`.
    pub memory_bytes: u64,
    /// Height and width of a tile of the first output; both 0 for what the planner or `grid` says.
    pub tile: [i64; 2],
    /// Rows and columns of tiles; both 0 for what the planner or `tile` says.
    pub grid: [i64; 2],
    /// The tiles that may run at a time; 0 for what the planner says.
    pub lanes: u32,
    /// The cores to plan for; 0 for the engine's threads.
    pub parallelism: u32,
    /// Bytes that the caller holds beside the run and that count towards the budget.
    pub resident_bytes: u64,
    /// Not zero where convolutions 3×3 of stride one, of one group with 16 channels and more, run by Winograd's
    /// filtering, on a CPU dilated ones too: faster, the same bits for every tiling, other roundings than the sums. Kernels of gradients stay sums.
    pub winograd: i32,
    /// The tensors that lie in memory without gaps, `TILED_IN_MEMORY_…` added up: kernels may read and write them there, and the plan then holds
    /// no windows for them. What a run is given has to lie so.
    pub in_memory: u32,
    /// The sources that are read in chunks, read during the call; NULL for none. The plan has memory for decoded chunks, and what a
    /// run is given has these.
    pub chunks: *const tiled_chunks,
    /// As many.
    pub chunk_count: usize,
    /// Not zero where `tiled_executor_run` may let go of weights once they are packed, so that memory holds most of them once: they can no more be copied or
    /// saved, and only executors of such plans that have packed them run with them. Weights are kept where gradients of them are wanted, or of outputs that come later, and on a GPU.
    pub releases_weights: i32,
    /// Zero.
    pub reserved: i32,
}

// SAFETY: repr(C), the size first, and integers and a pointer, which take any bits
unsafe impl Extensible for tiled_plan_options {
    const NAME: &'static str = "tiled_plan_options";
    const FIRST_SIZE: usize = std::mem::offset_of!(Self, chunks);

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            hold: TILED_HOLD_AUTO,
            memory_bytes: 0,
            tile: [0, 0],
            grid: [0, 0],
            lanes: 0,
            parallelism: 0,
            resident_bytes: 0,
            winograd: 0,
            in_memory: 0,
            chunks: std::ptr::null(),
            chunk_count: 0,
            releases_weights: 0,
            reserved: 0,
        }
    }
}

/// What a plan states before it runs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_plan_summary {
    /// The size of the struct, set by the caller to `sizeof(tiled_plan_summary)`.
    pub struct_size: u32,
    /// The element type, `TILED_DTYPE_…`.
    pub dtype: i32,
    /// The most bytes that the run holds, with the `resident_bytes` of the options: a promise.
    pub peak_bytes: u64,
    /// The part of them for windows.
    pub windows_bytes: u64,
    /// The part of them for values kept whole.
    pub stores_bytes: u64,
    /// The part of them for parameters and their gradients.
    pub parameters_bytes: u64,
    /// The arithmetic, in floating-point operations.
    pub flops: f64,
    /// The part of it that an untiled run does not do.
    pub redundant_flops: f64,
    /// The time that the cost model predicts, in seconds.
    pub predicted_seconds: f64,
    /// The passes over the image.
    pub sweeps: u64,
    /// The steps of all passes, as progress counts them.
    pub steps: u64,
    /// The tiles that run at a time, at most.
    pub lanes: u64,
    /// The most bytes that the run was to hold; `TILED_MEMORY_UNLIMITED` for any.
    pub budget_bytes: u64,
    /// Who said so, `TILED_BUDGET_…`; 0 where this library has no number for it.
    pub budget_source: i32,
    /// Zero.
    pub reserved: i32,
    /// The part of the peak for decoded chunks.
    pub chunks_bytes: u64,
    /// How often chunks are read, at most.
    pub chunk_reads: u64,
}

// SAFETY: repr(C), the size first, and numbers
unsafe impl Extensible for tiled_plan_summary {
    const NAME: &'static str = "tiled_plan_summary";
    const FIRST_SIZE: usize = std::mem::offset_of!(Self, budget_bytes);

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            dtype: 0,
            peak_bytes: 0,
            windows_bytes: 0,
            stores_bytes: 0,
            parameters_bytes: 0,
            flops: 0.0,
            redundant_flops: 0.0,
            predicted_seconds: 0.0,
            sweeps: 0,
            steps: 0,
            lanes: 0,
            budget_bytes: 0,
            budget_source: 0,
            reserved: 0,
            chunks_bytes: 0,
            chunk_reads: 0,
        }
    }
}

/// Sets every field to its default: the fastest plan that the memory which can be had now holds. `struct_size` is `sizeof(tiled_plan_options)`.
///
/// # Safety
/// `options` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_plan_options_init(
    options: *mut tiled_plan_options,
    struct_size: u32,
) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(options, struct_size, "options", &tiled_plan_options::initial()) })
}

/// Plans runs of a network on an engine's backend: the least predicted time within the budget.
///
/// `input_shapes` holds four extents (NCHW) for each of `count` inputs. `objective` and `options` may be NULL for the
/// outputs in evaluation and the fastest plan that the memory which can be had now holds. The handle is the caller's, to be freed with `tiled_plan_free`; it
/// depends on neither engine nor network afterwards. On failure (`TILED_STATUS_BUDGET`: the message names the smallest
/// budget that works) `plan` is untouched. Threads: any.
///
/// # Safety
/// `input_shapes` is NULL or `4·count` numbers can be read from it; structs are NULL or have their size set, and what they point to can be read; `plan` is
/// NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_plan_new(
    engine: *const tiled_engine,
    graph: *const tiled_graph,
    dtype: i32,
    input_shapes: *const i64,
    count: usize,
    objective: *const tiled_objective,
    options: *const tiled_plan_options,
    plan: *mut *mut tiled_plan,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (inputs, objective, options, plan) = unsafe {
            (
                shapes(input_shapes, count)?,
                extensible_or_initial(objective, "objective")?,
                extensible_or_initial(options, "options")?,
                Output::new(plan, "plan")?,
            )
        };
        let dtype = crate::tensor::dtype(dtype)?;
        // SAFETY: the caller's promise: names that the objective lists can be read
        let objective = unsafe { objective.checked()? };
        let made = handle::shared(engine, "engine", |engine| {
            // SAFETY: the caller's promise: chunks that the options list can be read
            let mut options = unsafe { options.checked(engine.threads())? };
            options.memory_bytes = engine.budget(options.memory_bytes)?;
            handle::shared(graph, "graph", |graph| {
                let shapes = infer_nchw(graph, &inputs)?;
                let made = collected(graph.outputs().iter().map(|output| shapes.shape(*output)))?;
                options.transfer_bytes = transfer_bytes(inputs.iter().chain(&made), dtype.size_bytes());
                with_element!(dtype, T => {
                    let backend = <T as Real>::backend(engine);
                    let plan = Planner::<T>::new(graph, &shapes, &objective, backend).plan(&options)?;
                    Ok(Planned { plan: plan.into(), backend: backend.name() })
                })
            })
        })?;
        logger::info(|| format!("plan of {} bytes, {:.3e} operations", made.peak_bytes(), made.flops));
        plan.set(handle::insert(made)?);
        Ok(())
    })
}

/// Frees a plan; NULL does nothing. Executors made with it stay. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_plan_free(plan: *mut tiled_plan) -> tiled_status {
    guard(|| handle::free(plan, "plan"))
}

/// What the plan states: memory, arithmetic, steps. `struct_size` is `sizeof(tiled_plan_summary)`.
///
/// On failure `summary` is untouched. Threads: any.
///
/// # Safety
/// `summary` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_plan_summarise(
    plan: *const tiled_plan,
    summary: *mut tiled_plan_summary,
    struct_size: u32,
) -> tiled_status {
    guard(|| {
        let stated = handle::shared(plan, "plan", |plan| {
            let memory = &plan.memory;
            Ok(tiled_plan_summary {
                struct_size: crate::size_of_u32::<tiled_plan_summary>(),
                dtype: crate::tensor::dtype_number(plan.dtype),
                peak_bytes: plan.peak_bytes(),
                windows_bytes: memory.windows_bytes,
                stores_bytes: memory.stores_bytes,
                parameters_bytes: memory.parameters_bytes + memory.gradients_bytes,
                flops: plan.flops,
                redundant_flops: plan.redundant_flops,
                predicted_seconds: plan.predicted_seconds,
                sweeps: plan.sweeps.len() as u64,
                steps: plan.sweeps.iter().map(|sweep| sweep.steps).sum(),
                lanes: plan.lanes() as u64,
                budget_bytes: plan.budget.bytes,
                budget_source: budget_source(plan.budget.source),
                reserved: 0,
                chunks_bytes: memory.chunks_bytes,
                chunk_reads: plan.chunk_reads()[0],
            })
        })?;
        // SAFETY: the caller's promise
        unsafe { write_extensible(summary, struct_size, "summary", &stated) }
    })
}

/// The plan explained: passes, tiles, regions, memory and arithmetic. UTF-8, ended by a NUL.
///
/// `format` is one of `TILED_EXPLAIN_…`. With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On
/// failure nothing is written. Threads: any.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_plan_explain(
    plan: *const tiled_plan,
    format: i32,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let output = unsafe { TextOutput::new(buffer, capacity, length)? };
        handle::shared(plan, "plan", |plan| {
            output.set(&match format {
                TILED_EXPLAIN_TEXT => plan.to_text(),
                TILED_EXPLAIN_JSON => plan.to_json(StepDetail::None).to_string(),
                TILED_EXPLAIN_SVG => plan.to_svg(),
                _ => return Err(Failure::invalid(format!("explain: format {format} is not one"))),
            })
        })
    })
}

/// The rows and columns of tiles and the number of nodes of a pass over the image.
///
/// On failure `counts`, three numbers, is untouched. Threads: any.
///
/// # Safety
/// `counts` is NULL or three numbers can be written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_plan_sweep(
    plan: *const tiled_plan,
    sweep: usize,
    counts: *mut i64,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; an array of three has the alignment of one
        let counts = unsafe { Output::new(counts.cast::<[i64; 3]>(), "counts")? };
        handle::shared(plan, "plan", |plan| {
            let sweep = of(plan, sweep)?;
            let [rows, cols] = sweep.grid.counts();
            counts.set([rows, cols, sweep.nodes.len()].map(|count| i64::try_from(count).unwrap_or(i64::MAX)));
            Ok(())
        })
    })
}

/// The name of a node of a pass: UTF-8, ended by a NUL.
///
/// With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
/// Threads: any.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_plan_node_name(
    plan: *const tiled_plan,
    sweep: usize,
    node: usize,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let output = unsafe { TextOutput::new(buffer, capacity, length)? };
        handle::shared(plan, "plan", |plan| {
            let nodes = &of(plan, sweep)?.nodes;
            require_node(node, nodes.len())?;
            output.set(&plan.program.nodes[nodes[SweepNodeId::new(node)].node].name)
        })
    })
}

/// The region of a node's tensor that a tile needs, halo included and clipped to the image.
///
/// On failure `region` is untouched. Threads: any.
///
/// # Safety
/// `region` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_plan_region(
    plan: *const tiled_plan,
    sweep: usize,
    node: usize,
    row: i64,
    col: i64,
    region: *mut tiled_region,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let region = unsafe { Output::new(region, "region")? };
        handle::shared(plan, "plan", |plan| {
            let sweep = of(plan, sweep)?;
            require_node(node, sweep.nodes.len())?;
            region.set(sweep.region(SweepNodeId::new(node), tile_index(&sweep.grid, row, col)?).into());
            Ok(())
        })
    })
}

/// A plan, and the backend whose blocks of channels and packed weights it counts on.
#[derive(Debug)]
pub struct Planned {
    pub(crate) plan: Arc<Plan>,
    backend: String,
}

impl Deref for Planned {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl Planned {
    /// Checks that an engine runs what was planned.
    pub(crate) fn require_backend(&self, engine: &Engine) -> Fallible {
        let (planned, got) = (&self.backend, engine.name());
        if *planned == got {
            return Ok(());
        }
        Err(Failure::invalid(format!("the plan is for backend `{planned}`, the engine's is `{got}`")))
    }
}

const fn budget_source(source: BudgetSource) -> i32 {
    match source {
        BudgetSource::Given => TILED_BUDGET_GIVEN,
        BudgetSource::Unlimited => TILED_BUDGET_UNLIMITED,
        BudgetSource::FreeMemory => TILED_BUDGET_FREE_MEMORY,
        BudgetSource::ControlGroup => TILED_BUDGET_CONTROL_GROUP,
        BudgetSource::AddressSpace => TILED_BUDGET_ADDRESS_SPACE,
        BudgetSource::DataSize => TILED_BUDGET_DATA_SIZE,
        BudgetSource::Commitment => TILED_BUDGET_COMMITMENT,
        BudgetSource::Assumed => TILED_BUDGET_ASSUMED,
        _ => 0,
    }
}

fn of(plan: &Plan, sweep: usize) -> Fallible<&tiled::graph::SweepPlan> {
    let count = plan.sweeps.len();
    plan.sweeps.get(sweep).ok_or_else(|| Failure::range(format!("sweep is {sweep}, the plan has {count}")))
}

fn require_node(node: usize, count: usize) -> Fallible {
    if node < count {
        return Ok(());
    }
    Err(Failure::range(format!("node is {node}, the sweep has {count}")))
}

impl tiled_chunks {
    fn checked(&self) -> Fallible<(SourceRole, Chunks)> {
        let role = match self.source {
            TILED_CHUNKS_INPUT => SourceRole::Input(self.index),
            TILED_CHUNKS_TARGET => SourceRole::Target,
            TILED_CHUNKS_GRAD_OUTPUT => SourceRole::GradOutput(self.index),
            source => {
                return Err(Failure::invalid(format!("options: chunks of source {source}, which is none")));
            }
        };
        let shape = chunk_shape(self.shape, "options")?;
        let chunks = Chunks::new(shape, crate::tensor::element(self.dtype)?.size_bytes());
        Ok((role, chunks.expect("invariant: neither is 0")))
    }
}

impl tiled_plan_options {
    /// The options.
    ///
    /// # Safety
    /// `chunks` is NULL or as many can be read from it as it says.
    unsafe fn checked(&self, threads: usize) -> Fallible<PlanOptions> {
        // SAFETY: the caller's promise
        let listed = unsafe { array(self.chunks, self.chunk_count, "options.chunks")? };
        let mut chunks = with_room(listed.len())?;
        for source in listed {
            chunks.push(source.checked()?);
        }
        let hold = match self.hold {
            TILED_HOLD_AUTO => Hold::Auto,
            TILED_HOLD_SLIDE => Hold::Slide,
            TILED_HOLD_RECOMPUTE => Hold::Recompute,
            TILED_HOLD_MATERIALISE => Hold::Materialise,
            hold => return Err(Failure::invalid(format!("options: hold {hold} is not one"))),
        };
        let tiling = match (self.tile, self.grid) {
            ([0, 0], [0, 0]) => Tiling::Auto,
            (tile, [0, 0]) => Tiling::Tile(tile),
            ([0, 0], grid) => Tiling::Grid(grid),
            _ => return Err(Failure::invalid("options: both tile and grid are given")),
        };
        if self.lanes > MAX_LANES || self.parallelism > MAX_LANES {
            return Err(Failure::range(format!(
                "options: lanes and parallelism must be at most {MAX_LANES}"
            )));
        }
        let known = TILED_IN_MEMORY_INPUTS
            | TILED_IN_MEMORY_TARGET
            | TILED_IN_MEMORY_GRAD_OUTPUTS
            | TILED_IN_MEMORY_OUTPUTS
            | TILED_IN_MEMORY_GRAD_INPUTS;
        if self.in_memory & !known != 0 {
            return Err(Failure::invalid(format!(
                "options: in_memory is {}, at most {known}",
                self.in_memory
            )));
        }
        let lies = |flag: u32| self.in_memory & flag != 0;
        Ok(PlanOptions {
            in_memory: InMemory {
                inputs: lies(TILED_IN_MEMORY_INPUTS),
                target: lies(TILED_IN_MEMORY_TARGET),
                grad_outputs: lies(TILED_IN_MEMORY_GRAD_OUTPUTS),
                outputs: lies(TILED_IN_MEMORY_OUTPUTS),
                grad_inputs: lies(TILED_IN_MEMORY_GRAD_INPUTS),
            },
            memory_bytes: (self.memory_bytes > 0).then_some(self.memory_bytes),
            tiling,
            hold,
            lanes: (self.lanes > 0).then_some(self.lanes as usize),
            parallelism: if self.parallelism > 0 { self.parallelism as usize } else { threads },
            resident_bytes: self.resident_bytes,
            winograd: self.winograd != 0,
            releases_parameters: self.releases_weights != 0,
            chunks,
            ..PlanOptions::default()
        })
    }
}

const MAX_LANES: u32 = 1024;
