//! Where work runs: one place that chooses a backend by the name of a device.
//!
//! ```text
//!   "cpu"                      this machine's cores
//!   "cuda", "cuda:1"           an NVIDIA GPU, by its number                           with the feature `cuda`
//!   "cuda-sim", "cuda-sim:l4"  a simulated GPU with the figures of a model of them    with the feature `cuda`, on Unix
//!   "cuda+tf32", "cuda+f32x3"  a GPU, simulated or not, whose tensor cores carry out convolutions of `f32`
//! ```
//!
//! A plan is made for a device and runs on it alone. What a simulated device plans is what the GPU would; its kernels run on the host, where there
//! is a C++ compiler to build them.
//!
//! # Example
//!
//! ```
//! use tiled::device::Device;
//! use tiled::prelude::*;
//!
//! let device: Device = "cpu".parse()?;
//! let backend = device.open()?;
//! let graph = Graph::builtin("light").expect("it is built in");
//! let shapes = infer(&graph, 1, &[[64, 64]])?;
//! let plan = Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &backend).plan(&PlanOptions::default())?;
//! assert!(Executor::<f32>::new(plan, &backend, 1).is_ok());
//! assert_eq!("gpu".parse::<Device>().unwrap_err().to_string().split(':').next(), Some("unknown device `gpu`"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "cuda")]
mod figures;
mod list;

use std::fmt;
use std::str::FromStr;
#[cfg(feature = "cuda")]
use std::sync::Arc;

use tiled_cpu::{CpuBackend, IsaError};
#[cfg(all(feature = "cuda", unix))]
use tiled_cuda::driver::simulated::{Order, Simulated, compiler};
#[cfg(feature = "cuda")]
use tiled_cuda::driver::{DriverError, Facts, MODELS, gpu};
#[cfg(feature = "cuda")]
use tiled_cuda::{CudaBackend, Precision};
#[cfg(feature = "cuda")]
use tiled_graph::Plan;
use tiled_graph::UNLIMITED;
use tiled_kernel::{Backend, forward};
use tiled_tensor::Element;
#[cfg(feature = "cuda")]
use tiled_tensor::OutOfMemory;

#[cfg(feature = "cuda")]
pub use figures::DeviceFigures;
pub use list::{DeviceKind, Listed, devices};

/// A device, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Device {
    /// The cores of this machine.
    #[default]
    Cpu,
    /// The NVIDIA GPU of this number, from zero.
    #[cfg(feature = "cuda")]
    Cuda(u32, Precision),
    /// A simulated GPU with the figures of this model, one of [`tiled_cuda::driver::MODELS`].
    #[cfg(feature = "cuda")]
    CudaSim(&'static str, Precision),
}

/// Why a device is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceChoiceError {
    /// No device has such a name.
    #[error("unknown device `{name}`: known are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The device is of a feature that was left out.
    #[error("device `{name}`: this build has no CUDA, which is the feature `cuda`")]
    LeftOut {
        /// What was asked for.
        name: String,
    },
    /// The instruction set of the CPU.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// The driver, the device, or the compiler for a simulated one.
    #[cfg(feature = "cuda")]
    #[error("device `{device}`: {source}")]
    Cuda {
        /// Which device.
        device: Device,
        /// What it says.
        source: DriverError,
    },
    /// A run may take more than the device has.
    #[error("budget of {budget_bytes} bytes: device `{device}` has {bytes}")]
    Budget {
        /// The name of its backend.
        device: String,
        /// The bytes that the run may take.
        budget_bytes: u64,
        /// Those of the device, but for what its driver keeps.
        bytes: u64,
    },
    /// It has no tensor cores.
    #[cfg(feature = "cuda")]
    #[error("device `{device}` has no tensor cores: precision `{precision}` wants `cuda` or `cuda-sim`")]
    NoTensorCores {
        /// Which device.
        device: Device,
        /// What was asked of it.
        precision: Precision,
    },
    /// There is no simulation on this system.
    #[error("device `{device}`: simulated devices run on Unix alone")]
    Unsimulated {
        /// Which device.
        device: Device,
    },
}

/// The backend of a device.
#[derive(Debug)]
pub enum DeviceBackend {
    /// The cores of this machine.
    Cpu(CpuBackend),
    /// A GPU, or a simulated one.
    #[cfg(feature = "cuda")]
    Cuda(CudaBackend),
}

impl Device {
    /// The backend, for runs.
    ///
    /// # Errors
    /// Where the device is not there, or a simulated one has no compiler for its kernels.
    pub fn open(self) -> Result<DeviceBackend, DeviceChoiceError> {
        #[cfg(all(feature = "cuda", unix))]
        if matches!(self, Self::CudaSim(..)) {
            compiler().map_err(self.refused())?;
        }
        self.open_for_plans()
    }

    /// The backend, for plans: a simulated device needs no compiler for these.
    ///
    /// # Errors
    /// Where the device is not there.
    pub fn open_for_plans(self) -> Result<DeviceBackend, DeviceChoiceError> {
        match self {
            Self::Cpu => Ok(DeviceBackend::Cpu(CpuBackend::new()?)),
            #[cfg(feature = "cuda")]
            Self::Cuda(index, precision) => {
                let gpu = gpu::Gpu::new(index).map_err(self.refused())?;
                Ok(DeviceBackend::Cuda(CudaBackend::with_precision(Arc::new(gpu), precision)))
            }
            #[cfg(feature = "cuda")]
            Self::CudaSim(model, precision) => self.simulated(model, precision),
        }
    }

    /// The same device, whose convolutions of `f32` have this precision.
    ///
    /// # Errors
    /// Where the device has no tensor cores and the precision wants them.
    #[cfg(feature = "cuda")]
    pub const fn with_precision(self, precision: Precision) -> Result<Self, DeviceChoiceError> {
        match (self, precision) {
            (Self::Cpu, Precision::F32) => Ok(self),
            (Self::Cpu, _) => Err(DeviceChoiceError::NoTensorCores { device: self, precision }),
            (Self::Cuda(index, _), _) => Ok(Self::Cuda(index, precision)),
            (Self::CudaSim(model, _), _) => Ok(Self::CudaSim(model, precision)),
        }
    }

    #[cfg(all(feature = "cuda", unix))]
    fn simulated(self, model: &str, precision: Precision) -> Result<DeviceBackend, DeviceChoiceError> {
        let facts = Facts::of_model(model).ok_or_else(|| unknown(&self.to_string()))?;
        let device = Simulated::unbuilt(facts, Order::Forward);
        Ok(DeviceBackend::Cuda(CudaBackend::with_precision(Arc::new(device), precision)))
    }

    #[cfg(all(feature = "cuda", not(unix)))]
    fn simulated(self, _model: &str, _precision: Precision) -> Result<DeviceBackend, DeviceChoiceError> {
        Err(DeviceChoiceError::Unsimulated { device: self })
    }

    #[cfg(feature = "cuda")]
    fn refused(self) -> impl FnOnce(DriverError) -> DeviceChoiceError {
        move |source| DeviceChoiceError::Cuda { device: self, source }
    }
}

impl FromStr for Device {
    type Err = DeviceChoiceError;

    fn from_str(name: &str) -> Result<Self, DeviceChoiceError> {
        #[cfg(feature = "cuda")]
        if let Some((device, precision)) = name.split_once('+') {
            let precision = precision.parse().map_err(|_| unknown(name))?;
            return device.parse::<Self>().map_err(|_| unknown(name))?.with_precision(precision);
        }
        let (kind, which) = match name.split_once(':') {
            Some((kind, which)) => (kind, Some(which)),
            None => (name, None),
        };
        match (kind, which) {
            ("cpu", None) => Ok(Self::Cpu),
            #[cfg(feature = "cuda")]
            ("cuda", None) => Ok(Self::Cuda(0, Precision::F32)),
            #[cfg(feature = "cuda")]
            ("cuda", Some(index)) => {
                index.parse().map(|index| Self::Cuda(index, Precision::F32)).map_err(|_| unknown(name))
            }
            #[cfg(feature = "cuda")]
            ("cuda-sim", None) => Ok(Self::CudaSim(MODELS[0], Precision::F32)),
            #[cfg(feature = "cuda")]
            ("cuda-sim", Some(model)) => {
                let known = MODELS.iter().find(|known| **known == model);
                known.map(|model| Self::CudaSim(model, Precision::F32)).ok_or_else(|| unknown(name))
            }
            #[cfg(not(feature = "cuda"))]
            ("cuda" | "cuda-sim", _) => Err(DeviceChoiceError::LeftOut { name: name.to_owned() }),
            _ => Err(unknown(name)),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            #[cfg(feature = "cuda")]
            Self::Cuda(index, precision) => write!(f, "cuda:{index}{}", Suffix(*precision)),
            #[cfg(feature = "cuda")]
            Self::CudaSim(model, precision) => write!(f, "cuda-sim:{model}{}", Suffix(*precision)),
        }
    }
}

/// What follows the name of a GPU for its precision.
#[cfg(feature = "cuda")]
struct Suffix(Precision);

#[cfg(feature = "cuda")]
impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Precision::F32 => Ok(()),
            precision => write!(f, "+{precision}"),
        }
    }
}

fn unknown(name: &str) -> DeviceChoiceError {
    #[cfg(feature = "cuda")]
    let known = format!(
        "cpu, cuda, cuda:N, cuda-sim, cuda-sim:MODEL where MODEL is {}; a GPU's with +tf32 or +f32x3 for tensor cores",
        MODELS.join(", ")
    );
    #[cfg(not(feature = "cuda"))]
    let known = "cpu".to_owned();
    DeviceChoiceError::Unknown { name: name.to_owned(), known }
}

impl DeviceBackend {
    fn of<T: Element>(&self) -> &dyn Backend<T> {
        match self {
            Self::Cpu(cpu) => cpu,
            #[cfg(feature = "cuda")]
            Self::Cuda(cuda) => cuda,
        }
    }

    /// The bytes of memory that a run may take where nobody says: those of a GPU but what its driver keeps; `None` where it is the memory of this
    /// machine.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<u64> {
        match self {
            Self::Cpu(_) => None,
            #[cfg(feature = "cuda")]
            Self::Cuda(cuda) => self.most_bytes().filter(|_| !cuda.facts().is_simulated),
        }
    }

    /// The most bytes that a run can take: those of a GPU, a simulated one too, but what its driver keeps; `None` of the cores of this machine.
    #[must_use]
    pub fn most_bytes(&self) -> Option<u64> {
        match self {
            Self::Cpu(_) => None,
            #[cfg(feature = "cuda")]
            Self::Cuda(cuda) => {
                let Facts { memory_bytes, driver_bytes, .. } = *cuda.facts();
                Some(memory_bytes.saturating_sub(driver_bytes))
            }
        }
    }

    /// Checks that the device has what a run may take, where that is a number of bytes and not [`UNLIMITED`].
    ///
    /// # Errors
    /// Where the device has less.
    pub fn check_budget(&self, budget_bytes: Option<u64>) -> Result<(), DeviceChoiceError> {
        match (budget_bytes.filter(|bytes| *bytes != UNLIMITED), self.most_bytes()) {
            (Some(budget_bytes), Some(bytes)) if budget_bytes > bytes => {
                let device = Backend::<f32>::name(self);
                Err(DeviceChoiceError::Budget { device, budget_bytes, bytes })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(feature = "cuda")]
impl DeviceBackend {
    /// What a plan takes of a GPU, found by a walk over all of its calls; `None` of the cores of this machine.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn figures(&self, plan: &Plan) -> Result<Option<DeviceFigures>, OutOfMemory> {
        match self {
            Self::Cpu(_) => Ok(None),
            Self::Cuda(cuda) => DeviceFigures::new(cuda, plan).map(Some),
        }
    }
}

impl<T: Element> Backend<T> for DeviceBackend {
    forward!(T, |device| device.of::<T>(); name block support seconds transfers_beside workers open);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_listed_device_is_that_of_the_device() {
        for Listed { name, .. } in devices() {
            let device: Device = name.parse().expect("what is listed can be asked for");
            assert!(device.to_string().starts_with(&name), "{name}, {device}");
        }
    }

    #[test]
    fn other_names_are_refused_with_those_that_there_are() {
        for name in [
            "",
            "gpu",
            "cpu:0",
            "cuda:",
            "cuda:-1",
            "cuda:x",
            "cuda-sim:",
            "cuda-sim:h300",
            "cuda-sim:h200:1",
        ] {
            let error = name.parse::<Device>().expect_err(name);
            assert!(error.to_string().contains(&format!("device `{name}`")), "{error}");
        }
    }

    #[cfg(all(feature = "cuda", unix))]
    #[test]
    fn a_precision_is_a_part_of_the_name() {
        let device: Device = "cuda-sim:l4+tf32".parse().expect("it is one");
        assert_eq!(device, Device::CudaSim("l4", Precision::Tf32));
        assert_eq!(device.to_string(), "cuda-sim:l4+tf32");
        let backend = device.open_for_plans().expect("figures alone");
        assert_eq!(Backend::<f32>::name(&backend), "cuda (NVIDIA L4, simulated, tf32)");
        for name in ["cuda+", "cuda+f64", "cuda+tf32+tf32", "cuda-sim:l4+TF32", "+tf32"] {
            assert!(name.parse::<Device>().is_err(), "{name}");
        }
        let error = "cpu+tf32".parse::<Device>().expect_err("a CPU").to_string();
        assert_eq!(error, "device `cpu` has no tensor cores: precision `tf32` wants `cuda` or `cuda-sim`");
    }

    #[cfg(all(feature = "cuda", unix))]
    #[test]
    fn every_model_plans_without_a_compiler() {
        for model in MODELS {
            let backend = Device::CudaSim(model, Precision::F32).open_for_plans().expect("figures alone");
            assert!(Backend::<f32>::name(&backend).contains("simulated"), "{model}");
            assert_eq!(backend.memory_bytes(), None, "its memory is the host's");
        }
    }

    #[test]
    fn the_cores_of_this_machine_take_any_budget() {
        let backend = Device::Cpu.open_for_plans().expect("there is a CPU");
        assert_eq!(backend.check_budget(Some(u64::MAX - 1)), Ok(()));
    }

    #[cfg(all(feature = "cuda", unix))]
    #[test]
    fn a_budget_above_the_memory_of_a_gpu_is_refused_with_both_numbers() {
        let backend = Device::CudaSim("l4", Precision::F32).open_for_plans().expect("figures alone");
        let most = backend.most_bytes().expect("it is a GPU");
        for budget in [None, Some(1), Some(most), Some(UNLIMITED)] {
            assert_eq!(backend.check_budget(budget), Ok(()));
        }
        let error = backend.check_budget(Some(most + 1)).expect_err("one byte more").to_string();
        let expected =
            format!("budget of {} bytes: device `cuda (NVIDIA L4, simulated)` has {most}", most + 1);
        assert_eq!(error, expected);
    }
}
