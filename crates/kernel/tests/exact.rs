//! Exact sums: independent of order and merging, correctly rounded, and the same on the fast path.

use proptest::prelude::*;
use tiled_kernel::{ExactSum, LaneBuffer, LaneSums};
use tiled_tensor::Element;

/// An oracle in another number system: 32-bit digits in `i128` cells, unit `2^-2176`, never carried.
#[derive(Clone)]
struct Digits(Vec<i128>);

impl Digits {
    fn new() -> Self {
        Self(vec![0; 150])
    }

    fn parts(value: f64) -> (i128, usize) {
        let bits = value.to_bits();
        let (field, fraction) = ((bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
        let mantissa = i128::from(if field == 0 { fraction } else { fraction | (1 << 52) });
        let exponent = usize::try_from(field.max(1)).expect("eleven bits");
        (if value < 0.0 { -mantissa } else { mantissa }, exponent)
    }

    // mantissa · 2^(at − 2176)
    fn add_at(&mut self, mantissa: i128, at: usize) {
        let shifted_low = (mantissa & 0xffff_ffff) << (at % 32);
        let shifted_high = (mantissa >> 32) << (at % 32);
        self.0[at / 32] += shifted_low;
        self.0[at / 32 + 1] += shifted_high;
    }

    fn add(&mut self, value: f64) {
        let (mantissa, exponent) = Self::parts(value);
        self.add_at(mantissa, exponent - 1 + 2176 - 1074);
    }

    fn add_product(&mut self, a: f64, b: f64) {
        let ((a, ea), (b, eb)) = (Self::parts(a), Self::parts(b));
        let at = ea - 1 + eb - 1 + 2176 - 2148;
        self.add_at((a & 0x3ff_ffff) * b, at); // 26 bits · 54 bits
        self.add_at((a >> 26) * b, at + 26);
    }

    /// The sign of the number: carries from below, and the sign of the top digit that is left.
    fn sign(&self) -> i32 {
        let mut carry = 0_i128;
        let mut any = false;
        for digit in &self.0 {
            let total = digit + carry;
            any |= total & 0xffff_ffff != 0;
            carry = total >> 32;
        }
        if carry < 0 { -1 } else { i32::from(any || carry > 0) }
    }

    fn minus(&self, value: f64) -> Self {
        let mut difference = self.clone();
        difference.add(-value);
        difference
    }

    /// Whether no `f64` is nearer, and of two as near `value` is the even one.
    fn rounds_to(&self, value: f64) -> bool {
        let error = self.minus(value);
        if error.sign() == 0 {
            return true;
        }
        let neighbour = if error.sign() > 0 { value.next_up() } else { value.next_down() };
        // twice the error against the gap: 2·(S − v) − (n − v) = (S − v) + (S − n)
        let mut balance = error.clone();
        for (sum, other) in balance.0.iter_mut().zip(&self.minus(neighbour).0) {
            *sum += other;
        }
        match balance.sign() * error.sign() {
            0 => value.to_bits() & 1 == 0,
            side => side < 0,
        }
    }
}

fn exact(values: &[f64]) -> ExactSum {
    let mut sum = ExactSum::default();
    values.iter().for_each(|value| sum.add(*value));
    sum
}

fn any_finite() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>().prop_filter("finite and far from overflow", |v| v.abs() < 1e300),
        -1e3..1e3_f64,
        (-1074..-1000_i32, any::<bool>()).prop_map(|(e, minus)| if minus {
            -(2f64.powi(e))
        } else {
            2f64.powi(e)
        }),
        (-60..60_i32, 1..8_u32).prop_map(|(e, m)| f64::from(m) * 2f64.powi(e)),
        Just(1e300),
        Just(-1e300),
        Just(0.0),
        Just(-0.0),
        Just(5e-324),
    ]
}

/// As many of the largest values as a cascade takes, all of one sign, beside the smallest that it takes.
#[test]
fn sums_of_far_apart_values_reach_their_bounds() {
    for (exponent, sign) in [-127, -128, 0, -60].into_iter().flat_map(|e| [(e, 1.0), (e, -1.0_f32)]) {
        let large = sign * f32::MAX * 2.0_f32.powi(exponent);
        for apart in [23, 59, 60, 61, 141, 142, 143] {
            let small = large.abs() * 2.0_f32.powi(-apart / 2) * 2.0_f32.powi(apart / 2 - apart);
            let small = small.max(f32::from_bits(1));
            let mut rows = vec![[large]; 3 * 1024 + 5];
            for at in (0..rows.len()).step_by(97) {
                rows[at] = [small];
            }
            let (mut fast, mut slow) = ([ExactSum::default()], ExactSum::default());
            LaneSums::<1>::new(&mut fast, &mut LaneBuffer::default()).add_rows(&rows);
            rows.as_flattened().iter().for_each(|value| slow.add(f64::from(*value)));
            assert_eq!(fast[0], slow, "{large} and {small}");
        }
    }
}

/// As many squares as are summed before they are given, all of which leave as much as they can, beside the smallest that have room; later
/// values may be twice as large as the first part, or four times as large as the first rows, and are not when they are more, or far smaller.
#[test]
fn sums_of_squares_reach_their_bounds() {
    // the rounded units are of 2^4 to 2^10 of those of a square: these leave nearly half of one
    let leaves = |bits: u32, m: &u32| u64::from(*m).pow(2) % (1 << bits);
    for bits in 4..=11 {
        let most = |m: &u32| (1_u64 << bits) / 2 - leaves(bits, m).min((1 << bits) - leaves(bits, m));
        let mantissa = (1 << 23..(1 << 23) + 4096).min_by_key(most).expect("some are there");
        for (exponent, apart) in [0, 60, -90].into_iter().flat_map(|e| (10..=26).map(move |apart| (e, apart)))
        {
            let large = mantissa as f32 * 2.0_f32.powi(exponent);
            let small = 8_388_609.0 * 2.0_f32.powi(exponent - apart);
            let grown = [1.0, 2.0, 4.0, 8.0, 64.0, 4096.0].map(|growth| [(growth, 8, 40), (growth, 128, 40)]);
            let shrunk = [12, 20].map(|power| (2.0_f32.powi(-power), 512, 512));
            for (growth, first, first_small) in grown.into_iter().flatten().chain(shrunk) {
                let mut rows = vec![[large * growth]; 3 * 512 + 5];
                rows[..first].fill([large]);
                for at in (first_small..rows.len()).step_by(97) {
                    rows[at] = [small];
                }
                let (fast, mut slow) = (with_squares(&rows), ExactSum::default());
                rows.as_flattened()
                    .iter()
                    .for_each(|value| slow.add_product((*value).into(), (*value).into()));
                assert_eq!(fast[1], [slow], "{large} and {small}, {growth} times as large after {first}");
            }
        }
    }
}

/// As many values as a cascade takes that each leave all that its levels can leave, beside the smallest that it takes: what is left in all has
/// one bit for each of an `f64`.
#[test]
fn what_the_levels_leave_reaches_its_bound() {
    for (scale, aparts) in [(-41, 57..=64), (-123, 139..=146)] {
        for (apart, sign) in aparts.flat_map(|apart| [(apart, 1.0_f32), (apart, -1.0)]) {
            let two_to = |power: i32| 2.0_f32.powi(power / 2) * 2.0_f32.powi(power - power / 2);
            let large = sign * f32::MAX;
            let [middle, small] = [scale, -apart].map(|power| large * two_to(power));
            // 128 rows go together, and each such part has a large one, or plain additions would do
            let mut rows = vec![[middle]; 1024];
            rows.iter_mut().step_by(128).for_each(|row| *row = [large]);
            rows[1023] = [small];
            let (mut fast, mut slow) = ([ExactSum::default()], ExactSum::default());
            LaneSums::<1>::new(&mut fast, &mut LaneBuffer::default()).add_rows(&rows);
            rows.as_flattened().iter().for_each(|value| slow.add(f64::from(*value)));
            assert_eq!(fast[0], slow, "{large}, {middle} and {small}, {apart} apart");
        }
    }
}

proptest! {
    #[test]
    fn sum_is_rounded_to_the_nearest_even(values in prop::collection::vec(any_finite(), 0..40)) {
        let mut oracle = Digits::new();
        values.iter().for_each(|value| oracle.add(*value));
        prop_assert!(oracle.rounds_to(exact(&values).value()));
    }

    #[test]
    fn products_are_not_rounded(pairs in prop::collection::vec((any_finite(), any_finite()), 0..20)) {
        let (mut oracle, mut sum) = (Digits::new(), ExactSum::default());
        for (a, b) in pairs {
            oracle.add_product(a, b);
            sum.add_product(a, b);
        }
        if sum.value().is_finite() {
            prop_assert!(oracle.rounds_to(sum.value()));
        } else {
            let overflow = f64::MAX.copysign(sum.value());
            prop_assert_eq!(oracle.minus(overflow).sign(), if overflow > 0.0 { 1 } else { -1 });
        }
    }

    #[test]
    fn order_and_merging_do_not_matter(
        values in prop::collection::vec(any_finite(), 1..40),
        order in prop::collection::vec(any::<u64>(), 40),
        cut in 0..40_usize,
    ) {
        let whole = exact(&values);
        let mut shuffled: Vec<(u64, f64)> = order.into_iter().zip(values.iter().copied()).collect();
        shuffled.sort_by_key(|(key, _)| *key);
        let shuffled: Vec<f64> = shuffled.into_iter().map(|(_, value)| value).collect();
        prop_assert_eq!(exact(&shuffled), whole);
        let (head, tail) = shuffled.split_at(cut.min(shuffled.len()));
        let mut merged = exact(tail);
        merged.merge(&exact(head));
        prop_assert_eq!(merged, whole);
    }

    #[test]
    fn adding_and_taking_away_leaves_nothing(values in prop::collection::vec(any_finite(), 0..40)) {
        let mut sum = exact(&values);
        values.iter().rev().for_each(|value| sum.add(-value));
        prop_assert_eq!(sum, ExactSum::default());
        prop_assert_eq!(sum.value().to_bits(), 0);
    }

    #[test]
    fn slices_equal_one_by_one(values in prop::collection::vec(any_finite(), 0..3000)) {
        let mut sum = ExactSum::default();
        sum.add_slice(&values);
        prop_assert_eq!(sum, exact(&values));
    }

    #[test]
    fn narrow_slices_equal_one_by_one(values in prop::collection::vec(any::<f32>(), 0..3000)) {
        let wide: Vec<f64> = values.iter().copied().map(f64::from).collect();
        let mut sum = ExactSum::default();
        sum.add_slice(&values);
        prop_assert_eq!(sum, exact(&wide));
    }

    #[test]
    fn lanes_equal_one_by_one(
        rows in prop::collection::vec(prop::array::uniform4(any_finite()), 0..400),
        others in prop::collection::vec(prop::array::uniform4(any_finite()), 400),
    ) {
        // the fourth lane is padding and must not matter
        let (mut fast, mut slow) = ([ExactSum::default(); 3], [ExactSum::default(); 3]);
        let (mut fast_products, mut slow_products) = (fast, slow);
        {
            let (mut buffer, mut product_buffer) = (LaneBuffer::default(), LaneBuffer::default());
            let mut lanes = LaneSums::<4>::new(&mut fast, &mut buffer);
            let mut product_lanes = LaneSums::<4>::new(&mut fast_products, &mut product_buffer);
            for (row, other) in rows.iter().zip(&others) {
                lanes.add(*row);
                product_lanes.add_products(*row, *other);
            }
        }
        for (row, other) in rows.iter().zip(&others) {
            for lane in 0..3 {
                slow[lane].add(row[lane]);
                slow_products[lane].add_product(row[lane], other[lane]);
            }
        }
        prop_assert_eq!(fast, slow);
        prop_assert_eq!(fast_products, slow_products);
        let (mut whole, mut whole_products) = (ExactSum::default(), ExactSum::default());
        {
            let (mut buffer, mut product_buffer) = (LaneBuffer::default(), LaneBuffer::default());
            let mut lanes = LaneSums::<4>::spread(&mut whole, 3, &mut buffer);
            let mut product_lanes = LaneSums::<4>::spread(&mut whole_products, 3, &mut product_buffer);
            for (row, other) in rows.iter().zip(&others) {
                lanes.add(*row);
                product_lanes.add_products(*row, *other);
            }
        }
        prop_assert_eq!(whole, merged(&slow));
        prop_assert_eq!(whole_products, merged(&slow_products));
    }

    #[test]
    fn rows_equal_one_by_one(
        // from all alike to further apart than plain additions allow, a few special
        rows in prop::collection::vec(prop::array::uniform4((-1.0_f32..1.0, 0..32_i32)), 0..1500),
        spread in prop_oneof![0.0..1.5_f32, 1.5..6.0_f32],
        special in prop::option::of((0..1500_usize, any::<f32>())),
        taken in 1..300_usize,
    ) {
        let mut rows: Vec<[f32; 4]> =
            rows.iter().map(|row| row.map(|(value, e)| value * (-spread * e as f32).exp2())).collect();
        if let Some((at, value)) = special && at < rows.len() {
            rows[at][at % 3] = value;
        }
        for row in rows.iter_mut().step_by(7) {
            *row = [0.0, -0.0, row[2], f32::NAN]; // the fourth lane is padding
        }
        let (mut fast, mut slow) = ([ExactSum::default(); 3], [ExactSum::default(); 3]);
        let (mut fast_squares, mut slow_squares) = (fast, slow);
        {
            let (mut buffer, mut square_buffer) = (LaneBuffer::default(), LaneBuffer::default());
            let mut lanes = LaneSums::<4>::new(&mut fast, &mut buffer);
            let mut square_lanes = LaneSums::<4>::new(&mut fast_squares, &mut square_buffer);
            for rows in rows.chunks(taken) {
                lanes.add_with_squares::<_, false, 16>(&mut square_lanes, rows);
            }
        }
        for row in &rows {
            for lane in 0..3 {
                let value = f64::from(row[lane]);
                slow[lane].add(value);
                slow_squares[lane].add_product(value, value);
            }
        }
        prop_assert_eq!(fast, slow);
        prop_assert_eq!(fast_squares, slow_squares);
        let (mut whole, mut whole_squares) = (ExactSum::default(), ExactSum::default());
        {
            let (mut buffer, mut square_buffer) = (LaneBuffer::default(), LaneBuffer::default());
            let mut lanes = LaneSums::<4>::spread(&mut whole, 3, &mut buffer);
            let mut square_lanes = LaneSums::<4>::spread(&mut whole_squares, 3, &mut square_buffer);
            for rows in rows.chunks(taken) {
                lanes.add_with_squares::<_, true, 64>(&mut square_lanes, rows);
            }
        }
        prop_assert_eq!(whole, merged(&slow));
        prop_assert_eq!(whole_squares, merged(&slow_squares));
    }

    #[test]
    fn squares_of_doubles_equal_one_by_one(rows in prop::collection::vec(prop::array::uniform2(any_finite()), 0..300)) {
        let (fast, mut slow) = (with_squares(&rows), [[ExactSum::default(); 2]; 2]);
        for row in &rows {
            for lane in 0..2 {
                slow[0][lane].add(row[lane]);
                slow[1][lane].add_product(row[lane], row[lane]);
            }
        }
        prop_assert_eq!(fast, slow);
    }
}

fn merged(sums: &[ExactSum]) -> ExactSum {
    let mut whole = ExactSum::default();
    sums.iter().for_each(|sum| whole.merge(sum));
    whole
}

/// The sums of the lanes, and those of their squares, which do not depend on how they are multiplied.
fn with_squares<T: Element, const L: usize>(rows: &[[T; L]]) -> [[ExactSum; L]; 2] {
    let mut ways = [[[ExactSum::default(); L]; 2]; 3];
    let (mut buffer, mut square_buffer) = (LaneBuffer::default(), LaneBuffer::default());
    for (way, [values, squares]) in ways.iter_mut().enumerate() {
        let mut squares = LaneSums::new(squares, &mut square_buffer);
        let mut values = LaneSums::new(values, &mut buffer);
        match way {
            0 => values.add_with_squares::<T, false, 16>(&mut squares, rows),
            1 => values.add_with_squares::<T, true, 32>(&mut squares, rows),
            _ => values.add_with_squares::<T, true, 64>(&mut squares, rows),
        }
    }
    let [plain, fused, at_once] = ways;
    assert_eq!(plain, fused);
    assert_eq!(plain, at_once);
    plain
}

#[test]
fn rows_at_the_limits_of_plain_additions_stay_exact() {
    // as many of the largest fraction as have room, or one less and the smallest that still fits; and one step beyond
    let limits = [(128, 21), (128, 22), (128, 23), (129, 21), (129, 22), (256, 21), (256, 22), (127, 0)];
    for (terms, range) in
        limits.into_iter().chain([(4096, 17), (4097, 17), (4096, 18), (1, 29), (2, 28), (2, 29)])
    {
        for lowest in [f32::MIN_POSITIVE, 1.0, f32::from_bits(1)] {
            let largest = lowest.max(f32::MIN_POSITIVE) * 2f32.powi(range) * (2.0 - f32::EPSILON);
            let mut rows = vec![[largest, -largest]; terms];
            rows[0] = [lowest * (1.0 + f32::EPSILON); 2];
            let (mut fast, mut slow) = ([ExactSum::default(); 2], [ExactSum::default(); 2]);
            LaneSums::<2>::new(&mut fast, &mut LaneBuffer::default()).add_rows(&rows);
            for row in &rows {
                (0..2).for_each(|lane| slow[lane].add(f64::from(row[lane])));
            }
            assert_eq!(fast, slow, "{terms} terms, {range} bits above {lowest}");
            let mut squares = [ExactSum::default(); 2];
            for row in &rows {
                (0..2).for_each(|lane| squares[lane].add_product(f64::from(row[lane]), f64::from(row[lane])));
            }
            let fast = with_squares(&rows);
            assert_eq!(fast, [slow, squares], "squares, {terms} terms, {range} bits above {lowest}");
        }
    }
}

#[test]
fn cancellation_keeps_the_small_terms() {
    assert_eq!(exact(&[1e300, 3.0, -1e300, 5e-324]).value(), 3.0);
    assert_eq!(exact(&[1e300, 5e-324, -1e300]).value(), 5e-324);
    assert_eq!(exact(&[f64::MAX, f64::MAX, -f64::MAX]).value(), f64::MAX);
    let mut sum = ExactSum::default();
    sum.add_product(1e300, 1e300);
    sum.add_product(5e-324, 5e-324);
    assert_eq!(sum.value(), f64::INFINITY);
    sum.add_product(-1e300, 1e300);
    assert_eq!(sum.value(), 0.0); // 2^-2148 rounds to zero …
    assert_ne!(sum, ExactSum::default()); // … and is not forgotten
}

#[test]
fn ties_go_to_even() {
    let tie = 2f64.powi(-53);
    assert_eq!(exact(&[1.0, tie]).value(), 1.0);
    assert_eq!(exact(&[1.0, tie, 5e-324]).value(), 1.0_f64.next_up());
    assert_eq!(exact(&[1.0_f64.next_up(), tie]).value(), 1.0_f64.next_up().next_up());
    assert_eq!(exact(&[f64::MAX, f64::MAX.ulp_half()]).value(), f64::INFINITY);
    assert_eq!(exact(&[f64::MAX, f64::MAX.ulp_half().next_down()]).value(), f64::MAX);
}

#[test]
fn infinities_and_nan_do_not_depend_on_order() {
    for values in [[f64::INFINITY, 1.0, -1e308], [-1e308, f64::INFINITY, 1.0]] {
        assert_eq!(exact(&values).value(), f64::INFINITY);
    }
    assert_eq!(exact(&[f64::NEG_INFINITY, f64::MAX]).value(), f64::NEG_INFINITY);
    for values in [[f64::INFINITY, f64::NEG_INFINITY], [f64::NAN, 1.0], [1.0, f64::NAN]] {
        assert!(exact(&values).value().is_nan());
        let mut merged = exact(&values[..1]);
        merged.merge(&exact(&values[1..]));
        assert!(merged.value().is_nan());
    }
    let mut sum = ExactSum::default();
    sum.add_product(f64::INFINITY, 0.0);
    assert!(sum.value().is_nan());
    let mut values = vec![1.0_f32; 5000];
    values[4321] = f32::NEG_INFINITY;
    let mut sum = ExactSum::default();
    sum.add_slice(&values);
    assert_eq!(sum.value(), f64::NEG_INFINITY);
}

#[test]
fn lanes_of_the_widest_range_stay_exact() {
    // neighbours differ by more than both bins cover, and the largest rounding carries into 2^E
    let mut rows = Vec::new();
    for i in 0..1000_i32 {
        let large = 2f64.powi(i % 900) * (2.0 - 2f64.powi(-52));
        rows.push([large, -large, 2f64.powi(-(i % 1074)), f64::from(i)]);
    }
    let (mut fast, mut slow) = ([ExactSum::default(); 4], [ExactSum::default(); 4]);
    let mut buffer = LaneBuffer::default();
    let mut lanes = LaneSums::<4>::new(&mut fast, &mut buffer);
    for row in &rows {
        lanes.add(*row);
    }
    drop(lanes);
    for row in &rows {
        (0..4).for_each(|lane| slow[lane].add(row[lane]));
    }
    assert_eq!(fast, slow);
}

trait HalfUlp {
    fn ulp_half(self) -> Self;
}

impl HalfUlp for f64 {
    fn ulp_half(self) -> Self {
        (self - self.next_down()) / 2.0
    }
}
