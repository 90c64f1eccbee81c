//! What the queues of a run share.

use std::sync::RwLock;

use tiled_tensor::{AlignedBuffer, Element, Layout};

use super::{Host, Workspace};
use crate::{Partial, Reduction};

/// What all queues work with.
#[derive(Debug)]
pub(super) struct Shared<'b, T: Element> {
    pub(super) host: &'b dyn Host<T>,
    /// By nodes.
    pub(super) params: Vec<NodeParams<T>>,
    pub(super) reductions: Vec<Gathered>,
    /// By lanes, then by slots. Nobody ever waits for one: a lane is in one queue, and what kernels read is not written in that
    /// sweep, or by the same queue.
    pub(super) partials: Vec<Vec<RwLock<Partial<T>>>>,
    pub(super) stores: Vec<Option<Store>>,
    /// What stores lie in.
    pub(super) store_slots: Vec<RwLock<AlignedBuffer<T>>>,
    pub(super) workspace: Workspace<T>,
}

impl<T: Element> Shared<'_, T> {
    /// How a store lies, and where.
    pub(super) fn store(&self, store: usize) -> (Layout, &RwLock<AlignedBuffer<T>>) {
        let Store { layout, slot } =
            self.stores[store].expect("invariant: stores that are read or written exist");
        (layout, &self.store_slots[slot])
    }
}

/// The parameters of a node.
#[derive(Debug)]
pub(super) enum NodeParams<T: Element> {
    Packed(AlignedBuffer<T>),
    /// The same before memory is taken for them.
    PackedLater {
        name: String,
        bytes: usize,
    },
    /// In the first lane's state of this reduction.
    Extrema {
        reduction: usize,
    },
}

/// A reduction, and where its states lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered {
    pub(super) reduction: Reduction,
    pub(super) slot: usize,
    /// The sums or maxima of a state.
    pub(super) len: usize,
}

/// A whole tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub(super) layout: Layout,
    pub(super) slot: usize,
}
