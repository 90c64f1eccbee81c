//! The memory of a run and the calls that work in it.
//!
//! ```text
//!   Backend ──open──► Context     packed parameters, stores, partial sums of every lane, room for windows
//!                        │
//!                     queues      one for each lane in flight, for the length of a sweep
//!                        ▼
//!                      Queue      compute, reduce, load, save                     on windows, in order
//!                                 stage ► push, fetch ► take                      in and out of the host's memory
//!                                 import, export                                  in and out of tensors on the device
//! ```

use std::fmt::Debug;

use tiled_geometry::Region;
use tiled_tensor::{
    DeviceTensor, Element, Layout, MemoryDevice, OutOfMemory, PartMut, View, ViewMut, filled,
};

use crate::{Kernel, Partial, Reduction};

/// What a [`Context`] makes room for when it is opened, but for what [`ParamNeeds::PackedLater`] puts off.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'n> {
    /// Each node with what its parameters need.
    pub nodes: &'n [NodeNeeds<'n>],
    /// What is gathered of the whole image.
    pub reductions: &'n [ReductionNeeds<'n>],
    /// Whole tensors that lie in the memory of the device between sweeps; `None` where nobody writes one, or it lies in a file.
    pub stores: &'n [Option<StoreNeeds<'n>>],
    /// The shares of the image that gather apart.
    pub lanes: usize,
    /// The queues that work at a time, of the sweep with the most.
    pub queues: usize,
    /// The elements of all windows of all queues of a sweep, of the one with the most.
    pub window_elements: usize,
    /// The threads that call.
    pub threads: usize,
    /// The bytes that each of them needs beside the windows, for the length of a call.
    pub workspace_bytes: usize,
}

impl<'n> Needs<'n> {
    /// The longest reduction of each slot; `None` of a slot without one.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn longest_reductions(&self) -> Result<Vec<Option<&'n ReductionNeeds<'n>>>, OutOfMemory> {
        let slots = self.reductions.iter().map(|reduction| reduction.slot + 1).max().unwrap_or(0);
        let mut longest: Vec<Option<&ReductionNeeds<'_>>> = filled(slots, None)?;
        for reduction in self.reductions {
            let slot = &mut longest[reduction.slot];
            if slot.is_none_or(|longest| reduction.partial_bytes > longest.partial_bytes) {
                *slot = Some(reduction);
            }
        }
        Ok(longest)
    }

    /// The longest store of each slot; `None` of a slot without one.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn longest_stores(&self) -> Result<Vec<Option<StoreNeeds<'n>>>, OutOfMemory> {
        let slots = self.stores.iter().flatten().map(|store| store.slot + 1).max().unwrap_or(0);
        let mut longest: Vec<Option<StoreNeeds<'n>>> = filled(slots, None)?;
        for store in self.stores.iter().flatten() {
            let slot = &mut longest[store.slot];
            if slot.is_none_or(|longest| store.layout.len() > longest.layout.len()) {
                *slot = Some(*store);
            }
        }
        Ok(longest)
    }
}

/// What a node needs.
#[derive(Clone, Copy, Debug)]
pub struct NodeNeeds<'n> {
    /// Its name, for messages.
    pub name: &'n str,
    /// What its kernel reads beside its inputs.
    pub params: ParamNeeds,
}

/// Where the parameters of a node lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamNeeds {
    /// In memory of their own, of so many bytes, where [`Context::pack`] arranges them; none for most.
    Packed {
        /// As [`crate::Support::packed_bytes`].
        bytes: usize,
    },
    /// The same in memory that the first [`Context::pack`] takes, windows and stores in memory that the first [`Context::queues`] takes: of a run that lets go of
    /// what was packed before it packs more. Only where the context's memory is the host's.
    PackedLater {
        /// As [`crate::Support::packed_bytes`].
        bytes: usize,
    },
    /// Where a reduction of the same run has found them: its [`Partial::Extrema`] after [`Context::merge`], in a later sweep. They are
    /// not packed, and none of them goes through the host.
    Extrema {
        /// The reduction, by its place in [`Needs::reductions`].
        reduction: usize,
    },
}

/// What a reduction needs.
#[derive(Clone, Copy, Debug)]
pub struct ReductionNeeds<'n> {
    /// The name of its node, for messages.
    pub name: &'n str,
    /// What it gathers.
    pub reduction: Reduction,
    /// The images of its domain.
    pub batch: usize,
    /// The channels of its domain.
    pub channels: usize,
    /// The bytes of what it has gathered, as [`crate::Support::partial_bytes`].
    pub partial_bytes: usize,
    /// The memory of each lane that it lies in, from [`Context::clear`] on until that of another one of the slot, which has the same
    /// kind of [`Partial`]. A slot is as long as the longest.
    pub slot: usize,
}

/// A whole tensor between sweeps.
#[derive(Clone, Copy, Debug)]
pub struct StoreNeeds<'n> {
    /// Its name, for messages.
    pub name: &'n str,
    /// How it lies: in the blocks of the windows that are copied in and out.
    pub layout: Layout,
    /// The memory that it lies in: no sweep needs two of one slot, which is as long as the longest.
    pub slot: usize,
}

/// What the queues of a sweep work on.
#[derive(Clone, Copy, Debug)]
pub struct SweepNeeds<'s, T: Element> {
    /// The queues, at most as many as [`Needs::queues`].
    pub queues: usize,
    /// The elements of each slot of a queue. Windows lie in slots, several in one where they are never held together.
    pub slots: &'s [usize],
    /// The vectors that reductions read, by their indices.
    pub vectors: &'s [Vec<T>],
    /// The tensors that kernels read where they lie, by the places of [`Place::Adopted`].
    pub adopted: &'s [Option<View<'s, T>>],
}

/// Where a window lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a slot of the queue.
    Slot(usize),
    /// In a store ([`Needs::stores`]). Calls of a sweep write one only where there is a single queue; others of that queue then read
    /// what they have written.
    Store(usize),
    /// In a tensor of the caller ([`SweepNeeds::adopted`]).
    Adopted(usize),
    /// Nowhere: nobody reads it, or it is empty.
    Nowhere,
}

/// Rows and columns of a tensor, and where they lie.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Buffer {
    /// The memory.
    pub place: Place,
    /// How they lie there, in global coordinates.
    pub layout: Layout,
}

/// A region that was fetched and not yet taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(pub u64);

/// The memory of a run on a device: packed parameters, stores, partial sums of every lane, and room for the windows of all queues.
/// It is given back when the drop returns.
pub trait Context<T: Element>: Send + Sync + Debug {
    /// Arranges the parameters of a node for its calls, where they are [`ParamNeeds::Packed`] or [`ParamNeeds::PackedLater`].
    ///
    /// # Errors
    /// Where memory for them is refused, or the device fails.
    fn pack(&mut self, node: usize, kernel: &Kernel, params: &[&[T]]) -> Result<(), DeviceError>;

    /// Lends the queues of a run tensors of the caller in the memory of the device, for [`Queue::import`] and [`Queue::export`]; those that
    /// were lent before are given back. What was asked of a tensor's stream before this comes before what a queue does with it. No queue works meanwhile.
    ///
    /// # Errors
    /// Where one lies elsewhere, or the device fails; then none is lent.
    fn lend(&mut self, tensors: &[DeviceTensor<T>]) -> Result<(), DeviceError>;

    /// The queues of a sweep, as many as [`SweepNeeds::queues`]. Nothing is left in their slots from the sweep before.
    ///
    /// # Errors
    /// Where memory for a list is refused, or the device fails.
    fn queues<'q>(
        &'q mut self,
        sweep: &SweepNeeds<'q, T>,
    ) -> Result<Vec<Box<dyn Queue<T> + 'q>>, DeviceError>;

    /// Begins a reduction, before the sweep that gathers it: nothing is gathered, and what lay in its slot is gone.
    ///
    /// # Errors
    /// Where the device fails.
    fn clear(&mut self, reduction: usize) -> Result<(), DeviceError>;

    /// Takes what the later lanes have gathered into the first one's, in order. Once for each reduction and run.
    ///
    /// # Errors
    /// Where the device fails.
    fn merge(&mut self, reduction: usize) -> Result<(), DeviceError>;

    /// What the first lane has gathered: after [`Context::merge`] that of all.
    ///
    /// # Errors
    /// Where the device fails.
    fn partial(&mut self, reduction: usize) -> Result<&Partial<T>, DeviceError>;

    /// The same of a [`Partial::Values`], in the layout that [`Reduction`] names.
    ///
    /// # Errors
    /// Where the device fails.
    ///
    /// # Panics
    /// Where the length does not fit the reduction.
    fn unpack(&mut self, reduction: usize, result: &mut [T]) -> Result<(), DeviceError>;
}

/// The calls of one lane at a time, in order, on windows of its own.
///
/// A call need not have run when it returns, and its error may come with a later one, at the latest with [`Queue::wait`]. What
/// the host's memory shows is what [`Queue::stage`] and [`Queue::take`] give.
pub trait Queue<T: Element>: Send {
    /// Computes `region` of the output of a node, which lies in the region of `output`. Each input holds at least what the region needs, clipped
    /// to the tensor.
    ///
    /// # Errors
    /// Where the device fails.
    ///
    /// # Panics
    /// Where a window does not hold what the region needs.
    fn compute(
        &mut self,
        node: usize,
        kernel: &Kernel,
        inputs: &[Buffer],
        output: &Buffer,
        region: Region<2>,
    ) -> Result<(), DeviceError>;

    /// The same into a part of a tensor of the caller, whose other parts others have, for a kernel with
    /// [`crate::Support::writes_planes`]. It has run when this returns.
    ///
    /// # Errors
    /// Where the device fails.
    ///
    /// # Panics
    /// As [`Queue::compute`].
    fn compute_part(
        &mut self,
        node: usize,
        kernel: &Kernel,
        inputs: &[Buffer],
        output: PartMut<'_, T>,
        region: Region<2>,
    ) -> Result<(), DeviceError>;

    /// Takes the disjoint `share` of the domain into what a lane has gathered. `vectors` are the parameters in the order of [`Reduction`].
    ///
    /// # Errors
    /// Where the device fails.
    ///
    /// # Panics
    /// Where a window does not hold what the share needs.
    fn reduce(
        &mut self,
        lane: usize,
        reduction: usize,
        vectors: &[usize],
        inputs: &[Buffer],
        share: Region<2>,
    ) -> Result<(), DeviceError>;

    /// Copies a region of a store into a window.
    ///
    /// # Errors
    /// Where the device fails.
    fn load(&mut self, store: usize, window: &Buffer, region: Region<2>) -> Result<(), DeviceError>;

    /// Copies a region of a window into a store.
    ///
    /// # Errors
    /// Where the device fails.
    fn save(&mut self, window: &Buffer, store: usize, region: Region<2>) -> Result<(), DeviceError>;

    /// Memory in which the host writes a region of a window: it holds that region at least, in blocks of the window, in a layout of its own.
    /// What else it holds is nothing.
    ///
    /// # Errors
    /// Where the device fails.
    fn stage(&mut self, window: &Buffer, region: Region<2>) -> Result<ViewMut<'_, T>, DeviceError>;

    /// The same for bands of a region, which threads of the host write side by side: for each band memory of its own. Asked of queues that the
    /// host goes ahead of alone ([`Queue::depth`] above zero).
    ///
    /// # Errors
    /// Where the device fails.
    fn stage_bands(
        &mut self,
        window: &Buffer,
        bands: &[Region<2>],
    ) -> Result<Vec<ViewMut<'_, T>>, DeviceError>;

    /// Sends a region that the host has written in what the last [`Queue::stage`] or [`Queue::stage_bands`] gave, of the same window.
    ///
    /// # Errors
    /// Where the device fails.
    fn push(&mut self, window: &Buffer, region: Region<2>) -> Result<(), DeviceError>;

    /// Asks for a region of a window, as it is after the calls so far.
    ///
    /// # Errors
    /// Where the device fails.
    fn fetch(&mut self, window: &Buffer, region: Region<2>) -> Result<Ticket, DeviceError>;

    /// What was asked for: that region at least, in blocks of the window, in a layout of its own. It is gone with the next call.
    ///
    /// # Errors
    /// Where the device fails.
    fn take(&mut self, ticket: Ticket) -> Result<View<'_, T>, DeviceError>;

    /// Copies a region of a tensor that was lent into a window.
    ///
    /// # Errors
    /// Where it was not lent, or the device fails.
    fn import(
        &mut self,
        tensor: &DeviceTensor<T>,
        window: &Buffer,
        region: Region<2>,
    ) -> Result<(), DeviceError>;

    /// Copies a region of a window into a tensor that was lent, of which others have the other parts.
    ///
    /// # Errors
    /// Where it was not lent, or the device fails.
    fn export(
        &mut self,
        window: &Buffer,
        tensor: &DeviceTensor<T>,
        region: Region<2>,
    ) -> Result<(), DeviceError>;

    /// How many regions may be under way between [`Queue::fetch`] and [`Queue::take`] while other calls follow. Where it is zero, what is
    /// fetched is taken before the next call.
    fn depth(&self) -> usize;

    /// Returns when all calls have run.
    ///
    /// # Errors
    /// Where one of them failed.
    fn wait(&mut self) -> Result<(), DeviceError>;
}

/// A device that did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Memory is refused.
    #[error("no memory for {what}: {bytes} bytes")]
    OutOfMemory {
        /// What it was for.
        what: String,
        /// Its size.
        bytes: u64,
    },
    /// A tensor lies in memory that the device does not work on.
    #[error("tensor lies on {got}, the work is on {expected}")]
    Elsewhere {
        /// The device that works.
        expected: String,
        /// The device whose memory the tensor lies in.
        got: MemoryDevice,
    },
    /// A call failed.
    #[error("{call}: {message}")]
    Failed {
        /// What was called.
        call: String,
        /// What the device says.
        message: String,
    },
}

impl DeviceError {
    /// The error of memory that was refused for something.
    pub fn refused(what: impl Into<String>) -> impl FnOnce(OutOfMemory) -> Self {
        move |OutOfMemory { bytes }| Self::OutOfMemory { what: what.into(), bytes }
    }
}
