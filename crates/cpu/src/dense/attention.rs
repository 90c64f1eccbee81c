//! Attention by blocks of queries and keys: a block of scores lies in the second cache, no matrix of queries by keys is ever held.
//!
//! Where keys are in one block a row is softened at once, else with the largest score and the sum so far. Blocks depend on the
//! shapes alone. Backward makes the probabilities again from the logarithms of sums.

mod scores;

use ndarray::{ArrayView2, ArrayViewD, ArrayViewMut2, ArrayViewMutD};
use tiled_kernel::dense::{Attention, Update};

use super::matrix::{Matrix, Shared, require, with_scratch};
use super::product::{Job, serial};
use super::row;
use crate::Isa;
use crate::share;
use crate::vector::{self, Lane, Routine, Simd};
use scores::{Heads, KEYS, PITCH, QUERIES, Scores, plain};

/// Operations that a score counts for beside the products: an exponential, and what it takes to read and write it.
const SCORE: usize = 80;

/// Operations that a query counts for besides: loops over a short row begin and end.
const ROW: usize = 8000;

/// Blocks of so many of `count`.
fn blocks(count: usize, of_block: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).step_by(of_block).map(move |first| (first, of_block.min(count - first)))
}

fn for_units(units: usize, operations: usize, body: impl Fn(usize) + Sync + Send) {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    share::for_units(share::threads((units * operations) as f64), units, body);
}

struct Forward<E> {
    scores: Scores<E>,
    width: usize,
    v: Heads<*const E>,
    y: Heads<*mut E>,
    log_sums: Matrix<*mut E>,
}

impl<E: Lane> Routine<E> for Forward<E> {
    fn run<S: Simd<E = E>>(self, simd: S) {
        let Scores { batch, heads, queries, keys, depth, .. } = self.scores;
        let of_head = queries.div_ceil(QUERIES);
        let (block, width) = (queries.min(QUERIES), self.width);
        let product = self.scores.product_len::<S>(width);
        let parts = [block * PITCH, block * width, width, 3 * block, product];
        let operations = block * (keys * (2 * depth + 2 * width + SCORE) + ROW);
        // rows of the result are computed where they lie
        let is_direct = keys > 0 && self.y.strides[3] == 1;
        let shared = Shared((self.scores, self.v, self.y, self.log_sums));
        for_units(batch * heads * of_head, operations, |unit| {
            let (scores, v, y, log_sums) = shared.get();
            let (index, first) = (unit / of_head, unit % of_head * QUERIES);
            let (head, rows) = (scores.head(index), first..queries.min(first + QUERIES));
            with_scratch(parts.iter().sum(), |scratch: *mut E| {
                let mut at = scratch;
                let [block, sums, row, state, product] = parts.map(|len| {
                    let part = at;
                    at = at.wrapping_add(len);
                    part
                });
                // SAFETY: no other unit has these queries of this head; the parts of the scratch are as long as they are used.
                unsafe {
                    let state = std::slice::from_raw_parts_mut(state, 3 * rows.len());
                    let (largest, rest) = state.split_at_mut(rows.len());
                    let (total, logs) = rest.split_at_mut(rows.len());
                    largest.fill(E::NEG_INFINITY);
                    total.fill(E::ZERO);
                    let to = if is_direct { y.place(head, rows.start) } else { plain(sums, width) };
                    if !is_direct {
                        std::slice::from_raw_parts_mut(sums, rows.len() * width).fill(E::ZERO);
                    }
                    let of_row = |i: usize| std::slice::from_raw_parts_mut(to.at(i, 0), width);
                    for keys in blocks(scores.seen(&rows), KEYS) {
                        let (state, memory) = ([&mut *largest, &mut *total], (block, product));
                        scores.soften(simd, head, (&rows, keys), state, memory, |i, shrinks| {
                            row::scale(S::ISA, shrinks, of_row(i));
                        });
                        let job = Job {
                            extents: [rows.len(), width, keys.1],
                            a: plain(block, PITCH).read(),
                            b: v.matrix(head, keys.0),
                            c: to,
                            bias: None,
                            activation: None,
                            update: if keys.0 == 0 { Update::Replace } else { Update::Add },
                        };
                        serial(simd, job, product);
                    }
                    row::logarithms(S::ISA, total, logs);
                    for (i, query) in rows.clone().enumerate() {
                        row::scale(S::ISA, E::ONE / total[i], of_row(i));
                        let hidden = largest[i] == E::NEG_INFINITY;
                        let log = if hidden { E::from_f64(f64::NAN) } else { largest[i] + logs[i] };
                        *log_sums.at(index, query) = log;
                    }
                    if !is_direct {
                        y.put(S::ISA, head, rows, (sums.cast_const(), width), row, Update::Replace);
                    }
                }
            });
        });
    }
}

/// Attention as the contract has it.
pub(super) fn forward<E: Lane>(
    isa: Isa,
    attention: Attention<'_, E>,
    [q, k, v]: [ArrayViewD<'_, E>; 3],
    mut y: ArrayViewMutD<'_, E>,
    mut log_sums: ArrayViewMut2<'_, E>,
) {
    let scores = Scores::new(&attention, &q, &k, log_sums.shape());
    let Scores { batch, heads, queries, keys, .. } = scores;
    let width = v.shape().last().copied().unwrap_or(0);
    require("v", v.shape(), &[batch, heads, keys, width]);
    require("y", y.shape(), &[batch, heads, queries, width]);
    let of_rows = [log_sums.strides()[0], log_sums.strides()[1]];
    let log_sums = Matrix { start: log_sums.as_mut_ptr(), strides: of_rows };
    let (v, y) = (Heads::new(&v), Heads::new_mut(&mut y));
    vector::run(isa, Forward { scores, width, v, y, log_sums });
}

/// A gradient that is wanted.
type To<E> = Option<(Heads<*mut E>, Update)>;

#[derive(Clone, Copy)]
struct Backward<E> {
    scores: Scores<E>,
    width: usize,
    v: Heads<*const E>,
    y: Heads<*const E>,
    dy: Heads<*const E>,
    log_sums: Matrix<*const E>,
    to: [To<E>; 3],
}

impl<E: Lane> Routine<E> for Backward<E> {
    fn run<S: Simd<E = E>>(self, simd: S) {
        let Scores { batch, heads, queries, keys, depth, .. } = self.scores;
        let (block, width) = (queries.min(QUERIES), self.width);
        let of_block = block * PITCH;
        let product = self.scores.product_len::<S>(width);
        let parts = [
            of_block,
            of_block,
            block * depth,
            keys * depth,
            keys * width,
            block,
            2 * depth.max(width),
            product,
        ];
        let operations = queries * (keys * (6 * depth + 4 * width + SCORE) + 2 * ROW);
        let shared = Shared(self);
        for_units(batch * heads, operations, |index| {
            let Self { scores, width, v, y, dy, log_sums, to } = shared.get();
            let (head, width) = (scores.head(index), width);
            with_scratch(parts.iter().sum(), |scratch: *mut E| {
                let mut at = scratch;
                let [p, ds, dq, dk, dv, own, row, product] = parts.map(|len| {
                    let part = at;
                    at = at.wrapping_add(len);
                    part
                });
                let job = |extents: [usize; 3],
                           a: Matrix<*const E>,
                           b: Matrix<*const E>,
                           (c, update): (Matrix<*mut E>, Update)| {
                    Job { extents, a, b, c, bias: None, activation: None, update }
                };
                // a gradient that one product gives is computed where it lies
                let direct = |which: usize, is_one: bool, row: usize| {
                    let (to, update) = to[which]?;
                    (is_one && to.strides[3] == 1).then(|| (to.place(head, row), update))
                };
                let is_one = (1..=QUERIES).contains(&queries) && scores.seen(&(0..queries)) == keys;
                let to_keys = [direct(1, is_one, 0), direct(2, is_one, 0)];
                // SAFETY: no other unit has this head; the parts of the scratch are as long as they are used.
                unsafe {
                    std::slice::from_raw_parts_mut(dk, keys * depth).fill(E::ZERO);
                    std::slice::from_raw_parts_mut(dv, keys * width).fill(E::ZERO);
                    for (first, count) in blocks(queries, QUERIES) {
                        let rows = first..first + count;
                        for (i, query) in rows.clone().enumerate() {
                            let of = |heads: &Heads<*const E>, buffer: *mut E| {
                                let from = heads.matrix(head, query);
                                row::read(from.start, from.strides[1], width, buffer)
                            };
                            let (y, dy) = (of(&y, row), of(&dy, row.add(width)));
                            *own.add(i) = E::from_f64(row::dot(S::ISA, y, dy));
                        }
                        let is_one = (1..=KEYS).contains(&scores.seen(&rows));
                        let to_queries = direct(0, is_one, first);
                        std::slice::from_raw_parts_mut(dq, count * depth).fill(E::ZERO);
                        for seen in blocks(scores.seen(&rows), KEYS) {
                            let (first_key, count_keys) = seen;
                            // what comes first is not added to a zero, where −0 would lose its sign
                            let [of_keys, of_queries] = [first, first_key]
                                .map(|at| if at == 0 { Update::Replace } else { Update::Add });
                            let log_sum = |query: usize| *log_sums.at(index, query);
                            scores.probabilities(simd, head, &rows, seen, log_sum, (p, product));
                            let (p, ds) = (plain(p, PITCH), plain(ds, PITCH));
                            let dy = dy.matrix(head, first);
                            if to[2].is_some() {
                                let own = plain(dv, width);
                                let (to, update) = to_keys[1].unwrap_or((own, of_keys));
                                let to = (to.from(first_key, 0), update);
                                let of_v = job([count_keys, width, count], p.read().transposed(), dy, to);
                                serial(simd, of_v, product);
                            }
                            if to[0].is_none() && to[1].is_none() {
                                continue;
                            }
                            let v = v.matrix(head, first_key).transposed();
                            let of_scores = job([count, count_keys, width], dy, v, (ds, Update::Replace));
                            serial(simd, of_scores, product);
                            for (i, query) in rows.clone().enumerate() {
                                let of = |matrix: Matrix<*mut E>| {
                                    std::slice::from_raw_parts_mut(matrix.at(i, 0), count_keys)
                                };
                                let (p, ds) = (of(p), of(ds));
                                row::score_slopes(S::ISA, p, *own.add(i), scores.scale, ds);
                                ds[scores.seen_by(query, first_key, count_keys)..].fill(E::ZERO);
                            }
                            if to[0].is_some() {
                                let k = scores.k.matrix(head, first_key);
                                let to = to_queries.unwrap_or((plain(dq, depth), of_queries));
                                serial(simd, job([count, depth, count_keys], ds.read(), k, to), product);
                            }
                            if to[1].is_some() {
                                let q = scores.q.matrix(head, first);
                                let own = plain(dk, depth);
                                let (to, update) = to_keys[0].unwrap_or((own, of_keys));
                                let to = (to.from(first_key, 0), update);
                                let of_k = job([count_keys, depth, count], ds.read().transposed(), q, to);
                                serial(simd, of_k, product);
                            }
                        }
                        if let (Some((to, update)), None) = (to[0], to_queries) {
                            to.put(S::ISA, head, rows, (dq.cast_const(), depth), row, update);
                        }
                    }
                    if let (Some((to, update)), None) = (to[1], to_keys[0]) {
                        to.put(S::ISA, head, 0..keys, (dk.cast_const(), depth), row, update);
                    }
                    if let (Some((to, update)), None) = (to[2], to_keys[1]) {
                        to.put(S::ISA, head, 0..keys, (dv.cast_const(), width), row, update);
                    }
                }
            });
        });
    }
}

/// Its gradients.
pub(super) fn backward<E: Lane>(
    isa: Isa,
    attention: Attention<'_, E>,
    [q, k, v]: [ArrayViewD<'_, E>; 3],
    y: ArrayViewD<'_, E>,
    log_sums: ArrayView2<'_, E>,
    dy: ArrayViewD<'_, E>,
    mut gradients: [Option<(ArrayViewMutD<'_, E>, Update)>; 3],
) {
    let scores = Scores::new(&attention, &q, &k, log_sums.shape());
    let Scores { batch, heads, queries, keys, .. } = scores;
    let width = v.shape().last().copied().unwrap_or(0);
    require("v", v.shape(), &[batch, heads, keys, width]);
    require("y", y.shape(), &[batch, heads, queries, width]);
    require("dy", dy.shape(), y.shape());
    for (gradient, shape) in gradients.iter().zip([q.shape(), k.shape(), v.shape()]) {
        if let Some((gradient, _)) = gradient {
            require("a gradient", gradient.shape(), shape);
        }
    }
    let of_rows = [log_sums.strides()[0], log_sums.strides()[1]];
    let log_sums = Matrix { start: log_sums.as_ptr(), strides: of_rows };
    let to = gradients
        .each_mut()
        .map(|gradient| gradient.as_mut().map(|(gradient, update)| (Heads::new_mut(gradient), *update)));
    let (v, y, dy) = (Heads::new(&v), Heads::new(&y), Heads::new(&dy));
    vector::run(isa, Backward { scores, width, v, y, dy, log_sums, to });
}

#[derive(Clone, Copy)]
struct Weights<E> {
    scores: Scores<E>,
    log_sums: Matrix<*const E>,
    to: Heads<*mut E>,
}

impl<E: Lane> Routine<E> for Weights<E> {
    fn run<S: Simd<E = E>>(self, simd: S) {
        let Scores { batch, heads, queries, keys, depth, .. } = self.scores;
        let of_image = queries.div_ceil(QUERIES);
        let block = queries.min(QUERIES) * PITCH;
        let product = self.scores.product_len::<S>(0);
        let operations = queries.min(QUERIES) * heads * (keys * (2 * depth + SCORE) + ROW);
        #[expect(clippy::cast_precision_loss, reason = "heads are far below 2^53")]
        let share = E::from_f64(1.0 / heads as f64);
        let shared = Shared(self);
        for_units(batch * of_image, operations, |unit| {
            let Self { scores, log_sums, to } = shared.get();
            let (n, first) = (unit / of_image, unit % of_image * QUERIES);
            let rows = first..queries.min(first + QUERIES);
            with_scratch(2 * block + product, |p: *mut E| {
                let (sums, product) = (p.wrapping_add(block), p.wrapping_add(2 * block));
                for seen in blocks(keys, KEYS) {
                    let len = rows.len() * seen.1;
                    // SAFETY: no other unit has these queries of this image; the scratch has two blocks and what products need.
                    unsafe {
                        let sums = std::slice::from_raw_parts_mut(sums, len);
                        sums.fill(E::ZERO);
                        for h in 0..heads {
                            let log_sum = |query: usize| *log_sums.at(n * heads + h, query);
                            scores.probabilities(simd, [n, h], &rows, seen, log_sum, (p, product));
                            for (i, sums) in sums.chunks_mut(seen.1).enumerate() {
                                row::add(S::ISA, std::slice::from_raw_parts(p.add(i * PITCH), seen.1), sums);
                            }
                        }
                        row::scale(S::ISA, share, sums);
                        let to = Heads {
                            start: to.start.wrapping_offset(seen.0.cast_signed() * to.strides[3]),
                            ..to
                        };
                        to.put(S::ISA, [n, 0], rows.clone(), (sums.as_ptr(), seen.1), p, Update::Replace);
                    }
                }
            });
        });
    }
}

/// The mean of its probabilities over heads.
pub(super) fn weights<E: Lane>(
    isa: Isa,
    attention: Attention<'_, E>,
    [q, k]: [ArrayViewD<'_, E>; 2],
    log_sums: ArrayView2<'_, E>,
    mut weights: ArrayViewMutD<'_, E>,
) {
    let scores = Scores::new(&attention, &q, &k, log_sums.shape());
    require("weights", weights.shape(), &[scores.batch, scores.queries, scores.keys]);
    let of_rows = [log_sums.strides()[0], log_sums.strides()[1]];
    let log_sums = Matrix { start: log_sums.as_ptr(), strides: of_rows };
    let &[of_n, of_query, of_key] = weights.strides() else { return };
    let to = Heads { start: weights.as_mut_ptr(), strides: [of_n, 0, of_query, of_key] };
    vector::run(isa, Weights { scores, log_sums, to });
}
