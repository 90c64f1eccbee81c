//! Constants as arrays of doubles while nodes compute with them, and what they make.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use ndarray::{ArrayViewD, IxDyn};
use tiled_tensor::copied;

use super::broadcast;
use crate::Reason;
use crate::import::computed::{Computed, Elements, Room};
use crate::import::numbers::Num;
use crate::import::site::{Site, node_name};
use crate::import::value::{Constant, Value};

/// The elements of an operand in their shape.
pub(super) struct Array {
    pub(super) shape: Arc<[usize]>,
    source: Source,
    pub(super) is_double: bool,
}

enum Source {
    /// They were read for this node.
    Read(Vec<f64>, Room),
    /// They were computed before.
    Held(Rc<Elements>),
}

impl Array {
    /// Elements that were computed for this node.
    pub(super) fn new(shape: &[usize], values: Vec<f64>, room: Room, is_double: bool) -> Self {
        Self { shape: shape.into(), source: Source::Read(values, room), is_double }
    }

    /// The elements of a constant.
    pub(super) fn of(site: &mut Site<'_>, position: usize) -> Result<Self, Reason> {
        match site.operand(position)?.clone() {
            Value::Computed(Computed { elements, shape }) => {
                let is_double = elements.is_double;
                Ok(Self { shape, source: Source::Held(elements), is_double })
            }
            Value::Numbers(numbers) => {
                let known = |item: &Num| if let Num::Known(value) = item { *value } else { f64::NAN };
                let values: Vec<f64> = numbers.items.iter().map(known).collect();
                let room = site.tensors.room(values.len(), size_of::<f64>())?;
                let shape = if numbers.is_scalar { Arc::from([]) } else { Arc::from([values.len()]) };
                Ok(Self { shape, source: Source::Read(values, room), is_double: false })
            }
            Value::Constant(constant) => Self::read(site, position, &constant),
            _ => site.wrong(position, "a constant"),
        }
    }

    fn read(site: &mut Site<'_>, position: usize, constant: &Constant) -> Result<Self, Reason> {
        let stored = site.tensors.check(constant.tensor);
        let Ok((elements, is_double)) = stored.map(|stored| (stored.elements, stored.is_double())) else {
            return site.wrong(position, "a constant");
        };
        let room = site.tensors.room(elements, size_of::<f64>())?;
        let mut values = site.values(constant)?;
        if let ([rows, columns], true) = (&*constant.shape, constant.transposed) {
            let _turned = site.tensors.room(elements, size_of::<f64>())?;
            let stored = view(&[*columns, *rows], &values)?;
            values = broadcast::ordered(&stored.reversed_axes())?;
        }
        Ok(Self { shape: Arc::clone(&constant.shape), source: Source::Read(values, room), is_double })
    }

    pub(super) fn values(&self) -> &[f64] {
        match &self.source {
            Source::Read(values, _) => values,
            Source::Held(elements) => &elements.values,
        }
    }

    pub(super) fn view(&self) -> Result<ArrayViewD<'_, f64>, Reason> {
        view(&self.shape, self.values())
    }

    /// Elements to be changed, without a copy of those that nothing else reads.
    pub(super) fn into_values(self, site: &Site<'_>) -> Result<(Vec<f64>, Room), Reason> {
        match self.source {
            Source::Read(values, room) => Ok((values, room)),
            Source::Held(elements) => {
                let room = site.tensors.room(elements.values.len(), size_of::<f64>())?;
                Ok((copied(&elements.values)?, room))
            }
        }
    }

    /// The same elements in the same order, in a shape of as many.
    pub(super) fn reshaped(self, site: &Site<'_>, shape: Vec<usize>) -> Value {
        let shape = shape.into();
        match self.source {
            Source::Held(elements) => Value::Computed(Computed { elements, shape }),
            Source::Read(values, room) => computed(site, values, room, &shape, self.is_double),
        }
    }
}

fn view<'a>(shape: &[usize], values: &'a [f64]) -> Result<ArrayViewD<'a, f64>, Reason> {
    ArrayViewD::from_shape(IxDyn(shape), values).map_err(|_| {
        let got = format!("{} elements of shape {shape:?}", values.len());
        Reason::Value { expected: "a constant", got }
    })
}

/// Room for a result of this shape: of no more elements than the operands have, unless it is small.
pub(super) fn room(site: &Site<'_>, of: usize, shape: &[usize]) -> Result<Room, Reason> {
    let got = shape.iter().fold(1_u64, |product, extent| product.saturating_mul(*extent as u64));
    let expected = of.max(SMALL) as u64;
    match usize::try_from(got) {
        Ok(elements) if got <= expected => site.tensors.room(elements, size_of::<f64>()),
        _ => Err(Reason::ComputedElements { expected, got }),
    }
}

/// A constant that the node makes.
pub(super) fn computed(
    site: &Site<'_>,
    values: Vec<f64>,
    room: Room,
    shape: &[usize],
    is_double: bool,
) -> Value {
    let name = site.node.output.first().filter(|name| !name.is_empty());
    let name = name.map_or(node_name(site.node), String::as_str).to_owned();
    let elements = Elements { name, values, is_double, tensor: Cell::new(None), room };
    Value::Computed(Computed { elements: Rc::new(elements), shape: shape.into() })
}

/// As many elements are made of however few.
const SMALL: usize = 1 << 16;

/// More axes than any weight has.
pub(super) const MAX_AXES: usize = 8;
