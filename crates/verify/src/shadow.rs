//! Kernels on the host for plans of a GPU: they tell the sizes of what its gradients sum.
//!
//! What a bound multiplies must be what the GPU multiplies: where one of the two is zero and the other is not, no bound in ε holds. So every operand
//! has the GPU's bits here: functions and moves are those of the CPU, which has them, and a convolution is one chain of fused multiply-adds, written
//! naively, in the GPU's order.

use tiled::cpu::CpuBackend;
use tiled::cuda::CudaBackend;
use tiled::geometry::{Region, Window};
use tiled::kernel::{
    Activation, Backend, Context, Conv, DeviceError, Epilogue, Host, Kernel, Needs, Params, Reference,
    Workspace, forward, open,
};
use tiled::tensor::{AlignedBuffer, Element, View, ViewMut};

/// The host's kernels for plans of a GPU. Parameters lie at the beginning of what the GPU packs them into.
#[derive(Debug)]
pub(super) struct Shadow<'b> {
    gpu: &'b CudaBackend,
    cpu: CpuBackend,
}

impl<'b> Shadow<'b> {
    pub(super) const fn new(gpu: &'b CudaBackend, cpu: CpuBackend) -> Self {
        Self { gpu, cpu }
    }
}

impl<T: Element> Backend<T> for Shadow<'_> {
    forward!(T, |shadow| shadow.gpu; name block support seconds transfers_beside workers);

    fn open<'s>(&'s self, needs: &Needs<'_>) -> Result<Box<dyn Context<T> + 's>, DeviceError> {
        open(self, needs)
    }
}

impl<T: Element> Host<T> for Shadow<'_> {
    forward!(T, |_shadow| &Reference; compute_part reduce unpack copy);

    fn pack(&self, _kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
        let len = params.iter().map(|param| param.len()).sum();
        tiled::kernel::pack_plainly(params, &mut packed[..len]);
    }

    fn compute(
        &self,
        kernel: &Kernel,
        params: Params<'_, T>,
        inputs: &[View<'_, T>],
        output: ViewMut<'_, T>,
        region: Region<2>,
        workspace: &Workspace<T>,
    ) {
        let (conv, epilogue, is_backward) = match kernel {
            Kernel::Conv2d { conv, epilogue, .. } => (conv, epilogue, false),
            Kernel::Conv2dBackwardInput { conv, epilogue } => (conv, epilogue, true),
            _ => return self.cpu.compute(kernel, params, inputs, output, region, workspace),
        };
        let chain = Chain::new(conv, epilogue, is_backward, params.packed());
        let (last, first) = (chain.last(inputs), inputs[0]);
        let mut output = output;
        chain.compute(&first, &last, &mut output, region);
        // as the GPU does: functions that its convolutions do not carry out follow in passes of their own
        let after = chain.function.map(|function| (Kernel::Activation(function), None));
        let mask = chain.mask_after.map(|function| (Kernel::ActivationBackward(function), last.saved));
        for (kernel, saved) in after.into_iter().chain(mask) {
            let layout = *output.layout();
            let mut copy = AlignedBuffer::new(layout.len());
            copy.copy_from_slice(&output.as_view().data()[..layout.len()]);
            let value = View::new(&copy, layout);
            let inputs: Vec<View<'_, T>> = std::iter::once(value).chain(saved).collect();
            self.cpu.compute(&kernel, Params::Packed(&[]), &inputs, output.reborrow(), region, workspace);
        }
    }
}

/// A convolution or the gradient for its input, as the GPU sums it.
struct Chain<'k, T> {
    conv: &'k Conv,
    epilogue: &'k Epilogue,
    is_backward: bool,
    weights: &'k [T],
    bias: &'k [T],
    affine: [&'k [T]; 2],
    /// The functions that follow in passes of their own.
    function: Option<Activation>,
    mask_after: Option<Activation>,
}

/// What an epilogue reads.
#[derive(Clone, Copy)]
struct Last<'v, T> {
    added: Option<View<'v, T>>,
    saved: Option<View<'v, T>>,
}

impl<'k, T: Element> Chain<'k, T> {
    fn new(conv: &'k Conv, epilogue: &'k Epilogue, is_backward: bool, packed: &'k [T]) -> Self {
        let channels = if is_backward { conv.in_channels } else { conv.out_channels };
        let (weights, rest) = packed.split_at(conv.weight_len());
        let (bias, rest) = rest.split_at(if epilogue.bias { channels } else { 0 });
        let (scale, rest) = rest.split_at(if epilogue.affine { channels } else { 0 });
        let shift = &rest[..scale.len()];
        let is_fused =
            |function: &Activation| matches!(function, Activation::Relu | Activation::LeakyRelu { .. });
        let function = epilogue.activation.filter(|function| !is_fused(function));
        let mask_after = epilogue.mask.filter(|mask| function.is_some() || !is_fused(mask));
        Self { conv, epilogue, is_backward, weights, bias, affine: [scale, shift], function, mask_after }
    }

    fn last<'v>(&self, inputs: &[View<'v, T>]) -> Last<'v, T> {
        let mut rest = inputs[1..].iter().copied();
        let added = if self.epilogue.sum { rest.next() } else { None };
        Last { added, saved: self.epilogue.mask.and_then(|_| rest.next()) }
    }

    fn compute(
        &self,
        input: &View<'_, T>,
        last: &Last<'_, T>,
        output: &mut ViewMut<'_, T>,
        region: Region<2>,
    ) {
        let layout = *output.layout();
        for n in 0..layout.batch() {
            for channel in 0..layout.channels() {
                for y in region.rows().begin()..region.rows().end() {
                    for x in region.cols().begin()..region.cols().end() {
                        let sum = self.sum(input, [n, channel], [y, x]);
                        output.set(n, channel, y, x, self.follow(sum, last, [n, channel], [y, x]));
                    }
                }
            }
        }
    }

    /// The bias, then a multiply-add for each tap and channel of the group, taps in the order of the kernel.
    fn sum(&self, input: &View<'_, T>, [n, channel]: [usize; 2], [y, x]: [i64; 2]) -> T {
        let Self { conv, is_backward, .. } = *self;
        let [_, group_in, kernel_rows, kernel_cols] = conv.weight_shape();
        let group_out = conv.out_channels / conv.groups;
        let [own, other] = if is_backward { [group_in, group_out] } else { [group_out, group_in] };
        let extents = if is_backward { conv.output } else { conv.input };
        let source = |axis: usize, at: i64, tap: usize| {
            let source = self.source(conv.windows[axis], at, i64::try_from(tap).ok()?)?;
            (0..extents[axis]).contains(&source).then_some(source)
        };
        let (group, within) = (channel / own, channel % own);
        let mut sum = self.bias.get(channel).copied().unwrap_or(T::ZERO);
        for u in 0..kernel_rows {
            let Some(i) = source(0, y, u) else { continue };
            for v in 0..kernel_cols {
                let Some(j) = source(1, x, v) else { continue };
                for c in 0..other {
                    // weights are one row for each output of the forward pass
                    let [o, i_within] = if is_backward { [group * other + c, within] } else { [channel, c] };
                    let weight =
                        self.weights[((o * group_in + i_within) * kernel_rows + u) * kernel_cols + v];
                    sum = input.get(n, group * other + c, i, j).mul_add(weight, sum);
                }
            }
        }
        sum
    }

    /// Where an output reads through a tap, if it does.
    const fn source(&self, window: Window, at: i64, tap: i64) -> Option<i64> {
        if !self.is_backward {
            return Some(at * window.stride() - window.padding() + window.dilation() * tap);
        }
        let reached = at + window.padding() - window.dilation() * tap;
        if reached.rem_euclid(window.stride()) == 0 { Some(reached / window.stride()) } else { None }
    }

    /// What follows a sum in the same kernel.
    fn follow(&self, sum: T, last: &Last<'_, T>, [n, channel]: [usize; 2], [y, x]: [i64; 2]) -> T {
        let mut value = sum;
        if self.epilogue.affine {
            value = value.mul_add(self.affine[0][channel], self.affine[1][channel]);
        }
        if let Some(added) = last.added {
            value += added.get(n, channel, y, x);
        }
        let leak =
            |slope: f64, value: T, of: T| if of > T::ZERO { value } else { value * T::from_f64(slope) };
        value = match self.epilogue.activation {
            Some(Activation::Relu) if value <= T::ZERO => T::ZERO,
            Some(Activation::LeakyRelu { slope }) => leak(slope, value, value),
            _ => value,
        };
        let mask = if self.mask_after.is_some() { None } else { self.epilogue.mask };
        match (mask, last.saved.map(|saved| saved.get(n, channel, y, x))) {
            (Some(Activation::Relu), Some(saved)) if saved <= T::ZERO => T::ZERO,
            (Some(Activation::LeakyRelu { slope }), Some(saved)) => leak(slope, value, saved),
            _ => value,
        }
    }
}
