//! A device with the kernels that it has loaded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tiled_kernel::DeviceError;

use crate::args::{Args, bytes_of};
use crate::driver::{Driver, DriverError, Facts, Function, Launch, Stream};
use crate::lower::{Launches, Shape};
use crate::precision::Precision;
use crate::units::Unit;

/// A device, and its kernels as far as they were asked for.
#[derive(Debug)]
pub(crate) struct Device {
    driver: Arc<dyn Driver>,
    precision: Precision,
    functions: Mutex<HashMap<&'static str, Function>>,
}

impl Device {
    pub(crate) fn new(driver: Arc<dyn Driver>, precision: Precision) -> Self {
        Self { driver, precision, functions: Mutex::default() }
    }

    pub(crate) fn facts(&self) -> &Facts {
        self.driver.facts()
    }

    pub(crate) const fn precision(&self) -> Precision {
        self.precision
    }

    pub(crate) const fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// What messages and plans call it.
    pub(crate) fn name(&self) -> String {
        let Facts { name, is_simulated, .. } = self.facts();
        let simulated = if *is_simulated { ", simulated" } else { "" };
        match self.precision {
            Precision::F32 => format!("cuda ({name}{simulated})"),
            precision => format!("cuda ({name}{simulated}, {precision})"),
        }
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

/// A stream of a device, for launches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct On<'d> {
    pub(crate) device: &'d Device,
    pub(crate) stream: Stream,
    /// What is done, for messages.
    pub(crate) what: &'d str,
}

impl Launches for On<'_> {
    fn facts(&self) -> &Facts {
        self.device.facts()
    }

    fn precision(&self) -> Precision {
        self.device.precision
    }

    fn launch<A: Args>(&self, kernel: &'static str, shape: Shape, args: &A) -> Result<(), DeviceError> {
        let Shape { grid, block } = shape;
        let launched = self.device.function(kernel).and_then(|function| {
            let launch = Launch { function, grid, block };
            // SAFETY: the struct is that of the kernel. What it reads and writes are windows and other parts of the context's memory, which
            // outlives its streams; they hold what the region needs, as lowering has checked, and queues share none that one of them writes.
            // Tensors of the caller were lent: who described them has promised that they stay, and that nobody else touches them.
            unsafe { self.device.driver().launch(self.stream, &launch, bytes_of(args)) }
        });
        launched.map_err(DriverError::doing(format!("{}: {kernel}", self.what)))
    }
}
