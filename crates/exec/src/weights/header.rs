//! The header of a `.safetensors` file: eight bytes that hold its length, then a JSON object that names the tensors.
//!
//! ```text
//!   {"conv1.weight":{"dtype":"F32","shape":[16,3,3,3],"data_offsets":[0,1728]}, …}
//! ```
//!
//! Offsets count from the end of the header; the tensors lie one behind the other and fill the file.
//! Source: Hugging Face, safetensors, "Format", 2025.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tiled_tensor::DType;

use crate::file::len_bytes;
use crate::{IoError, WeightsProblem};

/// A tensor of a file.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: String,
    /// Where the elements begin in the file.
    pub(crate) position: u64,
    pub(crate) elements: usize,
}

/// Reads the header and checks it against the length of the file: the tensors in the order of their names.
pub(crate) fn read(path: &Path, file: &mut File) -> Result<Vec<Entry>, IoError> {
    let problem = |problem| IoError::Weights { path: path.to_path_buf(), problem };
    let failed = |source| IoError::Read { path: path.to_path_buf(), source };
    let got = len_bytes(path, file)?;
    if got < LENGTH_BYTES {
        return Err(problem(WeightsProblem::Truncated { expected: LENGTH_BYTES, got }));
    }
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(failed)?;
    let len = u64::from_le_bytes(length);
    let begin = LENGTH_BYTES.saturating_add(len);
    if got < begin {
        return Err(problem(WeightsProblem::Truncated { expected: begin, got }));
    }
    if len > MAX_HEADER_BYTES {
        return Err(problem(WeightsProblem::HeaderSize { expected: MAX_HEADER_BYTES, got: len }));
    }
    // read as a stream: the text of the header is never held
    let mut json = serde_json::Deserializer::from_reader(BufReader::new((&*file).take(len)));
    let tensors = Tensors::deserialize(&mut json).and_then(|tensors| json.end().map(|()| tensors));
    let Tensors { tensors, twice } = tensors.map_err(|error| match error.io_error_kind() {
        Some(kind) => failed(kind.into()),
        None => problem(WeightsProblem::Syntax { reason: error.to_string() }),
    })?;
    if let Some(name) = twice {
        return Err(IoError::WeightName { path: path.to_path_buf(), name });
    }
    check_offsets(&tensors, got - begin).map_err(problem)?;
    let entry = |(name, info): (String, Info)| {
        let extent = |extent: &u64| usize::try_from(*extent).ok();
        let shape: Option<Vec<usize>> = info.shape.0.iter().map(extent).collect();
        let elements = shape
            .as_ref()
            .and_then(|shape| shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent)));
        match (shape, elements) {
            (Some(shape), Some(elements)) => {
                let position = begin + info.data_offsets[0];
                Ok(Entry { name, shape, dtype: info.dtype, position, elements })
            }
            _ => Err(problem(WeightsProblem::Overflow { name, shape: info.shape.0 })),
        }
    };
    tensors.into_iter().map(entry).collect()
}

/// Checks that the tensors have the bytes that they need, lie one behind the other and fill what is behind the header.
fn check_offsets(tensors: &BTreeMap<String, Info>, data_bytes: u64) -> Result<(), WeightsProblem> {
    let mut sorted: Vec<(&String, &Info)> = tensors.iter().collect();
    sorted.sort_by_key(|(_, info)| info.data_offsets);
    let mut expected = 0;
    for (name, info) in sorted {
        let [begin, end] = info.data_offsets;
        if begin != expected {
            return Err(WeightsProblem::Offset { name: name.clone(), expected, got: begin });
        }
        let elements = info.shape.0.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent));
        let overflow = || WeightsProblem::Overflow { name: name.clone(), shape: info.shape.0.clone() };
        let elements = elements.ok_or_else(overflow)?;
        // the size of a type that is not known cannot be checked: the tensor is refused by its type, if it is wanted
        if let Some(bits) = bits(&info.dtype) {
            let bytes = elements.checked_mul(bits).ok_or_else(overflow)?.div_ceil(8);
            if end.checked_sub(begin) != Some(bytes) {
                return Err(WeightsProblem::Size {
                    name: name.clone(),
                    shape: info.shape.0.clone(),
                    dtype: info.dtype.clone(),
                    begin,
                    end,
                    expected: bytes,
                });
            }
        } else if end < begin {
            return Err(WeightsProblem::Offset { name: name.clone(), expected: begin, got: end });
        }
        expected = end;
    }
    if expected != data_bytes {
        return Err(WeightsProblem::DataSize { expected, got: data_bytes });
    }
    Ok(())
}

/// The bits of an element.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// The name of an element type in a header.
pub(super) const fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "F32",
        DType::F64 => "F64",
    }
}

/// What a header says of one tensor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Info {
    pub(super) dtype: String,
    pub(super) shape: Shape,
    pub(super) data_offsets: [u64; 2],
}

/// The header of a new file, with its length before it and padded so that the elements are aligned.
pub(super) fn write(tensors: &[(&str, Info)]) -> Result<Vec<u8>, serde_json::Error> {
    struct Header<'a>(&'a [(&'a str, Info)]);
    impl Serialize for Header<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map(self.0.iter().map(|(name, info)| (name, info)))
        }
    }
    let mut bytes = vec![0; 8];
    serde_json::to_writer(&mut bytes, &Header(tensors))?;
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    let len = bytes.len() as u64 - LENGTH_BYTES;
    bytes[..8].copy_from_slice(&len.to_le_bytes());
    Ok(bytes)
}

/// The tensors by name, and a name that stands twice: JSON leaves open what that means, so that two readers of one file would
/// see two networks.
struct Tensors {
    tensors: BTreeMap<String, Info>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Tensors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfMap;
        impl<'de> Visitor<'de> for OfMap {
            type Value = Tensors;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tensors, A::Error> {
                let mut read = Tensors { tensors: BTreeMap::new(), twice: None };
                let mut has_metadata = false;
                while let Some(name) = map.next_key::<String>()? {
                    let stood = if name == METADATA {
                        map.next_value::<IgnoredAny>()?;
                        std::mem::replace(&mut has_metadata, true)
                    } else {
                        read.tensors.insert(name.clone(), map.next_value()?).is_some()
                    };
                    if stood && read.twice.is_none() {
                        read.twice = Some(name);
                    }
                }
                Ok(read)
            }
        }
        deserializer.deserialize_map(OfMap)
    }
}

/// The extents of a tensor, of which there are few.
#[derive(Debug, Serialize)]
pub(super) struct Shape(pub(super) Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfSeq;
        impl<'de> Visitor<'de> for OfSeq {
            type Value = Shape;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the extents of a tensor")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(extent) = seq.next_element()? {
                    if shape.len() == MAX_AXES {
                        return Err(A::Error::custom(format!("a shape has at most {MAX_AXES} extents")));
                    }
                    shape.push(extent);
                }
                Ok(Shape(shape))
            }
        }
        deserializer.deserialize_seq(OfSeq)
    }
}

/// The key of what is no tensor: free text.
const METADATA: &str = "__metadata__";

/// The bytes that hold the length of the header.
const LENGTH_BYTES: u64 = 8;

/// The longest header that is read, of about 300,000 tensors.
const MAX_HEADER_BYTES: u64 = 32 << 20;

const MAX_AXES: usize = 32;
