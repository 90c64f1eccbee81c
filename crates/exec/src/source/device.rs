//! Tensors in the memory of a device as sources.

use std::path::PathBuf;

use tiled_geometry::Region;
use tiled_tensor::{DeviceTensor, Element, ViewMut};

use super::Source;
use crate::IoError;

/// A tensor of the caller in the memory of the device that a plan runs on: no element of it goes through the host.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSource<T> {
    tensor: DeviceTensor<T>,
}

impl<T: Element> DeviceSource<T> {
    /// The source of a tensor.
    #[must_use]
    pub const fn new(tensor: DeviceTensor<T>) -> Self {
        Self { tensor }
    }
}

impl<T: Element> Source<T> for DeviceSource<T> {
    fn shape(&self) -> [usize; 4] {
        self.tensor.shape()
    }

    fn read(&self, _region: Region<2>, _output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        Err(IoError::OnDevice { path: PathBuf::from(NAME), device: self.tensor.device() })
    }

    fn transfer_bytes(&self) -> u64 {
        0
    }

    fn on_device(&self) -> Option<&DeviceTensor<T>> {
        Some(&self.tensor)
    }
}

const NAME: &str = "<device>";
