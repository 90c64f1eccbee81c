//! The two published runs (`README.md`) and networks that PyTorch trained, by the whole system: the regions of its plans and the
//! numbers of its runs.

mod data;
mod elementwise;
mod modules;
mod padding;
mod regions;
mod tensors;
