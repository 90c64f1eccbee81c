//! The program as a user meets it: what it computes, and what it says of bad input.

mod bad_input;
mod batch_norm;
mod bed;
mod budget;
mod commands;
mod deep;
mod devices;
mod elementwise;
mod inputs;
mod norms;
mod onnx;
mod outputs;
mod peak;
mod rearranged;
mod refused;
mod resampling;
#[cfg(unix)]
mod signals;
mod targets;
mod threads;
mod training;
mod values;
mod wanted;
