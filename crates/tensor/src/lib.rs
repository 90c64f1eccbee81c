//! Windows of n-d arrays in global coordinates.
//!
//! A [`View`] knows which region of the whole tensor it holds, so that no code adds or subtracts tile
//! offsets by hand. Its [`Layout`] is channel-blocked (`NCHWc`; a block of one is plain `NCHW`) and its rows
//! lie in a ring, so that a window slides without moving data.
//!
//! ```text
//!   element (n, c, y, x) of a window that holds rows×cols, in elements from its start:
//!
//!   n·batch_stride + (c / block)·block_stride + (y mod ring)·row_stride + (x − cols.begin)·block + c mod block
//! ```

mod buffer;
mod element;
mod layout;
mod tensor;
mod view;

pub use buffer::AlignedBuffer;
pub use element::{DType, Element};
pub use layout::{Layout, LayoutError};
pub use tensor::Tensor;
pub use view::{View, ViewMut};
