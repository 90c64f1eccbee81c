//! Convolution and its gradients.

use tiled::geometry::{AxisMap, Window};
use tiled::graph::Activation;
use tiled::kernel::{Conv, Epilogue, Kernel, Partial, Reduction};
use tiled::tensor::{collected, zeros};

use super::tiles::{Operand, Tiled, edge};
use super::{extents, require, tiled_operator_options};
use crate::engine::{Engine, Real, tiled_engine};
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
        let geometry = conv.geometry(input, sizes(weight, "weight_shape")?, None)?;
        let sides = geometry.output;
        let narrow = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
        output.set([narrow(input[0]), narrow(geometry.out_channels), sides[0], sides[1]]);
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
        let geometry = conv.geometry(input.shape, weight.shape, Some(output.shape))?;
        let activation = conv.activation()?;
        if let Some(bias) = &bias {
            require("bias shape", &bias.shape, &[1, geometry.out_channels, 1, 1])?;
        }
        let read: Vec<&Memory> = [&input, &weight].into_iter().chain(&bias).collect();
        output.require_apart(&read)?;
        let kernel = Kernel::conv2d(geometry, Epilogue::of_bias(bias.is_some()).with_activation(activation));
        handle::exclusive(engine, "engine", |engine| {
            with_element!(output.dtype, T => {
                // SAFETY: the tensors describe memory of the caller, which `output` shares with no other
                unsafe {
                    take_params::<T>(engine, &weight, bias.as_ref())?;
                    let (source, sink) = (input.source::<T>()?, output.sink::<T>()?);
                    let edge = edge(geometry.windows.map(AxisMap::Window), geometry.input);
                    let params = 1 + usize::from(bias.is_some());
                    Tiled {
                        batch: input.shape[0],
                        domain: geometry.output,
                        operands: vec![Operand { source: &source, edge }],
                        output_channels: Some(geometry.out_channels),
                        fixed_bytes: 0,
                        options,
                    }
                    .map(engine, &kernel, params, &sink)
                }
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
        let geometry = conv.geometry(grad_input.shape, weight.shape, Some(grad_output.shape))?;
        grad_input.require_apart(&[&grad_output, &weight])?;
        let kernel = Kernel::Conv2dBackwardInput { conv: geometry, epilogue: Epilogue::NONE };
        handle::exclusive(engine, "engine", |engine| {
            with_element!(grad_input.dtype, T => {
                // SAFETY: the tensors describe memory of the caller, which `grad_input` shares with no other
                unsafe {
                    take_params::<T>(engine, &weight, None)?;
                    let (source, sink) = (grad_output.source::<T>()?, grad_input.sink::<T>()?);
                    let edge = edge(geometry.windows.map(AxisMap::Touched), geometry.output);
                    Tiled {
                        batch: grad_input.shape[0],
                        domain: geometry.input,
                        operands: vec![Operand { source: &source, edge }],
                        output_channels: Some(geometry.in_channels),
                        fixed_bytes: 0,
                        options,
                    }
                    .map(engine, &kernel, 1, &sink)
                }
            })
        })
    })
}

/// The gradients of a convolution with respect to its weight and, where `grad_bias` is not NULL, its bias.
///
/// Shapes as in `tiled_conv2d_forward`; the activation is ignored. `options` may be NULL; its tile is one of
/// `grad_output`. Results do not depend on the number of threads; other tiles agree within rounding of the sum. On
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
        let geometry = conv.geometry(input.shape, grad_weight.shape, Some(grad_output.shape))?;
        grad_weight.require_apart(&[&input, &grad_output])?;
        if let Some(bias) = &grad_bias {
            require("grad_bias shape", &bias.shape, &[1, geometry.out_channels, 1, 1])?;
            bias.require_apart(&[&input, &grad_output, &grad_weight])?;
        }
        handle::exclusive(engine, "engine", |engine| {
            with_element!(grad_weight.dtype, T => {
                // SAFETY: the tensors describe memory of the caller, which the gradients share with no other
                let (x, gy, weight_sink) =
                    unsafe { (input.source::<T>()?, grad_output.source::<T>()?, grad_weight.sink::<T>()?) };
                drop(weight_sink);
                if let Some(bias) = &grad_bias {
                    // SAFETY: as above; made for its checks alone
                    drop(unsafe { bias.sink::<T>()? });
                }
                let backend = T::backend(engine);
                let weight = Reduction::ConvWeight(geometry);
                let mut sums = backend.partial(&weight, input.shape[0], geometry.out_channels)?;
                let partial_bytes = sums.size_bytes();
                let mut result = zeros::<T>(geometry.weight_len())?;
                let mut bias_sums = grad_bias
                    .map(|_| backend.partial(&Reduction::ChannelSum, input.shape[0], geometry.out_channels))
                    .transpose()?;
                let tiles = Tiled {
                    batch: input.shape[0],
                    domain: geometry.output,
                    operands: vec![
                        Operand { source: &x, edge: edge(geometry.windows.map(AxisMap::Window), geometry.input) },
                        Operand { source: &gy, edge: edge([AxisMap::Identity; 2], geometry.output) },
                    ],
                    output_channels: None,
                    fixed_bytes: partial_bytes,
                    options,
                };
                let flops = weight.flops_per_element() * tiles.elements(geometry.out_channels);
                tiles.reduce(engine, flops, |backend, views, share| {
                    backend.reduce(&weight, &[], views, share, &mut sums);
                    if let Some(sums) = &mut bias_sums {
                        backend.reduce(&Reduction::ChannelSum, &[], &views[1..], share, sums);
                    }
                })?;
                if let Partial::Values(values) = &sums {
                    backend.unpack(&weight, values, &mut result);
                }
                // all that can fail comes before anything is written
                let bias_result = match &bias_sums {
                    Some(Partial::Exact(sums)) => Some(collected(
                        sums.iter().map(|sum| <T as tiled::tensor::Element>::from_f64(sum.value())),
                    )?),
                    _ => None,
                };
                // SAFETY: the gradients are memory of the caller that nothing else refers to
                unsafe { grad_weight.scatter(&result)? };
                if let (Some(bias), Some(result)) = (&grad_bias, &bias_result) {
                    // SAFETY: as above
                    unsafe { bias.scatter(result)? };
                }
                Ok(())
            })
        })
    })
}

/// Copies weight and bias into the engine's memory, in row-major order.
///
/// # Safety
/// As [`Memory::gather`].
unsafe fn take_params<T: Real>(engine: &mut Engine, weight: &Memory, bias: Option<&Memory>) -> Fallible {
    let (_, _, workspace) = engine.parts::<T>();
    // SAFETY: the caller's promise
    unsafe {
        weight.gather(&mut workspace.params[0])?;
        bias.map_or(Ok(()), |bias| bias.gather(&mut workspace.params[1]))
    }
}

impl tiled_conv2d {
    /// The geometry over these shapes, where they fit each other.
    fn geometry(&self, input: [usize; 4], weight: [usize; 4], output: Option<[usize; 4]>) -> Fallible<Conv> {
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
        if let Some(output) = output {
            let sides = sides.map(|side| usize::try_from(side).unwrap_or(usize::MAX));
            require("conv2d: output shape", &output, &[input[0], out_channels, sides[0], sides[1]])?;
        }
        Ok(Conv { in_channels: input[1], out_channels, groups, windows, input: input_extents, output: sides })
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
