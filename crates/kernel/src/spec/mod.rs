//! The operators as data.

mod activation;
mod arithmetic;
mod conv;
mod epilogue;
mod kernel;
mod pixel;
mod pool;
mod reduction;
mod resize;
mod work;

pub use activation::{Activation, Exponential};
pub use arithmetic::{Arithmetic, Dropped, Spread};
pub use conv::{Algorithm, Conv};
pub use epilogue::Epilogue;
pub use kernel::Kernel;
pub use pixel::{LocalResponse, PixelNorm};
pub use pool::Pool;
pub use reduction::Reduction;
pub use resize::Taps;
pub use work::{Operands, Work};
