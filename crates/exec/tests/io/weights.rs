//! Weights in `.safetensors` files.

use std::path::Path;

use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use tiled_exec::{IoError, load_parameters, load_weights, save_weights};
use tiled_graph::{Graph, ParamTensor, Parameters, initialise, params};

fn tensor<T>(name: &str, shape: &[usize], data: Vec<T>) -> ParamTensor<T> {
    ParamTensor { name: name.to_owned(), shape: shape.to_vec(), data }
}

fn weights() -> Vec<ParamTensor<f64>> {
    vec![
        tensor("c1.bias", &[2], vec![0.1, -0.0]),
        tensor("c1.weight", &[2, 1, 1, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0e-324, f64::MAX]),
        tensor("empty", &[0, 3], vec![]),
        tensor("scale", &[], vec![7.5]),
    ]
}

/// A file of one tensor of any type.
fn write(path: &Path, name: &str, dtype: Dtype, shape: Vec<usize>, bytes: &[u8]) {
    let view = TensorView::new(dtype, shape, bytes).unwrap();
    std::fs::write(path, safetensors::serialize([(name, view)], None).unwrap()).unwrap();
}

#[test]
fn weights_come_back_bit_for_bit_in_the_order_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let mut shuffled = weights();
    shuffled.reverse();
    save_weights(&path, &shuffled).unwrap();
    let back = load_weights::<f64>(&path).unwrap();
    assert_eq!(back, weights());
    assert!(back[0].data[1].is_sign_negative());
    let narrow = vec![tensor("b", &[2], vec![f32::MIN_POSITIVE, -3.25])];
    save_weights(&path, &narrow).unwrap();
    assert_eq!(load_weights::<f32>(&path).unwrap(), narrow);
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

#[test]
fn every_type_of_numbers_is_read_as_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let values = [1.5_f32, -0.25, 96.0];
    let halves = |bits: [u16; 3]| bits.map(u16::to_le_bytes).concat();
    for (dtype, bytes) in [
        (Dtype::F64, values.map(|value| f64::from(value).to_le_bytes()).concat()),
        (Dtype::F32, values.map(f32::to_le_bytes).concat()),
        (Dtype::F16, halves([0x3e00, 0xb400, 0x5600])),
        (Dtype::BF16, halves([0x3fc0, 0xbe80, 0x42c0])),
    ] {
        write(&path, "w", dtype, vec![3], &bytes);
        assert_eq!(load_weights::<f32>(&path).unwrap()[0].data, values, "{dtype}");
        assert_eq!(load_weights::<f64>(&path).unwrap()[0].data, values.map(f64::from), "{dtype}");
    }
}

#[test]
fn finite_weights_beyond_the_type_are_counted_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let write = |values: [f64; 4]| {
        write(&path, "c1.bias", Dtype::F64, vec![4], &values.map(f64::to_le_bytes).concat())
    };
    write([1e39, -3.5e38, f64::INFINITY, f64::from(f32::MAX)]);
    let error = load_weights::<f32>(&path).unwrap_err().to_string();
    let expected = "2 of 4 values of tensor `c1.bias` are finite and beyond f32";
    assert_eq!(error, format!("`{}`: {expected}", path.display()));
    assert_eq!(load_weights::<f64>(&path).unwrap()[0].data[0], 1e39);
    write([f64::NEG_INFINITY, f64::NAN, 1e-300, 2.0]);
    let read = load_weights::<f32>(&path).unwrap();
    assert!(read[0].data[0] == f32::NEG_INFINITY && read[0].data[1].is_nan() && read[0].data[2] == 0.0);
}

#[test]
fn other_types_are_refused_but_for_the_counters_of_batch_norm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let name = "n1.num_batches_tracked";
    write(&path, name, Dtype::I64, vec![], &7_i64.to_le_bytes());
    assert_eq!(load_weights::<f32>(&path).unwrap(), [tensor(name, &[], vec![7.0])]);
    write(&path, "n1.weight", Dtype::I64, vec![1], &[0; 8]);
    let error = load_weights::<f32>(&path).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("`{}`: tensor `n1.weight` has type I64, known are F64, F32, F16 and BF16", path.display())
    );
}

#[test]
fn counters_are_written_as_pytorch_does_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let name = "n.1.num_batches_tracked";
    // an odd number of bytes of f32 before it by name
    let tensors = [tensor("a", &[3], vec![1.0_f32, 2.0, 3.0]), tensor(name, &[], vec![16_777_216.0])];
    save_weights(&path, &tensors).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let counter = file.tensor(name).unwrap();
    assert_eq!((counter.dtype(), counter.shape()), (Dtype::I64, &[][..]));
    assert_eq!(counter.data(), 16_777_216_i64.to_le_bytes());
    // as readers want it that map the file
    assert_eq!((counter.data().as_ptr().addr() - bytes.as_ptr().addr()) % 8, 0);
    assert_eq!(file.tensor("a").unwrap().dtype(), Dtype::F32);
    assert_eq!(load_weights::<f32>(&path).unwrap(), tensors);
    let wide = [tensor(name, &[], vec![9_007_199_254_740_992.0_f64])];
    save_weights(&path, &wide).unwrap();
    assert_eq!(load_weights::<f64>(&path).unwrap(), wide);
}

#[test]
fn a_counter_that_is_no_count_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let name = "n.num_batches_tracked";
    let message = |got: &str| {
        format!(
            "`{}`: tensor `{name}` is {got}, a counter is a whole number of at least 0 and below 2^63",
            path.display()
        )
    };
    write(&path, name, Dtype::I64, vec![], &(-3_i64).to_le_bytes());
    assert_eq!(load_weights::<f64>(&path).unwrap_err().to_string(), message("-3"));
    write(&path, name, Dtype::F32, vec![], &2.5_f32.to_le_bytes());
    assert_eq!(load_weights::<f64>(&path).unwrap_err().to_string(), message("2.5"));
    save_weights(&path, &[tensor(name, &[], vec![4.0_f32])]).unwrap();
    for (value, got) in [(0.5, "0.5"), (-1.0, "-1"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let error = save_weights(&path, &[tensor(name, &[], vec![value])]).unwrap_err();
        assert_eq!(error.to_string(), message(got));
    }
    assert_eq!(load_weights::<f32>(&path).unwrap()[0].data, [4.0], "the old file stays");
}

#[test]
fn counters_are_taken_up_where_the_network_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let network = |momentum: &str| {
        let text = format!(
            r#"{{"inputs": [{{"name": "x", "channels": 2}}],
                "nodes": [{{"name": "n", "op": "batch_norm", "inputs": ["x"], "momentum": {momentum}}}],
                "outputs": ["n"]}}"#
        );
        params(&Graph::from_json(&text).unwrap())
    };
    let (counts, fixed) = (network("null"), network("0.1"));
    let saved = initialise::<f32>(&counts, 1);
    save_weights(&path, saved.tensors()).unwrap();
    assert_eq!(load_parameters::<f32>(&path, &counts).unwrap(), saved);
    // PyTorch keeps the counter there, too
    assert_eq!(load_parameters::<f32>(&path, &fixed).unwrap(), initialise(&fixed, 1));
    assert_eq!(Parameters::new(&fixed, load_weights::<f32>(&path).unwrap()).unwrap(), initialise(&fixed, 1));
    save_weights(&path, initialise::<f32>(&fixed, 1).tensors()).unwrap();
    let error = load_parameters::<f32>(&path, &counts).unwrap_err().to_string();
    assert!(
        error.ends_with("batch_norm `n`: parameter `n.num_batches_tracked` of shape [] is missing"),
        "{error}"
    );
}

#[test]
fn a_shared_parameter_is_read_from_a_file_that_has_it_under_two_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let graph = r#"{"inputs": [{"name": "x", "channels": 2}], "outputs": ["b"], "nodes": [
        {"name": "a", "op": "conv2d", "inputs": ["x"], "out_channels": 2, "kernel_size": 1, "bias": false},
        {"name": "b", "op": "conv2d", "inputs": ["a"], "out_channels": 2, "kernel_size": 1, "bias": false, "weight": "a.weight"}]}"#;
    let specs = params(&Graph::from_json(graph).unwrap());
    let named = |name: &str, last: f64| tensor(name, &[2, 2, 1, 1], vec![1.0, 2.0, 3.0, last]);
    let expected = Parameters::new(&specs, vec![named("a.weight", 4.0)]).unwrap();
    for tensors in [
        vec![named("a.weight", 4.0), named("b.weight", 4.0)],
        vec![named("b.weight", 4.0)],
        vec![named("a.weight", 4.0)],
    ] {
        save_weights(&path, &tensors).unwrap();
        assert_eq!(load_parameters::<f64>(&path, &specs).unwrap(), expected);
    }
    save_weights(&path, &[named("a.weight", 4.0), named("b.weight", 5.0)]).unwrap();
    let error = load_parameters::<f64>(&path, &specs).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "parameters `a.weight` and `b.weight` are one in this network, but differ at element 3"
        ),
        "{error}"
    );
}

#[test]
fn weights_that_cannot_be_stored_leave_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    save_weights(&path, &weights()).unwrap();
    let name = path.display();

    let twice = [tensor("w", &[1], vec![0.0_f32]), tensor("w", &[1], vec![0.0])];
    assert_eq!(
        save_weights(&path, &twice).unwrap_err().to_string(),
        format!("`{name}`: tensor `w` stands twice")
    );
    let short = [tensor("w", &[2, 2], vec![0.0_f32; 3])];
    assert_eq!(
        save_weights(&path, &short).unwrap_err().to_string(),
        format!("`{name}`: tensor `w` has 3 elements, its shape wants 4")
    );
    let huge = [tensor("w", &[usize::MAX, 2], vec![0.0_f32; 3])];
    assert!(matches!(save_weights(&path, &huge), Err(IoError::Overflow { .. })));
    assert_eq!(load_weights::<f64>(&path).unwrap(), weights());
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

#[test]
fn a_file_of_weights_cut_anywhere_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    save_weights(&path, &weights()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for len in 0..bytes.len() {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let error = load_weights::<f64>(&path).unwrap_err();
        assert!(matches!(error, IoError::Weights { .. }), "{len}: {error:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_changed_file_of_weights_is_weights_or_an_error(
        changes in prop::collection::vec((0..500_usize, any::<u8>()), 1..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        save_weights(&path, &weights()).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        for (index, byte) in changes {
            let index = index % bytes.len();
            bytes[index] = byte;
        }
        std::fs::write(&path, &bytes).unwrap();
        for tensor in load_weights::<f32>(&path).unwrap_or_default() {
            prop_assert_eq!(tensor.data.len(), tensor.shape.iter().product::<usize>());
        }
    }
}
