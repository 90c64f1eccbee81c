//! Bad input: each text stands in `tests/ui`.

use std::path::Path;

use ndarray::{Array1, ArrayD, array};
use tiled_autograd::nn::{Linear, Module, set_state};
use tiled_autograd::train::{Examples, Method, Optimizer, Rows, clip_norm};
use tiled_autograd::{
    AttentionOptions, Context, CrossEntropyOptions, Mode, Reduction, Result, SgdOptions, Target, Tensor,
    Tiled, bce_with_logits, concat, cross_entropy, embedding, grad, mse_loss, nll_loss,
    scaled_dot_product_attention,
};
use tiled_exec::{ElementType, NpyHeader};
use tiled_graph::{Conv2d, Graph, ParamTensor};
use tiled_kernel::Reference;

use crate::{context, leaf};

/// What is wrong, as it stands in the file of this name; `BLESS=1` writes it.
fn check<R>(name: &str, result: Result<R>) {
    let Err(error) = result else { panic!("{name}: no error") };
    check_text(name, &error.to_string());
}

/// The same of a file, whose folder is another each time.
fn check_file<R>(name: &str, folder: &Path, result: Result<R>) {
    let Err(error) = result else { panic!("{name}: no error") };
    check_text(name, &error.to_string().replace(&folder.display().to_string(), "folder"));
}

fn check_text(name: &str, text: &str) {
    let got = format!("{text}\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/ui/tape_{name}.txt"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &got).expect("the file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, expected, "{name}");
}

#[test]
fn bad_input_is_an_error_that_says_what_is_wrong() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[2, 3]);
    let before = x.to_vec();
    check("broadcast", &x + &leaf(&context, 2, &[2]));
    check("inner", x.matmul(&leaf(&context, 2, &[2, 3])));
    check("inner_of_linear", x.linear(&leaf(&context, 2, &[4, 2]), None));
    check("bias_of_linear", x.linear(&leaf(&context, 2, &[4, 3]), Some(&leaf(&context, 2, &[3]))));
    check("axis", x.sum(&[2], false));
    check("axis_twice", x.sum(&[1, -1], false));
    check("reshape", x.reshape(&[4, 2]));
    check("expand", x.expand(&[4, 3]));
    check("slice", x.slice(1, 2, 5));
    check("permute", x.permute(&[0]));
    check("concat", concat(&[&x, &leaf(&context, 2, &[2, 3, 1])], 0));
    check("index", x.index_select(0, &Array1::from(vec![0, 2])));
    check("embedding", embedding(&array![0_i64, -1].into_dyn(), &x, None));
    check("max_of_none", context.zeros(&[0, 3])?.max(&[0], false));
    check("too_many_axes", context.zeros(&[1; 9]));
    check("too_large", context.zeros(&[usize::MAX, 2]));
    let one = context.zeros(&[1, 1])?;
    let large = one.expand(&[1 << 40, 1])?;
    check("product_too_large", large.matmul(&large.transpose(0, 1)?));
    let columns = one.expand(&[1 << 40, 1 << 19, 1])?;
    check("repeated_factor_too_large", one.expand(&[1 << 10, 1 << 19])?.matmul(&columns));
    check("scale", x.powf(f64::NAN));
    let classes = array![0_i64, 3].into_dyn();
    let options = CrossEntropyOptions::default();
    check("class", cross_entropy(&x, &Target::Classes(&classes), &options));
    let smooth = CrossEntropyOptions { label_smoothing: 1.5, ..CrossEntropyOptions::default() };
    check("smoothing", cross_entropy(&x, &Target::Classes(&array![0_i64, 1].into_dyn()), &smooth));
    check("target_needs_gradient", cross_entropy(&x, &Target::Probabilities(&x), &options));
    let y = leaf(&context, 3, &[2, 4]);
    check("attention", scaled_dot_product_attention([&x, &y, &y], &AttentionOptions::default()));
    let image = leaf(&context, 1, &[1, 4, 8, 8]);
    check("conv2d_channels", image.conv2d(&Conv2d::new(1, [1, 1]), &leaf(&context, 2, &[2, 3, 3, 3]), None));
    check("conv2d_axes", x.conv2d(&Conv2d::new(1, [1, 1]), &leaf(&context, 2, &[2, 3, 3, 3]), None));
    check("dropout", x.dropout(1.5, true));
    let dropped = AttentionOptions { dropout: -0.5, ..AttentionOptions::default() };
    check("dropout_of_attention", scaled_dot_product_attention([&x; 3], &dropped));
    check("target_of_mse", mse_loss(&x, &context.zeros(&[2, 1])?, Reduction::Mean));
    check("target_of_bce", bce_with_logits(&x, &context.zeros(&[3])?, None, None, Reduction::Mean));
    let smooth = CrossEntropyOptions { label_smoothing: 0.5, ..CrossEntropyOptions::default() };
    check("smoothing_of_nll", nll_loss(&x, &array![0_i64, 1].into_dyn(), &smooth));
    let other = Context::<f64>::new(&Reference, 1)?;
    check("contexts", &x + &other.ones(&[3])?);
    assert_eq!(x.to_vec(), before);
    Ok(())
}

#[test]
fn a_backward_that_cannot_be_is_an_error() -> Result<()> {
    let context = context();
    let x = leaf(&context, 1, &[2, 3]);
    let y = (&x * &x)?;
    check("not_scalar", y.backward());
    let upstream = context.ones(&[2])?;
    check("upstream", y.backward_with(Some(&upstream), Default::default()));
    let sum = y.sum(&[], false)?;
    sum.backward()?;
    check("twice", sum.backward());
    check("freed", (&y * 2.0)?.sum(&[], false)?.backward());
    let gradient = x.grad().expect("it needs one");
    check("double", gradient.sum(&[], false)?.backward());
    check("no_history", grad(&[&x.sum(&[], false)?], &[&context.ones(&[1])?]));
    let mut z = (&x * 1.0)?;
    let kept = z.exp()?;
    let mut kept_too = kept.clone();
    kept_too.affine_in_place(1.0, 1.0)?;
    check("saved_value_changed", kept_too.sum(&[], false)?.backward());
    check("stale", &kept * 2.0);
    z.affine_in_place(2.0, 0.0)?;
    check("leaf_in_place", x.clone().affine_in_place(2.0, 0.0));
    check("view_of_leaf_in_place", x.select(0, 1)?.affine_in_place(2.0, 0.0));
    check("needed_in_place", {
        let mut held: Tensor<f64> = (&x * 1.0)?;
        held.mul_in_place(&x)
    });
    context.set_limit_bytes(Some(context.live_bytes()));
    check("limit", x.exp());
    Ok(())
}

#[test]
fn bad_states_and_rates_are_errors_that_change_nothing() -> Result<()> {
    let context = context();
    let linear = Linear::new(&context, 3, 2, true)?;
    let before = linear.weight.to_vec();
    let entry = |name: &str, shape: &[usize]| {
        let values = vec![1.0; shape.iter().product()];
        ParamTensor::new(name, shape.to_vec(), values).expect("it fits")
    };
    let weight = || entry("weight", &[2, 3]);
    check("missing_entry", set_state(&linear, vec![weight()]));
    check("misshapen_entry", set_state(&linear, vec![weight(), entry("bias", &[3])]));
    let more = vec![weight(), entry("bias", &[2]), entry("gain", &[1])];
    check("unknown_entry", set_state(&linear, more));
    let method = |lr| Method::Sgd(SgdOptions { lr, ..SgdOptions::default() });
    check("learning_rate", Optimizer::new(linear.parameters(), method(f64::NAN)));
    let mut optimizer = Optimizer::new(linear.parameters(), method(0.1))?;
    check("learning_rate_of_schedule", optimizer.set_learning_rate(0, f64::NAN));
    check("group", optimizer.set_learning_rate(1, 0.1));
    check("parameter_twice", optimizer.add_group(linear.parameters(), method(0.1)));
    (&linear.forward(&leaf(&context, 1, &[4, 3]))? * f64::INFINITY)?.sum(&[], false)?.backward()?;
    check("gradient_not_finite", optimizer.step());
    check("clip_norm", clip_norm(&optimizer.parameters(), f64::NAN));
    assert_eq!(linear.weight.to_vec(), before);
    Ok(())
}

#[test]
fn bad_examples_are_errors_before_any_step() -> Result<()> {
    let context = context();
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("the file can be written");
        path
    };
    let header = |shape: &[usize]| NpyHeader::format(shape, ElementType::F32).expect("the type has a name");
    let floats = write("floats.npy", &[header(&[2]), vec![0; 8]].concat());
    check_file("element_type", folder.path(), Rows::<i64>::npy(&floats));
    let short = write("short.npy", &[header(&[2, 3]), vec![0; 20]].concat());
    check_file("truncated_rows", folder.path(), Rows::<f32>::npy(&short));
    let single = write("single.npy", &[header(&[]), vec![0; 4]].concat());
    check_file("no_rows", folder.path(), Rows::<f32>::npy(&single));
    let json = br#"{"images":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let bytes = [&(json.len() as u64).to_le_bytes()[..], json, &[0; 4]].concat();
    let tensors = write("tensors.safetensors", &bytes);
    check_file("no_tensor", folder.path(), Rows::<f32>::safetensors(&tensors, "labels"));
    let rows = |len| Rows::memory(ArrayD::<f32>::zeros(vec![len, 2]));
    check("targets", Examples::new(rows(5)?, rows(4)?));
    let examples = Examples::new(rows(5)?, rows(5)?)?;
    check("batch_of_none", examples.in_order(0));
    check("split_examples", examples.split(&context, 6));
    check("rows_without_axes", Rows::memory(ArrayD::<f32>::zeros(vec![])));
    Ok(())
}

#[test]
fn a_network_of_other_inputs_is_an_error() -> Result<()> {
    let context = context();
    let network = |outputs: &str| {
        let text = format!(
            r#"{{"inputs": [{{"name": "x", "channels": 2}}], "nodes": [
                {{"name": "a", "op": "relu", "inputs": ["x"]}}, {{"name": "b", "op": "tanh", "inputs": ["x"]}}],
                "outputs": [{outputs}]}}"#
        );
        Tiled::new(&context, Graph::from_json(&text).expect("it is a network"), None, 0)
    };
    let two = network(r#""a", "b""#)?;
    let x = leaf(&context, 1, &[1, 2, 3, 3]);
    check("tiled_outputs", Module::forward(&two, &x));
    check("tiled_inputs", two.forward(&[&x, &x], Mode::Train));
    check("tiled_sources", two.forward_from(Vec::new(), Mode::Train));
    check("tiled_channels", two.forward(&[&leaf(&context, 1, &[1, 3, 3, 3])], Mode::Train));
    Ok(())
}
