//! Values of one row or one column.

use tiled_graph::{AdaptivePool2d, Elementwise, Op, Operand, PartPooling, WithOperand};

use super::numbers::Num;
use super::plan::Plans;
use super::value::Halfway;
use crate::Reason;

impl Plans {
    /// The node of its own of a reduction over height or width alone: pooling to one part along that axis. A sum is the mean times
    /// the extent.
    pub(crate) fn reduced(&mut self, halfway: &Halfway) -> Result<usize, Reason> {
        if let Some(made) = halfway.made.get() {
            return Ok(made);
        }
        let Halfway { plan, axis, op, name, .. } = halfway;
        let place = usize::from(*axis == 3);
        let pooling = if *op == Op::GlobalMaxPool { PartPooling::Max } else { PartPooling::Mean };
        let pool = Op::AdaptivePool2d(to_one(pooling, place));
        let made = if *op == Op::GlobalSumPool {
            let Some(extents) = self.get(*plan).extents else {
                return Err(Reason::OpenSize { what: "the sum over height or width alone" });
            };
            let mean = self.node(&format!("{name}.mean"), pool, vec![*plan], Vec::new())?;
            let operand = Operand::Number(extents[place] as f64);
            let op = Op::WithOperand(WithOperand { function: Elementwise::Mul, operand, reversed: false });
            self.node(name, op, vec![mean], Vec::new())?
        } else {
            self.node(name, pool, vec![*plan], Vec::new())?
        };
        halfway.made.set(Some(made));
        Ok(made)
    }

    /// Whether a value has one row or one column, along axis 2 or 3, whatever the image or as the model declares it.
    pub(crate) fn is_one(&self, plan: usize, axis: usize) -> bool {
        self.is_extent(Num::Known(1.0), plan, axis)
    }

    /// The same whatever the image.
    pub(crate) fn is_always_one(&self, plan: usize, axis: usize) -> bool {
        self.extent(plan, axis) == Num::Known(1.0)
    }

    /// Whether two values have as many rows or columns, along axis 2 or 3.
    pub(crate) fn are_as_long(&self, a: usize, b: usize, axis: usize) -> bool {
        self.is_extent(self.extent(b, axis), a, axis)
    }
}

/// Pooling to one row (place 0) or one column (place 1).
pub(crate) const fn to_one(pooling: PartPooling, place: usize) -> AdaptivePool2d {
    let output_size = if place == 0 { [Some(1), None] } else { [None, Some(1)] };
    AdaptivePool2d { pooling, output_size }
}
