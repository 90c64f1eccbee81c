//! Steps of training against torch, and stopped and gone on with.

use ndarray::{ArrayD, array};
use tiled_autograd::nn::{
    BatchNorm, Conv2d, Dropout, EncoderLayerOptions, Entry, Linear, Module, TransformerEncoderLayer,
};
use tiled_autograd::train::{
    Method, Optimizer, Schedule, clip_norm, clip_value, load_checkpoint, save_checkpoint,
};
use tiled_autograd::{
    AdamOptions, AdamWOptions, Context, CrossEntropyOptions, Element, Result, SgdOptions, TapeError, Target,
    Tensor, cross_entropy, parts,
};
use tiled_kernel::Reference;

use crate::{drawn, read};

#[derive(Debug)]
struct Cnn<T: Element> {
    conv: Conv2d<T>,
    norm: BatchNorm<T>,
    head: Linear<T>,
}
parts!(Cnn { conv, norm, head });

impl<T: Element> Cnn<T> {
    fn new(context: &Context<T>) -> Result<Self> {
        Ok(Self {
            conv: Conv2d::new(
                context,
                2,
                tiled_graph::Conv2d { bias: false, ..tiled_graph::Conv2d::new(4, [3, 3]) },
            )?,
            norm: BatchNorm::new(context, 4, 1e-5, 0.1, true)?,
            head: Linear::new(context, 80, 3, true)?,
        })
    }
}

impl<T: Element> Module<T> for Cnn<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        let features = self.norm.forward(&self.conv.forward(x)?)?.relu()?;
        self.head.forward(&features.flatten(1, -1)?)
    }
}

#[derive(Debug)]
struct Block<T: Element> {
    layer: TransformerEncoderLayer<T>,
    head: Linear<T>,
}
parts!(Block { layer, head });

impl<T: Element> Module<T> for Block<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        self.head.forward(&self.layer.forward(x)?.mean(&[1], false)?)
    }
}

fn methods() -> [(&'static str, Method); 3] {
    let adam = AdamOptions { lr: 0.01, weight_decay: 0.01, ..AdamOptions::default() };
    let adamw = AdamWOptions { lr: 0.01, weight_decay: 0.1, eps: 1e-4, ..AdamWOptions::default() };
    [
        (
            "sgd",
            Method::Sgd(SgdOptions { lr: 0.05, momentum: 0.9, weight_decay: 0.01, ..SgdOptions::default() }),
        ),
        ("adam", Method::Adam(adam)),
        ("adamw", Method::AdamW(adamw)),
    ]
}

/// All tensors of a module one after the other, counters left out where they are.
fn values<T: Element>(module: &impl Module<T>, with_counters: bool) -> Vec<(String, Tensor<T>)> {
    let mut all = Vec::new();
    module.visit("", &mut |entry: Entry<'_, T>| {
        if with_counters || !entry.name.ends_with("num_batches_tracked") {
            all.push((entry.name, entry.tensor.clone()));
        }
    });
    all
}

/// Ten steps of each optimiser, from where torch began.
fn ten_steps<T: Element, M: Module<T>>(
    context: &Context<T>,
    name: &str,
    shape: &[usize],
    bound: f64,
    make: impl Fn() -> Result<M>,
) -> Result<f64> {
    let fixture = read("training.safetensors");
    let stored = |key: String| &fixture.iter().find(|(own, ..)| *own == key).expect("torch has it").2;
    let mut worst = 0.0_f64;
    for (method_name, method) in methods() {
        let model = make()?;
        let mut begin = stored(format!("{name}.begin")).iter();
        for (_, tensor) in values(&model, true) {
            let own: Vec<T> =
                begin.by_ref().take(tensor.elements()).map(|value| T::from_f64(*value)).collect();
            tensor.assign_slice(&own)?;
        }
        let mut optimizer = Optimizer::new(model.parameters(), method)?;
        for step in 0..10_u32 {
            let x = drawn(context, u64::from(900 + step % 3), shape)?;
            let classes: Vec<i64> = (0..4).map(|n| i64::from((step + n) % 3)).collect();
            let classes = ArrayD::from_shape_vec(vec![4], classes).expect("four of them");
            optimizer.zero_grad();
            let target = Target::Classes(&classes);
            cross_entropy(&model.forward(&x)?, &target, &CrossEntropyOptions::default())?.backward()?;
            optimizer.step()?;
            let mut expected = stored(format!("{name}.{method_name}.{step}")).iter();
            for (entry, tensor) in values(&model, false) {
                let got = tensor.to_vec();
                let own: Vec<f64> = expected.by_ref().take(got.len()).copied().collect();
                let largest = own.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
                for (got, expected) in got.iter().zip(&own) {
                    let apart = (got.to_f64() - expected).abs() / largest;
                    worst = worst.max(apart);
                    assert!(
                        apart <= bound,
                        "{name}, {method_name}, step {step}, {entry}: {got} for {expected}"
                    );
                }
            }
            assert!(expected.next().is_none());
        }
    }
    Ok(worst)
}

fn both<T: Element>(kernels: &'static dyn tiled_autograd::Kernels<T>, bound: f64) -> Result<()> {
    let context = Context::<T>::new(kernels, 1)?;
    let cnn = ten_steps(&context, "cnn", &[4, 2, 6, 7], bound, || Cnn::new(&context))?;
    let options = EncoderLayerOptions {
        dim_feedforward: 16,
        dropout: 0.0,
        batch_first: true,
        ..EncoderLayerOptions::default()
    };
    let block = ten_steps(&context, "block", &[4, 5, 8], bound, || {
        Ok(Block {
            layer: TransformerEncoderLayer::new(&context, 8, 2, options)?,
            head: Linear::new(&context, 8, 3, true)?,
        })
    })?;
    eprintln!("ten steps, at most {cnn:.1e} and {block:.1e} of the largest off, bound {bound:.0e}");
    Ok(())
}

#[test]
fn ten_steps_in_double_precision_are_those_of_torch() -> Result<()> {
    both::<f64>(&Reference, 1e-9)
}

#[test]
fn ten_steps_in_single_precision_are_those_of_torch() -> Result<()> {
    both::<f32>(&Reference, 1e-4)
}

#[derive(Debug)]
struct Dropped<T: Element> {
    inner: Cnn<T>,
    dropout: Dropout<T>,
}
parts!(Dropped { inner, dropout });

impl<T: Element> Module<T> for Dropped<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        self.inner.forward(&self.dropout.forward(x)?)
    }
}

/// Steps from one to before another, with a schedule and dropout; the losses.
fn train(
    context: &Context<f32>,
    model: &Dropped<f32>,
    optimizer: &mut Optimizer<f32>,
    steps: std::ops::Range<u64>,
) -> Result<Vec<u32>> {
    let schedule = Schedule::Cosine { steps: 10, least: 0.0 };
    let classes = array![0_i64, 1, 2, 1].into_dyn();
    steps
        .map(|step| {
            optimizer.set_learning_rate(0, schedule.rate(0.02, step))?;
            let x = context.normal(&[4, 2, 6, 7], 0.0, 1.0)?;
            let options = CrossEntropyOptions::default();
            let loss = cross_entropy(&model.forward(&x)?, &Target::Classes(&classes), &options)?;
            optimizer.zero_grad();
            loss.backward()?;
            optimizer.step()?;
            Ok(loss.item()?.to_bits())
        })
        .collect()
}

fn begin(context: &Context<f32>) -> Result<(Dropped<f32>, Optimizer<f32>)> {
    context.seed(11);
    let model = Dropped { inner: Cnn::new(context)?, dropout: Dropout::new(0.2) };
    let optimizer = Optimizer::new(model.parameters(), methods()[2].1)?;
    Ok((model, optimizer))
}

#[test]
fn training_that_was_stopped_goes_on_with_the_same_bits() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint.safetensors");
    let context = Context::<f32>::new(&Reference, 1)?;
    let (model, mut optimizer) = begin(&context)?;
    let whole = train(&context, &model, &mut optimizer, 0..10)?;
    let last = values(&model, true);

    let (model, mut optimizer) = begin(&context)?;
    let first = train(&context, &model, &mut optimizer, 0..5)?;
    save_checkpoint(&path, &context, &model, &optimizer, 5)?;

    let other = Context::<f32>::new(&Reference, 1)?;
    let (model, mut optimizer) = begin(&other)?;
    train(&other, &model, &mut optimizer, 0..2)?;
    let steps = load_checkpoint(&path, &other, &model, &mut optimizer)?;
    assert_eq!(steps, 5);
    let second = train(&other, &model, &mut optimizer, steps..10)?;
    assert_eq!(whole, [first, second].concat());
    for ((name, expected), (_, got)) in last.iter().zip(values(&model, true)) {
        assert_eq!(expected.to_vec(), got.to_vec(), "{name}");
    }

    // a file that cannot be written leaves the one that stands, and one that does not fit changes nothing
    let before = std::fs::read(&path).expect("it stands");
    assert!(save_checkpoint(folder.path(), &context, &model, &optimizer, 6).is_err());
    assert_eq!(std::fs::read(&path).expect("it stands"), before);
    let small = Linear::new(&other, 2, 2, true)?;
    let mut of_small = Optimizer::new(small.parameters(), methods()[0].1)?;
    let error = load_checkpoint(&path, &other, &small, &mut of_small).expect_err("it is another model");
    assert!(matches!(error, TapeError::MissingEntry { .. }), "{error}");
    Ok(())
}

#[test]
fn bad_rates_and_gradients_change_nothing() -> Result<()> {
    let context = Context::<f64>::new(&Reference, 1)?;
    let x = context.ones(&[2])?.with_gradient()?;
    let sgd = Method::Sgd(SgdOptions { lr: f64::NAN, ..SgdOptions::default() });
    let error = Optimizer::new(vec![("x".to_owned(), x.clone())], sgd).expect_err("no rate");
    assert_eq!(error.to_string(), "sgd: lr is NaN, a finite number of at least 0 is wanted");
    let mut optimizer = Optimizer::new(vec![("x".to_owned(), x.clone())], methods()[0].1)?;
    assert!(
        optimizer.set_learning_rate(0, f64::NAN).is_err() && optimizer.set_learning_rate(1, 0.1).is_err()
    );
    (&x * f64::INFINITY)?.sum(&[], false)?.backward()?;
    assert!(optimizer.step().is_err());
    assert_eq!(x.to_vec(), [1.0; 2]);
    Ok(())
}

#[test]
fn adam_without_options_leaves_a_parameter_without_slope_where_it_is() -> Result<()> {
    let context = Context::<f64>::new(&Reference, 1)?;
    let x = context.full(&[2], 4.0)?.with_gradient()?;
    let mut optimizer =
        Optimizer::new(vec![("x".to_owned(), x.clone())], Method::Adam(AdamOptions::default()))?;
    (&x * 0.0)?.sum(&[], false)?.backward()?;
    optimizer.step()?;
    assert_eq!(x.to_vec(), [4.0, 4.0], "a decay would move it");
    Ok(())
}

#[test]
fn clipping_bounds_the_norm_and_the_elements() -> Result<()> {
    let context = Context::<f64>::new(&Reference, 1)?;
    let (x, y) = (context.ones(&[1])?.with_gradient()?, context.ones(&[1])?.with_gradient()?);
    let step = || (&(&x * 3.0)? + &(&y * 4.0)?)?.sum(&[], false)?.backward();
    step()?;
    let parameters = [x.clone(), y.clone()];
    assert!((clip_norm(&parameters, 1.0)? - 5.0).abs() < 1e-12);
    let grads: Vec<f64> = parameters.iter().filter_map(|p| p.grad()).flat_map(|g| g.to_vec()).collect();
    assert!((grads[0] - 0.6).abs() < 1e-6 && (grads[1] - 0.8).abs() < 1e-6);
    clip_value(&parameters, 0.7)?;
    assert_eq!(y.grad().expect("it has one").to_vec(), [0.7]);
    assert!(clip_norm(&parameters, f64::NAN).is_err());
    Ok(())
}
