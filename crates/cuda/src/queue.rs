//! The calls of a lane on a stream.

use std::collections::VecDeque;
use std::sync::Arc;

use tiled_geometry::{Interval, Region};
use tiled_kernel::{Buffer, DeviceError, Kernel, MAX_INPUTS, Place, Queue, Reduction, Ticket};
use tiled_tensor::{DeviceTensor, Element, Layout, PartMut, View, ViewMut};

use crate::device::On;
use crate::driver::{Copy, Driver, DriverError, Rows, Stream, Way};
use crate::lower::{self, Given, Gradient, Window};
use crate::memory::{Chunk, OwnStream};
use crate::shared::Shared;
use crate::staging::{Lift, PIECE_BYTES};

/// The regions that are under way to the host at a time.
const DEPTH: usize = 2;
/// The regions that are under way to the device while the host writes another.
const AHEAD: usize = 2;

/// The regions that have pinned memory at a time in each queue: on their way to the device, and back.
#[must_use]
pub const fn pinned_regions() -> [u64; 2] {
    [AHEAD as u64 + 1, DEPTH as u64 + 1]
}

/// The streams of a lane, with the pinned memory that regions pass through.
#[derive(Debug)]
pub(crate) struct Rings {
    // before the chunks: what they still run uses them
    pub(crate) stream: OwnStream,
    inward: Lift,
    outward: Lift,
    /// One more than are ahead: the host writes that.
    sent: Vec<Chunk>,
    /// One more than are under way: the host reads that.
    fetched: Vec<Chunk>,
}

impl Rings {
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Result<Self, DriverError> {
        let chunks = |count: usize| (0..count).map(|_| Chunk::new(driver)).collect::<Result<Vec<_>, _>>();
        let stream = OwnStream::new(driver)?;
        let [inward, outward] = Lift::both(driver)?;
        Ok(Self { stream, inward, outward, sent: chunks(AHEAD + 1)?, fetched: chunks(DEPTH + 1)? })
    }
}

/// Where what a queue works on begins.
#[derive(Debug)]
pub(crate) struct QueueMemory {
    pub(crate) slots: Vec<u64>,
    pub(crate) vectors: Vec<u64>,
    pub(crate) adopted: Vec<Window>,
    pub(crate) scratch: u64,
    /// The pieces that regions pass through beside the kernels; none where nothing was promised for them.
    pub(crate) pieces: Option<u64>,
}

/// Calls on a stream, on windows of the device.
pub(crate) struct CudaQueue<'q, T: Element> {
    shared: &'q Shared<'q>,
    lent: &'q [DeviceTensor<T>],
    rings: &'q mut Rings,
    memory: QueueMemory,
    /// How bands lie one after another in the chunk that the host writes.
    staged: Vec<Layout>,
    next_sent: usize,
    next_fetched: usize,
    /// What was fetched and not yet taken: the chunk, and how it lies there.
    under_way: VecDeque<(Ticket, usize, Layout)>,
    tickets: u64,
    /// Whether anything was asked for since the last wait.
    is_busy: bool,
}

impl<'q, T: Element> CudaQueue<'q, T> {
    pub(crate) const fn new(
        shared: &'q Shared<'q>,
        lent: &'q [DeviceTensor<T>],
        rings: &'q mut Rings,
        memory: QueueMemory,
    ) -> Self {
        Self {
            shared,
            lent,
            rings,
            memory,
            staged: Vec::new(),
            next_sent: 0,
            next_fetched: 0,
            under_way: VecDeque::new(),
            tickets: 0,
            is_busy: false,
        }
    }

    fn window(&self, buffer: &Buffer) -> Window {
        match buffer.place {
            Place::Slot(slot) => Window { address: self.memory.slots[slot], layout: buffer.layout },
            Place::Store(store) => {
                let Window { address, layout } = self.shared.store(store);
                Window { address, layout: layout.with_rows(buffer.layout.rows()) }
            }
            Place::Adopted(place) => {
                let Window { address, layout } = self.memory.adopted[place];
                Window { address, layout: layout.with_rows(buffer.layout.rows()) }
            }
            Place::Nowhere => Window { address: 0, layout: nothing(&buffer.layout) },
        }
    }

    fn windows(&self, buffers: &[Buffer]) -> [Window; MAX_INPUTS] {
        let mut windows = [Window { address: 0, layout: empty(0, 0, 1) }; MAX_INPUTS];
        for (window, buffer) in windows.iter_mut().zip(buffers) {
            *window = self.window(buffer);
        }
        windows
    }

    /// Checks that a tensor was lent: then it lies on the device, and its stream is waited for.
    fn require_lent(&self, tensor: &DeviceTensor<T>) -> Result<(), DeviceError> {
        if self.lent.contains(tensor) {
            return Ok(());
        }
        let message = format!("the tensor at {:#x} was not lent", tensor.address());
        Err(DeviceError::Failed { call: "copy".to_owned(), message })
    }

    const fn on<'s>(&'s self, what: &'s str) -> On<'s> {
        On { device: self.shared.device, stream: self.rings.stream.stream, what }
    }

    /// Copies a region, in all images and channels, between windows that hold it and have blocks of one size.
    fn copy(
        &self,
        stream: Stream,
        way: Way,
        [from, to]: [&Window; 2],
        region: Region<2>,
    ) -> Result<(), DriverError> {
        if region.is_empty() {
            return Ok(());
        }
        for window in [from, to] {
            let held = window.layout.region();
            assert!(held.contains_region(region), "window holds {held}, copied {region}");
        }
        let blocks = [from, to].map(|window| window.layout.block());
        assert_eq!(blocks[0], blocks[1], "windows with blocks of one size");
        let bytes = extent(region.cols().len()) * blocks[0] * size_of::<T>();
        let planes = from.layout.batch() * from.layout.blocks();
        let mut begin = region.rows().begin();
        while begin < region.rows().end() {
            // as many rows as neither ring cuts
            let left = |layout: &Layout| ring(layout) - begin.rem_euclid(ring(layout));
            let rows = (region.rows().end() - begin).min(left(&from.layout)).min(left(&to.layout));
            let side = |window: &Window| {
                let layout = &window.layout;
                let offset = layout.row_offset(0, 0, begin)
                    + extent(region.cols().begin() - layout.cols().begin()) * layout.block();
                Rows {
                    address: window.address + (offset * size_of::<T>()) as u64,
                    row_bytes: layout.row_stride() * size_of::<T>(),
                    plane_bytes: layout.block_stride() * size_of::<T>(),
                }
            };
            let copy = Copy { way, from: side(from), to: side(to), bytes, rows: extent(rows), planes };
            // SAFETY: both windows hold the region; what is written belongs to this queue, or to a store that no other call of the sweep
            // writes there, and pinned chunks are waited for before the host touches them again
            unsafe { self.shared.device.driver().copy(stream, &copy) }?;
            begin += rows;
        }
        Ok(())
    }

    /// A region as bands that a piece holds each; `None` where it does not hold a row.
    fn bands(&self, layout: &Layout, region: Region<2>) -> Option<(u64, Vec<Region<2>>)> {
        let address = self.memory.pieces?;
        let planes = layout.batch() * layout.blocks();
        let row_bytes = planes * extent(region.cols().len()) * layout.block() * size_of::<T>();
        let [begin, end] = [region.rows().begin(), region.rows().end()];
        // between the blocks of a piece there may be gaps
        let holds = |rows: i64| {
            let band = Region::from_rows_cols(Interval::new(begin, begin + rows), region.cols());
            compact(layout, band).len() * size_of::<T>() <= PIECE_BYTES
        };
        let most = i64::try_from(PIECE_BYTES.checked_div(row_bytes)?).ok()?.min(end - begin);
        let rows = (1..=most).rev().find(|rows| holds(*rows))?;
        let begins = (0..).map(|band| begin + band * rows).take_while(|at| *at < end);
        let band = |at: i64| Region::from_rows_cols(Interval::new(at, end.min(at + rows)), region.cols());
        Some((address, begins.map(band).collect()))
    }

    /// Sends a region from pinned memory to a window; gives the stream that reads the pinned memory.
    fn send(&mut self, from: &Window, to: &Window, region: Region<2>) -> Result<Stream, DriverError> {
        let kernels = self.rings.stream.stream;
        let Some((address, bands)) = self.bands(&to.layout, region) else {
            self.copy(kernels, Way::In, [from, to], region)?;
            return Ok(kernels);
        };
        let inward = self.rings.inward.stream.stream;
        for band in bands {
            let taken = self.rings.inward.take(inward)?;
            let piece = Window { address: address + taken.offset, layout: compact(&to.layout, band) };
            self.copy(inward, Way::In, [from, &piece], band)?;
            self.rings.inward.pass(taken, inward, kernels)?;
            self.copy(kernels, Way::Within, [&piece, to], band)?;
            self.rings.inward.give_back(taken, kernels)?;
        }
        Ok(inward)
    }

    /// Sends a region from a window to pinned memory; gives the stream that writes the pinned memory.
    fn bring(&mut self, from: &Window, to: &Window, region: Region<2>) -> Result<Stream, DriverError> {
        let kernels = self.rings.stream.stream;
        let Some((address, bands)) = self.bands(&from.layout, region) else {
            self.copy(kernels, Way::Out, [from, to], region)?;
            return Ok(kernels);
        };
        let outward = self.rings.outward.stream.stream;
        for band in bands {
            let taken = self.rings.outward.take(kernels)?;
            let piece = Window { address: address + taken.offset, layout: compact(&from.layout, band) };
            self.copy(kernels, Way::Within, [from, &piece], band)?;
            self.rings.outward.pass(taken, kernels, outward)?;
            self.copy(outward, Way::Out, [&piece, to], band)?;
            self.rings.outward.give_back(taken, outward)?;
        }
        Ok(outward)
    }

    /// Waits for all streams; the first error of them.
    fn synchronise(&self) -> Result<(), DriverError> {
        let Rings { stream, inward, outward, .. } = &*self.rings;
        let waits = [stream, &inward.stream, &outward.stream]
            .map(|stream| self.shared.device.driver().synchronise(stream.stream));
        waits.into_iter().collect()
    }
}

impl<T: Element> Queue<T> for CudaQueue<'_, T> {
    fn compute(
        &mut self,
        node: usize,
        kernel: &Kernel,
        inputs: &[Buffer],
        output: &Buffer,
        region: Region<2>,
    ) -> Result<(), DeviceError> {
        if !matches!(output.place, Place::Slot(_) | Place::Store(_)) {
            return Ok(());
        }
        self.is_busy = true;
        let windows = self.windows(inputs);
        let (params, extrema, name) = self.shared.params::<T>(node);
        let output = self.window(output);
        let inputs = &windows[..inputs.len()];
        let given = Given { dtype: T::DTYPE, inputs, output, region, params, extrema };
        lower::compute(&self.on(name), kernel, &given)
    }

    fn compute_part(
        &mut self,
        _node: usize,
        kernel: &Kernel,
        _inputs: &[Buffer],
        _output: PartMut<'_, T>,
        _region: Region<2>,
    ) -> Result<(), DeviceError> {
        panic!("invariant: {} writes no tensors of the host", kernel.name());
    }

    fn reduce(
        &mut self,
        lane: usize,
        reduction: usize,
        vectors: &[usize],
        inputs: &[Buffer],
        share: Region<2>,
    ) -> Result<(), DeviceError> {
        if share.is_empty() {
            return Ok(());
        }
        self.is_busy = true;
        let gathered = &self.shared.reductions[reduction];
        let (state, windows) = (gathered.lanes[lane], self.windows(inputs));
        let on = self.on(&gathered.name);
        if let Reduction::ConvWeight(conv) = &gathered.reduction {
            let gradient = Gradient::new(conv, T::DTYPE, self.shared.device.precision());
            return gradient.reduce(&on, [&windows[0], &windows[1]], share, [self.memory.scratch, state]);
        }
        let mean = vectors.first().map_or(0, |vector| self.memory.vectors[*vector]);
        gathered.with_terms(lane, |terms| {
            let inputs = &windows[..inputs.len()];
            lower::reduce(&on, &gathered.reduction, T::DTYPE, inputs, share, mean, state, terms)
        })
    }

    fn load(&mut self, store: usize, window: &Buffer, region: Region<2>) -> Result<(), DeviceError> {
        if !matches!(window.place, Place::Slot(_)) {
            return Ok(());
        }
        self.is_busy = true;
        let copied = self.copy(
            self.rings.stream.stream,
            Way::Within,
            [&self.shared.store(store), &self.window(window)],
            region,
        );
        copied.map_err(DriverError::doing("a value kept between sweeps"))
    }

    fn save(&mut self, window: &Buffer, store: usize, region: Region<2>) -> Result<(), DeviceError> {
        self.is_busy = true;
        let copied = self.copy(
            self.rings.stream.stream,
            Way::Within,
            [&self.window(window), &self.shared.store(store)],
            region,
        );
        copied.map_err(DriverError::doing("a value kept between sweeps"))
    }

    fn stage(&mut self, window: &Buffer, region: Region<2>) -> Result<ViewMut<'_, T>, DeviceError> {
        Ok(self.stage_bands(window, &[region])?.remove(0))
    }

    fn stage_bands(
        &mut self,
        window: &Buffer,
        bands: &[Region<2>],
    ) -> Result<Vec<ViewMut<'_, T>>, DeviceError> {
        self.staged.clear();
        self.staged.extend(bands.iter().map(|band| compact(&window.layout, *band)));
        let chunk = &mut self.rings.sent[self.next_sent];
        let len = self.staged.iter().map(Layout::len).sum();
        let reserved = chunk.reserve(len * size_of::<T>());
        reserved.map_err(DriverError::doing("pinned memory for what a source fills"))?;
        // SAFETY: it was waited for
        let mut rest = unsafe { chunk.elements(len) };
        let view = |layout: &Layout| {
            let (band, others) = std::mem::take(&mut rest).split_at_mut(layout.len());
            rest = others;
            ViewMut::new(band, *layout)
        };
        Ok(self.staged.iter().map(view).collect())
    }

    fn push(&mut self, window: &Buffer, _region: Region<2>) -> Result<(), DeviceError> {
        self.is_busy = true;
        let to = self.window(window);
        let mut address = self.rings.sent[self.next_sent].address();
        assert!(!self.staged.is_empty(), "invariant: what is pushed was staged");
        let mut sent = Ok(());
        for number in 0..self.staged.len() {
            let layout = self.staged[number];
            let from = Window { address, layout };
            sent = sent
                .and_then(|()| self.send(&from, &to, layout.region()))
                .and_then(|stream| self.rings.sent[self.next_sent].use_by(stream));
            address += (layout.len() * size_of::<T>()) as u64;
        }
        self.staged.clear();
        self.next_sent = (self.next_sent + 1) % self.rings.sent.len();
        sent.map_err(DriverError::doing("what a source has filled"))
    }

    fn fetch(&mut self, window: &Buffer, region: Region<2>) -> Result<Ticket, DeviceError> {
        self.is_busy = true;
        assert!(self.under_way.len() <= DEPTH, "more than {DEPTH} regions are under way");
        let layout = compact(&window.layout, region);
        let index = self.next_fetched;
        let reserved = self.rings.fetched[index].reserve(layout.len() * size_of::<T>());
        let doing = || DriverError::doing("what a sink reads");
        reserved.map_err(doing())?;
        let to = Window { address: self.rings.fetched[index].address(), layout };
        let from = self.window(window);
        self.bring(&from, &to, region)
            .and_then(|stream| self.rings.fetched[index].use_by(stream))
            .map_err(doing())?;
        self.next_fetched = (index + 1) % self.rings.fetched.len();
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.under_way.push_back((ticket, index, layout));
        Ok(ticket)
    }

    fn take(&mut self, ticket: Ticket) -> Result<View<'_, T>, DeviceError> {
        let place = self.under_way.iter().position(|(held, ..)| *held == ticket);
        let held = place.and_then(|place| self.under_way.remove(place));
        let (_, index, layout) = held.expect("invariant: what is taken was fetched");
        let chunk = &mut self.rings.fetched[index];
        chunk.wait().map_err(DriverError::doing("what a sink reads"))?;
        // SAFETY: it was waited for, and the next fetch but as many as are under way uses it again
        Ok(View::new(unsafe { chunk.elements(layout.len()) }, layout))
    }

    fn import(
        &mut self,
        tensor: &DeviceTensor<T>,
        window: &Buffer,
        region: Region<2>,
    ) -> Result<(), DeviceError> {
        self.require_lent(tensor)?;
        self.is_busy = true;
        lower::import(&self.on("a tensor of the caller"), tensor, &self.window(window), region)
    }

    fn export(
        &mut self,
        window: &Buffer,
        tensor: &DeviceTensor<T>,
        region: Region<2>,
    ) -> Result<(), DeviceError> {
        self.require_lent(tensor)?;
        self.is_busy = true;
        lower::export(&self.on("a tensor of the caller"), &self.window(window), tensor, region)
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        let waited = self.synchronise();
        self.is_busy = waited.is_err();
        waited.map_err(DriverError::doing("the calls of a lane"))
    }
}

impl<T: Element> Drop for CudaQueue<'_, T> {
    fn drop(&mut self) {
        if !self.is_busy {
            return;
        }
        // what was asked for still uses vectors and windows; its error has no one to go to
        let _ = self.synchronise();
    }
}

/// How a region of a window lies by itself.
fn compact(of: &Layout, region: Region<2>) -> Layout {
    if region.is_empty() {
        return nothing(of);
    }
    let rows = extent(region.rows().len());
    let layout = Layout::new(of.batch(), of.channels(), of.block(), region, rows);
    layout.expect("invariant: a part of a window is no larger")
}

fn nothing(of: &Layout) -> Layout {
    empty(of.batch(), of.channels(), of.block())
}

fn empty(batch: usize, channels: usize, block: usize) -> Layout {
    Layout::new(batch, channels, block, Region::new([Interval::EMPTY; 2]), 1)
        .expect("invariant: an empty layout has no size to overflow")
}

fn ring(layout: &Layout) -> i64 {
    i64::try_from(layout.ring()).expect("invariant: layouts have 63-bit sizes")
}

fn extent(len: i64) -> usize {
    usize::try_from(len).expect("invariant: the region lies in the window")
}
