//! What a model file holds: a network, and the constants that its parameters are.

use std::fmt;

use tiled_graph::{Graph, ParamSpec, ParamTensor, Parameters};
use tiled_tensor::{Element, filled, transpose, with_room, zeros};

use crate::import::plan::Weight;
use crate::tensor::Tensors;
use crate::{OnnxError, TensorProblem};

/// A network with its weights.
#[derive(Debug)]
#[non_exhaustive]
pub struct Model {
    /// The network.
    pub graph: Graph,
    /// Its weights.
    pub weights: Weights,
    /// Its inputs as the model declares them, in the order of the network.
    pub inputs: Vec<DeclaredInput>,
    /// Its outputs as the model declares them, in the order of the network.
    pub outputs: Vec<DeclaredOutput>,
}

/// An input as a model declares it.
///
/// ```
/// use tiled_onnx::DeclaredInput;
/// let shape = [None, Some(3), None, None];
/// let input = DeclaredInput { name: "x".into(), given: "x".into(), shape, channels_last: false };
/// assert_eq!(input.shape[1], Some(3));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredInput {
    /// The name in the network.
    pub name: String,
    /// The name in the model.
    pub given: String,
    /// Batch, channels, height and width, where the model fixes them.
    pub shape: [Option<usize>; 4],
    /// Whether the model has it as N×H×W×C. The network has N×C×H×W.
    pub channels_last: bool,
}

impl DeclaredInput {
    /// Height and width that the model declares, where the image's are others: what an exporter worked out of a size is a
    /// constant of the model, which nothing tells apart from others.
    ///
    /// ```
    /// use tiled_onnx::DeclaredInput;
    /// let shape = [None, Some(3), Some(192), Some(256)];
    /// let input = DeclaredInput { name: "x".into(), given: "x".into(), shape, channels_last: false };
    /// assert_eq!(input.other_extents([384, 512]), Some([192, 256]));
    /// assert_eq!(input.other_extents([192, 256]), None);
    /// ```
    #[must_use]
    pub fn other_extents(&self, image: [usize; 2]) -> Option<[usize; 2]> {
        match self.shape {
            [_, _, Some(height), Some(width)] if [height, width] != image => Some([height, width]),
            _ => None,
        }
    }
}

/// An output as a model declares it.
///
/// ```
/// use tiled_onnx::DeclaredOutput;
/// let output = DeclaredOutput { given: "scores".into(), channels_last: true };
/// assert!(output.channels_last);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredOutput {
    /// The name in the model.
    pub given: String,
    /// Whether the model has it as N×H×W×C. The network has N×C×H×W.
    pub channels_last: bool,
}

/// The weights of a network, which stay in the file, or its bytes, and in the files beside it until they are asked for.
pub struct Weights {
    specs: Vec<ParamSpec>,
    /// In any order.
    weights: Vec<Weight>,
    tensors: Tensors,
}

impl Weights {
    pub(crate) const fn new(specs: Vec<ParamSpec>, weights: Vec<Weight>, tensors: Tensors) -> Self {
        Self { specs, weights, tensors }
    }

    /// The parameters of the network, by name, and the constants of the model that they are.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.weights.iter().map(|weight| (weight.name.as_str(), self.tensors.name(weight.constant.tensor)))
    }

    /// The parameters of the network, converted to the nearest of `T`.
    ///
    /// # Errors
    /// Where the file or one beside it cannot be read any more, memory is refused, or finite elements are beyond `T`.
    pub fn parameters<T: Element>(&self) -> Result<Parameters<T>, OnnxError> {
        let mut tensors = with_room(self.weights.len())?;
        for weight in &self.weights {
            tensors.push(self.tensor(weight)?);
        }
        Ok(Parameters::new(&self.specs, tensors)?)
    }

    /// The same, where what the model has listed or computed goes as it is converted.
    ///
    /// # Errors
    /// As [`Weights::parameters`].
    pub fn into_parameters<T: Element>(mut self) -> Result<Parameters<T>, OnnxError> {
        let mut readers = filled(self.tensors.len(), 0_usize)?;
        self.weights.iter().for_each(|weight| readers[weight.constant.tensor] += 1);
        let mut tensors = with_room(self.weights.len())?;
        for at in 0..self.weights.len() {
            tensors.push(self.tensor(&self.weights[at])?);
            let tensor = self.weights[at].constant.tensor;
            readers[tensor] -= 1;
            if readers[tensor] == 0 {
                self.tensors.forget(tensor);
            }
        }
        Ok(Parameters::new(&self.specs, tensors)?)
    }

    fn tensor<T: Element>(&self, Weight { name, constant }: &Weight) -> Result<ParamTensor<T>, OnnxError> {
        let failed = |problem| {
            let name = self.tensors.name(constant.tensor).to_owned();
            OnnxError::Tensor { name, problem }
        };
        let values: Vec<T> = self.tensors.values(constant.tensor).map_err(failed)?;
        if values.iter().any(|value| value.to_f64().is_infinite()) {
            let stored: Vec<f64> = self.tensors.values(constant.tensor).map_err(failed)?;
            let is_beyond = |(value, stored): &(&T, &f64)| value.to_f64().is_infinite() && stored.is_finite();
            let beyond = values.iter().zip(&stored).filter(is_beyond);
            let (beyond, elements, wanted) = (beyond.count(), stored.len(), T::DTYPE.name());
            if beyond > 0 {
                return Err(failed(TensorProblem::Beyond { beyond, elements, wanted }));
            }
        }
        let data = match *constant.shape {
            [rows, columns] | [rows, columns, 1, 1] if constant.transposed => {
                let mut turned = zeros(values.len())?;
                transpose(&values, rows, &mut turned, columns, [columns, rows]);
                turned
            }
            _ => values,
        };
        Ok(ParamTensor::new(name, constant.shape.to_vec(), data)?)
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // the elements are not worth reading
        f.debug_struct("Weights").field("specs", &self.specs).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::Model;

    #[test]
    fn a_model_may_go_to_another_thread() {
        const fn goes<T: Send + Sync>() {}
        goes::<Model>();
    }
}
