//! Exact tiled execution and training of convolutional networks on images that do not fit in memory.
//!
//! Give a network, an image and a memory budget in bytes; get the exact output, the exact gradients or a
//! trained network. This crate is the paved path over the others: each is re-exported whole under its own name,
//! and [`prelude`] holds what most programs need. The feature `onnx` adds networks and weights from ONNX files,
//! `autograd` tensors with gradients, modules and training, `cuda` NVIDIA GPUs; [`device`] chooses what a plan is made for and runs on,
//! `network` reads a network by its name or file, and [`bytes`] a budget as people write it.
//!
//! It is not a general tensor library, and it does not approximate: there is no blending of overlapping tiles,
//! and an operator that cannot be cut into tiles is refused by name.
//!
//! ```text
//!   network ─ infer ─► shapes ─┐
//!   objective, budget ─────────┴─ Planner::plan ─► Plan ─ Executor::run ─► output, gradients, loss
//!                                        sources ──────────────┘  └────── sinks
//! ```
//!
//! # Example
//!
//! ```
//! use tiled::prelude::*;
//!
//! let graph = Graph::builtin("light").expect("it is built in"); // or Graph::from_json
//! let image = Tensor::<f32>::from_fn([1, 3, 96, 128], |[_, c, y, x]| ((c + y * x) % 7) as f32)?;
//! let shapes = infer(&graph, 1, &[[96, 128]])?;
//!
//! // a plan states its memory before anything runs
//! let (objective, backend) = (Objective::inference(), CpuBackend::new()?);
//! let options = PlanOptions { memory_bytes: Some(4 << 20), ..PlanOptions::default() };
//! let plan = Planner::<f32>::new(&graph, &shapes, &objective, &backend).plan(&options)?;
//! assert!(plan.peak_bytes() <= 4 << 20);
//!
//! let mut parameters = initialise::<f32>(&params(&graph), 1); // or load_weights
//! let source = MemorySource::new(image.data(), image.shape())?; // or open_source
//! let sink = MemorySink::new(shapes.shape(graph.outputs()[0]))?; // or create_sink
//! let io = Io { inputs: vec![&source], outputs: vec![&sink], ..Io::default() };
//! Executor::new(plan, &backend, 2)?.run(&mut parameters, &io, &NoProgress)?;
//! assert_eq!(sink.into_tensor().shape(), [1, 32, 24, 32]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "autograd")]
pub use tiled_autograd as autograd;
pub use tiled_cpu as cpu;
#[cfg(feature = "cuda")]
pub use tiled_cuda as cuda;
pub use tiled_exec as exec;
pub use tiled_explain as explain;
pub use tiled_geometry as geometry;
pub use tiled_graph as graph;
pub use tiled_kernel as kernel;
#[cfg(feature = "onnx")]
pub use tiled_onnx as onnx;
pub use tiled_ops as ops;
pub use tiled_tensor as tensor;

pub mod bytes;
pub mod device;
#[cfg(feature = "onnx")]
pub mod network;
pub mod prelude;

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
