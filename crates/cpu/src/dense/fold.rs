//! Sums, largest and smallest elements along axes, in `f64` and in an order that the shape alone decides.
//!
//! ```text
//!   the last axis is folded   rows: sums by lanes of pieces, pieces in turn, blocks of pieces in turn
//!   it is kept                columns: each adds its elements in turn, blocks of rows in turn
//! ```

use ndarray::ArrayViewMutD;
use tiled_kernel::dense::{Fold, Update};
use tiled_tensor::Element;

use super::matrix::Shared;
use super::row;
use super::stream::{PIECE, Stream};
use crate::Isa;
use crate::ops::stamp::per_isa;
use crate::share;
use crate::vector::Lane;

/// The pieces of a block of a long row.
const BLOCK: usize = 32 * PIECE;

/// The rows of a block, at least, and the most blocks.
const LEAST_ROWS: usize = 256;
const BLOCKS: usize = 16;

per_isa! {
    /// `held = fold(held, x)` for each column.
    fn columns<T: Element>(fold: Fold, x: &[T], held: &mut [f64]) {
        match fold {
            Fold::Sum => for (held, x) in held.iter_mut().zip(x) {
                *held += x.to_f64();
            },
            Fold::Max => for (held, x) in held.iter_mut().zip(x) {
                let x = x.to_f64();
                *held = if (x > *held) | x.is_nan() { x } else { *held };
            },
            Fold::Min => for (held, x) in held.iter_mut().zip(x) {
                let x = x.to_f64();
                *held = if (x < *held) | x.is_nan() { x } else { *held };
            },
        }
    }
}

/// The fold of a piece.
fn piece<E: Lane>(isa: Isa, fold: Fold, x: &[E]) -> f64 {
    if fold == Fold::Sum {
        return row::sum(isa, x);
    }
    let mut held = [none(fold); 16];
    x.chunks(held.len()).for_each(|chunk| columns(isa, fold, chunk, &mut held));
    held.into_iter().fold(none(fold), |held, x| join(fold, held, x))
}

fn join(fold: Fold, held: f64, x: f64) -> f64 {
    match fold {
        Fold::Sum => held + x,
        Fold::Max if x > held || x.is_nan() => x,
        Fold::Min if x < held || x.is_nan() => x,
        Fold::Max | Fold::Min => held,
    }
}

/// The fold of no elements.
const fn none(fold: Fold) -> f64 {
    match fold {
        Fold::Sum => 0.0,
        Fold::Max => f64::NEG_INFINITY,
        Fold::Min => f64::INFINITY,
    }
}

/// Neighbouring axes of which all are folded, or none: the elements of the shape along them, and how far apart these are.
#[derive(Clone, Copy)]
struct Class {
    extent: usize,
    step: usize,
    folded: bool,
}

/// Where the `index`th element of some classes lies.
fn place(classes: &[Class], folded: bool, mut index: usize) -> usize {
    let mut place = 0;
    for class in classes.iter().rev().filter(|class| class.folded == folded) {
        place += index % class.extent * class.step;
        index /= class.extent;
    }
    place
}

fn count(classes: &[Class], folded: bool) -> usize {
    classes.iter().filter(|class| class.folded == folded).map(|class| class.extent).product()
}

/// Elements of the shape in row-major order: where they lie, or in the buffer.
type Read<'r, E> = &'r (dyn Fn(usize, usize, *mut E) -> *const E + Sync);

/// What is folded.
#[derive(Clone, Copy)]
struct Folding<'r, E> {
    isa: Isa,
    fold: Fold,
    cost: usize,
    read: Read<'r, E>,
}

/// Folds what `read` gives of a shape into y, times `scale`.
pub(super) fn run<E: Lane>(
    isa: Isa,
    fold: Fold,
    scale: E,
    shape: &[usize],
    (cost, read): (usize, Read<'_, E>),
    mut y: ArrayViewMutD<'_, E>,
    update: Update,
) {
    let reduced = y.shape();
    let fits = shape.len() == reduced.len() && shape.iter().zip(reduced).all(|(x, y)| x == y || *y == 1);
    assert!(fits, "{shape:?} does not become {reduced:?} by folding axes");
    let mut classes: Vec<Class> = Vec::new();
    let mut step = shape.iter().product::<usize>();
    for (extent, kept) in shape.iter().zip(reduced).filter(|(extent, _)| **extent != 1) {
        step = if *extent == 0 { 0 } else { step / extent };
        let folded = kept != extent;
        match classes.last_mut() {
            Some(last) if last.folded == folded => {
                *last = Class { extent: last.extent * extent, step, folded };
            }
            _ => classes.push(Class { extent: *extent, step, folded }),
        }
    }
    let outputs = y.len();
    let mut few = [none(fold); 64];
    let mut many = Vec::new();
    let totals = if outputs <= few.len() {
        &mut few[..outputs]
    } else {
        many.resize(outputs, none(fold));
        &mut many[..]
    };
    let folding = Folding { isa, fold, cost, read };
    if shape.iter().all(|extent| *extent > 0) {
        match classes[..] {
            [ref outer @ .., Class { folded: false, extent, .. }] => folding.columns(outer, extent, totals),
            [ref outer @ .., Class { extent, .. }] => folding.rows(outer, extent, totals),
            [] => folding.rows(&[], 1, totals),
        }
    }
    let to = Stream::new_mut(&mut y);
    let scale = scale.to_f64();
    for first in (0..outputs).step_by(PIECE) {
        let mut buffer = [E::ZERO; PIECE];
        let totals = &totals[first..outputs.min(first + PIECE)];
        // SAFETY: y is borrowed for this call alone, and each piece is written once.
        unsafe {
            to.write(isa, first, totals.len(), buffer.as_mut_ptr(), update, |y| {
                for (y, total) in y.iter_mut().zip(totals) {
                    *y = E::from_f64(scale * total);
                }
            });
        }
    }
}

impl<E: Lane> Folding<'_, E> {
    /// # Safety
    /// The elements are there, at most a piece of them, and the buffer has room for one.
    unsafe fn read<'b>(&self, first: usize, len: usize, buffer: &'b mut [E; PIECE]) -> &'b [E] {
        // SAFETY: passed on to the caller.
        unsafe { std::slice::from_raw_parts((self.read)(first, len, buffer.as_mut_ptr()), len) }
    }

    /// Runs `body` for each unit of so many elements.
    fn for_units(&self, units: usize, elements: usize, body: impl Fn(usize) + Sync + Send) {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let operations = (units * elements * self.cost) as f64;
        share::for_units(share::threads(operations), units, body);
    }

    /// Elements of a row from `first` on.
    fn stretch(&self, first: usize, len: usize) -> f64 {
        let mut buffer = [E::ZERO; PIECE];
        let mut held = none(self.fold);
        for from in (0..len).step_by(PIECE) {
            let count = PIECE.min(len - from);
            // SAFETY: the elements are those of the row.
            let x = unsafe { self.read(first + from, count, &mut buffer) };
            held = join(self.fold, held, piece(self.isa, self.fold, x));
        }
        held
    }

    /// Rows of `len` elements.
    fn rows(&self, outer: &[Class], len: usize, totals: &mut [f64]) {
        let (kept, folds) = (count(outer, false), count(outer, true));
        let join = |values: &mut dyn Iterator<Item = f64>| {
            values.fold(none(self.fold), |held, x| join(self.fold, held, x))
        };
        if kept == 1 && folds == 1 && len > BLOCK {
            let mut blocks = vec![0.0; len.div_ceil(BLOCK)];
            let to = Shared(blocks.as_mut_ptr());
            self.for_units(blocks.len(), BLOCK, |block| {
                let first = block * BLOCK;
                // SAFETY: each unit writes its own.
                unsafe { *to.get().add(block) = self.stretch(first, BLOCK.min(len - first)) }
            });
            totals[0] = join(&mut blocks.into_iter());
            return;
        }
        // short rows side by side are read together
        let together = if folds == 1 { (PIECE / len).max(1) } else { 1 };
        let to = Shared(totals.as_mut_ptr());
        self.for_units(kept.div_ceil(together), together * len * folds, |unit| {
            let outputs = unit * together..((unit + 1) * together).min(kept);
            if together > 1 {
                let mut buffer = [E::ZERO; PIECE];
                // SAFETY: one class is kept, so that these rows follow each other; each unit writes its own totals.
                unsafe {
                    let x = self.read(outputs.start * len, outputs.len() * len, &mut buffer);
                    for (output, row) in outputs.zip(x.chunks_exact(len)) {
                        *to.get().add(output) = piece(self.isa, self.fold, row);
                    }
                }
                return;
            }
            for output in outputs {
                let at = place(outer, false, output);
                let blocks = |row: usize| {
                    let first = at + place(outer, true, row);
                    (0..len).step_by(BLOCK).map(move |from| (first + from, BLOCK.min(len - from)))
                };
                let mut values = (0..folds).flat_map(blocks).map(|(first, len)| self.stretch(first, len));
                // SAFETY: as above.
                unsafe { *to.get().add(output) = join(&mut values) }
            }
        });
    }

    /// Columns, of which `cols` lie side by side.
    fn columns(&self, outer: &[Class], cols: usize, totals: &mut [f64]) {
        let (kept, rows) = (count(outer, false), count(outer, true));
        let of_block = rows.div_ceil(BLOCKS).max(LEAST_ROWS);
        let blocks = rows.div_ceil(of_block);
        let of_tile = cols.min(PIECE);
        let tiles = cols.div_ceil(of_tile);
        // rows of few columns that follow each other are read together
        let together = match outer {
            [.., Class { folded: true, extent, .. }] if *extent == rows && tiles == 1 => PIECE / cols,
            _ => 1,
        };
        let mut parts = vec![none(self.fold); if blocks > 1 { blocks * totals.len() } else { 0 }];
        let outputs = totals.len();
        let to = Shared(if blocks > 1 { parts.as_mut_ptr() } else { totals.as_mut_ptr() });
        self.for_units(kept * tiles * blocks, of_block * of_tile, |unit| {
            let (block, unit) = (unit % blocks, unit / blocks);
            let (tile, output) = (unit % tiles, unit / tiles);
            let col = tile * of_tile;
            let width = of_tile.min(cols - col);
            let at = place(outer, false, output) + col;
            let mut buffer = [E::ZERO; PIECE];
            // SAFETY: each unit writes the columns of its tile, of its block; the elements are there.
            unsafe {
                let start = to.get().add(block * outputs + output * cols + col);
                let held = std::slice::from_raw_parts_mut(start, width);
                held.fill(none(self.fold));
                let end = ((block + 1) * of_block).min(rows);
                for row in (block * of_block..end).step_by(together) {
                    let first = at + place(outer, true, row);
                    let x = self.read(first, together.min(end - row) * width, &mut buffer);
                    x.chunks_exact(width).for_each(|x| columns(self.isa, self.fold, x, held));
                }
            }
        });
        if blocks > 1 {
            for (output, total) in totals.iter_mut().enumerate() {
                let values = (0..blocks).map(|block| parts[block * outputs + output]);
                *total = values.fold(none(self.fold), |held, x| join(self.fold, held, x));
            }
        }
    }
}
