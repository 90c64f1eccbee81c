//! What each operator computes, and what a backend must provide.
//!
//! [`Kernel`] names a computation from regions of its inputs to a region of its output; [`Reduction`] names one
//! from shares of its inputs to a few numbers for the whole image. A [`Backend`] carries them out on windows;
//! [`Reference`] does so with naive loops and is the oracle of every other backend.
#![forbid(unsafe_code)]

mod backend;
mod exact;
mod lanes;
mod partial;
mod reference;
mod spec;

pub use backend::{Backend, MAX_INPUTS};
pub use exact::ExactSum;
pub use lanes::LaneSums;
pub use partial::{Extremum, Partial};
pub use reference::Reference;
pub use spec::{Activation, Conv, Kernel, Pool, Reduction};
