//! Where the executor writes a tensor to.

mod decided;
mod device;
mod function;
mod memory;
mod resident;
mod stored;
mod written;

use std::sync::Arc;

use tiled_geometry::Region;
use tiled_graph::TRANSFER_BYTES;
use tiled_tensor::{Element, PartMut, View};

use crate::{Changes, IoError};

pub use decided::{DecidedSink, Decision};
pub use device::DeviceSink;
pub use function::FnSink;
pub use memory::{MemorySink, SliceSink};
pub use resident::sink_resident_bytes;
pub use stored::StoredSink;
pub(crate) use written::Written;

/// A tensor in memory that is written region by region, from several threads at once.
pub trait SinkInMemory<T: Element>: Sync {
    /// Lets `compute` write every image and channel of `region` into the tensor.
    ///
    /// # Errors
    /// Where `region` is not inside the tensor, and where the sink is finished or aborted.
    fn write_in_place(
        &self,
        region: Region<2>,
        compute: &mut dyn FnMut(PartMut<'_, T>),
    ) -> Result<(), IoError>;
}

/// An `NCHW` tensor that is written region by region, from several threads at once.
///
/// The regions written are disjoint and together are the whole tensor. A file stands under its final name only
/// after [`Sink::finish`]; a sink that is aborted or dropped before leaves nothing.
pub trait Sink<T: Element>: Send + Sync {
    /// The shape, NCHW.
    fn shape(&self) -> [usize; 4];

    /// Takes every image and channel of `region`, in global coordinates, from the window.
    ///
    /// # Errors
    /// Where `region` is not inside the tensor and the window, where the window has another batch or other
    /// channels, where the sink is finished or aborted, and where the data cannot be written.
    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError>;

    /// The tensor itself, where it lies in memory in the order NCHW without gaps: a kernel may then write there.
    fn in_memory(&self) -> Option<&dyn SinkInMemory<T>> {
        None
    }

    /// The tensor itself, where it lies in the memory of a device: then the device copies to it, and [`Sink::write`] is an error.
    fn on_device(&self) -> Option<&DeviceSink<T>> {
        None
    }

    /// Does what [`Sink::finish`] does but for what others see of it: encodes and brings to the disk. After it nothing can be
    /// written. A run prepares all its sinks before it finishes the first, so that where one cannot be prepared none is finished.
    ///
    /// # Errors
    /// As [`Sink::finish`]. Nothing can fail where a sink leaves all to that.
    fn prepare(&self) -> Result<(), IoError> {
        Ok(())
    }

    /// Makes the tensor stand under its final name, and prepares it where that has not been done.
    ///
    /// The sinks of a run are finished one after the other, the outputs before the gradients, each in the order of [`Io`](crate::Io).
    /// Where one fails that could be prepared, those before it stay finished although the run fails; those after it are aborted.
    ///
    /// # Errors
    /// Where the elements written are not as many as the tensor has, where the sink is finished or aborted, and
    /// where the data cannot be written. Then nothing stands under the final name.
    fn finish(&self) -> Result<(), IoError>;

    /// Throws away what was written. Does nothing after [`Sink::finish`].
    fn abort(&self);

    /// The bytes of memory that the sink itself keeps as long as it lives, the caller's own data not counted.
    fn resident_bytes(&self) -> u64 {
        0
    }

    /// The bytes that it may hold for each lane, or each thread that writes for a device, while it converts and writes elements.
    fn transfer_bytes(&self) -> u64 {
        TRANSFER_BYTES
    }

    /// What of the values written so far is not stored as it is; nothing where the sink stores floating point of 32 or 64 bits.
    fn changes(&self) -> Option<Changes> {
        None
    }
}

macro_rules! forward {
    ($($type:ty),*) => {$(
        impl<T: Element, S: Sink<T> + ?Sized> Sink<T> for $type {
            fn shape(&self) -> [usize; 4] {
                (**self).shape()
            }
            fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
                (**self).write(region, input)
            }
            fn in_memory(&self) -> Option<&dyn SinkInMemory<T>> {
                (**self).in_memory()
            }
            fn on_device(&self) -> Option<&DeviceSink<T>> {
                (**self).on_device()
            }
            fn prepare(&self) -> Result<(), IoError> {
                (**self).prepare()
            }
            fn finish(&self) -> Result<(), IoError> {
                (**self).finish()
            }
            fn transfer_bytes(&self) -> u64 {
                (**self).transfer_bytes()
            }
            fn abort(&self) {
                (**self).abort();
            }
            fn resident_bytes(&self) -> u64 {
                (**self).resident_bytes()
            }
            fn changes(&self) -> Option<Changes> {
                (**self).changes()
            }
        }
    )*};
}

forward!(&S, Box<S>, Arc<S>);
