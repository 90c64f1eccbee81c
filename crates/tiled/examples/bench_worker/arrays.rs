//! Whole arrays in `.npy` files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use tiled::exec::NpyHeader;
use tiled::prelude::{DType, Element};

use crate::Failure;

/// Reads an array of f32 and its shape, NCHW.
pub(crate) fn read(path: &Path) -> Result<(Vec<f32>, [usize; 4]), Failure> {
    let bytes = std::fs::read(path)?;
    let header = NpyHeader::parse(&bytes)?;
    let shape = header.nchw()?;
    let data = &bytes[usize::try_from(header.len_bytes())?..];
    let expected: usize = shape.iter().product::<usize>() * size_of::<f32>();
    if data.len() != expected {
        return Err(
            format!("{}: {expected} bytes of f32 wanted, {} found", path.display(), data.len()).into()
        );
    }
    Ok((data.chunks_exact(size_of::<f32>()).map(<f32 as Element>::from_le_bytes).collect(), shape))
}

/// Writes an array of f32.
pub(crate) fn write(path: &Path, shape: &[usize], data: &[f32]) -> Result<(), Failure> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&NpyHeader::format(shape, DType::F32))?;
    let mut bytes = Vec::new();
    for part in data.chunks(1 << 16) {
        bytes.clear();
        f32::extend_le_bytes(part, &mut bytes);
        file.write_all(&bytes)?;
    }
    Ok(file.flush()?)
}
