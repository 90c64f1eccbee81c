//! The subcommands.

pub(crate) mod bench;
pub(crate) mod convert;
pub(crate) mod cuda_build;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod grad;
pub(crate) mod net;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod train;
pub(crate) mod verify;
