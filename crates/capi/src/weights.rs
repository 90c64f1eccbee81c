//! The parameters of a network.

use std::ffi::{c_char, c_void};

use tiled::exec::{load_parameters, save_weights};
use tiled::graph::{Parameters, try_params};
use tiled::tensor::{DType, Element};

use crate::graph::tiled_graph;
use crate::guard::guard;
use crate::handle::{self, Opaque};
use crate::pointer::{Output, TextOutput, array, array_mut, text};
use crate::status::{Failure, Fallible, TILED_STATUS_NOT_FOUND, TILED_STATUS_SHAPE, tiled_status};
use crate::tensor::with_element;

/// The parameters of a network, in its order: nodes in order, and for each weight, bias, running mean, running variance, number
/// of batches. One that several nodes read stands once, with the first.
#[derive(Debug)]
pub struct tiled_weights {
    _opaque: (),
}

impl Opaque for tiled_weights {
    type Object = Weights;
    const KIND: usize = 4;
    const NAME: &'static str = "weights";
}

/// Makes the parameters that training starts from, distributed as in PyTorch and determined by `seed` and names alone.
///
/// `dtype` is `TILED_DTYPE_F32` or `TILED_DTYPE_F64`. The handle is the caller's, to be freed with
/// `tiled_weights_free`. On failure `weights` is untouched. Threads: any.
///
/// # Safety
/// `weights` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_weights_new(
    graph: *const tiled_graph,
    dtype: i32,
    seed: u64,
    weights: *mut *mut tiled_weights,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let weights = unsafe { Output::new(weights, "weights")? };
        let dtype = crate::tensor::dtype(dtype)?;
        let specs = handle::shared(graph, "graph", |graph| Ok(try_params(graph)?))?;
        let made = with_element!(dtype, T => Weights::from(Parameters::<T>::initialised(&specs, seed)?));
        weights.set(handle::insert(made)?);
        Ok(())
    })
}

/// Reads the parameters of a network from a `.safetensors` file, converted to `dtype`.
///
/// A parameter that several nodes read may stand under any of its names, or under several with the same bits.
///
/// The handle is the caller's, to be freed with `tiled_weights_free`. On failure (a parameter is missing, unknown,
/// misshapen, or differs between two of its names; the file cannot be read) `weights` is untouched. Threads: any.
///
/// # Safety
/// `path` is NULL or a text ended by a NUL; `weights` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_weights_load(
    graph: *const tiled_graph,
    dtype: i32,
    path: *const c_char,
    weights: *mut *mut tiled_weights,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (path, weights) = unsafe { (text(path, "path")?, Output::new(weights, "weights")?) };
        let dtype = crate::tensor::dtype(dtype)?;
        let specs = handle::shared(graph, "graph", |graph| Ok(try_params(graph)?))?;
        let loaded = with_element!(dtype, T => {
            Weights::from(load_parameters::<T>(path, &specs)?)
        });
        weights.set(handle::insert(loaded)?);
        Ok(())
    })
}

/// Writes the parameters to a `.safetensors` file, which stands under `path` only when it is complete. On failure what
/// stood there before stays.
///
/// Threads: any.
///
/// # Safety
/// `path` is NULL or a text ended by a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_weights_save(
    weights: *const tiled_weights,
    path: *const c_char,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let path = unsafe { text(path, "path")? };
        handle::shared(weights, "weights", |weights| {
            (0..weights.count()).try_for_each(|index| weights.require_held(index))?;
            match weights {
                Weights::F32(values) => Ok(save_weights(path, values.tensors())?),
                Weights::F64(values) => Ok(save_weights(path, values.tensors())?),
            }
        })
    })
}

/// Copies parameters, for another thread or to go back to. The copy is the caller's. On failure `copy` is untouched.
///
/// Threads: any.
///
/// # Safety
/// `copy` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_weights_clone(
    weights: *const tiled_weights,
    copy: *mut *mut tiled_weights,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let copy = unsafe { Output::new(copy, "copy")? };
        copy.set(handle::insert(handle::shared(weights, "weights", Weights::try_clone)?)?);
        Ok(())
    })
}

/// Frees parameters; NULL does nothing. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_weights_free(weights: *mut tiled_weights) -> tiled_status {
    guard(|| handle::free(weights, "weights"))
}

/// The number of parameters (tensors). On failure `count` is untouched. Threads: any.
///
/// # Safety
/// `count` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_weights_count(
    weights: *const tiled_weights,
    count: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let count = unsafe { Output::new(count, "count")? };
        handle::shared(weights, "weights", |weights| {
            count.set(weights.count());
            Ok(())
        })
    })
}

/// The name of a parameter, as `"conv1.weight"`: UTF-8, ended by a NUL.
///
/// With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
/// Threads: any.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_weights_name(
    weights: *const tiled_weights,
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let output = unsafe { TextOutput::new(buffer, capacity, length)? };
        handle::shared(weights, "weights", |weights| {
            weights.require(index)?;
            output.set(weights.name(index))
        })
    })
}

/// The place of the parameter of this name. On failure (`TILED_STATUS_NOT_FOUND`) `index` is untouched. Threads: any.
///
/// # Safety
/// `name` is NULL or a text ended by a NUL; `index` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_weights_find(
    weights: *const tiled_weights,
    name: *const c_char,
    index: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (name, index) = unsafe { (text(name, "name")?, Output::new(index, "index")?) };
        handle::shared(weights, "weights", |weights| {
            let found = (0..weights.count()).find(|place| weights.name(*place) == name);
            index.set(found.ok_or_else(|| {
                Failure::new(TILED_STATUS_NOT_FOUND, format!("there is no parameter `{name}`"))
            })?);
            Ok(())
        })
    })
}

/// The shape of a parameter: `rank` axes (at most 4), whose extents are the first of `shape`; the rest are 1.
///
/// On failure `shape`, four numbers, and `rank` are untouched. Threads: any.
///
/// # Safety
/// `shape` is NULL or four numbers can be written to it; `rank` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_weights_shape(
    weights: *const tiled_weights,
    index: usize,
    shape: *mut i64,
    rank: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; an array of four has the alignment of one
        let (shape, rank) =
            unsafe { (Output::new(shape.cast::<[i64; 4]>(), "shape")?, Output::new(rank, "rank")?) };
        handle::shared(weights, "weights", |weights| {
            weights.require(index)?;
            let extents = weights.shape(index);
            let mut padded = [1; 4];
            for (to, from) in padded.iter_mut().zip(extents) {
                *to = i64::try_from(*from).unwrap_or(i64::MAX);
            }
            shape.set(padded);
            rank.set(extents.len());
            Ok(())
        })
    })
}

/// Replaces a parameter by `count` elements of the caller, in row-major order and of the weights' element type.
///
/// The elements are copied. On failure (another count than the shape says) nothing changes.
/// Threads: one call at a time.
///
/// # Safety
/// `data` is NULL or `count` elements can be read from it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_weights_set(
    weights: *mut tiled_weights,
    index: usize,
    dtype: i32,
    data: *const c_void,
    count: usize,
) -> tiled_status {
    guard(|| {
        require_data(data)?;
        let dtype = crate::tensor::dtype(dtype)?;
        handle::exclusive(weights, "weights", |weights| {
            weights.require_elements(index, dtype, count)?;
            match weights {
                // SAFETY: the caller's promise
                Weights::F32(values) => unsafe { set(values, index, data, count) },
                // SAFETY: the caller's promise
                Weights::F64(values) => unsafe { set(values, index, data, count) },
            }
        })
    })
}

/// Copies a parameter's elements, `count` of them in row-major order, to memory of the caller.
///
/// On failure (another count than the shape says; `TILED_STATUS_INVALID_ARGUMENT` where a run has let go of them, see `releases_weights` of
/// `tiled_plan_options`) nothing is written. Threads: any.
///
/// # Safety
/// `data` is NULL or `count` elements can be written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_weights_get(
    weights: *const tiled_weights,
    index: usize,
    dtype: i32,
    data: *mut c_void,
    count: usize,
) -> tiled_status {
    guard(|| {
        require_data(data.cast_const())?;
        let dtype = crate::tensor::dtype(dtype)?;
        handle::shared(weights, "weights", |weights| {
            weights.require_elements(index, dtype, count)?;
            weights.require_held(index)?;
            match weights {
                // SAFETY: the caller's promise
                Weights::F32(values) => unsafe { copy_out(&values.tensors()[index].data, data) },
                // SAFETY: the caller's promise
                Weights::F64(values) => unsafe { copy_out(&values.tensors()[index].data, data) },
            }
        })
    })
}

/// # Safety
/// `data` is NULL or `count` elements can be read from it.
unsafe fn set<T: Element>(
    values: &mut Parameters<T>,
    index: usize,
    data: *const c_void,
    count: usize,
) -> Fallible {
    // SAFETY: the caller's promise
    let data = unsafe { array(data.cast::<T>(), count, "data")? };
    Ok(values.set(index, data)?)
}

/// Copies elements to memory of the caller.
///
/// # Safety
/// `data` is NULL or as many elements can be written to it.
pub(crate) unsafe fn copy_out<T: Element>(values: &[T], data: *mut c_void) -> Fallible {
    // SAFETY: the caller's promise; only written to
    unsafe { array_mut(data.cast::<T>(), values.len(), "data")? }.copy_from_slice(values);
    Ok(())
}

/// Checks for NULL before anything else is looked at.
pub(crate) fn require_data(data: *const c_void) -> Fallible {
    if data.is_null() {
        return Err(Failure::new(crate::status::TILED_STATUS_NULL_POINTER, "data is NULL"));
    }
    Ok(())
}

/// Parameters of either element type.
#[derive(Debug)]
pub enum Weights {
    /// `float`.
    F32(Parameters<f32>),
    /// `double`.
    F64(Parameters<f64>),
}

impl From<Parameters<f32>> for Weights {
    fn from(values: Parameters<f32>) -> Self {
        Self::F32(values)
    }
}

impl From<Parameters<f64>> for Weights {
    fn from(values: Parameters<f64>) -> Self {
        Self::F64(values)
    }
}

impl Weights {
    pub(crate) const fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::F64(_) => DType::F64,
        }
    }

    fn try_clone(&self) -> Fallible<Self> {
        Ok(match self {
            Self::F32(values) => Self::F32(values.try_clone()?),
            Self::F64(values) => Self::F64(values.try_clone()?),
        })
    }

    fn count(&self) -> usize {
        match self {
            Self::F32(values) => values.tensors().len(),
            Self::F64(values) => values.tensors().len(),
        }
    }

    fn name(&self, index: usize) -> &str {
        match self {
            Self::F32(values) => &values.tensors()[index].name,
            Self::F64(values) => &values.tensors()[index].name,
        }
    }

    fn shape(&self, index: usize) -> &[usize] {
        match self {
            Self::F32(values) => &values.tensors()[index].shape,
            Self::F64(values) => &values.tensors()[index].shape,
        }
    }

    fn require(&self, index: usize) -> Fallible {
        let count = self.count();
        if index < count {
            return Ok(());
        }
        Err(Failure::range(format!("index is {index}, there are {count} parameters")))
    }

    /// Checks that no run has let go of a parameter.
    fn require_held(&self, index: usize) -> Fallible {
        let is_released = match self {
            Self::F32(values) => values.is_released(index),
            Self::F64(values) => values.is_released(index),
        };
        if is_released {
            let name = self.name(index);
            return Err(Failure::invalid(format!("a run has let go of the elements of `{name}`")));
        }
        Ok(())
    }

    fn require_elements(&self, index: usize, dtype: DType, count: usize) -> Fallible {
        self.require(index)?;
        if dtype != self.dtype() {
            let (got, wanted) = (dtype.name(), self.dtype().name());
            let message = format!("elements are {got}, the weights hold {wanted}");
            return Err(Failure::new(crate::status::TILED_STATUS_DTYPE, message));
        }
        let wanted: usize = self.shape(index).iter().product();
        if count != wanted {
            let message = format!("`{}` has {wanted} elements, got {count}", self.name(index));
            return Err(Failure::new(TILED_STATUS_SHAPE, message));
        }
        Ok(())
    }
}
