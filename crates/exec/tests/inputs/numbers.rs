//! One rule for numbers.

use png::{BitDepth, ColorType};
use tiled_exec::{
    ElementType, Numbers, RawFormat, SourceOptions, inspect_source, open_source, open_source_with,
};
use tiled_tensor::DType;

use crate::{data, npy, png, read, write};

fn with(numbers: Numbers) -> SourceOptions {
    SourceOptions { numbers, ..SourceOptions::default() }
}

#[test]
fn r03_bytes_mean_the_same_in_a_picture_and_in_an_array() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = [0, 1, 127, 128, 254, 255];
    let files = [
        write(folder.path(), "x.png", &png([3, 2], ColorType::Grayscale, BitDepth::Eight, None, &bytes)),
        write(folder.path(), "x.npy", &npy("|u1", "(2, 3)", &bytes)),
        write(folder.path(), "x.raw", &bytes),
    ];
    let raw = Some(RawFormat { shape: [1, 1, 2, 3], element: ElementType::U8 });
    for file in files {
        let options = SourceOptions { raw, ..SourceOptions::default() };
        let scaled: Vec<f64> = bytes.iter().map(|byte| f64::from(*byte) / 255.0).collect();
        assert_eq!(read(&*open_source_with(&file, &options).unwrap()), scaled, "{}", file.display());
        let facts = inspect_source(&file, &options).unwrap();
        assert_eq!(facts.to_string(), "1×2×3, u8 scaled to 0…1");
        let options = SourceOptions { numbers: Numbers::AsIs, ..options };
        assert_eq!(read(&*open_source_with(&file, &options).unwrap()), bytes.map(f64::from));
        assert_eq!(inspect_source(&file, &options).unwrap().to_string(), "1×2×3, u8");
    }
}

#[test]
fn r03_sixteen_bits_mean_the_same_in_a_picture_and_in_an_array() {
    let folder = tempfile::tempdir().unwrap();
    let values = [0_u16, 1, 255, 256, 40_000, 65_535];
    let (big, little) = (values.map(u16::to_be_bytes).concat(), values.map(u16::to_le_bytes).concat());
    let files = [
        write(folder.path(), "x.png", &png([2, 3], ColorType::Grayscale, BitDepth::Sixteen, None, &big)),
        write(folder.path(), "x.npy", &npy("<u2", "(1, 3, 2)", &little)),
    ];
    for file in files {
        let scaled = values.map(|value| f64::from(value) / 65_535.0);
        assert_eq!(read(&*open_source(&file).unwrap()), scaled);
        assert_eq!(read(&*open_source_with(&file, &with(Numbers::AsIs)).unwrap()), values.map(f64::from));
    }
}

#[test]
fn r03_other_types_of_an_array_are_the_numbers_that_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, Vec<u8>, [f64; 2]); 8] = [
        ("|i1", vec![0x80, 127], [-128.0, 127.0]),
        ("<i2", [i16::MIN, 9].map(i16::to_le_bytes).concat(), [-32768.0, 9.0]),
        ("<u4", [u32::MAX, 3].map(u32::to_le_bytes).concat(), [4_294_967_295.0, 3.0]),
        ("<i4", [i32::MIN, -1].map(i32::to_le_bytes).concat(), [-2_147_483_648.0, -1.0]),
        ("<u8", [1 << 63, 5].map(u64::to_le_bytes).concat(), [9_223_372_036_854_775_808.0, 5.0]),
        ("<i8", [-100, 255].map(i64::to_le_bytes).concat(), [-100.0, 255.0]),
        ("<f4", [0.5_f32, 255.0].map(f32::to_le_bytes).concat(), [0.5, 255.0]),
        ("<f8", [1e300, -0.25].map(f64::to_le_bytes).concat(), [1e300, -0.25]),
    ];
    for (descr, bytes, expected) in cases {
        let file = write(folder.path(), "x.npy", &npy(descr, "(1, 2)", &bytes));
        for numbers in [Numbers::Scaled, Numbers::AsIs, Numbers::Classes] {
            assert_eq!(read(&*open_source_with(&file, &with(numbers)).unwrap()), expected, "{descr}");
        }
    }
}

#[test]
fn r03_jpeg_is_scaled_or_as_it_is() {
    let scaled = read(&*open_source(data("progressive.jpg")).unwrap());
    let plain = read(&*open_source_with(data("progressive.jpg"), &with(Numbers::AsIs)).unwrap());
    assert!(plain.iter().any(|value| *value > 200.0) && plain.iter().all(|value| value.fract() == 0.0));
    assert!(scaled.iter().zip(&plain).all(|(scaled, plain)| *scaled == plain / 255.0));
}

#[test]
fn r03_few_bits_fill_the_range_or_are_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    // two bits: 0 1 2 3 0, then three bits that fill the row
    let bytes = png([5, 1], ColorType::Grayscale, BitDepth::Two, None, &[0b0001_1011, 0]);
    let file = write(folder.path(), "x.png", &bytes);
    assert_eq!(
        read(&*open_source(&file).unwrap()),
        [0.0, 85.0, 170.0, 255.0, 0.0].map(|value| value / 255.0)
    );
    assert_eq!(read(&*open_source_with(&file, &with(Numbers::AsIs)).unwrap()), [0.0, 1.0, 2.0, 3.0, 0.0]);
}

#[test]
fn r02_classes_of_a_png_are_its_gray_or_its_index_in_the_palette() {
    let folder = tempfile::tempdir().unwrap();
    let palette = [9_u8, 9, 9, 200, 0, 0, 0, 200, 0];
    let cases = [
        (
            png([3, 2], ColorType::Grayscale, BitDepth::Eight, None, &[0, 1, 2, 2, 1, 255]),
            [0, 1, 2, 2, 1, 255],
        ),
        (
            png([3, 2], ColorType::Indexed, BitDepth::Eight, Some(&palette), &[0, 1, 2, 2, 1, 0]),
            [0, 1, 2, 2, 1, 0],
        ),
        (
            png([3, 2], ColorType::Indexed, BitDepth::Four, Some(&palette), &[0x01, 0x20, 0x21, 0x00]),
            [0, 1, 2, 2, 1, 0],
        ),
        (
            png([3, 2], ColorType::Grayscale, BitDepth::One, None, &[0b0100_0000, 0b1010_0000]),
            [0, 1, 0, 1, 0, 1],
        ),
        (
            png(
                [3, 2],
                ColorType::Grayscale,
                BitDepth::Sixteen,
                None,
                &[0_u16, 1, 300, 2, 65_535, 0].map(u16::to_be_bytes).concat(),
            ),
            [0, 1, 300, 2, 65_535, 0],
        ),
    ];
    for (bytes, expected) in cases {
        let file = write(folder.path(), "t.png", &bytes);
        let source = open_source_with::<f64>(&file, &with(Numbers::Classes)).unwrap();
        assert_eq!(source.shape(), [1, 1, 2, 3]);
        assert_eq!(read(&*source), expected.map(f64::from));
    }
}

#[test]
fn r02_colours_and_jpeg_are_no_class_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let colours = png([1, 1], ColorType::Rgb, BitDepth::Eight, None, &[1, 2, 3]);
    let colours = write(folder.path(), "t.png", &colours);
    for (file, got) in [(colours, "a PNG of colours"), (data("gray_progressive.jpg"), "a JPEG")] {
        let error = open_source_with::<f32>(&file, &with(Numbers::Classes)).map(drop).unwrap_err();
        let expected =
            format!("`{}`: class numbers come from a gray or palette PNG, this is {got}", file.display());
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn r07_what_is_written_raw_is_read_raw() {
    use tiled_exec::create_sink;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.raw");
    let tensor = tiled_tensor::Tensor::<f64>::from_fn([2, 3, 4, 5], |[n, c, y, x]| {
        f64::from(u8::try_from(n * 60 + c * 20 + y * 5 + x).unwrap()) - 7.5
    })
    .unwrap();
    let sink = create_sink::<f64>(&path, tensor.shape()).unwrap();
    sink.write(tiled_geometry::Region::whole([4, 5]), &tensor.view()).unwrap();
    sink.finish().unwrap();
    let raw = RawFormat { shape: tensor.shape(), element: DType::F64.into() };
    let options = SourceOptions { raw: Some(raw), ..SourceOptions::default() };
    assert_eq!(read(&*open_source_with(&path, &options).unwrap()), tensor.data());
    for shape in [[1, 3, 4, 5], [2, 3, 4, 6]] {
        let raw = RawFormat { shape, ..raw };
        let options = SourceOptions { raw: Some(raw), ..options.clone() };
        let error = open_source_with::<f64>(&path, &options).map(drop).unwrap_err().to_string();
        assert!(error.contains("960 bytes found"), "{error}");
    }
}
