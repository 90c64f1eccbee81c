//! The tensors of a module in a file, as PyTorch's `state_dict` in safetensors.

use std::collections::BTreeMap;
use std::path::Path;

use tiled_exec::{WeightRef, load_weights, save_weights};
use tiled_graph::ParamTensor;
use tiled_tensor::Element;

use super::{Entry, Parts};
use crate::error::{Result, TapeError};
use crate::tensor::Tensor;

/// All tensors of a module by name.
fn entries<T: Element>(module: &(impl Parts<T> + ?Sized)) -> Vec<(String, Tensor<T>)> {
    let mut entries = Vec::new();
    module.visit("", &mut |entry: Entry<'_, T>| entries.push((entry.name, entry.tensor.clone())));
    entries
}

/// Writes parameters and buffers to a `.safetensors` file, which stands under `path` only when it is complete.
///
/// # Errors
/// Where two entries have one name, and where the file cannot be written.
pub fn save_state<T: Element>(module: &(impl Parts<T> + ?Sized), path: impl AsRef<Path>) -> Result<()> {
    let entries = entries(module);
    let values: Vec<Vec<T>> = entries.iter().map(|(_, tensor)| tensor.to_vec()).collect();
    let refs = entries.iter().zip(&values).map(|((name, tensor), data)| WeightRef {
        name: name.as_str(),
        shape: tensor.shape(),
        data,
    });
    Ok(save_weights(path, refs.collect::<Vec<_>>())?)
}

/// Reads parameters and buffers from a `.safetensors` file, that of a PyTorch module too.
///
/// # Errors
/// Where the file cannot be read, and where entries are missing, misshapen or unknown. Then nothing is changed.
pub fn load_state<T: Element>(module: &(impl Parts<T> + ?Sized), path: impl AsRef<Path>) -> Result<()> {
    set_state(module, load_weights(path)?)
}

/// Takes parameters and buffers from tensors by name.
///
/// # Errors
/// Where entries are missing, misshapen or unknown. Then nothing is changed.
pub fn set_state<T: Element>(module: &(impl Parts<T> + ?Sized), tensors: Vec<ParamTensor<T>>) -> Result<()> {
    let mut given: BTreeMap<String, ParamTensor<T>> =
        tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
    let mut pairs = Vec::new();
    for (name, tensor) in entries(module) {
        let expected = tensor.shape().into();
        let Some(found) = given.remove(&name) else { return Err(TapeError::MissingEntry { name, expected }) };
        if found.shape != tensor.shape() || found.data.len() != tensor.elements() {
            return Err(TapeError::EntryShape { name, expected, got: found.shape.as_slice().into() });
        }
        pairs.push((tensor, found));
    }
    if let Some((name, tensor)) = given.into_iter().next() {
        return Err(TapeError::UnknownEntry { name, got: tensor.shape.as_slice().into() });
    }
    pairs.into_iter().try_for_each(|(tensor, found)| tensor.assign_slice(&found.data))
}
