//! What becomes of reductions after their sweep: statistics, gradients, losses.

use tiled_graph::Parameters;
use tiled_graph::program::{Finaliser, Norm, Program};
use tiled_kernel::{Backend, Partial};
use tiled_tensor::Element;

use crate::store::Stores;

/// Everything that a finaliser reads or writes. The first lane's partial sums take in the others'.
pub(crate) struct State<'a, T: Element> {
    pub(crate) backend: &'a dyn Backend<T>,
    pub(crate) program: &'a Program,
    pub(crate) partials: &'a mut [Partial<T>],
    pub(crate) others: &'a [Vec<Partial<T>>],
    pub(crate) stores: &'a mut Stores<T>,
    pub(crate) derived: &'a mut [Vec<T>],
    pub(crate) gradients: &'a mut [Option<Vec<T>>],
    pub(crate) params: &'a Parameters<T>,
    /// The parts of the loss, by reduction.
    pub(crate) losses: &'a mut Vec<(usize, f64)>,
}

impl<T: Element> State<'_, T> {
    pub(crate) fn apply(&mut self, finaliser: &Finaliser) {
        match finaliser {
            Finaliser::BatchNormEval { norm } => {
                let mean = self.param(norm.running_mean).to_vec();
                let variance: Vec<f64> =
                    self.param(norm.running_var).iter().map(|value| value.to_f64()).collect();
                self.normalise(
                    norm,
                    &mean.iter().map(|value| value.to_f64()).collect::<Vec<f64>>(),
                    &variance,
                );
            }
            Finaliser::BatchNormTrain { norm, reduction, count, momentum: _ } => {
                self.merge(*reduction);
                let [mean, variance] = moments(&self.partials[*reduction], lossless(*count));
                self.normalise(norm, &mean, &variance);
            }
            Finaliser::BatchNormBackward { norm, reduction, count, coefficients } => {
                self.batch_norm_backward(norm, *reduction, lossless(*count), *coefficients);
            }
            Finaliser::GlobalMean { reduction, count, pixel } => {
                let means: Vec<f64> =
                    self.sums(*reduction).iter().map(|sum| sum / lossless(*count)).collect();
                store(self.stores.pixel_mut(*pixel), &means);
            }
            Finaliser::GlobalMax { reduction, pixel, positions } => {
                self.global_max(*reduction, *pixel, *positions)
            }
            Finaliser::ParamGrad { reduction, param } => self.param_grad(*reduction, *param),
            Finaliser::Loss { reduction, scale } => {
                let sum: f64 = self.sums(*reduction)[0];
                self.losses.push((*reduction, sum * scale));
            }
        }
    }

    fn param(&self, place: usize) -> &[T] {
        &self.params.tensors()[place].data
    }

    /// Takes the other lanes into the first one's partial, in order.
    fn merge(&mut self, reduction: usize) {
        for other in self.others {
            self.partials[reduction].merge(&other[reduction]);
        }
    }

    /// The sums of an exact reduction, each rounded once.
    fn sums(&mut self, reduction: usize) -> Vec<f64> {
        self.merge(reduction);
        exact(&self.partials[reduction])
    }

    /// Derives `scale` and `shift` of a batch normalisation from its statistics.
    fn normalise(&mut self, norm: &Norm, mean: &[f64], variance: &[f64]) {
        let of = |place: Option<usize>, channel: usize, default: f64| {
            place.map_or(default, |place| self.params.tensors()[place].data[channel].to_f64())
        };
        let mut scale = Vec::with_capacity(mean.len());
        let mut shift = Vec::with_capacity(mean.len());
        let mut inverse_std = Vec::with_capacity(mean.len());
        for (channel, (mean, variance)) in mean.iter().zip(variance).enumerate() {
            let inverse = 1.0 / (variance + norm.eps).sqrt();
            let factor = inverse * of(norm.weight, channel, 1.0);
            inverse_std.push(inverse);
            scale.push(factor);
            shift.push(of(norm.bias, channel, 0.0) - mean * factor);
        }
        store(&mut self.derived[norm.mean], mean);
        store(&mut self.derived[norm.inverse_std], &inverse_std);
        store(&mut self.derived[norm.scale], &scale);
        store(&mut self.derived[norm.shift], &shift);
    }

    /// `dβ = Σg`, `dγ = Σg·x̂`, and the coefficients of `dx = γ/σ·(g − Σg/M − x̂·Σg·x̂/M)` as `a·g + b·x + d`.
    fn batch_norm_backward(
        &mut self,
        norm: &Norm,
        reduction: usize,
        count: f64,
        coefficients: Option<[usize; 3]>,
    ) {
        let sums = self.sums(reduction);
        let (sums, dots) = sums.split_at(sums.len() / 2);
        let values = |vector: &[T]| vector.iter().map(|value| value.to_f64()).collect::<Vec<f64>>();
        let inverse_std = values(&self.derived[norm.inverse_std]);
        if let Some(gradient) = norm.weight.and_then(|place| self.gradients[place].as_mut()) {
            let normalised: Vec<f64> =
                dots.iter().zip(&inverse_std).map(|(dot, inverse)| dot * inverse).collect();
            store(gradient, &normalised);
        }
        if let Some(gradient) = norm.bias.and_then(|place| self.gradients[place].as_mut()) {
            store(gradient, sums);
        }
        let Some([a, b, d]) = coefficients else { return };
        let (scale, mean) = (values(&self.derived[norm.scale]), values(&self.derived[norm.mean]));
        let slope: Vec<f64> =
            (0..scale.len()).map(|c| -scale[c] * inverse_std[c] * inverse_std[c] * dots[c] / count).collect();
        let offset: Vec<f64> =
            (0..scale.len()).map(|c| -scale[c] * sums[c] / count - slope[c] * mean[c]).collect();
        store(&mut self.derived[a], &scale);
        store(&mut self.derived[b], &slope);
        store(&mut self.derived[d], &offset);
    }

    fn global_max(&mut self, reduction: usize, pixel: usize, positions: usize) {
        self.merge(reduction);
        let Partial::Extrema(extrema) = &self.partials[reduction] else {
            unreachable!("invariant: a global maximum reads extrema")
        };
        let values = self.stores.pixel_mut(pixel);
        for ((value, places), extremum) in
            values.iter_mut().zip(self.derived[positions].chunks_exact_mut(4)).zip(extrema)
        {
            *value = extremum.value;
            // two parts of twenty bits each are exact in every element type
            let [y, x] = extremum.position.unwrap_or([0, 0]);
            let parts = [y >> 20, y & 0xf_ffff, x >> 20, x & 0xf_ffff];
            for (place, part) in places.iter_mut().zip(parts) {
                *place = T::from_f64(lossless(part.unsigned_abs()));
            }
        }
    }

    fn param_grad(&mut self, reduction: usize, param: usize) {
        let sums = match &self.partials[reduction] {
            Partial::Exact(_) => Some(self.sums(reduction)),
            _ => None,
        };
        if sums.is_none() {
            self.merge(reduction);
        }
        let gradient = self.gradients[param].as_mut().expect("invariant: wanted gradients have storage");
        match (&self.partials[reduction], sums) {
            (_, Some(sums)) => store(gradient, &sums),
            (Partial::Values(values), None) => {
                self.backend.unpack(&self.program.reductions[reduction].reduction, values, gradient);
            }
            _ => unreachable!("invariant: gradients of parameters are sums"),
        }
    }
}

/// Where the running statistics of a finished batch norm move to: towards mean and unbiased variance of the image.
///
/// It is apart from the finaliser so that a run that fails later leaves the parameters as they were. The first lane's
/// partial sums hold those of all lanes until the next run.
pub(crate) fn moved_statistics<T: Element>(
    finaliser: &Finaliser,
    partials: &[Partial<T>],
    params: &Parameters<T>,
) -> Vec<(usize, Vec<T>)> {
    let Finaliser::BatchNormTrain { norm, reduction, count, momentum } = finaliser else { return Vec::new() };
    let count = lossless(*count);
    let [mean, variance] = moments(&partials[*reduction], count);
    let unbiased: Vec<f64> = variance.iter().map(|value| value * count / (count - 1.0).max(1.0)).collect();
    let moved = |(place, new): (usize, Vec<f64>)| {
        let running = params.tensors()[place].data.iter().zip(new);
        let towards = running.map(|(old, new)| T::from_f64((1.0 - momentum) * old.to_f64() + momentum * new));
        (place, towards.collect())
    };
    [(norm.running_mean, mean), (norm.running_var, unbiased)].into_iter().map(moved).collect()
}

/// Mean and biased variance of every channel.
fn moments<T: Element>(partial: &Partial<T>, count: f64) -> [Vec<f64>; 2] {
    let sums = exact(partial);
    let (sums, squares) = sums.split_at(sums.len() / 2);
    let mean: Vec<f64> = sums.iter().map(|sum| sum / count).collect();
    let variance = squares.iter().zip(&mean);
    let variance = variance.map(|(square, mean)| (-mean).mul_add(*mean, square / count).max(0.0)).collect();
    [mean, variance]
}

/// The sums of an exact reduction that are all in, each rounded once.
fn exact<T: Element>(partial: &Partial<T>) -> Vec<f64> {
    match partial {
        Partial::Exact(sums) => sums.iter().map(|sum| sum.value()).collect(),
        _ => unreachable!("invariant: this finaliser reads an exact reduction"),
    }
}

fn store<T: Element>(to: &mut [T], from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = T::from_f64(*from);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of elements and positions are far below 2^53")]
fn lossless(count: u64) -> f64 {
    count as f64
}
