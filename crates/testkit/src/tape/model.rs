//! Memory as lists of places: what views and changes in place come to, without strides, versions or a tape.

use ndarray::{ArrayD, Axis, Dimension, IxDyn, Slice, Zip};
use tiled_kernel::Reference;
use tiled_kernel::dense::{Dense, Update};

use super::step::{EPS, Step};

/// A tensor: for each of its elements the place in a memory.
#[derive(Clone, Debug)]
pub(super) struct Model {
    memory: usize,
    places: ArrayD<usize>,
}

impl Model {
    pub(super) fn shape(&self) -> &[usize] {
        self.places.shape()
    }
}

/// What an operation comes to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// New elements.
    Values(ArrayD<f64>),
    /// Places of the operand, which the result may share or copy.
    Places(ArrayD<usize>),
}

impl Outcome {
    pub(super) fn shape(&self) -> &[usize] {
        match self {
            Self::Values(values) => values.shape(),
            Self::Places(places) => places.shape(),
        }
    }

    /// Whether it is small enough to go on with.
    pub(super) fn is_small(&self) -> bool {
        self.shape().len() <= MOST_AXES && self.shape().iter().product::<usize>() <= MOST_ELEMENTS
    }
}

/// All memories of a program.
#[derive(Debug, Default)]
pub(super) struct Memory(Vec<Vec<f64>>);

/// The most elements of a tensor, so that programs stay small.
const MOST_ELEMENTS: usize = 256;
/// The most axes.
const MOST_AXES: usize = 6;

impl Memory {
    pub(super) fn new_tensor(&mut self, values: &ArrayD<f64>) -> Model {
        self.0.push(values.iter().copied().collect());
        let places = ArrayD::from_shape_vec(values.raw_dim(), (0..values.len()).collect());
        Model { memory: self.0.len() - 1, places: places.expect("invariant: as many places as elements") }
    }

    pub(super) fn read(&self, model: &Model) -> ArrayD<f64> {
        model.places.mapv(|place| self.0[model.memory][place])
    }

    pub(super) fn write(&mut self, model: &Model, values: &ArrayD<f64>) {
        let memory = &mut self.0[model.memory];
        model.places.iter().zip(values).for_each(|(place, value)| memory[*place] = *value);
    }

    /// The tensor of an outcome, which shares the memory of its operand or does not.
    pub(super) fn keep(&mut self, outcome: Outcome, operand: &Model, shares: bool) -> Model {
        match outcome {
            Outcome::Values(values) => {
                assert!(!shares, "a new value lies in the memory of its operand");
                self.new_tensor(&values)
            }
            Outcome::Places(places) if shares => Model { memory: operand.memory, places },
            Outcome::Places(places) => {
                let values = self.read(&Model { memory: operand.memory, places });
                self.new_tensor(&values)
            }
        }
    }

    /// Changes a tensor in place.
    pub(super) fn change(&mut self, outcome: Outcome, operand: &Model) {
        let Outcome::Values(values) = outcome else { panic!("a change in place has values") };
        let mut places: Vec<usize> = operand.places.iter().copied().collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0] != pair[1]), "one element stands for several");
        self.write(operand, &values);
    }

    /// What an operation comes to; `None` where it cannot be.
    pub(super) fn carry_out(&self, step: &Step, models: &[Model]) -> Option<Outcome> {
        let model = &models[step.operand()];
        let x = self.read(model);
        let other = |at: &usize| self.read(&models[*at]);
        let values = match step {
            Step::Map(_, f) | Step::MapInPlace(_, f) => {
                let mut y = x.clone();
                Reference.map(*f, x.view(), y.view_mut(), Update::Replace);
                y
            }
            Step::Zip(_, b, f) => {
                let b = other(b);
                let shape = broadcast(x.shape(), b.shape())?;
                let mut y = ArrayD::zeros(shape.clone());
                let (a, b) = (x.broadcast(shape.clone())?, b.broadcast(shape)?);
                Reference.zip(*f, a, b, y.view_mut(), Update::Replace);
                y
            }
            Step::ZipInPlace(_, b, f) => {
                let b = other(b);
                let mut y = x.clone();
                Reference.zip(*f, x.view(), b.broadcast(x.raw_dim())?, y.view_mut(), Update::Replace);
                y
            }
            Step::Where(_, b, mask) => {
                let b = other(b);
                let shape = broadcast(&broadcast(x.shape(), b.shape())?, mask.shape())?;
                let (a, b) = (x.broadcast(shape.clone())?, b.broadcast(shape.clone())?);
                Zip::from(mask.broadcast(shape)?)
                    .and(a)
                    .and(b)
                    .map_collect(|m, a, b| if *m { *a } else { *b })
            }
            Step::Sum { axes, keepdim, .. } => folded(&x, axes, *keepdim, 1.0)?,
            Step::Mean { axes, keepdim, .. } => {
                #[expect(clippy::cast_precision_loss, reason = "there are few elements")]
                let count = axes.iter().try_fold(1.0, |n, a| Some(n * x.len_of(Axis(at(&x, *a)?)) as f64));
                #[expect(clippy::cast_precision_loss, reason = "there are few elements")]
                let count = if axes.is_empty() { x.len() as f64 } else { count? };
                folded(&x, axes, *keepdim, 1.0 / count)?
            }
            Step::Extreme { axis, is_max, .. } => {
                let axis = Axis(at(&x, *axis)?);
                if x.len_of(axis) == 0 {
                    return None;
                }
                let pick = |a: &f64, b: &f64| if *is_max { a.max(*b) } else { a.min(*b) };
                let start = if *is_max { f64::NEG_INFINITY } else { f64::INFINITY };
                x.fold_axis(axis, start, pick).insert_axis(axis)
            }
            Step::CumSum(_, axis) => {
                let axis = Axis(at(&x, *axis)?);
                let mut y = x.clone();
                y.accumulate_axis_inplace(axis, |before, own| *own += before);
                y
            }
            Step::Softmax { axis, is_log, .. } => {
                let axis = Axis(at(&x, *axis)?);
                let mut y = x.clone();
                for mut lane in y.lanes_mut(axis) {
                    let sum: f64 = lane.iter().map(|x| x.exp()).sum();
                    lane.mapv_inplace(|x| if *is_log { x - sum.ln() } else { x.exp() / sum });
                }
                y
            }
            Step::LayerNorm(_) => {
                let axis = Axis(x.ndim().checked_sub(1)?);
                let mut y = x.clone();
                for mut lane in y.lanes_mut(axis) {
                    #[expect(clippy::cast_precision_loss, reason = "there are few elements")]
                    let count = lane.len() as f64;
                    let mean = lane.sum() / count;
                    let variance = lane.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
                    lane.mapv_inplace(|x| (x - mean) / (variance + EPS).sqrt());
                }
                y
            }
            Step::Matmul(_, b) => matmul(&x, &other(b))?,
            Step::Linear(_, w) => {
                let w = other(w);
                if w.ndim() != 2 || x.ndim() == 0 {
                    return None;
                }
                matmul(&x, &w.reversed_axes())?
            }
            Step::Attention(_, keys) => attention(&x, &other(keys))?,
            Step::Concat(_, b, axis) => {
                let axis = Axis(at(&x, *axis)?);
                let b = other(b);
                if b.ndim() != x.ndim() {
                    return None;
                }
                ndarray::concatenate(axis, &[x.view(), b.view()]).ok()?
            }
            Step::IndexSelect(_, axis, index) => {
                let axis = Axis(at(&x, *axis)?);
                let index: Option<Vec<usize>> = index.iter().map(|i| place(*i, x.len_of(axis))).collect();
                x.select(axis, &index?)
            }
            Step::Gather(_, axis, index) => {
                let axis = indexed(&x, *axis, index)?;
                let mut y = ArrayD::zeros(index.raw_dim());
                for (to, index) in index.indexed_iter() {
                    let mut from = to.clone();
                    from[axis] = place(*index, x.shape()[axis])?;
                    y[to] = x[from];
                }
                y
            }
            Step::ScatterAdd(_, b, axis, index) => {
                let axis = indexed(&x, *axis, index)?;
                let (b, mut y) = (other(b), x.clone());
                if b.shape() != index.shape() {
                    return None;
                }
                for (from, index) in index.indexed_iter() {
                    let mut to = from.clone();
                    to[axis] = place(*index, x.shape()[axis])?;
                    y[to] += b[from];
                }
                y
            }
            Step::Pad(_, padding) => {
                let untouched = x.ndim().checked_sub(padding.len())?;
                let mut y = x.clone();
                for (axis, [before, after]) in padding.iter().enumerate() {
                    let part = |extent: usize| {
                        let mut shape = y.raw_dim();
                        shape[untouched + axis] = extent;
                        ArrayD::from_elem(shape, 0.5)
                    };
                    let (before, after) = (part(*before), part(*after));
                    let parts = [before.view(), y.view(), after.view()];
                    y = ndarray::concatenate(Axis(untouched + axis), &parts).ok()?;
                }
                y
            }
            _ => return view(&model.places, step).map(Outcome::Places),
        };
        Some(Outcome::Values(values))
    }
}

/// What only moves elements.
fn view(places: &ArrayD<usize>, step: &Step) -> Option<ArrayD<usize>> {
    Some(match step {
        Step::Reshape(_, shape) => places.to_shape(IxDyn(shape)).ok()?.to_owned(),
        Step::Permute(_, order) => {
            places.clone().permuted_axes(order.iter().map(|axis| axis.unsigned_abs()).collect::<Vec<_>>())
        }
        Step::Expand(_, shape) => places.broadcast(IxDyn(shape))?.to_owned(),
        Step::Slice { axis, begin, end, step, .. } => {
            let axis = at(places, *axis)?;
            if *end > places.shape()[axis] || *step == 0 {
                return None;
            }
            let part = Slice::new(begin.cast_signed(), Some(end.cast_signed()), step.cast_signed());
            places.slice_axis(Axis(axis), part).to_owned()
        }
        Step::Flip(_, axis) => {
            let mut places = places.clone();
            places.invert_axis(Axis(at(&places, *axis)?));
            places
        }
        _ => places.clone(),
    })
}

/// An axis counted from the start or the end.
fn at<V>(x: &ArrayD<V>, axis: isize) -> Option<usize> {
    let axis = if axis < 0 { axis + x.ndim().cast_signed() } else { axis };
    usize::try_from(axis).ok().filter(|axis| *axis < x.ndim())
}

/// An index counted from the start or the end.
fn place(index: i64, extent: usize) -> Option<usize> {
    let extent = i64::try_from(extent).ok()?;
    let index = if index < 0 { index + extent } else { index };
    (0..extent).contains(&index).then(|| usize::try_from(index).ok())?
}

fn indexed(x: &ArrayD<f64>, axis: isize, index: &ArrayD<i64>) -> Option<usize> {
    let axis = at(x, axis)?;
    let is_within = |other: usize| other == axis || index.shape()[other] <= x.shape()[other];
    (index.ndim() == x.ndim() && (0..x.ndim()).all(is_within)).then_some(axis)
}

fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let axes = a.len().max(b.len());
    let extent = |shape: &[usize], axis: usize| match (axis + shape.len()).checked_sub(axes) {
        Some(own) => shape[own],
        None => 1,
    };
    (0..axes)
        .map(|axis| match (extent(a, axis), extent(b, axis)) {
            (1, extent) | (extent, 1) => Some(extent),
            (one, other) => (one == other).then_some(one),
        })
        .collect()
}

/// The sum over axes, all where none is named, times a factor.
fn folded(x: &ArrayD<f64>, axes: &[isize], keepdim: bool, factor: f64) -> Option<ArrayD<f64>> {
    let mut named: Vec<usize> = match axes {
        [] => (0..x.ndim()).collect(),
        axes => axes.iter().map(|axis| at(x, *axis)).collect::<Option<_>>()?,
    };
    named.sort_unstable();
    let mut y = x.clone();
    for axis in named.into_iter().rev() {
        y = y.sum_axis(Axis(axis));
        if keepdim {
            y.insert_axis_inplace(Axis(axis));
        }
    }
    Some(y * factor)
}

/// Products of matrices as NumPy's `matmul`.
fn matmul(a: &ArrayD<f64>, b: &ArrayD<f64>) -> Option<ArrayD<f64>> {
    if a.ndim() == 0 || b.ndim() == 0 {
        return None;
    }
    let (row, column) = (a.ndim() == 1, b.ndim() == 1);
    let a = if row { a.clone().insert_axis(Axis(0)) } else { a.clone() };
    let b = if column { b.clone().insert_axis(Axis(1)) } else { b.clone() };
    let ([lead_a @ .., m, k], [lead_b @ .., inner, n]) = (a.shape(), b.shape()) else { return None };
    if k != inner {
        return None;
    }
    let lead = broadcast(lead_a, lead_b)?;
    let a = a.broadcast([lead.as_slice(), &[*m, *k]].concat())?;
    let b = b.broadcast([lead.as_slice(), &[*k, *n]].concat())?;
    let mut y = ArrayD::from_shape_fn([lead.as_slice(), &[*m, *n]].concat(), |to| {
        let axes = to.ndim();
        let term = |inner: usize| {
            let (mut left, mut right) = (to.clone(), to.clone());
            left[axes - 1] = inner;
            right[axes - 2] = inner;
            a[left] * b[right]
        };
        (0..*k).map(term).sum::<f64>()
    });
    if column {
        y = y.index_axis_move(Axis(lead.len() + 1), 0);
    }
    if row {
        y = y.index_axis_move(Axis(lead.len()), 0);
    }
    Some(y)
}

/// `softmax(q·kᵀ/√width)·k` over the last two axes.
fn attention(q: &ArrayD<f64>, k: &ArrayD<f64>) -> Option<ArrayD<f64>> {
    let axes = q.ndim();
    if !(2..=4).contains(&axes) || k.ndim() != axes || q.shape()[axes - 1] != k.shape()[axes - 1] {
        return None;
    }
    let mut transposed = k.clone();
    transposed.swap_axes(axes - 2, axes - 1);
    #[expect(clippy::cast_precision_loss, reason = "there are few elements")]
    let scale = 1.0 / (q.shape()[axes - 1] as f64).sqrt();
    let mut scores = matmul(q, &transposed)? * scale;
    for mut lane in scores.lanes_mut(Axis(axes - 1)) {
        let sum: f64 = lane.iter().map(|x| x.exp()).sum();
        lane.mapv_inplace(|x| x.exp() / sum);
    }
    matmul(&scores, k)
}
