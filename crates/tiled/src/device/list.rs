//! The devices that there are.

use std::fmt;

use tiled_cpu::CpuBackend;
#[cfg(feature = "cuda")]
use tiled_cuda::Precision;
#[cfg(all(feature = "cuda", unix))]
use tiled_cuda::driver::simulated::compiler;
#[cfg(feature = "cuda")]
use tiled_cuda::driver::{DriverError, Facts, MODELS, gpu};
use tiled_kernel::Backend;

#[cfg(feature = "cuda")]
use super::Device;
#[cfg(all(feature = "cuda", not(unix)))]
use super::DeviceChoiceError;

/// What kind of device one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The cores of this machine.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// A GPU that the host simulates.
    CudaSim,
}

/// A device as it stands in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What [`super::Device`] is parsed from.
    pub name: String,
    /// What kind it is.
    pub kind: DeviceKind,
    /// What it is, or why it is not there.
    pub what: String,
    /// Whether it can run work.
    pub is_there: bool,
    /// The bytes of a GPU's memory, or of that which is simulated; `None` where nobody knows, and of the CPU.
    pub memory_bytes: Option<u64>,
    /// Its multiprocessors, likewise.
    pub multiprocessors: Option<u32>,
}

/// Every device, those that are not there with the reason.
#[must_use]
pub fn devices() -> Vec<Listed> {
    let cpu = CpuBackend::new().map(|cpu| Backend::<f32>::name(&cpu));
    std::iter::once(Listed::new(DeviceKind::Cpu, "cpu".to_owned(), cpu)).chain(gpus()).collect()
}

#[cfg(not(feature = "cuda"))]
fn gpus() -> Vec<Listed> {
    Vec::new()
}

/// Those of this machine, and those that it can simulate.
#[cfg(feature = "cuda")]
fn gpus() -> Vec<Listed> {
    let mut all: Vec<Listed> = match gpu::devices() {
        Ok(gpus) => gpus
            .iter()
            .zip(0_u32..)
            .map(|(facts, index)| {
                let shown = Ok::<_, DriverError>(facts.to_string());
                Listed::new(DeviceKind::Cuda, Device::Cuda(index, Precision::F32).to_string(), shown)
                    .with(facts)
            })
            .collect(),
        Err(error) => vec![Listed::new(DeviceKind::Cuda, "cuda".to_owned(), Err(error))],
    };
    all.extend(MODELS.iter().filter_map(|model| {
        let facts = Facts::of_model(model)?;
        #[cfg(unix)]
        let there = compiler().map(|()| facts.to_string()).map_err(|error| format!("{facts}; {error}"));
        #[cfg(not(unix))]
        let there = Err::<String, _>(DeviceChoiceError::Unsimulated {
            device: Device::CudaSim(model, Precision::F32),
        });
        Some(
            Listed::new(DeviceKind::CudaSim, Device::CudaSim(model, Precision::F32).to_string(), there)
                .with(&facts),
        )
    }));
    all
}

impl Listed {
    fn new(kind: DeviceKind, name: String, what: Result<String, impl fmt::Display>) -> Self {
        let is_there = what.is_ok();
        let what = what.unwrap_or_else(|error| error.to_string());
        Self { name, kind, what, is_there, memory_bytes: None, multiprocessors: None }
    }

    #[cfg(feature = "cuda")]
    fn with(self, facts: &Facts) -> Self {
        let (memory_bytes, multiprocessors) = (Some(facts.memory_bytes), Some(facts.multiprocessors));
        Self { memory_bytes, multiprocessors, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_begins_with_the_cpu_and_knows_the_memory_of_gpus() {
        let all = devices();
        assert_eq!((all[0].name.as_str(), all[0].kind, all[0].memory_bytes), ("cpu", DeviceKind::Cpu, None));
        for listed in &all[1..] {
            let is_known = listed.memory_bytes.is_some() && listed.multiprocessors.is_some();
            assert!(is_known || !listed.is_there, "{listed:?}");
        }
    }
}
