//! What comes in by files: what numbers mean, what class numbers may be, and what damaged files say.
#![expect(clippy::unwrap_used, reason = "the functions that tests share are tests too")]

mod changes;
mod damaged;
mod numbers;
mod sizes;

use std::path::{Path, PathBuf};

use tiled_exec::Source;
use tiled_geometry::Region;
use tiled_tensor::Tensor;

/// A file of a folder.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The whole of a source.
fn read(source: &dyn Source<f64>) -> Vec<f64> {
    let shape = source.shape();
    let mut tensor = Tensor::<f64>::zeros(shape).unwrap();
    let extents = [shape[2], shape[3]].map(|extent| i64::try_from(extent).unwrap());
    source.read(Region::whole(extents), &mut tensor.view_mut()).unwrap();
    tensor.data().to_vec()
}

/// An `.npy` file, version 1.0.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(text.len()).unwrap().to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend(data);
    bytes
}

/// A PNG of these rows of samples.
fn png(
    [width, height]: [u32; 2],
    color: png::ColorType,
    depth: png::BitDepth,
    palette: Option<&[u8]>,
    rows: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if let Some(palette) = palette {
        encoder.set_palette(palette.to_vec());
    }
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(rows).unwrap();
    writer.finish().unwrap();
    bytes
}

/// The pictures of `tests/data`, drawn for these tests: waves, edges and texture.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}
