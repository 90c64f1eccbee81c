//! Whole arrays in `.npy` files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use tiled::exec::NpyHeader;
use tiled::tensor::{AlignedBuffer, Element};

use crate::Failure;

/// Reads an array of f32 and its shape, NCHW. It lies on large pages where there are any, as those of numpy do.
pub(crate) fn read<T: Element>(path: &Path) -> Result<(AlignedBuffer<T>, [usize; 4]), Failure> {
    let bytes = std::fs::read(path)?;
    let header = NpyHeader::parse(&bytes)?;
    let shape = header.nchw()?;
    let found = &bytes[usize::try_from(header.len_bytes())?..];
    let mut data = AlignedBuffer::new(shape.iter().product());
    let expected = data.len() * size_of::<f32>();
    if found.len() != expected {
        return Err(
            format!("{}: {expected} bytes of f32 wanted, {} found", path.display(), found.len()).into()
        );
    }
    for (value, bytes) in data.iter_mut().zip(found.chunks_exact(size_of::<f32>())) {
        *value = T::from_f64(<f32 as Element>::from_le_bytes(bytes).into());
    }
    Ok((data, shape))
}

/// Writes an array.
pub(crate) fn write<T: Element>(path: &Path, shape: &[usize], data: &[T]) -> Result<(), Failure> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&NpyHeader::format(shape, T::DTYPE)?)?;
    let mut bytes = Vec::new();
    for part in data.chunks(1 << 16) {
        bytes.clear();
        T::extend_le_bytes(part, &mut bytes);
        file.write_all(&bytes)?;
    }
    Ok(file.flush()?)
}
