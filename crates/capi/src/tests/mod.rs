//! Tests that need a panic inside: what asks for one is compiled for these alone, and no library holds it.

mod arguments;
mod fixture;
mod injection;

pub(crate) use injection::{Injection, inject, inject_panic};
