//! The memory of a run on a device.

use std::sync::{Arc, Mutex};

use tiled_kernel::{Context, DeviceError, Kernel, Needs, ParamNeeds, Partial, Queue, StoreNeeds, SweepNeeds};
use tiled_tensor::{DeviceTensor, Element, Layout, OutOfMemory, ViewMut, copied, with_room};

use crate::block;
use crate::device::{Device, On};
use crate::driver::{Copy, Driver, DriverError, Rows, Way};
use crate::lower::{self, Problem, Terms, Window};
use crate::memory::{Chunk, DeviceMemory, OwnEvent, OwnStream, Parts};
use crate::queue::{CudaQueue, QueueMemory, Rings};
use crate::shared::{Gathered, Node, Params, Shared};
use crate::staging::STAGING_BYTES;

/// The memory of a run: one allocation, and for each queue a stream with its pinned memory.
#[derive(Debug)]
pub(crate) struct CudaContext<'b, T: Element> {
    // dropped in this order: what streams still use goes after them
    lanes: Vec<Rings>,
    /// For what is copied between sweeps, on the first queue's stream.
    chunk: Chunk,
    /// Vectors and tensors of a sweep.
    of_sweep: DeviceMemory,
    /// Tensors of the caller that queues may copy.
    lent: Vec<DeviceTensor<T>>,
    /// Comes when the streams of these have done what they were asked before.
    ready: OwnEvent,
    shared: Shared<'b>,
    /// What was read back of each reduction.
    partials: Vec<Partial<T>>,
}

/// The offsets of what needs memory, from the beginning.
struct Offsets {
    nodes: Vec<usize>,
    /// By slots of reductions, then lanes.
    partials: Vec<Vec<usize>>,
    stores: Vec<usize>,
    windows: Vec<usize>,
    scratch: Vec<usize>,
    parts: Parts,
}

/// The gaps between slots that there is room for, where there are any.
const SLOT_GAPS: usize = 256;

impl Offsets {
    fn new<T: Element>(driver: &Arc<dyn Driver>, needs: &Needs<'_>) -> Result<Self, OutOfMemory> {
        let mut parts = Parts::new(driver);
        let nodes = needs.nodes.iter().map(|node| match node.params {
            ParamNeeds::Packed { bytes } | ParamNeeds::PackedLater { bytes } => parts.add(bytes),
            ParamNeeds::Extrema { .. } => 0,
        });
        let nodes = nodes.collect();
        let longest = needs.longest_reductions()?.into_iter();
        let bytes = longest.map(|needed| needed.map_or(0, |needed| needed.partial_bytes));
        let partials = bytes.map(|bytes| (0..needs.lanes).map(|_| parts.add(bytes)).collect()).collect();
        let store_bytes = |store: StoreNeeds<'_>| store.layout.len() * size_of::<T>();
        let slots = needs.longest_stores()?.into_iter();
        let slots: Vec<usize> = slots.map(|store| parts.add(store.map_or(0, store_bytes))).collect();
        let stores = needs.stores.iter().map(|store| store.map_or(0, |store| slots[store.slot])).collect();
        let window_bytes = window_bytes::<T>(needs) + SLOT_GAPS * driver.gap_bytes();
        let windows = (0..needs.queues).map(|_| parts.add(window_bytes)).collect();
        let scratch = (0..needs.queues).map(|_| parts.add(needs.workspace_bytes)).collect();
        Ok(Self { nodes, partials, stores, windows, scratch, parts })
    }
}

/// The bytes of the windows of a queue: on a device every sweep of a plan has all queues.
fn window_bytes<T>(needs: &Needs<'_>) -> usize {
    needs.window_elements.div_ceil(needs.queues.max(1)) * size_of::<T>()
}

impl<'b, T: Element> CudaContext<'b, T> {
    pub(crate) fn new(device: &'b Device, needs: &Needs<'_>) -> Result<Self, DeviceError> {
        let driver = device.driver();
        let offsets = Offsets::new::<T>(driver, needs);
        let offsets = offsets.map_err(DeviceError::refused("the values kept between sweeps"))?;
        let memory = DeviceMemory::new(driver, offsets.parts.bytes());
        let memory = memory.map_err(DriverError::doing("the memory of a run on the device"))?;
        offsets.parts.close_gaps(&memory);
        let begin = memory.address();
        let at = |offset: usize| begin + offset as u64;
        let nodes = needs.nodes.iter().zip(&offsets.nodes).map(|(node, offset)| Node {
            name: node.name.to_owned(),
            params: match node.params {
                ParamNeeds::Packed { bytes } | ParamNeeds::PackedLater { bytes } => {
                    Params::Packed { address: at(*offset), bytes }
                }
                ParamNeeds::Extrema { reduction } => Params::Extrema { reduction },
            },
        });
        let reductions = needs.reductions.iter().map(|needed| (needed, &offsets.partials[needed.slot]));
        let reductions = reductions.map(|(needed, lanes)| Gathered {
            name: needed.name.to_owned(),
            reduction: needed.reduction,
            batch: needed.batch,
            channels: needed.channels,
            bytes: needed.partial_bytes,
            lanes: lanes.iter().map(|offset| at(*offset)).collect(),
            terms: lanes.iter().map(|_| Mutex::default()).collect(),
        });
        let stores = needs.stores.iter().zip(&offsets.stores);
        let stores = stores
            .map(|(store, offset)| store.map(|store| Window { address: at(*offset), layout: store.layout }));
        let shared = Shared {
            device,
            nodes: nodes.collect(),
            reductions: reductions.collect(),
            stores: stores.collect(),
            windows: offsets.windows.iter().map(|offset| at(*offset)).collect(),
            window_bytes: window_bytes::<T>(needs),
            gaps_bytes: SLOT_GAPS * driver.gap_bytes(),
            scratch: offsets.scratch.iter().map(|offset| at(*offset)).collect(),
            workspace_bytes: needs.workspace_bytes,
            memory,
        };
        let refused = || DeviceError::refused("the partial sums");
        let mut partials = with_room(needs.reductions.len()).map_err(refused())?;
        for needed in needs.reductions {
            let partial =
                Partial::new(&needed.reduction, needed.batch, needed.channels, needed.partial_bytes);
            partials.push(partial.map_err(refused())?);
        }
        let lanes: Result<Vec<_>, _> = (0..needs.queues.max(1)).map(|_| Rings::new(driver)).collect();
        let made = DriverError::doing("the stream of a lane");
        let (lanes, chunk) = lanes.and_then(|lanes| Ok((lanes, Chunk::new(driver)?))).map_err(made)?;
        let of_sweep = DeviceMemory::new(driver, 0).map_err(DriverError::doing("vectors"))?;
        let ready = OwnEvent::new(driver).map_err(DriverError::doing("the tensors of a run"))?;
        let mut context = Self { lanes, chunk, of_sweep, lent: Vec::new(), ready, shared, partials };
        // what nobody packs or gathers is zero, as on the host
        (0..needs.reductions.len()).try_for_each(|reduction| context.clear(reduction))?;
        Ok(context)
    }

    /// Lets every lane wait for what the stream of a tensor was asked so far.
    fn wait_for(&self, tensor: &DeviceTensor<T>) -> Result<(), DriverError> {
        let (driver, event) = (self.shared.device.driver(), self.ready.event);
        // SAFETY: who described the tensor has promised that the stream is one of its device, which is this one
        unsafe { driver.record_lent(event, tensor.stream()) }?;
        // each wait is for the event as it was recorded last
        self.lanes.iter().try_for_each(|lane| driver.wait(lane.stream.stream, event))
    }

    fn stream(&self) -> &OwnStream {
        &self.lanes[0].stream
    }

    fn on<'s>(&'s self, what: &'s str) -> On<'s> {
        On { device: self.shared.device, stream: self.stream().stream, what }
    }

    /// Copies elements to the device, by the chunk; they have come when this returns.
    fn send(&mut self, address: u64, len: usize, write: impl FnOnce(&mut [T])) -> Result<(), DriverError> {
        if len == 0 {
            return Ok(());
        }
        let bytes = len * size_of::<T>();
        self.chunk.reserve(bytes)?;
        // SAFETY: it was waited for
        write(unsafe { self.chunk.elements(len) });
        let from = Rows { address: self.chunk.address(), row_bytes: bytes, plane_bytes: bytes };
        let copy = Copy { way: Way::In, from, to: Rows { address, ..from }, bytes, rows: 1, planes: 1 };
        let (driver, stream) = (self.shared.device.driver(), self.stream().stream);
        // SAFETY: the chunk is so long, and what is written is a part of the context's memory that no queue works on between sweeps
        unsafe { driver.copy(stream, &copy) }?;
        self.chunk.use_by(stream)?;
        driver.synchronise(stream)
    }

    /// Copies bytes from the device.
    fn receive(&mut self, address: u64, bytes: usize) -> Result<(), DriverError> {
        self.chunk.reserve(bytes)?;
        let to = Rows { address: self.chunk.address(), row_bytes: bytes, plane_bytes: bytes };
        let copy = Copy { way: Way::Out, from: Rows { address, ..to }, to, bytes, rows: 1, planes: 1 };
        let (driver, stream) = (self.shared.device.driver(), self.stream().stream);
        // SAFETY: as in `send`
        unsafe { driver.copy(stream, &copy) }?;
        self.chunk.use_by(stream)?;
        driver.synchronise(stream)
    }

    /// Sends the vectors and the tensors of a sweep; gives where they lie.
    fn send_of_sweep(&mut self, sweep: &SweepNeeds<'_, T>) -> Result<[Vec<u64>; 2], DriverError> {
        let mut parts = Parts::new(self.shared.device.driver());
        let vectors: Vec<usize> =
            sweep.vectors.iter().map(|vector| parts.add(size_of_val(vector.as_slice()))).collect();
        let blocked: Vec<Option<Layout>> =
            sweep.adopted.iter().map(|view| view.map(|view| in_blocks(&view))).collect();
        let bytes = |layout: &Layout| layout.len() * size_of::<T>();
        let adopted: Vec<usize> =
            blocked.iter().map(|layout| layout.map_or(0, |layout| parts.add(bytes(&layout)))).collect();
        if self.of_sweep.bytes() < parts.bytes() {
            self.of_sweep = DeviceMemory::new(self.shared.device.driver(), parts.bytes())?;
        }
        self.of_sweep.open();
        let at = |offset: &usize| self.of_sweep.address() + *offset as u64;
        let places = [vectors.iter().map(at).collect::<Vec<_>>(), adopted.iter().map(at).collect()];
        for (vector, address) in sweep.vectors.iter().zip(&places[0]) {
            self.send(*address, vector.len(), |to| to.copy_from_slice(vector))?;
        }
        for ((view, layout), address) in sweep.adopted.iter().zip(&blocked).zip(&places[1]) {
            let (Some(view), Some(layout)) = (view, layout) else { continue };
            self.send(*address, layout.len(), |to| {
                let mut window = ViewMut::new(to, *layout);
                for n in 0..layout.batch() {
                    for c in 0..layout.channels() {
                        for y in layout.rows().begin()..layout.rows().end() {
                            for x in layout.cols().begin()..layout.cols().end() {
                                window.set(n, c, y, x, view.get(n, c, y, x));
                            }
                        }
                    }
                }
            })?;
        }
        parts.close_gaps(&self.of_sweep);
        Ok(places)
    }

    /// Makes the slots of a sweep hold nothing, and lets nobody touch what lies between them: a simulated device finds both.
    fn empty_slots(&self, slots: &[usize], offsets: &[usize]) -> Result<(), DriverError> {
        let shared = &self.shared;
        let driver = shared.device.driver();
        if !shared.device.facts().is_simulated || shared.window_bytes == 0 {
            return Ok(());
        }
        let bytes = shared.window_bytes + shared.gaps_bytes;
        for (windows, lane) in shared.windows.iter().zip(&self.lanes) {
            driver.set_closed(*windows, bytes, false);
            // SAFETY: these are the windows of the queue, which nothing works on yet
            unsafe { driver.fill(lane.stream.stream, *windows, bytes, 0xff) }?;
            if driver.gap_bytes() == 0 {
                continue;
            }
            driver.synchronise(lane.stream.stream)?;
            driver.set_closed(*windows, bytes, true);
            for (slot, offset) in slots.iter().zip(offsets) {
                driver.set_closed(windows + *offset as u64, slot * size_of::<T>(), false);
            }
        }
        Ok(())
    }
}

/// The layout in which a tensor of the host lies on the device.
fn in_blocks<T: Element>(view: &tiled_tensor::View<'_, T>) -> Layout {
    let of = view.layout();
    let rows = usize::try_from(of.rows().len()).expect("invariant: intervals have no negative length");
    let layout = Layout::new(of.batch(), of.channels(), block(of.channels()), of.region(), rows);
    layout.expect("invariant: a tensor in memory has a size")
}

impl<T: Element> Context<T> for CudaContext<'_, T> {
    fn pack(&mut self, node: usize, kernel: &Kernel, params: &[&[T]]) -> Result<(), DeviceError> {
        let ((address, len), _, name) = self.shared.params::<T>(node);
        let doing = DriverError::doing(format!("the parameters of `{name}`"));
        let precision = self.shared.device.precision();
        self.send(address, len, |packed| match Problem::of(kernel, precision) {
            Some(problem) => problem.pack(params, packed),
            None => tiled_kernel::pack_plainly(params, packed),
        })
        .map_err(doing)
    }

    fn lend(&mut self, tensors: &[DeviceTensor<T>]) -> Result<(), DeviceError> {
        self.lent = Vec::new();
        let driver = self.shared.device.driver();
        if let Some(tensor) = tensors.iter().find(|tensor| tensor.device() != driver.device()) {
            let expected = self.shared.device.name();
            return Err(DeviceError::Elsewhere { expected, got: tensor.device() });
        }
        for (index, tensor) in tensors.iter().enumerate() {
            let (address, bytes) = tensor.bytes();
            let has_stream = |other: &DeviceTensor<T>| other.stream() == tensor.stream();
            let is_first = !tensors[..index].iter().any(has_stream);
            let looked = driver.check_lent(address, bytes);
            let ready = looked.and_then(|()| if is_first { self.wait_for(tensor) } else { Ok(()) });
            ready.map_err(DriverError::doing("the tensors of a run"))?;
        }
        self.lent = copied(tensors).map_err(DeviceError::refused("the tensors of a run"))?;
        Ok(())
    }

    fn queues<'q>(
        &'q mut self,
        sweep: &SweepNeeds<'q, T>,
    ) -> Result<Vec<Box<dyn Queue<T> + 'q>>, DeviceError> {
        let places = self.send_of_sweep(sweep).map_err(DriverError::doing("the vectors of a sweep"))?;
        let [vectors, adopted] = places;
        let layouts: Vec<Layout> =
            sweep.adopted.iter().map(|view| view.map_or_else(nowhere, |view| in_blocks(&view))).collect();
        let gap_bytes = self.shared.device.driver().gap_bytes();
        let gap_bytes = if sweep.slots.len() <= SLOT_GAPS { gap_bytes } else { 0 };
        let offsets = slot_offsets::<T>(sweep.slots, gap_bytes);
        self.empty_slots(sweep.slots, &offsets).map_err(DriverError::doing("windows"))?;
        let refused = |error: OutOfMemory| DeviceError::refused("the windows of a lane")(error);
        let mut queues: Vec<Box<dyn Queue<T> + 'q>> = with_room(self.lanes.len()).map_err(refused)?;
        let shared = &self.shared;
        for (index, rings) in self.lanes.iter_mut().take(sweep.queues).enumerate() {
            let windows = shared.windows.get(index).copied().unwrap_or(shared.memory.address());
            let slots = offsets.iter().map(|offset| windows + *offset as u64).collect();
            let adopted = adopted.iter().zip(&layouts);
            let adopted = adopted.map(|(address, layout)| Window { address: *address, layout: *layout });
            let scratch = shared.scratch.get(index).copied().unwrap_or(0);
            // behind what kernels need
            let pieces = shared.workspace_bytes.checked_sub(STAGING_BYTES);
            let pieces = pieces.map(|offset| scratch + offset as u64);
            let adopted = adopted.collect();
            let memory = QueueMemory { slots, vectors: vectors.clone(), adopted, scratch, pieces };
            queues.push(Box::new(CudaQueue::new(shared, &self.lent, rings, memory)));
        }
        Ok(queues)
    }

    fn clear(&mut self, reduction: usize) -> Result<(), DeviceError> {
        let (driver, stream) = (self.shared.device.driver(), self.stream().stream);
        let gathered = &self.shared.reductions[reduction];
        let doing = || DriverError::doing(format!("the sums of `{}`", gathered.name));
        for (lane, address) in gathered.lanes.iter().enumerate() {
            gathered.with_terms(lane, |terms| *terms = Terms::default());
            if gathered.bytes > 0 {
                // SAFETY: it is the state of a reduction, which no queue works on between sweeps
                unsafe { driver.fill(stream, *address, gathered.bytes, 0) }.map_err(doing())?;
            }
        }
        driver.synchronise(stream).map_err(doing())
    }

    fn merge(&mut self, reduction: usize) -> Result<(), DeviceError> {
        let gathered = &self.shared.reductions[reduction];
        let Some((first, others)) = gathered.lanes.split_first() else { return Ok(()) };
        let on = self.on(&gathered.name);
        for other in others {
            let domain = [gathered.batch, gathered.channels];
            lower::merge(&on, &gathered.reduction, T::DTYPE, [*first, *other], domain)?;
        }
        let (driver, stream) = (self.shared.device.driver(), self.stream().stream);
        driver.synchronise(stream).map_err(DriverError::doing(&gathered.name))
    }

    fn partial(&mut self, reduction: usize) -> Result<&Partial<T>, DeviceError> {
        let gathered = &self.shared.reductions[reduction];
        let (address, bytes) = (gathered.lanes[0], gathered.bytes);
        if bytes > 0 {
            let received = self.receive(address, bytes);
            received.map_err(|error| DriverError::doing(&self.shared.reductions[reduction].name)(error))?;
            match &mut self.partials[reduction] {
                Partial::Values(values) => {
                    // SAFETY: it was waited for
                    values.copy_from_slice(unsafe { self.chunk.elements(bytes / size_of::<T>()) });
                }
                partial => {
                    // SAFETY: it was waited for; words have the bytes of doubles
                    let words = unsafe { self.chunk.elements::<f64>(bytes / 8) };
                    let words: Vec<u64> = words.iter().map(|word| word.to_bits()).collect();
                    match partial {
                        Partial::Exact(sums) => lower::sums(&words, sums),
                        Partial::Extrema(extrema) => lower::extrema(&words, extrema),
                        Partial::Values(_) => unreachable!("invariant: values are copied as they are"),
                    }
                }
            }
        }
        Ok(&self.partials[reduction])
    }

    fn unpack(&mut self, reduction: usize, result: &mut [T]) -> Result<(), DeviceError> {
        match self.partial(reduction)? {
            Partial::Values(values) => result.copy_from_slice(values),
            _ => unreachable!("invariant: only values are unpacked"),
        }
        Ok(())
    }
}

/// Where each slot begins, in bytes: those of the largest powers of two first, so that every window of blocks begins at a multiple of a vector.
fn slot_offsets<T: Element>(slots: &[usize], gap_bytes: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|slot| std::cmp::Reverse(slots[*slot].trailing_zeros()));
    let mut offsets = vec![0; slots.len()];
    let mut next = 0;
    for slot in order {
        offsets[slot] = next;
        next += slots[slot] * size_of::<T>() + gap_bytes;
    }
    offsets
}

fn nowhere() -> Layout {
    Layout::new(0, 0, 1, tiled_geometry::Region::EMPTY, 1)
        .expect("invariant: an empty layout has no size to overflow")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_blocks_begin_at_vectors_and_none_overlap() {
        let slots = [15, 64, 7, 8, 24, 0, 1];
        let offsets = slot_offsets::<f32>(&slots, 0);
        let mut taken: Vec<(usize, usize)> =
            offsets.iter().zip(slots).map(|(offset, slot)| (*offset, offset + slot * 4)).collect();
        for (offset, slot) in offsets.iter().zip(slots) {
            assert!(slot % 8 != 0 || offset % 32 == 0, "{slot} at {offset}");
        }
        taken.sort_unstable();
        assert!(taken.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{taken:?}");
        assert_eq!(taken.last().map(|(_, end)| *end), Some(4 * slots.iter().sum::<usize>()));
    }
}
