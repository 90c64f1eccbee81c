//! The texts of errors.

use tiled_exec::{FileSource, IoError, create_sink, load_weights, open_source};
use tiled_tensor::DType;

const SHAPE: [usize; 4] = [1, 1, 2, 3];

#[test]
fn an_unknown_extension_lists_the_known() {
    let text = |path: &str| open_source::<f32>(path).map(drop).unwrap_err().to_string();
    assert_eq!(text("x.tiff"), "`x.tiff`: unknown extension `tiff`, known are npy, png, jpg, jpeg, raw, bin");
    assert_eq!(text("x"), "`x`: unknown extension ``, known are npy, png, jpg, jpeg, raw, bin");
    assert_eq!(text("x.raw"), "`x.raw`: a raw file needs its shape and element type");
    let text = |path: &str| create_sink::<f32>(path, SHAPE).map(drop).unwrap_err().to_string();
    assert_eq!(text("y.jpg"), "`y.jpg`: unknown extension `jpg`, known are npy, raw, bin, png");
}

#[test]
fn a_missing_file_or_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("x.npy");
    let name = path.display();
    let why = "No such file or directory (os error 2)";
    let error = open_source::<f32>(&path).map(drop).unwrap_err();
    assert!(matches!(error, IoError::Open { .. }));
    let error = create_sink::<f32>(&path, SHAPE).map(drop).unwrap_err();
    assert!(matches!(error, IoError::Create { .. }));
    if cfg!(target_os = "linux") {
        assert_eq!(error.to_string(), format!("`{name}`: cannot create: {why}"));
        let error = open_source::<f32>(path.with_extension("png")).map(drop).unwrap_err();
        assert!(error.to_string().ends_with(why), "{error}");
        let error = load_weights::<f32>(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("`{name}`: cannot open: {why}"));
    }
}

#[test]
fn a_folder_is_no_source() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["x.npy", "x.png"] {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let error = open_source::<f32>(&path).map(drop).unwrap_err();
        assert_eq!(error.to_string(), format!("`{}`: not a regular file", path.display()));
    }
}

#[test]
fn a_raw_file_has_exactly_the_bytes_of_its_shape() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.raw");
    for len in [23, 25] {
        std::fs::write(&path, vec![0; len]).unwrap();
        let error = FileSource::open_raw(&path, SHAPE, DType::F32).unwrap_err();
        let expected = match len {
            23 => "truncated: 24 bytes expected, 23 bytes found",
            _ => "24 bytes expected for the shape, 25 bytes found",
        };
        assert_eq!(error.to_string(), format!("`{}`: {expected}", path.display()));
    }
    std::fs::write(&path, [0; 24]).unwrap();
    FileSource::open_raw(&path, SHAPE, DType::F32).unwrap();
}

#[test]
fn a_shape_that_overflows_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let shape = [usize::MAX, usize::MAX, 2, 2];
    for name in ["y.npy", "y.raw", "y.png"] {
        let path = folder.path().join(name);
        let error = create_sink::<f32>(&path, shape).map(drop).unwrap_err();
        assert_eq!(error.to_string(), format!("`{}`: shape {shape:?} overflows", path.display()));
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_source_cut_while_it_is_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.raw");
    std::fs::write(&path, [0; 24]).unwrap();
    let source = FileSource::open_raw(&path, SHAPE, DType::F32).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(20).unwrap();
    let mut tensor = crate::windows::numbered::<f32>(SHAPE);
    let error = tiled_exec::Source::read(&source, crate::windows::whole(SHAPE), &mut tensor.view_mut());
    assert!(matches!(error, Err(IoError::Read { .. })), "{error:?}");
}
