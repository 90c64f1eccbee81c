//! Tables of codes.

/// The codes of a table, canonical: those of one length follow each other (T.81, annex C).
pub(super) struct Table {
    /// By the next [`QUICK_BITS`] bits: the length of the code and its symbol; a length of zero where it is longer.
    quick: Vec<[u8; 2]>,
    /// By length: one more than the last code, left-aligned in 16 bits; zero where there is none.
    ends: [u32; 17],
    /// By length: what a code lacks to the index of its symbol.
    offsets: [i32; 17],
    symbols: Vec<u8>,
    /// The symbol whose code is nothing but zeros.
    pub(super) zero: Option<u8>,
}

const QUICK_BITS: usize = 9;

impl Table {
    /// The table of so many codes of each length, or nothing where there are more than the length allows.
    pub(super) fn new(counts: &[u8; 16], symbols: Vec<u8>) -> Option<Self> {
        let mut quick = vec![[0; 2]; 1 << QUICK_BITS];
        let (mut ends, mut offsets) = ([0; 17], [0; 17]);
        let (mut code, mut next) = (0_u32, 0_usize);
        for (len, count) in (1..=16_usize).zip(counts) {
            let count = usize::from(*count);
            offsets[len] = i32::try_from(next).ok()? - i32::try_from(code).ok()?;
            for symbol in &symbols[next..next + count] {
                if len <= QUICK_BITS {
                    let first = (code as usize) << (QUICK_BITS - len);
                    let codes = quick.get_mut(first..first + (1 << (QUICK_BITS - len)))?;
                    codes.fill([u8::try_from(len).ok()?, *symbol]);
                }
                code += 1;
            }
            if code > 1 << len {
                return None;
            }
            next += count;
            ends[len] = if count > 0 { code << (16 - len) } else { 0 };
            code <<= 1;
        }
        // the first code is the only one without a one
        let zero = symbols.first().copied();
        Some(Self { quick, ends, offsets, symbols, zero })
    }

    /// The length and the symbol of the code that the next 16 bits begin with.
    pub(super) fn look_up(&self, bits: u16) -> Option<[u8; 2]> {
        let quick = self.quick[usize::from(bits) >> (16 - QUICK_BITS)];
        if quick[0] != 0 {
            return Some(quick);
        }
        let len = (QUICK_BITS + 1..=16).find(|len| u32::from(bits) < self.ends[*len])?;
        let code = i32::from(bits) >> (16 - len);
        let index = usize::try_from(code + self.offsets[len]).ok()?;
        Some([u8::try_from(len).ok()?, *self.symbols.get(index)?])
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    /// The codes of T.81, table K.3 (means of brightness): 0 is `00`, 5 is `110`, 11 is `111111110`.
    #[test]
    fn codes_are_those_of_the_standard() {
        let counts = [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0];
        let table = Table::new(&counts, (0..12).collect()).expect("it is a table");
        assert_eq!(table.look_up(0b0011_1111_1111_1111), Some([2, 0]));
        assert_eq!(table.look_up(0b1100_0000_0000_0000), Some([3, 5]));
        assert_eq!(table.look_up(0b1111_1111_0000_0000), Some([9, 11]));
        assert_eq!(table.look_up(0b1111_1111_1000_0000), None, "all ones is no code");
    }

    #[test]
    fn codes_longer_than_nine_bits_are_found() {
        let mut counts = [0; 16];
        (counts[0], counts[10], counts[15]) = (1, 2, 3);
        let table = Table::new(&counts, vec![9, 1, 2, 3, 4, 5]).expect("it is a table");
        assert_eq!(table.look_up(0b0111_1111_1111_1111), Some([1, 9]));
        assert_eq!(table.look_up(0b1000_0000_0000_0000), Some([11, 1]));
        assert_eq!(table.look_up(0b1000_0000_0011_1111), Some([11, 2]));
        assert_eq!(table.look_up(0b1000_0000_0100_0000), Some([16, 3]));
        assert_eq!(table.look_up(0b1000_0000_0100_0010), Some([16, 5]));
        assert_eq!(table.look_up(0b1000_0000_0100_0011), None);
    }

    #[test]
    fn more_codes_than_a_length_has_are_no_table() {
        let mut counts = [0; 16];
        counts[0] = 3;
        assert!(Table::new(&counts, vec![0; 3]).is_none());
    }
}
