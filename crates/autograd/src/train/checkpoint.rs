//! Training in one file: parameters and buffers, the state of the optimiser, steps, random numbers.

use std::collections::BTreeMap;
use std::path::Path;

use tiled_exec::{WeightRef, load_weights, save_weights};
use tiled_graph::ParamTensor;
use tiled_tensor::Element;

use super::Optimizer;
use crate::context::Context;
use crate::error::{Result, TapeError};
use crate::nn::{Entry, Parts, set_state};

const MODEL: &str = "model.";
const OPTIMIZER: &str = "optimizer.";
const STEPS: &str = "training.steps";
const GENERATOR: &str = "training.generator";

/// Writes all that training goes on from to a `.safetensors` file, which stands under `path` only when it is complete: until then what
/// stood there before. `steps` is how many there were, for the schedule.
///
/// # Errors
/// Where two entries have one name, and where the file cannot be written.
pub fn save_checkpoint<T: Element>(
    path: impl AsRef<Path>,
    context: &Context<T>,
    module: &(impl Parts<T> + ?Sized),
    optimizer: &Optimizer<T>,
    steps: u64,
) -> Result<()> {
    let mut entries: Vec<(String, Vec<usize>, Vec<T>)> = Vec::new();
    module.visit("", &mut |entry: Entry<'_, T>| {
        let name = format!("{MODEL}{}", entry.name);
        entries.push((name, entry.tensor.shape().to_vec(), entry.tensor.to_vec()));
    });
    for (name, state, rate) in optimizer.states() {
        let mut add = |what: &str, values: Vec<T>| {
            entries.push((format!("{OPTIMIZER}{name}.{what}"), vec![values.len()], values));
        };
        add("steps", pieces(u64::try_from(state.steps).unwrap_or(0)));
        add("rate", pieces(rate.to_bits()));
        for (kind, tensors) in state.tensors {
            if let Some(values) = tensors.first() {
                add(kind, values.clone());
            }
        }
    }
    entries.push((STEPS.to_owned(), vec![4], pieces(steps)));
    let generator: Vec<T> = context.generator_state().into_iter().flat_map(pieces).collect();
    entries.push((GENERATOR.to_owned(), vec![generator.len()], generator));
    let refs: Vec<_> = entries.iter().map(|(name, shape, data)| WeightRef { name, shape, data }).collect();
    Ok(save_weights(path, refs)?)
}

/// Goes on from a file of [`save_checkpoint`]; how many steps there were.
///
/// # Errors
/// Where the file cannot be read, and where entries are missing, misshapen or unknown. Then nothing is changed.
pub fn load_checkpoint<T: Element>(
    path: impl AsRef<Path>,
    context: &Context<T>,
    module: &(impl Parts<T> + ?Sized),
    optimizer: &mut Optimizer<T>,
) -> Result<u64> {
    let (mut model, mut others) = (Vec::new(), BTreeMap::new());
    for tensor in load_weights::<T>(path)? {
        match tensor.name.strip_prefix(MODEL) {
            Some(name) => model.push(ParamTensor { name: name.to_owned(), ..tensor }),
            None => {
                others.insert(tensor.name.clone(), tensor);
            }
        }
    }
    let mut take = |name: String, len: usize| -> Result<Vec<T>> {
        match others.remove(&name) {
            Some(tensor) if tensor.data.len() == len => Ok(tensor.data),
            Some(tensor) => {
                let (expected, got) = ([len].as_slice().into(), tensor.shape.as_slice().into());
                Err(TapeError::EntryShape { name, expected, got })
            }
            None => Err(TapeError::MissingEntry { name, expected: [len].as_slice().into() }),
        }
    };
    let steps = whole(&take(STEPS.to_owned(), 4)?);
    let generator = take(GENERATOR.to_owned(), 24)?;
    let lens: Vec<usize> = optimizer.parameters().iter().map(|parameter| parameter.elements()).collect();
    let mut states = Vec::with_capacity(lens.len());
    for ((name, state, _), len) in optimizer.states().zip(lens) {
        let own = i32::try_from(whole(&take(format!("{OPTIMIZER}{name}.steps"), 4)?)).unwrap_or(i32::MAX);
        let rate = f64::from_bits(whole(&take(format!("{OPTIMIZER}{name}.rate"), 4)?));
        let mut tensors = Vec::new();
        for (kind, _) in &state.tensors {
            // before the first step there is none
            if own > 0 {
                tensors.push(take(format!("{OPTIMIZER}{name}.{kind}"), len)?);
            }
        }
        states.push((own, tensors, rate));
    }
    if let Some((name, tensor)) = others.into_iter().next() {
        return Err(TapeError::UnknownEntry { name, got: tensor.shape.as_slice().into() });
    }
    set_state(module, model)?;
    optimizer.set_states(states)?;
    context.set_generator_state(std::array::from_fn(|at| whole(&generator[4 * at..4 * at + 4])));
    Ok(steps)
}

/// 64 bits as four numbers of 16 bits, which every element type holds.
fn pieces<T: Element>(bits: u64) -> Vec<T> {
    (0..4)
        .map(|piece| T::from_f64(f64::from(u16::try_from(bits >> (16 * piece) & 0xffff).unwrap_or(0))))
        .collect()
}

fn whole<T: Element>(pieces: &[T]) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "16 bits of a number")]
    pieces.iter().rev().fold(0, |bits, piece| bits << 16 | u64::from(piece.to_f64() as u16))
}
