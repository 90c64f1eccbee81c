//! Softmax over the channels of each pixel and its logarithm, computed in `f64`.

use tiled_geometry::Region;
use tiled_tensor::{Element, PartMut, View};

use super::pixel::{GROUP, KEPT_GROUPS, Kept, PIXELS, Pixels, Plane, Planes, for_runs, for_tasks, groups};
use super::stamp::per_isa;
use super::{math, powers};
use crate::Isa;

per_isa! {
    /// The larger of two; not a number loses, and shows in the sum.
    fn larger<T: Element>(x: &[Plane<T>], largest: &mut Plane<T>) {
        for x in x {
            for (largest, &x) in largest.iter_mut().zip(x) {
                *largest = if x > *largest { x } else { *largest };
            }
        }
    }
}

per_isa! {
    /// `out = e^(x − largest)` in a type of its own, and `sum += out`.
    fn exponentials<T: Element, P: Element>(x: &[Plane<T>], largest: &Plane<T>, sum: &mut Plane<f64>, out: &mut [Plane<P>]) {
        for (out, x) in out.iter_mut().zip(x) {
            for ((out, x), largest) in out.iter_mut().zip(x).zip(largest) {
                let (x, largest) = (P::from_f64(x.to_f64()), P::from_f64(largest.to_f64()));
                *out = math::exp_of_difference::<P, FUSED>(x, largest);
            }
            for (sum, out) in sum.iter_mut().zip(&*out) {
                *sum += out.to_f64();
            }
        }
    }
}

per_isa! {
    /// `power·factor`.
    fn shares<T: Element>(powers: &[Plane<f64>], factor: &Plane<f64>, out: &mut Planes<T>) {
        for (out, powers) in out.iter_mut().zip(powers) {
            for ((out, power), factor) in out.iter_mut().zip(powers).zip(factor) {
                *out = T::from_f64(power * factor);
            }
        }
    }
}

per_isa! {
    /// `ln x`.
    fn logarithms_of<T: Element>(x: &mut Plane<T>) {
        for x in x {
            *x = T::from_f64(powers::log::<FUSED>(x.to_f64()));
        }
    }
}

per_isa! {
    /// `(x − largest) − log`.
    fn logarithms<T: Element>(x: &[Plane<T>], largest: &Plane<T>, log: &Plane<f64>, out: &mut [Plane<T>]) {
        for (out, x) in out.iter_mut().zip(x) {
            for (((out, x), largest), log) in out.iter_mut().zip(x).zip(largest).zip(log) {
                *out = T::from_f64((x.to_f64() - largest.to_f64()) - log);
            }
        }
    }
}

per_isa! {
    /// `sum += g`.
    fn add<T: Element>(g: &[Plane<T>], sum: &mut Plane<f64>) {
        for g in g {
            for (sum, g) in sum.iter_mut().zip(g) {
                *sum += g.to_f64();
            }
        }
    }
}

per_isa! {
    /// `sum += g·y`.
    fn add_products<T: Element>(g: &[Plane<T>], y: &[Plane<T>], sum: &mut Plane<f64>) {
        for (g, y) in g.iter().zip(y) {
            for ((sum, g), y) in sum.iter_mut().zip(g).zip(y) {
                *sum = math::fma::<f64, FUSED>(g.to_f64(), y.to_f64(), *sum);
            }
        }
    }
}

per_isa! {
    /// `y·(g − sum)`.
    fn slopes<T: Element>(g: &[Plane<T>], y: &[Plane<T>], sum: &Plane<f64>, out: &mut [Plane<T>]) {
        for ((out, g), y) in out.iter_mut().zip(g).zip(y) {
            for (((out, g), y), sum) in out.iter_mut().zip(g).zip(y).zip(sum) {
                *out = T::from_f64(y.to_f64() * (g.to_f64() - sum));
            }
        }
    }
}

per_isa! {
    /// `g − e^y·sum`.
    fn log_slopes<T: Element>(g: &[Plane<T>], y: &[Plane<T>], sum: &Plane<f64>, out: &mut [Plane<T>]) {
        for ((out, g), y) in out.iter_mut().zip(g).zip(y) {
            for (((out, g), y), sum) in out.iter_mut().zip(g).zip(y).zip(sum) {
                *out = T::from_f64(g.to_f64() - math::exp::<f64, FUSED>(y.to_f64()) * sum);
            }
        }
    }
}

/// What the softmax of the pixels of a run is computed from, with exponentials of type `P`.
pub(super) struct Softmax<T, P> {
    /// The largest value of each pixel.
    pub(super) largest: Plane<T>,
    /// `Σ e^(x − largest)`, in the order of the channels.
    pub(super) sum: Plane<f64>,
    /// Those exponentials, of as many channels as are kept of a run; of more they are computed twice.
    powers: [Option<Planes<P>>; KEPT_GROUPS],
    /// Those of a group that is not kept.
    other: Planes<P>,
}

impl<T: Element, P: Element> Softmax<T, P> {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        let none: Planes<P> = [[P::ZERO; PIXELS]; GROUP];
        Self { largest: [T::ZERO; PIXELS], sum: [0.0; PIXELS], powers: [None; KEPT_GROUPS], other: none }
    }

    /// Takes that of a run, whose values `kept` keeps, and its exponentials where somebody `wants` them.
    pub(super) fn take(
        &mut self,
        isa: Isa,
        pixels: Pixels,
        x: &View<'_, T>,
        kept: &mut Kept<T>,
        wants: bool,
    ) {
        kept.clear();
        let Self { largest, sum, powers, other } = self;
        largest.fill(T::from_f64(f64::NEG_INFINITY));
        sum.fill(0.0);
        let channels = x.layout().channels();
        for group in groups(channels) {
            larger(isa, kept.read(pixels, x, group), largest);
        }
        for group in groups(channels) {
            let powers = match powers.get_mut(group / GROUP).filter(|_| wants) {
                Some(powers) => powers.get_or_insert([[P::ZERO; PIXELS]; GROUP]),
                None => &mut *other,
            };
            exponentials(isa, kept.read(pixels, x, group), largest, sum, powers);
        }
    }

    /// The exponentials of a group of the run that was taken, where they were wanted.
    pub(super) fn powers(
        &mut self,
        isa: Isa,
        pixels: Pixels,
        x: &View<'_, T>,
        kept: &mut Kept<T>,
        group: usize,
    ) -> &[Plane<P>] {
        let Self { largest, powers, other, .. } = self;
        let powers = match powers.get(group / GROUP) {
            Some(powers) => powers.as_ref().expect("invariant: they were wanted"),
            None => {
                exponentials(isa, kept.read(pixels, x, group), largest, &mut [0.0; PIXELS], other);
                other
            }
        };
        &powers[..GROUP.min(x.layout().channels() - group)]
    }

    /// The logarithms of the sums.
    pub(super) fn logs(&self, isa: Isa) -> Plane<f64> {
        let mut logs = self.sum;
        logarithms_of(isa, &mut logs);
        logs
    }
}

/// `e^x[c]/Σe^x[i]` of `[x]`, or its logarithm.
pub(super) fn forward<T: Element>(
    isa: Isa,
    log: bool,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_tasks(&inputs[..1], output, region, 16, |runs| {
        let (mut kept, mut softmax) = (Kept::new(), Softmax::<T, f64>::new());
        let mut out: Planes<T> = [[T::ZERO; PIXELS]; GROUP];
        for mut run in runs {
            softmax.take(isa, run.pixels(), x, &mut kept, !log);
            if log {
                let log = softmax.logs(isa);
                for group in run.groups() {
                    logarithms(isa, kept.read(run.pixels(), x, group), &softmax.largest, &log, &mut out);
                    run.write(group, &out);
                }
                continue;
            }
            let factor = softmax.sum.map(|sum| 1.0 / sum);
            for group in run.groups() {
                shares(isa, softmax.powers(isa, run.pixels(), x, &mut kept, group), &factor, &mut out);
                run.write(group, &out);
            }
        }
    });
}

/// `y[c]·(gy[c] − Σ gy[i]·y[i])` of `[gy, y]`, of the logarithm `gy[c] − e^y[c]·Σ gy[i]`.
pub(super) fn backward<T: Element>(
    isa: Isa,
    log: bool,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (g, y) = (&inputs[0], &inputs[1]);
    for_runs(&inputs[..2], output, region, 12, |run| {
        let [mut gradients, mut values, mut out]: [Planes<T>; 3] = [[[T::ZERO; PIXELS]; GROUP]; 3];
        let mut sum = [0.0; PIXELS];
        for group in run.groups() {
            let gradients = run.read(g, group, &mut gradients);
            if log {
                add(isa, gradients, &mut sum);
            } else {
                add_products(isa, gradients, run.read(y, group, &mut values), &mut sum);
            }
        }
        for group in run.groups() {
            let gradients = run.read(g, group, &mut gradients);
            let values = run.read(y, group, &mut values);
            if log {
                log_slopes(isa, gradients, values, &sum, &mut out);
            } else {
                slopes(isa, gradients, values, &sum, &mut out);
            }
            run.write(group, &out);
        }
    });
}
