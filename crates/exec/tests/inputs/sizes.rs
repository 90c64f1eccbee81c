//! What pictures take is known from their header.

use png::{BitDepth, ColorType};
use tiled_exec::{IoError, Numbers, PictureSource, SourceOptions, inspect_source, open_source_within};

use crate::{data, png, write};

/// A PNG of this size whose pixels are not there.
fn promise(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = png([1, 1], ColorType::Rgb, BitDepth::Eight, None, &[1, 2, 3]);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1)))
    })
}

#[test]
fn r10_a_picture_over_the_limit_is_refused_by_its_header() {
    let folder = tempfile::tempdir().unwrap();
    for (width, height) in [(18_000, 18_000), (100_000, 100_000), (1 << 30, 1)] {
        let path = write(folder.path(), "x.png", &promise(width, height));
        let error = open_source_within::<f32>(&path, 2 << 20).map(drop).unwrap_err();
        // the pixels are missing: had they been looked at, the file would be damaged
        assert!(
            matches!(error, IoError::PictureSize { expected: 0x20_0000, .. }),
            "{width}×{height}: {error}"
        );
    }
    let path = write(folder.path(), "x.png", &promise(0x7fff_ffff, 0x7fff_ffff));
    let error = open_source_within::<f32>(&path, u64::MAX).map(drop).unwrap_err();
    assert!(matches!(error, IoError::Overflow { .. }), "{error}");
}

#[test]
fn r10_a_progressive_jpeg_counts_its_coefficients() {
    let path = data("flat_2000x1500_progressive.jpg");
    let facts = inspect_source(&path, &SourceOptions::default()).unwrap();
    let (pixels, coefficients) = (2000 * 1500 * 3, 2 * 2000 * 1504 * 3 / 2);
    assert_eq!(facts.resident_bytes, pixels);
    assert!(facts.opening_bytes >= pixels + coefficients - (256 << 10), "{facts:?}");
    let error = PictureSource::open(&path, facts.opening_bytes - 1).unwrap_err();
    assert!(matches!(error, IoError::PictureSize { .. }), "{error}");
    PictureSource::open(&path, facts.opening_bytes).unwrap();
}

#[test]
fn r10_profiles_and_texts_are_passed_over() {
    // a chunk of each kind that does not hold what it should: nobody looks
    let folder = tempfile::tempdir().unwrap();
    let whole = png([2, 1], ColorType::Grayscale, BitDepth::Eight, None, &[3, 250]);
    let mut bytes = whole[..33].to_vec();
    for name in [b"iCCP", b"zTXt", b"iTXt", b"tEXt"] {
        let chunk = [&name[..], &[0x55; 5000]].concat();
        bytes.extend(5000_u32.to_be_bytes());
        bytes.extend(&chunk);
        bytes.extend(crc(&chunk).to_be_bytes());
    }
    bytes.extend(&whole[33..]);
    let path = write(folder.path(), "x.png", &bytes);
    let facts = PictureSource::inspect(&path, &as_is(2)).unwrap();
    assert_eq!((facts.resident_bytes, facts.opening_bytes), (2, 2));
    PictureSource::open(&path, 2).unwrap();
}

fn as_is(limit_bytes: u64) -> SourceOptions {
    SourceOptions { numbers: Numbers::AsIs, limit_bytes, ..SourceOptions::default() }
}

#[test]
fn r10_interlaced_pictures_are_read_in_place() {
    // 5×3 gray, the passes of Adam7 one after another, stored without compression
    let folder = tempfile::tempdir().unwrap();
    let value = |y: u8, x: u8| y * 50 + x * 7;
    let passes: [&[(u8, &[u8])]; 6] = [
        &[(0, &[0])],
        &[(0, &[4])],
        &[(0, &[2])],
        &[(2, &[0, 2, 4])],
        &[(0, &[1, 3]), (2, &[1, 3])],
        &[(1, &[0, 1, 2, 3, 4])],
    ];
    let mut rows = Vec::new();
    for (y, columns) in passes.into_iter().flatten() {
        rows.push(0); // no filter
        rows.extend(columns.iter().map(|x| value(*y, *x)));
    }
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in &rows {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    let len = u16::try_from(rows.len()).unwrap();
    let mut data = vec![0x78, 0x01, 0x01];
    data.extend([len.to_le_bytes(), (!len).to_le_bytes()].concat());
    data.extend(&rows);
    data.extend((b << 16 | a).to_be_bytes());
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let header = [&5_u32.to_be_bytes()[..], &3_u32.to_be_bytes(), &[8, 0, 0, 0, 1]].concat();
    for (name, content) in [(b"IHDR", header), (b"IDAT", data), (b"IEND", Vec::new())] {
        let chunk = [&name[..], &content].concat();
        bytes.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
        bytes.extend(&chunk);
        bytes.extend(crc(&chunk).to_be_bytes());
    }
    let path = write(folder.path(), "x.png", &bytes);
    let source = PictureSource::open_with(&path, &as_is(1000)).unwrap();
    let expected: Vec<f64> = (0..3).flat_map(|y| (0..5).map(move |x| f64::from(value(y, x)))).collect();
    assert_eq!(crate::read(&source), expected);
    let options = SourceOptions { folder: Some(folder.path().to_owned()), ..as_is(14) };
    let error = PictureSource::open_with(&path, &options).map(drop).unwrap_err();
    assert!(matches!(error, IoError::PictureSize { .. }), "its rows come several times: {error}");
}
