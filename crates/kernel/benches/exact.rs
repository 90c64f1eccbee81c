//! What exact sums cost: `RUSTFLAGS="-C target-cpu=native" cargo bench -p tiled-kernel --bench exact`.
//!
//! Σx and Σx² of channel-blocked `f32` rows, in lanes and one by one, against the same sums with rounding.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

use std::hint::black_box;
use std::time::Instant;

use tiled_kernel::{ExactSum, LaneBuffer, LaneSums};
use tiled_testkit::conformance::Rng;

const ELEMENTS: usize = 1 << 18;

fn main() {
    let mut rng = Rng::new(1);
    #[expect(clippy::cast_possible_truncation, reason = "any numbers do")]
    let data: Vec<f32> = (0..ELEMENTS).map(|_| (rng.unit() + rng.unit() + rng.unit() - 1.5) as f32).collect();
    let rounded = best(|| rounded_moments::<16>(&data));
    println!("Σx, Σx² rounded, 16 lanes: {rounded:.3} ns an element");
    for (what, time) in [
        ("exact, 8 lanes", best(|| exact_moments::<8>(&data))),
        ("exact, 16 lanes", best(|| exact_moments::<16>(&data))),
        ("exact, one by one", best(|| one_by_one(&data))),
    ] {
        println!("Σx, Σx² {what}: {time:.3} ns an element, {:.1} times the rounded sums", time / rounded);
    }
}

fn exact_moments<const L: usize>(data: &[f32]) {
    let (mut sums, mut squares) = ([ExactSum::default(); L], [ExactSum::default(); L]);
    {
        let (mut buffer, mut square_buffer) = (LaneBuffer::default(), LaneBuffer::default());
        let mut lanes = LaneSums::<L>::new(&mut sums, &mut buffer);
        let mut square_lanes = LaneSums::<L>::new(&mut squares, &mut square_buffer);
        for row in data.as_chunks::<L>().0.chunks(256) {
            lanes.add_with_squares::<_, false, 16>(&mut square_lanes, row);
        }
    }
    black_box((sums, squares));
}

fn one_by_one(data: &[f32]) {
    let (mut sum, mut squares) = (ExactSum::default(), ExactSum::default());
    for value in data {
        let value = f64::from(*value);
        sum.add(value);
        squares.add(value * value);
    }
    black_box((sum, squares));
}

fn rounded_moments<const L: usize>(data: &[f32]) {
    let (mut sums, mut squares) = ([0.0_f64; L], [0.0_f64; L]);
    for pixel in data.as_chunks::<L>().0 {
        for lane in 0..L {
            let value = f64::from(pixel[lane]);
            sums[lane] += value;
            squares[lane] += value * value;
        }
    }
    black_box((sums, squares));
}

/// The least time of forty runs, in nanoseconds an element.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a run are far below 2^53")]
fn best(mut run: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..40 {
        let start = Instant::now();
        run();
        least = least.min(start.elapsed().as_nanos() as f64);
    }
    least / ELEMENTS as f64
}
