//! How an operation gets onto the tape.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use tiled_tensor::Element;

use crate::context::{Context, records_gradients};
use crate::error::{Result, TapeError};
use crate::layout::Layout;
use crate::op::Op;
use crate::tensor::{History, Kept, Node, Operand, Saved, Tensor};

/// An operation between the check of its operands and its record.
pub(crate) struct Step<'a, T: Element> {
    operands: &'a [&'a Tensor<T>],
    is_recorded: bool,
}

impl<'a, T: Element> Step<'a, T> {
    /// Checks that operands belong together and that none is stale.
    pub(crate) fn begin(operator: &'static str, operands: &'a [&'a Tensor<T>]) -> Result<Self> {
        if let [first, others @ ..] = operands
            && others.iter().any(|other| !other.context().is(first.context()))
        {
            return Err(TapeError::Contexts { operator });
        }
        for operand in operands {
            operand.check_fresh(operator)?;
        }
        let is_recorded = records_gradients() && operands.iter().any(|operand| operand.requires_grad());
        Ok(Self { operands, is_recorded })
    }

    /// Whether backward will come this way.
    pub(crate) const fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// Whether the gradient for an operand is wanted.
    pub(crate) fn wants(&self, operand: usize) -> bool {
        self.is_recorded && self.operands[operand].requires_grad()
    }

    pub(crate) fn context(&self) -> &'a Context<T> {
        self.operands[0].context()
    }

    /// The result, with its history where it has one.
    pub(crate) fn finish(self, op: impl FnOnce() -> Op, result: Tensor<T>) -> Tensor<T> {
        self.finish_keeping(|| (op(), Kept::Nothing), result)
    }

    /// The same with what backward needs besides operands and result.
    pub(crate) fn finish_keeping(self, op: impl FnOnce() -> (Op, Kept<T>), result: Tensor<T>) -> Tensor<T> {
        if !self.is_recorded {
            return result;
        }
        let (op, kept) = op();
        let node = self.node(op, kept, &result, Vec::new());
        result.with_history(History::Node(node, 0))
    }

    /// The same of several results.
    pub(crate) fn finish_all(
        self,
        op: impl FnOnce() -> (Op, Kept<T>),
        results: Vec<Tensor<T>>,
    ) -> Vec<Tensor<T>> {
        let (true, Some(first)) = (self.is_recorded, results.first()) else { return results };
        let (op, kept) = op();
        let further = results[1..].iter().map(|result| *result.layout()).collect();
        let node = self.node(op, kept, first, further);
        let with =
            |(at, result): (usize, Tensor<T>)| result.with_history(History::Node(Arc::clone(&node), at));
        results.into_iter().enumerate().map(with).collect()
    }

    fn node(&self, op: Op, kept: Kept<T>, result: &Tensor<T>, further: Vec<Layout>) -> Arc<Node<T>> {
        let saves = op.saves(|operand| self.wants(operand));
        let keep = |(at, operand): (usize, &&Tensor<T>)| saves.operand(at).then(|| operand.detach());
        let operands = if saves.any_operand() {
            self.operands.iter().enumerate().map(keep).collect()
        } else {
            Vec::new()
        };
        let saved = Saved { operands, result: saves.result().then(|| result.detach()), kept };
        Arc::new(Node {
            number: self.context().next_node(),
            op,
            operands: self
                .operands
                .iter()
                .map(|operand| Operand { history: operand.history().clone(), layout: *operand.layout() })
                .collect(),
            result: *result.layout(),
            further,
            saved: Mutex::new(Some(saved)),
            seen: AtomicU64::new(0),
            slots: Mutex::default(),
        })
    }
}
