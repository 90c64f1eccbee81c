//! One computation.

use tiled_geometry::Region;
use tiled_kernel::{Backend, Kernel, Operands, Support, Work};
use tiled_tensor::{Element, Tensor};

use super::opened::Opened;
use super::window::{Held, extents, visit};

/// A kernel with its operands, whole.
#[derive(Clone, Debug)]
pub struct Case<T: Element> {
    /// The kernel.
    pub kernel: Kernel,
    /// Its parameters.
    pub params: Vec<Vec<T>>,
    /// Its inputs.
    pub inputs: Vec<Tensor<T>>,
    /// The shape of its output.
    pub output: [usize; 4],
}

impl<T: Element> Case<T> {
    /// The same case with every number replaced.
    #[must_use]
    pub fn map<U: Element>(&self, f: impl Fn(T) -> U) -> Case<U> {
        Case {
            kernel: self.kernel,
            params: self.params.iter().map(|param| param.iter().map(|value| f(*value)).collect()).collect(),
            inputs: self.inputs.iter().map(|input| map_tensor(input, &f)).collect(),
            output: self.output,
        }
    }

    /// The whole output, from whole windows in the backend's channel blocks.
    ///
    /// # Panics
    /// Where the backend does.
    pub fn whole(&self, backend: &dyn Backend<T>) -> Tensor<T> {
        let whole = Region::whole(extents(self.output));
        let windows: Vec<Held<T>> =
            self.inputs.iter().map(|input| Held::whole(input, backend.block(input.shape()[1]))).collect();
        let mut output =
            Held::filled(self.output, backend.block(self.output[1]), whole, 0, T::from_f64(f64::NAN));
        self.open(backend).compute(&self.kernel, &windows, &mut output, whole);
        let mut result = Tensor::zeros(self.output).expect("a small tensor");
        let (from, mut to) = (output.view(), result.view_mut());
        visit(self.output[0], self.output[1], whole, |n, c, y, x| to.set(n, c, y, x, from.get(n, c, y, x)));
        result
    }

    /// Whether the backend carries out the kernel.
    pub(super) fn is_supported(&self, backend: &dyn Backend<T>) -> bool {
        self.support(backend).is_some()
    }

    /// What the backend rounds factors by.
    pub(super) fn factor_rounding(&self, backend: &dyn Backend<T>) -> f64 {
        self.support(backend).map_or(0.0, |support| support.factor_rounding)
    }

    fn support(&self, backend: &dyn Backend<T>) -> Option<Support> {
        let params: Vec<usize> = self.params.iter().map(Vec::len).collect();
        let inputs: Vec<usize> = self.inputs.iter().map(|input| input.shape()[1]).collect();
        let [batch, channels, ..] = self.output;
        let operands = Operands { batch, inputs: &inputs, params: &params, channels };
        backend.support(&Work::Map(self.kernel), &operands)
    }

    /// The backend with the memory of this case.
    pub(super) fn open<'b>(&self, backend: &'b dyn Backend<T>) -> Opened<'b, T> {
        let shapes: Vec<_> = self.inputs.iter().map(Tensor::shape).chain([self.output]).collect();
        Opened::for_kernel(backend, &self.kernel, &self.params, &shapes)
    }

    /// What it is, for messages.
    pub(super) fn describe(&self) -> String {
        let inputs: Vec<_> = self.inputs.iter().map(Tensor::shape).collect();
        format!("{:?}\ninputs {inputs:?}, output {:?}, {}", self.kernel, self.output, T::DTYPE.name())
    }
}

/// The tensor with every element replaced.
pub(crate) fn map_tensor<T: Element, U: Element>(tensor: &Tensor<T>, mut f: impl FnMut(T) -> U) -> Tensor<U> {
    let mut values = tensor.data().iter();
    Tensor::from_fn(tensor.shape(), |_| f(*values.next().expect("one value for each element")))
        .expect("a tensor of this shape exists")
}
