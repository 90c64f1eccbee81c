//! Values that live between sweeps: whole tensors, and values of one pixel.

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use tiled_geometry::Region;
use tiled_graph::Action;
use tiled_graph::Plan;
use tiled_graph::program::SinkRole;
use tiled_tensor::{AlignedBuffer, Element, Layout, View, ViewMut, with_room, zeros};

use crate::ExecError;
use crate::executor::refused;
use crate::file::ScratchFile;

/// The values that a plan keeps.
#[derive(Debug)]
pub(crate) struct Stores<T: Element> {
    tensors: Vec<Option<Store<T>>>,
    pixels: Vec<(Vec<T>, usize)>,
}

/// A whole tensor.
#[derive(Debug)]
enum Store<T: Element> {
    /// In memory, in the layout of the windows that are copied in and out.
    Memory(RwLock<AlignedBuffer<T>>, Layout),
    /// In a temporary file.
    File(ScratchFile),
}

impl<T: Element> Stores<T> {
    /// The stores of a plan, those in files in the folder `scratch`.
    pub(crate) fn new(plan: &Plan, scratch: &Path) -> Result<Self, ExecError> {
        let program = &plan.program;
        let mut tensors =
            with_room(program.stores.len()).map_err(refused("the values kept between sweeps"))?;
        for place in 0..program.stores.len() {
            tensors.push(Self::store(plan, place, scratch)?);
        }
        let mut pixels = with_room(program.pixels.len()).map_err(refused("the values of one pixel"))?;
        for [batch, channels] in &program.pixels {
            let values = zeros(batch * channels).map_err(refused("the values of one pixel"))?;
            pixels.push((values, *channels));
        }
        Ok(Self { tensors, pixels })
    }

    /// The store at a place; `None` where no sweep writes it.
    fn store(plan: &Plan, place: usize, scratch: &Path) -> Result<Option<Store<T>>, ExecError> {
        let shape = plan.program.stores[place].shape;
        let mut nodes = plan.sweeps.iter().flat_map(|sweep| &sweep.sweep.nodes);
        let Some(writer) = nodes.find(|node| node.action == Action::Write(SinkRole::Store(place))) else {
            return Ok(None);
        };
        if plan.stores_in_files {
            return Ok(Some(Store::File(ScratchFile::create::<T>(scratch, shape)?)));
        }
        let [batch, channels, height, width] = shape;
        let extents = [height, width].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
        // the operand is the node itself, or the one before a checkpoint's sink
        let block = plan.blocks[writer.node];
        let layout = Layout::new(batch, channels, block, Region::whole(extents), height)?;
        let name = &plan.program.stores[place].name;
        let values = AlignedBuffer::try_new(layout.len())
            .map_err(|error| refused(format!("`{name}`, kept between sweeps"))(error))?;
        Ok(Some(Store::Memory(RwLock::new(values), layout)))
    }

    pub(crate) fn write(
        &self,
        store: usize,
        region: Region<2>,
        window: &View<'_, T>,
    ) -> Result<(), ExecError> {
        match self.tensors[store].as_ref().expect("invariant: stores that are written exist") {
            Store::Memory(tensor, layout) => {
                let mut tensor = tensor.write().unwrap_or_else(PoisonError::into_inner);
                copy(window, &mut ViewMut::new(&mut tensor, *layout), region);
            }
            Store::File(file) => file.write(region, window)?,
        }
        Ok(())
    }

    pub(crate) fn read(
        &self,
        store: usize,
        region: Region<2>,
        window: &mut ViewMut<'_, T>,
    ) -> Result<(), ExecError> {
        match self.tensors[store].as_ref().expect("invariant: stores that are read were written") {
            Store::Memory(tensor, layout) => {
                let tensor = tensor.read().unwrap_or_else(PoisonError::into_inner);
                copy(&View::new(&tensor, *layout), window, region);
            }
            Store::File(file) => file.read(region, window)?,
        }
        Ok(())
    }

    pub(crate) fn read_pixel(&self, pixel: usize, window: &mut ViewMut<'_, T>) {
        let (values, channels) = &self.pixels[pixel];
        for (place, value) in values.iter().enumerate() {
            window.set(place / channels, place % channels, 0, 0, *value);
        }
    }

    pub(crate) fn pixel_mut(&mut self, pixel: usize) -> &mut [T] {
        &mut self.pixels[pixel].0
    }
}

/// Copies a region between windows of the same channel block.
fn copy<T: Element>(from: &View<'_, T>, to: &mut ViewMut<'_, T>, region: Region<2>) {
    let (source, target) = (*from.layout(), *to.layout());
    assert_eq!(source.block(), target.block(), "invariant: stores have the block of their windows");
    let block = source.block();
    let span = |layout: &Layout| {
        let begin = usize::try_from(region.cols().begin() - layout.cols().begin())
            .expect("invariant: inside")
            * block;
        begin..begin + usize::try_from(region.cols().len()).expect("invariant: not negative") * block
    };
    let (source_span, target_span) = (span(&source), span(&target));
    for n in 0..source.batch() {
        for channel_block in 0..source.blocks() {
            for y in region.rows().begin()..region.rows().end() {
                let row = &from.row(n, channel_block, y)[source_span.clone()];
                to.row_mut(n, channel_block, y)[target_span.clone()].copy_from_slice(row);
            }
        }
    }
}
