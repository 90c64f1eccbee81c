//! The calls of a lane on the host.

use std::sync::{PoisonError, RwLockReadGuard};

use tiled_geometry::Region;
use tiled_tensor::{AlignedBuffer, DeviceTensor, Element, Layout, MemoryDevice, PartMut, View, ViewMut};

use super::copy::copy_region;
use super::shared::{Gathered, NodeParams, Shared};
use crate::{Buffer, DeviceError, Kernel, MAX_INPUTS, Params, Partial, Place, Queue, SweepNeeds, Ticket};

/// Calls that have run when they return, on windows that are the host's memory.
pub(super) struct HostQueue<'q, T: Element> {
    shared: &'q Shared<'q, T>,
    slots: Vec<&'q mut [T]>,
    sweep: SweepNeeds<'q, T>,
    /// What was fetched and not yet taken.
    fetched: Option<Buffer>,
}

impl<'q, T: Element> HostQueue<'q, T> {
    pub(super) const fn new(
        shared: &'q Shared<'q, T>,
        slots: Vec<&'q mut [T]>,
        sweep: SweepNeeds<'q, T>,
    ) -> Self {
        Self { shared, slots, sweep, fetched: None }
    }

    /// The memory of a window that is in no store.
    fn view(&self, buffer: &Buffer) -> View<'_, T> {
        match buffer.place {
            Place::Slot(slot) => View::new(&*self.slots[slot], buffer.layout),
            Place::Store(_) => unreachable!("invariant: kernels alone read stores in place"),
            Place::Adopted(place) => {
                let tensor = self.sweep.adopted[place].expect("invariant: adopted tensors are there");
                View::new(tensor.data(), tensor.layout().with_rows(buffer.layout.rows()))
            }
            Place::Nowhere => {
                let of = &buffer.layout;
                View::new(&[], empty(of.batch(), of.channels(), of.block()))
            }
        }
    }

    /// Calls `read` with the memory of windows.
    fn with_views<R>(&self, buffers: &[Buffer], read: impl FnOnce(&[View<'_, T>]) -> R) -> R {
        // nobody waits for these locks: where a sweep writes a store, it has one queue
        let mut guards: [Option<RwLockReadGuard<'_, AlignedBuffer<T>>>; MAX_INPUTS] = Default::default();
        for (guard, buffer) in guards.iter_mut().zip(buffers) {
            if let Place::Store(store) = buffer.place {
                let (_, slot) = self.shared.store(store);
                *guard = Some(slot.read().unwrap_or_else(PoisonError::into_inner));
            }
        }
        let mut views = [View::new(&[], empty(0, 0, 1)); MAX_INPUTS];
        for ((view, guard), buffer) in views.iter_mut().zip(&guards).zip(buffers) {
            *view = match (buffer.place, guard) {
                (Place::Store(store), Some(values)) => {
                    let (layout, _) = self.shared.store(store);
                    View::new(&values[..layout.len()], layout.with_rows(buffer.layout.rows()))
                }
                _ => self.view(buffer),
            };
        }
        read(&views[..buffers.len()])
    }

    /// Calls `read` with the parameters of a node.
    fn with_params<R>(&self, node: usize, read: impl FnOnce(Params<'_, T>) -> R) -> R {
        match &self.shared.params[node] {
            NodeParams::Packed(packed) => read(Params::Packed(packed)),
            NodeParams::PackedLater { .. } => unreachable!("invariant: parameters are packed before calls"),
            NodeParams::Extrema { reduction } => {
                let merged = &self.shared.partials[0][self.shared.reductions[*reduction].slot];
                match &*merged.read().unwrap_or_else(PoisonError::into_inner) {
                    Partial::Extrema(extrema) => read(Params::Extrema(extrema)),
                    _ => unreachable!("invariant: kernels read extrema alone"),
                }
            }
        }
    }

    /// Takes the memory of a window out, so that others can be read while it is written.
    fn with_output<R>(
        &mut self,
        output: &Buffer,
        write: impl FnOnce(&Self, &mut ViewMut<'_, T>) -> R,
    ) -> Option<R> {
        if let Place::Store(store) = output.place {
            let (layout, slot) = self.shared.store(store);
            // nor for this one: a node does not read what it writes
            let mut values = slot.write().unwrap_or_else(PoisonError::into_inner);
            let layout = layout.with_rows(output.layout.rows());
            let len = layout.len();
            return Some(write(self, &mut ViewMut::new(&mut values[..len], layout)));
        }
        let Place::Slot(slot) = output.place else { return None };
        let storage = std::mem::take(&mut self.slots[slot]);
        let mut window = ViewMut::new(storage, output.layout);
        let result = write(self, &mut window);
        self.slots[slot] = window.into_data();
        Some(result)
    }
}

impl<T: Element> Queue<T> for HostQueue<'_, T> {
    fn compute(
        &mut self,
        node: usize,
        kernel: &Kernel,
        inputs: &[Buffer],
        output: &Buffer,
        region: Region<2>,
    ) -> Result<(), DeviceError> {
        self.with_output(output, |queue, window| {
            let Shared { host, workspace, .. } = queue.shared;
            queue.with_params(node, |params| {
                queue.with_views(inputs, |views| {
                    host.compute(kernel, params, views, window.reborrow(), region, workspace);
                });
            });
        });
        Ok(())
    }

    fn compute_part(
        &mut self,
        node: usize,
        kernel: &Kernel,
        inputs: &[Buffer],
        output: PartMut<'_, T>,
        region: Region<2>,
    ) -> Result<(), DeviceError> {
        let Shared { host, workspace, .. } = self.shared;
        self.with_params(node, |params| {
            self.with_views(inputs, |views| {
                host.compute_part(kernel, params, views, output, region, workspace);
            });
        });
        Ok(())
    }

    fn reduce(
        &mut self,
        lane: usize,
        reduction: usize,
        vectors: &[usize],
        inputs: &[Buffer],
        share: Region<2>,
    ) -> Result<(), DeviceError> {
        let mut params: [&[T]; MAX_INPUTS] = [&[]; MAX_INPUTS];
        for (param, vector) in params.iter_mut().zip(vectors) {
            *param = &self.sweep.vectors[*vector];
        }
        let Gathered { reduction: spec, slot, .. } = &self.shared.reductions[reduction];
        let mut partial = self.shared.partials[lane][*slot].write().unwrap_or_else(PoisonError::into_inner);
        self.with_views(inputs, |views| {
            self.shared.host.reduce(spec, &params[..vectors.len()], views, share, &mut partial);
        });
        Ok(())
    }

    fn load(&mut self, store: usize, window: &Buffer, region: Region<2>) -> Result<(), DeviceError> {
        let (host, (layout, slot)) = (self.shared.host, self.shared.store(store));
        self.with_output(window, |_, window| {
            let values = slot.read().unwrap_or_else(PoisonError::into_inner);
            host.copy(&View::new(&values[..layout.len()], layout), window.reborrow(), region);
        });
        Ok(())
    }

    fn save(&mut self, window: &Buffer, store: usize, region: Region<2>) -> Result<(), DeviceError> {
        let (layout, slot) = self.shared.store(store);
        let mut values = slot.write().unwrap_or_else(PoisonError::into_inner);
        let mut target = ViewMut::new(&mut values[..layout.len()], layout);
        if self.sweep.queues == 1 {
            self.shared.host.copy(&self.view(window), target, region);
        } else {
            // a thread that waits for a part of a copy may begin with another queue, which would wait for this lock
            copy_region(&self.view(window), &mut target, region);
        }
        Ok(())
    }

    fn stage(&mut self, window: &Buffer, _region: Region<2>) -> Result<ViewMut<'_, T>, DeviceError> {
        let Place::Slot(slot) = window.place else { panic!("invariant: what is staged has a slot") };
        Ok(ViewMut::new(&mut *self.slots[slot], window.layout))
    }

    fn stage_bands(
        &mut self,
        _window: &Buffer,
        _bands: &[Region<2>],
    ) -> Result<Vec<ViewMut<'_, T>>, DeviceError> {
        panic!("invariant: the host does not go ahead of itself");
    }

    fn push(&mut self, _window: &Buffer, _region: Region<2>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn fetch(&mut self, window: &Buffer, _region: Region<2>) -> Result<Ticket, DeviceError> {
        self.fetched = Some(*window);
        Ok(Ticket(0))
    }

    fn take(&mut self, _ticket: Ticket) -> Result<View<'_, T>, DeviceError> {
        let window = self.fetched.take().expect("invariant: what is taken was fetched");
        Ok(self.view(&window))
    }

    fn import(
        &mut self,
        tensor: &DeviceTensor<T>,
        _window: &Buffer,
        _region: Region<2>,
    ) -> Result<(), DeviceError> {
        Err(elsewhere(tensor))
    }

    fn export(
        &mut self,
        _window: &Buffer,
        tensor: &DeviceTensor<T>,
        _region: Region<2>,
    ) -> Result<(), DeviceError> {
        Err(elsewhere(tensor))
    }

    fn depth(&self) -> usize {
        0
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The error of a tensor that is not the host's.
pub(super) fn elsewhere<T: Element>(tensor: &DeviceTensor<T>) -> DeviceError {
    let host = MemoryDevice { kind: MemoryDevice::CPU, index: 0 };
    DeviceError::Elsewhere { expected: host.to_string(), got: tensor.device() }
}

fn empty(batch: usize, channels: usize, block: usize) -> Layout {
    Layout::new(batch, channels, block, Region::EMPTY, 1)
        .expect("invariant: an empty layout has no size to overflow")
}
