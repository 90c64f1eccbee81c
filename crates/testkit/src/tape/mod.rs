//! Random programs on the tape, against arrays that know nothing of it.
//!
//! A program is up to forty operations on a few small tensors: functions, sums, products, views and changes in place. Each operation is
//! carried out by the tape and by a model of memory in which a view is a list of places, and both must agree on whether it is possible
//! and on every element of every tensor after it. Then the gradient along a line through all leaves is compared with differences, and
//! values and gradients of the CPU's kernels with those of the reference.

mod model;
mod step;

use std::sync::OnceLock;

use ndarray::ArrayD;
use tiled_autograd::{Context, Kernels, Result, TapeError, Tensor, no_grad};
use tiled_cpu::CpuBackend;
use tiled_kernel::Reference;

use self::model::{Memory, Model};
use self::step::{Bytes, Step};

/// What checking a program came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The operations that were carried out.
    pub operations: usize,
    /// Those of them that changed a tensor in place.
    pub in_place: usize,
    /// The operations that were refused, because a shape does not fit or a gradient would be lost.
    pub refused: usize,
    /// Whether gradients were compared with differences: not where nothing depends on a leaf, or where the function has a kink nearby.
    pub differentiated: bool,
}

/// Checks the program that bytes stand for.
///
/// # Panics
/// Where the tape, the model, differences and the kernels of the CPU do not agree.
pub fn check_program(bytes: &[u8]) -> Checked {
    let mut bytes = Bytes::new(bytes);
    let leaves = step::leaves(&mut bytes);
    let context = context(&Reference);
    let (steps, mut checked) = draw(&mut bytes, &context, &leaves);
    assert_eq!(context.live_bytes(), 0, "everything was dropped");
    let Some(first) = gradients(&context, &leaves, &steps) else { return checked };
    let again = gradients(&context, &leaves, &steps).expect("it ran before");
    assert!(same_bits(&first, &again), "a second run has other bits");
    assert_eq!(context.live_bytes(), 0, "everything was dropped");
    let leaves = apart_from_kinks(&leaves);
    let Some(there) = gradients(&context, &leaves, &steps) else { return checked };
    let Some(expected) = slope(&context, &leaves, &steps) else { return checked };
    checked.differentiated = true;
    let got: f64 = there.gradients.iter().flatten().zip(directions()).map(|(g, d)| g * d).sum();
    let largest = there.gradients.iter().flatten().fold(1.0_f64, |most, g| most.max(g.abs()));
    assert!(
        (got - expected.slope).abs() <= expected.bound + 1e-9 * largest,
        "the gradient says {got}, differences {} within {}: {steps:?}",
        expected.slope,
        expected.bound
    );
    let cpu = gradients(&self::context(cpu()), &leaves, &steps).expect("it ran on the reference");
    let apart = |a: &[Vec<f64>], b: &[Vec<f64>]| {
        a.iter().flatten().zip(b.iter().flatten()).fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()))
    };
    assert!(apart(&there.values, &cpu.values) <= 1e-9 * step::LARGEST, "values of the CPU: {steps:?}");
    assert!(apart(&there.gradients, &cpu.gradients) <= 1e-7 * largest, "gradients of the CPU: {steps:?}");
    checked
}

fn cpu() -> &'static CpuBackend {
    static CPU: OnceLock<CpuBackend> = OnceLock::new();
    CPU.get_or_init(|| CpuBackend::new().expect("the instruction set is known"))
}

fn context(kernels: &'static dyn Kernels<f64>) -> Context<f64> {
    Context::new(kernels, 1).expect("a thread starts")
}

/// A tensor that programs begin with.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    values: ArrayD<f64>,
    /// Whether a gradient is wanted.
    is_trained: bool,
}

/// Runs the program as it is drawn, beside the model; the operations that were carried out.
fn draw(bytes: &mut Bytes<'_>, context: &Context<f64>, leaves: &[Leaf]) -> (Vec<Step>, Checked) {
    let mut memory = Memory::default();
    let mut tensors = Vec::new();
    let mut models = Vec::new();
    for leaf in leaves {
        tensors.push(begin(context, leaf, true).expect("leaves are small"));
        models.push(memory.new_tensor(&leaf.values));
    }
    let (mut steps, mut checked) = (Vec::new(), Checked::default());
    let count = 1 + usize::from(bytes.next()) % 40;
    for _ in 0..count {
        let shapes: Vec<&[usize]> = models.iter().map(Model::shape).collect();
        let step = Step::draw(bytes, &shapes);
        let expected = memory.carry_out(&step, &models);
        if expected.as_ref().is_some_and(|outcome| !outcome.is_small()) {
            continue;
        }
        match (step.carry_out(&mut tensors), expected) {
            (Ok(result), Some(outcome)) => {
                let shares =
                    result.as_ref().is_some_and(|result| result.shares_memory(&tensors[step.operand()]));
                if let Some(tensor) = result {
                    assert_eq!(tensor.shape(), outcome.shape(), "{step:?}");
                    models.push(memory.keep(outcome, &models[step.operand()], shares));
                    tensors.push(tensor);
                } else {
                    memory.change(outcome, &models[step.operand()]);
                    checked.in_place += 1;
                }
                checked.operations += 1;
                let ran = step.clone();
                steps.push(step);
                if !agree(&mut memory, &models, &tensors, &ran) {
                    // too large to be compared: the program ends before
                    steps.pop();
                    break;
                }
            }
            (Ok(_), None) => panic!("the tape carries out what the model refuses: {step:?}"),
            (Err(error), Some(_)) => {
                let may_be = matches!(error, TapeError::Changed { .. } | TapeError::InPlace { .. });
                assert!(may_be && (checked.in_place > 0 || step.is_in_place()), "{step:?}: {error}");
                checked.refused += 1;
            }
            (Err(error), None) => {
                assert!(!error.to_string().is_empty());
                checked.refused += 1;
            }
        }
    }
    (steps, checked)
}

/// Compares every element of every tensor; false where one is too large. What is compared next begins from the tape's roundings.
fn agree(memory: &mut Memory, models: &[Model], tensors: &[Tensor<f64>], step: &Step) -> bool {
    for (model, tensor) in models.iter().zip(tensors) {
        let (expected, got) = (memory.read(model), tensor.to_array());
        if expected.iter().chain(&got).any(|value| value.is_nan() || value.abs() > step::LARGEST) {
            return false;
        }
        let worst = expected.iter().zip(&got).fold(0.0_f64, |worst, (a, b)| worst.max((a - b).abs()));
        assert!(worst <= 1e-12 * step::LARGEST, "{step:?}: {got} for {expected}");
        memory.write(model, &got);
    }
    true
}

fn begin(context: &Context<f64>, leaf: &Leaf, with_gradients: bool) -> Result<Tensor<f64>> {
    let tensor = context.from_array(&leaf.values)?;
    if leaf.is_trained && with_gradients { tensor.with_gradient() } else { Ok(tensor) }
}

/// The tensors of a program, carried out once more.
fn replay(
    context: &Context<f64>,
    leaves: &[Leaf],
    steps: &[Step],
    with_gradients: bool,
) -> Result<Vec<Tensor<f64>>> {
    let mut tensors: Vec<Tensor<f64>> =
        leaves.iter().map(|leaf| begin(context, leaf, with_gradients)).collect::<Result<_>>()?;
    for step in steps {
        let result = step.carry_out(&mut tensors)?;
        tensors.extend(result);
    }
    Ok(tensors)
}

/// Values of all tensors and gradients of the leaves, zeros where a leaf has none.
struct Gradients {
    values: Vec<Vec<f64>>,
    gradients: Vec<Vec<f64>>,
}

fn same_bits(a: &Gradients, b: &Gradients) -> bool {
    let bits = |of: &Gradients| -> Vec<u64> {
        of.values.iter().chain(&of.gradients).flatten().map(|value| value.to_bits()).collect()
    };
    bits(a) == bits(b)
}

/// Numbers of which no two neighbours are alike, between −1 and 1.
fn directions() -> impl Iterator<Item = f64> {
    (1_u32..).map(|i| (f64::from(i) * 0.618_033_988_75).fract().mul_add(1.6, -0.8))
}

/// The same leaves a little aside. Theirs are often alike, where minima are tied and activations begin; a kink that two elements pass in
/// opposite ways is smooth along a direction, and no step tells it.
fn apart_from_kinks(leaves: &[Leaf]) -> Vec<Leaf> {
    let mut aside = (1_u32..).map(|i| (f64::from(i) * 0.569_840_290_998_05).fract().mul_add(4e-3, 1e-3));
    let mut moved = |leaf: &Leaf| {
        let values = leaf.values.mapv(|value| value + aside.next().unwrap_or(0.0));
        Leaf { values, ..leaf.clone() }
    };
    leaves.iter().map(&mut moved).collect()
}

/// Numbers between −1 and 1 whose ratios to [`directions`] and to their differences are not rational, so that no two kinks cancel: both would
/// have to be alike, and no step could tell them from a smooth place.
fn loss_weights() -> impl Iterator<Item = f64> {
    (1_u32..).map(|i| (f64::from(i) * 0.754_877_666_246_69).fract().mul_add(1.5, -0.7))
}

/// The last results, which together depend on most of the program.
const RESULTS: usize = 4;

/// What is differentiated: the last results, each element with a weight of its own; those that are stale for the tape are left out, for
/// values as for gradients.
fn loss(tensors: &[Tensor<f64>], is_fresh: &[bool]) -> Result<Option<Tensor<f64>>> {
    let mut loss: Option<Tensor<f64>> = None;
    for (tensor, _) in tensors.iter().zip(is_fresh).rev().filter(|(_, is_fresh)| **is_fresh).take(RESULTS) {
        let weights: Vec<f64> = loss_weights().take(tensor.elements()).collect();
        let weights = tensor.context().from_slice(tensor.shape(), &weights)?;
        let term = (tensor * &weights)?.sum(&[], false)?;
        loss = Some(match loss {
            Some(sum) => (&sum + &term)?,
            None => term,
        });
    }
    Ok(loss)
}

/// Which tensors may still be used: the tape says so.
fn fresh(tensors: &[Tensor<f64>]) -> Vec<bool> {
    tensors.iter().map(|tensor| tensor.affine(1.0, 0.0).is_ok()).collect()
}

/// `None` where there is nothing to differentiate, or what a rule needs was changed in place.
fn gradients(context: &Context<f64>, leaves: &[Leaf], steps: &[Step]) -> Option<Gradients> {
    let tensors = replay(context, leaves, steps, true).expect("it was carried out before");
    let loss = loss(&tensors, &fresh(&tensors)).expect("what is fresh can be used")?;
    if !loss.requires_grad() {
        return None;
    }
    if let Err(error) = loss.backward() {
        let has_changes = steps.iter().any(Step::is_in_place);
        assert!(matches!(error, TapeError::Changed { .. }) && has_changes, "{steps:?}: {error}");
        assert!(
            tensors.iter().all(|tensor| tensor.grad().is_none()),
            "nothing is added where something fails"
        );
        return None;
    }
    let gradient = |leaf: &Tensor<f64>| match leaf.grad() {
        Some(gradient) => gradient.to_vec(),
        None => vec![0.0; leaf.elements()],
    };
    Some(Gradients {
        values: tensors.iter().map(Tensor::to_vec).collect(),
        gradients: tensors[..leaves.len()].iter().map(gradient).collect(),
    })
}

/// The slope of the loss along [`directions`], by central differences.
struct Slope {
    slope: f64,
    bound: f64,
}

/// `None` where differences of two lengths say that the function has a kink there, or bends too much to tell.
fn slope(context: &Context<f64>, leaves: &[Leaf], steps: &[Step]) -> Option<Slope> {
    const STEP: f64 = 1e-5;
    let tensors = replay(context, leaves, steps, true).expect("it was carried out before");
    let is_fresh = fresh(&tensors);
    drop(tensors);
    let at = |t: f64| -> f64 {
        let _guard = no_grad();
        let mut directions = directions();
        let moved: Vec<Leaf> = leaves
            .iter()
            .map(|leaf| {
                let t = if leaf.is_trained { t } else { 0.0 };
                let values = leaf.values.mapv(|value| t.mul_add(directions.next().unwrap_or(0.0), value));
                Leaf { values, ..leaf.clone() }
            })
            .collect();
        let tensors = replay(context, &moved, steps, false).expect("nothing is refused without gradients");
        let loss = loss(&tensors, &is_fresh).expect("nothing is refused without gradients");
        loss.and_then(|loss| loss.item().ok()).unwrap_or(0.0)
    };
    let middle = at(0.0);
    let by = |h: f64| {
        let (above, below) = (at(h), at(-h));
        ((above - below) / (2.0 * h), ((above - middle) / h - (middle - below) / h).abs(), above.abs())
    };
    let ((long, bend, largest), (short, half_bend, _)) = (by(STEP), by(STEP / 2.0));
    let rounding = 1e-14 * (largest.max(middle.abs()) + step::LARGEST) / STEP;
    // a bend goes down with the length, a kink does not
    let is_smooth = half_bend <= 0.75 * bend + rounding && bend <= 1e-2 * (1.0 + long.abs());
    let apart = (long - short).abs();
    (is_smooth && long.is_finite() && apart <= 1e-3 * (1.0 + long.abs()))
        .then_some(Slope { slope: short, bound: 4.0 * apart + rounding + 1e-6 * (1.0 + short.abs()) })
}
