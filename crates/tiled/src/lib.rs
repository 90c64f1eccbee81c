//! Exact tiled execution and training of convolutional networks on images that do not fit in memory.
//!
//! Give a network, an image and a memory budget in bytes; get the exact output, the exact gradients or a
//! trained network. This crate is the paved path over the others: geometry, tensors, kernels, graphs and plans,
//! execution. Each of them is re-exported whole under its own name.

pub use tiled_cpu as cpu;
pub use tiled_exec as exec;
pub use tiled_geometry as geometry;
pub use tiled_graph as graph;
pub use tiled_kernel as kernel;
pub use tiled_tensor as tensor;

pub mod prelude;
