//! What becomes of reductions after their sweep: statistics, gradients, losses.

use tiled_graph::Parameters;
use tiled_graph::program::{Finaliser, Norm, Program};
use tiled_kernel::{Backend, Partial, Reduction};
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
    pub(crate) params: &'a mut Parameters<T>,
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
            Finaliser::BatchNormTrain { norm, reduction, count, momentum } => {
                self.batch_statistics(norm, *reduction, lossless(*count), *momentum);
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
                let sums = self.sums(*reduction);
                let scale = match self.program.reductions[*reduction].reduction {
                    Reduction::CrossEntropy => 1.0 / sums[1],
                    _ => *scale,
                };
                self.losses.push((*reduction, sums[0] * scale));
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
        match &self.partials[reduction] {
            Partial::Exact(sums) => sums.iter().map(|sum| sum.value()).collect(),
            _ => unreachable!("invariant: this finaliser reads an exact reduction"),
        }
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

    /// Mean and biased variance of the image; the running ones move towards them, the variance unbiased.
    fn batch_statistics(&mut self, norm: &Norm, reduction: usize, count: f64, momentum: f64) {
        let sums = self.sums(reduction);
        let (sums, squares) = sums.split_at(sums.len() / 2);
        let mean: Vec<f64> = sums.iter().map(|sum| sum / count).collect();
        let variance: Vec<f64> = squares
            .iter()
            .zip(&mean)
            .map(|(square, mean)| (-mean).mul_add(*mean, square / count).max(0.0))
            .collect();
        self.normalise(norm, &mean, &variance);
        let unbiased: Vec<f64> =
            variance.iter().map(|value| value * count / (count - 1.0).max(1.0)).collect();
        for (place, new) in [(norm.running_mean, &mean), (norm.running_var, &unbiased)] {
            let running = self.params.data_mut(place).expect("invariant: running statistics are parameters");
            for (running, new) in running.iter_mut().zip(new) {
                *running = T::from_f64((1.0 - momentum) * running.to_f64() + momentum * new);
            }
        }
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

fn store<T: Element>(to: &mut [T], from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = T::from_f64(*from);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of elements and positions are far below 2^53")]
fn lossless(count: u64) -> f64 {
    count as f64
}
