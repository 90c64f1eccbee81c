//! Sources in chunks: how many decoded chunks a sweep holds, and how often it reads them.
//!
//! A tile loads each row of its region once, from the top. So it needs a row of chunks at a time, and each from its first row
//! within the tile to its last:
//!
//! ```text
//! held = lanes in flight · most columns of chunks of a tile     each tile reads each of its chunks once
//! held + kept                                                   each chunk is read once
//! ```
//!
//! where `kept` are those that several tiles need, from the first of them to the last. Lanes are tied to one another by
//! nothing, so what tiles of two lanes need counts from the beginning to the end.

use std::ops::Range;

use tiled_geometry::{Interval, div_ceil};
use tiled_tensor::{OutOfMemory, collected, filled, with_room};

use super::PlanError;
use super::lanes::Share;
use crate::parts::Parts;
use crate::program::{ProgramNode, SourceRole};
use crate::sweep::SweepNodeId;

/// The chunks that a source is read in: rectangles of one size that begin at its first row and column, each with every image
/// and channel. Those at the last rows and columns may reach beyond the image.
///
/// ```
/// use tiled_graph::Chunks;
/// let chunks = Chunks::new([256, 512], 1).expect("nothing is zero");
/// assert_eq!((chunks.shape(), chunks.element_bytes()), ([256, 512], 1));
/// assert_eq!(Chunks::new([256, 0], 1), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunks {
    shape: [usize; 2],
    element_bytes: usize,
}

impl Chunks {
    /// Chunks of so many rows and columns, whose elements take so many bytes where they are decoded; `None` where one of
    /// these is 0.
    #[must_use]
    pub const fn new(shape: [usize; 2], element_bytes: usize) -> Option<Self> {
        if shape[0] == 0 || shape[1] == 0 || element_bytes == 0 {
            return None;
        }
        Some(Self { shape, element_bytes })
    }

    /// The rows and columns of a chunk.
    #[must_use]
    pub const fn shape(self) -> [usize; 2] {
        self.shape
    }

    /// The bytes of a decoded element.
    #[must_use]
    pub const fn element_bytes(self) -> usize {
        self.element_bytes
    }

    /// The bytes of a decoded chunk of so many images and channels.
    #[must_use]
    pub const fn chunk_bytes(self, batch: usize, channels: usize) -> Option<u64> {
        let [rows, cols] = self.shape;
        let sizes = [channels, rows, cols, self.element_bytes];
        let mut bytes = batch as u64;
        let mut next = 0;
        while next < sizes.len() {
            let Some(product) = bytes.checked_mul(sizes[next] as u64) else { return None };
            bytes = product;
            next += 1;
        }
        Some(bytes)
    }

    /// The chunks that coordinates along an axis lie in.
    ///
    /// # Panics
    /// Where `axis` is neither 0 (rows) nor 1 (columns).
    #[must_use]
    pub fn along(self, axis: usize, interval: Interval) -> Interval {
        if interval.is_empty() {
            return Interval::EMPTY;
        }
        let extent = i64::try_from(self.shape[axis]).unwrap_or(i64::MAX);
        Interval::new(interval.begin() / extent, (interval.end() - 1) / extent + 1)
    }
}

/// The decoded chunks of a source that a sweep holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkCache {
    /// The node that loads the source.
    pub node: SweepNodeId,
    /// What it reads.
    pub role: SourceRole,
    /// The chunks.
    pub chunks: Chunks,
    /// So many are held at a time.
    pub slots: usize,
    /// The chunks that the sweep needs.
    pub count: u64,
    /// So often it reads a chunk, at most: as many as there are where each is read once.
    pub reads: u64,
}

/// A source of a sweep that is read in chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunked {
    pub(super) node: SweepNodeId,
    pub(super) role: SourceRole,
    pub(super) chunks: Chunks,
    /// What a chunk takes that is held.
    pub(super) slot_bytes: u64,
}

/// What a slot takes beside its elements, at most: where it is, who needs it.
const SLOT_BYTES: u64 = 192;

impl Chunked {
    pub(super) fn new(
        node: SweepNodeId,
        role: SourceRole,
        chunks: Chunks,
        of: &ProgramNode,
    ) -> Result<Self, PlanError> {
        let bytes = chunks.chunk_bytes(of.batch, of.channels);
        let slot_bytes = bytes.and_then(|bytes| bytes.checked_add(SLOT_BYTES)).ok_or(PlanError::TooLarge)?;
        Ok(Self { node, role, chunks, slot_bytes })
    }

    /// The chunks along an axis that each part needs.
    pub(super) fn ranges(&self, axis: usize, parts: &Parts) -> Result<Vec<Interval>, OutOfMemory> {
        collected((0..parts.len()).map(|part| self.chunks.along(axis, parts.part(part).interval(self.node))))
    }
}

/// What the chunks of a source take in a sweep whose tiles are shared out in some way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkUse {
    /// The slots where each tile reads each of its chunks once, and how many reads that is at most.
    pub(super) fewest: (usize, u64),
    /// The slots where each chunk is read once.
    pub(super) once: usize,
    /// The chunks.
    pub(super) count: u64,
    pub(super) slot_bytes: u64,
}

impl ChunkUse {
    /// That of tiles whose rows and columns need these chunks.
    pub(super) fn of(
        chunked: &Chunked,
        [rows, cols]: [&[Interval]; 2],
        share: Share,
    ) -> Result<Self, PlanError> {
        let lengths =
            |ranges: &[Interval]| ranges.iter().map(|range| range.len().unsigned_abs()).sum::<u64>();
        let product = |a: u64, b: u64| a.checked_mul(b).ok_or(PlanError::TooLarge);
        let reads = product(lengths(rows), lengths(cols))?;
        let (by_row, by_col) = (runs(rows)?, runs(cols)?);
        let total = |runs: &[Run]| runs.iter().map(|run| run.count).sum::<u64>();
        let count = product(total(&by_row), total(&by_col))?;
        let widest = cols.iter().map(|range| range.len().unsigned_abs()).max().unwrap_or(0);
        let held = product(widest, share.in_flight as u64)?.min(count);
        let kept = kept(&by_row, &by_col, [rows.len(), cols.len()], share)?;
        let index = |slots: u64| usize::try_from(slots).map_err(|_| PlanError::TooLarge);
        Ok(Self {
            fewest: (index(held)?, reads),
            once: index(held.saturating_add(kept).min(count))?,
            count,
            slot_bytes: chunked.slot_bytes,
        })
    }

    /// The slots and reads, each chunk once or not.
    pub(super) fn choose(&self, once: bool) -> (usize, u64) {
        if once || self.fewest.1 == self.count {
            (self.once.max(self.fewest.0), self.count)
        } else {
            self.fewest
        }
    }

    /// The bytes of so many slots of sources of a sweep.
    pub(super) fn bytes(uses: &[Self], once: bool) -> Result<u64, PlanError> {
        uses.iter().try_fold(0_u64, |sum, of| {
            let bytes = of.slot_bytes.checked_mul(of.choose(once).0 as u64);
            bytes.and_then(|bytes| sum.checked_add(bytes)).ok_or(PlanError::TooLarge)
        })
    }
}

/// What the chunks of the sources take in each sweep; nothing where there are none.
#[derive(Default)]
pub(super) struct ChunkUses {
    sweeps: Vec<Vec<ChunkUse>>,
}

impl ChunkUses {
    /// Those of the sources of each sweep, whose tiles need the chunks `ranges(sweep, source)` along the axes.
    pub(super) fn of<'r>(
        chunked: &[Vec<Chunked>],
        ranges: impl Fn(usize, usize) -> [&'r [Interval]; 2],
        share: Share,
    ) -> Result<Self, PlanError> {
        let mut sweeps = with_room(chunked.len())?;
        for (sweep, sources) in chunked.iter().enumerate() {
            let mut uses = with_room(sources.len())?;
            for (source, chunked) in sources.iter().enumerate() {
                uses.push(ChunkUse::of(chunked, ranges(sweep, source), share)?);
            }
            sweeps.push(uses);
        }
        Ok(Self { sweeps })
    }

    /// The bytes of the sweep that takes the most, where each reads its chunks once if that takes no more than `left`.
    pub(super) fn bytes(&self, left: u64) -> Result<u64, PlanError> {
        let mut most = 0;
        for uses in &self.sweeps {
            most = most.max(ChunkUse::bytes(uses, reads_once(uses, left)?)?);
        }
        Ok(most)
    }

    /// The reads of the whole run for one of each chunk that a sweep needs, in so many bytes.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(super) fn reads_for_one(&self, bytes: u64) -> f64 {
        let (mut reads, mut count) = (0.0, 0.0);
        for uses in &self.sweeps {
            let once = reads_once(uses, bytes).unwrap_or(false);
            reads += uses.iter().map(|of| of.choose(once).1 as f64).sum::<f64>();
            count += uses.iter().map(|of| of.count as f64).sum::<f64>();
        }
        if count > 0.0 { reads / count } else { 1.0 }
    }

    /// What a sweep that reads these sources holds in so many bytes.
    pub(super) fn caches(
        &self,
        sweep: usize,
        sources: &[Chunked],
        bytes: u64,
    ) -> Result<Vec<ChunkCache>, PlanError> {
        let Some(uses) = self.sweeps.get(sweep) else { return Ok(Vec::new()) };
        let once = reads_once(uses, bytes)?;
        let caches = sources.iter().zip(uses).map(|(chunked, of)| {
            let (slots, reads) = of.choose(once);
            let Chunked { node, role, chunks, .. } = *chunked;
            ChunkCache { node, role, chunks, slots, count: of.count, reads }
        });
        Ok(collected(caches)?)
    }
}

/// Whether a sweep may hold what it takes to read each chunk once.
fn reads_once(uses: &[ChunkUse], left: u64) -> Result<bool, PlanError> {
    Ok(ChunkUse::bytes(uses, true)? <= left)
}

/// So many rows or columns of chunks that the same parts need.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    count: u64,
    parts: Range<usize>,
}

/// The rows or columns of chunks by the parts that need them: neighbours where ranges grow with the part, else all of them.
fn runs(ranges: &[Interval]) -> Result<Vec<Run>, OutOfMemory> {
    let needed: Vec<(usize, Interval)> = {
        let mut needed = with_room(ranges.len())?;
        needed.extend(ranges.iter().copied().enumerate().filter(|(_, range)| !range.is_empty()));
        needed
    };
    let grows = needed.windows(2).all(|pair| {
        let [(_, a), (_, b)] = [pair[0], pair[1]];
        a.begin() <= b.begin() && a.end() <= b.end()
    });
    let mut runs = with_room(2 * needed.len())?;
    if !grows {
        let hull = needed.iter().fold(Interval::EMPTY, |hull, (_, range)| hull.hull(*range));
        runs.push(Run { count: hull.len().unsigned_abs(), parts: 0..ranges.len() });
        return Ok(runs);
    }
    let mut bounds: Vec<i64> = with_room(2 * needed.len())?;
    for (_, range) in &needed {
        bounds.extend([range.begin(), range.end()]);
    }
    bounds.sort_unstable();
    bounds.dedup();
    for pair in bounds.windows(2) {
        let first = needed.partition_point(|(_, range)| range.end() <= pair[0]);
        let end = needed.partition_point(|(_, range)| range.begin() <= pair[0]);
        if first < end {
            let parts = needed[first].0..needed[end - 1].0 + 1;
            runs.push(Run { count: (pair[1] - pair[0]).unsigned_abs(), parts });
        }
    }
    Ok(runs)
}

/// More pairs of runs than this are counted together.
const MOST_PAIRS: usize = 1 << 16;

/// The chunks that wait for another tile at a time, at most.
fn kept(rows: &[Run], cols: &[Run], [down, across]: [usize; 2], share: Share) -> Result<u64, PlanError> {
    let shared = |runs: &[Run]| -> [u64; 2] {
        let alone = runs.iter().filter(|run| run.parts.len() <= 1).map(|run| run.count).sum();
        [runs.iter().map(|run| run.count).sum(), alone]
    };
    let ([all_rows, lone_rows], [all_cols, lone_cols]) = (shared(rows), shared(cols));
    let all = all_rows * all_cols - lone_rows * lone_cols;
    if all == 0 || rows.len() * cols.len() > MOST_PAIRS {
        return Ok(all);
    }
    let tiles = down * across;
    let mut changes: Vec<i128> = filled(tiles + 1, 0)?;
    let mut of_several_lanes = 0_u64;
    for row in rows {
        for col in cols {
            let first = row.parts.start * across + col.parts.start;
            let last = (row.parts.end - 1) * across + col.parts.end - 1;
            let count = row.count * col.count;
            if share.lane_of(first, tiles) != share.lane_of(last, tiles) {
                of_several_lanes += count;
            } else if first != last {
                changes[first] += i128::from(count);
                changes[last + 1] -= i128::from(count);
            }
        }
    }
    let (mut now, mut most) = (0_i128, 0_i128);
    for change in changes {
        now += change;
        most = most.max(now);
    }
    let of_lanes = u64::try_from(most).unwrap_or(u64::MAX).saturating_mul(share.in_flight as u64);
    Ok(of_several_lanes.saturating_add(of_lanes).min(all))
}

/// Where tiles are cut so that few chunks are needed by two of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alignment {
    /// The extent of a chunk and of the source.
    chunk: i64,
    extent: i64,
    /// The coordinates before and after a cut that both sides need.
    halo: [i64; 2],
}

impl Alignment {
    /// That of a source of so many coordinates, of which what is computed at `at` needs `needed`.
    pub(super) fn new(chunk: usize, extent: i64, at: Interval, needed: Interval) -> Self {
        let halo = [at.begin() - needed.begin(), needed.end() - at.end()].map(|halo| halo.max(0));
        Self { chunk: i64::try_from(chunk).unwrap_or(i64::MAX), extent, halo }
    }

    /// Bounds of `count` parts of `whole` coordinates, each at the place nearest to an even share where what both sides need lies
    /// in the fewest chunks; `None` where parts are not several chunks long, so that they would no longer be even.
    pub(super) fn bounds(&self, whole: i64, count: i64) -> Result<Option<Vec<i64>>, OutOfMemory> {
        let Self { chunk, extent, halo: [before, after] } = *self;
        let least = if count <= FEW_PARTS { EVEN } else { 2 };
        if count <= 1 || extent == 0 || extent / count / least < chunk {
            return Ok(None);
        }
        let scale = |part: i64, to: i64, of: i64| {
            i64::try_from(i128::from(part) * i128::from(to) / i128::from(of.max(1))).unwrap_or(i64::MAX)
        };
        let seam = before + after;
        // in the middle of as many chunks as it needs at least
        let ahead = (div_ceil(seam, chunk) * chunk - seam) / 2;
        let bounds: Vec<i64> = collected((0..=count).map(|part| {
            let even = scale(part, whole, count);
            if part == 0 || part == count {
                return even;
            }
            let begin = scale(even, extent, whole) - before - ahead;
            let nearest = (begin + chunk / 2).div_euclid(chunk) * chunk + ahead + before;
            div_ceil(nearest.clamp(0, extent).saturating_mul(whole), extent).min(whole)
        }))?;
        Ok(bounds.is_sorted().then_some(bounds))
    }
}

/// Parts whose bounds are moved by up to half a chunk are at least so many chunks long where a core may have only one of them, or it
/// would end much later than others.
const EVEN: i64 = 8;
const FEW_PARTS: i64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn interval([begin, end]: [i64; 2]) -> Interval {
        Interval::new(begin, end)
    }

    fn share(lanes: usize) -> Share {
        Share { lanes, in_flight: lanes, threads: lanes }
    }

    fn used(rows: &[[i64; 2]], cols: &[[i64; 2]], lanes: usize) -> ChunkUse {
        let chunked = Chunked {
            node: crate::Id::new(0),
            role: SourceRole::Target,
            chunks: Chunks::new([4, 4], 1).expect("nothing is zero"),
            slot_bytes: 16,
        };
        let list = |ranges: &[[i64; 2]]| ranges.iter().copied().map(interval).collect::<Vec<_>>();
        ChunkUse::of(&chunked, [&list(rows), &list(cols)], share(lanes)).expect("small numbers")
    }

    #[test]
    fn one_tile_holds_a_row_of_chunks() {
        let found = used(&[[0, 7]], &[[0, 5]], 1);
        assert_eq!((found.fewest, found.once, found.count), ((5, 35), 5, 35));
    }

    #[test]
    fn strips_keep_the_columns_that_two_of_them_need() {
        // columns 2 of the first two and 5 of the last two
        let found = used(&[[0, 7]], &[[0, 3], [2, 6], [5, 8]], 1);
        assert_eq!((found.fewest, found.count), ((4, 7 * 10), 56));
        assert_eq!(found.once, 4 + 2 * 7, "the column before and the one behind a strip");
        let found = used(&[[0, 7]], &[[0, 3], [2, 6], [5, 8]], 3);
        assert_eq!(found.once, 12 + 2 * 7, "lanes wait for nobody");
    }

    #[test]
    fn parts_of_the_rows_keep_the_rows_that_two_of_them_need() {
        let found = used(&[[0, 4], [3, 7]], &[[0, 5]], 2);
        assert_eq!((found.fewest, found.once, found.count), ((10, 40), 15, 35));
    }

    #[test]
    fn never_more_is_held_than_there_is() {
        assert_eq!(used(&[[0, 1], [0, 1]], &[[0, 2]], 2).once, 2);
        assert_eq!(used(&[[0, 0]], &[[0, 0]], 1).once, 0);
    }

    #[test]
    fn what_both_sides_of_a_cut_need_lies_in_one_chunk() {
        let at = |needed| Alignment::new(16, 640, interval([320, 321]), interval(needed));
        let bounds = at([317, 324]).bounds(640, 3).expect("room").expect("long parts");
        assert_eq!((bounds[0], bounds[3]), (0, 640));
        for cut in &bounds[1..3] {
            assert_eq!((cut - 3) / 16, (cut + 2) / 16, "{bounds:?}");
        }
        let bounds = at([320, 321]).bounds(640, 3).expect("room").expect("long parts");
        assert!(bounds.iter().all(|bound| bound % 16 == 0), "{bounds:?}");
        // an output of half the extent
        let bounds = at([317, 324]).bounds(320, 3).expect("room").expect("long parts");
        for cut in &bounds[1..3] {
            assert_eq!((2 * cut - 3) / 16, (2 * cut + 2) / 16, "{bounds:?}");
        }
        assert_eq!(at([317, 324]).bounds(640, 40).expect("room"), None, "parts of one chunk");
    }
}
