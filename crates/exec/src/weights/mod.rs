//! Weights in `.safetensors` files, read and written tensor by tensor through 64 KiB.

pub(crate) mod header;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use half::{bf16, f16};
use tiled_graph::{ParamSpec, ParamTensor, Parameters, is_counter, match_params, wants_tensor};
use tiled_tensor::{DType, Element, OutOfMemory, with_room};

use self::header::{Entry, Info, Shape, dtype_name};
use crate::file::{PartialFile, Positioned, PositionedFile};
use crate::{ElementType, FileSource, IoError, WeightsProblem, WrittenFile};

/// Reads the tensors of a `.safetensors` file, in the order of their names.
///
/// Elements `F64`, `F32`, `F16` and `BF16` are converted to the nearest of `T`, and so are the `I64` of the counters that PyTorch
/// keeps beside the statistics of a batch norm (`….num_batches_tracked`). Beside the tensors that it returns it takes 64 KiB and
/// what the header takes.
///
/// # Errors
/// Where the file cannot be read, is malformed or truncated, names a tensor twice, or has a tensor of another type, finite numbers
/// that become infinite in `T`, or a counter that is no count.
pub fn load_weights<T: Element>(path: impl AsRef<Path>) -> Result<Vec<ParamTensor<T>>, IoError> {
    let file = WeightsFile::open(path.as_ref(), |_| true)?;
    file.tensors.iter().map(|entry| file.tensor(entry)).collect()
}

/// Reads the parameters of a network from a `.safetensors` file, as [`load_weights`] does.
///
/// Names, shapes and types are checked before any element is read. Counters that the network has no use for
/// ([`wants_tensor`]) are left out. A parameter that several nodes read may stand under any of its names, as PyTorch saves such
/// modules, or under several with the same bits in `T`; one of these at a time is held while it is compared.
///
/// # Errors
/// As [`load_weights`], and where the tensors are not those of the network: as [`Parameters::new`].
pub fn load_parameters<T: Element>(
    path: impl AsRef<Path>,
    specs: &[ParamSpec],
) -> Result<Parameters<T>, IoError> {
    let path = path.as_ref();
    let wrong = |source| IoError::Parameters { path: path.to_path_buf(), source: Box::new(source) };
    let file = WeightsFile::open(path, wants_tensor(specs).map_err(wrong)?)?;
    let names = file.tensors.iter().map(|entry| (entry.name.as_str(), entry.shape.as_slice()));
    let matched = match_params(specs, names).map_err(wrong)?;
    let tensors = matched.indices.into_iter().map(|index| file.tensor(&file.tensors[index]));
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    for (param, copy) in matched.copies {
        tensors[param].check_copy(&file.tensor(&file.tensors[copy])?).map_err(wrong)?;
    }
    Parameters::new(specs, tensors).map_err(wrong)
}

/// A tensor to be saved, which somebody else holds.
#[derive(Clone, Copy, Debug)]
pub struct WeightRef<'a, T> {
    /// The name.
    pub name: &'a str,
    /// The shape.
    pub shape: &'a [usize],
    /// The elements, in row-major order.
    pub data: &'a [T],
}

impl<'a, T> From<&'a ParamTensor<T>> for WeightRef<'a, T> {
    fn from(tensor: &'a ParamTensor<T>) -> Self {
        Self { name: &tensor.name, shape: &tensor.shape, data: &tensor.data }
    }
}

/// Writes tensors to a `.safetensors` file, as `T`; counters (`….num_batches_tracked`) as `I64`, as PyTorch does.
///
/// The file stands under `path` only when it is complete; what stood there before is replaced at once. The elements are written
/// from where they lie: it takes 64 KiB and what the header takes.
///
/// # Errors
/// Where two tensors have one name, the elements of one do not fit its shape, a counter is no whole number of at least zero, and
/// where the file cannot be written.
pub fn save_weights<'a, T: Element>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = impl Into<WeightRef<'a, T>>>,
) -> Result<(), IoError> {
    write_weights(path, tensors)?.finish()
}

/// Writes tensors as [`save_weights`] does, and leaves it to the caller when the file takes its name.
///
/// # Errors
/// As [`save_weights`].
pub fn write_weights<'a, T: Element>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = impl Into<WeightRef<'a, T>>>,
) -> Result<WrittenFile, IoError> {
    let path = path.as_ref();
    let mut tensors: Vec<WeightRef<'a, T>> = tensors.into_iter().map(Into::into).collect();
    tensors.sort_by_key(|tensor| tensor.name);
    check(path, &tensors)?;
    // counters first: readers that map the file want elements of eight bytes where eight divides
    tensors.sort_by_key(|tensor| !is_counter(tensor.name));
    let mut end = 0;
    let described = tensors.iter().map(|tensor| {
        let begin = end;
        let counts = is_counter(tensor.name);
        end += (tensor.data.len() * if counts { size_of::<i64>() } else { size_of::<T>() }) as u64;
        let shape = Shape(tensor.shape.iter().map(|extent| *extent as u64).collect());
        let dtype = if counts { COUNTER_TYPE } else { dtype_name(T::DTYPE) };
        (tensor.name, Info { dtype: dtype.to_owned(), shape, data_offsets: [begin, end] })
    });
    let header = header::write(&described.collect::<Vec<_>>()).map_err(|error| IoError::Weights {
        path: path.to_path_buf(),
        problem: WeightsProblem::Syntax { reason: error.to_string() },
    })?;
    let file = PartialFile::create(path, header.len() as u64 + end)?;
    let mut stream = file.stream();
    let mut write =
        |bytes: &[u8]| stream.write_all(bytes).map_err(|source| IoError::from_write(path, source));
    write(&header)?;
    let mut bytes = Vec::with_capacity(BUFFER_BYTES);
    for tensor in &tensors {
        for elements in tensor.data.chunks(BUFFER_BYTES / size_of::<i64>()) {
            bytes.clear();
            if is_counter(tensor.name) {
                let counts = elements.iter().flat_map(|element| count(element.to_f64()));
                bytes.extend(counts.flat_map(i64::to_le_bytes));
            } else {
                T::extend_le_bytes(elements, &mut bytes);
            }
            write(&bytes)?;
        }
    }
    WrittenFile::of(file)
}

/// A file of weights whose header has been checked.
struct WeightsFile<'p> {
    path: &'p Path,
    file: PositionedFile,
    /// In the order of their names.
    tensors: Vec<Entry>,
}

impl<'p> WeightsFile<'p> {
    /// Opens a file for those of its tensors whose names are wanted.
    fn open(path: &'p Path, is_wanted: impl Fn(&str) -> bool) -> Result<Self, IoError> {
        let mut file: File = FileSource::open(path)?;
        let mut tensors = header::read(path, &mut file)?;
        tensors.retain(|entry| is_wanted(&entry.name));
        if let Some(entry) = tensors.iter().find(|entry| Format::of(entry).is_none()) {
            let (name, got) = (entry.name.clone(), entry.dtype.clone());
            return Err(IoError::WeightType { path: path.to_path_buf(), name, got });
        }
        Ok(Self { path, file: PositionedFile::new(file), tensors })
    }

    /// Reads a tensor.
    fn tensor<T: Element>(&self, entry: &Entry) -> Result<ParamTensor<T>, IoError> {
        let refused = |OutOfMemory { bytes }| IoError::OutOfMemory { path: self.path.to_path_buf(), bytes };
        let mut data: Vec<T> = with_room(entry.elements).map_err(refused)?;
        let format = Format::of(entry).expect("invariant: types were checked when the file was opened");
        let size = format.size_bytes();
        let mut buffer = [0; BUFFER_BYTES];
        let (mut position, mut beyond) = (entry.position, 0);
        while data.len() < entry.elements {
            let count = (entry.elements - data.len()).min(BUFFER_BYTES / size);
            let bytes = &mut buffer[..count * size];
            self.file
                .read_at(bytes, position)
                .map_err(|source| IoError::Read { path: self.path.to_path_buf(), source })?;
            format.decode(bytes, &mut data);
            beyond += format.beyond::<T>(bytes);
            position += bytes.len() as u64;
        }
        if beyond > 0 {
            let (path, name) = (self.path.to_path_buf(), entry.name.clone());
            let (wanted, elements) = (ElementType::from(T::DTYPE).name(), entry.elements);
            return Err(IoError::WeightRange { path, name, wanted, elements, beyond });
        }
        if is_counter(&entry.name) {
            check_counts(self.path, &entry.name, &data)?;
        }
        Ok(ParamTensor { name: entry.name.clone(), shape: entry.shape.clone(), data })
    }
}

/// The element types that are read.
#[derive(Clone, Copy, Debug)]
enum Format {
    F64,
    F32,
    F16,
    Bf16,
    /// Of counters alone.
    I64,
}

impl Format {
    fn of(entry: &Entry) -> Option<Self> {
        Some(match entry.dtype.as_str() {
            "F64" => Self::F64,
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            COUNTER_TYPE if is_counter(&entry.name) => Self::I64,
            _ => return None,
        })
    }

    const fn size_bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Appends elements.
    fn decode<T: Element>(self, bytes: &[u8], data: &mut Vec<T>) {
        match (self, T::DTYPE) {
            // bit for bit, whatever NaN it is
            (Self::F64, DType::F64) | (Self::F32, DType::F32) => {
                data.extend(bytes.chunks_exact(size_of::<T>()).map(T::from_le_bytes));
            }
            (Self::F64, _) => convert(bytes, data, f64::from_le_bytes),
            (Self::F32, _) => convert(bytes, data, |element| f32::from_le_bytes(element).into()),
            (Self::F16, _) => convert(bytes, data, |element| f16::from_le_bytes(element).to_f64()),
            (Self::Bf16, _) => convert(bytes, data, |element| bf16::from_le_bytes(element).to_f64()),
            (Self::I64, _) => convert(bytes, data, |element| lossy(i64::from_le_bytes(element))),
        }
    }

    /// The finite elements that are infinite in `T`: of all types that are read, only f64 has any.
    fn beyond<T: Element>(self, bytes: &[u8]) -> usize {
        let Self::F64 = self else { return 0 };
        let (elements, _) = bytes.as_chunks();
        let values = elements.iter().map(|element| f64::from_le_bytes(*element));
        values.filter(|value| value.is_finite() && !T::from_f64(*value).to_f64().is_finite()).count()
    }
}

fn convert<T: Element, const SIZE: usize>(
    bytes: &[u8],
    data: &mut Vec<T>,
    value: impl Fn([u8; SIZE]) -> f64,
) {
    let (elements, _) = bytes.as_chunks::<SIZE>();
    data.extend(elements.iter().map(|element| T::from_f64(value(*element))));
}

/// Checks tensors to be saved, in the order of their names.
fn check<T: Element>(path: &Path, tensors: &[WeightRef<'_, T>]) -> Result<(), IoError> {
    if let Some(twice) = tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(IoError::WeightName { path: path.to_path_buf(), name: twice[0].name.to_owned() });
    }
    for tensor in tensors {
        let expected = tensor
            .shape
            .iter()
            .try_fold(1_usize, |product, extent| product.checked_mul(*extent))
            .ok_or_else(|| IoError::Overflow { path: path.to_path_buf(), got: tensor.shape.to_vec() })?;
        let got = tensor.data.len();
        if expected != got {
            let (path, name) = (path.to_path_buf(), tensor.name.to_owned());
            return Err(IoError::WeightElements { path, name, expected, got });
        }
        if is_counter(tensor.name) {
            check_counts(path, tensor.name, tensor.data)?;
        }
    }
    Ok(())
}

/// The element type of counters.
const COUNTER_TYPE: &str = "I64";

fn check_counts<T: Element>(path: &Path, name: &str, data: &[T]) -> Result<(), IoError> {
    match data.iter().find(|element| count(element.to_f64()).is_none()) {
        None => Ok(()),
        Some(got) => {
            let (path, name) = (path.to_path_buf(), name.to_owned());
            Err(IoError::WeightCount { path, name, got: got.to_f64().to_string() })
        }
    }
}

/// The number of batches that a counter holds.
fn count(value: f64) -> Option<i64> {
    // the first number that an I64 does not hold
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and in the range")]
    (value.fract() == 0.0 && (0.0..BEYOND).contains(&value)).then_some(value as i64)
}

#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 are the nearest number, as others are")]
fn lossy(count: i64) -> f64 {
    count as f64
}

const BUFFER_BYTES: usize = 64 << 10;
