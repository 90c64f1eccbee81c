//! The engine's run in two halves, as a function on the tape.

use std::fmt;
use std::sync::Arc;

use tiled_exec::{ConstantSource, Io, MemorySource, NoProgress, Pending, Sink, SliceSink, Source};
use tiled_graph::{Hold, Mode};
use tiled_kernel::dense::{Unary, Update};
use tiled_tensor::Element;

use super::calls::{Call, Reads, Ready, What, is_statistic};
use super::ready::ready;
use crate::context::Context;
use crate::error::{Result, TapeError};
use crate::function::{Function, Gradients, Saver, apply};
use crate::tensor::Tensor;
use crate::values::Values;

/// A network and what a run of it depends on. Its operands are its inputs, if they are tensors, then the parameters that are trained.
#[derive(Clone)]
pub(crate) struct Network<T: Element> {
    pub(crate) name: &'static str,
    pub(crate) what: What,
    pub(crate) mode: Mode,
    /// How many operands are inputs.
    pub(crate) inputs: usize,
    /// The context, where there may be no operands.
    pub(crate) context: Option<Context<T>>,
    /// Where the inputs are read, if they are no operands.
    pub(crate) sources: Vec<Arc<dyn Source<T>>>,
    /// What moves by itself, in the order of the parameters that are not trained.
    pub(crate) statistics: Vec<Tensor<T>>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) hold: Hold,
    pub(crate) seed: u64,
    /// Which mask dropout draws.
    pub(crate) mask: u64,
}

impl<T: Element> fmt::Debug for Network<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("name", &self.name).field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// A forward whose backward is to come.
struct Run<T: Element> {
    /// `None` once it has been given back.
    ready: Option<Ready<T>>,
    /// `None` once backward has used it.
    pending: Option<Pending<'static, T>>,
    /// The parameters and statistics before the run, for a backward that has to run forward again.
    before: Vec<Tensor<T>>,
    _held: Held<T>,
}

/// Bytes of the engine that count as the tape's.
struct Held<T: Element> {
    context: Context<T>,
    bytes: u64,
}

impl<T: Element> Held<T> {
    fn new(context: &Context<T>, operator: &'static str, bytes: u64) -> Result<Self> {
        context.buffers().reserve(operator, bytes)?;
        Ok(Self { context: context.clone(), bytes })
    }
}

impl<T: Element> Drop for Held<T> {
    fn drop(&mut self) {
        self.context.buffers().release(self.bytes);
    }
}

impl<T: Element> Network<T> {
    /// An operator in evaluation, without statistics.
    pub(crate) fn operator(name: &'static str, op: tiled_graph::Op) -> Self {
        Self {
            name,
            what: What::Operator(op),
            mode: Mode::Eval,
            inputs: 1,
            context: None,
            sources: Vec::new(),
            statistics: Vec::new(),
            memory_bytes: None,
            hold: Hold::Auto,
            seed: 0,
            mask: 0,
        }
    }

    /// The results for inputs and the parameters that are trained.
    pub(crate) fn apply(self, operands: &[&Tensor<T>]) -> Result<Vec<Tensor<T>>> {
        apply(&Arc::new(self), operands)
    }

    fn call(&self, inputs: &[&Tensor<T>], wants: Vec<bool>) -> Result<Call> {
        let mut shapes = Vec::with_capacity(inputs.len());
        for input in inputs {
            let Ok(shape) = <[usize; 4]>::try_from(input.shape()) else {
                let (operator, what, expected) = (self.name, "the input", "4");
                return Err(TapeError::Axes { operator, what, expected, got: input.shape().into() });
            };
            shapes.push(shape);
        }
        shapes.extend(self.sources.iter().map(|source| source.shape()));
        let reads = match self.sources.as_slice() {
            [] => Reads::tensors(inputs.iter().all(|input| input.is_contiguous())),
            sources => Reads::sources(sources),
        };
        Ok(Call {
            what: self.what.clone(),
            inputs: shapes,
            mode: self.mode,
            wants,
            reads,
            memory_bytes: self.memory_bytes,
            hold: self.hold,
            seed: self.seed,
        })
    }

    fn run_error(&self, source: impl Into<tiled_exec::ExecError>) -> TapeError {
        TapeError::run(self.name)(source.into())
    }

    /// Copies values to the engine; those that it has already leave what was packed from them as it is.
    fn load(&self, ready: &mut Ready<T>, trained: &[&Tensor<T>]) -> Result<()> {
        let (mut trained, mut statistics) = (trained.iter().copied(), self.statistics.iter());
        for at in 0..ready.planned.specs.len() {
            let spec = &ready.planned.specs[at];
            let given = if is_statistic(spec) { statistics.next() } else { trained.next() };
            let expected = spec.shape.as_slice();
            let given = given.ok_or_else(|| TapeError::MissingEntry {
                name: spec.name.clone(),
                expected: expected.into(),
            })?;
            if given.shape() != expected {
                let (operator, what, got) = (self.name, spec.kind.suffix(), given.shape().into());
                return Err(TapeError::Shape { operator, what, expected: expected.into(), got });
            }
            let values = given.values();
            if !has_bits(&values, &ready.parameters.tensors()[at].data) {
                let held = ready.parameters.data_mut(at).expect("invariant: there is one for each");
                held.iter_mut().zip(values.view().iter()).for_each(|(held, value)| *held = *value);
            }
        }
        Ok(())
    }

    /// Runs the first half, or all of a run without gradients.
    fn run(
        &self,
        ready: &mut Ready<T>,
        inputs: &[&Tensor<T>],
        outputs: &[Tensor<T>],
    ) -> Result<Option<Pending<'static, T>>> {
        ready.executor.set_dropout_step(self.mask);
        let values: Vec<Values<'_, T>> = inputs.iter().map(|input| input.values()).collect();
        let sources = inputs.iter().zip(&values).map(|(input, values)| source(input, values));
        let sources = sources.collect::<Result<Vec<_>, _>>().map_err(|error| self.run_error(error))?;
        let mut memories: Vec<_> = outputs.iter().map(|output| output.storage().write()).collect();
        let sinks = memories.iter_mut().zip(&ready.planned.outputs).map(|(memory, shape)| {
            let len: usize = shape.iter().product();
            SliceSink::new(&mut memory[..len], *shape)
        });
        let sinks = sinks.collect::<Result<Vec<_>, _>>().map_err(|error| self.run_error(error))?;
        let tensors = sources.iter().map(|source| source as &dyn Source<T>);
        let io = Io {
            inputs: tensors.chain(self.sources.iter().map(|source| &**source)).collect(),
            outputs: sinks.iter().map(|sink| sink as &dyn Sink<T>).collect(),
            ..Io::default()
        };
        let Ready { executor, parameters, planned } = ready;
        if planned.call.wants.is_empty() {
            executor.run(parameters, &io, &NoProgress).map_err(|error| self.run_error(error))?;
            return Ok(None);
        }
        let (pending, _) =
            executor.forward(parameters, &io, &NoProgress).map_err(|error| self.run_error(error))?;
        Ok(Some(pending))
    }

    fn outputs(&self, context: &Context<T>, ready: &Ready<T>) -> Result<Vec<Tensor<T>>> {
        ready.planned.outputs.iter().map(|shape| context.empty(self.name, shape)).collect()
    }

    /// A run through which no backward has gone: that of forward, or the same once more.
    fn rerun(&self, run: &mut Run<T>, inputs: &[&Tensor<T>], context: &Context<T>) -> Result<()> {
        if run.pending.is_some() {
            return Ok(());
        }
        let Some(ready) = &mut run.ready else { return Err(TapeError::Freed { operator: self.name }) };
        for (at, before) in run.before.iter().enumerate() {
            let held = ready.parameters.data_mut(at).expect("invariant: there is one for each");
            held.iter_mut().zip(before.values().view().iter()).for_each(|(held, value)| *held = *value);
        }
        let outputs = self.outputs(context, ready)?;
        run.pending = self.run(ready, inputs, &outputs)?;
        Ok(())
    }
}

impl<T: Element> Function<T> for Network<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, operands: &[&Tensor<T>], saver: &mut Saver<T>) -> Result<Vec<Tensor<T>>> {
        let (inputs, trained) = operands.split_at(self.inputs);
        let wants = if saver.wants_any() {
            let of_sources = std::iter::repeat_n(false, self.sources.len());
            of_sources.chain((0..operands.len()).map(|operand| saver.wants(operand))).collect()
        } else {
            Vec::new()
        };
        let context = self.context.as_ref().unwrap_or_else(|| operands[0].context());
        let call = self.call(inputs, wants)?;
        let mut given = trained.iter();
        let first = given.next().map(|first| first.values());
        let has_values = |ready: &Ready<T>| {
            let held = ready.parameters.tensors().first();
            first.as_ref().is_none_or(|first| held.is_some_and(|held| has_bits(first, &held.data)))
        };
        let mut ready = ready(context, self.name, &call, has_values)?;
        drop(first);
        self.load(&mut ready, trained)?;
        let outputs = self.outputs(context, &ready)?;
        let held = if call.wants.is_empty() { 0 } else { ready.planned.plan.peak_bytes() };
        let held = Held::new(context, self.name, held)?;
        let before = if call.wants.is_empty() || self.statistics.is_empty() {
            Vec::new()
        } else {
            let tensors = ready.parameters.tensors().iter();
            tensors.map(|tensor| context.from_slice(&tensor.shape, &tensor.data)).collect::<Result<_>>()?
        };
        let pending = self.run(&mut ready, inputs, &outputs)?;
        let moved = ready.planned.specs.iter().zip(ready.parameters.tensors());
        let moved = moved.filter(|(spec, _)| is_statistic(spec)).map(|(_, tensor)| tensor);
        if self.mode == Mode::Train {
            for (statistic, tensor) in self.statistics.iter().zip(moved) {
                statistic.assign_slice(&tensor.data)?;
            }
        }
        match pending {
            Some(pending) => {
                for (input, reads) in inputs.iter().zip(&ready.planned.reads_again) {
                    if *reads {
                        saver.save(input);
                    }
                }
                saver.keep(Run { ready: Some(ready), pending: Some(pending), before, _held: held });
            }
            None => context.calls().give(ready),
        }
        Ok(outputs)
    }

    fn backward(&self, gradients: &mut Gradients<'_, '_, T>) -> Result<()> {
        let context = gradients.flow().context().clone();
        let retains = gradients.retains_graph();
        let planned = match gradients.kept::<Run<T>>().and_then(|run| run.ready.as_ref()) {
            Some(ready) => Arc::clone(&ready.planned),
            None => return Err(TapeError::Freed { operator: self.name }),
        };
        let mut saved = Vec::new();
        for _ in planned.reads_again.iter().take(self.inputs).filter(|reads| **reads) {
            saved.push(gradients.saved(saved.len())?);
        }
        // what the second half does not read has only to be there
        let mut given = saved.iter();
        let inputs: Vec<Option<&Tensor<T>>> = planned
            .reads_again
            .iter()
            .take(self.inputs)
            .map(|reads| if *reads { given.next() } else { None })
            .collect();
        let mut upstream = Vec::with_capacity(planned.outputs.len());
        for (gradient, shape) in gradients.upstream().iter().zip(&planned.outputs) {
            upstream.push(match gradient {
                Some(gradient) => gradient.contiguous()?,
                None => context.zeros(shape)?,
            });
        }
        let mut written = Vec::with_capacity(planned.plan.program.input_grads.len());
        for input in &planned.plan.program.input_grads {
            let place = gradients.flow().destination(*input)?;
            let memory = match &place {
                Some((_, Update::Add)) | None => {
                    Some(context.empty(self.name, &planned.call.inputs[*input])?)
                }
                Some((_, Update::Replace)) => None,
            };
            written.push((*input, place, memory));
        }
        let Some(run) = gradients.kept::<Run<T>>() else {
            return Err(TapeError::Freed { operator: self.name });
        };
        if run.pending.is_none() {
            let all: Option<Vec<&Tensor<T>>> = inputs.iter().copied().collect();
            let all = all.ok_or(TapeError::Freed { operator: self.name })?;
            self.rerun(run, &all, &context)?;
        }
        let result = self.second_half(run, &planned, &inputs, &upstream, &written);
        for (input, place, memory) in written {
            if let (Some((gradient, Update::Add)), Some(memory)) = (&place, &memory) {
                let (to, from) = (&mut gradient.storage().write(), memory.values());
                let to = gradient.layout().view_mut(to);
                context.share(memory.elements(), || {
                    context.dense().map(Unary::Identity, from.view(), to, Update::Add);
                });
            }
            if result.is_ok() || matches!(place, Some((_, Update::Add))) {
                gradients.flow().settle(input, place)?;
            }
        }
        result?;
        let Some(run) = gradients.kept::<Run<T>>() else { return Ok(()) };
        let ready = run.ready.take();
        if let Some(ready) = &ready {
            let params = ready.planned.specs.iter().enumerate().filter(|(_, spec)| !is_statistic(spec));
            for (operand, (param, spec)) in params.enumerate() {
                let Some(values) = ready.executor.gradient(param) else { continue };
                let from = crate::layout::contiguous_view(&spec.shape, values);
                gradients.write(self.inputs + operand, |to, update| {
                    context.share(values.len(), || context.dense().map(Unary::Identity, from, to, update));
                    Ok(())
                })?;
            }
        }
        match (ready, retains) {
            (Some(ready), false) => context.calls().give(ready),
            (ready, _) => {
                if let Some(run) = gradients.kept::<Run<T>>() {
                    run.ready = ready;
                }
            }
        }
        Ok(())
    }
}

/// An input whose gradient is computed, where it goes, and memory of its own where it is added there or nowhere.
type Written<T> = (usize, Option<(Tensor<T>, Update)>, Option<Tensor<T>>);

impl<T: Element> Network<T> {
    fn second_half(
        &self,
        run: &mut Run<T>,
        planned: &super::calls::Planned,
        inputs: &[Option<&Tensor<T>>],
        upstream: &[Tensor<T>],
        written: &[Written<T>],
    ) -> Result<()> {
        let (Some(ready), Some(pending)) = (&mut run.ready, run.pending.take()) else {
            return Err(TapeError::Freed { operator: self.name });
        };
        let values: Vec<Option<Values<'_, T>>> =
            inputs.iter().map(|input| input.map(Tensor::values)).collect();
        let mut sources: Vec<Box<dyn Source<T> + '_>> = Vec::with_capacity(inputs.len());
        for ((input, values), shape) in inputs.iter().zip(&values).zip(&planned.call.inputs) {
            sources.push(match (input, values) {
                (Some(input), Some(values)) => {
                    Box::new(source(input, values).map_err(|error| self.run_error(error))?)
                }
                _ => Box::new(ConstantSource::new(*shape, T::ZERO).map_err(|error| self.run_error(error))?),
            });
        }
        let own = self.sources.iter().map(|source| Box::new(&**source) as Box<dyn Source<T> + '_>);
        sources.extend(own);
        let gradients: Vec<Values<'_, T>> = upstream.iter().map(Tensor::values).collect();
        let mut grad_outputs = Vec::with_capacity(upstream.len());
        for ((gradient, values), shape) in upstream.iter().zip(&gradients).zip(&planned.outputs) {
            let values = values.as_slice().unwrap_or(&[]);
            debug_assert_eq!(gradient.shape(), shape);
            grad_outputs.push(MemorySource::new(values, *shape).map_err(|error| self.run_error(error))?);
        }
        let mut memories: Vec<_> = written
            .iter()
            .map(|(_, place, memory)| match (memory, place) {
                (Some(memory), _) | (None, Some((memory, _))) => Some(memory.storage().write()),
                (None, None) => None,
            })
            .collect();
        let mut sinks = Vec::with_capacity(written.len());
        for ((input, ..), memory) in written.iter().zip(&mut memories) {
            let shape = planned.call.inputs[*input];
            if let Some(memory) = memory {
                let len: usize = shape.iter().product();
                sinks.push(SliceSink::new(&mut memory[..len], shape).map_err(|error| self.run_error(error))?);
            }
        }
        let io = Io {
            inputs: sources.iter().map(|source| &**source).collect(),
            grad_outputs: grad_outputs.iter().map(|source| source as &dyn Source<T>).collect(),
            grad_inputs: sinks.iter().map(|sink| sink as &dyn Sink<T>).collect(),
            ..Io::default()
        };
        let Ready { executor, parameters, .. } = ready;
        executor
            .backward(pending, parameters, &io, &NoProgress)
            .map(drop)
            .map_err(|error| self.run_error(error))
    }
}

/// A tensor of four axes as the engine reads it.
fn source<'a, T: Element>(
    tensor: &Tensor<T>,
    values: &'a Values<'_, T>,
) -> Result<MemorySource<'a, T>, tiled_exec::IoError> {
    let shape: [usize; 4] = std::array::from_fn(|axis| tensor.shape()[axis]);
    match values.as_slice() {
        Some(values) => MemorySource::new(values, shape),
        None => {
            let strides = std::array::from_fn(|axis| tensor.strides()[axis]);
            MemorySource::with_strides(values.memory(), shape, tensor.layout().offset(), strides)
        }
    }
}

/// Whether values have the bits of those that are held.
fn has_bits<T: Element>(values: &Values<'_, T>, held: &[T]) -> bool {
    let view = values.view();
    view.len() == held.len() && view.iter().zip(held).all(|(a, b)| a.to_bits_u64() == b.to_bits_u64())
}
