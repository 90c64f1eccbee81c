//! What a device is, in numbers that plans are priced by.

use std::fmt;

/// What a device is.
#[derive(Clone, PartialEq, Debug)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Whether it is one on the host: then memory that is taken into use anew is made to hold nothing.
    pub is_simulated: bool,
    /// The compute capability: major, minor.
    pub capability: [u32; 2],
    /// The multiprocessors.
    pub multiprocessors: u32,
    /// The clock of the multiprocessors, in hertz.
    pub clock: f64,
    /// The bytes a second between the device's memory and its multiprocessors.
    pub memory_bandwidth: f64,
    /// The bytes a second between pinned memory and the device, each way.
    pub host_bandwidth: f64,
    /// The bytes of memory.
    pub memory_bytes: u64,
    /// The bytes of the second level cache.
    pub cache_bytes: u64,
    /// The bytes of memory that the driver keeps for a context and the code of the kernels: stated, not asked for.
    pub driver_bytes: u64,
}

/// The models of GPUs whose figures are known, by their short names.
pub const MODELS: [&str; 6] = ["h200", "h100", "a100", "l4", "rtx4090", "rtx5090"];

/// What the drivers of the generations here keep for a context, rounded up.
pub(crate) const DRIVER_BYTES: u64 = 768 << 20;

/// A link of sixteen lanes of the fourth generation and of the fifth, of which copies of large pieces reach six sevenths.
const PCIE_4: f64 = 27e9;
const PCIE_5: f64 = 55e9;

impl Facts {
    /// An H200.
    #[must_use]
    pub fn h200() -> Self {
        Self {
            name: "NVIDIA H200".to_owned(),
            is_simulated: false,
            capability: [9, 0],
            multiprocessors: 132,
            clock: 1.98e9,
            memory_bandwidth: 4.8e12,
            host_bandwidth: PCIE_5,
            memory_bytes: 141_000_000_000,
            cache_bytes: 50 << 20,
            driver_bytes: DRIVER_BYTES,
        }
    }

    /// A model of [`MODELS`], by its data sheet.
    ///
    /// ```
    /// use tiled_cuda::driver::{Facts, MODELS};
    /// assert!(MODELS.iter().all(|model| Facts::of_model(model).is_some()));
    /// let a100 = Facts::of_model("a100").expect("it is one");
    /// assert_eq!((a100.flops(4) / 1e11).round(), 195.0); // 19.5 TFLOP/s
    /// ```
    #[must_use]
    pub fn of_model(model: &str) -> Option<Self> {
        let of = |name: &str, capability: [u32; 2], multiprocessors, clock, memory_bandwidth| Self {
            name: format!("NVIDIA {name}"),
            capability,
            multiprocessors,
            clock,
            memory_bandwidth,
            host_bandwidth: Self::link(capability[0]),
            ..Self::h200()
        };
        let gib = |bytes: u64| bytes << 30;
        Some(match model {
            "h200" => Self::h200(),
            "h100" => Self { memory_bytes: gib(80), ..of("H100", [9, 0], 132, 1.98e9, 3.35e12) },
            "a100" => Self {
                memory_bytes: gib(80),
                cache_bytes: 40 << 20,
                ..of("A100", [8, 0], 108, 1.41e9, 2.04e12)
            },
            "l4" => {
                Self { memory_bytes: gib(24), cache_bytes: 48 << 20, ..of("L4", [8, 9], 58, 2.04e9, 3e11) }
            }
            "rtx4090" => Self {
                memory_bytes: gib(24),
                cache_bytes: 72 << 20,
                ..of("GeForce RTX 4090", [8, 9], 128, 2.52e9, 1.01e12)
            },
            "rtx5090" => Self {
                memory_bytes: gib(32),
                cache_bytes: 96 << 20,
                ..of("GeForce RTX 5090", [12, 0], 170, 2.41e9, 1.79e12)
            },
            _ => return None,
        })
    }

    /// The bytes a second of the link to the host, which a driver does not say: by what devices of such a capability have.
    pub(crate) const fn link(major: u32) -> f64 {
        if major >= 9 { PCIE_5 } else { PCIE_4 }
    }

    /// The multiply-adds of elements of so many bytes that a multiprocessor starts in a cycle.
    #[must_use]
    pub const fn lanes(&self, element_bytes: usize) -> u32 {
        match (self.capability, element_bytes) {
            ([8, 0], 4) | ([9 | 10, 0], 8) => 64,
            ([8, 0], _) => 32,
            (_, 4) => 128,
            // what is not made for doubles has two of them
            _ => 2,
        }
    }

    /// The floating-point operations a second of a loop of multiply-adds on elements of so many bytes.
    #[must_use]
    pub fn flops(&self, element_bytes: usize) -> f64 {
        2.0 * f64::from(self.lanes(element_bytes)) * f64::from(self.multiprocessors) * self.clock
    }

    /// The same of tensor cores on factors of ten bits (TF32), by the data sheets.
    #[must_use]
    pub fn tensor_flops(&self) -> f64 {
        let lanes = match self.capability {
            [8, 0] => 512.0,
            [9 | 10, 0] => 1024.0,
            _ => 128.0,
        };
        2.0 * lanes * f64::from(self.multiprocessors) * self.clock
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor] = self.capability;
        let Self { name, multiprocessors, memory_bytes, .. } = self;
        let simulated = if self.is_simulated { ", simulated" } else { "" };
        let gib = memory_bytes >> 30;
        write!(
            f,
            "{name}{simulated}: compute capability {major}.{minor}, {multiprocessors} multiprocessors, {gib} GiB"
        )
    }
}
