//! The planes of a share, cut among threads that gather something of each.

use std::ops::Range;
use std::sync::Mutex;

use tiled_geometry::{Interval, Region};

use super::band::{extent, shares, signed, split, threads_for};
use super::gather::Place;

/// Elements that are worth a range of their own, about 5 µs.
const TASK_ELEMENTS: usize = 1 << 14;

/// Tasks of blocks for each thread, so that threads that finish early find more to do.
const TASKS_PER_THREAD: usize = 2;

/// Blocks for each thread from which on they are cut by blocks alone: then no thread has much more than another.
const BLOCKS_PER_THREAD: usize = 4;

/// The blocks of channels of all images, in a share of the rows and columns.
#[derive(Clone, Copy)]
pub(super) struct Planes {
    pub(super) batch: usize,
    pub(super) channels: usize,
    /// The channels of a block.
    pub(super) lanes: usize,
    pub(super) share: Region<2>,
}

/// What a task adds to: its own, or what other tasks add to as well.
pub(super) enum State<'a, 'b, S> {
    Alone(&'a mut [S]),
    Shared(&'a Mutex<&'b mut [S]>),
}

impl Planes {
    const fn blocks(&self) -> usize {
        self.channels.div_ceil(self.lanes)
    }

    const fn place(&self, plane: usize) -> Place {
        let blocks = self.blocks();
        Place { n: plane / blocks, first: plane % blocks * self.lanes, lanes: self.lanes }
    }

    /// Runs `work(place, rows, state)` on parts of planes that partition the share, in parallel where that pays. An element costs as
    /// much as `weight / lanes` elements of a sum.
    pub(super) fn for_rows<S: Send>(
        &self,
        weight: usize,
        state: &mut [S],
        work: impl Fn(Place, Interval, State<'_, '_, S>) + Sync,
    ) {
        let (rows, height) = (self.share.rows(), extent(self.share.rows()));
        let planes = self.batch * self.blocks();
        let least = TASK_ELEMENTS.div_ceil((extent(self.share.cols()) * weight).max(1));
        if threads_for(planes * height, least) == 1 {
            for plane in 0..planes {
                work(self.place(plane), rows, State::Alone(state));
            }
            return;
        }
        let state = Mutex::new(state);
        split(0, planes * height, least, &|from, to| {
            let mut at = from;
            while at < to {
                let (plane, row) = (at / height, at % height);
                let end = to.min((plane + 1) * height);
                let part = Interval::new(rows.begin() + signed(row), rows.begin() + signed(row + end - at));
                work(self.place(plane), part, State::Shared(&state));
                at = end;
            }
        });
    }

    /// Runs `work(parts)` on threads, each with parts of planes, that partition the share, and says whether there is but one. The same block of
    /// channels of all images comes first, then the next, so that a thread changes seldom from one to another. Elements cost as in
    /// [`Planes::for_rows`].
    pub(super) fn for_parts(
        &self,
        weight: usize,
        work: impl Fn(&mut dyn Iterator<Item = (Place, Interval)>, bool) + Sync,
    ) {
        let (rows, height) = (self.share.rows(), extent(self.share.rows()));
        let all = self.batch * self.blocks() * height;
        let least = TASK_ELEMENTS.div_ceil((extent(self.share.cols()) * weight).max(1));
        let is_alone = threads_for(all, least) == 1;
        shares(all, least, |ranges| {
            let (mut at, mut to) = (0, 0);
            work(
                &mut std::iter::from_fn(|| {
                    while at >= to {
                        Range { start: at, end: to } = ranges.next()?;
                    }
                    let (plane, row) = (at / height, at % height);
                    let end = to.min((plane + 1) * height);
                    let begin = rows.begin() + signed(row);
                    let part = Interval::new(begin, begin + signed(end - at));
                    at = end;
                    let (n, first) = (plane % self.batch, plane / self.batch * self.lanes);
                    Some((Place { n, first, lanes: self.lanes }, part))
                }),
                is_alone,
            );
        });
    }

    /// Whether there are blocks of channels for all threads, with slots of their own in each image or for all of them.
    pub(super) fn has_blocks_for_all(&self, is_of_images: bool) -> bool {
        let threads = rayon::current_thread_index().map_or(1, |_| rayon::current_num_threads());
        threads == 1 || self.units(is_of_images) >= BLOCKS_PER_THREAD * threads
    }

    /// Runs `work(place, slots, scratch)` on each plane, in parallel where that pays. A block of channels has slots of its own, one for
    /// each channel, in each image or for all of them, and no thread waits for another. A task keeps its scratch from plane to plane.
    pub(super) fn for_blocks<S: Send, B: Default>(
        &self,
        is_of_images: bool,
        slots: [&mut [S]; 2],
        work: impl Fn(Place, [&mut [S]; 2], &mut B) + Sync,
    ) {
        let units = self.units(is_of_images);
        let images = if is_of_images { 1 } else { self.batch };
        let of_unit = extent(self.share.rows()) * extent(self.share.cols()) * self.lanes * images;
        let least = TASK_ELEMENTS.div_ceil(of_unit.max(1));
        let threads = threads_for(units, least);
        let tasks = if threads > 1 { (threads * TASKS_PER_THREAD).min(units / least) } else { 1 };
        let cut = Cut { planes: self, images, work: &work };
        cut.run([0, units], tasks, slots);
    }

    const fn units(&self, is_of_images: bool) -> usize {
        if is_of_images { self.batch * self.blocks() } else { self.blocks() }
    }

    /// The first slot of a unit.
    const fn begin(&self, unit: usize) -> usize {
        let blocks = self.blocks();
        unit / blocks * self.channels + unit % blocks * self.lanes
    }
}

/// Units on their way to tasks: a block of channels of one image, or of all.
struct Cut<'c, W> {
    planes: &'c Planes,
    /// The images of a unit.
    images: usize,
    work: &'c W,
}

impl<W> Cut<'_, W> {
    fn run<S: Send, B: Default>(&self, [from, to]: [usize; 2], tasks: usize, slots: [&mut [S]; 2])
    where
        W: Fn(Place, [&mut [S]; 2], &mut B) + Sync,
    {
        let begin = |unit: usize| self.planes.begin(unit) - self.planes.begin(from);
        let [mut first, mut second] = slots;
        if tasks > 1 {
            let half = tasks / 2;
            let middle = from + (to - from) * half / tasks;
            let (first, first_rest) = first.split_at_mut(begin(middle));
            let (second, second_rest) = second.split_at_mut(begin(middle).min(second.len()));
            rayon::join(
                || self.run([from, middle], half, [first, second]),
                || self.run([middle, to], tasks - half, [first_rest, second_rest]),
            );
            return;
        }
        let mut scratch = B::default();
        for unit in from..to {
            let len = begin(unit + 1) - begin(unit);
            let (own, rest) = std::mem::take(&mut first).split_at_mut(len);
            let (own_second, rest_second) = {
                let second = std::mem::take(&mut second);
                let len = len.min(second.len());
                second.split_at_mut(len)
            };
            (first, second) = (rest, rest_second);
            let place = self.planes.place(unit);
            for image in 0..self.images {
                (self.work)(
                    Place { n: place.n + image, ..place },
                    [&mut *own, &mut *own_second],
                    &mut scratch,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plane_meets_its_own_slots_once() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let share = Region::from_rows_cols(Interval::new(2, 130), Interval::new(0, 128));
        for (batch, channels, lanes) in [(1, 100, 16), (3, 33, 8), (2, 5, 1), (1, 16, 16)] {
            for is_of_images in [false, true] {
                let planes = Planes { batch, channels, lanes, share };
                let images = if is_of_images { batch } else { 1 };
                let mut slots = vec![Vec::new(); images * channels];
                let mut seconds = slots.clone();
                pool.install(|| {
                    planes.for_blocks(
                        is_of_images,
                        [&mut slots, &mut seconds],
                        |place, [first, second], (): &mut ()| {
                            for (lane, (slot, second)) in first.iter_mut().zip(second).enumerate() {
                                slot.push([place.n, place.first + lane]);
                                second.push([place.n, place.first + lane]);
                            }
                        },
                    );
                });
                for (at, met) in slots.iter().enumerate() {
                    let (image, channel) = (at / channels, at % channels);
                    let wanted: Vec<_> = if is_of_images {
                        vec![[image, channel]]
                    } else {
                        (0..batch).map(|n| [n, channel]).collect()
                    };
                    assert_eq!(*met, wanted, "{batch} images of {channels} channels, {lanes} lanes");
                }
                assert_eq!(slots, seconds);
            }
        }
    }
}
