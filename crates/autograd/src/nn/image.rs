//! Layers of images. Attributes are those of networks (`tiled-graph`), with PyTorch's names.

use std::marker::PhantomData;

use tiled_graph as graph;
use tiled_tensor::Element;

use super::{Module, uniform};
use crate::context::Context;
use crate::error::Result;
use crate::network::Interpolation;
use crate::tensor::Tensor;

/// A convolution.
#[derive(Debug)]
pub struct Conv2d<T: Element> {
    /// Output channels × input channels of a group × height × width.
    pub weight: Tensor<T>,
    /// A summand for each output channel.
    pub bias: Option<Tensor<T>>,
    attributes: graph::Conv2d,
}
crate::parts!(Conv2d { weight, bias });

impl<T: Element> Conv2d<T> {
    /// Parameters uniform within `1/√(input channels of a group·height·width)`.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn new(context: &Context<T>, in_channels: usize, attributes: graph::Conv2d) -> Result<Self> {
        let [height, width] = attributes.kernel_size.map(|side| usize::try_from(side).unwrap_or(0));
        let inputs = in_channels / attributes.groups.max(1);
        let shape = [attributes.out_channels, inputs, height, width];
        let bias = attributes.bias.then_some(attributes.out_channels);
        let (weight, bias) = uniform(context, &shape, shape[1..].iter().product(), bias)?;
        Ok(Self { weight, bias, attributes })
    }
}

impl<T: Element> Module<T> for Conv2d<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        x.conv2d(&self.attributes, &self.weight, self.bias.as_ref())
    }
}

/// A transposed convolution.
#[derive(Debug)]
pub struct ConvTranspose2d<T: Element> {
    /// Input channels × output channels of a group × height × width.
    pub weight: Tensor<T>,
    /// A summand for each output channel.
    pub bias: Option<Tensor<T>>,
    attributes: graph::ConvTranspose2d,
}
crate::parts!(ConvTranspose2d { weight, bias });

impl<T: Element> ConvTranspose2d<T> {
    /// Parameters uniform within `1/√(output channels of a group·height·width)`.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn new(context: &Context<T>, in_channels: usize, attributes: graph::ConvTranspose2d) -> Result<Self> {
        let [height, width] = attributes.kernel_size.map(|side| usize::try_from(side).unwrap_or(0));
        let outputs = attributes.out_channels / attributes.groups.max(1);
        let shape = [in_channels, outputs, height, width];
        let bias = attributes.bias.then_some(attributes.out_channels);
        let (weight, bias) = uniform(context, &shape, shape[1..].iter().product(), bias)?;
        Ok(Self { weight, bias, attributes })
    }
}

impl<T: Element> Module<T> for ConvTranspose2d<T> {
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        x.conv_transpose2d(&self.attributes, &self.weight, self.bias.as_ref())
    }
}

macro_rules! without_parameters {
    ($(#[doc = $doc:literal] $name:ident($type:ty) |$x:ident, $attributes:ident| $forward:expr;)*) => {
        $(
            #[doc = $doc]
            #[derive(Clone, Debug)]
            pub struct $name<T: Element> {
                attributes: $type,
                element: PhantomData<T>,
            }
            crate::parts!($name {});

            impl<T: Element> $name<T> {
                /// The module of these attributes.
                #[must_use]
                pub const fn new(attributes: $type) -> Self {
                    Self { attributes, element: PhantomData }
                }
            }

            impl<T: Element> Module<T> for $name<T> {
                fn forward(&self, $x: &Tensor<T>) -> Result<Tensor<T>> {
                    let $attributes = &self.attributes;
                    $forward
                }
            }
        )*
    };
}

without_parameters! {
    /// The maximum of each window.
    MaxPool2d(graph::MaxPool2d) |x, pool| x.max_pool2d(pool);
    /// The mean of each window.
    AvgPool2d(graph::AvgPool2d) |x, pool| x.avg_pool2d(pool);
    /// Means of windows that share an image out.
    AdaptiveAvgPool2d([usize; 2]) |x, size| x.adaptive_avg_pool2d(*size);
    /// The image in another size.
    Upsample(([usize; 2], Interpolation)) |x, to| x.interpolate(to.0, to.1);
}
