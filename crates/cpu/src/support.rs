//! How work is carried out with an instruction set.

use tiled_kernel::{Kernel, MAX_INPUTS, Operands, Reduction, Support, Work};
use tiled_tensor::Element;

use crate::{Isa, conv, costs, is_convolution};

/// What [`tiled_kernel::Backend::support`] answers.
pub(crate) fn support<T: Element>(isa: Isa, work: &Work, operands: &Operands<'_>) -> Option<Support> {
    match work {
        Work::Map(kernel) if is_convolution(kernel) => of_convolution::<T>(isa, kernel),
        Work::Map(_) => Some(Support {
            packed_bytes: operands.params.iter().sum::<usize>() * size_of::<T>(),
            reads_planes: planes::<T>(isa, operands),
            writes_planes: conv::block::<T>(isa, operands.channels) == 1,
            ..Support::PLAIN
        }),
        Work::Reduce(reduction) => Some(of_reduction::<T>(isa, reduction, operands)),
    }
}

fn of_convolution<T: Element>(isa: Isa, kernel: &Kernel) -> Option<Support> {
    if !conv::supports::<T>(isa, kernel) {
        return None;
    }
    let mut reads_planes = [false; MAX_INPUTS];
    reads_planes[0] = conv::reads_planes::<T>(isa, kernel);
    let peak = costs::costs::<T>(isa).flops;
    Some(Support {
        packed_bytes: conv::packed_len::<T>(isa, kernel) * size_of::<T>(),
        workspace_bytes: conv::workspace_len::<T>(isa, kernel) * size_of::<T>(),
        partial_bytes: 0,
        reads_planes,
        writes_planes: conv::writes_planes::<T>(isa, kernel),
        flops_per_second: Some(peak * conv::share_of_peak::<T>(isa, kernel)),
        factor_rounding: 0.0,
    })
}

fn of_reduction<T: Element>(isa: Isa, reduction: &Reduction, operands: &Operands<'_>) -> Support {
    let bytes = |values| reduction.partial_bytes::<T>(operands.batch, operands.channels, values);
    match reduction {
        Reduction::ConvWeight(geometry) => {
            let mut reads_planes = [false; MAX_INPUTS];
            reads_planes[0] = conv::reduces_planes::<T>(isa, geometry);
            let reached = costs::costs::<T>(isa).flops * conv::weight_share_of_peak::<T>(isa, geometry);
            Support {
                partial_bytes: bytes(conv::partial_len::<T>(isa, geometry) * size_of::<T>()),
                reads_planes,
                flops_per_second: Some(reached),
                ..Support::PLAIN
            }
        }
        _ => Support { partial_bytes: bytes(0), reads_planes: planes::<T>(isa, operands), ..Support::PLAIN },
    }
}

/// Inputs of so few channels that their windows have no blocks anyway.
fn planes<T: Element>(isa: Isa, operands: &Operands<'_>) -> [bool; MAX_INPUTS] {
    let mut planes = [false; MAX_INPUTS];
    for (planes, channels) in planes.iter_mut().zip(operands.inputs) {
        *planes = conv::block::<T>(isa, *channels) == 1;
    }
    planes
}
