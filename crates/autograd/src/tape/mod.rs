//! The tape: which operation a value came from, and where its gradient goes.
//!
//! A node has a running number, larger than those of its operands; backward takes nodes from an ordered map by falling number. So the
//! order in which gradients are added is fixed, and nothing recurses.

mod backward;
mod draw;
mod record;

pub(crate) use backward::Flow;
pub use backward::{Options as BackwardOptions, grad, grad_with};
pub(crate) use record::Step;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tiled_tensor::Element;

use crate::error::Result;
use crate::layout::Layout;
use crate::rules::{Kept, Op};
use crate::tensor::Tensor;

/// What is called with a gradient before it is used; what it returns takes its place.
pub type Hook<T> = Arc<dyn Fn(&Tensor<T>) -> Result<Option<Tensor<T>>> + Send + Sync>;

/// Where a value comes from, which is where its gradient goes.
pub(crate) enum History<T: Element> {
    /// Nothing that needs a gradient.
    None,
    /// It needs one itself.
    Leaf(Arc<Leaf<T>>),
    /// A result of an operation.
    Node(Arc<Node<T>>, usize),
}

impl<T: Element> Clone for History<T> {
    fn clone(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Leaf(leaf) => Self::Leaf(Arc::clone(leaf)),
            Self::Node(node, output) => Self::Node(Arc::clone(node), *output),
        }
    }
}

impl<T: Element> History<T> {
    pub(crate) const fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// The number of the node or leaf, and which of its results it is.
    pub(crate) fn key(&self) -> Option<(u64, usize)> {
        match self {
            Self::None => None,
            Self::Leaf(leaf) => Some((leaf.number, 0)),
            Self::Node(node, output) => Some((node.number, *output)),
        }
    }

    /// Runs something with what is kept of the gradient here.
    pub(crate) fn with_slot<R>(&self, with: impl FnOnce(&mut Slot<T>) -> R) -> Option<R> {
        match self {
            Self::None => None,
            Self::Leaf(leaf) => Some(with(&mut leaf.slot())),
            Self::Node(node, output) => {
                let mut slots = node.slots();
                let found = slots.iter().position(|(at, _)| at == output);
                let at = found.unwrap_or_else(|| {
                    slots.push((*output, Slot::default()));
                    slots.len() - 1
                });
                Some(with(&mut slots[at].1))
            }
        }
    }
}

/// A gradient that is kept, and who wants to see it.
pub(crate) struct Slot<T: Element> {
    pub(crate) grad: Option<Tensor<T>>,
    pub(crate) hooks: Vec<(u64, Hook<T>)>,
    /// Whether the gradient of a result is kept.
    pub(crate) retains: bool,
}

impl<T: Element> Default for Slot<T> {
    fn default() -> Self {
        Self { grad: None, hooks: Vec::new(), retains: false }
    }
}

/// A value that needs a gradient and comes from no operation.
pub(crate) struct Leaf<T: Element> {
    number: u64,
    slot: Mutex<Slot<T>>,
}

impl<T: Element> Leaf<T> {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, slot: Mutex::default() }
    }

    fn slot(&self) -> MutexGuard<'_, Slot<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An operation that was recorded.
pub(crate) struct Node<T: Element> {
    number: u64,
    op: Op<T>,
    operands: Vec<Operand<T>>,
    /// The first result; most operations have one.
    result: Layout,
    further: Vec<Layout>,
    /// `None` once backward has taken it.
    saved: Mutex<Option<Saved<T>>>,
    /// The last walk that came by.
    seen: AtomicU64,
    slots: Mutex<Vec<(usize, Slot<T>)>>,
}

/// An operand of a node.
pub(crate) struct Operand<T: Element> {
    history: History<T>,
    layout: Layout,
}

/// Values that a rule reads.
pub(crate) struct Saved<T: Element> {
    /// Those operands that the rule names.
    pub(crate) operands: Vec<Option<Tensor<T>>>,
    /// The result, where the rule names it.
    pub(crate) result: Option<Tensor<T>>,
    pub(crate) kept: Kept<T>,
}

impl<T: Element> Node<T> {
    fn slots(&self) -> MutexGuard<'_, Vec<(usize, Slot<T>)>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saved(&self) -> MutexGuard<'_, Option<Saved<T>>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn results(&self) -> usize {
        1 + self.further.len()
    }

    fn layout_of(&self, result: usize) -> &Layout {
        result.checked_sub(1).map_or(&self.result, |further| &self.further[further])
    }
}

impl<T: Element> Drop for Node<T> {
    fn drop(&mut self) {
        // a chain may be longer than a stack: what this node alone holds is taken apart here
        let mut operands = std::mem::take(&mut self.operands);
        let mut nodes = Vec::new();
        loop {
            for operand in operands.drain(..) {
                if let History::Node(node, _) = operand.history
                    && let Some(node) = Arc::into_inner(node)
                {
                    nodes.push(node);
                }
            }
            let Some(mut node) = nodes.pop() else { break };
            operands = std::mem::take(&mut node.operands);
        }
    }
}

impl<T: Element> fmt::Debug for Node<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("number", &self.number).field("operator", &self.op.name()).finish()
    }
}

impl<T: Element> fmt::Debug for Leaf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf").field("number", &self.number).finish_non_exhaustive()
    }
}
