//! Activations that compare and compute nothing: they are applied in registers, before a tile is written.

use tiled_kernel::Activation;
use tiled_tensor::Element;

use crate::vector::Simd;

/// What values are kept within, as numbers or as vectors of one number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Limits<V> {
    None,
    /// [`Activation::Relu`].
    Relu,
    /// [`Activation::Clamp`], with `min` and `max`.
    Clamp([V; 2]),
}

impl<E: Element> Limits<E> {
    /// Those that an activation sets; none for one that is no such activation.
    pub(super) fn of(activation: Option<Activation>) -> Self {
        match activation {
            Some(Activation::Relu) => Self::Relu,
            Some(Activation::Clamp { min, max }) => Self::Clamp([min, max].map(E::from_f64)),
            _ => Self::None,
        }
    }

    /// The same of vectors.
    #[inline(always)]
    pub(super) fn splat<S: Simd<E = E>>(self, simd: S) -> Limits<S::V> {
        match self {
            Self::None => Limits::None,
            Self::Relu => Limits::Relu,
            Self::Clamp(bounds) => Limits::Clamp(bounds.map(|bound| simd.splat(bound))),
        }
    }

    /// One value within them.
    pub(super) fn value(self, value: E) -> E {
        match self {
            Self::None => value,
            Self::Relu if value <= E::ZERO => E::ZERO,
            Self::Relu => value,
            Self::Clamp([min, max]) => {
                let value = if value < min { min } else { value };
                if value > max { max } else { value }
            }
        }
    }
}

impl<V: Copy> Limits<V> {
    /// A vector within them.
    #[inline(always)]
    pub(super) fn vector<S: Simd<V = V>>(self, simd: S, value: V) -> V {
        match self {
            Self::None => value,
            Self::Relu => simd.relu(value),
            Self::Clamp(bounds) => simd.clamp(value, bounds),
        }
    }

    /// The vectors of a tile within them.
    #[inline(always)]
    pub(super) fn tile<S: Simd<V = V>, const P: usize, const N: usize>(
        self,
        simd: S,
        tile: &mut [[V; N]; P],
    ) {
        // asked once for all of them; the loops are unrolled, as sums that are in registers need
        match self {
            Self::None => {}
            Self::Relu => {
                for pixel in tile {
                    for value in pixel {
                        *value = simd.relu(*value);
                    }
                }
            }
            Self::Clamp(bounds) => {
                for pixel in tile {
                    for value in pixel {
                        *value = simd.clamp(*value, bounds);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::ops::elementwise::activate;
    use crate::vector::{self, Lane, MAX_LANES, Routine};

    /// Writes values within limits, a vector at a time.
    struct Within<'v, E> {
        limits: Limits<E>,
        values: &'v mut [E; MAX_LANES],
    }

    impl<E: Lane> Routine<E> for Within<'_, E> {
        fn run<S: Simd<E = E>>(self, simd: S) {
            for values in self.values.chunks_exact_mut(S::LANES) {
                // SAFETY: the chunk is a vector.
                let value = unsafe { simd.load(values.as_ptr()) };
                let mut tile = [[value]];
                self.limits.splat(simd).tile(simd, &mut tile);
                let value = self.limits.splat(simd).vector(simd, value);
                let mut of_tile = [E::ZERO; MAX_LANES];
                // SAFETY: as above; a vector has at most `MAX_LANES`.
                unsafe {
                    simd.store(values.as_mut_ptr(), value);
                    simd.store(of_tile.as_mut_ptr(), tile[0][0]);
                }
                assert!(
                    values.iter().zip(&of_tile).all(|(a, b)| a.to_f64().to_bits() == b.to_f64().to_bits())
                );
            }
        }
    }

    fn have_the_bits_of_their_kernel<E: Lane>() {
        let values = [
            f64::NAN,
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            6.0,
            6.5,
            -1.5,
            1e-310,
            -1e-40,
            1.0,
            -1.0,
            2.25,
            3.0,
            -7.0,
            0.5,
        ];
        let clamp = |min: f64, max: f64| Activation::Clamp { min, max };
        let of_zero = [clamp(0.0, 6.0), clamp(-0.0, 6.0), clamp(0.0, f64::INFINITY)];
        let others = [Activation::Relu, clamp(-1.5, 2.25), clamp(1.0, -1.0), clamp(f64::NEG_INFINITY, -0.0)];
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for activation in of_zero.into_iter().chain(others) {
                let mut expected = values.map(E::from_f64);
                let (mut got, alone) = (expected, expected);
                activate(isa, activation, &mut expected);
                let limits = Limits::of(Some(activation));
                vector::run::<E>(isa, Within { limits, values: &mut got });
                let alone = alone.map(|value| limits.value(value));
                for (i, expected) in expected.iter().map(|value| value.to_f64().to_bits()).enumerate() {
                    let got = [got[i], alone[i]].map(|value| value.to_f64().to_bits());
                    assert_eq!(got, [expected; 2], "{activation:?} of {} on {isa:?}", values[i]);
                }
            }
        }
    }

    #[test]
    fn limits_have_the_bits_of_the_activations_kernel() {
        have_the_bits_of_their_kernel::<f32>();
        have_the_bits_of_their_kernel::<f64>();
    }
}
