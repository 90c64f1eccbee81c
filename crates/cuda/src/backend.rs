//! The backend: what a planner asks.

use std::sync::Arc;

use tiled_kernel::{Backend, Context, DeviceError, Load, Needs, Operands, Support, Task, Work};
use tiled_tensor::{DType, Element};

use crate::context::CudaContext;
use crate::device::Device;
use crate::driver::{Driver, Facts};
use crate::lower::waves::Waves;
use crate::precision::Precision;
use crate::{block, support};

/// The contract on a device.
#[derive(Debug)]
pub struct CudaBackend {
    device: Device,
}

impl CudaBackend {
    /// The backend for a device.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self::with_precision(driver, Precision::F32)
    }

    /// The same with another precision of convolutions in `f32`.
    #[must_use]
    pub fn with_precision(driver: Arc<dyn Driver>, precision: Precision) -> Self {
        Self { device: Device::new(driver, precision) }
    }

    /// What the device is.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.device.facts()
    }

    /// The blocks of threads of a call of this work over so many pixels, of all images, and the seconds that they take; `None` of work that its bytes bound.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a model of time")]
    pub fn waves(&self, work: &Work, dtype: DType, pixels: u64) -> Option<Waves> {
        support::waves(&self.device, work, dtype, pixels as f64)
    }

    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }
}

impl<T: Element> Backend<T> for CudaBackend {
    fn name(&self) -> String {
        self.device.name()
    }

    fn block(&self, channels: usize) -> usize {
        block(channels)
    }

    fn support(&self, work: &Work, operands: &Operands<'_>) -> Option<Support> {
        support::support::<T>(&self.device, work, operands)
    }

    fn seconds(&self, task: Task<'_>, load: &Load) -> f64 {
        support::seconds::<T>(&self.device, task, load)
    }

    fn transfers_beside(&self) -> bool {
        true
    }

    // a call fills the device, and copies have streams of their own
    fn workers(&self, _threads: usize) -> usize {
        1
    }

    fn open<'b>(&'b self, needs: &Needs<'_>) -> Result<Box<dyn Context<T> + 'b>, DeviceError> {
        Ok(Box::new(CudaContext::new(&self.device, needs)?))
    }
}
