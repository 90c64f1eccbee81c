//! The kernel contract on NVIDIA GPUs: kernels as CUDA C++, built for the device that is found, over a small driver trait.
//!
//! The same kernels run on a simulated device, on any host with a C++ compiler: that is what tests run on, and where a kernel's bits, launches,
//! streams and errors are held against the contract. An output is one chain of fused multiply-adds whose order the operator fixes, so the
//! bits are the same on both, whatever the tiles of a plan or of a kernel.
//!
//! It plans nothing, and it knows nothing of networks.
//!
//! ```text
//!   CudaBackend ── open ──► Context ── queues ──► Queue      one allocation, a stream for each lane
//!                                                  │
//!                                                lower       work as launches
//!                                                  │
//!                              Driver: memory, streams, events, launches
//!                                                  │
//!                              Gpu, with NVRTC  ┴  Simulated     kernels/*.cu by a C++ compiler, threads as fibers
//! ```
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use tiled_cuda::driver::Facts;
//! use tiled_cuda::driver::simulated::{Order, Simulated};
//! use tiled_cuda::CudaBackend;
//! use tiled_kernel::Backend;
//!
//! match Simulated::new(Facts::h200(), Order::Forward) {
//!     Ok(device) => {
//!         let backend = CudaBackend::new(Arc::new(device));
//!         assert_eq!(Backend::<f32>::name(&backend), "cuda (NVIDIA H200, simulated)");
//!     }
//!     Err(reason) => println!("skipped: {reason}"),
//! }
//! ```

mod args;
mod backend;
#[cfg(feature = "device")]
pub mod bundle;
#[cfg(any(feature = "device", all(unix, feature = "simulated")))]
mod cache;
mod context;
mod device;
pub mod driver;
mod lower;
mod memory;
#[cfg(feature = "device")]
pub mod nvrtc;
pub mod peaks;
mod precision;
mod queue;
mod shared;
mod staging;
mod support;
pub mod units;

pub use backend::CudaBackend;
pub use lower::waves::Waves;
pub use memory::ALIGNMENT_BYTES;
pub use precision::{PRECISIONS, Precision, UnknownPrecision};
pub use queue::pinned_regions;

/// The channel block of windows: that of a step of the dense kernels, and none for the few channels of a picture.
const fn block(channels: usize) -> usize {
    if channels <= 4 { 1 } else { 8 }
}
