//! What lives between sweeps and in no queue: whole tensors in files, and values of one pixel.

use std::path::Path;

use tiled_geometry::Region;
use tiled_graph::program::{NodeKind, PixelId, SinkRole, SourceRole, StoreId};
use tiled_graph::{Action, Id, IndexVec, Plan};
use tiled_tensor::{Element, Layout, View, filled, with_room, zeros};

use crate::ExecError;
use crate::error::refused;
use crate::file::{TemporaryFile, temporary_file};

/// How each whole tensor lies in memory; `None` where no sweep writes it, or it lies in a file.
pub(crate) fn layouts(plan: &Plan) -> Result<IndexVec<StoreId, Option<Layout>>, ExecError> {
    let stores = &plan.program.stores;
    let mut layouts = with_room(stores.len()).map_err(refused("the values kept between sweeps"))?;
    for (id, store) in stores.entries() {
        let block = block(plan, id).filter(|_| !plan.stores_in_files);
        let [batch, channels, height, width] = store.shape;
        let extents = [height, width].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
        let layout = block.map(|block| Layout::new(batch, channels, block, Region::whole(extents), height));
        layouts.push(layout.transpose()?);
    }
    Ok(layouts.into())
}

/// The channel block of the windows that are copied in and out of a whole tensor; `None` where no sweep writes it.
fn block(plan: &Plan, store: StoreId) -> Option<usize> {
    let mut nodes = plan.sweeps.iter().flat_map(|sweep| &sweep.nodes);
    // the operand is the node itself, or the one before a checkpoint's sink
    let writer = nodes.find(|node| node.action == Action::Write(SinkRole::Store(store)))?;
    Some(plan.blocks[writer.node])
}

/// The file of each whole tensor that lies in one, those of a slot in the same.
fn files<T: Element>(
    plan: &Plan,
    folder: &Path,
) -> Result<IndexVec<StoreId, Option<TemporaryFile>>, ExecError> {
    let refused = || refused("the values kept between sweeps");
    let stores = &plan.program.stores;
    let slot_of = |id: StoreId| plan.store_slots[id].filter(|_| plan.stores_in_files);
    let slots = stores.ids().filter_map(slot_of).map(|slot| slot.index() + 1).max().unwrap_or(0);
    let mut bytes = filled(slots, 0).map_err(refused())?;
    for (id, store) in stores.entries() {
        if let Some(slot) = slot_of(id) {
            bytes[slot.index()] = bytes[slot.index()].max(TemporaryFile::bytes::<T>(folder, store.shape)?);
        }
    }
    let mut of_slots = with_room(slots).map_err(refused())?;
    for bytes in bytes {
        of_slots.push(temporary_file(folder, bytes)?);
    }
    let mut files = with_room(stores.len()).map_err(refused())?;
    for (id, store) in stores.entries() {
        let file =
            slot_of(id).map(|slot| TemporaryFile::of::<T>(&of_slots[slot.index()], folder, store.shape));
        files.push(file.transpose()?);
    }
    Ok(files.into())
}

/// The values that the host keeps.
#[derive(Debug)]
pub(crate) struct Stores<T: Element> {
    files: IndexVec<StoreId, Option<TemporaryFile>>,
    /// Values of one pixel, as a window holds them.
    pixels: IndexVec<PixelId, (Vec<T>, Layout)>,
}

impl<T: Element> Stores<T> {
    /// Those of a plan, temporary files in `folder`.
    pub(crate) fn new(plan: &Plan, folder: &Path) -> Result<Self, ExecError> {
        let program = &plan.program;
        let files = files::<T>(plan, folder)?;
        let mut pixels = with_room(program.pixels.len()).map_err(refused("the values of one pixel"))?;
        for (id, [batch, channels]) in program.pixels.entries() {
            let role = NodeKind::Source(SourceRole::Pixel(id));
            let reader = program.nodes.iter().zip(&plan.blocks).find(|(node, _)| node.kind == role);
            let block = reader.map_or(1, |(_, block)| *block);
            let layout = Layout::new(*batch, *channels, block, Region::whole([1, 1]), 1)?;
            let values = zeros(layout.len()).map_err(refused("the values of one pixel"))?;
            pixels.push((values, layout));
        }
        Ok(Self { files, pixels: pixels.into() })
    }

    /// The file of a whole tensor that lies in one.
    pub(crate) fn file(&self, store: StoreId) -> Option<&TemporaryFile> {
        self.files[store].as_ref()
    }

    /// A value of one pixel.
    pub(crate) fn pixel(&self, pixel: PixelId) -> View<'_, T> {
        let (values, layout) = &self.pixels[pixel];
        View::new(values, *layout)
    }

    /// Its elements, the channels of one image after another.
    pub(crate) fn pixel_mut(&mut self, pixel: PixelId) -> impl Iterator<Item = &mut T> {
        let (values, layout) = &mut self.pixels[pixel];
        let channels = layout.channels();
        values.chunks_mut(layout.batch_stride().max(1)).flat_map(move |image| &mut image[..channels])
    }
}
