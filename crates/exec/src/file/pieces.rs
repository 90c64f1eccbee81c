//! A region of a file cut into contiguous pieces.

use tiled_geometry::Region;

use crate::source::index;

/// Elements of one channel of one image that follow each other in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) n: usize,
    pub(crate) c: usize,
    /// The first element, counted from the start of the tensor.
    pub(crate) position: u64,
    pub(crate) len: usize,
    /// The first element, counted in row-major order from the start of the region.
    first: usize,
}

/// The part of a piece that lies in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The row.
    pub(crate) y: i64,
    /// The first column.
    pub(crate) x: i64,
    /// The first element, counted from the start of the piece.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Piece {
    /// Its parts, row by row.
    pub(crate) fn segments(self, region: Region<2>) -> impl Iterator<Item = Segment> {
        let cols = index(region.cols().len());
        let mut start = 0;
        std::iter::from_fn(move || {
            let element = self.first + start;
            let len = (cols - element % cols).min(self.len - start);
            let segment = Segment {
                y: region.rows().begin() + (element / cols).cast_signed() as i64,
                x: region.cols().begin() + (element % cols).cast_signed() as i64,
                start,
                len,
            };
            start += len;
            (len > 0).then_some(segment)
        })
    }
}

/// Calls `visit` for the pieces of `region`, each of at most `limit` elements.
///
/// Rows follow each other in the file where the region has every column; else each row is a stretch of its own.
pub(crate) fn visit_pieces<E>(
    shape: [usize; 4],
    region: Region<2>,
    limit: usize,
    mut visit: impl FnMut(Piece) -> Result<(), E>,
) -> Result<(), E> {
    if region.is_empty() {
        return Ok(());
    }
    let [batch, channels, height, width] = shape;
    let [rows, cols] = region.axes().map(|axis| index(axis.len()));
    let [y, x] = region.axes().map(|axis| index(axis.begin()));
    let (stretches, stretch_len) = if cols == width { (1, rows * cols) } else { (rows, cols) };
    for n in 0..batch {
        for c in 0..channels {
            let plane = (n * channels + c) * height;
            for stretch in 0..stretches {
                let start = ((plane + y + stretch) * width + x) as u64;
                for offset in (0..stretch_len).step_by(limit) {
                    visit(Piece {
                        n,
                        c,
                        position: start + offset as u64,
                        len: limit.min(stretch_len - offset),
                        first: stretch * cols + offset,
                    })?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tiled_geometry::Interval;

    use super::*;

    fn coordinate(index: usize) -> i64 {
        i64::try_from(index).unwrap()
    }

    proptest! {
        #[test]
        fn pieces_are_the_elements_of_the_region_once(
            shape in [1..3_usize, 1..4_usize, 1..9_usize, 1..9_usize],
            corners in [0..9_i64, 0..9_i64, 0..9_i64, 0..9_i64],
            limit in 1..20_usize,
        ) {
            let [batch, channels, height, width] = shape;
            let interval = |a: i64, b: i64, extent: usize| {
                let [a, b] = [a, b].map(|x| x.min(coordinate(extent)));
                Interval::new(a.min(b), a.max(b))
            };
            let rows = interval(corners[0], corners[1], height);
            let cols = interval(corners[2], corners[3], width);
            let region = Region::from_rows_cols(rows, cols);
            let mut seen = vec![0; shape.iter().product()];
            visit_pieces(shape, region, limit, |piece| {
                prop_assert!(piece.len <= limit);
                let mut next = piece.position;
                for part in piece.segments(region) {
                    for i in 0..part.len {
                        let [y, x] = [index(part.y), index(part.x) + i];
                        let element = ((piece.n * channels + piece.c) * height + y) * width + x;
                        prop_assert_eq!(element as u64, next);
                        prop_assert_eq!(next - piece.position, (part.start + i) as u64);
                        next += 1;
                        seen[element] += 1;
                    }
                }
                prop_assert_eq!(next, piece.position + piece.len as u64);
                Ok(())
            })?;
            for n in 0..batch * channels {
                for y in 0..height {
                    for x in 0..width {
                        let inside = rows.contains(coordinate(y)) && cols.contains(coordinate(x));
                        prop_assert_eq!(seen[(n * height + y) * width + x], i32::from(inside));
                    }
                }
            }
        }
    }
}
