//! Operators on a batch of no images: an empty result, and gradients of zero for the parameters, as PyTorch has them.
//!
//! The engine plans for images that are there.

use std::sync::Arc;

use tiled_graph::{Op, infer_nchw, try_params};
use tiled_kernel::dense::Update;
use tiled_tensor::Element;

use super::calls::{What, is_statistic};
use crate::error::{Result, TapeError};
use crate::function::{Function, Gradients, Saver, apply};
use crate::tensor::Tensor;

/// An operator whose result has no elements.
#[derive(Debug)]
struct Nothing {
    name: &'static str,
    shape: [usize; 4],
}

impl<T: Element> Function<T> for Nothing {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, operands: &[&Tensor<T>], _saver: &mut Saver<T>) -> Result<Vec<Tensor<T>>> {
        Ok(vec![operands[0].context().empty(self.name, &self.shape)?])
    }

    fn backward(&self, gradients: &mut Gradients<'_, '_, T>) -> Result<()> {
        for operand in 0..gradients.flow().operands() {
            gradients.write(operand, |mut to, update| {
                if update == Update::Replace {
                    to.fill(T::ZERO);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The result for a batch of no images, of the shape that those of one image would have; `operands` are the batch, then the parameters that
/// are trained. Shapes are checked as for a batch of one.
pub(super) fn of_none<T: Element>(
    name: &'static str,
    op: &Op,
    [channels, height, width]: [usize; 3],
    operands: &[&Tensor<T>],
) -> Result<Tensor<T>> {
    let failed = TapeError::network(name);
    let graph = What::Operator(op.clone()).graph(name, channels)?;
    let shapes = infer_nchw(&graph, &[[1, channels, height, width]]).map_err(failed)?;
    let specs = try_params(&graph).map_err(failed)?;
    for (spec, given) in specs.iter().filter(|spec| !is_statistic(spec)).zip(&operands[1..]) {
        if given.shape() != spec.shape {
            let (what, expected, got) =
                (spec.kind.suffix(), spec.shape.as_slice().into(), given.shape().into());
            return Err(TapeError::Shape { operator: name, what, expected, got });
        }
    }
    let [_, channels, height, width] = shapes.shape(graph.outputs()[0]);
    let function = Nothing { name, shape: [0, channels, height, width] };
    let result = apply(&Arc::new(function), operands)?.pop();
    result.ok_or_else(|| TapeError::Empty { operator: name, shape: operands[0].shape().into() })
}
