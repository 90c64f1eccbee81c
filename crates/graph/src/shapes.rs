//! The shapes of values, in 64-bit integers, each checked once.

use tiled_tensor::{OutOfMemory, with_room};

use crate::error::{Axis, Extent, GraphError, Place};
use crate::index::ValueId;

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
    /// No shapes yet, and room for so many.
    pub(crate) fn with_room(count: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { shapes: with_room(count)? })
    }

    /// Appends the shape of the next value, where coordinates and memory reach so far.
    pub(crate) fn push(&mut self, place: &Place, shape: [usize; 4]) -> Result<(), GraphError> {
        self.shapes.push(checked(place, shape)?);
        Ok(())
    }

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
