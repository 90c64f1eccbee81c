//! Maximum and average pooling and their gradients.

use tiled::geometry::Window;
use tiled::graph::{AvgPool2d, MaxPool2d, Op};
use tiled::ops::output_shape;

use super::{extents, require, tiled_operator_options};
use crate::engine::{Real, tiled_engine};
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
        let shape = pool.checked(sizes(shape, "input_shape")?, None)?;
        output.set(shape.map(|size| i64::try_from(size).unwrap_or(i64::MAX)));
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
    guard(|| unsafe { forward(engine, pool, options, input, output, Kind::Maximum) })
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
    guard(|| unsafe { forward(engine, pool, options, input, output, Kind::Average) })
}

/// The gradient of maximum pooling: each element of `grad_output` goes to the first maximum, in row-major order, of
/// its window of `input`, and `grad_input` sums what it gets.
///
/// `input` and `grad_input` are N×C×H×W, `grad_output` of the output's shape. `options` may be NULL. Other promises as `tiled_max_pool2d_forward`.
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
/// `grad_input` is N×C×H×W, `grad_output` of the output's shape. `options` may be NULL. Other promises as `tiled_max_pool2d_forward`.
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

/// Which pooling.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Maximum,
    Average,
}

/// # Safety
/// As the exported functions that call it.
unsafe fn forward(
    engine: *mut tiled_engine,
    pool: *const tiled_pool2d,
    options: *const tiled_operator_options,
    input: *const tiled_tensor,
    output: *const tiled_tensor,
    kind: Kind,
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
    pool.checked(input.shape, Some(output.shape))?;
    pool.check_dilation(kind)?;
    output.require_alike_and_apart(&[&input])?;
    let options = options.checked()?;
    handle::exclusive(engine, "engine", |engine| {
        with_element!(output.dtype()?, T => {
            // SAFETY: the tensors describe memory of the caller, which `output` shares with no other
            let (input, output) = unsafe { (input.source::<T>()?, output.sink::<T>()?) };
            let operators = T::operators(engine, &options);
            match kind {
                Kind::Maximum => operators.max_pool2d(&pool.maximum(), &options, &input, &output)?,
                Kind::Average => operators.avg_pool2d(&pool.average(), &options, &input, &output)?,
            }
            Ok(())
        })
    })
}

/// The gradient of maximum pooling where the input is given, else that of average pooling.
///
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
    pool.checked(grad_input.shape, Some(grad_output.shape))?;
    if let Some(input) = &input {
        require("input shape", &input.shape, &grad_input.shape)?;
    }
    pool.check_dilation(if input.is_some() { Kind::Maximum } else { Kind::Average })?;
    let read: Vec<&Memory> = [&grad_output].into_iter().chain(&input).collect();
    grad_input.require_alike_and_apart(&read)?;
    let options = options.checked()?;
    handle::exclusive(engine, "engine", |engine| {
        with_element!(grad_input.dtype()?, T => {
            // SAFETY: the tensors describe memory of the caller, which `grad_input` shares with no other
            let (grad_output, input, grad_input) = unsafe {
                let input = input.map(|input| input.source::<T>()).transpose()?;
                (grad_output.source::<T>()?, input, grad_input.sink::<T>()?)
            };
            let operators = T::operators(engine, &options);
            match &input {
                Some(input) => {
                    operators.max_pool2d_backward(&pool.maximum(), &options, &grad_output, input, &grad_input)?
                }
                None => operators.avg_pool2d_backward(&pool.average(), &options, &grad_output, &grad_input)?,
            }
            Ok(())
        })
    })
}

impl tiled_pool2d {
    /// The shape of the output over this input, where they fit each other.
    fn checked(&self, input: [usize; 4], output: Option<[usize; 4]>) -> Fallible<[usize; 4]> {
        let extents = extents(input, "input")?;
        let mut shape = input;
        for axis in 0..2 {
            let window = Window::new(
                self.kernel[axis],
                self.stride[axis],
                self.dilation[axis],
                self.padding_before[axis],
            )?;
            for padding in [self.padding_before[axis], self.padding_after[axis]] {
                crate::geometry::check("padding", padding, 0, self.kernel[axis] / 2)?;
            }
            let side = window.outputs(extents[axis], self.padding_after[axis], self.ceil_mode != 0);
            if side < 1 {
                let (kernel, extent) = (self.kernel[axis], extents[axis]);
                return Err(Failure::shape(format!(
                    "pool2d: window of {kernel} does not fit an input of {extent}"
                )));
            }
            shape[2 + axis] = usize::try_from(side).unwrap_or(usize::MAX);
        }
        if let Some(output) = output {
            require("pool2d: output shape", &output, &shape)?;
        }
        // a dilated window may step over the whole input
        if self.dilation.iter().zip(extents).any(|(dilation, extent)| *dilation > extent) {
            let shape = output_shape(Op::MaxPool2d(self.maximum()), input);
            shape.map_err(|error| Failure::shape(error.to_string()))?;
        }
        Ok(shape)
    }

    fn check_dilation(&self, kind: Kind) -> Fallible {
        if kind == Kind::Average && self.dilation != [1, 1] {
            return Err(Failure::range(format!("avg_pool2d: dilation is {:?}, must be 1", self.dilation)));
        }
        Ok(())
    }

    fn maximum(&self) -> MaxPool2d {
        MaxPool2d {
            kernel_size: self.kernel,
            stride: self.stride,
            padding: self.padding(),
            dilation: self.dilation,
            ceil_mode: self.ceil_mode != 0,
        }
    }

    fn average(&self) -> AvgPool2d {
        AvgPool2d {
            kernel_size: self.kernel,
            stride: self.stride,
            padding: self.padding(),
            ceil_mode: self.ceil_mode != 0,
            count_include_pad: self.count_include_pad != 0,
        }
    }

    fn padding(&self) -> [[i64; 2]; 2] {
        [0, 1].map(|axis| [self.padding_before[axis], self.padding_after[axis]])
    }
}
