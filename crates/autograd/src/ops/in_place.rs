//! Changes in place.

use tiled_kernel::dense::{Binary, Unary, Update};
use tiled_tensor::Element;

use crate::error::{Result, TapeError};
use crate::layout::broadcast;
use crate::op::{Op, binary_name, unary_name};
use crate::storage::Storage;
use crate::tape::record::Step;
use crate::tensor::{History, Tensor};

impl<T: Element> Tensor<T> {
    /// Replaces each element by a function of it. Other tensors in the same memory see the change, and those with a history are stale
    /// from then on.
    ///
    /// # Errors
    /// Where this is a view that repeats elements, or stale, and where the change is recorded and a leaf that needs a gradient lies in the
    /// memory.
    pub fn map_in_place(&mut self, f: Unary) -> Result<()> {
        let operator = unary_name(f);
        let before = self.clone();
        let operands = [&before];
        let step = Step::begin(operator, &operands)?;
        self.check_changeable(operator, step.is_recorded())?;
        if step.is_recorded() && f.saves() == tiled_kernel::dense::Saves::Input {
            return self.refuse(operator);
        }
        {
            let mut memory = self.storage().write();
            let (x, context) = (self.layout().view_mut(&mut memory), self.context());
            context.share(x.len(), || context.dense().map_in_place(f, x));
        }
        self.record(step, Op::Map(f));
        Ok(())
    }

    /// Replaces each element by a function of it and of another, which is repeated to this shape.
    ///
    /// # Errors
    /// As [`Tensor::map_in_place`], and where the other does not broadcast to this shape.
    #[expect(clippy::missing_panics_doc, reason = "what is expected is an invariant")]
    pub fn zip_in_place(&mut self, f: Binary, other: &Self) -> Result<()> {
        let operator = binary_name(f);
        let before = self.clone();
        let operands = [&before, other];
        let step = Step::begin(operator, &operands)?;
        self.check_changeable(operator, step.is_recorded())?;
        let shape = broadcast(operator, self.shape(), other.shape())?;
        if shape != self.shape() {
            let (a, b) = (self.shape().into(), other.shape().into());
            return Err(TapeError::Broadcast { operator, a, b });
        }
        // a rule that reads what is about to change would find something else there
        let sides = [tiled_kernel::dense::Side::First, tiled_kernel::dense::Side::Second];
        let reads = |operand: usize| (0..2).any(|side| step.wants(side) && f.saves(sides[side])[operand]);
        if reads(0) || reads(1) && other.shares_memory(self) {
            return self.refuse(operator);
        }
        let context = self.context().clone();
        let copy = if other.shares_memory(self) {
            Some(context.copied(operator, other.values().view())?)
        } else {
            None
        };
        {
            let from = copy.as_ref().unwrap_or(other);
            let layout = from.layout().expanded(self.shape()).expect("invariant: the shapes were broadcast");
            let (guard, mut memory) = Storage::read_and_write(from.storage(), self.storage());
            let (a, b) = (self.layout().view_mut(&mut memory), layout.view(&guard));
            context.share(b.len(), || context.dense().zip_in_place(f, a, b));
        }
        self.record(step, Op::Zip(f));
        Ok(())
    }

    /// `self += other`.
    ///
    /// # Errors
    /// As [`Tensor::zip_in_place`].
    pub fn add_in_place(&mut self, other: &Self) -> Result<()> {
        self.zip_in_place(Binary::Add, other)
    }

    /// `self -= other`.
    ///
    /// # Errors
    /// As [`Tensor::zip_in_place`].
    pub fn sub_in_place(&mut self, other: &Self) -> Result<()> {
        self.zip_in_place(Binary::Sub, other)
    }

    /// `self *= other`.
    ///
    /// # Errors
    /// As [`Tensor::zip_in_place`]; where the other needs a gradient, which reads what would change.
    pub fn mul_in_place(&mut self, other: &Self) -> Result<()> {
        self.zip_in_place(Binary::Mul, other)
    }

    /// `self /= other`.
    ///
    /// # Errors
    /// As [`Tensor::zip_in_place`]; where the other needs a gradient, which reads what would change.
    pub fn div_in_place(&mut self, other: &Self) -> Result<()> {
        self.zip_in_place(Binary::Div, other)
    }

    /// `self = factor·self + summand`.
    ///
    /// # Errors
    /// As [`Tensor::map_in_place`].
    pub fn affine_in_place(&mut self, factor: f64, summand: f64) -> Result<()> {
        self.map_in_place(Unary::Affine { factor, summand })
    }

    /// Replaces the elements by those of another tensor that broadcasts to this shape, outside the tape: that of a leaf, which an
    /// optimiser moves. It waits until nobody holds [`Tensor::values`] of this memory.
    ///
    /// # Errors
    /// Where the shapes do not fit, where this is a view that shows an element twice, and where it is a result whose history would no
    /// longer be true.
    pub fn assign(&self, from: &Self) -> Result<()> {
        let operator = "assign";
        if !from.context().is(self.context()) {
            return Err(TapeError::Contexts { operator });
        }
        let Some(layout) = from.layout().expanded(self.shape()) else {
            return Err(TapeError::Broadcast { operator, a: self.shape().into(), b: from.shape().into() });
        };
        self.change(operator, || {
            // a part of the same memory may overlap
            let copy = if from.shares_memory(self) {
                Some(self.context().copied(operator, from.values().view())?)
            } else {
                None
            };
            let (from, layout) = match &copy {
                Some(copy) => (copy, copy.layout().expanded(self.shape()).unwrap_or(*copy.layout())),
                None => (from, layout),
            };
            let (guard, mut memory) = Storage::read_and_write(from.storage(), self.storage());
            let (from, to) = (layout.view(&guard), self.layout().view_mut(&mut memory));
            self.context().dense().map(Unary::Identity, from, to, Update::Replace);
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
        self.change(operator, || {
            let mut to = self.storage().write();
            self.layout().view_mut(&mut to).iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            Ok(())
        })
    }

    /// Changes elements that no history depends on.
    fn change(&self, operator: &'static str, change: impl FnOnce() -> Result<()>) -> Result<()> {
        self.check_changeable(operator, false)?;
        if matches!(self.history(), History::Node(..)) {
            let what = "a result of a recorded operation";
            return Err(TapeError::InPlace { operator, what, shape: self.shape().into() });
        }
        change()?;
        self.storage().change(false);
        Ok(())
    }

    /// Changes the elements of a leaf without gaps, as an optimiser does.
    pub(crate) fn change_slice(&self, change: impl FnOnce(&mut [T]) -> Result<()>) -> Result<()> {
        let begin = self.layout().offset();
        change(&mut self.storage().write()[begin..begin + self.elements()])?;
        self.storage().change(false);
        Ok(())
    }

    fn refuse(&self, operator: &'static str) -> Result<()> {
        let what = "a value that its gradient reads";
        Err(TapeError::InPlace { operator, what, shape: self.shape().into() })
    }

    /// Puts a change that has happened onto the tape.
    fn record(&mut self, step: Step<'_, T>, op: Op) {
        let is_recorded = step.is_recorded();
        if !is_recorded {
            let history = self.history().clone();
            self.move_on(history, false);
            return;
        }
        // the version moves before what is saved of the result is noted
        self.move_on(History::None, true);
        let result = step.finish(|| op, self.seen_as(*self.layout()));
        let history = result.history().clone();
        *self = self.seen_as(*self.layout()).with_history(history);
    }
}
