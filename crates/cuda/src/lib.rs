//! The kernel contract on NVIDIA GPUs: kernels as CUDA C++, built for the device that is found, over a small driver trait.
//!
//! The same kernels run on a simulated device, on any host with a C++ compiler: that is what tests run on, and where a kernel's bits, launches,
//! streams and errors are held against the contract.
//!
//! ```text
//!   Driver: memory, streams, events, launches
//!      │
//!   Simulated     kernels/*.cu by a C++ compiler, threads as fibers
//! ```
//!
//! # Example
//!
//! ```
//! use tiled_cuda::driver::simulated::{Order, Simulated};
//! use tiled_cuda::driver::{Driver, Facts};
//!
//! match Simulated::new(Facts::h200(), Order::Forward) {
//!     Ok(device) => {
//!         let memory = device.allocate(1 << 20)?;
//!         assert_eq!(device.allocated(), 1 << 20);
//!         device.free(memory);
//!     }
//!     Err(reason) => println!("skipped: {reason}"),
//! }
//! # Ok::<(), tiled_cuda::driver::DriverError>(())
//! ```

pub mod driver;
pub mod units;
