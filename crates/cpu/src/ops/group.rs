//! Channels of a run of pixels, sixteen at a time and beside each other as they lie in memory: loops over a group see elements alone, no
//! matter whether they are planes or channel blocks.
//!
//! What is summed over the channels of a pixel has sixteen sums in `f64`, each of the channels of one remainder modulo 16 in their order,
//! which are then added in their order. So the blocks of the windows do not show in a sum.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::slice;

use tiled_tensor::{Element, Layout, View, transpose};

use super::pixel::{GROUP, PIXELS, Pixels, Plane, Run};
use super::stamp::per_isa;
use super::unmasked::Unmasked;
use crate::vector::prefetch;

/// The elements that loops take into registers together. A copied group is filled to whole chunks with padding; parts in place may end with less.
pub(super) const CHUNK: usize = 16;

/// The elements of a group. The last ones keep the same element of many groups from falling into the same few sets of the first cache.
const ELEMENTS: usize = GROUP * PIXELS + CHUNK;

/// The values of a group: in parts of as many channels as lie beside each other, in a part by pixels, of a pixel by channels.
///
/// It begins with a line, so that vectors of blocks lie in one line each: a store to two lines takes several times as long.
#[repr(align(64))]
pub(super) struct Group<T>([T; ELEMENTS]);

impl<T> Deref for Group<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> DerefMut for Group<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// How the values of the groups of a run lie.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// The channels that lie beside each other, a power of two up to [`GROUP`]; one where each is a plane.
    lanes: usize,
    pixels: usize,
    channels: usize,
}

impl Order {
    /// That in which windows lie which lie alike; that of planes where they do not, or where half of the lanes of their blocks are padding.
    pub(super) fn of<'l>(pixels: Pixels, layouts: impl IntoIterator<Item = &'l Layout>) -> Self {
        let mut layouts = layouts.into_iter();
        let first = layouts.next().expect("invariant: a kernel has windows");
        let (block, channels) = (first.block(), first.channels());
        let alike = layouts.all(|layout| layout.block() == block);
        let few = 2 * channels <= block * first.blocks();
        let lanes = if alike && !few && block <= GROUP { block } else { 1 };
        Self { lanes, pixels: pixels.len(), channels }
    }

    /// The channels of the group that begins with channel `first`.
    fn count(self, first: usize) -> usize {
        GROUP.min(self.channels - first)
    }

    /// The elements of a part.
    const fn part(self) -> usize {
        self.lanes * self.pixels
    }

    /// The elements of the group that begins with channel `first`, padding lanes among them.
    pub(super) fn len(self, first: usize) -> usize {
        self.count(first).next_multiple_of(self.lanes) * self.pixels
    }

    /// The same in whole chunks.
    pub(super) fn whole(self, first: usize) -> usize {
        self.len(first).next_multiple_of(CHUNK)
    }

    /// Of how many of so many first groups of an input values cannot be taken [where they lie](Order::in_place).
    pub(super) fn copies<T: Element>(self, view: &View<'_, T>, groups: usize) -> usize {
        if view.layout().block() != self.lanes {
            return groups;
        }
        usize::from(self.channels <= groups * GROUP && !self.channels.is_multiple_of(self.lanes))
    }

    /// The values of the group that begins with channel `first` where they lie; none where they lie in another order, or have padding lanes
    /// among them.
    pub(super) fn in_place<'v, T: Element>(
        self,
        pixels: Pixels,
        view: &View<'v, T>,
        first: usize,
    ) -> Option<Parts<'v, T>> {
        let (count, layout) = (self.count(first), view.layout());
        (layout.block() == self.lanes && count.is_multiple_of(self.lanes)).then(|| Parts {
            values: pixels.rest(view, first / self.lanes),
            part: self.part(),
            step: layout.block_stride(),
            count: count / self.lanes,
        })
    }

    /// The same of what is [read](Order::read) into `group`.
    pub(super) fn copied<'g, T: Element>(
        self,
        pixels: Pixels,
        view: &View<'_, T>,
        first: usize,
        padding: T,
        group: &'g mut Group<T>,
    ) -> Parts<'g, T> {
        self.read(pixels, view, first, padding, group);
        let count = self.len(first) / self.part();
        Parts { values: group, part: self.part(), step: self.part(), count }
    }

    /// Reads the group that begins with channel `first`; padding lanes, and what fills the last chunk, hold `padding`.
    pub(super) fn read<T: Element>(
        self,
        pixels: Pixels,
        view: &View<'_, T>,
        first: usize,
        padding: T,
        group: &mut Group<T>,
    ) {
        let (block, count) = (view.layout().block(), self.count(first));
        let (group, rest) = group[..self.whole(first)].split_at_mut(self.len(first));
        rest.fill(padding);
        if block != self.lanes {
            let mut done = 0;
            while done < count {
                let lane = (first + done) % block;
                let some = (block - lane).min(count - done);
                let values = &pixels.span(view, (first + done) / block)[lane..];
                transpose(values, block, &mut group[done * self.pixels..], self.pixels, [self.pixels, some]);
                done += some;
            }
            return;
        }
        for (part, group) in group.chunks_exact_mut(self.part()).enumerate() {
            group.copy_from_slice(pixels.span(view, first / block + part));
            let real = self.lanes.min(count - part * self.lanes);
            if real < self.lanes {
                group.chunks_exact_mut(self.lanes).for_each(|pixel| pixel[real..].fill(padding));
            }
        }
    }

    /// Has `compute` write the group of the output that begins with channel `first`: it is given some elements beside the index of the
    /// first one, a part at a time, or all in `other`, where the output lies in another order.
    pub(super) fn write<T: Element>(
        self,
        run: &mut Run<T>,
        first: usize,
        other: &mut Spare<T>,
        mut compute: impl FnMut(usize, &mut [T]),
    ) {
        let (block, count) = (run.layout().block(), self.count(first));
        if block == self.lanes {
            for at in (0..self.len(first)).step_by(self.part()) {
                compute(at, run.row(first / block + at / self.part()));
            }
            return;
        }
        let group = &mut other.get()[..self.len(first)];
        compute(0, group);
        let mut done = 0;
        while done < count {
            let lane = (first + done) % block;
            let some = (block - lane).min(count - done);
            let values = &mut run.row((first + done) / block)[lane..];
            transpose(&group[done * self.pixels..], self.pixels, values, block, [some, self.pixels]);
            done += some;
        }
    }

    /// Gives each value of the largest group the number that its channel, from 0 on, has by a function.
    pub(super) fn by_channel(self, number: impl Fn(usize) -> f64, group: &mut Group<f64>) {
        for (part, group) in group[..self.len(0)].chunks_exact_mut(self.part()).enumerate() {
            for pixel in group.chunks_exact_mut(self.lanes) {
                pixel
                    .iter_mut()
                    .enumerate()
                    .for_each(|(lane, value)| *value = number(part * self.lanes + lane));
            }
        }
    }

    /// Where the group that begins with channel `first` lies in the run after this one of an input, whatever lies there.
    pub(super) fn ahead_of<T: Element>(self, pixels: Pixels, view: &View<'_, T>, first: usize) -> Ahead<T> {
        let layout = view.layout();
        let values = pixels.span(view, first / layout.block());
        self.ahead(values.as_ptr_range().end, layout)
    }

    /// Where the group that begins with channel `first` lies in a run of the output.
    pub(super) fn ahead_in<T: Element>(self, run: &mut Run<T>, first: usize) -> Ahead<T> {
        let layout = *run.layout();
        self.ahead(run.row(first / layout.block()).as_ptr(), &layout)
    }

    const fn ahead<T>(self, start: *const T, layout: &Layout) -> Ahead<T> {
        Ahead { start, step: layout.block_stride(), part: layout.block() * self.pixels, at: 0 }
    }
}

/// The values of a group: in parts of as many channels as lie beside each other.
#[derive(Clone, Copy)]
pub(super) struct Parts<'v, T> {
    /// From the first one on.
    values: &'v [T],
    /// The elements of a part.
    part: usize,
    /// From part to part.
    step: usize,
    count: usize,
}

impl<'v, T> Parts<'v, T> {
    pub(super) const NONE: Self = Self { values: &[], part: 0, step: 0, count: 0 };

    #[inline(always)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &'v [T]> {
        let Self { values, part, step, count } = *self;
        (0..count).map(move |at| &values[at * step..][..part])
    }
}

/// Where the elements of a group lie, to fetch them before they are needed.
///
/// A run is too short for the core to notice that it is followed, and to fetch the next one at once would have it wait for all of it: so a
/// few lines are fetched at a time, between other work.
#[derive(Clone, Copy)]
pub(super) struct Ahead<T> {
    start: *const T,
    /// From part to part.
    step: usize,
    part: usize,
    /// The next element of this part.
    at: usize,
}

impl<T> Ahead<T> {
    /// Fetches the next elements.
    #[inline(always)]
    pub(super) fn fetch(&mut self, count: usize) {
        for element in (0..count).step_by(64 / size_of::<T>()) {
            prefetch(self.start.wrapping_add(self.at + element));
        }
        self.at += count;
        while self.at >= self.part {
            self.at -= self.part;
            self.start = self.start.wrapping_add(self.step);
        }
    }
}

/// Calls a function that is built for as many lanes as an order has.
macro_rules! with_lanes {
    ($order:expr, $function:ident::<$T:ty>($($arg:expr),* $(,)?)) => {
        match $order.lanes {
            1 => $function::<$T, 1>($($arg),*),
            2 => $function::<$T, 2>($($arg),*),
            4 => $function::<$T, 4>($($arg),*),
            8 => $function::<$T, 8>($($arg),*),
            _ => $function::<$T, 16>($($arg),*),
        }
    };
}

per_isa! {
    /// The largest of the values of each pixel of the largest group; not a number loses to the first.
    pub(super) fn largest_of_pixels<T: Element>(order: Order, group: &mut Group<T>) -> Plane<T> {
        #[inline(always)]
        fn in_lanes<T: Element, const LANES: usize>(group: &[T], largest: &mut [T]) {
            for (largest, pixel) in largest.iter_mut().zip(group.as_chunks::<LANES>().0) {
                let mut pixel = *pixel;
                let mut half = LANES / 2;
                while half > 0 {
                    for lane in 0..half {
                        let (low, high) = (pixel[lane], pixel[lane + half]);
                        pixel[lane] = if high > low { high } else { low };
                    }
                    half /= 2;
                }
                *largest = pixel[0];
            }
        }
        let unmasked = Unmasked::new();
        let (mut held, mut half) = (order.len(0), GROUP / 2 * order.pixels);
        while half >= order.part() {
            if held > half {
                let (low, high) = group[..held].split_at_mut(half);
                for (low, high) in low.iter_mut().zip(high) {
                    *low = unmasked.value(if *high > *low { *high } else { *low });
                }
                held = half;
            }
            half /= 2;
        }
        let mut largest = [T::ZERO; PIXELS];
        let (group, pixels) = (&group[..order.part()], &mut largest[..order.pixels]);
        with_lanes!(order, in_lanes::<T>(group, pixels));
        largest
    }
}

per_isa! {
    /// The sums of the values of each pixel of the largest group, in the order of the channels.
    pub(super) fn sums_of_pixels<T: Element>(order: Order, group: &Group<T>) -> Plane<T> {
        #[inline(always)]
        fn in_lanes<T: Element, const LANES: usize>(part: &[T], sums: &mut [T]) {
            for (sum, pixel) in sums.iter_mut().zip(part.as_chunks::<LANES>().0) {
                for value in pixel {
                    *sum += *value;
                }
            }
        }
        let mut sums = [T::ZERO; PIXELS];
        for part in group[..order.len(0)].chunks_exact(order.part()) {
            with_lanes!(order, in_lanes::<T>(part, &mut sums));
        }
        sums
    }
}

per_isa! {
    /// Gives each value of a group the number of its pixel.
    pub(super) fn spread<T: Element>(order: Order, numbers: &Plane<T>, group: &mut Group<T>) {
        #[inline(always)]
        fn in_lanes<T: Element, const LANES: usize>(numbers: &[T], part: &mut [T]) {
            for (part, number) in part.as_chunks_mut::<LANES>().0.iter_mut().zip(numbers) {
                *part = [*number; LANES];
            }
        }
        let numbers = &numbers[..order.pixels];
        for part in group[..order.len(0)].chunks_exact_mut(order.part()) {
            with_lanes!(order, in_lanes::<T>(numbers, part));
        }
    }
}

/// The groups that are kept: those of 256 channels, 65 KiB of `f32`.
pub(super) const KEPT: usize = 16;

/// A group that holds zeros when it is first needed: a call may be as short as it takes to write some of them.
pub(super) struct Spare<T> {
    group: MaybeUninit<Group<T>>,
    is_set: bool,
}

impl<T: Element> Spare<T> {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self { group: MaybeUninit::uninit(), is_set: false }
    }

    pub(super) fn get(&mut self) -> &mut Group<T> {
        if !self.is_set {
            set_to_zero(&mut self.group);
            self.is_set = true;
        }
        // SAFETY: it was set, just now or before.
        unsafe { self.group.assume_init_mut() }
    }
}

fn set_to_zero<T: Element>(group: &mut MaybeUninit<Group<T>>) {
    // SAFETY: a group is an array of floats, whose bytes are zero where they are zero.
    unsafe { group.as_mut_ptr().write_bytes(0, 1) };
}

/// The groups of a run. Of many channels the first ones are kept, and others held one at a time.
pub(super) struct Groups<T> {
    kept: [MaybeUninit<Group<T>>; KEPT],
    /// How many of those were set: a task may have few channels.
    set: usize,
    other: Spare<T>,
}

impl<T: Element> Groups<T> {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self { kept: [const { MaybeUninit::uninit() }; KEPT], set: 0, other: Spare::new() }
    }

    /// So many groups that are kept, and one that holds others.
    pub(super) fn of(&mut self, count: usize) -> (&mut [Group<T>], &mut Spare<T>) {
        for group in &mut self.kept[self.set.min(count)..count] {
            set_to_zero(group);
        }
        self.set = self.set.max(count);
        // SAFETY: so many were set, just now or before.
        let kept = unsafe { slice::from_raw_parts_mut(self.kept.as_mut_ptr().cast::<Group<T>>(), count) };
        (kept, &mut self.other)
    }
}

/// How many groups of so many channels are kept.
pub(super) fn kept_groups(channels: usize) -> usize {
    channels.div_ceil(GROUP).min(KEPT)
}
