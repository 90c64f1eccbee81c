//! Maximum and average pooling and their gradients.

use tiled::geometry::{AxisMap, Window};
use tiled::kernel::{Kernel, Pool};

use super::tiles::{Operand, Tiled, edge, there_and_back};
use super::{extents, require, tiled_operator_options};
use crate::engine::tiled_engine;
use crate::guard::guard;
use crate::handle;
use crate::pointer::{Extensible, Output, extensible, extensible_or_initial, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};
use crate::tensor::{Memory, shape4, sizes, tiled_tensor, with_element};

/// The attributes of a pooling. Pairs are height, then width.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_pool2d {
    /// The size of the struct, as `tiled_pool2d_init` sets it.
    pub struct_size: u32,
    /// Not zero where a last window that starts inside the input and ends outside counts.
    pub ceil_mode: i32,
    /// Average pooling: not zero where padding counts in the divisor.
    pub count_include_pad: i32,
    /// Zero.
    pub reserved: i32,
    /// The extents of the window, 1 to 2^20.
    pub kernel: [i64; 2],
    /// The strides, 1 to 2^20.
    pub stride: [i64; 2],
    /// The dilations, 1 to 2^20; 1 for average pooling.
    pub dilation: [i64; 2],
    /// The padding before the first row and column; at most half the window.
    pub padding_before: [i64; 2],
    /// The padding after the last row and column; at most half the window.
    pub padding_after: [i64; 2],
}

// SAFETY: repr(C), the size first, and integers
unsafe impl Extensible for tiled_pool2d {
    const NAME: &'static str = "tiled_pool2d";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            ceil_mode: 0,
            count_include_pad: 1,
            reserved: 0,
            kernel: [2, 2],
            stride: [2, 2],
            dilation: [1, 1],
            padding_before: [0, 0],
            padding_after: [0, 0],
        }
    }
}

/// Sets every field to its default: windows of 2×2 with stride 2, no padding, which counts where there is some.
/// `struct_size` is `sizeof(tiled_pool2d)`.
///
/// # Safety
/// `pool` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_pool2d_init(pool: *mut tiled_pool2d, struct_size: u32) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(pool, struct_size, "pool", &tiled_pool2d::initial()) })
}

/// The shape of a pooling's output. `input_shape` and `output_shape` (NCHW) hold four extents each.
///
/// On failure `output_shape` is untouched. Threads: any.
///
/// # Safety
/// `pool` is NULL or a struct with its size set; the shapes are NULL or hold four numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_pool2d_output_shape(
    pool: *const tiled_pool2d,
    input_shape: *const i64,
    output_shape: *mut i64,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; an array of four has the alignment of one
        let (pool, shape, output) = unsafe {
            (
                extensible(pool, "pool")?,
                shape4(input_shape, "input_shape")?,
                Output::new(output_shape.cast::<[i64; 4]>(), "output_shape")?,
            )
        };
        let sides = pool.geometry(sizes(shape, "input_shape")?, None)?.output;
        output.set([shape[0], shape[1], sides[0], sides[1]]);
        Ok(())
    })
}

/// The maximum of each window of `input`; padding is never chosen, NaN wins.
///
/// `input` is N×C×H×W and `output` of the shape that `tiled_pool2d_output_shape` gives, of one element type, memory of
/// the caller. `options` may be NULL. The same bits whatever the tiles are. `output` is written only where every check
/// has passed; after `TILED_STATUS_PANIC` it may be in part. Threads: `engine` is used by one call at a time.
///
/// # Safety
/// Structs are NULL or have their size set, and tensors describe memory that can be read, `output` written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_max_pool2d_forward(
    engine: *mut tiled_engine,
    pool: *const tiled_pool2d,
    options: *const tiled_operator_options,
    input: *const tiled_tensor,
    output: *const tiled_tensor,
) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { forward(engine, pool, options, input, output, Kernel::MaxPool2d) })
}

/// The mean of each window of `input`; see `count_include_pad` for the divisor.
///
/// Arguments and promises as `tiled_max_pool2d_forward`.
///
/// # Safety
/// As `tiled_max_pool2d_forward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_avg_pool2d_forward(
    engine: *mut tiled_engine,
    pool: *const tiled_pool2d,
    options: *const tiled_operator_options,
    input: *const tiled_tensor,
    output: *const tiled_tensor,
) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { forward(engine, pool, options, input, output, Kernel::AvgPool2d) })
}

/// The gradient of maximum pooling: each element of `grad_output` goes to the first maximum, in row-major order, of
/// its window of `input`, and `grad_input` sums what it gets.
///
/// `input` and `grad_input` are N×C×H×W, `grad_output` of the output's shape. `options` may be NULL; its tile is one of
/// `grad_input`. Other promises as `tiled_max_pool2d_forward`.
///
/// # Safety
/// Structs are NULL or have their size set, and tensors describe memory that can be read, `grad_input` written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_max_pool2d_backward(
    engine: *mut tiled_engine,
    pool: *const tiled_pool2d,
    options: *const tiled_operator_options,
    grad_output: *const tiled_tensor,
    input: *const tiled_tensor,
    grad_input: *const tiled_tensor,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        unsafe {
            let input = Memory::of(input, "input")?;
            backward(engine, pool, options, grad_output, Some(input), grad_input)
        }
    })
}

/// The gradient of average pooling: each element of `grad_output`, divided by its divisor, goes to its whole window.
///
/// `grad_input` is N×C×H×W, `grad_output` of the output's shape. `options` may be NULL; its tile is one of `grad_input`.
/// Other promises as `tiled_max_pool2d_forward`.
///
/// # Safety
/// As `tiled_max_pool2d_backward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_avg_pool2d_backward(
    engine: *mut tiled_engine,
    pool: *const tiled_pool2d,
    options: *const tiled_operator_options,
    grad_output: *const tiled_tensor,
    grad_input: *const tiled_tensor,
) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { backward(engine, pool, options, grad_output, None, grad_input) })
}

/// # Safety
/// As the exported functions that call it.
unsafe fn forward(
    engine: *mut tiled_engine,
    pool: *const tiled_pool2d,
    options: *const tiled_operator_options,
    input: *const tiled_tensor,
    output: *const tiled_tensor,
    kernel: impl Fn(Pool) -> Kernel,
) -> Fallible {
    // SAFETY: the caller's promise
    let (pool, options, input, output) = unsafe {
        (
            extensible(pool, "pool")?,
            extensible_or_initial(options, "options")?,
            Memory::of(input, "input")?,
            Memory::of(output, "output")?,
        )
    };
    let geometry = pool.geometry(input.shape, Some(output.shape))?;
    let kernel = kernel(geometry);
    pool.check_dilation(&kernel)?;
    output.require_apart(&[&input])?;
    handle::exclusive(engine, "engine", |engine| {
        with_element!(output.dtype, T => {
            // SAFETY: the tensors describe memory of the caller, which `output` shares with no other
            let (source, sink) = unsafe { (input.source::<T>()?, output.sink::<T>()?) };
            Tiled {
                batch: input.shape[0],
                domain: geometry.output,
                operands: vec![Operand {
                    source: &source,
                    edge: edge(geometry.windows.map(AxisMap::Window), geometry.input),
                }],
                output_channels: Some(input.shape[1]),
                fixed_bytes: 0,
                options,
            }
            .map(engine, &kernel, 0, &sink)
        })
    })
}

/// # Safety
/// As the exported functions that call it.
unsafe fn backward(
    engine: *mut tiled_engine,
    pool: *const tiled_pool2d,
    options: *const tiled_operator_options,
    grad_output: *const tiled_tensor,
    input: Option<Memory>,
    grad_input: *const tiled_tensor,
) -> Fallible {
    // SAFETY: the caller's promise
    let (pool, options, grad_output, grad_input) = unsafe {
        (
            extensible(pool, "pool")?,
            extensible_or_initial(options, "options")?,
            Memory::of(grad_output, "grad_output")?,
            Memory::of(grad_input, "grad_input")?,
        )
    };
    let geometry = pool.geometry(grad_input.shape, Some(grad_output.shape))?;
    let kernel = match &input {
        Some(input) => {
            require("input shape", &input.shape, &grad_input.shape)?;
            grad_input.require_apart(&[&grad_output, input])?;
            Kernel::MaxPool2dBackward(geometry)
        }
        None => {
            grad_input.require_apart(&[&grad_output])?;
            Kernel::AvgPool2dBackward(geometry)
        }
    };
    pool.check_dilation(&kernel)?;
    handle::exclusive(engine, "engine", |engine| {
        with_element!(grad_input.dtype, T => {
            // SAFETY: the tensors describe memory of the caller, which `grad_input` shares with no other
            let (gy, sink) = unsafe { (grad_output.source::<T>()?, grad_input.sink::<T>()?) };
            let x = match &input {
                // SAFETY: as above
                Some(input) => Some(unsafe { input.source::<T>()? }),
                None => None,
            };
            let mut operands = vec![Operand {
                source: &gy,
                edge: edge(geometry.windows.map(AxisMap::Touched), geometry.output),
            }];
            if let Some(x) = &x {
                let edge = there_and_back(geometry.windows, geometry.output, geometry.input);
                operands.push(Operand { source: x, edge });
            }
            Tiled {
                batch: grad_input.shape[0],
                domain: geometry.input,
                operands,
                output_channels: Some(grad_input.shape[1]),
                fixed_bytes: 0,
                options,
            }
            .map(engine, &kernel, 0, &sink)
        })
    })
}

impl tiled_pool2d {
    /// The geometry over these shapes, where they fit each other.
    fn geometry(&self, input: [usize; 4], output: Option<[usize; 4]>) -> Fallible<Pool> {
        let extents = extents(input, "input")?;
        let window = |axis: usize| {
            Window::new(self.kernel[axis], self.stride[axis], self.dilation[axis], self.padding_before[axis])
        };
        let windows = [window(0)?, window(1)?];
        let mut sides = [0; 2];
        for axis in 0..2 {
            for padding in [self.padding_before[axis], self.padding_after[axis]] {
                crate::geometry::check("padding", padding, 0, self.kernel[axis] / 2)?;
            }
            sides[axis] = windows[axis].outputs(extents[axis], self.padding_after[axis], self.ceil_mode != 0);
            if sides[axis] < 1 {
                let (kernel, extent) = (self.kernel[axis], extents[axis]);
                return Err(Failure::shape(format!(
                    "pool2d: window of {kernel} does not fit an input of {extent}"
                )));
            }
        }
        if let Some(output) = output {
            let sides = sides.map(|side| usize::try_from(side).unwrap_or(usize::MAX));
            require("pool2d: output shape", &output, &[input[0], input[1], sides[0], sides[1]])?;
        }
        Ok(Pool {
            windows,
            padding_after: self.padding_after,
            input: extents,
            output: sides,
            counts_padding: self.count_include_pad != 0,
        })
    }

    fn check_dilation(&self, kernel: &Kernel) -> Fallible {
        let is_average = matches!(kernel, Kernel::AvgPool2d(_) | Kernel::AvgPool2dBackward(_));
        if is_average && self.dilation != [1, 1] {
            return Err(Failure::range(format!("avg_pool2d: dilation is {:?}, must be 1", self.dilation)));
        }
        Ok(())
    }
}
