//! Outputs of many channels as one picture.

use std::io::Cursor;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tiled::exec::{IoError, Sink};
use tiled::geometry::Region;
use tiled::tensor::{Element, TensorError, View, zero_bytes, zeros};

use crate::error::CliError;

/// A sink that keeps three colours: each is the mean of a third of the channels.
#[derive(Debug)]
pub(super) struct FeatureMap {
    shape: [usize; 4],
    colours: Mutex<Vec<f32>>,
}

impl FeatureMap {
    pub(super) fn new(shape: [usize; 4]) -> Result<Self, CliError> {
        let pixels = shape[2] * shape[3];
        Ok(Self { shape, colours: Mutex::new(zeros(COLOURS * pixels).map_err(TensorError::from)?) })
    }

    /// The picture, as the bytes of a PNG file for `path`; each colour stretched from its 1st to its 99th percentile.
    pub(super) fn into_png(self, path: &Path) -> Result<Vec<u8>, CliError> {
        let [.., height, width] = self.shape;
        let colours = self.colours.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut pixels = zero_bytes(colours.len()).map_err(TensorError::from)?;
        for (colour, values) in colours.chunks_exact(height * width).enumerate() {
            let mut sorted: Vec<f32> = values.iter().copied().step_by(1 + values.len() / 100_000).collect();
            sorted.sort_by(f32::total_cmp);
            let (low, high) = (sorted[sorted.len() / 100], sorted[sorted.len() - 1 - sorted.len() / 100]);
            for (pixel, value) in pixels.iter_mut().skip(colour).step_by(COLOURS).zip(values) {
                *pixel = byte((value - low) / (high - low).max(f32::MIN_POSITIVE));
            }
        }
        let chart = |reason: String| CliError::Chart { path: path.to_path_buf(), reason };
        let [width, height] = [width, height].map(|extent| u32::try_from(extent).unwrap_or(0));
        let picture = image::RgbImage::from_raw(width, height, pixels)
            .ok_or_else(|| chart("picture is too large".to_owned()))?;
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, image::ImageFormat::Png).map_err(|error| chart(error.to_string()))?;
        Ok(bytes.into_inner())
    }
}

impl<T: Element> Sink<T> for FeatureMap {
    fn shape(&self) -> [usize; 4] {
        self.shape
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        let [_, channels, height, width] = self.shape;
        let mut colours = self.colours.lock().unwrap_or_else(PoisonError::into_inner);
        for (colour, plane) in colours.chunks_exact_mut(height * width).enumerate() {
            let (first, end) = (colour * channels / COLOURS, (colour + 1) * channels / COLOURS);
            let range = first.min(channels - 1)..end.max(first + 1).min(channels);
            let share = 1.0 / f64::from(u32::try_from(range.len()).unwrap_or(u32::MAX));
            for y in region.rows().begin()..region.rows().end() {
                for x in region.cols().begin()..region.cols().end() {
                    let sum: f64 = range.clone().map(|channel| input.get(0, channel, y, x).to_f64()).sum();
                    plane[index(y) * width + index(x)] = f32::from_f64(sum * share);
                }
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), IoError> {
        Ok(())
    }

    fn abort(&self) {}

    fn resident_bytes(&self) -> u64 {
        (COLOURS * self.shape[2] * self.shape[3] * size_of::<f32>()) as u64
    }
}

const COLOURS: usize = 3;

fn index(coordinate: i64) -> usize {
    usize::try_from(coordinate).expect("invariant: coordinates inside a tensor are not negative")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "cut to 0 to 255 before; NaN becomes 0"
)]
fn byte(value: f32) -> u8 {
    (value.clamp(0.0, 1.0) * 255.0).round() as u8
}
