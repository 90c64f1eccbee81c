//! Reading every code of a JPEG without making pixels of it.

use super::super::form::File;
use super::super::{JpegDamage, PictureProblem};
use super::bits::{Bits, Stop};
use super::frame::{BLOCK, Component, Frame};
use super::huffman::Table;

/// More scans than any encoder writes; a file of thousands would take hours.
pub(super) const MOST_SCANS: usize = 100;

/// A JPEG that is read up to its first scan.
pub(super) struct Check {
    bits: Bits,
    frame: Frame,
    /// The header of the first scan.
    first: Scan,
    tables: Tables,
    /// What the decoder keeps of metadata.
    metadata_bytes: u64,
}

/// What segments before a scan define.
#[derive(Default)]
struct Tables {
    /// Codes of means and of other coefficients.
    codes: [[Option<Table>; 4]; 2],
    /// The step of the mean of a block.
    steps: [Option<u16>; 4],
    /// The units between two restarts; zero where there are none.
    restart: usize,
}

/// The header of a scan (T.81, B.2.3).
struct Scan {
    /// The indices of the components and of their tables.
    parts: Vec<[usize; 3]>,
    /// The first and last coefficient.
    band: [usize; 2],
    /// The bits of precision that are left out: before this scan, where it refines, and after it.
    high: u8,
    low: u8,
}

/// What a scan says about each block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// All coefficients.
    Whole,
    Mean,
    MeanBit,
    Others,
    OthersBit,
}

impl Check {
    /// Reads the header of the frame and that of the first scan.
    pub(super) fn open(file: File) -> Result<Self, PictureProblem> {
        let mut bits = Bits::new(file);
        let mut tables = Tables::default();
        let mut metadata_bytes = 0;
        let mut read = || -> Result<_, Failure> {
            bits.skip(2)?; // the beginning, which was looked at before
            let mut frame = None;
            loop {
                let marker = bits.next_marker()?;
                match marker {
                    0xc0..=0xc2 if frame.is_none() => {
                        let segment = segment(&mut bits, marker)?;
                        if segment.first().is_some_and(|precision| *precision != 8) {
                            return Err(kind("a JPEG of another depth than 8 bits"));
                        }
                        frame = Some(Frame::parse(&segment, marker == 0xc2)?);
                    }
                    0xc3 | 0xc5..=0xc7 | 0xcb | 0xcd..=0xcf => {
                        return Err(kind("a lossless or hierarchical JPEG"));
                    }
                    0xc9 | 0xca | 0xcc => return Err(kind("a JPEG of arithmetic coding")),
                    0xda => {
                        let frame = frame.ok_or(JpegDamage::Marker { got: marker })?;
                        let first = Scan::parse(&segment(&mut bits, marker)?, &frame)?;
                        return Ok((frame, first));
                    }
                    marker => metadata_bytes += tables.take(&mut bits, marker)?,
                }
            }
        };
        match read() {
            Ok((frame, first)) => Ok(Self { bits, frame, first, tables, metadata_bytes }),
            Err(failure) => Err(failure.at(bits.byte, None)),
        }
    }

    pub(super) const fn frame(&self) -> &Frame {
        &self.frame
    }

    /// What checking and decoding hold beside the pixels.
    pub(super) fn transient_bytes(&self) -> u64 {
        let frame = &self.frame;
        let is_whole = frame.is_progressive || self.first.parts.len() < frame.components.len();
        let held = if is_whole {
            // two bytes of each coefficient; the bits of the check are fewer and are gone by then
            frame.block_count() * (2 * BLOCK * BLOCK) as u64
        } else {
            0
        };
        let row = (frame.units()[1] * BLOCK * frame.most[1]) as u64;
        let band = row * (BLOCK * frame.most[0] * frame.components.len()) as u64;
        held + BAND_COPIES * band + self.metadata_bytes
    }

    /// Reads all scans; gives back the file.
    pub(super) fn finish(self) -> Result<File, PictureProblem> {
        let Self { mut bits, mut frame, first, mut tables, .. } = self;
        if frame.is_progressive {
            for component in 0..frame.components.len() {
                let blocks = frame.stored(&frame.components[component]).iter().product();
                let mut nonzero = Vec::new();
                nonzero.try_reserve_exact(blocks).map_err(|_| out_of_memory(blocks))?;
                nonzero.resize(blocks, 0);
                frame.components[component].nonzero = nonzero;
            }
        }
        let mut row = None;
        match scans(&mut bits, &mut frame, first, &mut tables, &mut row) {
            Ok(()) => {
                bits.rewind()?;
                Ok(bits.into_file())
            }
            Err(failure) => Err(failure.at(bits.byte, row.map(|row| [row, frame.height]))),
        }
    }
}

/// Copies of a row of units that the decoder works on: coefficients, two stages of enlarging them, two bytes each.
const BAND_COPIES: u64 = 6;

fn out_of_memory(blocks: usize) -> PictureProblem {
    let bytes = blocks.saturating_mul(size_of::<u64>());
    PictureProblem::Read(std::io::Error::new(
        std::io::ErrorKind::OutOfMemory,
        format!("{bytes} bytes are not given"),
    ))
}

/// What ends reading.
enum Failure {
    Stop(Stop),
    Problem(PictureProblem),
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<JpegDamage> for Failure {
    fn from(damage: JpegDamage) -> Self {
        Self::Stop(Stop::Damage(damage))
    }
}

impl Failure {
    fn at(self, byte: u64, row: Option<[usize; 2]>) -> PictureProblem {
        match (self, row) {
            (Self::Problem(problem), _) => problem,
            (Self::Stop(Stop::Read(source)), _) => PictureProblem::Read(source),
            (Self::Stop(Stop::Damage(damage)), None) => PictureProblem::JpegHeader { byte, damage },
            (Self::Stop(Stop::Damage(damage)), Some([row, rows])) => {
                PictureProblem::JpegRow { row, rows, byte, damage }
            }
        }
    }
}

const fn kind(got: &'static str) -> Failure {
    Failure::Problem(PictureProblem::Kind {
        expected: "baseline and progressive JPEG of 8 bits, and PNG",
        got,
    })
}

/// The content of a segment.
fn segment(bits: &mut Bits, marker: u8) -> Result<Vec<u8>, Stop> {
    let len = bits.next_u16()?.checked_sub(2).ok_or(JpegDamage::Length { marker })?;
    (0..len).map(|_| bits.next()).collect()
}

impl Tables {
    /// Takes a segment that is neither a frame nor a scan; gives the bytes of it that the decoder keeps.
    fn take(&mut self, bits: &mut Bits, marker: u8) -> Result<u64, Stop> {
        let length = JpegDamage::Length { marker };
        match marker {
            0xc4 => self.codes(&segment(bits, marker)?)?,
            0xdb => self.steps(&segment(bits, marker)?)?,
            0xdd => {
                let segment = segment(bits, marker)?;
                let restart: [u8; 2] = segment.try_into().map_err(|_| length)?;
                self.restart = usize::from(u16::from_be_bytes(restart));
            }
            0xe0..=0xef | 0xfe => {
                let len = u64::from(bits.next_u16()?.checked_sub(2).ok_or(length)?);
                bits.skip(len)?;
                return Ok(2 * len); // each is kept, and once more where pieces are put together
            }
            got => return Err(JpegDamage::Marker { got }.into()),
        }
        Ok(0)
    }

    fn codes(&mut self, mut segment: &[u8]) -> Result<(), JpegDamage> {
        let marker = 0xc4;
        while let Some((&table, rest)) = segment.split_first() {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or(JpegDamage::Length { marker })?;
            let count = counts.iter().map(|count| usize::from(*count)).sum();
            let (symbols, rest) = rest.split_at_checked(count).ok_or(JpegDamage::Length { marker })?;
            let (kind, number) = (usize::from(table >> 4), usize::from(table & 15));
            let table = self.codes.get_mut(kind).and_then(|tables| tables.get_mut(number));
            let table = table.filter(|_| count <= 256).ok_or(JpegDamage::Value { marker })?;
            *table = Some(Table::new(counts, symbols.to_vec()).ok_or(JpegDamage::Value { marker })?);
            segment = rest;
        }
        Ok(())
    }

    fn steps(&mut self, mut segment: &[u8]) -> Result<(), JpegDamage> {
        let marker = 0xdb;
        while let Some((&table, rest)) = segment.split_first() {
            let size = match table >> 4 {
                0 => 1,
                1 => 2,
                _ => return Err(JpegDamage::Value { marker }),
            };
            let (values, rest) = rest.split_at_checked(64 * size).ok_or(JpegDamage::Length { marker })?;
            let first =
                if size == 1 { u16::from(values[0]) } else { u16::from_be_bytes([values[0], values[1]]) };
            let step = self.steps.get_mut(usize::from(table & 15)).ok_or(JpegDamage::Value { marker })?;
            *step = Some(first);
            segment = rest;
        }
        Ok(())
    }
}

impl Scan {
    fn parse(segment: &[u8], frame: &Frame) -> Result<Self, JpegDamage> {
        let marker = 0xda;
        let (value, length) = (JpegDamage::Value { marker }, JpegDamage::Length { marker });
        let (count, rest) = segment.split_first().ok_or(length)?;
        let (parts, rest) = rest.split_at_checked(2 * usize::from(*count)).ok_or(length)?;
        let &[first, last, precision] = rest else { return Err(length) };
        let (parts, _) = parts.as_chunks::<2>();
        let found = |&[id, tables]: &[u8; 2]| {
            let component = frame.components.iter().position(|component| component.id == id)?;
            let tables = [tables >> 4, tables & 15].map(usize::from);
            tables.iter().all(|table| *table < 4).then_some([component, tables[0], tables[1]])
        };
        let parts: Vec<[usize; 3]> = parts.iter().map(found).collect::<Option<_>>().ok_or(value)?;
        let is_twice = |last: usize| parts[..last].iter().any(|part| part[0] == parts[last][0]);
        if parts.is_empty() || (1..parts.len()).any(is_twice) {
            return Err(value);
        }
        let band = [first, last].map(usize::from);
        let (high, low) = (precision >> 4, precision & 15);
        if !frame.is_progressive {
            return Ok(Self { parts, band: [0, 63], high: 0, low: 0 });
        }
        let is_band = match band {
            [0, 0] => true,
            [first, last] => first > 0 && first <= last && last < BLOCK * BLOCK && parts.len() == 1,
        };
        let is_precision = low <= 13 && (high == 0 || high == low + 1);
        if is_band && is_precision { Ok(Self { parts, band, high, low }) } else { Err(value) }
    }

    const fn mode(&self, frame: &Frame) -> Mode {
        match (frame.is_progressive, self.band[0], self.high) {
            (false, ..) => Mode::Whole,
            (true, 0, 0) => Mode::Mean,
            (true, 0, _) => Mode::MeanBit,
            (true, _, 0) => Mode::Others,
            (true, ..) => Mode::OthersBit,
        }
    }
}

/// Reads the data of all scans and the segments between them, to the end of the picture.
fn scans(
    bits: &mut Bits,
    frame: &mut Frame,
    first: Scan,
    tables: &mut Tables,
    row: &mut Option<usize>,
) -> Result<(), Failure> {
    let mut scan = first;
    for _ in 0..MOST_SCANS {
        data(bits, frame, &scan, tables, row)?;
        loop {
            match bits.next_marker()? {
                0xd9 => {
                    let component = frame.components.iter().position(|component| !component.has_data);
                    return match component {
                        Some(component) => Err(JpegDamage::Component { component }.into()),
                        None => Ok(()),
                    };
                }
                0xda => {
                    scan = Scan::parse(&segment(bits, 0xda)?, frame)?;
                    break;
                }
                marker => tables.take(bits, marker)?,
            };
        }
    }
    Err(JpegDamage::Scans { expected: MOST_SCANS }.into())
}

/// Reads the data of one scan.
fn data(
    bits: &mut Bits,
    frame: &mut Frame,
    scan: &Scan,
    tables: &Tables,
    row: &mut Option<usize>,
) -> Result<(), Stop> {
    let is_alone = scan.parts.len() == 1;
    let (units, rows) = if is_alone {
        let component = &frame.components[scan.parts[0][0]];
        (frame.alone(component), BLOCK * frame.most[0] / component.blocks[0])
    } else {
        (frame.units(), BLOCK * frame.most[0])
    };
    let mode = scan.mode(frame);
    let widths: Vec<usize> = frame.components.iter().map(|component| frame.stored(component)[1]).collect();
    let mut restarts = Restarts { left: tables.restart, next: 0 };
    let mut run = 0;
    bits.begin();
    clear_means(frame);
    for y in 0..units[0] {
        *row = Some(y * rows);
        for x in 0..units[1] {
            if tables.restart > 0 && restarts.left == 0 {
                restarts.pass(bits, run, tables.restart)?;
                clear_means(frame);
            }
            restarts.left = restarts.left.wrapping_sub(1);
            for part in &scan.parts {
                let component = &mut frame.components[part[0]];
                let [down, across] = if is_alone { [1, 1] } else { component.blocks };
                for (block_y, block_x) in (0..down).flat_map(|y| (0..across).map(move |x| (y, x))) {
                    let index = (y * down + block_y) * widths[part[0]] + x * across + block_x;
                    block(bits, component, index, scan, mode, [part[1], part[2]], tables, &mut run)?;
                }
            }
        }
    }
    if run > 0 {
        return Err(JpegDamage::Run.into());
    }
    for part in &scan.parts {
        frame.components[part[0]].has_data = true;
    }
    bits.end()
}

fn clear_means(frame: &mut Frame) {
    frame.components.iter_mut().for_each(|component| component.mean = 0);
}

/// Where the next restart is.
struct Restarts {
    /// The units until then.
    left: usize,
    /// Which of the eight markers it has.
    next: u8,
}

impl Restarts {
    fn pass(&mut self, bits: &mut Bits, run: u32, interval: usize) -> Result<(), Stop> {
        if run > 0 {
            return Err(JpegDamage::Run.into());
        }
        bits.end()?;
        let (expected, got) = (0xd0 + self.next, bits.next_marker()?);
        if got != expected {
            return Err(JpegDamage::Restart { expected, got }.into());
        }
        bits.begin();
        (self.left, self.next) = (interval, (self.next + 1) % 8);
        Ok(())
    }
}

/// Reads one block.
#[expect(clippy::too_many_arguments, reason = "one call in the innermost loop; all of them are read")]
fn block(
    bits: &mut Bits,
    component: &mut Component,
    index: usize,
    scan: &Scan,
    mode: Mode,
    [mean, others]: [usize; 2],
    tables: &Tables,
    run: &mut u32,
) -> Result<(), Stop> {
    let code = |kind: usize, number: usize| tables.codes[kind][number].as_ref().ok_or(JpegDamage::Table);
    match mode {
        Mode::Whole => {
            mean_of(bits, component, code(0, mean)?, tables, 0)?;
            whole(bits, code(1, others)?)
        }
        Mode::Mean => mean_of(bits, component, code(0, mean)?, tables, scan.low),
        Mode::MeanBit => bits.number(1).map(drop),
        Mode::Others if *run > 0 => {
            *run -= 1;
            Ok(())
        }
        Mode::Others => band(bits, code(1, others)?, scan.band, &mut component.nonzero[index], run),
        Mode::OthersBit => refine(bits, code(1, others)?, scan.band, &mut component.nonzero[index], run),
    }
}

/// The mean of a block, as the difference to the one before.
fn mean_of(
    bits: &mut Bits,
    component: &mut Component,
    table: &Table,
    tables: &Tables,
    low: u8,
) -> Result<(), Stop> {
    let step = tables.steps[component.steps].ok_or(JpegDamage::Table)?;
    let len = bits.symbol(table)?;
    if len > 11 {
        return Err(JpegDamage::Range.into());
    }
    component.mean += bits.difference(u32::from(len))?;
    // eight times the mean, which lies from -128 to 127; twice that is no rounding any more
    let most = 2 * 8 * 128 + i64::from(step);
    let mean = (i64::from(component.mean) << low) * i64::from(step);
    if mean.abs() > most { Err(JpegDamage::Range.into()) } else { Ok(()) }
}

/// The other coefficients of a block (T.81, F.2.2.2).
fn whole(bits: &mut Bits, table: &Table) -> Result<(), Stop> {
    let mut zeros = ZeroBits::default();
    let mut k = 1;
    while k < BLOCK * BLOCK {
        let symbol = bits.symbol(table)?;
        let (skipped, len) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        match (skipped, len) {
            (0, 0) => return Ok(()),
            (15, 0) => k += 16,
            (_, 0) => return Err(JpegDamage::Code.into()),
            _ => {
                let number = bits.number(len)?;
                zeros.pass(table, symbol, number, [k, k + skipped + 1])?;
                k += skipped + 1;
            }
        }
    }
    if k > BLOCK * BLOCK { Err(JpegDamage::Block.into()) } else { Ok(()) }
}

/// The first bits of a band of coefficients (T.81, G.1.2.2).
fn band(
    bits: &mut Bits,
    table: &Table,
    [first, last]: [usize; 2],
    nonzero: &mut u64,
    run: &mut u32,
) -> Result<(), Stop> {
    let mut zeros = ZeroBits::default();
    let mut k = first;
    while k <= last {
        let symbol = bits.symbol(table)?;
        let (skipped, len) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        match (skipped, len) {
            (15, 0) => k += 16,
            (_, 0) => {
                *run = (1 << skipped) - 1 + bits.number(u32::from(symbol >> 4))?;
                return Ok(());
            }
            _ => {
                let number = bits.number(len)?;
                zeros.pass(table, symbol, number, [k, k + skipped + 1])?;
                k += skipped;
                if k > last {
                    return Err(JpegDamage::Block.into());
                }
                *nonzero |= 1 << k;
                k += 1;
            }
        }
    }
    if k > last + 1 { Err(JpegDamage::Block.into()) } else { Ok(()) }
}

/// One more bit of a band of coefficients (T.81, G.1.2.3).
fn refine(
    bits: &mut Bits,
    table: &Table,
    [first, last]: [usize; 2],
    nonzero: &mut u64,
    run: &mut u32,
) -> Result<(), Stop> {
    let before = *nonzero;
    let mut zeros = ZeroBits::default();
    let mut k = first;
    while *run == 0 && k <= last {
        let begin = k;
        let symbol = bits.symbol(table)?;
        let (mut skipped, len) = (symbol >> 4, symbol & 15);
        let mut number = 0;
        match (skipped, len) {
            (15, 0) => {}
            (_, 0) => {
                *run = (1 << skipped) + bits.number(u32::from(skipped))?;
                break;
            }
            (_, 1) => number = bits.number(1)?,
            _ => return Err(JpegDamage::Code.into()),
        }
        // past so many coefficients that are still zero, to the one that is new
        loop {
            if k > last {
                return Err(JpegDamage::Block.into());
            }
            if before >> k & 1 == 1 {
                number |= bits.number(1)?;
            } else if skipped == 0 {
                break;
            } else {
                skipped -= 1;
            }
            k += 1;
        }
        if len == 1 {
            *nonzero |= 1 << k;
        }
        k += 1;
        zeros.pass(table, symbol, number, [begin, k])?;
    }
    if *run > 0 {
        for k in k..=last {
            if before >> k & 1 == 1 {
                bits.number(1)?;
            }
        }
        *run -= 1;
    }
    Ok(())
}

/// Coefficients of a block one after another that are nothing but zero bits. Bytes that were lost and read as zeros make
/// blocks like that, and they may be as many as those that are lost; pictures do not: so many coefficients are hardly ever
/// all minus one.
#[derive(Default)]
struct ZeroBits {
    coefficients: usize,
}

impl ZeroBits {
    /// Takes a symbol with its bits, which is for the coefficients from `begin` to `end`.
    fn pass(
        &mut self,
        table: &Table,
        symbol: u8,
        number: u32,
        [begin, end]: [usize; 2],
    ) -> Result<(), JpegDamage> {
        self.coefficients = match table.zero {
            Some(zero) if zero == symbol && number == 0 => self.coefficients + end - begin,
            _ => 0,
        };
        if self.coefficients > MOST_ZERO_COEFFICIENTS { Err(JpegDamage::Zeros) } else { Ok(()) }
    }
}

const MOST_ZERO_COEFFICIENTS: usize = 48;
