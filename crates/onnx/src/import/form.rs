//! Functions of one value that exporters write out as arithmetic: `x·(1 + erf(x/√2))/2`, `x·sigmoid(x)`.
//!
//! A form is `p(x) + q(x)·f(r(x))` with polynomials p, q, r and one function f. Sums and products of forms are forms, in
//! whatever order an exporter has them, and a few of them are activations.

use std::rc::Rc;

use half::f16;
use tiled_graph::Activation;

/// A polynomial, by its coefficients from the constant one on.
type Polynomial = [f64; 4];

/// `p(x) + q(x)·f(r(x))`.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// The number of x among what is planned; `None` of a number.
    x: Option<usize>,
    p: Polynomial,
    q: Polynomial,
    function: Option<(Function, Polynomial)>,
    /// Whether x has no height and width in the model.
    pub(crate) flat: bool,
    /// The operator and the name of the node that made it, for errors.
    pub(crate) operator: Rc<str>,
    pub(crate) node: Rc<str>,
}

/// A function that is no polynomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Erf,
    Tanh,
    Sigmoid,
}

/// What a form is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Recognised {
    /// The value itself.
    Itself,
    Activation(Activation),
}

/// An activation as a form.
struct Known {
    p: Polynomial,
    q: Polynomial,
    function: Function,
    inner: Polynomial,
    activation: Activation,
}

const ZERO: Polynomial = [0.0; 4];
const ONE: Polynomial = [1.0, 0.0, 0.0, 0.0];
const X: Polynomial = [0.0, 1.0, 0.0, 0.0];
const SQUARE: Polynomial = [0.0, 0.0, 1.0, 0.0];
const HALF_X: Polynomial = [0.0, 0.5, 0.0, 0.0];

impl Form {
    fn new(x: Option<usize>, p: Polynomial, flat: bool) -> Self {
        Self { x, p, q: ZERO, function: None, flat, operator: "".into(), node: "".into() }
    }

    /// A value itself.
    pub(crate) fn of_value(plan: usize, flat: bool) -> Self {
        Self::new(Some(plan), X, flat)
    }

    /// A number.
    pub(crate) fn of_number(value: f64) -> Self {
        Self::new(None, [value, 0.0, 0.0, 0.0], false)
    }

    /// The same, made by a node.
    pub(crate) fn made_by(self, operator: &str, node: &str) -> Self {
        Self { operator: operator.into(), node: node.into(), ..self }
    }

    /// The number of x.
    pub(crate) const fn x(&self) -> Option<usize> {
        self.x
    }

    /// The number that it is.
    pub(crate) fn number(&self) -> Option<f64> {
        self.x.is_none().then_some(self.p[0])
    }

    /// Whether it is the square of a value.
    pub(crate) fn is_square(&self) -> bool {
        self.function.is_none() && self.p == SQUARE
    }

    /// What it is; numbers of files have as few digits as those of `float16`.
    pub(crate) fn recognised(&self) -> Option<Recognised> {
        if self.function.is_none() {
            // to the last digits: a factor near one is a factor, and what is added to keep a divisor from zero is added
            let [number, factor, square, cube] = self.p;
            let is_x = [number, square, cube] == [0.0; 3] && (factor - 1.0).abs() <= 1e-12;
            return is_x.then_some(Recognised::Itself);
        }
        let is = |known: &&Known| self.is_times(known, 1.0);
        known().iter().find(is).map(|known| Recognised::Activation(known.activation))
    }

    /// The activation and the number that it is the product of. onnxsim leaves `x·(1 + erf(x/√2))`, twice GELU, where it
    /// moves the half into the weights of the next layer.
    pub(crate) fn multiple(&self) -> Option<(Activation, f64)> {
        let times = |known: &Known| {
            let factor = self.q[1] / known.q[1];
            let is_factor = factor.is_finite() && factor != 0.0 && self.is_times(known, factor);
            is_factor.then_some((known.activation, factor))
        };
        known().iter().find_map(times)
    }

    /// Whether it is a known one times a number.
    fn is_times(&self, known: &Known, factor: f64) -> bool {
        let Some((function, inner)) = &self.function else { return false };
        let times = |polynomial: &Polynomial| polynomial.map(|coefficient| coefficient * factor);
        *function == known.function
            && is_close(&self.p, &times(&known.p), EXACT)
            && is_close(&self.q, &times(&known.q), EXACT)
            && (is_close(inner, &known.inner, EXACT)
                || (known.function != Function::Sigmoid && are_halves(inner, &known.inner)))
    }

    /// The sum; `None` of a value and a number beside which its digits are lost: `(x + 1.5·2²³) − 1.5·2²³` rounds x.
    pub(crate) fn plus(&self, other: &Self) -> Option<Self> {
        let function = self.common(other)?;
        if self.x.or(other.x).is_some() && self.p[0].abs().max(other.p[0].abs()) > LARGEST_ADDED {
            return None;
        }
        Some(Self {
            x: self.x.or(other.x),
            p: sum(&self.p, &other.p),
            q: sum(&self.q, &other.q),
            function,
            flat: self.flat || other.flat,
            ..self.clone()
        })
    }

    /// The product; `None` of two functions, and where a power is above the third.
    pub(crate) fn times(&self, other: &Self) -> Option<Self> {
        let function = self.common(other)?;
        if self.function.is_some() && other.function.is_some() {
            return None;
        }
        Some(Self {
            x: self.x.or(other.x),
            p: product(&self.p, &other.p)?,
            q: sum(&product(&self.p, &other.q)?, &product(&self.q, &other.p)?),
            function,
            flat: self.flat || other.flat,
            ..self.clone()
        })
    }

    /// Every coefficient times this.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        let scaled = |polynomial: &Polynomial| polynomial.map(|coefficient| coefficient * factor);
        Self { p: scaled(&self.p), q: scaled(&self.q), ..self.clone() }
    }

    /// A function of it; `None` of a number, and where it has one already.
    pub(crate) fn under(&self, function: Function) -> Option<Self> {
        if self.function.is_some() || self.x.is_none() {
            return None;
        }
        Some(Self { p: ZERO, q: ONE, function: Some((function, self.p)), ..self.clone() })
    }

    /// The function of either, where both have one x and not two functions.
    fn common(&self, other: &Self) -> Option<Option<(Function, Polynomial)>> {
        let is_one = self.x == other.x && self.flat == other.flat;
        let has_one_x = self.x.is_none() || other.x.is_none() || is_one;
        match (&self.function, &other.function) {
            _ if !has_one_x => None,
            (Some(a), Some(b)) => (a == b).then_some(Some(*a)),
            (a, b) => Some((*a).or(*b)),
        }
    }
}

/// The activations that are forms.
fn known() -> [Known; 3] {
    let root = std::f64::consts::FRAC_1_SQRT_2;
    let slope = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * root / 2.0; // √(2/π)
    let (erf, cubic) = ([0.0, root, 0.0, 0.0], [0.0, slope, 0.0, 0.044_715 * slope]);
    let of = |p, q, function, inner, activation| Known { p, q, function, inner, activation };
    [
        of(ZERO, X, Function::Sigmoid, X, Activation::Silu),
        of(HALF_X, HALF_X, Function::Erf, erf, Activation::Gelu),
        of(HALF_X, HALF_X, Function::Tanh, cubic, Activation::GeluTanh),
    ]
}

fn sum(a: &Polynomial, b: &Polynomial) -> Polynomial {
    std::array::from_fn(|power| a[power] + b[power])
}

fn product(a: &Polynomial, b: &Polynomial) -> Option<Polynomial> {
    let mut product = ZERO;
    for (power, coefficient) in a.iter().enumerate().filter(|(_, coefficient)| **coefficient != 0.0) {
        for (other, factor) in b.iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
            *product.get_mut(power + other)? += coefficient * factor;
        }
    }
    Some(product)
}

/// Numbers that every type has: 1 and ½, and what is worked out of such.
const EXACT: f64 = 1e-6;

/// Whether the factors of `x` and `x³` are others as models in `float16` have them: the first, or what x is divided by, and the third
/// of the first.
fn are_halves(got: &Polynomial, exact: &Polynomial) -> bool {
    let is = |got: f64, exact: f64| f16::from_f64(got) == f16::from_f64(exact);
    let is_first = is(got[1], exact[1]) || is(1.0 / got[1], 1.0 / exact[1]);
    let is_third = if exact[3] == 0.0 { got[3] == 0.0 } else { is(got[3] / got[1], exact[3] / exact[1]) };
    [got[0], got[2]] == [0.0; 2] && is_first && is_third
}

/// More than any activation adds.
const LARGEST_ADDED: f64 = 64.0;

fn is_close(a: &Polynomial, b: &Polynomial, tolerance: f64) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * b.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x() -> Form {
        Form::of_value(0, false)
    }

    fn number(value: f64) -> Form {
        Form::of_number(value)
    }

    #[test]
    fn gelu_is_recognised_in_any_order() {
        let erf = |scaled: Form| scaled.under(Function::Erf).unwrap().plus(&number(1.0)).unwrap();
        // as float16 has it, and as float32
        let inner = [
            x().scaled(1.0 / 1.414_062_5),
            x().times(&number(std::f32::consts::FRAC_1_SQRT_2.into())).unwrap(),
        ];
        for inner in inner {
            let halves = [
                x().times(&erf(inner.clone())).unwrap().scaled(0.5),
                x().scaled(0.5).times(&erf(inner.clone())).unwrap(),
                number(0.5).times(&erf(inner)).unwrap().times(&x()).unwrap(),
            ];
            for form in halves {
                assert_eq!(form.recognised(), Some(Recognised::Activation(Activation::Gelu)), "{form:?}");
            }
        }
    }

    #[test]
    fn gelu_by_tanh_is_recognised() {
        let cube = x().times(&x()).unwrap().times(&x()).unwrap();
        let inner = x().plus(&cube.scaled(0.044_715)).unwrap().scaled(0.797_884_56);
        let form = inner.under(Function::Tanh).unwrap().plus(&number(1.0)).unwrap();
        let form = form.times(&x().scaled(0.5)).unwrap();
        assert_eq!(form.recognised(), Some(Recognised::Activation(Activation::GeluTanh)));
    }

    #[test]
    fn a_multiple_of_an_activation_is_one() {
        let erf = x().scaled(std::f64::consts::FRAC_1_SQRT_2).under(Function::Erf).unwrap();
        let twice = x().times(&erf.plus(&number(1.0)).unwrap()).unwrap();
        assert_eq!((twice.recognised(), twice.multiple()), (None, Some((Activation::Gelu, 2.0))));
        let silu = x().times(&x().under(Function::Sigmoid).unwrap()).unwrap();
        assert_eq!(silu.scaled(-3.0).multiple(), Some((Activation::Silu, -3.0)));
        for other in [x(), x().scaled(2.0), twice.plus(&x()).unwrap(), twice.scaled(0.0), erf] {
            assert_eq!(other.multiple(), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_no_activation_is_not_taken_for_one() {
        let nearly = x().times(&x().scaled(0.708).under(Function::Erf).unwrap().plus(&number(1.0)).unwrap());
        assert_eq!(nearly.unwrap().scaled(0.5).recognised(), None);
        let quick = x().times(&x().scaled(1.702).under(Function::Sigmoid).unwrap()).unwrap();
        assert_eq!(quick.recognised(), None);
        assert_eq!(x().scaled(2.0).recognised(), None);
        let of_another = Form::of_value(1, false).under(Function::Sigmoid).unwrap();
        assert!(x().times(&of_another).is_none());
        let cube = x().times(&x()).unwrap().times(&x()).unwrap();
        assert!(cube.times(&x()).is_none(), "the fourth power");
    }

    #[test]
    fn what_rounds_a_value_is_not_the_value() {
        let (up, down) = (number(12_582_912.0), number(-12_582_912.0));
        assert!(x().plus(&up).is_none());
        assert_eq!(up.plus(&down).and_then(|sum| sum.number()), Some(0.0));
        let back = x().plus(&number(3.0)).unwrap().plus(&number(-3.0)).unwrap();
        assert_eq!(back.recognised(), Some(Recognised::Itself));
    }

    #[test]
    fn silu_and_the_value_itself_are_recognised() {
        let silu = x().under(Function::Sigmoid).unwrap().times(&x()).unwrap();
        assert_eq!(silu.recognised(), Some(Recognised::Activation(Activation::Silu)));
        assert_eq!(x().scaled(2.0).scaled(0.5).recognised(), Some(Recognised::Itself));
    }
}
