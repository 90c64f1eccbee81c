//! Convolution and its gradients.

use tiled::exec::{Sink, Source};
use tiled::geometry::Window;
use tiled::graph::{Activation, Conv2d, PaddingMode};
use tiled::ops::{WeightGradients, Weights};

use super::{extents, require, tiled_operator_options};
use crate::engine::{Real, tiled_engine};
use crate::guard::guard;
use crate::handle;
use crate::pointer::{Extensible, Output, extensible, extensible_or_initial, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};
use crate::tensor::{Memory, shape4, sizes, tiled_tensor, with_element};

/// No activation.
pub const TILED_ACTIVATION_NONE: i32 = 0;
/// `max(x, 0)`.
pub const TILED_ACTIVATION_RELU: i32 = 1;
/// `x` where `x > 0`, else `negative_slope·x`.
pub const TILED_ACTIVATION_LEAKY_RELU: i32 = 2;
/// `1 / (1 + e^(−x))`.
pub const TILED_ACTIVATION_SIGMOID: i32 = 3;
/// The hyperbolic tangent.
pub const TILED_ACTIVATION_TANH: i32 = 4;
/// `x·sigmoid(x)`.
pub const TILED_ACTIVATION_SILU: i32 = 5;
/// `x·(1 + erf(x/√2))/2`.
pub const TILED_ACTIVATION_GELU: i32 = 6;

/// The attributes of a convolution; the kernel's extents are those of the weight. Pairs are height, then width.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_conv2d {
    /// The size of the struct, as `tiled_conv2d_init` sets it.
    pub struct_size: u32,
    /// One of `TILED_ACTIVATION_…`, applied after the bias by `tiled_conv2d_forward` alone.
    pub activation: i32,
    /// The strides, 1 to 2^20.
    pub stride: [i64; 2],
    /// The dilations, 1 to 2^20.
    pub dilation: [i64; 2],
    /// The zeros before the first row and column, 0 to 2^20.
    pub padding_before: [i64; 2],
    /// The zeros after the last row and column, 0 to 2^20.
    pub padding_after: [i64; 2],
    /// The groups; divides the channels of input and output.
    pub groups: i64,
    /// The slope of `TILED_ACTIVATION_LEAKY_RELU`.
    pub negative_slope: f64,
}

// SAFETY: repr(C), the size first, and integers and a floating-point number
unsafe impl Extensible for tiled_conv2d {
    const NAME: &'static str = "tiled_conv2d";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            activation: TILED_ACTIVATION_NONE,
            stride: [1, 1],
            dilation: [1, 1],
            padding_before: [0, 0],
            padding_after: [0, 0],
            groups: 1,
            negative_slope: 0.01,
        }
    }
}

/// Sets every field to PyTorch's default: stride 1, dilation 1, no padding, one group, no activation.
/// `struct_size` is `sizeof(tiled_conv2d)`.
///
/// # Safety
/// `conv` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_conv2d_init(conv: *mut tiled_conv2d, struct_size: u32) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(conv, struct_size, "conv", &tiled_conv2d::initial()) })
}

/// The shape of a convolution's output: `floor((H + before + after − d·(kh−1) − 1)/s) + 1` rows, columns alike.
///
/// `input_shape` (NCHW), `weight_shape` (OIHW) and `output_shape` (NCHW) hold four extents each. On failure
/// `output_shape` is untouched. Threads: any.
///
/// # Safety
/// `conv` is NULL or a struct with its size set; the shapes are NULL or hold four numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_conv2d_output_shape(
    conv: *const tiled_conv2d,
    input_shape: *const i64,
    weight_shape: *const i64,
    output_shape: *mut i64,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; an array of four has the alignment of one
        let (conv, input, weight, output) = unsafe {
            (
                extensible(conv, "conv")?,
                shape4(input_shape, "input_shape")?,
                shape4(weight_shape, "weight_shape")?,
                Output::new(output_shape.cast::<[i64; 4]>(), "output_shape")?,
            )
        };
        let input = sizes(input, "input_shape")?;
        let (_, shape) = conv.attributes(input, sizes(weight, "weight_shape")?, None)?;
        output.set(shape.map(|size| i64::try_from(size).unwrap_or(i64::MAX)));
        Ok(())
    })
}

/// `output = activation(conv2d(input, weight) + bias)`, tile by tile.
///
/// `input` is N×C×H×W, `weight` O×(C/groups)×kh×kw, `bias` 1×O×1×1 or NULL, and `output` of the shape that
/// `tiled_conv2d_output_shape` gives; all of one element type, all memory of the caller. `options` may be NULL.
/// The same bits whatever the tiles are. `output` is written only where every check has passed; after
/// `TILED_STATUS_PANIC` it may be in part. Threads: `engine` is used by one call at a time.
///
/// # Safety
/// Structs are NULL or have their size set, and tensors describe memory that can be read, `output` written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_conv2d_forward(
    engine: *mut tiled_engine,
    conv: *const tiled_conv2d,
    options: *const tiled_operator_options,
    input: *const tiled_tensor,
    weight: *const tiled_tensor,
    bias: *const tiled_tensor,
    output: *const tiled_tensor,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (conv, options, input, weight, bias, output) = unsafe {
            (
                extensible(conv, "conv")?,
                extensible_or_initial(options, "options")?,
                Memory::of(input, "input")?,
                Memory::of(weight, "weight")?,
                (!bias.is_null()).then(|| Memory::of(bias, "bias")).transpose()?,
                Memory::of(output, "output")?,
            )
        };
        let (attributes, _) = conv.attributes(input.shape, weight.shape, Some(output.shape))?;
        let activation = conv.activation()?;
        if let Some(bias) = &bias {
            require("bias shape", &bias.shape, &[1, attributes.out_channels, 1, 1])?;
        }
        output.require_alike_and_apart(&[&input, &weight])?;
        bias.iter().try_for_each(|bias| output.require_alike_and_apart(&[bias]))?;
        let options = options.checked()?;
        handle::exclusive(engine, "engine", |engine| {
            with_element!(output.dtype()?, T => {
                // SAFETY: the tensors describe memory of the caller, which `output` shares with no other
                let (input, weight, bias, output) = unsafe {
                    let bias = bias.map(|bias| bias.source::<T>()).transpose()?;
                    (input.source::<T>()?, weight.source::<T>()?, bias, output.sink::<T>()?)
                };
                let weights = Weights { weight: &weight, bias: bias.as_ref().map(|bias| bias as &dyn Source<T>) };
                Ok(T::operators(engine, &options).conv2d(&attributes, activation, &options, &input, &weights, &output)?)
            })
        })
    })
}

/// The gradient of a convolution with respect to its input: `grad_input` from `grad_output` and `weight`.
///
/// Shapes as in `tiled_conv2d_forward`; the activation is ignored. `options` may be NULL. The same bits whatever
/// the tiles are. `grad_input` is written only where every check has passed; after `TILED_STATUS_PANIC` it may be in
/// part. Threads: `engine` is used by one call at a time.
///
/// # Safety
/// Structs are NULL or have their size set, and tensors describe memory that can be read, `grad_input` written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_conv2d_backward_input(
    engine: *mut tiled_engine,
    conv: *const tiled_conv2d,
    options: *const tiled_operator_options,
    grad_output: *const tiled_tensor,
    weight: *const tiled_tensor,
    grad_input: *const tiled_tensor,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (conv, options, grad_output, weight, grad_input) = unsafe {
            (
                extensible(conv, "conv")?,
                extensible_or_initial(options, "options")?,
                Memory::of(grad_output, "grad_output")?,
                Memory::of(weight, "weight")?,
                Memory::of(grad_input, "grad_input")?,
            )
        };
        let (attributes, _) = conv.attributes(grad_input.shape, weight.shape, Some(grad_output.shape))?;
        grad_input.require_alike_and_apart(&[&grad_output, &weight])?;
        let options = options.checked()?;
        handle::exclusive(engine, "engine", |engine| {
            with_element!(grad_input.dtype()?, T => {
                // SAFETY: the tensors describe memory of the caller, which `grad_input` shares with no other
                let (grad_output, weight, grad_input) =
                    unsafe { (grad_output.source::<T>()?, weight.source::<T>()?, grad_input.sink::<T>()?) };
                let operators = T::operators(engine, &options);
                Ok(operators.conv2d_backward_input(&attributes, &options, &grad_output, &weight, &grad_input)?)
            })
        })
    })
}

/// The gradients of a convolution with respect to its weight and, where `grad_bias` is not NULL, its bias.
///
/// Shapes as in `tiled_conv2d_forward`; the activation is ignored. `options` may be NULL. Results do not depend on the number of threads; other tiles agree within rounding of the sum. On
/// failure nothing is written. Threads: `engine` is used by one call at a time.
///
/// # Safety
/// Structs are NULL or have their size set, and tensors describe memory that can be read, the gradients written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_conv2d_backward_weight(
    engine: *mut tiled_engine,
    conv: *const tiled_conv2d,
    options: *const tiled_operator_options,
    input: *const tiled_tensor,
    grad_output: *const tiled_tensor,
    grad_weight: *const tiled_tensor,
    grad_bias: *const tiled_tensor,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (conv, options, input, grad_output, grad_weight, grad_bias) = unsafe {
            (
                extensible(conv, "conv")?,
                extensible_or_initial(options, "options")?,
                Memory::of(input, "input")?,
                Memory::of(grad_output, "grad_output")?,
                Memory::of(grad_weight, "grad_weight")?,
                (!grad_bias.is_null()).then(|| Memory::of(grad_bias, "grad_bias")).transpose()?,
            )
        };
        let (attributes, _) = conv.attributes(input.shape, grad_weight.shape, Some(grad_output.shape))?;
        grad_weight.require_alike_and_apart(&[&input, &grad_output])?;
        if let Some(bias) = &grad_bias {
            require("grad_bias shape", &bias.shape, &[1, attributes.out_channels, 1, 1])?;
            bias.require_alike_and_apart(&[&input, &grad_output, &grad_weight])?;
        }
        let options = options.checked()?;
        handle::exclusive(engine, "engine", |engine| {
            with_element!(grad_weight.dtype()?, T => {
                // SAFETY: the tensors describe memory of the caller, which the gradients share with no other
                let (input, grad_output, weight, bias) = unsafe {
                    let bias = grad_bias.map(|bias| bias.sink::<T>()).transpose()?;
                    (input.source::<T>()?, grad_output.source::<T>()?, grad_weight.sink::<T>()?, bias)
                };
                let bias = bias.as_ref().map(|bias| bias as &dyn Sink<T>);
                let gradients = WeightGradients { weight: &weight, bias };
                let operators = T::operators(engine, &options);
                Ok(operators.conv2d_backward_weight(&attributes, &options, &input, &grad_output, &gradients)?)
            })
        })
    })
}

impl tiled_conv2d {
    /// The attributes over these shapes, where they fit each other, and the shape of the output.
    fn attributes(
        &self,
        input: [usize; 4],
        weight: [usize; 4],
        output: Option<[usize; 4]>,
    ) -> Fallible<(Conv2d, [usize; 4])> {
        let [out_channels, group_channels, ..] = weight;
        let groups = usize::try_from(self.groups).unwrap_or(0);
        if groups == 0 || !out_channels.is_multiple_of(groups) {
            let groups = self.groups;
            return Err(Failure::range(format!("conv: {groups} groups for {out_channels} output channels")));
        }
        let wanted = group_channels.checked_mul(groups);
        if wanted != Some(input[1]) {
            let wanted = wanted.unwrap_or(usize::MAX);
            return Err(Failure::shape(format!(
                "conv2d: input has {} channels, weight wants {wanted}",
                input[1]
            )));
        }
        let kernel = extents(weight, "weight")?;
        let input_extents = extents(input, "input")?;
        let window = |axis: usize| {
            Window::new(kernel[axis], self.stride[axis], self.dilation[axis], self.padding_before[axis])
        };
        let windows = [window(0)?, window(1)?];
        let mut sides = [0; 2];
        for axis in 0..2 {
            crate::geometry::check("padding_after", self.padding_after[axis], 0, 1 << 20)?;
            sides[axis] = windows[axis].outputs(input_extents[axis], self.padding_after[axis], false);
            if sides[axis] < 1 {
                let (kernel, extent) = (kernel[axis], input_extents[axis]);
                return Err(Failure::shape(format!(
                    "conv2d: kernel of {kernel} does not fit an input of {extent}"
                )));
            }
        }
        let [height, width] = sides.map(|side| usize::try_from(side).unwrap_or(usize::MAX));
        let shape = [input[0], out_channels, height, width];
        if let Some(output) = output {
            require("conv2d: output shape", &output, &shape)?;
        }
        let attributes = Conv2d {
            out_channels,
            kernel_size: kernel,
            stride: self.stride,
            padding: [0, 1].map(|axis| [self.padding_before[axis], self.padding_after[axis]]),
            dilation: self.dilation,
            groups,
            bias: false,
            padding_mode: PaddingMode::Zeros,
        };
        Ok((attributes, shape))
    }

    fn activation(&self) -> Fallible<Option<Activation>> {
        activation(self.activation, self.negative_slope)
    }
}

/// The activation of a number of the header.
fn activation(number: i32, slope: f64) -> Fallible<Option<Activation>> {
    Ok(Some(match number {
        TILED_ACTIVATION_NONE => return Ok(None),
        TILED_ACTIVATION_RELU => Activation::Relu,
        TILED_ACTIVATION_LEAKY_RELU if slope.is_finite() => Activation::LeakyRelu { slope },
        TILED_ACTIVATION_LEAKY_RELU => {
            return Err(Failure::invalid(format!("conv: negative_slope is {slope}")));
        }
        TILED_ACTIVATION_SIGMOID => Activation::Sigmoid,
        TILED_ACTIVATION_TANH => Activation::Tanh,
        TILED_ACTIVATION_SILU => Activation::Silu,
        TILED_ACTIVATION_GELU => Activation::Gelu,
        _ => return Err(Failure::invalid(format!("conv: activation {number} is not one"))),
    }))
}
