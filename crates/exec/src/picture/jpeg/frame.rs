//! What a frame holds: components and their blocks.

use super::super::JpegDamage;

/// A frame, as its header says (T.81, B.2.2).
pub(super) struct Frame {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) is_progressive: bool,
    pub(super) components: Vec<Component>,
    /// The most blocks of a component in one unit: rows, columns.
    pub(super) most: [usize; 2],
}

/// One of brightness and colours.
pub(super) struct Component {
    pub(super) id: u8,
    /// Its blocks in one unit: rows, columns.
    pub(super) blocks: [usize; 2],
    /// The index of its table of steps.
    pub(super) steps: usize,
    pub(super) has_data: bool,
    /// Which coefficients of each block are not zero, the first one in the lowest bit; where the frame is progressive.
    pub(super) nonzero: Vec<u64>,
    /// The mean of the last block, in steps.
    pub(super) mean: i32,
}

/// Height and width of a block.
pub(super) const BLOCK: usize = 8;

impl Frame {
    pub(super) fn parse(segment: &[u8], is_progressive: bool) -> Result<Self, JpegDamage> {
        let marker = if is_progressive { 0xc2 } else { 0xc0 };
        let (value, length) = (JpegDamage::Value { marker }, JpegDamage::Length { marker });
        let &[8, high, low, wide_high, wide_low, count, ref rest @ ..] = segment else {
            return Err(if segment.len() < 6 { length } else { value });
        };
        let [height, width] = [[high, low], [wide_high, wide_low]].map(u16::from_be_bytes).map(usize::from);
        let (components, []) = rest.as_chunks::<3>() else { return Err(length) };
        if components.len() != usize::from(count) {
            return Err(length);
        }
        if height == 0 || width == 0 || ![1, 3, 4].contains(&count) {
            return Err(value);
        }
        let mut parsed: Vec<Component> = Vec::new();
        for &[id, sampling, steps] in components {
            let blocks = [sampling & 15, sampling >> 4].map(usize::from);
            let is_known = parsed.iter().any(|component| component.id == id);
            if blocks.iter().any(|blocks| !(1..=4).contains(blocks)) || steps > 3 || is_known {
                return Err(value);
            }
            let steps = usize::from(steps);
            parsed.push(Component { id, blocks, steps, has_data: false, nonzero: Vec::new(), mean: 0 });
        }
        let most =
            [0, 1].map(|axis| parsed.iter().map(|component| component.blocks[axis]).max().unwrap_or(1));
        Ok(Self { height, width, is_progressive, components: parsed, most })
    }

    /// The units of the frame: rows, columns.
    pub(super) fn units(&self) -> [usize; 2] {
        [self.height.div_ceil(BLOCK * self.most[0]), self.width.div_ceil(BLOCK * self.most[1])]
    }

    /// The blocks of a component: rows, columns; those of whole units.
    pub(super) fn stored(&self, component: &Component) -> [usize; 2] {
        let units = self.units();
        [0, 1].map(|axis| units[axis] * component.blocks[axis])
    }

    /// The blocks of a component that a scan of it alone has: rows, columns.
    pub(super) fn alone(&self, component: &Component) -> [usize; 2] {
        let extents = [self.height, self.width];
        [0, 1].map(|axis| (extents[axis] * component.blocks[axis]).div_ceil(self.most[axis]).div_ceil(BLOCK))
    }

    /// The blocks of all components.
    pub(super) fn block_count(&self) -> u64 {
        let count = |component| self.stored(component).map(|blocks| blocks as u64).iter().product::<u64>();
        self.components.iter().map(count).sum()
    }
}
