//! Softmax over the channels of each pixel and its logarithm, computed in `f64`.

use tiled_geometry::Region;
use tiled_tensor::{Element, PartMut, View};

use super::math;
use super::pixel::{GROUP, Kept, PIXELS, Plane, Planes, for_runs, for_tasks};
use super::stamp::per_isa;
use crate::Isa;

per_isa! {
    /// The larger of two; not a number loses, and shows in the sum.
    fn larger<T: Element>(x: &[Plane<T>], largest: &mut Plane<f64>) {
        for x in x {
            for (largest, x) in largest.iter_mut().zip(x) {
                let x = x.to_f64();
                *largest = if x > *largest { x } else { *largest };
            }
        }
    }
}

per_isa! {
    /// `sum += e^(x − largest)`.
    fn add_exponentials<T: Element>(x: &[Plane<T>], largest: &Plane<f64>, sum: &mut Plane<f64>) {
        for x in x {
            for ((sum, x), largest) in sum.iter_mut().zip(x).zip(largest) {
                *sum += math::exp::<f64, FUSED>(x.to_f64() - largest);
            }
        }
    }
}

per_isa! {
    /// The same, and keeps them.
    fn keep_exponentials<T: Element>(x: &[Plane<T>], largest: &Plane<f64>, sum: &mut Plane<f64>, kept: &mut Planes<f64>) {
        for (kept, x) in kept.iter_mut().zip(x) {
            for (((kept, sum), x), largest) in kept.iter_mut().zip(sum.iter_mut()).zip(x).zip(largest) {
                *kept = math::exp::<f64, FUSED>(x.to_f64() - largest);
                *sum += *kept;
            }
        }
    }
}

per_isa! {
    /// `kept/sum`.
    fn shares_of_kept<T: Element>(kept: &Planes<f64>, sum: &Plane<f64>, out: &mut [Plane<T>]) {
        for (out, kept) in out.iter_mut().zip(kept) {
            for ((out, kept), sum) in out.iter_mut().zip(kept).zip(sum) {
                *out = T::from_f64(kept / sum);
            }
        }
    }
}

per_isa! {
    /// `e^(x − largest)/sum`.
    fn shares<T: Element>(x: &[Plane<T>], largest: &Plane<f64>, sum: &Plane<f64>, out: &mut [Plane<T>]) {
        for (out, x) in out.iter_mut().zip(x) {
            for (((out, x), largest), sum) in out.iter_mut().zip(x).zip(largest).zip(sum) {
                *out = T::from_f64(math::exp::<f64, FUSED>(x.to_f64() - largest) / sum);
            }
        }
    }
}

per_isa! {
    /// `(x − largest) − log`.
    fn logarithms<T: Element>(x: &[Plane<T>], largest: &Plane<f64>, log: &Plane<f64>, out: &mut [Plane<T>]) {
        for (out, x) in out.iter_mut().zip(x) {
            for (((out, x), largest), log) in out.iter_mut().zip(x).zip(largest).zip(log) {
                *out = T::from_f64((x.to_f64() - largest) - log);
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
        let mut kept = Kept::new();
        let mut exponentials: [Planes<f64>; KEPT_EXPONENTIALS] = [[[0.0; PIXELS]; GROUP]; KEPT_EXPONENTIALS];
        let mut out: Planes<T> = [[T::ZERO; PIXELS]; GROUP];
        for mut run in runs {
            kept.clear();
            let (mut largest, mut sum) = ([f64::NEG_INFINITY; PIXELS], [0.0; PIXELS]);
            for group in run.groups() {
                larger(isa, kept.read(&run, x, group), &mut largest);
            }
            for group in run.groups() {
                let values = kept.read(&run, x, group);
                match exponentials.get_mut(group / GROUP) {
                    Some(exponentials) if !log => {
                        keep_exponentials(isa, values, &largest, &mut sum, exponentials);
                    }
                    _ => add_exponentials(isa, values, &largest, &mut sum),
                }
            }
            if log {
                sum = sum.map(f64::ln);
            }
            for group in run.groups() {
                match exponentials.get(group / GROUP) {
                    Some(exponentials) if !log => shares_of_kept(isa, exponentials, &sum, &mut out),
                    _ => {
                        let values = kept.read(&run, x, group);
                        if log {
                            logarithms(isa, values, &largest, &sum, &mut out);
                        } else {
                            shares(isa, values, &largest, &sum, &mut out);
                        }
                    }
                }
                run.write(group, &out);
            }
        }
    });
}

/// The groups of channels whose exponentials are kept: 64 KiB of them.
const KEPT_EXPONENTIALS: usize = 8;

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
