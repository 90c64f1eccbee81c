//! One lane of a run: windows of its own, one tile after another.

use std::iter::Enumerate;
use std::slice::IterMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tiled_geometry::{Interval, Region};
use tiled_graph::program::{NodeKind, Param, SinkRole, SourceRole};
use tiled_graph::{Action, Call, Plan, SweepPlan};
use tiled_kernel::{Backend, Kernel, MAX_INPUTS, Partial};
use tiled_tensor::{AlignedBuffer, Element, Layout, OutOfMemory, PartMut, View, ViewMut, with_room};

use crate::ExecError;
use crate::executor::{Io, refused};
use crate::in_place::InPlace;
use crate::store::Stores;

/// What the lanes of a sweep share.
pub(crate) struct SweepContext<'a, T: Element> {
    pub(crate) plan: &'a Plan,
    pub(crate) sweep: &'a SweepPlan,
    pub(crate) backend: &'a dyn Backend<T>,
    pub(crate) kernels: &'a [Option<Kernel>],
    pub(crate) packed: &'a [AlignedBuffer<T>],
    pub(crate) derived: &'a [Vec<T>],
    pub(crate) stores: &'a Stores<T>,
    pub(crate) io: &'a Io<'a, T>,
    pub(crate) in_place: InPlace<'a, T>,
    pub(crate) step: &'a (dyn Fn() -> Result<(), ExecError> + Sync),
}

/// The lanes of a sweep that have not begun.
pub(crate) struct Waiting<'a, T: Element> {
    lanes: Mutex<Enumerate<IterMut<'a, Vec<Partial<T>>>>>,
    count: usize,
    has_stopped: AtomicBool,
}

impl<'a, T: Element> Waiting<'a, T> {
    /// All lanes, by their partial sums.
    pub(crate) fn new(partials: &'a mut [Vec<Partial<T>>]) -> Self {
        let count = partials.len();
        Self {
            lanes: Mutex::new(partials.iter_mut().enumerate()),
            count,
            has_stopped: AtomicBool::new(false),
        }
    }

    fn next(&self) -> Option<(usize, &'a mut [Partial<T>])> {
        if self.has_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.lanes.lock().unwrap_or_else(PoisonError::into_inner).next();
        next.map(|(lane, partials)| (lane, partials.as_mut_slice()))
    }

    /// Lets no further lane begin.
    fn stop(&self) {
        self.has_stopped.store(true, Ordering::Relaxed);
    }
}

/// Storage, the partial sums of the lane that runs in it, and what each window holds at the moment.
pub(crate) struct Lane<'a, T: Element> {
    slots: Vec<&'a mut [T]>,
    partials: &'a mut [Partial<T>],
    layouts: Vec<Layout>,
    held: Vec<Interval>,
    /// Whether the sink already has what a node computes.
    is_written: Vec<bool>,
}

impl<'a, T: Element> Lane<'a, T> {
    /// A lane of a sweep over `storage`, with room for what it knows of each node.
    pub(crate) fn new(storage: &'a mut [T], sweep: &SweepPlan) -> Result<Self, OutOfMemory> {
        let mut rest = storage;
        let mut slots = with_room(sweep.slot_elements.len())?;
        for elements in &sweep.slot_elements {
            let (slot, tail) = rest.split_at_mut(*elements);
            slots.push(slot);
            rest = tail;
        }
        let count = sweep.sweep.nodes.len();
        Ok(Self {
            slots,
            partials: &mut [],
            layouts: with_room(count)?,
            held: with_room(count)?,
            is_written: with_room(count)?,
        })
    }

    /// Runs one waiting lane after another. Which windows a lane gets does not matter: it has sums of its own.
    pub(crate) fn run(
        &mut self,
        context: &SweepContext<'_, T>,
        waiting: &Waiting<'a, T>,
    ) -> Result<(), ExecError> {
        let (tiles, count) = (context.sweep.grid.len(), waiting.count);
        while let Some((lane, partials)) = waiting.next() {
            self.partials = partials;
            let mut share = (lane * tiles).div_ceil(count)..((lane + 1) * tiles).div_ceil(count);
            share
                .try_for_each(|tile| self.run_tile(context, context.sweep.grid.index_of(tile)))
                .inspect_err(|_| waiting.stop())?;
        }
        Ok(())
    }

    /// Runs one tile; allocates only before its first step.
    fn run_tile(&mut self, context: &SweepContext<'_, T>, tile: [usize; 2]) -> Result<(), ExecError> {
        let sweep = context.sweep;
        let count = sweep.sweep.nodes.len();
        self.layouts.clear();
        for place in 0..count {
            self.layouts.push(sweep.layout(context.plan, place, tile)?);
        }
        self.held.clear();
        self.held.resize(count, Interval::EMPTY);
        self.is_written.clear();
        self.is_written.resize(count, false);
        sweep
            .schedule(&context.plan.program, tile[0])
            .map_err(refused("the schedule of a tile"))?
            .run(|call| self.call(context, call), || (context.step)())
    }

    fn call(&mut self, context: &SweepContext<'_, T>, call: Call) -> Result<(), ExecError> {
        let place = call.place;
        let region = Region::from_rows_cols(call.rows, self.layouts[place].cols());
        match context.sweep.sweep.nodes[place].action {
            Action::Load(_) if context.in_place.source(place).is_some() => {
                self.held[place] = Interval::new(call.low, call.rows.end());
                Ok(())
            }
            Action::Load(role) => {
                self.write_window(context, call, |_, window| load(context, role, region, window))
            }
            Action::Compute => {
                let id = context.sweep.sweep.nodes[place].node;
                let kernel =
                    context.kernels[id].as_ref().expect("invariant: nodes that compute have a kernel");
                if let Some(sink) = context.in_place.sink(place).filter(|_| !region.is_empty()) {
                    let (inputs, count) = self.inputs(context, place);
                    let mut compute = |part: PartMut<'_, T>| {
                        let packed = &context.packed[id];
                        context.backend.compute_part(kernel, packed, &inputs[..count], part, region);
                    };
                    self.is_written[place] = sink.write_in_place(region, &mut compute)?;
                    if self.is_written[place] {
                        return Ok(());
                    }
                }
                self.write_window(context, call, |inputs, window| {
                    context.backend.compute(kernel, &context.packed[id], inputs, window.reborrow(), region);
                    Ok(())
                })
            }
            Action::Reduce(reduction) => {
                if !region.is_empty() {
                    self.reduce(context, place, reduction, region);
                }
                Ok(())
            }
            Action::Write(role) => {
                if region.is_empty() {
                    return Ok(());
                }
                let operand = context.sweep.sweep.nodes[place].operands[0];
                if self.is_written[operand] {
                    return Ok(());
                }
                let window = self.window(context, operand);
                match (role, context.io.sink(role)) {
                    (SinkRole::Store(store), _) => context.stores.write(store, region, &window)?,
                    (_, Some(sink)) => sink.write(region, &window)?,
                    (_, None) => unreachable!("invariant: sinks were checked before the run"),
                }
                Ok(())
            }
        }
    }

    /// Slides a node's window to the rows of a call and lets `fill` write them.
    fn write_window(
        &mut self,
        context: &SweepContext<'_, T>,
        call: Call,
        fill: impl FnOnce(&[View<'_, T>], &mut ViewMut<'_, T>) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        let place = call.place;
        self.held[place] = Interval::new(call.low, call.rows.end());
        let Some(slot) = context.sweep.slots[place] else { return Ok(()) };
        let layout = self.layouts[place].with_rows(self.held[place]);
        if layout.region().is_empty() {
            return Ok(());
        }
        let storage = std::mem::take(&mut self.slots[slot]);
        let mut window = ViewMut::new(storage, layout);
        let (inputs, count) = self.inputs(context, place);
        let result = fill(&inputs[..count], &mut window);
        self.slots[slot] = window.into_data();
        result
    }

    fn reduce(&mut self, context: &SweepContext<'_, T>, place: usize, reduction: usize, region: Region<2>) {
        let program = &context.plan.program;
        let node = &program.nodes[context.sweep.sweep.nodes[place].node];
        debug_assert!(matches!(node.kind, NodeKind::Reduce(_)), "invariant: actions come from kinds");
        let mut params: [&[T]; MAX_INPUTS] = [&[]; MAX_INPUTS];
        for (param, slot) in node.params.iter().zip(&mut params) {
            *slot = match param {
                Param::Derived(place) => &context.derived[*place],
                Param::Network(_) => unreachable!("invariant: reductions take derived vectors alone"),
            };
        }
        // the partial is taken out so that the windows can be borrowed
        let mut partial = std::mem::replace(&mut self.partials[reduction], Partial::Exact(Vec::new()));
        let (inputs, count) = self.inputs(context, place);
        let spec = &program.reductions[reduction].reduction;
        context.backend.reduce(spec, &params[..node.params.len()], &inputs[..count], region, &mut partial);
        self.partials[reduction] = partial;
    }

    fn inputs<'v>(
        &'v self,
        context: &SweepContext<'v, T>,
        place: usize,
    ) -> ([View<'v, T>; MAX_INPUTS], usize) {
        let operands = &context.sweep.sweep.nodes[place].operands;
        let nothing = View::new(&[], empty_layout(0, 0, 1));
        let mut inputs = [nothing; MAX_INPUTS];
        for (input, operand) in inputs.iter_mut().zip(operands) {
            *input = self.window(context, *operand);
        }
        (inputs, operands.len())
    }

    /// What holds the value of a node at the moment.
    fn window<'v>(&'v self, context: &SweepContext<'v, T>, place: usize) -> View<'v, T> {
        let (layout, held) = (self.layouts[place], self.held[place]);
        match (context.in_place.source(place), context.sweep.slots[place]) {
            (Some(tensor), _) => View::new(tensor.data(), tensor.layout().with_rows(held)),
            (None, Some(slot)) => View::new(&*self.slots[slot], layout.with_rows(held)),
            // nobody ever needs it: a convolution whose outputs all lie in its padding
            (None, None) => View::new(&[], empty_layout(layout.batch(), layout.channels(), layout.block())),
        }
    }
}

fn empty_layout(batch: usize, channels: usize, block: usize) -> Layout {
    Layout::new(batch, channels, block, Region::EMPTY, 1)
        .expect("invariant: an empty layout has no size to overflow")
}

fn load<T: Element>(
    context: &SweepContext<'_, T>,
    role: SourceRole,
    region: Region<2>,
    window: &mut ViewMut<'_, T>,
) -> Result<(), ExecError> {
    match (role, context.io.source(role)) {
        (SourceRole::Store(store), _) => context.stores.read(store, region, window)?,
        (SourceRole::Pixel(pixel), _) => context.stores.read_pixel(pixel, window),
        (_, Some(source)) => source.read(region, window)?,
        (_, None) => unreachable!("invariant: sources were checked before the run"),
    }
    Ok(())
}
