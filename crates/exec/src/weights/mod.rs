//! Weights in `.safetensors` files.

mod half;

use std::borrow::Cow;
use std::io::{Read, Write};
use std::path::Path;

use safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use tiled_graph::ParamTensor;
use tiled_tensor::{DType, Element};

use crate::IoError;
use crate::file::{PartialFile, open_regular};

/// Reads the tensors of a `.safetensors` file, in the order of their names.
///
/// Elements `F64`, `F32`, `F16` and `BF16` are converted to the nearest of `T`. The counters that PyTorch keeps
/// beside the statistics of a batch norm (`….num_batches_tracked`, integers) are left out.
///
/// # Errors
/// Where the file cannot be read, is malformed or truncated, or has a tensor of another type.
pub fn load_weights<T: Element>(path: impl AsRef<Path>) -> Result<Vec<ParamTensor<T>>, IoError> {
    let path = path.as_ref();
    let mut bytes = Vec::new();
    let read = open_regular(path)?.read_to_end(&mut bytes);
    read.map_err(|source| IoError::Read { path: path.to_path_buf(), source })?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|source| IoError::Weights { path: path.to_path_buf(), source })?;
    let mut tensors = Vec::with_capacity(file.len());
    for (name, tensor) in file.iter() {
        if name.ends_with(COUNTER) {
            continue;
        }
        let data = decode(tensor.dtype(), tensor.data()).ok_or_else(|| IoError::WeightType {
            path: path.to_path_buf(),
            name: name.to_owned(),
            got: tensor.dtype().to_string(),
        })?;
        tensors.push(ParamTensor { name: name.to_owned(), shape: tensor.shape().to_vec(), data });
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

/// Writes tensors to a `.safetensors` file, as `T`.
///
/// The file stands under `path` only when it is complete; what stood there before is replaced at once.
///
/// # Errors
/// Where two tensors have one name, the elements of one do not fit its shape, and where the file cannot be
/// written.
pub fn save_weights<T: Element>(path: impl AsRef<Path>, tensors: &[ParamTensor<T>]) -> Result<(), IoError> {
    let path = path.as_ref();
    check(path, tensors)?;
    let named = tensors.iter().map(|tensor| (tensor.name.as_str(), Stored(tensor)));
    let bytes = safetensors::serialize(named, None).map_err(|source| match source {
        SafeTensorError::IoError(source) => IoError::from_write(path, source),
        source => IoError::Weights { path: path.to_path_buf(), source },
    })?;
    let file = PartialFile::create(path, bytes.len() as u64)?;
    file.stream().write_all(&bytes).map_err(|source| IoError::from_write(path, source))?;
    file.finish()
}

const COUNTER: &str = ".num_batches_tracked";

fn check<T>(path: &Path, tensors: &[ParamTensor<T>]) -> Result<(), IoError> {
    let mut names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(IoError::WeightName { path: path.to_path_buf(), name: twice[0].to_owned() });
    }
    for tensor in tensors {
        let expected = tensor
            .shape
            .iter()
            .try_fold(1_usize, |product, extent| product.checked_mul(*extent))
            .ok_or_else(|| IoError::Overflow { path: path.to_path_buf(), got: tensor.shape.clone() })?;
        let got = tensor.data.len();
        if expected != got {
            let (path, name) = (path.to_path_buf(), tensor.name.clone());
            return Err(IoError::WeightElements { path, name, expected, got });
        }
    }
    Ok(())
}

fn decode<T: Element>(dtype: Dtype, bytes: &[u8]) -> Option<Vec<T>> {
    let matches = match T::DTYPE {
        DType::F32 => dtype == Dtype::F32,
        DType::F64 => dtype == Dtype::F64,
    };
    if matches {
        return Some(bytes.chunks_exact(size_of::<T>()).map(T::from_le_bytes).collect());
    }
    match dtype {
        Dtype::F64 => Some(convert(bytes, f64::from_le_bytes)),
        Dtype::F32 => Some(convert(bytes, |element| f32::from_le_bytes(element).into())),
        Dtype::F16 => Some(convert(bytes, |element| half::f16_to_f64(u16::from_le_bytes(element)))),
        Dtype::BF16 => Some(convert(bytes, |element| half::bf16_to_f64(u16::from_le_bytes(element)))),
        _ => None,
    }
}

fn convert<T: Element, const SIZE: usize>(bytes: &[u8], value: impl Fn([u8; SIZE]) -> f64) -> Vec<T> {
    let (elements, _) = bytes.as_chunks::<SIZE>();
    elements.iter().map(|element| T::from_f64(value(*element))).collect()
}

/// A tensor as the writer wants it.
struct Stored<'a, T>(&'a ParamTensor<T>);

impl<T: Element> View for Stored<'_, T> {
    fn dtype(&self) -> Dtype {
        match T::DTYPE {
            DType::F32 => Dtype::F32,
            DType::F64 => Dtype::F64,
        }
    }
    fn shape(&self) -> &[usize] {
        &self.0.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = Vec::with_capacity(self.data_len());
        T::extend_le_bytes(&self.0.data, &mut bytes);
        bytes.into()
    }
    fn data_len(&self) -> usize {
        size_of_val(self.0.data.as_slice())
    }
}
