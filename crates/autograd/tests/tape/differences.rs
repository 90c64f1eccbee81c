//! Central differences for every rule of the table and every function of one and two elements.

use std::sync::Arc;

use ndarray::{Array1, ArrayD, array};
use tiled_autograd::{
    Activation, AttentionOptions, Binary, CrossEntropyOptions, Function, Gradients, RULES, Result, Saver,
    Target, Tensor, Unary, apply, concat, cross_entropy, scaled_dot_product_attention,
};
use tiled_graph::Conv2d;

use crate::{context, leaf};

type Run = Box<dyn Fn(&[Tensor<f64>]) -> Result<Tensor<f64>>>;

/// A function of leaves of these shapes, the rule that it is a case of, and what drawings call the operator.
struct Case {
    rule: &'static str,
    operator: String,
    shapes: Vec<Vec<usize>>,
    run: Run,
}

fn case(
    rule: &'static str,
    operator: impl Into<String>,
    shapes: &[&[usize]],
    run: impl Fn(&[Tensor<f64>]) -> Result<Tensor<f64>> + 'static,
) -> Case {
    let shapes = shapes.iter().map(|shape| shape.to_vec()).collect();
    Case { rule, operator: operator.into(), shapes, run: Box::new(run) }
}

const ONE: &str = "a function of one element";
const TWO: &str = "a function of two elements";

/// Every function of one element; those that want numbers above zero say so.
fn functions() -> Vec<(Unary, &'static str, bool)> {
    use Activation as A;
    let of = |activation, name| (Unary::Activation(activation), name, false);
    let positive = |activation, name| (Unary::Activation(activation), name, true);
    vec![
        (Unary::Rsqrt, "rsqrt", true),
        (Unary::Affine { factor: -1.5, summand: 0.25 }, "affine", false),
        of(A::Relu, "relu"),
        of(A::LeakyRelu { slope: 0.1 }, "leaky_relu"),
        of(A::Sigmoid, "sigmoid"),
        of(A::Tanh, "tanh"),
        of(A::Silu, "silu"),
        of(A::Gelu, "gelu"),
        of(A::GeluTanh, "gelu"),
        of(A::Clamp { min: -0.5, max: 0.55 }, "clamp"),
        of(A::Threshold { threshold: 0.1, value: -2.0 }, "threshold"),
        of(A::Elu { alpha: 0.7 }, "elu"),
        of(A::Selu, "selu"),
        of(A::Celu { alpha: 0.7 }, "celu"),
        of(A::Softplus { beta: 2.0, threshold: 1.2 }, "softplus"),
        of(A::Softsign, "softsign"),
        of(A::HardSigmoid, "hardsigmoid"),
        of(A::HardSwish, "hardswish"),
        of(A::Mish, "mish"),
        of(A::LogSigmoid, "logsigmoid"),
        of(A::Exp, "exp"),
        positive(A::Log, "log"),
        positive(A::Sqrt, "sqrt"),
        of(A::Abs, "abs"),
        of(A::Neg, "neg"),
        positive(A::Reciprocal, "reciprocal"),
        positive(A::Pow { exponent: 1.7 }, "pow"),
    ]
}

/// `x·|y|`, by hand.
#[derive(Debug)]
struct Product;

impl Function<f64> for Product {
    fn name(&self) -> &'static str {
        "product"
    }

    fn forward(&self, inputs: &[&Tensor<f64>], saver: &mut Saver<f64>) -> Result<Vec<Tensor<f64>>> {
        saver.save(inputs[0]);
        saver.save(inputs[1]);
        Ok(vec![(inputs[0] * inputs[1])?])
    }

    fn backward(&self, gradients: &mut Gradients<'_, '_, f64>) -> Result<()> {
        let dy = gradients.upstream()[0].clone().expect("there is one result");
        let (x, y) = (gradients.saved(0)?, gradients.saved(1)?);
        gradients.pass(0, (&dy * &y)?)?;
        gradients.pass(1, (&dy * &x)?)
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (f, name, is_positive) in functions() {
        cases.push(case(ONE, name, &[&[3, 4]], move |x| {
            if is_positive { (&x[0] + 1.5)?.map(f) } else { x[0].map(f) }
        }));
    }
    cases.push(case(ONE, "contiguous", &[&[3, 4]], |x| x[0].transpose(0, 1)?.contiguous()));
    for (f, name) in [
        (Binary::Add, "add"),
        (Binary::Sub, "sub"),
        (Binary::Mul, "mul"),
        (Binary::Div, "div"),
        (Binary::Pow, "pow"),
        (Binary::Maximum, "maximum"),
        (Binary::Minimum, "minimum"),
    ] {
        cases.push(case(TWO, name, &[&[2, 3, 4], &[3, 1]], move |x| {
            let positive = matches!(f, Binary::Div | Binary::Pow);
            if positive { (&x[0] + 1.5)?.zip(f, &(&x[1] + 1.5)?) } else { x[0].zip(f, &x[1]) }
        }));
    }
    let mask = || ArrayD::from_shape_fn(vec![3, 4], |at| (at[0] + at[1]) % 2 == 0);
    cases.push(case("where", "where", &[&[3, 4], &[4]], move |x| x[0].where_mask(&mask(), &x[1])));
    cases.push(case("sum, mean", "sum", &[&[2, 3, 4]], |x| x[0].sum(&[0, -1], false)));
    cases.push(case("sum, mean", "mean", &[&[2, 3, 4]], |x| x[0].mean(&[1], true)));
    cases.push(case("max, min", "max", &[&[3, 4]], |x| x[0].max(&[-1], false)));
    cases.push(case("max, min", "min", &[&[2, 3, 4]], |x| x[0].min(&[0, 2], false)));
    cases.push(case("cumsum", "cumsum", &[&[3, 4]], |x| x[0].cumsum(0)));
    cases.push(case("softmax, log_softmax", "softmax", &[&[3, 4]], |x| x[0].softmax(0)));
    cases.push(case("softmax, log_softmax", "log_softmax", &[&[3, 4]], |x| x[0].log_softmax(-1)));
    cases.push(case("matmul", "matmul", &[&[2, 1, 3, 4], &[5, 4, 2]], |x| x[0].matmul(&x[1])));
    cases.push(case("linear", "linear", &[&[2, 3, 4], &[5, 4], &[5]], |x| x[0].linear(&x[1], Some(&x[2]))));
    cases.push(case("layer_norm", "layer_norm", &[&[3, 5], &[5], &[5]], |x| {
        x[0].layer_norm(&[5], Some(&x[1]), Some(&x[2]), 1e-5)
    }));
    cases.push(case(
        "scaled_dot_product_attention",
        "scaled_dot_product_attention",
        &[&[1, 2, 3, 4], &[1, 2, 5, 4], &[1, 2, 5, 2]],
        |x| scaled_dot_product_attention([&x[0], &x[1], &x[2]], &AttentionOptions::default()),
    ));
    cases.push(case("scaled_dot_product_attention", "scaled_dot_product_attention", &[&[2, 4, 3]], |x| {
        let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
        scaled_dot_product_attention([&x[0], &x[0], &x[0]], &options)
    }));
    cases.push(case("cross_entropy", "cross_entropy", &[&[3, 4]], |x| {
        let classes = array![2_i64, -100, 0].into_dyn();
        let options = CrossEntropyOptions { label_smoothing: 0.1, ..CrossEntropyOptions::default() };
        cross_entropy(&x[0], &Target::Classes(&classes), &options)
    }));
    let index = || Array1::from(vec![2, 0, -1, 2]);
    cases.push(case("index_select, embedding", "index_select", &[&[3, 4]], move |x| {
        x[0].index_select(0, &index())
    }));
    let each = || array![[0_i64, 2, 1], [1, 1, 0]].into_dyn();
    cases.push(case("gather", "gather", &[&[3, 4]], move |x| x[0].gather(0, &each())));
    cases.push(case("scatter_add", "scatter_add", &[&[3, 4], &[2, 3]], move |x| {
        x[0].scatter_add(0, &each(), &x[1])
    }));
    cases.push(case("concat, stack", "concat", &[&[2, 3], &[2, 1]], |x| concat(&[&x[0], &x[1], &x[0]], 1)));
    cases.push(case("reshape, squeeze, unsqueeze, flatten", "reshape", &[&[3, 4]], |x| {
        x[0].transpose(0, 1)?.reshape(&[2, 6])
    }));
    cases.push(case("permute, transpose", "permute", &[&[2, 3, 4]], |x| x[0].permute(&[2, 0, 1])));
    cases.push(case("expand", "expand", &[&[3, 1]], |x| x[0].expand(&[2, 3, 4])));
    cases.push(case("slice, select, split", "slice", &[&[3, 7]], |x| {
        let parts = x[0].split(1, &[3, 4])?;
        &parts[0].slice_step(1, 0, 3, 2)? * &parts[1].slice_step(1, 0, 4, 2)?
    }));
    cases.push(case("flip", "flip", &[&[3, 4]], |x| x[0].flip(&[0, 1])));
    cases.push(case("pad", "pad", &[&[3, 4]], |x| x[0].pad(&[[1, 0], [2, 1]], 0.5)));
    cases.push(case(
        "a network, or a function of the user",
        "conv2d",
        &[&[1, 2, 5, 5], &[3, 2, 3, 3], &[3]],
        |x| x[0].conv2d(&Conv2d::new(1, [1, 1]).padded([1, 1]), &x[1], Some(&x[2])),
    ));
    cases.push(case("a network, or a function of the user", "product", &[&[3, 4], &[3, 4]], |x| {
        Ok(apply(&Arc::new(Product), &[&x[0], &x[1]])?.remove(0))
    }));
    cases
}

/// `Σ y·w` with weights that tell the elements apart, in the order of the elements.
fn weighed(y: &Tensor<f64>) -> f64 {
    y.to_vec().iter().enumerate().map(|(i, y)| y * (0.3 + (i % 7) as f64 * 0.1)).sum()
}

#[test]
fn every_rule_has_a_case_that_runs_it() {
    let cases = cases();
    for rule in RULES {
        assert!(cases.iter().any(|case| case.rule == rule.operator), "no case for {}", rule.operator);
    }
    for case in &cases {
        assert!(RULES.iter().any(|rule| rule.operator == case.rule), "no rule for {}", case.rule);
        let context = context();
        let leaves: Vec<_> =
            case.shapes.iter().enumerate().map(|(at, shape)| leaf(&context, at, shape)).collect();
        let drawn = (case.run)(&leaves).expect("it runs").to_dot();
        assert!(drawn.contains(&format!("\"{} [", case.operator)), "{}: {drawn}", case.operator);
    }
}

#[test]
fn gradients_are_those_of_central_differences() {
    const STEP: f64 = 1e-5;
    let (mut count, mut worst) = (0, 0.0_f64);
    for case in cases() {
        let context = context();
        let leaves: Vec<_> =
            case.shapes.iter().enumerate().map(|(at, shape)| leaf(&context, at, shape)).collect();
        let y = (case.run)(&leaves).expect("it runs");
        let weights: Vec<f64> = (0..y.elements()).map(|i| 0.3 + (i % 7) as f64 * 0.1).collect();
        let upstream = context.from_slice(y.shape(), &weights).expect("a small tensor");
        y.backward_with(Some(&upstream), Default::default()).expect("it runs back");
        for leaf in &leaves {
            let gradient = leaf.grad().expect("a leaf has one").to_vec();
            let mut values = leaf.to_vec();
            for at in 0..values.len() {
                let held = values[at];
                let mut sums = [0.0; 2];
                for (sum, step) in sums.iter_mut().zip([STEP, -STEP]) {
                    values[at] = held + step;
                    leaf.assign_slice(&values).expect("a leaf may be assigned to");
                    *sum = weighed(&(case.run)(&leaves).expect("it runs"));
                }
                values[at] = held;
                leaf.assign_slice(&values).expect("a leaf may be assigned to");
                let expected = (sums[0] - sums[1]) / (2.0 * STEP);
                let apart = (gradient[at] - expected).abs() / expected.abs().max(1.0);
                worst = worst.max(apart);
                assert!(apart < 1e-6, "{}: {} for {expected}", case.operator, gradient[at]);
            }
        }
        count += 1;
    }
    eprintln!("{count} cases, at most {worst:.1e} off");
}
