//! Networks on the tape: single operators, and whole ones in a budget of bytes.
//!
//! Both are the same function: a network, planned for the shapes of its inputs and run in two halves by the engine. A single operator is a
//! network of one node.

pub(crate) mod calls;
mod nothing;
mod operators;
mod ready;
mod run;
mod tiled;

pub use operators::{BatchNormOptions, Interpolation, Padding};
pub use tiled::Tiled;
