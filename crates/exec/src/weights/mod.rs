//! Weights in `.safetensors` files, read and written tensor by tensor through 64 KiB.

mod half;
mod header;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use tiled_graph::{ParamSpec, ParamTensor, Parameters, match_params};
use tiled_tensor::{DType, Element, OutOfMemory, with_room};

use self::header::{Entry, Info, Shape, dtype_name};
use crate::file::{PartialFile, Positioned, PositionedFile};
use crate::{FileSource, IoError, WeightsProblem};

/// Reads the tensors of a `.safetensors` file, in the order of their names.
///
/// Elements `F64`, `F32`, `F16` and `BF16` are converted to the nearest of `T`. The counters that PyTorch keeps
/// beside the statistics of a batch norm (`….num_batches_tracked`, integers) are left out. Beside the tensors that it returns it
/// takes 64 KiB and what the header takes.
///
/// # Errors
/// Where the file cannot be read, is malformed or truncated, names a tensor twice, or has a tensor of another type.
pub fn load_weights<T: Element>(path: impl AsRef<Path>) -> Result<Vec<ParamTensor<T>>, IoError> {
    let file = WeightsFile::open(path.as_ref())?;
    file.tensors.iter().map(|entry| file.tensor(entry)).collect()
}

/// Reads the parameters of a network from a `.safetensors` file, as [`load_weights`] does.
///
/// Names, shapes and types are checked before any element is read.
///
/// # Errors
/// As [`load_weights`], and where the tensors are not those of the network: as [`Parameters::new`].
pub fn load_parameters<T: Element>(
    path: impl AsRef<Path>,
    specs: &[ParamSpec],
) -> Result<Parameters<T>, IoError> {
    let path = path.as_ref();
    let file = WeightsFile::open(path)?;
    let wrong = |source| IoError::Parameters { path: path.to_path_buf(), source: Box::new(source) };
    let names = file.tensors.iter().map(|entry| (entry.name.as_str(), entry.shape.as_slice()));
    let places = match_params(specs, names).map_err(wrong)?;
    let tensors = places.into_iter().map(|place| file.tensor(&file.tensors[place]));
    Parameters::new(specs, tensors.collect::<Result<_, _>>()?).map_err(wrong)
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

/// Writes tensors to a `.safetensors` file, as `T`.
///
/// The file stands under `path` only when it is complete; what stood there before is replaced at once. The elements are written
/// from where they lie: it takes 64 KiB and what the header takes.
///
/// # Errors
/// Where two tensors have one name, the elements of one do not fit its shape, and where the file cannot be
/// written.
pub fn save_weights<'a, T: Element>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = impl Into<WeightRef<'a, T>>>,
) -> Result<(), IoError> {
    let path = path.as_ref();
    let mut tensors: Vec<WeightRef<'a, T>> = tensors.into_iter().map(Into::into).collect();
    tensors.sort_by_key(|tensor| tensor.name);
    check(path, &tensors)?;
    let mut end = 0;
    let described = tensors.iter().map(|tensor| {
        let begin = end;
        end += size_of_val(tensor.data) as u64;
        let shape = Shape(tensor.shape.iter().map(|extent| *extent as u64).collect());
        (tensor.name, Info { dtype: dtype_name(T::DTYPE).to_owned(), shape, data_offsets: [begin, end] })
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
        for elements in tensor.data.chunks(BUFFER_BYTES / size_of::<T>()) {
            bytes.clear();
            T::extend_le_bytes(elements, &mut bytes);
            write(&bytes)?;
        }
    }
    file.finish()
}

/// A file of weights whose header has been checked.
struct WeightsFile<'p> {
    path: &'p Path,
    file: PositionedFile,
    /// In the order of their names, without counters.
    tensors: Vec<Entry>,
}

impl<'p> WeightsFile<'p> {
    fn open(path: &'p Path) -> Result<Self, IoError> {
        let mut file: File = FileSource::open(path)?;
        let mut tensors = header::read(path, &mut file)?;
        tensors.retain(|entry| !entry.name.ends_with(COUNTER));
        if let Some(entry) = tensors.iter().find(|entry| Format::named(&entry.dtype).is_none()) {
            let (name, got) = (entry.name.clone(), entry.dtype.clone());
            return Err(IoError::WeightType { path: path.to_path_buf(), name, got });
        }
        Ok(Self { path, file: PositionedFile::new(file), tensors })
    }

    /// Reads a tensor.
    fn tensor<T: Element>(&self, entry: &Entry) -> Result<ParamTensor<T>, IoError> {
        let refused = |OutOfMemory { bytes }| IoError::OutOfMemory { path: self.path.to_path_buf(), bytes };
        let mut data: Vec<T> = with_room(entry.elements).map_err(refused)?;
        let format =
            Format::named(&entry.dtype).expect("invariant: types were checked when the file was opened");
        let size = format.size_bytes();
        let mut buffer = [0; BUFFER_BYTES];
        let mut position = entry.position;
        while data.len() < entry.elements {
            let count = (entry.elements - data.len()).min(BUFFER_BYTES / size);
            let bytes = &mut buffer[..count * size];
            self.file
                .read_at(bytes, position)
                .map_err(|source| IoError::Read { path: self.path.to_path_buf(), source })?;
            format.decode(bytes, &mut data);
            position += bytes.len() as u64;
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
}

impl Format {
    fn named(dtype: &str) -> Option<Self> {
        Some(match dtype {
            "F64" => Self::F64,
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            _ => return None,
        })
    }

    const fn size_bytes(self) -> usize {
        match self {
            Self::F64 => 8,
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
            (Self::F16, _) => convert(bytes, data, |element| half::f16_to_f64(u16::from_le_bytes(element))),
            (Self::Bf16, _) => convert(bytes, data, |element| half::bf16_to_f64(u16::from_le_bytes(element))),
        }
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
fn check<T>(path: &Path, tensors: &[WeightRef<'_, T>]) -> Result<(), IoError> {
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
    }
    Ok(())
}

const COUNTER: &str = ".num_batches_tracked";

const BUFFER_BYTES: usize = 64 << 10;
