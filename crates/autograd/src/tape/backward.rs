//! Gradients, from results to operands.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tiled_tensor::Element;

use super::flow::{BACKWARD, Flow, OPERAND, Options, Pending, RESULT, Run, Wanted, check_unchanged};
use crate::context::no_grad;
use crate::error::{Result, TapeError};
use crate::rules::rule;
use crate::tensor::{History, Node, Slot, Tensor};

const GRAD: &str = "grad";

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
        let result = rule(&node.op)(&mut flow);
        let saved = flow.saved;
        if self.options.retain_graph {
            *node.saved() = Some(saved);
        }
        result
    }
}
