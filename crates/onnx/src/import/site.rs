//! A node as its rule sees it: operands by position, attributes by name, and what it makes.

use std::rc::Rc;

use tiled_graph::{Op, ParamKind};

use super::form::{Form, Recognised};
use super::numbers::{MAX_NUMBERS, Num, Numbers};
use super::plan::Plans;
use super::value::{Constant, Image, Value};
use crate::Reason;
use crate::proto::{AttributeProto, NodeProto, TensorProto};
use crate::tensor::{Tensors, text};

/// A node, and the model as far as it was imported.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) node: &'a NodeProto,
    /// The version of the operators.
    pub(crate) opset: i64,
    /// What it reads; `None` of what it leaves out.
    pub(crate) operands: Vec<Option<Value>>,
    pub(crate) plans: &'a mut Plans,
    pub(crate) tensors: &'a mut Tensors,
}

/// The name of a node, or of the first value that it makes.
pub(crate) fn node_name(node: &NodeProto) -> &str {
    match node.name() {
        "" => node.output.iter().find(|name| !name.is_empty()).map_or("", String::as_str),
        name => name,
    }
}

impl Site<'_> {
    /// Whether there is an operand at this position.
    pub(crate) fn has(&self, position: usize) -> bool {
        self.operands.get(position).is_some_and(Option::is_some)
    }

    /// The operand at this position.
    pub(crate) fn operand(&self, position: usize) -> Result<&Value, Reason> {
        match self.operands.get(position) {
            Some(Some(value)) => Ok(value),
            _ => Err(Reason::Operand { position, expected: "a value", got: "nothing".to_owned() }),
        }
    }

    /// An operand that is not what would be read.
    pub(crate) fn wrong<V>(&self, position: usize, expected: &'static str) -> Result<V, Reason> {
        Err(Reason::Operand { position, expected, got: self.operand(position)?.describe() })
    }

    /// A value of the network, of four axes or two.
    pub(crate) fn value(&mut self, position: usize) -> Result<Image, Reason> {
        match self.operand(position)? {
            Value::Image(image) => Ok(*image),
            Value::Form(forms) => {
                let is_itself = |form: &&Form| form.recognised() == Some(Recognised::Itself);
                match forms.iter().find(is_itself).and_then(|form| Some((form.x()?, form.flat))) {
                    Some((plan, flat)) => Ok(Image { plan, flat }),
                    None => match self.plans.multiplied(&Rc::clone(forms))? {
                        Some(image) => Ok(image),
                        None => self.wrong(position, "a value of the network"),
                    },
                }
            }
            Value::Padded(padded) => {
                let padded = Rc::clone(padded);
                Ok(Image { plan: self.plans.padded(&padded)?, flat: false })
            }
            Value::Norming(norming) => {
                let norming = *norming;
                Ok(Image { plan: self.plans.settled(norming, node_name(self.node))?, flat: false })
            }
            _ => self.wrong(position, "a value of the network"),
        }
    }

    /// Lets multiples of activations among the operands be the values that they are: what a node makes of them is no form.
    pub(crate) fn multiples(&mut self) -> Result<(), Reason> {
        for position in 0..self.operands.len() {
            if let Some(Value::Form(forms)) = &self.operands[position]
                && let Some(image) = self.plans.multiplied(forms)?
            {
                self.operands[position] = Some(Value::Image(image));
            }
        }
        Ok(())
    }

    /// A batch of images.
    pub(crate) fn image(&mut self, position: usize) -> Result<usize, Reason> {
        let Image { plan, flat } = self.value(position)?;
        if flat { self.wrong(position, "a batch of images, N×C×H×W") } else { Ok(plan) }
    }

    /// A constant.
    pub(crate) fn constant(&self, position: usize) -> Result<Constant, Reason> {
        match self.operand(position)? {
            Value::Constant(constant) => Ok(constant.clone()),
            _ => self.wrong(position, "a constant"),
        }
    }

    /// A constant of so many axes.
    pub(crate) fn constant_of<const N: usize>(
        &self,
        position: usize,
        expected: &'static str,
    ) -> Result<(Constant, [usize; N]), Reason> {
        let constant = self.constant(position)?;
        match <[usize; N]>::try_from(&*constant.shape) {
            Ok(shape) => Ok((constant, shape)),
            Err(_) => self.wrong(position, expected),
        }
    }

    /// Whether an operand is a few numbers, constant or computed.
    pub(crate) fn is_numbers(&self, position: usize) -> bool {
        match self.operands.get(position) {
            Some(Some(Value::Numbers(_))) => true,
            Some(Some(Value::Constant(constant))) => {
                constant.shape.len() < 2 && constant.shape.iter().product::<usize>() <= MAX_NUMBERS
            }
            _ => false,
        }
    }

    /// A few numbers, constant or computed.
    pub(crate) fn numbers(&mut self, position: usize) -> Result<Rc<Numbers>, Reason> {
        match self.operand(position)? {
            Value::Numbers(numbers) => Ok(Rc::clone(numbers)),
            Value::Constant(constant) if self.is_numbers(position) => {
                let (is_scalar, tensor) = (constant.shape.is_empty(), constant.tensor);
                let (is_integer, is_double) = self.with_tensor(tensor, |tensors| {
                    let stored = tensors.check(tensor)?;
                    Ok((stored.is_integer(), stored.is_double()))
                })?;
                let values: Vec<f64> = self.with_tensor(tensor, |tensors| tensors.values(tensor))?;
                let items = values.into_iter().map(Num::Known).collect();
                Ok(Rc::new(Numbers { items, is_scalar, is_integer, is_double }))
            }
            _ => self.wrong(position, "a few numbers"),
        }
    }

    /// Refuses the features of several pixels in one axis, which are no channels of a pixel.
    pub(crate) fn check_one_pixel(&self, plan: usize) -> Result<(), Reason> {
        match self.plans.get(plan).extents {
            Some([1, 1]) => Ok(()),
            _ => self.wrong(0, "a value of one pixel, as all that an image has is one axis"),
        }
    }

    /// Numbers that are known and whole.
    pub(crate) fn whole(&mut self, position: usize) -> Result<Vec<i64>, Reason> {
        let numbers = self.numbers(position)?;
        match numbers.all_whole(&self.plans.extents) {
            Some(whole) => Ok(whole),
            None => self.wrong(position, "whole numbers that do not depend on the image"),
        }
    }

    /// One number that is known.
    pub(crate) fn number(&mut self, position: usize) -> Result<f64, Reason> {
        match self.scalar(position)? {
            Some(number) => Ok(number),
            None => self.wrong(position, "one number"),
        }
    }

    /// The number, where the operand is a constant or computed one.
    pub(crate) fn scalar(&mut self, position: usize) -> Result<Option<f64>, Reason> {
        match self.operand(position)? {
            // of more axes it would give them to what it meets
            Value::Constant(constant)
                if constant.shape.iter().product::<usize>() == 1 && constant.shape.len() <= 4 =>
            {
                let tensor = constant.tensor;
                let values: Vec<f64> = self.with_tensor(tensor, |tensors| tensors.values(tensor))?;
                Ok(values.first().copied())
            }
            Value::Numbers(numbers) => match numbers.items.as_slice() {
                [item] => Ok(item.known(&self.plans.extents)),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// A function of the value at this position, in the ways that it is one: of itself, and of what it was made of.
    pub(crate) fn forms(&mut self, position: usize) -> Result<Vec<Form>, Reason> {
        if let Some(number) = self.scalar(position)? {
            return Ok(vec![Form::of_number(number)]);
        }
        Ok(match self.operand(position)? {
            Value::Image(Image { plan, flat }) => {
                let made = self.plans.get(*plan).forms.iter().cloned();
                std::iter::once(Form::of_value(*plan, *flat)).chain(made).collect()
            }
            Value::Form(forms) => forms.to_vec(),
            _ => Vec::new(),
        })
    }

    /// Adds an operator of the network over these values.
    pub(crate) fn add(&mut self, op: Op, inputs: Vec<usize>) -> Result<usize, Reason> {
        self.plans.node(node_name(self.node), op, inputs, Vec::new())
    }

    /// Adds operators one after another over a value; the last has the name of the node.
    pub(crate) fn chain(&mut self, ops: &[Op], mut plan: usize) -> Result<usize, Reason> {
        let name = node_name(self.node);
        for (place, op) in ops.iter().enumerate() {
            let is_last = place + 1 == ops.len();
            let name = if is_last { name.to_owned() } else { format!("{name}.{}", op.name()) };
            plan = self.plans.node(&name, op.clone(), vec![plan], Vec::new())?;
        }
        Ok(plan)
    }

    /// Lets steps of a norm among the operands be the values that they are: they are no part of one.
    pub(crate) fn settle(&mut self) -> Result<(), Reason> {
        for position in 0..self.operands.len() {
            if let Some(Value::Norming(norming)) = self.operands[position] {
                let plan = self.plans.settled(norming, node_name(self.node))?;
                self.operands[position] = Some(Value::Image(Image { plan, flat: false }));
            }
        }
        Ok(())
    }

    /// The same with parameters. Where the first is the weight of a named module, that is the node's name too, so that files
    /// of weights for the module fit the network.
    pub(crate) fn add_with(
        &mut self,
        op: Op,
        input: usize,
        params: Vec<(ParamKind, Constant)>,
    ) -> Result<usize, Reason> {
        let weight = params.first().map_or("", |(_, constant)| self.tensors.name(constant.tensor));
        let module = weight.strip_suffix(".weight").filter(|module| !module.is_empty());
        let name = module.unwrap_or(node_name(self.node)).to_owned();
        self.plans.node(&name, op, vec![input], params)
    }

    /// The elements of a constant that is no transposed matrix.
    pub(crate) fn values(&mut self, constant: &Constant) -> Result<Vec<f64>, Reason> {
        let tensor = constant.tensor;
        self.with_tensor(tensor, |tensors| tensors.values(tensor))
    }

    /// A constant of these numbers.
    pub(crate) fn new_vector(&mut self, values: Vec<f64>) -> Result<Constant, Reason> {
        let dims = vec![i64::try_from(values.len()).unwrap_or(i64::MAX)];
        let proto =
            TensorProto { dims, data_type: Some(DOUBLE), double_data: values, ..TensorProto::default() };
        let tensor = self.tensors.push(proto);
        constant(self.tensors, tensor)
    }

    /// A constant whose elements are all this number.
    pub(crate) fn new_filled(&mut self, dims: Vec<i64>, value: f64) -> Result<Constant, Reason> {
        let name = node_name(self.node).to_owned();
        match self.tensors.push_filled(&name, dims, value) {
            Ok(tensor) => constant(self.tensors, tensor),
            Err(problem) => Err(Reason::Tensor { name, problem }),
        }
    }

    /// The constant that a tensor is.
    pub(crate) fn new_constant(&mut self, proto: TensorProto) -> Result<Value, Reason> {
        let tensor = self.tensors.push(proto);
        constant(self.tensors, tensor).map(Value::Constant)
    }

    fn with_tensor<V>(
        &mut self,
        tensor: usize,
        read: impl FnOnce(&mut Tensors) -> Result<V, crate::TensorProblem>,
    ) -> Result<V, Reason> {
        read(self.tensors)
            .map_err(|problem| Reason::Tensor { name: self.tensors.name(tensor).to_owned(), problem })
    }
}

/// An initialiser, checked.
pub(crate) fn constant(tensors: &mut Tensors, tensor: usize) -> Result<Constant, Reason> {
    match tensors.check(tensor) {
        Ok(stored) => {
            let shape = stored.shape.as_slice().into();
            Ok(Constant { tensor, shape, transposed: false })
        }
        Err(problem) => Err(Reason::Tensor { name: tensors.name(tensor).to_owned(), problem }),
    }
}

/// Attributes.
impl Site<'_> {
    pub(crate) fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.node.attribute.iter().find(|attribute| attribute.name() == name)
    }

    /// A whole number.
    pub(crate) fn int(&self, name: &'static str, default: i64) -> Result<i64, Reason> {
        let Some(attribute) = self.attribute(name) else { return Ok(default) };
        attribute.i.ok_or_else(|| wrong_type(name, "a whole number", attribute))
    }

    /// A whole number that is a yes or a no.
    pub(crate) fn flag(&self, name: &'static str, default: bool) -> Result<bool, Reason> {
        match self.int(name, default.into())? {
            0 => Ok(false),
            1 => Ok(true),
            got => Err(Reason::Attribute { name, expected: "0 or 1", got: got.to_string() }),
        }
    }

    /// Whole numbers.
    pub(crate) fn ints(&self, name: &'static str) -> Result<Option<Vec<i64>>, Reason> {
        let Some(attribute) = self.attribute(name) else { return Ok(None) };
        let is_list = attribute.r#type.is_none_or(|kind| kind == INTS);
        if is_list {
            Ok(Some(attribute.ints.clone()))
        } else {
            Err(wrong_type(name, "whole numbers", attribute))
        }
    }

    /// Whole numbers of which sums and products of two do not overflow.
    pub(crate) fn small_ints(&self, name: &'static str) -> Result<Option<Vec<i64>>, Reason> {
        let ints = self.ints(name)?;
        match ints.iter().flatten().find(|int| !is_small(**int)) {
            None => Ok(ints),
            Some(got) => Err(Reason::Attribute { name, expected: "within ±2^30", got: got.to_string() }),
        }
    }

    /// A whole number for height and one for width.
    pub(crate) fn pair(&self, name: &'static str) -> Result<Option<[i64; 2]>, Reason> {
        let Some(ints) = self.small_ints(name)? else { return Ok(None) };
        let wrong = |_| Reason::Attribute {
            name,
            expected: "two whole numbers",
            got: format!("{:?}", ints.as_slice()),
        };
        <[i64; 2]>::try_from(ints.as_slice()).map(Some).map_err(wrong)
    }

    /// A number: the shortest decimal that is nearest to this `float`, which is what its author wrote.
    pub(crate) fn float(&self, name: &'static str, default: f32) -> Result<f64, Reason> {
        let number = match self.attribute(name) {
            None => default,
            Some(attribute) => attribute.f.ok_or_else(|| wrong_type(name, "a number", attribute))?,
        };
        Ok(decimal(number))
    }

    /// A text.
    pub(crate) fn text(&self, name: &'static str, default: &str) -> Result<String, Reason> {
        match self.attribute(name) {
            None => Ok(default.to_owned()),
            Some(attribute) if attribute.s.is_none() => Err(wrong_type(name, "a text", attribute)),
            Some(attribute) => Ok(text(attribute.s.as_ref())),
        }
    }

    /// Refuses any other value of an attribute than the only one that a network has.
    pub(crate) fn only(
        &self,
        name: &'static str,
        default: i64,
        wanted: i64,
        expected: &'static str,
    ) -> Result<(), Reason> {
        match self.int(name, default)? {
            got if got == wanted => Ok(()),
            got => Err(Reason::Attribute { name, expected, got: got.to_string() }),
        }
    }
}

/// Whether a number is one of rows or columns that there can be.
pub(crate) const fn is_small(number: i64) -> bool {
    number.unsigned_abs() <= 1 << 30
}

/// The shortest decimal that is nearest to this `f32`.
pub(crate) fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| number.into())
}

fn wrong_type(name: &'static str, expected: &'static str, attribute: &AttributeProto) -> Reason {
    let got = match attribute.r#type.unwrap_or_default() {
        1 => "a number",
        2 => "a whole number",
        3 => "a text",
        4 => "a tensor",
        5 => "a graph",
        6 => "numbers",
        INTS => "whole numbers",
        8 => "texts",
        _ => "of another type",
    };
    Reason::Attribute { name, expected, got: got.to_owned() }
}

/// `TensorProto.DOUBLE`.
pub(crate) const DOUBLE: i32 = 11;

/// `AttributeProto.INTS`.
const INTS: i32 = 7;
