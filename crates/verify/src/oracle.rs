//! The CPU backend is right and not only consistent: every call of random cases against the reference.

use std::sync::Mutex;

use tiled::cpu::CpuBackend;
use tiled::exec::NoProgress;
use tiled::geometry::Region;
use tiled::kernel::{
    Backend, Host, Kernel, Operands, Params, Partial, Reduction, Reference, Support, Work, Workspace, forward,
};
use tiled::tensor::{AlignedBuffer, Element, View, ViewMut};

use super::{Subject, VerifyOptions, verify_on};

/// The CPU backend, each of whose calls the reference repeats on the same windows.
#[derive(Debug)]
struct Shadowed {
    backend: CpuBackend,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    compared: u64,
    wrong: Vec<String>,
}

impl Shadowed {
    fn compare<T: Element>(&self, what: &str, bound: f64, pairs: impl Iterator<Item = (T, T)>) {
        let mut log = self.log.lock().expect("nobody panics");
        for (i, (got, expected)) in pairs.enumerate() {
            log.compared += 1;
            let difference = (got.to_f64() - expected.to_f64()).abs();
            let is_near = difference <= bound; // NaN is not
            if !is_near && log.wrong.len() < 20 {
                log.wrong.push(format!("{what}: element {i} is {got}, expected {expected} ± {bound:e}"));
            }
        }
    }
}

impl<T: Element> Backend<T> for Shadowed {
    forward!(T, |shadowed| &shadowed.backend; name block seconds transfers_beside workers open_own);

    /// The parameters as the CPU backend packs them, then as they are; nothing is written in place, where nobody would look.
    fn support(&self, work: &Work, operands: &Operands<'_>) -> Option<Support> {
        let support = Backend::<T>::support(&self.backend, work, operands)?;
        let plain = operands.params.iter().sum::<usize>() * size_of::<T>();
        Some(Support { packed_bytes: support.packed_bytes + plain, writes_planes: false, ..support })
    }
}

impl<T: Element> Host<T> for Shadowed {
    forward!(T, |shadowed| &shadowed.backend; compute_part unpack copy);

    fn pack(&self, kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
        let lens: Vec<usize> = params.iter().map(|param| param.len()).collect();
        let own = (&self.backend as &dyn Host<T>).packed_len(kernel, &lens);
        let (packed, plain) = packed.split_at_mut(own);
        self.backend.pack(kernel, params, packed);
        Reference.pack(kernel, params, plain);
    }

    fn compute(
        &self,
        kernel: &Kernel,
        params: Params<'_, T>,
        inputs: &[View<'_, T>],
        mut output: ViewMut<'_, T>,
        region: Region<2>,
        workspace: &Workspace<T>,
    ) {
        let backend: &dyn Host<T> = &self.backend;
        let (own, plain) = match params {
            Params::Packed(packed) => {
                let plain = plain_len(kernel, packed.len(), |params| backend.packed_len(kernel, params));
                let (own, plain) = packed.split_at(packed.len() - plain);
                (Params::Packed(own), Params::Packed(plain))
            }
            Params::Extrema(_) => (params, params),
        };
        self.backend.compute(kernel, own, inputs, output.reborrow(), region, workspace);
        let layout = *output.layout();
        let mut expected = AlignedBuffer::new(layout.len());
        Reference.compute(kernel, plain, inputs, ViewMut::new(&mut expected, layout), region, workspace);
        let (got, expected) = (output.as_view(), View::new(&expected, layout));
        let largest = inputs.iter().map(|input| largest(input)).fold(1.0, f64::max);
        let weights = match plain {
            Params::Packed(plain) => plain.iter().map(|value| value.to_f64().abs()).fold(1.0, f64::max),
            Params::Extrema(_) => 1.0,
        };
        let is_scaled = kernel.epilogue().is_some_and(|epilogue| epilogue.affine);
        let scale = if is_scaled { weights } else { 1.0 };
        let bound = 64.0 * T::EPSILON.to_f64() * terms(kernel) * weights * scale * largest * largest;
        let pixels = (0..layout.batch()).flat_map(|n| (0..layout.channels()).map(move |c| (n, c))).flat_map(
            |(n, c)| {
                let cols = region.cols();
                let rows = region.rows();
                (rows.begin()..rows.end())
                    .flat_map(move |y| (cols.begin()..cols.end()).map(move |x| (n, c, y, x)))
            },
        );
        let pairs = pixels.map(|(n, c, y, x)| (got.get(n, c, y, x), expected.get(n, c, y, x)));
        self.compare(&format!("{} {region}", kernel.name()), bound, pairs);
    }

    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[T]],
        inputs: &[View<'_, T>],
        share: Region<2>,
        partial: &mut Partial<T>,
    ) {
        self.backend.reduce(reduction, params, inputs, share, partial);
        if let Reduction::ConvWeight(conv) = reduction {
            let [got, expected]: [Vec<T>; 2] = [&self.backend as &dyn Host<T>, &Reference].map(|backend| {
                let mut partial =
                    backend.partial(reduction, 0, 0).unwrap_or_else(|error| panic!("the oracle: {error}"));
                backend.reduce(reduction, params, inputs, share, &mut partial);
                let mut weights = vec![T::ZERO; conv.weight_len()];
                match &partial {
                    Partial::Values(values) => backend.unpack(reduction, values, &mut weights),
                    other => panic!("a weight gradient gathered {other:?}"),
                }
                weights
            });
            let batch = inputs[0].layout().batch() as u64;
            let count = (share.volume().unsigned_abs() * batch) as f64;
            // two sums of n terms, each off by at most (n + 1)·ε/2·Σ|term|; Higham, "Accuracy and Stability of
            // Numerical Algorithms", section 4.2 (2002)
            let size = count * largest(&inputs[0]) * largest(&inputs[1]);
            let bound = (count + 1.0) * T::EPSILON.to_f64() * size;
            self.compare(reduction.name(), bound, got.into_iter().zip(expected));
        }
    }
}

/// The parameters' own elements among those packed, which come last.
fn plain_len(kernel: &Kernel, total: usize, packed_len: impl Fn(&[usize]) -> usize) -> usize {
    let Some(lens) = own_lens(kernel) else { return total / 2 };
    assert_eq!(packed_len(&lens) + lens.iter().sum::<usize>(), total);
    lens.iter().sum()
}

/// The lengths of the parameters of a convolution.
fn own_lens(kernel: &Kernel) -> Option<Vec<usize>> {
    let (conv, channels) = match kernel {
        Kernel::Conv2d { conv, .. } => (conv, conv.out_channels),
        Kernel::Conv2dBackwardInput { conv, .. } => (conv, conv.in_channels),
        _ => return None,
    };
    let epilogue = kernel.epilogue()?;
    let mut lens = vec![conv.weight_len()];
    lens.extend(epilogue.bias.then_some(channels));
    lens.extend(epilogue.affine.then_some([channels; 2]).into_iter().flatten());
    Some(lens)
}

/// The terms of the longest sum, where each is at most a weight times one or two inputs.
fn terms(kernel: &Kernel) -> f64 {
    let count = match kernel {
        Kernel::Conv2d { conv, .. } | Kernel::Conv2dBackwardInput { conv, .. } => conv.weight_len(),
        _ => 64,
    };
    count as f64
}

/// The largest size of what a window holds.
fn largest<T: Element>(window: &View<'_, T>) -> f64 {
    let layout = window.layout();
    let mut largest = 0.0_f64;
    for n in 0..layout.batch() {
        for c in 0..layout.channels() {
            for y in layout.rows().begin()..layout.rows().end() {
                for x in layout.cols().begin()..layout.cols().end() {
                    largest = largest.max(window.get(n, c, y, x).to_f64().abs());
                }
            }
        }
    }
    largest
}

#[test]
fn every_call_of_a_hundred_random_cases_agrees_with_the_reference() {
    let backend = CpuBackend::new().expect("an instruction set");
    let shadowed = Shadowed { backend, log: Mutex::default() };
    let options = VerifyOptions { cases: 100, seed: 5, threads: 2, ..VerifyOptions::default() };
    let report = verify_on(&options, &NoProgress, Subject::of(&shadowed), Subject::of(&shadowed))
        .expect("nobody cancels");
    assert!(report.passed(), "{:#?}", report.failures);
    let log = shadowed.log.into_inner().expect("nobody panics");
    assert!(log.wrong.is_empty(), "{:#?}", log.wrong);
    assert!(log.compared > 100_000, "{} elements compared", log.compared);
}
