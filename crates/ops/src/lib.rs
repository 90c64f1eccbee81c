//! Convolution, pooling and their gradients on tensors of the caller, one operator a call.
//!
//! A call is a network of one node: it is planned within a budget and run tile by tile as any other, with the same bits whatever the
//! tiles are. An [`Engine`] keeps plans and their memory for the calls that follow with the same shapes.
//!
//! ```
//! use tiled_cpu::CpuBackend;
//! use tiled_exec::{MemorySink, MemorySource};
//! use tiled_graph::Conv2d;
//! use tiled_ops::{Engine, Options, Weights};
//! use tiled_tensor::Tensor;
//!
//! let x = Tensor::<f32>::from_fn([1, 3, 64, 48], |[_, c, y, x]| ((c + y * x) % 5) as f32)?;
//! let weight = Tensor::<f32>::from_fn([8, 3, 3, 3], |[o, i, _, _]| (o + i) as f32 / 8.0)?;
//! let y = MemorySink::new([1, 8, 64, 48])?;
//!
//! let backend = CpuBackend::new()?;
//! let mut engine = Engine::new(&backend, 2)?;
//! let conv = Conv2d { bias: false, ..Conv2d::new(8, [3, 3]).padded([1, 1]) };
//! let weights = Weights { weight: &MemorySource::try_from(&weight)?, bias: None };
//! let options = Options { memory_bytes: Some(1 << 20), ..Options::default() };
//! engine.conv2d(&conv, None, &options, &MemorySource::try_from(&x)?, &weights, &y)?;
//! assert_eq!(y.into_tensor().shape(), [1, 8, 64, 48]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod call;
mod engine;

pub use call::{DEFAULT_BYTES, Options, output_shape};
pub use engine::{Engine, WeightGradients, Weights};
