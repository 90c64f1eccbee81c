//! Tensors by the names of their files.

use std::fmt;
use std::path::{Path, PathBuf};

use tiled_tensor::Element;

use super::{ElementType, FileSink, FileSource};
use crate::picture::{PictureSink, PictureSource};
use crate::{Decision, IoError, Numbers, Sink, Source};

/// The memory that [`open_source`] and [`create_sink`] let a picture take, decoded: 1 GiB.
pub const PICTURE_LIMIT_BYTES: u64 = 1 << 30;

/// How a file is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceOptions {
    /// What integers stand for.
    pub numbers: Numbers,
    /// The memory that a picture may take, with what decoding it takes.
    pub limit_bytes: u64,
    /// Where the pixels of a PNG that takes more lie, in a file without a name. Without a folder such a picture is an error, and so
    /// is always a JPEG or an interlaced PNG, whose rows do not come one after another.
    pub folder: Option<PathBuf>,
    /// What a raw file holds, which it does not say itself.
    pub raw: Option<RawFormat>,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self { numbers: Numbers::Scaled, limit_bytes: PICTURE_LIMIT_BYTES, folder: None, raw: None }
    }
}

/// What a raw file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFormat {
    /// The shape, NCHW.
    pub shape: [usize; 4],
    /// The type of the elements.
    pub element: ElementType,
}

/// What a file holds, as its header says.
///
/// ```
/// use tiled_exec::{ElementType, SourceFacts};
///
/// let facts = SourceFacts {
///     shape: [1, 3, 2700, 5400],
///     element: ElementType::U8,
///     is_scaled: true,
///     resident_bytes: 43_740_000,
///     opening_bytes: 43_740_000,
///     temporary_bytes: 0,
/// };
/// assert_eq!(facts.to_string(), "3×2700×5400, u8 scaled to 0…1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFacts {
    /// The shape, NCHW.
    pub shape: [usize; 4],
    /// The type of the elements.
    pub element: ElementType,
    /// Whether its integers become 0 to 1.
    pub is_scaled: bool,
    /// The bytes that the source keeps as long as it lives: a decoded picture.
    pub resident_bytes: u64,
    /// The most bytes that are held while it is opened, those that it keeps included.
    pub opening_bytes: u64,
    /// The bytes of the temporary file that it keeps: a decoded picture over the limit of memory.
    pub temporary_bytes: u64,
}

impl fmt::Display for SourceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batch = usize::from(self.shape[0] == 1);
        let shape: Vec<String> = self.shape[batch..].iter().map(usize::to_string).collect();
        write!(f, "{}, {}", shape.join("×"), self.element.name())?;
        if self.is_scaled {
            f.write_str(" scaled to 0…1")?;
        }
        if self.temporary_bytes > 0 { f.write_str(", decoded to a temporary file") } else { Ok(()) }
    }
}

/// Opens the tensor in a file by its extension: `.npy`, `.png`, `.jpg`, `.jpeg`.
///
/// # Errors
/// Where the extension is another, and where the file cannot be read; a truncated file is found here.
pub fn open_source<T: Element>(path: impl AsRef<Path>) -> Result<Box<dyn Source<T>>, IoError> {
    open_source_with(path, &SourceOptions::default())
}

/// Opens the tensor in a file as [`open_source`] does, where a picture may take `limit_bytes` of memory.
///
/// # Errors
/// As [`open_source`].
pub fn open_source_within<T: Element>(
    path: impl AsRef<Path>,
    limit_bytes: u64,
) -> Result<Box<dyn Source<T>>, IoError> {
    open_source_with(path, &SourceOptions { limit_bytes, ..SourceOptions::default() })
}

/// Opens the tensor in a file by its extension: `.npy`, `.png`, `.jpg`, `.jpeg`, and with [`SourceOptions::raw`] `.raw`
/// and `.bin`.
///
/// # Errors
/// As [`open_source`], and where a raw file is not as long as its shape says.
pub fn open_source_with<T: Element>(
    path: impl AsRef<Path>,
    options: &SourceOptions,
) -> Result<Box<dyn Source<T>>, IoError> {
    let path = path.as_ref();
    match Format::of(path)? {
        Format::Picture => Ok(Box::new(PictureSource::open_with(path, options)?)),
        Format::Npy | Format::Raw => Ok(Box::new(open_file(path, options)?)),
    }
}

/// What [`open_source_with`] would open, from the header alone: no picture is decoded, and one over the limit is an
/// error here already.
///
/// # Errors
/// As [`open_source_with`], but for what only decoding a picture tells.
pub fn inspect_source(path: impl AsRef<Path>, options: &SourceOptions) -> Result<SourceFacts, IoError> {
    let path = path.as_ref();
    match Format::of(path)? {
        Format::Picture => PictureSource::inspect(path, options),
        Format::Npy | Format::Raw => {
            let source = open_file(path, options)?;
            let element = source.element();
            Ok(SourceFacts {
                shape: Source::<f32>::shape(&source),
                element,
                is_scaled: element.is_scaled(options.numbers),
                resident_bytes: 0,
                opening_bytes: 0,
                temporary_bytes: 0,
            })
        }
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkOptions {
    /// The type of the elements: by default that of the computation, in a picture `u8`.
    pub element: Option<ElementType>,
    /// What integers stand for.
    pub numbers: Numbers,
    /// The memory that a picture may take; the pixels of a larger one lie in a file without a name beside it.
    pub limit_bytes: u64,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self { element: None, numbers: Numbers::Scaled, limit_bytes: PICTURE_LIMIT_BYTES }
    }
}

impl SinkOptions {
    /// The same for what is decided of so many channels of scores: class numbers are as they are, and where no type is said of 8 bits, or 16 for
    /// more than 256 of them.
    ///
    /// ```
    /// use tiled_exec::{Decision, ElementType, Numbers, SinkOptions};
    /// let options = SinkOptions::default().of_decision(Some(Decision::ArgMax), 300);
    /// assert_eq!((options.element, options.numbers), (Some(ElementType::U16), Numbers::Classes));
    /// let options = SinkOptions::default();
    /// assert_eq!(options.of_decision(Some(Decision::Above(0.5)), 300), options);
    /// ```
    #[must_use]
    pub fn of_decision(self, decision: Option<Decision>, channels: usize) -> Self {
        if decision != Some(Decision::ArgMax) {
            return self;
        }
        let classes = if channels > 256 { ElementType::U16 } else { ElementType::U8 };
        Self { element: self.element.or(Some(classes)), numbers: Numbers::Classes, ..self }
    }

    /// The type of the elements of a file of this name, where the computation has that of `T`.
    #[must_use]
    pub fn element<T: Element>(&self, path: &Path) -> ElementType {
        let own = if extension(path) == "png" { ElementType::U8 } else { T::DTYPE.into() };
        self.element.unwrap_or(own)
    }
}

/// Creates the file of a tensor by its extension: `.npy`, `.raw` and `.bin` (elements alone), `.png`.
///
/// Elements are stored as `T`, in a picture as 8 bits. The file stands under `path` only after [`Sink::finish`].
///
/// # Errors
/// Where the extension is another, the shape does not fit the format, the file cannot be made, or the disk is
/// too small.
pub fn create_sink<T: Element>(
    path: impl AsRef<Path>,
    shape: [usize; 4],
) -> Result<Box<dyn Sink<T>>, IoError> {
    create_sink_with(path, shape, &SinkOptions::default())
}

/// The same with elements of another type: integers are rounded and, as 16-bit floating point, cut to their range, which
/// [`Sink::changes`] counts.
///
/// # Errors
/// As [`create_sink`], and where the format has no such elements.
pub fn create_sink_with<T: Element>(
    path: impl AsRef<Path>,
    shape: [usize; 4],
    options: &SinkOptions,
) -> Result<Box<dyn Sink<T>>, IoError> {
    let path = path.as_ref();
    let (element, numbers) = (options.element::<T>(path), options.numbers);
    match extension(path).as_str() {
        "npy" => Ok(Box::new(FileSink::create_npy(path, shape, element)?.with_numbers(numbers))),
        "raw" | "bin" => Ok(Box::new(FileSink::create_raw(path, shape, element)?.with_numbers(numbers))),
        "png" => Ok(Box::new(PictureSink::create_with(path, shape, options)?)),
        _ => Err(unknown(path, "npy, raw, bin, png")),
    }
}

/// How the files are read that sources come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Npy,
    Raw,
    Picture,
}

impl Format {
    fn of(path: &Path) -> Result<Self, IoError> {
        match extension(path).as_str() {
            "npy" => Ok(Self::Npy),
            "png" | "jpg" | "jpeg" => Ok(Self::Picture),
            "raw" | "bin" => Ok(Self::Raw),
            _ => Err(unknown(path, "npy, png, jpg, jpeg, raw, bin")),
        }
    }
}

fn open_file(path: &Path, options: &SourceOptions) -> Result<FileSource, IoError> {
    let source = match (Format::of(path)?, options.raw) {
        (Format::Raw, Some(raw)) => FileSource::open_raw(path, raw.shape, raw.element)?,
        (Format::Raw, None) => return Err(IoError::ShapeUnknown { path: path.to_path_buf() }),
        _ => FileSource::open_npy(path)?,
    };
    Ok(source.with_numbers(options.numbers))
}

fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

fn unknown(path: &Path, expected: &'static str) -> IoError {
    IoError::Extension { path: path.to_path_buf(), expected, got: extension(path) }
}
