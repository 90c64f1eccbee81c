//! The decoded chunks that a sweep holds.
//!
//! Each chunk has as many *turns* as there are tiles that need it, and a lane holds it from the first row that it loads of it
//! in a tile to the last. It is given back after its last turn. Where there is no room otherwise, one goes that nobody holds.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;
use tiled_geometry::{Interval, Region};
use tiled_graph::{ChunkCache, SweepNodeId, SweepPlan};
use tiled_tensor::{Element, ViewMut, collected, refusable, with_room};

use crate::error::refused;
use crate::failure::Failure;
use crate::source::{ChunkPart, ChunkSlots, copy_chunk, index, part_of, shares_work, whole_chunk};
use crate::{ExecError, Io, IoError};

/// The decoded chunks of a source during a sweep.
pub(crate) struct HeldChunks<'a, T> {
    cache: &'a ChunkCache,
    sweep: &'a SweepPlan,
    slots: Box<dyn ChunkSlots<T> + 'a>,
    /// Whether the threads of the pool share what a lane does: where lanes have a thread each, one that helps another could come
    /// to wait for itself.
    is_shared: bool,
    table: Mutex<Table>,
    changed: Condvar,
}

/// Which chunk each slot holds.
struct Table {
    of: HashMap<[i64; 2], usize>,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Slot {
    chunk: [i64; 2],
    is_read: bool,
    /// The lanes that are at it.
    holders: usize,
    /// The tiles that need it still.
    turns: usize,
}

impl<'a, T: Element> HeldChunks<'a, T> {
    /// Those of all sources of a sweep that are read in chunks.
    pub(crate) fn of_sweep(
        sweep: &'a SweepPlan,
        io: &Io<'a, T>,
        is_shared: bool,
    ) -> Result<Vec<Self>, ExecError> {
        let mut all = with_room(sweep.chunks.len()).map_err(refused("the chunks"))?;
        for cache in &sweep.chunks {
            let source = io.source(cache.role).and_then(|source| source.chunked());
            let source = source.expect("invariant: sources were checked before the run");
            let mut of = HashMap::new();
            let bytes = (cache.slots as u64).saturating_mul(32);
            refusable(|| of.try_reserve(2 * cache.slots))
                .map_err(|_| refused("the chunks")(tiled_tensor::OutOfMemory { bytes }))?;
            let free = Slot { chunk: [0, 0], is_read: false, holders: 0, turns: 0 };
            let table = Table {
                of,
                slots: collected((0..cache.slots).map(|_| free)).map_err(refused("the chunks"))?,
                free: collected((0..cache.slots).rev()).map_err(refused("the chunks"))?,
            };
            all.push(Self {
                cache,
                sweep,
                slots: source.slots(cache.slots)?,
                is_shared,
                table: Mutex::new(table),
                changed: Condvar::new(),
            });
        }
        Ok(all)
    }

    /// The node that loads the source.
    pub(crate) const fn node(&self) -> SweepNodeId {
        self.cache.node
    }

    /// Gives a window rows of what a tile loads, unless a lane fails meanwhile. A tile asks for each of its rows once, from the top.
    pub(crate) fn read(
        &self,
        tile: [usize; 2],
        region: Region<2>,
        output: &mut ViewMut<'_, T>,
        failure: &Failure,
    ) -> Result<(), ExecError> {
        if region.is_empty() {
            return Ok(());
        }
        let chunks = self.cache.chunks;
        let tall = self.sweep.region(self.cache.node, tile).rows();
        let cols = chunks.along(1, region.cols());
        let rows = chunks.along(0, region.rows());
        for row in rows.begin()..rows.end() {
            let of_chunk = whole_chunk(chunks, 0, row);
            let band = of_chunk.intersect(region.rows());
            let of_tile = of_chunk.intersect(tall);
            let held = self.hold(row, cols, band.begin() == of_tile.begin(), failure)?;
            let region = Region::from_rows_cols(band, region.cols());
            if self.is_shared && shares_work(region, output.layout().batch() * output.layout().channels()) {
                self.copy_together([row, cols.begin()], &held, region, output);
            } else {
                for (col, slot) in (cols.begin()..).zip(&held) {
                    let chunk = [row, col];
                    let part = part_of(chunks, chunk, region);
                    copy_chunk(&*self.slots, *slot, chunks, chunk, part, output);
                }
            }
            if band.end() == of_tile.end() {
                self.give_back(row, cols);
            }
        }
        Ok(())
    }

    /// The slots of a row of chunks, each read; where this is the first time that the tile is at them, it holds them from now on.
    fn hold(
        &self,
        row: i64,
        cols: Interval,
        mut is_first: bool,
        failure: &Failure,
    ) -> Result<Vec<usize>, ExecError> {
        let read = |reading: Reading<'_, 'a, T>| failure.check().and_then(|()| Ok(reading.read()?));
        let mut held = Vec::with_capacity(index(cols.len()));
        loop {
            let mut missing = Vec::new();
            let mut waits = false;
            held.clear();
            let mut table = self.lock();
            for col in cols.begin()..cols.end() {
                let chunk = [row, col];
                let known = table.of.get(&chunk).copied();
                let slot = known.unwrap_or_else(|| {
                    let slot = table.take(Slot {
                        chunk,
                        is_read: false,
                        holders: usize::from(!is_first),
                        turns: self.turns(chunk),
                    });
                    missing.push(Reading { chunks: self, slot, is_done: false });
                    slot
                });
                let state = &mut table.slots[slot];
                state.holders += usize::from(is_first);
                waits |= !state.is_read;
                held.push(slot);
            }
            is_first = false;
            if !waits {
                return Ok(held);
            }
            if missing.is_empty() {
                drop(self.changed.wait(table).unwrap_or_else(PoisonError::into_inner));
                failure.check()?;
                continue; // where it could not be read, it is missing now
            }
            drop(table);
            if self.is_shared && missing.len() > 1 && rayon::current_thread_index().is_some() {
                missing.into_par_iter().with_max_len(1).try_for_each(read)?;
            } else {
                missing.into_iter().try_for_each(read)?;
            }
        }
    }

    /// Ends the turn of a tile with a row of chunks.
    fn give_back(&self, row: i64, cols: Interval) {
        let mut table = self.lock();
        for col in cols.begin()..cols.end() {
            let Some(&slot) = table.of.get(&[row, col]) else { continue };
            let state = &mut table.slots[slot];
            state.holders = state.holders.saturating_sub(1);
            state.turns = state.turns.saturating_sub(1);
            if state.holders == 0 && state.turns == 0 {
                table.empty(slot);
            }
        }
    }

    /// The tiles that need a chunk.
    fn turns(&self, chunk: [i64; 2]) -> usize {
        let node = self.cache.node;
        let parts = [&self.sweep.rows, &self.sweep.cols];
        let of_axis = |axis: usize| {
            let needs = |part: &tiled_graph::Part<'_>| {
                self.cache.chunks.along(axis, part.interval(node)).contains(chunk[axis])
            };
            parts[axis].iter().filter(needs).count()
        };
        of_axis(0) * of_axis(1)
    }

    /// Gives a window rows of a row of chunks, which the threads of the pool share.
    fn copy_together(
        &self,
        [row, first]: [i64; 2],
        held: &[usize],
        region: Region<2>,
        output: &mut ViewMut<'_, T>,
    ) {
        let layout = *output.layout();
        let (block, blocks) = (layout.block(), layout.blocks());
        let chunks = self.cache.chunks;
        let ring = i64::try_from(layout.ring()).unwrap_or(i64::MAX);
        let (begin, end) = (region.rows().begin(), region.rows().end());
        let top = whole_chunk(chunks, 0, row).begin();
        let planes = output.data_mut()[..layout.len()].par_chunks_mut(layout.block_stride());
        planes.enumerate().for_each(|(plane, data)| {
            let (image, place) = (plane / blocks, plane % blocks);
            let channels = place * block..layout.channels().min((place + 1) * block);
            let rows = data[..layout.ring() * layout.row_stride()].par_chunks_mut(layout.row_stride());
            rows.enumerate().for_each(|(stored, data)| {
                let stored = i64::try_from(stored).unwrap_or(i64::MAX);
                let y = begin + (stored - begin).rem_euclid(ring);
                if y >= end {
                    return;
                }
                for (col, slot) in (first..).zip(held) {
                    let whole = whole_chunk(chunks, 1, col);
                    let cols = whole.intersect(region.cols());
                    let start = index(cols.begin() - layout.cols().begin()) * block;
                    let part = ChunkPart {
                        image,
                        channels: channels.clone(),
                        row: index(y - top),
                        cols: index(cols.begin() - whole.begin())..index(cols.end() - whole.begin()),
                    };
                    let data = &mut data[start..start + index(cols.len()) * block];
                    self.slots.convert(*slot, &part, block, data);
                }
            });
        });
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot that is about to be read; where that fails, or is given up, it is free again and nobody waits for it.
struct Reading<'r, 'a, T: Element> {
    chunks: &'r HeldChunks<'a, T>,
    slot: usize,
    is_done: bool,
}

impl<T: Element> Reading<'_, '_, T> {
    fn read(mut self) -> Result<(), IoError> {
        let chunk = self.chunks.lock().slots[self.slot].chunk;
        self.chunks.slots.read(self.slot, chunk.map(index))?;
        self.is_done = true;
        Ok(())
    }
}

impl<T: Element> Drop for Reading<'_, '_, T> {
    fn drop(&mut self) {
        let mut table = self.chunks.lock();
        if self.is_done {
            table.slots[self.slot].is_read = true;
        } else {
            table.empty(self.slot);
        }
        drop(table);
        self.chunks.changed.notify_all();
    }
}

impl Table {
    /// Gives a chunk a slot: a free one, else that of the one that nobody holds and the fewest tiles need.
    fn take(&mut self, slot: Slot) -> usize {
        if self.free.is_empty() {
            let unheld = (0..self.slots.len()).filter(|slot| {
                let state = &self.slots[*slot];
                state.holders == 0 && state.is_read
            });
            let fewest = unheld.min_by_key(|slot| self.slots[*slot].turns);
            self.empty(
                fewest.expect("invariant: a plan has slots for a row of chunks of each lane in flight"),
            );
        }
        let place = self.free.pop().expect("invariant: one was made free");
        self.of.insert(slot.chunk, place);
        self.slots[place] = slot;
        place
    }

    fn empty(&mut self, slot: usize) {
        self.of.remove(&self.slots[slot].chunk);
        self.slots[slot].is_read = false;
        self.free.push(slot);
    }
}
