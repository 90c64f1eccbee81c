//! Gradients on their way: what is under way to each node, and what a rule sees of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ndarray::ArrayViewMutD;
use tiled_kernel::dense::{Unary, Update};
use tiled_tensor::Element;

use crate::context::Context;
use crate::error::{Result, TapeError};
use crate::op::Op;
use crate::tensor::{History, Kept, Node, Saved, Tensor};

/// How backward leaves the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the values that rules read stay, for another backward.
    pub retain_graph: bool,
}

/// What is under way to a node or leaf.
pub(super) struct Pending<T: Element> {
    pub(super) history: History<T>,
    pub(super) gradients: Vec<Option<Tensor<T>>>,
}

/// One walk back over the graph.
pub(super) struct Run<T: Element> {
    pub(super) context: Context<T>,
    /// By number, so that the last is next.
    pub(super) pending: BTreeMap<u64, Pending<T>>,
    /// The gradients that are asked for; `None` where those of all leaves are added up in place.
    pub(super) wanted: Option<Wanted<T>>,
    pub(super) options: Options,
}

pub(super) struct Wanted<T: Element> {
    pub(super) keys: BTreeSet<(u64, usize)>,
    /// Nodes from which one of them is reached.
    pub(super) on_the_way: BTreeSet<u64>,
    pub(super) found: HashMap<(u64, usize), Tensor<T>>,
}

impl<T: Element> Run<T> {
    pub(super) fn wants(&self, history: &History<T>) -> bool {
        match (&self.wanted, history.key()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(wanted), Some(key)) => wanted.keys.contains(&key) || wanted.on_the_way.contains(&key.0),
        }
    }

    /// Whether a gradient is added to a leaf at once: nobody looks at it before.
    fn is_direct(&self, history: &History<T>) -> bool {
        matches!(history, History::Leaf(leaf) if self.wanted.is_none() && leaf.slot().hooks.is_empty())
    }

    /// Takes out what there is of a gradient.
    fn take(&mut self, history: &History<T>) -> Option<Tensor<T>> {
        if self.is_direct(history) {
            return history.with_slot(|slot| slot.grad.take()).flatten();
        }
        let (number, result) = history.key()?;
        self.pending.get_mut(&number)?.gradients.get_mut(result)?.take()
    }

    /// Where the walk begins: also at a leaf, whose gradient is then added at its turn.
    pub(super) fn pending_of(&mut self, history: &History<T>, gradient: Tensor<T>) -> Result<()> {
        let Some((number, result)) = history.key() else { return Ok(()) };
        self.put_pending(history, (number, result), gradient)
    }

    fn put_pending(
        &mut self,
        history: &History<T>,
        (number, result): (u64, usize),
        gradient: Tensor<T>,
    ) -> Result<()> {
        // an operand that a node has twice may have one already
        let before = self.pending.get_mut(&number).and_then(|pending| pending.gradients[result].take());
        let gradient = match before {
            Some(before) => self.sum(before, &gradient)?,
            None => gradient,
        };
        let pending = self.pending.entry(number).or_insert_with(|| {
            let results = match history {
                History::Node(node, _) => node.results(),
                _ => 1,
            };
            Pending { history: history.clone(), gradients: vec![None; results] }
        });
        pending.gradients[result] = Some(gradient);
        Ok(())
    }

    /// Puts a gradient where it has been taken out.
    fn put(&mut self, history: &History<T>, mut gradient: Tensor<T>) -> Result<()> {
        if self.is_direct(history) {
            // somebody else may have put one there meanwhile
            while let Some(other) = history.with_slot(|slot| slot.grad.take()).flatten() {
                gradient = self.sum(gradient, &other)?;
            }
            history.with_slot(|slot| slot.grad = Some(gradient));
            return Ok(());
        }
        history.key().map_or(Ok(()), |key| self.put_pending(history, key, gradient))
    }

    /// Adds a gradient that lies in a tensor of its own, or one that others read too.
    fn pass(&mut self, history: &History<T>, gradient: Tensor<T>) -> Result<()> {
        match self.take(history) {
            Some(before) => {
                let sum = self.sum(before, &gradient)?;
                self.put(history, sum)
            }
            None if self.is_direct(history) && !gradient.is_own() => {
                let own = self.context.copied(BACKWARD, gradient.values().view())?;
                self.put(history, own)
            }
            None => self.put(history, gradient),
        }
    }

    /// Adds what hooks of a leaf have left over.
    pub(super) fn settle(&mut self, leaf: &History<T>, gradient: Tensor<T>) -> Result<()> {
        if self.wanted.is_some() {
            return Ok(());
        }
        let sum = match leaf.with_slot(|slot| slot.grad.take()).flatten() {
            Some(before) => self.sum(before, &gradient)?,
            None if gradient.is_own() => gradient,
            None => self.context.copied(BACKWARD, gradient.values().view())?,
        };
        leaf.with_slot(|slot| slot.grad = Some(sum));
        Ok(())
    }

    /// `a + b`, in the memory of `a` where nobody else has it.
    pub(super) fn sum(&self, a: Tensor<T>, b: &Tensor<T>) -> Result<Tensor<T>> {
        let a = if a.is_own() { a } else { self.context.copied(BACKWARD, a.values().view())? };
        {
            let from = b.values();
            let mut to = a.storage().write();
            let (from, to) = (from.view(), a.layout().view_mut(&mut to));
            let dense = self.context.dense();
            self.context.share(from.len(), || dense.map(Unary::Identity, from, to, Update::Add));
        }
        Ok(a)
    }
}

impl<T: Element> Pending<T> {
    pub(super) fn node(&self) -> Option<Arc<Node<T>>> {
        match &self.history {
            History::Node(node, _) => Some(Arc::clone(node)),
            _ => None,
        }
    }
}

/// What a rule sees of its node, and where it writes.
pub(crate) struct Flow<'a, T: Element> {
    pub(super) node: &'a Node<T>,
    pub(super) saved: Saved<T>,
    pub(super) upstream: &'a [Option<Tensor<T>>],
    pub(super) run: &'a mut Run<T>,
}

impl<'a, T: Element> Flow<'a, T> {
    pub(crate) const fn op(&self) -> &'a Op {
        &self.node.op
    }

    pub(crate) const fn context(&self) -> &Context<T> {
        &self.run.context
    }

    /// The gradient of the result.
    pub(crate) fn dy(&self) -> Result<&'a Tensor<T>> {
        self.upstream[0].as_ref().ok_or(TapeError::NoHistory { operator: self.op().name() })
    }

    /// The gradients of all results.
    pub(crate) const fn upstream(&self) -> &'a [Option<Tensor<T>>] {
        self.upstream
    }

    /// The shape of a result.
    pub(crate) fn result_shape(&self, result: usize) -> &'a [usize] {
        self.node.layout_of(result).shape()
    }

    pub(crate) const fn kept(&mut self) -> &mut Kept<T> {
        &mut self.saved.kept
    }

    pub(crate) const fn retains_graph(&self) -> bool {
        self.run.options.retain_graph
    }

    pub(crate) fn operands(&self) -> usize {
        self.node.operands.len()
    }

    pub(crate) fn wants(&self, operand: usize) -> bool {
        self.run.wants(&self.node.operands[operand].history)
    }

    pub(crate) fn shape(&self, operand: usize) -> &'a [usize] {
        self.node.operands[operand].layout.shape()
    }

    /// A saved operand.
    pub(crate) fn operand(&self, operand: usize) -> Result<Tensor<T>> {
        let saved = self.saved.operands.get(operand).and_then(Option::as_ref);
        self.unchanged(OPERAND, saved)
    }

    /// The saved result.
    pub(crate) fn result(&self) -> Result<Tensor<T>> {
        self.unchanged(RESULT, self.saved.result.as_ref())
    }

    /// It is checked again: hooks and functions of the user may have come between.
    fn unchanged(&self, what: &'static str, saved: Option<&Tensor<T>>) -> Result<Tensor<T>> {
        let saved = saved.expect("invariant: the table says that it is saved");
        check_unchanged(self.op().name(), what, saved)?;
        Ok(saved.clone())
    }

    /// Gives an operand a gradient that lies in a tensor: its own, or a view of one that others read too.
    pub(crate) fn pass(&mut self, operand: usize, gradient: Tensor<T>) -> Result<()> {
        let to = &self.node.operands[operand];
        debug_assert_eq!(gradient.shape(), to.layout.shape(), "{}", self.op().name());
        if self.run.wants(&to.history) { self.run.pass(&to.history, gradient) } else { Ok(()) }
    }

    /// Where the gradient of an operand is to be written, and whether it is added to what lies there; `None` where nobody wants it.
    /// [`Flow::settle`] follows.
    pub(crate) fn destination(&mut self, operand: usize) -> Result<Option<(Tensor<T>, Update)>> {
        let to = &self.node.operands[operand];
        if !self.run.wants(&to.history) {
            return Ok(None);
        }
        let operator = self.op().name();
        Ok(Some(match self.run.take(&to.history) {
            Some(before) if before.is_own() => (before, Update::Add),
            Some(before) => (self.run.context.copied(operator, before.values().view())?, Update::Add),
            None => (self.run.context.empty(operator, to.layout.shape())?, Update::Replace),
        }))
    }

    /// Puts what was written where it ends up.
    pub(crate) fn settle(&mut self, operand: usize, written: Option<(Tensor<T>, Update)>) -> Result<()> {
        match written {
            Some((gradient, _)) => self.run.put(&self.node.operands[operand].history, gradient),
            None => Ok(()),
        }
    }

    /// Writes the gradient of an operand where it ends up, or adds it to what there is.
    pub(crate) fn write(
        &mut self,
        operand: usize,
        write: impl FnOnce(ArrayViewMutD<'_, T>, Update) -> Result<()>,
    ) -> Result<()> {
        let Some((gradient, update)) = self.destination(operand)? else { return Ok(()) };
        let result = write(gradient.layout().view_mut(&mut gradient.storage().write()), update);
        if result.is_ok() || update == Update::Add {
            self.settle(operand, Some((gradient, update)))?;
        }
        result
    }

    /// The same of a gradient into which a rule only adds: zeros where there is none yet.
    pub(crate) fn add(
        &mut self,
        operand: usize,
        add: impl FnOnce(ArrayViewMutD<'_, T>) -> Result<()>,
    ) -> Result<()> {
        self.write(operand, |mut gradient, update| {
            if update == Update::Replace {
                gradient.fill(T::ZERO);
            }
            add(gradient)
        })
    }
}

/// Nobody has changed a saved value since.
pub(super) fn check_unchanged<T: Element>(
    operator: &'static str,
    what: &'static str,
    saved: &Tensor<T>,
) -> Result<()> {
    let (expected, got) = (saved.seen_version(), saved.version());
    if expected == got {
        return Ok(());
    }
    Err(TapeError::Changed { operator, what, shape: saved.shape().into(), expected, got })
}

pub(super) const OPERAND: &str = "a saved operand";
pub(super) const RESULT: &str = "the saved result";
pub(super) const BACKWARD: &str = "backward";
