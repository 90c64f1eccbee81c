//! What a loss is of: one output, and a target of its shape.

use crate::args::LossArg;
use crate::error::CliError;
use crate::text::escape;

/// An output as a user meets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<'a> {
    /// What the network's file calls it.
    pub(crate) name: &'a str,
    pub(crate) shape: [usize; 4],
}

impl<'a> Output<'a> {
    /// The output that a loss is of: the only one.
    pub(crate) fn of_loss(names: &'a [String], shapes: &[[usize; 4]]) -> Result<Self, CliError> {
        match (names, shapes) {
            ([name], [shape]) => Ok(Self { name, shape: *shape }),
            _ => Err(CliError::LossOutputs { names: names.iter().map(|name| quoted(name)).collect() }),
        }
    }

    /// Checks the shape of a target, which this file or option gives.
    pub(crate) fn check_target(&self, given: String, got: [usize; 4], loss: LossArg) -> Result<(), CliError> {
        let [batch, _, height, width] = self.shape;
        match loss {
            LossArg::Mse => self.check(given, got, "mse", &[self.shape]),
            LossArg::CrossEntropy => {
                self.check(given, got, "cross-entropy", &[[batch, 1, height, width], self.shape])
            }
        }
    }

    /// Checks the shape of a gradient, which this file gives.
    pub(crate) fn check_gradient(&self, given: String, got: [usize; 4]) -> Result<(), CliError> {
        self.check(given, got, "the gradient", &[self.shape])
    }

    fn check(
        &self,
        given: String,
        got: [usize; 4],
        what: &'static str,
        expected: &[[usize; 4]],
    ) -> Result<(), CliError> {
        if expected.contains(&got) {
            return Ok(());
        }
        let mut expected: Vec<String> = expected.iter().map(|shape| format!("{shape:?}")).collect();
        expected.dedup();
        Err(CliError::Shape { given, got, what, output: quoted(self.name), expected: expected.join(" or ") })
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", escape(name))
}
