//! Tensors: a shared buffer, where the elements lie in it, and where they came from.

use std::fmt;
use std::sync::Arc;

use ndarray::{ArrayD, ArrayViewD};
use tiled_kernel::dense::{Unary, Update};
use tiled_tensor::Element;

use crate::context::{Context, records_gradients};
use crate::error::{Result, TapeError};
use crate::layout::Layout;
use crate::storage::{Read, Storage};
use crate::tape::{History, Hook, Leaf};

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

/// The elements of a tensor, which nobody changes while this lives.
pub struct Values<'a, T: Element> {
    guard: Read<'a, T>,
    layout: &'a Layout,
}

impl<T: Element> Values<'_, T> {
    /// The elements as an array, without a copy.
    #[must_use]
    pub fn view(&self) -> ArrayViewD<'_, T> {
        self.layout.view(&self.guard)
    }

    /// The elements as a slice, where they lie one after the other.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[T]> {
        let begin = self.layout.offset();
        self.layout.is_contiguous().then(|| match self.layout.elements() {
            0 => &[],
            elements => &self.guard[begin..begin + elements],
        })
    }
}

impl<T: Element> Values<'_, T> {
    /// All memory that the tensor shares.
    pub(crate) fn memory(&self) -> &[T] {
        &self.guard
    }
}

impl<T: Element> fmt::Debug for Values<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), f)
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

    /// The elements, to be read.
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
                let leaf = Leaf::new(self.context().next_node());
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

    /// The gradient that backward has added up: of a leaf, or of a result after [`Tensor::retain_grad`]. What is given out does not
    /// change; a later backward adds to a copy.
    #[must_use]
    pub fn grad(&self) -> Option<Self> {
        self.history.with_slot(|slot| slot.grad.clone()).flatten()
    }

    /// Replaces the gradient.
    ///
    /// # Errors
    /// Where this needs none, and where the gradient has another shape or belongs to another context.
    pub fn set_grad(&self, gradient: Option<&Self>) -> Result<()> {
        let operator = "set_grad";
        if let Some(gradient) = gradient {
            if gradient.shape() != self.shape() {
                let (what, expected, got) = ("the gradient", self.shape().into(), gradient.shape().into());
                return Err(TapeError::Shape { operator, what, expected, got });
            }
            if !gradient.context().is(self.context()) {
                return Err(TapeError::Contexts { operator });
            }
        }
        let gradient = gradient.map(Self::detach);
        self.history.with_slot(|slot| slot.grad = gradient).ok_or(TapeError::NoHistory { operator })
    }

    /// Gives the gradient up.
    pub fn zero_grad(&self) {
        self.history.with_slot(|slot| slot.grad = None);
    }

    /// Keeps the gradient of this result when backward comes by.
    ///
    /// # Errors
    /// Where it needs no gradient.
    pub fn retain_grad(&self) -> Result<()> {
        let retained = self.history.with_slot(|slot| slot.retains = true);
        retained.ok_or(TapeError::NoHistory { operator: "retain_grad" })
    }

    /// Calls `hook` with the whole gradient of this value, before it is used or kept; what it returns takes its place. The number that
    /// comes back is for [`Tensor::remove_hook`].
    ///
    /// # Errors
    /// Where it needs no gradient.
    pub fn register_hook(
        &self,
        hook: impl Fn(&Self) -> Result<Option<Self>> + Send + Sync + 'static,
    ) -> Result<u64> {
        let number = self.context().next_node();
        let hook: Hook<T> = Arc::new(hook);
        let registered = self.history.with_slot(|slot| slot.hooks.push((number, hook)));
        registered.map(|()| number).ok_or(TapeError::NoHistory { operator: "register_hook" })
    }

    /// Forgets a hook; whether there was one of this number.
    pub fn remove_hook(&self, number: u64) -> bool {
        let remove = |slot: &mut crate::tape::Slot<T>| {
            let before = slot.hooks.len();
            slot.hooks.retain(|(own, _)| *own != number);
            slot.hooks.len() < before
        };
        self.history.with_slot(remove).unwrap_or(false)
    }

    /// Replaces the elements by those of another tensor that broadcasts to this shape, outside the tape: that of a leaf, which an
    /// optimiser moves.
    ///
    /// # Errors
    /// Where the shapes do not fit, where this is a view that shows an element twice, and where it is a result whose history would no
    /// longer be true.
    pub fn assign(&self, from: &Self) -> Result<()> {
        let operator = "assign";
        if !from.context().is(self.context()) {
            return Err(TapeError::Contexts { operator });
        }
        let Some(layout) = from.layout.expanded(self.shape()) else {
            return Err(TapeError::Broadcast { operator, a: self.shape().into(), b: from.shape().into() });
        };
        self.change(operator, |dense, to| {
            // a part of the same memory may overlap
            let copy = if from.shares_memory(self) {
                Some(self.context().copied(operator, from.values().view())?)
            } else {
                None
            };
            let (from, layout) = match &copy {
                Some(copy) => (copy, copy.layout.expanded(self.shape()).unwrap_or(copy.layout)),
                None => (from, layout),
            };
            let guard = from.storage.read();
            let mut to = to();
            dense.map(Unary::Identity, layout.view(&guard), self.layout.view_mut(&mut to), Update::Replace);
            Ok(())
        })
    }

    /// Replaces the elements, outside the tape, by values in row-major order.
    ///
    /// # Errors
    /// As [`Tensor::assign`], and where they are not as many.
    pub fn assign_slice(&self, from: &[T]) -> Result<()> {
        let operator = "assign";
        if from.len() != self.elements() {
            return Err(TapeError::Elements { operator, expected: self.shape().into(), got: from.len() });
        }
        self.change(operator, |_, to| {
            let mut to = to();
            self.layout.view_mut(&mut to).iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            Ok(())
        })
    }

    /// Changes elements that no history depends on.
    fn change<'s>(
        &'s self,
        operator: &'static str,
        change: impl FnOnce(
            &'static dyn tiled_kernel::dense::Dense<T>,
            &dyn Fn() -> crate::storage::Write<'s, T>,
        ) -> Result<()>,
    ) -> Result<()> {
        self.check_changeable(operator)?;
        if matches!(self.history, History::Node(..)) {
            let what = "a result of a recorded operation";
            return Err(TapeError::InPlace { operator, what, shape: self.shape().into() });
        }
        change(self.context().dense(), &|| self.storage.write())?;
        self.storage.change(false);
        Ok(())
    }

    /// Changes the elements of a leaf without gaps, as an optimiser does.
    pub(crate) fn change_slice(&self, change: impl FnOnce(&mut [T]) -> Result<()>) -> Result<()> {
        let begin = self.layout.offset();
        change(&mut self.storage.write()[begin..begin + self.elements()])?;
        self.storage.change(false);
        Ok(())
    }

    /// No element may lie in memory that stands for another one too.
    pub(crate) fn check_changeable(&self, operator: &'static str) -> Result<()> {
        if self.layout.repeats() {
            let what = "a view that repeats elements";
            return Err(TapeError::InPlace { operator, what, shape: self.shape().into() });
        }
        if self.is_leaf() && records_gradients() && operator != "assign" {
            let what = "a leaf that needs a gradient";
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

/// The elements of several tensors, to be read together. Tensors that share memory are locked once: a thread that waits to write
/// would otherwise come between.
pub(crate) struct ReadAll<'a, T: Element, const N: usize> {
    guards: [Option<Read<'a, T>>; N],
    from: [usize; N],
    layouts: [Layout; N],
}

impl<'a, T: Element, const N: usize> ReadAll<'a, T, N> {
    pub(crate) fn of(tensors: [&'a Tensor<T>; N]) -> Self {
        let mut guards = [const { None }; N];
        let mut from = [0; N];
        for (at, tensor) in tensors.iter().enumerate() {
            let first = tensors[..at].iter().position(|other| other.shares_memory(tensor));
            from[at] = first.unwrap_or(at);
            if first.is_none() {
                guards[at] = Some(tensor.storage.read());
            }
        }
        Self { guards, from, layouts: tensors.map(|tensor| tensor.layout) }
    }

    pub(crate) fn view(&self, at: usize) -> ArrayViewD<'_, T> {
        self.view_as(at, &self.layouts[at])
    }

    /// The same repeated to a shape that it broadcasts to.
    pub(crate) fn expanded(&self, at: usize, shape: &[usize]) -> ArrayViewD<'_, T> {
        let layout = self.layouts[at].expanded(shape);
        self.view_as(at, &layout.expect("invariant: the shapes were broadcast"))
    }

    pub(crate) fn view_as(&self, at: usize, layout: &Layout) -> ArrayViewD<'_, T> {
        layout
            .view(self.guards[self.from[at]].as_ref().expect("invariant: the first of them holds the guard"))
    }
}
