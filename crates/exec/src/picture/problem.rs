//! What is wrong with a picture.

/// Why a picture cannot be read. Rows count from 0, from the top.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PictureProblem {
    /// The first bytes are those of no known format.
    #[error("neither a PNG nor a JPEG picture")]
    Magic,
    /// The file cannot be read any further.
    #[error("cannot read: {0}")]
    Read(#[source] std::io::Error),
    /// The decoded pixels cannot be written to their temporary file.
    #[error("cannot write its pixels to a temporary file: {0}")]
    Write(#[source] std::io::Error),
    /// A PNG is damaged before its first row.
    #[error("png is damaged before its first row: {source}")]
    PngHeader {
        /// What the format says.
        source: png::DecodingError,
    },
    /// A PNG is damaged.
    #[error("png is damaged at row {row} of {rows}: {source}")]
    PngRow {
        /// The first row that could not be read.
        row: usize,
        /// How many there are.
        rows: usize,
        /// What the format says.
        source: png::DecodingError,
    },
    /// A PNG is damaged behind its last row.
    #[error("png is damaged behind its {rows} rows: {source}")]
    PngEnd {
        /// How many rows there are.
        rows: usize,
        /// What the format says.
        source: png::DecodingError,
    },
    /// A JPEG is damaged outside its pixels.
    #[error("jpeg is damaged at byte {byte}: {damage}")]
    JpegHeader {
        /// Where in the file.
        byte: u64,
        /// How.
        damage: JpegDamage,
    },
    /// A JPEG is damaged where its pixels are.
    #[error("jpeg is damaged at row {row} of {rows}, byte {byte}: {damage}")]
    JpegRow {
        /// The first row of the block that could not be read.
        row: usize,
        /// How many there are.
        rows: usize,
        /// Where in the file.
        byte: u64,
        /// How.
        damage: JpegDamage,
    },
    /// A JPEG that is whole and yet is not decoded.
    #[error("jpeg is not decoded: {reason}")]
    JpegDecoder {
        /// What the decoder says.
        reason: String,
    },
    /// A kind of picture that is not read.
    #[error("{got} is not read, known are {expected}")]
    Kind {
        /// The kinds that are.
        expected: &'static str,
        /// The kind.
        got: &'static str,
    },
    /// Class numbers that cannot come from such a picture.
    #[error("class numbers come from a gray or palette PNG, this is {got}")]
    NoClasses {
        /// What it is.
        got: &'static str,
    },
}

/// How a JPEG is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JpegDamage {
    /// The file ends.
    #[error("the file ends here")]
    End,
    /// There is no marker where one should be.
    #[error("a marker is expected, found is byte {got:#04x}")]
    NoMarker {
        /// What is there.
        got: u8,
    },
    /// A marker that does not belong here.
    #[error("marker {got:#04x} does not belong here")]
    Marker {
        /// The marker.
        got: u8,
    },
    /// The restart markers are not in order.
    #[error("restart marker {expected:#04x} is expected, found is {got:#04x}")]
    Restart {
        /// The one whose turn it is.
        expected: u8,
        /// What is there.
        got: u8,
    },
    /// A segment of another length than its content has.
    #[error("segment {marker:#04x} has a wrong length")]
    Length {
        /// The marker of the segment.
        marker: u8,
    },
    /// A number that the format does not allow.
    #[error("segment {marker:#04x} has a value out of range")]
    Value {
        /// The marker of the segment.
        marker: u8,
    },
    /// Bits that are no code of the table.
    #[error("bits that are no Huffman code")]
    Code,
    /// A table that is used and not there.
    #[error("a table is missing")]
    Table,
    /// More coefficients than a block has.
    #[error("a block of more than 64 coefficients")]
    Block,
    /// A mean of a block that no picture has.
    #[error("a block brighter or darker than any can be")]
    Range,
    /// Zeros where an encoder has something to say.
    #[error("a block of nothing but zero bits")]
    Zeros,
    /// Bits that follow the last block.
    #[error("data behind the last block")]
    Excess,
    /// The blocks end before their number is reached.
    #[error("data ends at marker {got:#04x} before the last block")]
    Short {
        /// The marker.
        got: u8,
    },
    /// A run of empty blocks that goes past the last one.
    #[error("a run of empty blocks past the last block")]
    Run,
    /// The file ends without the data of a component.
    #[error("component {component} has no data")]
    Component {
        /// Its place.
        component: usize,
    },
    /// More scans than an honest file has.
    #[error("more than {expected} scans")]
    Scans {
        /// How many are read.
        expected: usize,
    },
}
