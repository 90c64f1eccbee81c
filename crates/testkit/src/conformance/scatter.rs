//! The gradient of a global maximum, from what a reduction of the same run has found.

use tiled_geometry::{Interval, Region};
use tiled_kernel::{Backend, Kernel, Partial};
use tiled_tensor::{Element, Tensor};

use super::generate;
use super::opened::Opened;
use super::rng::Rng;
use super::window::{Held, MOST_SPARE_ROWS, extents, grow, needed, visit};

/// Where the part of an image lies that is looked at: at its corner, and beyond the whole numbers of `f32` and of `f64`.
const ORIGINS: [i64; 3] = [0, (1 << 24) + 1, (1 << 53) + 1];

/// Checks [`Kernel::Scatter`]: the positions are those of the maxima, however far they are, for any shares, lanes, regions and
/// windows.
///
/// # Panics
/// Where a check fails.
pub fn check_scatter<T: Element>(backend: &dyn Backend<T>, seed: u64, cases: usize) {
    for index in 0..cases {
        let mut rng = Rng::of_case("check_scatter", seed, index);
        Case::draw(&mut rng).check(backend, &mut rng);
    }
}

/// An image with one maximum in each channel, and the gradient that goes there.
struct Case<T: Element> {
    /// The image, as large as it is looked at.
    shape: [usize; 4],
    /// Where that lies.
    held: Region<2>,
    /// By images, then channels.
    positions: Vec<[i64; 2]>,
    gradient: Tensor<T>,
}

impl<T: Element> Case<T> {
    fn draw(rng: &mut Rng) -> Self {
        let shape = generate::plain_shape(rng);
        let [batch, channels, ..] = shape;
        let axes = extents(shape).map(|extent| {
            let begin = rng.pick(&ORIGINS);
            Interval::new(begin, begin + extent)
        });
        let mut position = || axes.map(|axis| rng.range(axis.begin(), axis.end() - 1));
        let positions = (0..batch * channels).map(|_| position()).collect();
        let gradient = generate::tensor([batch, channels, 1, 1], rng);
        Self { shape, held: Region::new(axes), positions, gradient }
    }

    fn position(&self, n: usize, c: usize) -> [i64; 2] {
        self.positions[n * self.shape[1] + c]
    }

    fn check(&self, backend: &dyn Backend<T>, rng: &mut Rng) {
        let mut opened = Opened::for_extrema(backend, &Kernel::Scatter, self.shape);
        let [batch, channels, ..] = self.shape;
        let (block, nothing) = (backend.block(channels), T::from_f64(f64::NAN));
        let [upper, lower] = halves(self.held.rows(), rng);
        for (lane, rows) in [lower, upper].into_iter().enumerate() {
            let share = self.held.with_axis(0, rows);
            let mut image = Held::filled(self.shape, block, share, rng.index(0, MOST_SPARE_ROWS), nothing);
            image.fill(|n, c, at| if self.position(n, c) == at { 2.0 } else { rng.uniform(-1.0, 1.0) });
            opened.reduce(lane, &[image], share);
        }
        match opened.gathered() {
            Partial::Extrema(found) => {
                assert_eq!(found.len(), batch * channels, "{}: one for each channel", backend.name());
                for (extremum, position) in found.iter().zip(&self.positions) {
                    assert_eq!(extremum.position, Some(*position), "{}: {}", backend.name(), self.held);
                }
            }
            other => panic!("{}: a maximum gathered {other:?}", backend.name()),
        }
        for region in [self.held, Region::EMPTY] {
            self.check_region(backend, &mut opened, region, rng);
        }
        for rows in halves(self.held.rows(), rng) {
            for cols in halves(self.held.cols(), rng) {
                self.check_region(backend, &mut opened, Region::from_rows_cols(rows, cols), rng);
            }
        }
    }

    /// Computes a region in a random window around it; compares bits, and that nothing else was written.
    fn check_region(
        &self,
        backend: &dyn Backend<T>,
        opened: &mut Opened<'_, T>,
        region: Region<2>,
        rng: &mut Rng,
    ) {
        let kernel = Kernel::Scatter;
        let [batch, channels, ..] = self.shape;
        let (block, untouched) = (backend.block(channels), T::from_f64(-1234.5));
        let gradient = Held::around(&self.gradient, block, needed(&kernel, 0, [1, 1], region), rng);
        let held = if region.is_empty() {
            self.held
        } else {
            grow(region, self.held.axes().map(Interval::end), rng).intersect(self.held)
        };
        let mut output = Held::filled(self.shape, block, held, rng.index(0, MOST_SPARE_ROWS), untouched);
        opened.compute(&kernel, &[gradient], &mut output, region);
        let got = output.view();
        visit(batch, channels, held, |n, c, y, x| {
            let expected = if !(region.rows().contains(y) && region.cols().contains(x)) {
                untouched
            } else if self.position(n, c) == [y, x] {
                self.gradient.view().get(n, c, 0, 0)
            } else {
                T::ZERO
            };
            let value = got.get(n, c, y, x);
            assert!(
                value.to_bits_u64() == expected.to_bits_u64(),
                "{}: at [{n},{c},{y},{x}] region {region} gives {value:e}, expected {expected:e}, in a window \
                 {held} of an image {}",
                backend.name(),
                self.held,
                value = value.to_f64(),
                expected = expected.to_f64(),
            );
        });
    }
}

/// The interval in two, of which one may be empty.
fn halves(interval: Interval, rng: &mut Rng) -> [Interval; 2] {
    let cut = rng.range(interval.begin(), interval.end());
    [Interval::new(interval.begin(), cut), Interval::new(cut, interval.end())]
}
