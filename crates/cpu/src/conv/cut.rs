//! How a row of pixels is cut into tiles.

use super::class::signed;

/// The widths of tiles that kernels are built for, in ascending order: all of them would take minutes to compile.
pub(super) const WIDTHS: &[usize] = &[1, 2, 4, 6, 8, 10, 12, 14];

/// The same for convolutions of one tap over blocks of channels that give one vector of output channels.
pub(super) const POINT_WIDTHS: &[usize] = &[1, 2, 4, 6, 8, 10, 12, 14, 20, 24, 28];

/// The same where three taps share broadcasts, for one vector of output channels and for more.
pub(super) const SHARED_WIDTHS: [&[usize]; 2] =
    [&[1, 2, 4, 6, 8, 10, 11, 12, 16, 20, 24], &[1, 2, 4, 6, 8, 10, 11, 12]];

/// The same for all other sequences of taps.
pub(super) const SEQUENCE_WIDTHS: [&[usize]; 2] = [&[1, 2, 4, 8, 10, 11, 12, 16, 24], &[1, 2, 4, 8, 12]];

/// The widest of them.
pub(super) const MOST_SHARED_PIXELS: usize = 24;

/// Pixels as tiles of two neighbouring widths, the wide ones first, and a rest that belongs to the last tile.
///
/// A few narrow tiles are faster than wide ones and a short rest: that has as many weights to read, and too few sums
/// to keep the multiply-adds busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) pixels: usize,
    pub(super) tiles: usize,
    /// How many are wide.
    wide_tiles: usize,
    pub(super) wide: usize,
    narrow: usize,
}

impl Cut {
    /// As few tiles of `widths` as pixels need, none wider than `widest`, which is one of the widths.
    pub(super) fn even(pixels: usize, widths: &[usize], widest: usize) -> Self {
        let tiles = pixels.div_ceil(widest);
        let place = widths.iter().position(|&width| width * tiles >= pixels);
        let place = place.expect("invariant: the widest tiles are enough");
        let (wide, narrow) = (widths[place], widths[place.saturating_sub(1)]);
        let wide_tiles = if wide > narrow { (pixels - narrow * tiles) / (wide - narrow) } else { tiles };
        Self { pixels, tiles, wide_tiles, wide, narrow }
    }

    /// Tiles of one width, the last of which may be cut short.
    pub(super) fn of_width(pixels: usize, width: usize) -> Self {
        let tiles = pixels.div_ceil(width);
        Self { pixels, tiles, wide_tiles: tiles, wide: width, narrow: width }
    }

    /// The first pixel of a tile, or the end of the pixels.
    pub(super) fn begin(&self, tile: usize) -> i64 {
        if tile >= self.tiles {
            return signed(self.pixels);
        }
        signed(tile * self.narrow + tile.min(self.wide_tiles) * (self.wide - self.narrow))
    }

    /// How many of the tiles from `tile` to `end`, which is past it, are as wide as the first of them and side by side.
    pub(super) fn same(&self, tile: usize, end: usize) -> usize {
        let width = |tile: usize| self.begin(tile + 1) - self.begin(tile);
        let limit = if tile < self.wide_tiles { end.min(self.wide_tiles) } else { end };
        // the last tile of all may have a rest beside it, or be cut short
        let odd = limit > tile + 1 && width(limit - 1) != width(tile);
        limit - tile - usize::from(odd)
    }
}

/// The widest of `widths` that is at most `pixels`.
pub(super) fn fitting(widths: &[usize], pixels: usize) -> usize {
    widths.iter().rev().copied().find(|&width| width <= pixels).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::super::class::index;
    use super::*;

    fn width(cut: &Cut, tile: usize) -> usize {
        index(cut.begin(tile + 1) - cut.begin(tile))
    }

    #[test]
    fn tiles_are_as_few_as_can_be_and_nearly_of_one_width() {
        for (widths, widest) in [
            (WIDTHS, 14),
            (WIDTHS, 6),
            (POINT_WIDTHS, 28),
            (POINT_WIDTHS, 12),
            (SHARED_WIDTHS[0], 24),
            (SHARED_WIDTHS[0], 11),
            (SHARED_WIDTHS[1], 12),
            (SEQUENCE_WIDTHS[0], 24),
            (SEQUENCE_WIDTHS[0], 11),
            (SEQUENCE_WIDTHS[0], 8),
            (SEQUENCE_WIDTHS[1], 12),
        ] {
            for pixels in 1..300 {
                let cut = Cut::even(pixels, widths, widest);
                assert_eq!(cut.tiles, pixels.div_ceil(widest), "{pixels} pixels");
                assert_eq!(cut.begin(cut.tiles), signed(pixels), "{pixels} pixels");
                for tile in 0..cut.tiles {
                    let width = width(&cut, tile);
                    let last = tile + 1 == cut.tiles;
                    assert!(widths.contains(&width) || last, "{pixels} pixels: {width}");
                    assert!(width <= cut.wide && (cut.narrow <= width), "{pixels} pixels: {width}");
                    let same =
                        |end: usize| (tile..end).take_while(|&t| self::width(&cut, t) == width).count();
                    for end in [tile + 1, (tile + 3).min(cut.tiles), cut.tiles] {
                        assert_eq!(cut.same(tile, end), same(end), "{pixels} pixels: {tile} to {end}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_last_tile_of_one_width_may_be_cut_short() {
        let cut = Cut::of_width(70, 16);
        assert_eq!([0, 3, 4].map(|tile| cut.same(tile, 5)), [4, 1, 1]);
        assert_eq!(cut.same(0, 3), 3);
        assert_eq!(Cut::of_width(64, 16).same(1, 4), 3);
    }

    #[test]
    fn sixty_two_pixels_have_no_rest() {
        let cut = Cut::even(62, SHARED_WIDTHS[1], 12);
        assert_eq!((0..6).map(|tile| width(&cut, tile)).collect::<Vec<_>>(), [11, 11, 10, 10, 10, 10]);
        let cut = Cut::even(63, WIDTHS, 14);
        assert_eq!((0..5).map(|tile| width(&cut, tile)).collect::<Vec<_>>(), [14, 12, 12, 12, 13]);
    }
}
