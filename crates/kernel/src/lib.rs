//! What each operator computes, and what a backend must provide.
//!
//! [`Work`] is what a call does, as data: a [`Kernel`], from regions of its inputs to a region of its output, or a [`Reduction`],
//! from shares of its inputs to a few numbers for the whole image. A [`Backend`] says how it carries them out ([`Support`]) and opens
//! the memory of a run ([`Context`]), in whose [`Queue`]s the calls are made. A [`Host`] has kernels for the memory of the host, and
//! that is all it needs: [`open`] gives it queues. [`Reference`] has naive loops and is the oracle of every other backend.
//!
//! [`dense`] is the contract beside it, for whole arrays of any strides: products, norms, attention, functions of elements, folds.
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
//! use tiled_kernel::{Algorithm, Conv, Epilogue, Host, Kernel, Params, Reference, Workspace};
//! use tiled_tensor::Tensor;
//!
//! let windows = [Window::new(3, 1, 1, 1).expect("a small window"); 2];
//! let conv =
//!     Conv { in_channels: 1, out_channels: 1, groups: 1, windows, input: [8, 8], output: [8, 8] };
//! let (algorithm, epilogue) = (Algorithm::Direct, Epilogue::NONE);
//! let kernel = Kernel::Conv2d { conv, algorithm, epilogue };
//! let image = Tensor::<f32>::from_fn([1, 1, 8, 8], |[_, _, y, x]| 0.1 * (y * 8 + x) as f32)?;
//!
//! let compute = |region| -> Result<Tensor<f32>, tiled_tensor::TensorError> {
//!     let mut output = Tensor::zeros([1, 1, 8, 8])?;
//!     let weights = Params::Packed(&[0.3; 9]);
//!     Reference.compute(&kernel, weights, &[image.view()], output.view_mut(), region, &Workspace::NONE);
//!     Ok(output)
//! };
//! let whole = compute(Region::whole([8, 8]))?;
//! let tile = compute(Region::from_rows_cols(Interval::new(2, 5), Interval::new(0, 3)))?;
//! assert_eq!(tile.view().get(0, 0, 4, 2).to_bits(), whole.view().get(0, 0, 4, 2).to_bits());
//! assert_eq!(tile.view().get(0, 0, 5, 2), 0.0); // outside the region nothing is written
//! # Ok::<(), tiled_tensor::TensorError>(())
//! ```
#![forbid(unsafe_code)]

mod awake;
mod backend;
pub mod batch_norm;
mod cascade;
mod costs;
pub mod dense;
mod exact;
#[doc(hidden)]
pub mod forward;
mod host;
mod lanes;
mod narrow;
mod partial;
mod queue;
mod reference;
mod spec;
mod support;
pub mod winograd;

pub use awake::{ThreadsAwake, WORTH_SHARING_AWAKE_SECONDS, worth_sharing_seconds};
pub use backend::{Backend, MAX_INPUTS};
pub use costs::{Costs, Load, Task, WORTH_SHARING_SECONDS};
pub use exact::ExactSum;
pub use host::{Host, Params, Workspace, copy_region, open, pack_plainly};
pub use lanes::{LaneBuffer, LaneSums};
pub use partial::{Extremum, Partial};
pub use queue::{
    Buffer, Context, DeviceError, Needs, NodeNeeds, ParamNeeds, Place, Queue, ReductionNeeds, StoreNeeds,
    SweepNeeds, Ticket,
};
pub use reference::Reference;
pub use spec::{
    Activation, Algorithm, Arithmetic, Conv, Dropped, Epilogue, Exponential, Kernel, LocalResponse, Operands,
    PixelNorm, Pool, Reduction, Spread, Taps, Work,
};
pub use support::Support;
