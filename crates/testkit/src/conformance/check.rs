//! One computation, carried out whole and in parts.

use tiled_geometry::{Grid, Interval, Region};
use tiled_kernel::{Backend, Kernel, Reference};
use tiled_tensor::{Element, Tensor};

use super::case::{Case, map_tensor};
use super::opened::Opened;
use super::rng::Rng;
use super::window::{Held, MOST_SPARE_ROWS, extents, grow, needed, visit};
use crate::tolerance::{self, Tolerance};

impl<T: Element> Case<T> {
    /// Checks that the whole output is near the reference's, and that every region of it has the same bits
    /// whatever the windows it is computed from.
    ///
    /// # Panics
    /// Where it does not hold, with the case.
    pub fn check(&self, backend: &dyn Backend<T>, rng: &mut Rng) {
        let whole = self.whole(backend);
        self.check_near_reference(backend, &whole);
        let mut opened = self.open(backend);
        self.check_region(backend, &mut opened, &whole, Region::EMPTY, rng);
        let extents = extents(self.output);
        let partitions: [[i64; 2]; 4] = [
            [rng.range(1, 4), extents[1]],
            [rng.range(1, extents[0]), rng.range(1, extents[1])],
            [rng.range(1, 3), rng.range(1, 9)],
            [1, 1],
        ];
        for tile in partitions {
            let grid = Grid::from_tile(extents, tile).expect("sizes are positive");
            // single pixels of a large output: a sample of them
            let keep = 100 * 24 / grid.len().max(24);
            for region in grid.tiles() {
                if rng.chance(keep.max(1) as u64) {
                    self.check_region(backend, &mut opened, &whole, region, rng);
                }
            }
        }
        self.check_kept(backend, &mut opened, &whole, rng);
        for _ in 0..4 {
            let axes = extents.map(|extent| {
                let begin = rng.range(0, extent - 1);
                Interval::new(begin, rng.range(begin, extent))
            });
            self.check_region(backend, &mut opened, &whole, Region::new(axes), rng);
        }
    }

    /// Checks that a convolution with an epilogue gives the bits of its steps one after another.
    pub(super) fn check_steps(&self, backend: &dyn Backend<T>) {
        let epilogue = *self.kernel.epilogue().expect("a convolution");
        let (own, factors) = self.params.split_at(self.params.len() - if epilogue.affine { 2 } else { 0 });
        let step = |kernel: Kernel, params: &[Vec<T>], inputs: Vec<Tensor<T>>| {
            Case { kernel, params: params.to_vec(), inputs, output: self.output }.whole(backend)
        };
        let sums = self.kernel.with_epilogue(epilogue.bias_alone());
        let mut value = step(sums, own, vec![self.inputs[0].clone()]);
        if epilogue.affine {
            value = step(Kernel::ChannelAffine { activation: None }, factors, vec![value]);
        }
        if epilogue.sum {
            value = step(Kernel::Add, &[], vec![value, self.inputs[1].clone()]);
        }
        if let Some(activation) = epilogue.activation {
            value = step(Kernel::Activation(activation), &[], vec![value]);
        }
        if let Some(activation) = epilogue.mask {
            let saved = self.inputs.last().expect("a mask has an input").clone();
            value = step(Kernel::ActivationBackward(activation), &[], vec![value, saved]);
        }
        let fused = self.whole(backend);
        for (got, expected) in fused.data().iter().zip(value.data()) {
            let same = got.to_bits_u64() == expected.to_bits_u64();
            let (got, expected) = (got.to_f64(), expected.to_f64());
            assert!(same, "{}: {got:e}, in steps {expected:e}\n{}", backend.name(), self.describe());
        }
    }

    fn check_near_reference(&self, backend: &dyn Backend<T>, whole: &Tensor<T>) {
        let (expected, bound) = match tolerance::of(self, self.factor_rounding(backend)) {
            Tolerance::Exact => (map_tensor(&self.whole(&Reference), T::to_f64), None),
            Tolerance::Bound(bound) => (self.map(T::to_f64).whole(&Reference), Some(bound)),
        };
        let (got, expected) = (whole.view(), expected.view());
        visit(self.output[0], self.output[1], got.region(), |n, c, y, x| {
            let (g, e) = (got.get(n, c, y, x).to_f64(), expected.get(n, c, y, x));
            let allowed = bound.as_ref().map_or(0.0, |bound| bound.view().get(n, c, y, x));
            let agrees = g == e || (g.is_nan() && e.is_nan()) || (g - e).abs() <= allowed;
            assert!(
                agrees,
                "{}: at [{n},{c},{y},{x}] got {g:e}, reference {e:e}, allowed difference {allowed:e}\n{}",
                backend.name(),
                self.describe(),
            );
        });
    }

    /// Computes the rows in two parts into a value that is kept whole; compares bits.
    fn check_kept(
        &self,
        backend: &dyn Backend<T>,
        opened: &mut Opened<'_, T>,
        whole: &Tensor<T>,
        rng: &mut Rng,
    ) {
        let extents = extents(self.output);
        let all = Region::whole(extents);
        let windows: Vec<Held<T>> =
            self.inputs.iter().map(|input| Held::whole(input, backend.block(input.shape()[1]))).collect();
        let block = backend.block(self.output[1]);
        let mut output = Held::filled(self.output, block, all, 0, T::from_f64(f64::NAN));
        let cut = rng.range(0, extents[0]);
        let rows = [Interval::new(0, cut), Interval::new(cut, extents[0])];
        let parts = rows.map(|rows| Region::from_rows_cols(rows, all.cols()));
        opened.compute_kept(&self.kernel, &windows, &mut output, &parts);
        let (got, whole) = (output.view(), whole.view());
        visit(self.output[0], self.output[1], all, |n, c, y, x| {
            let [got, expected] = [got, whole].map(|view| view.get(n, c, y, x));
            let same = got.to_bits_u64() == expected.to_bits_u64() || (got.is_nan() && expected.is_nan());
            let (name, what) = (backend.name(), self.describe());
            let [got, expected] = [got, expected].map(T::to_f64);
            assert!(same, "{name}: at [{n},{c},{y},{x}] kept {got:e}, in a window {expected:e}\n{what}");
        });
    }

    /// Computes a region from random windows; compares bits, and that nothing else was written.
    fn check_region(
        &self,
        backend: &dyn Backend<T>,
        opened: &mut Opened<'_, T>,
        whole: &Tensor<T>,
        region: Region<2>,
        rng: &mut Rng,
    ) {
        let untouched = T::from_f64(-1234.5);
        let windows: Vec<Held<T>> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(index, input)| {
                let shape = input.shape();
                let needed = needed(&self.kernel, index, extents(shape), region);
                Held::around(input, backend.block(shape[1]), needed, rng)
            })
            .collect();
        let held = if region.is_empty() {
            Region::whole(extents(self.output))
        } else {
            grow(region, extents(self.output), rng)
        };
        let block = backend.block(self.output[1]);
        let mut output = Held::filled(self.output, block, held, rng.index(0, MOST_SPARE_ROWS), untouched);
        opened.compute(&self.kernel, &windows, &mut output, region);
        let (got, whole) = (output.view(), whole.view());
        visit(self.output[0], self.output[1], held, |n, c, y, x| {
            let inside = region.rows().contains(y) && region.cols().contains(x);
            let expected = if inside { whole.get(n, c, y, x) } else { untouched };
            let value = got.get(n, c, y, x);
            assert!(
                value.to_bits_u64() == expected.to_bits_u64() || (value.is_nan() && expected.is_nan()),
                "{}: at [{n},{c},{y},{x}] region {region} gives {value:e}, {} {expected:e}\n\
                 output window {held} ring {}, input windows {:?}\n{}",
                backend.name(),
                if inside { "the whole gives" } else { "outside the region there was" },
                output.layout.ring(),
                windows.iter().map(|w| (w.layout.region(), w.layout.ring())).collect::<Vec<_>>(),
                self.describe(),
                value = value.to_f64(),
                expected = expected.to_f64(),
            );
        });
    }
}
