//! Arrays in files whose rows are read one by one.

use std::path::{Path, PathBuf};

use tiled_tensor::Element;

use crate::file::{BUFFER_BYTES, Positioned, PositionedFile};
use crate::npy::read_header;
use crate::weights::header;
use crate::{ElementType, FileSource, IoError, Numbers};

/// An array in an `.npy` or `.safetensors` file, of which only the rows that are asked for are read: parts of one index on its first
/// axis. A read passes 64 KiB of the stack of the calling thread and allocates nothing.
///
/// ```
/// use tiled_exec::{ArrayFile, NpyHeader, ElementType};
/// let path = std::env::temp_dir().join(format!("tiled-rows-{}.npy", std::process::id()));
/// let mut bytes = NpyHeader::format(&[3, 2], ElementType::U8)?;
/// bytes.extend([1, 2, 3, 4, 5, 6]);
/// std::fs::write(&path, bytes)?;
/// let array = ArrayFile::open_npy(&path)?;
/// assert_eq!(array.shape(), [3, 2]);
/// let mut row = [0.0_f32; 2];
/// array.read_row(2, &mut row)?;
/// assert_eq!(row, [5.0, 6.0]);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ArrayFile {
    path: PathBuf,
    file: PositionedFile,
    element: ElementType,
    shape: Vec<usize>,
    /// Where the elements begin.
    position: u64,
    row_elements: usize,
}

impl ArrayFile {
    /// Opens an array in an `.npy` file. Its header and the length of the file are checked now.
    ///
    /// # Errors
    /// Where the header is malformed or says another type, big-endian elements or Fortran order, where the array has no axes, where
    /// the file is shorter or longer than its shape says, and where it cannot be opened.
    pub fn open_npy(path: impl AsRef<Path>) -> Result<Self, IoError> {
        let path = path.as_ref();
        let file = FileSource::open(path)?;
        let (header, got) = read_header(path, &file)?;
        let elements = elements(path, header.shape())?;
        let expected = bytes(path, header.shape(), elements, header.element())?
            .checked_add(header.len_bytes())
            .ok_or_else(|| overflow(path, header.shape()))?;
        if got < expected {
            return Err(IoError::Truncated { path: path.to_path_buf(), expected, got });
        }
        if got > expected {
            return Err(IoError::FileSize { path: path.to_path_buf(), expected, got });
        }
        Self::new(
            path,
            PositionedFile::new(file),
            header.element(),
            header.shape().to_vec(),
            header.len_bytes(),
        )
    }

    /// Opens an array by its name in a `.safetensors` file. The header is checked now.
    ///
    /// # Errors
    /// Where the header is malformed, or does not fit the file; where there is no array of that name, or one without axes or of
    /// elements that are not read; and where the file cannot be opened.
    pub fn open_safetensors(path: impl AsRef<Path>, name: &str) -> Result<Self, IoError> {
        const LISTED: usize = 8;
        let path = path.as_ref();
        let mut file = FileSource::open(path)?;
        let entries = header::read(path, &mut file)?;
        let Some(entry) = entries.iter().find(|entry| entry.name == name) else {
            let mut known: Vec<String> =
                entries.iter().take(LISTED).map(|entry| format!("`{}`", entry.name)).collect();
            match entries.len() {
                0 => known.push("none".to_owned()),
                count if count > LISTED => known.push(format!("{} more", count - LISTED)),
                _ => {}
            }
            let (path, name, known) = (path.to_path_buf(), name.to_owned(), known.join(", "));
            return Err(IoError::NoTensor { path, name, known });
        };
        // safetensors has the names of Rust, in capitals
        let is_named = |element: &&ElementType| element.name().to_ascii_uppercase() == entry.dtype;
        let Some(element) = ElementType::ALL.iter().find(is_named) else {
            let (path, got, expected) = (path.to_path_buf(), entry.dtype.clone(), "numbers");
            return Err(IoError::ArrayType { path, expected, got });
        };
        let (shape, position) = (entry.shape.clone(), entry.position);
        Self::new(path, PositionedFile::new(file), *element, shape, position)
    }

    fn new(
        path: &Path,
        file: PositionedFile,
        element: ElementType,
        shape: Vec<usize>,
        position: u64,
    ) -> Result<Self, IoError> {
        let Some((_, row)) = shape.split_first() else {
            return Err(IoError::NoRows { path: path.to_path_buf() });
        };
        let row_elements = elements(path, row)?;
        Ok(Self { path: path.to_path_buf(), file, element, shape, position, row_elements })
    }

    /// The extents.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of rows: the first extent.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape[0]
    }

    /// The type of the elements of the file.
    #[must_use]
    pub const fn element(&self) -> ElementType {
        self.element
    }

    /// Refuses an array whose elements do not become values of this type.
    ///
    /// # Errors
    /// As it says.
    pub fn check<V: ArrayValue>(&self) -> Result<(), IoError> {
        if V::takes(self.element) {
            return Ok(());
        }
        let (path, got) = (self.path.clone(), self.element.name().to_owned());
        Err(IoError::ArrayType { path, expected: V::WANTED, got })
    }

    /// Reads a row: as many elements as its extents say, each converted to the nearest value, integers as they are.
    ///
    /// # Errors
    /// Where there is no such row, `output` has another length, or elements do not become such values, and where reading fails.
    pub fn read_row<V: ArrayValue>(&self, row: usize, output: &mut [V]) -> Result<(), IoError> {
        self.check::<V>()?;
        if row >= self.rows() {
            return Err(IoError::Row { path: self.path.clone(), rows: self.rows(), got: row });
        }
        if output.len() != self.row_elements {
            let (expected, got) = (self.row_elements, output.len());
            return Err(IoError::Elements { path: self.path.clone(), expected, got });
        }
        let size = self.element.size_bytes();
        // within the bytes of the file, which were counted when it was opened
        let mut position = self.position + row as u64 * (self.row_elements * size) as u64;
        let mut buffer = [0; BUFFER_BYTES];
        for part in output.chunks_mut(BUFFER_BYTES / size) {
            let bytes = &mut buffer[..part.len() * size];
            // a short read means that the file was cut since
            self.file
                .read_at(bytes, position)
                .map_err(|source| IoError::Read { path: self.path.clone(), source })?;
            V::decode(self.element, bytes, part);
            position += bytes.len() as u64;
        }
        Ok(())
    }
}

/// What elements of an [`ArrayFile`] become: `f32` and `f64` of any, `i64` of integers that it holds.
pub trait ArrayValue: Copy + Default + Send + Sync + std::fmt::Debug + 'static {
    /// What it is made of, in words.
    const WANTED: &'static str;

    /// Whether elements of this type become such values.
    fn takes(element: ElementType) -> bool;

    /// Writes the elements in `bytes` to `output`.
    fn decode(element: ElementType, bytes: &[u8], output: &mut [Self]);
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl ArrayValue for $type {
            const WANTED: &'static str = "numbers";

            fn takes(_: ElementType) -> bool {
                true
            }

            fn decode(element: ElementType, bytes: &[u8], output: &mut [Self]) {
                as_floats(element, bytes, output);
            }
        }
    )*};
}

floats!(f32, f64);

fn as_floats<T: Element>(element: ElementType, bytes: &[u8], output: &mut [T]) {
    element.decode(Numbers::AsIs, bytes, output, 1);
}

impl ArrayValue for i64 {
    const WANTED: &'static str = "integers of up to 64 bits with a sign, or 32 without";

    fn takes(element: ElementType) -> bool {
        use ElementType as E;
        matches!(element, E::U8 | E::I8 | E::U16 | E::I16 | E::U32 | E::I32 | E::I64)
    }

    fn decode(element: ElementType, bytes: &[u8], output: &mut [Self]) {
        fn all<const SIZE: usize>(bytes: &[u8], output: &mut [i64], value: impl Fn([u8; SIZE]) -> i64) {
            let (elements, _) = bytes.as_chunks::<SIZE>();
            elements.iter().zip(output).for_each(|(element, output)| *output = value(*element));
        }
        match element {
            ElementType::U8 => all(bytes, output, |b| i64::from(u8::from_le_bytes(b))),
            ElementType::I8 => all(bytes, output, |b| i64::from(i8::from_le_bytes(b))),
            ElementType::U16 => all(bytes, output, |b| i64::from(u16::from_le_bytes(b))),
            ElementType::I16 => all(bytes, output, |b| i64::from(i16::from_le_bytes(b))),
            ElementType::U32 => all(bytes, output, |b| i64::from(u32::from_le_bytes(b))),
            ElementType::I32 => all(bytes, output, |b| i64::from(i32::from_le_bytes(b))),
            ElementType::I64 => all(bytes, output, i64::from_le_bytes),
            // refused by `takes`
            ElementType::U64 | ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64 => {
            }
        }
    }
}

fn elements(path: &Path, shape: &[usize]) -> Result<usize, IoError> {
    let product = shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent));
    product.ok_or_else(|| overflow(path, shape))
}

fn bytes(path: &Path, shape: &[usize], elements: usize, element: ElementType) -> Result<u64, IoError> {
    (elements as u64).checked_mul(element.size_bytes() as u64).ok_or_else(|| overflow(path, shape))
}

fn overflow(path: &Path, shape: &[usize]) -> IoError {
    IoError::Overflow { path: path.to_path_buf(), got: shape.to_vec() }
}
