//! Products of matrices.
//!
//! ```text
//!   C (m×n) in units of rows by columns, shared among threads; for each unit and each block of k
//!     columns of B packed: panels of two vectors    stay in the second cache, and for the units that follow
//!     for each tile of rows: rows of A packed       stay in the first cache
//!       for each panel: sums in registers, those of the blocks before, at last bias and what is there added, store
//!         then some of the columns of the next block packed, which were fetched meanwhile
//! ```
//!
//! An element is the sum over blocks of k, first to last, of sums over their terms, first to last: whatever the unit, the tile, the lane
//! and the thread, and also where rows and columns have changed places.

mod columns;
mod cut;
mod finish;
mod pack;
mod tile;

use std::ops::Range;

use ndarray::ArrayViewMutD;
use tiled_kernel::Activation;
use tiled_kernel::dense::{Product, Update};

use super::matrix::{Axes, Axis, Matrix, Shared, require, with_scratch};
use crate::Isa;
use crate::share;
use crate::vector::{self, Lane, Routine, Simd};
use columns::{Fetch, Name, NextCols, Packed};
use cut::Cut;
pub(super) use finish::Bias;
use finish::Finish;
use pack::{Rows, Tiles, is_side, panel_len};
use tile::{Ahead, Operands, Store, VECTORS, block_terms, height, row_step, term_step, tile_len};

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

/// Rows and columns of a product, computed by one thread.
struct Unit<E> {
    /// The number of the product, and its matrices.
    place: usize,
    a: Matrix<*const E>,
    b: Matrix<*const E>,
    c: Matrix<*mut E>,
    rows: Range<usize>,
    cols: Range<usize>,
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
        let of_a_place = threads.div_ceil(places.max(1));
        let blocks = Blocks::new::<E>(k);
        // columns of so many blocks stay packed from a unit to the next
        let cut = Cut::new::<S>(job.extents, of_a_place, blocks.count <= 2);
        let of_place = cut.units();
        let is_direct = is_plain(&job.b) && (cut.is_low(of_a_place) || is_small::<S>(&job));
        let buffers = if blocks.count * places * of_place > 1 { 2 } else { 1 };
        let scratch = Scratch::new::<S>([cut.most()[0], cut.most()[1], k], is_side(&job.a), buffers);
        let shared = Shared(job);
        share::for_shares(threads, places * of_place, |units| {
            let job = shared.get();
            let unit = |index: usize| {
                let [a, b, c] = offsets(index / of_place);
                let [a, b] = if turns { [b, a] } else { [a, b] };
                let [rows, cols] = cut.unit(index % of_place);
                Unit {
                    place: index / of_place,
                    a: Matrix { start: job.a.start.wrapping_offset(a), ..job.a },
                    b: Matrix { start: job.b.start.wrapping_offset(b), ..job.b },
                    c: Matrix { start: job.c.start.wrapping_offset(c), ..job.c },
                    rows,
                    cols,
                }
            };
            with_scratch(scratch.end, |start| {
                let mut memory = Memory::new(&scratch, start);
                for index in units {
                    // the unit after it is this thread's too, if no other takes it
                    let then = (index + 1 < places * of_place).then(|| unit(index + 1));
                    // SAFETY: the job vouches for its matrices; no other unit has these rows and columns of this place.
                    unsafe { compute(simd, &job, &unit(index), then.as_ref(), is_direct, &mut memory) }
                }
            });
        });
    }
}

/// Whether rows can be read as vectors where they lie.
fn is_plain<E>(b: &Matrix<*const E>) -> bool {
    b.strides[1] == 1 && b.strides[0] >= 0
}

/// The bytes of B that stay in the first cache beside a tile of rows.
const SMALL_BYTES: usize = 1 << 14;

/// Tiles that read B where it lies, though its rows may meet in a few sets of the cache, in less time than it takes to pack it.
const FEW_TILES: usize = 4;

/// Whether B is so small that it is not worth packing: because it lies close, or few tiles read it.
fn is_small<S: Simd>(job: &Job<S::E>) -> bool {
    let [m, n, k] = job.extents;
    let apart = if m <= FEW_TILES * tile::rows::<S>() { n } else { job.b.strides[0].unsigned_abs() };
    apart.saturating_mul(k).saturating_mul(size_of::<S::E>()) <= SMALL_BYTES
}

/// The columns of a unit that are read where they lie: whole panels, and vectors if there are no others.
const fn direct_cols<S: Simd>(cols: usize) -> usize {
    if cols.is_multiple_of(S::LANES) { cols } else { cols / (VECTORS * S::LANES) * (VECTORS * S::LANES) }
}

/// The blocks of k, evenly.
#[derive(Clone, Copy)]
struct Blocks {
    count: usize,
    most_terms: usize,
    k: usize,
}

impl Blocks {
    fn new<E>(k: usize) -> Self {
        let count = k.div_ceil(block_terms::<E>()).max(1);
        Self { count, most_terms: k.div_ceil(count), k }
    }

    fn terms(&self, block: usize) -> Range<usize> {
        let first = block * self.most_terms;
        first..(first + self.most_terms).min(self.k)
    }
}

/// Where the parts of the memory of a thread begin.
struct Scratch {
    /// The sums of a tile, behind packed rows, of one tile or of all.
    sums: usize,
    /// Packed columns of two blocks.
    cols: [usize; 2],
    /// The totals of all tiles.
    totals: usize,
    end: usize,
}

impl Scratch {
    /// For units of at most so many rows, columns and terms.
    fn new<S: Simd>([rows, cols, k]: [usize; 3], side: bool, buffers: usize) -> Self {
        let width = VECTORS * S::LANES;
        let tiles = if side { 1 } else { rows.div_ceil(tile::rows::<S>()) };
        let sums = tiles * tile_len::<S>();
        let packed = sums + term_step::<S>() * width;
        let panels = cols.div_ceil(width);
        let of_block = panels * panel_len(block_terms::<S::E>().min(k), width);
        let totals = packed + buffers * of_block;
        let is_one = k <= block_terms::<S::E>();
        let kept = if is_one { 0 } else { rows.next_multiple_of(2) * panels * width };
        Self { sums, cols: [packed, totals - of_block], totals, end: totals + kept }
    }
}

/// The memory of a thread.
struct Memory<E> {
    rows: *mut E,
    sums: *mut E,
    packed: Packed<E>,
    totals: *mut E,
}

impl<E> Memory<E> {
    fn new(parts: &Scratch, start: *mut E) -> Self {
        let at = |part: usize| start.wrapping_add(part);
        let packed = Packed::new(parts.cols.map(at));
        Self { rows: start, sums: at(parts.sums), packed, totals: at(parts.totals) }
    }
}

/// Computes rows and columns of C; those of `then` may follow.
///
/// # Safety
/// The job is as [`Job`] asks; nothing else writes these rows and columns. The memory is as [`Scratch`] says, for all units and with two
/// buffers where there is more than one block or unit.
unsafe fn compute<S: Simd>(
    simd: S,
    job: &Job<S::E>,
    unit: &Unit<S::E>,
    then: Option<&Unit<S::E>>,
    is_direct: bool,
    memory: &mut Memory<S::E>,
) {
    let Unit { rows, cols, .. } = unit;
    let width = VECTORS * S::LANES;
    let side = is_side(&unit.a);
    let sums = memory.sums;
    let blocks = Blocks::new::<S::E>(job.extents[2]);
    // tiles of one height: a last one of few rows would wait for its own sums
    let of_tile = height(rows.len().div_ceil(rows.len().div_ceil(tile::rows::<S>())));
    // where B is read as it lies, columns that are no whole vector are packed all the same
    let packed_from =
        |unit: &Unit<S::E>| unit.cols.start + if is_direct { direct_cols::<S>(unit.cols.len()) } else { 0 };
    let name = |unit: &Unit<S::E>, block: usize| Name { place: unit.place, first: unit.cols.start, block };
    let columns = |unit: &Unit<S::E>, block: usize, to: *mut S::E| {
        let (terms, first) = (blocks.terms(block), packed_from(unit));
        NextCols::new(unit.b.from(terms.start, first), [terms.len(), unit.cols.end - first], to)
    };
    for block in 0..blocks.count {
        let Range { start: first, end } = blocks.terms(block);
        let terms = end - first;
        let (is_first, more) = (block == 0, block + 1 < blocks.count);
        let of_block = name(unit, block);
        let own = memory.packed.find(of_block).unwrap_or_else(|| {
            memory.packed.hold(0, Some(of_block));
            let mut own = columns(unit, block, memory.packed.buffer(0));
            // SAFETY: the columns are those of B, and the buffer has room for them.
            unsafe { own.pack(simd, own.rows) };
            0
        });
        let packed_cols = memory.packed.buffer(own).cast_const();
        let (next_unit, next_block) = if more { (Some(unit), block + 1) } else { (then, 0) };
        let mut next =
            next_unit.filter(|unit| memory.packed.find(name(unit, next_block)).is_none()).map(|unit| {
                memory.packed.hold(1 - own, None);
                columns(unit, next_block, memory.packed.buffer(1 - own))
            });
        let wants_cols = is_direct || next.is_some();
        let mut fetch = next_unit.map(|unit| Fetch::new(unit, blocks.terms(next_block), wants_cols));
        if !side {
            let from = unit.a.from(rows.start, first);
            let readable = job.extents[0] - rows.start;
            let pack = Tiles { from, rows: rows.len(), readable, of_tile, terms, to: memory.rows };
            // SAFETY: the rows are those of A, and the memory has room for the tiles of all.
            unsafe { simd.call(pack) };
        }
        let mut total = memory.totals;
        for (index, row) in rows.clone().step_by(of_tile).enumerate() {
            let tile_rows = of_tile.min(rows.end - row);
            let height = height(tile_rows);
            let mut packed_rows =
                memory.rows.wrapping_add(if side { 0 } else { index * tile_len::<S>() }).cast_const();
            if side && tile_rows == height && unit.a.strides[0] == row_step::<S::E>().cast_signed() {
                packed_rows = unit.a.at(row, first); // they lie as if they were packed
            } else if side {
                let from = unit.a.from(row, first);
                let pack = Rows { from, rows: tile_rows, height, terms, to: memory.rows };
                // SAFETY: the rows are those of A, and the memory has room for a tile.
                unsafe { simd.call(pack) };
            }
            for col in cols.clone().step_by(width) {
                let tile_cols = width.min(cols.end - col);
                let vectors = tile_cols.div_ceil(S::LANES);
                let (b, b_step) = if col < packed_from(unit) {
                    (unit.b.at(first, col), unit.b.strides[0].cast_unsigned())
                } else {
                    let panel = (col - packed_from(unit)) / width;
                    (packed_cols.wrapping_add(panel * panel_len(terms, width)), width)
                };
                let ahead = match &mut fetch {
                    Some(fetch) if !(side && col == cols.start) => fetch.next(),
                    _ => Ahead {
                        start: unit.a.at(row + tile_rows, first),
                        step: if side { unit.a.strides[0] } else { 0 },
                    },
                };
                // whole tiles go where they belong, and what is more than a sum of columns by itself
                let is_whole =
                    tile_rows == height && tile_cols == vectors * S::LANES && unit.c.strides[1] == 1;
                let is_plain = job.activation.is_none() && job.bias.is_none_or(|bias| bias.is_plain());
                let stores = !more && is_whole && is_plain;
                let store = if more {
                    Store { adds: !is_first, ..Store::plain::<S>(total, height) }
                } else if stores {
                    let bias = job.bias.map(|bias| bias.from(row, col).start);
                    let totals = (!is_first).then_some(total.cast_const());
                    let (to, steps) = (unit.c.at(row, col), [unit.c.strides[0], S::LANES.cast_signed()]);
                    Store { to, steps, totals, bias, adds: job.update == Update::Add }
                } else {
                    let totals = (!is_first).then_some(total.cast_const());
                    Store { totals, ..Store::plain::<S>(sums, height) }
                };
                let operands = Operands { a: packed_rows, b, b_step, terms, store, ahead };
                // SAFETY: what is packed is as long as the terms; the sums have room for a tile, so have the totals of one, and the job
                // vouches for C and the bias.
                unsafe { tile::run(simd, operands, [height, vectors], side) };
                if !more && !stores {
                    let finish = Finish {
                        sums,
                        height,
                        vectors,
                        rows: tile_rows,
                        cols: tile_cols,
                        bias: job.bias.map(|bias| bias.from(row, col)),
                        activation: job.activation,
                        update: job.update,
                        c: unit.c.from(row, col),
                    };
                    // SAFETY: the job vouches for C and the bias.
                    unsafe { simd.call(finish) };
                }
                if let (Some(next), Some(fetch)) = (&mut next, &fetch) {
                    let fetched = next.rows.saturating_sub(fetch.left_of_cols());
                    // SAFETY: the columns are those of B, and the buffer has room for them.
                    unsafe { next.pack(simd, fetched) };
                }
                total = total.wrapping_add(height * vectors * S::LANES);
            }
        }
        if let (Some(mut next), Some(unit)) = (next, next_unit) {
            // SAFETY: as above.
            unsafe { next.pack(simd, next.rows) };
            memory.packed.hold(1 - own, Some(name(unit, next_block)));
        }
    }
}

/// Elements of memory that [`serial`] needs for a product of these extents.
pub(super) fn serial_len<S: Simd>([m, n, k]: [usize; 3]) -> usize {
    let of = |extents: [usize; 3], side: bool| Scratch::new::<S>(extents, side, buffers::<S::E>(k)).end;
    of([m, n, k], false).max(of([n, m, k], false)).max(of([m, n, k], true)).max(of([n, m, k], true))
}

/// The buffers for columns that one unit needs.
fn buffers<E>(k: usize) -> usize {
    Blocks::new::<E>(k).count.min(2)
}

/// Computes a small product on this thread.
///
/// # Safety
/// The job is as [`Job`] asks; the scratch has as many elements as [`serial_len`] says.
pub(super) unsafe fn serial<S: Simd>(simd: S, job: Job<S::E>, scratch: *mut S::E) {
    let job = if job.turns() { job.transposed() } else { job };
    let [m, n, k] = job.extents;
    if m == 0 || n == 0 {
        return;
    }
    let parts = Scratch::new::<S>(job.extents, is_side(&job.a), buffers::<S::E>(k));
    let unit = Unit { place: 0, a: job.a, b: job.b, c: job.c, rows: 0..m, cols: 0..n };
    let is_direct = is_plain(&job.b) && (m <= tile::rows::<S>() || is_small::<S>(&job));
    // SAFETY: passed on to the caller.
    unsafe { compute(simd, &job, &unit, None, is_direct, &mut Memory::new(&parts, scratch)) }
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
