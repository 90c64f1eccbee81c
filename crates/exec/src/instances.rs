//! Generic code of this crate, compiled here for both types of elements, as in `tiled-graph`.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use tiled_graph::{ParamSpec, Plan};
use tiled_kernel::Backend;
use tiled_tensor::{Element, Tensor};

use crate::{
    AdamW, ConstantSource, ExecError, Executor, Io, IoError, MemorySink, MemorySource, Pool, Sgd, Sink,
    SinkOptions, SliceSink, Source, SourceOptions, Trainer, create_sink, create_sink_with, load_parameters,
    load_weights, open_source, open_source_with, save_weights,
};

/// Refers to what takes long to compile.
#[doc(hidden)]
pub fn instances() {
    of::<f32>();
    of::<f64>();
}

fn of<T: Element>() {
    black_box([
        executor::<T> as *const (),
        Executor::<T>::run as *const (),
        Executor::<T>::forward as *const (),
        Executor::<T>::backward as *const (),
        Executor::<T>::gradient as *const (),
        Trainer::<T, Sgd<T>>::step as *const (),
        Trainer::<T, AdamW<T>>::step as *const (),
        MemorySource::<T>::new as *const (),
        MemorySource::<T>::with_strides as *const (),
        MemorySource::<T>::from_tensor as *const (),
        <MemorySource<'_, T> as TryFrom<&Tensor<T>>>::try_from as *const (),
        MemorySink::<T>::new as *const (),
        MemorySink::<T>::into_tensor as *const (),
        SliceSink::<T>::new as *const (),
        SliceSink::<T>::with_strides as *const (),
        Io::<T>::default as *const (),
        files::<T> as *const (),
        as_source::<T, MemorySource<'_, T>> as *const (),
        as_source::<T, ConstantSource<T>> as *const (),
        as_sink::<T, MemorySink<T>> as *const (),
        as_sink::<T, SliceSink<'_, T>> as *const (),
    ]);
}

fn executor<'b, T: Element>(
    plan: Plan,
    shared: Arc<Plan>,
    backend: &'b dyn Backend<T>,
    pool: Arc<Pool>,
    folder: &Path,
) -> Result<[Executor<'b, T>; 3], ExecError> {
    Ok([
        Executor::new(plan, backend, 1)?,
        Executor::with_folder(Arc::clone(&shared), backend, 1, folder)?,
        Executor::with_pool(shared, backend, pool, folder)?,
    ])
}

fn files<T: Element>(path: &Path, specs: &[ParamSpec], shape: [usize; 4]) -> Result<(), IoError> {
    load_weights::<T>(path)?;
    save_weights(path, load_parameters::<T>(path, specs)?.tensors())?;
    open_source::<T>(path)?;
    open_source_with::<T>(path, &SourceOptions::default())?;
    create_sink::<T>(path, shape)?;
    create_sink_with::<T>(path, shape, &SinkOptions::default())?;
    Ok(())
}

fn as_source<T: Element, S: Source<T>>(source: &S) -> &dyn Source<T> {
    source
}

fn as_sink<T: Element, S: Sink<T>>(sink: &S) -> &dyn Sink<T> {
    sink
}
