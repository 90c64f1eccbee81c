//! Elements by index: every bit is prescribed.

use ndarray::{Array1, ArrayD, ArrayView1, ArrayViewD, ArrayViewMutD, Axis, IxDyn};
use tiled_kernel::Reference;
use tiled_kernel::dense::{Dense, Extreme, IndexError};
use tiled_tensor::Element;

use super::layout::Held;
use crate::conformance::Rng;

/// Checks what takes, gathers and scatters by index and what finds extreme elements: the bits of the reference, also of other strides, and
/// nothing written where an index is out of range.
///
/// # Panics
/// Where a check fails.
pub fn check_indexing<T: Element>(dense: &dyn Dense<T>, seed: u64, cases: usize) {
    for index in 0..4 * cases {
        let mut rng = Rng::of_case("check_indexing", seed, index);
        check(dense, &mut rng, index);
    }
}

/// A call from one array to another.
type Call<'c, T> =
    &'c dyn Fn(&dyn Dense<T>, ArrayViewD<'_, T>, ArrayViewMutD<'_, T>) -> Result<(), IndexError>;

/// The name of a call, what it reads and what it writes.
type Named<'c, T> = (&'static str, &'c ArrayD<T>, &'c ArrayD<T>, Call<'c, T>);

fn check<T: Element>(dense: &dyn Dense<T>, rng: &mut Rng, case: usize) {
    let axes = rng.index(1, 4);
    let mut shape: Vec<usize> = (0..axes).map(|_| rng.index(1, [300, 40, 12, 7][axes - 1])).collect();
    let axis = rng.index(0, axes - 1);
    let extent = shape[axis];
    let index_of = |rng: &mut Rng| {
        let extent = i64::try_from(extent).expect("small");
        let bad = rng.chance(1) && case.is_multiple_of(2);
        if bad { extent } else { rng.range(-extent, extent - 1) }
    };
    let count = rng.index(0, 20);
    let (listed, each) = {
        let listed = Array1::from_shape_simple_fn(count, || index_of(rng));
        let mut shape: Vec<usize> = shape.iter().map(|extent| rng.index(1, *extent)).collect();
        shape[axis] = rng.index(1, 12);
        (listed, ArrayD::from_shape_simple_fn(IxDyn(&shape), || index_of(rng)))
    };
    let mut draw = |shape: &[usize]| {
        ArrayD::from_shape_simple_fn(IxDyn(shape), || {
            if rng.chance(2) { T::from_f64(f64::NAN) } else { T::from_f64(rng.uniform(-2.0, 2.0)) }
        })
    };
    let x = draw(&shape);
    shape[axis] = count;
    let (of_list, of_each) = (draw(&shape), draw(each.shape()));
    let listed: ArrayView1<'_, i64> = listed.view();
    let calls: [Named<'_, T>; 4] = [
        ("take", &x, &of_list, &|dense, x, y| dense.take(x, axis, listed, y)),
        ("put_add", &of_list, &x, &|dense, y, x| dense.put_add(y, axis, listed, x)),
        ("gather", &x, &of_each, &|dense, x, y| dense.gather(x, axis, each.view(), y)),
        ("scatter_add", &of_each, &x, &|dense, y, x| dense.scatter_add(y, axis, each.view(), x)),
    ];
    for (name, from, to, call) in calls {
        let mut expected = to.clone();
        let expects = call(&Reference, from.view(), expected.view_mut());
        let (from, mut held) = (Held::of(from, &[], rng), Held::of(to, &[], rng));
        let got = call(dense, from.base(), held.view_mut());
        assert_eq!(got, expects, "{}: {name} along axis {axis} of {:?}", dense.name(), x.shape());
        same(
            &format!("{}: {name} along axis {axis} of {:?}", dense.name(), x.shape()),
            &held.base(),
            &expected.view(),
        );
        assert!(held.gaps_are_untouched(), "{name}: written beside the result");
        if got.is_err() {
            same(&format!("{name} with an error"), &held.base(), &to.view());
        }
    }
    for extreme in [Extreme::Max, Extreme::Min] {
        let mut shape = x.shape().to_vec();
        shape[axis] = 1;
        let (mut got, mut expected) = (ArrayD::zeros(&shape[..]), ArrayD::zeros(&shape[..]));
        let held = Held::of(&x, &[], rng);
        dense.arg(extreme, held.base(), axis, got.view_mut());
        Reference.arg(extreme, x.view(), axis, expected.view_mut());
        assert_eq!(got, expected, "{}: arg {extreme:?} along {:?}", dense.name(), Axis(axis));
    }
}

fn same<T: Element>(what: &str, got: &ArrayViewD<'_, T>, expected: &ArrayViewD<'_, T>) {
    for ((at, got), expected) in got.indexed_iter().zip(expected) {
        let same = got.to_bits_u64() == expected.to_bits_u64() || (got.is_nan() && expected.is_nan());
        assert!(same, "{what}: at {at:?} {got}, reference {expected}");
    }
}
