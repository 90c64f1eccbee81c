//! Sources whose channels are brought to a common mean and deviation.

use tiled_geometry::Region;
use tiled_graph::Chunks;
use tiled_tensor::{Element, ViewMut};

use super::{ChunkPart, ChunkSlots, Chunked, Source, index};
use crate::IoError;

/// Factors that every network wants of its input as it was trained: `(scale·v − mean[c])/std[c]`.
///
/// Each of the three steps is rounded to the type of the elements, as `ToTensor` and `Normalize` of torchvision round them.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalization {
    /// What every value is multiplied by.
    pub scale: f64,
    /// What is subtracted, for each channel or once for all; empty for nothing.
    pub mean: Vec<f64>,
    /// What is divided by, for each channel or once for all; empty for nothing.
    pub std: Vec<f64>,
}

impl Default for Normalization {
    /// That which changes nothing.
    fn default() -> Self {
        Self { scale: 1.0, mean: Vec::new(), std: Vec::new() }
    }
}

impl Normalization {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A source whose values are normalised as they are read.
///
/// ```
/// use tiled_exec::{MemorySource, Normalization, NormalizedSource, Source};
/// use tiled_tensor::Tensor;
///
/// let data = [0.5_f32, 1.0, 0.25, 0.75];
/// let source = MemorySource::new(&data, [1, 2, 1, 2])?;
/// let to = Normalization { mean: vec![0.5, 0.25], std: vec![0.5], ..Normalization::default() };
/// let source = NormalizedSource::new("x", source, &to)?;
/// let mut read = Tensor::zeros([1, 2, 1, 2]).unwrap();
/// source.read(read.view().region(), &mut read.view_mut())?;
/// assert_eq!(read.data(), [0.0, 1.0, 0.0, 1.0]);
/// # Ok::<(), tiled_exec::IoError>(())
/// ```
#[derive(Clone, Debug)]
pub struct NormalizedSource<T, S> {
    inner: S,
    scale: T,
    /// Mean and deviation of each channel.
    channels: Vec<[T; 2]>,
}

impl<T: Element, S: Source<T>> NormalizedSource<T, S> {
    /// The values of `inner`, normalised; `name` stands in errors.
    ///
    /// # Errors
    /// Where there are neither as many factors as channels nor one, where one is not finite, and where a scale or a deviation is 0.
    pub fn new(name: &str, inner: S, to: &Normalization) -> Result<Self, IoError> {
        let channels = inner.shape()[1];
        let check = |what, value: f64, may_be_zero| {
            let rounded = T::from_f64(value);
            if value.is_finite() && rounded.to_f64().is_finite() && (may_be_zero || rounded != T::ZERO) {
                return Ok(rounded);
            }
            let expected = if may_be_zero { "a finite number" } else { "a finite number other than 0" };
            Err(IoError::Factor { path: name.into(), what, expected, got: value })
        };
        let each = |what, values: &[f64], none: f64, may_be_zero| match values {
            [] => Ok(vec![T::from_f64(none); channels]),
            [value] => check(what, *value, may_be_zero).map(|value| vec![value; channels]),
            values if values.len() == channels => {
                values.iter().map(|value| check(what, *value, may_be_zero)).collect()
            }
            values => {
                Err(IoError::Factors { path: name.into(), what, expected: channels, got: values.len() })
            }
        };
        let (mean, std) = (each("mean", &to.mean, 0.0, true)?, each("std", &to.std, 1.0, false)?);
        let channels = mean.into_iter().zip(std).map(<[T; 2]>::from).collect();
        Ok(Self { scale: check("scale", to.scale, false)?, inner, channels })
    }
}

impl<T: Element, S: Source<T>> Source<T> for NormalizedSource<T, S> {
    fn shape(&self) -> [usize; 4] {
        self.inner.shape()
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        self.inner.read(region, output)?;
        let layout = *output.layout();
        let (block, cols) = (layout.block(), index(region.cols().len()));
        for n in 0..layout.batch() {
            for (place, of) in self.channels.chunks(block).enumerate() {
                for y in region.rows().begin()..region.rows().end() {
                    if cols == 0 {
                        continue;
                    }
                    let start = layout.offset(n, place * block, y, region.cols().begin());
                    let row = &mut output.data_mut()[start..start + cols * block];
                    normalize(row, block, self.scale, of);
                }
            }
        }
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        self.inner.resident_bytes()
    }

    fn transfer_bytes(&self) -> u64 {
        self.inner.transfer_bytes()
    }

    fn chunked(&self) -> Option<&dyn Chunked<T>> {
        self.inner.chunked().map(|_| self as &dyn Chunked<T>)
    }
}

/// Where those of what it normalises are read in chunks.
impl<T: Element, S: Source<T>> Chunked<T> for NormalizedSource<T, S> {
    fn chunks(&self) -> Chunks {
        self.inner().chunks()
    }

    fn slots(&self, count: usize) -> Result<Box<dyn ChunkSlots<T> + '_>, IoError> {
        let inner = self.inner().slots(count)?;
        Ok(Box::new(NormalizedSlots { inner, scale: self.scale, channels: &self.channels }))
    }
}

impl<T: Element, S: Source<T>> NormalizedSource<T, S> {
    fn inner(&self) -> &dyn Chunked<T> {
        self.inner.chunked().expect("invariant: `chunked` gives this where there are chunks")
    }
}

/// Decoded chunks whose values are normalised as they are converted.
struct NormalizedSlots<'a, T> {
    inner: Box<dyn ChunkSlots<T> + 'a>,
    scale: T,
    channels: &'a [[T; 2]],
}

impl<T: Element> ChunkSlots<T> for NormalizedSlots<'_, T> {
    fn read(&self, slot: usize, chunk: [usize; 2]) -> Result<(), IoError> {
        self.inner.read(slot, chunk)
    }

    fn convert(&self, slot: usize, part: &ChunkPart, block: usize, output: &mut [T]) {
        self.inner.convert(slot, part, block, output);
        normalize(output, block, self.scale, &self.channels[part.channels.clone()]);
    }
}

/// Normalises a row of a block of channels.
fn normalize<T: Element>(row: &mut [T], block: usize, scale: T, channels: &[[T; 2]]) {
    for pixel in row.chunks_exact_mut(block) {
        for (value, [mean, std]) in pixel.iter_mut().zip(channels) {
            *value = (*value * scale - *mean) / *std;
        }
    }
}
