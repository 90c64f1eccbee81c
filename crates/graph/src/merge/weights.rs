//! The weights of merged convolutions.

use std::collections::HashMap;

use tiled_tensor::{Element, collected, filled};

use super::branch::{Cluster, Sum, Term};
use super::window::Taps;
use crate::error::GraphError;
use crate::graph::Graph;
use crate::op::{Conv2d, Elementwise, Op, Operand, WithOperand};
use crate::params::ParamTensor;
use crate::params::own::ParamKind;

/// The tensors of a network by their names.
pub(super) type Tensors<T> = HashMap<String, ParamTensor<T>>;

/// What a merged convolution of this name over so many channels reads.
pub(super) fn of<T: Element>(
    graph: &Graph,
    sum: &Sum,
    cluster: &Cluster,
    given: &Tensors<T>,
    (name, input): (&str, usize),
) -> Result<Vec<ParamTensor<T>>, GraphError> {
    let conv = &cluster.conv;
    let [height, width] = conv.kernel_size.map(extent);
    let shape = vec![conv.out_channels, input / conv.groups, height, width];
    let mut weight = filled(shape.iter().product(), 0.0)?;
    let mut bias = filled(conv.out_channels, 0.0)?;
    for term in &cluster.terms {
        add(graph, &sum.terms[*term], conv, given, (&mut weight, &mut bias))?;
    }
    let rounded = |values: Vec<f64>| collected(values.into_iter().map(T::from_f64));
    let mut tensors = vec![ParamTensor::new(&format!("{name}.weight"), shape, rounded(weight)?)?];
    if conv.bias {
        let shape = vec![conv.out_channels];
        tensors.push(ParamTensor::new(&format!("{name}.bias"), shape, rounded(bias)?)?);
    }
    Ok(tensors)
}

/// Adds the weights and the bias of a term, scaled and shifted.
fn add<T: Element>(
    graph: &Graph,
    term: &Term,
    merged: &Conv2d,
    given: &Tensors<T>,
    (weight, bias): (&mut [f64], &mut [f64]),
) -> Result<(), GraphError> {
    let mut affine = Affine { scale: filled(bias.len(), 1.0)?, shift: filled(bias.len(), 0.0)? };
    for node in &term.affine {
        affine.then(graph, *node, given);
    }
    let window = [0, 1].map(|axis| Taps::of(merged, axis));
    let area = weight_area(merged);
    // of the input channels that an output reads
    let each = weight.len() / bias.len() / area;
    let place = |taps: [Taps; 2], tap: [i64; 2]| {
        let [row, column] = [0, 1].map(|axis| extent(window[axis].place(taps[axis], tap[axis])));
        row * extent(merged.kernel_size[1]) + column
    };
    if let Some(node) = term.conv
        && let Op::Conv2d(conv) = &graph.nodes()[node].op
    {
        let taps = [0, 1].map(|axis| Taps::of(conv, axis));
        let values = &tensor(graph, node, ParamKind::Weight, given).data;
        let (own_area, width) = (weight_area(conv), conv.kernel_size[1]);
        let channels = weight.chunks_mut(area).zip(values.chunks(own_area)).enumerate();
        for (channel, (plane, values)) in channels {
            let scale = affine.scale[channel / each];
            for (tap, value) in (0_i64..).zip(values) {
                plane[place(taps, [tap / width, tap % width])] += scale * value.to_f64();
            }
        }
        if conv.bias {
            let values = &tensor(graph, node, ParamKind::Bias, given).data;
            for ((bias, value), scale) in bias.iter_mut().zip(values).zip(&affine.scale) {
                *bias += scale * value.to_f64();
            }
        }
    } else {
        let tap = place([Taps::ITSELF; 2], [0, 0]);
        for (output, scale) in affine.scale.iter().enumerate() {
            weight[(output * each + output % each) * area + tap] += scale;
        }
    }
    bias.iter_mut().zip(&affine.shift).for_each(|(bias, shift)| *bias += shift);
    Ok(())
}

/// A factor and a number to add for each channel.
struct Affine {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

impl Affine {
    /// This one, then that of a node.
    fn then<T: Element>(&mut self, graph: &Graph, node: usize, given: &Tensors<T>) {
        match &graph.nodes()[node].op {
            Op::BatchNorm(norm) => {
                let [mean, variance] = [
                    tensor(graph, node, ParamKind::RunningMean, given),
                    tensor(graph, node, ParamKind::RunningVar, given),
                ];
                let own = if norm.affine {
                    Some([
                        tensor(graph, node, ParamKind::Weight, given),
                        tensor(graph, node, ParamKind::Bias, given),
                    ])
                } else {
                    None
                };
                self.apply(|channel| {
                    let value = |tensor: &ParamTensor<T>| tensor.data[channel].to_f64();
                    let [gamma, beta] = own.map_or([1.0, 0.0], |own| own.map(value));
                    let scale = gamma / (value(variance) + norm.eps).sqrt();
                    [scale, beta - value(mean) * scale]
                });
            }
            Op::WithOperand(WithOperand { function, operand, reversed }) => {
                let weight = match operand {
                    Operand::Number(_) => None,
                    Operand::Weight => Some(tensor(graph, node, ParamKind::Weight, given)),
                };
                self.apply(|channel| {
                    let value = match operand {
                        Operand::Number(number) => T::from_f64(*number).to_f64(),
                        Operand::Weight => weight.map_or(0.0, |weight| weight.data[channel].to_f64()),
                    };
                    match (function, reversed) {
                        (Elementwise::Mul, _) => [value, 0.0],
                        (Elementwise::Div, _) => [1.0 / value, 0.0],
                        (Elementwise::Sub, false) => [1.0, -value],
                        (Elementwise::Sub, true) => [-1.0, value],
                        _ => [1.0, value],
                    }
                });
            }
            _ => {}
        }
    }

    fn apply(&mut self, of: impl Fn(usize) -> [f64; 2]) {
        for (channel, (scale, shift)) in self.scale.iter_mut().zip(&mut self.shift).enumerate() {
            let [factor, added] = of(channel);
            *scale *= factor;
            *shift = *shift * factor + added;
        }
    }
}

/// The parameter that the node at this position reads, its own or that of a node before it.
pub(super) fn tensor<'t, T>(
    graph: &Graph,
    position: usize,
    kind: ParamKind,
    given: &'t Tensors<T>,
) -> &'t ParamTensor<T> {
    let owner = &graph.nodes()[graph.owner(position, kind)];
    given
        .get(&format!("{}.{}", owner.name, kind.suffix()))
        .expect("invariant: the parameters are those of the network")
}

fn weight_area(conv: &Conv2d) -> usize {
    conv.kernel_size.map(extent).iter().product()
}

/// Extents and places within kernels, which are not negative.
fn extent(extent: i64) -> usize {
    usize::try_from(extent).unwrap_or(0)
}
