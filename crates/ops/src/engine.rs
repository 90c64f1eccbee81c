//! Threads, and the plans and memory of calls that were.

use std::fmt;
use std::sync::Arc;

use tiled_exec::{ExecError, Executor, Io, NoProgress, Pool, Sink, Source};
use tiled_graph::{Activation, AvgPool2d, Conv2d, InMemory, MaxPool2d, Parameters};
use tiled_kernel::Backend;
use tiled_tensor::{Element, Layout, OutOfMemory, View, ViewMut, push};

use crate::call::{Call, DEFAULT_BYTES, Operator, Options, Pass};

/// The parameters of a convolution.
#[derive(Clone, Copy)]
pub struct Weights<'a, T: Element> {
    /// Output channels × input channels of a group × kernel height × width.
    pub weight: &'a dyn Source<T>,
    /// 1 × output channels × 1 × 1, where the convolution has one.
    pub bias: Option<&'a dyn Source<T>>,
}

impl<T: Element> fmt::Debug for Weights<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bias = self.bias.map(|bias| bias.shape());
        f.debug_struct("Weights").field("weight", &self.weight.shape()).field("bias", &bias).finish()
    }
}

/// Where the gradients of the parameters go, in the shapes of [`Weights`].
#[derive(Clone, Copy)]
pub struct WeightGradients<'a, T: Element> {
    /// That of the weight.
    pub weight: &'a dyn Sink<T>,
    /// That of the bias, where it is wanted.
    pub bias: Option<&'a dyn Sink<T>>,
}

impl<T: Element> fmt::Debug for WeightGradients<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bias = self.bias.map(|bias| bias.shape());
        f.debug_struct("WeightGradients").field("weight", &self.weight.shape()).field("bias", &bias).finish()
    }
}

/// A backend, threads, and what earlier calls left for the next ones: plan and memory of the last one, and of others while all of them hold at
/// most [`DEFAULT_BYTES`], or the budget of a call that has one.
///
/// Attributes are those of networks. Of a [`Conv2d`], `out_channels` and `kernel_size` have to be those of the weight, and whether there is
/// a bias is what the tensors say, not `bias`. Shapes that do not fit each other are errors before anything is written; a call that
/// fails aborts its sinks.
#[derive(Debug)]
pub struct Engine<'b, T: Element> {
    backend: &'b dyn Backend<T>,
    pool: Arc<Pool>,
    /// The last used last.
    kept: Vec<Kept<'b, T>>,
}

/// A call, ready to run again.
#[derive(Debug)]
struct Kept<'b, T: Element> {
    call: Call,
    executor: Executor<'b, T>,
    parameters: Parameters<T>,
}

impl<'b, T: Element> Engine<'b, T> {
    /// An engine with its own pool of `threads` threads.
    ///
    /// # Errors
    /// Where the threads cannot be started.
    pub fn new(backend: &'b dyn Backend<T>, threads: usize) -> Result<Self, ExecError> {
        let pool = Pool::new(threads).map_err(|source| ExecError::Threads { threads, source })?;
        Ok(Self::with_pool(backend, Arc::new(pool)))
    }

    /// The same with threads that others use too.
    #[must_use]
    pub const fn with_pool(backend: &'b dyn Backend<T>, pool: Arc<Pool>) -> Self {
        Self { backend, pool, kept: Vec::new() }
    }

    /// The bytes that it keeps for calls to come.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(Kept::bytes).sum()
    }

    /// `output = activation(conv2d(input, weight) + bias)`.
    ///
    /// # Errors
    /// Where shapes do not fit each other or attributes have no meaning, where no tile fits the memory, where memory is refused, and
    /// where a source or sink fails.
    pub fn conv2d(
        &mut self,
        conv: &Conv2d,
        activation: Option<Activation>,
        options: &Options,
        input: &dyn Source<T>,
        weights: &Weights<'_, T>,
        output: &dyn Sink<T>,
    ) -> Result<(), ExecError> {
        or_abort(&[output], || {
            let conv = Conv2d { bias: weights.bias.is_some(), ..conv.clone() };
            check_parameters(&conv, input.shape(), weights.weight.shape(), weights.bias.map(Source::shape))?;
            let operator = Operator::Conv2d(conv, activation);
            let parameters = [Some(weights.weight), weights.bias];
            let resident = parameters.iter().flatten().map(|source| source.transfer_bytes()).max();
            let ends = Ends { resident_bytes: resident.unwrap_or(0), ..Ends::output(input, output) };
            let kept = self.ready(operator, Pass::Output, input.shape(), options, ends)?;
            for (param, source) in parameters.into_iter().flatten().enumerate() {
                kept.take_parameter(param, source)?;
            }
            kept.run(&Io { inputs: vec![input], outputs: vec![output], ..Io::default() })
        })
    }

    /// The gradient of a convolution with respect to its input, which has the shape of `grad_input`. The bias has no part in it.
    ///
    /// # Errors
    /// As [`Engine::conv2d`].
    pub fn conv2d_backward_input(
        &mut self,
        conv: &Conv2d,
        options: &Options,
        grad_output: &dyn Source<T>,
        weight: &dyn Source<T>,
        grad_input: &dyn Sink<T>,
    ) -> Result<(), ExecError> {
        or_abort(&[grad_input], || {
            let (conv, input) = (Conv2d { bias: false, ..conv.clone() }, grad_input.shape());
            check_parameters(&conv, input, weight.shape(), None)?;
            let ends = Ends::gradient(None, grad_output, Some(grad_input));
            let ends = Ends { resident_bytes: weight.transfer_bytes(), ..ends };
            let kept = self.ready(Operator::Conv2d(conv, None), Pass::InputGradient, input, options, ends)?;
            kept.take_parameter(0, weight)?;
            kept.run(&Io { grad_outputs: vec![grad_output], grad_inputs: vec![grad_input], ..Io::default() })
        })
    }

    /// The gradients of a convolution with respect to its weight and, where it is wanted, its bias. They do not depend on the number of
    /// threads; other tiles agree within the rounding of the sum.
    ///
    /// # Errors
    /// As [`Engine::conv2d`].
    pub fn conv2d_backward_weight(
        &mut self,
        conv: &Conv2d,
        options: &Options,
        input: &dyn Source<T>,
        grad_output: &dyn Source<T>,
        gradients: &WeightGradients<'_, T>,
    ) -> Result<(), ExecError> {
        let sinks = || [Some(gradients.weight), gradients.bias].into_iter().flatten();
        let all: Vec<_> = sinks().collect();
        or_abort(&all, || {
            let conv = Conv2d { bias: gradients.bias.is_some(), ..conv.clone() };
            let bias = gradients.bias.map(Sink::shape);
            check_parameters(&conv, input.shape(), gradients.weight.shape(), bias)?;
            let resident_bytes = sinks().map(Sink::transfer_bytes).max().unwrap_or(0);
            let ends = Ends { resident_bytes, ..Ends::gradient(Some(input), grad_output, None) };
            let operator = Operator::Conv2d(conv, None);
            let kept = self.ready(operator, Pass::WeightGradient, input.shape(), options, ends)?;
            kept.run(&Io { inputs: vec![input], grad_outputs: vec![grad_output], ..Io::default() })?;
            sinks().enumerate().try_for_each(|(param, sink)| kept.give_gradient(param, sink))?;
            Ok(sinks().try_for_each(Sink::finish)?)
        })
    }

    /// The maximum of each window of `input`; padding is never chosen, NaN wins.
    ///
    /// # Errors
    /// As [`Engine::conv2d`].
    pub fn max_pool2d(
        &mut self,
        pool: &MaxPool2d,
        options: &Options,
        input: &dyn Source<T>,
        output: &dyn Sink<T>,
    ) -> Result<(), ExecError> {
        self.pool(Operator::MaxPool2d(pool.clone()), options, input, output)
    }

    /// The gradient of maximum pooling: each element of `grad_output` goes to the first maximum, in row-major order, of its window of
    /// `input`.
    ///
    /// # Errors
    /// As [`Engine::conv2d`].
    pub fn max_pool2d_backward(
        &mut self,
        pool: &MaxPool2d,
        options: &Options,
        grad_output: &dyn Source<T>,
        input: &dyn Source<T>,
        grad_input: &dyn Sink<T>,
    ) -> Result<(), ExecError> {
        or_abort(&[grad_input], || {
            let (expected, got) = (grad_input.shape(), input.shape());
            if expected != got {
                return Err(ExecError::Shape { name: "input".into(), expected, got });
            }
            let ends = Ends::gradient(Some(input), grad_output, Some(grad_input));
            let operator = Operator::MaxPool2d(pool.clone());
            let kept = self.ready(operator, Pass::InputGradient, expected, options, ends)?;
            let (inputs, grad_outputs, grad_inputs) = (vec![input], vec![grad_output], vec![grad_input]);
            kept.run(&Io { inputs, grad_outputs, grad_inputs, ..Io::default() })
        })
    }

    /// The mean of each window of `input`.
    ///
    /// # Errors
    /// As [`Engine::conv2d`].
    pub fn avg_pool2d(
        &mut self,
        pool: &AvgPool2d,
        options: &Options,
        input: &dyn Source<T>,
        output: &dyn Sink<T>,
    ) -> Result<(), ExecError> {
        self.pool(Operator::AvgPool2d(pool.clone()), options, input, output)
    }

    /// The gradient of average pooling: each element of `grad_output`, divided by its divisor, goes to its whole window.
    ///
    /// # Errors
    /// As [`Engine::conv2d`].
    pub fn avg_pool2d_backward(
        &mut self,
        pool: &AvgPool2d,
        options: &Options,
        grad_output: &dyn Source<T>,
        grad_input: &dyn Sink<T>,
    ) -> Result<(), ExecError> {
        or_abort(&[grad_input], || {
            let ends = Ends::gradient(None, grad_output, Some(grad_input));
            let operator = Operator::AvgPool2d(pool.clone());
            let kept = self.ready(operator, Pass::InputGradient, grad_input.shape(), options, ends)?;
            kept.run(&Io { grad_outputs: vec![grad_output], grad_inputs: vec![grad_input], ..Io::default() })
        })
    }

    fn pool(
        &mut self,
        operator: Operator,
        options: &Options,
        input: &dyn Source<T>,
        output: &dyn Sink<T>,
    ) -> Result<(), ExecError> {
        or_abort(&[output], || {
            let ends = Ends::output(input, output);
            let kept = self.ready(operator, Pass::Output, input.shape(), options, ends)?;
            kept.run(&Io { inputs: vec![input], outputs: vec![output], ..Io::default() })
        })
    }

    /// The plan and the memory of a call: those of the last one that was alike, or new ones.
    fn ready(
        &mut self,
        operator: Operator,
        pass: Pass,
        input: [usize; 4],
        options: &Options,
        Ends { in_memory, transfer_bytes, resident_bytes }: Ends,
    ) -> Result<&mut Kept<'b, T>, ExecError> {
        let (numbers, options) = (operator.numbers(), *options);
        let call =
            Call { operator, numbers, pass, input, in_memory, transfer_bytes, resident_bytes, options };
        let limit = options.memory_bytes.unwrap_or(DEFAULT_BYTES).min(DEFAULT_BYTES);
        if let Some(last) = self.kept.iter().position(|kept| kept.call == call) {
            self.kept[last..].rotate_left(1);
            self.forget(limit, 0, 1, MOST_KEPT);
        } else {
            let (plan, specs) = call.plan(self.backend, self.pool.current_num_threads())?;
            self.forget(limit, plan.peak_bytes(), 0, MOST_KEPT - 1);
            let parameters = Parameters::zeros(&specs)?;
            let folder = std::env::temp_dir(); // of no use: nothing is kept between sweeps
            let executor = Executor::with_pool(plan, self.backend, Arc::clone(&self.pool), &folder)?;
            push(&mut self.kept, Kept { call, executor, parameters }).map_err(refused)?;
        }
        Ok(self.kept.last_mut().expect("invariant: it was found or pushed"))
    }

    /// Gives up what was kept of calls, those before longest first, until it holds no more than these bytes.
    pub fn keep_at_most(&mut self, bytes: u64) {
        self.forget(bytes, 0, 0, MOST_KEPT);
    }

    /// Gives up the calls that were used longest ago, but for the last ones, until those that are left hold no more than the limit with
    /// what is to come, and are no more than `most`.
    fn forget(&mut self, limit: u64, to_come: u64, but: usize, most: usize) {
        let is_too_much =
            |engine: &Self| engine.kept_bytes().saturating_add(to_come) > limit || engine.kept.len() > most;
        while self.kept.len() > but && is_too_much(self) {
            self.kept.remove(0);
        }
    }
}

/// The calls that are kept at most: a search through more would take as long as a small call.
const MOST_KEPT: usize = 32;

/// Where a call's tensors lie.
struct Ends {
    in_memory: InMemory,
    transfer_bytes: u64,
    resident_bytes: u64,
}

impl Ends {
    fn output<T: Element>(input: &dyn Source<T>, output: &dyn Sink<T>) -> Self {
        let (inputs, outputs) = (input.in_memory().is_some(), output.in_memory().is_some());
        Self {
            in_memory: InMemory { inputs, outputs, ..InMemory::default() },
            transfer_bytes: input.transfer_bytes().max(output.transfer_bytes()),
            resident_bytes: 0,
        }
    }

    fn gradient<T: Element>(
        input: Option<&dyn Source<T>>,
        grad_output: &dyn Source<T>,
        grad_input: Option<&dyn Sink<T>>,
    ) -> Self {
        let in_memory = InMemory {
            inputs: input.is_some_and(|input| input.in_memory().is_some()),
            grad_outputs: grad_output.in_memory().is_some(),
            grad_inputs: grad_input.is_some_and(|sink| sink.in_memory().is_some()),
            ..InMemory::default()
        };
        let sources = input.into_iter().chain([grad_output]).map(Source::transfer_bytes);
        let transfers = sources.chain(grad_input.map(Sink::transfer_bytes));
        Self { in_memory, transfer_bytes: transfers.max().unwrap_or(0), resident_bytes: 0 }
    }
}

impl<T: Element> Kept<'_, T> {
    fn bytes(&self) -> u64 {
        self.executor.plan().peak_bytes()
    }

    /// Reads a parameter. The same one again leaves what was packed from it as it is.
    fn take_parameter(&mut self, param: usize, source: &dyn Source<T>) -> Result<(), ExecError> {
        let held = &self.parameters.tensors()[param].data;
        let is_same = |values: &[T]| {
            values.len() == held.len()
                && values.iter().zip(held).all(|(a, b)| a.to_bits_u64() == b.to_bits_u64())
        };
        if source.in_memory().is_some_and(is_same) {
            return Ok(());
        }
        let layout = Layout::nchw(source.shape())?;
        let data = self.parameters.data_mut(param).expect("invariant: a parameter of the operator");
        Ok(source.read(layout.region(), &mut ViewMut::new(data, layout))?)
    }

    fn give_gradient(&self, param: usize, sink: &dyn Sink<T>) -> Result<(), ExecError> {
        let layout = Layout::nchw(sink.shape())?;
        let gradient = self.executor.gradient(param).expect("invariant: the call asks for it");
        Ok(sink.write(layout.region(), &View::new(gradient, layout))?)
    }

    fn run(&mut self, io: &Io<'_, T>) -> Result<(), ExecError> {
        self.executor.run(&mut self.parameters, io, &NoProgress).map(drop)
    }
}

/// Runs a call, and aborts its sinks where it fails.
fn or_abort<T: Element>(
    sinks: &[&dyn Sink<T>],
    call: impl FnOnce() -> Result<(), ExecError>,
) -> Result<(), ExecError> {
    call().inspect_err(|_| sinks.iter().for_each(|sink| sink.abort()))
}

fn refused(OutOfMemory { bytes }: OutOfMemory) -> ExecError {
    ExecError::OutOfMemory { what: "the plans that are kept".into(), bytes }
}

/// Checks the shapes of a convolution's parameters, or of their gradients.
fn check_parameters(
    conv: &Conv2d,
    input: [usize; 4],
    weight: [usize; 4],
    bias: Option<[usize; 4]>,
) -> Result<(), ExecError> {
    let [height, width] = conv.kernel_size.map(|side| usize::try_from(side).unwrap_or(0));
    let expected = [conv.out_channels, input[1] / conv.groups.max(1), height, width];
    if weight != expected {
        return Err(ExecError::Shape { name: "weight".into(), expected, got: weight });
    }
    let expected = [1, conv.out_channels, 1, 1];
    match bias.filter(|bias| *bias != expected) {
        Some(got) => Err(ExecError::Shape { name: "bias".into(), expected, got }),
        None => Ok(()),
    }
}
