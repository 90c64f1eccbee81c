//! A call as a network of one node, and its plan.

use tiled_exec::ExecError;
use tiled_graph::{
    Activation, AvgPool2d, Conv2d, Graph, GraphError, InMemory, MaxPool2d, Objective, Op, ParamSpec, Plan,
    PlanError, PlanOptions, Planner, Tiling, infer, try_params,
};
use tiled_kernel::Backend;
use tiled_tensor::Element;

/// The bytes that a call may take where the caller does not say, if that is enough: more makes no operator faster.
pub const DEFAULT_BYTES: u64 = 64 << 20;

/// How a call is cut into tiles. The result does not depend on it, but for the last bits of the gradients of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The most bytes that the call may hold beside the tensors of the caller: windows, parameters and sums. [`DEFAULT_BYTES`] where
    /// it is not given, or what the smallest tiles take where that is more.
    pub memory_bytes: Option<u64>,
    /// Height and width of a tile of the operator's output, also where the call computes gradients; what the memory allows where not
    /// given. A tile larger than the output is all of it.
    pub tile: [Option<i64>; 2],
}

/// An operator with its attributes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operator {
    Conv2d(Conv2d, Option<Activation>),
    MaxPool2d(MaxPool2d),
    AvgPool2d(AvgPool2d),
}

impl Operator {
    /// The bits of the numbers of an activation.
    pub(crate) fn numbers(&self) -> [u64; 2] {
        let Self::Conv2d(_, Some(activation)) = *self else { return [0; 2] };
        activation.numbers().map(f64::to_bits)
    }
}

/// What is computed of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Output,
    InputGradient,
    WeightGradient,
}

/// All that a plan depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) operator: Operator,
    /// The bits of the numbers of its activation: zeros are equal, and have two.
    pub(crate) numbers: [u64; 2],
    pub(crate) pass: Pass,
    /// The shape of the operator's input, NCHW.
    pub(crate) input: [usize; 4],
    pub(crate) in_memory: InMemory,
    /// See [`PlanOptions::transfer_bytes`].
    pub(crate) transfer_bytes: u64,
    /// What reading or writing a parameter may hold beside the run.
    pub(crate) resident_bytes: u64,
    pub(crate) options: Options,
}

/// The shape of an operator's output over an input of a shape, NCHW.
///
/// # Errors
/// Where the attributes have no meaning or do not fit the input.
///
/// ```
/// use tiled_graph::{Conv2d, Op};
/// let conv = Conv2d { stride: [2, 2], ..Conv2d::new(8, [3, 3]) };
/// assert_eq!(tiled_ops::output_shape(Op::Conv2d(conv), [1, 3, 65, 64])?, [1, 8, 32, 31]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
pub fn output_shape(op: Op, input: [usize; 4]) -> Result<[usize; 4], GraphError> {
    let [batch, channels, height, width] = input;
    let graph = network(channels, op, None)?;
    Ok(infer(&graph, batch, &[[height, width]])?.shape(graph.outputs()[0]))
}

/// A network of one operator, and what follows it.
fn network(channels: usize, op: Op, activation: Option<Activation>) -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    let input = graph.add_input("input", channels)?;
    let mut output = graph.add_node("operator", op, &[input])?;
    if let Some(activation) = activation {
        output = graph.add_node("activation", Op::Activation(activation), &[output])?;
    }
    graph.set_outputs(&[output])?;
    Ok(graph)
}

impl Operator {
    fn network(&self, channels: usize) -> Result<Graph, GraphError> {
        match self {
            Self::Conv2d(conv, activation) => network(channels, Op::Conv2d(conv.clone()), *activation),
            Self::MaxPool2d(pool) => network(channels, Op::MaxPool2d(pool.clone()), None),
            Self::AvgPool2d(pool) => network(channels, Op::AvgPool2d(pool.clone()), None),
        }
    }
}

impl Pass {
    fn objective(self) -> Objective {
        match self {
            Self::Output => Objective::inference(),
            Self::InputGradient => Objective { grad_params: false, ..Objective::gradients() },
            Self::WeightGradient => Objective { grad_inputs: false, ..Objective::gradients() },
        }
    }
}

impl Call {
    /// The plan for so many threads, and the parameters that it wants.
    pub(crate) fn plan<T: Element>(
        &self,
        backend: &dyn Backend<T>,
        threads: usize,
    ) -> Result<(Plan, Vec<ParamSpec>), ExecError> {
        let [batch, channels, height, width] = self.input;
        let graph = self.operator.network(channels)?;
        let shapes = infer(&graph, batch, &[[height, width]])?;
        let objective = self.pass.objective();
        let planner = Planner::<T>::new(&graph, &shapes, &objective, backend);
        // tiles of a gradient are of the input where the output is one pixel
        let output = shapes.extents(graph.outputs()[0]);
        let tiled = if self.pass != Pass::Output && output == [1, 1] { [height, width] } else { output };
        let tiled = tiled.map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
        let within = |bytes: u64| {
            self.tiled(tiled, |tiling| {
                planner.plan(&PlanOptions {
                    memory_bytes: Some(bytes),
                    tiling,
                    parallelism: threads,
                    resident_bytes: self.resident_bytes,
                    in_memory: self.in_memory,
                    transfer_bytes: self.transfer_bytes,
                    ..PlanOptions::default()
                })
            })
        };
        let plan =
            match (self.options.memory_bytes, within(self.options.memory_bytes.unwrap_or(DEFAULT_BYTES))) {
                (None, Err(PlanError::BudgetTooSmall { smallest, .. })) => within(smallest),
                (_, planned) => planned,
            }?;
        Ok((plan, try_params(&graph)?))
    }

    /// The plan of the tile that is asked for; a side that is not is halved until the memory is enough.
    fn tiled(
        &self,
        extents: [i64; 2],
        plan: impl Fn(Tiling) -> Result<Plan, PlanError>,
    ) -> Result<Plan, PlanError> {
        let asked = self.options.tile;
        if asked == [None; 2] {
            return plan(Tiling::Auto);
        }
        let mut tile = [0, 1].map(|axis| asked[axis].map_or(extents[axis], |side| side.min(extents[axis])));
        loop {
            let planned = plan(Tiling::Tile(tile));
            let free = [0, 1].into_iter().find(|axis| asked[*axis].is_none() && tile[*axis] > 1);
            match (planned, free) {
                (Err(PlanError::BudgetTooSmall { .. }), Some(axis)) => tile[axis] -= tile[axis] / 2,
                (planned, _) => return planned,
            }
        }
    }
}
