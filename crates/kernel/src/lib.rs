//! What each operator computes, and what a backend must provide.
//!
//! [`Kernel`] names a computation from regions of its inputs to a region of its output; [`Reduction`] names one
//! from shares of its inputs to a few numbers for the whole image. A [`Backend`] carries them out on windows;
//! [`Reference`] does so with naive loops and is the oracle of every other backend.
//!
//! It is not fast, and it knows nothing of networks: which region is computed when is decided above.
//!
//! ```text
//!   inputs: windows ─┐
//!   parameters ──────┼─ Kernel    ─► region of an output     the same bits whatever the region
//!                    └─ Reduction ─► Partial of a share      exact, or in a fixed order
//! ```
//!
//! # Example
//!
//! A tile of a convolution has the bits of the whole:
//!
//! ```
//! use tiled_geometry::{Interval, Region, Window};
//! use tiled_kernel::{Backend, Conv, Kernel, Reference};
//! use tiled_tensor::Tensor;
//!
//! let windows = [Window::new(3, 1, 1, 1).expect("a small window"); 2];
//! let conv =
//!     Conv { in_channels: 1, out_channels: 1, groups: 1, windows, input: [8, 8], output: [8, 8] };
//! let kernel = Kernel::Conv2d { conv, bias: false, activation: None };
//! let image = Tensor::<f32>::from_fn([1, 1, 8, 8], |[_, _, y, x]| 0.1 * (y * 8 + x) as f32)?;
//!
//! let compute = |region| -> Result<Tensor<f32>, tiled_tensor::TensorError> {
//!     let mut output = Tensor::zeros([1, 1, 8, 8])?;
//!     Reference.compute(&kernel, &[0.3; 9], &[image.view()], output.view_mut(), region);
//!     Ok(output)
//! };
//! let whole = compute(Region::whole([8, 8]))?;
//! let tile = compute(Region::from_rows_cols(Interval::new(2, 5), Interval::new(0, 3)))?;
//! assert_eq!(tile.view().get(0, 0, 4, 2).to_bits(), whole.view().get(0, 0, 4, 2).to_bits());
//! assert_eq!(tile.view().get(0, 0, 5, 2), 0.0); // outside the region nothing is written
//! # Ok::<(), tiled_tensor::TensorError>(())
//! ```
#![forbid(unsafe_code)]

mod backend;
mod costs;
mod exact;
mod lanes;
mod narrow;
mod partial;
mod reference;
mod spec;

pub use backend::{Backend, MAX_INPUTS};
pub use costs::Costs;
pub use exact::ExactSum;
pub use lanes::LaneSums;
pub use partial::{Extremum, Partial};
pub use reference::Reference;
pub use spec::{Activation, Conv, Kernel, Pool, Reduction};
