//! The operators by the names of the fixture.

use ndarray::ArrayD;
use serde_json::Value;
use tiled_autograd::{
    AttentionOptions, BatchNormOptions, Context, CrossEntropyOptions, Interpolation, Padding, Reduction,
    Result, Target, Tensor, bce_with_logits, concat, cross_entropy, embedding, l1_loss, mse_loss, nll_loss,
    scaled_dot_product_attention, smooth_l1_loss, stack,
};
use tiled_graph::{AvgPool2d, Conv2d, ConvTranspose2d, MaxPool2d};
use tiled_tensor::Element;

use crate::{drawn, list, whole};

/// A number; JSON has no word for those that are not finite.
fn number(value: &Value) -> f64 {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).expect("a number")
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(number).collect()
}

fn axis(value: &Value) -> isize {
    isize::try_from(value.as_i64().expect("a whole number")).expect("in range")
}

fn pair<V: TryFrom<i64> + Copy>(value: &Value) -> [V; 2] {
    let both = list(value);
    [both[0], both[1]]
}

fn pairs<V: TryFrom<i64> + Copy>(value: &Value) -> Vec<[V; 2]> {
    value.as_array().expect("a list").iter().map(pair).collect()
}

fn two_pairs<V: TryFrom<i64> + Copy>(value: &Value) -> [[V; 2]; 2] {
    let both = pairs(value);
    [both[0], both[1]]
}

fn index(a: &Value) -> ArrayD<i64> {
    let shape: Vec<usize> = list(&a["index_shape"]);
    ArrayD::from_shape_vec(shape, list(&a["index"])).expect("as many as the shape says")
}

fn mask(values: &Value, shape: &Value) -> ArrayD<bool> {
    let values = values.as_array().expect("a list").iter().map(|value| value.as_bool().expect("a bool"));
    ArrayD::from_shape_vec(list::<usize>(shape), values.collect()).expect("as many as the shape says")
}

fn reduction(a: &Value) -> Reduction {
    match a["reduction"].as_str().expect("a name") {
        "mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        _ => Reduction::None,
    }
}

/// The values of a seed, or those that are listed.
fn constant<T: Element>(
    context: &Context<T>,
    given: &Value,
    shape: &[usize],
    [low, span]: [f64; 2],
) -> Result<Option<Tensor<T>>> {
    let listed = || given.as_array().map(|_| numbers(given).into_iter().map(T::from_f64).collect());
    let drawn = given.as_u64().map(|seed| drawn(seed, shape.iter().product(), low, span));
    let values = drawn.or_else(listed);
    values.map(|values| context.from_slice(shape, &values)).transpose()
}

pub(crate) fn run<T: Element>(
    context: &Context<T>,
    name: &Value,
    a: &Value,
    x: &[Tensor<T>],
) -> Result<Tensor<T>> {
    let of = |at: usize| x.get(at);
    let (axes, keepdim) = (|| list::<isize>(&a["axes"]), a["keepdim"] == true);
    let options = || -> Result<CrossEntropyOptions<T>> {
        let classes = x[0].shape()[usize::from(x[0].axes() > 1)];
        Ok(CrossEntropyOptions {
            weight: constant(context, &a["weight"], &[classes], [0.5, 1.0])?,
            ignore_index: a["ignore"].as_i64().unwrap_or(-100),
            label_smoothing: a["smoothing"].as_f64().unwrap_or(0.0),
            reduction: reduction(a),
        })
    };
    match name.as_str().expect("a name") {
        "exp" => x[0].exp(),
        "log" => x[0].log(),
        "sqrt" => x[0].sqrt(),
        "rsqrt" => x[0].rsqrt(),
        "abs" => x[0].abs(),
        "neg" => -&x[0],
        "reciprocal" => x[0].reciprocal(),
        "relu" => x[0].relu(),
        "relu6" => x[0].relu6(),
        "sigmoid" => x[0].sigmoid(),
        "hardsigmoid" => x[0].hardsigmoid(),
        "tanh" => x[0].tanh(),
        "silu" => x[0].silu(),
        "hardswish" => x[0].hardswish(),
        "gelu" => x[0].gelu(),
        "gelu_tanh" => x[0].gelu_tanh(),
        "logsigmoid" => x[0].logsigmoid(),
        "selu" => x[0].selu(),
        "softsign" => x[0].softsign(),
        "mish" => x[0].mish(),
        "powf" => x[0].powf(number(&a["exponent"])),
        "clamp" => x[0].clamp(
            a["min"].as_f64().unwrap_or(f64::NEG_INFINITY),
            a["max"].as_f64().unwrap_or(f64::INFINITY),
        ),
        "leaky_relu" => x[0].leaky_relu(number(&a["slope"])),
        "elu" => x[0].elu(number(&a["alpha"])),
        "softplus" => x[0].softplus(number(&a["beta"]), number(&a["threshold"])),
        "add_number" => &x[0] + number(&a["number"]),
        "sub_number" => &x[0] - number(&a["number"]),
        "mul_number" => &x[0] * number(&a["number"]),
        "div_number" => &x[0] / number(&a["number"]),
        "number_sub" => number(&a["number"]) - &x[0],
        "number_div" => number(&a["number"]) / &x[0],
        "add" => &x[0] + &x[1],
        "sub" => &x[0] - &x[1],
        "mul" => &x[0] * &x[1],
        "div" => &x[0] / &x[1],
        "pow" => x[0].pow(&x[1]),
        "maximum" => x[0].maximum(&x[1]),
        "minimum" => x[0].minimum(&x[1]),
        "where" => x[0].where_mask(&mask(&a["mask"], &a["mask_shape"]), &x[1]),
        "masked_fill" => x[0].masked_fill(&mask(&a["mask"], &a["mask_shape"]), number(&a["value"])),
        "sum" => x[0].sum(&axes(), keepdim),
        "mean" => x[0].mean(&axes(), keepdim),
        "var" => x[0].var(&axes(), number(&a["correction"]), keepdim),
        "max" => x[0].max(&axes(), keepdim),
        "min" => x[0].min(&axes(), keepdim),
        "logsumexp" => x[0].logsumexp(&axes(), keepdim),
        "cumsum" => x[0].cumsum(axis(&a["axis"])),
        "softmax" => x[0].softmax(axis(&a["axis"])),
        "log_softmax" => x[0].log_softmax(axis(&a["axis"])),
        "matmul" => x[0].matmul(&x[1]),
        "linear" => x[0].linear(&x[1], of(2)),
        "reshape" => x[0].reshape(&list::<usize>(&a["shape"])),
        "permute" => x[0].permute(&list::<isize>(&a["order"])),
        "transpose" => x[0].transpose(axis(&a["axes"][0]), axis(&a["axes"][1])),
        "expand" => x[0].expand(&list::<usize>(&a["shape"])),
        "flip" => x[0].flip(&axes()),
        "flatten" => x[0].flatten(axis(&a["axes"][0]), axis(&a["axes"][1])),
        "unsqueeze" => x[0].unsqueeze(axis(&a["axis"])),
        "squeeze" => x[0].squeeze(&[axis(&a["axis"])]),
        "slice" => {
            let part: Vec<usize> = list(&a["slice"]);
            x[0].slice_step(axis(&a["slice"][0]), part[1], part[2], part[3])
        }
        "select" => x[0].select(axis(&a["select"][0]), whole(&a["select"][1])),
        "pad" => x[0].pad(&pairs(&a["padding"]), number(&a["value"])),
        "pad2d" => {
            let shows = match a["mode"].as_str().expect("a mode") {
                "reflect" => Padding::Reflect,
                "replicate" => Padding::Replicate,
                _ => Padding::Circular,
            };
            x[0].pad2d(two_pairs(&a["padding"]), shows)
        }
        "pixel_shuffle" => x[0].pixel_shuffle(whole(&a["factor"])),
        "concat" => concat(&x.iter().collect::<Vec<_>>(), axis(&a["axis"])),
        "stack" => stack(&x.iter().collect::<Vec<_>>(), axis(&a["axis"])),
        "index_select" => {
            let index = index(a).into_dimensionality().expect("one axis");
            x[0].index_select(axis(&a["axis"]), &index)
        }
        "gather" => x[0].gather(axis(&a["axis"]), &index(a)),
        "scatter_add" => x[0].scatter_add(axis(&a["axis"]), &index(a), &x[1]),
        "embedding" => embedding(&index(a), &x[0], a["padding"].as_i64()),
        "layer_norm" => {
            let (weight, bias) = (a["weight"] == true, a["bias"] == true);
            let parts = [weight.then(|| &x[1]), bias.then(|| &x[1 + usize::from(weight)])];
            x[0].layer_norm(&list::<usize>(&a["shape"]), parts[0], parts[1], number(&a["eps"]))
        }
        "attention" => {
            let given = &a["summands"];
            let shape: Vec<usize> = if given.is_null() { Vec::new() } else { list(&given["shape"]) };
            let options = AttentionOptions {
                mask: a.get("mask").map(|given| mask(&given["values"], &given["shape"])),
                summands: constant(context, &given["seed"], &shape, [-1.0, 2.0])?,
                causal: a["causal"] == true,
                scale: a["scale"].as_f64(),
                dropout: 0.0,
            };
            scaled_dot_product_attention([&x[0], &x[1], &x[2]], &options)
        }
        "cross_entropy" => {
            let classes = if a["index"].is_null() { None } else { Some(index(a)) };
            let probabilities = constant(context, &a["target"], x[0].shape(), [0.0, 1.0])?;
            let target = match (&classes, &probabilities) {
                (Some(classes), _) => Target::Classes(classes),
                (None, Some(probabilities)) => Target::Probabilities(probabilities),
                (None, None) => panic!("no target"),
            };
            cross_entropy(&x[0], &target, &options()?)
        }
        "nll_loss" => nll_loss(&x[0], &index(a), &options()?),
        "mse_loss" => mse_loss(&x[0], &x[1], reduction(a)),
        "l1_loss" => l1_loss(&x[0], &x[1], reduction(a)),
        "smooth_l1_loss" => smooth_l1_loss(&x[0], &x[1], number(&a["beta"]), reduction(a)),
        "bce_with_logits" => {
            let weight = constant(context, &a["weight"], x[0].shape(), [0.5, 1.0])?;
            let last = *x[0].shape().last().expect("an axis");
            let positive = constant(context, &a["positive"], &[last], [0.5, 2.0])?;
            bce_with_logits(&x[0], &x[1], weight.as_ref(), positive.as_ref(), reduction(a))
        }
        name => images(name, context, a, x),
    }
}

fn images<T: Element>(name: &str, context: &Context<T>, a: &Value, x: &[Tensor<T>]) -> Result<Tensor<T>> {
    let parameters = [x.get(1), x.get(2)];
    let groups = || whole(&a["groups"]);
    match name {
        "conv2d" => {
            let conv = Conv2d {
                stride: pair(&a["stride"]),
                padding: two_pairs(&a["padding"]),
                dilation: pair(&a["dilation"]),
                groups: groups(),
                ..Conv2d::new(1, [1, 1])
            };
            x[0].conv2d(&conv, &x[1], x.get(2))
        }
        "conv_transpose2d" => {
            let conv = ConvTranspose2d {
                stride: pair(&a["stride"]),
                padding: pair(&a["padding"]),
                output_padding: pair(&a["output_padding"]),
                dilation: pair(&a["dilation"]),
                groups: groups(),
                ..ConvTranspose2d::new(1, [1, 1])
            };
            x[0].conv_transpose2d(&conv, &x[1], x.get(2))
        }
        "max_pool2d" => x[0].max_pool2d(&MaxPool2d {
            stride: pair(&a["stride"]),
            padding: two_pairs(&a["padding"]),
            ceil_mode: a["ceil"] == true,
            ..MaxPool2d::new(pair(&a["kernel"]))
        }),
        "avg_pool2d" => x[0].avg_pool2d(&AvgPool2d {
            stride: pair(&a["stride"]),
            padding: two_pairs(&a["padding"]),
            ceil_mode: a["ceil"] == true,
            count_include_pad: a["count"] == true,
            ..AvgPool2d::new(pair(&a["kernel"]))
        }),
        "adaptive_avg_pool2d" => x[0].adaptive_avg_pool2d(pair(&a["size"])),
        "interpolate" => {
            let mode = match a["mode"].as_str() {
                Some("nearest") => Interpolation::Nearest,
                _ => Interpolation::Bilinear { align_corners: a["align_corners"] == true },
            };
            x[0].interpolate(pair(&a["size"]), mode)
        }
        "batch_norm" => {
            let channels = [x[0].shape()[1]];
            let running = match a["running"] == true {
                true => Some([
                    context.from_slice(&channels, &drawn(901, channels[0], -0.5, 1.0))?,
                    context.from_slice(&channels, &drawn(902, channels[0], 0.5, 1.0))?,
                ]),
                false => None,
            };
            let options = BatchNormOptions { eps: 1e-3, momentum: 0.25, training: a["training"] == true };
            x[0].batch_norm(running.as_ref().map(|running| running.each_ref()), parameters, &options)
        }
        "group_norm" => x[0].group_norm(groups(), parameters, 1e-3),
        "instance_norm" => x[0].instance_norm(parameters, 1e-3),
        other => panic!("no operator `{other}`"),
    }
}
