//! What becomes of reductions after their sweep: statistics, gradients, losses.

use tiled_graph::program::{
    DerivedId, Finaliser, GradShare, Momentum, Norm, ParamId, PixelId, Program, ReductionId, Running,
    Statistics,
};
use tiled_graph::{Id, IndexVec, Parameters};
use tiled_kernel::{Context, ExactSum, Partial, Reduction, batch_norm};
use tiled_tensor::{Element, OutOfMemory, collected, make_room, push, zeros};

use crate::ExecError;
use crate::error::refused;
use crate::store::Stores;

/// Everything that a finaliser reads or writes.
pub(crate) struct State<'a, T: Element> {
    pub(crate) program: &'a Program,
    /// What reductions have gathered.
    pub(crate) context: &'a mut dyn Context<T>,
    pub(crate) stores: &'a mut Stores<T>,
    pub(crate) derived: &'a mut IndexVec<DerivedId, Vec<T>>,
    pub(crate) gradients: &'a mut IndexVec<ParamId, Option<Vec<T>>>,
    pub(crate) params: &'a Parameters<T>,
    /// What running statistics move towards after the run.
    pub(crate) moments: &'a mut Vec<BatchMoments>,
    /// The parts of the loss, by reduction.
    pub(crate) losses: &'a mut Vec<(ReductionId, f64)>,
}

/// The mean and biased variance of each channel of the images at hand, which running statistics move towards.
#[derive(Clone, Debug)]
pub(crate) struct BatchMoments {
    /// The mean of the norm, by which these are in the order of the nodes.
    norm: DerivedId,
    count: u64,
    running: Running,
    mean: Vec<f64>,
    variance: Vec<f64>,
}

impl<T: Element> State<'_, T> {
    pub(crate) fn apply(&mut self, finaliser: &Finaliser) -> Result<(), ExecError> {
        match finaliser {
            Finaliser::NormEval { norm, running: [mean, variance] } => {
                let mean = allocated(doubles(self.param(*mean)))?;
                let variance = allocated(doubles(self.param(*variance)))?;
                self.normalise(norm, &mean, &variance)
            }
            Finaliser::NormTrain { norm, reduction, count, running } => {
                self.context.merge(reduction.index())?;
                let partial = self.context.partial(reduction.index())?;
                let group = norm.over.group();
                let statistics = allocated(moments(partial, norm.over, lossless(*count)))?;
                let [mean, variance] =
                    statistics.map(|values| allocated(batch_norm::ungrouped(&values, group)));
                let (mean, variance) = (mean?, variance?);
                self.normalise(norm, &mean, &variance)?;
                if let Some(running) = *running {
                    let moments = BatchMoments { norm: norm.mean, count: *count, running, mean, variance };
                    allocated(push(self.moments, moments))?;
                }
                Ok(())
            }
            Finaliser::NormBackward { norm, reduction, count, coefficients } => {
                self.norm_backward(norm, *reduction, lossless(*count), *coefficients)
            }
            Finaliser::GlobalMean { reduction, count, pixel } => {
                let mut means = self.sums(*reduction)?;
                means.iter_mut().for_each(|sum| *sum /= lossless(*count));
                let values = self.stores.pixel_mut(*pixel);
                values.zip(means).for_each(|(value, mean)| *value = T::from_f64(mean));
                Ok(())
            }
            Finaliser::GlobalMax { reduction, pixel } => self.global_max(*reduction, *pixel),
            Finaliser::ParamGrad { reduction, param } => self.param_grad(*reduction, *param),
            Finaliser::SharedGrad { param, share, is_first } => self.shared_grad(*param, *share, *is_first),
            Finaliser::Loss { reduction, scale } => {
                let sums = self.sums(*reduction)?;
                let scale = match self.program.reductions[*reduction].reduction {
                    Reduction::CrossEntropy => 1.0 / sums[1],
                    _ => *scale,
                };
                allocated(make_room(self.losses, 1))?;
                self.losses.push((*reduction, sums[0] * scale));
                Ok(())
            }
        }
    }

    fn param(&self, param: ParamId) -> &[T] {
        &self.params.tensors()[param.index()].data
    }

    /// The sums of an exact reduction, each rounded once.
    fn sums(&mut self, reduction: ReductionId) -> Result<Vec<f64>, ExecError> {
        self.context.merge(reduction.index())?;
        allocated(exact(self.context.partial(reduction.index())?))
    }

    /// Derives `scale` and `shift` of a normalisation from its statistics.
    fn normalise(&mut self, norm: &Norm, mean: &[f64], variance: &[f64]) -> Result<(), ExecError> {
        let list = |param: Option<ParamId>| param.map(|param| doubles(self.param(param))).transpose();
        let (weight, bias) = (allocated(list(norm.weight))?, allocated(list(norm.bias))?);
        let factors = batch_norm::factors(mean, variance, norm.eps, weight.as_deref(), bias.as_deref());
        let factors = allocated(factors)?;
        store(&mut self.derived[norm.mean], mean);
        store(&mut self.derived[norm.inverse_std], &factors.inverse_std);
        store(&mut self.derived[norm.scale], &factors.scale);
        store(&mut self.derived[norm.shift], &factors.shift);
        Ok(())
    }

    /// Gradients of weight and bias, and the coefficients of the gradient for the input.
    fn norm_backward(
        &mut self,
        norm: &Norm,
        reduction: ReductionId,
        count: f64,
        coefficients: Option<[DerivedId; 3]>,
    ) -> Result<(), ExecError> {
        let sums = self.sums(reduction)?;
        let (sums, dots) = sums.split_at(sums.len() / 2);
        let inverse_std = allocated(doubles(&self.derived[norm.inverse_std]))?;
        if let Some(gradient) = norm.weight.and_then(|param| self.gradients[param].as_mut()) {
            let shares = allocated(batch_norm::weight_gradient(dots, &inverse_std))?;
            allocated(store_over_images(gradient, &shares))?;
        }
        if let Some(gradient) = norm.bias.and_then(|param| self.gradients[param].as_mut()) {
            allocated(store_over_images(gradient, sums))?;
        }
        let Some([a, b, d]) = coefficients else { return Ok(()) };
        let scale = allocated(doubles(&self.derived[norm.scale]))?;
        let mean = allocated(doubles(&self.derived[norm.mean]))?;
        let group = norm.over.group();
        let factors = batch_norm::input_gradient(sums, dots, count, &mean, &inverse_std, &scale, group);
        let factors = allocated(factors)?;
        store(&mut self.derived[a], &factors.a);
        store(&mut self.derived[b], &factors.b);
        store(&mut self.derived[d], &factors.d);
        Ok(())
    }

    fn global_max(&mut self, reduction: ReductionId, pixel: PixelId) -> Result<(), ExecError> {
        self.context.merge(reduction.index())?;
        let Partial::Extrema(extrema) = self.context.partial(reduction.index())? else {
            unreachable!("invariant: a global maximum reads extrema")
        };
        let values = self.stores.pixel_mut(pixel);
        values.zip(extrema).for_each(|(value, extremum)| *value = extremum.value);
        Ok(())
    }

    fn param_grad(&mut self, reduction: ReductionId, param: ParamId) -> Result<(), ExecError> {
        let mut gradient = self.gradients[param].take().expect(STORED);
        let result = self.reduced(reduction, &mut gradient);
        self.gradients[param] = Some(gradient);
        result
    }

    /// What a reduction over the whole image comes to.
    fn reduced(&mut self, reduction: ReductionId, to: &mut [T]) -> Result<(), ExecError> {
        self.context.merge(reduction.index())?;
        match self.context.partial(reduction.index())? {
            Partial::Values(_) => self.context.unpack(reduction.index(), to)?,
            sums => store(to, &allocated(exact(sums))?),
        }
        Ok(())
    }

    /// Begins or goes on with the sum of what several nodes make of the gradient of a parameter, rounded after each.
    fn shared_grad(&mut self, param: ParamId, share: GradShare, is_first: bool) -> Result<(), ExecError> {
        let mut values = allocated(zeros::<T>(self.program.params[param]))?;
        match share {
            GradShare::Whole { reduction } => self.reduced(reduction, &mut values)?,
            GradShare::NormWeight { reduction, inverse_std } => {
                let sums = allocated(exact(self.context.partial(reduction.index())?))?;
                let inverse = allocated(doubles(&self.derived[inverse_std]))?;
                let shares = allocated(batch_norm::weight_gradient(&sums[inverse.len()..], &inverse))?;
                allocated(store_over_images(&mut values, &shares))?;
            }
            GradShare::NormBias { reduction } => {
                let sums = allocated(exact(self.context.partial(reduction.index())?))?;
                allocated(store_over_images(&mut values, &sums[..sums.len() / 2]))?;
            }
        }
        let gradient = self.gradients[param].as_mut().expect(STORED);
        if is_first {
            gradient.copy_from_slice(&values);
        } else {
            gradient.iter_mut().zip(values).for_each(|(sum, share)| *sum += share);
        }
        Ok(())
    }
}

const STORED: &str = "invariant: wanted gradients have storage";

/// The error of memory that was refused for a list of these.
fn allocated<V>(list: Result<V, OutOfMemory>) -> Result<V, ExecError> {
    list.map_err(refused("the sums of a reduction"))
}

fn doubles<T: Element>(values: &[T]) -> Result<Vec<f64>, OutOfMemory> {
    collected(values.iter().map(|value| value.to_f64()))
}

/// Parameters with values that they are to have.
pub(crate) type Moved<T> = Vec<(ParamId, Vec<T>)>;

/// The values that running statistics move to, those of shared ones from node to node: a later entry for a parameter
/// replaces an earlier one.
///
/// It is apart from the finalisers so that a run that fails later leaves the parameters as they were.
pub(crate) fn moved_statistics<T: Element>(
    moments: &mut [BatchMoments],
    params: &Parameters<T>,
) -> Result<Moved<T>, ExecError> {
    if moments.is_empty() {
        return Ok(Vec::new());
    }
    // in the order of nodes, which what is derived for them was numbered in
    moments.sort_unstable_by_key(|moments| moments.norm);
    let latest = allocated(IndexVec::filled(params.tensors().len(), None))?;
    let mut moving = Moving { params, latest, moved: Vec::new() };
    moments.iter().try_for_each(|moments| allocated(moving.towards(moments)))?;
    Ok(moving.moved)
}

/// Running statistics on their way.
struct Moving<'p, T: Element> {
    params: &'p Parameters<T>,
    /// Where the latest values of each parameter stand among those that have moved.
    latest: IndexVec<ParamId, Option<usize>>,
    moved: Moved<T>,
}

impl<T: Element> Moving<'_, T> {
    /// Moves towards mean and unbiased variance of a batch, or the means of those of its images.
    fn towards(&mut self, batch: &BatchMoments) -> Result<(), OutOfMemory> {
        let BatchMoments { count, running, mean, variance, .. } = batch;
        let momentum = match running.momentum {
            Momentum::Fixed(momentum) => momentum,
            Momentum::Mean { batches } => {
                let seen = self.values(batches)?[0] + 1.0;
                self.set(batches, &[seen])?;
                1.0 / seen
            }
        };
        let variance = batch_norm::unbiased(variance, lossless(*count))?;
        for (param, new) in [(running.mean, mean), (running.variance, &variance)] {
            let old = self.values(param)?;
            let images = lossless((new.len() / old.len().max(1)).max(1) as u64);
            let mut new = batch_norm::over_images(new, old.len())?;
            new.iter_mut().for_each(|sum| *sum /= images);
            let moved = batch_norm::moved(&old, &new, momentum)?;
            self.set(param, &moved)?;
        }
        Ok(())
    }

    fn values(&self, param: ParamId) -> Result<Vec<f64>, OutOfMemory> {
        doubles(
            self.latest[param]
                .map_or(&self.params.tensors()[param.index()].data, |moved| &self.moved[moved].1),
        )
    }

    fn set(&mut self, param: ParamId, values: &[f64]) -> Result<(), OutOfMemory> {
        let rounded = collected(values.iter().map(|value| T::from_f64(*value)))?;
        self.latest[param] = Some(self.moved.len());
        push(&mut self.moved, (param, rounded))
    }
}

/// Mean and biased variance of everything that shares them.
fn moments<T: Element>(
    partial: &Partial<T>,
    over: Statistics,
    count: f64,
) -> Result<[Vec<f64>; 2], OutOfMemory> {
    let sums = exact_of_groups(partial, over.group())?;
    let (sums, squares) = sums.split_at(sums.len() / 2);
    batch_norm::moments(sums, squares, count)
}

/// The sums of an exact reduction that are all in, each rounded once.
fn exact<T: Element>(partial: &Partial<T>) -> Result<Vec<f64>, OutOfMemory> {
    exact_of_groups(partial, 1)
}

/// The same where so many consecutive sums are one.
fn exact_of_groups<T: Element>(partial: &Partial<T>, group: usize) -> Result<Vec<f64>, OutOfMemory> {
    let total = |group: &[ExactSum]| {
        let mut total = ExactSum::default();
        group.iter().for_each(|sum| total.merge(sum));
        total.value()
    };
    match partial {
        Partial::Exact(sums) => collected(sums.chunks(group).map(total)),
        _ => unreachable!("invariant: this finaliser reads an exact reduction"),
    }
}

/// Stores the sums over images of values of images and channels.
fn store_over_images<T: Element>(to: &mut [T], from: &[f64]) -> Result<(), OutOfMemory> {
    let sums = batch_norm::over_images(from, to.len())?;
    store(to, &sums);
    Ok(())
}

fn store<T: Element>(to: &mut [T], from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = T::from_f64(*from);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of elements are far below 2^53")]
fn lossless(count: u64) -> f64 {
    count as f64
}
