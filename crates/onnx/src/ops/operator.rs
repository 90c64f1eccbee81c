//! An operator of ONNX, and what its name says of it.

use crate::Reason;
use crate::import::site::Site;
use crate::import::value::Value;

/// What makes of a node what its output stands for.
pub(super) type Rule = fn(&mut Site<'_>) -> Result<Value, Reason>;

/// An operator of ONNX.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(super) name: &'static str,
    /// The attributes that its rule knows; others are refused.
    pub(crate) attributes: &'static [&'static str],
    pub(super) rule: Rule,
}

impl Operator {
    /// Whether it is one of functions of single elements, which do the same wherever the channels stand.
    pub(super) fn is_of_elements(&self) -> bool {
        OF_ELEMENTS.contains(&self.name)
    }

    /// Whether it compares elements, or chooses among them.
    pub(super) fn is_of_truths(&self) -> bool {
        matches!(self.name, "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Where")
    }

    /// Whether what it makes has its axes where they were.
    pub(crate) fn leaves_axes(&self) -> bool {
        self.is_of_elements() || matches!(self.name, "Concat" | "Gather" | "Pad" | "Slice" | "Split")
    }
}

/// A line of the table.
pub(super) const fn operator(
    name: &'static str,
    attributes: &'static [&'static str],
    rule: Rule,
) -> Operator {
    Operator { name, attributes, rule }
}

/// Operators that look at each element alone, or at elements of several operands at one place.
const OF_ELEMENTS: [&str; 35] = [
    "Abs",
    "Add",
    "Cast",
    "Celu",
    "Clip",
    "Div",
    "Dropout",
    "Elu",
    "Erf",
    "Exp",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mul",
    "Neg",
    "Pow",
    "Reciprocal",
    "Relu",
    "Selu",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tanh",
    "ThresholdedRelu",
];

/// Whether an operator takes padding over, or hands it on to what may.
pub(crate) fn leaves_padding(name: &str) -> bool {
    matches!(name, "Cast" | "Conv" | "Dropout" | "Identity" | "MaxPool")
}

/// Whether an operator is one of quantised networks, of whatever domain.
pub(crate) fn is_quantised(name: &str) -> bool {
    const PREFIXES: [&str; 4] = ["QLinear", "QGemm", "QAttention", "QMoE"];
    const NAMES: [&str; 5] =
        ["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantised_operators_are_told_by_name() {
        assert!(["QLinearConv", "DequantizeLinear", "ConvInteger"].into_iter().all(is_quantised));
        assert!(!is_quantised("Conv"));
    }
}
