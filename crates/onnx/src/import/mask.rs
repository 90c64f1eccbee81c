//! Comparisons of a value with a number that are read as values themselves: 1 where they hold, 0 elsewhere.

use tiled_graph::{Activation, Elementwise, Op, Operand, WithOperand};

use super::plan::Plans;
use super::value::Above;
use crate::Reason;

impl Plans {
    /// The mask of a comparison, by operators that there are: x − t is above zero where x is above t, however near they are. What is not
    /// becomes −1, and of the two with the other sign what is below a half becomes 0: 1 is left where x is not above t. What is not a
    /// number stays so.
    pub(crate) fn mask(&mut self, above: Above, name: &str) -> Result<usize, Reason> {
        let difference = |number: f64, reversed: bool| {
            let (function, operand) = (Elementwise::Sub, Operand::Number(number));
            Op::WithOperand(WithOperand { function, operand, reversed })
        };
        let mut steps = vec![
            difference(above.number, false),
            Op::Activation(Activation::Threshold { threshold: 0.0, value: -1.0 }),
            Op::Activation(Activation::Neg),
            Op::Activation(Activation::Threshold { threshold: 0.5, value: 0.0 }),
        ];
        if above.is_above {
            steps.push(difference(1.0, true));
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
