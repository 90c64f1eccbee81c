//! One lane of a run: a queue of its own, one tile after another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::iter::{
    IndexedParallelIterator, IntoParallelRefIterator, IntoParallelRefMutIterator, ParallelIterator,
};
use tiled_geometry::{Interval, Region};
use tiled_graph::program::{NodeId, Param, ReductionId, SinkRole, SourceRole};
use tiled_graph::{Action, Binding, Call, Id, IndexVec, Plan, SweepNodeId, SweepPlan};
use tiled_kernel::{Buffer, Kernel, MAX_INPUTS, Place, Queue, Ticket, copy_region};
use tiled_tensor::{Element, Layout, OutOfMemory, PartMut, View, with_room};

use crate::chunks::HeldChunks;
use crate::error::refused;
use crate::failure::Failure;
use crate::source::index;
use crate::store::Stores;
use crate::{ExecError, Io, IoError, Sink, Source};

/// What the lanes of a sweep share.
pub(crate) struct SweepContext<'a, T: Element> {
    pub(crate) plan: &'a Plan,
    pub(crate) sweep: &'a SweepPlan,
    pub(crate) kernels: &'a IndexVec<NodeId, Option<Kernel>>,
    pub(crate) stores: &'a Stores<T>,
    pub(crate) io: &'a Io<'a, T>,
    /// Those of the sources that are read in chunks.
    pub(crate) chunks: &'a [HeldChunks<'a, T>],
    pub(crate) step: &'a (dyn Fn() -> Result<(), ExecError> + Sync),
    /// Whether the host goes ahead of a device, so that its threads are free to read and write.
    pub(crate) is_ahead: bool,
    /// The lanes that have not begun.
    pub(crate) waiting: Waiting,
    /// What the first lane that failed did so with.
    pub(crate) failure: Failure,
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
}

/// The calls of one lane at a time, and what each window holds at the moment.
pub(crate) struct Lane<'a, T: Element> {
    queue: Box<dyn Queue<T> + 'a>,
    /// Its number.
    lane: usize,
    /// The tile that it is at.
    tile: [usize; 2],
    layouts: IndexVec<SweepNodeId, Layout>,
    held: IndexVec<SweepNodeId, Interval>,
    /// What was fetched and not yet taken, in order.
    fetched: VecDeque<(Ticket, SinkRole, Region<2>)>,
}

impl<'a, T: Element> Lane<'a, T> {
    /// A lane of a sweep, with room for what it knows of each node.
    pub(crate) fn new(queue: Box<dyn Queue<T> + 'a>, sweep: &SweepPlan) -> Result<Self, OutOfMemory> {
        let count = sweep.nodes.len();
        Ok(Self {
            fetched: with_room(queue.depth() + 1)?.into(),
            queue,
            lane: 0,
            tile: [0, 0],
            layouts: with_room(count)?.into(),
            held: IndexVec::filled(count, Interval::EMPTY)?,
        })
    }

    /// Runs one waiting lane after another, until one fails. Which queue a lane gets does not matter: it has sums of its own.
    pub(crate) fn run(&mut self, context: &SweepContext<'_, T>) {
        let (tiles, count) = (context.sweep.grid.len(), context.waiting.count);
        while let Some(lane) = context.waiting.next() {
            self.lane = lane;
            let mut share = (lane * tiles).div_ceil(count)..((lane + 1) * tiles).div_ceil(count);
            let result = share
                .try_for_each(|tile| self.run_tile(context, context.sweep.grid.index_of(tile)))
                .and_then(|()| self.finish(context));
            if let Err(error) = result {
                return context.failure.set(error);
            }
        }
    }

    /// Runs one tile; allocates only before its first step.
    fn run_tile(&mut self, context: &SweepContext<'_, T>, tile: [usize; 2]) -> Result<(), ExecError> {
        let sweep = context.sweep;
        self.tile = tile;
        self.layouts.clear();
        for node in sweep.nodes.ids() {
            let layout = sweep.layout(context.plan, node, tile)?;
            self.layouts.push(layout).map_err(refused("the windows of a lane"))?;
        }
        self.held.fill(Interval::EMPTY);
        sweep
            .schedule(tile[0])
            .map_err(refused("the schedule of a tile"))?
            .run(|call| self.call(context, call), || (context.step)())
    }

    /// Takes what is left and waits for all calls.
    fn finish(&mut self, context: &SweepContext<'_, T>) -> Result<(), ExecError> {
        self.take_until(context, 0)?;
        Ok(self.queue.wait()?)
    }

    fn call(&mut self, context: &SweepContext<'_, T>, call: Call) -> Result<(), ExecError> {
        context.failure.check()?;
        let node = call.node;
        let region = Region::from_rows_cols(call.rows, self.layouts[node].cols());
        match context.sweep.nodes[node].action {
            Action::Load(role) => {
                self.held[node] = Interval::new(call.low, call.rows.end());
                self.load(context, node, role, region)
            }
            Action::Compute => {
                self.held[node] = Interval::new(call.low, call.rows.end());
                self.compute(context, node, region)
            }
            Action::Reduce(reduction) if !region.is_empty() => self.reduce(context, node, reduction, region),
            Action::Write(role) if !region.is_empty() => self.write(context, node, role, region),
            Action::Reduce(_) | Action::Write(_) => Ok(()),
        }
    }

    fn load(
        &mut self,
        context: &SweepContext<'_, T>,
        node: SweepNodeId,
        role: SourceRole,
        region: Region<2>,
    ) -> Result<(), ExecError> {
        let window = self.window(context, node);
        if !is_written_to(&window) {
            return Ok(()); // others read the caller's tensor, or nobody reads it
        }
        if let SourceRole::Store(store) = role
            && context.stores.file(store).is_none()
        {
            return Ok(self.queue.load(store.index(), &window, region)?);
        }
        if let Some(tensor) = context.io.source(role).and_then(|source| source.on_device()) {
            return Ok(self.queue.import(tensor, &window, region)?);
        }
        let chunks = context.chunks.iter().find(|chunks| chunks.node() == node);
        if self.is_ahead(context)
            && let Some(source) = context.io.source(role).filter(|_| chunks.is_none())
        {
            return self.read_in_bands(context, source, &window, region);
        }
        let mut staged = self.queue.stage(&window, region)?;
        match (role, context.io.source(role)) {
            (SourceRole::Store(store), _) => {
                let file = context.stores.file(store).expect("invariant: stores that are read were written");
                file.read(region, &mut staged)?;
            }
            (SourceRole::Pixel(pixel), _) => copy_region(&context.stores.pixel(pixel), &mut staged, region),
            (_, Some(source)) => match chunks {
                Some(chunks) => chunks.read(self.tile, region, &mut staged, &context.failure)?,
                None => source.read(region, &mut staged)?,
            },
            (_, None) => unreachable!("invariant: sources were checked before the run"),
        }
        Ok(self.queue.push(&window, region)?)
    }

    /// Whether the threads of the host are free to read and write, and have memory for it beside the windows.
    fn is_ahead(&self, context: &SweepContext<'_, T>) -> bool {
        context.is_ahead && self.queue.depth() > 0 && context.waiting.count == 1
    }

    /// Reads a region in bands of its rows, each on a thread of the pool at hand.
    fn read_in_bands(
        &mut self,
        context: &SweepContext<'_, T>,
        source: &dyn Source<T>,
        window: &Buffer,
        region: Region<2>,
    ) -> Result<(), ExecError> {
        let bands: Vec<Region<2>> = bands(context.plan.host_threads, &window.layout, region).collect();
        if bands.len() == 1 {
            source.read(region, &mut self.queue.stage(window, region)?)?;
            return Ok(self.queue.push(window, region)?);
        }
        let mut staged = self.queue.stage_bands(window, &bands)?;
        staged
            .par_iter_mut()
            .zip(&bands)
            .with_max_len(1)
            .try_for_each(|(staged, band)| source.read(*band, staged))?;
        Ok(self.queue.push(window, region)?)
    }

    fn compute(
        &mut self,
        context: &SweepContext<'_, T>,
        node: SweepNodeId,
        region: Region<2>,
    ) -> Result<(), ExecError> {
        let id = context.sweep.nodes[node].node;
        let kernel = context.kernels[id].as_ref().expect("invariant: nodes that compute have a kernel");
        let (inputs, count) = self.inputs(context, node);
        if let Binding::Sink(role) = context.sweep.bindings[node] {
            if region.is_empty() {
                return Ok(());
            }
            let sink = context.io.sink(role).and_then(|sink| sink.in_memory());
            let mut result = Ok(());
            let mut compute = |part: PartMut<'_, T>| {
                result = self.queue.compute_part(id.index(), kernel, &inputs[..count], part, region);
            };
            sink.expect("invariant: sinks were checked before the run")
                .write_in_place(region, &mut compute)?;
            return Ok(result?);
        }
        let output = self.window(context, node);
        if output.layout.region().is_empty() || !matches!(output.place, Place::Slot(_) | Place::Store(_)) {
            return Ok(()); // nobody reads it
        }
        Ok(self.queue.compute(id.index(), kernel, &inputs[..count], &output, region)?)
    }

    fn reduce(
        &mut self,
        context: &SweepContext<'_, T>,
        node: SweepNodeId,
        reduction: ReductionId,
        share: Region<2>,
    ) -> Result<(), ExecError> {
        let program_node = &context.plan.program.nodes[context.sweep.nodes[node].node];
        let mut vectors = [0; MAX_INPUTS];
        for (param, vector) in program_node.params.iter().zip(&mut vectors) {
            *vector = match param {
                Param::Derived(derived) => derived.index(),
                Param::Network(_) | Param::Extrema(_) => {
                    unreachable!("invariant: reductions take derived vectors alone")
                }
            };
        }
        let (inputs, count) = self.inputs(context, node);
        let vectors = &vectors[..program_node.params.len()];
        Ok(self.queue.reduce(self.lane, reduction.index(), vectors, &inputs[..count], share)?)
    }

    fn write(
        &mut self,
        context: &SweepContext<'_, T>,
        node: SweepNodeId,
        role: SinkRole,
        region: Region<2>,
    ) -> Result<(), ExecError> {
        let operand = context.sweep.nodes[node].operands[0];
        if matches!(context.sweep.bindings[operand], Binding::Sink(_) | Binding::Store(_)) {
            return Ok(()); // it was computed there
        }
        let window = self.window(context, operand);
        if let SinkRole::Store(store) = role
            && context.stores.file(store).is_none()
        {
            return Ok(self.queue.save(&window, store.index(), region)?);
        }
        if let Some(sink) = context.io.sink(role).and_then(|sink| sink.on_device()) {
            return sink
                .export(region, &window.layout, |tensor| Ok(self.queue.export(&window, tensor, region)?));
        }
        let ticket = self.queue.fetch(&window, region)?;
        self.fetched.push_back((ticket, role, region));
        self.take_until(context, self.queue.depth())
    }

    /// Takes what was fetched and gives it to its sinks, oldest first, until so much is left under way.
    fn take_until(&mut self, context: &SweepContext<'_, T>, left: usize) -> Result<(), ExecError> {
        let is_ahead = self.is_ahead(context);
        while self.fetched.len() > left {
            let Some((ticket, role, region)) = self.fetched.pop_front() else { break };
            let window = self.queue.take(ticket)?;
            match (role, context.io.sink(role)) {
                (SinkRole::Store(store), _) => {
                    let file = context.stores.file(store).expect("invariant: stores that are written exist");
                    file.write(region, &window)?;
                }
                (_, Some(sink)) if is_ahead => {
                    write_in_bands(context.plan.host_threads, sink, region, &window)?
                }
                (_, Some(sink)) => sink.write(region, &window)?,
                (_, None) => unreachable!("invariant: sinks were checked before the run"),
            }
        }
        Ok(())
    }

    fn inputs(&self, context: &SweepContext<'_, T>, node: SweepNodeId) -> ([Buffer; MAX_INPUTS], usize) {
        let operands = &context.sweep.nodes[node].operands;
        let mut inputs = [Buffer { place: Place::Nowhere, layout: self.layouts[node] }; MAX_INPUTS];
        for (input, operand) in inputs.iter_mut().zip(operands) {
            *input = self.window(context, *operand);
        }
        (inputs, operands.len())
    }

    /// What holds the value of a node at the moment.
    fn window(&self, context: &SweepContext<'_, T>, node: SweepNodeId) -> Buffer {
        let layout = self.layouts[node];
        let place = match (context.sweep.bindings[node], context.sweep.slots[node]) {
            (Binding::Source(_) | Binding::Pixel(_), _) => Place::Adopted(node.index()),
            (Binding::Store(store), _) => Place::Store(store.index()),
            (_, Some(slot)) => Place::Slot(slot.index()),
            (_, None) => return Buffer { place: Place::Nowhere, layout },
        };
        Buffer { place, layout: layout.with_rows(self.held[node]) }
    }
}

/// Whether a window has memory of the queue for anything.
fn is_written_to(window: &Buffer) -> bool {
    matches!(window.place, Place::Slot(_)) && !window.layout.region().is_empty()
}

/// The elements that are worth a thread.
const BAND_ELEMENTS: usize = 1 << 16;

/// Bands of a region of a window, one for each thread of the pool at hand and at most so many, where that is worth it; one outside of a pool.
fn bands(most: usize, layout: &Layout, region: Region<2>) -> impl Iterator<Item = Region<2>> + use<> {
    let [count, cols] = region.axes().map(|axis| index(axis.len()));
    let elements = layout.batch() * layout.channels() * count * cols;
    let threads = rayon::current_thread_index().map_or(1, |_| rayon::current_num_threads());
    let bands = (elements / BAND_ELEMENTS).clamp(1, count.max(1)).min(threads.min(most));
    (0..bands).map(move |number| {
        let row =
            |number: usize| region.rows().begin() + i64::try_from(count * number / bands).unwrap_or(i64::MAX);
        Region::from_rows_cols(Interval::new(row(number), row(number + 1)), region.cols())
    })
}

/// Gives a region to a sink in bands of its rows, each on a thread of the pool at hand.
fn write_in_bands<T: Element>(
    most: usize,
    sink: &dyn Sink<T>,
    region: Region<2>,
    window: &View<'_, T>,
) -> Result<(), IoError> {
    let bands: Vec<Region<2>> = bands(most, window.layout(), region).collect();
    if bands.len() == 1 {
        return sink.write(region, window); // outside of a pool there is no other thread, nor shall there be one
    }
    bands.par_iter().with_max_len(1).try_for_each(|band| sink.write(*band, window))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::Pool;

    struct Bands(Mutex<Vec<Region<2>>>);

    impl Sink<f32> for Bands {
        fn shape(&self) -> [usize; 4] {
            [1, 2, 300, 400]
        }
        fn write(&self, region: Region<2>, input: &View<'_, f32>) -> Result<(), IoError> {
            assert!(input.region().contains_region(region));
            self.0.lock().expect("nobody panics").push(region);
            Ok(())
        }
        fn finish(&self) -> Result<(), IoError> {
            Ok(())
        }
        fn abort(&self) {}
    }

    #[test]
    fn a_region_is_written_in_bands_that_are_all_of_its_rows() -> Result<(), Box<dyn std::error::Error>> {
        let pool = Pool::new(3)?;
        for (rows, expected) in [([0, 300], 3), ([7, 299], 3), ([5, 6], 1), ([5, 170], 2)] {
            let region = Region::from_rows_cols(Interval::new(rows[0], rows[1]), Interval::new(0, 400));
            let layout = Layout::new(1, 2, 1, region, usize::try_from(rows[1] - rows[0])?)?;
            let (data, sink) = (vec![0.0; layout.len()], Bands(Mutex::default()));
            pool.install(|| write_in_bands(8, &sink, region, &View::new(&data, layout)))?;
            let mut written = sink.0.into_inner()?;
            written.sort_by_key(|band| band.rows().begin());
            assert_eq!(written.len(), expected, "{region}");
            let ends = written.iter().map(|band| band.rows().end());
            let begins = written.iter().skip(1).map(|band| band.rows().begin());
            assert!(ends.zip(begins).all(|(end, begin)| end == begin), "{written:?}");
            assert_eq!(written[0].rows().begin(), rows[0]);
            assert_eq!(written[expected - 1].rows().end(), rows[1]);
        }
        Ok(())
    }

    #[test]
    fn outside_of_a_pool_a_region_is_one_band() -> Result<(), Box<dyn std::error::Error>> {
        let region = Region::whole([300, 400]);
        let layout = Layout::new(1, 2, 1, region, 300)?;
        let (data, sink) = (vec![0.0; layout.len()], Bands(Mutex::default()));
        write_in_bands(8, &sink, region, &View::new(&data, layout))?;
        assert_eq!(sink.0.into_inner()?, [region]);
        Ok(())
    }
}
