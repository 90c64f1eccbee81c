//! Which of the values that are kept whole between sweeps share memory: those that no sweep needs together.

use tiled_geometry::Region;
use tiled_kernel::Backend;
use tiled_tensor::{Element, Layout, OutOfMemory, filled, with_room};

use super::PlanError;
use super::slots::{Span, Spans, Stored};
use crate::index::{Id, IndexVec};
use crate::program::{Program, SinkRole, SourceRole, StoreId};
use crate::sweep::{Action, Sweep};

/// The slot of each value, and the elements of each slot.
pub(super) type StoredWhole = Stored<StoreId>;

/// The elements of each value, one at least.
pub(super) fn sizes<T: Element>(
    program: &Program,
    backend: &dyn Backend<T>,
) -> Result<IndexVec<StoreId, usize>, PlanError> {
    let mut sizes = with_room(program.stores.len())?;
    for store in &program.stores {
        let [batch, channels, height, width] = store.shape;
        let extents = [height, width].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
        let layout = Layout::new(batch, channels, backend.block(channels), Region::whole(extents), height);
        sizes.push(layout.map_err(|_| PlanError::TooLarge)?.len().max(1));
    }
    Ok(sizes.into())
}

/// Gives values slots: each is held from the sweep that writes it to the last one that reads it.
pub(super) fn assign(sweeps: &[Sweep], sizes: &IndexVec<StoreId, usize>) -> Result<StoredWhole, OutOfMemory> {
    let mut held: Vec<Span> = filled(sizes.len(), None)?;
    for (sweep, nodes) in (0_u64..).zip(sweeps) {
        for node in nodes {
            let (Action::Load(SourceRole::Store(store)) | Action::Write(SinkRole::Store(store))) =
                node.action
            else {
                continue;
            };
            let span = &mut held[store.index()];
            *span = Some([span.map_or(sweep, |[first, _]| first), sweep]);
        }
    }
    let mut spans = Spans::default();
    spans.add(held)?;
    spans.assign(sizes)
}
