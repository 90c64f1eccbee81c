//! Work as launches: which kernel, how many threads, which arguments.

mod conv;
mod grid;
mod maps;
mod moves;
mod needs;
mod pixels;
mod reduce;
mod resample;
mod tensors;
pub(crate) mod waves;
mod weight;

use tiled_geometry::Region;
use tiled_kernel::{DeviceError, Kernel};
use tiled_tensor::{DType, Layout};

pub(crate) use conv::Problem;
pub(crate) use reduce::{EXTREMUM_BYTES, SUM_WORDS, Terms, extrema, merge, reduce, sums};
pub(crate) use tensors::{export, import};
pub(crate) use weight::Gradient;

use crate::args::{Args, View};
use crate::driver::Facts;
use crate::precision::Precision;

/// What launches kernels.
pub(crate) trait Launches {
    /// What the device is.
    fn facts(&self) -> &Facts;

    /// What carries out convolutions in `f32`.
    fn precision(&self) -> Precision;

    /// Runs a kernel by its name.
    ///
    /// # Errors
    /// Where the device fails.
    fn launch<A: Args>(&self, kernel: &'static str, shape: Shape, args: &A) -> Result<(), DeviceError>;
}

/// Blocks, and threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

/// A window on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) address: u64,
    pub(crate) layout: Layout,
}

impl Window {
    pub(crate) fn view(&self) -> View {
        View::new(self.address, &self.layout)
    }

    fn require(&self, needed: Region<2>) {
        let held = self.layout.region();
        assert!(held.contains_region(needed), "window holds {held}, needed {needed}");
    }
}

/// The operands of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given<'g> {
    pub(crate) dtype: DType,
    pub(crate) inputs: &'g [Window],
    pub(crate) output: Window,
    pub(crate) region: Region<2>,
    /// The address of its packed parameters, and their elements.
    pub(crate) params: (u64, usize),
    /// The address of extrema.
    pub(crate) extrema: u64,
}

impl Given<'_> {
    /// The view of an input; of one that is not there nothing is read.
    fn input(&self, index: usize) -> View {
        self.inputs.get(index).map(Window::view).unwrap_or_default()
    }

    const fn images(&self) -> usize {
        self.output.layout.batch()
    }

    const fn channels(&self) -> usize {
        self.output.layout.channels()
    }
}

/// The one of two kernels that is for the type.
const fn typed(dtype: DType, [single, double]: [&'static str; 2]) -> &'static str {
    match dtype {
        DType::F32 => single,
        DType::F64 => double,
    }
}

/// Computes a region of the output of a kernel that has a [`family`].
///
/// # Panics
/// Where a window does not hold what the region needs.
pub(crate) fn compute(device: &impl Launches, kernel: &Kernel, given: &Given<'_>) -> Result<(), DeviceError> {
    if given.region.is_empty() {
        return Ok(());
    }
    given.output.require(given.region);
    for (index, input) in given.inputs.iter().enumerate() {
        input.require(needs::needed(kernel, index, given.region));
    }
    let family = family(kernel).expect("invariant: kernels without a family are not supported");
    match family {
        Family::Conv => conv::compute(device, kernel, given),
        Family::Pool => moves::pool(device, kernel, given),
        Family::Pixel => pixels::compute(device, kernel, given),
        Family::Arithmetic => maps::arithmetic(device, kernel, given),
        Family::Map => maps::compute(device, kernel, given),
        Family::Resample => resample::compute(device, kernel, given),
        Family::Move => moves::compute(device, kernel, given),
    }
}

/// The kernels that lie in one file here, and take one struct of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Conv,
    Pool,
    Pixel,
    Arithmetic,
    Map,
    Resample,
    Move,
}

/// Where a kernel of the contract is carried out; `None` of one that is not.
pub(crate) const fn family(kernel: &Kernel) -> Option<Family> {
    Some(match kernel {
        Kernel::Conv2d { .. } | Kernel::Conv2dBackwardInput { .. } => Family::Conv,
        Kernel::MaxPool2d(_)
        | Kernel::MaxPool2dBackward(_)
        | Kernel::AvgPool2d(_)
        | Kernel::AvgPool2dBackward(_) => Family::Pool,
        Kernel::Softmax { .. }
        | Kernel::SoftmaxBackward { .. }
        | Kernel::PixelNorm(_)
        | Kernel::PixelNormBackward(_)
        | Kernel::LocalResponse(_)
        | Kernel::LocalResponseBackward(_)
        | Kernel::ArgMax
        | Kernel::SumChannels
        | Kernel::MaxChannels
        | Kernel::MaxChannelsBackward
        | Kernel::CrossEntropyBackward { .. } => Family::Pixel,
        Kernel::Arithmetic { .. } => Family::Arithmetic,
        Kernel::Activation(_)
        | Kernel::ActivationBackward(_)
        | Kernel::Add
        | Kernel::Mul
        | Kernel::DifferenceScaled { .. }
        | Kernel::ChannelAffine { .. }
        | Kernel::ChannelCombine
        | Kernel::Dropout { .. }
        | Kernel::Fill { .. } => Family::Map,
        Kernel::Resize(_)
        | Kernel::ResizeBackward(_)
        | Kernel::AdaptiveAvgPool2d(_)
        | Kernel::AdaptiveAvgPool2dBackward(_)
        | Kernel::AdaptiveMaxPool2d(_)
        | Kernel::AdaptiveMaxPool2dBackward(_) => Family::Resample,
        Kernel::Concat
        | Kernel::Slice { .. }
        | Kernel::SliceBackward { .. }
        | Kernel::ChannelShuffle { .. }
        | Kernel::PixelShuffle { .. }
        | Kernel::PixelUnshuffle { .. }
        | Kernel::Pad(_)
        | Kernel::PadBackward(_)
        | Kernel::PadConstant { .. }
        | Kernel::Broadcast { .. }
        | Kernel::Scatter => Family::Move,
        _ => return None,
    })
}
