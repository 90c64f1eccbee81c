//! What a run reads and writes: memory of the caller, or functions of the caller.

mod progress;
mod sink;
mod source;

pub use progress::*;
pub use sink::*;
pub use source::*;

pub(crate) use source::chunk_shape;

use tiled::exec::{Io, IoError, Sink, Source};
use tiled::geometry::{Interval, Region, div_ceil};
use tiled::graph::TRANSFER_BYTES;
use tiled::tensor::{Element, Layout, OutOfMemory, collected, make_room, with_room};

use crate::guard::guard;
use crate::pointer::{Extensible, extensible, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};

/// The tensors that a run reads and writes, in the order of the network. Arrays and what they point to are read
/// during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_io {
    /// The size of the struct, as `tiled_io_init` sets it.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// The inputs, `input_count` of them.
    pub inputs: *const tiled_source,
    /// As many as the network has.
    pub input_count: usize,
    /// The target of the loss, or NULL.
    pub target: *const tiled_source,
    /// The gradients with respect to the outputs, where the caller gives them.
    pub grad_outputs: *const tiled_source,
    /// None, or as many as the network has outputs.
    pub grad_output_count: usize,
    /// Where the outputs go.
    pub outputs: *const tiled_sink,
    /// None, or as many as the network has outputs.
    pub output_count: usize,
    /// Where the gradients with respect to the inputs go.
    pub grad_inputs: *const tiled_sink,
    /// None, or as many as the network has inputs.
    pub grad_input_count: usize,
    /// Hears how far the run is, or NULL.
    pub progress: *const tiled_progress,
}

// SAFETY: repr(C), the size first, and integers and pointers, which take any bits
unsafe impl Extensible for tiled_io {
    const NAME: &'static str = "tiled_io";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            reserved: 0,
            inputs: std::ptr::null(),
            input_count: 0,
            target: std::ptr::null(),
            grad_outputs: std::ptr::null(),
            grad_output_count: 0,
            outputs: std::ptr::null(),
            output_count: 0,
            grad_inputs: std::ptr::null(),
            grad_input_count: 0,
            progress: std::ptr::null(),
        }
    }
}

/// Sets every field to its default: nothing. `struct_size` is `sizeof(tiled_io)`.
///
/// # Safety
/// `io` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_io_init(io: *mut tiled_io, struct_size: u32) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(io, struct_size, "io", &tiled_io::initial()) })
}

/// The tensors of a run, checked.
pub(crate) struct Tensors {
    inputs: Vec<CheckedSource>,
    target: Option<CheckedSource>,
    grad_outputs: Vec<CheckedSource>,
    outputs: Vec<CheckedSink>,
    grad_inputs: Vec<CheckedSink>,
    pub(crate) progress: CallbackProgress,
}

impl Tensors {
    /// Checks everything that can be checked without the plan.
    ///
    /// # Safety
    /// `io` is NULL or a struct with its size set, whose arrays are NULL or have as many structs as it says, each with
    /// its size set.
    pub(crate) unsafe fn of(io: *const tiled_io) -> Fallible<Self> {
        // SAFETY: the caller's promise
        let tensors = unsafe {
            let io = extensible(io, "io")?;
            Self {
                inputs: each(io.inputs, io.input_count, "io: inputs", |one, name| {
                    CheckedSource::of(one, name)
                })?,
                target: each(io.target, usize::from(!io.target.is_null()), "io: target", |one, name| {
                    CheckedSource::of(one, name)
                })?
                .pop(),
                grad_outputs: each(
                    io.grad_outputs,
                    io.grad_output_count,
                    "io: grad_outputs",
                    |one, name| CheckedSource::of(one, name),
                )?,
                outputs: each(io.outputs, io.output_count, "io: outputs", |one, name| {
                    CheckedSink::of(one, name)
                })?,
                grad_inputs: each(io.grad_inputs, io.grad_input_count, "io: grad_inputs", |one, name| {
                    CheckedSink::of(one, name)
                })?,
                progress: CallbackProgress::of(io.progress)?,
            }
        };
        tensors.require_apart()?;
        Ok(tensors)
    }

    fn require_apart(&self) -> Fallible {
        let read = self.inputs.iter().chain(&self.target).chain(&self.grad_outputs);
        let read = collected(read.filter_map(CheckedSource::memory))?;
        let written = self.outputs.iter().chain(&self.grad_inputs);
        let written = collected(written.filter_map(CheckedSink::memory))?;
        for (place, sink) in written.iter().enumerate() {
            sink.require_apart(&read)?;
            sink.require_apart(&written[..place])?;
        }
        Ok(())
    }

    /// Gives the sources and sinks to `body`.
    ///
    /// # Safety
    /// Memory can be read or written for as long as `body` runs, nothing else refers to what is written, and functions
    /// may be called from any thread.
    pub(crate) unsafe fn with_io<T: Element, R>(
        &self,
        body: impl FnOnce(&Io<'_, T>) -> Fallible<R>,
    ) -> Fallible<R> {
        let sources = |checked: &[CheckedSource]| -> Fallible<Vec<Box<dyn Source<T>>>> {
            // SAFETY: the caller's promise; `require_apart` has shown that what is written overlaps nothing
            let open = |source: &CheckedSource| unsafe { source.open::<T>() };
            each_opened(checked, open)
        };
        let sinks = |checked: &[CheckedSink]| -> Fallible<Vec<Box<dyn Sink<T>>>> {
            // SAFETY: as above
            let open = |sink: &CheckedSink| unsafe { sink.open::<T>() };
            each_opened(checked, open)
        };
        let inputs = sources(&self.inputs)?;
        let target = sources(self.target.as_slice())?;
        let grad_outputs = sources(&self.grad_outputs)?;
        let (outputs, grad_inputs) = (sinks(&self.outputs)?, sinks(&self.grad_inputs)?);
        fn borrowed<S: ?Sized>(boxes: &[Box<S>]) -> Fallible<Vec<&S>> {
            Ok(collected(boxes.iter().map(|boxed| &**boxed))?)
        }
        body(&Io {
            inputs: borrowed(&inputs)?,
            target: target.first().map(|boxed| &**boxed),
            grad_outputs: borrowed(&grad_outputs)?,
            outputs: borrowed(&outputs)?,
            grad_inputs: borrowed(&grad_inputs)?,
        })
    }
}

/// What each of some sources or sinks is opened as.
fn each_opened<C, S>(checked: &[C], open: impl Fn(&C) -> Fallible<S>) -> Fallible<Vec<S>> {
    let mut opened = with_room(checked.len())?;
    for one in checked {
        opened.push(open(one)?);
    }
    Ok(opened)
}

/// Reads an array of structs that may grow: they lie as far apart as the first says it is large.
///
/// # Safety
/// `pointer` is NULL or has `count` structs, all of the size that the first says.
unsafe fn each<S: Extensible, C>(
    pointer: *const S,
    count: usize,
    name: &'static str,
    check: impl Fn(&S, &'static str) -> Fallible<C>,
) -> Fallible<Vec<C>> {
    if count > MAX_TENSORS {
        return Err(Failure::range(format!("{name}: {count} of them, at most {MAX_TENSORS} are taken")));
    }
    let mut place = pointer;
    let mut checked = with_room(count)?;
    let mut size = 0;
    for index in 0..count {
        // SAFETY: the caller's promise; the first field is the size, which `extensible` has checked
        let (value, this) = unsafe { (extensible(place, name)?, place.cast::<u32>().read() as usize) };
        if index > 0 && this != size {
            return Err(Failure::invalid(format!("{name}: structs of an array have one struct_size")));
        }
        size = this;
        checked.push(check(&value, name)?);
        place = place.wrapping_byte_add(size);
    }
    Ok(checked)
}

/// The elements of a region in one NCHW buffer and in the lanes of a window.
fn for_each_lane(layout: &Layout, region: Region<2>, mut visit: impl FnMut(usize, usize, usize)) {
    let width = usize::try_from(region.cols().len()).unwrap_or(0);
    let mut place = 0;
    for n in 0..layout.batch() {
        for c in 0..layout.channels() {
            for y in region.rows().begin()..region.rows().end() {
                visit(place, layout.offset(n, c, y, region.cols().begin()), width);
                place += width;
            }
        }
    }
}

/// The bytes of a pixel of all images and channels, the least that a callback is given.
fn pixel_bytes([batch, channels, ..]: [usize; 4], element_bytes: usize) -> usize {
    batch.saturating_mul(channels).saturating_mul(element_bytes)
}

/// The bytes of what a callback is handed of tensors of these shapes, one pixel at least, with what a decision before it holds.
pub(crate) fn transfer_bytes<'s>(shapes: impl Iterator<Item = &'s [usize; 4]>, element_bytes: usize) -> u64 {
    let pixels = shapes.map(|shape| (pixel_bytes(*shape, element_bytes) as u64).saturating_mul(3));
    pixels.fold(TRANSFER_BYTES, u64::max)
}

/// Cuts a region into parts whose elements fit the buffer that a plan counts, of whole rows where one fits, of one pixel at least.
fn parts(region: Region<2>, pixel_bytes: usize) -> impl Iterator<Item = Region<2>> {
    let most = i64::try_from(STAGING_BYTES / pixel_bytes.max(1)).unwrap_or(i64::MAX).max(1);
    let width = region.cols().len().clamp(1, most);
    let along = |interval: Interval, len: i64| {
        (0..div_ceil(interval.len(), len)).map(move |part| {
            let begin = interval.begin() + part * len;
            Interval::new(begin, (begin + len).min(interval.end()))
        })
    };
    along(region.rows(), most / width)
        .flat_map(move |rows| along(region.cols(), width).map(move |cols| Region::from_rows_cols(rows, cols)))
}

/// Makes a staging buffer `len` elements long.
fn stage<T: Element>(name: &str, staging: &mut Vec<T>, len: usize) -> Result<(), IoError> {
    let more = len.saturating_sub(staging.len());
    make_room(staging, more)
        .map_err(|OutOfMemory { bytes }| IoError::OutOfMemory { path: name.into(), bytes })?;
    staging.resize(len, T::ZERO);
    Ok(())
}

fn returned(name: &str, code: i32) -> Result<(), IoError> {
    if code == 0 {
        Ok(())
    } else {
        Err(IoError::from_function(name, format!("the callback returned {code}")))
    }
}

/// The buffer between a callback's NCHW elements and the channel-blocked windows, for each thread, which plans count
/// ([`TRANSFER_BYTES`]).
const STAGING_BYTES: usize = 256 << 10;
const _: () = assert!(STAGING_BYTES as u64 == TRANSFER_BYTES);
/// Far more than a network has.
const MAX_TENSORS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_the_buffer_and_cover_a_region_once() {
        let interval = |begin, end| Interval::new(begin, end);
        for (rows, cols, pixel_bytes) in
            [((3, 40), (5, 90), 12), ((0, 3), (7, 70_000), 256), ((2, 4), (0, 3), 1 << 20)]
        {
            let region = Region::from_rows_cols(interval(rows.0, rows.1), interval(cols.0, cols.1));
            let (mut pixels, mut next) = (0, (rows.0, cols.0));
            for part in parts(region, pixel_bytes) {
                let (height, width) = (part.rows().len(), part.cols().len());
                let bytes = usize::try_from(height * width).unwrap() * pixel_bytes;
                assert!(bytes <= STAGING_BYTES.max(pixel_bytes), "{bytes}");
                assert_eq!((part.rows().begin(), part.cols().begin()), next);
                pixels += height * width;
                next = match part.cols().end() {
                    end if end == cols.1 => (part.rows().end(), cols.0),
                    end => (part.rows().begin(), end),
                };
            }
            assert_eq!((pixels, next), ((rows.1 - rows.0) * (cols.1 - cols.0), (rows.1, cols.0)));
        }
    }
}
