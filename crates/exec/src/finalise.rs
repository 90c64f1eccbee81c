//! What becomes of reductions after their sweep: statistics, gradients, losses.

use tiled_graph::Parameters;
use tiled_graph::program::{Finaliser, Norm, Program};
use tiled_kernel::{Backend, Partial};
use tiled_tensor::{Element, OutOfMemory, collected, make_room};

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
    pub(crate) fn apply(&mut self, finaliser: &Finaliser) -> Result<(), OutOfMemory> {
        match finaliser {
            Finaliser::BatchNormEval { norm } => {
                let mean = doubles(self.param(norm.running_mean))?;
                let variance = doubles(self.param(norm.running_var))?;
                self.normalise(norm, &mean, &variance)
            }
            Finaliser::BatchNormTrain { norm, reduction, count, momentum } => {
                self.batch_statistics(norm, *reduction, lossless(*count), *momentum)
            }
            Finaliser::BatchNormBackward { norm, reduction, count, coefficients } => {
                self.batch_norm_backward(norm, *reduction, lossless(*count), *coefficients)
            }
            Finaliser::GlobalMean { reduction, count, pixel } => {
                let mut means = self.sums(*reduction)?;
                means.iter_mut().for_each(|sum| *sum /= lossless(*count));
                store(self.stores.pixel_mut(*pixel), &means);
                Ok(())
            }
            Finaliser::GlobalMax { reduction, pixel, positions } => {
                self.global_max(*reduction, *pixel, *positions);
                Ok(())
            }
            Finaliser::ParamGrad { reduction, param } => self.param_grad(*reduction, *param),
            Finaliser::Loss { reduction, scale } => {
                let sum: f64 = self.sums(*reduction)?[0];
                make_room(self.losses, 1)?;
                self.losses.push((*reduction, sum * scale));
                Ok(())
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
    fn sums(&mut self, reduction: usize) -> Result<Vec<f64>, OutOfMemory> {
        self.merge(reduction);
        match &self.partials[reduction] {
            Partial::Exact(sums) => collected(sums.iter().map(|sum| sum.value())),
            _ => unreachable!("invariant: this finaliser reads an exact reduction"),
        }
    }

    /// Derives `scale` and `shift` of a batch normalisation from its statistics.
    fn normalise(&mut self, norm: &Norm, mean: &[f64], variance: &[f64]) -> Result<(), OutOfMemory> {
        let of = |place: Option<usize>, channel: usize, default: f64| {
            place.map_or(default, |place| self.params.tensors()[place].data[channel].to_f64())
        };
        let inverse_std = collected(variance.iter().map(|variance| 1.0 / (variance + norm.eps).sqrt()))?;
        let scale = collected(
            inverse_std.iter().enumerate().map(|(channel, inverse)| inverse * of(norm.weight, channel, 1.0)),
        )?;
        let shift = collected(
            mean.iter()
                .zip(&scale)
                .enumerate()
                .map(|(channel, (mean, factor))| of(norm.bias, channel, 0.0) - mean * factor),
        )?;
        store(&mut self.derived[norm.mean], mean);
        store(&mut self.derived[norm.inverse_std], &inverse_std);
        store(&mut self.derived[norm.scale], &scale);
        store(&mut self.derived[norm.shift], &shift);
        Ok(())
    }

    /// Mean and biased variance of the image; the running ones move towards them, the variance unbiased.
    fn batch_statistics(
        &mut self,
        norm: &Norm,
        reduction: usize,
        count: f64,
        momentum: f64,
    ) -> Result<(), OutOfMemory> {
        let sums = self.sums(reduction)?;
        let (sums, squares) = sums.split_at(sums.len() / 2);
        let mean = collected(sums.iter().map(|sum| sum / count))?;
        let variance = collected(
            squares.iter().zip(&mean).map(|(square, mean)| (-mean).mul_add(*mean, square / count).max(0.0)),
        )?;
        self.normalise(norm, &mean, &variance)?;
        let unbiased = collected(variance.iter().map(|value| value * count / (count - 1.0).max(1.0)))?;
        for (place, new) in [(norm.running_mean, &mean), (norm.running_var, &unbiased)] {
            let running = self.params.data_mut(place).expect("invariant: running statistics are parameters");
            for (running, new) in running.iter_mut().zip(new) {
                *running = T::from_f64((1.0 - momentum) * running.to_f64() + momentum * new);
            }
        }
        Ok(())
    }

    /// `dβ = Σg`, `dγ = Σg·x̂`, and the coefficients of `dx = γ/σ·(g − Σg/M − x̂·Σg·x̂/M)` as `a·g + b·x + d`.
    fn batch_norm_backward(
        &mut self,
        norm: &Norm,
        reduction: usize,
        count: f64,
        coefficients: Option<[usize; 3]>,
    ) -> Result<(), OutOfMemory> {
        let sums = self.sums(reduction)?;
        let (sums, dots) = sums.split_at(sums.len() / 2);
        let inverse_std = doubles(&self.derived[norm.inverse_std])?;
        if let Some(gradient) = norm.weight.and_then(|place| self.gradients[place].as_mut()) {
            for ((gradient, dot), inverse) in gradient.iter_mut().zip(dots).zip(&inverse_std) {
                *gradient = T::from_f64(dot * inverse);
            }
        }
        if let Some(gradient) = norm.bias.and_then(|place| self.gradients[place].as_mut()) {
            store(gradient, sums);
        }
        let Some([a, b, d]) = coefficients else { return Ok(()) };
        let (scale, mean) = (doubles(&self.derived[norm.scale])?, doubles(&self.derived[norm.mean])?);
        let channels = 0..scale.len();
        let slope = channels.clone().map(|c| -scale[c] * inverse_std[c] * inverse_std[c] * dots[c] / count);
        let slope = collected(slope)?;
        let offset = collected(channels.map(|c| -scale[c] * sums[c] / count - slope[c] * mean[c]))?;
        store(&mut self.derived[a], &scale);
        store(&mut self.derived[b], &slope);
        store(&mut self.derived[d], &offset);
        Ok(())
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

    fn param_grad(&mut self, reduction: usize, param: usize) -> Result<(), OutOfMemory> {
        let sums = match &self.partials[reduction] {
            Partial::Exact(_) => Some(self.sums(reduction)?),
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
        Ok(())
    }
}

fn doubles<T: Element>(values: &[T]) -> Result<Vec<f64>, OutOfMemory> {
    collected(values.iter().map(|value| value.to_f64()))
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
