//! Convolution and its gradients.

use tiled_geometry::Region;
use tiled_tensor::{Element, View, ViewMut};

use super::{activation, fill, readers, receptive, require, taps, touched};
use crate::{Conv, Epilogue};

/// The geometry and parameters of a convolution.
pub(super) struct Params<'a, T> {
    conv: &'a Conv,
    weight: &'a [T],
    bias: &'a [T],
    /// The factors of each channel, then what is added to their products.
    affine: [&'a [T]; 2],
    epilogue: Epilogue,
}

impl<'a, T: Element> Params<'a, T> {
    /// From parameters that lie one after another.
    pub(super) fn new(conv: &'a Conv, channels: usize, packed: &'a [T], epilogue: Epilogue) -> Self {
        let (weight, rest) = packed.split_at(conv.weight_len());
        let (bias, rest) = rest.split_at(if epilogue.bias { channels } else { 0 });
        let (scale, shift) = rest.split_at(if epilogue.affine { channels } else { 0 });
        Self { conv, weight, bias, affine: [scale, shift], epilogue }
    }

    /// What follows a sum, step by step.
    fn finish(&self, sum: T, others: &Others<'_, T>, [n, channel]: [usize; 2], [y, x]: [i64; 2]) -> T {
        let mut value = if self.epilogue.bias { sum + self.bias[channel] } else { sum };
        if self.epilogue.affine {
            let [scale, shift] = self.affine.map(|values| values[channel]);
            value = value.mul_add(scale, shift);
        }
        if let Some(added) = others.sum {
            value += added.get(n, channel, y, x);
        }
        if let Some(function) = self.epilogue.activation {
            value = activation::value(function, value);
        }
        match (self.epilogue.mask, others.saved) {
            (Some(function), Some(saved)) => {
                activation::gradient(function, value, saved.get(n, channel, y, x))
            }
            _ => value,
        }
    }

    /// What follows reads, which holds the region.
    fn others<'v>(&self, inputs: &'v [View<'v, T>], region: Region<2>) -> Others<'v, T> {
        let mut rest = inputs[1..].iter().inspect(|input| require(input.region(), region));
        let sum = if self.epilogue.sum { rest.next() } else { None };
        let saved = self.epilogue.mask.and_then(|_| rest.next());
        Others { sum, saved }
    }
}

/// The inputs of an epilogue.
struct Others<'v, T> {
    /// What is added.
    sum: Option<&'v View<'v, T>>,
    /// What the activation of a mask saved.
    saved: Option<&'v View<'v, T>>,
}

pub(super) fn forward<T: Element>(
    params: &Params<'_, T>,
    inputs: &[View<'_, T>],
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let (conv, input, others) = (params.conv, &inputs[0], params.others(inputs, region));
    let whole = Region::whole(conv.input);
    require(input.region(), receptive(conv.windows, conv.input, region));
    let [_, group_in, kh, kw] = conv.weight_shape();
    let group_out = conv.out_channels / conv.groups;
    fill(output, region, |n, o, y, x| {
        let mut weights = params.weight[o * group_in * kh * kw..].iter();
        let mut sum = T::ZERO;
        let first = o / group_out * group_in;
        for c in first..first + group_in {
            for i in taps(conv.windows[0], y) {
                for j in taps(conv.windows[1], x) {
                    let weight = *weights.next().expect("invariant: one weight for each tap");
                    if whole.rows().contains(i) && whole.cols().contains(j) {
                        sum += weight * input.get(n, c, i, j);
                    }
                }
            }
        }
        params.finish(sum, &others, [n, o], [y, x])
    });
}

pub(super) fn backward_input<T: Element>(
    params: &Params<'_, T>,
    inputs: &[View<'_, T>],
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let (conv, gradient, others) = (params.conv, &inputs[0], params.others(inputs, region));
    require(gradient.region(), touched(conv.windows, conv.output, region));
    let [_, group_in, kh, kw] = conv.weight_shape();
    let group_out = conv.out_channels / conv.groups;
    fill(output, region, |n, c, y, x| {
        let (group, within) = (c / group_in, c % group_in);
        let mut sum = T::ZERO;
        for o in group * group_out..(group + 1) * group_out {
            let mut weights = params.weight[(o * group_in + within) * kh * kw..].iter();
            for i in readers(conv.windows[0], conv.output[0], y) {
                for j in readers(conv.windows[1], conv.output[1], x) {
                    let weight = *weights.next().expect("invariant: one weight for each tap");
                    if let (Some(i), Some(j)) = (i, j) {
                        sum += weight * gradient.get(n, o, i, j);
                    }
                }
            }
        }
        params.finish(sum, &others, [n, c], [y, x])
    });
}

/// Each weight sums over images, then rows, then columns of the share; the result is added to `weights`.
pub(super) fn backward_weight<T: Element>(
    conv: &Conv,
    input: View<'_, T>,
    gradient: View<'_, T>,
    share: Region<2>,
    weights: &mut [T],
) {
    let whole = Region::whole(conv.input);
    require(gradient.region(), share);
    require(input.region(), receptive(conv.windows, conv.input, share));
    assert_eq!(weights.len(), conv.weight_len(), "one sum for each weight");
    let [out_channels, group_in, kh, kw] = conv.weight_shape();
    let group_out = conv.out_channels / conv.groups;
    let [rows, cols] = share.axes();
    let mut weights = weights.iter_mut();
    for o in 0..out_channels {
        for within in 0..group_in {
            let c = o / group_out * group_in + within;
            for (u, v) in (0..kh).flat_map(|u| (0..kw).map(move |v| (u, v))) {
                let mut sum = T::ZERO;
                for n in 0..gradient.layout().batch() {
                    for y in rows.begin()..rows.end() {
                        let i = taps(conv.windows[0], y).nth(u).expect("invariant: u is a tap");
                        for x in cols.begin()..cols.end() {
                            let j = taps(conv.windows[1], x).nth(v).expect("invariant: v is a tap");
                            if whole.rows().contains(i) && whole.cols().contains(j) {
                                sum += input.get(n, c, i, j) * gradient.get(n, o, y, x);
                            }
                        }
                    }
                }
                *weights.next().expect("invariant: one sum for each weight") += sum;
            }
        }
    }
}
