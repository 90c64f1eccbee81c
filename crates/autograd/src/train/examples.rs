//! Examples: rows in memory, in files, or of a function, and what belongs to each.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ndarray::{Array1, ArrayD, Axis};
use tiled_exec::{ArrayFile, ArrayValue};
use tiled_tensor::Element;

use super::Batches;
use crate::context::Context;
use crate::error::{Result, TapeError};

/// An array whose first axis counts examples: in memory, in a file of which only the wanted rows are read, or given by a function.
///
/// ```
/// use ndarray::Array;
/// use tiled_autograd::train::Rows;
/// let rows = Rows::memory(Array::from_shape_fn((10, 2), |(row, _)| row as f32).into_dyn())?;
/// assert_eq!((rows.len(), rows.shape()), (10, &[2][..]));
/// # Ok::<(), tiled_autograd::TapeError>(())
/// ```
pub struct Rows<V> {
    len: usize,
    /// Of one example.
    shape: Vec<usize>,
    from: Origin<V>,
}

/// Writes the row of a number.
type WriteRow<V> = dyn Fn(usize, &mut [V]) -> Result<()> + Send + Sync;

enum Origin<V> {
    Memory(ArrayD<V>),
    File(ArrayFile),
    Function(Box<WriteRow<V>>),
}

impl<V> fmt::Debug for Rows<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("len", &self.len).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<V: ArrayValue> Rows<V> {
    /// The rows of an array.
    ///
    /// # Errors
    /// Where it has no axes.
    pub fn memory(array: ArrayD<V>) -> Result<Self> {
        let Some((len, shape)) = array.shape().split_first() else {
            let (what, expected) = ("the array", "at least 1");
            return Err(TapeError::Axes { operator: OPERATOR, what, expected, got: array.shape().into() });
        };
        Ok(Self { len: *len, shape: shape.to_vec(), from: Origin::Memory(array) })
    }

    /// The rows of an array in an `.npy` file. Integers stand for themselves.
    ///
    /// # Errors
    /// Where the file is no such array, is not as long as its shape says, or holds elements that do not become such values.
    pub fn npy(path: impl AsRef<Path>) -> Result<Self> {
        Self::file(ArrayFile::open_npy(path)?)
    }

    /// The rows of a tensor in a `.safetensors` file, as [`Rows::npy`].
    ///
    /// # Errors
    /// As [`Rows::npy`], and where there is no tensor of that name.
    pub fn safetensors(path: impl AsRef<Path>, name: &str) -> Result<Self> {
        Self::file(ArrayFile::open_safetensors(path, name)?)
    }

    fn file(file: ArrayFile) -> Result<Self> {
        file.check::<V>()?;
        Ok(Self { len: file.rows(), shape: file.shape()[1..].to_vec(), from: Origin::File(file) })
    }

    /// Rows that a function writes: `row(i, values)` has room for the elements of row i. It is called on the thread that prepares
    /// batches.
    ///
    /// # Errors
    /// Where the elements of a row do not fit the address space.
    pub fn function(
        len: usize,
        shape: &[usize],
        row: impl Fn(usize, &mut [V]) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        if shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent)).is_none() {
            return Err(TapeError::OutOfMemory { operator: OPERATOR, bytes: u64::MAX });
        }
        Ok(Self { len, shape: shape.to_vec(), from: Origin::Function(Box::new(row)) })
    }

    /// The number of examples.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The extents of one example.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Some rows, one after the other.
    pub(super) fn read(&self, places: &[usize]) -> Result<ArrayD<V>> {
        if let Origin::Memory(array) = &self.from {
            return Ok(array.select(Axis(0), places));
        }
        let row: usize = self.shape.iter().product();
        let Some(elements) = row.checked_mul(places.len()) else {
            return Err(TapeError::OutOfMemory { operator: OPERATOR, bytes: u64::MAX });
        };
        let mut values = Vec::new();
        let refused = |_| {
            let bytes = (elements as u64).saturating_mul(size_of::<V>() as u64);
            TapeError::OutOfMemory { operator: OPERATOR, bytes }
        };
        values.try_reserve_exact(elements).map_err(refused)?;
        values.resize(elements, V::default());
        for (at, place) in places.iter().enumerate() {
            let values = &mut values[at * row..(at + 1) * row];
            match &self.from {
                Origin::File(file) => file.read_row(*place, values)?,
                Origin::Function(function) => function(*place, values)?,
                Origin::Memory(_) => {}
            }
        }
        let shape: Vec<usize> = std::iter::once(places.len()).chain(self.shape.iter().copied()).collect();
        Ok(Array1::from(values).into_shape_with_order(shape).expect("invariant: as many elements"))
    }
}

/// Examples and what belongs to each: some of the rows of two arrays, in an order. A clone shares the rows.
///
/// ```
/// use ndarray::Array;
/// use tiled_autograd::{Context, train::{Examples, Rows}};
/// use tiled_kernel::Reference;
/// let context = Context::<f32>::new(&Reference, 1)?;
/// let x = Rows::memory(Array::from_shape_fn((10, 2), |(row, _)| row as f32).into_dyn())?;
/// let targets = Rows::memory(Array::from_shape_fn(10, |row| row as i64).into_dyn())?;
/// let [trained, held_out] = Examples::new(x, targets)?.split(&context, 3)?;
/// assert_eq!((trained.len(), held_out.len()), (7, 3));
/// let mut sizes = Vec::new();
/// for batch in trained.shuffled(&context, 4)? {
///     let (x, targets) = batch?;
///     assert!(x.outer_iter().zip(&targets).all(|(x, target)| x[0] == *target as f32));
///     sizes.push(targets.len());
/// }
/// assert_eq!(sizes, [4, 3]);
/// # Ok::<(), tiled_autograd::TapeError>(())
/// ```
#[derive(Debug)]
pub struct Examples<X, Y> {
    rows: Arc<(Rows<X>, Rows<Y>)>,
    order: Vec<usize>,
}

impl<X, Y> Clone for Examples<X, Y> {
    fn clone(&self) -> Self {
        Self { rows: Arc::clone(&self.rows), order: self.order.clone() }
    }
}

impl<X: ArrayValue, Y: ArrayValue> Examples<X, Y> {
    /// All rows, in their order.
    ///
    /// # Errors
    /// Where there are more of one array than of the other.
    pub fn new(x: Rows<X>, targets: Rows<Y>) -> Result<Self> {
        if x.len != targets.len {
            let (what, expected, got) = ("targets", vec![x.len], vec![targets.len]);
            let (expected, got) = (expected.as_slice().into(), got.as_slice().into());
            return Err(TapeError::Shape { operator: OPERATOR, what, expected, got });
        }
        let order = (0..x.len).collect();
        Ok(Self { rows: Arc::new((x, targets)), order })
    }

    /// The number of examples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// All but `count` of them, and these, in an order that the context draws.
    ///
    /// # Errors
    /// Where there are not so many.
    pub fn split<T: Element>(&self, context: &Context<T>, count: usize) -> Result<[Self; 2]> {
        let Some(rest) = self.len().checked_sub(count) else {
            let (axis, begin, extent) = (0, 0, self.len());
            return Err(TapeError::Range { operator: "split", axis, begin, end: count, step: 1, extent });
        };
        let mut order = self.drawn(context);
        let held_out = order.split_off(rest);
        let part = |order| Self { rows: Arc::clone(&self.rows), order };
        Ok([part(order), part(held_out)])
    }

    /// All of them once in batches of `size`, in an order that the context draws; the last batch has what is left.
    ///
    /// # Errors
    /// Where `size` is zero, and where no thread can be started.
    pub fn shuffled<T: Element>(&self, context: &Context<T>, size: usize) -> Result<Batches<X, Y>> {
        Batches::new(Arc::clone(&self.rows), self.drawn(context), size)
    }

    /// The same in their order.
    ///
    /// # Errors
    /// As [`Examples::shuffled`].
    pub fn in_order(&self, size: usize) -> Result<Batches<X, Y>> {
        Batches::new(Arc::clone(&self.rows), self.order.clone(), size)
    }

    fn drawn<T: Element>(&self, context: &Context<T>) -> Vec<usize> {
        context.permutation(self.len()).into_iter().map(|at| self.order[at]).collect()
    }
}

pub(super) const OPERATOR: &str = "batches";
