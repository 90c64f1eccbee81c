//! Weights: where their elements lie, of which type they are, and what they become.

use crate::build::{Attribute, Builder, float_tensor, int_tensor};

/// A convolution 3×3 of three channels to four, of the weight `w`.
fn conv() -> Builder {
    Builder::new(17, 3).floats("w", &[4, 3, 3, 3]).node("Conv", &["x", "w"], "y", &[]).output("y")
}

#[test]
fn weights_beyond_the_type_of_a_run_are_refused() {
    let model = |values: &[f64]| {
        let weight = tiled_onnx::proto::TensorProto {
            data_type: Some(11),
            double_data: values.to_vec(),
            ..float_tensor("w", &[2, 1, 1, 1], &[])
        };
        let model = Builder::new(17, 1).tensor(weight).node("Conv", &["x", "w"], "y", &[]).output("y");
        model.read().unwrap().weights
    };
    let beyond = model(&[1e300, 1.0]);
    let words = beyond.parameters::<f32>().unwrap_err().to_string();
    assert!(
        words.contains("`w`") && words.contains("1 of 2 elements are finite and beyond float32"),
        "{words}"
    );
    assert!(beyond.parameters::<f64>().is_ok());
    let infinite = model(&[f64::INFINITY, 1.0]).parameters::<f32>().unwrap();
    assert_eq!(infinite.tensors()[0].data[..], [f32::INFINITY, 1.0]);
}

#[test]
fn weights_stay_in_the_file_of_a_model_until_they_are_asked_for() {
    let raw: Vec<u8> = (0..108_u16).flat_map(|at| f32::from(at).to_le_bytes()).collect();
    let of = |name: &str, listed: bool| tiled_onnx::proto::TensorProto {
        name: Some(name.to_owned()),
        dims: vec![4, 3, 3, 3],
        data_type: Some(1),
        raw_data: (!listed).then(|| raw.clone().into()),
        float_data: if listed { (0..108).map(|at| at as f32).collect() } else { Vec::new() },
        ..tiled_onnx::proto::TensorProto::default()
    };
    for listed in [false, true] {
        // two nodes read one constant
        let model = Builder::new(17, 3)
            .tensor(of("w", listed))
            .node("Conv", &["x", "w"], "a", &[])
            .node("Conv", &["x", "w"], "b", &[])
            .node("Add", &["a", "b"], "y", &[])
            .output("y");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        std::fs::write(&path, model.bytes()).unwrap();
        let expected = model.read().unwrap().weights.parameters::<f32>().unwrap();
        let weights = tiled_onnx::read(&path).unwrap().weights;
        assert_eq!(weights.parameters::<f32>().unwrap().tensors(), expected.tensors());
        assert_eq!(weights.into_parameters::<f32>().unwrap().tensors(), expected.tensors());
        // a file that has shrunk since
        let weights = tiled_onnx::read(&path).unwrap().weights;
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
        match weights.parameters::<f32>() {
            Ok(parameters) => assert!(listed && parameters.tensors() == expected.tensors()),
            Err(error) => {
                assert!(!listed, "{error}");
                assert!(error.to_string().starts_with("tensor `w`: `m.onnx`"), "{error}");
            }
        }
    }
}

#[test]
fn elements_of_every_type_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let bias = |data_type: i32, raw: Vec<u8>| {
        let mut model = conv();
        let tensor = tiled_onnx::proto::TensorProto {
            name: Some("b".to_owned()),
            dims: vec![4],
            data_type: Some(data_type),
            raw_data: Some(raw.into()),
            ..tiled_onnx::proto::TensorProto::default()
        };
        model.graph().initializer.push(tensor);
        model.graph().node[0].input.push("b".to_owned());
        let parameters = model.read().unwrap().weights.parameters::<f64>().unwrap();
        // where they lie in the file
        std::fs::write(&path, model.bytes()).unwrap();
        let of_file = tiled_onnx::read(&path).unwrap().weights;
        assert_eq!(of_file.parameters::<f64>().unwrap().tensors(), parameters.tensors());
        assert_eq!(of_file.into_parameters::<f64>().unwrap().tensors(), parameters.tensors());
        parameters.get("n_y.bias").unwrap().data.clone()
    };
    let halves = |bits: [u16; 4]| bits.iter().flat_map(|bits| bits.to_le_bytes()).collect::<Vec<u8>>();
    assert_eq!(bias(10, halves([0x3c00, 0xc000, 0x3555, 0])), [1.0, -2.0, 0.333_251_953_125, 0.0]);
    assert_eq!(bias(16, halves([0x3f80, 0xc040, 0, 0x4000])), [1.0, -3.0, 0.0, 2.0]);
    assert_eq!(
        bias(11, [1.5_f64, -2.0, 1e-300, 0.0].iter().flat_map(|v| v.to_le_bytes()).collect()),
        [1.5, -2.0, 1e-300, 0.0]
    );
    assert_eq!(bias(3, vec![1, 0xff, 127, 0x80]), [1.0, -1.0, 127.0, -128.0]);
    assert_eq!(
        bias(7, [1_i64, -2, 3, 4].iter().flat_map(|v| v.to_le_bytes()).collect()),
        [1.0, -2.0, 3.0, 4.0]
    );
    let listed = tiled_onnx::proto::TensorProto {
        int64_data: vec![],
        int32_data: vec![0x3c00, 0, 0, 0xc000],
        data_type: Some(10),
        ..int_tensor("b", &[4], &[])
    };
    let mut model = conv().tensor(listed);
    model.graph().node[0].input.push("b".to_owned());
    let parameters = model.read().unwrap().weights.parameters::<f32>().unwrap();
    assert_eq!(parameters.get("n_y.bias").unwrap().data, [1.0, 0.0, 0.0, -2.0]);
}

#[test]
fn weights_that_are_one_number_everywhere_are_weights() {
    let number = |value| ("value", Attribute::Tensor(Box::new(float_tensor("v", &[1], &[value]))));
    let model = Builder::new(9, 3)
        .ints("dims", &[4], &[5, 3, 3, 3])
        .ints("len", &[1], &[5])
        .node("ConstantOfShape", &["dims"], "w", &[number(0.25)])
        .node("ConstantOfShape", &["len"], "b", &[number(-1.0)])
        .node("Conv", &["x", "w", "b"], "y", &[])
        .output("y")
        .read()
        .unwrap();
    let parameters = model.weights.parameters::<f32>().unwrap();
    let found: Vec<(Vec<usize>, f32)> = parameters
        .tensors()
        .iter()
        .map(|tensor| {
            assert!(tensor.data.iter().all(|value| *value == tensor.data[0]));
            (tensor.shape.clone(), tensor.data[0])
        })
        .collect();
    assert_eq!(found, [(vec![5, 3, 3, 3], 0.25), (vec![5], -1.0)]);
}
