//! Comparisons of a value with a number that are read as values themselves: 1 where they hold, 0 elsewhere.

use tiled_graph::{Activation, Elementwise, Op, Operand, WithOperand};

use super::plan::Plans;
use super::value::Above;
use crate::Reason;

/// Minus the least number above zero of `f32`.
const NEARLY_ZERO: f64 = -1.401_298_464_324_817e-45;

impl Plans {
    /// The mask of a comparison, by operators that there are: t − x is not below zero unless x is above t, however near they are; cut
    /// to −1 … 0 it is zero or less, and what is less becomes 1. No number stays none.
    pub(crate) fn mask(&mut self, above: Above, name: &str) -> Result<usize, Reason> {
        let less = |number: f64| {
            Op::WithOperand(WithOperand {
                function: Elementwise::Sub,
                operand: Operand::Number(number),
                reversed: true,
            })
        };
        let mut steps = vec![
            less(above.number),
            Op::Activation(Activation::Clamp { min: -1.0, max: 0.0 }),
            Op::Activation(Activation::Threshold { threshold: NEARLY_ZERO, value: 1.0 }),
        ];
        if !above.is_above {
            steps.push(less(1.0));
        }
        let mut plan = above.image.plan;
        let last = steps.len() - 1;
        for (place, op) in steps.into_iter().enumerate() {
            let name = if place == last { name.to_owned() } else { format!("{name}.{place}") };
            plan = self.node(&name, op, vec![plan], Vec::new())?;
        }
        Ok(plan)
    }
}
