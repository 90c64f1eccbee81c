//! Elements beside a model: read from its folder, and from nowhere else.

use std::fs;
use std::path::Path;

use tiled_onnx::{OnnxError, read};

use crate::build::{Builder, outside};

/// A model whose bias of 4 lies beside it, with these keys.
fn model(keys: &[(&str, &str)]) -> Builder {
    Builder::new(17, 3)
        .floats("w", &[4, 3, 1, 1])
        .tensor(outside("b", &[4], keys))
        .node("Conv", &["x", "w", "b"], "y", &[])
        .output("y")
}

/// Two floats that are not the bias, then it.
fn elements() -> Vec<u8> {
    [9.0_f32, 9.0, 1.0, 2.0, 3.0, 4.0].iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn written(folder: &Path, keys: &[(&str, &str)]) -> std::path::PathBuf {
    let path = folder.join("m.onnx");
    fs::write(&path, model(keys).bytes()).unwrap();
    path
}

/// The refusal of a model in a folder with `w.bin`, which has 24 bytes.
fn refusal(keys: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.bin"), elements()).unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    match read(written(folder.path(), keys)) {
        Err(OnnxError::Refused { refusals }) if refusals.len() == 1 => refusals[0].reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn elements_lie_at_their_offset() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.bin"), elements()).unwrap();
    for keys in [
        &[("location", "w.bin"), ("offset", "8"), ("length", "16")][..],
        &[("location", "./w.bin"), ("offset", "8")],
    ] {
        let read = read(written(folder.path(), keys)).unwrap();
        let parameters = read.weights.parameters::<f64>().unwrap();
        assert_eq!(parameters.get("n_y.bias").unwrap().data, [1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn elements_of_many_pieces_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..60_000).map(|place| place as f32).collect();
    fs::write(
        folder.path().join("w.bin"),
        values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>(),
    )
    .unwrap();
    let mut model = model(&[("location", "w.bin")]);
    model.graph().node[0].input.truncate(2);
    let mut weight = model.graph().initializer.remove(1);
    (weight.name, weight.dims) = (Some("w".to_owned()), vec![20_000, 3, 1, 1]);
    model.graph().initializer[0] = weight;
    let path = folder.path().join("m.onnx");
    fs::write(&path, model.bytes()).unwrap();
    let parameters = read(&path).unwrap().weights.parameters::<f32>().unwrap();
    assert_eq!(parameters.tensors()[0].data, values);
}

#[test]
fn places_outside_the_folder_are_refused() {
    for location in ["/etc/passwd", "../w.bin", "sub/../../w.bin", "", "sub\\..\\w.bin"] {
        let text = refusal(&[("location", location)]);
        assert_eq!(text, format!("tensor `b`: lies in `{location}`, which is outside the model's folder"));
    }
}

#[cfg(unix)]
#[test]
fn links_may_stay_in_the_folder_and_not_leave_it() {
    use std::os::unix::fs::symlink;
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("w.bin"), elements()).unwrap();
    fs::write(other.path().join("w.bin"), elements()).unwrap();
    symlink(folder.path().join("w.bin"), folder.path().join("inside.bin")).unwrap();
    symlink(other.path().join("w.bin"), folder.path().join("outside.bin")).unwrap();
    symlink(other.path(), folder.path().join("folder")).unwrap();
    let with = |location| read(written(folder.path(), &[("location", location), ("offset", "8")]));
    assert!(with("inside.bin").is_ok());
    for location in ["outside.bin", "folder/w.bin"] {
        let text = with(location).unwrap_err().to_string();
        assert!(text.ends_with("is outside the model's folder"), "{text}");
    }
}

#[test]
fn offsets_and_lengths_are_those_of_the_tensor_and_the_file() {
    let at = |offset: &'static str, length: &'static str| {
        refusal(&[("location", "w.bin"), ("offset", offset), ("length", length)])
    };
    assert_eq!(at("8", "12"), "tensor `b`: has 12 bytes of elements, its shape wants 16");
    assert_eq!(at("9", "16"), "tensor `b`: lies at 9 to 25 of `w.bin`, which has 24 bytes");
    let end = u64::MAX;
    assert_eq!(
        at("18446744073709551615", "16"),
        format!("tensor `b`: lies at {end} to {end} of `w.bin`, which has 24 bytes")
    );
    let text = "tensor `b`: `offset` of its external data is `-8`, wants a whole number of bytes";
    assert_eq!(at("-8", "16"), text);
    assert_eq!(
        refusal(&[("offset", "8")]),
        "tensor `b`: `location` of its external data is ``, wants a file"
    );
}

#[test]
fn files_that_are_none_are_refused() {
    assert!(refusal(&[("location", "nowhere.bin")]).starts_with("tensor `b`: `nowhere.bin`: "));
    assert!(refusal(&[("location", "sub")]).starts_with("tensor `b`: `sub`: "));
    let text = model(&[("location", "w.bin")]).read().unwrap_err().to_string();
    assert!(text.ends_with("tensor `b`: lies in the file `w.bin`, the model in none"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(read(folder.path()), Err(OnnxError::NotAFile)));
}

#[test]
fn a_tensor_that_nobody_reads_is_not_looked_at() {
    let mut model = model(&[("location", "/dev/zero")]);
    model.graph().node[0].input.truncate(2);
    assert!(model.read().is_ok());
}
