//! Methods of a backend that another one carries out.

/// Writes methods of [`crate::Backend`] and [`crate::Host`] that pass every call on: for backends that change some of them and
/// leave the others. The kernels run in what [`crate::open`] of the backend itself opens, not the other one's.
///
/// ```
/// use tiled_geometry::Region;
/// use tiled_kernel::{Backend, Host, Kernel, Params, Reference, Workspace, forward};
/// use tiled_tensor::{View, ViewMut};
///
/// /// The reference, with a log of what it computes.
/// #[derive(Debug)]
/// struct Logged(Reference);
///
/// impl Backend<f32> for Logged {
///     forward!(f32, |logged| &logged.0; name block support seconds transfers_beside workers open_own);
/// }
///
/// impl Host<f32> for Logged {
///     forward!(f32, |logged| &logged.0; pack compute_part reduce unpack copy);
///
///     fn compute(
///         &self,
///         kernel: &Kernel,
///         params: Params<'_, f32>,
///         inputs: &[View<'_, f32>],
///         output: ViewMut<'_, f32>,
///         region: Region<2>,
///         workspace: &Workspace<f32>,
///     ) {
///         println!("{} {region}", kernel.name());
///         self.0.compute(kernel, params, inputs, output, region, workspace);
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($element:ty, |$this:ident| $to:expr; $($method:ident)*) => {
        $( $crate::forward!(@$method $element, $this, $to); )*
    };
    (@name $element:ty, $this:ident, $to:expr) => {
        fn name(&self) -> String {
            let $this = self;
            $crate::Backend::<$element>::name($to)
        }
    };
    (@block $element:ty, $this:ident, $to:expr) => {
        fn block(&self, channels: usize) -> usize {
            let $this = self;
            $crate::Backend::<$element>::block($to, channels)
        }
    };
    (@support $element:ty, $this:ident, $to:expr) => {
        fn support(
            &self,
            work: &$crate::Work,
            operands: &$crate::Operands<'_>,
        ) -> Option<$crate::Support> {
            let $this = self;
            $crate::Backend::<$element>::support($to, work, operands)
        }
    };
    (@seconds $element:ty, $this:ident, $to:expr) => {
        fn seconds(&self, task: $crate::Task<'_>, load: &$crate::Load) -> f64 {
            let $this = self;
            $crate::Backend::<$element>::seconds($to, task, load)
        }
    };
    (@transfers_beside $element:ty, $this:ident, $to:expr) => {
        fn transfers_beside(&self) -> bool {
            let $this = self;
            $crate::Backend::<$element>::transfers_beside($to)
        }
    };
    (@workers $element:ty, $this:ident, $to:expr) => {
        fn workers(&self, threads: usize) -> usize {
            let $this = self;
            $crate::Backend::<$element>::workers($to, threads)
        }
    };
    // not the other one's: a queue of it would call that one's kernels
    (@open_own $element:ty, $this:ident, $to:expr) => {
        fn open<'b>(
            &'b self,
            needs: &$crate::Needs<'_>,
        ) -> Result<Box<dyn $crate::Context<$element> + 'b>, $crate::DeviceError> {
            $crate::open(self, needs)
        }
    };
    (@open $element:ty, $this:ident, $to:expr) => {
        fn open<'b>(
            &'b self,
            needs: &$crate::Needs<'_>,
        ) -> Result<Box<dyn $crate::Context<$element> + 'b>, $crate::DeviceError> {
            let $this = self;
            $crate::Backend::<$element>::open($to, needs)
        }
    };
    (@pack $element:ty, $this:ident, $to:expr) => {
        fn pack(&self, kernel: &$crate::Kernel, params: &[&[$element]], packed: &mut [$element]) {
            let $this = self;
            $crate::Host::<$element>::pack($to, kernel, params, packed);
        }
    };
    (@compute $element:ty, $this:ident, $to:expr) => {
        fn compute(
            &self,
            kernel: &$crate::Kernel,
            params: $crate::Params<'_, $element>,
            inputs: &[$crate::forward::View<'_, $element>],
            output: $crate::forward::ViewMut<'_, $element>,
            region: $crate::forward::Region<2>,
            workspace: &$crate::Workspace<$element>,
        ) {
            let $this = self;
            $crate::Host::<$element>::compute($to, kernel, params, inputs, output, region, workspace);
        }
    };
    (@compute_part $element:ty, $this:ident, $to:expr) => {
        fn compute_part(
            &self,
            kernel: &$crate::Kernel,
            params: $crate::Params<'_, $element>,
            inputs: &[$crate::forward::View<'_, $element>],
            output: $crate::forward::PartMut<'_, $element>,
            region: $crate::forward::Region<2>,
            workspace: &$crate::Workspace<$element>,
        ) {
            let $this = self;
            $crate::Host::<$element>::compute_part($to, kernel, params, inputs, output, region, workspace);
        }
    };
    (@reduce $element:ty, $this:ident, $to:expr) => {
        fn reduce(
            &self,
            reduction: &$crate::Reduction,
            params: &[&[$element]],
            inputs: &[$crate::forward::View<'_, $element>],
            share: $crate::forward::Region<2>,
            partial: &mut $crate::Partial<$element>,
        ) {
            let $this = self;
            $crate::Host::<$element>::reduce($to, reduction, params, inputs, share, partial);
        }
    };
    (@copy $element:ty, $this:ident, $to:expr) => {
        fn copy(
            &self,
            from: &$crate::forward::View<'_, $element>,
            to: $crate::forward::ViewMut<'_, $element>,
            region: $crate::forward::Region<2>,
        ) {
            let $this = self;
            $crate::Host::<$element>::copy($to, from, to, region);
        }
    };
    (@unpack $element:ty, $this:ident, $to:expr) => {
        fn unpack(&self, reduction: &$crate::Reduction, values: &[$element], result: &mut [$element]) {
            let $this = self;
            $crate::Host::<$element>::unpack($to, reduction, values, result);
        }
    };
}

// what the macro names, so that a crate that uses it need not depend on these
pub use tiled_geometry::Region;
pub use tiled_tensor::{PartMut, View, ViewMut};
