//! The tape: which operation a value came from, and where its gradient goes.
//!
//! A node has a running number, larger than those of its operands; backward takes nodes from an ordered map by falling number. So the
//! order in which gradients are added is fixed, and nothing recurses.

mod backward;
mod draw;
pub(crate) mod flow;
mod gradient;
pub(crate) mod record;

pub use backward::{grad, grad_with};
pub use flow::Options as BackwardOptions;
