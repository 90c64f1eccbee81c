//! Height and width of nodes as formulas of those of what they read.

use tiled_graph::Op;

use super::Plans;
use crate::Reason;
use crate::import::extents::Extent;
use crate::import::formula::{self, Formula};

impl Plans {
    /// Height and width that no formula gives.
    pub(super) fn opened(&mut self, extents: Option<[usize; 2]>) -> Result<[Extent; 2], Reason> {
        let known = |axis: usize| extents.and_then(|extents| i64::try_from(extents[axis]).ok());
        Ok([self.extents.itself(known(0))?, self.extents.itself(known(1))?])
    }

    /// Height and width, where they are the same for every image.
    pub(super) fn constants(&self, formulas: [Extent; 2]) -> Option<[usize; 2]> {
        let constant = |extent| usize::try_from(self.extents.constant(extent)?).ok();
        Some([constant(formulas[0])?, constant(formulas[1])?])
    }

    /// Height and width of a node as formulas of those of its operands.
    pub(super) fn formulas(&mut self, op: &Op, inputs: &[usize]) -> Result<Option<[Extent; 2]>, Reason> {
        let Some(of) = self.largest(op, inputs)? else { return Ok(None) };
        let line = match formula::of(op) {
            Formula::Like(like) => {
                return Ok(Some([0, 1].map(|axis| self.all[like[axis]].formulas[axis])));
            }
            Formula::Multiples(multiples) => {
                let [height, width] = self.all[of].formulas;
                let height = self.extents.multiple(height, multiples[0])?;
                let width = self.extents.multiple(width, multiples[1])?;
                return Ok(height.zip(width).map(|(height, width)| [height, width]));
            }
            Formula::Windows { size, stride } => {
                let [height, width] = self.all[of].formulas;
                let height = self.extents.windows(height, size[0], stride[0])?;
                let width = self.extents.windows(width, size[1], stride[1])?;
                return Ok(height.zip(width).map(|(height, width)| [height, width]));
            }
            Formula::Lines(lines) => lines,
            Formula::Numbers([height, width]) => {
                return Ok(Some([self.extents.number(height)?, self.extents.number(width)?]));
            }
            Formula::Unknown => return Ok(None),
        };
        let [height, width] = self.all[of].formulas;
        let [height, width] =
            [line[0].applied(&mut self.extents, height)?, line[1].applied(&mut self.extents, width)?];
        Ok(height.zip(width).map(|(height, width)| [height, width]))
    }

    /// The operand whose height and width a node goes by: a value of one pixel stands for all pixels of the others, also where that
    /// is known of the image alone. So of operands of other formulas it is the one that is never smaller, if there is one.
    fn largest(&mut self, op: &Op, inputs: &[usize]) -> Result<Option<usize>, Reason> {
        let is_image = |plans: &Self, input: usize| plans.all[input].extents != Some([1, 1]);
        let mut largest = inputs.iter().copied().find(|input| is_image(self, *input)).unwrap_or(inputs[0]);
        if !matches!(op, Op::Add | Op::Mul | Op::Sub | Op::Div | Op::Minimum | Op::Maximum) {
            return Ok(Some(largest));
        }
        for other in inputs.iter().copied() {
            let [a, b] = [largest, other].map(|operand| self.all[operand].formulas);
            if !is_image(self, other) || a == b || self.is_never_smaller(a, b)? {
                continue;
            }
            if !self.is_never_smaller(b, a)? {
                return Ok(None);
            }
            largest = other;
        }
        Ok(Some(largest))
    }

    /// Whether a height and width are at least others, whatever the image.
    fn is_never_smaller(&mut self, a: [Extent; 2], b: [Extent; 2]) -> Result<bool, Reason> {
        for (a, b) in a.into_iter().zip(b) {
            match self.extents.sum(a, -1, b)? {
                Some(difference) if self.extents.bounds(difference).0 >= 0 => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}
