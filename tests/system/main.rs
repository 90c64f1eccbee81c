//! Promises of plans that need the whole system: arithmetic, shares, the order of calls.

mod arithmetic;
mod backends;
mod batch_norm;
mod chunks;
mod deferred;
mod demand;
mod devices;
mod fused;
mod halves;
mod in_place;
mod lent;
mod merged;
mod nan_signs;
mod networks;
mod own_tilings;
mod shared;
mod threads;
mod wanted;
mod winograd;
