//! What a device reaches at best, measured on it: what the share of a kernel is a share of.

use std::time::Instant;

use tiled_kernel::DeviceError;
use tiled_tensor::{DType, Element};

use crate::CudaBackend;
use crate::args::Peak;
use crate::device::On;
use crate::driver::{Copy, DriverError, Rows, Way};
use crate::lower::{Launches, Shape};
use crate::memory::{Chunk, DeviceMemory, OwnStream};

/// What a device reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Floating-point operations a second of a loop of multiply-adds: `f32`, `f64`.
    pub flops: [f64; 2],
    /// Bytes a second that a copy on the device reads and writes.
    pub copied: f64,
    /// Bytes a second from pinned memory to the device.
    pub sent: f64,
    /// Bytes a second from the device to pinned memory.
    pub received: f64,
}

/// How much is done to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The bytes of a copy.
    pub bytes: usize,
    /// The rounds of the loop of multiply-adds.
    pub rounds: u32,
    /// The times that each is done, of which the median counts.
    pub times: usize,
}

impl Effort {
    /// Enough for a GPU: copies of a gibibyte, loops of some milliseconds.
    pub const GPU: Self = Self { bytes: 1 << 30, rounds: 20_000, times: 7 };
}

/// The chains of multiply-adds of a thread, the threads of a block and the blocks for each multiprocessor: `kernels/peak.cu`.
const CHAINS: u32 = 16;
const THREADS: u32 = 256;
const BLOCKS_EACH: u32 = 8;

impl CudaBackend {
    /// Measures what the device reaches.
    ///
    /// # Errors
    /// Where memory is refused or the device fails.
    pub fn peaks(&self, effort: Effort) -> Result<Peaks, DeviceError> {
        let doing = || DriverError::doing("the peaks of a device");
        let driver = self.device().driver();
        let memory = DeviceMemory::new(driver, 2 * effort.bytes).map_err(doing())?;
        let stream = OwnStream::new(driver).map_err(doing())?;
        let mut chunk = Chunk::new(driver).map_err(doing())?;
        chunk.reserve(effort.bytes).map_err(doing())?;
        let seconds = |what: &dyn Fn() -> Result<(), DeviceError>| -> Result<f64, DeviceError> {
            let mut all = Vec::with_capacity(effort.times + 1);
            for _ in 0..=effort.times {
                let begin = Instant::now();
                what()?;
                driver.synchronise(stream.stream).map_err(doing())?;
                all.push(begin.elapsed().as_secs_f64());
            }
            // the first touches memory, and loads the kernel
            all.remove(0);
            all.sort_by(f64::total_cmp);
            Ok(all[all.len() / 2])
        };
        let bytes = effort.bytes;
        let rows = |address| Rows { address, row_bytes: bytes, plane_bytes: bytes };
        let [first, second] = [memory.address(), memory.address() + bytes as u64].map(rows);
        let host = rows(chunk.address());
        let copies = |way, from, to| {
            let copy = Copy { way, from, to, bytes, rows: 1, planes: 1 };
            // SAFETY: all of it is memory that was just allocated with these sizes, and is waited for before it is given back
            let taken = seconds(&|| unsafe { driver.copy(stream.stream, &copy) }.map_err(doing()))?;
            Ok::<f64, DeviceError>(as_f64(bytes) / taken)
        };
        let sent = copies(Way::In, host, first)?;
        let received = copies(Way::Out, first, host)?;
        let copied = 2.0 * copies(Way::Within, first, second)?;
        let flops = [DType::F32, DType::F64].map(|dtype| {
            let blocks = (self.facts().multiprocessors * BLOCKS_EACH)
                .min(u32::try_from(bytes / (f64::DTYPE.size_bytes() * THREADS as usize)).unwrap_or(u32::MAX))
                .max(1);
            let (rounds, unused) = (effort.rounds.cast_signed(), 0);
            let args = Peak { to: memory.address(), rounds, unused };
            let kernel = match dtype {
                DType::F32 => "multiply_adds_f32",
                DType::F64 => "multiply_adds_f64",
            };
            let on = On { device: self.device(), stream: stream.stream, what: "the peaks of a device" };
            let shape = Shape { grid: [blocks, 1, 1], block: [THREADS, 1, 1] };
            let taken = seconds(&|| on.launch(kernel, shape, &args))?;
            let done =
                2.0 * f64::from(CHAINS) * f64::from(THREADS) * f64::from(blocks) * f64::from(effort.rounds);
            Ok::<f64, DeviceError>(done / taken)
        });
        let [single, double] = flops;
        Ok(Peaks { flops: [single?, double?], copied, sent, received })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
const fn as_f64(bytes: usize) -> f64 {
    bytes as f64
}
