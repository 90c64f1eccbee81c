//! Arrays of Python as tensors in memory.

use std::ffi::CStr;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use tiled::exec::{
    ElementType, ExecError, IoError, MemorySource, Numbers, Sink, SliceSink, Source, StoredSink,
    StoredSource, with_stored,
};
use tiled::graph::GraphError;
use tiled::tensor::{Element, Layout, ViewMut, zeros};

use crate::error::Failure;

/// An array of four axes, N×C×H×W, of any numbers and strides, which lives as long as this.
pub(crate) struct Array {
    name: String,
    /// Keeps the memory.
    buffer: PyUntypedBuffer,
    element: ElementType,
    /// The lowest element.
    lowest: usize,
    /// The elements from the lowest to the highest.
    len: usize,
    /// The place of element (0, 0, 0, 0).
    start: usize,
    shape: [usize; 4],
    /// In elements.
    strides: [isize; 4],
}

impl Array {
    /// The memory of an array; `name` stands in errors.
    pub(crate) fn new(name: &str, array: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        let wrong = |text: String| Failure::Argument(format!("{name}: {text}"));
        let buffer = PyUntypedBuffer::get(array)
            .map_err(|_| wrong(format!("wants an array or a path, is {}", array.get_type())))?;
        let bytes = buffer.item_size();
        let Some(element) = element(buffer.format(), bytes) else {
            let format = buffer.format().to_string_lossy();
            return Err(wrong(format!(
                "wants integers or floating-point numbers of this machine, has elements `{format}`"
            )));
        };
        let (Ok(shape), Ok(steps)) =
            (<[usize; 4]>::try_from(buffer.shape()), <[isize; 4]>::try_from(buffer.strides()))
        else {
            return Err(wrong(format!("wants 4 axes, has {}", buffer.dimensions())));
        };
        if shape.contains(&0) || buffer.suboffsets().is_some() {
            return Err(wrong(format!("wants elements, has the shape {shape:?}")));
        }
        let (size, address) = (bytes.cast_signed(), buffer.buf_ptr().expose_provenance());
        if !address.is_multiple_of(bytes) || steps.iter().any(|step| step % size != 0) {
            return Err(wrong(format!(
                "elements of {bytes} bytes lie {steps:?} bytes apart from {address:#x} on: copy it"
            )));
        }
        let strides = steps.map(|step| step / size);
        // an array that there is lies within the address space
        let (mut below, mut above) = (0_usize, 0_usize);
        for (extent, stride) in shape.iter().zip(strides) {
            let reach = stride.unsigned_abs() * (extent - 1);
            if stride < 0 { below += reach } else { above += reach }
        }
        let (lowest, len) = (address - below * bytes, below + above + 1);
        Ok(Self { name: name.to_owned(), buffer, element, lowest, len, start: below, shape, strides })
    }

    pub(crate) const fn shape(&self) -> [usize; 4] {
        self.shape
    }

    pub(crate) const fn element(&self) -> ElementType {
        self.element
    }

    /// Checks that it can be written, and shares no byte with `others`.
    pub(crate) fn check_output<'a>(&self, others: impl IntoIterator<Item = &'a Self>) -> Result<(), Failure> {
        if self.buffer.readonly() {
            return Err(Failure::Argument(format!("{}: cannot be written", self.name)));
        }
        let range = |array: &Self| array.lowest..array.lowest + array.len * array.element.size_bytes();
        let mine = range(self);
        for other in others {
            let theirs = range(other);
            if mine.start < theirs.end && theirs.start < mine.end {
                let text = format!("{} and {} lie in one stretch of memory", self.name, other.name);
                return Err(Failure::Argument(text));
            }
        }
        Ok(())
    }

    /// The array, to be read; what integers stand for is said by `numbers`.
    pub(crate) fn source<T: Element>(&self, numbers: Numbers) -> Result<Box<dyn Source<T> + '_>, IoError> {
        if self.element == ElementType::from(T::DTYPE) {
            let data = self.elements::<T>();
            let source = MemorySource::with_strides(data, self.shape, self.start, self.strides)?;
            return Ok(Box::new(source));
        }
        with_stored!(self.element, S => {
            let data = self.elements::<S>();
            let source = StoredSource::with_strides(data, self.shape, self.start, self.strides)?;
            Ok(Box::new(source.with_numbers(numbers)))
        })
    }

    /// The array, to be written; [`Array::check_output`] was asked.
    pub(crate) fn sink<T: Element>(&self, numbers: Numbers) -> Result<Box<dyn Sink<T> + '_>, IoError> {
        if self.element == ElementType::from(T::DTYPE) {
            let data = self.elements_mut::<T>();
            return Ok(Box::new(SliceSink::with_strides(data, self.shape, self.start, self.strides)?));
        }
        with_stored!(self.element, S => {
            let data = self.elements_mut::<S>();
            let sink = StoredSink::with_strides(data, self.shape, self.start, self.strides)?;
            Ok(Box::new(sink.with_numbers(numbers)))
        })
    }

    /// Whether it is a tensor of `T` without gaps, which kernels read and write where it lies.
    pub(crate) fn is_plain<T: Element>(&self) -> bool {
        let [_, c, h, w] = self.shape.map(usize::cast_signed);
        self.element == ElementType::from(T::DTYPE) && self.strides == [c * h * w, h * w, w, 1]
    }

    /// Its numbers in order, integers as they are.
    pub(crate) fn values<T: Element>(&self) -> Result<Vec<T>, Failure> {
        let mut values = zeros::<T>(self.shape.iter().product()).map_err(GraphError::from)?;
        let layout = Layout::nchw(self.shape).map_err(ExecError::from)?;
        self.source::<T>(Numbers::AsIs)?.read(layout.region(), &mut ViewMut::new(&mut values, layout))?;
        Ok(values)
    }

    /// Checks that it has so many elements of `T` in one row.
    pub(crate) fn check_row<T: Element>(&self, wanted: usize) -> Result<(), Failure> {
        if self.shape == [1, 1, 1, wanted] && self.element == ElementType::from(T::DTYPE) {
            return Ok(());
        }
        let (name, got, element, own) = (&self.name, self.shape, self.element.name(), T::DTYPE.name());
        Err(Failure::Argument(format!(
            "{name}: {element} of shape {got:?}, not {wanted} elements of {own} in a row"
        )))
    }

    /// Writes as many numbers, of the type of its elements, into an array in one row.
    pub(crate) fn fill<T: Copy>(&self, values: &[T]) {
        let elements = self.elements_mut::<T>();
        for (x, value) in values.iter().enumerate() {
            elements[self.place([0, 0, 0, x])] = *value;
        }
    }

    /// The element of an image and a channel at a row and a column.
    pub(crate) const fn place(&self, [n, c, y, x]: [usize; 4]) -> usize {
        let [of_n, of_c, of_y, of_x] = self.strides;
        let offset =
            n.cast_signed() * of_n + c.cast_signed() * of_c + y.cast_signed() * of_y + x.cast_signed() * of_x;
        self.start.wrapping_add_signed(offset)
    }

    /// The elements from the lowest to the highest, of the type that they are.
    pub(crate) fn elements<S>(&self) -> &[S] {
        assert_eq!(
            size_of::<S>(),
            self.element.size_bytes(),
            "invariant: asked for by the type of the elements"
        );
        let data = std::ptr::with_exposed_provenance::<S>(self.lowest);
        // SAFETY: `new` has shown that the elements of the array, which the buffer keeps, span `len` aligned elements from the lowest
        // on. Numbers have no invalid bits. What Python code writes there while a run reads is the caller's race, as the module says.
        unsafe { std::slice::from_raw_parts(data, self.len) }
    }

    /// The same, to be written: once for an array, of which `check_output` has shown that no other that is used shares it.
    #[expect(clippy::mut_from_ref, reason = "the memory is Python's, and one sink alone writes it")]
    pub(crate) fn elements_mut<S>(&self) -> &mut [S] {
        assert_eq!(
            size_of::<S>(),
            self.element.size_bytes(),
            "invariant: asked for by the type of the elements"
        );
        let data = std::ptr::with_exposed_provenance_mut::<S>(self.lowest);
        // SAFETY: as in `elements`; the buffer is not read-only
        unsafe { std::slice::from_raw_parts_mut(data, self.len) }
    }
}

/// The element type of a format of the buffer protocol; `None` of what are no numbers of this machine.
fn element(format: &CStr, bytes: usize) -> Option<ElementType> {
    let format = format.to_str().ok()?;
    let native = if cfg!(target_endian = "little") { ['@', '=', '<'] } else { ['@', '=', '>'] };
    Some(match (format.strip_prefix(native).unwrap_or(format), bytes) {
        ("e", 2) => ElementType::F16,
        ("f", 4) => ElementType::F32,
        ("d", 8) => ElementType::F64,
        ("B", 1) => ElementType::U8,
        ("b", 1) => ElementType::I8,
        ("H", 2) => ElementType::U16,
        ("h", 2) => ElementType::I16,
        ("I" | "L", 4) => ElementType::U32,
        ("i" | "l", 4) => ElementType::I32,
        ("Q" | "L", 8) => ElementType::U64,
        ("q" | "l", 8) => ElementType::I64,
        _ => return None,
    })
}
