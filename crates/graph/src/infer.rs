//! The shapes of all values of a network, inferred and checked once, in 64-bit integers.

use tiled_tensor::{collected, with_room};

use crate::op::Applied;
use crate::{Axis, Extent, Graph, GraphError, Place, ValueId};

/// The largest height or width of a value, `2^30`.
///
/// ```
/// assert_eq!(tiled_graph::MAX_EXTENT, 1_073_741_824);
/// ```
pub const MAX_EXTENT: i64 = 1 << 30;

/// The most elements of a value: their bytes as `f64` fit in an `isize`.
///
/// ```
/// assert_eq!(tiled_graph::MAX_ELEMENTS, 1_152_921_504_606_846_975); // 2^60 − 1
/// ```
pub const MAX_ELEMENTS: usize = isize::MAX.cast_unsigned() / 8;

/// The shapes of all values of a graph: batch, channels, height, width.
///
/// ```
/// use tiled_graph::{Graph, infer};
/// let vgg16 = Graph::builtin("vgg16").expect("it is built in");
/// let shapes = infer(&vgg16, 1, &[[20480, 20480]])?;
/// assert_eq!(shapes.shape(vgg16.outputs()[0]), [1, 512, 640, 640]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shapes {
    shapes: Vec<[usize; 4]>,
}

impl Shapes {
    /// The shape of a value, NCHW.
    ///
    /// # Panics
    /// Where the value is not of the graph.
    ///
    /// ```
    /// use tiled_graph::{Graph, infer};
    /// let graph = Graph::builtin("vgg2").expect("it is built in");
    /// let shapes = infer(&graph, 2, &[[64, 32]])?;
    /// let x = graph.value("x").expect("its input");
    /// assert_eq!((shapes.shape(x), shapes.extents(x)), ([2, 3, 64, 32], [64, 32]));
    /// assert_eq!((shapes.batch(), shapes.elements(x)), (2, 2 * 3 * 64 * 32));
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    #[must_use]
    pub fn shape(&self, value: ValueId) -> [usize; 4] {
        self.shapes[value.0]
    }

    /// Height and width of a value.
    ///
    /// # Panics
    /// Where the value is not of the graph.
    #[must_use]
    pub fn extents(&self, value: ValueId) -> [usize; 2] {
        let [_, _, height, width] = self.shape(value);
        [height, width]
    }

    /// The number of elements of a value.
    ///
    /// # Panics
    /// Where the value is not of the graph.
    #[must_use]
    pub fn elements(&self, value: ValueId) -> usize {
        self.shape(value).iter().product()
    }

    /// The batch size.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.shapes[0][0]
    }

    /// The shapes of all values, in their order.
    #[must_use]
    pub fn all(&self) -> &[[usize; 4]] {
        &self.shapes
    }
}

/// The shapes of all values for a batch size and the height and width of each input.
///
/// # Errors
/// Where the network has no outputs, an input is missing, empty or too large, operands do not fit each other, a kernel does not
/// fit its input, or memory is refused.
///
/// ```
/// use tiled_graph::{Graph, infer};
/// let graph = Graph::builtin("vgg2").expect("it is built in");
/// let shapes = infer(&graph, 2, &[[2700, 5400]])?;
/// assert_eq!(shapes.shape(graph.outputs()[0]), [2, 128, 675, 1350]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
pub fn infer(graph: &Graph, batch: usize, inputs: &[[usize; 2]]) -> Result<Shapes, GraphError> {
    if graph.outputs().is_empty() {
        return Err(GraphError::NoOutputs);
    }
    if inputs.len() != graph.inputs().len() {
        return Err(GraphError::InputCount { expected: graph.inputs().len(), got: inputs.len() });
    }
    let mut known = Shapes { shapes: with_room(graph.values())? };
    for (input, extents) in graph.inputs().iter().zip(inputs) {
        let place = Place::Input { name: input.name.as_str().into() };
        for (key, size) in [("batch size", batch), ("height", extents[0]), ("width", extents[1])] {
            if size == 0 {
                let (expected, got) = ("at least 1", "0".to_owned());
                return Err(GraphError::OutOfRange { place, key, expected, got });
            }
        }
        let shape = [batch, input.channels, extents[0], extents[1]];
        known.shapes.push(checked(&place, shape)?);
    }
    for (position, node) in graph.nodes().iter().enumerate() {
        let at = Applied { graph, operands: &node.inputs, place: node.place() };
        let [height, width] = node.op.operator().extents(&at, &known)?;
        let shape = [batch, graph.channels(graph.node_value(position)), height, width];
        known.shapes.push(checked(&at.place, shape)?);
    }
    Ok(known)
}

/// The shapes of all values for the whole shapes of the inputs, NCHW.
///
/// # Errors
/// Where [`infer`] refuses, or an input has other channels or another batch size.
///
/// ```
/// use tiled_graph::{Graph, infer_nchw};
/// let graph = Graph::builtin("vgg2").expect("it is built in");
/// let error = infer_nchw(&graph, &[[1, 4, 64, 64]]).expect_err("vgg2 reads 3 channels");
/// assert_eq!(error.to_string(), "input `x`: input has 4 channels, network wants 3");
/// ```
pub fn infer_nchw(graph: &Graph, inputs: &[[usize; 4]]) -> Result<Shapes, GraphError> {
    let batch = inputs.first().map_or(1, |shape| shape[0]);
    for (input, [got_batch, got, _, _]) in graph.inputs().iter().zip(inputs.iter().copied()) {
        let place = Place::Input { name: input.name.as_str().into() };
        if got != input.channels {
            return Err(GraphError::Channels { place, what: "network", expected: input.channels, got });
        }
        if got_batch != batch {
            let name = input.name.clone();
            return Err(GraphError::BatchMismatch { name, expected: batch, got: got_batch });
        }
    }
    let extents = collected(inputs.iter().map(|shape| [shape[2], shape[3]]))?;
    infer(graph, batch, &extents)
}

/// Both extents by a rule for one axis and the first operand's extent along it, which returns `None` where 64 bits do not hold
/// the extent.
pub(crate) fn per_axis(
    at: &Applied<'_>,
    known: &Shapes,
    rule: impl Fn(usize, i64) -> Result<Option<i64>, GraphError>,
) -> Result<[usize; 2], GraphError> {
    let input = known.extents(at.operands[0]).map(signed);
    let extent = |position: usize| {
        let (place, axis) = (at.place.clone(), Axis::BOTH[position]);
        match rule(position, input[position])? {
            None => Err(GraphError::ExtentTooLarge { place, axis, got: Extent(None), max: MAX_EXTENT }),
            Some(got) => usize::try_from(got)
                .ok()
                .filter(|extent| *extent > 0)
                .ok_or(GraphError::EmptyOutput { place, axis, got }),
        }
    };
    Ok([extent(0)?, extent(1)?])
}

fn checked(place: &Place, shape: [usize; 4]) -> Result<[usize; 4], GraphError> {
    for (axis, got) in Axis::BOTH.into_iter().zip([shape[2], shape[3]]) {
        if i64::try_from(got).map_or(true, |extent| extent > MAX_EXTENT) {
            let (place, got) = (place.clone(), Extent(Some(got)));
            return Err(GraphError::ExtentTooLarge { place, axis, got, max: MAX_EXTENT });
        }
    }
    let elements = shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent));
    match elements {
        Some(elements) if elements <= MAX_ELEMENTS => Ok(shape),
        _ => Err(GraphError::TooManyElements { place: place.clone(), shape, max: MAX_ELEMENTS }),
    }
}

fn signed(extent: usize) -> i64 {
    i64::try_from(extent).expect("invariant: extents are at most 2^30")
}
