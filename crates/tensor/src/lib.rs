//! Windows of n-d arrays in global coordinates.
//!
//! A [`View`] knows which region of the whole tensor it holds, so that no code adds or subtracts tile
//! offsets by hand. Its [`Layout`] is channel-blocked (`NCHWc`; a block of one is plain `NCHW`) and its rows
//! lie in a ring, so that a window slides without moving data.
//!
//! It is not an array library: there is no arithmetic, no broadcasting and no slicing by step here. What a
//! window means to an operator is the business of the crates above.
//!
//! ```text
//!   element (n, c, y, x) of a window that holds rows×cols, in elements from its start:
//!
//!   n·batch_stride + (c / block)·block_stride + (y mod ring)·row_stride + (x − cols.begin)·block + c mod block
//! ```
//!
//! # Example
//!
//! A window slides down by two rows; what it still holds stays where it is:
//!
//! ```
//! use tiled_geometry::{Interval, Region};
//! use tiled_tensor::{Layout, View, ViewMut};
//!
//! let held = Region::from_rows_cols(Interval::new(10, 14), Interval::new(0, 8));
//! let layout = Layout::new(1, 3, 1, held, 4)?; // three channels, four rows of storage
//! let mut storage = vec![0.0_f32; layout.len()];
//! ViewMut::new(&mut storage, layout).set(0, 2, 13, 5, 1.5);
//!
//! let slid = layout.with_rows(Interval::new(12, 16));
//! assert_eq!(View::new(&storage, slid).get(0, 2, 13, 5), 1.5);
//! # Ok::<(), tiled_tensor::LayoutError>(())
//! ```

mod buffer;
mod device;
mod element;
mod freed;
mod large_pages;
mod layout;
mod memory;
mod shared;
mod tensor;
mod transpose;
mod view;

pub use buffer::AlignedBuffer;
pub use device::{DeviceTensor, DeviceTensorError, MemoryDevice};
pub use element::{ByElement, DType, Element};
pub use freed::give_back_freed;
pub use layout::{Layout, LayoutError};
pub use memory::{
    OutOfMemory, collected, copied, filled, grow, make_room, may_refuse, push, refusable, with_room,
    zero_bytes, zeros,
};
pub use shared::{Borrowed, PartMut, SharedTensor};
pub use tensor::{Tensor, TensorError};
pub use transpose::transpose;
pub use view::{View, ViewMut};
