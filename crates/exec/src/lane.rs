//! One lane of a run: a queue of its own, one tile after another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use tiled_geometry::{Interval, Region};
use tiled_graph::program::{Param, SinkRole, SourceRole};
use tiled_graph::{Action, Binding, Call, Plan, SweepPlan};
use tiled_kernel::{Buffer, Kernel, MAX_INPUTS, Place, Queue, Ticket};
use tiled_tensor::{Element, Layout, OutOfMemory, PartMut, with_room};

use crate::executor::refused;
use crate::store::Stores;
use crate::{ExecError, Io};

/// What the lanes of a sweep share.
pub(crate) struct SweepContext<'a, T: Element> {
    pub(crate) plan: &'a Plan,
    pub(crate) sweep: &'a SweepPlan,
    pub(crate) kernels: &'a [Option<Kernel>],
    pub(crate) stores: &'a Stores<T>,
    pub(crate) io: &'a Io<'a, T>,
    pub(crate) step: &'a (dyn Fn() -> Result<(), ExecError> + Sync),
    /// The lanes that have not begun.
    pub(crate) waiting: Waiting,
}

/// The lanes of a sweep that have not begun: the next one's number, and how many there are.
pub(crate) struct Waiting {
    next: AtomicUsize,
    count: usize,
}

impl Waiting {
    /// So many lanes.
    pub(crate) const fn new(count: usize) -> Self {
        Self { next: AtomicUsize::new(0), count }
    }

    fn next(&self) -> Option<usize> {
        let next = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < self.count).then_some(next + 1)
        });
        next.ok()
    }

    /// Lets no further lane begin.
    fn stop(&self) {
        self.next.store(self.count, Ordering::Relaxed);
    }
}

/// The calls of one lane at a time, and what each window holds at the moment.
pub(crate) struct Lane<'a, T: Element> {
    queue: Box<dyn Queue<T> + 'a>,
    /// Its number.
    lane: usize,
    layouts: Vec<Layout>,
    held: Vec<Interval>,
    /// What was fetched and not yet taken, in order.
    fetched: VecDeque<(Ticket, SinkRole, Region<2>)>,
}

impl<'a, T: Element> Lane<'a, T> {
    /// A lane of a sweep, with room for what it knows of each node.
    pub(crate) fn new(queue: Box<dyn Queue<T> + 'a>, sweep: &SweepPlan) -> Result<Self, OutOfMemory> {
        let count = sweep.sweep.nodes.len();
        Ok(Self {
            fetched: with_room(queue.depth() + 1)?.into(),
            queue,
            lane: 0,
            layouts: with_room(count)?,
            held: with_room(count)?,
        })
    }

    /// Runs one waiting lane after another. Which queue a lane gets does not matter: it has sums of its own.
    pub(crate) fn run(&mut self, context: &SweepContext<'_, T>) -> Result<(), ExecError> {
        let (tiles, count) = (context.sweep.grid.len(), context.waiting.count);
        while let Some(lane) = context.waiting.next() {
            self.lane = lane;
            let mut share = (lane * tiles).div_ceil(count)..((lane + 1) * tiles).div_ceil(count);
            share
                .try_for_each(|tile| self.run_tile(context, context.sweep.grid.index_of(tile)))
                .and_then(|()| self.finish(context))
                .inspect_err(|_| context.waiting.stop())?;
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
        sweep
            .schedule(&context.plan.program, tile[0])
            .map_err(refused("the schedule of a tile"))?
            .run(|call| self.call(context, call), || (context.step)())
    }

    /// Takes what is left and waits for all calls.
    fn finish(&mut self, context: &SweepContext<'_, T>) -> Result<(), ExecError> {
        self.take_until(context, 0)?;
        Ok(self.queue.wait()?)
    }

    fn call(&mut self, context: &SweepContext<'_, T>, call: Call) -> Result<(), ExecError> {
        let place = call.place;
        let region = Region::from_rows_cols(call.rows, self.layouts[place].cols());
        match context.sweep.sweep.nodes[place].action {
            Action::Load(role) => {
                self.held[place] = Interval::new(call.low, call.rows.end());
                self.load(context, place, role, region)
            }
            Action::Compute => {
                self.held[place] = Interval::new(call.low, call.rows.end());
                self.compute(context, place, region)
            }
            Action::Reduce(reduction) if !region.is_empty() => self.reduce(context, place, reduction, region),
            Action::Write(role) if !region.is_empty() => self.write(context, place, role, region),
            Action::Reduce(_) | Action::Write(_) => Ok(()),
        }
    }

    fn load(
        &mut self,
        context: &SweepContext<'_, T>,
        place: usize,
        role: SourceRole,
        region: Region<2>,
    ) -> Result<(), ExecError> {
        let window = self.window(context, place);
        if !is_written_to(&window) {
            return Ok(()); // others read the caller's tensor, or nobody reads it
        }
        if let SourceRole::Store(store) = role
            && context.stores.file(store).is_none()
        {
            return Ok(self.queue.load(store, &window, region)?);
        }
        let mut staged = self.queue.stage(&window)?;
        match (role, context.io.source(role)) {
            (SourceRole::Store(store), _) => {
                let file = context.stores.file(store).expect("invariant: stores that are read were written");
                file.read(region, &mut staged)?;
            }
            (SourceRole::Pixel(pixel), _) => context.stores.read_pixel(pixel, &mut staged),
            (_, Some(source)) => source.read(region, &mut staged)?,
            (_, None) => unreachable!("invariant: sources were checked before the run"),
        }
        Ok(self.queue.push(&window, region)?)
    }

    fn compute(
        &mut self,
        context: &SweepContext<'_, T>,
        place: usize,
        region: Region<2>,
    ) -> Result<(), ExecError> {
        let node = context.sweep.sweep.nodes[place].node;
        let kernel = context.kernels[node].as_ref().expect("invariant: nodes that compute have a kernel");
        let (inputs, count) = self.inputs(context, place);
        if let Binding::Sink(role) = context.sweep.bindings[place] {
            if region.is_empty() {
                return Ok(());
            }
            let sink = context.io.sink(role).and_then(|sink| sink.in_memory());
            let mut result = Ok(());
            let mut compute = |part: PartMut<'_, T>| {
                result = self.queue.compute_part(node, kernel, &inputs[..count], part, region);
            };
            sink.expect("invariant: sinks were checked before the run")
                .write_in_place(region, &mut compute)?;
            return Ok(result?);
        }
        let output = self.window(context, place);
        if !is_written_to(&output) {
            return Ok(());
        }
        Ok(self.queue.compute(node, kernel, &inputs[..count], &output, region)?)
    }

    fn reduce(
        &mut self,
        context: &SweepContext<'_, T>,
        place: usize,
        reduction: usize,
        share: Region<2>,
    ) -> Result<(), ExecError> {
        let node = &context.plan.program.nodes[context.sweep.sweep.nodes[place].node];
        let mut vectors = [0; MAX_INPUTS];
        for (param, vector) in node.params.iter().zip(&mut vectors) {
            *vector = match param {
                Param::Derived(place) => *place,
                Param::Network(_) => unreachable!("invariant: reductions take derived vectors alone"),
            };
        }
        let (inputs, count) = self.inputs(context, place);
        let vectors = &vectors[..node.params.len()];
        Ok(self.queue.reduce(self.lane, reduction, vectors, &inputs[..count], share)?)
    }

    fn write(
        &mut self,
        context: &SweepContext<'_, T>,
        place: usize,
        role: SinkRole,
        region: Region<2>,
    ) -> Result<(), ExecError> {
        let operand = context.sweep.sweep.nodes[place].operands[0];
        if matches!(context.sweep.bindings[operand], Binding::Sink(_)) {
            return Ok(()); // it was computed there
        }
        let window = self.window(context, operand);
        if let SinkRole::Store(store) = role
            && context.stores.file(store).is_none()
        {
            return Ok(self.queue.save(&window, store, region)?);
        }
        let ticket = self.queue.fetch(&window, region)?;
        self.fetched.push_back((ticket, role, region));
        self.take_until(context, self.queue.depth())
    }

    /// Takes what was fetched and gives it to its sinks, oldest first, until so much is left under way.
    fn take_until(&mut self, context: &SweepContext<'_, T>, left: usize) -> Result<(), ExecError> {
        while self.fetched.len() > left {
            let Some((ticket, role, region)) = self.fetched.pop_front() else { break };
            let window = self.queue.take(ticket)?;
            match (role, context.io.sink(role)) {
                (SinkRole::Store(store), _) => {
                    let file = context.stores.file(store).expect("invariant: stores that are written exist");
                    file.write(region, &window)?;
                }
                (_, Some(sink)) => sink.write(region, &window)?,
                (_, None) => unreachable!("invariant: sinks were checked before the run"),
            }
        }
        Ok(())
    }

    fn inputs(&self, context: &SweepContext<'_, T>, place: usize) -> ([Buffer; MAX_INPUTS], usize) {
        let operands = &context.sweep.sweep.nodes[place].operands;
        let mut inputs = [Buffer { place: Place::Nowhere, layout: self.layouts[place] }; MAX_INPUTS];
        for (input, operand) in inputs.iter_mut().zip(operands) {
            *input = self.window(context, *operand);
        }
        (inputs, operands.len())
    }

    /// What holds the value of a node at the moment.
    fn window(&self, context: &SweepContext<'_, T>, place: usize) -> Buffer {
        let layout = self.layouts[place];
        let of = match (context.sweep.bindings[place], context.sweep.slots[place]) {
            (Binding::Source(_), _) => Place::Adopted(place),
            (Binding::Store(store), _) => Place::Store(store),
            (_, Some(slot)) => Place::Slot(slot),
            (_, None) => return Buffer { place: Place::Nowhere, layout },
        };
        Buffer { place: of, layout: layout.with_rows(self.held[place]) }
    }
}

/// Whether a window has memory of the queue for anything.
fn is_written_to(window: &Buffer) -> bool {
    matches!(window.place, Place::Slot(_)) && !window.layout.region().is_empty()
}
