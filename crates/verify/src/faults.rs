//! Verification finds what is wrong with a backend.

use tiled::cpu::CpuBackend;
use tiled::exec::NoProgress;
use tiled::geometry::{Interval, Region};
use tiled::kernel::{Backend, Host, Kernel, Params, Partial, Reduction, Workspace, forward};
use tiled::tensor::{Element, View, ViewMut};

use super::{Subject, VerifyOptions, VerifyReport, verify_on};

/// What is wrong with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A forward convolution depends on where the region starts.
    OutputDependsOnRegion,
    /// So does the gradient of a maximum pooling or of a convolution.
    GradientDependsOnRegion,
    /// The last column of a share of a weight gradient is left out, but not where the share is the whole image.
    DropsColumn,
    /// A weight gradient depends on the number of threads.
    DependsOnThreads,
}

#[derive(Debug)]
struct Faulty {
    backend: CpuBackend,
    fault: Fault,
}

impl<T: Element> Backend<T> for Faulty {
    forward!(T, |faulty| &faulty.backend; name block support seconds transfers_beside workers open_own);
}

impl<T: Element> Host<T> for Faulty {
    forward!(T, |faulty| &faulty.backend; pack compute_part unpack copy);

    fn compute(
        &self,
        kernel: &Kernel,
        params: Params<'_, T>,
        inputs: &[View<'_, T>],
        mut output: ViewMut<'_, T>,
        region: Region<2>,
        workspace: &Workspace<T>,
    ) {
        self.backend.compute(kernel, params, inputs, output.reborrow(), region, workspace);
        let is_hit = match self.fault {
            Fault::OutputDependsOnRegion => matches!(kernel, Kernel::Conv2d { .. }),
            Fault::GradientDependsOnRegion => {
                matches!(kernel, Kernel::MaxPool2dBackward(_) | Kernel::Conv2dBackwardInput { .. })
            }
            _ => false,
        };
        let (y, x) = (region.rows().begin(), region.cols().begin());
        if is_hit && !region.is_empty() && (y > 0 || x > 0) {
            let value = output.as_view().get(0, 0, y, x);
            output.set(0, 0, y, x, value + T::EPSILON * (T::ONE + value.abs()));
        }
    }

    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[T]],
        inputs: &[View<'_, T>],
        share: Region<2>,
        partial: &mut Partial<T>,
    ) {
        let mut share = share;
        if let Reduction::ConvWeight(conv) = reduction {
            let drops = match self.fault {
                Fault::DropsColumn => share != Region::whole(conv.output),
                Fault::DependsOnThreads => rayon::current_num_threads() == 2,
                _ => false,
            };
            if drops && !share.is_empty() {
                let cols = Interval::new(share.cols().begin(), share.cols().end() - 1);
                share = Region::from_rows_cols(share.rows(), cols);
            }
        }
        self.backend.reduce(reduction, params, inputs, share, partial);
    }
}

fn verify_fault(fault: Fault) -> VerifyReport {
    let faulty = Faulty { backend: CpuBackend::new().expect("an instruction set"), fault };
    let options = VerifyOptions { cases: 25, seed: 3, threads: 2, ..VerifyOptions::default() };
    verify_on(&options, &NoProgress, Subject::of(&faulty), Subject::of(&faulty)).expect("nobody cancels")
}

#[test]
fn a_sound_backend_passes_and_every_case_has_more_than_one_tile() {
    let report = verify_fault(Fault::None);
    assert!(report.passed(), "{:#?}", report.failures);
    assert!(report.min_tiles > 1 && report.compared > 10_000, "{report:?}");
}

#[test]
fn an_output_that_depends_on_the_region_is_found() {
    let report = verify_fault(Fault::OutputDependsOnRegion);
    assert!(report.output_mismatches > 0 && !report.failures.is_empty(), "{report:?}");
}

#[test]
fn an_input_gradient_that_depends_on_the_region_is_found() {
    let report = verify_fault(Fault::GradientDependsOnRegion);
    assert!(report.input_grad_mismatches > 0, "{report:?}");
}

#[test]
fn a_column_missing_from_a_weight_gradient_is_found() {
    let report = verify_fault(Fault::DropsColumn);
    assert!(report.weight_grad_failures > 0, "{report:?}");
    assert_eq!((report.output_mismatches, report.input_grad_mismatches), (0, 0), "{:?}", report.failures);
}

#[test]
fn a_weight_gradient_that_depends_on_threads_is_found() {
    let report = verify_fault(Fault::DependsOnThreads);
    assert!(report.failures.iter().any(|line| line.contains("differ between 1 and 2 threads")), "{report:?}");
}

#[test]
fn one_case_alone_is_the_case_of_the_whole_run() {
    let faulty = Faulty {
        backend: CpuBackend::new().expect("an instruction set"),
        fault: Fault::OutputDependsOnRegion,
    };
    let options = VerifyOptions { cases: 25, seed: 3, threads: 1, ..VerifyOptions::default() };
    let all =
        verify_on(&options, &NoProgress, Subject::of(&faulty), Subject::of(&faulty)).expect("nobody cancels");
    let line = all.failures.first().expect("the fault shows");
    let number = line.split("case ").nth(1).and_then(|rest| rest.split(',').next()).expect("a number");
    let only = VerifyOptions { only: Some(number.parse().expect("a number")), ..options };
    let one =
        verify_on(&only, &NoProgress, Subject::of(&faulty), Subject::of(&faulty)).expect("nobody cancels");
    assert_eq!(one.failures, std::slice::from_ref(line));
    assert!(!line.contains('\n') && line.contains("\"nodes\""), "{line}");
}
