//! Exact sums and maxima over shares of an image.

use std::sync::{Mutex, PoisonError};

use tiled_geometry::{Interval, Region};
use tiled_kernel::{ExactSum, Extremum, LaneBuffer, LaneSums, Reduction};
use tiled_tensor::{Element, View};

use super::band::signed;
use super::gather::{Place, read, read_rows};
use super::loss::cross_entropy;
use super::planes::{Planes, State};
use super::stamp::per_isa;
use crate::Isa;
use crate::vector::{prefetch, wins};

/// Lanes that a channel on its own is spread over.
const SPREAD: usize = 16;

/// What is summed.
#[derive(Clone, Copy)]
enum Terms<'a, T> {
    /// `v`.
    Value,
    /// `x` and `x²`.
    Moments,
    /// `g` and `g·(x − mean)`.
    CentredDot(&'a [T]),
    /// `g·x`.
    Product,
    /// `(p − t)²`.
    SquaredError,
}

/// Rows that are read twice before the next.
const FETCHED: usize = 128;

/// Rows of terms that are computed before they are added.
const PIECE: usize = 32;

per_isa! {
    fn add_values<T: Element; const L: usize>(sums: &mut LaneSums<'_, L>, v: &[T]) {
        let (whole, rest) = v.as_chunks::<L>();
        sums.add_rows(whole);
        if !rest.is_empty() {
            sums.add_rows(&[filled_up(rest)]);
        }
    }
}

per_isa! {
    fn add_moments<T: Element; const L: usize>(sums: &mut LaneSums<'_, L>, squares: &mut LaneSums<'_, L>, x: &[T]) {
        let (whole, rest) = x.as_chunks::<L>();
        let reads_once = LaneSums::<L>::reads_once(VECTOR);
        for rows in whole.chunks(if reads_once { usize::MAX } else { FETCHED }) {
            if !reads_once {
                fetch_next(rows);
            }
            sums.add_with_squares::<T, FUSED, VECTOR>(squares, rows);
        }
        if !rest.is_empty() {
            sums.add_with_squares::<T, FUSED, VECTOR>(squares, &[filled_up(rest)]);
        }
    }
}

per_isa! {
    fn add_centred<T: Element; const L: usize>(
        sums: &mut LaneSums<'_, L>, dots: &mut LaneSums<'_, L>, means: &[[T; L]; PIECE], g: &[T], x: &[T]
    ) {
        // a part is read twice
        for (g, x) in g.chunks(FETCHED * L).zip(x.chunks(FETCHED * L)) {
            let (whole, rest) = g.as_chunks::<L>();
            sums.add_rows(whole);
            if !rest.is_empty() {
                sums.add_rows(&[filled_up(rest)]);
            }
            add_terms(dots, g, x, #[inline(always)] |terms, g, x| {
                for (((term, g), x), mean) in terms.iter_mut().zip(g).zip(x).zip(means.as_flattened()) {
                    *term = *g * (*x - *mean);
                }
            });
        }
    }
}

per_isa! {
    fn add_products<T: Element; const L: usize>(sums: &mut LaneSums<'_, L>, g: &[T], x: &[T]) {
        add_terms(sums, g, x, #[inline(always)] |terms, g, x| {
            for ((term, g), x) in terms.iter_mut().zip(g).zip(x) {
                *term = *g * *x;
            }
        });
    }
}

per_isa! {
    fn add_squared<T: Element; const L: usize>(sums: &mut LaneSums<'_, L>, p: &[T], t: &[T]) {
        add_terms(sums, p, t, #[inline(always)] |terms, p, t| {
            for ((term, p), t) in terms.iter_mut().zip(p).zip(t) {
                *term = (*p - *t) * (*p - *t);
            }
        });
    }
}

/// Fetches as much as there is in `rows` from behind them: while their squares are added nothing else is read, and memory would wait.
#[inline(always)]
fn fetch_next<T, const L: usize>(rows: &[[T; L]]) {
    let values = rows.as_flattened();
    for at in (0..values.len()).step_by(64 / size_of::<T>()) {
        prefetch(values.as_ptr().wrapping_add(values.len() + at));
    }
}

/// Adds a rounded term of each pair of values; `compute` writes those of at most [`PIECE`] rows.
///
/// Terms are computed along the elements, not lane by lane: loops over 16 lanes of three arrays are not vectorised.
#[inline(always)]
fn add_terms<T: Element, const L: usize>(
    sums: &mut LaneSums<'_, L>,
    a: &[T],
    b: &[T],
    compute: impl Fn(&mut [T], &[T], &[T]),
) {
    let mut terms = [[T::ZERO; L]; PIECE];
    for (a, b) in a.chunks(PIECE * L).zip(b.chunks(PIECE * L)) {
        let rows = &mut terms[..a.len().div_ceil(L)];
        let (own, behind) = rows.as_flattened_mut().split_at_mut(a.len());
        compute(own, a, b);
        behind.fill(T::ZERO);
        sums.add_rows(rows);
    }
}

/// The last values of a row, filled up with zeros, which change no exact sum.
#[inline(always)]
fn filled_up<T: Element, const L: usize>(rest: &[T]) -> [T; L] {
    let mut last = [T::ZERO; L];
    last[..rest.len()].copy_from_slice(rest);
    last
}

/// Where terms wait, of a task that adds to many sums one after another.
type Buffers = [LaneBuffer; 2];

/// A reduction with exact sums over the rows of a share.
struct Pass<'a, 'v, T: Element> {
    isa: Isa,
    terms: Terms<'a, T>,
    inputs: [&'a View<'v, T>; 2],
    cols: Interval,
}

impl<T: Element> Pass<'_, '_, T> {
    /// Adds rows of a block of channels to the sums of its lanes; all lanes to the only sum where there is one.
    fn add(&self, place: Place, rows: Interval, sums: [&mut [ExactSum]; 2], buffers: &mut Buffers) {
        match place.lanes {
            4 => self.add_lanes::<4>(place, rows, sums, buffers),
            8 => self.add_lanes::<8>(place, rows, sums, buffers),
            16 => self.add_lanes::<16>(place, rows, sums, buffers),
            _ => self.add_lanes::<SPREAD>(place, rows, sums, buffers),
        }
    }

    fn add_lanes<const L: usize>(
        &self,
        place: Place,
        rows: Interval,
        [first, second]: [&mut [ExactSum]; 2],
        buffers: &mut Buffers,
    ) {
        let channels = self.inputs[0].layout().channels();
        // a channel on its own is spread over all lanes
        let lanes = if place.lanes == 1 { L } else { place.lanes.min(channels - place.first) };
        let [first_buffer, second_buffer] = buffers;
        self.add_rows::<L>(
            place,
            rows,
            &mut lane_sums(first, lanes, first_buffer),
            &mut lane_sums(second, lanes, second_buffer),
        );
    }

    fn add_rows<const L: usize>(
        &self,
        place: Place,
        rows: Interval,
        first: &mut LaneSums<'_, L>,
        second: &mut LaneSums<'_, L>,
    ) {
        let mut means = [[T::ZERO; L]; PIECE];
        if let Terms::CentredDot(given) = self.terms {
            let channels = self.inputs[0].layout().channels();
            // means of one image follow those of the one before it, where there are several
            let image = if given.len() > channels { place.n * channels } else { 0 };
            let mut mean = [T::ZERO; L];
            for (lane, mean) in mean.iter_mut().enumerate() {
                let channel = if place.lanes == 1 { place.first } else { place.first + lane };
                let channel = if channel < channels { given.get(image + channel) } else { None };
                *mean = channel.copied().unwrap_or(T::ZERO);
            }
            means.fill(mean);
        }
        let [a, b] = self.inputs;
        let (isa, cols) = (self.isa, self.cols);
        match self.terms {
            Terms::Value => read_rows([a], place, rows, cols, |[v]| add_values(isa, first, v)),
            Terms::Moments => read_rows([a], place, rows, cols, |[x]| {
                add_moments(isa, first, second, x);
            }),
            Terms::CentredDot(_) => read_rows([a, b], place, rows, cols, |[g, x]| {
                add_centred(isa, first, second, &means, g, x);
            }),
            Terms::Product => read_rows([a, b], place, rows, cols, |[g, x]| {
                add_products(isa, first, g, x);
            }),
            Terms::SquaredError => read_rows([a, b], place, rows, cols, |[p, t]| {
                add_squared(isa, first, p, t);
            }),
        }
    }
}

/// Sums of so many lanes: one of each, one of all, or none.
fn lane_sums<'a, const L: usize>(
    sums: &'a mut [ExactSum],
    lanes: usize,
    buffer: &'a mut LaneBuffer,
) -> LaneSums<'a, L> {
    match sums {
        [sum] => LaneSums::spread(sum, lanes, buffer),
        sums => LaneSums::new(sums, buffer),
    }
}

/// Takes a share into exact sums.
pub(crate) fn exact<T: Element>(
    isa: Isa,
    reduction: &Reduction,
    params: &[&[T]],
    inputs: &[View<'_, T>],
    share: Region<2>,
    sums: &mut [ExactSum],
) {
    let a = &inputs[0];
    let (batch, channels) = (a.layout().batch(), a.layout().channels());
    assert_eq!(sums.len(), reduction.slots(batch, channels), "the state belongs to the reduction");
    let terms = match reduction {
        Reduction::Moments | Reduction::ImageMoments => Terms::Moments,
        Reduction::CentredDot | Reduction::ImageCentredDot => Terms::CentredDot(params[0]),
        Reduction::ChannelDot => Terms::Product,
        Reduction::SquaredError => Terms::SquaredError,
        Reduction::CrossEntropy => return losses(isa, [a, &inputs[1]], share, sums),
        _ => Terms::Value,
    };
    let pass = Pass { isa, terms, inputs: [a, inputs.get(1).unwrap_or(a)], cols: share.cols() };
    // other blocks are read a channel at a time
    let lanes = if matches!(a.layout().block(), 4 | 8 | 16) { a.layout().block() } else { 1 };
    let planes = Planes { batch, channels, lanes, share };
    if let Some(is_of_images) = has_own_sums(reduction)
        && planes.has_blocks_for_all(is_of_images)
    {
        let seconds = if has_second_terms(reduction) { sums.len() / 2 } else { 0 };
        let (first, second) = sums.split_at_mut(sums.len() - seconds);
        return planes.for_blocks(is_of_images, [first, second], |place, sums, buffers: &mut Buffers| {
            pass.add(place, share.rows(), sums, buffers);
        });
    }
    let slots = Slots { reduction: *reduction, channels };
    let sums = Mutex::new(sums);
    planes.for_parts(lanes, |parts, is_alone| {
        let lock = || sums.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffers = Buffers::default();
        if is_alone {
            let mut sums = lock();
            return parts
                .for_each(|(place, rows)| pass.add(place, rows, slots.of(&mut sums, place), &mut buffers));
        }
        // sums of the task's own, as long as all parts add to the same
        let mut own = [[ExactSum::default(); SPREAD]; 2];
        let mut held: Option<Place> = None;
        let merge = |own: &[[ExactSum; SPREAD]; 2], place: Place| {
            let mut sums = lock();
            for (slots, own) in slots.of(&mut sums, place).into_iter().zip(own) {
                slots.iter_mut().zip(own).for_each(|(slot, own)| slot.merge(own));
            }
        };
        for (place, rows) in parts {
            let [first, second] = slots.lens(place);
            if let Some(before) = held.filter(|before| slots.begin(*before) != slots.begin(place)) {
                merge(&own, before);
                own.iter_mut().flatten().for_each(|sum| *sum = ExactSum::default());
            }
            held = Some(place);
            let [own_first, own_second] = &mut own;
            pass.add(place, rows, [&mut own_first[..first], &mut own_second[..second]], &mut buffers);
        }
        if let Some(place) = held {
            merge(&own, place);
        }
    });
}

/// Whether each block of channels has sums of its own, and then whether it has them for each image.
const fn has_own_sums(reduction: &Reduction) -> Option<bool> {
    match reduction {
        Reduction::Sum | Reduction::SquaredError => None,
        Reduction::ImageSum | Reduction::ImageMoments | Reduction::ImageCentredDot => Some(true),
        _ => Some(false),
    }
}

/// Whether there are sums of second terms, behind all those of the first.
const fn has_second_terms(reduction: &Reduction) -> bool {
    matches!(
        reduction,
        Reduction::Moments | Reduction::CentredDot | Reduction::ImageMoments | Reduction::ImageCentredDot
    )
}

/// Where the sums of a block of channels are.
struct Slots {
    reduction: Reduction,
    channels: usize,
}

impl Slots {
    /// The first sum of a block.
    fn begin(&self, Place { n, first, .. }: Place) -> usize {
        match has_own_sums(&self.reduction) {
            None => 0,
            Some(is_of_images) => first + if is_of_images { n * self.channels } else { 0 },
        }
    }

    /// How many sums of the terms and of the second terms a block has.
    fn lens(&self, Place { first, lanes, .. }: Place) -> [usize; 2] {
        if has_own_sums(&self.reduction).is_none() {
            return [1, 0];
        }
        let len = lanes.min(self.channels - first);
        [len, if has_second_terms(&self.reduction) { len } else { 0 }]
    }

    /// The sums of the terms and of the second terms; one where the reduction has one for all channels.
    fn of<'s>(&self, sums: &'s mut [ExactSum], place: Place) -> [&'s mut [ExactSum]; 2] {
        if has_own_sums(&self.reduction).is_none() {
            return [sums, &mut []];
        }
        let begin = self.begin(place);
        let range = begin..begin + self.lens(place)[0];
        if has_second_terms(&self.reduction) {
            let (sums, second) = sums.split_at_mut(sums.len() / 2);
            return [&mut sums[range.clone()], &mut second[range]];
        }
        [&mut sums[range], &mut []]
    }
}

fn losses<T: Element>(isa: Isa, inputs: [&View<'_, T>; 2], share: Region<2>, sums: &mut [ExactSum]) {
    let cols = share.cols();
    let layout = inputs[0].layout();
    let weight = 16 * layout.channels();
    // each pixel reads all channels
    let planes = Planes { batch: layout.batch(), channels: 1, lanes: 1, share };
    planes.for_rows(weight, sums, |place, rows, state| {
        let each = |sums: &mut [ExactSum]| cross_entropy(isa, inputs, place.n, rows, cols, sums);
        match state {
            State::Alone(sums) => each(sums),
            State::Shared(sums) => {
                let mut own = [ExactSum::default(); 2];
                each(&mut own);
                let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
                sums.iter_mut().zip(&own).for_each(|(sum, own)| sum.merge(own));
            }
        }
    });
}

per_isa! {
    /// The largest of each of `L` interleaved sequences; NaN over every number.
    fn largest<T: Element; const L: usize>(row: &[T]) -> [T; L] {
        let mut held = [T::NEG_INFINITY; L];
        let (whole, rest) = row.as_chunks::<L>();
        for values in whole {
            for (held, value) in held.iter_mut().zip(values) {
                *held = if wins(*value, *held) { *value } else { *held };
            }
        }
        for (held, value) in held.iter_mut().zip(rest) {
            *held = if wins(*value, *held) { *value } else { *held };
        }
        held
    }
}

/// Takes a share into maxima per image and channel.
pub(crate) fn image_max<T: Element>(
    isa: Isa,
    inputs: &[View<'_, T>],
    share: Region<2>,
    extrema: &mut [Extremum<T>],
) {
    let x = &inputs[0];
    let (batch, channels) = (x.layout().batch(), x.layout().channels());
    assert_eq!(extrema.len(), batch * channels, "the state belongs to the reduction");
    let lanes = if matches!(x.layout().block(), 4 | 8 | 16) { x.layout().block() } else { 1 };
    let planes = Planes { batch, channels, lanes, share };
    let offer = |place: Place, rows: Interval, extrema: &mut [Extremum<T>]| match lanes {
        4 => offer_rows::<T, 4>(isa, x, place, rows, share.cols(), extrema),
        8 => offer_rows::<T, 8>(isa, x, place, rows, share.cols(), extrema),
        _ => offer_rows::<T, SPREAD>(isa, x, place, rows, share.cols(), extrema),
    };
    if planes.has_blocks_for_all(true) {
        return planes.for_blocks(true, [extrema, &mut []], |place, [extrema, _], (): &mut ()| {
            offer(place, share.rows(), extrema);
        });
    }
    planes.for_rows(lanes, extrema, |place, rows, state| {
        let real = lanes.min(channels - place.first);
        let slots = place.n * channels + place.first..place.n * channels + place.first + real;
        let each = |extrema: &mut [Extremum<T>]| offer(place, rows, extrema);
        match state {
            State::Alone(extrema) => each(&mut extrema[slots]),
            State::Shared(extrema) => {
                let mut own = [Extremum::default(); SPREAD];
                each(&mut own[..real]);
                let mut extrema = extrema.lock().unwrap_or_else(PoisonError::into_inner);
                for (held, own) in extrema[slots].iter_mut().zip(&own) {
                    if let Some(position) = own.position {
                        held.offer(own.value, position);
                    }
                }
            }
        }
    });
}

fn offer_rows<T: Element, const L: usize>(
    isa: Isa,
    x: &View<'_, T>,
    place: Place,
    rows: Interval,
    cols: Interval,
    extrema: &mut [Extremum<T>],
) {
    for y in rows.begin()..rows.end() {
        read([x], place, y, cols, |skip, [row]| {
            let peaks = largest::<T, L>(isa, row);
            for (lane, held) in extrema.iter_mut().enumerate() {
                // a channel on its own is spread over all lanes
                let peaks = if place.lanes == 1 { &peaks[..] } else { &peaks[lane..=lane] };
                let peak = peaks.iter().fold(T::NEG_INFINITY, |a, b| if wins(*b, a) { *b } else { a });
                let is_news = match held.position {
                    Some(at) => wins(peak, held.value) || (at > [y, cols.begin()] && !wins(held.value, peak)),
                    None => true,
                };
                if !is_news {
                    continue;
                }
                let mut values = row[lane..].iter().step_by(place.lanes);
                let found = values.position(|value| *value == peak || (peak.is_nan() && value.is_nan()));
                if let Some(pixel) = found {
                    let col = cols.begin() + signed(skip / place.lanes + pixel);
                    held.offer(row[pixel * place.lanes + lane], [y, col]);
                }
            }
        });
    }
}
