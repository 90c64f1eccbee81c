//! The operators, modules and models that are compared.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use tiled::autograd::nn::{
    AttentionCall, Conv2d, EncoderLayerOptions, Linear, Module, MultiheadAttention,
    MultiheadAttentionOptions, TransformerEncoderLayer, set_state,
};
use tiled::autograd::train::{Method, Optimizer};
use tiled::autograd::{
    AdamWOptions, AttentionOptions, Context, CrossEntropyOptions, Result, SgdOptions, Target, Tensor,
    cross_entropy, scaled_dot_product_attention,
};
use tiled::graph;
use tiled::graph::ParamTensor;

use crate::networks::{Cnn, Vit};
use crate::{Failure, numbers, text};

type Forward = Box<dyn Fn() -> Result<Tensor<f32>> + Send + Sync>;

/// A function of tensors, the tensors whose gradients are compared, and who moves parameters in a step.
pub(crate) struct Case {
    forward: Forward,
    named: Vec<(String, Tensor<f32>)>,
    optimizer: Option<Optimizer<f32>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("named", &self.named).finish_non_exhaustive()
    }
}

/// The tensors of a case's file: those of a module are named `module.…`.
struct Tensors<'c> {
    context: &'c Context<f32>,
    given: BTreeMap<String, ParamTensor<f32>>,
    /// Whether inputs need gradients.
    inputs_need: bool,
    inputs: Vec<(String, Tensor<f32>)>,
}

impl Tensors<'_> {
    fn take(&mut self, name: &str) -> Result<ParamTensor<f32>, Failure> {
        self.given.remove(name).ok_or_else(|| format!("there is no tensor `{name}`").into())
    }

    fn input(&mut self, name: &str) -> Result<Tensor<f32>, Failure> {
        let given = self.take(name)?;
        let mut tensor = self.context.from_slice(&given.shape, &given.data)?;
        if self.inputs_need {
            tensor = tensor.with_gradient()?;
        }
        self.inputs.push((name.to_owned(), tensor.clone()));
        Ok(tensor)
    }

    /// Takes all tensors of a module into it.
    fn fill(&mut self, module: &impl Module<f32>) -> Result<(), Failure> {
        let mut own = Vec::new();
        for (name, mut tensor) in std::mem::take(&mut self.given) {
            match name.strip_prefix("module.") {
                Some(short) => {
                    short.clone_into(&mut tensor.name);
                    own.push(tensor);
                }
                None => {
                    self.given.insert(name, tensor);
                }
            }
        }
        Ok(set_state(module, own)?)
    }

    fn case(self, forward: Forward, parameters: Vec<(String, Tensor<f32>)>) -> Case {
        let named = self.inputs.into_iter().chain(parameters).collect();
        Case { forward, named, optimizer: None }
    }
}

impl Case {
    pub(crate) fn new(
        context: &Context<f32>,
        request: &Value,
        tensors: Vec<ParamTensor<f32>>,
    ) -> Result<Self, Failure> {
        let given = tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        let inputs_need = request["inputs_need"].as_bool().unwrap_or(false);
        let mut tensors = Tensors { context, given, inputs_need, inputs: Vec::new() };
        let form = text(request, "form")?;
        match text(request, "kind")? {
            "linear" => {
                let [_, inputs, outputs] = numbers(request, "shape")?;
                let module = Linear::new(context, inputs, outputs, true)?;
                of_module(tensors, module, |module, x| module.forward(x))
            }
            "conv2d" => {
                let [_, channels, _, outputs] = numbers(request, "shape")?;
                let module = Conv2d::new(context, channels, graph::Conv2d::new(outputs, [3, 3]))?;
                of_module(tensors, module, |module, x| module.forward(x))
            }
            "attention" => {
                let [_, _, width, heads] = numbers(request, "shape")?;
                let batch_first = form == "batch first";
                let options = MultiheadAttentionOptions { batch_first, ..Default::default() };
                let module = MultiheadAttention::new(context, width, heads, options)?;
                let call = AttentionCall { need_weights: !batch_first, ..AttentionCall::default() };
                of_module(tensors, module, move |module, x| {
                    module.attend(x, x, x, &call).map(|(result, _)| result)
                })
            }
            "softmax" => {
                let x = tensors.input("x")?;
                Ok(tensors.case(Box::new(move || x.softmax(-1)), Vec::new()))
            }
            "product" => {
                let (a, b) = (tensors.input("a")?, tensors.input("b")?);
                let a = if form == "first transposed" { a.transpose(0, 1)? } else { a };
                let b = if form == "second transposed" { b.transpose(0, 1)? } else { b };
                Ok(tensors.case(Box::new(move || a.matmul(&b)), Vec::new()))
            }
            "heads" => {
                let [q, k, v] = [tensors.input("q")?, tensors.input("k")?, tensors.input("v")?];
                let options = AttentionOptions { causal: form == "causal", ..AttentionOptions::default() };
                let forward = move || scaled_dot_product_attention([&q, &k, &v], &options);
                Ok(tensors.case(Box::new(forward), Vec::new()))
            }
            "chain" => {
                let [nodes] = numbers(request, "shape")?;
                let (x, one) = (tensors.input("x")?, context.ones(&[1])?);
                let forward = move || (0..nodes).try_fold(x.clone(), |sum, _| &sum + &one);
                Ok(tensors.case(Box::new(forward), Vec::new()))
            }
            "cnn" => {
                let module = Cnn::new(context)?;
                let method = Method::Sgd(SgdOptions { lr: 0.01, momentum: 0.9, ..SgdOptions::default() });
                step(tensors, module, method, Some(classes))
            }
            "vit" => {
                let module = Vit::new(context)?;
                let method = Method::AdamW(AdamWOptions::default());
                step(tensors, module, method, Some(classes))
            }
            "encoder" => {
                let [_, _, width, heads, dim_feedforward] = numbers(request, "shape")?;
                let options = EncoderLayerOptions {
                    dim_feedforward,
                    dropout: 0.0,
                    batch_first: true,
                    ..EncoderLayerOptions::default()
                };
                let module = TransformerEncoderLayer::new(context, width, heads, options)?;
                let method = Method::AdamW(AdamWOptions::default());
                step(tensors, module, method, None)
            }
            other => Err(format!("unknown case `{other}`").into()),
        }
    }

    pub(crate) fn forward(&self) -> Result<Tensor<f32>> {
        (self.forward)()
    }

    /// One step of training; its loss.
    pub(crate) fn step(&mut self) -> Result<Tensor<f32>, Failure> {
        let loss = {
            let optimizer = self.optimizer.as_ref().ok_or("nothing is trained in this case")?;
            optimizer.zero_grad();
            self.forward()?
        };
        loss.backward()?;
        self.optimizer.as_mut().ok_or("nothing is trained in this case")?.step()?;
        Ok(loss)
    }

    pub(crate) const fn named(&self) -> &[(String, Tensor<f32>)] {
        self.named.as_slice()
    }
}

fn of_module<M: Module<f32> + Send + Sync + 'static>(
    mut tensors: Tensors<'_>,
    module: M,
    forward: impl Fn(&M, &Tensor<f32>) -> Result<Tensor<f32>> + Send + Sync + 'static,
) -> Result<Case, Failure> {
    tensors.fill(&module)?;
    let x = tensors.input("x")?;
    let parameters = module.parameters();
    Ok(tensors.case(Box::new(move || forward(&module, &x)), parameters))
}

/// The mean of the cross-entropies.
fn classes(scores: &Tensor<f32>, classes: &ndarray::ArrayD<i64>) -> Result<Tensor<f32>> {
    cross_entropy(scores, &Target::Classes(classes), &CrossEntropyOptions::default())
}

type Loss = fn(&Tensor<f32>, &ndarray::ArrayD<i64>) -> Result<Tensor<f32>>;

/// Steps of a model whose loss is one of classes, or the mean of the squares of its results.
fn step<M: Module<f32> + Send + Sync + 'static>(
    mut tensors: Tensors<'_>,
    module: M,
    method: Method,
    loss: Option<Loss>,
) -> Result<Case, Failure> {
    tensors.fill(&module)?;
    let x = tensors.input("x")?;
    let parameters = module.parameters();
    let optimizer = Optimizer::new(parameters.clone(), method)?;
    let forward: Forward = match loss {
        Some(loss) => {
            #[expect(clippy::cast_possible_truncation, reason = "classes are small whole numbers")]
            let classes: Vec<i64> = tensors.take("classes")?.data.iter().map(|class| *class as i64).collect();
            let classes = ndarray::Array1::from(classes).into_dyn();
            Box::new(move || loss(&module.forward(&x)?, &classes))
        }
        None => Box::new(move || {
            let y = module.forward(&x)?;
            (&y * &y)?.mean(&[], false)
        }),
    };
    let mut case = tensors.case(forward, parameters);
    case.optimizer = Some(optimizer);
    Ok(case)
}
