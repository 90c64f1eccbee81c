//! What is wrong with the header of a file of weights or of an array.

/// What is wrong with a file of weights.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsProblem {
    /// The file ends before its header does.
    #[error("header takes {expected} bytes, the file has {got}")]
    Truncated {
        /// The bytes of the header and its length.
        expected: u64,
        /// The bytes of the file.
        got: u64,
    },
    /// A header that is longer than any that is honest.
    #[error("header has {got} bytes, at most {expected} are read")]
    HeaderSize {
        /// The bytes that are read at most.
        expected: u64,
        /// The bytes that the file says.
        got: u64,
    },
    /// A header that is no JSON object of tensors.
    #[error("header is malformed: {reason}")]
    Syntax {
        /// What should stand where.
        reason: String,
    },
    /// The bytes of a tensor are not as many as its shape and type take.
    #[error(
        "tensor `{name}` lies in bytes {begin} to {end}, its shape {shape:?} of {dtype} wants {expected} bytes"
    )]
    Size {
        /// The tensor.
        name: String,
        /// Its shape.
        shape: Vec<u64>,
        /// Its element type.
        dtype: String,
        /// The first byte, from the end of the header.
        begin: u64,
        /// The byte after the last.
        end: u64,
        /// The bytes that it should have.
        expected: u64,
    },
    /// A tensor whose size leaves 64 bits.
    #[error("tensor `{name}` of shape {shape:?} overflows")]
    Overflow {
        /// The tensor.
        name: String,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// A tensor that does not begin where the one before it ends: bytes that belong to two, or to none.
    #[error("tensor `{name}` begins at byte {got}, the one before it ends at {expected}")]
    Offset {
        /// The tensor.
        name: String,
        /// Where the tensor before it ends.
        expected: u64,
        /// Where it begins.
        got: u64,
    },
    /// The tensors end before or after the file does.
    #[error("tensors take {expected} bytes, the file has {got}")]
    DataSize {
        /// The bytes of all tensors.
        expected: u64,
        /// The bytes behind the header.
        got: u64,
    },
}

/// What is wrong with the header of an `.npy` file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NpyProblem {
    /// The first six bytes are not `\x93NUMPY`.
    #[error("not an .npy file")]
    Magic,
    /// The bytes end before the header does.
    #[error("npy header is truncated, {expected} bytes expected")]
    Truncated {
        /// The bytes that the header takes, or at least takes.
        expected: u64,
    },
    /// A version other than 1, 2 or 3.
    #[error("npy version {major}.{minor} is unknown, known are 1.0, 2.0 and 3.0")]
    Version {
        /// The major version.
        major: u8,
        /// The minor version.
        minor: u8,
    },
    /// A header that is longer than any that is honest.
    #[error("npy header has {got} bytes, at most {expected} are read")]
    HeaderSize {
        /// The bytes that are read at most.
        expected: u64,
        /// The bytes that the file says.
        got: u64,
    },
    /// A header that is no dictionary of `descr`, `fortran_order` and `shape`.
    #[error("npy header is malformed at byte {offset}: {expected} expected")]
    Syntax {
        /// Where in the header.
        offset: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// A key is missing.
    #[error("npy header has no `{key}`")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A key that the format does not have, or has twice.
    #[error("npy header has an unknown or repeated key `{key}`")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// An element type that is not read.
    #[error(
        "npy type `{got}` is not read, known are `<f2`, `<f4`, `<f8`, `|u1`, `|i1`, `<u2`, `<i2`, `<u4`, `<i4`, `<u8`, `<i8`"
    )]
    Type {
        /// The type.
        got: String,
    },
    /// An element type that the format has no name for.
    #[error("npy has no type for {got} elements")]
    Unnamed {
        /// The type.
        got: &'static str,
    },
    /// Big-endian elements.
    #[error("npy type `{got}` is big-endian, only little-endian is read")]
    BigEndian {
        /// The type.
        got: String,
    },
    /// Elements in column-major order.
    #[error("npy array is in Fortran order, only C order is read")]
    FortranOrder,
    /// An array that is neither HW nor CHW nor NCHW.
    #[error("npy array has {got} axes, wanted are NCHW, CHW or HW")]
    Rank {
        /// The number of axes.
        got: usize,
    },
}
