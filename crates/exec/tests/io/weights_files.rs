//! Files of weights that others write, damaged ones, and those of other networks.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;
use tiled_exec::{IoError, WeightRef, WeightsProblem, load_parameters, load_weights, save_weights};
use tiled_graph::{Graph, GraphError, ParamTensor, initialise, params};

/// A file of this header and so many bytes of data.
fn file_of(header: &str, data_bytes: u64) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let mut file = File::create(&path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + data_bytes).unwrap(); // sparse
    (folder, path)
}

fn problem(header: &str, data_bytes: u64) -> WeightsProblem {
    let (_folder, path) = file_of(header, data_bytes);
    match load_weights::<f32>(&path).unwrap_err() {
        IoError::Weights { problem, .. } => problem,
        error => panic!("{error}"),
    }
}

#[test]
fn r15_a_name_that_stands_twice_is_refused() {
    for (header, name) in [
        (
            r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            "w",
        ),
        // the same name written in another way
        (
            r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"\u0077":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            "w",
        ),
        (
            r#"{"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{}}"#,
            "__metadata__",
        ),
    ] {
        let (_folder, path) = file_of(header, 4);
        let error = load_weights::<f32>(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("`{}`: tensor `{name}` stands twice", path.display()));
    }
    let twice = r#"{"w":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}}"#;
    assert!(problem(twice, 4).to_string().starts_with("header is malformed: duplicate field `dtype`"));
}

#[test]
fn r15_free_text_beside_the_tensors_is_left() {
    let header =
        r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   "#;
    let (_folder, path) = file_of(header, 4);
    let tensors = load_weights::<f32>(&path).unwrap();
    assert_eq!(tensors, [ParamTensor { name: "w".to_owned(), shape: vec![1], data: vec![0.0] }]);
}

#[test]
fn r10_a_header_is_checked_against_the_file_before_anything_is_read() {
    let one = |offsets: &str| format!(r#"{{"w":{{"dtype":"F32","shape":[2,2],"data_offsets":{offsets}}}}}"#);
    let two = |a: &str, b: &str| {
        let tensor =
            |name: &str, at: &str| format!(r#""{name}":{{"dtype":"F64","shape":[1],"data_offsets":{at}}}"#);
        format!("{{{},{}}}", tensor("a", a), tensor("b", b))
    };
    for (header, data_bytes, text) in [
        (one("[0,16]"), 12, "tensors take 16 bytes, the file has 12"),
        (one("[0,16]"), 20, "tensors take 16 bytes, the file has 20"),
        (one("[0,12]"), 12, "tensor `w` lies in bytes 0 to 12, its shape [2, 2] of F32 wants 16 bytes"),
        (one("[16,0]"), 16, "tensor `w` begins at byte 16, the one before it ends at 0"),
        (one("[4,20]"), 20, "tensor `w` begins at byte 4, the one before it ends at 0"),
        (two("[0,8]", "[4,12]"), 12, "tensor `b` begins at byte 4, the one before it ends at 8"),
        (two("[0,8]", "[0,8]"), 8, "tensor `b` begins at byte 0, the one before it ends at 8"),
        (two("[0,8]", "[16,24]"), 24, "tensor `b` begins at byte 16, the one before it ends at 8"),
        (
            r#"{"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#.to_owned(),
            0,
            "tensor `w` of shape [4294967296, 4294967296] overflows",
        ),
    ] {
        assert_eq!(problem(&header, data_bytes).to_string(), text);
    }
    for (header, start) in [
        ("[1]", "invalid type: sequence, expected an object of tensors"),
        ("{\"w\":", "EOF while parsing"),
        ("{} {}", "trailing characters"),
        (r#"{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}"#, "invalid value: integer `-1`"),
        (r#"{"w":{"dtype":"F32","shape":[1]}}"#, "missing field `data_offsets`"),
    ] {
        let text = problem(header, 0).to_string();
        assert!(text.starts_with(&format!("header is malformed: {start}")), "{text}");
    }
    let axes = format!(r#"{{"w":{{"dtype":"F32","shape":[{}1],"data_offsets":[0,4]}}}}"#, "1,".repeat(99));
    assert!(problem(&axes, 4).to_string().contains("at most 32 extents"));
}

#[test]
fn r10_a_header_longer_than_the_file_or_than_any_honest_one_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let text = |len: u64, file_bytes: u64| {
        let mut file = File::create(&path).unwrap();
        file.write_all(&len.to_le_bytes()).unwrap();
        file.set_len(file_bytes).unwrap();
        load_weights::<f32>(&path).unwrap_err().to_string()
    };
    let start = format!("`{}`: header ", path.display());
    assert_eq!(text(u64::MAX, 1000), format!("{start}takes 18446744073709551615 bytes, the file has 1000"));
    assert_eq!(text(993, 1000), format!("{start}takes 1001 bytes, the file has 1000"));
    assert_eq!(text(1 << 26, 1 << 27), format!("{start}has 67108864 bytes, at most 33554432 are read"));
}

#[test]
fn r10_weights_are_those_of_the_network_before_an_element_is_read() {
    let specs = params(&Graph::builtin("seed-001").unwrap());
    // 64 GiB: nobody could read it
    let huge = r#"{"conv1.weight":{"dtype":"F32","shape":[131072,131072],"data_offsets":[0,68719476736]}}"#;
    let (_folder, path) = file_of(huge, 1 << 36);
    match load_parameters::<f32>(&path, &specs) {
        Err(IoError::Parameters { source, .. }) => {
            assert!(matches!(*source, GraphError::ParameterShape { .. }), "{source}");
        }
        other => panic!("{other:?}"),
    }
    let elsewhere = huge.replace("conv1", "conv9");
    let (_folder, path) = file_of(&elsewhere, 1 << 36);
    let error = load_parameters::<f32>(&path, &specs).unwrap_err();
    assert!(error.to_string().contains("parameter `conv9.weight`"), "{error}");
}

#[test]
fn r10_parameters_come_in_the_order_of_the_network() {
    let specs = params(&Graph::builtin("light").unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let saved = initialise::<f64>(&specs, 3);
    let mut shuffled: Vec<WeightRef<'_, f64>> = saved.tensors().iter().map(WeightRef::from).collect();
    shuffled.reverse();
    save_weights(&path, shuffled).unwrap();
    assert_eq!(load_parameters::<f64>(&path, &specs).unwrap(), saved);
    assert_eq!(load_parameters::<f32>(&path, &specs).unwrap(), initialise::<f32>(&specs, 3));
}

/// What the library that others use makes of the same tensors.
fn by_others(path: &Path, tensors: &[(&str, &[usize], &[u8])], dtype: Dtype) {
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (*name, TensorView::new(dtype, shape.to_vec(), bytes).unwrap()));
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn r10_saved_files_are_those_of_others_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["a", "b"].map(|name| folder.path().join(name));
    // more than one buffer, names that want escapes, an empty tensor and a scalar, in no order
    let long: Vec<f32> = (0..40_000_u16).map(|value| f32::from(value) / 7.0).collect();
    let tensors: [(&str, &[usize], &[f32]); 5] = [
        ("z \"quoted\" \\ ü", &[2], &[1.0, -0.0]),
        ("long", &[200, 200], &long),
        ("empty", &[0, 3], &[]),
        ("scalar", &[], &[7.5]),
        ("a", &[1, 3], &[f32::NAN, f32::MIN_POSITIVE, -3.25]),
    ];
    save_weights(&ours, tensors.map(|(name, shape, data)| WeightRef { name, shape, data })).unwrap();
    let bytes =
        tensors.map(|(.., data)| data.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
    let given: Vec<_> =
        tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| (*name, *shape, &bytes[..])).collect();
    by_others(&theirs, &given, Dtype::F32);
    assert!(std::fs::read(&ours).unwrap() == std::fs::read(&theirs).unwrap());
    let none: [WeightRef<'_, f64>; 0] = [];
    save_weights(&ours, none).unwrap();
    by_others(&theirs, &[], Dtype::F64);
    assert_eq!(std::fs::read(&ours).unwrap(), std::fs::read(&theirs).unwrap());
}
