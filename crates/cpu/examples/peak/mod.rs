//! What a loop of multiply-adds reaches: the peak that speeds are shares of.

use std::hint::black_box;
use std::time::Instant;

use tiled_cpu::Isa;

/// What a loop of multiply-adds in registers reaches, in GFLOP/s; all threads together.
pub(crate) fn gflops(isa: Isa, tries: usize) -> f64 {
    let lanes = match isa {
        Isa::Avx512 => 16,
        Isa::Avx2 => 8,
        Isa::Portable => 4,
    };
    let rounds = 50_000_u64;
    let speeds = rayon::broadcast(|_| {
        let mut best = f64::INFINITY;
        for _ in 0..tries {
            let start = Instant::now();
            fma_loop(isa, rounds);
            best = best.min(start.elapsed().as_secs_f64());
        }
        (rounds * 2 * 24 * lanes) as f64 / best / 1e9
    });
    speeds.into_iter().sum()
}

#[cfg(target_arch = "x86_64")]
fn fma_loop(isa: Isa, rounds: u64) {
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

#[cfg(not(target_arch = "x86_64"))]
fn fma_loop(_isa: Isa, rounds: u64) {
    let (a, b) = (black_box([0.999_f32; 4]), black_box([0.001_f32; 4]));
    let mut sums = [a; 24];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = std::array::from_fn(|i| sum[i].mul_add(a[i], b[i]));
        }
    }
    black_box(sums);
}
