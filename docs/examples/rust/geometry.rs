//! A small framework with kernels of its own, which asks for regions and halos alone: two convolutions, tile by tile.

#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::cast_possible_truncation, reason = "sizes here are small")]
#![expect(clippy::cast_sign_loss, reason = "coordinates inside the image are not negative")]

use std::error::Error;

use tiled::geometry::{AxisMap, Grid, Region, Window};

const H: i64 = 45;
const W: i64 = 37;

/// The framework's tensor: a region of the whole image in global coordinates.
struct Part {
    held: Region<2>,
    values: Vec<f32>,
}

impl Part {
    fn new(held: Region<2>) -> Self {
        Self { held, values: vec![0.0; held.volume() as usize] }
    }

    fn place(&self, y: i64, x: i64) -> usize {
        ((y - self.held.rows().begin()) * self.held.cols().len() + x - self.held.cols().begin()) as usize
    }

    fn at(&self, y: i64, x: i64) -> f32 {
        self.values[self.place(y, x)]
    }

    fn set(&mut self, y: i64, x: i64, value: f32) {
        let place = self.place(y, x);
        self.values[place] = value;
    }
}

fn points(region: Region<2>) -> impl Iterator<Item = (i64, i64)> {
    let cols = region.cols();
    (region.rows().begin()..region.rows().end())
        .flat_map(move |y| (cols.begin()..cols.end()).map(move |x| (y, x)))
}

/// The framework's kernel: a 3x3 convolution with padding 1 of one region.
fn convolve(from: &Part, wanted: Region<2>) -> Part {
    let mut to = Part::new(wanted);
    for (y, x) in points(wanted) {
        let mut sum = 0.0;
        for v in (y - 1).max(0)..(y + 2).min(H) {
            for u in (x - 1).max(0)..(x + 2).min(W) {
                sum += from.at(v, u) * (v - y + 2 * (u - x) + 1) as f32;
            }
        }
        to.set(y, x, sum);
    }
    to
}

fn hash(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.fold(14_695_981_039_346_656_037, |h, byte| (h ^ u64::from(byte)).wrapping_mul(1_099_511_628_211))
}

fn main() -> Result<(), Box<dyn Error>> {
    let all = Region::whole([H, W]);
    let mut image = Part::new(all);
    for (i, value) in image.values.iter_mut().enumerate() {
        *value = (i % 23) as f32 - 11.0;
    }
    let whole = convolve(&convolve(&image, all), all);

    let window = [AxisMap::Window(Window::new(3, 1, 1, 1)?); 2];
    let mut tiled = Part::new(all);
    for wanted in Grid::from_tile([H, W], [16, 16])?.tiles() {
        let halo = wanted.through(window).intersect(all);
        let input = halo.through(window).intersect(all);
        println!("geometry {}", input.to_string().replace('×', "x"));
        let mut piece = Part::new(input);
        points(input).for_each(|(y, x)| piece.set(y, x, image.at(y, x)));
        let out = convolve(&convolve(&piece, halo), wanted);
        points(wanted).for_each(|(y, x)| tiled.set(y, x, out.at(y, x)));
    }
    assert_eq!(hash(&whole.values), hash(&tiled.values));
    println!("geometry {:016x}", hash(&tiled.values));
    Ok(())
}
