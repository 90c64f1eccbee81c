//! Gradients, from results to operands.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ndarray::ArrayViewMutD;
use tiled_kernel::dense::{Unary, Update};
use tiled_tensor::Element;

use super::{History, Node, Saved, Slot};
use crate::context::{Context, no_grad};
use crate::error::{Result, TapeError};
use crate::rules::Op;
use crate::tensor::Tensor;

/// How backward leaves the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the values that rules read stay, for another backward.
    pub retain_graph: bool,
}

impl<T: Element> Tensor<T> {
    /// Adds the gradients of this one element to `grad` of all leaves that it depends on, and gives the graph back.
    ///
    /// # Errors
    /// Where it has more than one element or no history, where an earlier backward has given the graph back, where a value that a rule
    /// reads was changed in place, and where memory is refused.
    pub fn backward(&self) -> Result<()> {
        self.backward_with(None, Options::default())
    }

    /// The same with a gradient to begin with, of the shape of this tensor.
    ///
    /// # Errors
    /// As [`Tensor::backward`], and where it has another shape or belongs to another context.
    pub fn backward_with(&self, upstream: Option<&Self>, options: Options) -> Result<()> {
        Run::new(BACKWARD, &[(self, upstream)], None, options)?.finish().map(drop)
    }
}

/// The gradients of outputs with respect to inputs, which may be leaves or results; `grad` of the leaves stays as it is. Those that
/// no output depends on are `None`.
///
/// # Errors
/// As [`Tensor::backward`].
///
/// ```
/// use tiled_autograd::{Context, grad};
/// use tiled_kernel::Reference;
/// let context = Context::<f64>::new(&Reference, 1)?;
/// let x = context.full(&[], 3.0)?.with_gradient()?;
/// let y = (&x * &x)?;
/// let z = (&y * 2.0)?;
/// let gradients = grad(&[&z], &[&y, &x])?;
/// let values: Vec<_> = gradients.into_iter().flatten().map(|gradient| gradient.to_vec()[0]).collect();
/// assert_eq!(values, [2.0, 12.0]);
/// # Ok::<(), tiled_autograd::TapeError>(())
/// ```
pub fn grad<T: Element>(outputs: &[&Tensor<T>], inputs: &[&Tensor<T>]) -> Result<Vec<Option<Tensor<T>>>> {
    let outputs: Vec<_> = outputs.iter().map(|output| (*output, None)).collect();
    grad_with(&outputs, inputs, Options::default())
}

/// The same with gradients to begin with.
///
/// # Errors
/// As [`Tensor::backward_with`].
pub fn grad_with<T: Element>(
    outputs: &[(&Tensor<T>, Option<&Tensor<T>>)],
    inputs: &[&Tensor<T>],
    options: Options,
) -> Result<Vec<Option<Tensor<T>>>> {
    if outputs.is_empty() {
        return Ok(vec![None; inputs.len()]);
    }
    let mut wanted = BTreeSet::new();
    for input in inputs {
        wanted.insert(input.history().key().ok_or(TapeError::NoHistory { operator: GRAD })?);
    }
    let mut found = Run::new(GRAD, outputs, Some(wanted), options)?.finish()?;
    // an input may be named twice
    Ok(inputs.iter().map(|input| found.get_mut(&input.history().key()?).cloned()).collect())
}

fn check_unchanged<T: Element>(operator: &'static str, what: &'static str, saved: &Tensor<T>) -> Result<()> {
    let (expected, got) = (saved.seen_version(), saved.version());
    if expected == got {
        return Ok(());
    }
    Err(TapeError::Changed { operator, what, shape: saved.shape().into(), expected, got })
}

const OPERAND: &str = "a saved operand";
const RESULT: &str = "the saved result";
const BACKWARD: &str = "backward";
const GRAD: &str = "grad";

/// What is under way to a node or leaf.
struct Pending<T: Element> {
    history: History<T>,
    gradients: Vec<Option<Tensor<T>>>,
}

/// One walk back over the graph.
struct Run<T: Element> {
    context: Context<T>,
    /// By number, so that the last is next.
    pending: BTreeMap<u64, Pending<T>>,
    /// The gradients that are asked for; `None` where those of all leaves are added up in place.
    wanted: Option<Wanted<T>>,
    options: Options,
}

struct Wanted<T: Element> {
    keys: BTreeSet<(u64, usize)>,
    /// Nodes from which one of them is reached.
    on_the_way: BTreeSet<u64>,
    found: HashMap<(u64, usize), Tensor<T>>,
}

impl<T: Element> Run<T> {
    fn new(
        operator: &'static str,
        outputs: &[(&Tensor<T>, Option<&Tensor<T>>)],
        wanted: Option<BTreeSet<(u64, usize)>>,
        options: Options,
    ) -> Result<Self> {
        let context = outputs[0].0.context().clone();
        let mut run = Self { context, pending: BTreeMap::new(), wanted: None, options };
        for (output, upstream) in outputs {
            if !output.context().is(&run.context)
                || upstream.is_some_and(|upstream| !upstream.context().is(&run.context))
            {
                return Err(TapeError::Contexts { operator });
            }
            if !output.history().is_some() {
                return Err(TapeError::NoHistory { operator });
            }
            output.check_fresh(operator)?;
            let gradient = match upstream {
                Some(upstream) if upstream.shape() == output.shape() => upstream.detach(),
                Some(upstream) => {
                    let (what, expected, got) =
                        ("the upstream gradient", output.shape().into(), upstream.shape().into());
                    return Err(TapeError::Shape { operator, what, expected, got });
                }
                None if output.elements() == 1 => run.context.full(output.shape(), 1.0)?,
                None => return Err(TapeError::NotScalar { shape: output.shape().into() }),
            };
            run.pending_of(output.history(), gradient)?;
        }
        run.check()?;
        if let Some(keys) = wanted {
            let on_the_way = run.reach(&keys);
            run.wanted = Some(Wanted { keys, on_the_way, found: HashMap::new() });
        }
        Ok(run)
    }

    /// What rules will read is there and unchanged: checked for all of them before anything is added anywhere.
    fn check(&self) -> Result<()> {
        let walk = self.context.next_node();
        let mut stack: Vec<Arc<Node<T>>> = self.pending.values().filter_map(Pending::node).collect();
        while let Some(node) = stack.pop() {
            if node.seen.swap(walk, Ordering::Relaxed) == walk {
                continue;
            }
            let operator = node.op.name();
            match &*node.saved() {
                None => return Err(TapeError::Freed { operator }),
                Some(saved) => {
                    for operand in saved.operands.iter().flatten() {
                        check_unchanged(operator, OPERAND, operand)?;
                    }
                    if let Some(result) = &saved.result {
                        check_unchanged(operator, RESULT, result)?;
                    }
                }
            }
            for operand in &node.operands {
                if let History::Node(before, _) = &operand.history {
                    stack.push(Arc::clone(before));
                }
            }
        }
        Ok(())
    }

    /// The nodes from which one of these gradients is reached.
    fn reach(&self, keys: &BTreeSet<(u64, usize)>) -> BTreeSet<u64> {
        let mut nodes: BTreeMap<u64, Arc<Node<T>>> = BTreeMap::new();
        let mut stack: Vec<Arc<Node<T>>> = self.pending.values().filter_map(Pending::node).collect();
        while let Some(node) = stack.pop() {
            if nodes.contains_key(&node.number) {
                continue;
            }
            for operand in &node.operands {
                if let History::Node(before, _) = &operand.history {
                    stack.push(Arc::clone(before));
                }
            }
            nodes.insert(node.number, node);
        }
        let mut reached = BTreeSet::new();
        for (number, node) in &nodes {
            let mut histories = node.operands.iter().map(|operand| &operand.history);
            let leads = histories.any(|history| {
                history.key().is_some_and(|key| keys.contains(&key) || reached.contains(&key.0))
            });
            if leads {
                reached.insert(*number);
            }
        }
        reached
    }

    fn finish(mut self) -> Result<HashMap<(u64, usize), Tensor<T>>> {
        let _guard = no_grad();
        while let Some((number, mut pending)) = self.pending.pop_last() {
            self.show(&mut pending)?;
            if let Some(wanted) = &mut self.wanted {
                for (result, gradient) in pending.gradients.iter().enumerate() {
                    if let Some(gradient) =
                        gradient.as_ref().filter(|_| wanted.keys.contains(&(number, result)))
                    {
                        wanted.found.insert((number, result), gradient.clone());
                    }
                }
                if !wanted.on_the_way.contains(&number) {
                    continue;
                }
            }
            match &pending.history {
                History::Node(node, _) => self.step(node, &pending.gradients)?,
                leaf => {
                    if let Some(gradient) = pending.gradients.pop().flatten() {
                        self.settle(leaf, gradient)?;
                    }
                }
            }
        }
        Ok(self.wanted.map(|wanted| wanted.found).unwrap_or_default())
    }

    /// Calls hooks, and keeps gradients of results that are to be kept.
    fn show(&self, pending: &mut Pending<T>) -> Result<()> {
        let Pending { history, gradients } = pending;
        for (result, gradient) in gradients.iter_mut().enumerate() {
            let Some(shown) = gradient else { continue };
            let (history, is_leaf) = match &*history {
                History::Node(node, _) if node.slots().is_empty() => continue,
                History::Node(node, _) => (History::Node(Arc::clone(node), result), false),
                leaf => (leaf.clone(), true),
            };
            let see = |slot: &mut Slot<T>| (slot.hooks.clone(), slot.retains && !is_leaf);
            let (hooks, retains) = history.with_slot(see).unwrap_or_default();
            for (_, hook) in hooks {
                if let Some(other) = hook(shown)? {
                    if other.shape() != shown.shape() {
                        let (operator, what) = ("hook", "the gradient that it returns");
                        let (expected, got) = (shown.shape().into(), other.shape().into());
                        return Err(TapeError::Shape { operator, what, expected, got });
                    }
                    *shown = other.detach();
                }
            }
            if retains && self.wanted.is_none() {
                let sum = match history.with_slot(|slot| slot.grad.take()).flatten() {
                    Some(before) => self.sum(before, shown)?,
                    None => shown.clone(),
                };
                history.with_slot(|slot| slot.grad = Some(sum));
            }
        }
        Ok(())
    }

    fn step(&mut self, node: &Node<T>, upstream: &[Option<Tensor<T>>]) -> Result<()> {
        let saved = node.saved().take().ok_or(TapeError::Freed { operator: node.op.name() })?;
        let mut flow = Flow { node, saved, upstream, run: self };
        let result = node.op.rule()(&mut flow);
        let saved = flow.saved;
        if self.options.retain_graph {
            *node.saved() = Some(saved);
        }
        result
    }

    fn wants(&self, history: &History<T>) -> bool {
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
    fn pending_of(&mut self, history: &History<T>, gradient: Tensor<T>) -> Result<()> {
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
    fn settle(&mut self, leaf: &History<T>, gradient: Tensor<T>) -> Result<()> {
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
    fn sum(&self, a: Tensor<T>, b: &Tensor<T>) -> Result<Tensor<T>> {
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
    fn node(&self) -> Option<Arc<Node<T>>> {
        match &self.history {
            History::Node(node, _) => Some(Arc::clone(node)),
            _ => None,
        }
    }
}

/// What a rule sees of its node, and where it writes.
pub(crate) struct Flow<'a, T: Element> {
    node: &'a Node<T>,
    saved: Saved<T>,
    upstream: &'a [Option<Tensor<T>>],
    run: &'a mut Run<T>,
}

impl<'a, T: Element> Flow<'a, T> {
    pub(crate) const fn op(&self) -> &'a Op<T> {
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

    pub(crate) const fn kept(&mut self) -> &mut crate::rules::Kept<T> {
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
