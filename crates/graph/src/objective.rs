//! What a run is to compute.

/// Whether batch normalisation uses the statistics of the image and dropout drops.
///
/// ```
/// use tiled_graph::{Mode, Objective};
/// assert_eq!(Objective::inference().mode, Mode::Eval);
/// assert_eq!(Objective::gradients().mode, Mode::Train);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Batch normalisation uses the image's statistics, dropout drops.
    Train,
    /// Batch normalisation uses running statistics, dropout does nothing.
    Eval,
}

/// Where the gradients begin.
///
/// ```
/// use tiled_graph::{Graph, Loss, Objective, infer, lower};
/// let graph = Graph::builtin("vgg2").expect("it is built in"); // 128 channels at its end
/// let shapes = infer(&graph, 1, &[[64, 64]])?;
/// let loss = Loss::CrossEntropy { target_channels: 5 };
/// let error = lower(&graph, &shapes, &Objective::training(loss), &[]).unwrap_err();
/// assert_eq!(error.to_string(), "cross-entropy: target has 5 channels, wants 1 (class numbers) or 128 (probabilities)");
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// The caller gives the gradient with respect to each output.
    GradOutput,
    /// The caller gives the gradient with respect to each output after it has seen the outputs: the run has two halves, and nothing of
    /// the first one reads these gradients.
    GradOutputLater,
    /// The sum of all outputs.
    Sum,
    /// Mean squared error of the first output against a target of its shape.
    MeanSquaredError,
    /// Mean over pixels of the cross-entropy of the first output against a target: one channel of class
    /// numbers, from 0 to one less than the channels of the output, or one channel of probability per class. Of class
    /// numbers, pixels of [`Objective::ignore_index`] have no loss and no gradient, and the mean is over the others; any
    /// other number is an error of the run.
    CrossEntropy {
        /// The channels of the target: one, or as many as the output.
        target_channels: usize,
    },
}

/// What a run is to compute.
///
/// ```
/// use tiled_graph::program::ParamId;
/// use tiled_graph::{Graph, Id, Objective, infer, lower};
/// let graph = Graph::builtin("vgg2").expect("it is built in");
/// let shapes = infer(&graph, 1, &[[64, 64]])?;
/// // the gradients of the input and of one layer
/// let wanted = Some(vec!["x".to_owned(), "conv1".to_owned()]);
/// let program = lower(&graph, &shapes, &Objective { wanted, ..Objective::gradients() }, &[])?;
/// assert_eq!(program.input_grads, [0]);
/// assert_eq!(program.param_grads, [0, 1].map(ParamId::new));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// Training or evaluation.
    pub mode: Mode,
    /// Whether the outputs are wanted.
    pub outputs: bool,
    /// The loss whose gradients are wanted, if any.
    pub loss: Option<Loss>,
    /// Whether the gradients with respect to the inputs are wanted: of all of them, or of those that [`Objective::wanted`] names.
    pub grad_inputs: bool,
    /// Whether the gradients with respect to the parameters are wanted, in the same way.
    pub grad_params: bool,
    /// The names of the inputs, parameters (`fc.weight`) and nodes (`fc`: all its parameters) whose gradients are wanted, where not
    /// those of all; `layer4*` stands for all names that begin so. What no wanted gradient needs is not computed.
    pub wanted: Option<Vec<String>>,
    /// The names of nodes, as above, that evaluate in a network that trains: batch norms use their running statistics and leave them
    /// as they are, dropouts do nothing.
    pub evaluated: Vec<String>,
    /// The seed of dropout.
    pub seed: u64,
    /// The class number whose pixels a cross-entropy leaves out, negative or not.
    pub ignore_index: Option<i64>,
}

impl Objective {
    /// The outputs alone.
    ///
    /// ```
    /// use tiled_graph::Objective;
    /// let objective = Objective::inference();
    /// assert!(objective.outputs && objective.loss.is_none());
    /// ```
    #[must_use]
    pub const fn inference() -> Self {
        Self {
            mode: Mode::Eval,
            outputs: true,
            loss: None,
            grad_inputs: false,
            grad_params: false,
            wanted: None,
            evaluated: Vec::new(),
            seed: 0,
            ignore_index: None,
        }
    }

    /// The gradients with respect to the inputs and the parameters, given those of the outputs.
    ///
    /// ```
    /// use tiled_graph::{Loss, Objective};
    /// let objective = Objective::gradients();
    /// assert!(objective.grad_inputs && objective.grad_params && objective.loss == Some(Loss::GradOutput));
    /// ```
    #[must_use]
    pub const fn gradients() -> Self {
        Self {
            mode: Mode::Train,
            outputs: false,
            loss: Some(Loss::GradOutput),
            grad_inputs: true,
            grad_params: true,
            wanted: None,
            evaluated: Vec::new(),
            seed: 0,
            ignore_index: None,
        }
    }

    /// The loss and the gradients with respect to the parameters: one training step.
    ///
    /// ```
    /// use tiled_graph::{Loss, Objective};
    /// let objective = Objective::training(Loss::Sum);
    /// assert!(objective.grad_params && !objective.grad_inputs);
    /// ```
    #[must_use]
    pub const fn training(loss: Loss) -> Self {
        Self {
            mode: Mode::Train,
            outputs: false,
            loss: Some(loss),
            grad_inputs: false,
            grad_params: true,
            wanted: None,
            evaluated: Vec::new(),
            seed: 0,
            ignore_index: None,
        }
    }
}
