//! Sources and sinks give and take exactly the regions asked for, in every layout, and fail clearly.
#![expect(clippy::unwrap_used, reason = "the functions that tests share are tests too")]

mod atomic;
mod decided;
mod errors;
mod failures;
mod formats;
mod functions;
mod memory;
mod npy;
mod optim;
mod pictures;
mod places;
mod resident;
mod stored;
mod training;
mod weights;
mod weights_files;
mod windows;
