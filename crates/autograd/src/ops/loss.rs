//! Losses.

use std::sync::Arc;

use ndarray::{Array1, ArrayD, Axis, Ix1, Ix2};
use tiled_kernel::dense::IndexError;
use tiled_tensor::Element;

use crate::error::{Result, TapeError};
use crate::op::{CrossEntropy, Op};
use crate::rules::with_targets;
use crate::tape::record::Step;
use crate::tensor::Kept;
use crate::tensor::Tensor;

/// What becomes of the losses of single elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// They stay.
    None,
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    fn of<T: Element>(self, losses: &Tensor<T>) -> Result<Tensor<T>> {
        match self {
            Self::None => Ok(losses.clone()),
            Self::Mean => losses.mean(&[], false),
            Self::Sum => losses.sum(&[], false),
        }
    }
}

/// The targets of a loss over classes.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a, T: Element> {
    /// The number of a class for each place.
    Classes(&'a ArrayD<i64>),
    /// A probability for each class, in the shape of the input; without a gradient.
    Probabilities(&'a Tensor<T>),
}

/// What cross-entropy does with its targets.
#[derive(Clone, Debug)]
pub struct CrossEntropyOptions<T: Element> {
    /// A weight for each class.
    pub weight: Option<Tensor<T>>,
    /// The class that has neither loss nor gradient.
    pub ignore_index: i64,
    /// The share of each target that is spread over all classes.
    pub label_smoothing: f64,
    /// What becomes of the losses.
    pub reduction: Reduction,
}

impl<T: Element> Default for CrossEntropyOptions<T> {
    /// torch's: no weights, −100 ignored, no smoothing, the mean.
    fn default() -> Self {
        Self { weight: None, ignore_index: -100, label_smoothing: 0.0, reduction: Reduction::Mean }
    }
}

/// `(x − t)²`. x and t have one shape: where N×1 and N met by broadcasting, the mean would be that of N×N.
///
/// # Errors
/// Where the target has another shape, and where memory is refused.
pub fn mse_loss<T: Element>(x: &Tensor<T>, target: &Tensor<T>, reduction: Reduction) -> Result<Tensor<T>> {
    check_target("mse_loss", x, target.shape())?;
    let apart = (x - target)?;
    reduction.of(&(&apart * &apart)?)
}

/// `|x − t|`.
///
/// # Errors
/// As [`mse_loss`].
pub fn l1_loss<T: Element>(x: &Tensor<T>, target: &Tensor<T>, reduction: Reduction) -> Result<Tensor<T>> {
    check_target("l1_loss", x, target.shape())?;
    reduction.of(&(x - target)?.abs()?)
}

/// `(x − t)²/2β` where that is near, else `|x − t| − β/2`.
///
/// # Errors
/// As [`mse_loss`], and where β is below zero or not a number.
pub fn smooth_l1_loss<T: Element>(
    x: &Tensor<T>,
    target: &Tensor<T>,
    beta: f64,
    reduction: Reduction,
) -> Result<Tensor<T>> {
    let operator = "smooth_l1_loss";
    check_target(operator, x, target.shape())?;
    if beta.is_nan() || beta < 0.0 {
        let (attribute, expected) = ("beta", "a number of at least 0");
        return Err(TapeError::Attribute { operator, attribute, expected, got: beta });
    }
    if beta == 0.0 {
        return l1_loss(x, target, reduction);
    }
    // with c = min(|x − t|, β) both are c·(|x − t| − c/2)/β
    let apart = (x - target)?.abs()?;
    let near = apart.clamp(f64::NEG_INFINITY, beta)?;
    reduction.of(&(&(&near * &(&apart - &(&near * 0.5)?)?)? * (1.0 / beta))?)
}

/// `−w·(p·t·ln σ(x) + (1 − t)·ln(1 − σ(x)))` with p the weight of positive targets; w and p broadcast to x.
///
/// # Errors
/// As [`mse_loss`], and where a weight does not broadcast.
pub fn bce_with_logits<T: Element>(
    x: &Tensor<T>,
    target: &Tensor<T>,
    weight: Option<&Tensor<T>>,
    pos_weight: Option<&Tensor<T>>,
    reduction: Reduction,
) -> Result<Tensor<T>> {
    check_target("bce_with_logits", x, target.shape())?;
    // (1 − t)·x − (1 + (p − 1)·t)·ln σ(x)
    let log = x.logsigmoid()?;
    let log = match pos_weight {
        Some(positive) => (&log * &(&(&(positive - 1.0)? * target)? + 1.0)?)?,
        None => log,
    };
    let losses = (&(&(1.0 - target)? * x)? - &log)?;
    let losses = match weight {
        Some(weight) => (&losses * weight)?,
        None => losses,
    };
    reduction.of(&losses)
}

/// `−w·x` of the class of each place, where x are logarithms of probabilities: N×C or N×C×….
///
/// # Errors
/// Where shapes do not fit, a class is out of range and not ignored, the weight needs a gradient, the options smooth labels, or memory is
/// refused.
#[expect(clippy::missing_panics_doc, reason = "what is expected is an invariant")]
pub fn nll_loss<T: Element>(
    x: &Tensor<T>,
    classes: &ArrayD<i64>,
    options: &CrossEntropyOptions<T>,
) -> Result<Tensor<T>> {
    let operator = "nll_loss";
    if options.label_smoothing != 0.0 {
        let (attribute, expected) = ("label_smoothing", "0");
        return Err(TapeError::Attribute { operator, attribute, expected, got: options.label_smoothing });
    }
    let rows = by_rows(operator, x)?;
    let flat = flat_classes(operator, x, classes)?;
    let count = rows.shape()[1];
    check_weight(operator, options, count)?;
    let values = options.weight.as_ref().map(Tensor::to_vec);
    let mut weights = Vec::with_capacity(flat.len());
    let mut index = Vec::with_capacity(flat.len());
    let ignored = flat.mapv(|class| class == options.ignore_index).insert_axis(Axis(1)).into_dyn();
    for class in &flat {
        let place = usize::try_from(*class).ok().filter(|place| *place < count);
        match place {
            _ if *class == options.ignore_index => {
                weights.push(T::ZERO);
                index.push(0);
            }
            Some(place) => {
                weights.push(values.as_ref().map_or(T::ONE, |values| values[place]));
                index.push(*class);
            }
            None => {
                let source = IndexError { index: *class, extent: count };
                return Err(TapeError::Index { operator, source });
            }
        }
    }
    let total: f64 = weights.iter().map(|weight| weight.to_f64()).sum();
    let len = index.len();
    let index = ArrayD::from_shape_vec(vec![len, 1], index).expect("invariant: as many as rows");
    let weights = x.context().from_slice(&[len, 1], &weights)?;
    let mut chosen = rows.gather(1, &index)?;
    if ignored.iter().any(|ignored| *ignored) {
        // what stands there may be infinite, so that a weight of zero is not enough
        chosen = chosen.masked_fill(&ignored, 0.0)?;
    }
    let losses = (&(&chosen * &weights)? * -1.0)?;
    finish(&losses.reshape(&[len])?, classes.shape(), options.reduction, total)
}

/// `−Σ w·t·ln softmax(x)` over the classes: x is C, N×C or N×C×….
///
/// # Errors
/// Where shapes do not fit, a class is out of range and not ignored, the smoothing is not between 0 and 1, probabilities or weights need a
/// gradient, or memory is refused.
#[expect(clippy::missing_panics_doc, reason = "what is expected is an invariant")]
pub fn cross_entropy<T: Element>(
    x: &Tensor<T>,
    target: &Target<'_, T>,
    options: &CrossEntropyOptions<T>,
) -> Result<Tensor<T>> {
    let operator = "cross_entropy";
    let rows = by_rows(operator, x)?;
    check_weight(operator, options, rows.shape()[1])?;
    if !(0.0..=1.0).contains(&options.label_smoothing) {
        let (attribute, expected) = ("label_smoothing", "a number from 0 to 1");
        return Err(TapeError::Attribute { operator, attribute, expected, got: options.label_smoothing });
    }
    let mut besides: Vec<Tensor<T>> = Vec::with_capacity(2);
    if let Some(weight) = &options.weight {
        besides.push(weight.contiguous()?);
    }
    let (classes, shape) = match target {
        Target::Classes(classes) => {
            (Some(Arc::new(flat_classes(operator, x, classes)?)), classes.shape().to_vec())
        }
        Target::Probabilities(probabilities) => {
            if probabilities.requires_grad() {
                return Err(TapeError::NoGradient { operator, what: "the target" });
            }
            check_target(operator, x, probabilities.shape())?;
            let mut shape = x.shape().to_vec();
            shape.remove(usize::from(x.axes() > 1));
            besides.push(by_rows(operator, probabilities)?);
            (None, shape)
        }
    };
    let of = CrossEntropy {
        ignore: classes.is_some().then_some(options.ignore_index),
        smoothing: options.label_smoothing,
        has_weights: options.weight.is_some(),
        classes,
    };
    let operands: Vec<&Tensor<T>> = std::iter::once(&rows).chain(&besides).collect();
    let step = Step::begin(operator, &operands)?;
    let context = x.context();
    let count = rows.shape()[0];
    let [losses, log_sums] = [context.empty(operator, &[count])?, context.empty(operator, &[count])?];
    let total = {
        let mut memories = [losses.storage().write(), log_sums.storage().write()];
        let [first, second] = memories.each_mut().map(|memory| {
            losses.layout().view_mut(memory).into_dimensionality::<Ix1>().expect("invariant: it has one axis")
        });
        let values = rows.values();
        let view = values.view().into_dimensionality::<Ix2>().expect("invariant: it has two axes");
        let run = || {
            with_targets(&of, &besides, |spec, targets| {
                context.dense().cross_entropy(spec, view, targets, first, second)
            })
        };
        context.share(rows.elements(), run).map_err(|source| TapeError::Index { operator, source })?
    };
    let losses = step.finish_keeping(|| (Op::CrossEntropy(of), Kept::Tensors(vec![log_sums])), losses);
    finish(&losses, &shape, options.reduction, total.to_f64())
}

/// Losses of rows as they are wanted.
fn finish<T: Element>(
    losses: &Tensor<T>,
    shape: &[usize],
    reduction: Reduction,
    total: f64,
) -> Result<Tensor<T>> {
    match reduction {
        Reduction::None => losses.reshape(shape),
        Reduction::Sum => losses.sum(&[], false),
        Reduction::Mean => &losses.sum(&[], false)? * (1.0 / total),
    }
}

/// The class axis, the second of two or more, as the last one, and all others as one.
fn by_rows<T: Element>(operator: &'static str, x: &Tensor<T>) -> Result<Tensor<T>> {
    match x.shape() {
        [] => {
            let (what, expected) = ("the input", "at least 1");
            Err(TapeError::Axes { operator, what, expected, got: x.shape().into() })
        }
        [classes] => x.reshape(&[1, *classes]),
        [_, _] => Ok(x.clone()),
        [batch, classes, others @ ..] => {
            let others: usize = others.iter().product();
            let columns = x.reshape(&[*batch, *classes, others])?.transpose(1, 2)?;
            columns.reshape(&[batch * others, *classes])
        }
    }
}

fn flat_classes<T: Element>(
    operator: &'static str,
    x: &Tensor<T>,
    classes: &ArrayD<i64>,
) -> Result<Array1<i64>> {
    let mut expected = x.shape().to_vec();
    expected.remove(usize::from(x.axes() > 1));
    if classes.shape() != expected {
        let (what, expected, got) = ("the target", expected.as_slice().into(), classes.shape().into());
        return Err(TapeError::Shape { operator, what, expected, got });
    }
    Ok(classes.iter().copied().collect())
}

/// A target for each element.
fn check_target<T: Element>(operator: &'static str, x: &Tensor<T>, got: &[usize]) -> Result<()> {
    if got == x.shape() {
        return Ok(());
    }
    let (what, expected, got) = ("the target", x.shape().into(), got.into());
    Err(TapeError::Shape { operator, what, expected, got })
}

fn check_weight<T: Element>(
    operator: &'static str,
    options: &CrossEntropyOptions<T>,
    classes: usize,
) -> Result<()> {
    match &options.weight {
        Some(weight) if weight.requires_grad() => Err(TapeError::NoGradient { operator, what: "the weight" }),
        Some(weight) if weight.shape() != [classes] => {
            let (what, expected, got) = ("the weight", [classes].as_slice().into(), weight.shape().into());
            Err(TapeError::Shape { operator, what, expected, got })
        }
        _ => Ok(()),
    }
}
