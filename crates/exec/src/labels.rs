//! Class numbers, the target of a cross-entropy: counted and checked before a run, so that none is taken for what it is
//! not and the mean is over those that count.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tiled_geometry::{Interval, Region};
use tiled_tensor::{Element, Layout, OutOfMemory, ViewMut, zeros};

use crate::source::{Lanes, index, shares_work};
use crate::{IoError, Source};

/// What was found among class numbers that are all classes, or ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelCensus {
    /// How many classes there are: a class lies from 0 to one less.
    pub classes: usize,
    /// The class whose pixels count for nothing, if any.
    pub ignore_index: Option<i64>,
    /// The pixels of all images.
    pub pixels: u64,
    /// Those that are not ignored.
    pub counted: u64,
}

/// Class numbers that were counted and checked, once for many runs.
///
/// A run counts and checks the class numbers of its target itself, which reads them once more, where they are not of this
/// type. The numbers must stay as they are as long as this lives.
///
/// ```
/// use tiled_exec::{Labels, MemorySource};
///
/// let numbers = [0.0_f32, 2.0, 255.0, 1.0];
/// let source = MemorySource::new(&numbers, [1, 1, 2, 2])?;
/// let labels = Labels::new("<numbers>", &source, 3, Some(255))?;
/// assert_eq!(labels.census().counted, 3);
///
/// let error = Labels::new("<numbers>", &source, 3, None).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`<numbers>`: class 255 at row 1, column 0 of image 0 is none of the 3 classes from 0 on"
/// );
/// # Ok::<(), tiled_exec::IoError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Labels<S> {
    source: S,
    census: LabelCensus,
}

impl<S> Labels<S> {
    /// Counts and checks the class numbers of `source`, which reads all of them; `name` stands in errors.
    ///
    /// # Errors
    /// Where `source` has other than one channel, where a number is neither a class nor ignored, where all are ignored, and
    /// where `source` fails.
    pub fn new<T: Element>(
        name: impl Into<PathBuf>,
        source: S,
        classes: usize,
        ignore_index: Option<i64>,
    ) -> Result<Self, IoError>
    where
        S: Source<T>,
    {
        let name = name.into();
        let census = take_census(&name, &source, classes, ignore_index)?;
        Ok(Self { source, census })
    }

    /// What was found.
    #[must_use]
    pub const fn census(&self) -> LabelCensus {
        self.census
    }
}

impl<T: Element, S: Source<T>> Source<T> for Labels<S> {
    fn shape(&self) -> [usize; 4] {
        self.source.shape()
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        self.source.read(region, output)
    }

    fn in_memory(&self) -> Option<&[T]> {
        self.source.in_memory()
    }

    fn resident_bytes(&self) -> u64 {
        self.source.resident_bytes()
    }

    fn transfer_bytes(&self) -> u64 {
        self.source.transfer_bytes()
    }

    fn label_census(&self) -> Option<LabelCensus> {
        Some(self.census)
    }
}

/// Class numbers among which an ignored one becomes −1: kernels ignore what is negative.
pub(crate) struct Ignoring<'a, T: Element> {
    pub(crate) source: &'a dyn Source<T>,
    pub(crate) ignore_index: i64,
}

impl<T: Element> Source<T> for Ignoring<'_, T> {
    fn shape(&self) -> [usize; 4] {
        self.source.shape()
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        self.source.read(region, output)?;
        if region.is_empty() {
            return Ok(());
        }
        let (ignored, negative) = (T::from_f64(number(self.ignore_index)), -T::ONE);
        let layout = *output.layout();
        let cols = index(region.cols().len());
        for n in 0..layout.batch() {
            for y in region.rows().begin()..region.rows().end() {
                let lanes = Lanes::new(&layout, region, n, 0, y);
                let row = output.data_mut()[lanes.start..].iter_mut().step_by(lanes.step).take(cols);
                for value in row.filter(|value| **value == ignored) {
                    *value = negative;
                }
            }
        }
        Ok(())
    }
}

/// Counts the class numbers of a source and checks that each is a class or ignored.
pub(crate) fn take_census<T: Element>(
    name: &Path,
    source: &dyn Source<T>,
    classes: usize,
    ignore_index: Option<i64>,
) -> Result<LabelCensus, IoError> {
    let [batch, channels, height, width] = source.shape();
    if channels != 1 {
        return Err(IoError::ClassChannels { path: name.to_path_buf(), got: channels });
    }
    let rule =
        Rule { classes: T::from_f64(length(classes)), ignored: ignore_index.map(|k| T::from_f64(number(k))) };
    let cells = Cells::new(batch, [height, width]);
    let count = |cell: usize| {
        let found = match source.in_memory() {
            Some(data) => cells.in_memory(cell, data, &rule),
            None => cells.read(cell, source, &rule)?,
        };
        found.map_err(|(image, row, column, got)| {
            let path = name.to_path_buf();
            IoError::Class { path, image, row, column, got: got.to_f64(), classes }
        })
    };
    let whole = crate::source::whole(source.shape());
    let counted: u64 = if shares_work(whole, batch) {
        // the first error in the order of the cells, so that it does not depend on threads; what is behind it is left out
        let failed = AtomicUsize::new(usize::MAX);
        let count = |cell: usize| match failed.load(Ordering::Relaxed) {
            failed if failed < cell => Ok(0),
            _ => count(cell).inspect_err(|_| _ = failed.fetch_min(cell, Ordering::Relaxed)),
        };
        let all = (0..cells.count()).into_par_iter().map(count);
        all.reduce(|| Ok(0), |before, after| Ok(before? + after?))?
    } else {
        (0..cells.count()).map(count).sum::<Result<u64, IoError>>()?
    };
    let pixels = [batch, height, width].map(|extent| extent as u64).iter().product();
    if let (0, Some(ignore_index)) = (counted, ignore_index) {
        return Err(IoError::AllIgnored { path: name.to_path_buf(), pixels, ignore_index });
    }
    Ok(LabelCensus { classes, ignore_index, pixels, counted })
}

/// Image, row, column and number of one that is no class.
type Stranger<T> = (usize, usize, usize, T);

struct Rule<T> {
    classes: T,
    ignored: Option<T>,
}

impl<T: Element> Rule<T> {
    fn is_ignored(&self, value: T) -> bool {
        self.ignored.is_some_and(|ignored| value == ignored)
    }

    fn is_class(&self, value: T) -> bool {
        value >= T::ZERO && value < self.classes && value.to_f64().fract() == 0.0
    }

    /// The classes of a row, or the first column without one.
    fn count<'v>(&self, row: impl Iterator<Item = &'v T> + Clone) -> Result<u64, (usize, T)> {
        let (mut classes, mut strangers) = (0, 0);
        for value in row.clone() {
            let (is_class, is_ignored) = (self.is_class(*value), self.is_ignored(*value));
            classes += u64::from(is_class && !is_ignored);
            strangers += u64::from(!is_class && !is_ignored);
        }
        if strangers == 0 {
            return Ok(classes);
        }
        let is_stranger = |value: &T| !self.is_class(*value) && !self.is_ignored(*value);
        match row.enumerate().find(|(_, value)| is_stranger(value)) {
            Some((column, value)) => Err((column, *value)),
            None => Ok(classes),
        }
    }
}

/// The pixels, cut into parts of rows.
struct Cells {
    batch: usize,
    extents: [usize; 2],
    /// Rows and columns of a part.
    part: [usize; 2],
}

/// The numbers of a part, where they are read: 64 KiB of `f64`.
const PART: usize = 8192;

impl Cells {
    fn new(batch: usize, extents: [usize; 2]) -> Self {
        let cols = (PART / batch.max(1)).clamp(1, extents[1].max(1));
        let rows = (PART / (batch.max(1) * cols)).clamp(1, extents[0].max(1));
        Self { batch, extents, part: [rows, cols] }
    }

    fn count(&self) -> usize {
        let [down, across] = self.grid();
        if self.batch == 0 { 0 } else { down * across }
    }

    fn grid(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.extents[axis].div_ceil(self.part[axis]))
    }

    /// The first row and column of a cell, and those after its last.
    fn bounds(&self, cell: usize) -> [[usize; 2]; 2] {
        let across = self.grid()[1];
        let begin = [cell / across * self.part[0], cell % across * self.part[1]];
        [0, 1].map(|axis| [begin[axis], (begin[axis] + self.part[axis]).min(self.extents[axis])])
    }

    fn in_memory<T: Element>(&self, cell: usize, data: &[T], rule: &Rule<T>) -> Result<u64, Stranger<T>> {
        let [rows, cols] = self.bounds(cell);
        let mut classes = 0;
        for n in 0..self.batch {
            for y in rows[0]..rows[1] {
                let start = (n * self.extents[0] + y) * self.extents[1];
                let row = &data[start + cols[0]..start + cols[1]];
                classes += rule.count(row.iter()).map_err(|(x, value)| (n, y, cols[0] + x, value))?;
            }
        }
        Ok(classes)
    }

    fn read<T: Element>(
        &self,
        cell: usize,
        source: &dyn Source<T>,
        rule: &Rule<T>,
    ) -> Result<Result<u64, Stranger<T>>, IoError> {
        let [rows, cols] = self.bounds(cell);
        let interval =
            |[begin, end]: [usize; 2]| Interval::new(begin.cast_signed() as i64, end.cast_signed() as i64);
        let region = Region::from_rows_cols(interval(rows), interval(cols));
        let overflow = || IoError::Overflow { path: "<labels>".into(), got: source.shape().to_vec() };
        let layout = Layout::new(self.batch, 1, 1, region, rows[1] - rows[0]).map_err(|_| overflow())?;
        let refused = |OutOfMemory { bytes }| IoError::OutOfMemory { path: "<labels>".into(), bytes };
        let mut data = zeros(layout.len()).map_err(refused)?;
        source.read(region, &mut ViewMut::new(&mut data, layout))?;
        let mut classes = 0;
        for n in 0..self.batch {
            for y in region.rows().begin()..region.rows().end() {
                let lanes = Lanes::new(&layout, region, n, 0, y);
                let row = data[lanes.start..].iter().step_by(lanes.step).take(cols[1] - cols[0]);
                match rule.count(row) {
                    Ok(count) => classes += count,
                    Err((x, value)) => return Ok(Err((n, index(y), cols[0] + x, value))),
                }
            }
        }
        Ok(Ok(classes))
    }
}

#[expect(clippy::cast_precision_loss, reason = "beyond 2^53 no number of a tensor is a class either")]
const fn number(class: i64) -> f64 {
    class as f64
}

#[expect(clippy::cast_precision_loss, reason = "channels are far fewer than 2^53")]
const fn length(classes: usize) -> f64 {
    classes as f64
}
