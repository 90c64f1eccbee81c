//! The backend: what a planner asks, and the kernels that a device has loaded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tiled_kernel::{Backend, Context, DeviceError, Load, Needs, Operands, Support, Task, Work};
use tiled_tensor::{DType, Element};

use crate::args::{Args, bytes_of};
use crate::context::CudaContext;
use crate::driver::{Driver, DriverError, Facts, Function, Launch, Stream};
use crate::lower::waves::Waves;
use crate::lower::{Launches, Shape};
use crate::units::Unit;
use crate::{block, support};

/// The contract on a device.
#[derive(Debug)]
pub struct CudaBackend {
    driver: Arc<dyn Driver>,
    functions: Mutex<HashMap<&'static str, Function>>,
}

impl CudaBackend {
    /// The backend for a device.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self { driver, functions: Mutex::default() }
    }

    /// What the device is.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.driver.facts()
    }

    /// The blocks of threads of a call of this work over so many pixels, of all images, and the seconds that they take; `None` of work that its bytes bound.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a model of time")]
    pub fn waves(&self, work: &Work, dtype: DType, pixels: u64) -> Option<Waves> {
        support::waves(self.facts(), work, dtype, pixels as f64)
    }

    pub(crate) const fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// A kernel of the table, built where it is asked for first.
    fn function(&self, name: &'static str) -> Result<Function, DriverError> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(name) {
            return Ok(*function);
        }
        let unit = Unit::of(name).expect("invariant: kernels that are launched are in the table");
        let function = self.driver.function(unit, name)?;
        functions.insert(name, function);
        Ok(function)
    }
}

impl<T: Element> Backend<T> for CudaBackend {
    fn name(&self) -> String {
        let Facts { name, is_simulated, .. } = self.facts();
        format!("cuda ({name}{})", if *is_simulated { ", simulated" } else { "" })
    }

    fn block(&self, channels: usize) -> usize {
        block(channels)
    }

    fn support(&self, work: &Work, operands: &Operands<'_>) -> Option<Support> {
        support::support::<T>(self.facts(), work, operands)
    }

    fn seconds(&self, task: Task<'_>, load: &Load) -> f64 {
        support::seconds::<T>(self.facts(), task, load)
    }

    fn transfers_beside(&self) -> bool {
        true
    }

    // a call fills the device, and copies have streams of their own
    fn workers(&self, _threads: usize) -> usize {
        1
    }

    fn open<'b>(&'b self, needs: &Needs<'_>) -> Result<Box<dyn Context<T> + 'b>, DeviceError> {
        Ok(Box::new(CudaContext::new(self, needs)?))
    }
}

/// A stream of a backend, for launches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct On<'b> {
    pub(crate) backend: &'b CudaBackend,
    pub(crate) stream: Stream,
    /// What is done, for messages.
    pub(crate) what: &'b str,
}

impl Launches for On<'_> {
    fn facts(&self) -> &Facts {
        self.backend.facts()
    }

    fn launch<A: Args>(&self, kernel: &'static str, shape: Shape, args: &A) -> Result<(), DeviceError> {
        let Shape { grid, block } = shape;
        let launched = self.backend.function(kernel).and_then(|function| {
            let launch = Launch { function, grid, block };
            // SAFETY: the struct is that of the kernel. What it reads and writes are windows and other parts of the context's memory, which
            // outlives its streams; they hold what the region needs, as lowering has checked, and queues share none that one of them writes.
            // Tensors of the caller were lent: who described them has promised that they stay, and that nobody else touches them.
            unsafe { self.backend.driver().launch(self.stream, &launch, bytes_of(args)) }
        });
        launched.map_err(DriverError::doing(format!("{}: {kernel}", self.what)))
    }
}
