//! Damaged pictures and arrays are errors, which name the row where there is one.

use std::path::Path;

use png::{BitDepth, ColorType};
use tiled_exec::{
    IoError, JpegDamage, PictureProblem, RawFormat, SourceOptions, open_source, open_source_with,
};
use tiled_tensor::DType;

use crate::{data, npy, png, write};

/// The error of a file, which must be one.
fn refused(path: &Path) -> IoError {
    match open_source::<f32>(path) {
        Ok(_) => panic!("{}: is read", path.display()),
        Err(error) => error,
    }
}

/// Numbers that look random, the same for every run.
fn scatter(count: usize, range: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        range.start + usize::try_from(state >> 33).unwrap() % range.len()
    })
}

fn photo() -> Vec<u8> {
    let noise: Vec<usize> = scatter(96 * 96 * 3, 0..48).collect();
    let picture = image::RgbImage::from_fn(96, 96, |x, y| {
        let wave = |phase: f64| 104.0 + 100.0 * (f64::from(x * (1 + y / 40)) / 7.0 + phase).sin();
        let grain = |c: u32| u8::try_from(noise[((y * 96 + x) * 3 + c) as usize]).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 4 to 204")]
        image::Rgb([0, 1, 2].map(|c| wave(f64::from(c)) as u8 + grain(c)))
    });
    let mut bytes = Vec::new();
    image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 92).encode_image(&picture).unwrap();
    bytes
}

fn drawing() -> Vec<u8> {
    let rows: Vec<u8> = scatter(64 * 64 * 3, 0..256).map(|value| u8::try_from(value).unwrap()).collect();
    png([64, 64], ColorType::Rgb, BitDepth::Eight, None, &rows)
}

/// The files that are damaged here.
fn pictures() -> Vec<(&'static str, Vec<u8>)> {
    let read = |name| std::fs::read(data(name)).unwrap();
    vec![
        ("photo.jpg", photo()),
        ("progressive.jpg", read("progressive.jpg")),
        ("gray_progressive.jpg", read("gray_progressive.jpg")),
        ("restarts.jpg", read("restarts.jpg")),
        ("drawing.png", drawing()),
    ]
}

#[test]
fn r14_whole_pictures_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in pictures() {
        open_source::<f32>(write(folder.path(), name, &bytes)).map(drop).unwrap();
    }
}

#[test]
fn r14_pictures_cut_anywhere_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in pictures() {
        for percent in [1, 10, 50, 90, 99] {
            let path = write(folder.path(), name, &bytes[..bytes.len() * percent / 100]);
            let error = refused(&path).to_string();
            assert!(error.starts_with(&format!("`{}`: ", path.display())), "{name} {percent} %: {error}");
            assert!(percent < 50 || error.contains(" at row "), "{name} {percent} %: {error}");
        }
        for missing in [1, 2] {
            refused(&write(folder.path(), name, &bytes[..bytes.len() - missing]));
        }
    }
}

#[test]
fn r14_pictures_with_bytes_zeroed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in pictures() {
        for zeroed in [200, 600, 2000] {
            for begin in scatter(40, 0..bytes.len() - zeroed) {
                let mut damaged = bytes.clone();
                damaged[begin..begin + zeroed].fill(0);
                if damaged != bytes {
                    refused(&write(folder.path(), name, &damaged));
                }
            }
        }
    }
}

#[test]
fn r14_a_jpeg_with_zeroed_bytes_names_the_row() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = photo();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 2000].fill(0);
    let error = refused(&write(folder.path(), "x.jpg", &bytes));
    let IoError::Picture { problem: PictureProblem::JpegRow { row, rows: 96, damage, .. }, .. } = error
    else {
        panic!("{error:?}");
    };
    assert!((24..72).contains(&row), "row {row}: {damage}");
}

#[test]
fn r14_a_png_names_the_row() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = drawing();
    let error = refused(&write(folder.path(), "x.png", &bytes[..bytes.len() / 2]));
    let IoError::Picture { problem: PictureProblem::PngRow { row, rows: 64, .. }, .. } = error else {
        panic!("{error:?}");
    };
    assert!((16..48).contains(&row), "row {row}");
}

#[test]
fn r14_the_checksum_of_the_pixels_is_checked() {
    // without the chunks' own checksums, which a tool may have written anew
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = png([4, 4], ColorType::Grayscale, BitDepth::Eight, None, &[7; 16]);
    let begin = bytes.windows(4).position(|name| name == b"IDAT").unwrap();
    let len = u32::from_be_bytes(bytes[begin - 4..begin].try_into().unwrap()) as usize;
    let last = begin + 4 + len - 1;
    bytes[last] ^= 1;
    let sum = crc(&bytes[begin..=last]);
    bytes[last + 1..last + 5].copy_from_slice(&sum.to_be_bytes());
    let error = refused(&write(folder.path(), "x.png", &bytes));
    assert!(matches!(error, IoError::Picture { .. }), "{error}");
}

/// The checksum of a chunk (PNG, annex D).
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1)))
    })
}

#[test]
fn r14_restarts_out_of_order_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(data("restarts.jpg")).unwrap();
    let markers: Vec<usize> = (700..bytes.len() - 1)
        .filter(|index| bytes[*index] == 0xff && (0xd0..0xd8).contains(&bytes[index + 1]))
        .collect();
    let (first, second) = (markers[3] + 1, markers[4] + 1);
    bytes.swap(first, second);
    let error = refused(&write(folder.path(), "x.jpg", &bytes));
    let IoError::Picture { problem: PictureProblem::JpegRow { damage, .. }, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(damage, JpegDamage::Restart { expected: 0xd3, got: 0xd4 });
}

#[test]
fn r14_arrays_that_are_cut_or_too_long_or_lie_about_their_size_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = npy("<f4", "(3, 20, 20)", &[1; 4800]);
    open_source::<f32>(write(folder.path(), "x.npy", &whole)).map(drop).unwrap();
    for percent in [1, 10, 50, 99] {
        let error = refused(&write(folder.path(), "x.npy", &whole[..whole.len() * percent / 100]));
        assert!(matches!(error, IoError::Truncated { .. }), "{percent} %: {error}");
    }
    let error = refused(&write(folder.path(), "x.npy", &[&whole[..], &[0; 3]].concat()));
    assert!(matches!(error, IoError::FileSize { .. }), "{error}");
    for begin in [0, 8, 20, 40] {
        let mut damaged = whole.clone();
        damaged[begin..begin + 12].fill(0);
        refused(&write(folder.path(), "x.npy", &damaged));
    }
    for shape in ["(3, -20, 20)", "(4294967296, 4294967296, 4294967296)", "(18446744073709551616, 1)", "(9,)"]
    {
        refused(&write(folder.path(), "x.npy", &npy("<f4", shape, &[1; 4800])));
    }
    let mut bomb = b"\x93NUMPY\x02\x00".to_vec();
    bomb.extend((u32::MAX - 12).to_le_bytes());
    bomb.extend([b' '; 100_000]);
    let error = refused(&write(folder.path(), "x.npy", &bomb));
    assert!(matches!(error, IoError::Npy { .. }), "{error}");
}

#[test]
fn r14_raw_files_of_another_length_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let raw = Some(RawFormat { shape: [1, 3, 20, 20], element: DType::F32.into() });
    let options = SourceOptions { raw, ..SourceOptions::default() };
    for (len, is_read) in [(4800, true), (48, false), (4799, false), (4801, false), (0, false)] {
        let path = write(folder.path(), "x.raw", &vec![0; len]);
        assert_eq!(open_source_with::<f32>(&path, &options).is_ok(), is_read, "{len} bytes");
    }
    let raw = Some(RawFormat { shape: [usize::MAX, 3, 20, 20], element: DType::F32.into() });
    let path = write(folder.path(), "x.raw", &[0; 64]);
    let error = open_source_with::<f32>(path, &SourceOptions { raw, ..options }).map(drop).unwrap_err();
    assert!(matches!(error, IoError::Overflow { .. }), "{error}");
}
