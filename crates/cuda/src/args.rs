//! What kernels are given: the structs of `kernels/*.cu`, field by field.

use tiled_geometry::Region;
use tiled_kernel::Activation;
use tiled_tensor::Layout;

/// A struct that a kernel takes by value.
///
/// # Safety
/// It is `repr(C)`, has no padding, and is the struct of the same name in `kernels/`.
pub(crate) unsafe trait Args: Copy {}

/// The bytes of a struct.
pub(crate) fn bytes_of<A: Args>(args: &A) -> &[u8] {
    // SAFETY: all its bytes are initialised, as it has no padding
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(args).cast(), size_of::<A>()) }
}

/// A window.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    data: u64,
    batch_stride: i64,
    block_stride: i64,
    row_stride: i64,
    row0: i64,
    col0: i64,
    first: i32,
    ring: i32,
    channels: i32,
    shift: i32,
}

impl View {
    /// The window at an address.
    pub(crate) fn new(address: u64, layout: &Layout) -> Self {
        let ring = int(layout.ring().max(1));
        let row0 = layout.rows().begin();
        Self {
            data: address,
            batch_stride: long(layout.batch_stride()),
            block_stride: long(layout.block_stride()),
            row_stride: long(layout.row_stride()),
            row0,
            col0: layout.cols().begin(),
            first: narrow(row0.rem_euclid(ring.into())),
            ring,
            channels: int(layout.channels()),
            shift: layout.block().trailing_zeros().cast_signed(),
        }
    }

    /// So many channels from one on that begins a block; elements have so many bytes.
    pub(crate) fn channels(self, begin: usize, count: usize, bytes: usize) -> Self {
        let elements = self.block_stride.cast_unsigned() * (begin >> self.shift) as u64;
        Self { data: self.data + elements * bytes as u64, channels: int(count), ..self }
    }

    pub(crate) const fn row0(&self) -> i64 {
        self.row0
    }

    pub(crate) const fn col0(&self) -> i64 {
        self.col0
    }
}

/// A region of all images.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub(crate) row0: i64,
    pub(crate) col0: i64,
    pub(crate) rows: i32,
    pub(crate) cols: i32,
    pub(crate) images: i32,
    pub(crate) unused: i32,
}

impl Part {
    pub(crate) fn new(region: Region<2>, images: usize) -> Self {
        Self {
            row0: region.rows().begin(),
            col0: region.cols().begin(),
            rows: narrow(region.rows().len()),
            cols: narrow(region.cols().len()),
            images: int(images),
            unused: 0,
        }
    }
}

/// A function of one element.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Function {
    pub(crate) kind: i32,
    pub(crate) bits: i32,
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) c: f64,
}

/// The numbers of functions, in the order of `Kind` in `kernels/function.cuh`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
enum Kind {
    Relu = 1,
    LeakyRelu,
    Sigmoid,
    Tanh,
    Silu,
    Gelu,
    GeluTanh,
    Clamp,
    Threshold,
    Elu,
    Softplus,
    Softsign,
    HardSigmoid,
    HardSwish,
    Mish,
    LogSigmoid,
    Exp,
    Log,
    Sqrt,
    Abs,
    Neg,
    Reciprocal,
    WholePower,
    RealPower,
    NoGradient,
}

impl Function {
    /// The function itself.
    pub(crate) fn of(activation: Activation) -> Self {
        let plain = |kind| Self { kind: kind as i32, ..Self::default() };
        let with = |kind, a, b| Self { a, b, ..plain(kind) };
        match activation {
            Activation::Relu => plain(Kind::Relu),
            Activation::LeakyRelu { slope } => with(Kind::LeakyRelu, slope, 0.0),
            Activation::Sigmoid => plain(Kind::Sigmoid),
            Activation::Tanh => plain(Kind::Tanh),
            Activation::Silu => plain(Kind::Silu),
            Activation::Gelu => plain(Kind::Gelu),
            Activation::GeluTanh => plain(Kind::GeluTanh),
            Activation::Clamp { min, max } => with(Kind::Clamp, min, max),
            Activation::Threshold { threshold, value } => with(Kind::Threshold, threshold, value),
            Activation::Elu { .. } | Activation::Selu | Activation::Celu { .. } => {
                let parts = activation.exponential().expect("invariant: these are a line and an exponential");
                Self { c: parts.rate, ..with(Kind::Elu, parts.high, parts.low) }
            }
            Activation::Softplus { beta, threshold } => with(Kind::Softplus, beta, threshold),
            Activation::Softsign => plain(Kind::Softsign),
            Activation::HardSigmoid => plain(Kind::HardSigmoid),
            Activation::HardSwish => plain(Kind::HardSwish),
            Activation::Mish => plain(Kind::Mish),
            Activation::LogSigmoid => plain(Kind::LogSigmoid),
            Activation::Exp => plain(Kind::Exp),
            Activation::Log => plain(Kind::Log),
            Activation::Sqrt => plain(Kind::Sqrt),
            Activation::Abs => plain(Kind::Abs),
            Activation::Neg => plain(Kind::Neg),
            Activation::Reciprocal => plain(Kind::Reciprocal),
            Activation::Pow { exponent } => Self::power(exponent),
        }
    }

    /// Its gradient.
    pub(crate) fn gradient_of(activation: Activation) -> Self {
        match activation {
            Activation::Pow { exponent: 0.0 } => Self { kind: Kind::NoGradient as i32, ..Self::default() },
            Activation::Pow { exponent } => Self { b: exponent, ..Self::power(exponent - 1.0) },
            other => Self::of(other),
        }
    }

    /// As the CPU backend carries it out: products for whole exponents up to 31, else by the logarithm.
    fn power(exponent: f64) -> Self {
        const INVERTS: i32 = 32;
        const IS_WHOLE: i32 = 64;
        const IS_ODD: i32 = 128;
        let (size, is_whole) = (exponent.abs(), exponent.fract() == 0.0);
        if size <= 31.0 && is_whole {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number up to 31")]
            let bits = size as i32 | if exponent < 0.0 { INVERTS } else { 0 };
            return Self { kind: Kind::WholePower as i32, bits, ..Self::default() };
        }
        let is_odd = is_whole && (exponent * 0.5).fract() != 0.0;
        let bits = if is_whole { IS_WHOLE } else { 0 } | if is_odd { IS_ODD } else { 0 };
        Self { kind: Kind::RealPower as i32, bits, a: exponent, ..Self::default() }
    }

    /// Whether it costs no more than a copy: what `apply_light` in `kernels/map.cu` knows.
    pub(crate) const fn is_light(&self) -> bool {
        self.kind == 0
            || self.kind == Kind::Relu as i32
            || self.kind == Kind::LeakyRelu as i32
            || self.kind == Kind::Clamp as i32
    }
}

/// `MapArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Map {
    pub(crate) out: View,
    pub(crate) inputs: [View; 2],
    pub(crate) part: Part,
    pub(crate) op: i32,
    pub(crate) per_image: i32,
    pub(crate) dropped: i32,
    pub(crate) factors: i32,
    pub(crate) input_count: i32,
    pub(crate) unused: i32,
    pub(crate) params: u64,
    pub(crate) function: Function,
    pub(crate) number: f64,
    pub(crate) seed: u64,
}

/// `ArithmeticArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arithmetic {
    pub(crate) out: View,
    pub(crate) inputs: [View; 3],
    pub(crate) part: Part,
    pub(crate) operation: i32,
    pub(crate) source: [i32; 3],
    pub(crate) number: [f64; 3],
    pub(crate) params: u64,
    pub(crate) param_len: i32,
    pub(crate) unused: i32,
}

/// `Axis` of padding.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Axis {
    pub(crate) input: i64,
    pub(crate) output: i64,
    pub(crate) before: i64,
    pub(crate) mode: i32,
    pub(crate) unused: i32,
}

/// `MoveArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Move {
    pub(crate) out: View,
    pub(crate) inputs: [View; 8],
    pub(crate) part: Part,
    pub(crate) axes: [Axis; 2],
    pub(crate) extrema: u64,
    pub(crate) number: f64,
    pub(crate) op: i32,
    pub(crate) input_count: i32,
    pub(crate) at: i32,
    pub(crate) by: i32,
}

/// `StridedArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strided {
    pub(crate) window: View,
    pub(crate) part: Part,
    pub(crate) data: u64,
    pub(crate) strides: [i64; 4],
}

/// `Resampling`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resampling {
    pub(crate) input: i64,
    pub(crate) output: i64,
    pub(crate) step: i64,
    pub(crate) start: i64,
    pub(crate) unit: i64,
    pub(crate) slope: f64,
    pub(crate) filter: i32,
    pub(crate) rounding: i32,
    pub(crate) drops_outside: i32,
    pub(crate) unused: i32,
}

/// `ResampleArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resample {
    pub(crate) out: View,
    pub(crate) inputs: [View; 2],
    pub(crate) part: Part,
    pub(crate) axes: [Resampling; 2],
    pub(crate) op: i32,
    pub(crate) unused: i32,
}

/// `PoolAxis`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolAxis {
    pub(crate) input: i64,
    pub(crate) output: i64,
    pub(crate) kernel: i32,
    pub(crate) stride: i32,
    pub(crate) dilation: i32,
    pub(crate) padding: i32,
    pub(crate) counted_before: i32,
    pub(crate) counted_after: i32,
}

/// `PoolArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pool {
    pub(crate) out: View,
    pub(crate) inputs: [View; 2],
    pub(crate) part: Part,
    pub(crate) axes: [PoolAxis; 2],
    pub(crate) op: i32,
    pub(crate) unused: i32,
}

/// `PixelArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pixel {
    pub(crate) out: View,
    pub(crate) inputs: [View; 2],
    pub(crate) part: Part,
    pub(crate) op: i32,
    pub(crate) size: i32,
    pub(crate) centred: i32,
    pub(crate) unused: i32,
    pub(crate) eps: f64,
    pub(crate) share: f64,
    pub(crate) beta: f64,
    pub(crate) k: f64,
}

/// `ConvAxis`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConvAxis {
    pub(crate) base: i32,
    pub(crate) stride: i32,
    pub(crate) step: i32,
    pub(crate) taps: i32,
    pub(crate) low: i32,
    pub(crate) high: i32,
    pub(crate) first: i32,
    pub(crate) next: i32,
}

/// `ConvArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conv {
    pub(crate) input: View,
    pub(crate) out: View,
    pub(crate) added: View,
    pub(crate) saved: View,
    pub(crate) part: Part,
    pub(crate) axes: [ConvAxis; 2],
    pub(crate) step: [i32; 2],
    pub(crate) kernel_cols: i32,
    pub(crate) kernel_taps: i32,
    pub(crate) groups: i32,
    pub(crate) multiplier: i32,
    pub(crate) reduced: i32,
    pub(crate) reduced_padded: i32,
    pub(crate) outputs: i32,
    pub(crate) outputs_padded: i32,
    pub(crate) weights: u64,
    pub(crate) bias: u64,
    pub(crate) affine: u64,
    pub(crate) affine_len: i32,
    pub(crate) sums: i32,
    pub(crate) activation: i32,
    pub(crate) mask: i32,
    pub(crate) slope: f64,
    pub(crate) mask_slope: f64,
    pub(crate) tile_cols: i32,
    pub(crate) unused: i32,
}

/// `WeightAxis`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WeightAxis {
    pub(crate) input: i64,
    pub(crate) kernel: i32,
    pub(crate) stride: i32,
    pub(crate) dilation: i32,
    pub(crate) padding: i32,
}

/// `WeightArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    pub(crate) x: View,
    pub(crate) gy: View,
    pub(crate) share: Part,
    pub(crate) axes: [WeightAxis; 2],
    pub(crate) groups: i32,
    pub(crate) inputs: i32,
    pub(crate) outputs: i32,
    pub(crate) splits: i32,
    pub(crate) scratch: u64,
}

/// `AddArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Add {
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) values: i64,
    pub(crate) parts: i32,
    pub(crate) inputs: i32,
    pub(crate) taps: i32,
    pub(crate) unused: i32,
}

/// `ReduceArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reduce {
    pub(crate) inputs: [View; 2],
    pub(crate) share: Part,
    pub(crate) mean: u64,
    pub(crate) sums: u64,
    pub(crate) sum_of: i32,
    pub(crate) slot_of: i32,
    pub(crate) slots: i32,
    pub(crate) unused: i32,
}

/// `MaxArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Max {
    pub(crate) input: View,
    pub(crate) share: Part,
    pub(crate) extrema: u64,
}

/// `MergeArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Merge {
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) count: i64,
}

/// `PeakArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    pub(crate) to: u64,
    pub(crate) rounds: i32,
    pub(crate) unused: i32,
}

macro_rules! args {
    ($($name:ident: $bytes:expr;)*) => {$(
        // a size that is the sum of its fields has no padding
        const _: () = assert!(size_of::<$name>() == $bytes);
        // SAFETY: `repr(C)` of numbers without padding, as the size says; the launches of the tests hold it against the struct of the kernels
        unsafe impl Args for $name {}
    )*};
}

args! {
    Map: 3 * 64 + 32 + 24 + 8 + 32 + 16;
    Arithmetic: 4 * 64 + 32 + 16 + 24 + 16;
    Move: 9 * 64 + 32 + 64 + 16 + 16;
    Strided: 64 + 32 + 8 + 32;
    Resample: 3 * 64 + 32 + 2 * 64 + 8;
    Pool: 3 * 64 + 32 + 80 + 8;
    Pixel: 3 * 64 + 32 + 16 + 32;
    Conv: 4 * 64 + 32 + 64 + 40 + 24 + 16 + 16 + 8;
    Weight: 2 * 64 + 32 + 48 + 16 + 8;
    Add: 40;
    Reduce: 2 * 64 + 32 + 32;
    Max: 64 + 32 + 8;
    Merge: 24;
    Peak: 16;
}

/// A size that a kernel counts in 32 bits: rows, columns, channels. Layouts whose sizes are larger do not fit a device.
pub(crate) fn int(size: usize) -> i32 {
    i32::try_from(size).expect("invariant: extents are at most 2^30")
}

/// The same of a coordinate.
pub(crate) fn narrow(size: i64) -> i32 {
    i32::try_from(size).expect("invariant: extents are at most 2^30")
}

fn long(size: usize) -> i64 {
    i64::try_from(size).expect("invariant: layouts have 63-bit sizes")
}
