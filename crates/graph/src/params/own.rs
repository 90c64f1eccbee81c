//! The parameters of an operator, before they have names.

/// The role of a parameter.
///
/// ```
/// use tiled_graph::ParamKind;
/// assert!(ParamKind::Weight.is_trained() && !ParamKind::RunningVar.is_trained());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamKind {
    /// `weight`.
    Weight,
    /// `bias`.
    Bias,
    /// `running_mean` of batch or instance normalisation.
    RunningMean,
    /// `running_var` of batch or instance normalisation.
    RunningVar,
    /// `num_batches_tracked` of batch normalisation whose running statistics are means: how many batches they are of. It counts in
    /// the element type of all parameters, so in `f32` to 2²⁴, where it stays: each later batch weighs 2⁻²⁴, half the ε of the type
    /// in which the statistics lie.
    NumBatchesTracked,
}

impl ParamKind {
    /// Whether it has a gradient; running statistics and what counts them have none.
    #[must_use]
    pub const fn is_trained(self) -> bool {
        matches!(self, Self::Weight | Self::Bias)
    }

    /// The role of this [`ParamKind::suffix`].
    pub(crate) fn of_suffix(suffix: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.suffix() == suffix)
    }

    /// All of them, in the order of a node's parameters.
    pub(crate) const ALL: [Self; 5] =
        [Self::Weight, Self::Bias, Self::RunningMean, Self::RunningVar, Self::NumBatchesTracked];

    /// The end of the parameter's name.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Bias => "bias",
            Self::RunningMean => "running_mean",
            Self::RunningVar => "running_var",
            Self::NumBatchesTracked => "num_batches_tracked",
        }
    }
}

/// The values that a parameter starts with.
///
/// ```
/// use tiled_graph::{Graph, Init, params};
/// let specs = params(&Graph::builtin("seed-001").expect("it is built in"));
/// assert_eq!(specs[0].init, Init::Uniform { bound: 1.0 / 3.0 }); // 1/√(1·3·3)
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Independent and uniform in `[−bound, bound)`.
    Uniform {
        /// The bound.
        bound: f64,
    },
    /// The same value everywhere.
    Constant(f64),
}

/// The axis of a weight that runs over the input channels of one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InputAxis {
    pub(crate) axis: usize,
    pub(crate) groups: usize,
}

/// A parameter of an operator, before it has a name.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) kind: ParamKind,
    pub(crate) shape: Vec<usize>,
    pub(crate) init: Init,
    /// Where it is a weight: its axis over input channels.
    pub(crate) input: Option<InputAxis>,
}

/// A weight and a bias of this length, if any. PyTorch's fan-in is all dimensions but the first, for transposed convolutions too.
pub(crate) fn weight_and_bias(weight: Vec<usize>, input: InputAxis, bias: Option<usize>) -> Vec<Own> {
    let init = uniform(weight[1..].iter().product());
    let weight = Own { kind: ParamKind::Weight, shape: weight, init, input: Some(input) };
    let bias = bias.map(|len| Own { kind: ParamKind::Bias, shape: vec![len], init, input: None });
    std::iter::once(weight).chain(bias).collect()
}

#[expect(clippy::cast_precision_loss, reason = "fan-in is far below 2^53")]
fn uniform(fan_in: usize) -> Init {
    Init::Uniform { bound: 1.0 / (fan_in as f64).sqrt() }
}
