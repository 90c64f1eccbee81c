//! The conformance suite finds faults: backends wrong in one way each, of the kind that tiling brings.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tiled_geometry::{Interval, Region};
use tiled_kernel::{Backend, Host, Kernel, Params, Partial, Reduction, Reference, Workspace, forward};
use tiled_tensor::{Element, View, ViewMut};
use tiled_testkit::conformance;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Writes the column after the region.
    WritesPastTheRegion,
    /// Reads a column that it does not need and adds nothing of it.
    ReadsForeignColumns,
    /// Adds one ulp where a tile does not begin at column 0.
    DependsOnTheTile,
    /// Rounds results to half precision or so.
    IsImprecise,
    /// Leaves the last row of a region out.
    ForgetsARow,
    /// Sums in plain floating point.
    SumsWithRounding,
    /// Forgets a share's first row.
    ForgetsPartOfAShare,
    /// Adds one ulp where the input's ring has an odd number of rows.
    DependsOnTheWindow,
}

#[derive(Debug)]
struct Faulty(Fault);

impl Backend<f32> for Faulty {
    forward!(f32, |_faulty| &Reference; support seconds transfers_beside workers open_own);

    fn name(&self) -> String {
        format!("{:?}", self.0)
    }

    fn block(&self, channels: usize) -> usize {
        if channels < 4 { 1 } else { 4 }
    }
}

impl Host<f32> for Faulty {
    forward!(f32, |_faulty| &Reference; pack compute_part unpack copy);

    fn compute(
        &self,
        kernel: &Kernel,
        params: Params<'_, f32>,
        inputs: &[View<'_, f32>],
        mut output: ViewMut<'_, f32>,
        region: Region<2>,
        workspace: &Workspace<f32>,
    ) {
        let [rows, cols] = region.axes();
        let asked = if self.0 == Fault::ForgetsARow && rows.len() > 1 && rows.begin() > 0 {
            Region::new([Interval::new(rows.begin(), rows.end() - 1), cols])
        } else {
            region
        };
        Reference.compute(kernel, params, inputs, output.reborrow(), asked, workspace);
        if region.is_empty() {
            return;
        }
        let (y, x, held) = (rows.begin(), cols.begin(), output.region());
        let first = output.as_view().get(0, 0, y, x);
        match self.0 {
            Fault::WritesPastTheRegion if held.cols().contains(cols.end()) => {
                output.set(0, 0, y, cols.end(), 0.0);
            }
            Fault::ReadsForeignColumns => {
                let foreign = inputs.first().map_or(0.0, |input| {
                    let last = input.region().cols().end() - 1;
                    let row = input.region().rows().begin();
                    if input.region().is_empty() { 0.0 } else { input.get(0, 0, row, last) }
                });
                output.set(0, 0, y, x, first + foreign * 0.0);
            }
            Fault::DependsOnTheTile if x > 0 => output.set(0, 0, y, x, first.next_up()),
            Fault::IsImprecise => output.set(0, 0, y, x, f32::from_bits(first.to_bits() & 0xffff_e000)),
            _ => {}
        }
    }

    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[f32]],
        inputs: &[View<'_, f32>],
        share: Region<2>,
        partial: &mut Partial<f32>,
    ) {
        let [rows, cols] = share.axes();
        let share = if self.0 == Fault::ForgetsPartOfAShare && rows.begin() > 0 {
            Region::new([Interval::new(rows.begin() + 1, rows.end()), cols])
        } else {
            share
        };
        Reference.reduce(reduction, params, inputs, share, partial);
        match partial {
            Partial::Exact(sums) if self.0 == Fault::SumsWithRounding => {
                for sum in sums.iter_mut() {
                    let rounded = f64::from(f32::from_f64(sum.value()));
                    *sum = tiled_kernel::ExactSum::default();
                    sum.add(rounded);
                }
            }
            Partial::Values(values) if self.0 == Fault::DependsOnTheWindow => {
                let spare = inputs[0].layout().ring() % 2 == 1;
                values[0] = if spare { values[0].next_up() } else { values[0] };
            }
            _ => {}
        }
    }
}

type Check = fn(&dyn Backend<f32>, u64, usize);

fn finds(fault: Fault, check: Check) -> bool {
    catch_unwind(AssertUnwindSafe(|| check(&Faulty(fault), 3, 20))).is_err()
}

#[test]
fn suite_finds_faults_of_kernels() {
    let checks: [(&str, Check); 7] = [
        ("conv2d", conformance::check_conv2d),
        ("conv2d_backward_input", conformance::check_conv2d_backward_input),
        ("pool", conformance::check_pool),
        ("elementwise", conformance::check_elementwise),
        ("resize", conformance::check_resize),
        ("norm", conformance::check_norm),
        ("pixel", conformance::check_pixel),
    ];
    for (name, check) in checks {
        assert!(!finds(Fault::None, check), "{name}: a correct backend passes");
        for fault in [
            Fault::WritesPastTheRegion,
            Fault::ReadsForeignColumns,
            Fault::DependsOnTheTile,
            Fault::IsImprecise,
            Fault::ForgetsARow,
        ] {
            assert!(finds(fault, check), "{name}: {fault:?} is found");
        }
    }
}

#[test]
fn suite_finds_faults_of_reductions() {
    for fault in [Fault::SumsWithRounding, Fault::ForgetsPartOfAShare] {
        assert!(finds(fault, conformance::check_reductions), "{fault:?} is found");
    }
    for fault in [Fault::ForgetsPartOfAShare, Fault::DependsOnTheWindow] {
        assert!(finds(fault, conformance::check_conv2d_backward_weight), "{fault:?} is found");
    }
    assert!(!finds(Fault::None, conformance::check_reductions));
    assert!(!finds(Fault::None, conformance::check_conv2d_backward_weight));
}
