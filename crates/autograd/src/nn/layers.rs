//! Layers of vectors, and modules of modules.

use std::marker::PhantomData;

use ndarray::ArrayD;
use tiled_kernel::dense::Unary;
use tiled_tensor::Element;

use super::parts::Training;
use super::{Module, uniform};
use crate::context::Context;
use crate::error::Result;
use crate::tensor::Tensor;

/// `x·Wᵀ + b` over the last axis.
#[derive(Debug)]
pub struct Linear<T: Element> {
    /// Outputs × inputs.
    pub weight: Tensor<T>,
    /// A summand for each output.
    pub bias: Option<Tensor<T>>,
}
crate::parts!(Linear { weight, bias });

impl<T: Element> Linear<T> {
    /// Parameters uniform within `1/√inputs`.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn new(context: &Context<T>, inputs: usize, outputs: usize, bias: bool) -> Result<Self> {
        let (weight, bias) = uniform(context, &[outputs, inputs], inputs, bias.then_some(outputs))?;
        Ok(Self { weight, bias })
    }
}

impl<T: Element> Module<T> for Linear<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        x.linear(&self.weight, self.bias.as_ref())
    }
}

/// Rows of a table by their numbers.
#[derive(Debug)]
pub struct Embedding<T: Element> {
    /// Rows × columns.
    pub weight: Tensor<T>,
    padding: Option<i64>,
}
crate::parts!(Embedding { weight });

impl<T: Element> Embedding<T> {
    /// Rows of standard normal numbers; that of `padding` is zero and stays so.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn new(context: &Context<T>, rows: usize, columns: usize, padding: Option<i64>) -> Result<Self> {
        let weight = context.normal(&[rows, columns], 0.0, 1.0)?;
        if let Some(row) = padding.and_then(|row| usize::try_from(row).ok()) {
            weight.select(0, row)?.assign(&context.zeros(&[columns])?)?;
        }
        Ok(Self { weight: weight.with_gradient()?, padding })
    }

    /// The rows at indices of any shape.
    ///
    /// # Errors
    /// Where an index is not a row, and where memory is refused.
    pub fn forward(&self, index: &ArrayD<i64>) -> Result<Tensor<T>> {
        crate::ops::embedding(index, &self.weight, self.padding)
    }
}

/// Drops elements in training.
#[derive(Debug)]
pub struct Dropout<T: Element> {
    p: f64,
    training: Training,
    element: PhantomData<T>,
}
crate::parts!(Dropout { training });

impl<T: Element> Dropout<T> {
    /// Each with this probability.
    #[must_use]
    pub fn new(p: f64) -> Self {
        Self { p, training: Training::default(), element: PhantomData }
    }
}

impl<T: Element> Module<T> for Dropout<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        x.dropout(self.p, self.training.is_on())
    }
}

macro_rules! plain {
    ($(#[doc = $doc:literal] $name:ident { $($(#[doc = $field_doc:literal])* $field:ident: $type:ty),* } |$own:ident, $x:ident| $forward:expr;)*) => {
        $(
            #[doc = $doc]
            #[derive(Clone, Copy, Debug)]
            pub struct $name<T: Element> {
                $($(#[doc = $field_doc])* pub $field: $type,)*
                element: PhantomData<T>,
            }
            crate::parts!($name {});

            impl<T: Element> $name<T> {
                /// The module.
                #[must_use]
                pub const fn new($($field: $type),*) -> Self {
                    Self { $($field,)* element: PhantomData }
                }
            }

            impl<T: Element> Module<T> for $name<T> {
                fn forward(&self, $x: &Tensor<T>) -> Result<Tensor<T>> {
                    let $own = self;
                    let _ = $own;
                    $forward
                }
            }
        )*
    };
}

plain! {
    /// What it is given.
    Identity {} |own, x| Ok(x.clone());
    /// Axes from `begin` to `end` as one; PyTorch's are 1 and −1.
    Flatten {
        /// The first of them.
        begin: isize,
        /// The last.
        end: isize
    } |own, x| x.flatten(own.begin, own.end);
    /// `e^x/Σ e^x` along an axis.
    Softmax {
        /// The axis.
        axis: isize
    } |own, x| x.softmax(own.axis);
    /// `x − ln Σ e^x` along an axis.
    LogSoftmax {
        /// The axis.
        axis: isize
    } |own, x| x.log_softmax(own.axis);
    /// A function of each element: an activation.
    Function1 {
        /// The function.
        function: Unary
    } |own, x| x.map(own.function);
}

impl<T: Element> Default for Identity<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Modules one after the other, named by their numbers.
#[derive(Debug, Default)]
pub struct Sequential<T: Element> {
    modules: Vec<Box<dyn Module<T>>>,
}

/// Modules in a list, named by their numbers.
pub type ModuleList<M> = Vec<M>;

impl<T: Element> super::Parts<T> for Sequential<T> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(super::Entry<'_, T>)) {
        self.modules.visit(name, visitor);
    }

    fn set_training(&self, training: bool) {
        self.modules.set_training(training);
    }
}

impl<T: Element> Sequential<T> {
    /// No modules yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { modules: Vec::new() }
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, module: impl Module<T> + 'static) -> Self {
        self.modules.push(Box::new(module));
        self
    }
}

impl<T: Element> Module<T> for Sequential<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        self.modules.iter().try_fold(x.clone(), |x, module| module.forward(&x))
    }
}
