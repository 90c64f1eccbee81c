//! Modules and training against torch: states, results, ten steps of each optimiser, checkpoints.
//!
//! `bindings/python/fixtures/torch_autograd_modules.py` writes what is compared with.

mod batches;
mod training;

use std::path::PathBuf;

use ndarray::{ArrayD, array};
use safetensors::SafeTensors;
use tiled_autograd::nn::{
    AttentionCall, AttentionMask, BatchNorm, Conv2d, ConvTranspose2d, Embedding, EncoderLayerOptions,
    Function1, GroupNorm, InstanceNorm2d, LayerNorm, Linear, Module, MultiheadAttention,
    MultiheadAttentionOptions, Parts, Sequential, TransformerEncoderLayer, load_state, parameters,
    save_state, set_state,
};
use tiled_autograd::{Activation, Context, Element, Result, TapeError, Tensor, Unary, parts};
use tiled_exec::load_weights;
use tiled_kernel::Reference;

pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/torch/autograd").join(name)
}

/// Tensors of a file, in `f64`.
pub(crate) fn read(name: &str) -> Vec<(String, Vec<usize>, Vec<f64>)> {
    let bytes = std::fs::read(fixture(name)).expect("the fixture is there");
    let file = SafeTensors::deserialize(&bytes).expect("the fixture is whole");
    let values = |view: &safetensors::tensor::TensorView<'_>| match view.dtype() {
        safetensors::Dtype::F64 => view.data().chunks(8).map(<f64 as Element>::from_le_bytes).collect(),
        _ => view.data().chunks(4).map(|bytes| f64::from(<f32 as Element>::from_le_bytes(bytes))).collect(),
    };
    file.tensors().into_iter().map(|(name, view)| (name, view.shape().to_vec(), values(&view))).collect()
}

fn mixed(counter: u64) -> u64 {
    let z = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The values that the generator draws for this number.
pub(crate) fn drawn<T: Element>(context: &Context<T>, number: u64, shape: &[usize]) -> Result<Tensor<T>> {
    let value =
        |i: usize| -1.0 + 2.0 * ((mixed((7000 + number) * 1_000_003 + i as u64 + 1) >> 48) as f64 / 65536.0);
    let values: Vec<T> = (0..shape.iter().product()).map(|i| T::from_f64(value(i))).collect();
    context.from_slice(shape, &values)
}

#[derive(Debug)]
struct All<T: Element> {
    linear: Linear<T>,
    conv: Conv2d<T>,
    transposed: ConvTranspose2d<T>,
    batch1d: BatchNorm<T>,
    batch2d: BatchNorm<T>,
    layer: LayerNorm<T>,
    group: GroupNorm<T>,
    instance: InstanceNorm2d<T>,
    embedding: Embedding<T>,
    stack: Sequential<T>,
    attention: MultiheadAttention<T>,
    batched: MultiheadAttention<T>,
    cross: MultiheadAttention<T>,
    post: TransformerEncoderLayer<T>,
    pre: TransformerEncoderLayer<T>,
}
parts!(All {
    linear,
    conv,
    transposed,
    batch1d,
    batch2d,
    layer,
    group,
    instance,
    embedding,
    stack,
    attention,
    batched,
    cross,
    post,
    pre
});

impl All<f32> {
    fn new(context: &Context<f32>) -> Result<Self> {
        let plain = MultiheadAttentionOptions::default();
        let layer =
            EncoderLayerOptions { dim_feedforward: 16, dropout: 0.0, ..EncoderLayerOptions::default() };
        let pre = EncoderLayerOptions {
            norm_first: true,
            batch_first: true,
            activation: Activation::Gelu,
            ..layer
        };
        let relu = Function1::new(Unary::Activation(Activation::Relu));
        let stack = Sequential::new().with(Linear::new(context, 5, 3, true)?).with(relu);
        let transposed =
            tiled_graph::ConvTranspose2d { stride: [2, 2], ..tiled_graph::ConvTranspose2d::new(2, [2, 2]) };
        Ok(Self {
            linear: Linear::new(context, 5, 4, true)?,
            conv: Conv2d::new(context, 3, tiled_graph::Conv2d::new(4, [3, 3]).padded([1, 1]))?,
            transposed: ConvTranspose2d::new(context, 3, transposed)?,
            batch1d: BatchNorm::new(context, 4, 1e-5, 0.1, true)?,
            batch2d: BatchNorm::new(context, 3, 1e-5, 0.1, true)?,
            layer: LayerNorm::new(context, &[5], 1e-5, true)?,
            group: GroupNorm::new(context, 2, 4, 1e-5, true)?,
            instance: InstanceNorm2d::new(context, 3, 1e-5, true)?,
            embedding: Embedding::new(context, 6, 4, Some(1))?,
            stack: stack.with(Linear::new(context, 3, 2, true)?),
            attention: MultiheadAttention::new(context, 8, 2, plain)?,
            batched: MultiheadAttention::new(
                context,
                8,
                4,
                MultiheadAttentionOptions { batch_first: true, bias: false, ..plain },
            )?,
            cross: MultiheadAttention::new(
                context,
                8,
                2,
                MultiheadAttentionOptions { kdim: Some(6), vdim: Some(5), batch_first: true, ..plain },
            )?,
            post: TransformerEncoderLayer::new(context, 8, 2, layer)?,
            pre: TransformerEncoderLayer::new(context, 8, 2, pre)?,
        })
    }

    /// What the generator computes, by its names.
    fn results(&self, context: &Context<f32>) -> Result<Vec<(&'static str, Tensor<f32>)>> {
        let image = drawn(context, 1, &[2, 3, 4, 6])?;
        let rows = drawn(context, 2, &[3, 5])?;
        let sequence = drawn(context, 4, &[5, 3, 8])?;
        let (keys, wide) = (drawn(context, 5, &[5, 4, 6])?, drawn(context, 6, &[5, 4, 5])?);
        let hidden = ArrayD::from_shape_fn(vec![5, 5], |at| at[1] > at[0] + 1);
        let padding = ArrayD::from_shape_fn(vec![3, 5], |at| at[0] == 1 && at[1] == 4);
        let mut results = vec![
            ("linear", self.linear.forward(&rows)?),
            ("conv", self.conv.forward(&image)?),
            ("transposed", self.transposed.forward(&image)?),
            ("batch1d", self.batch1d.forward(&drawn(context, 3, &[3, 4])?)?),
            ("batch2d", self.batch2d.forward(&image)?),
        ];
        self.set_training(false);
        results.push(("batch2d_eval", self.batch2d.forward(&image)?));
        self.set_training(true);
        results.push(("layer", self.layer.forward(&rows)?));
        results.push(("group", self.group.forward(&drawn(context, 8, &[2, 4, 3, 3])?)?));
        results.push(("instance", self.instance.forward(&image)?));
        results.push(("embedding", self.embedding.forward(&array![[0_i64, 1], [5, 2]].into_dyn())?));
        results.push(("stack", self.stack.forward(&rows)?));
        let weighed = AttentionCall { need_weights: true, ..AttentionCall::default() };
        let mut attend =
            |name, of: &MultiheadAttention<f32>, [q, k, v]: [&Tensor<f32>; 3], call| -> Result<()> {
                let (result, weights) = of.attend(q, k, v, &call)?;
                let [name, name_of_weights]: [&'static str; 2] = name;
                results.push((name, result));
                results.extend(weights.map(|weights| (name_of_weights, weights)));
                Ok(())
            };
        attend(["attention", "attention_weights"], &self.attention, [&sequence; 3], weighed.clone())?;
        let masked = AttentionCall {
            key_padding: Some(padding),
            mask: Some(AttentionMask::Hidden(hidden)),
            need_weights: true,
            weights_of_heads: true,
        };
        attend(["attention_masked", "attention_heads"], &self.attention, [&sequence; 3], masked)?;
        let single = sequence.select(1, 0)?;
        attend(["attention_single", ""], &self.attention, [&single; 3], AttentionCall::default())?;
        attend(["batched", ""], &self.batched, [&sequence; 3], AttentionCall::default())?;
        let summands = AttentionMask::Summands(drawn(context, 7, &[3, 4])?);
        let call = AttentionCall { mask: Some(summands), ..weighed };
        attend(["cross", "cross_weights"], &self.cross, [&sequence, &keys, &wide], call)?;
        results.push(("post", self.post.forward(&sequence)?));
        results.push(("pre", self.pre.forward(&sequence)?));
        Ok(results)
    }
}

#[test]
fn a_state_of_torch_loads_and_saves_the_same_bytes() -> Result<()> {
    let context = Context::<f32>::new(&Reference, 1)?;
    let all = All::new(&context)?;
    load_state(&all, fixture("state.safetensors"))?;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.safetensors");
    save_state(&all, &path)?;
    let [expected, got] =
        [fixture("state.safetensors"), path].map(|path| std::fs::read(path).expect("a file"));
    assert!(expected == got, "{} bytes for {}", got.len(), expected.len());
    Ok(())
}

#[test]
fn modules_have_the_results_of_torch() -> Result<()> {
    let context = Context::<f32>::new(&Reference, 1)?;
    let all = All::new(&context)?;
    load_state(&all, fixture("state.safetensors"))?;
    let expected = read("modules.safetensors");
    let results = all.results(&context)?;
    assert_eq!(results.len(), expected.len());
    for (name, got) in results {
        let (_, shape, values) = expected.iter().find(|(own, ..)| own == name).expect("torch has it");
        assert_eq!(got.shape(), shape, "{name}");
        let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        for (got, expected) in got.to_vec().iter().zip(values) {
            assert!((f64::from(*got) - expected).abs() <= 1e-5 * largest, "{name}: {got} for {expected}");
        }
    }
    Ok(())
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() -> Result<()> {
    let context = Context::<f32>::new(&Reference, 1)?;
    let linear = Linear::new(&context, 3, 2, true)?;
    let before = linear.weight.to_vec();
    let tensor = |name: &str, shape: &[usize]| {
        tiled_graph::ParamTensor::new(name, shape.to_vec(), vec![1.0; shape.iter().product()])
            .expect("it fits")
    };
    let both = || vec![tensor("weight", &[2, 3]), tensor("bias", &[2])];
    let error = set_state(&linear, both()[..1].to_vec()).expect_err("one is missing");
    assert_eq!(error.to_string(), "state: entry `bias` of shape [2] is missing");
    let error =
        set_state(&linear, vec![tensor("weight", &[2, 3]), tensor("bias", &[3])]).expect_err("misshapen");
    assert_eq!(error.to_string(), "state: entry `bias` has shape [3], the parameter wants [2]");
    let more = [both(), vec![tensor("gain", &[1])]].concat();
    let error = set_state(&linear, more).expect_err("one is unknown");
    assert!(matches!(error, TapeError::UnknownEntry { .. }), "{error}");
    assert_eq!(linear.weight.to_vec(), before);
    set_state(&linear, both())?;
    assert_eq!(linear.weight.to_vec(), [1.0; 6]);
    let names: Vec<String> =
        load_weights::<f32>(fixture("state.safetensors"))?.into_iter().map(|tensor| tensor.name).collect();
    assert!(names.contains(&"post.self_attn.in_proj_weight".to_owned()));
    Ok(())
}

#[test]
fn keys_without_history_have_no_gradient() -> Result<()> {
    let context = Context::<f64>::new(&Reference, 1)?;
    let options = MultiheadAttentionOptions { batch_first: true, ..MultiheadAttentionOptions::default() };
    let attention = MultiheadAttention::new(&context, 4, 2, options)?;
    let gradient = |with: &dyn Fn(&Tensor<f64>) -> Result<Tensor<f64>>| -> Result<Vec<f64>> {
        let x = drawn(&context, 9, &[2, 3, 4])?.with_gradient()?;
        let keys = with(&x)?;
        let (y, _) = attention.attend(&x, &keys, &keys, &AttentionCall::default())?;
        y.sum(&[], false)?.backward()?;
        Ok(x.grad().expect("it needs one").to_vec())
    };
    // the same elements in the same memory, and in memory of their own
    let (shared, own) = (gradient(&|x| Ok(x.detach()))?, gradient(&|x| context.from_array(&x.to_array()))?);
    assert!(shared.iter().zip(&own).all(|(a, b)| (a - b).abs() < 1e-12), "{shared:?} for {own:?}");
    assert_ne!(shared, gradient(&|x| Ok(x.clone()))?, "with history they have one");
    Ok(())
}

#[test]
fn padding_of_another_length_is_an_error() -> Result<()> {
    let context = Context::<f64>::new(&Reference, 1)?;
    let attention = MultiheadAttention::new(&context, 4, 2, MultiheadAttentionOptions::default())?;
    let x = drawn(&context, 9, &[3, 4])?;
    let call =
        AttentionCall { key_padding: Some(array![false, true].into_dyn()), ..AttentionCall::default() };
    let error = attention.attend(&x, &x, &x, &call).expect_err("there are three keys");
    let expected = "multihead_attention: the padding of keys has shape [1, 2], wants [1, 3]";
    assert_eq!(error.to_string(), expected);
    Ok(())
}

#[test]
fn a_shared_parameter_moves_once_and_is_saved_under_both_names() -> Result<()> {
    #[derive(Debug)]
    struct Tied<T: Element> {
        first: Linear<T>,
        second: Linear<T>,
    }
    parts!(Tied { first, second });
    let context = Context::<f64>::new(&Reference, 1)?;
    let first = Linear::new(&context, 3, 3, false)?;
    let second = Linear { weight: first.weight.clone(), bias: None };
    let tied = Tied { first, second };
    let names: Vec<String> = parameters(&tied).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["first.weight"]);
    let mut entries = Vec::new();
    tied.visit("", &mut |entry: tiled_autograd::nn::Entry<'_, f64>| entries.push(entry.name));
    assert_eq!(entries, ["first.weight", "second.weight"]);
    Ok(())
}
