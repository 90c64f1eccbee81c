//! Functions of several values of one position, some of which stand for a channel, a plane or the whole image.

use tiled_geometry::{Interval, Region};
use tiled_kernel::{Arithmetic, Spread};
use tiled_tensor::{Element, PartMut, View};

use super::band::{Band, for_bands, index, signed, span};
use super::function::{Binary, Product, Sum, functions, map2};
use super::gather::zip_row;
use super::stamp::per_isa;
use super::unmasked::Unmasked;
use crate::Isa;

/// Elements of a row that are computed at once where an operand is spread, so that what it is spread into stays in the first
/// cache; a multiple of every channel block.
const PIECE: usize = 1024;

/// A function of three elements.
pub(crate) trait Ternary<T>: Copy + Sync {
    /// The value at `(a, b, c)`.
    fn apply<const FUSED: bool>(self, a: T, b: T, c: T) -> T;
}

functions! {
    Difference: Binary |self, a, b| a - b;
    Quotient: Binary |self, a, b| a / b;
    /// NaN wins.
    Smaller: Binary |self, a, b| if (a < b) | a.is_nan() { a } else { b };
    /// NaN wins.
    Larger: Binary |self, a, b| if (a > b) | a.is_nan() { a } else { b };
    Prelu: Binary |self, a, slope| if a > T::ZERO { a } else { slope * a };
    PreluSlope: Binary |self, g, a| if a > T::ZERO { T::ZERO } else { g * a };
    PreluBackward: Ternary |self, g, a, slope| if a > T::ZERO { g } else { slope * g };
    DivisorBackward: Ternary |self, g, a, b| -g * ((a / b) / b);
    SmallerBackward: Ternary |self, g, a, b| {
        let tied = if a == b { g * T::from_f64(0.5) } else { g };
        if a > b { T::ZERO } else { tied }
    };
    LargerBackward: Ternary |self, g, a, b| {
        let tied = if a == b { g * T::from_f64(0.5) } else { g };
        if a < b { T::ZERO } else { tied }
    };
}

per_isa! {
    /// `out[i] = f(a[i], b[i], c[i])`.
    pub(crate) fn map3<T: Element, F: Ternary<T>>(f: F, a: &[T], b: &[T], c: &[T], out: &mut [T]) {
        for (((out, a), b), c) in out.iter_mut().zip(a).zip(b).zip(c) {
            *out = f.apply::<FUSED>(*a, *b, *c);
        }
    }
}

/// The function of the operands, whose inputs and parameter are given.
pub(crate) fn arithmetic<T: Element>(
    isa: Isa,
    function: Arithmetic,
    operands: &[Spread; 3],
    param: &[T],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let operands = Operands::new(&operands[..function.arity()], param, inputs);
    macro_rules! two {
        ($f:expr) => {
            operands.run(output, region, &|[a, b, _], out| map2(isa, $f, a, b, out))
        };
    }
    macro_rules! three {
        ($f:expr) => {
            operands.run(output, region, &|[a, b, c], out| map3(isa, $f, a, b, c, out))
        };
    }
    match function {
        Arithmetic::Add => two!(Sum),
        Arithmetic::Sub => two!(Difference),
        Arithmetic::Mul => two!(Product),
        Arithmetic::Div => two!(Quotient),
        Arithmetic::Minimum => two!(Smaller),
        Arithmetic::Maximum => two!(Larger),
        Arithmetic::Prelu => two!(Prelu),
        Arithmetic::PreluSlope => two!(PreluSlope),
        Arithmetic::PreluBackward => three!(PreluBackward),
        Arithmetic::DivisorBackward => three!(DivisorBackward),
        Arithmetic::MinimumBackward => three!(SmallerBackward),
        Arithmetic::MaximumBackward => three!(LargerBackward),
    }
}

/// What is computed of a piece of a row.
type Piece<'f, T> = &'f (dyn Fn([&[T]; 3], &mut [T]) + Sync);

/// An operand, with its input where it is one.
type Slot<'a, 'v, T> = (Spread, Option<&'a View<'v, T>>);

/// The operands of a function.
struct Operands<'a, 'v, T: Element> {
    /// Two or three.
    slots: [Option<Slot<'a, 'v, T>>; 3],
    param: &'a [T],
}

impl<'a, 'v, T: Element> Operands<'a, 'v, T> {
    fn new(operands: &[Spread], param: &'a [T], inputs: &'a [View<'v, T>]) -> Self {
        let (mut inputs, mut slots) = (inputs.iter(), [None; 3]);
        for (slot, operand) in slots.iter_mut().zip(operands) {
            let input = operand.is_input().then(|| inputs.next());
            *slot =
                Some((*operand, input.map(|input| input.expect("an input for each operand that is one"))));
        }
        Self { slots, param }
    }

    fn run(&self, output: PartMut<'_, T>, region: Region<2>, piece: Piece<'_, T>) {
        for_bands(output, region, 1, |band| {
            let mut spread = [[T::ZERO; PIECE]; 3];
            for (slot, values) in self.slots.iter().flatten().zip(&mut spread) {
                self.repeat(*slot, band, values);
            }
            for y in band.rows().begin()..band.rows().end() {
                self.row(band, y, &mut spread, piece);
            }
        });
    }

    /// What an operand is for each lane of a band, repeated, where that is the same for all pixels.
    fn repeat(&self, (operand, view): (Spread, Option<&View<'v, T>>), band: &Band<'_, T>, to: &mut [T]) {
        let (n, first, lanes) = (band.n(), band.first_channel(), band.lanes());
        let value = |channel: usize| match (operand, view) {
            (Spread::Pixel, Some(view)) if view.layout().channels() == 1 => view.get(n, 0, 0, 0),
            (Spread::Pixel, Some(view)) => view.get(n, channel, 0, 0),
            (Spread::Number(number), _) => T::from_f64(number),
            _ if self.param.len() == 1 => self.param[0],
            _ => self.param[channel],
        };
        if matches!(operand, Spread::Whole | Spread::Plane) {
            return;
        }
        // lanes that are no channel are computed and never read
        for lane in 0..band.real_lanes() {
            let value = value(first + lane);
            to[lane..].iter_mut().step_by(lanes).for_each(|to| *to = value);
        }
    }

    fn row(&self, band: &mut Band<'_, T>, y: i64, spread: &mut [[T; PIECE]; 3], piece: Piece<'_, T>) {
        let (n, lanes, mut column) = (band.n(), band.lanes(), band.cols().begin());
        let mut each = |values: [&[T]; 3], out: &mut [T]| {
            for (place, out) in out.chunks_mut(PIECE).enumerate() {
                let cols = Interval::new(column, column + signed(out.len() / lanes));
                let mut taken: [&[T]; 3] = [&[]; 3];
                let operands = self.slots.iter().flatten().zip(values).zip(spread.iter_mut());
                for (taken, (((operand, view), values), spread)) in taken.iter_mut().zip(operands) {
                    *taken = match (operand, view) {
                        (Spread::Whole, _) => &values[place * PIECE..][..out.len()],
                        (Spread::Plane, Some(view)) => {
                            let plane = span(view, [n, 0], y, cols).iter().step_by(view.layout().block());
                            for (to, value) in spread.chunks_mut(lanes).zip(plane) {
                                to.fill(*value);
                            }
                            &spread[..out.len()]
                        }
                        _ => &spread[..out.len()],
                    };
                }
                piece(taken, out);
                column = cols.end();
            }
        };
        let whole = |slot: usize| match self.slots[slot] {
            Some((Spread::Whole, view)) => view,
            _ => None,
        };
        // an operand that is not read there stands for one that is
        match whole(0).or_else(|| whole(1)).or_else(|| whole(2)) {
            None => each([&[]; 3], band.row(y)),
            Some(other) => zip_row([0, 1, 2].map(|slot| whole(slot).unwrap_or(other)), band, y, each),
        }
    }
}

/// The sum over the channels.
pub(crate) fn sum_channels<T: Element>(
    isa: Isa,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    fold_channels(isa, (Sum, std::convert::identity), inputs, output, region);
}

/// The largest of the channels; a zero is positive, and NaN is one and the same, so that the order does not show.
pub(crate) fn max_channels<T: Element>(
    isa: Isa,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let settled = |value: T| if value.is_nan() { T::from_f64(f64::NAN) } else { value + T::ZERO };
    fold_channels(isa, (Larger, settled), inputs, output, region);
}

/// What a function of two makes of all channels, and another of that: lane by lane over the blocks, then over the lanes, both from
/// the first on.
fn fold_channels<T: Element>(
    isa: Isa,
    fold: (impl Binary<T>, impl Fn(T) -> T + Copy + Sync),
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    let step = signed(PIECE / x.layout().block());
    for_bands(output, region, x.layout().channels(), |band| {
        let (n, lanes, cols) = (band.n(), band.lanes(), band.cols());
        for y in band.rows().begin()..band.rows().end() {
            let row = band.row(y);
            for begin in (cols.begin()..cols.end()).step_by(index(step)) {
                let part = Interval::new(begin, (begin + step).min(cols.end()));
                let skipped = index(begin - cols.begin()) * lanes;
                fold_piece(isa, fold, (x, n, y), part, row[skipped..].iter_mut().step_by(lanes));
            }
        }
    });
}

/// At most [`PIECE`] elements of each block, of a row of an image.
fn fold_piece<'o, T: Element, F: Binary<T>>(
    isa: Isa,
    (function, settled): (F, impl Fn(T) -> T),
    (x, n, y): (&View<'_, T>, usize, i64),
    cols: Interval,
    out: impl Iterator<Item = &'o mut T>,
) {
    let (channels, block) = (x.layout().channels(), x.layout().block());
    let mut totals = [T::ZERO; PIECE];
    let first = span(x, [n, 0], y, cols);
    let totals = &mut totals[..first.len()];
    totals.copy_from_slice(first);
    for index in 1..channels.div_ceil(block) {
        let (values, real) = (span(x, [n, index], y, cols), channels - index * block);
        if real >= block {
            accumulate(isa, function, values, totals);
            continue;
        }
        for (totals, values) in totals.chunks_mut(block).zip(values.chunks(block)) {
            for (total, value) in totals.iter_mut().zip(&values[..real]) {
                *total = function.apply::<false>(*total, *value);
            }
        }
    }
    for (out, totals) in out.zip(totals.chunks(block)) {
        let (first, rest) = (totals[0], &totals[1..channels.min(block)]);
        *out = settled(rest.iter().fold(first, |total, value| function.apply::<false>(total, *value)));
    }
}

per_isa! {
    /// `totals[i] = f(totals[i], values[i])`.
    fn accumulate<T: Element, F: Binary<T>>(function: F, values: &[T], totals: &mut [T]) {
        let unmasked = Unmasked::new();
        for (total, value) in totals.iter_mut().zip(values) {
            *total = unmasked.value(function.apply::<FUSED>(*total, *value));
        }
    }
}
