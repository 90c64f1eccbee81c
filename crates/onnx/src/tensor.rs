//! The constants of a model: their types, where their elements lie, and their elements as another type.

use std::fs::File;
use std::path::Path;

use half::{bf16, f16};
use prost::bytes::Bytes;
use tiled_tensor::{DType, Element, collected, copied, push, with_room};

use crate::external::Folder;
use crate::import::computed::{Computed, Elements, Room, Rooms};
use crate::import::numbers::MAX_NUMBERS;
use crate::proto::TensorProto;
use crate::{Reason, TensorProblem};

/// The constants of a model, by number.
#[derive(Debug, Default)]
pub(crate) struct Tensors {
    all: Vec<TensorProto>,
    /// What [`Tensors::check`] found.
    checked: Vec<Option<Stored>>,
    folder: Folder,
    /// The bytes of elements that were pushed with the tensors, without those in files beside the model.
    given_bytes: u64,
    /// What computing with constants takes.
    rooms: Rooms,
    /// The room of the tensors that were computed.
    computed: Vec<Room>,
}

/// The file that a model was read from.
pub(crate) struct Origin {
    pub(crate) file: File,
    /// For messages.
    pub(crate) name: String,
    /// All of it.
    pub(crate) bytes: Bytes,
}

/// A constant whose elements are where they should be.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: usize,
    kind: Kind,
    place: Place,
}

impl Stored {
    /// Whether its elements are whole numbers.
    pub(crate) const fn is_integer(&self) -> bool {
        !matches!(self.kind, Kind::F32 | Kind::F64 | Kind::F16 | Kind::Bf16)
    }

    /// Whether the model has its elements in doubles.
    pub(crate) const fn is_double(&self) -> bool {
        matches!((self.kind, self.place), (Kind::F64, Place::Raw | Place::Listed | Place::External { .. }))
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// `raw_data`.
    Raw,
    /// One of the lists of numbers.
    Listed,
    External {
        file: usize,
        offset: u64,
    },
    /// Nowhere: all are this number.
    Filled(f64),
}

impl Tensors {
    pub(crate) fn new(folder: Option<&Path>) -> std::io::Result<Self> {
        Ok(Self { folder: Folder::new(folder)?, ..Self::default() })
    }

    pub(crate) fn push(&mut self, tensor: TensorProto) -> usize {
        self.given_bytes = self.given_bytes.saturating_add(element_bytes(&tensor));
        self.all.push(tensor);
        self.checked.push(None);
        self.all.len() - 1
    }

    /// A tensor of floats that are all this number, which takes no memory before its elements are asked for.
    pub(crate) fn push_filled(
        &mut self,
        name: &str,
        dims: Vec<i64>,
        value: f64,
    ) -> Result<usize, TensorProblem> {
        let (shape, elements) = extents(&dims, Kind::F64)?;
        if elements > MAX_FILLED {
            return Err(TensorProblem::Shape { got: dims });
        }
        self.all.push(TensorProto { name: Some(name.to_owned()), dims, ..TensorProto::default() });
        self.checked.push(Some(Stored { shape, elements, kind: Kind::F64, place: Place::Filled(value) }));
        Ok(self.all.len() - 1)
    }

    /// The number that all elements of a tensor are which [`Self::push_filled`] has made.
    pub(crate) fn filled(&self, tensor: usize) -> Option<f64> {
        match self.checked.get(tensor)?.as_ref()?.place {
            Place::Filled(value) => Some(value),
            _ => None,
        }
    }

    /// Room for so many elements of a type of so many bytes that are computed of constants.
    pub(crate) fn room(&self, elements: usize, size_bytes: usize) -> Result<Room, Reason> {
        self.rooms.take(elements, size_bytes, self.bytes_given())
    }

    /// Counts so many elements that are computed where others lie.
    pub(crate) fn work(&self, elements: usize) -> Result<(), Reason> {
        self.rooms.work(elements, self.bytes_given())
    }

    fn bytes_given(&self) -> u64 {
        self.given_bytes.saturating_add(self.folder.len_bytes())
    }

    /// The tensor that computed elements become, once for whoever reads them: in doubles where they were made of some, or are so
    /// few that they may be numbers to compute with, else in singles.
    pub(crate) fn push_computed(&mut self, computed: &Computed) -> Result<usize, Reason> {
        let Elements { name, values, is_double, tensor, .. } = &*computed.elements;
        if let Some(known) = tensor.get() {
            return Ok(known);
        }
        let is_double = *is_double || values.len() <= MAX_NUMBERS;
        let size_bytes = if is_double { size_of::<f64>() } else { size_of::<f32>() };
        let room = self.room(values.len(), size_bytes)?;
        push(&mut self.computed, room)?;
        let proto = TensorProto {
            name: Some(name.clone()),
            dims: computed.shape.iter().map(|extent| i64::try_from(*extent).unwrap_or(i64::MAX)).collect(),
            ..TensorProto::default()
        };
        let proto = if is_double {
            TensorProto { data_type: Some(11), double_data: copied(values)?, ..proto }
        } else {
            let singles = collected(values.iter().map(|value| f32::from_f64(*value)))?;
            TensorProto { data_type: Some(1), float_data: singles, ..proto }
        };
        self.all.push(proto);
        self.checked.push(None);
        tensor.set(Some(self.all.len() - 1));
        Ok(self.all.len() - 1)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn name(&self, tensor: usize) -> &str {
        self.all[tensor].name()
    }

    /// Checks type, shape and the bytes that there are, without reading any element.
    pub(crate) fn check(&mut self, tensor: usize) -> Result<&Stored, TensorProblem> {
        if self.checked[tensor].is_none() {
            let stored = stored(&self.all[tensor], &mut self.folder)?;
            self.checked[tensor] = Some(stored);
        }
        Ok(self.checked[tensor].as_ref().expect("invariant: checked above"))
    }

    /// The number of the type of a constant.
    pub(crate) fn type_of(&self, tensor: usize) -> i32 {
        self.all[tensor].data_type.unwrap_or_default()
    }

    /// Leaves elements in the model's own file, to be read there when they are asked for, so that its bytes may go. Constants that nobody has
    /// checked are asked for by nobody: they go too.
    pub(crate) fn leave_in(&mut self, origin: Origin) {
        let Origin { file, name, bytes } = origin;
        let place = self.folder.add(&name, file, bytes.len() as u64);
        for (proto, stored) in self.all.iter_mut().zip(&mut self.checked) {
            let Some(raw) = proto.raw_data.take() else { continue };
            let Some(Stored { place: at @ Place::Raw, .. }) = stored else { continue };
            // a part of the bytes, which were not copied
            match raw.as_ptr().addr().checked_sub(bytes.as_ptr().addr()) {
                Some(offset) if offset + raw.len() <= bytes.len() => {
                    *at = Place::External { file: place, offset: offset as u64 };
                }
                _ => proto.raw_data = Some(raw),
            }
        }
    }

    /// Gives back the memory of the elements of a tensor that nobody asks for any more.
    pub(crate) fn forget(&mut self, tensor: usize) {
        let TensorProto { raw_data, float_data, int32_data, int64_data, double_data, uint64_data, .. } =
            &mut self.all[tensor];
        *raw_data = None;
        (*float_data, *int32_data, *int64_data) = (Vec::new(), Vec::new(), Vec::new());
        (*double_data, *uint64_data) = (Vec::new(), Vec::new());
    }

    /// The elements of a constant that was checked.
    pub(crate) fn values<T: Element>(&self, tensor: usize) -> Result<Vec<T>, TensorProblem> {
        let stored = self.checked[tensor].as_ref().expect("invariant: who asks for elements has checked");
        let proto = &self.all[tensor];
        let mut values = with_room(stored.elements)?;
        match stored.place {
            Place::Raw => extend(&mut values, stored.kind, proto.raw_data.as_deref().unwrap_or_default()),
            Place::Listed => extend_listed(&mut values, stored.kind, proto),
            Place::Filled(value) => values.resize(stored.elements, T::from_f64(value)),
            Place::External { file, mut offset } => {
                let mut bytes = [0; PIECE_BYTES];
                let mut left = stored.elements * stored.kind.size_bytes();
                while left > 0 {
                    let piece = &mut bytes[..left.min(PIECE_BYTES)];
                    self.folder.file(file).read_at(piece, offset)?;
                    extend(&mut values, stored.kind, piece);
                    offset += piece.len() as u64;
                    left -= piece.len();
                }
            }
        }
        Ok(values)
    }
}

/// The bytes that elements take where they lie in the file, in numbers of at least four where they are listed.
fn element_bytes(tensor: &TensorProto) -> u64 {
    let raw = tensor.raw_data.as_ref().map_or(0, Bytes::len) as u64;
    let four = (tensor.float_data.len() + tensor.int32_data.len()) as u64;
    let eight = (tensor.int64_data.len() + tensor.double_data.len() + tensor.uint64_data.len()) as u64;
    raw.saturating_add(four.saturating_mul(4)).saturating_add(eight.saturating_mul(8))
}

/// A tensor of numbers that an attribute holds, or that an operator makes of few.
pub(crate) fn of_floats(name: &str, dims: Vec<i64>, values: Vec<f32>) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        dims,
        data_type: Some(1),
        float_data: values,
        ..TensorProto::default()
    }
}

/// The same of whole numbers.
pub(crate) fn of_ints(name: &str, dims: Vec<i64>, values: Vec<i64>) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        dims,
        data_type: Some(7),
        int64_data: values,
        ..TensorProto::default()
    }
}

fn stored(proto: &TensorProto, folder: &mut Folder) -> Result<Stored, TensorProblem> {
    let kind = Kind::of(proto.data_type())?;
    let (shape, elements) = extents(&proto.dims, kind)?;
    let expected = (elements * kind.size_bytes()) as u64;
    let fits = |got: u64| {
        if got == expected { Ok(()) } else { Err(TensorProblem::Length { expected, got }) }
    };
    let place = if proto.data_location() == EXTERNAL {
        external(proto, expected, folder)?
    } else if let Some(raw) = &proto.raw_data {
        fits(raw.len() as u64)?;
        Place::Raw
    } else {
        fits((listed(kind, proto) * kind.size_bytes()) as u64)?;
        Place::Listed
    };
    Ok(Stored { shape, elements, kind, place })
}

/// The shape, and how many elements of a type it has: no more than memory has room for, in this type or another.
fn extents(dims: &[i64], kind: Kind) -> Result<(Vec<usize>, usize), TensorProblem> {
    let impossible = || TensorProblem::Shape { got: dims.to_vec() };
    let extents = dims.iter().map(|extent| usize::try_from(*extent).ok());
    let shape: Vec<usize> = extents.collect::<Option<_>>().ok_or_else(impossible)?;
    let elements = shape
        .iter()
        .try_fold(1_usize, |product, extent| product.checked_mul(*extent))
        .ok_or_else(impossible)?;
    let bytes = elements.checked_mul(kind.size_bytes().max(size_of::<f64>()));
    match bytes.map(isize::try_from) {
        Some(Ok(_)) => Ok((shape, elements)),
        _ => Err(impossible()),
    }
}

/// Where elements lie in another file, which was checked to hold them.
fn external(proto: &TensorProto, expected: u64, folder: &mut Folder) -> Result<Place, TensorProblem> {
    let value =
        |key: &str| proto.external_data.iter().find(|entry| entry.key() == key).map(|entry| entry.value());
    let number = |key: &'static str| {
        let wrong = |got: &str| {
            let expected = "a whole number of bytes";
            TensorProblem::External { key, expected, got: got.to_owned() }
        };
        value(key).map(|text| text.parse::<u64>().map_err(|_| wrong(text))).transpose()
    };
    let location = value("location").ok_or_else(|| TensorProblem::External {
        key: "location",
        expected: "a file",
        got: String::new(),
    })?;
    let offset = number("offset")?.unwrap_or(0);
    if let Some(got) = number("length")?
        && got != expected
    {
        return Err(TensorProblem::Length { expected, got });
    }
    let file = folder.open(location)?;
    folder.file(file).check(offset, expected)?;
    Ok(Place::External { file, offset })
}

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    F32,
    U8,
    I8,
    U16,
    I16,
    I32,
    I64,
    Bool,
    F16,
    F64,
    U32,
    U64,
    Bf16,
}

impl Kind {
    const fn of(number: i32) -> Result<Self, TensorProblem> {
        Ok(match number {
            1 => Self::F32,
            2 => Self::U8,
            3 => Self::I8,
            4 => Self::U16,
            5 => Self::I16,
            6 => Self::I32,
            7 => Self::I64,
            9 => Self::Bool,
            10 => Self::F16,
            11 => Self::F64,
            12 => Self::U32,
            13 => Self::U64,
            16 => Self::Bf16,
            _ => return Err(TensorProblem::Type { got: type_name(number) }),
        })
    }

    const fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The value of one element's little-endian bytes.
    fn value(self, bytes: &[u8]) -> f64 {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        let [a, b, c, d, ..] = eight;
        let (two, four) = ([a, b], [a, b, c, d]);
        match self {
            Self::F32 => f32::from_le_bytes(four).into(),
            Self::F64 => f64::from_le_bytes(eight),
            Self::F16 => f16::from_le_bytes(two).to_f64(),
            Self::Bf16 => bf16::from_le_bytes(two).to_f64(),
            Self::U8 | Self::Bool => a.into(),
            Self::I8 => i8::from_le_bytes([a]).into(),
            Self::U16 => u16::from_le_bytes(two).into(),
            Self::I16 => i16::from_le_bytes(two).into(),
            Self::I32 => i32::from_le_bytes(four).into(),
            Self::U32 => u32::from_le_bytes(four).into(),
            Self::I64 => i64::from_le_bytes(eight) as f64,
            Self::U64 => u64::from_le_bytes(eight) as f64,
        }
    }
}

/// Whether elements of this type can be the values of an image.
pub(crate) const fn is_float(number: i32) -> bool {
    matches!(number, 1 | 10 | 11 | 16)
}

/// The name of an element type of ONNX.
pub(crate) const fn type_name(number: i32) -> &'static str {
    match number {
        1 => "float",
        2 => "uint8",
        3 => "int8",
        4 => "uint16",
        5 => "int16",
        6 => "int32",
        7 => "int64",
        8 => "string",
        9 => "bool",
        10 => "float16",
        11 => "double",
        12 => "uint32",
        13 => "uint64",
        14 => "complex64",
        15 => "complex128",
        16 => "bfloat16",
        17 => "float8e4m3fn",
        18 => "float8e4m3fnuz",
        19 => "float8e5m2",
        20 => "float8e5m2fnuz",
        21 => "uint4",
        22 => "int4",
        23 => "float4e2m1",
        24 => "float8e8m0",
        _ => "an unknown one",
    }
}

/// Appends elements of little-endian bytes.
fn extend<T: Element>(values: &mut Vec<T>, kind: Kind, bytes: &[u8]) {
    let elements = bytes.chunks_exact(kind.size_bytes());
    // the bits of a NaN stay where the type does
    if matches!((kind, T::DTYPE), (Kind::F32, DType::F32) | (Kind::F64, DType::F64)) {
        values.extend(elements.map(T::from_le_bytes));
    } else {
        values.extend(elements.map(|element| T::from_f64(kind.value(element))));
    }
}

/// How many elements the list of this type has.
fn listed(kind: Kind, proto: &TensorProto) -> usize {
    match kind {
        Kind::F32 => proto.float_data.len(),
        Kind::F64 => proto.double_data.len(),
        Kind::I64 => proto.int64_data.len(),
        Kind::U32 | Kind::U64 => proto.uint64_data.len(),
        _ => proto.int32_data.len(),
    }
}

fn extend_listed<T: Element>(values: &mut Vec<T>, kind: Kind, proto: &TensorProto) {
    match kind {
        Kind::F32 => values.extend(proto.float_data.iter().map(|value| T::from_f64((*value).into()))),
        Kind::F64 => values.extend(proto.double_data.iter().map(|value| T::from_f64(*value))),
        Kind::I64 => values.extend(proto.int64_data.iter().map(|value| T::from_f64(*value as f64))),
        Kind::U32 | Kind::U64 => {
            values.extend(proto.uint64_data.iter().map(|value| T::from_f64(*value as f64)));
        }
        // each element in a number of its own: its bits where it is a float, else its value
        _ => values.extend(proto.int32_data.iter().map(|value| {
            let bytes = value.to_le_bytes();
            T::from_f64(kind.value(&bytes[..kind.size_bytes()]))
        })),
    }
}

/// The text of bytes that should be text.
pub(crate) fn text(bytes: Option<&Bytes>) -> String {
    String::from_utf8_lossy(bytes.map_or(&[], |bytes| bytes)).into_owned()
}

/// `TensorProto.EXTERNAL`.
const EXTERNAL: i32 = 1;

/// The most elements of a tensor that a file says in one number: more than those of any layer of VGG.
const MAX_FILLED: usize = 1 << 27;

/// The bytes that are read at a time: whole elements of every type.
const PIECE_BYTES: usize = 64 << 10;
