//! Which gradients are wanted and which nodes evaluate, by the names that an objective gives.

use tiled_tensor::{collected, filled};

use crate::graph::Graph;
use crate::index::IndexVec;
use crate::objective::{Mode, Objective};
use crate::params::{ParamSpec, Reading, readings, try_params};
use crate::plan::error::PlanError;
use crate::program::ParamId;

/// The choices of an objective, by the indices of inputs, parameters and nodes.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The inputs whose gradients are computed.
    pub(crate) inputs: Vec<bool>,
    /// The parameters whose gradients are computed.
    pub(crate) params: IndexVec<ParamId, bool>,
    /// The nodes of which batch norms use the statistics of the image and dropouts drop.
    pub(crate) trains: Vec<bool>,
}

impl Wanted {
    /// What an objective wants of a network with these parameters.
    pub(crate) fn new(graph: &Graph, params: &[ParamSpec], objective: &Objective) -> Result<Self, PlanError> {
        let all = objective.wanted.is_none();
        let readings = readings(graph, params)?;
        let trained = params.iter().map(|param| objective.grad_params && all && param.kind.is_trained());
        let mut wanted = Self {
            inputs: filled(graph.inputs().len(), objective.grad_inputs && all)?,
            params: collected(trained)?.into(),
            trains: filled(graph.nodes().len(), objective.mode == Mode::Train)?,
        };
        for name in objective.wanted.iter().flatten() {
            wanted.want(graph, &readings, objective, name)?;
        }
        let asks = objective.loss.is_some() && (objective.grad_inputs || objective.grad_params);
        if asks && !all && !wanted.inputs.iter().chain(&wanted.params).any(|is_wanted| *is_wanted) {
            return Err(PlanError::NothingWanted);
        }
        for name in &objective.evaluated {
            wanted.evaluate(graph, name)?;
        }
        Ok(wanted)
    }

    fn want(
        &mut self,
        graph: &Graph,
        readings: &[Reading],
        objective: &Objective,
        name: &str,
    ) -> Result<(), PlanError> {
        let name = Name::new(name);
        let mut is_known = false;
        for input in name.find(graph.inputs().len(), |input| &graph.inputs()[input].name) {
            self.inputs[input] |= objective.grad_inputs;
            is_known = true;
        }
        for reading in readings.iter().filter(|reading| reading.kind.is_trained()) {
            let node = &graph.nodes()[reading.node].name;
            if name.is(node) || name.is_of(node, reading.kind.suffix()) {
                self.params[reading.param] |= objective.grad_params;
                is_known = true;
            }
        }
        if is_known { Ok(()) } else { Err(PlanError::NoGradient { name: name.text.to_owned() }) }
    }

    fn evaluate(&mut self, graph: &Graph, name: &str) -> Result<(), PlanError> {
        let name = Name::new(name);
        let mut is_known = false;
        for node in name.find(graph.nodes().len(), |node| &graph.nodes()[node].name) {
            self.trains[node] = false;
            is_known = true;
        }
        if is_known { Ok(()) } else { Err(PlanError::UnknownNode { name: name.text.to_owned() }) }
    }
}

impl Objective {
    /// The indices of the inputs whose gradients this wants.
    ///
    /// # Errors
    /// Where a name is not of the network.
    ///
    /// ```
    /// use tiled_graph::{Graph, Objective, params};
    /// let graph = Graph::builtin("unet").expect("it is built in");
    /// let objective = Objective { wanted: Some(vec!["x".into(), "head".into()]), ..Objective::gradients() };
    /// assert_eq!(objective.input_grads(&graph)?, [0]);
    /// let params = params(&graph);
    /// let names: Vec<&str> =
    ///     objective.param_grads(&graph)?.into_iter().map(|param| params[param].name.as_str()).collect();
    /// assert_eq!(names, ["head.weight", "head.bias"]);
    /// # Ok::<(), tiled_graph::PlanError>(())
    /// ```
    pub fn input_grads(&self, graph: &Graph) -> Result<Vec<usize>, PlanError> {
        Ok(indices(&Wanted::new(graph, &try_params(graph)?, self)?.inputs))
    }

    /// The indices in [`crate::params`] of the parameters whose gradients this wants.
    ///
    /// # Errors
    /// Where a name is not of the network.
    pub fn param_grads(&self, graph: &Graph) -> Result<Vec<usize>, PlanError> {
        Ok(indices(&Wanted::new(graph, &try_params(graph)?, self)?.params))
    }
}

/// A name, or the beginning of names where it ends with `*`.
#[derive(Clone, Copy)]
struct Name<'n> {
    text: &'n str,
    prefix: Option<&'n str>,
}

impl<'n> Name<'n> {
    fn new(text: &'n str) -> Self {
        Self { text, prefix: text.strip_suffix('*') }
    }

    fn is(self, name: &str) -> bool {
        self.prefix.map_or(name == self.text, |prefix| name.starts_with(prefix))
    }

    /// The same for the name `node.what` of a parameter.
    fn is_of(self, node: &str, what: &str) -> bool {
        let rest = |of: &'n str| of.strip_prefix(node)?.strip_prefix('.');
        match self.prefix {
            None => rest(self.text) == Some(what),
            Some(prefix) => {
                node.starts_with(prefix) || rest(prefix).is_some_and(|begin| what.starts_with(begin))
            }
        }
    }

    fn find<'g>(self, count: usize, of: impl Fn(usize) -> &'g str + 'n) -> impl Iterator<Item = usize> + 'n {
        (0..count).filter(move |index| self.is(of(*index)))
    }
}

fn indices(wanted: &[bool]) -> Vec<usize> {
    wanted.iter().enumerate().filter(|(_, is_wanted)| **is_wanted).map(|(index, _)| index).collect()
}
