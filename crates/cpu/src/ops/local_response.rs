//! Normalisation of each pixel by its neighbours along the channels, computed in `f64`.

use tiled_geometry::Region;
use tiled_kernel::LocalResponse;
use tiled_tensor::{Element, PartMut, View};

use super::math;
use super::pixel::{GROUP, PIXELS, Plane, Planes, Run, for_runs};
use super::stamp::per_isa;
use crate::Isa;

per_isa! {
    /// `sum += x²`.
    fn add_squares<T: Element>(x: &Plane<T>, sum: &mut [Plane<f64>]) {
        for sum in sum {
            for (sum, x) in sum.iter_mut().zip(x) {
                *sum = math::fma::<f64, FUSED>(x.to_f64(), x.to_f64(), *sum);
            }
        }
    }
}

per_isa! {
    /// `sum += term`.
    fn add<T: Element>(term: &Plane<T>, sum: &mut [Plane<T>]) {
        for sum in sum {
            for (sum, term) in sum.iter_mut().zip(term) {
                *sum += *term;
            }
        }
    }
}

per_isa! {
    /// `x·(k + share·sum)^(−β)`.
    fn respond<T: Element>(local: &LocalResponse, x: &[Plane<T>], sum: &[Plane<f64>], out: &mut [Plane<T>]) {
        let share = local.share();
        for ((out, x), sum) in out.iter_mut().zip(x).zip(sum) {
            for ((out, x), sum) in out.iter_mut().zip(x).zip(sum) {
                let scale = math::fma::<f64, FUSED>(share, *sum, local.k);
                *out = T::from_f64(x.to_f64() * math::power::<FUSED>(scale, -local.beta));
            }
        }
    }
}

per_isa! {
    /// `g·x·(k + share·sum)^(−β−1)`.
    fn terms<T: Element>(local: &LocalResponse, g: &[Plane<T>], x: &[Plane<T>], sum: &[Plane<f64>], out: &mut [Plane<f64>]) {
        let share = local.share();
        for ((out, (g, x)), sum) in out.iter_mut().zip(g.iter().zip(x)).zip(sum) {
            for ((out, (g, x)), sum) in out.iter_mut().zip(g.iter().zip(x)).zip(sum) {
                let scale = math::fma::<f64, FUSED>(share, *sum, local.k);
                *out = g.to_f64() * x.to_f64() * math::power::<FUSED>(scale, -local.beta - 1.0);
            }
        }
    }
}

per_isa! {
    /// `g·(k + share·sum)^(−β) − factor·x·slope`.
    fn slopes<T: Element>(local: &LocalResponse, inputs: [&[Plane<T>]; 2], sums: [&[Plane<f64>]; 2], out: &mut [Plane<T>]) {
        let ([g, x], [sum, slope]) = (inputs, sums);
        let (share, factor) = (local.share(), 2.0 * local.beta * local.share());
        for ((out, (g, x)), (sum, slope)) in out.iter_mut().zip(g.iter().zip(x)).zip(sum.iter().zip(slope)) {
            for ((out, (g, x)), (sum, slope)) in out.iter_mut().zip(g.iter().zip(x)).zip(sum.iter().zip(slope)) {
                let scale = math::fma::<f64, FUSED>(share, *sum, local.k);
                let own = g.to_f64() * math::power::<FUSED>(scale, -local.beta);
                *out = T::from_f64(own - factor * x.to_f64() * slope);
            }
        }
    }
}

/// `Σ x²` for each channel of a group, over its window in the order of channels.
fn squares<T: Element>(
    isa: Isa,
    local: &LocalResponse,
    run: &Run<T>,
    x: &View<'_, T>,
    group: usize,
) -> Planes<f64> {
    let channels = run.channels();
    let last = (group + GROUP).min(channels) - 1;
    let read = local.window(group, channels).start..local.window(last, channels).end;
    let mut values = [[T::ZERO; PIXELS]; GROUP];
    let mut sums = [[0.0; PIXELS]; GROUP];
    for first in (read.start..read.end).step_by(GROUP) {
        for (source, x) in (first..read.end).zip(run.read(x, first, &mut values)) {
            let reads = local.readers(source, channels);
            let sums = &mut sums[reads.start.max(group) - group..reads.end.min(last + 1) - group];
            add_squares(isa, x, sums);
        }
    }
    sums
}

/// `x[c]·s[c]^(−β)` of `[x]`.
pub(super) fn forward<T: Element>(
    isa: Isa,
    local: &LocalResponse,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_runs(&inputs[..1], output, region, 16, |run| {
        let [mut values, mut out]: [Planes<T>; 2] = [[[T::ZERO; PIXELS]; GROUP]; 2];
        for group in run.groups() {
            let sums = squares(isa, local, run, x, group);
            respond(isa, local, run.read(x, group, &mut values), &sums, &mut out);
            run.write(group, &out);
        }
    });
}

/// The gradient of `[gy, x]`.
pub(super) fn backward<T: Element>(
    isa: Isa,
    local: &LocalResponse,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (g, x) = (&inputs[0], &inputs[1]);
    for_runs(&inputs[..2], output, region, 48, |run| {
        let [mut gradients, mut values, mut out]: [Planes<T>; 3] = [[[T::ZERO; PIXELS]; GROUP]; 3];
        let mut shares = [[0.0; PIXELS]; GROUP];
        let channels = run.channels();
        for group in run.groups() {
            let last = (group + GROUP).min(channels) - 1;
            let read = local.readers(group, channels).start..local.readers(last, channels).end;
            let mut slope = [[0.0; PIXELS]; GROUP];
            for first in (read.start..read.end).step_by(GROUP) {
                let sums = squares(isa, local, run, x, first);
                let planes = [run.read(g, first, &mut gradients), run.read(x, first, &mut values)];
                terms(isa, local, planes[0], planes[1], &sums, &mut shares);
                for (source, share) in (first..read.end).zip(&shares) {
                    let reads = local.window(source, channels);
                    let slope = &mut slope[reads.start.max(group) - group..reads.end.min(last + 1) - group];
                    add(isa, share, slope);
                }
            }
            let sums = squares(isa, local, run, x, group);
            let planes = [run.read(g, group, &mut gradients), run.read(x, group, &mut values)];
            slopes(isa, local, planes, [&sums, &slope], &mut out);
            run.write(group, &out);
        }
    });
}
