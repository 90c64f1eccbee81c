//! Operations of dense work with their operands, as the suite draws them.

use ndarray::{Array1, ArrayD, ArrayView2, ArrayViewD, ArrayViewMut2, ArrayViewMutD, Ix1, Ix2, IxDyn};
use tiled_kernel::Activation;
use tiled_kernel::dense::{
    Attention, Binary, CrossEntropy, Dense, Direction, Fold, LayerNorm, Product, Side, Softmax, Targets,
    Unary, Update,
};
use tiled_tensor::Element;

use crate::conformance::Rng;

/// What is computed; operands are given apart.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Product { bias: bool, activation: Option<Activation> },
    Map(Unary),
    MapInPlace(Unary),
    MapBackward(Unary),
    Zip(Binary),
    ZipInPlace(Binary),
    ZipBackward(Binary, Side),
    Select,
    Reduce(Fold, f64),
    Cumulate(usize, Direction),
    Softmax(Softmax, usize),
    SoftmaxBackward(Softmax, usize),
    LayerNorm { gamma: bool, beta: bool },
    LayerNormBackward { gamma: bool, dx: bool, parameters: bool },
    Attention { causal: bool, mask: bool },
    AttentionBackward { causal: bool, mask: bool },
    AttentionWeights { causal: bool, mask: bool },
    CrossEntropy(Loss),
    CrossEntropyBackward(Loss),
}

/// What cross-entropy is of.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) classes: Option<Vec<i64>>,
    pub(super) ignore: Option<i64>,
    pub(super) smoothing: f64,
    pub(super) weights: bool,
}

/// An operation, its operands and the shapes of its results.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) op: Op,
    /// Values, and the axes along which all are the same.
    pub(super) operands: Vec<(ArrayD<f64>, Vec<usize>)>,
    /// Shapes, and what is done with the result where that is not free.
    pub(super) results: Vec<(Vec<usize>, Option<Update>)>,
}

pub(super) const NAMES: [&str; 15] = [
    "product",
    "map",
    "map_in_place",
    "map_backward",
    "zip",
    "zip_backward",
    "select",
    "reduce",
    "cumulate",
    "softmax",
    "softmax_backward",
    "layer_norm",
    "attention",
    "cross_entropy",
    "large",
];
pub(super) const KINDS: usize = NAMES.len();

pub(super) const EPSILON: f64 = 1e-5;
pub(super) const SCALE: f64 = 0.3;

pub(super) const UNARY: [Unary; 28] = [
    Unary::Identity,
    Unary::Rsqrt,
    Unary::Affine { factor: 0.3, summand: -1.7 },
    Unary::Activation(Activation::Relu),
    Unary::Activation(Activation::LeakyRelu { slope: 0.01 }),
    Unary::Activation(Activation::LeakyRelu { slope: -0.5 }),
    Unary::Activation(Activation::Sigmoid),
    Unary::Activation(Activation::Tanh),
    Unary::Activation(Activation::Silu),
    Unary::Activation(Activation::Gelu),
    Unary::Activation(Activation::GeluTanh),
    Unary::Activation(Activation::Clamp { min: -0.5, max: 1.5 }),
    Unary::Activation(Activation::Threshold { threshold: 0.25, value: -1.0 }),
    Unary::Activation(Activation::Elu { alpha: 0.7 }),
    Unary::Activation(Activation::Selu),
    Unary::Activation(Activation::Softplus { beta: 2.0, threshold: 20.0 }),
    Unary::Activation(Activation::Softsign),
    Unary::Activation(Activation::HardSigmoid),
    Unary::Activation(Activation::HardSwish),
    Unary::Activation(Activation::Mish),
    Unary::Activation(Activation::LogSigmoid),
    Unary::Activation(Activation::Exp),
    Unary::Activation(Activation::Log),
    Unary::Activation(Activation::Sqrt),
    Unary::Activation(Activation::Abs),
    Unary::Activation(Activation::Neg),
    Unary::Activation(Activation::Reciprocal),
    Unary::Activation(Activation::Pow { exponent: 3.0 }),
];

const BINARY: [Binary; 7] =
    [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Pow, Binary::Maximum, Binary::Minimum];

/// Whether a function wants numbers above zero.
pub(super) const fn wants_positive(f: Unary) -> bool {
    matches!(f, Unary::Rsqrt | Unary::Activation(Activation::Log | Activation::Sqrt | Activation::Reciprocal))
}

/// A few axes, now and then one that is empty.
fn shape(rng: &mut Rng) -> Vec<usize> {
    let axes = rng.index(0, 4);
    let most = [1, 1500, 40, 12, 7][axes];
    let mut shape: Vec<usize> =
        (0..axes).map(|_| if rng.chance(40) { rng.index(1, 3) } else { rng.index(1, most) }).collect();
    if axes > 0 && rng.chance(5) {
        let axis = rng.index(0, axes - 1);
        shape[axis] = 0;
    }
    shape
}

/// Values that the type holds exactly; along some axes all are the same.
struct Draw<'r> {
    rng: &'r mut Rng,
    round: fn(f64) -> f64,
}

impl Draw<'_> {
    fn number(&mut self, low: f64, high: f64) -> f64 {
        (self.round)(self.rng.uniform(low, high))
    }

    fn values(&mut self, shape: &[usize], [low, high]: [f64; 2]) -> (ArrayD<f64>, Vec<usize>) {
        let repeats: Vec<usize> = (0..shape.len()).filter(|_| self.rng.chance(15)).collect();
        let once: Vec<usize> = shape
            .iter()
            .enumerate()
            .map(|(axis, extent)| if repeats.contains(&axis) { 1.min(*extent) } else { *extent })
            .collect();
        let values = ArrayD::from_shape_simple_fn(IxDyn(&once), || self.number(low, high));
        let values = values.broadcast(IxDyn(shape)).expect("axes of one element").to_owned();
        (values, repeats)
    }

    /// Values that are not the same along any axis.
    fn distinct(&mut self, shape: &[usize], [low, high]: [f64; 2]) -> (ArrayD<f64>, Vec<usize>) {
        (ArrayD::from_shape_simple_fn(IxDyn(shape), || self.number(low, high)), Vec::new())
    }
}

impl Operation {
    pub(super) fn inputs(&self) -> &[(ArrayD<f64>, Vec<usize>)] {
        &self.operands
    }

    pub(super) fn outputs(&self) -> &[(Vec<usize>, Option<Update>)] {
        &self.results
    }

    pub(super) fn operand(&self, which: usize) -> &ArrayD<f64> {
        &self.operands[which].0
    }

    pub(super) fn new(
        op: Op,
        operands: Vec<ArrayD<f64>>,
        results: Vec<(Vec<usize>, Option<Update>)>,
    ) -> Self {
        Self { op, operands: operands.into_iter().map(|values| (values, Vec::new())).collect(), results }
    }

    /// The same with other operands.
    pub(super) fn with(&self, operands: Vec<ArrayD<f64>>) -> Self {
        Self::new(self.op.clone(), operands, self.results.clone())
    }

    pub(super) fn random<T: Element>(kind: usize, index: usize, rng: &mut Rng) -> Self {
        let mut draw = Draw { rng, round: |value| T::from_f64(value).to_f64() };
        let free = |shape: &[usize]| vec![(shape.to_vec(), None)];
        let replaced = |shape: &[usize]| (shape.to_vec(), Some(Update::Replace));
        let added = |shape: &[usize]| (shape.to_vec(), Some(Update::Add));
        match kind {
            0 => Self::product(&mut draw, index, None),
            1..=3 => {
                let f = UNARY[draw.rng.index(0, UNARY.len() - 1)];
                let shape = shape(draw.rng);
                let range = if wants_positive(f) { [0.1, 4.0] } else { [-4.0, 4.0] };
                let x = draw.values(&shape, range);
                let dy = draw.values(&shape, [-1.0, 1.0]);
                match kind {
                    1 => Self { op: Op::Map(f), operands: vec![x], results: free(&shape) },
                    2 => Self { op: Op::MapInPlace(f), operands: vec![x], results: vec![replaced(&shape)] },
                    _ => Self { op: Op::MapBackward(f), operands: vec![x, dy], results: free(&shape) },
                }
            }
            4 | 5 => {
                let f = BINARY[index % BINARY.len()];
                let shape = shape(draw.rng);
                let range = if f == Binary::Pow { [0.1, 3.0] } else { [-4.0, 4.0] };
                let (a, mut b) = (draw.values(&shape, range), draw.values(&shape, [0.5, 3.0]));
                if draw.rng.chance(20) {
                    b = a.clone();
                }
                if kind == 4 {
                    let in_place = draw.rng.chance(30);
                    let (op, results) = if in_place {
                        (Op::ZipInPlace(f), vec![replaced(&shape)])
                    } else {
                        (Op::Zip(f), free(&shape))
                    };
                    return Self { op, operands: vec![a, b], results };
                }
                let side = draw.rng.pick(&[Side::First, Side::Second]);
                let dy = draw.values(&shape, [-1.0, 1.0]);
                let to = folded(&shape, draw.rng);
                Self { op: Op::ZipBackward(f, side), operands: vec![a, b, dy], results: free(&to) }
            }
            6 => {
                let shape = shape(draw.rng);
                let operands = vec![
                    draw.values(&shape, [-1.0, 1.0]),
                    draw.values(&shape, [-4.0, 4.0]),
                    draw.values(&shape, [-4.0, 4.0]),
                ];
                Self { op: Op::Select, operands, results: free(&shape) }
            }
            7 => {
                let shape = shape(draw.rng);
                let to = folded(&shape, draw.rng);
                let fold = [Fold::Sum, Fold::Max, Fold::Min][index % 3];
                let scale = if fold == Fold::Sum { 0.125 } else { 1.0 };
                let x = draw.values(&shape, [-4.0, 4.0]);
                Self { op: Op::Reduce(fold, scale), operands: vec![x], results: free(&to) }
            }
            8..=10 => {
                let mut shape = shape(draw.rng);
                if shape.is_empty() {
                    shape.push(7);
                }
                let axis = draw.rng.index(0, shape.len() - 1);
                let kind_of = [Softmax::Probabilities, Softmax::Logarithms][index % 2];
                let x = draw.values(&shape, [-6.0, 6.0]);
                match kind {
                    8 => {
                        let direction = [Direction::FromStart, Direction::FromEnd][index % 2];
                        Self { op: Op::Cumulate(axis, direction), operands: vec![x], results: free(&shape) }
                    }
                    9 => Self {
                        op: Op::Softmax(kind_of, axis),
                        operands: vec![x],
                        results: vec![replaced(&shape)],
                    },
                    _ => {
                        let range = if index.is_multiple_of(2) { [0.0, 0.5] } else { [-6.0, 0.0] };
                        let (y, dy) = (draw.values(&shape, range), draw.values(&shape, [-1.0, 1.0]));
                        let operands = vec![y, dy];
                        Self { op: Op::SoftmaxBackward(kind_of, axis), operands, results: free(&shape) }
                    }
                }
            }
            11 => {
                let [rows, cols] = [draw.rng.index(0, 70), draw.rng.index(1, 300)];
                let (gamma, beta) = (draw.rng.chance(60), draw.rng.chance(60));
                let (x, whole) = (draw.values(&[rows, cols], [-3.0, 5.0]), [rows, cols]);
                let parameters = [draw.values(&[cols], [0.5, 2.0]), draw.values(&[cols], [-1.0, 1.0])];
                if index.is_multiple_of(2) {
                    let [g, b] = parameters;
                    return Self {
                        op: Op::LayerNorm { gamma, beta },
                        operands: vec![x, g, b],
                        results: vec![replaced(&whole), replaced(&[rows]), replaced(&[rows])],
                    };
                }
                let [g, _] = parameters;
                let operands = vec![
                    x,
                    g,
                    draw.values(&[rows], [-1.0, 1.0]),
                    draw.values(&[rows], [0.2, 2.0]),
                    draw.values(&whole, [-1.0, 1.0]),
                ];
                let (dx, parameters) = (draw.rng.chance(80), draw.rng.chance(70));
                let mut results = Vec::new();
                if dx {
                    results.push((whole.to_vec(), None));
                }
                if parameters {
                    results.extend([added(&[cols]), added(&[cols])]);
                }
                Self { op: Op::LayerNormBackward { gamma, dx, parameters }, operands, results }
            }
            12 => Self::attention(&mut draw, index),
            13 => Self::cross_entropy(&mut draw, index),
            _ => match index % 3 {
                // more than one block of terms, unit and thread
                0 => Self::product(&mut draw, index, Some([70, 300, 300])),
                1 => {
                    let x = draw.distinct(&[150, 700], [-4.0, 4.0]);
                    let to = draw.rng.pick(&[[1, 1], [1, 700], [150, 1]]);
                    Self { op: Op::Reduce(Fold::Sum, 1.0), operands: vec![x], results: free(&to) }
                }
                _ => {
                    let x = draw.distinct(&[100, 900], [-4.0, 4.0]);
                    Self {
                        op: Op::Softmax(Softmax::Probabilities, index % 2),
                        operands: vec![x],
                        results: vec![replaced(&[100, 900])],
                    }
                }
            },
        }
    }

    fn product(draw: &mut Draw<'_>, index: usize, extents: Option<[usize; 3]>) -> Self {
        let batch: Vec<usize> = if extents.is_some() {
            Vec::new()
        } else {
            (0..draw.rng.index(0, 2)).map(|_| draw.rng.index(1, 3)).collect()
        };
        let of =
            |rng: &mut Rng, most: usize| if rng.chance(30) { rng.index(0, 3) } else { rng.index(1, most) };
        let [m, n, k] = extents.unwrap_or_else(|| [of(draw.rng, 60), of(draw.rng, 80), of(draw.rng, 400)]);
        let with = |rows, cols| [&batch[..], &[rows, cols]].concat();
        let operands = vec![
            draw.values(&with(m, k), [-1.0, 1.0]),
            draw.values(&with(k, n), [-1.0, 1.0]),
            draw.values(&[n], [-1.0, 1.0]),
        ];
        let activation = [
            None,
            Some(Activation::Relu),
            Some(Activation::Gelu),
            None,
            Some(Activation::LeakyRelu { slope: 0.1 }),
            Some(Activation::Tanh),
        ][index % 6];
        let op = Op::Product { bias: draw.rng.chance(50), activation };
        Self { op, operands, results: vec![(with(m, n), None)] }
    }

    fn attention(draw: &mut Draw<'_>, index: usize) -> Self {
        let [batch, heads] = [draw.rng.index(1, 2), draw.rng.index(1, 3)];
        let [queries, depth, width] = [draw.rng.index(1, 40), draw.rng.index(1, 20), draw.rng.index(1, 20)];
        let (causal, mask) = (draw.rng.chance(40), draw.rng.chance(40));
        let keys = if draw.rng.chance(25) { draw.rng.index(60, 300) } else { draw.rng.index(1, 50) };
        let of = |rows: usize, cols: usize| vec![batch, heads, rows, cols];
        let mut operands = vec![
            draw.values(&of(queries, depth), [-1.0, 1.0]),
            draw.values(&of(keys, depth), [-1.0, 1.0]),
            draw.values(&of(keys, width), [-1.0, 1.0]),
            draw.values(&of(queries, keys), [-2.0, 2.0]),
        ];
        if mask && draw.rng.chance(50) {
            // hidden keys; the first stays
            for (at, value) in operands[3].0.indexed_iter_mut() {
                let key = at[3];
                if key > 0 && (key + at[2] / 2) % 3 == 0 {
                    *value = f64::NEG_INFINITY;
                }
            }
            operands[3].1.clear();
        }
        let rows = vec![batch * heads, queries];
        let replaced = |shape: Vec<usize>| (shape, Some(Update::Replace));
        if index.is_multiple_of(3) {
            let results = vec![replaced(of(queries, width)), replaced(rows)];
            return Self { op: Op::Attention { causal, mask }, operands, results };
        }
        // what forward kept, of the same operands
        let forward = Self {
            op: Op::Attention { causal, mask },
            operands: operands.clone(),
            results: vec![replaced(of(queries, width)), replaced(rows)],
        };
        let kept = super::plain::<f64>(&tiled_kernel::Reference, &forward);
        operands.extend(kept.into_iter().map(|values| (values.mapv(draw.round), Vec::new())));
        operands.push(draw.values(&of(queries, width), [-1.0, 1.0]));
        let (op, results) = if index % 3 == 1 {
            let free = |shape: Vec<usize>| (shape, None);
            let results = vec![free(of(queries, depth)), free(of(keys, depth)), free(of(keys, width))];
            (Op::AttentionBackward { causal, mask }, results)
        } else {
            (Op::AttentionWeights { causal, mask }, vec![replaced(vec![batch, queries, keys])])
        };
        Self { op, operands, results }
    }

    fn cross_entropy(draw: &mut Draw<'_>, index: usize) -> Self {
        let [rows, classes] = [draw.rng.index(0, 60), draw.rng.index(1, 120)];
        let is_named = draw.rng.chance(60);
        let ignore = draw.rng.pick(&[None, Some(-100), Some(0)]);
        let names = (0..rows)
            .map(|_| match ignore {
                Some(ignore) if draw.rng.chance(20) => ignore,
                _ => i64::try_from(draw.rng.index(0, classes - 1)).expect("small"),
            })
            .collect();
        let loss = Loss {
            classes: is_named.then_some(names),
            ignore,
            smoothing: draw.rng.pick(&[0.0, 0.0, 0.125]),
            weights: draw.rng.chance(40),
        };
        let mut operands = vec![
            draw.values(&[rows, classes], [-6.0, 6.0]),
            draw.values(&[rows, classes], [0.0, 1.0]),
            draw.values(&[classes], [0.25, 2.0]),
        ];
        let of_rows = (vec![rows], Some(Update::Replace));
        if index.is_multiple_of(2) {
            let results = vec![of_rows.clone(), of_rows, (vec![1], Some(Update::Replace))];
            return Self { op: Op::CrossEntropy(loss), operands, results };
        }
        let log_sums: Vec<f64> =
            operands[0].0.rows().into_iter().map(|row| row.mapv(f64::exp).sum().ln()).collect();
        operands.push((Array1::from(log_sums).mapv(draw.round).into_dyn(), Vec::new()));
        operands.push(draw.values(&[rows], [-1.0, 1.0]));
        let results = vec![(vec![rows, classes], None)];
        Self { op: Op::CrossEntropyBackward(loss), operands, results }
    }

    /// Carries it out.
    pub(super) fn run<T: Element>(
        &self,
        dense: &dyn Dense<T>,
        inputs: &[ArrayViewD<'_, T>],
        outputs: &mut [ArrayViewMutD<'_, T>],
        updates: &[Update],
    ) {
        let x = |which: usize| inputs[which].view();
        let [first, others @ ..] = outputs else { return };
        let y = first.view_mut();
        let update = updates[0];
        match &self.op {
            Op::Product { bias, activation } => {
                let bias = bias.then(|| x(2).into_dimensionality::<Ix1>().expect("one axis"));
                dense.product(&Product { a: x(0), b: x(1), bias, activation: *activation }, y, update);
            }
            Op::Map(f) => dense.map(*f, x(0), y, update),
            Op::MapInPlace(f) => {
                { y }.assign(&x(0));
                dense.map_in_place(*f, first.view_mut());
            }
            Op::MapBackward(f) => dense.map_backward(*f, x(0), x(1), y, update),
            Op::Zip(f) => dense.zip(*f, x(0), x(1), y, update),
            Op::ZipInPlace(f) => {
                { y }.assign(&x(0));
                dense.zip_in_place(*f, first.view_mut(), x(1));
            }
            Op::ZipBackward(f, side) => {
                let saves = f.saves(*side);
                let operands = [saves[0].then(|| x(0)), saves[1].then(|| x(1))];
                dense.zip_backward(*f, *side, operands, x(2), y, update);
            }
            Op::Select => {
                let mask = x(0).mapv(|value| value > T::ZERO);
                dense.select(mask.view(), x(1), x(2), y, update);
            }
            Op::Reduce(fold, scale) => dense.reduce(*fold, x(0), T::from_f64(*scale), y, update),
            Op::Cumulate(axis, direction) => dense.cumulate(x(0), *axis, *direction, y, update),
            Op::Softmax(kind, axis) => dense.softmax(*kind, x(0), *axis, y),
            Op::SoftmaxBackward(kind, axis) => dense.softmax_backward(*kind, x(0), x(1), *axis, y, update),
            Op::LayerNorm { gamma, beta } => {
                let norm = LayerNorm {
                    epsilon: EPSILON,
                    gamma: gamma.then(|| one(x(1))),
                    beta: beta.then(|| one(x(2))),
                };
                let [means, rstds] = others else { panic!("statistics") };
                let statistics = [one_mut(means), one_mut(rstds)];
                dense.layer_norm(&norm, two(x(0)), two_mut(first), statistics);
            }
            Op::LayerNormBackward { gamma, dx, parameters } => {
                let norm = LayerNorm { epsilon: EPSILON, gamma: gamma.then(|| one(x(1))), beta: None };
                let (to, parameters) = match (*dx, *parameters, others) {
                    (true, true, [d_gamma, d_beta]) => {
                        (Some((two_mut(first), update)), [Some(one_mut(d_gamma)), Some(one_mut(d_beta))])
                    }
                    (false, true, [d_beta]) => (None, [Some(one_mut(first)), Some(one_mut(d_beta))]),
                    _ => (Some((two_mut(first), update)), [None, None]),
                };
                dense.layer_norm_backward(
                    &norm,
                    two(x(0)),
                    [one(x(2)), one(x(3))],
                    two(x(4)),
                    to,
                    parameters,
                );
            }
            Op::Attention { causal, mask } => {
                let attention = Attention { scale: SCALE, causal: *causal, mask: mask.then(|| x(3)) };
                dense.attention(&attention, [x(0), x(1), x(2)], y, two_mut(&mut others[0]));
            }
            Op::AttentionBackward { causal, mask } => {
                let attention = Attention { scale: SCALE, causal: *causal, mask: mask.then(|| x(3)) };
                let [dk, dv] = others else { panic!("gradients") };
                let gradients =
                    [Some((y, update)), Some((dk.view_mut(), updates[1])), Some((dv.view_mut(), updates[2]))];
                dense.attention_backward(&attention, [x(0), x(1), x(2)], x(4), two(x(5)), x(6), gradients);
            }
            Op::AttentionWeights { causal, mask } => {
                let attention = Attention { scale: SCALE, causal: *causal, mask: mask.then(|| x(3)) };
                dense.attention_weights(&attention, [x(0), x(1)], two(x(5)), y);
            }
            Op::CrossEntropy(loss) => {
                let [log_sums, total] = others else { panic!("what rows have") };
                loss.with(&inputs[1], &inputs[2], |spec, targets| {
                    let of_rows = (one_mut(first), one_mut(log_sums));
                    let sum = dense.cross_entropy(spec, two(x(0)), targets, of_rows.0, of_rows.1);
                    total.fill(sum.expect("classes are in range"));
                });
            }
            Op::CrossEntropyBackward(loss) => loss.with(&inputs[1], &inputs[2], |spec, targets| {
                let of_rows = [one(x(3)), one(x(4))];
                dense.cross_entropy_backward(spec, two(x(0)), targets, of_rows, two_mut(first), update);
            }),
        }
    }
}

impl Loss {
    fn with<T: Element>(
        &self,
        probabilities: &ArrayViewD<'_, T>,
        weights: &ArrayViewD<'_, T>,
        call: impl FnOnce(&CrossEntropy<'_, T>, &Targets<'_, T>),
    ) {
        let weights = self.weights.then(|| one(weights.view()));
        let spec = CrossEntropy { ignore: self.ignore, smoothing: self.smoothing, weights };
        let classes = self.classes.clone().map(Array1::from);
        match &classes {
            Some(classes) => call(&spec, &Targets::Classes(classes.view())),
            None => call(&spec, &Targets::Probabilities(two(probabilities.view()))),
        }
    }
}

/// The shape with some axes folded.
fn folded(shape: &[usize], rng: &mut Rng) -> Vec<usize> {
    shape.iter().map(|extent| if rng.chance(45) { 1 } else { *extent }).collect()
}

fn one<T>(view: ArrayViewD<'_, T>) -> ndarray::ArrayView1<'_, T> {
    view.into_dimensionality::<Ix1>().expect("one axis")
}

fn two<T>(view: ArrayViewD<'_, T>) -> ArrayView2<'_, T> {
    view.into_dimensionality::<Ix2>().expect("two axes")
}

fn one_mut<'a, T>(view: &'a mut ArrayViewMutD<'_, T>) -> ndarray::ArrayViewMut1<'a, T> {
    view.view_mut().into_dimensionality::<Ix1>().expect("one axis")
}

fn two_mut<'a, T>(view: &'a mut ArrayViewMutD<'_, T>) -> ArrayViewMut2<'a, T> {
    view.view_mut().into_dimensionality::<Ix2>().expect("two axes")
}
