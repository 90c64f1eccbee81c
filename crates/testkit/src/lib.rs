//! Generators, oracles and tolerances for the tests of tiled.
//!
//! An oracle is a function that takes a case and panics where a law does not hold; property tests and fuzz
//! targets call the same one. Modules that need more than the geometry stand behind the features `kernels`,
//! `tape` and `networks`.
#![forbid(unsafe_code)]

#[cfg(feature = "kernels")]
pub mod conformance;
#[cfg(feature = "kernels")]
pub mod deferred;
#[cfg(feature = "kernels")]
pub mod dense;
pub mod geometry_laws;
#[cfg(feature = "tape")]
pub mod tape;
#[cfg(feature = "kernels")]
pub mod tolerance;
