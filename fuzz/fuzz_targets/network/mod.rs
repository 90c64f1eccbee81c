//! What every model file must come to.

use tiled_graph::infer;
use tiled_onnx::{Model, OnnxError, TensorProblem, from_bytes};

/// Reads a model; of a network, its shapes and small weights are wanted too.
///
/// # Panics
/// Where an error says nothing, or where parameters are not those of the network, or cannot be read for anything but their range.
pub fn read(bytes: Vec<u8>) {
    match from_bytes(bytes, None) {
        Ok(model) => use_network(&model),
        Err(OnnxError::Refused { refusals }) => {
            assert!(!refusals.is_empty());
            assert!(refusals.iter().all(|refusal| !refusal.to_string().is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn use_network(model: &Model) {
    let shape = |[_, _, height, width]: [Option<usize>; 4]| [height.unwrap_or(13), width.unwrap_or(17)];
    let inputs: Vec<[usize; 2]> = model.inputs.iter().map(|input| shape(input.shape)).collect();
    let _ = infer(&model.graph, 2, &inputs);
    let specs = tiled_graph::params(&model.graph);
    let elements: usize = specs.iter().map(tiled_graph::ParamSpec::elements).fold(0, usize::saturating_add);
    if elements < 1 << 20 {
        match model.weights.parameters::<f32>() {
            Ok(parameters) => assert_eq!(parameters.tensors().len(), specs.len()),
            // of finite numbers in f64
            Err(OnnxError::Tensor { problem: TensorProblem::Beyond { .. }, .. }) => {}
            Err(error) => panic!("what was checked can be read: {error}"),
        }
    }
}
