//! The operators as data.

mod activation;
mod conv;
mod kernel;
mod pool;
mod reduction;

pub use activation::Activation;
pub use conv::Conv;
pub use kernel::Kernel;
pub use pool::Pool;
pub use reduction::Reduction;
