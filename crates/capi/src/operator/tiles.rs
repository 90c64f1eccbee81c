//! The loop over tiles that every operator shares, and how large a tile may be.

use rayon::ThreadPool;
use tiled::exec::{Sink, Source};
use tiled::geometry::{AxisMap, Grid, Interval, Region, Window};
use tiled::graph::program::Edge;
use tiled::kernel::{self, Host, Kernel};
use tiled::tensor::{AlignedBuffer, Element, Layout, View, ViewMut, refusable};

use super::tiled_operator_options;
use crate::engine::{Engine, Real};
use crate::status::{Failure, Fallible, TILED_STATUS_BUDGET};

/// The memory of single operators, kept between calls.
#[derive(Debug, Default)]
pub struct Workspace<T: Element> {
    inputs: [AlignedBuffer<T>; MAX_OPERANDS],
    output: AlignedBuffer<T>,
    packed: AlignedBuffer<T>,
    /// Parameters in row-major order: weight, bias.
    pub(crate) params: [Vec<T>; 2],
}

/// An operand: where it is read, and which region of it a tile needs.
pub(crate) struct Operand<'a, T: Element> {
    pub(crate) source: &'a dyn Source<T>,
    pub(crate) edge: Edge,
}

/// A computation over the tiles of a domain.
pub(crate) struct Tiled<'a, T: Element> {
    pub(crate) batch: usize,
    /// Height and width of the domain that is cut into tiles.
    pub(crate) domain: [i64; 2],
    pub(crate) operands: Vec<Operand<'a, T>>,
    /// The channels of the result; `None` for a reduction.
    pub(crate) output_channels: Option<usize>,
    /// The bytes that the call takes whatever the tiles are.
    pub(crate) fixed_bytes: usize,
    pub(crate) options: tiled_operator_options,
}

impl<T: Real> Tiled<'_, T> {
    /// Computes `kernel` tile by tile into `sink`. Parameters are taken from the workspace.
    pub(crate) fn map(
        &self,
        engine: &mut Engine,
        kernel: &Kernel,
        params: usize,
        sink: &dyn Sink<T>,
    ) -> Fallible {
        let (backend, pool, workspace) = engine.parts::<T>();
        let Workspace { inputs, output, packed, params: values } = workspace;
        let values: Vec<&[T]> = values[..params].iter().map(Vec::as_slice).collect();
        let lens: Vec<usize> = values.iter().map(|value| value.len()).collect();
        let len = backend.packed_len(kernel, &lens);
        let (tile, channels) = (self.tile(backend, len)?, self.output_channels.unwrap_or(0));
        let packed = room(packed, len)?;
        backend.pack(kernel, &values, packed);
        let packed = &*packed;
        let grid = refusable(|| Grid::from_tile(self.domain, tile))?;
        let flops = kernel.flops_per_element() * self.elements(channels);
        in_threads(pool, flops, || {
            for tile in grid.tiles() {
                let layout = self.window(backend, channels, tile)?;
                let output = room(output, layout.len())?;
                self.load(backend, inputs, tile, |views| {
                    backend.compute(
                        kernel,
                        packed,
                        views,
                        ViewMut::new(output, layout),
                        tile,
                        &kernel::Workspace::NONE,
                    );
                    Ok(sink.write(tile, &View::new(output, layout))?)
                })?;
            }
            Ok(sink.finish()?)
        })
    }

    /// Gives every tile's operands to `take`, which makes `flops` operations in all.
    pub(crate) fn reduce(
        &self,
        engine: &mut Engine,
        flops: f64,
        mut take: impl FnMut(&dyn Host<T>, &[View<'_, T>], Region<2>) + Send,
    ) -> Fallible {
        let (backend, pool, workspace) = engine.parts::<T>();
        let tile = self.tile(backend, 0)?;
        let grid = refusable(|| Grid::from_tile(self.domain, tile))?;
        let inputs = &mut workspace.inputs;
        in_threads(pool, flops, || {
            grid.tiles().try_for_each(|tile| {
                self.load(backend, inputs, tile, |views| {
                    take(backend, views, tile);
                    Ok(())
                })
            })
        })
    }

    /// The elements of so many channels over the domain.
    pub(crate) fn elements(&self, channels: usize) -> f64 {
        (self.batch * channels) as f64 * area(self.domain) as f64
    }

    fn load<R>(
        &self,
        backend: &dyn Host<T>,
        inputs: &mut [AlignedBuffer<T>; MAX_OPERANDS],
        tile: Region<2>,
        body: impl FnOnce(&[View<'_, T>]) -> Fallible<R>,
    ) -> Fallible<R> {
        let mut views = Vec::with_capacity(MAX_OPERANDS);
        for (operand, buffer) in self.operands.iter().zip(inputs) {
            let needed = Region::from_rows_cols(
                operand.edge.needed(0, tile.rows()),
                operand.edge.needed(1, tile.cols()),
            );
            let layout = self.window(backend, operand.source.shape()[1], needed)?;
            let data = room(buffer, layout.len())?;
            operand.source.read(needed, &mut ViewMut::new(data, layout))?;
            views.push(View::new(data, layout));
        }
        body(&views)
    }

    fn window(&self, backend: &dyn Host<T>, channels: usize, region: Region<2>) -> Fallible<Layout> {
        let ring = usize::try_from(region.rows().len()).unwrap_or(usize::MAX).max(1);
        Ok(Layout::new(self.batch, channels, backend.block(channels), region, ring)?)
    }

    /// The bytes of a window of these extents; the most there are where its size overflows.
    fn window_bytes(&self, backend: &dyn Host<T>, channels: usize, extents: [i64; 2]) -> u128 {
        let layout = self.window(backend, channels, Region::whole(extents));
        layout.map_or(u128::MAX >> 8, |layout| layout.len() as u128 * size_of::<T>() as u128)
    }

    /// The tile that the options ask for, or the largest one that fits.
    fn tile(&self, backend: &dyn Host<T>, packed: usize) -> Fallible<[i64; 2]> {
        let options = &self.options;
        for (what, size) in [("height", options.tile[0]), ("width", options.tile[1])] {
            if size < 0 {
                return Err(Failure::range(format!("options: tile {what} is {size}, must be at least 0")));
            }
        }
        let wanted = [0, 1].map(|axis| match options.tile[axis] {
            0 => self.domain[axis],
            size => size.min(self.domain[axis]),
        });
        let bytes = |tile: [i64; 2]| {
            let fixed = self.fixed_bytes as u128 + packed as u128 * size_of::<T>() as u128;
            let output =
                self.output_channels.map_or(0, |channels| self.window_bytes(backend, channels, tile));
            let inputs: u128 = self
                .operands
                .iter()
                .map(|operand| {
                    let extents = [0, 1].map(|axis| longest(&operand.edge, axis, tile[axis]));
                    self.window_bytes(backend, operand.source.shape()[1], extents)
                })
                .sum();
            fixed + output + inputs
        };
        let is_bound = options.memory_bytes > 0;
        let budget = u128::from(if is_bound { options.memory_bytes } else { DEFAULT_BYTES });
        let halved = |size: i64| size - size / 2;
        let can_shrink = [options.tile[0] == 0, options.tile[1] == 0];
        let mut tile = wanted;
        while bytes(tile) > budget {
            if can_shrink[0] && tile[0] > 1 {
                tile[0] = halved(tile[0]);
            } else if can_shrink[1] && tile[1] > 1 {
                tile[1] = halved(tile[1]);
            } else if is_bound {
                let smallest = bytes(tile);
                let message = format!(
                    "memory budget of {budget} bytes is too small, the smallest that works is {smallest} bytes"
                );
                return Err(Failure::new(TILED_STATUS_BUDGET, message));
            } else {
                break;
            }
        }
        Ok(tile)
    }
}

/// Runs `work` in the engine's threads, or on the caller's where to wake another takes longer than it would save.
///
/// A thread of a pool, which a callback of a run may have, goes to the engine's: kernels would share work in its own.
fn in_threads<R: Send>(pool: &ThreadPool, flops: f64, work: impl FnOnce() -> R + Send) -> R {
    let is_alone = pool.current_num_threads() == 1 || flops < WORTH_THREADS;
    if is_alone && rayon::current_thread_index().is_none() { work() } else { pool.install(work) }
}

/// What a tile needs through one window of a gradient or an operator.
pub(crate) fn edge(maps: [AxisMap; 2], extents: [i64; 2]) -> Edge {
    Edge { node: 0, axes: [0, 1].map(|axis| vec![(maps[axis], extents[axis])]) }
}

/// What a tile of the input needs of the input itself to find where a pooling took its maxima.
pub(crate) fn there_and_back(windows: [Window; 2], output: [i64; 2], input: [i64; 2]) -> Edge {
    let axis = |axis: usize| {
        vec![(AxisMap::Touched(windows[axis]), output[axis]), (AxisMap::Window(windows[axis]), input[axis])]
    };
    Edge { node: 0, axes: [axis(0), axis(1)] }
}

/// The first `len` elements of a buffer, which is made larger where it is too small.
fn room<T: Element>(buffer: &mut AlignedBuffer<T>, len: usize) -> Fallible<&mut [T]> {
    if buffer.len() < len {
        *buffer = AlignedBuffer::default();
        *buffer = AlignedBuffer::try_new(len)?;
    }
    Ok(&mut buffer[..len])
}

/// The most coordinates of an operand that `len` coordinates of a tile need along an axis, wherever they begin.
fn longest(edge: &Edge, axis: usize, len: i64) -> i64 {
    edge.axes[axis].iter().fold(len, |len, (map, extent)| {
        let reach = match map {
            AxisMap::Window(window) => window.receptive(Interval::new(0, len)).len(),
            AxisMap::Touched(window) => (len - 1 + window.extent()) / window.stride() + 1,
            _ => len,
        };
        reach.min(*extent)
    })
}

fn area([height, width]: [i64; 2]) -> u128 {
    u128::try_from(height).unwrap_or(0) * u128::try_from(width).unwrap_or(0)
}

/// Fewer operations stay on the caller's thread: to wake another one takes about 20 µs.
const WORTH_THREADS: f64 = 1e6;
/// The tensors that a tile is computed from.
const MAX_OPERANDS: usize = 2;
/// The bytes that a call may take where the caller does not say: more makes no call faster.
const DEFAULT_BYTES: u64 = 64 << 20;
