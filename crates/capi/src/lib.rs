//! The C ABI of tiled: `libtiled.so`, `libtiled.a` and, generated from this crate, `include/tiled.h`.
//!
//! ```text
//!   tiled_<noun>_<verb>(self, inputs…, outputs…) -> tiled_status
//!      │ pointers checked (`pointer`)   │ handles looked up (`handle`)   │ the Rust crates   │ outputs written
//!      └───────────────────────────── `guard`: a failure or a panic becomes a status ──────────┘
//! ```
//!
//! One file per noun. The conventions stand at the head of the header; the unsafe code lies in `pointer`, `tensor`,
//! `dlpack`, `allocator` and the callbacks of `io`, and every exported function only passes its caller's promise on.
#![expect(non_camel_case_types, reason = "types are named as the header names them")]

mod allocator;
mod device;
mod dlpack;
mod engine;
mod executor;
mod geometry;
mod graph;
mod grid;
mod guard;
mod handle;
mod io;
mod log;
mod logger;
mod objective;
mod operator;
mod pending;
mod plan;
mod pointer;
mod status;
mod tensor;
#[cfg(test)]
mod tests;
mod trainer;
mod version;
mod weights;

pub use allocator::*;
pub use device::*;
pub use dlpack::*;
pub use engine::*;
pub use executor::*;
pub use geometry::*;
pub use graph::*;
pub use grid::*;
pub use io::*;
pub use log::*;
pub use logger::*;
pub use objective::*;
pub use operator::*;
pub use pending::*;
pub use plan::*;
pub use status::*;
pub use tensor::*;
pub use trainer::*;
pub use version::*;
pub use weights::*;

/// The size of a struct of the header, as its first field holds it.
const fn size_of_u32<T>() -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "structs of the header are far smaller, and it is asserted"
    )]
    let size = size_of::<T>() as u32;
    assert!(size < 4096, "a struct of the header is small");
    size
}
