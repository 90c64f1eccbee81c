//! Training: optimisers over groups of parameters, schedules, clipping, checkpoints, batches.

mod batches;
mod checkpoint;
mod clip;
mod examples;
mod optimizer;
mod schedule;

pub use batches::Batches;
pub use checkpoint::{load_checkpoint, save_checkpoint};
pub use clip::{clip_norm, clip_value};
pub use examples::{Examples, Rows};
pub use optimizer::{Method, Optimizer};
pub use schedule::Schedule;
