//! Bytes and bits of a file.

use std::io::{BufRead, ErrorKind, Seek};

use super::super::form::File;
use super::super::{JpegDamage, PictureProblem};
use super::huffman::Table;

/// The bytes of a file, and in the data of a scan its bits.
pub(super) struct Bits {
    file: File,
    /// The bytes taken from the file.
    pub(super) byte: u64,
    /// Bits that were taken and not yet read, the next one highest.
    held: u64,
    count: u32,
    /// The marker that ended the data.
    marker: Option<u8>,
}

/// Why bits cannot be read.
pub(super) enum Stop {
    Damage(JpegDamage),
    Read(std::io::Error),
}

impl From<JpegDamage> for Stop {
    fn from(damage: JpegDamage) -> Self {
        Self::Damage(damage)
    }
}

impl Bits {
    pub(super) const fn new(file: File) -> Self {
        Self { file, byte: 0, held: 0, count: 0, marker: None }
    }

    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// The next byte.
    pub(super) fn next(&mut self) -> Result<u8, Stop> {
        loop {
            let byte = match self.file.fill_buf() {
                Ok(buffer) => *buffer.first().ok_or(JpegDamage::End)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Stop::Read(error)),
            };
            self.file.consume(1);
            self.byte += 1;
            return Ok(byte);
        }
    }

    pub(super) fn next_u16(&mut self) -> Result<u16, Stop> {
        Ok(u16::from_be_bytes([self.next()?, self.next()?]))
    }

    /// Goes so many bytes forward.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), Stop> {
        let mut left = bytes;
        while left > 0 {
            let buffer = match self.file.fill_buf() {
                Ok(buffer) => buffer.len(),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Stop::Read(error)),
            };
            if buffer == 0 {
                return Err(JpegDamage::End.into());
            }
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(buffer);
            self.file.consume(part);
            self.byte += part as u64;
            left -= part as u64;
        }
        Ok(())
    }

    /// The next marker, which may follow fill bytes.
    pub(super) fn next_marker(&mut self) -> Result<u8, Stop> {
        if let Some(marker) = self.marker.take() {
            return Ok(marker);
        }
        let first = self.next()?;
        if first != 0xff {
            return Err(JpegDamage::NoMarker { got: first }.into());
        }
        loop {
            match self.next()? {
                0xff => {}
                0 => return Err(JpegDamage::NoMarker { got: 0 }.into()),
                marker => return Ok(marker),
            }
        }
    }

    /// Begins the data of a scan, or what follows a restart.
    pub(super) const fn begin(&mut self) {
        (self.held, self.count, self.marker) = (0, 0, None);
    }

    /// Ends it: nothing but bits that fill the last byte may be left, and a marker follows.
    pub(super) fn end(&mut self) -> Result<(), Stop> {
        if self.count < 8 && self.marker.is_none() {
            self.take_byte()?;
        }
        if self.count >= 8 { Err(JpegDamage::Excess.into()) } else { Ok(()) }
    }

    /// Takes a byte of data, or finds the marker that ends it.
    fn take_byte(&mut self) -> Result<(), Stop> {
        let byte = self.next()?;
        if byte == 0xff {
            let mut after = self.next()?;
            while after == 0xff {
                after = self.next()?;
            }
            if after != 0 {
                self.marker = Some(after);
                return Ok(());
            }
        }
        self.count += 8;
        self.held |= u64::from(byte) << (64 - self.count);
        Ok(())
    }

    /// Holds so many bits, at most 32, where there are as many before the marker.
    fn hold(&mut self, bits: u32) -> Result<(), Stop> {
        while self.count < bits && self.marker.is_none() {
            self.take_byte()?;
        }
        Ok(())
    }

    fn drop_bits(&mut self, bits: u32) -> Result<(), Stop> {
        if bits > self.count {
            return Err(match self.marker {
                Some(got) => JpegDamage::Short { got }.into(),
                None => JpegDamage::End.into(),
            });
        }
        self.held <<= bits;
        self.count -= bits;
        Ok(())
    }

    /// The symbol of the next code.
    #[inline]
    pub(super) fn symbol(&mut self, table: &Table) -> Result<u8, Stop> {
        if self.count < 16 {
            self.hold(48)?;
        }
        let next = u16::try_from(self.held >> 48).unwrap_or(u16::MAX);
        let [len, symbol] = match table.look_up(next) {
            Some(found) => found,
            None if self.count < 16 => [17, 0],
            None => return Err(JpegDamage::Code.into()),
        };
        self.drop_bits(u32::from(len))?;
        Ok(symbol)
    }

    /// The next bits as a number, at most 16.
    #[inline]
    pub(super) fn number(&mut self, bits: u32) -> Result<u32, Stop> {
        if bits == 0 {
            return Ok(0);
        }
        if self.count < bits {
            self.hold(48)?;
        }
        let number = u32::try_from(self.held >> (64 - bits)).unwrap_or(u32::MAX);
        self.drop_bits(bits)?;
        Ok(number)
    }

    /// The difference that so many bits stand for (T.81, F.2.2.1).
    #[inline]
    pub(super) fn difference(&mut self, bits: u32) -> Result<i32, Stop> {
        let number = i32::try_from(self.number(bits)?).unwrap_or(i32::MAX);
        let is_negative = bits > 0 && number < 1 << (bits - 1);
        Ok(if is_negative { number - (1 << bits) + 1 } else { number })
    }

    /// The file, from its beginning.
    pub(super) fn rewind(&mut self) -> Result<(), PictureProblem> {
        self.byte = 0;
        self.file.rewind().map_err(PictureProblem::Read)
    }
}
