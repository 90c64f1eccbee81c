//! Weights in `.safetensors` files.

use std::path::Path;

use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use tiled_exec::{IoError, load_weights, save_weights};
use tiled_graph::ParamTensor;

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
fn other_types_are_refused_but_for_the_counters_of_batch_norm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    write(&path, "n1.num_batches_tracked", Dtype::I64, vec![], &[0; 8]);
    assert_eq!(load_weights::<f32>(&path).unwrap(), []);
    write(&path, "n1.weight", Dtype::I64, vec![1], &[0; 8]);
    let error = load_weights::<f32>(&path).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("`{}`: tensor `n1.weight` has type I64, known are F64, F32, F16 and BF16", path.display())
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
        for (place, byte) in changes {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        std::fs::write(&path, &bytes).unwrap();
        for tensor in load_weights::<f32>(&path).unwrap_or_default() {
            prop_assert_eq!(tensor.data.len(), tensor.shape.iter().product::<usize>());
        }
    }
}
