//! Objects of Python that are read and written in parts: arrays on disk, slides, whatever gives an array for a rectangle.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use tiled::exec::{
    Changes, ChunkedSource, ElementType, FnSink, FnSource, IoError, Numbers, Progress, Sink, Source, Stored,
    with_stored,
};
use tiled::geometry::{Interval, Region};
use tiled::tensor::{Element, View, ViewMut};

use crate::array::Array;
use crate::error::Failure;
use crate::options;
use crate::watch::Watch;

/// The most bytes of an array that is asked for or given out at once, but for one pixel of all images and channels.
const PART_BYTES: usize = 1 << 20;

/// The same where a plan leaves less than that: of still fewer bytes there would be too many arrays.
const LEAST_PART_BYTES: usize = 1 << 16;

/// The object as `tiled._operands` hands it over.
#[derive(FromPyObject)]
pub(crate) struct Given {
    /// `get(y0, y1, x0, x1)` gives an array N×C×h×w: of what is read its elements, of what is written room for them.
    get: Py<PyAny>,
    /// `put(y0, y1, x0, x1, array)` takes that room when it is filled; `None` of what is read.
    put: Option<Py<PyAny>>,
    shape: [usize; 4],
    /// The name of the type of its elements.
    element: String,
    /// The rows and columns of its chunks.
    chunks: Option<[usize; 2]>,
}

/// An object that is asked for one part at a time: those of other libraries seldom allow more.
pub(crate) struct Parts {
    name: String,
    get: Py<PyAny>,
    put: Option<Py<PyAny>>,
    pub(crate) shape: [usize; 4],
    pub(crate) element: ElementType,
    pub(crate) chunks: Option<[usize; 2]>,
    /// Taken before the interpreter is, never while a thread has it; kept as long as there is an array.
    turn: Mutex<()>,
    changes: Mutex<Option<Changes>>,
}

/// An array of Python, and the object that it is.
struct Part {
    array: Array,
    object: Py<PyAny>,
}

/// Rows and columns, half-open.
type Bounds = [[usize; 2]; 2];

impl Parts {
    pub(crate) fn new(name: &str, given: Given) -> Result<Self, Failure> {
        let Given { get, put, shape, element, chunks } = given;
        let element = options::element(&element)?;
        let (turn, changes) = (Mutex::default(), Mutex::default());
        Ok(Self { name: name.to_owned(), get, put, shape, element, chunks, turn, changes })
    }

    /// The bytes of an array that there is at a time while a run goes on.
    pub(crate) fn part_bytes(&self) -> u64 {
        let pixel = self.pixel_bytes();
        let chunk = self.chunks.map_or(0, |[rows, cols]| pixel.saturating_mul(rows).saturating_mul(cols));
        chunk.max(pixel).max(PART_BYTES) as u64
    }

    /// What was not stored as it is.
    pub(crate) fn changes(&self) -> Option<Changes> {
        *lock(&self.changes)
    }

    /// The object, to be read; chunk by chunk where it has chunks, else in arrays within a limit.
    pub(crate) fn source<'a, T: Element>(
        &'a self,
        numbers: Numbers,
        limit_bytes: u64,
        watch: &'a Watch,
    ) -> Result<Box<dyn Source<T> + 'a>, IoError> {
        let most = self.pixels_within(limit_bytes);
        with_stored!(self.element, S => {
            if let Some(chunk) = self.chunks {
                let read = move |at: [usize; 2], slot: &mut [S]| self.read_chunk(chunk, at, slot, watch);
                let source = ChunkedSource::new(&self.name, self.shape, chunk, read)?;
                return Ok(Box::new(source.with_numbers(numbers)));
            }
            let read = move |region: Region<2>, window: &mut ViewMut<'_, T>| {
                for bounds in pieces(region, most) {
                    self.check(bounds, watch)?;
                    let _turn = lock(&self.turn);
                    self.get(bounds, watch)?.used(|array| copy_in::<S, T>(array, bounds, numbers, window));
                }
                Ok(())
            };
            Ok(Box::new(FnSource::new::<T>(&self.name, self.shape, read)?))
        })
    }

    /// The object, to be written in arrays within a limit.
    pub(crate) fn sink<'a, T: Element>(
        &'a self,
        numbers: Numbers,
        limit_bytes: u64,
        watch: &'a Watch,
    ) -> Result<Box<dyn Sink<T> + 'a>, IoError> {
        let most = self.pixels_within(limit_bytes);
        *lock(&self.changes) = Some(Changes::new(self.element, numbers));
        with_stored!(self.element, S => {
            let write = move |region: Region<2>, window: &View<'_, T>| {
                for bounds in pieces(region, most) {
                    self.check(bounds, watch)?;
                    let _turn = lock(&self.turn);
                    let part = self.get(bounds, watch)?;
                    if let Some(changes) = &mut *lock(&self.changes) {
                        copy_out::<S, T>(window, bounds, &part.array, changes);
                    }
                    self.put(bounds, &part, watch)?;
                    part.used(|_| ());
                }
                Ok(())
            };
            Ok(Box::new(FnSink::new::<T>(&self.name, self.shape, write)?))
        })
    }

    /// Reads the part of a chunk that lies in the image into memory for all of it.
    fn read_chunk<S: Stored>(
        &self,
        chunk: [usize; 2],
        at: [usize; 2],
        slot: &mut [S],
        watch: &Watch,
    ) -> Result<(), IoError> {
        let along = |axis: usize| {
            let begin = at[axis] * chunk[axis];
            [begin, (begin + chunk[axis]).min(self.shape[2 + axis])]
        };
        let bounds @ [rows, cols] = [along(0), along(1)];
        let _turn = lock(&self.turn);
        self.get(bounds, watch)?.used(|array| {
            let elements = array.elements::<S>();
            for plane in 0..self.shape[0] * self.shape[1] {
                let [n, c] = [plane / self.shape[1], plane % self.shape[1]];
                for y in 0..rows[1] - rows[0] {
                    let row = &mut slot[(plane * chunk[0] + y) * chunk[1]..][..cols[1] - cols[0]];
                    for (x, to) in row.iter_mut().enumerate() {
                        *to = elements[array.place([n, c, y, x])];
                    }
                }
            }
        });
        Ok(())
    }

    /// The pixels of a part that is within a limit, as far as parts are.
    fn pixels_within(&self, limit_bytes: u64) -> usize {
        let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        let bytes = limit.clamp(LEAST_PART_BYTES, PART_BYTES);
        (bytes / self.pixel_bytes().max(1)).max(1)
    }

    fn pixel_bytes(&self) -> usize {
        self.shape[0].saturating_mul(self.shape[1]).saturating_mul(self.element.size_bytes())
    }

    /// Ends between two parts where the run should end: parts may take long.
    fn check(&self, bounds: Bounds, watch: &Watch) -> Result<(), IoError> {
        if watch.is_cancelled() { Err(self.ended(bounds)) } else { Ok(()) }
    }

    /// The array of a rectangle, of which there is one at a time: whoever asks has the turn.
    fn get(&self, bounds @ [rows, cols]: Bounds, watch: &Watch) -> Result<Part, IoError> {
        let got = Python::attach(|py| {
            let object = self.get.call1(py, (rows[0], rows[1], cols[0], cols[1]))?;
            let array = Array::new(&self.name, object.bind(py))?;
            let wanted = [self.shape[0], self.shape[1], rows[1] - rows[0], cols[1] - cols[0]];
            if (array.shape(), array.element()) != (wanted, self.element) {
                let (got, element, own) = (array.shape(), array.element().name(), self.element.name());
                let text = format!(
                    "{}: rows {rows:?} and columns {cols:?} are {element} of shape {got:?}, not {own} of shape {wanted:?}",
                    self.name
                );
                return Err(Failure::Argument(text));
            }
            if self.put.is_some() {
                array.check_output([])?;
            }
            Ok(Part { array, object })
        });
        got.map_err(|failure| self.raised(bounds, failure, watch))
    }

    /// Gives a filled array away.
    fn put(&self, bounds @ [rows, cols]: Bounds, part: &Part, watch: &Watch) -> Result<(), IoError> {
        let Some(put) = &self.put else { return Ok(()) };
        let done =
            Python::attach(|py| put.call1(py, (rows[0], rows[1], cols[0], cols[1], &part.object)).map(drop));
        done.map_err(|error| self.raised(bounds, error.into(), watch))
    }

    /// Ends the run with what Python code raised; what the run then says is not heard.
    fn raised(&self, bounds: Bounds, failure: Failure, watch: &Watch) -> IoError {
        watch.raise(failure.into());
        self.ended(bounds)
    }

    fn ended(&self, [rows, cols]: Bounds) -> IoError {
        let source = format!("rows {rows:?} and columns {cols:?}").into();
        IoError::Function { path: self.name.clone().into(), source }
    }
}

impl Part {
    /// Gives the array back when it was used, which takes the interpreter.
    fn used<R>(self, with: impl FnOnce(&Array) -> R) -> R {
        let result = with(&self.array);
        Python::attach(|_| drop(self));
        result
    }
}

/// Rectangles of a region, of so many pixels at most.
fn pieces(region: Region<2>, most: usize) -> impl Iterator<Item = Bounds> {
    let index = |at: i64| usize::try_from(at).unwrap_or(0);
    let ends = |interval: Interval| [index(interval.begin()), index(interval.end())];
    let [rows, cols] = [ends(region.rows()), ends(region.cols())];
    let width = (cols[1] - cols[0]).clamp(1, most);
    let height = most / width;
    let along = |[begin, end]: [usize; 2], step: usize| {
        (begin..end).step_by(step).map(move |at| [at, (at + step).min(end)])
    };
    along(rows, height).flat_map(move |rows| along(cols, width).map(move |cols| [rows, cols]))
}

fn copy_in<S: Stored, T: Element>(
    array: &Array,
    [rows, cols]: Bounds,
    numbers: Numbers,
    window: &mut ViewMut<'_, T>,
) {
    let (elements, layout) = (array.elements::<S>(), *window.layout());
    each_row(array, rows, |[n, c, y]| {
        let start = layout.offset(n, c, signed(rows[0] + y), signed(cols[0]));
        let values = window.data_mut()[start..].iter_mut().step_by(layout.block());
        for (x, value) in values.take(cols[1] - cols[0]).enumerate() {
            *value = elements[array.place([n, c, y, x])].load(numbers);
        }
    });
}

fn copy_out<S: Stored, T: Element>(
    window: &View<'_, T>,
    [rows, cols]: Bounds,
    array: &Array,
    changes: &mut Changes,
) {
    let (elements, layout) = (array.elements_mut::<S>(), *window.layout());
    each_row(array, rows, |[n, c, y]| {
        let start = layout.offset(n, c, signed(rows[0] + y), signed(cols[0]));
        let values = window.data()[start..].iter().step_by(layout.block());
        for (x, value) in values.take(cols[1] - cols[0]).enumerate() {
            elements[array.place([n, c, y, x])] = S::store(*value, changes);
        }
    });
}

/// Every row of every image and channel of an array that is these rows of its tensor.
fn each_row(array: &Array, rows: [usize; 2], mut with: impl FnMut([usize; 3])) {
    let [batch, channels, ..] = array.shape();
    for n in 0..batch {
        for c in 0..channels {
            (0..rows[1] - rows[0]).for_each(|y| with([n, c, y]));
        }
    }
}

fn signed(at: usize) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

/// Plain data, which stays valid whatever panicked while it was held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
