//! Whole arrays in `.npy` files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use tiled::exec::NpyHeader;
use tiled::prelude::{DType, Element};
use tiled::tensor::AlignedBuffer;

use crate::Failure;

/// Reads an array of f32 and its shape, NCHW. It lies on large pages where there are any, as those of numpy do.
pub(crate) fn read(path: &Path) -> Result<(AlignedBuffer<f32>, [usize; 4]), Failure> {
    let bytes = std::fs::read(path)?;
    let header = NpyHeader::parse(&bytes)?;
    let shape = header.nchw()?;
    let found = &bytes[usize::try_from(header.len_bytes())?..];
    let mut data = AlignedBuffer::new(shape.iter().product());
    let expected = size_of_val(&*data);
    if found.len() != expected {
        return Err(
            format!("{}: {expected} bytes of f32 wanted, {} found", path.display(), found.len()).into()
        );
    }
    for (value, bytes) in data.iter_mut().zip(found.chunks_exact(size_of::<f32>())) {
        *value = Element::from_le_bytes(bytes);
    }
    Ok((data, shape))
}

/// Writes an array of f32.
pub(crate) fn write(path: &Path, shape: &[usize], data: &[f32]) -> Result<(), Failure> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&NpyHeader::format(shape, DType::F32)?)?;
    let mut bytes = Vec::new();
    for part in data.chunks(1 << 16) {
        bytes.clear();
        f32::extend_le_bytes(part, &mut bytes);
        file.write_all(&bytes)?;
    }
    Ok(file.flush()?)
}
