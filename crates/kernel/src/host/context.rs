//! The memory of a run on the host.

use std::sync::{PoisonError, RwLock};

use tiled_tensor::{AlignedBuffer, DeviceTensor, Element, OutOfMemory, collected, with_room};

use super::queue::{HostQueue, elsewhere};
use super::shared::{Gathered, NodeParams, Shared, Store};
use super::{Host, Workspace};
use crate::{Context, DeviceError, Kernel, Needs, ParamNeeds, Partial, Queue, StoreNeeds, SweepNeeds};

/// The memory of a run of a backend whose kernels work on the host's: what its [`crate::Backend::open`] gives.
///
/// # Errors
/// Where memory is refused.
pub fn open<'b, T: Element>(
    host: &'b dyn Host<T>,
    needs: &Needs<'_>,
) -> Result<Box<dyn Context<T> + 'b>, DeviceError> {
    let values = Values { window_elements: needs.window_elements, stores: stored(needs)? };
    // while parameters are let go of, there are more of them than afterwards, and no values yet
    let comes_later = needs.nodes.iter().any(|node| matches!(node.params, ParamNeeds::PackedLater { .. }));
    let (arena, store_slots, later) = if comes_later {
        (AlignedBuffer::default(), Vec::new(), Some(values))
    } else {
        (values.windows()?, values.store_slots()?, None)
    };
    let workspace = Workspace::new(needs.threads, needs.workspace_bytes.div_ceil(size_of::<T>()));
    let reductions = needs.reductions.iter().map(|needs| Gathered {
        reduction: needs.reduction,
        slot: needs.slot,
        len: Partial::<T>::len_of(&needs.reduction, needs.batch, needs.channels, needs.partial_bytes),
    });
    let reductions = collected(reductions);
    Ok(Box::new(HostContext {
        arena,
        later,
        shared: Shared {
            host,
            params: params(needs)?,
            reductions: reductions.map_err(DeviceError::refused("the partial sums"))?,
            partials: partials(needs)?,
            stores: stores(needs)?,
            store_slots,
            workspace: workspace.map_err(DeviceError::refused("the workspace of a thread"))?,
        },
    }))
}

/// The memory of a run.
#[derive(Debug)]
struct HostContext<'b, T: Element> {
    /// The windows of all queues.
    arena: AlignedBuffer<T>,
    /// What memory is taken for when the first sweep begins.
    later: Option<Values>,
    shared: Shared<'b, T>,
}

/// The values that sweeps compute.
#[derive(Debug)]
struct Values {
    window_elements: usize,
    /// The name and the elements of the longest one of each slot of those that are kept between sweeps.
    stores: Vec<(String, usize)>,
}

impl Values {
    fn windows<T: Element>(&self) -> Result<AlignedBuffer<T>, DeviceError> {
        AlignedBuffer::try_new(self.window_elements).map_err(DeviceError::refused("the windows"))
    }

    fn store_slots<T: Element>(&self) -> Result<Vec<RwLock<AlignedBuffer<T>>>, DeviceError> {
        let refused = DeviceError::refused("the values kept between sweeps");
        let mut slots = with_room(self.stores.len()).map_err(refused)?;
        for (name, elements) in &self.stores {
            let values = AlignedBuffer::try_new(*elements);
            let refused = |error| DeviceError::refused(format!("`{name}`, kept between sweeps"))(error);
            slots.push(RwLock::new(values.map_err(refused)?));
        }
        Ok(slots)
    }
}

fn params<T: Element>(needs: &Needs<'_>) -> Result<Vec<NodeParams<T>>, DeviceError> {
    let refused = || DeviceError::refused("the packed parameters");
    let mut params = with_room(needs.nodes.len()).map_err(refused())?;
    for node in needs.nodes {
        params.push(match node.params {
            ParamNeeds::Extrema { reduction } => NodeParams::Extrema { reduction },
            ParamNeeds::Packed { bytes } => NodeParams::Packed(packed(node.name, bytes)?),
            ParamNeeds::PackedLater { bytes } => {
                NodeParams::PackedLater { name: node.name.to_owned(), bytes }
            }
        });
    }
    Ok(params)
}

/// Memory for the packed parameters of a node.
fn packed<T: Element>(name: &str, bytes: usize) -> Result<AlignedBuffer<T>, DeviceError> {
    AlignedBuffer::try_new(bytes / size_of::<T>())
        .map_err(|error| DeviceError::refused(format!("the packed parameters of `{name}`"))(error))
}

fn partials<T: Element>(needs: &Needs<'_>) -> Result<Vec<Vec<RwLock<Partial<T>>>>, DeviceError> {
    let refused = || DeviceError::refused("the partial sums");
    let longest = needs.longest_reductions().map_err(refused())?;
    let mut lanes = with_room(needs.lanes).map_err(refused())?;
    for _ in 0..needs.lanes {
        let mut partials = with_room(longest.len()).map_err(refused())?;
        for needs in &longest {
            let needs = needs.expect("invariant: slots are numbered by the reductions that lie in them");
            let partial = Partial::new(&needs.reduction, needs.batch, needs.channels, needs.partial_bytes);
            let refused =
                |error| DeviceError::refused(format!("the partial sums of `{}`", needs.name))(error);
            partials.push(RwLock::new(partial.map_err(refused)?));
        }
        lanes.push(partials);
    }
    Ok(lanes)
}

fn stores(needs: &Needs<'_>) -> Result<Vec<Option<Store>>, DeviceError> {
    let of = |needs: &StoreNeeds<'_>| Store { layout: needs.layout, slot: needs.slot };
    let stores = collected(needs.stores.iter().map(|needs| needs.as_ref().map(of)));
    stores.map_err(DeviceError::refused("the values kept between sweeps"))
}

fn stored(needs: &Needs<'_>) -> Result<Vec<(String, usize)>, DeviceError> {
    let longest = needs.longest_stores().map_err(DeviceError::refused("the values kept between sweeps"))?;
    let of = |needs: Option<StoreNeeds<'_>>| {
        needs.map_or_else(Default::default, |needs| (needs.name.to_owned(), needs.layout.len()))
    };
    collected(longest.into_iter().map(of)).map_err(DeviceError::refused("the values kept between sweeps"))
}

impl<T: Element> HostContext<'_, T> {
    /// The state of a reduction in a lane; nothing is under way.
    fn state(&mut self, lane: usize, reduction: usize) -> &mut Partial<T> {
        let slot = self.shared.reductions[reduction].slot;
        self.shared.partials[lane][slot].get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Element> Context<T> for HostContext<'_, T> {
    fn pack(&mut self, node: usize, kernel: &Kernel, params: &[&[T]]) -> Result<(), DeviceError> {
        let place = &mut self.shared.params[node];
        if let NodeParams::PackedLater { name, bytes } = place {
            *place = NodeParams::Packed(packed(name, *bytes)?);
        }
        match place {
            NodeParams::Packed(packed) => self.shared.host.pack(kernel, params, packed),
            NodeParams::PackedLater { .. } | NodeParams::Extrema { .. } => {
                unreachable!("invariant: memory was taken, and extrema are not packed")
            }
        }
        Ok(())
    }

    fn lend(&mut self, tensors: &[DeviceTensor<T>]) -> Result<(), DeviceError> {
        tensors.first().map_or(Ok(()), |tensor| Err(elsewhere(tensor)))
    }

    fn queues<'q>(
        &'q mut self,
        sweep: &SweepNeeds<'q, T>,
    ) -> Result<Vec<Box<dyn Queue<T> + 'q>>, DeviceError> {
        if let Some(values) = &self.later {
            (self.arena, self.shared.store_slots) = (values.windows()?, values.store_slots()?);
            self.later = None;
        }
        let refused = |error: OutOfMemory| DeviceError::refused("the windows of a lane")(error);
        let elements: usize = sweep.slots.iter().sum();
        let mut queues: Vec<Box<dyn Queue<T> + 'q>> = with_room(sweep.queues).map_err(refused)?;
        let mut storage = self.arena.chunks_exact_mut(elements.max(1));
        for _ in 0..sweep.queues {
            let mut rest = if elements == 0 { None } else { storage.next() }.unwrap_or_default();
            let mut slots = with_room(sweep.slots.len()).map_err(refused)?;
            for elements in sweep.slots {
                let (slot, tail) = rest.split_at_mut(*elements);
                slots.push(slot);
                rest = tail;
            }
            queues.push(Box::new(HostQueue::new(&self.shared, slots, *sweep)));
        }
        Ok(queues)
    }

    fn clear(&mut self, reduction: usize) -> Result<(), DeviceError> {
        let len = self.shared.reductions[reduction].len;
        for lane in 0..self.shared.partials.len() {
            self.state(lane, reduction).clear(len);
        }
        Ok(())
    }

    fn merge(&mut self, reduction: usize) -> Result<(), DeviceError> {
        let slot = self.shared.reductions[reduction].slot;
        let Some((first, others)) = self.shared.partials.split_first_mut() else { return Ok(()) };
        let first = first[slot].get_mut().unwrap_or_else(PoisonError::into_inner);
        for other in others {
            first.merge(other[slot].get_mut().unwrap_or_else(PoisonError::into_inner));
        }
        Ok(())
    }

    fn partial(&mut self, reduction: usize) -> Result<&Partial<T>, DeviceError> {
        Ok(self.state(0, reduction))
    }

    fn unpack(&mut self, reduction: usize, result: &mut [T]) -> Result<(), DeviceError> {
        let (host, spec) = (self.shared.host, self.shared.reductions[reduction].reduction);
        match self.state(0, reduction) {
            Partial::Values(values) => host.unpack(&spec, values, result),
            _ => unreachable!("invariant: only values are unpacked"),
        }
        Ok(())
    }
}
