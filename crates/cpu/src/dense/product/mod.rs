//! Products of matrices.
//!
//! ```text
//!   C (m×n) in units of rows by columns, shared among threads; for each unit and each block of k
//!     columns of B packed: panels of two vectors    stay in the second cache
//!     for each tile of rows: rows of A packed       stay in the first cache
//!       for each panel: sums in registers, added to those of the blocks before, at last bias, activation, store
//!         then some of the columns of the next block packed, which were fetched meanwhile
//! ```
//!
//! An element is the sum over blocks of k, first to last, of sums over their terms, first to last: whatever the unit, the tile, the lane
//! and the thread, and also where rows and columns have changed places.

mod finish;
mod pack;
mod tile;

use std::ops::Range;

use ndarray::ArrayViewMutD;
use tiled_kernel::Activation;
use tiled_kernel::dense::{Product, Update};
use tiled_tensor::Element;

use super::matrix::{Axes, Axis, Matrix, Shared, require, with_scratch};
use crate::Isa;
use crate::share;
use crate::vector::{self, Lane, Routine, Simd};
pub(super) use finish::Bias;
use finish::Finish;
use pack::{Cols, Rows, Tiles, is_side, panel_len};
use tile::{Ahead, Operands, VECTORS, ahead_rows, block_terms, height, term_step, tile_len};

/// A product of two matrices, or of as many as there are places of each.
///
/// # Safety
/// At each place `a` is readable for m×k, `b` for k×n, and `c` writable for m×n, by this call alone; the bias is readable for what it is of.
#[derive(Clone, Copy)]
pub(super) struct Job<E> {
    /// m, n, k.
    pub(super) extents: [usize; 3],
    pub(super) a: Matrix<*const E>,
    pub(super) b: Matrix<*const E>,
    pub(super) c: Matrix<*mut E>,
    pub(super) bias: Option<Bias<E>>,
    pub(super) activation: Option<Activation>,
    pub(super) update: Update,
}

impl<E> Job<E> {
    /// `Cᵀ = Bᵀ·Aᵀ`.
    fn transposed(self) -> Self {
        let [m, n, k] = self.extents;
        Self {
            extents: [n, m, k],
            a: self.b.transposed(),
            b: self.a.transposed(),
            c: self.c.transposed(),
            bias: self.bias.map(|bias| Bias { of_rows: !bias.of_rows, ..bias }),
            ..self
        }
    }

    /// Whether lanes lie along the rows of C rather than along its columns: where the columns of B would have to be transposed and are
    /// more than the rows of A, or C lies the other way.
    fn turns(&self) -> bool {
        let [m, n, _] = self.extents;
        let is_plain = |strides: [isize; 2]| strides[1] == 1;
        if is_plain(self.b.strides) {
            !is_plain(self.c.strides) && is_plain(self.c.transposed().strides) && m >= n
        } else {
            is_plain(self.a.transposed().strides) || 2 * m <= n
        }
    }
}

/// The bytes of a row of the columns of a unit.
const COLS_BYTES: usize = 1024;

/// The rows of a unit that has so many columns; where they are fewer, rows are more.
const ROWS: usize = 224;

/// Units that each thread finds at least, if tiles are enough.
const UNITS_OF_A_THREAD: usize = 4;

/// How a product is cut into units.
#[derive(Clone, Copy)]
struct Cut {
    /// Rows and columns of C.
    extents: [usize; 2],
    /// Rows of a tile.
    height: usize,
    /// Columns of a unit.
    width: usize,
    /// Units of rows and of columns.
    counts: [usize; 2],
}

impl Cut {
    fn new<S: Simd>([m, n, _]: [usize; 3], threads: usize) -> Self {
        let (tiles, panels) = (m.div_ceil(tile::rows::<S>()), n.div_ceil(VECTORS * S::LANES));
        let most_panels = COLS_BYTES / (VECTORS * S::LANES * size_of::<S::E>());
        let of_panels = panels.div_ceil(panels.div_ceil(most_panels).max(1)).max(1);
        let most = (ROWS * most_panels / of_panels / tile::rows::<S>()).max(1);
        let col_units = panels.div_ceil(of_panels).max(1);
        let wanted = if threads == 1 { 1 } else { (UNITS_OF_A_THREAD * threads).div_ceil(col_units) };
        let row_units = tiles.div_ceil(most).max(wanted.min(tiles)).max(1);
        let width = of_panels * VECTORS * S::LANES;
        Self { extents: [m, n], height: tile::rows::<S>(), width, counts: [row_units, col_units] }
    }

    fn units(&self) -> usize {
        self.counts[0] * self.counts[1]
    }

    /// The rows and columns of a unit: rows are shared out by tiles, evenly, or the last units would be small ones.
    fn unit(&self, index: usize) -> [Range<usize>; 2] {
        let [m, n] = self.extents;
        let [row, col] = [index / self.counts[1], index % self.counts[1]];
        let tiles = m.div_ceil(self.height);
        let first = |unit: usize| (tiles * unit / self.counts[0] * self.height).min(m);
        [first(row)..first(row + 1), col * self.width..((col + 1) * self.width).min(n)]
    }
}

/// Products at places that are given by offsets into a, b and c.
struct Products<'p, E> {
    job: Job<E>,
    places: usize,
    offsets: &'p (dyn Fn(usize) -> [isize; 3] + Sync),
}

impl<E: Lane> Routine<E> for Products<'_, E> {
    fn run<S: Simd<E = E>>(self, simd: S) {
        let Self { job, places, offsets } = self;
        let turns = job.turns();
        let job = if turns { job.transposed() } else { job };
        let [m, n, k] = job.extents;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let operations = 2.0 * (m * n) as f64 * k.max(1) as f64 * places as f64;
        let threads = share::threads(operations);
        let cut = Cut::new::<S>(job.extents, threads.div_ceil(places.max(1)));
        let of_place = cut.units();
        let shared = Shared(job);
        share::for_units(threads, places * of_place, |unit| {
            let job = shared.get();
            let [a, b, c] = offsets(unit / of_place);
            let [a, b] = if turns { [b, a] } else { [a, b] };
            let job = Job {
                a: Matrix { start: job.a.start.wrapping_offset(a), ..job.a },
                b: Matrix { start: job.b.start.wrapping_offset(b), ..job.b },
                c: Matrix { start: job.c.start.wrapping_offset(c), ..job.c },
                ..job
            };
            let unit = unit % of_place;
            let ranges = cut.unit(unit);
            // whose first block is fetched while the last one of this is computed
            let after = (unit + 1 < of_place).then(|| cut.unit(unit + 1));
            let scratch = Scratch::new::<S>([ranges[0].len(), ranges[1].len(), k], is_side(&job.a));
            with_scratch(scratch.end, |scratch| {
                // SAFETY: the job vouches for its matrices; no other unit has these rows and columns of this place.
                unsafe { compute(simd, &job, &ranges, after.as_ref(), scratch) }
            });
        });
    }
}

/// Where the parts of the memory of a unit begin.
struct Scratch {
    /// Packed rows, of one tile or of all.
    rows: usize,
    /// The sums of a tile.
    sums: usize,
    /// Packed columns of this block and of the next.
    cols: [usize; 2],
    /// The totals of all tiles.
    totals: usize,
    end: usize,
}

impl Scratch {
    fn new<S: Simd>([rows, cols, k]: [usize; 3], side: bool) -> Self {
        let width = VECTORS * S::LANES;
        let tiles = if side { 1 } else { rows.div_ceil(tile::rows::<S>()) };
        let sums = tiles * tile_len::<S>();
        let packed = sums + term_step::<S>() * width;
        let panels = cols.div_ceil(width);
        let is_one = k <= block_terms::<S::E>();
        let of_block = panels * panel_len(block_terms::<S::E>().min(k), width);
        let next = packed + if is_one { 0 } else { of_block };
        let totals = next + of_block;
        let kept = if is_one { 0 } else { rows.next_multiple_of(2) * panels * width };
        Self { rows: 0, sums, cols: [packed, next], totals, end: totals + kept }
    }
}

/// What the next block of k reads, fetched while this one is computed: rows of memory, one after another.
struct Fetch<E> {
    left: [(Ahead<E>, usize); 2],
}

impl<E> Fetch<E> {
    /// The lines of a block of columns and of the rows of a unit, where these are packed at once.
    fn new(job: &Job<E>, [rows, cols]: &[Range<usize>; 2], terms: Range<usize>) -> Self {
        let of = |matrix: Matrix<*const E>, others: &Range<usize>| {
            // rows of memory are those of the matrix, or its columns
            let [step, other] = matrix.strides;
            let lies = |step: isize, count: usize| (Ahead { start: matrix.start, step }, count);
            if other == 1 { lies(step, terms.len()) } else { lies(other, others.len()) }
        };
        let none = |matrix: Matrix<*const E>| (Ahead { start: matrix.start, step: 0 }, 0);
        let (a, b) = (job.a.from(rows.start, terms.start), job.b.from(terms.start, cols.start));
        let of_b = if terms.is_empty() { none(b) } else { of(b, cols) };
        let of_a = if terms.is_empty() || is_side(&a) { none(a) } else { of(a.transposed(), rows) };
        Self { left: [of_b, of_a] }
    }

    /// The rows of memory of columns that are yet to be fetched.
    const fn left_of_cols(&self) -> usize {
        self.left[0].1
    }

    /// As many rows as a tile fetches; the same again where none are left.
    fn next(&mut self) -> Ahead<E> {
        let [first, second] = &mut self.left;
        let (ahead, left) = if first.1 > 0 { first } else { second };
        let now = Ahead { ..*ahead };
        if *left > 0 {
            let rows = ahead_rows::<E>().min(*left);
            *left -= rows;
            ahead.start = ahead.start.wrapping_offset(rows.cast_signed().wrapping_mul(ahead.step));
        } else {
            ahead.step = 0;
        }
        now
    }
}

/// The columns of a block that are packed while the block before is computed, as they are fetched: rows of memory a power of two apart meet
/// in a few sets of the cache, and those of a whole block would not stay.
struct NextCols<E> {
    from: Matrix<*const E>,
    terms: usize,
    cols: usize,
    to: *mut E,
    /// The rows of memory that are packed, and all of them.
    packed: usize,
    rows: usize,
}

/// Terms that are packed at once, where a row of memory is a term.
const PACKED_TERMS: usize = 16;

impl<E: Element> NextCols<E> {
    fn new(from: Matrix<*const E>, [terms, cols]: [usize; 2], to: *mut E) -> Self {
        let rows = if from.strides[1] == 1 { terms } else { cols };
        Self { from, terms, cols, to, packed: 0, rows }
    }

    /// Packs what has been fetched, in whole steps, and all where that is all.
    ///
    /// # Safety
    /// The columns are readable, and there is room for their panels.
    unsafe fn pack<S: Simd<E = E>>(&mut self, simd: S, fetched: usize) {
        let width = VECTORS * S::LANES;
        let of_terms = self.from.strides[1] == 1;
        let step = if of_terms { PACKED_TERMS } else { width };
        let until = if fetched >= self.rows { self.rows } else { fetched / step * step };
        if until <= self.packed {
            return;
        }
        let (first, count) = (self.packed, until - self.packed);
        let panel_len = panel_len(self.terms, width);
        let (from, terms, cols, at) = if of_terms {
            (self.from.from(first, 0), count, self.cols, first * width)
        } else {
            (self.from.from(0, first), self.terms, count, first / width * panel_len)
        };
        // SAFETY: passed on to the caller.
        unsafe { simd.call(Cols { from, terms, cols, width, panel_len, to: self.to.wrapping_add(at) }) }
        self.packed = until;
    }
}

/// Computes rows and columns of C.
///
/// # Safety
/// The job is as [`Job`] asks; nothing else writes these rows and columns. The scratch has as many elements as [`Scratch`] says.
unsafe fn compute<S: Simd>(
    simd: S,
    job: &Job<S::E>,
    ranges: &[Range<usize>; 2],
    then: Option<&[Range<usize>; 2]>,
    scratch: *mut S::E,
) {
    let [rows, cols] = ranges;
    let k = job.extents[2];
    let width = VECTORS * S::LANES;
    let side = is_side(&job.a);
    let parts = Scratch::new::<S>([rows.len(), cols.len(), k], side);
    let at = |part: usize| scratch.wrapping_add(part);
    let sums = at(parts.sums);
    let blocks = k.div_ceil(block_terms::<S::E>()).max(1);
    let most_terms = k.div_ceil(blocks);
    // one tile reads the columns once: then they are read where they lie
    let is_direct = rows.len() <= tile::rows::<S>() && job.b.strides[1] == 1 && job.b.strides[0] >= 0;
    let packed_from = if is_direct { cols.start + cols.len() / width * width } else { cols.start };
    for block in 0..blocks {
        let first = block * most_terms;
        let terms = most_terms.min(k - first);
        let (is_first, more) = (block == 0, block + 1 < blocks);
        let packed_cols = at(parts.cols[block % 2]);
        let of_block = |first: usize, to: *mut S::E| {
            let terms = most_terms.min(k - first);
            NextCols::new(job.b.from(first, packed_from), [terms, cols.end - packed_from], to)
        };
        if is_first || is_direct {
            let mut own = of_block(first, packed_cols);
            // SAFETY: the columns are those of B, and the scratch has room for them.
            unsafe { own.pack(simd, own.rows) };
        }
        let mut next = (more && !is_direct).then(|| of_block(first + terms, at(parts.cols[(block + 1) % 2])));
        if !side {
            let from = job.a.from(rows.start, first);
            let of_tile = tile::rows::<S>();
            let pack = Tiles { from, rows: rows.len(), of_tile, terms, to: at(parts.rows) };
            // SAFETY: the rows are those of A, and the scratch has room for the tiles of all.
            unsafe { simd.call(pack) };
        }
        let after = first + terms;
        let mut fetch = match then {
            Some(ranges) if !more => Fetch::new(job, ranges, 0..most_terms),
            _ => Fetch::new(job, ranges, after..(after + most_terms).min(k)),
        };
        let mut total = at(parts.totals);
        for (index, row) in rows.clone().step_by(tile::rows::<S>()).enumerate() {
            let tile_rows = tile::rows::<S>().min(rows.end - row);
            let height = height(tile_rows);
            let packed_rows = at(parts.rows + if side { 0 } else { index * tile_len::<S>() });
            if side {
                let from = job.a.from(row, first);
                let pack = Rows { from, rows: tile_rows, height, terms, to: packed_rows };
                // SAFETY: the rows are those of A, and the scratch has room for a tile.
                unsafe { simd.call(pack) };
            }
            for col in cols.clone().step_by(width) {
                let tile_cols = width.min(cols.end - col);
                let vectors = tile_cols.div_ceil(S::LANES);
                let (b, b_step) = if col < packed_from {
                    (job.b.at(first, col), job.b.strides[0].cast_unsigned())
                } else {
                    let panel = (col - packed_from) / width;
                    (packed_cols.wrapping_add(panel * panel_len(terms, width)).cast_const(), width)
                };
                let ahead = if side && col == cols.start {
                    Ahead { start: job.a.at(row + tile_rows, first), step: job.a.strides[0] }
                } else {
                    fetch.next()
                };
                let to = if is_first && more { total } else { sums };
                let operands = Operands { a: packed_rows, b, b_step, terms, sums: to, ahead };
                // SAFETY: what is packed is as long as the terms; the sums have room for a tile, and so have the totals of one.
                unsafe { tile::run(simd, operands, [height, vectors], side) };
                if !(is_first && more) {
                    let finish = Finish {
                        sums,
                        totals: (!is_first).then_some(total),
                        more,
                        height,
                        vectors,
                        rows: tile_rows,
                        cols: tile_cols,
                        bias: job.bias.map(|bias| bias.from(row, col)),
                        activation: job.activation,
                        update: job.update,
                        c: job.c.from(row, col),
                    };
                    // SAFETY: the job vouches for C and the bias.
                    unsafe { simd.call(finish) };
                }
                if let Some(next) = &mut next {
                    let fetched = next.rows.saturating_sub(fetch.left_of_cols());
                    // SAFETY: the columns are those of B, and the scratch has room for those of two blocks.
                    unsafe { next.pack(simd, fetched) };
                }
                total = total.wrapping_add(height * vectors * S::LANES);
            }
        }
        if let Some(mut next) = next {
            // SAFETY: as above.
            unsafe { next.pack(simd, next.rows) };
        }
    }
}

/// Elements of memory that [`serial`] needs for a product of these extents.
pub(super) fn serial_len<S: Simd>([m, n, k]: [usize; 3]) -> usize {
    let of = |extents: [usize; 3], side: bool| Scratch::new::<S>(extents, side).end;
    of([m, n, k], false).max(of([n, m, k], false)).max(of([m, n, k], true)).max(of([n, m, k], true))
}

/// Computes a small product on this thread.
///
/// # Safety
/// The job is as [`Job`] asks; the scratch has as many elements as [`serial_len`] says.
pub(super) unsafe fn serial<S: Simd>(simd: S, job: Job<S::E>, scratch: *mut S::E) {
    let job = if job.turns() { job.transposed() } else { job };
    let [m, n, _] = job.extents;
    if m > 0 && n > 0 {
        // SAFETY: passed on to the caller.
        unsafe { compute(simd, &job, &[0..m, 0..n], None, scratch) }
    }
}

/// Computes products at places, each at the offsets of a, b and c that it is given.
///
/// # Safety
/// Each is a job as [`Job`] asks, and no two write the same element.
pub(super) unsafe fn products<E: Lane>(
    isa: Isa,
    job: Job<E>,
    places: usize,
    offsets: &(dyn Fn(usize) -> [isize; 3] + Sync),
) {
    let [m, n, _] = job.extents;
    if m > 0 && n > 0 && places > 0 {
        vector::run(isa, Products { job, places, offsets });
    }
}

/// A product as the contract has it.
pub(super) fn product<E: Lane>(
    isa: Isa,
    product: Product<'_, E>,
    mut c: ArrayViewMutD<'_, E>,
    update: Update,
) {
    let Product { a, b, bias, activation } = product;
    let axes = c.ndim();
    let fits = axes >= 2 && a.ndim() == axes && b.ndim() == axes;
    assert!(fits, "a product of {:?} and {:?} into {:?}", a.shape(), b.shape(), c.shape());
    let batch = axes - 2;
    let [m, n, k] = [c.shape()[batch], c.shape()[batch + 1], a.shape()[batch + 1]];
    require("the batch of a", &a.shape()[..batch], &c.shape()[..batch]);
    require("the batch of b", &b.shape()[..batch], &c.shape()[..batch]);
    require("a", &a.shape()[batch..], &[m, k]);
    require("b", &b.shape()[batch..], &[k, n]);
    if let Some(bias) = &bias {
        require("bias", bias.shape(), &[n]);
    }
    let strides = |strides: &[isize]| [strides[batch], strides[batch + 1]];
    let places =
        Axes::new(&c.shape()[..batch], [&a.strides()[..batch], &b.strides()[..batch], &c.strides()[..batch]]);
    let mut job = Job {
        extents: [m, n, k],
        a: Matrix { start: a.as_ptr(), strides: strides(a.strides()) },
        b: Matrix { start: b.as_ptr(), strides: strides(b.strides()) },
        c: Matrix { strides: strides(c.strides()), start: c.as_mut_ptr() },
        bias: bias.map(|bias| Bias { start: bias.as_ptr(), stride: bias.strides()[0], of_rows: false }),
        activation,
        update,
    };
    let mut outer = places.all();
    // rows of matrices that share their other operand are rows of one matrix
    while let [rest @ .., Axis { extent, strides: [of_a, of_b, of_c] }] = outer {
        let rows = job.extents[0].cast_signed();
        if *of_b != 0 || *of_a != rows * job.a.strides[0] || *of_c != rows * job.c.strides[0] {
            break;
        }
        job.extents[0] *= extent;
        outer = rest;
    }
    let count = outer.iter().map(|axis| axis.extent).product();
    let axes = outer.len();
    // SAFETY: the views have the extents that were checked, c is borrowed for this call alone, and its elements are different ones.
    unsafe { products(isa, job, count, &|place| places.offsets(axes, place)) }
}
