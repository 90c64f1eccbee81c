//! What the queues of a run share: where parameters, sums, stores and windows lie on the device.

use std::sync::{Mutex, PoisonError};

use tiled_kernel::Reduction;
use tiled_tensor::Element;

use crate::device::Device;
use crate::lower::{Terms, Window};
use crate::memory::DeviceMemory;

/// What the queues of a run share.
#[derive(Debug)]
pub(crate) struct Shared<'b> {
    pub(crate) device: &'b Device,
    pub(crate) memory: DeviceMemory,
    pub(crate) nodes: Vec<Node>,
    pub(crate) reductions: Vec<Gathered>,
    pub(crate) stores: Vec<Option<Window>>,
    /// By queues.
    pub(crate) windows: Vec<u64>,
    pub(crate) window_bytes: usize,
    /// What there is beside it for gaps between slots.
    pub(crate) gaps_bytes: usize,
    pub(crate) scratch: Vec<u64>,
    pub(crate) workspace_bytes: usize,
}

/// The parameters of a node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) params: Params,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Params {
    Packed { address: u64, bytes: usize },
    Extrema { reduction: usize },
}

/// A reduction, and its state in each lane.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) name: String,
    pub(crate) reduction: Reduction,
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) bytes: usize,
    pub(crate) lanes: Vec<u64>,
    /// Nobody waits for one: a lane is in one queue.
    pub(crate) terms: Vec<Mutex<Terms>>,
}

impl Gathered {
    /// Calls `count` with the terms of a lane.
    pub(crate) fn with_terms<R>(&self, lane: usize, count: impl FnOnce(&mut Terms) -> R) -> R {
        count(&mut self.terms[lane].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared<'_> {
    pub(crate) fn store(&self, store: usize) -> Window {
        self.stores[store].expect("invariant: stores that are read or written exist")
    }

    /// The address of a node's parameters with their elements, the address of extrema, and its name.
    pub(crate) fn params<T: Element>(&self, node: usize) -> ((u64, usize), u64, &str) {
        let Node { name, params } = &self.nodes[node];
        match *params {
            Params::Packed { address, bytes } => ((address, bytes / size_of::<T>()), 0, name),
            Params::Extrema { reduction } => ((0, 0), self.reductions[reduction].lanes[0], name),
        }
    }
}
