//! What a loop of multiply-adds reaches: the peak that speeds are shares of.

use std::hint::black_box;

use tiled_cpu::Isa;

/// The floating-point operations of so many rounds of [`fma_loop`].
pub(crate) fn operations(isa: Isa, rounds: u64) -> f64 {
    let lanes = match isa {
        Isa::Avx512 => 16,
        Isa::Avx2 => 8,
        Isa::Portable => 4,
    };
    (rounds * 2 * 24 * lanes) as f64
}

/// Multiply-adds in registers, as many as fill the core.
#[cfg(target_arch = "x86_64")]
pub(crate) fn fma_loop(isa: Isa, rounds: u64) {
    use std::arch::x86_64::*;
    #[target_feature(enable = "avx512f")]
    fn wide(rounds: u64) {
        let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
        let mut sums = [a; 24];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
    }
    #[target_feature(enable = "avx2,fma")]
    fn narrow(rounds: u64) {
        let (a, b) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
        let mut sums = [a; 12];
        for _ in 0..2 * rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
    }
    match isa {
        // SAFETY: the backend was made for this instruction set, so the CPU has it.
        Isa::Avx512 => unsafe { wide(rounds) },
        // SAFETY: as above.
        Isa::Avx2 => unsafe { narrow(rounds) },
        _ => {
            let (a, b) = (black_box([0.999_f32; 4]), black_box([0.001_f32; 4]));
            let mut sums = [a; 12];
            for _ in 0..2 * rounds {
                for sum in &mut sums {
                    *sum = std::array::from_fn(|i| sum[i] * a[i] + b[i]);
                }
            }
            black_box(sums);
        }
    }
}

/// Multiply-adds in registers.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn fma_loop(_isa: Isa, rounds: u64) {
    let (a, b) = (black_box([0.999_f32; 4]), black_box([0.001_f32; 4]));
    let mut sums = [a; 24];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = std::array::from_fn(|i| sum[i].mul_add(a[i], b[i]));
        }
    }
    black_box(sums);
}
