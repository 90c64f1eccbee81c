//! What must hold for a node whatever the size of the image, and the channels that it makes.

use tiled_geometry::{GeometryError, MAX_WINDOW, Window};
use tiled_kernel::Activation;

use super::{Graph, Node};
use crate::{BatchNorm, Conv2d, ConvTranspose2d, GraphError, Op, Place, UpsampleTo};

/// Checks a node over the values of a graph that it may join; returns the channels of its output.
pub(super) fn node(graph: &Graph, node: &Node) -> Result<usize, GraphError> {
    let place = node.place();
    let arity = node.op.arity();
    if !arity.accepts(node.inputs.len()) {
        return Err(GraphError::Arity { place, expected: arity, got: node.inputs.len() });
    }
    for input in &node.inputs {
        graph.check_value(&place, *input)?;
    }
    let channels = graph.channels(node.inputs[0]);
    match &node.op {
        Op::Conv2d(conv) => conv2d(&place, conv, channels),
        Op::ConvTranspose2d(conv) => conv_transpose2d(&place, conv, channels),
        Op::MaxPool2d(pool) => {
            windows(&place, pool.windows())?;
            pool_padding(&place, pool.padding, pool.kernel_size).map(|()| channels)
        }
        Op::AvgPool2d(pool) => {
            windows(&place, pool.windows())?;
            pool_padding(&place, pool.padding, pool.kernel_size).map(|()| channels)
        }
        Op::BatchNorm(norm) => batch_norm(&place, norm).map(|()| channels),
        Op::Activation(activation) => function(&place, *activation).map(|()| channels),
        Op::Add | Op::Mul => equal_channels(graph, node, &place).map(|()| channels),
        Op::Concat => concat(graph, node, &place),
        Op::Upsample(upsample) => resampling(graph, &place, upsample.to).map(|()| channels),
        Op::GlobalAvgPool | Op::GlobalMaxPool => Ok(channels),
        Op::Linear(linear) => {
            count(&place, "out_features", linear.out_features).map(|()| linear.out_features)
        }
        Op::Dropout(dropout) if (0.0..1.0).contains(&dropout.p) => Ok(channels),
        Op::Dropout(dropout) => Err(out_of_range(&place, "p", "at least 0 and below 1", dropout.p)),
    }
}

/// Checks a number of channels or features.
pub(super) fn count(place: &Place, key: &'static str, got: usize) -> Result<(), GraphError> {
    const MAX: usize = 1 << 30;
    if (1..=MAX).contains(&got) {
        return Ok(());
    }
    let expected = if got == 0 { "at least 1" } else { "at most 2^30" };
    Err(GraphError::OutOfRange { place: place.clone(), key, expected, got: got.to_string() })
}

fn conv2d(place: &Place, conv: &Conv2d, channels: usize) -> Result<usize, GraphError> {
    windows(place, conv.windows())?;
    for after in conv.padding.map(|side| side[1]) {
        padding(place, "padding", after)?;
    }
    count(place, "out_channels", conv.out_channels)?;
    groups(place, conv.groups, channels, conv.out_channels)?;
    Ok(conv.out_channels)
}

fn conv_transpose2d(place: &Place, conv: &ConvTranspose2d, channels: usize) -> Result<usize, GraphError> {
    windows(place, conv.windows())?;
    for axis in 0..2 {
        let (output_padding, stride, dilation) =
            (conv.output_padding[axis], conv.stride[axis], conv.dilation[axis]);
        padding(place, "output_padding", output_padding)?;
        if output_padding >= stride.max(dilation) {
            return Err(GraphError::OutputPadding { place: place.clone(), output_padding, stride, dilation });
        }
    }
    count(place, "out_channels", conv.out_channels)?;
    groups(place, conv.groups, channels, conv.out_channels)?;
    Ok(conv.out_channels)
}

fn windows(place: &Place, windows: Result<[Window; 2], GeometryError>) -> Result<(), GraphError> {
    windows.map(|_| ()).map_err(|reason| GraphError::Geometry { place: place.clone(), reason })
}

fn padding(place: &Place, what: &'static str, got: i64) -> Result<(), GraphError> {
    let expected = match got {
        ..0 => "at least 0",
        0..=MAX_WINDOW => return Ok(()),
        _ => "at most 2^20",
    };
    Err(GraphError::OutOfRange { place: place.clone(), key: what, expected, got: got.to_string() })
}

fn groups(place: &Place, groups: usize, input: usize, output: usize) -> Result<(), GraphError> {
    count(place, "groups", groups)?;
    for (which, channels) in [("input", input), ("output", output)] {
        if !channels.is_multiple_of(groups) {
            return Err(GraphError::Groups { place: place.clone(), which, channels, groups });
        }
    }
    Ok(())
}

fn pool_padding(place: &Place, paddings: [[i64; 2]; 2], kernel: [i64; 2]) -> Result<(), GraphError> {
    for ([before, after], kernel) in paddings.into_iter().zip(kernel) {
        padding(place, "padding", after)?;
        let padding = before.max(after);
        if padding > kernel / 2 {
            return Err(GraphError::PoolPadding { place: place.clone(), padding, kernel });
        }
    }
    Ok(())
}

fn batch_norm(place: &Place, norm: &BatchNorm) -> Result<(), GraphError> {
    if !(norm.eps.is_finite() && norm.eps > 0.0) {
        return Err(out_of_range(place, "eps", "a finite number above 0", norm.eps));
    }
    match norm.momentum {
        Some(momentum) if !(0.0..=1.0).contains(&momentum) => {
            Err(out_of_range(place, "momentum", "at least 0 and at most 1", momentum))
        }
        _ => Ok(()),
    }
}

fn function(place: &Place, activation: Activation) -> Result<(), GraphError> {
    match activation {
        Activation::LeakyRelu { slope } if !slope.is_finite() => {
            Err(out_of_range(place, "negative_slope", "a finite number", slope))
        }
        _ => Ok(()),
    }
}

fn equal_channels(graph: &Graph, node: &Node, place: &Place) -> Result<(), GraphError> {
    let first = node.inputs[0];
    match node.inputs.iter().find(|other| graph.channels(**other) != graph.channels(first)) {
        None => Ok(()),
        Some(other) => Err(GraphError::OperandChannels {
            place: place.clone(),
            first: graph.name(first).into(),
            expected: graph.channels(first),
            other: graph.name(*other).into(),
            got: graph.channels(*other),
        }),
    }
}

fn concat(graph: &Graph, node: &Node, place: &Place) -> Result<usize, GraphError> {
    let channels = node.inputs.iter().map(|input| graph.channels(*input)).fold(0, usize::saturating_add);
    count(place, "channels", channels).map(|()| channels)
}

fn resampling(graph: &Graph, place: &Place, to: UpsampleTo) -> Result<(), GraphError> {
    let (key, pair) = match to {
        UpsampleTo::Like(value) => return graph.check_value(place, value),
        UpsampleTo::Size(size) => ("size", size),
        UpsampleTo::Scale(scale) => ("scale_factor", scale),
    };
    match pair.into_iter().find(|extent| *extent < 1) {
        None => Ok(()),
        Some(got) => Err(out_of_range(place, key, "at least 1", got)),
    }
}

fn out_of_range(
    place: &Place,
    key: &'static str,
    expected: &'static str,
    got: impl std::fmt::Display,
) -> GraphError {
    GraphError::OutOfRange { place: place.clone(), key, expected, got: got.to_string() }
}
