//! Tensors in the memory of a device as sinks.

use std::path::Path;

use tiled_geometry::Region;
use tiled_tensor::{DeviceTensor, Element, Layout, View};

use super::{Sink, Written};
use crate::IoError;
use crate::source::Places;

/// A tensor of the caller in the memory of the device that a plan runs on, to be written: no element of it goes through the host.
#[derive(Debug)]
pub struct DeviceSink<T> {
    tensor: DeviceTensor<T>,
    written: Written,
}

impl<T: Element> DeviceSink<T> {
    /// The sink of a tensor.
    ///
    /// # Errors
    /// Where two elements may share a place, and where the size of the shape overflows.
    pub fn new(tensor: DeviceTensor<T>) -> Result<Self, IoError> {
        let (start, _) = tensor.span();
        Places::new(tensor.shape(), start, tensor.strides())?.check_disjoint()?;
        Ok(Self { tensor, written: Written::new(Path::new(NAME), tensor.shape())? })
    }

    /// The tensor.
    #[must_use]
    pub const fn tensor(&self) -> &DeviceTensor<T> {
        &self.tensor
    }

    /// Counts a region that `export` copies there from a window of this layout.
    pub(crate) fn export<E: From<IoError>>(
        &self,
        region: Region<2>,
        layout: &Layout,
        export: impl FnOnce(&DeviceTensor<T>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.written.check(region, layout)?;
        export(&self.tensor)?;
        self.written.add(region);
        Ok(())
    }
}

impl<T: Element> Sink<T> for DeviceSink<T> {
    fn shape(&self) -> [usize; 4] {
        self.tensor.shape()
    }

    fn write(&self, _region: Region<2>, _input: &View<'_, T>) -> Result<(), IoError> {
        Err(IoError::OnDevice { path: NAME.into(), device: self.tensor.device() })
    }

    fn transfer_bytes(&self) -> u64 {
        0
    }

    fn on_device(&self) -> Option<&DeviceSink<T>> {
        Some(self)
    }

    fn finish(&self) -> Result<(), IoError> {
        self.written.close()
    }

    fn abort(&self) {
        self.written.abandon();
    }
}

const NAME: &str = "<device>";
