//! What the machine reaches: a loop of multiply-adds in registers, a loop of copies through memory, a line that goes between two cores.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tiled::prelude::Isa;
use tiled::tensor::AlignedBuffer;

/// The times that the loop of multiply-adds runs, each of about 20 ms: next to that, waking the threads takes no time.
const MULTIPLY_ADD_SLICES: usize = 25;
/// The times that the loop of copies runs.
const COPY_SLICES: usize = 60;
/// The elements that a thread copies: 64 MiB, more than the caches hold.
const COPIED: usize = 16 << 20;

/// What multiply-adds of f32 in registers reach on all threads together: the median and the fastest slice.
pub(crate) fn multiply_add_gflops(isa: Isa, threads: usize) -> [f64; 2] {
    const ROUNDS: u32 = 10_000_000;
    let lanes = multiply_add(isa, 1);
    let work = 2.0 * f64::from(ROUNDS) * f64::from(CHAINS) * f64::from(lanes) * threads as f64;
    let seconds = slice_seconds::<MULTIPLY_ADD_SLICES, _>(threads, || {
        || {
            multiply_add(isa, ROUNDS);
        }
    });
    seconds.map(|seconds| work / seconds / 1e9)
}

/// What copying reaches on all threads together, bytes read and bytes written counted: the median.
pub(crate) fn copy_gb_per_second(threads: usize) -> f64 {
    let bytes = (2 * threads * COPIED * size_of::<f32>()) as f64;
    let [seconds, _] = slice_seconds::<COPY_SLICES, _>(threads, || {
        let (mut from, mut to) = (AlignedBuffer::new(COPIED), AlignedBuffer::new(COPIED));
        from.fill(1.0_f32);
        to.fill(2.0_f32);
        move || {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        }
    });
    bytes / seconds / 1e9
}

/// The nanoseconds that a cache line takes from one core to another and back, the median: how far apart they are. Zero where one thread runs alone.
pub(crate) fn round_trip_ns(threads: usize) -> f64 {
    const SLICES: u32 = 15;
    const TRIPS: u32 = 20_000;
    if threads < 2 {
        return 0.0;
    }
    let line = AtomicU32::new(0);
    let wait_for = |value: u32| {
        while line.load(Ordering::Acquire) != value {
            std::hint::spin_loop();
        }
    };
    let mut slices = [0.0; SLICES as usize];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for trip in 0..SLICES * TRIPS {
                wait_for(2 * trip + 1);
                line.store(2 * trip + 2, Ordering::Release);
            }
        });
        for (slice, number) in slices.iter_mut().zip(0..) {
            let start = Instant::now();
            for trip in number * TRIPS..(number + 1) * TRIPS {
                line.store(2 * trip + 1, Ordering::Release);
                wait_for(2 * trip + 2);
            }
            *slice = start.elapsed().as_secs_f64();
        }
    });
    slices.sort_by(f64::total_cmp);
    slices[slices.len() / 2] / f64::from(TRIPS) * 1e9
}

/// The seconds of the median and of the fastest slice. Slices begin together on all threads and end with the last.
fn slice_seconds<const SLICES: usize, Work: FnMut()>(
    threads: usize,
    prepare: impl Fn() -> Work + Sync,
) -> [f64; 2] {
    let barrier = Barrier::new(threads);
    let measure = || {
        let mut work = prepare();
        let mut slices = [0.0; SLICES];
        for slice in &mut slices {
            barrier.wait();
            let start = Instant::now();
            work();
            barrier.wait();
            *slice = start.elapsed().as_secs_f64();
        }
        slices.sort_by(f64::total_cmp);
        [slices[SLICES / 2], slices[0]]
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(measure)).collect();
        let slowest = |a: [f64; 2], b: [f64; 2]| [a[0].max(b[0]), a[1].max(b[1])];
        running
            .into_iter()
            .map(|thread| thread.join().expect("the loop does not panic"))
            .fold([0.0; 2], slowest)
    })
}

/// Independent chains of multiply-adds: enough to hide the latency of two units.
const CHAINS: u32 = 12;

/// Runs the chains and returns the lanes of a vector.
#[cfg(target_arch = "x86_64")]
fn multiply_add(isa: Isa, rounds: u32) -> u32 {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps, _mm512_fmadd_ps, _mm512_set1_ps};

    #[target_feature(enable = "avx512f")]
    fn avx512(rounds: u32) {
        let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
        let mut sums = [a; CHAINS as usize];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    fn avx2(rounds: u32) {
        let (a, b) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
        let mut sums = [a; CHAINS as usize];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
    }

    if !isa.is_available() {
        return portable(rounds);
    }
    match isa {
        Isa::Avx512 => {
            // SAFETY: the CPU has AVX-512 F, which `is_available` has just asked.
            unsafe { avx512(rounds) };
            16
        }
        Isa::Avx2 => {
            // SAFETY: the CPU has AVX2 and FMA, which `is_available` has just asked.
            unsafe { avx2(rounds) };
            8
        }
        _ => portable(rounds),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn multiply_add(_isa: Isa, rounds: u32) -> u32 {
    portable(rounds)
}

fn portable(rounds: u32) -> u32 {
    let (a, b) = (black_box([0.999_f32; 4]), black_box([0.001_f32; 4]));
    let mut sums = [a; CHAINS as usize];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = std::array::from_fn(|lane| sum[lane] * a[lane] + b[lane]);
        }
    }
    black_box(sums);
    4
}
