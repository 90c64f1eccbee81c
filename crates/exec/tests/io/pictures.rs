//! Pictures.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tiled_exec::{
    ElementType, IoError, PictureSource, Sink, SinkOptions, Source, SourceOptions, create_sink,
    create_sink_with, inspect_source, open_source, open_source_with, open_source_within,
};
use tiled_tensor::Tensor;

use crate::windows::{check_source, numbered, read_all, tiles, whole, write_tiles};

fn save<P: image::PixelWithColorType<Subpixel = S>, S: image::Primitive>(
    folder: &Path,
    name: &str,
    picture: &image::ImageBuffer<P, Vec<S>>,
) -> PathBuf
where
    [S]: image::EncodableLayout,
{
    let path = folder.join(name);
    picture.save(&path).unwrap();
    path
}

fn byte(c: u32, y: u32, x: u32) -> u8 {
    u8::try_from((c * 97 + y * 31 + x * 7) % 256).unwrap()
}

/// The tensor of `byte`s over 255.
fn expected(channels: usize, height: usize, width: usize) -> Tensor<f32> {
    Tensor::from_fn([1, channels, height, width], |[_, c, y, x]| {
        let [c, y, x] = [c, y, x].map(|index| u32::try_from(index).unwrap());
        f32::from(byte(c, y, x)) / 255.0
    })
    .unwrap()
}

#[test]
fn colours_are_three_channels_from_zero_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let picture = image::RgbImage::from_fn(11, 6, |x, y| image::Rgb([0, 1, 2].map(|c| byte(c, y, x))));
    let source = PictureSource::open(save(folder.path(), "rgb.png", &picture), 1 << 20).unwrap();
    check_source(&source, &expected(3, 6, 11), [2, 4]);
    assert_eq!(Source::<f32>::resident_bytes(&source), 3 * 6 * 11);
}

#[test]
fn gray_is_one_channel_and_alpha_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let gray = image::GrayImage::from_fn(5, 9, |x, y| image::Luma([byte(0, y, x)]));
    let path = save(folder.path(), "gray.png", &gray);
    check_source(&*open_source::<f32>(&path).unwrap(), &expected(1, 9, 5), [4, 4]);

    let alpha = image::GrayAlphaImage::from_fn(5, 9, |x, y| image::LumaA([byte(0, y, x), 3]));
    let path = save(folder.path(), "gray-alpha.png", &alpha);
    check_source(&*open_source::<f32>(&path).unwrap(), &expected(1, 9, 5), [4, 4]);

    let alpha = image::RgbaImage::from_fn(5, 9, |x, y| {
        image::Rgba([byte(0, y, x), byte(1, y, x), byte(2, y, x), 100])
    });
    let path = save(folder.path(), "rgba.png", &alpha);
    check_source(&*open_source::<f32>(&path).unwrap(), &expected(3, 9, 5), [4, 4]);
}

#[test]
fn sixteen_bits_keep_their_precision() {
    type Wide = image::ImageBuffer<image::Rgb<u16>, Vec<u16>>;
    let folder = tempfile::tempdir().unwrap();
    let value = |c: u32, y: u32, x: u32| u16::try_from((c * 20011 + y * 5003 + x * 257) % 65536).unwrap();
    let picture = Wide::from_fn(7, 4, |x, y| image::Rgb([0, 1, 2].map(|c| value(c, y, x))));
    let expected = Tensor::from_fn([1, 3, 4, 7], |[_, c, y, x]| {
        let [c, y, x] = [c, y, x].map(|index| u32::try_from(index).unwrap());
        f64::from(value(c, y, x)) / 65535.0
    })
    .unwrap();
    let path = save(folder.path(), "wide.png", &picture);
    check_source(&*open_source::<f64>(&path).unwrap(), &expected, [3, 3]);
}

#[test]
fn jpeg_is_read_as_the_decoder_gives_it() {
    let folder = tempfile::tempdir().unwrap();
    let picture = image::RgbImage::from_fn(33, 17, |x, y| {
        image::Rgb([x * 7, y * 15, x + y].map(|value| u8::try_from(value).unwrap()))
    });
    let path = save(folder.path(), "photo.jpeg", &picture);
    let decoded = image::open(&path).unwrap().into_rgb8();
    let expected = Tensor::from_fn([1, 3, 17, 33], |[_, c, y, x]| {
        let [y, x] = [y, x].map(|index| u32::try_from(index).unwrap());
        f32::from(decoded.get_pixel(x, y).0[c]) / 255.0
    })
    .unwrap();
    assert!((expected.data()[0] - expected.data()[32]).abs() > 0.5, "it is a picture of something");
    check_source(&*open_source::<f32>(&path).unwrap(), &expected, [5, 8]);
}

#[test]
fn the_format_is_that_of_the_content_not_of_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let gray = image::GrayImage::from_fn(5, 9, |x, y| image::Luma([byte(0, y, x)]));
    let png = save(folder.path(), "gray.png", &gray);
    let misnamed = folder.path().join("gray.jpg");
    std::fs::rename(png, &misnamed).unwrap();
    check_source(&*open_source::<f32>(&misnamed).unwrap(), &expected(1, 9, 5), [4, 4]);
}

#[test]
fn a_png_sink_gives_back_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for channels in [1, 3] {
        let path = folder.path().join(format!("{channels}.png"));
        let tensor = expected(channels, 23, 11);
        let sink = create_sink::<f32>(&path, tensor.shape()).unwrap();
        assert_eq!(sink.resident_bytes(), (channels * 23 * 11) as u64);
        assert!(tiles(tensor.shape(), [4, 5]).len() > 1);
        write_tiles(&*sink, &tensor, [4, 5]);
        assert!(!path.exists());
        sink.finish().unwrap();
        assert_eq!(read_all(&*open_source::<f32>(&path).unwrap()).data(), tensor.data());
    }
}

#[test]
fn values_outside_zero_to_one_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.png");
    let values = [
        -0.5,
        0.0,
        0.4999 / 255.0,
        0.5001 / 255.0,
        0.5,
        1.0,
        7.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let tensor = Tensor::from_fn([1, 1, 2, 5], |[_, _, y, x]| values[y * 5 + x]).unwrap();
    let sink = create_sink::<f64>(&path, tensor.shape()).unwrap();
    sink.write(whole(tensor.shape()), &tensor.view()).unwrap();
    sink.finish().unwrap();
    let bytes = image::open(&path).unwrap().into_luma8();
    assert_eq!(bytes.as_raw(), &[0, 0, 0, 1, 128, 255, 255, 255, 0, 0]);
}

#[test]
fn a_large_picture_is_written_through_a_small_buffer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.png");
    let tensor = expected(3, 400, 500);
    let sink = create_sink::<f32>(&path, tensor.shape()).unwrap();
    write_tiles(&*sink, &tensor, [64, 128]);
    sink.finish().unwrap();
    assert_eq!(read_all(&*open_source::<f32>(&path).unwrap()).data(), tensor.data());
}

#[test]
fn a_tensor_that_is_no_picture_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.png");
    for shape in [[1, 2, 4, 4], [2, 3, 4, 4], [1, 4, 4, 4], [1, 3, 0, 4]] {
        let error = create_sink::<f32>(&path, shape).map(drop).unwrap_err();
        let name = path.display();
        assert_eq!(
            error.to_string(),
            format!("`{name}`: a picture has batch 1 and 1 or 3 channels, tensor is {shape:?}")
        );
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_picture_over_the_limit_is_refused_before_it_is_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let path = save(folder.path(), "rgb.png", &image::RgbImage::new(40, 30));
    open_source_within::<f32>(&path, 3600).unwrap();
    let error = open_source_within::<f32>(&path, 3599).map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("`{}`: picture takes 3600 bytes decoded, 3599 bytes allowed", path.display())
    );
}

#[test]
fn a_truncated_picture_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let picture = image::RgbImage::from_fn(40, 30, |x, y| image::Rgb([0, 1, 2].map(|c| byte(c, y, x))));
    let whole = std::fs::read(save(folder.path(), "rgb.png", &picture)).unwrap();
    let path = folder.path().join("cut.png");
    for len in [0, 1, 8, 20, 33, 60, whole.len() / 2] {
        std::fs::write(&path, &whole[..len]).unwrap();
        let error = open_source::<f32>(&path).map(drop).unwrap_err();
        assert!(matches!(error, IoError::Picture { .. } | IoError::Read { .. }), "{len}: {error:?}");
        assert!(error.to_string().starts_with(&format!("`{}`: ", path.display())), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_changed_picture_is_a_picture_or_an_error(
        changes in prop::collection::vec((0..300_usize, any::<u8>()), 1..5),
        jpeg in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let picture = image::RgbImage::from_fn(20, 10, |x, y| image::Rgb([0, 1, 2].map(|c| byte(c, y, x))));
        let path = save(folder.path(), if jpeg { "x.jpg" } else { "x.png" }, &picture);
        let mut bytes = std::fs::read(&path).unwrap();
        for (index, byte) in changes {
            let index = index % bytes.len();
            bytes[index] = byte;
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(source) = open_source_within::<f32>(&path, 1 << 20) {
            let tensor = read_all(&*source);
            prop_assert!(tensor.data().iter().all(|value| (0.0..=1.0).contains(value)));
        }
    }
}

#[test]
fn numbers_of_a_wide_range_are_a_picture_of_zeros_and_ones() {
    // The tensor of the other tests is outside 0 to 1: nothing wraps around.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.png");
    let tensor = numbered::<f32>([1, 3, 20, 10]);
    let sink = create_sink::<f32>(&path, tensor.shape()).unwrap();
    write_tiles(&*sink, &tensor, [7, 7]);
    sink.finish().unwrap();
    for (got, value) in read_all(&*open_source::<f32>(&path).unwrap()).data().iter().zip(tensor.data()) {
        assert!((got - value.clamp(0.0, 1.0)).abs() <= 0.5 / 255.0 + f32::EPSILON, "{got} for {value}");
    }
}

#[test]
fn pictures_over_the_limit_lie_in_files_without_names_and_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (channels, element) in [(1, ElementType::U8), (3, ElementType::U8), (3, ElementType::U16)] {
        let shape = [1, channels, 37, 53];
        let mut next = 0.0;
        let tensor = Tensor::<f64>::from_fn(shape, |_| {
            next = (next + 0.377) % 1.0;
            next
        })
        .unwrap();
        let [held, filed] = [("held.png", u64::MAX), ("filed.png", 1000)].map(|(name, limit_bytes)| {
            let path = folder.path().join(name);
            let options = SinkOptions { element: Some(element), limit_bytes, ..SinkOptions::default() };
            let sink = create_sink_with::<f64>(&path, shape, &options).unwrap();
            let pixels = (channels * 37 * 53 * element.size_bytes()) as u64;
            assert_eq!(sink.resident_bytes(), if name == "held.png" { pixels } else { 0 });
            write_tiles(&*sink, &tensor, [10, 17]);
            sink.finish().unwrap();
            path
        });
        assert_eq!(std::fs::read(&held).unwrap(), std::fs::read(&filed).unwrap());

        let expected = read_all(&*open_source::<f64>(&held).unwrap());
        let options = SourceOptions {
            limit_bytes: 1500,
            folder: Some(folder.path().into()),
            ..SourceOptions::default()
        };
        let facts = inspect_source(&held, &options).unwrap();
        let pixels = (channels * 37 * 53 * element.size_bytes()) as u64;
        assert_eq!((facts.resident_bytes, facts.temporary_bytes), (0, pixels));
        assert!(facts.to_string().ends_with(", decoded to a temporary file"), "{facts}");
        let source = open_source_with::<f64>(&held, &options).unwrap();
        assert_eq!(source.resident_bytes(), 0);
        check_source(&*source, &expected, [8, 13]);
        assert_eq!(folder.path().read_dir().unwrap().count(), 2, "the temporary file has no name");
    }
}
