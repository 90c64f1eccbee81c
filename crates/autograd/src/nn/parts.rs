//! What a module consists of.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use tiled_tensor::Element;

use crate::tensor::Tensor;

/// A tensor of a module by its name: a parameter where it is a leaf, else a buffer.
#[derive(Debug)]
pub struct Entry<'a, T: Element> {
    /// The fields on the way to it, with dots between.
    pub name: String,
    /// The tensor.
    pub tensor: &'a Tensor<T>,
}

/// What has tensors and, perhaps, a training mode.
pub trait Parts<T: Element> {
    /// Tells of every tensor, in the order of the fields.
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(Entry<'_, T>));

    /// Chooses between training and evaluation, for all that is in it.
    fn set_training(&self, training: bool);
}

/// Whether a module trains, as it does at first.
pub struct Training(AtomicBool);

impl Default for Training {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl fmt::Debug for Training {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Training").field(&self.is_on()).finish()
    }
}

impl Training {
    /// Whether it does.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Element> Parts<T> for Training {
    fn visit(&self, _: &str, _: &mut dyn FnMut(Entry<'_, T>)) {}

    fn set_training(&self, training: bool) {
        self.0.store(training, Ordering::Relaxed);
    }
}

impl<T: Element> Parts<T> for Tensor<T> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(Entry<'_, T>)) {
        visitor(Entry { name: name.to_owned(), tensor: self });
    }

    fn set_training(&self, _: bool) {}
}

impl<T: Element, P: Parts<T> + ?Sized> Parts<T> for Box<P> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(Entry<'_, T>)) {
        (**self).visit(name, visitor);
    }

    fn set_training(&self, training: bool) {
        (**self).set_training(training);
    }
}

impl<T: Element, P: Parts<T>> Parts<T> for Option<P> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(Entry<'_, T>)) {
        if let Some(part) = self {
            part.visit(name, visitor);
        }
    }

    fn set_training(&self, training: bool) {
        if let Some(part) = self {
            part.set_training(training);
        }
    }
}

/// The parts of a list are named by their numbers.
impl<T: Element, P: Parts<T>> Parts<T> for Vec<P> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(Entry<'_, T>)) {
        for (number, part) in self.iter().enumerate() {
            part.visit(&joined(name, &number.to_string()), visitor);
        }
    }

    fn set_training(&self, training: bool) {
        self.iter().for_each(|part| part.set_training(training));
    }
}

/// A field's name behind those on the way to it.
#[must_use]
pub fn joined(name: &str, field: &str) -> String {
    if name.is_empty() { field.to_owned() } else { format!("{name}.{field}") }
}

/// Lists the fields of a struct over an element type that are tensors, modules, options or lists of them: then it has names of
/// parameters, a training mode and files of weights.
///
/// ```
/// use tiled_autograd::nn::{Linear, Module};
/// use tiled_autograd::{Context, Result, Tensor, parts};
/// use tiled_kernel::Reference;
/// use tiled_tensor::Element;
///
/// #[derive(Debug)]
/// struct Net<T: Element> {
///     first: Linear<T>,
///     second: Linear<T>,
/// }
/// parts!(Net { first, second });
///
/// impl<T: Element> Module<T> for Net<T> {
///     fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
///         self.second.forward(&self.first.forward(x)?.relu()?)
///     }
/// }
///
/// let context = Context::<f32>::new(&Reference, 1)?;
/// let net = Net { first: Linear::new(&context, 3, 8, true)?, second: Linear::new(&context, 8, 2, true)? };
/// let names: Vec<String> = net.parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["first.weight", "first.bias", "second.weight", "second.bias"]);
/// # Ok::<(), tiled_autograd::TapeError>(())
/// ```
#[macro_export]
macro_rules! parts {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl<T: $crate::Element> $crate::nn::Parts<T> for $type<T> {
            fn visit(&self, name: &str, visitor: &mut dyn FnMut($crate::nn::Entry<'_, T>)) {
                let _ = (name, &visitor);
                $($crate::nn::Parts::<T>::visit(&self.$field, &$crate::joined(name, stringify!($field)), visitor);)*
            }

            fn set_training(&self, training: bool) {
                let _ = training;
                $($crate::nn::Parts::<T>::set_training(&self.$field, training);)*
            }
        }
    };
}
