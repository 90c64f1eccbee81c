//! Values that live between sweeps: whole tensors, and values of one pixel.

use std::sync::{PoisonError, RwLock};

use tiled_geometry::Region;
use tiled_graph::Action;
use tiled_graph::Plan;
use tiled_graph::program::{SinkRole, SourceRole};
use tiled_tensor::{AlignedBuffer, Element, Layout, LayoutError, View, ViewMut};

/// The values that a plan keeps.
#[derive(Debug)]
pub(crate) struct Stores<T: Element> {
    tensors: Vec<Option<(RwLock<AlignedBuffer<T>>, Layout)>>,
    pixels: Vec<(Vec<T>, usize)>,
}

impl<T: Element> Stores<T> {
    pub(crate) fn new(plan: &Plan) -> Result<Self, LayoutError> {
        let mut tensors: Vec<Option<(RwLock<AlignedBuffer<T>>, Layout)>> = Vec::new();
        for (place, store) in plan.program.stores.iter().enumerate() {
            let nodes = plan.sweeps.iter().flat_map(|sweep| &sweep.sweep.nodes);
            let writer = nodes.clone().find(|node| node.action == Action::Write(SinkRole::Store(place)));
            tensors.push(match writer {
                None => None,
                Some(writer) => {
                    // the block of the windows that are copied in and out, so that rows are copied whole
                    let block = plan.blocks[writer.node];
                    let [batch, channels, height, width] = store.shape;
                    let extents = [height, width].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
                    let layout = Layout::new(batch, channels, block, Region::whole(extents), height)?;
                    Some((RwLock::new(AlignedBuffer::new(layout.len())), layout))
                }
            });
            debug_assert!(
                writer.is_some()
                    || !nodes.clone().any(|node| node.action == Action::Load(SourceRole::Store(place))),
                "invariant: what is read was written"
            );
        }
        let pixels =
            plan.program.pixels.iter().map(|[batch, channels]| (vec![T::ZERO; batch * channels], *channels));
        Ok(Self { tensors, pixels: pixels.collect() })
    }

    pub(crate) fn write(&self, store: usize, region: Region<2>, window: &View<'_, T>) {
        let (tensor, layout) =
            self.tensors[store].as_ref().expect("invariant: stores that are written exist");
        let mut tensor = tensor.write().unwrap_or_else(PoisonError::into_inner);
        copy(window, &mut ViewMut::new(&mut tensor, *layout), region);
    }

    pub(crate) fn read(&self, store: usize, region: Region<2>, window: &mut ViewMut<'_, T>) {
        let (tensor, layout) = self.tensors[store].as_ref().expect("invariant: stores that are read exist");
        let tensor = tensor.read().unwrap_or_else(PoisonError::into_inner);
        copy(&View::new(&tensor, *layout), window, region);
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
