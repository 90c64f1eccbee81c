//! The two published runs (`README.md`), by the whole system: the regions of its plans and the numbers of its runs.

mod data;
mod padding;
mod regions;
mod tensors;
