//! Tensors: a shared buffer, where the elements lie in it, and where they came from: the nodes of the tape, which hold tensors in turn.

use std::any::Any;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ndarray::ArrayD;
use tiled_tensor::Element;

use crate::context::{Context, records_gradients};
use crate::error::{Result, TapeError};
use crate::layout::Layout;
use crate::op::Op;
use crate::storage::Storage;
use crate::values::Values;

/// Elements of one type in any number of axes. A clone shares the elements, the history and the gradient.
pub struct Tensor<T: Element> {
    storage: Arc<Storage<T>>,
    layout: Layout,
    /// The version of the storage that this value is.
    version: u64,
    history: History<T>,
}

impl<T: Element> Clone for Tensor<T> {
    fn clone(&self) -> Self {
        Self {
            storage: Arc::clone(&self.storage),
            layout: self.layout,
            version: self.version,
            history: self.history.clone(),
        }
    }
}

impl<T: Element> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("dtype", &T::DTYPE)
            .field("shape", &self.shape())
            .field("requires_grad", &self.requires_grad())
            .finish_non_exhaustive()
    }
}

impl<T: Element> Tensor<T> {
    pub(crate) fn new(storage: Arc<Storage<T>>, layout: Layout) -> Self {
        let version = storage.version();
        Self { storage, layout, version, history: History::None }
    }

    /// The extents.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// By how many elements the next one along each axis lies further.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// The number of axes.
    #[must_use]
    pub const fn axes(&self) -> usize {
        self.layout.axes()
    }

    /// The number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.layout.elements()
    }

    /// Whether the elements lie one after the other in row-major order.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// What it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context<T> {
        self.storage.context()
    }

    /// How often its elements, or others in the same memory, were changed in place.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.storage.version()
    }

    /// Whether both show the same elements of the same memory.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.shares_memory(other) && self.layout == other.layout
    }

    /// Whether both are one value: the same elements, and the same history, so that their gradients go to one place.
    pub(crate) fn is_one(&self, other: &Self) -> bool {
        self.is_same(other) && self.history.key() == other.history.key()
    }

    /// Whether both lie in the same memory.
    #[must_use]
    pub fn shares_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// The elements, to be read. A change of the memory waits until they are dropped, on the same thread forever.
    #[must_use]
    pub fn values(&self) -> Values<'_, T> {
        Values { guard: self.storage.read(), layout: &self.layout }
    }

    /// A copy of the elements.
    #[must_use]
    pub fn to_array(&self) -> ArrayD<T> {
        self.values().view().to_owned()
    }

    /// A copy of the elements in row-major order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        self.values().view().iter().copied().collect()
    }

    /// The one element.
    ///
    /// # Errors
    /// Where it has not exactly one.
    pub fn item(&self) -> Result<T> {
        let values = self.values();
        match values.view().first() {
            Some(value) if self.elements() == 1 => Ok(*value),
            _ => Err(TapeError::Count {
                operator: "item",
                what: "elements",
                expected: 1,
                got: self.elements(),
            }),
        }
    }

    /// Whether backward computes a gradient for it.
    #[must_use]
    pub const fn requires_grad(&self) -> bool {
        self.history.is_some()
    }

    /// Whether it needs a gradient and comes from no operation.
    #[must_use]
    pub const fn is_leaf(&self) -> bool {
        matches!(self.history, History::Leaf(_))
    }

    /// The same elements as a leaf that needs a gradient.
    ///
    /// # Errors
    /// Where it comes from an operation that was recorded.
    pub fn with_gradient(self) -> Result<Self> {
        match &self.history {
            History::Leaf(_) => Ok(self),
            History::None => {
                self.check_fresh("with_gradient")?;
                let leaf = Leaf::new(self.context().next_node(), self.storage.leaf_mark());
                Ok(self.with_history(History::Leaf(Arc::new(leaf))))
            }
            History::Node(..) => {
                let (operator, what) = ("with_gradient", "a result of a recorded operation");
                Err(TapeError::InPlace { operator, what, shape: self.shape().into() })
            }
        }
    }

    /// The same elements without history.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self {
            storage: Arc::clone(&self.storage),
            layout: self.layout,
            version: self.storage.version(),
            history: History::None,
        }
    }

    /// No element may lie in memory that stands for another one too; nor, where the change is recorded, in that of a leaf, which would be
    /// stale from then on.
    pub(crate) fn check_changeable(&self, operator: &'static str, is_recorded: bool) -> Result<()> {
        if self.layout.repeats() {
            let what = "a view that repeats elements";
            return Err(TapeError::InPlace { operator, what, shape: self.shape().into() });
        }
        if is_recorded && self.storage.has_leaf() {
            let what = if self.is_leaf() {
                "a leaf that needs a gradient"
            } else {
                "a view of a leaf that needs a gradient"
            };
            return Err(TapeError::InPlace { operator, what, shape: self.shape().into() });
        }
        Ok(())
    }

    /// The elements are those that the history tells of: nobody has changed them since through another tensor.
    pub(crate) fn check_fresh(&self, operator: &'static str) -> Result<()> {
        if !records_gradients() {
            return Ok(());
        }
        let expected = self.version;
        let (got, is_fresh) = match &self.history {
            History::Node(..) => (self.storage.version(), self.storage.version() == expected),
            _ => (self.storage.taped(), self.storage.taped() <= expected),
        };
        if is_fresh {
            return Ok(());
        }
        let what = "an operand";
        Err(TapeError::Changed { operator, what, shape: self.shape().into(), expected, got })
    }

    pub(crate) fn with_history(mut self, history: History<T>) -> Self {
        self.history = history;
        self
    }

    /// This value after a change in place.
    pub(crate) fn move_on(&mut self, history: History<T>, is_taped: bool) {
        self.version = self.storage.change(is_taped);
        self.history = history;
    }

    /// The same memory with other strides, as it is now, without history.
    pub(crate) fn seen_as(&self, layout: Layout) -> Self {
        Self { layout, ..self.detach() }
    }

    /// The same, so that nobody else holds the memory where nobody did.
    pub(crate) fn into_seen_as(self, layout: Layout) -> Self {
        Self { layout, history: History::None, ..self }
    }

    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) const fn storage(&self) -> &Arc<Storage<T>> {
        &self.storage
    }

    pub(crate) const fn history(&self) -> &History<T> {
        &self.history
    }

    pub(crate) const fn seen_version(&self) -> u64 {
        self.version
    }

    /// Whether nobody else holds the memory and it has no gaps.
    pub(crate) fn is_own(&self) -> bool {
        Arc::strong_count(&self.storage) == 1 && self.layout.is_contiguous() && self.layout.offset() == 0
    }
}

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
    pub(crate) number: u64,
    slot: Mutex<Slot<T>>,
    /// By which its memory knows of it.
    _mark: Arc<()>,
}

impl<T: Element> Leaf<T> {
    fn new(number: u64, mark: Arc<()>) -> Self {
        Self { number, slot: Mutex::default(), _mark: mark }
    }

    pub(crate) fn slot(&self) -> MutexGuard<'_, Slot<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An operation that was recorded.
pub(crate) struct Node<T: Element> {
    pub(crate) number: u64,
    pub(crate) op: Op,
    pub(crate) operands: Vec<Operand<T>>,
    /// The first result; most operations have one.
    pub(crate) result: Layout,
    pub(crate) further: Vec<Layout>,
    /// `None` once backward has taken it.
    pub(crate) saved: Mutex<Option<Saved<T>>>,
    /// The last walk that came by.
    pub(crate) seen: AtomicU64,
    pub(crate) slots: Mutex<Vec<(usize, Slot<T>)>>,
}

/// An operand of a node.
pub(crate) struct Operand<T: Element> {
    pub(crate) history: History<T>,
    pub(crate) layout: Layout,
}

/// Values that a rule reads.
pub(crate) struct Saved<T: Element> {
    /// Those operands that the rule names.
    pub(crate) operands: Vec<Option<Tensor<T>>>,
    /// The result, where the rule names it.
    pub(crate) result: Option<Tensor<T>>,
    pub(crate) kept: Kept<T>,
}

/// What backward needs besides operands and result.
pub(crate) enum Kept<T: Element> {
    Nothing,
    Tensors(Vec<Tensor<T>>),
    Indices(ArrayD<i64>),
    /// The state of a function.
    Function(Box<dyn Any + Send>),
}

impl<T: Element> Node<T> {
    pub(crate) fn slots(&self) -> MutexGuard<'_, Vec<(usize, Slot<T>)>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn saved(&self) -> MutexGuard<'_, Option<Saved<T>>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn results(&self) -> usize {
        1 + self.further.len()
    }

    pub(crate) fn layout_of(&self, result: usize) -> &Layout {
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
