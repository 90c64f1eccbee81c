//! Reductions, in one share and in many.

use tiled_geometry::{Grid, Region};
use tiled_kernel::{Backend, Conv, Operands, Partial, Reduction, Reference, Work};
use tiled_tensor::{Element, Tensor};

use super::case::map_tensor;
use super::generate;
use super::opened::Opened;
use super::rng::Rng;
use super::window::{Held, extents};
use crate::tolerance::count;

/// A reduction with its operands, whole.
#[derive(Clone, Debug)]
struct Case<T: Element> {
    reduction: Reduction,
    params: Vec<Vec<T>>,
    inputs: Vec<Tensor<T>>,
    batch: usize,
    channels: usize,
    domain: [i64; 2],
}

/// Checks [`Reduction::ConvWeight`]: near the reference for any shares, and the same bits for the same shares
/// whatever the windows.
///
/// # Panics
/// Where a check fails.
pub fn check_conv2d_backward_weight<T: Element>(backend: &dyn Backend<T>, seed: u64, cases: usize) {
    for index in 0..cases {
        let mut rng = Rng::of_case("check_conv2d_backward_weight", seed, index);
        let (conv, batch) = generate::conv(&mut rng);
        check_gradient_of_weights(backend, conv, batch, &mut rng);
    }
}

/// The same of one convolution.
///
/// # Panics
/// Where a check fails.
pub fn check_gradient_of_weights<T: Element>(
    backend: &dyn Backend<T>,
    conv: Conv,
    batch: usize,
    rng: &mut Rng,
) {
    let case: Case<T> = Case {
        reduction: Reduction::ConvWeight(conv),
        params: Vec::new(),
        inputs: vec![
            generate::tensor(generate::shape(batch, conv.in_channels, conv.input), rng),
            generate::tensor(generate::shape(batch, conv.out_channels, conv.output), rng),
        ],
        batch,
        channels: conv.out_channels,
        domain: conv.output,
    };
    case.check_weights(backend, &conv, rng);
}

/// Checks every exact reduction: the sums of the reference to the last bit, for any shares and lanes.
///
/// # Panics
/// Where a check fails.
pub fn check_reductions<T: Element>(backend: &dyn Backend<T>, seed: u64, cases: usize) {
    for index in 0..cases {
        let mut rng = Rng::of_case("check_reductions", seed, index);
        let case: Case<T> = exact_case(&mut rng, index);
        case.check_exact(backend, &mut rng);
    }
}

fn exact_case<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let mut shape = generate::plain_shape(rng);
    // a second round has rows that are wide
    let is_wide = index / 11 % 2 == 1;
    if is_wide {
        shape = [1, shape[1], 2, rng.index(130, 600)];
    }
    let [batch, channels, height, width] = shape;
    let mut params = Vec::new();
    let mut inputs = vec![generate::tensor(shape, rng)];
    let reduction = match index % 11 {
        0 => Reduction::ChannelSum,
        1 => Reduction::ImageSum,
        2 => {
            // numbers of very different size: the bins of a fast path overflow their range
            inputs = vec![map_tensor(&inputs[0], |x: T| {
                if is_wide && rng.index(0, 200) == 0 {
                    return T::from_f64(rng.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 3e38, 1e-42]));
                }
                x * T::from_f64(2f64.powi(i32::try_from(rng.range(-60, 60)).expect("small")))
            })];
            Reduction::Moments
        }
        3 => {
            inputs.push(generate::tensor(shape, rng));
            params.push((0..channels).map(|_| T::from_f64(rng.uniform(-1.0, 1.0))).collect());
            Reduction::CentredDot
        }
        4 => {
            inputs = vec![generate::with_ties(shape, rng)];
            Reduction::ImageMax
        }
        5 => Reduction::Sum,
        6 => {
            inputs.push(generate::tensor(shape, rng));
            Reduction::SquaredError
        }
        7 => Reduction::ImageMoments,
        8 => {
            inputs.push(generate::tensor(shape, rng));
            params.push((0..batch * channels).map(|_| T::from_f64(rng.uniform(-1.0, 1.0))).collect());
            Reduction::ImageCentredDot
        }
        9 => {
            inputs.push(generate::tensor(shape, rng));
            Reduction::ChannelDot
        }
        _ => {
            inputs.push(generate::target(shape, rng));
            Reduction::CrossEntropy
        }
    };
    let domain = extents([batch, channels, height, width]);
    Case { reduction, params, inputs, batch, channels, domain }
}

impl<T: Element> Case<T> {
    /// The backend with the memory of this case.
    fn open<'b>(&self, backend: &'b dyn Backend<T>) -> Opened<'b, T> {
        let shapes: Vec<_> = self.inputs.iter().map(Tensor::shape).collect();
        let domain = [self.batch, self.channels];
        Opened::for_reduction(backend, &self.reduction, &self.params, domain, &shapes)
    }

    /// Windows around what a share needs.
    fn windows(&self, backend: &dyn Backend<T>, share: Region<2>, rng: &mut Rng) -> Vec<Held<T>> {
        let window = |(index, input): (usize, &Tensor<T>)| {
            let needed = match self.reduction {
                Reduction::ConvWeight(conv) if index == 0 && !share.is_empty() => {
                    let [rows, cols] = share.axes();
                    Region::new([conv.windows[0].receptive(rows), conv.windows[1].receptive(cols)])
                        .intersect(Region::whole(conv.input))
                }
                _ => share,
            };
            Held::around(input, backend.block(input.shape()[1]), needed, rng)
        };
        self.inputs.iter().enumerate().map(window).collect()
    }

    /// What is gathered of these shares, by lanes.
    fn gather(&self, backend: &dyn Backend<T>, lanes: &[&[Region<2>]], rng: &mut Rng) -> Partial<T> {
        let mut opened = self.open(backend);
        for (lane, shares) in lanes.iter().enumerate() {
            for share in *shares {
                opened.reduce(lane, &self.windows(backend, *share, rng), *share);
            }
        }
        opened.gathered()
    }

    /// Random disjoint shares that cover the domain, and an empty one.
    fn shares(&self, rng: &mut Rng) -> Vec<Region<2>> {
        let tile = self.domain.map(|extent| rng.range(1, extent));
        let grid = Grid::from_tile(self.domain, tile).expect("positive sizes");
        let mut shares: Vec<_> = grid.tiles().collect();
        shares.insert(rng.index(0, shares.len()), Region::EMPTY);
        shares
    }

    fn check_exact(&self, backend: &dyn Backend<T>, rng: &mut Rng) {
        let whole = Region::whole(self.domain);
        let expected = self.gather(&Reference, &[&[whole]], rng);
        let at_once = self.gather(backend, &[&[whole]], rng);
        let what = || format!("{}: {:?} of {:?}", backend.name(), self.reduction, self.inputs[0].shape());
        if self.reduction == Reduction::CrossEntropy {
            self.assert_near(&at_once, &expected, &what);
        } else {
            assert_same(&at_once, &expected, || format!("{}, against the reference", what()));
        }
        // the shares dealt to two lanes, each from its own end
        let mut shares = self.shares(rng);
        let mut rest = shares.split_off(shares.len() / 2);
        rest.reverse();
        let in_lanes = self.gather(backend, &[&shares, &rest], rng);
        assert_same(&in_lanes, &at_once, || format!("{}, shares {shares:?} and {rest:?}", what()));
    }

    /// Losses use an exponential and a logarithm, which differ between backends.
    ///
    /// A pixel's loss errs by the rounding of scores of size up to 9, `(C + 64)·ε` or so, times `1 + loss`.
    fn assert_near(&self, got: &Partial<T>, expected: &Partial<T>, what: &dyn Fn() -> String) {
        let (Partial::Exact(got), Partial::Exact(expected)) = (got, expected) else {
            panic!("{}: not exact sums", what());
        };
        let (loss, pixels) = (expected[0].value(), expected[1].value());
        let per_pixel = (count(self.channels) + 64.0) * T::EPSILON.to_f64();
        let bound = per_pixel * (pixels * count(self.channels) + loss);
        let difference = (got[0].value() - loss).abs();
        assert!(difference <= bound, "{}: loss {} of {loss}, allowed {bound:e}", what(), got[0].value());
        assert_eq!(got[1], expected[1], "{}: pixels that count", what());
    }

    fn check_weights(&self, backend: &dyn Backend<T>, conv: &Conv, rng: &mut Rng) {
        let expected = self.map(T::to_f64).weights(&Reference, &[Region::whole(self.domain)], rng);
        let sizes = self.map(|x| x.to_f64().abs()).weights(&Reference, &[Region::whole(self.domain)], rng);
        let pixels = usize::try_from(self.domain[0] * self.domain[1]).expect("positive extents");
        // (n + 2)·ε·Σ|x·gy|, any order of the n terms; see `tolerance`
        let operands = Operands { batch: self.batch, inputs: &[], params: &[], channels: self.channels };
        let support = backend.support(&Work::Reduce(self.reduction), &operands);
        let rounding = support.map_or(0.0, |support| support.factor_rounding);
        let factor = count(self.batch * pixels + 2) * T::EPSILON.to_f64() + 2.001 * rounding;
        for shares in [vec![Region::whole(self.domain)], self.shares(rng)] {
            let got = self.weights(backend, &shares, rng);
            let what = || {
                let inputs: Vec<_> = self.inputs.iter().map(Tensor::shape).collect();
                format!("{}: {conv:?}\ninputs {inputs:?}, shares {shares:?}", backend.name())
            };
            for (at, ((got, expected), size)) in got.iter().zip(&expected).zip(&sizes).enumerate() {
                let (got, bound) = (got.to_f64(), factor * size);
                assert!(
                    (got - expected).abs() <= bound,
                    "weight {at} is {got:e}, reference {expected:e}, allowed difference {bound:e}\n{}",
                    what(),
                );
            }
            let again = self.weights(backend, &shares, rng);
            let bits = |values: &[T]| values.iter().map(|value| value.to_bits_u64()).collect::<Vec<_>>();
            assert!(bits(&got) == bits(&again), "other windows give other bits\n{}", what());
        }
    }

    /// The gradient of the weights over these shares, OIHW.
    fn weights(&self, backend: &dyn Backend<T>, shares: &[Region<2>], rng: &mut Rng) -> Vec<T> {
        let Reduction::ConvWeight(conv) = self.reduction else { panic!("invariant: weights alone") };
        let mut opened = self.open(backend);
        for share in shares {
            opened.reduce(0, &self.windows(backend, *share, rng), *share);
        }
        opened.weights(conv.weight_len())
    }

    fn map<U: Element>(&self, f: impl Fn(T) -> U) -> Case<U> {
        Case {
            reduction: self.reduction,
            params: self.params.iter().map(|param| param.iter().map(|value| f(*value)).collect()).collect(),
            inputs: self.inputs.iter().map(|input| map_tensor(input, &f)).collect(),
            batch: self.batch,
            channels: self.channels,
            domain: self.domain,
        }
    }
}

fn assert_same<T: Element>(got: &Partial<T>, expected: &Partial<T>, what: impl Fn() -> String) {
    match (got, expected) {
        (Partial::Exact(got), Partial::Exact(expected)) => {
            assert_eq!(got.len(), expected.len(), "{}: slots", what());
            for (slot, (got, expected)) in got.iter().zip(expected).enumerate() {
                assert!(got == expected, "{}: sum {slot} is {got:?}, expected {expected:?}", what());
            }
        }
        (Partial::Extrema(got), Partial::Extrema(expected)) => {
            assert_eq!(got.len(), expected.len(), "{}: slots", what());
            for (slot, (got, expected)) in got.iter().zip(expected).enumerate() {
                let same_value =
                    got.value == expected.value || (got.value.is_nan() && expected.value.is_nan());
                let same = same_value && got.position == expected.position;
                assert!(same, "{}: maximum {slot} is {got:?}, expected {expected:?}", what());
            }
        }
        _ => panic!("{}: states of different kinds", what()),
    }
}
