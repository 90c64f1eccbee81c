//! What can go wrong where tensors enter and leave.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use tiled_geometry::Region;
use tiled_graph::GraphError;
use tiled_tensor::MemoryDevice;

mod header;
mod run;

pub use header::{NpyProblem, WeightsProblem};
pub(crate) use run::refused;
pub use run::{ExecError, NotFinite};

use crate::PictureProblem;

/// A source, a sink or a file of weights that cannot do what is asked.
///
/// `path` is the file's path as the caller gave it, or a name in angle brackets for what is no file (`<memory>`).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The file cannot be opened or looked at.
    #[error("`{}`: cannot open: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file cannot be made.
    #[error("`{}`: cannot create: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Reading fails.
    #[error("`{}`: cannot read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Writing fails, for another reason than a full disk.
    #[error("`{}`: cannot write: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The disk is known to be too small before anything is written.
    #[error("`{}`: no space left: {expected} bytes needed, {got} bytes free", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The bytes that the file takes.
        expected: u64,
        /// The bytes that are free.
        got: u64,
    },
    /// The disk, or a quota, is full.
    #[error("`{}`: no space left: {source}", path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The path names something that is not a regular file: a folder, a device.
    #[error("`{}`: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is shorter than its header or its shape says.
    #[error("`{}`: truncated: {expected} bytes expected, {got} bytes found", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The bytes that it should have.
        expected: u64,
        /// The bytes that it has.
        got: u64,
    },
    /// A file is longer than its shape says.
    #[error("`{}`: {expected} bytes expected for the shape, {got} bytes found", path.display())]
    FileSize {
        /// The file.
        path: PathBuf,
        /// The bytes that it should have.
        expected: u64,
        /// The bytes that it has.
        got: u64,
    },
    /// The header of an `.npy` file cannot be used.
    #[error("`{}`: {problem}", path.display())]
    Npy {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: NpyProblem,
    },
    /// The extension names no known format.
    #[error("`{}`: unknown extension `{got}`, known are {expected}", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
        /// The extensions that would do.
        expected: &'static str,
        /// The extension, empty where there is none.
        got: String,
    },
    /// A format that has no header wants a shape from the caller.
    #[error("`{}`: a raw file needs its shape and element type", path.display())]
    ShapeUnknown {
        /// The file.
        path: PathBuf,
    },
    /// A shape whose size does not fit 64 bits, or the address space.
    #[error("`{}`: shape {got:?} overflows", path.display())]
    Overflow {
        /// The file.
        path: PathBuf,
        /// The shape.
        got: Vec<usize>,
    },
    /// Data of another length than the shape says.
    #[error("`{}`: {expected} elements expected, got {got}", path.display())]
    Elements {
        /// The name.
        path: PathBuf,
        /// The elements that the shape and strides reach.
        expected: usize,
        /// The elements that there are.
        got: usize,
    },
    /// Strides under which two elements of a sink share a place.
    #[error("`{}`: strides {got:?} let elements overlap", path.display())]
    Overlap {
        /// The name.
        path: PathBuf,
        /// The strides, NCHW.
        got: [isize; 4],
    },
    /// A window with another batch or other channels.
    #[error(
        "`{}`: window has batch {} and {} channels, tensor has batch {} and {} channels",
        path.display(), got[0], got[1], expected[0], expected[1]
    )]
    Window {
        /// The name.
        path: PathBuf,
        /// Batch and channels of the tensor.
        expected: [usize; 2],
        /// Batch and channels of the window.
        got: [usize; 2],
    },
    /// A tensor that the host would have to read or write lies in the memory of a device.
    #[error("`{}`: lies on {device}, where the host does not read or write", path.display())]
    OnDevice {
        /// The name.
        path: PathBuf,
        /// The device.
        device: MemoryDevice,
    },
    /// Chunks without elements.
    #[error("`{}`: chunks of {}×{} have no elements", path.display(), got[0], got[1])]
    Chunk {
        /// The name.
        path: PathBuf,
        /// The rows and columns of a chunk.
        got: [usize; 2],
    },
    /// Memory is refused.
    #[error("`{}`: {bytes} bytes could not be had", path.display())]
    OutOfMemory {
        /// The file or the name.
        path: PathBuf,
        /// The bytes that were asked for.
        bytes: u64,
    },
    /// A region that leaves the tensor, or the window.
    #[error("`{}`: region {got} is not inside {expected}", path.display())]
    Region {
        /// The name.
        path: PathBuf,
        /// What the region must lie in.
        expected: Region<2>,
        /// The region.
        got: Region<2>,
    },
    /// A sink finished before, or after more than, every element was written.
    #[error("`{}`: incomplete: {expected} elements expected, {got} written", path.display())]
    Incomplete {
        /// The name.
        path: PathBuf,
        /// The elements of the tensor.
        expected: u64,
        /// The elements written.
        got: u64,
    },
    /// A sink used after it was finished or aborted.
    #[error("`{}`: already finished or aborted", path.display())]
    Closed {
        /// The name.
        path: PathBuf,
    },
    /// A picture cannot be decoded.
    #[error("`{}`: {problem}", path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: PictureProblem,
    },
    /// A picture that takes more memory than allowed, with what decoding it takes.
    #[error("`{}`: picture takes {got} bytes decoded, {expected} bytes allowed", path.display())]
    PictureSize {
        /// The file.
        path: PathBuf,
        /// The bytes allowed.
        expected: u64,
        /// The bytes that it takes.
        got: u64,
    },
    /// A pixel whose class is none of the network's.
    #[error(
        "`{}`: class {got} at row {row}, column {column} of image {image} is none of the {classes} classes from 0 on",
        path.display()
    )]
    Class {
        /// The file, or a name.
        path: PathBuf,
        /// The image of the batch.
        image: usize,
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// The class.
        got: f64,
        /// How many classes there are.
        classes: usize,
    },
    /// A target whose pixels are all of the class that is ignored.
    #[error("`{}`: all {pixels} pixels have the ignored class {ignore_index}, which leaves no loss", path.display())]
    AllIgnored {
        /// The file, or a name.
        path: PathBuf,
        /// How many pixels there are.
        pixels: u64,
        /// The class.
        ignore_index: i64,
    },
    /// A target of class numbers with other than one channel.
    #[error("`{}`: class numbers are one channel, got {got}", path.display())]
    ClassChannels {
        /// The file, or a name.
        path: PathBuf,
        /// The channels.
        got: usize,
    },
    /// A tensor that is no picture.
    #[error("`{}`: a picture has batch 1 and 1 or 3 channels, tensor is {got:?}", path.display())]
    PictureShape {
        /// The file.
        path: PathBuf,
        /// The shape of the tensor, NCHW.
        got: [usize; 4],
    },
    /// A picture of elements that its format does not hold.
    #[error("`{}`: a picture holds u8 or u16, not {got}", path.display())]
    PictureType {
        /// The file.
        path: PathBuf,
        /// The type of the elements.
        got: &'static str,
    },
    /// Factors of channels, of which there are as many as channels or one for all.
    #[error("`{}`: {got} values of {what} for {expected} channels", path.display())]
    Factors {
        /// The name.
        path: PathBuf,
        /// Which factors: `mean`, `std`.
        what: &'static str,
        /// The channels.
        expected: usize,
        /// How many values there are.
        got: usize,
    },
    /// A factor that makes no numbers: a deviation of zero, infinity.
    #[error("`{}`: {what} is {got}, wants {expected}", path.display())]
    Factor {
        /// The name.
        path: PathBuf,
        /// Which factor.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
        /// Its value.
        got: f64,
    },
    /// The largest of one score, which tells nothing.
    #[error("`{}`: the largest of {got} channel is wanted, of at least 2 expected; one channel wants a threshold", path.display())]
    DecisionChannels {
        /// The name.
        path: PathBuf,
        /// The channels.
        got: usize,
    },
    /// A sink of another shape than that of what is decided.
    #[error("`{}`: decisions have shape {expected:?}, the sink for them has {got:?}", path.display())]
    DecisionShape {
        /// The name.
        path: PathBuf,
        /// The shape of the decisions, NCHW.
        expected: [usize; 4],
        /// The shape of the sink, NCHW.
        got: [usize; 4],
    },
    /// A function that stands for a source or a sink fails.
    #[error("`{}`: {source}", path.display())]
    Function {
        /// The name.
        path: PathBuf,
        /// What the function says.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A file of weights that is not well-formed.
    #[error("`{}`: {problem}", path.display())]
    Weights {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: WeightsProblem,
    },
    /// The tensors of a file of weights are not the parameters of the network.
    #[error("`{}`: {source}", path.display())]
    Parameters {
        /// The file.
        path: PathBuf,
        /// Which of them, and what the network wants.
        source: Box<GraphError>,
    },
    /// A tensor of weights with an element type that is not read.
    #[error("`{}`: tensor `{name}` has type {got}, known are F64, F32, F16 and BF16", path.display())]
    WeightType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its element type.
        got: String,
    },
    /// A file without the tensor that is wanted.
    #[error("`{}`: there is no tensor `{name}`, there are {known}", path.display())]
    NoTensor {
        /// The file.
        path: PathBuf,
        /// The tensor that is wanted.
        name: String,
        /// Some of those that are there.
        known: String,
    },
    /// An array without axes, whose rows are wanted.
    #[error("`{}`: an array without axes has no rows", path.display())]
    NoRows {
        /// The file.
        path: PathBuf,
    },
    /// A row that an array does not have.
    #[error("`{}`: there is no row {got}, the array has {rows}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The rows.
        rows: usize,
        /// The row that is wanted.
        got: usize,
    },
    /// An array of elements that are not of the kind that is wanted.
    #[error("`{}`: elements are {got}, {expected} are wanted", path.display())]
    ArrayType {
        /// The file.
        path: PathBuf,
        /// The kind, in words.
        expected: &'static str,
        /// The type of the elements.
        got: String,
    },
    /// A tensor of weights whose data does not fit its shape.
    #[error("`{}`: tensor `{name}` has {got} elements, its shape wants {expected}", path.display())]
    WeightElements {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The elements that its shape wants.
        expected: usize,
        /// The elements that it has.
        got: usize,
    },
    /// A counter of batches that is no count.
    #[error("`{}`: tensor `{name}` is {got}, a counter is a whole number of at least 0 and below 2^63", path.display())]
    WeightCount {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its value.
        got: String,
    },
    /// Finite weights that the element type of the run does not hold.
    #[error("`{}`: {beyond} of {elements} values of tensor `{name}` are finite and beyond {wanted}", path.display())]
    WeightRange {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The element type.
        wanted: &'static str,
        /// The elements of the tensor.
        elements: usize,
        /// Those that would be infinite.
        beyond: usize,
    },
    /// Two tensors of weights with one name.
    #[error("`{}`: tensor `{name}` stands twice", path.display())]
    WeightName {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
}

impl IoError {
    /// The error of a write: a full disk is told apart, so that the message says it.
    pub(crate) fn from_write(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::DiskFull { path, source }
            }
            _ => Self::Write { path, source },
        }
    }

    /// The error of a function that stands for a source or a sink called `name`.
    pub fn from_function(name: impl Into<PathBuf>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Function { path: name.into(), source: source.into() }
    }
}
