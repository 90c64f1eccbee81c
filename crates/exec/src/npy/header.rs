//! The header of an `.npy` file.

use crate::{ElementType, NpyProblem};

/// What the header of an `.npy` file says.
///
/// ```
/// # use tiled_exec::NpyHeader;
/// # use tiled_tensor::DType;
/// let bytes = NpyHeader::format(&[3, 512, 640], DType::F32).unwrap();
/// let header = NpyHeader::parse(&bytes).unwrap();
/// assert_eq!(header.shape(), [3, 512, 640]);
/// assert_eq!(header.nchw(), Ok([1, 3, 512, 640]));
/// assert_eq!(header.len_bytes(), 128);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    element: ElementType,
    shape: Vec<usize>,
    len_bytes: u64,
}

impl NpyHeader {
    /// The most that is read of a file to find its header: the longest header of version 1.
    pub const MAX_BYTES: u64 = 10 + u16::MAX as u64;

    /// Parses the header at the start of `bytes`.
    ///
    /// `bytes` is the file or its first [`NpyHeader::MAX_BYTES`].
    ///
    /// # Errors
    /// Where it is malformed, or says something that is not read.
    pub fn parse(bytes: &[u8]) -> Result<Self, NpyProblem> {
        let start = MAGIC.len().min(bytes.len());
        if bytes[..start] != MAGIC[..start] {
            return Err(NpyProblem::Magic);
        }
        let version = [at(bytes, 6)?, at(bytes, 7)?];
        let (first, len) = match version {
            [1, 0] => (10, u64::from(u16::from_le_bytes([at(bytes, 8)?, at(bytes, 9)?]))),
            [2 | 3, 0] => {
                let len = [at(bytes, 8)?, at(bytes, 9)?, at(bytes, 10)?, at(bytes, 11)?];
                (12, u64::from(u32::from_le_bytes(len)))
            }
            [major, minor] => return Err(NpyProblem::Version { major, minor }),
        };
        let len_bytes = first as u64 + len;
        if len_bytes > Self::MAX_BYTES {
            return Err(NpyProblem::HeaderSize { expected: Self::MAX_BYTES, got: len_bytes });
        }
        let end = usize::try_from(len_bytes).unwrap_or(usize::MAX);
        let text = bytes.get(first..end).ok_or(NpyProblem::Truncated { expected: len_bytes })?;
        let (element, shape) = Parser { text, offset: 0 }.header()?;
        Ok(Self { element, shape, len_bytes })
    }

    /// The bytes of the header, version 1.0, of an array of little-endian elements in C order.
    ///
    /// Its length is a multiple of 64, so that the elements are aligned.
    ///
    /// # Errors
    /// Where the format has no name for the type: `bf16`.
    ///
    /// # Panics
    /// Where the shape has thousands of axes.
    pub fn format(shape: &[usize], element: impl Into<ElementType>) -> Result<Vec<u8>, NpyProblem> {
        let element = element.into();
        let named = TYPES.iter().find(|(_, known)| *known == element);
        let (descr, _) = named.ok_or(NpyProblem::Unnamed { got: element.name() })?;
        let shape = match shape {
            [extent] => format!("({extent},)"),
            axes => format!("({})", axes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
        };
        let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        let len = (10 + text.len() + 1).next_multiple_of(64);
        text.extend(std::iter::repeat_n(' ', len - 10 - text.len() - 1));
        text.push('\n');
        let text_len = u16::try_from(text.len()).expect("a header is shorter than 64 KiB");
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend(text_len.to_le_bytes());
        bytes.extend(text.as_bytes());
        Ok(bytes)
    }

    /// The extents, as many as the array has axes.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The shape with axes of one before it.
    ///
    /// # Errors
    /// Where the array has fewer than two axes or more than four.
    pub fn nchw(&self) -> Result<[usize; 4], NpyProblem> {
        match *self.shape {
            [n, c, h, w] => Ok([n, c, h, w]),
            [c, h, w] => Ok([1, c, h, w]),
            [h, w] => Ok([1, 1, h, w]),
            _ => Err(NpyProblem::Rank { got: self.shape.len() }),
        }
    }

    /// The bytes before the first element.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The type of the elements.
    #[must_use]
    pub const fn element(&self) -> ElementType {
        self.element
    }
}

const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// What NumPy calls the types of elements.
const TYPES: [(&str, ElementType); 11] = [
    ("<f2", ElementType::F16),
    ("<f4", ElementType::F32),
    ("<f8", ElementType::F64),
    ("|u1", ElementType::U8),
    ("|i1", ElementType::I8),
    ("<u2", ElementType::U16),
    ("<i2", ElementType::I16),
    ("<u4", ElementType::U32),
    ("<i4", ElementType::I32),
    ("<u8", ElementType::U64),
    ("<i8", ElementType::I64),
];

/// No array has more; bounds what a header can make the parser keep.
const MAX_AXES: usize = 64;

fn at(bytes: &[u8], index: usize) -> Result<u8, NpyProblem> {
    bytes.get(index).copied().ok_or(NpyProblem::Truncated { expected: index as u64 + 1 })
}

/// Reads the one kind of dictionary that NumPy writes, in any order and spacing of its keys.
struct Parser<'a> {
    text: &'a [u8],
    offset: usize,
}

impl Parser<'_> {
    fn header(mut self) -> Result<(ElementType, Vec<usize>), NpyProblem> {
        let mut element = None;
        let mut fortran_order = None;
        let mut shape = None;
        self.expect(b'{', "`{`")?;
        while !self.accept(b'}') {
            let key = self.string("a key or `}`")?;
            self.expect(b':', "`:`")?;
            let known = match key.as_str() {
                "descr" if element.is_none() => element.replace(self.element()?).is_none(),
                "fortran_order" if fortran_order.is_none() => {
                    fortran_order.replace(self.boolean()?).is_none()
                }
                "shape" if shape.is_none() => shape.replace(self.shape()?).is_none(),
                _ => false,
            };
            if !known {
                return Err(NpyProblem::UnknownKey { key });
            }
            if !self.accept(b',') {
                self.expect(b'}', "`,` or `}`")?;
                break;
            }
        }
        if self.peek().is_some() {
            return Err(self.error("the end of the header"));
        }
        let element = element.ok_or(NpyProblem::MissingKey { key: "descr" })?;
        let fortran_order = fortran_order.ok_or(NpyProblem::MissingKey { key: "fortran_order" })?;
        let shape = shape.ok_or(NpyProblem::MissingKey { key: "shape" })?;
        if fortran_order {
            return Err(NpyProblem::FortranOrder);
        }
        Ok((element, shape))
    }

    fn element(&mut self) -> Result<ElementType, NpyProblem> {
        if self.peek() == Some(b'[') {
            return Err(NpyProblem::Type { got: "structured".to_owned() });
        }
        let got = self.string("a type")?;
        match TYPES.iter().find(|(name, _)| *name == got) {
            Some((_, element)) => Ok(*element),
            None if got.starts_with('>') => Err(NpyProblem::BigEndian { got }),
            None => Err(NpyProblem::Type { got }),
        }
    }

    fn boolean(&mut self) -> Result<bool, NpyProblem> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if self.text[self.offset..].starts_with(word.as_bytes()) {
                self.offset += word.len();
                return Ok(value);
            }
        }
        Err(self.error("`True` or `False`"))
    }

    fn shape(&mut self) -> Result<Vec<usize>, NpyProblem> {
        let mut shape = Vec::new();
        self.expect(b'(', "`(`")?;
        while !self.accept(b')') {
            if shape.len() == MAX_AXES {
                return Err(self.error("at most 64 axes"));
            }
            shape.push(self.extent()?);
            if !self.accept(b',') {
                self.expect(b')', "`,` or `)`")?;
                break;
            }
        }
        Ok(shape)
    }

    fn extent(&mut self) -> Result<usize, NpyProblem> {
        self.peek();
        let digits = self.text[self.offset..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let extent = std::str::from_utf8(&self.text[self.offset..self.offset + digits])
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| self.error("an extent that fits 64 bits"))?;
        self.offset += digits;
        // Python 2 wrote long integers so.
        if self.text.get(self.offset) == Some(&b'L') {
            self.offset += 1;
        }
        Ok(extent)
    }

    /// A string in single or double quotes, without escapes.
    fn string(&mut self, expected: &'static str) -> Result<String, NpyProblem> {
        let quote = match self.peek() {
            Some(quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.error(expected)),
        };
        let rest = &self.text[self.offset + 1..];
        let len = rest.iter().position(|byte| *byte == quote).ok_or_else(|| self.error("a closing quote"))?;
        self.offset += len + 2;
        Ok(String::from_utf8_lossy(&rest[..len]).into_owned())
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), NpyProblem> {
        if self.accept(byte) { Ok(()) } else { Err(self.error(expected)) }
    }

    fn accept(&mut self, byte: u8) -> bool {
        let accepted = self.peek() == Some(byte);
        self.offset += usize::from(accepted);
        accepted
    }

    /// The next byte that is not a space.
    fn peek(&mut self) -> Option<u8> {
        let spaces = self.text[self.offset..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.offset += spaces;
        self.text.get(self.offset).copied()
    }

    fn error(&self, expected: &'static str) -> NpyProblem {
        NpyProblem::Syntax { offset: self.offset, expected }
    }
}
